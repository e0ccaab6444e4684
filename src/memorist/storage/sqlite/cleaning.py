"""Leave nothing of what was erased: in unused space of a file, and in copies beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path

import apsw

from ...errors import StoreUnavailable

PAGES = 256  # read at a time
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}  # bytes, by the kind of a page that holds rows
_FIRST = 100  # bytes of the first page that come before its header


def delete_copies(path: str) -> None:
    """Delete the copies that migrations left beside a database. Raises StoreUnavailable."""
    here = Path(path)
    try:
        for copied in here.parent.glob(f"{escape(here.name)}.before-*"):
            if copied.name.rpartition("-")[2].isdigit():  # others are the user's own files
                copied.unlink(missing_ok=True)
    except OSError as error:
        message = f"A copy from before a migration cannot be deleted: {error}"
        raise StoreUnavailable(message) from error


def find_pages(connection: apsw.Connection) -> list[int]:
    """Return the pages of a file that have something in their unused space.

    `secure_delete` overwrites a deleted row. But when SQLite moves rows from one page to another,
    their old copies stay between the header of the page and the first row in use.
    """
    if not connection.filename:  # a database in memory
        return []
    with open_pages(connection) as (file, size):
        return [number for number, *_ in _find_unused(file, size, 0, file.xFileSize() // size)]


def overwrite_unused(connection: apsw.Connection, *, pages: Sequence[int]) -> None:
    """Overwrite the unused space of pages, which nothing reads; the connection has the write lock
    and all that was committed is in the file."""
    with open_pages(connection) as (file, size):
        for number in pages:  # they may have changed before the lock was taken
            for _, start, end in _find_unused(file, size, number, 1):
                file.xWrite(bytes(end - start), start)
        file.xSync(apsw.SQLITE_SYNC_FULL)
    # A commit lets every process drop its cached pages, which it might write back.
    connection.execute("INSERT INTO meta VALUES ('overwritten', '')")
    connection.execute("DELETE FROM meta WHERE key = 'overwritten'")


def copy_log(connection: apsw.Connection) -> bool:
    """Copy committed pages from the WAL into the file without waiting; return whether all were."""
    is_busy, logged, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()[0]
    return not is_busy and logged == copied


@contextmanager
def open_pages(connection: apsw.Connection) -> Iterator[tuple[apsw.VFSFile, int]]:
    """Open the file of a connection, and return it with the size of a page.

    By SQLite, because closing any other file would release the locks of this process.
    """
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    size = int(str(connection.execute("PRAGMA page_size").fetchall()[0][0]))
    file = apsw.VFSFile("", connection.filename, flags)
    try:
        yield file, size
    finally:
        file.xClose()


def _find_unused(
    file: apsw.VFSFile, size: int, first: int, count: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the pages with something in their unused space: number, and its first and last byte."""
    for start in range(first, first + count, PAGES):
        most = min(PAGES, first + count - start)
        data = file.xRead(most * size, start * size)
        for place in range(most):
            header = place * size
            if start + place == 0:
                header += _FIRST
            if length := _HEADERS.get(data[header]):
                rows = int.from_bytes(data[header + 3 : header + 5])
                row = int.from_bytes(data[header + 5 : header + 7]) or 65536
                low = header + length + 2 * rows
                high = place * size + row
                if low < high and data.count(0, low, high) < high - low:
                    offset = start * size
                    yield start + place, offset + low, offset + high
