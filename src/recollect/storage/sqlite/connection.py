"""One SQLite connection: how it is opened, how its errors become ours.

WAL lets readers go on while one writes; `synchronous=FULL` makes a commit survive power loss (`NORMAL` does not);
`BEGIN IMMEDIATE` keeps what a transaction read from changing under it; `secure_delete` overwrites what is erased.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from ...errors import InvalidInput, ProviderFailed, RecollectError, StoreDamaged, StoreFull, StoreUnavailable

BUSY_SECONDS = 30  # with eight writers 5 s failed now and then
_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "cache_size = -16000",
)


def connect(path: str) -> apsw.Connection:
    """Open a database file, made if it does not exist. Raises StoreUnavailable, StoreDamaged."""
    with translated(path):
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(path, flags=flags)
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()  # a pragma that is not read to its end may not happen
        return connection


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn the driver's errors into ours, with the way out."""
    try:
        yield
    except RecollectError:
        raise
    except apsw.FullError as error:
        raise StoreFull(f"The disk that holds {path!r} is full: nothing was written. Free some space and retry") from error
    except (apsw.NotADBError, apsw.CorruptError, apsw.FormatError) as error:
        raise StoreDamaged(_damaged(path)) from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError) as error:
        raise StoreUnavailable(
            f"{path!r} cannot be opened for writing: check the folder and its permissions, or choose another place"
        ) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable(f"{path!r} stayed locked for {BUSY_SECONDS} s by another process: retry") from error
    except (apsw.TooBigError, apsw.RangeError) as error:
        raise InvalidInput(f"SQLite cannot keep a value of that size: {error}") from error
    except apsw.IOError as error:
        raise StoreUnavailable(f"Reading or writing {path!r} failed: {error}") from error
    except apsw.Error as error:
        raise ProviderFailed(f"SQLite said: {error}") from error


def _damaged(path: str) -> str:
    if not Path(path).exists():
        return f"{path!r} is not a database that can be read"
    return f"{path!r} is damaged or not a Recollect database: restore a backup, or choose another file"
