"""The expressions of `commands.toml`, compiled when they are needed: most messages need few.

A group is a language, or some of the intents of English. A message is matched with the expressions
of a group only if it contains the trigger of the group.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from .tokens import load_patterns

LOOSE = "en_loose"  # freer wordings, which are tried last
Compiled = list[tuple[str, re.Pattern[str]]]


@cache
def tables() -> dict[str, Any]:
    """Read the expressions when they are needed: a program may never see a command."""
    return load_patterns(str(Path(__file__).with_name("commands.toml")))


@cache
def cue(name: str) -> re.Pattern[str]:
    """Compile an expression for what surrounds a command."""
    return re.compile(tables()["cues"][name])


@cache
def triggers() -> dict[str, re.Pattern[str]]:
    """Return what a text must contain to be a command, by group of expressions."""
    groups = [*tables()["languages"]["all"].split(), LOOSE]
    return {name: re.compile(tables()[name]["trigger"]) for name in groups}


@cache
def list_expressions(group: str) -> list[tuple[str, str]]:
    """Return the expressions of a group with their names, in order."""
    found: list[tuple[str, str]] = []
    for name, patterns in tables()[group].items():
        if name != "trigger":
            found += [(name, pattern) for pattern in patterns]
    return found


@cache
def compile_each(group: str) -> Compiled:
    """Compile the expressions of a group when they are needed."""
    return [(name, re.compile(pattern)) for name, pattern in list_expressions(group)]


@cache
def compile_together(group: str) -> re.Pattern[str]:
    """Compile the expressions of a group as one, which only tells whether one of them matches."""
    plain = [re.sub(r"\?P<\w+>", "?:", pattern) for _, pattern in list_expressions(group)]
    return re.compile("|".join(plain))


@cache
def around(language: str) -> tuple[re.Pattern[str], re.Pattern[str], tuple[str, ...]]:
    """Return what may surround a command: fillers and requests before it, and words after it."""
    table = tables()["around"][language]
    space = "" if language == "other" else " "  # some languages are written without spaces
    after = tuple(f"{space}{words}" for words in table["after"].split("|"))
    return re.compile(table["filler"]), re.compile(table["request"]), after


@cache
def typos() -> dict[str, str]:
    """Return common misspellings of words that commands are made of."""
    pairs = " ".join(tables()["typos"]["words"]).split()
    return dict(pair.split(":") for pair in pairs)


@cache
def ordinals() -> dict[str, int]:
    """Return the places in a list that words name, from 0; -1 is the last."""
    pairs = " ".join(tables()["places"]["words"]).split()
    named = dict(pair.split(":") for pair in pairs)
    return {word: int(place) for word, place in named.items()}
