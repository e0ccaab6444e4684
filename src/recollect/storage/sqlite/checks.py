"""A copy of a database."""

from __future__ import annotations

from pathlib import Path

import apsw

from ...errors import InvalidInput
from .connection import private, translated


def backup(connection: apsw.Connection, path: Path) -> None:
    """Copy the database into a new file while others go on writing. Raises InvalidInput, StoreUnavailable."""
    target = path.absolute()  # so that no name is special to SQLite, such as :memory:
    if target.exists():
        raise InvalidInput(f"{str(path)!r} exists already: choose a new name for the backup")
    try:
        with translated(str(target)):
            copy(connection, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def copy(source: apsw.Connection, path: Path) -> None:
    """Copy a database as it is at one moment: in steps, each write of others would make it begin anew."""
    private(path)
    target = apsw.Connection(str(path))
    try:
        with target.backup("main", source, "main") as copying:
            copying.step(-1)
    finally:
        target.close()
