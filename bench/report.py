"""Print results as a table and save them as JSON."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def table(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows that have the same keys."""
    grid = Table(title=title, title_justify="left")
    for name in rows[0]:
        grid.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        grid.add_row(*map(_cell, row.values()))
    Console(width=200).print(grid)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def save(name: str, figures: dict[str, Any]) -> Path:
    """Write the results together with the time and machine of the measurement."""
    RESULTS.mkdir(exist_ok=True)
    about = {
        "at": datetime.now(UTC).isoformat(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**about, **figures}, indent=2))
    return path
