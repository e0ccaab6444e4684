"""Rules that extract what a person says about themselves in German, French, Spanish, Portuguese
and Italian.

They know the common statements: what somebody likes, is, has, decided, changed or plans, and their
family. A fact stays in the language of its turn. The verb is put into the third person by a table;
a clause with another verb, or with words that only the conversation explains, gives no fact. Turns
in English are left to `rules`, and turns in all other languages give none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ..ingest import guard
from ..text import clock, prompts, tokens
from ..text.normalize import LINK, one_line
from ..text.tokens import STOP_WORDS
from ..types import frozen
from . import rules
from .durable import Type
from .grammars import (
    LANGUAGES,
    Language,
    SpokenRule,
    add_years,
    choose_language,
    find_times,
    load,
    strip_accents,
    write_date,
)
from .rules import LONGEST_READ, THE_SPEAKER, THE_USER, Fact

LONGEST_CLAUSE = guard.LONGEST["evidence"]
_OWNED: Sequence[Type] = ("relationship", "preference", "profile")  # types of `owned`, in order
_WE = tokens.word_set("wir nous on nos noi nosotros nosotras gente")
_WE_ENDINGS = ("mos", "amo")  # of plural verbs that need no pronoun
_SENTENCE = re.compile(  # "3. Mai" and "Dr. Weber" do not end one
    r"(?i)(?:[^.!?…\n]|\.(?=\w)|(?<=\d)\. ?(?=jan|feb|mär|maer|apr|mai|ju[nl]|aug|sep|okt|nov|dez)"
    r"|(?:(?<=\b[dfhs]r)|(?<=\bst)|(?<=\b[ds]ra)|(?<=\bprof))\.(?= \w))+[.!?…]*"
)
_AFTERTHOUGHT = 3  # words; ", vielleicht" makes the clause before it unsure
_ACCENT_COUNTS = re.compile(r"(?i)(?<=\bs)í\b|\b[èé]\b")  # "yes" and "is", not "if" and "and"
_EDGES = re.compile(r"^\W+|[^\w%€$)]+$")
_QUOTED = re.compile(r"[\"“”„«]([^\"“”„«»\n]{1,400})[\"“”»]")
_POSSESSIVE = re.compile(
    r"\b(?:mein|unser)(?P<ending>e[nmrs]?|)\b(?=(?P<noun> [A-ZÄÖÜ])|(?P<same> [a-zäöüß]+e [A-ZÄÖÜ])|)"
)
_UNITS = ("days", "weeks", "months", "years")
_FEMININE = {"el": "la", "los": "las", "le": "la"}
_WHICH = {"event": "last", "commitment": "next"}  # Monday, by the type of the statement


@frozen
class Names:
    """A speaker as the subject, the owner and the indirect object of a sentence."""

    subject: str
    owner: str
    object: str = ""
    own: str = ""  # the stem of the German possessive
    is_named: bool = False


class Speech(NamedTuple):
    """The language, speaker and time of a clause."""

    language: Language
    names: Names
    at: datetime


def find_facts(
    text: str,
    *,
    who: str,
    at: datetime,
    most: int = 5,
) -> list[Fact]:
    """Return the distinct facts in a turn, in order, by the rules of its language.

    >>> text = "Ich wohne in Kiel und bin Lehrerin. Magst du Tee? Meine Schwester Eva hasst Tee."
    >>> [(fact.type, fact.text) for fact in find_facts(text, who="Ana", at=datetime(2026, 5, 8))]
    [('profile', 'Ana wohnt in Kiel.'), ('profile', 'Ana ist Lehrerin.'),
     ('relationship', 'Anas Schwester Eva hasst Tee.')]
    >>> text = "Me mudé a Quito ayer. Ya no como carne. Quizás me case."
    >>> [fact.text for fact in find_facts(text, who="The user", at=datetime(2026, 5, 8))]
    ['El usuario se mudó a Quito el 2026-05-07.', 'El usuario ya no come carne.']
    """
    name = choose_language(text)
    if name == "english":
        return rules.find_facts(text, who=who, at=at, most=most)
    if name not in LANGUAGES:
        return []
    language = load(name)
    found: dict[str, Fact] = {}
    for clause in split_clauses(text, language):
        if fact := _read(clause, language, who, at):
            found.setdefault(fact.text.casefold(), fact)
    return list(found.values())[:most]


def split_clauses(text: str, language: Language) -> Iterator[str]:
    """Yield the clauses of a text that are serious statements by themselves, verbatim.

    >>> list(split_clauses("Odio el té, pero amo el café. Si fuera rica, viviría en Niza.",
    ...                    load("spanish")))
    ['Odio el té', 'amo el café.']
    """
    patterns = language.patterns
    if patterns["not_meant"].search(strip_accents(text[: 2 * LONGEST_READ])):
        return
    own = rules.PATTERNS["pasted"].sub("\n", rules.first_sentences(text, LONGEST_READ))
    for sentence in _SENTENCE.findall(own):
        plain = strip_accents(_ACCENT_COUNTS.sub("_", sentence))
        if patterns["doubt"].search(plain) or patterns["report"].search(plain):
            continue
        if any(quoted.count(" ") > 2 for quoted in _QUOTED.findall(sentence)):
            continue
        start = 0
        for match in patterns["split"].finditer(f"{plain};"):  # also splits at its end
            clause = sentence[start : match.start()].strip(" \t,;:–—-")
            if start == 0 and patterns["front"].fullmatch(strip_accents(clause)):
                continue  # "On 3 May, …"
            start = match.end()
            if clause:
                yield clause


def _read(
    clause: str,
    language: Language,
    who: str,
    at: datetime,
) -> Fact | None:
    """Return the fact that a clause states."""
    if len(clause) > LONGEST_CLAUSE or guard.find_injection(clause, "contextual"):
        return None
    statement = LINK.sub(" ", one_line(clause))
    for name in ("lead", "filler", "tail"):
        statement = _EDGES.sub("", statement)
        statement = _replace({language.patterns[name]: ""}, statement)
    statement = _EDGES.sub("", statement)
    speech = Speech(language, _name(language, who, statement), at)
    for part in _shorten(statement, language):
        found = _read_call(part, speech) or _read_owned(part, speech) or _read_own(part, speech)
        if found and len(found.text) < prompts.LONGEST:
            return Fact(
                text=f"{found.text[0].upper()}{found.text[1:]}.",
                type=found.type,
                confidence=found.confidence,
                evidence=clause,
                importance=rules.WORTH.get(found.type, 0.8),
            )
    return None


def _replace(table: Mapping[re.Pattern[str], str], text: str) -> str:
    """Replace what patterns find in the text without accents, and keep the accents elsewhere."""
    for pattern, new in table.items():
        for match in reversed([*pattern.finditer(strip_accents(text))]):
            text = text[: match.start()] + new + text[match.end() :]
    return text


def _shorten(statement: str, language: Language) -> Iterator[str]:
    """Yield the clause if it is one statement or ends with a list, and its first parts."""
    plain = language.patterns["date"].sub(_hide_comma, strip_accents(statement))
    comma = plain.find(",")
    if language.patterns["front"].fullmatch(plain[: max(comma, 0)]):
        comma = plain.find(",", comma + 1)
    is_list = comma < 0 or language.patterns["keep"].match(plain, comma)
    ends = [len(plain)] if is_list else []
    if comma > 0:
        ends.append(comma)
    joined = language.patterns["and"].search(plain)
    if joined and not language.patterns["not"].search(plain, joined.end()):
        ends.append(joined.start())
    for end in ends:
        is_short = plain.count(" ", end) <= _AFTERTHOUGHT
        if not language.patterns["unsure"].search(plain if is_short else plain[:end]):
            yield statement[:end]


def _hide_comma(date: re.Match[str]) -> str:
    return date[0].replace(",", " ")


def _name(language: Language, who: str, statement: str) -> Names:
    """Return the forms of a name; a clause may tell that the unnamed user is a woman."""
    if who == THE_SPEAKER:
        return Names(**language.names["speaker"])
    if who == THE_USER:
        is_woman = language.patterns["feminine"].search(strip_accents(statement))
        return Names(**language.names["woman" if is_woman else "user"])
    owner = f"{language.names['of']} {who}"
    if language.name == "german":
        owner = who + ("’" if who.endswith(("s", "x", "z", "ß")) else "s")
    if language.name == "french" and who[0] in "AEIOUÉÈH":
        owner = f"d'{who}"
    return Names(subject=who, owner=owner, object=f"A {who}", is_named=True)


class Found(NamedTuple):
    """A statement in the third person."""

    type: Type
    confidence: float
    text: str


def _read_call(part: str, speech: Speech) -> Found | None:
    """Read "call me Ana"."""
    language = speech.language
    match = language.patterns["call"].match(strip_accents(part))
    if match is None:
        return None
    called = _take_groups(match, part)["name"]
    text = language.called.replace("<who>", speech.names.subject)
    return Found("profile", 0.9, text.replace("<name>", called))


def _take_groups(match: re.Match[str], part: str) -> dict[str, str]:
    """Return the groups of a match in the text without accents, with their accents."""
    found = [name for name, text in match.groupdict().items() if text]
    return {name: part[slice(*match.span(name))] for name in found}


def _read_owned(part: str, speech: Speech) -> Found | None:
    """Read what a clause says of the speaker's family, pets and favorite things."""
    language = speech.language
    for kind, pattern in zip(_OWNED, language.owned, strict=True):
        match = pattern.fullmatch(strip_accents(part))
        if match is None:
            continue
        groups = _take_groups(match, part)
        name = groups.get("name", "").strip(" ,")
        rest = _replace(language.to_third, _resolve(groups["rest"], speech, kind)).strip()
        if name.lower() in STOP_WORDS[language.name] or not _is_clear(rest, language):
            return None
        owned = _write_owned(groups, speech)
        if not name:
            return Found(kind, 0.85, f"{owned} {rest}")
        name = name[0].upper() + name[1:]
        if owned.startswith(speech.names.owner):
            return Found(kind, 0.9, f"{owned} {name} {rest}")
        return Found(kind, 0.9, f"{name}, {owned}, {rest}")
    return None


