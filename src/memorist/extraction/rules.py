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
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

from ..ingest import guard
from ..text import clock, prompts
from ..text.authority import ROLE_WORDS, poses
from ..text.normalize import LINK, one_line
from ..text.statements import parse, strip_preface
from ..text.tokens import word_set, word_table
from .patterns import ASKED, LIKES_THE, PAST, RULES, TIME, TIMED, VAGUE, WEAK_PAST, ClauseRule, Type

TYPES: tuple[Type, ...] = get_args(Type)
THE_USER = "The user"
THE_SPEAKER = "The speaker"
LONGEST_READ = 4000  # characters of a turn
LONGEST_CLAUSE = 300
CONFIDENT = 0.8  # from here on a short turn is worth a closer look

_CATEGORY = {"commitment": "goals", "other": "fact"}
_WORTH = {"decision": 0.75, "preference": 0.7, "project": 0.7, "event": 0.6, "commitment": 0.7}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    return name[0].upper() + name[1:] if _NAME.fullmatch(name) else THE_SPEAKER


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
        is_timed = TIME.search(told) or clock.intervals(told)
        is_asked = _ASKED.match(clause)
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
    if _NOT_MEANT.search(text[: 2 * LONGEST_READ]):
        return
    for sentence in _SENTENCE.findall(_PASTED.sub("\n", first_sentences(text, LONGEST_READ))):
        if _DOUBT.search(sentence) or _REPORT.search(strip_preface(sentence)):
            continue
        quoted = _QUOTED.findall(sentence)  # a title in quotation marks is nobody's words
        if any(_PERSON.search(said) or said.count(" ") > 5 for said in quoted):
            continue
        for clause in _CLAUSE.split(sentence):
            if (bare := clause.strip(" \t,;:–—-")) and not _UNSURE.search(bare):
                yield bare


def first_sentences(text: str, most: int) -> str:
    """Return as many whole sentences of a text as fit into so many characters.

    >>> first_sentences("I love tea. I hate gin.", 15), first_sentences("I love tea.", 4)
    ('I love tea.', '')
    """
    if len(text) <= most:
        return text
    return text[: max(text.rfind(mark, 0, most) for mark in ".!?\n") + 1]


_NAME = re.compile(r"[^\W\d_][\w'’.-]{0,30}(?: [^\W\d_][\w'’.-]{0,30}){0,3}")
_SENTENCE = re.compile(r"[^.!?…\n]+(?:\.(?=\w)[^.!?…\n]+)*[.!?…]*")
_CLAUSE = re.compile(
    r";|\s[–—-]\s|,?\sbut,?\s(?:also\s)?|,?\s(?:because|whereas|since I|so I|which|although"
    r"|though)\s"
    r"|,?\sand\s(?=(?:I|we|it|he|she|they|you|that|this|my|our|there)\b)|,\s(?=(?:I|we|it|he|she"
    r"|they|you|my)\b)"
)
_PASTED = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*", re.DOTALL | re.MULTILINE)
_NOT_MEANT = re.compile(  # a joke, a part that is played, or somebody else's text
    r"\b(?:just|only) (?:kidding|joking|messing)\b|\bjk\b|(?:^|\s)/s\b|\bi['’]?m (?:kidding"
    r"|joking)\b|\bas a joke\b"
    r"|\bapril fools?\b|\bsarcas[a-z]{2,5}\b|\bnot really\b|[.!?]\s*not!"
    r"|\bin (?:a|the|my) (?:game|dream|story|novel)s?\b|\brole-?play\b"
    r"|\b(?:translate|summari[sz]e|proofread|rewrite|rephrase|paraphrase|transcribe)\b|\b(?:act"
    r"|speak|reply) as\b"
    r"|\bwrite (?:me )?an? (?:\w{1,20} ){0,2}(?:story|poem|song|letter|e-?mail|essay|bio|post)\b"
    r"|^(?:from|subject|sent|fwd|forwarded)\b[^\n:]{0,30}:",
    re.IGNORECASE | re.MULTILINE,
)
_DOUBT = re.compile(
    r"\?|\b(?:if|unless|suppose|imagine|pretend|hypothetically|whether|what|guess who)\b|\b(?:I"
    r"|we) wish\b"
    r"|\b(?:my|our|the) (?:\w{1,20} ){1,3}and I\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|might|may|would|could|should|seems?|supposed|used to"
    r"|thought|felt like"
    r"|wonder|not sure|in theory|almost|nearly|for example|e\.g)\b|\w['’]d\b"
    r"|^(?:>|(?:then|when|as|like|until|after|before|while)\b)",
    re.IGNORECASE,
)
_REPORT = re.compile(
    r"\b(?:sa(?:id|ys|ying)|t(?:old|ells?)|ask(?:s|ed)?|claim(?:s|ed)?|repl(?:ied|ies)|text(?:s"
    r"|ed)|wrote|quot(?:e|ed)"
    r"|according to|heard that|thinks?|thought|believes?|insists?|joked)\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“”«]([^\"“”«»\n]{1,400})[\"“”»]")
_PERSON = re.compile(r"\b(?:I|I['’]m|my|you|we|he|she|they)\b", re.IGNORECASE)


