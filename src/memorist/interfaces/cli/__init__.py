"""The command line: `memorist …`. Which commands there are stands in the modules imported here.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 not found, 4 refused, 5 a part is away; 130 interrupted.
"""

from __future__ import annotations

from . import changes, cluster, decide, evals, mcp, memories, moves, person, server, store  # noqa: F401  importing a module registers its commands
from .app import app

__all__ = [
    "app",
    "cli_changes",
    "cli_cluster",
    "cli_decide",
    "cli_evals",
    "cli_mcp",
    "cli_memories",
    "cli_moves",
    "cli_person",
    "cli_server",
    "cli_store",
    "main",
]


def main() -> None:
    """Run the command that the arguments name."""
    app()