def _write_owned(groups: Mapping[str, str], speech: Speech) -> str:
    """Return "Ana's sister" for "my sister"."""
    language, names, _ = speech
    thing = groups["thing"]
    possessive = strip_accents(groups["poss"].lower())
    article = groups.get("article", "").strip().lower() or language.articles[possessive]
    if language.name == "german":
        if names.is_named:
            return f"{names.owner} {thing}"
        if article == "der":
            thing = re.sub(r"^([a-zäöüß]+e)r ", r"\1 ", thing)
        plain = strip_accents(thing)
        if article == "der" and language.patterns["neuter"].search(plain):
            article = "das"
    feminine = language.patterns.get("feminine_noun")
    if feminine and feminine.search(strip_accents(thing)):
        article = _FEMININE.get(article, article)
    owned = _replace(language.elided, f"{article} {thing}")
    return f"{owned} {names.owner}"


def _read_own(part: str, speech: Speech) -> Found | None:
    """Read what a clause says of the speaker, with a verb in the first person."""
    language = speech.language
    for shape in language.shapes:
        match = shape.fullmatch(strip_accents(part))
        if match is None:
            continue
        groups = _take_groups(match, part)
        verb = strip_accents(groups["verb"].lower())
        is_we = verb in language.we and verb.endswith(_WE_ENDINGS)
        if subject := groups.get("subject"):
            is_we = subject.lower().split()[-1] in _WE
        third = (language.we if is_we else language.verbs).get(verb, "")
        if rule := _find_rule(groups, language, third, is_we):
            return _write_own(groups, speech, rule, third, is_we)
    return None


