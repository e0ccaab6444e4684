"""Tables for reading German, French, Spanish, Portuguese and Italian statements.

`grammars.toml` has the verbs and sentences of each language; `languages` reads turns by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from ..text import clock, tokens
from ..text.tokens import STOP_WORDS, detect_language
from .durable import Type

_TABLES = tokens.load_patterns(__file__)
LANGUAGES = tuple(name for name in _TABLES if name != "parts")
_MOST_CHECKED = 800  # characters that tell the language
_ENGLISH_I = re.compile(r"\bI(?:['’](?:m|ve|ll|d))? (?![a-z]+i\b)[a-z]")  # not "I miei cani"
# What follows a day of the week: "…, dem 8. Mai", "… 8/5".
_DATE = (
    r"(?:-feira)?,? \(?(?:de[mn] |le |il |el |(?:o )?dia )?(?P<day>\d{1,2})(?:(?:\.|er|º)?"
    r" (?:de )?(?P<month>MONTHS)\b|\.?(?=\)|$|,)|[./]\d)"
)
_PERIODS = {1: "day", 7: "week", 31: "month"}  # forms of a date, by the largest number of days
_MARKS = tuple("\"'“”„«»-#@/")  # around a word that is a name
_HABIT = re.compile(  # what happens again and again, on whichever day
    r"(?i)\b(?:immer|jede[nmrs]?|meistens?|normalerweise|wochentlich|oft|toujours|chaque|tou(?:te)?s les"
    r"|souvent|d'habitude|siempre|cada|tod[ao]s? (?:l[ao]s|[ao]s)|normalmente|suele|sempre|tod[ao]"
    r"|ogni|di solito|tutt[ie] (?:i|le)|spesso|nunca|mai|nie|jamais)\b"
)
_YEAR = re.compile(r"(?:,| de| del)? (?:19|20)\d\d")
_ACCENTED = "àáâãäåçèéêëìíîïñòóôõöùúûüýÀÁÂÃÄÅÇÈÉÊËÌÍÎÏÑÒÓÔÕÖÙÚÛÜÝ’"
_PLAIN = "aaaaaaceeeeiiiinooooouuuuyAAAAAACEEEEIIIINOOOOOUUUUY'"
_WITHOUT_ACCENTS = str.maketrans(_ACCENTED, _PLAIN)


def strip_accents(text: str) -> str:
    """Return the text without accents; each character keeps its place.

    >>> strip_accents("J’étais à Zürich")
    "J'etais a Zurich"
    """
    return text.translate(_WITHOUT_ACCENTS)


class SpokenRule(NamedTuple):
    """The type of a clause whose verb and rest begin with this pattern, and the confidence."""

    type: Type
    confidence: float
    pattern: re.Pattern[str]
    timed: bool = False  # only if the clause says when
    we: bool = False  # also in the plural
    dative: str | None = None  # for the speaker as object ("me gusta"): the pronoun "le"


class Language(NamedTuple):
    """The tables of a language in `grammars.toml`, compiled."""

    name: str
    names: Mapping[str, Any]
    verbs: Mapping[str, str]  # first person without accents → third person
    we: Mapping[str, str]  # the same for the plural
    dates: Mapping[str, str]
    articles: Mapping[str, str]
    called: str
    patterns: Mapping[str, re.Pattern[str]]
    shapes: Sequence[re.Pattern[str]]
    owned: Sequence[re.Pattern[str]]
    rules: Sequence[SpokenRule]
    before: Mapping[re.Pattern[str], str]  # pronouns in front of the verb
    to_third: Mapping[re.Pattern[str], str]  # pronouns after the verb
    elided: Mapping[re.Pattern[str], str]  # short words before a vowel


def choose_language(text: str) -> str:
    """Return the language of a turn; verbs in the first person count as function words do.

    >>> choose_language("Sinceramente, odeio espinafre"), choose_language("Ik woon in Gent")
    ('portuguese', 'dutch')
    """
    spoken = tokens.words(text[:_MOST_CHECKED])
    detected = detect_language(spoken)
    if detected not in ("english", *LANGUAGES):
        return detected
    if _ENGLISH_I.search(text[:_MOST_CHECKED]):
        return "english"
    votes = {"english": sum(word in tokens.ENGLISH for word in spoken)}
    parts = [word.partition("'") for word in map(strip_accents, spoken)]
    elided = [first + apostrophe for first, apostrophe, _ in parts]
    for name in LANGUAGES:
        vocabulary = _read_vocabulary(name)
        votes[name] = sum(word in STOP_WORDS[name] for word in spoken)
        votes[name] += sum(word in vocabulary for word in elided)
    return max((detected, *votes), key=votes.__getitem__)


@cache
def _read_vocabulary(name: str) -> frozenset[str]:
    """Return verbs and other words that speak for a language, without accents."""
    table = _TABLES[name]
    return frozenset(_read_verbs(table["verbs"])) | tokens.word_set(" ".join(table["typical"]))


@cache
def load(name: str) -> Language:
    """Compile the tables of a language."""
    table = _TABLES[name]
    patterns = dict(table["patterns"])
    called = patterns.pop("called")
    verbs = _read_verbs(table["verbs"])
    shapes = _compile_each(patterns.pop("shapes").replace("VERBS", "|".join(verbs)))
    owned = _compile_each(patterns.pop("owned"))
    we = {strip_accents(word): third for word, third in _pairs(table["verbs"]["we"])}
    next_verb = rf"(?:\w{{2,6}} ){{0,2}}(?:{'|'.join(verbs)})"
    patterns["split"] += rf"|(?:,|,?{patterns['and']})\s(?={next_verb}\s)"
    months = "|".join(strip_accents(table["dates"]["months"]).split())
    patterns["date"] = _DATE.replace("MONTHS", months)
    patterns["feminine"] = table["names"].pop("feminine")
    spoken_rules = []
    for rule in table["rules"].values():
        pattern = re.compile(f"(?i){rule['pattern']}")
        spoken_rules.append(SpokenRule(**rule | {"pattern": pattern}))
    return Language(
        name=name,
        names=table["names"],
        verbs=verbs,
        we=we,
        dates=table["dates"],
        articles=table["articles"],
        called=called,
        patterns={key: re.compile(f"(?i){value}") for key, value in patterns.items()},
        shapes=shapes,
        owned=owned,
        rules=spoken_rules,
        before=_compile_keys(table.get("before", {})),
        to_third=_compile_keys(table["words"]),
        elided=_compile_keys(table.get("elided", {})),
    )


def _compile_each(alternatives: str) -> list[re.Pattern[str]]:
    return [re.compile(f"(?i){pattern}") for pattern in alternatives.split("¦")]


def _compile_keys(table: Mapping[str, str]) -> dict[re.Pattern[str], str]:
    return {re.compile(f"(?i){pattern}"): new for pattern, new in table.items()}


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in " ".join(lines).split():
        first, _, third = pair.partition(":")
        yield first, third


def _read_verbs(table: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Map the first person of each verb, without accents, to its third person."""
    verbs: dict[str, str] = {}
    for endings, lines in table.items():
        old, is_regular, new = endings.partition(">")
        if is_regular:
            for verb in " ".join(lines).split():
                verbs[strip_accents(verb)] = verb.removesuffix(old) + new
    for first, third in _pairs(table["="]):
        verbs[strip_accents(first)] = third
    return verbs


