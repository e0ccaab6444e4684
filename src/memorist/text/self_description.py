"""What people tell about themselves without naming it: "I work at Acme" tells their job.

The expressions are English, in `self_description.toml`. They are used where a person asks for such a thing
by its noun, and sees what was found before anything is done with it.
"""

from __future__ import annotations

import re
from functools import cache

from .statements import split_parts
from .tokens import load_patterns, words

_PRESENT = frozenset("current new present latest".split())
_OF_OTHERS = re.compile(r"(?i)['’]s?\b|\b(?:his|her|their)\b")


def find_implied_nouns(text: str, topic: str) -> frozenset[str]:
    """Return the words of a topic that a statement is about without using them.

    >>> sorted(find_implied_nouns("I'm 34 and I work at Acme.", "my job"))
    ['job']
    >>> find_implied_nouns("My mum lives in Nagpur.", "my address")
    frozenset()
    """
    if _OF_OTHERS.search(topic):
        return frozenset()
    named = set(words(topic))
    asked = [(nouns & named, pattern) for nouns, pattern in _load_attributes() if nouns & named]
    lower = text.lower()
    parts = [lower, *map(str.strip, split_parts(lower))] if asked else []
    nouns_meant: set[str] = set()
    for nouns, pattern in asked:
        if any(map(pattern.search, parts)):
            nouns_meant |= nouns | (named & _PRESENT)
    return frozenset(nouns_meant)


@cache
def _load_attributes() -> list[tuple[frozenset[str], re.Pattern[str]]]:
    """Return the nouns of each attribute, with the pattern of statements about it."""
    tables = load_patterns(__file__)
    del tables["parts"]
    return [
        (frozenset(each["nouns"].split()), re.compile(each["statement"]))
        for each in tables.values()
    ]