# What a clause may begin with before its subject, and what is left out of it.
_LEAD = re.compile(
    r"(?:(?:and|but|so|well|oh|also|yeah|yes|yep|hey|hi|hello|thanks|honestly|personally|actually"
    r"|by the way|btw|plus"
    r"|anyway|wow|ok|okay|as for me|for me|these days|nowadays|right now|currently|lately|recently)"
    r"(?:\s(?!I\b|My\b)[A-Z][a-z]{1,20})?[,!:.]?\s+){0,4}",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?<=\S)\s(?:really|also|just|absolutely|totally|definitely|truly|actually|personally|simply"
    r"|basically|honestly"
    r"|literally|super|pretty|do(?= (?:love|like|enjoy|prefer|hate)))(?=\s)",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"(?:,?\s(?:please|too|as well|so much|very much|a lot|a ton|though|lol|haha+|for sure"
    r"|of course|indeed|btw"
    r"|by the way|actually|these days|you know|right|right now|now|already|again|at the moment"
    r"|and all|tbh)"
    r"|,\s[A-Z][a-z]{1,20}|\s?[:;][-']?[()DP]|[\s.!,…~*]"
    r"|[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f])+$"
)
_IMAGE = re.compile(r"\s*\[[^\]\n]{0,300}\]")


def strip_clause(clause: str) -> str:
    """Remove what stands before the subject, and filler words within and after it."""
    bare = strip_preface(_IMAGE.sub("", LINK.sub(" ", one_line(clause))))
    return _TAIL.sub("", _FILLER.sub("", _LEAD.sub("", bare, count=1)))


def _state(told: str, rule: ClauseRule, start: int, who: str, at: datetime) -> str:
    """Return the clause in the third person, cut where it can be understood; empty if it cannot.

    It is not understood if it needs the conversation, or says no more than when.
    """
    least = start + (0 if rule.is_whole else 2)
    cuts = {match.start() for match in _CUT.finditer(told, least)}
    if rule.type == "relationship":
        cuts |= {match.start() for match in _WITH_THEIRS.finditer(told, least)}
    for end in (len(told), *sorted(cuts, reverse=True)):
        part = told[:end].rstrip(" ,")
        is_vague = VAGUE.search(part, start) or _HANGING.search(part)
        if end < least or is_vague or (rule.type == "preference" and LIKES_THE.match(part)):
            continue
        if rule in TIMED and not TIME.sub("", part[start:]).strip(" ,."):
            continue
        text = prompts.trim(date(to_third_person(part, who), at))
        if not prompts.find_fault(text):
            return text
    return ""


_CUT = re.compile(r",\s|\s(?:as|when|while|whenever|so)\s")
_HANGING = re.compile(
    r"\b(?:to|of|is|are|with|for|and|or|the|an?|in|on|at|by|from|about|not|very)\W*$", re.IGNORECASE
)
_WITH_THEIRS = re.compile(r"\s(?:with|in|at|on|near)\s(?:her|his|their)\s", re.IGNORECASE)
_ASKED = re.compile(r"(?:please )?(?:remember|note|don['’]?t forget|keep in mind)\b", re.IGNORECASE)
_MINE = re.compile(r"^(?:My|Our)\b|\b(?:my|our)\b")  # "Me" and "My" inside are parts of titles
_ME = re.compile(r"\b(?:me|myself)\b")


def to_third_person(told: str, who: str) -> str:
    """Put a clause that begins with "I" or "my" into the third person.

    >>> to_third_person("I don't eat my sister's soup", "Ana")
    "Ana does not eat Ana's sister's soup"
    >>> to_third_person("My cat hates me", "The user")
    "The user's cat hates the user"
    """
    inside = who.replace("The ", "the ", 1) if who.startswith("The ") else who
    whose = f"{inside}{_owning(inside)}"
    if match := _CALL.match(told):
        return f"{who} is called {told[match.end() :].strip()}"
    subject = _SUBJECT.match(told)
    rest = told[subject.end() :] if subject else told
    said = _MINE.sub(whose, _ME.sub(inside, rest))
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


_CALL = re.compile(r"(?:please )?call me\b", re.IGNORECASE)
_SUBJECT = re.compile(
    r"(?:I|(?P<we>We))(?P<short>['’](?:m|ve|ll|re))?\s+(?:(?P<often>still|always|usually|often"
    r"|mostly|sometimes|rarely"
    r"|occasionally|never|mainly|regularly|now|recently|finally)\s+)?",
    re.IGNORECASE,
)
_SHORT = {"m": "is", "ve": "has", "ll": "will", "re": "is"}
_IRREGULAR = {"am": "is", "are": "is", "have": "has", "do": "does", "go": "goes"}
_IRREGULAR |= word_table("does not: don't don’t dont\ncannot: can't can’t cant")
_SAME = word_set("was had did will cannot can has is been")
_ENDING = re.compile(r"(?:s|sh|ch|x|z)$")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")


def _conjugate(verb: str) -> str:
    """Return the verb as it follows "she".

    >>> [_conjugate(verb) for verb in ("love", "study", "teach", "moved", "don't", "went")]
    ['loves', 'studies', 'teaches', 'moved', 'does not', 'went']
    """
    lower = verb.lower()
    if lower in _IRREGULAR:
        return _IRREGULAR[lower]
    if lower in _SAME or "past" in parse(lower).marks or _PAST_VERB.fullmatch(lower):
        return lower
    if _CONSONANT_Y.search(lower):
        return f"{lower[:-1]}ies"
    return lower + ("es" if _ENDING.search(lower) else "s")


_PAST_VERB = re.compile(
    rf"{PAST}|{WEAK_PAST}|chose|became|quit|won|ran|flew|hid|sang|agreed", re.IGNORECASE
)


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
        name = f"{words.split()[-1]} {start:%Y}"
        if days == 1:
            name = f"{start:%Y-%m-%d}"
        elif days <= 2:
            name = f"the weekend of {start:%Y-%m-%d}"
        elif days < 28:
            name = f"the week of {start:%Y-%m-%d}"
        elif days < 32:
            name = f"{start:%B %Y}"
        elif days > 360:
            name = f"{start:%Y}"
        return (match["before"] or ("on " if days <= 2 else "in ")) + name

    return TIME.sub(write, text)
