"""What templates call: filters for text written by others, and the layout of graphs.

Text is escaped and isolated, and its invisible characters are shown.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

import numpy as np
from markupsafe import Markup, escape

_VISIBLE = "\n\t\u200c\u200d"  # the last two join emoji and letters of Indic scripts
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # Unicode categories
MAX_WORDS = 600  # longer texts are not compared word by word
_WORDS = re.compile(r"\s+|\S+")
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))
ITERATIONS = 120  # of the graph layout
NODE_DISTANCE = (200.0, 110.0)  # between related memories: across, down
MAX_GRAPH = (320.0, 720.0)  # between the outermost: across, down


def as_text(text: object) -> Markup:
    """Escape a text, isolate its direction, and replace invisible characters by their names.

    >>> as_text("<b>tea\\u202e</b>")
    Markup('<bdi>&lt;b&gt;tea<span class="invisible">U+202E</span>&lt;/b&gt;</bdi>')
    """
    html: list[Markup] = []
    for is_invisible, group in groupby(str(text), _is_invisible):
        run = "".join(group)
        if is_invisible:
            name = f"U+{ord(run):04X}" if len(run) == 1 else f"{len(run)} invisible characters"
            html.append(Markup('<span class="invisible">{}</span>').format(name))
        else:
            html.append(escape(run))
    return Markup("<bdi>{}</bdi>").format(Markup("").join(html))


def _is_invisible(char: str) -> bool:
    return char not in _VISIBLE and unicodedata.category(char) in _INVISIBLE


def shorten(text: str, width: int = 90) -> Markup:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * width].split())
    return as_text(line if len(line) <= width else line[: width - 1] + "…")


def render_diff(old: str, new: str) -> Markup:
    """Render the change between two versions, word by word.

    >>> render_diff("I drink tea", "I drink coffee")
    Markup('<bdi>I drink </bdi><del><bdi>tea</bdi></del><ins><bdi>coffee</bdi></ins>')
    """
    before = _WORDS.findall(old)
    after = _WORDS.findall(new)
    if max(len(before), len(after)) > MAX_WORDS:
        return _tag("del", old) + _tag("ins", new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    html = Markup("")
    for op, a, b, c, d in matcher.get_opcodes():
        if op == "equal":
            html += as_text("".join(before[a:b]))
        else:
            html += _tag("del", "".join(before[a:b])) + _tag("ins", "".join(after[c:d]))
    return html


def _tag(name: str, text: str) -> Markup:
    return Markup("<{0}>{1}</{0}>").format(name, as_text(text)) if text else Markup("")


def format_time(at: datetime | None) -> Markup:
    """Format a time for people and programs."""
    if at is None:
        return Markup("–")
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), f"{at:%Y-%m-%d %H:%M}")


def format_duration(duration: timedelta) -> str:
    """Round a duration to the nearest whole unit.

    >>> format_duration(timedelta(days=2, hours=23)), format_duration(timedelta(hours=25))
    ('3 days', '1 day')
    >>> format_duration(timedelta(seconds=4)), format_duration(timedelta(hours=-1))
    ('less than a minute', 'less than a minute')
    """
    seconds = duration.total_seconds()
    for name, size in _UNITS:
        if seconds + 30 >= size:
            number = max(1, round(seconds / size))
            return f"{number} {name}{'s' if number > 1 else ''}"
    return "less than a minute"


def compute_layout(
    ids: Sequence[str], edges: Sequence[tuple[str, str, float]]
) -> dict[str, list[float]]:
    """Place related memories close together by a deterministic force-directed layout."""
    index = {id: number for number, id in enumerate(ids)}
    one = [index[edge[0]] for edge in edges]
    other = [index[edge[1]] for edge in edges]
    at = 1j * np.exp(-2j * np.pi * np.arange(len(ids)) / len(ids))  # complex: x + y i
    ideal = 1.6 / np.sqrt(len(ids))
    for step in range(ITERATIONS):
        offset = at[:, None] - at
        distance = np.maximum(abs(offset), 0.01)
        force = (offset * (ideal / distance) ** 2).sum(axis=1) - 1.5 * at
        pull = at[other] - at[one]
        pull *= abs(pull) / ideal
        np.add.at(force, one, pull)
        np.add.at(force, other, -pull)
        size = np.maximum(abs(force), 1e-9)
        at += force / size * np.minimum(size, 0.1 * (1 - step / ITERATIONS))
    points: np.ndarray = np.stack([at.real, at.imag], axis=1)
    points -= points.min(axis=0)
    largest = np.divide(MAX_GRAPH, np.maximum(points.max(axis=0), 1e-9))
    points *= np.minimum(np.divide(NODE_DISTANCE, ideal), largest)
    return dict(zip(ids, points.tolist(), strict=True))
