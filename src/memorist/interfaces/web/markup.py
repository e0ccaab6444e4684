"""What templates call: filters for text written by others, and SVG charts.

Text is escaped and isolated, and its invisible characters are shown. Charts are stacked bars, lines
over days, and a graph of related memories. Their colors are classes of the stylesheet, for light
and dark themes. The page shows the same numbers as text next to each bar and line chart, so those
are hidden from screen readers.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import numpy as np
from markupsafe import Markup, escape

_VISIBLE = "\n\t\u200c\u200d"  # the last two join emoji and letters of Indic scripts
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # Unicode categories
MAX_WORDS = 600  # longer texts are not compared word by word
_WORDS = re.compile(r"\s+|\S+")
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))
WIDTH = 480
HEIGHT = 150
LEFT = 44  # margins
RIGHT = 8
BOTTOM = 24
TOP = 8
COLORS = 8  # classes c0 … c7
ITERATIONS = 120  # of the graph layout
NODE_DISTANCE = (200.0, 110.0)  # between related memories: across, down
MAX_GRAPH = (320.0, 720.0)  # between the outermost: across, down
LABEL_WIDTH = 76  # half of the longest label

# The line charts of the statistics page: title, description, and the events each line counts.
STATISTICS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Duplicates", "Repeated statements that were merged.", {"merged": "merge ok"}),
    (
        "Removals",
        "Memories removed because a space was full, they expired, or they were moved to the trash.",
        {"removed": "ttl ok", "space full of protected memories": "ttl error"},
    ),
    (
        "User actions",
        "Changes made to memories and privacy settings.",
        {
            "pinned or unpinned": "pin ok, unpin ok",
            "edited": "update ok",
            "forgotten": "delete ok",
            "memory on, off, incognito": "enable ok, disable ok, incognito ok",
        },
    ),
    (
        "Activity",
        "New memories and searches.",
        {"new memories": "create ok", "searches": "search ok"},
    ),
    (
        "Hit rate",
        "Whether recalled memories were used in the reply, where feedback was given.",
        {"used": "use ok", "not used": "use skipped"},
    ),
    (
        "Embedding",
        "Vectors computed in the background, and batches that failed.",
        {"computed": "embed ok", "failed": "embed error"},
    ),
    (
        "LLM tokens",
        "Tokens sent to and received from the language model.",
        {"input": "input tokens", "output": "output tokens"},
    ),
)


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


def render_bar(parts: Sequence[float], whole: float) -> Markup:
    """Render parts of a number side by side; negative parts cover the end of the positive ones."""
    scale = WIDTH / (whole or 1.0)
    svg = [
        f'<svg class="bar" viewBox="0 0 {WIDTH} 16" preserveAspectRatio="none" aria-hidden="true">',
        f'<rect class="rest" width="{WIDTH}" height="16"/>',
    ]
    x = 0.0
    rect = '<rect class="{}" x="{:.1f}" width="{:.1f}" height="16"/>'
    for index, value in enumerate(parts):
        if value > 0:
            svg.append(rect.format(f"c{index % COLORS}", x, value * scale))
            x += value * scale
    for value in parts:
        if value < 0:
            x += value * scale
            svg.append(rect.format("off", max(0.0, x), -value * scale))
    return Markup("".join(svg) + "</svg>")


def render_lines(days: Sequence[str], series: Mapping[str, Sequence[float]]) -> Markup:
    """Render one line per series over days, with a dot at the last day."""
    top = max(map(max, series.values())) or 1
    xs = np.linspace(LEFT, WIDTH - RIGHT, len(days))
    svg = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="xMidYMid"'
        ' aria-hidden="true">'
    ]

    def height(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)

    for value in (0, top * 0.5, top):
        y = height(value)
        number = f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:g}"
        svg.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        svg.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number}</text>')
    for end, anchor in ((0, "start"), (-1, "end")):
        place = f'x="{xs[end]:.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}"'
        svg.append(f"<text {place}>{days[end]}</text>")
    for index, values in enumerate(series.values()):
        points = [f"{x:.1f} {height(value):.1f}" for x, value in zip(xs, values, strict=True)]
        last_x, last_y = points[-1].split()
        svg.append(f'<path class="line c{index % COLORS}" d="M{"L".join(points)}"/>')
        svg.append(f'<circle class="c{index % COLORS}" cx="{last_x}" cy="{last_y}" r="3.5"/>')
    return Markup("".join(svg) + "</svg>")


def render_graph(
    labels: Mapping[str, str], edges: Sequence[tuple[str, str, float]], center: str = ""
) -> Markup:
    """Render related memories, at least two. `labels` are by id; each links to its page."""
    points = np.add(_compute_layout(list(labels), edges), (LABEL_WIDTH, TOP + 12))
    width, height = np.add(points.max(axis=0), (LABEL_WIDTH, 36))
    at = dict(zip(labels, points.tolist(), strict=True))
    about = f"{len(labels)} memories and {len(edges)} relations; the table below lists them"
    svg = [
        f'<svg class="graph" width="{width:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' role="group" aria-label="{about}">'
    ]
    for one, other, strength in edges:
        (x1, y1) = at[one]
        (x2, y2) = at[other]
        line = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        svg.append(f'<path class="edge" d="{line}" stroke-width="{0.5 + 3 * strength:.1f}"/>')
    for id, label in labels.items():
        x, y = at[id]
        kind, radius = ("center", 9) if id == center else ("c0", 6)
        svg.append(
            f'<a href="/m/{escape(id)}">'
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
            f'<text x="{x:.1f}" y="{y + 22:.1f}" text-anchor="middle" direction="ltr">'
            f"{escape(label)}</text></a>"
        )
    return Markup("".join(svg) + "</svg>")


def _compute_layout(ids: Sequence[str], edges: Sequence[tuple[str, str, float]]) -> np.ndarray:
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
    return points