def _find_rule(
    groups: Mapping[str, str],
    language: Language,
    third: str,
    is_we: bool,
) -> SpokenRule | None:
    """Return the first rule that knows the verb, what follows it, and what may precede it."""
    start = groups.get("start", "")
    said = strip_accents(start + groups["verb"] + groups.get("rest", ""))
    front = groups.get("front")
    whole = f"{said} {strip_accents(front)}" if front else said
    begins = [0, *(match.end() for match in re.finditer(r"\s|'", start))]
    patterns = language.patterns
    is_timed = bool(patterns["time"].search(whole) or patterns["when"].search(whole))
    for rule in language.rules:
        if (rule.timed and not is_timed) or (is_we and not rule.we):
            continue
        if not third and rule.dative is None:
            continue
        if any(rule.pattern.match(text, begin) for text in (said, whole) for begin in begins):
            return rule
    return None


def _write_own(
    groups: Mapping[str, str],
    speech: Speech,
    rule: SpokenRule,
    third: str,
    is_we: bool,
) -> Found | None:
    """Return the clause in the third person; None if it is not self-contained."""
    language, names, _ = speech
    front = _resolve(groups.get("front", ""), speech, rule.type)
    rest = _resolve(groups.get("rest", ""), speech, rule.type)
    rest = _write_possessives(_replace(language.to_third, rest), names)
    if not _is_clear(front, language) or not _is_clear(rest, language):
        return None
    start = groups.get("start", "").lower()
    subject = names.subject
    if rule.dative is None:
        start = _replace(language.before, start)
    else:
        third = groups["verb"].lower()
        subject = names.object
        start = re.sub(r"\bm[ei] ", rule.dative, start.replace("a mí ", "").replace("a mi ", ""))
    if is_we and rule.type == "decision":
        group = language.names["group"]
        is_first = names.is_named and language.name == "german"
        subject = f"{names.owner} Gruppe" if is_first else f"{group} {names.owner}"
    if front and not (names.is_named and subject.startswith(names.subject)):
        subject = subject[0].lower() + subject[1:]
    if front and language.name == "german":
        text = f"{front} {third} {subject}{rest}"
    else:
        text = f"{front} {subject} {start}{third}{rest}"
    return Found(rule.type, rule.confidence, _replace(language.elided, text.strip()))