def find_times(plain: str, language: Language) -> Iterator[re.Match[str]]:
    """Yield the relative times in a text without accents.

    A capital inside of a sentence is of a title, and a weekday may have a date or be a habit.

    >>> times = "Anna liest Heute und fliegt am Freitag, dem 9. Mai, und morgen"
    >>> [match[0] for match in find_times(times, load("german"))]
    ['morgen']
    """
    found = [*language.patterns["when"].finditer(plain)]
    said = [match[0].lower() for match in found]
    is_habit = _HABIT.search(plain) is not None
    for match in found:
        start, end = match.span()
        is_name = (start > 0 and match[0][0].isupper()) or plain[start - 1 : start] in _MARKS
        is_name |= end + 1 < len(plain) and plain[end] in _MARKS
        is_weekday = match.lastgroup in clock.WEEKDAYS
        is_fixed = is_habit or language.patterns["date"].match(plain, end) is not None
        if not (is_name or said.count(match[0].lower()) > 1 or (is_weekday and is_fixed)):
            yield match


def add_years(text: str, language: Language, at: datetime) -> str:
    """Add the year to the dates of which the day of the week is known."""
    plain = strip_accents(text)
    months = strip_accents(language.dates["months"]).lower().split()
    of = " de" if language.name in ("spanish", "portuguese") else ""
    for match in reversed([*language.patterns["when"].finditer(plain)]):
        date = language.patterns["date"].match(plain, match.end())
        if match.lastgroup not in clock.WEEKDAYS or date is None or not date["month"]:
            continue
        weekday = clock.WEEKDAYS.index(match.lastgroup)
        month = months.index(date["month"].lower()) + 1
        year = clock.find_year(weekday, int(date["day"]), month, at)
        if year and not _YEAR.match(plain, date.end()):
            text = f"{text[: date.end()]}{of} {year}{text[date.end() :]}"
    return text


def write_date(words: str, language: Language, at: datetime) -> str:
    """Return the date of a relative time; empty if it has none."""
    found = clock.intervals(words, at)
    if len(found) != 1:
        return ""
    start = found[0].start
    days = (found[0].end - start) // timedelta(days=1)
    form = next((name for most, name in _PERIODS.items() if days <= most), "year")
    month = language.dates["months"].split()[start.month - 1]
    return start.strftime(language.dates[form]).replace("<month>", month)
