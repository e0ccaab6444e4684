"""Parsing of questions: their terms, the people and times they name, and the text to embed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from ..text import clock, cues, tokens
from ..text.clock import Interval
from ..text.entities import is_common
from ..text.tokens import detect_language
from ..types import frozen

_TOLD = (  # in the past: "can you suggest …" is a request, not a question about what was suggested
    r"(?:said|told|suggested|recommended|mentioned|advised|explained|proposed|gave|wrote|listed|"
    r"provided|described|showed|came up with)"
)
_TELL = (
    r"(?:say|tell|suggest|recommend|mention|advise|explain|propose|give|write|list|provide|"
    r"describe|show)"
)
_ASKS_ASSISTANT = re.compile(
    rf"\b(?:you|(?:the|my) assistant) (?:\w+ )?{_TOLD}\b|"
    rf"\bdid (?:you|(?:the|my) assistant) (?:\w+ )?{_TELL}\b|"
    r"\byour (?:previous|earlier|last) \w+",
    re.IGNORECASE,
)
_TOLD_MYSELF = re.compile(rf"\bI (?:\w+ )?{_TOLD}\b|\bdid I (?:\w+ )?{_TELL}\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_][^\W_]*")

MOST_TERMS = 512
MOST_READ = 2000  # characters searched for names and dates: a pasted document is not a question


@frozen
class ParsedQuestion:
    """A parsed question, as the legs and features use it."""

    text: str
    terms: tuple[int, ...]  # ids of the distinct terms, in the order of the text
    dense_text: str  # what to embed
    speakers: tuple[int, ...] = ()  # of the scope, as indices, in the order they are named
    intervals: tuple[Interval, ...] = ()
    kinds: int = 0  # what it asks for, as flags of `text.cues`
    is_english: bool = True
    names: tuple[int, ...] = ()  # ids of the terms that look like names
    asks_assistant: bool = False  # about what the assistant said
    is_personal: bool = False  # about the person, or names a speaker
    is_task: bool = False  # requests something, or asks for general knowledge
    is_aside: bool = False  # asks for nothing


def understand(
    text: str,
    speakers: Sequence[str] = (),
    now: datetime | None = None,
    language: str = "english",
) -> ParsedQuestion:
    """Parse a question, given the speakers of its scope.

    >>> question = understand("When did Caroline's dog run away?", ["Melanie", "Caroline"])
    >>> question.dense_text, question.speakers, question.kinds == cues.HAS_TIME
    ('When did my dog run away?', (1,), True)
    """
    head = text[:MOST_READ]
    named = named_speakers(head, speakers)
    is_personal = bool(named) or cues.is_personal(text)
    is_task = cues.is_task(text)
    names = " ".join(cues.names_in(head))
    kinds = cues.kinds_asked(head)
    intervals = clock.intervals(head, now)
    is_aside = cues.is_aside(text)
    spoken = detect_language(tokens.words(head), language)
    terms = dict.fromkeys(map(tokens.term_id, tokens.analyze(text, spoken)))
    return ParsedQuestion(
        text=text,
        terms=tuple(terms)[:MOST_TERMS],
        dense_text=as_told(text, speakers[named[0]]) if named else text,
        speakers=named,
        intervals=tuple(intervals),
        kinds=kinds,
        is_english=spoken == "english",
        names=tuple(map(tokens.term_id, tokens.analyze(names, spoken))),
        asks_assistant=bool(_ASKS_ASSISTANT.search(head)) and not _TOLD_MYSELF.search(head),
        is_personal=is_personal,
        is_task=is_task,
        is_aside=is_aside,
    )


def named_speakers(text: str, speakers: Sequence[str]) -> tuple[int, ...]:
    """Return the speakers that a text names by first name or full name; a role is not a name.

    >>> named_speakers("Will Art come with MELANIE?", ["Melanie Roy", "Art", "Will", "user"])
    (1, 0)
    """
    by_word = _by_first_word(tuple(speakers))
    if not by_word:
        return ()
    folded = text.casefold()
    found: dict[int, None] = {}
    for at, match in enumerate(_WORD.finditer(text)):
        word = match[0]
        numbers = by_word.get(word.casefold())
        if numbers is None:
            continue
        start = match.start()
        before = text[max(start - 2, 0) : start].strip()
        is_inside = at > 0 and before not in (".", "!", "?")
        is_marked = is_inside and word[0].isupper()
        if is_marked or not is_common(word.casefold()):  # "will" needs a capital in a sentence
            in_full = [n for n in numbers if speakers[n].casefold() in folded]
            found |= dict.fromkeys(in_full or numbers)
    return tuple(found)


def as_told(text: str, speaker: str) -> str:
    """Return the question in the first person of the speaker it is about.

    >>> as_told("What did Caroline say about Melanie's book?", "Caroline")
    "What did I say about Melanie's book?"
    """
    name = speaker
    if speaker.casefold() not in text.casefold():
        name = speaker.split()[0]
    word = rf"(?i)\b{re.escape(name)}"
    mine = re.sub(rf"{word}['’]s?(?!\w)", "my", text)
    return re.sub(rf"{word}\b", "I", mine)


@lru_cache(maxsize=64)
def _by_first_word(speakers: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, speaker in enumerate(map(str.casefold, speakers)):
        first, *_ = speaker.split() or [""]
        if len(first) > 1 and speaker not in tokens.ROLES:
            found.setdefault(first, []).append(number)
    return found
