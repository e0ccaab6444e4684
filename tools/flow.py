"""Draw docs/flow.mmd as docs/flow.svg with the standard library only: `python tools/flow.py`.

The parser supports the part of Mermaid that this file uses: subgraphs (columns), boxes and arrows.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
WIDE, HIGH, GAP, COLUMN, TOP = 190, 54, 30, 260, 60  # pixels
_BOX = re.compile(r'^\s*(\w+)\["(.+)"\]$')
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:14px}"
    "rect{fill:#f4f6fa;stroke:#5b6b8c}path{fill:none;stroke:#5b6b8c}"
)


@dataclass
class Flow:
    """Boxes in columns, and the arrows between them."""

    columns: dict[str, list[str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    arrows: list[tuple[str, str]] = field(default_factory=list)

    def place(self, name: str) -> tuple[int, int]:
        """Return the column and the row of a box."""
        at, boxes = next(
            (at, boxes) for at, boxes in enumerate(self.columns.values()) if name in boxes
        )
        return at, boxes.index(name)


def parse(text: str) -> Flow:
    """Parse a Mermaid flowchart."""
    flow, column = Flow(), ""
    for line in text.splitlines():
        if found := _BOX.match(line):
            flow.labels[found[1]] = found[2]
            flow.columns[column].append(found[1])
        elif "subgraph" in line:
            column = line.split()[1]
            flow.columns[column] = []
        elif "-->" in line:
            names = [name.strip() for name in line.split("-->")]
            flow.arrows += pairwise(names)
    return flow


def draw(flow: Flow) -> str:
    """Render a flow as SVG."""
    wide = COLUMN * len(flow.columns)
    high = TOP + (HIGH + GAP) * max(map(len, flow.columns.values()))
    titles = [
        _text(name, COLUMN * at + WIDE // 2 + 20, 34, "title")
        for at, name in enumerate(flow.columns)
    ]
    parts = [
        *titles,
        *(_arrow(flow, *each) for each in flow.arrows),
        *(_box(flow, name) for name in flow.labels),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">'
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8" /></marker></defs>'
    )
    named = "<title>How memory flows</title>"
    return "\n".join([head, named, f"<style>{_STYLE}</style>", marker, *parts, "</svg>", ""])


def _corner(flow: Flow, name: str) -> tuple[int, int]:
    column, row = flow.place(name)
    return 20 + COLUMN * column, TOP + (HIGH + GAP) * row


def _box(flow: Flow, name: str) -> str:
    x, y = _corner(flow, name)
    lines = textwrap.wrap(flow.labels[name], 30)
    first = y + HIGH // 2 + 4 - 8 * (len(lines) - 1)
    texts = [_text(line, x + WIDE // 2, first + 16 * at) for at, line in enumerate(lines)]
    return f'<g id="{name}"><rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" />{"".join(texts)}</g>'


def _text(text: str, x: int, y: int, kind: str = "line") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def _arrow(flow: Flow, start: str, end: str) -> str:
    (a, b), (c, d) = _corner(flow, start), _corner(flow, end)
    if a == c:
        path = f"M{a + WIDE // 2} {b + HIGH} V{d}" if d > b else f"M{a + WIDE // 2} {b} V{d + HIGH}"
    else:
        out, into = (a + WIDE, c) if c > a else (a, c + WIDE)
        half, middle = HIGH // 2, (out + into) // 2
        path = f"M{out} {b + half} C{middle} {b + half} {middle} {d + half} {into} {d + half}"
    return f'<path class="arrow" data-from="{start}" data-to="{end}" d="{path}" marker-end="url(#tip)" />'


def main() -> None:
    """Write docs/flow.svg."""
    text = draw(parse((DOCS / "flow.mmd").read_text("utf-8")))
    (DOCS / "flow.svg").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
