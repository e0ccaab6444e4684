"""Cues in a text that something changed: it ended, became another one, applies from now on, was wrong;
and cues that nothing changed: it is one more, was so once, is hypothetical or was said before.

The phrases are in `changes.toml`, for all languages together. They are looked up word by word, so
that reading them takes time linear in the text.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from .compare import RELATIVES
from .cues import asking_share, is_english
from .statements import Clause, parse_clause
from .tokens import analyze_spoken
from .values import Values, read_values

_MOST_READ = 1000  # characters; what changed is said at once, or in a text of its own
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_SPOKEN = re.compile(r"\w+")
_CLAUSE = re.compile(r"(?<=[.!?;:])\s+|,\s+|\s[–—-]\s")
MOST_CLAUSES = 5  # of a text that are compared by rules
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


_SENTENCE = re.compile(r"[.!?;\n。！？]+\s*")
_JOINED = re.compile(r"(?i)\s(?:and|but|und|aber|et|mais|y|pero|e|mas|ma)(?:\s+\S+){3}")
_PART = re.compile(r"(?i)[.!?;,\n。！？]+\s*|\s(?:and|but|und|aber|et|mais|y|pero|e|mas|ma)\s")
_LEAST_SAID = 4  # words of a sentence that says something by itself


class Phrases(NamedTuple):
    """The phrases of all cues, arranged for looking them up."""

    by_first: dict[str, list[tuple[tuple[str, ...], str]]]  # words and cue, by the first word
    stems: dict[str, str]  # beginnings of words
    beginnings: tuple[str, ...]
    unspaced: dict[str, re.Pattern[str]]


@cache
def _load() -> Phrases:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    by_first: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    stems: dict[str, str] = {}
    for cue, listed in tables["phrases"].items():
        for phrase in listed.split("|"):
            first, *rest = phrase.split()
            if first.endswith("*"):
                stems[first[:-1]] = cue
            else:
                by_first.setdefault(first, []).append((tuple(rest), cue))
    unspaced = {cue: re.compile(pattern) for cue, pattern in tables["unspaced"].items()}
    return Phrases(by_first, stems, tuple(stems), unspaced)


def read_cues(text: str) -> frozenset[str]:
    """Return the cues of a text.

    >>> sorted(read_cues("We moved to Porto, so the stand-up is at ten now"))
    ['moved', 'now']
    >>> sorted(read_cues("Ab sofort nicht mehr montags")), sorted(read_cues("I like tea"))
    (['ended', 'now'], [])
    """
    phrases = _load()
    found: set[str] = set()
    read = text[:_MOST_READ].lower().replace("’", "'")
    words = _WORD.findall(read)
    for i, word in enumerate(words):
        for rest, cue in phrases.by_first.get(word, ()):
            if cue not in found and tuple(words[i + 1 : i + 1 + len(rest)]) == rest:
                found.add(cue)
        if word.startswith(phrases.beginnings):
            found.update(cue for stem, cue in phrases.stems.items() if word.startswith(stem))
    if _UNSPACED.search(read):
        found.update(cue for cue, pattern in phrases.unspaced.items() if pattern.search(read))
    return frozenset(found)


def says_more(text: str) -> bool:
    """Return whether a text has several statements, so that not all of it need be outdated.

    >>> says_more("I live in Lisbon and work as a nurse"), says_more("I live in Lisbon, downtown.")
    (True, False)
    """
    read = text[:_MOST_READ]
    sentences = [each for each in _SENTENCE.split(read) if len(each.split()) >= _LEAST_SAID]
    return len(sentences) > 1 or _JOINED.search(read) is not None


def asks_for_another_part(question: str, old: str, new: str) -> bool:
    """Return whether a question is about a part of a text that a newer text does not replace.

    >>> old = "Clara is vegetarian and I'm allergic to nuts"
    >>> asks_for_another_part("What am I allergic to?", old, "Clara eats meat now")
    True
    >>> asks_for_another_part("What does Clara eat?", old, "Clara eats meat now")
    False
    """
    if not says_more(old):
        return False
    parts = [frozenset(analyze_spoken(part)) for part in _PART.split(old[:_MOST_READ])]
    asked, replaced = (
        [len(part.intersection(analyze_spoken(text))) for part in parts] for text in (question, new)
    )
    if not max(asked) or not max(replaced):
        return False
    best = [place for place, count in enumerate(asked) if count == max(asked)]
    return max(replaced[place] for place in best) < max(replaced)


@dataclass(frozen=True)
class ComparedText:
    """What is compared of a text. Each part is read on first use."""

    text: str

    @cached_property
    def cues(self) -> frozenset[str]:
        return read_cues(self.text)

    @cached_property
    def spoken(self) -> list[str]:
        return _SPOKEN.findall(self.text.lower())

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self.spoken)

    @cached_property
    def values(self) -> Values:
        return read_values(self.text)

    @cached_property
    def numbers(self) -> frozenset[object]:
        """Numbers, times and days."""
        values = self.values
        days = {f"day {day}" for day in values.weekdays}
        return frozenset((*values.numbers, *values.times, *values.dates, *days))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(map(str.lower, self.values.names))

    @cached_property
    def relatives(self) -> frozenset[str]:
        return RELATIVES.intersection(self.spoken)

    @cached_property
    def is_english(self) -> bool:
        """In other languages, a capital need not mean a name."""
        return is_english(self.text)

    @cached_property
    def length(self) -> int:
        """In words."""
        return len(self.spoken)

    @cached_property
    def asks(self) -> float:
        return asking_share(self.text)

    @cached_property
    def parts(self) -> list[str]:
        """The texts of its first clauses."""
        return _CLAUSE.split(self.text)[:MOST_CLAUSES]

    @cached_property
    def clauses(self) -> list[Clause]:
        return list(filter(None, map(parse_clause, self.parts)))


# Cleared after each write: a text that is kept here could not be forgotten.
read = lru_cache(maxsize=1 << 10)(ComparedText)
