"""How pages show what is stored: filters for templates, and the graph of related memories.

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

from ...scoped import ScopedClient
from ...types import Memory

_VISIBLE = "\n\t\u200c\u200d"  # the last two join emoji and letters of Indic scripts
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # Unicode categories
MAX_WORDS = 600  # longer texts are not compared word by word
MAX_NODES = 36
ITERATIONS = 120  # of the layout
NODE_DISTANCE = (200.0, 110.0)  # between related memories: horizontal, vertical
MAX_SIZE = (320.0, 720.0)  # of the graph: width, height
Edges = dict[tuple[str, str], float]  # ids of related memories, and how strongly
_WORDS = re.compile(r"\s+|\S+")
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


def as_text(text: object) -> Markup:
    """Escape a text, isolate its direction, and replace invisible characters by their names.

    >>> as_text("<b>tea\\u202e</b>")
    Markup('<bdi>&lt;b&gt;tea<span class="invisible">U+202E</span>&lt;/b&gt;</bdi>')
    """
    html: list[Markup] = []
    for is_invisible, group in groupby(
        str(text), lambda char: char not in _VISIBLE and unicodedata.category(char) in _INVISIBLE
    ):
        run = "".join(group)
        if not is_invisible:
            html.append(escape(run))
            continue
        name = f"{len(run)} invisible characters"
        if len(run) == 1:
            name = f"U+{ord(run):04X}"
        span = Markup('<span class="invisible">{}</span>')
        html.append(span.format(name))
    return Markup("<bdi>{}</bdi>").format(Markup("").join(html))


def shorten(text: str, width: int = 90) -> Markup:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * width].split())
    if len(line) > width:
        line = line[: width - 1] + "…"
    return as_text(line)


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
        removed = "".join(before[a:b])
        added = "".join(after[c:d])
        if op == "equal":
            html += as_text(removed)
        else:
            html += _tag("del", removed) + _tag("ins", added)
    return html


def _tag(name: str, text: str) -> Markup:
    if not text:
        return Markup("")
    return Markup("<{0}>{1}</{0}>").format(name, as_text(text))


def format_time(at: datetime | None) -> Markup:
    """Format a time as a `time` element."""
    if at is None:
        return Markup("–")
    shown = f"{at:%Y-%m-%d %H:%M}"
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), shown)


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
            plural = "s" if number > 1 else ""
            return f"{number} {name}{plural}"
    return "less than a minute"


async def load_graph(memories: ScopedClient, center: str) -> tuple[dict[str, Memory], Edges]:
    """Return related memories by id, around one memory or among the latest, and the edges."""
    if center:
        depth, limit = 2, 6
        found = {center: await memories.get(center)}
    else:
        depth, limit = 1, 3
        latest = await memories.list(limit=MAX_NODES // 2)
        found = {each.id: each for each in latest}
    edges: Edges = {}
    visited = 0
    for _ in range(depth):
        new = list(found)[visited:]
        visited = len(found)
        for id in new:
            for related in await memories.related(id, limit=limit):
                other = related.memory
                if other.id in found or len(found) < MAX_NODES:
                    found[other.id] = other
                    first, second = sorted((id, other.id))
                    edges[first, second] = related.strength
    return found, edges


def compute_layout(
    ids: Sequence[str],
    edges: Sequence[tuple[str, str]],
) -> dict[str, list[float]]:
    """Place related memories close together by a deterministic force-directed layout."""
    index = {id: number for number, id in enumerate(ids)}
    one = [index[first] for first, _ in edges]
    other = [index[second] for _, second in edges]
    angles = -2j * np.pi * np.arange(len(ids)) / len(ids)
    at = 1j * np.exp(angles)  # points on a circle, as complex numbers: x + y i
    ideal = 1.6 / np.sqrt(len(ids))
    for step in range(ITERATIONS):
        offset = at[:, None] - at
        distance = np.maximum(abs(offset), 0.01)
        push = offset * (ideal / distance) ** 2
        force = push.sum(axis=1) - 1.5 * at
        pull = at[other] - at[one]
        pull *= abs(pull) / ideal
        np.add.at(force, one, pull)
        np.add.at(force, other, -pull)
        size = np.maximum(abs(force), 1e-9)
        longest = 0.1 * (1 - step / ITERATIONS)
        at += force / size * np.minimum(size, longest)
    points: np.ndarray = np.stack([at.real, at.imag], axis=1)
    points -= points.min(axis=0)
    extent = np.maximum(points.max(axis=0), 1e-9)
    largest = np.divide(MAX_SIZE, extent)
    points *= np.minimum(np.divide(NODE_DISTANCE, ideal), largest)
    return dict(zip(ids, points.tolist(), strict=True))
