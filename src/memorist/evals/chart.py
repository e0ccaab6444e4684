"""Draw a sweep as SVG: accuracy against tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .sweeps import FUSION, OURS, TRISCORE, Point, SweepReport

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 50, 60
COLORS = {TRISCORE: "#7a8ca3", FUSION: "#c9822b", OURS: "#2a7f62"}


def svg(swept: SweepReport) -> str:
    """Draw the settings as dots, and join those that no other beats in accuracy and tokens."""
    most = _round_up(max(each.tokens for each in swept.points))
    marks = [_dot(each, most, swept) for each in swept.points]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12" role="img" '
            'aria-label="Accuracy against tokens">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *_axes(most),
            _line(front(swept.points), most),
            *marks,
            *_legend(),
            "</svg>\n",
        ]
    )


def front(points: Sequence[Point]) -> list[Point]:
    """Return the settings that no other beats in both accuracy and tokens, shortest first.

    >>> results = ((0.6, 30), (0.8, 20), (0.5, 9))
    >>> made = [Point(ranking="x", values={}, accuracy=p, tokens=t) for p, t in results]
    >>> [each.tokens for each in front(made)]
    [9, 20]
    """
    kept: list[Point] = []
    for each in sorted(points, key=lambda point: (point.tokens, -point.accuracy)):
        if not kept or each.accuracy > kept[-1].accuracy:
            kept.append(each)
    return kept


def _x(tokens: float, most: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * tokens / most, 1)


def _y(accuracy: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - accuracy), 1)


def _round_up(value: float) -> float:
    """Return the next round number.

    >>> _round_up(143.0), _round_up(0.0)
    (150.0, 10.0)
    """
    step = 10.0 ** math.floor(math.log10(max(value, 10.0))) / 2
    return float(max(10.0, step * math.ceil(value / step)))


def _axes(most: float) -> list[str]:
    lines = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y, x = _y(share), _x(most * share, most)
        lines.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
        below = f'x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle"'
        lines.append(f"<text {below}>{most * share:.0f}</text>")
    below = f'x="{WIDTH / 2}" y="{HEIGHT - 18}" text-anchor="middle"'
    lines.append(f"<text {below}>tokens per question</text>")
    title = "Tasks passed, by the tokens of what is recalled"
    lines.append(f'<text x="{LEFT}" y="24" font-size="15">{title}</text>')
    return lines


def _line(points: Sequence[Point], most: float) -> str:
    path = "L".join(f"{_x(each.tokens, most)} {_y(each.accuracy)}" for each in points)
    return f'<path d="M{path}" fill="none" stroke="#444" stroke-dasharray="4 3"/>'


def _dot(point: Point, most: float, swept: SweepReport) -> str:
    x, y, color = _x(point.tokens, most), _y(point.accuracy), COLORS[point.ranking]
    title = f"<title>{escape(point.label)}: {point.accuracy:.0%}, {point.tokens:.0f} tokens</title>"
    dot = f'<circle cx="{x}" cy="{y}" r="4" fill="{color}" fill-opacity="0.7">{title}</circle>'
    if point == swept.best:
        name = "best tri-score"
    elif point == swept.usual:
        name = "usual tri-score"
    else:
        return dot
    ring = f'<circle cx="{x}" cy="{y}" r="7" fill="none" stroke="{color}" stroke-width="2"/>'
    return f'{dot}{ring}<text x="{x + 10}" y="{y - 6}">{name}</text>'


def _legend() -> list[str]:
    return [
        f'<circle cx="{LEFT + 6 + 160 * place}" cy="38" r="4" fill="{color}"/>'
        f'<text x="{LEFT + 16 + 160 * place}" y="42">{escape(name)}</text>'
        for place, (name, color) in enumerate(COLORS.items())
    ]
