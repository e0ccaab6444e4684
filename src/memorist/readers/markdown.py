"""Markdown: bullets and paragraphs, each with the headings above it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .source import LONGEST_TITLE

BETWEEN = " › "  # headings of a path
_HEADING = re.compile(r"(#{1,6})\s+(.+)")
_BOLD = re.compile(r"(?:\*\*([^*]{1,200})\*\*|__([^_]{1,200})__):?")  # a line of its own
_UNDERLINE = re.compile(r"\s{0,3}(?:={2,}|-{2,})\s*")  # makes the line before it a heading
_BULLET = re.compile(r"\s{0,12}(?:[-*+]|\d{1,3}[.)])\s+(?:\[([ xX])\]\s+)?(.+)")
_TASKS = {None: "", " ": "To do: ", "x": "Done: ", "X": "Done: "}  # by what is in the box
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_BLOCK = re.compile(r"\s{0,3}(?:```|~~~|\|)")  # code or a table, which begins its line
_SIGNS = re.compile(r"[\W_]+")
LOWEST = 7  # level of a bold line, below all headings


class Entry(NamedTuple):
    """A bullet or a paragraph."""

    headings: tuple[str, ...]  # above it, outermost first
    text: str


def read_entries(text: str) -> Iterator[Entry]:
    """Yield the bullets and paragraphs of a text. A heading alone is not an entry.

    >>> [*read_entries("# Home\\n\\n**Wifi**\\n\\n- Network: Nest")]
    [Entry(headings=('Home', 'Wifi'), text='Network: Nest')]
    """
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    in_code = False
    is_bullet = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
        heading = None if in_code else _read_heading(line)
        bullet = None if in_code else _BULLET.fullmatch(line)
        if not in_code and len(lines) == 1 and not is_bullet and _UNDERLINE.fullmatch(line):
            heading = (1 if "=" in line else 2), lines.pop()
        is_end = not line.strip() and not in_code
        if lines and (heading or bullet or is_end):
            yield Entry(tuple(name for _, name in path), "\n".join(lines))
            lines.clear()
        if heading:
            path = [each for each in path if each[0] < heading[0]]
            path.append(heading)
        elif bullet:
            lines.append(_TASKS[bullet[1]] + bullet[2])
        elif line.strip():
            lines.append(line.strip() if not in_code else line)
        is_bullet = bool(bullet) or (is_bullet and not is_end)
    if lines:
        yield Entry(tuple(name for _, name in path), "\n".join(lines))


def _read_heading(line: str) -> tuple[int, str] | None:
    """Return the level and the text of a heading; None if a line is none."""
    line = line.strip()
    if found := _HEADING.fullmatch(line):
        return len(found[1]), found[2].strip("# ")
    if found := _BOLD.fullmatch(line):
        return LOWEST, (found[1] or found[2]).strip(" :")
    return None


def add_headings(path: Sequence[str], text: str) -> str:
    """Return a text after the headings that it does not name itself.

    >>> add_headings(["beach-house", "Beach house", "Wifi"], "Network: Nest")
    'Beach house › Wifi: Network: Nest'
    >>> add_headings(["Pancakes"], "Pancakes need two eggs.")
    'Pancakes need two eggs.'
    """
    shown: list[str] = []
    named = _simplify(text)
    for name in path:
        words = _simplify(name)
        if shown and words == _simplify(shown[-1]):  # the heading repeats the name of the file
            shown.pop()
        if words.strip() and words not in named:
            shown.append(name)
    joined = BETWEEN.join(shown)[:LONGEST_TITLE].strip()
    if not joined:
        return text
    return f"{joined}:\n{text}" if _BLOCK.match(text) else f"{joined}: {text}"


def _simplify(text: str) -> str:
    """Return the words of a text, between spaces.

    >>> _simplify("Beach-house!")
    ' beach house '
    """
    return f" {_SIGNS.sub(' ', text.casefold()).strip()} "
