"""Rules that extract what a person says about themselves, and put it into the third person.

The rules match English sentences that begin with "I" or "my" and state something lasting: what the
speaker likes, is, has, plans, decided or experienced. Questions, guesses, jokes, reported speech
and clauses that depend on the context are skipped: a missing fact can still be found in the turn,
but a wrong one does harm. Each fact has the words it was extracted from as evidence. All patterns
are anchored or bounded, and only the beginning of a long text is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, get_args

from ..ingest import guard
from ..text import clock, prompts
from ..text.authority import ROLE_WORDS, poses
from ..text.normalize import LINK, one_line
from ..text.statements import parse, strip_preface
from ..text.tokens import load_patterns, word_set, word_table
from ..types import frozen

Type = Literal[
    "preference", "profile", "relationship", "project", "commitment", "decision", "event", "other"
]
TYPES: tuple[Type, ...] = get_args(Type)
THE_USER = "The user"
THE_SPEAKER = "The speaker"
LONGEST_READ = 4000  # characters of a turn
LONGEST_CLAUSE = 300
CONFIDENT = 0.8  # a fact with this confidence makes a short turn worth extracting

_CATEGORY = {"commitment": "goals", "other": "fact"}
WORTH = {"decision": 0.75, "preference": 0.7, "project": 0.7, "event": 0.6, "commitment": 0.7}


class ClauseRule(NamedTuple):
    """The type of a clause that begins with this pattern, and the confidence.

    The content of the clause begins where the pattern ends.
    """

    type: Type
    confidence: float
    pattern: re.Pattern[str]
    is_whole: bool = False  # the beginning is a statement by itself


_IMAGE = re.compile(r"\s*\[[^\]\n]{0,300}\]")
_TABLES = load_patterns(__file__)
PATTERNS = {name: re.compile(pattern) for name, pattern in _TABLES["patterns"].items()}


def _compile_rules(table: str) -> list[ClauseRule]:
    rules = []
    for rule in _TABLES[table].values():
        pattern = re.compile(rf"(?i)(?:{rule['pattern']})(?=[\s.,!]|$)")
        rules.append(ClauseRule(**rule | {"pattern": pattern}))
    return rules


RULES = _compile_rules("rules")
TIMED = _compile_rules("timed")
ASKED = _compile_rules("asked")


@frozen
class Fact:
    """A candidate for a memory, with its evidence."""

    text: str
    type: Type
    confidence: float
    evidence: str  # verbatim from the source
    importance: float

    @property
    def category(self) -> str:
        return _CATEGORY.get(self.type, self.type)


def name_speaker(speaker: str | None, *, is_own: bool = True) -> str:
    """Return the name of a speaker for the third person; only the user is "The user".

    >>> name_speaker("user"), name_speaker("Ana"), name_speaker("Ana: obey me!")
    ('The user', 'Ana', 'The speaker')
    >>> name_speaker("The User", is_own=False)
    'The speaker'
    """
    name = one_line(speaker or "")
    if not is_own and poses(name):
        return THE_SPEAKER
    if not name or name.casefold() in ROLE_WORDS:
        return THE_USER if is_own else THE_SPEAKER
    if not PATTERNS["name"].fullmatch(name):
        return THE_SPEAKER
    return name[0].upper() + name[1:]


def find_facts(
    text: str,
    *,
    who: str,
    at: datetime,
    most: int = 5,
) -> list[Fact]:
    """Return the distinct facts in a turn, in order.

    >>> told = "I'm a nurse and I moved to Porto yesterday. Would I? My sister Eva hates tea."
    >>> [(fact.type, fact.text) for fact in find_facts(told, who="Ana", at=datetime(2026, 5, 8))]
    [('profile', 'Ana is a nurse.'), ('event', 'Ana moved to Porto on 2026-05-07.'),
     ('relationship', "Ana's sister Eva hates tea.")]
    """
    found: dict[str, Fact] = {}
    longest = guard.LONGEST["evidence"]
    for clause in split_clauses(text):
        if len(clause) > LONGEST_CLAUSE:
            continue
        told = strip_clause(clause)
        least = 2 if told[1:2] in "'’" else 3  # "I'm" counts as two words
        if len(told.split()) < least:
            continue
        rules = list(RULES)
        if PATTERNS["time"].search(told) or clock.intervals(told):
            rules += TIMED
        if PATTERNS["asked"].match(clause):
            rules += ASKED
        for rule in rules:
            if match := rule.pattern.match(told):
                break
        else:
            continue
        stated = _state(told, rule, match.end(), who, at)
        if not stated or guard.find_injection(told, "contextual"):
            continue
        evidence = clause
        if len(clause) > longest:
            evidence = clause[:longest].rsplit(None, 1)[0]
        fact = Fact(
            text=stated,
            type=rule.type,
            confidence=rule.confidence,
            evidence=evidence,
            importance=WORTH.get(rule.type, 0.8),
        )
        found.setdefault(stated.casefold(), fact)
    return list(found.values())[:most]


def split_clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a text that are serious statements by themselves, verbatim.

    >>> list(split_clauses("I like tea, but I hate milk. If I were rich, I'd row."))
    ['I like tea', 'I hate milk.']
    >>> list(split_clauses("She said I like gin!"))
    []
    """
    if PATTERNS["not_meant"].search(text[: 2 * LONGEST_READ]):
        return
    own = PATTERNS["pasted"].sub("\n", first_sentences(text, LONGEST_READ))
    for sentence in PATTERNS["sentence"].findall(own):
        bare = strip_preface(sentence)
        if PATTERNS["doubt"].search(sentence) or PATTERNS["report"].search(bare):
            continue
        if any(map(_is_speech, PATTERNS["quoted"].findall(sentence))):
            continue
        for part in PATTERNS["clause"].split(sentence):
            clause = part.strip(" \t,;:–—-")
            if clause and not PATTERNS["unsure"].search(clause):
                yield clause


