"""Pictures as SVG, made here: bars whose parts add up, lines over days, and what is related to what.

Colours are classes of the stylesheet, so that they fit light and dark. Beside each picture the page has its figures in
words, so a bar or a plot says nothing to a screen reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

WIDTH, HEIGHT = 480, 150
LEFT, BOTTOM, TOP = 44, 24, 8
COLOURS = 8  # classes c0 … c7
ROUNDS = 120  # in which the picture of relations finds its shape
APART, MOST_APART = (
    (200.0, 110.0),
    (320.0, 720.0),
)  # related memories in it, and the outermost: across and down
LABEL = 76  # half of the longest label
_OPEN = Markup('<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="{}" aria-hidden="true">')
_CLOSE = Markup("</svg>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A memory in the picture of relations."""

    id: str
    label: str
    is_centre: bool = False


def stacked(parts: Sequence[float], whole: float) -> Markup:
    """Parts of one number side by side, of a whole that is the full width; what is taken off lies over their end."""
    scale = WIDTH / (whole or 1.0)
    made, x = (
        _OPEN.format("bar", WIDTH, 16, "none")
        + Markup('<rect class="rest" width="{}" height="16"/>').format(WIDTH),
        0.0,
    )
    for place, value in enumerate(parts):
        if value > 0:
            made += _rect(f"c{place % COLOURS}", x, value * scale)
            x += value * scale
    for value in parts:
        if value < 0:
            x += value * scale
            made += _rect("off", max(0.0, x), -value * scale)
    return made + _CLOSE


def _rect(name: str, x: float, width: float) -> Markup:
    return Markup('<rect class="{}" x="{:.1f}" width="{:.1f}" height="16"/>').format(name, x, width)


def lines(days: Sequence[str], series: Mapping[str, Sequence[float]]) -> Markup:
    """Numbers day by day, a line each; lines of one day are dots."""
    most = max((value for each in series.values() for value in each), default=0) or 1
    made = _OPEN.format("plot", WIDTH, HEIGHT, "xMidYMid") + _grid(days, most)
    for place, values in enumerate(series.values()):
        at = [(_x(number, len(days)), _y(value, most)) for number, value in enumerate(values)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        made += Markup('<path class="line c{}" d="M{}"/>').format(place % COLOURS, path)
        for x, y in at[-1:]:
            made += Markup('<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format(
                place % COLOURS, x, y
            )
    return made + _CLOSE


def _x(number: int, of: int) -> float:
    return LEFT + (WIDTH - LEFT - 8) * (number / (of - 1) if of > 1 else 1.0)


def _y(value: float, most: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most)


def _grid(days: Sequence[str], most: float) -> Markup:
    made = Markup("")
    for share in (0, 0.5, 1):
        y = _y(most * share, most)
        made += Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(LEFT, y, WIDTH - 8)
        label = Markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>')
        made += label.format(LEFT - 6, y + 4, _short(most * share))
    for place, anchor in ((0, "start"), (-1, "end")):
        x = _x(0 if place == 0 else len(days) - 1, len(days))
        made += Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            x, HEIGHT - 4, anchor, days[place]
        )
    return made


def _short(value: float) -> str:
    """
    >>> _short(1.0), _short(0.5), _short(12345)
    ('1', '0.5', '12k')
    """
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:g}"


def web(nodes: Sequence[Node], edges: Iterable[tuple[str, str, float]]) -> Markup:
    """Memories and what joins them; each is a link to its own page."""
    edges = list(edges)
    at = {
        id: (x + LABEL, y + TOP + 12)
        for id, (x, y) in _laid_out([each.id for each in nodes], edges).items()
    }
    wide, high = (
        max((spot[axis] for spot in at.values()), default=0) + room
        for axis, room in ((0, LABEL), (1, 36))
    )
    made = Markup(
        '<svg class="web" width="{:.0f}" viewBox="0 0 {:.0f} {:.0f}" role="group" aria-label="{}">'
    ).format(
        wide,
        wide,
        high,
        f"{len(nodes)} memories and {len(edges)} relations; the table below says the same",
    )
    for a, b, strength in edges:
        ends = tuple(round(value, 1) for id in (a, b) for value in at[id])
        made += Markup('<path class="edge" d="M{} {}L{} {}" stroke-width="{:.1f}"/>').format(
            *ends, 0.5 + 3 * strength
        )
    for each in nodes:
        made += _node(each, *at[each.id])
    return made + _CLOSE


def _node(node: Node, x: float, y: float) -> Markup:
    return Markup(
        '<a href="/m/{}"><circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>'
        '<text x="{:.1f}" y="{:.1f}" text-anchor="middle" direction="ltr">{}</text></a>'
    ).format(
        node.id,
        "centre" if node.is_centre else "c0",
        x,
        y,
        9 if node.is_centre else 6,
        x,
        y + 22,
        node.label,
    )


def _laid_out(
    ids: Sequence[str], edges: Sequence[tuple[str, str, float]]
) -> dict[str, tuple[float, float]]:
    """A place for each: the related draw each other near, all push each other away; always the same."""
    if not ids:
        return {}
    number = {id: place for place, id in enumerate(ids)}
    turn = np.linspace(0, 2 * np.pi, len(ids), endpoint=False)
    at = np.stack([np.sin(turn), np.cos(turn)], axis=1)
    pairs = np.array([(number[a], number[b]) for a, b, _ in edges], dtype=int).reshape(-1, 2)
    ideal = 1.6 / np.sqrt(len(ids))
    for step in range(ROUNDS):
        apart = at[:, None, :] - at[None, :, :]
        far = np.maximum(np.linalg.norm(apart, axis=2), 0.01)
        force = (apart * (ideal**2 / far**2)[:, :, None]).sum(axis=1) - 1.5 * at
        drawn = at[pairs[:, 1]] - at[pairs[:, 0]]
        drawn *= np.linalg.norm(drawn, axis=1, keepdims=True) / ideal
        np.add.at(force, pairs[:, 0], drawn)
        np.add.at(force, pairs[:, 1], -drawn)
        size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        at += force / size * np.minimum(size, 0.1 * (1 - step / ROUNDS))
    at -= at.min(axis=0)
    at *= np.minimum(
        np.array(APART) / ideal, np.array(MOST_APART) / np.maximum(at.max(axis=0), 1e-9)
    )
    return {id: (float(at[place, 0]), float(at[place, 1])) for id, place in number.items()}
