"""Read the expressions of `commands.toml`, and what surrounds a command: fillers and requests.

The expressions are compiled when they are needed: a program may never see a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

from . import cues
from .passing import is_courtesy
from .tokens import load_patterns

LOOSE = "en_loose"  # the group of freer wordings, which are tried last
ASSUMING = "en_assuming"  # the group of those that are commands only in the right situation
MOST_FILLERS = 6
MOST_REQUESTS = 3
LEAST_STATED = 4  # words of a sentence that states something, whatever they are
_WORD = re.compile(r"\S+")
_MARKS = ".,;:!?…()"
_APOSTROPHE = re.compile(r"(?<=\w)['’´](?=\w)")


@dataclass(frozen=True, slots=True)
class Folded:
    """A message as it is matched, and as it was written."""

    text: str
    folded: str
    groups: tuple[str, ...]  # of expressions that may match

    def original(self, start: int, end: int) -> str:
        """Return the words of the person for a part of the folded text."""
        part = self.folded[start:end]
        if start and not self.folded[start - 1].isspace():
            return part.strip()
        first = len(self.folded[:start].split())
        words = list(_WORD.finditer(self.text))[first : first + len(part.split())]
        if not words:
            return part
        word = self.folded[start:].split()[len(words) - 1]
        cut = len(word) - len(part.split()[-1])
        return self.text[words[0].start() : words[-1].end() - cut].strip()


@cache
def load_tables() -> dict[str, Any]:
    """Return the tables of the expressions."""
    return load_patterns(str(Path(__file__).with_name("commands.toml")))


@cache
def compile_pattern(expression: str) -> re.Pattern[str]:
    """Compile an expression once."""
    return re.compile(expression)


@cache
def load_triggers() -> dict[str, re.Pattern[str]]:
    """Return what a text must contain to be a command, by group of expressions."""
    groups = [*load_tables()["languages"]["all"].split(), LOOSE, ASSUMING]
    return {name: re.compile(load_tables()[name]["trigger"]) for name in groups}


@cache
def compile_group(group: str) -> re.Pattern[str]:
    """Compile the expressions of a group as one, which only tells whether one of them matches."""
    named = [each for name, each in load_tables()[group].items() if name != "trigger"]
    plain = [re.sub(r"\?P<\w+>", "?:", pattern) for patterns in named for pattern in patterns]
    return re.compile("|".join(plain))


@cache
def load_surroundings(language: str) -> tuple[re.Pattern[str], re.Pattern[str], tuple[str, ...]]:
    """Return what may surround a command: fillers and requests before it, and words after it."""
    table = load_tables()["around"][language]
    space = "" if language == "other" else " "  # some languages are written without spaces
    after = tuple(f"{space}{words}" for words in table["after"].split("|"))
    return re.compile(table["filler"]), re.compile(table["request"]), after


@cache
def load_pairs(table: str) -> dict[str, str]:
    """Return misspelled words and what they mean, or words for places in a list, from 0."""
    return dict(pair.split(":") for pair in " ".join(load_tables()[table]["words"]).split())


def fold(text: str) -> str:
    """Return a message in lower case, without apostrophes, with typos of important words corrected.

    It has the same words in the same order, with one space or line break between them.
    """
    typos = load_pairs("typos")
    lines: list[str] = []
    for line in _APOSTROPHE.sub("", text.lower()).splitlines():
        words = line.split()
        for i, word in enumerate(words):
            core = word.strip(_MARKS)
            if core in typos:
                words[i] = word.replace(core, typos[core], 1)
        lines.append(" ".join(words))
    return "\n".join(lines)


def has_cue(name: str, text: str) -> bool:
    """Return whether a text has what surrounds a command, or speaks against one."""
    return compile_pattern(load_tables()["cues"][name]).search(text) is not None


def find_places(words: str) -> Iterator[int]:
    """Yield the places that words name, from 0: "the first two", "1 and 3"."""
    known = load_pairs("places")
    numbers = [int(known[word]) for word in re.findall(r"\w+", words) if word in known]
    if re.search(r"\b(?:first|last|top) (?:two|three)\b", words) and len(numbers) == 2:
        count = numbers[1] + 1
        yield from range(-count, 0) if numbers[0] < 0 else range(count)
    elif "one" in words.split() and len(numbers) > 1:  # "the second one"
        yield from dict.fromkeys(numbers[:-1])
    else:
        yield from dict.fromkeys(numbers)


def trim(folded: str, span: tuple[int, int], language: str) -> Iterator[tuple[int, int]]:
    """Yield a part of a message with more and more of what surrounds a command left out."""
    filler, request, after = load_surroundings(language)
    start, end = span
    end = start + len(strip_marks(folded[start:end], leading=False))
    starts = [start]
    for pattern, most in ((filler, MOST_FILLERS), (request, MOST_REQUESTS)):
        for _ in range(most):
            if not (found := pattern.match(folded, starts[-1], end)):
                break
            starts.append(found.end())
    ends = [end]
    for _ in range(MOST_FILLERS):
        if not folded.endswith(after, start, end):
            break
        end -= max(len(each) for each in after if folded.endswith(each, start, end))
        end = start + len(strip_marks(folded[start:end], leading=False))
        ends.append(end)
    for start in starts:
        for end in ends:
            if start < end:
                yield start, end


def strip_marks(text: str, *, leading: bool = True) -> str:
    """Return a text without punctuation, symbols and spaces at its end, and at its beginning."""
    start = 0
    end = len(text)
    while end and category(text[end - 1])[0] in "PSZC":
        end -= 1
    while leading and start < end and category(text[start])[0] in "PSZC":
        start += 1
    return text[start:end]


def is_filler(sentence: str) -> bool:
    """Return whether a sentence says nothing: "Oh wait!", "Thanks."."""
    for language in load_tables()["around"]:
        spans = trim(f"{sentence} ", (0, len(sentence) + 1), language)
        if min((end - start for start, end in spans), default=0) <= 1:
            return True
    return False


def states_something(sentence: str) -> bool:
    """Return whether a sentence beside a command states something.

    >>> [states_something(text) for text in ("i like figs", "thanks a lot", "lets start fresh")]
    [True, False, False]
    """
    count = len(sentence.split())
    if "?" in sentence or count < LEAST_STATED - 1:
        return False
    if count >= LEAST_STATED:
        return True
    _, request, _ = load_surroundings("en")
    is_other = request.match(sentence) or is_courtesy(sentence)
    return not is_other and not cues.read(sentence).refers_back
