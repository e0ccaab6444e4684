"""Tell the language of a text by its script, its function words and its letters.

Keyword search stems a text by its language and ignores the function words of it.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

# Languages that have a script to themselves, or nearly so.
SCRIPTS = {
    "greek": "[\u0370-\u03ff\u1f00-\u1fff]",
    "russian": "[\u0400-\u052f]",
    "armenian": "[\u0530-\u058f]",
    "arabic": "[\u0600-\u077f]",
    "hindi": "[\u0900-\u097f]",
    "tamil": "[\u0b80-\u0bff]",
    "cjk": "[\u3040-\u30ff\u3400-\u9fff]",
}
OTHER = "other"  # a language without function words or stems here
_MOST_READ = 80  # words
_LETTER = 0.5  # how much a letter counts, against a function word
_LEAST = 0.1  # share of the words that speak for another language, if none is English
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
STOP_WORDS = {name: frozenset(words.split()) for name, words in _TABLES["words"].items()}
_ENGLISH = frozenset(_TABLES["recognized"]["english"].split())
_LETTERS = {
    letter: names.split() for letters, names in _TABLES["letters"].items() for letter in letters
}


def find_script(word: str) -> str:
    """Return the language of the script that a word begins with; OTHER if it is not known here.

    >>> find_script("собака"), find_script("ไทย")
    ('russian', 'other')
    """
    for name, letters in SCRIPTS.items():
        if re.match(letters, word):
            return name
    return OTHER


@lru_cache(maxsize=1 << 14)
def _spoken_in(word: str) -> dict[str, float]:
    """Return the languages that a word speaks for, and how much."""
    if word[0] > "\u024f":
        return {find_script(word): 1.0}
    found = {name: 1.0 for name, words in STOP_WORDS.items() if word in words}
    if word in _ENGLISH:
        found["english"] = 1.0
    if not found and not word.isascii():
        for letter in word:
            found |= dict.fromkeys(_LETTERS.get(letter, ()), _LETTER)
        return found or {OTHER: _LETTER}
    return found


def detect_language(words: Sequence[str], default: str = "english") -> str:
    """Return the language of a text, given its words; the default if nothing speaks for another.

    >>> detect_language(["mein", "hund", "heißt", "bello"])
    'german'
    >>> detect_language(["rubber", "duck"])
    'english'
    """
    votes: defaultdict[str, float] = defaultdict(float)
    for word in words[:_MOST_READ]:
        for name, weight in _spoken_in(word).items():
            votes[name] += weight
    most = max(votes.values(), default=0.0)
    if most < max(1.0, _LEAST * min(len(words), _MOST_READ)):
        return default
    names: tuple[str, ...] = (default, *STOP_WORDS, *votes)  # of equals, the first
    return next(name for name in names if votes.get(name) == most)