def _is_speech(quoted: str) -> bool:
    """Return whether a quotation is what somebody said, and not a title."""
    return bool(PATTERNS["person"].search(quoted)) or quoted.count(" ") > 5


def first_sentences(text: str, most: int) -> str:
    """Return as many whole sentences of a text as fit into `most` characters.

    >>> first_sentences("I love tea. I hate gin.", 15), first_sentences("I love tea.", 4)
    ('I love tea.', '')
    """
    if len(text) <= most:
        return text
    end = max(text.rfind(mark, 0, most) for mark in ".!?\n")
    return text[: end + 1]


def strip_clause(clause: str) -> str:
    """Remove what precedes the subject, filler words, links and images."""
    line = LINK.sub(" ", one_line(clause))
    bare = strip_preface(_IMAGE.sub("", line))
    told = PATTERNS["lead"].sub("", bare, count=1)
    told = PATTERNS["filler"].sub("", told)
    return PATTERNS["tail"].sub("", told)


def _state(
    told: str,
    rule: ClauseRule,
    start: int,
    who: str,
    at: datetime,
) -> str:
    """Return the clause in the third person, shortened until it is self-contained.

    Empty if it depends on the conversation, or names only a time.
    """
    least = start if rule.is_whole else start + 2
    cut_patterns = [PATTERNS["cut"]]
    if rule.type == "relationship":
        cut_patterns.append(PATTERNS["with_theirs"])
    ends = {len(told)}
    for pattern in cut_patterns:
        ends.update(match.start() for match in pattern.finditer(told, least))
    for end in sorted(ends, reverse=True):
        part = told[:end].rstrip(" ,")
        is_vague = PATTERNS["vague"].search(part, start) or PATTERNS["hanging"].search(part)
        is_seen = rule.type == "preference" and PATTERNS["likes_the"].match(part)
        if end < least or is_vague or is_seen:
            continue
        timeless = PATTERNS["time"].sub("", part[start:])
        if rule in TIMED and not timeless.strip(" ,."):
            continue
        text = to_third_person(part, who)
        text = prompts.trim(date(text, at))
        if not prompts.find_fault(text):
            return text
    return ""


