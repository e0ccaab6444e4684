"""The command line: `memorist …`.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused, 5 unavailable, 130 interrupted.
"""

from __future__ import annotations

# Importing a module registers its commands.
from . import database, doctor, memories, personal_data, server  # noqa: F401
from .app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    app()