def _write_possessives(rest: str, names: Names) -> str:
    """Write whose something is in German, where the ending of the possessive allows it."""

    def write(match: re.Match[str]) -> str:
        if names.own:
            return names.own + match["ending"]
        is_plain = match["noun"] or match["ending"] in ("", "en") or match["same"]
        return names.owner if is_plain else match[0]

    return _POSSESSIVE.sub(write, rest)


def _resolve(text: str, speech: Speech, kind: Type) -> str:
    """Replace relative times such as "ayer" by dates; some depend on the kind of statement."""
    language, _, at = speech
    plain = strip_accents(text)
    found = [*find_times(plain, language)]
    if kind == "event":
        found += language.patterns["ago"].finditer(plain)
    for match in sorted(found, key=re.Match.start, reverse=True):
        if date := write_date(_translate(match, language, kind), language, at):
            text = text[: match.start()] + date + text[match.end() :]
    return add_years(text, language, at)


def _translate(match: re.Match[str], language: Language, kind: Type) -> str:
    """Return a relative time in English."""
    if "unit" in match.groupdict():
        numbers = strip_accents(language.dates["numbers"]).split()
        number = match["n"].lower()
        if number in numbers:
            number = str(numbers.index(number) + 1)
        unit = language.dates["units"].split().index(match["unit"].lower())
        return f"{number} {_UNITS[unit]} ago"
    words = (match.lastgroup or "").replace("_", " ")
    if words in clock.WEEKDAYS:
        return f"{_WHICH.get(kind, 'every')} {words}"
    means_nowadays = words == "today" and kind in ("preference", "profile", "other")
    return "" if means_nowadays else words


def _is_clear(text: str, language: Language) -> bool:
    """Return whether a text can be understood without the conversation."""
    plain = strip_accents(text)
    patterns = language.patterns
    is_vague = patterns["vague"].search(plain) or any(find_times(plain, language))
    return not is_vague and not patterns["hanging"].search(plain)
