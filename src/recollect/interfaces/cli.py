"""The command line: `recollect …`. Which commands there are stands in the two modules imported here.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 not found, 4 refused, 5 a part is away; 130 interrupted.
"""

from __future__ import annotations

from . import cli_memories as _memories  # their order is the order in `--help`
from . import cli_store as _store
from .cli_app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command that the arguments name."""
    app()
