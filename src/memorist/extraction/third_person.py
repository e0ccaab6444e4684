"""Put what a person says about themselves into the third person, with dates for relative times.

Every "I", "me", "my", "we", "us" and "our" of a sentence is replaced by the name of the speaker, and
the verb that follows is conjugated. Chat spelling is understood ("im", "dont"). The other words
stay as they are.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import pairwise

from ..text import clock
from ..text.compare import RELATIVES
from ..text.statements import parse
from ..text.tokens import compile_all, load_patterns, word_set

_TABLES = load_patterns(__file__)
PATTERNS = compile_all(_TABLES["patterns"])
TIME = PATTERNS["time"]  # a relative time
_PERIODS = {  # formats of a period, by its largest number of days
    1: "%Y-%m-%d",
    2: "the weekend of %Y-%m-%d",
    27: "the week of %Y-%m-%d",
    31: "%B %Y",
    360: "{season} %Y",
}
_SHORT = {"m": "is", "ve": "has", "ll": "will", "re": "is", "d": "would"}
_IRREGULAR: dict[str, str] = {
    verb: third for third, verbs in _TABLES["irregular"].items() for verb in verbs.split()
}
_SAME, _PAST, _VERBLESS, _MODAL = (
    word_set(" ".join(_TABLES["words"][name])) for name in ("same", "past", "verbless", "modal")
)
_SINGULAR = frozenset(("am", "m"))
_PLURAL = {
    "is": "are",
    "was": "were",
    "has": "have",
    "does": "do",
    "goes": "go",
    "does not": "do not",
    "has not": "have not",
    "is not": "are not",
    "was not": "were not",
}


def to_third_person(statement: str, who: str) -> str:
    """Replace the first person in a sentence, and write its first letter as a capital.

    >>> to_third_person("I don't eat my sister's soup", "Ana")
    "Ana does not eat Ana's sister's soup"
    >>> to_third_person("My cat hates me, so im out and we sold the sofa", "The user")
    "The user's cat hates the user, so the user is out and the user and others sold the sofa"
    """
    if match := PATTERNS["call"].match(statement):
        name = statement[match.end() :].strip()
        return f"{who} is called {name}"
    said = replace_first_person(statement, who)
    return said[:1].upper() + said[1:]


def replace_first_person(statement: str, who: str) -> str:
    """Replace "I", "my", "we" and so on by the name of the speaker, and conjugate their verbs.

    >>> replace_first_person("later i go to my aunt", "The user")
    "later the user goes to the user's aunt"
    """
    name = inside(who)
    others = f"{possessive(name)} partner" if PATTERNS["couple"].search(statement) else "others"
    group = f"{name} and {others}"
    statement = PATTERNS["alone"].sub("alone", statement)
    statement = PATTERNS["in_person"].sub(r"\g<said>", statement)
    statement = _conjugate_further_verbs(statement)
    said = _replace_subjects(statement, "first", name, group)
    said = PATTERNS["me"].sub(name, said)
    said = PATTERNS["us"].sub(group, said)
    said = PATTERNS["mine"].sub(possessive(name), said)
    said = replace_that(said)
    return PATTERNS["going_to"].sub("going to", said)


def _conjugate_further_verbs(statement: str) -> str:
    """Conjugate the verbs that follow "I" and a first verb after "and", "but" or "or".

    >>> _conjugate_further_verbs("I speak Dutch and live in Ghent, but I want to learn and work")
    'I speak Dutch and lives in Ghent, but I want to learn and work'
    """

    def write(match: re.Match[str]) -> str:
        verb = (match["first"] or "").lower()
        is_present = match["adverbs"] or not verb.endswith(("n't", "n’t", "nt", "not"))
        if verb in _MODAL or not is_present or PATTERNS["infinitive"].search(match["between"]):
            return match[0]
        return f"{match['before']} {conjugate(match['verb'])}"

    return PATTERNS["further_verb"].sub(write, statement)


def replace_that(statement: str) -> str:
    """Write "which" where "that" is a relative pronoun, since it does not point outside.

    >>> replace_that("a bag that has wheels, and I know that"), replace_that("I think that is old")
    ('a bag which has wheels, and I know that', 'I think that is old')
    """
    return PATTERNS["relative"].sub(" which", statement)


def replace_second_person(statement: str, name: str) -> str:
    """Replace "you" and "your" by the name of the hearer, and conjugate the verbs.

    >>> replace_second_person("always say so when you're done with your work", "the assistant")
    "always say so when the assistant is done with the assistant's work"
    """
    said = _replace_subjects(statement, "second", name, name)
    said = PATTERNS["yours"].sub(possessive(name), said)
    return PATTERNS["you"].sub(name, said)


def _replace_subjects(statement: str, person: str, name: str, group: str) -> str:
    """Replace the subjects of a person, together with the verbs that follow them."""

    def write(match: re.Match[str]) -> str:
        subject = group if match["we"] else name
        before = statement[max(0, match.start() - 80) : match.start()]
        said = (match["short"] or match["verb"]).lower().lstrip("'’")
        is_plural = subject != name or (said not in _SINGULAR and _is_joined(before))
        if match["short"]:
            verb = _SHORT[match["short"].lstrip("'’").lower()]
            return f"{subject} {_PLURAL.get(verb, verb) if is_plural else verb}"
        verb = match["verb"].lower()
        verb = conjugate_plural(verb) if is_plural else conjugate(verb)
        adverbs = match["adverbs"].lower()
        return f"{subject}{adverbs} {verb}"

    return PATTERNS[person].sub(write, statement)


def _is_joined(before: str) -> bool:
    """Return whether what precedes "I" makes it a part of a subject, and is not a clause.

    >>> _is_joined("my two sisters and "), _is_joined("my wife likes jazz and ")
    (True, False)
    >>> _is_joined("my mother sings and "), _is_joined("the kids love soup and ")
    (False, False)
    """
    match = PATTERNS["joined"].search(before)
    if match is None:
        return False
    words = (match["noun"] or "").split()
    ends_in_s = PATTERNS["ends_in_s"].fullmatch
    for previous, word in pairwise(words):
        if word in _SAME or word in _PLURAL or is_past(word):
            return False
        if ends_in_s(word) and (word is not words[-1] or previous in RELATIVES):
            return False  # my wife likes jazz
        if ends_in_s(previous) and word.islower():
            return False  # the kids love soup
    return True


def inside(who: str) -> str:
    """Return the name of a speaker as it is written inside of a sentence."""
    return "the " + who.removeprefix("The ") if who.startswith("The ") else who


def possessive(name: str) -> str:
    """Return the possessive of a name."""
    if name.endswith("s") and not name.endswith("ss"):
        return f"{name}’"
    return f"{name}'s"


def conjugate(verb: str) -> str:
    """Return the verb in the third person singular.

    >>> [conjugate(verb) for verb in ("love", "study", "teach", "moved", "dont", "went", "on")]
    ['loves', 'studies', 'teaches', 'moved', 'does not', 'went', 'is on']
    """
    plain = verb.lower().replace("’", "'")
    if plain in _IRREGULAR:
        return _IRREGULAR[plain]
    if plain in _VERBLESS:
        return f"is {plain}"
    if is_past(plain) or plain in _SAME:
        return plain
    if PATTERNS["consonant_y"].search(plain):
        return f"{plain[:-1]}ies"
    if plain.endswith(("s", "sh", "ch", "x", "z")):
        return f"{plain}es"
    return f"{plain}s"


def conjugate_plural(verb: str) -> str:
    """Return the verb in the third person plural.

    >>> [conjugate_plural(verb) for verb in ("love", "was", "dont", "went", "on")]
    ['love', 'were', 'do not', 'went', 'are on']
    """
    plain = verb.lower().replace("’", "'")
    if plain in _VERBLESS:
        return f"are {plain}"
    third = _IRREGULAR.get(plain, plain)
    return _PLURAL.get(third, third)


def is_past(verb: str) -> bool:
    """Return whether a verb is in the past tense.

    >>> [is_past(verb) for verb in ("moved", "went", "need", "go")]
    [True, True, False, False]
    """
    return verb in _PAST or PATTERNS["past_verb"].fullmatch(verb) is not None


def date(text: str, at: datetime) -> str:
    """Replace relative times such as "yesterday" by dates, where they clearly are times.

    >>> date("Ana flies on Monday", datetime(2026, 5, 8))
    'Ana flies on 2026-05-11'
    >>> date("Ana left last year", datetime(2026, 5, 8))
    'Ana left in 2025'
    >>> date("Ana flies on Monday 11 May and reads USA Today", datetime(2026, 5, 8))
    'Ana flies on Monday 11 May 2026 and reads USA Today'
    """
    text = PATTERNS["dated"].sub(lambda match: _add_year(match, at), text)
    if TIME.search(text) is None or PATTERNS["title"].search(text):
        return text
    is_past = "past" in parse(text).marks
    is_habit = PATTERNS["habit"].search(text) is not None

    def write(match: re.Match[str]) -> str:
        """Return the date, week, month or year of words such as "last week"."""
        words = match["time"].lower()
        if words.endswith(" ago") and PATTERNS["in_month"].search(text[: match.start()][-20:]):
            return match[0]  # of which year, is not certain
        is_listed = len(re.findall(rf"(?i)\b{re.escape(words)}\b", text)) > 1
        if is_listed or (is_habit and words.startswith("on ")):
            return match[0]
        which = "last " if is_past else "next "
        asked = re.sub(r"^(?:on|this|this coming|this past) (?=\w+day\b)", which, words)
        found = clock.intervals(asked, at)
        is_ahead = len(found) == 1 and found[0].start > clock.utc(at)
        if is_past and is_ahead and words.startswith("this "):
            if not words.endswith(("day", "weekend")):
                return match[0]  # "I have saved for this winter" is about the next one
            found = clock.intervals(f"last {words.removeprefix('this ')}", at)
        if len(found) != 1:
            return match[0]
        start = found[0].start
        days = (found[0].end - start) // timedelta(days=1)
        form = next((form for most, form in _PERIODS.items() if days <= most), "%Y")
        *_, season = words.split()
        name = start.strftime(form).format(season=season)
        usual = "on " if days <= 2 else "in "
        part = f"the{match['part']} of " if match["part"] else ""
        return (match["before"] or usual) + part + name

    return TIME.sub(write, text)


def date_if_certain(part: str, at: datetime, *, has_tense: bool) -> str:
    """Replace relative times, but not "on Friday" where it may be the last one or the next."""
    said = "said: "
    dated = date(part, at)
    is_same = date(said + part, at) == said + dated
    return dated if has_tense or is_same else part


def _add_year(match: re.Match[str], at: datetime) -> str:
    """Add the year to a date of which the day of the week is known, as it was written."""
    day, month, comma = match["day"], match["month"], ""
    if day is None:
        day, month, comma = match["us_day"], match["us_month"], ","
    number = clock.MONTH_NUMBERS[month.lower()[:3]]
    weekday = clock.find_weekday(match["weekday"])
    year = clock.find_year(weekday, int(day), number, at)
    return match[0] if year is None else f"{match[0]}{comma} {year}"