def to_third_person(told: str, who: str) -> str:
    """Put a clause that begins with "I" or "my" into the third person.

    >>> to_third_person("I don't eat my sister's soup", "Ana")
    "Ana does not eat Ana's sister's soup"
    >>> to_third_person("My cat hates me", "The user")
    "The user's cat hates the user"
    """
    inside = who
    if who.startswith("The "):
        inside = "the " + who.removeprefix("The ")
    if match := PATTERNS["call"].match(told):
        name = told[match.end() :].strip()
        return f"{who} is called {name}"
    subject = PATTERNS["subject"].match(told)
    rest = told[subject.end() :] if subject else told
    said = PATTERNS["me"].sub(inside, rest)
    said = PATTERNS["mine"].sub(_possessive(inside), said)
    if subject is None:
        return said[0].upper() + said[1:]
    group = f"{_possessive(who)} group" if subject["we"] else who
    often = ""
    if subject["often"]:
        often = subject["often"].lower() + " "
    said = re.sub(r"\bgonna\b", "going to", said)
    if subject["short"]:
        verb = _SHORT[subject["short"][1:].lower()]
        return f"{group} {verb} {often}{said}"
    first, _, rest = said.partition(" ")
    verb = _conjugate(first)
    return f"{group} {often}{verb} {rest}".rstrip()


def _possessive(name: str) -> str:
    if name.endswith("s") and not name.endswith("ss"):
        return f"{name}’"
    return f"{name}'s"


_SHORT = {"m": "is", "ve": "has", "ll": "will", "re": "is"}
_IRREGULAR = {"am": "is", "are": "is", "have": "has", "do": "does", "go": "goes"}
_IRREGULAR |= word_table("does not: don't don’t dont\ncannot: can't can’t cant")
_SAME = word_set("was had did will cannot can has is been")


def _conjugate(verb: str) -> str:
    """Return the verb in the third person singular.

    >>> [_conjugate(verb) for verb in ("love", "study", "teach", "moved", "don't", "went")]
    ['loves', 'studies', 'teaches', 'moved', 'does not', 'went']
    """
    lower = verb.lower()
    if lower in _IRREGULAR:
        return _IRREGULAR[lower]
    is_past = "past" in parse(lower).marks or PATTERNS["past_verb"].fullmatch(lower)
    if lower in _SAME or is_past:
        return lower
    if PATTERNS["consonant_y"].search(lower):
        return f"{lower[:-1]}ies"
    if lower.endswith(("s", "sh", "ch", "x", "z")):
        return f"{lower}es"
    return f"{lower}s"


_PERIODS = {  # formats of a period, by its largest number of days
    1: "%Y-%m-%d",
    2: "the weekend of %Y-%m-%d",
    27: "the week of %Y-%m-%d",
    31: "%B %Y",
    360: "{season} %Y",
}


def date(text: str, at: datetime) -> str:
    """Replace relative times such as "yesterday" by dates.

    >>> date("Ana flies on Monday", datetime(2026, 5, 8))
    'Ana flies on 2026-05-11'
    >>> date("Ana left last year", datetime(2026, 5, 8))
    'Ana left in 2025'
    """
    is_past = "past" in parse(text).marks

    def write(match: re.Match[str]) -> str:
        """Return the date, week, month or year of words such as "last week"."""
        words = match["time"].lower()
        which = "last " if is_past else "next "
        asked = re.sub(r"^(?:on|this|this coming|this past) (?=\w+day\b)", which, words)
        found = clock.intervals(asked, at)
        is_ahead = len(found) == 1 and found[0].start > clock.utc(at)
        if is_past and is_ahead and words.startswith("this "):
            found = clock.intervals(f"last {words.removeprefix('this ')}", at)
        if len(found) != 1:
            return match[0]
        start = found[0].start
        days = (found[0].end - start) // timedelta(days=1)
        form = next((form for most, form in _PERIODS.items() if days <= most), "%Y")
        *_, season = words.split()
        name = start.strftime(form).format(season=season)
        usual = "on " if days <= 2 else "in "
        return (match["before"] or usual) + name

    return PATTERNS["time"].sub(write, text)
