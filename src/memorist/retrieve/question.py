"""Parse a question: its terms, the people and times it names, and the text to embed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from ..text import clock, tokens
from ..text.clock import Interval
from ..text.entities import is_common

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedQuestion:
    """A question as the legs and features read it."""

    text: str
    terms: tuple[int, ...]  # ids of the distinct terms, in the order of the text
    dense_text: str  # what to embed
    speakers: tuple[int, ...] = ()  # of the scope, as indices, in the order they are named
    intervals: tuple[Interval, ...] = ()
    asks_when: bool = False
    asks_assistant: bool = False  # about what the assistant said


def understand(
    text: str, speakers: Sequence[str] = (), now: datetime | None = None, language: str = "english"
) -> ParsedQuestion:
    """Read a question against the speakers of its scope.

    >>> question = understand("When did Caroline's dog run away?", ["Melanie", "Caroline"])
    >>> question.dense_text, question.speakers, question.asks_when
    ('When did my dog run away?', (1,), True)
    """
    head = text[:MOST_READ]
    named = named_speakers(head, speakers)
    terms = dict.fromkeys(tokens.term_id(term) for term in tokens.analyze(text, language))
    return ParsedQuestion(
        text=text,
        terms=tuple(terms)[:MOST_TERMS],
        dense_text=as_told(text, speakers[named[0]]) if named else text,
        speakers=named,
        intervals=tuple(clock.intervals(head, now)),
        asks_when=clock.asks_when(head),
        asks_assistant=bool(_ASKS_ASSISTANT.search(head)) and not _TOLD_MYSELF.search(head),
    )


def named_speakers(text: str, speakers: Sequence[str]) -> tuple[int, ...]:
    """Return which speakers a text names, by first name or in full; a role is not a name.

    >>> named_speakers("Will Art come with MELANIE?", ["Melanie Roy", "Art", "Will", "user"])
    (1, 0)
    """
    by_word = _by_first_word(tuple(speakers))
    found: dict[int, None] = {}
    for at, match in enumerate(_WORD.finditer(text)) if by_word else ():
        word, folded = match[0], match[0].casefold()
        if folded not in by_word:
            continue
        before = text[max(match.start() - 2, 0) : match.start()].strip()
        is_marked = word[0].isupper() and at > 0 and before not in (".", "!", "?")
        if is_marked or not is_common(folded):  # "will" needs a capital in a sentence
            numbers = by_word[folded]
            in_full = [n for n in numbers if speakers[n].casefold() in text.casefold()]
            found |= dict.fromkeys(in_full or numbers)
    return tuple(found)


def as_told(text: str, speaker: str) -> str:
    """Return the question in the words of the person it is about, who says "I" and "my".

    >>> as_told("What did Caroline say about Melanie's book?", "Caroline")
    "What did I say about Melanie's book?"
    """
    name = speaker if speaker.casefold() in text.casefold() else speaker.split()[0]
    mine = re.sub(rf"\b{re.escape(name)}['’]s?(?!\w)", "my", text, flags=re.IGNORECASE)
    return re.sub(rf"\b{re.escape(name)}\b", "I", mine, flags=re.IGNORECASE)


@lru_cache(maxsize=64)
def _by_first_word(speakers: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, speaker in enumerate(speakers):
        words = speaker.casefold().split()
        if words and len(words[0]) > 1 and speaker.casefold() not in tokens.ROLES:
            found.setdefault(words[0], []).append(number)
    return found
