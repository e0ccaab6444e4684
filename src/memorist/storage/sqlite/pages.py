"""Overwrite old copies of rows in the unused space of pages.

`secure_delete` overwrites a deleted row. But when SQLite moves rows from one page to another, their
old copies stay between the header of the page and the first row in use. Nothing reads that space.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import apsw

from .connection import FLAGS, translate_errors, wait

PAGES = 256  # read at a time
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}  # bytes, by the kind of a page that holds rows
_FIRST = 100  # bytes of the first page that come before its header


def overwrite_unused(path: str) -> bool:
    """Overwrite the unused space of all pages of a file; return False if others write to it.

    Takes the write lock only if there is something to overwrite.
    """
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    with translate_errors(path), closing(apsw.Connection(path, flags=FLAGS)) as connection:
        wait(connection, path)
        size = int(str(connection.execute("PRAGMA page_size").fetchall()[0][0]))
        # SQLite's own file: closing another one would release the locks of this process.
        file = apsw.VFSFile("", path, flags)
        try:
            count = file.xFileSize() // size
            used = [number for number, *_ in _find_unused(file, size, 0, count)]
            if not used:
                return True
            connection.execute("BEGIN IMMEDIATE")
            if not _is_complete(path):
                return False
            for number in used:  # pages may have changed before the lock was taken
                for _, start, end in _find_unused(file, size, number, 1):
                    file.xWrite(bytes(end - start), start)
            file.xSync(apsw.SQLITE_SYNC_FULL)
            # A commit lets every process drop its cached pages, which it might write back.
            connection.execute("INSERT INTO meta VALUES ('overwritten', '')")
            connection.execute("DELETE FROM meta WHERE key = 'overwritten'")
            connection.execute("COMMIT")
            return True
        finally:
            file.xClose()


def _is_complete(path: str) -> bool:
    """Return whether the file holds every committed page, so that no process writes to it while the
    write lock is held."""
    with closing(apsw.Connection(path, flags=FLAGS)) as connection:
        found = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    busy, pages, copied = found[0]
    return busy == 0 and pages == copied


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
            length = _HEADERS.get(data[header])
            if length is None:
                continue
            rows = int.from_bytes(data[header + 3 : header + 5])
            row = int.from_bytes(data[header + 5 : header + 7]) or 65536
            low = header + length + 2 * rows
            high = place * size + row
            if low < high and data.count(0, low, high) < high - low:
                offset = start * size
                yield start + place, offset + low, offset + high
