"""What a person says of themselves, read out of a turn of a conversation by rules and put into the
third person.

The rules know English sentences that begin with "I" or "my" and say something that lasts: what
somebody likes, is, has, plans, decided or went through. A clause that asks, guesses, jokes, repeats
what others said or cannot be understood by itself gives nothing: a fact that is missing can still
be found in the turn, a wrong one does harm. Each fact names the words it was read from. Every
pattern is anchored or bounded, and long texts are read in part only.
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
CONFIDENT = 0.8  # from here on a short turn is worth a closer look

_CATEGORY = {"commitment": "goals", "other": "fact"}
_WORTH = {"decision": 0.75, "preference": 0.7, "project": 0.7, "event": 0.6, "commitment": 0.7}


class ClauseRule(NamedTuple):
    """What a clause that begins like this is, and how sure that is.

    The pattern says by its end where the part begins that only the clause knows.
    """

    type: Type
    confidence: float
    pattern: re.Pattern[str]
    is_whole: bool = False  # the beginning says something by itself


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
    """A candidate for a memory, and the words that it rests on."""

    text: str
    type: Type
    confidence: float
    evidence: str  # as it stands in the source
    importance: float

    @property
    def category(self) -> str:
        return _CATEGORY.get(self.type, self.type)


def name_speaker(speaker: str | None, *, is_own: bool = True) -> str:
    """Return how a speaker is called in the third person; only the person is "the user".

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
    return name[0].upper() + name[1:] if PATTERNS["name"].fullmatch(name) else THE_SPEAKER


def find_facts(text: str, *, who: str, at: datetime, most: int = 5) -> list[Fact]:
    """Return the facts in a turn, each once, in the order in which they are said.

    >>> told = "I'm a nurse and I moved to Porto yesterday. Would I? My sister Eva hates tea."
    >>> [(fact.type, fact.text) for fact in find_facts(told, who="Ana", at=datetime(2026, 5, 8))]
    [('profile', 'Ana is a nurse.'), ('event', 'Ana moved to Porto on 2026-05-07.'),
     ('relationship', "Ana's sister Eva hates tea.")]
    """
    found: dict[str, Fact] = {}
    longest = guard.LONGEST["evidence"]
    for clause in split_clauses(text):
        told = strip_clause(clause) if len(clause) <= LONGEST_CLAUSE else ""
        if len(told.split()) < (2 if told[1:2] in "'’" else 3):
            continue
        is_timed = PATTERNS["time"].search(told) or clock.intervals(told)
        is_asked = PATTERNS["asked"].match(clause)
        rules = (*RULES, *(TIMED if is_timed else ()), *(ASKED if is_asked else ()))
        for rule in rules:
            if match := rule.pattern.match(told):
                break
        else:
            continue
        stated = _state(told, rule, match.end(), who, at)
        if not stated or guard.find_injection(told, "contextual"):
            continue
        fact = Fact(
            text=stated,
            type=rule.type,
            confidence=rule.confidence,
            evidence=clause if len(clause) <= longest else clause[:longest].rsplit(None, 1)[0],
            importance=_WORTH.get(rule.type, 0.8),
        )
        found.setdefault(stated.casefold(), fact)
    return list(found.values())[:most]


def split_clauses(text: str) -> Iterator[str]:
    """Yield the parts of a text that each say something by themselves and mean it, word for word.

    >>> list(split_clauses("I like tea, but I hate milk. If I were rich, I'd row."))
    ['I like tea', 'I hate milk.']
    >>> list(split_clauses("She said I like gin!"))
    []
    """
    if PATTERNS["not_meant"].search(text[: 2 * LONGEST_READ]):
        return
    own = PATTERNS["pasted"].sub("\n", first_sentences(text, LONGEST_READ))
    for sentence in PATTERNS["sentence"].findall(own):
        if PATTERNS["doubt"].search(sentence) or PATTERNS["report"].search(strip_preface(sentence)):
            continue
        quoted = PATTERNS["quoted"].findall(sentence)  # a title is nobody's words
        if any(PATTERNS["person"].search(said) or said.count(" ") > 5 for said in quoted):
            continue
        for clause in PATTERNS["clause"].split(sentence):
            if (bare := clause.strip(" \t,;:–—-")) and not PATTERNS["unsure"].search(bare):
                yield bare


def first_sentences(text: str, most: int) -> str:
    """Return as many whole sentences of a text as fit into so many characters.

    >>> first_sentences("I love tea. I hate gin.", 15), first_sentences("I love tea.", 4)
    ('I love tea.', '')
    """
    if len(text) <= most:
        return text
    return text[: max(text.rfind(mark, 0, most) for mark in ".!?\n") + 1]


