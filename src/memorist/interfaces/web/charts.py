"""SVG charts: stacked bars, lines over days, and a graph of related memories.

Colors are classes of the stylesheet, for light and dark themes. The page shows the same numbers as
text next to each bar and line chart, so those are hidden from screen readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

WIDTH, HEIGHT = 480, 150
LEFT, RIGHT, BOTTOM, TOP = 44, 8, 24, 8  # margins
COLORS = 8  # classes c0 … c7
ITERATIONS = 120  # of the graph layout
NODE_DISTANCE = (200.0, 110.0)  # between related memories: across, down
MAX_GRAPH = (320.0, 720.0)  # between the outermost: across, down
LABEL_WIDTH = 76  # half of the longest label
_OPEN = Markup('<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="{}" aria-hidden="true">')
_RECT = Markup('<rect class="{}" x="{:.1f}" width="{:.1f}" height="16"/>')
_LINE = Markup('<path class="line c{}" d="M{}"/>')
_DOT = Markup('<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>')
_GRID = Markup('<path class="grid" d="M{} {:.1f}H{}"/>')
_VALUE = Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>')
_DAY = Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>')
_GRAPH = Markup(
    '<svg class="graph" width="{:.0f}" viewBox="0 0 {:.0f} {:.0f}" role="group" aria-label="{}">'
)
_EDGE = Markup('<path class="edge" d="M{} {}L{} {}" stroke-width="{:.1f}"/>')
_NODE = Markup(
    '<a href="/m/{}"><circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>'
    '<text x="{:.1f}" y="{:.1f}" text-anchor="middle" direction="ltr">{}</text></a>'
)
_CLOSE = Markup("</svg>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A memory in the graph."""

    id: str
    label: str
    is_center: bool = False


def render_bar(parts: Sequence[float], whole: float) -> Markup:
    """Render parts of a number side by side; negative parts cover the end of the positive ones."""
    scale = WIDTH / (whole or 1.0)
    svg = _OPEN.format("bar", WIDTH, 16, "none")
    svg += Markup('<rect class="rest" width="{}" height="16"/>').format(WIDTH)
    x = 0.0
    for index, value in enumerate(parts):
        if value > 0:
            svg += _RECT.format(f"c{index % COLORS}", x, value * scale)
            x += value * scale
    for value in parts:
        if value < 0:
            x += value * scale
            svg += _RECT.format("off", max(0.0, x), -value * scale)
    return svg + _CLOSE


def render_lines(days: Sequence[str], series: Mapping[str, Sequence[float]]) -> Markup:
    """Render one line per series over days, with a dot at the last day."""
    top = max((max(values, default=0) for values in series.values()), default=0) or 1
    svg = _OPEN.format("plot", WIDTH, HEIGHT, "xMidYMid")
    for share in (0, 0.5, 1):
        y = _y(share)
        svg += _GRID.format(LEFT, y, WIDTH - RIGHT)
        svg += _VALUE.format(LEFT - 6, y + 4, _format_number(top * share))
    svg += _DAY.format(_x(0, len(days)), HEIGHT - 4, "start", days[0])
    svg += _DAY.format(_x(len(days) - 1, len(days)), HEIGHT - 4, "end", days[-1])
    for index, values in enumerate(series.values()):
        color = index % COLORS
        points = [(_x(day, len(days)), _y(value / top)) for day, value in enumerate(values)]
        svg += _LINE.format(color, "L".join(f"{x:.1f} {y:.1f}" for x, y in points))
        for x, y in points[-1:]:
            svg += _DOT.format(color, x, y)
    return svg + _CLOSE


def _x(day: int, days: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (day / (days - 1) if days > 1 else 1.0)


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _format_number(value: float) -> str:
    """
    >>> _format_number(1.0), _format_number(0.5), _format_number(12345)
    ('1', '0.5', '12k')
    """
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:g}"


def render_graph(nodes: Sequence[Node], edges: Iterable[tuple[str, str, float]]) -> Markup:
    """Render memories and their relations. Each memory links to its page."""
    edges = list(edges)
    points: dict[str, tuple[float, float]] = {}
    width, height = float(LABEL_WIDTH), 36.0
    for id, (x, y) in _compute_layout([node.id for node in nodes], edges).items():
        x, y = x + LABEL_WIDTH, y + TOP + 12
        points[id] = x, y
        width, height = max(width, x + LABEL_WIDTH), max(height, y + 36)
    label = f"{len(nodes)} memories and {len(edges)} relations; the table below lists them"
    svg = _GRAPH.format(width, width, height, label)
    for a, b, strength in edges:
        ends = [round(value, 1) for value in (*points[a], *points[b])]
        svg += _EDGE.format(*ends, 0.5 + 3 * strength)
    for node in nodes:
        x, y = points[node.id]
        style = ("center", 9) if node.is_center else ("c0", 6)
        svg += _NODE.format(node.id, style[0], x, y, style[1], x, y + 22, node.label)
    return svg + _CLOSE


def _compute_layout(
    ids: Sequence[str], edges: Sequence[tuple[str, str, float]]
) -> dict[str, tuple[float, float]]:
    """Place related memories close together by a deterministic force-directed layout."""
    if not ids:
        return {}
    index = {id: number for number, id in enumerate(ids)}
    angle = np.linspace(0, 2 * np.pi, len(ids), endpoint=False)
    at = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    pairs = np.array([(index[a], index[b]) for a, b, _ in edges], dtype=int).reshape(-1, 2)
    ideal = 1.6 / np.sqrt(len(ids))
    for step in range(ITERATIONS):
        offset = at[:, None, :] - at[None, :, :]
        distance = np.maximum(np.linalg.norm(offset, axis=2), 0.01)
        force = (offset * (ideal**2 / distance**2)[:, :, None]).sum(axis=1) - 1.5 * at
        pull = at[pairs[:, 1]] - at[pairs[:, 0]]
        pull *= np.linalg.norm(pull, axis=1, keepdims=True) / ideal
        np.add.at(force, pairs[:, 0], pull)
        np.add.at(force, pairs[:, 1], -pull)
        size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        at += force / size * np.minimum(size, 0.1 * (1 - step / ITERATIONS))
    at -= at.min(axis=0)
    largest = np.array(MAX_GRAPH) / np.maximum(at.max(axis=0), 1e-9)
    at *= np.minimum(np.array(NODE_DISTANCE) / ideal, largest)
    return {id: (float(x), float(y)) for id, (x, y) in zip(ids, at, strict=True)}
