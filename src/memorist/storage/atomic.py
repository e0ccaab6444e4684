"""A new file that has its name only once it is complete and on disk: written beside, synced,
renamed.

A process that is killed in between leaves a hidden file ending in `.partial`, which can be deleted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from ..errors import StoreFull, StoreUnavailable

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database while it is open


def draft(path: Path) -> Path:
    """Create an empty file beside `path` that only its owner can read. Raises StoreUnavailable,
    StoreFull."""
    made = path.with_name(f".{path.name[:40]}.{uuid4().hex[:8]}.partial")
    with _translated(path):
        os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return made


def publish(made: Path, path: Path) -> None:
    """Give a complete draft its name, durably. Raises StoreUnavailable, StoreFull."""
    with _translated(path):
        _sync(made, os.O_RDWR)
        os.replace(made, path)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            _sync(path.parent, os.O_RDONLY)


def discard(made: Path) -> None:
    """Delete a draft and what SQLite put beside it; a draft that has its name by now stays."""
    for end in ("", *BESIDE):
        with suppress(FileNotFoundError):
            os.remove(f"{made}{end}")


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreFull(
                f"The disk has no room for {str(path)!r}: nothing was written"
            ) from error
        if not path.parent.is_dir():
            message = (
                f"The folder {str(path.parent)!r} does not exist: create it or choose another one"
            )
            raise StoreUnavailable(message) from error
        raise StoreUnavailable(f"{str(path)!r} cannot be written: {error.strerror}") from error