def strip_clause(clause: str) -> str:
    """Remove what stands before the subject, and filler words within and after it."""
    bare = strip_preface(_IMAGE.sub("", LINK.sub(" ", one_line(clause))))
    told = PATTERNS["filler"].sub("", PATTERNS["lead"].sub("", bare, count=1))
    return PATTERNS["tail"].sub("", told)


def _state(told: str, rule: ClauseRule, start: int, who: str, at: datetime) -> str:
    """Return the clause in the third person, cut where it can be understood; empty if it cannot.

    It is not understood if it needs the conversation, or says no more than when.
    """
    least = start + (0 if rule.is_whole else 2)
    cuts = {match.start() for match in PATTERNS["cut"].finditer(told, least)}
    if rule.type == "relationship":
        cuts |= {match.start() for match in PATTERNS["with_theirs"].finditer(told, least)}
    for end in (len(told), *sorted(cuts, reverse=True)):
        part = told[:end].rstrip(" ,")
        is_vague = PATTERNS["vague"].search(part, start) or PATTERNS["hanging"].search(part)
        is_seen = rule.type == "preference" and PATTERNS["likes_the"].match(part)
        if end < least or is_vague or is_seen:
            continue
        if rule in TIMED and not PATTERNS["time"].sub("", part[start:]).strip(" ,."):
            continue
        text = prompts.trim(date(to_third_person(part, who), at))
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
    inside = who.replace("The ", "the ", 1) if who.startswith("The ") else who
    whose = f"{inside}{_owning(inside)}"
    if match := PATTERNS["call"].match(told):
        return f"{who} is called {told[match.end() :].strip()}"
    subject = PATTERNS["subject"].match(told)
    rest = told[subject.end() :] if subject else told
    said = PATTERNS["mine"].sub(whose, PATTERNS["me"].sub(inside, rest))
    if subject is None:
        return said[0].upper() + said[1:]
    group = f"{who}{_owning(who)} group" if subject["we"] else who
    often = f"{subject['often'].lower()} " if subject["often"] else ""
    said = re.sub(r"\bgonna\b", "going to", said)
    if subject["short"]:
        return f"{group} {_SHORT[subject['short'][1:].lower()]} {often}{said}"
    first, _, rest = said.partition(" ")
    return f"{group} {often}{_conjugate(first)} {rest}".rstrip()


def _owning(name: str) -> str:
    return "’" if name.endswith("s") and not name.endswith("ss") else "'s"


_SHORT = {"m": "is", "ve": "has", "ll": "will", "re": "is"}
_IRREGULAR = {"am": "is", "are": "is", "have": "has", "do": "does", "go": "goes"}
_IRREGULAR |= word_table("does not: don't don’t dont\ncannot: can't can’t cant")
_SAME = word_set("was had did will cannot can has is been")


def _conjugate(verb: str) -> str:
    """Return the verb as it follows "she".

    >>> [_conjugate(verb) for verb in ("love", "study", "teach", "moved", "don't", "went")]
    ['loves', 'studies', 'teaches', 'moved', 'does not', 'went']
    """
    lower = verb.lower()
    if lower in _IRREGULAR:
        return _IRREGULAR[lower]
    if lower in _SAME or "past" in parse(lower).marks or PATTERNS["past_verb"].fullmatch(lower):
        return lower
    if PATTERNS["consonant_y"].search(lower):
        return f"{lower[:-1]}ies"
    return lower + ("es" if lower.endswith(("s", "sh", "ch", "x", "z")) else "s")


_PERIODS = {  # how a time of at most so many days is written
    1: "%Y-%m-%d",
    2: "the weekend of %Y-%m-%d",
    27: "the week of %Y-%m-%d",
    31: "%B %Y",
    360: "{season} %Y",
}


def date(text: str, at: datetime) -> str:
    """Replace "yesterday" and the like by dates.

    >>> date("Ana flies on Monday", datetime(2026, 5, 8))
    'Ana flies on 2026-05-11'
    >>> date("Ana left last year", datetime(2026, 5, 8))
    'Ana left in 2025'
    """
    is_past = "past" in parse(text).marks

    def write(match: re.Match[str]) -> str:
        """Return the date, week, month or year that words such as "last week" mean."""
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
        name = start.strftime(form).format(season=words.split()[-1])
        return (match["before"] or ("on " if days <= 2 else "in ")) + name

    return PATTERNS["time"].sub(write, text)
