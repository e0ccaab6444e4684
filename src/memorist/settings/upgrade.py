"""Move the files of version 0.1 from its default paths to the default paths of this version.

Version 0.1 was called Recollect. Another program of that name may use the same folders, so only
what version 0.1 wrote is moved, one rename at a time: the spool first, because its folders are
named after the path of their database, and the database last. If the process dies in between, the
next start continues.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import apsw
from platformdirs import user_config_path, user_data_path, user_state_path

from ..storage import atomic

log = logging.getLogger("memorist")
_OLD = "recollect"
_TABLES = {"migrations", "meta", "scopes", "memories"}  # of a database of version 0.1, and more
_RENAMED = {
    "corpus_mb": "index_cache_mb",
    "failsafe": "spool",
    "failsafe_dir": "spool_dir",
    "index": "vector_index",
    "index_from": "vector_index_from",
    "llm_tenant_tokens": "llm_daily_tokens_per_tenant",
    "llm_user_tokens": "llm_daily_tokens_per_user",
    "spans": "otel",
    "tend": "run_jobs",
}
_SPOOLS = Path("data", "memory")  # in the state folder


@dataclass(frozen=True, slots=True)
class Move:
    """One rename of the upgrade."""

    setting: str  # whose default path has changed
    source: Path
    target: Path


def move_config(config: Path, known: Collection[str]) -> Path:
    """Move the settings file of version 0.1 if the new one does not exist; return the file to read.

    A file without a single known setting belongs to another program.
    """
    old = user_config_path(_OLD) / "recollect.toml"
    if os.path.lexists(config) or not os.path.isfile(old):
        return config
    try:
        found = tomllib.loads(old.read_text("utf-8"))
    except (OSError, ValueError) as error:
        _warn(f"{old} was not moved to {config}, because it cannot be read: {error}")
        return config
    if not found.keys() & {*known, *_RENAMED}:
        return config
    with _lock():
        moves = _without_conflicts([Move("config", old, config)])
        if moves and found.keys() & _RENAMED.keys():
            _rename_settings(old)
        _run(moves)
    if not os.path.exists(config):
        return old
    if moves:
        _notify(old, config)
        with suppress(OSError):  # it is not empty
            old.parent.rmdir()
    return config


def _rename_settings(file: Path) -> None:
    """Give the settings in a file their new names, atomically."""
    old = "|".join(_RENAMED)
    text = re.sub(
        rf"^(\s*)({old})(?=\s*=)",
        lambda match: match[1] + _RENAMED[match[2]],
        file.read_text("utf-8"),
        flags=re.MULTILINE,
    )
    renamed = file.with_suffix(".new")
    with suppress(OSError):  # then the file cannot be moved either, and that is reported
        renamed.write_text(text, "utf-8")
        renamed.replace(file)


def warn_of_old_variables(known: Collection[str]) -> None:
    """Warn about environment variables of version 0.1, which are no longer read."""
    for setting in (*known, *_RENAMED):
        old = f"RECOLLECT_{setting.upper()}"
        new = f"MEMORIST_{_RENAMED.get(setting, setting).upper()}"
        if old in os.environ and new not in os.environ:
            _warn(f"The environment variable {old} is no longer read: rename it to {new}")


@cache  # one attempt per process: later the database is open
def move_data(*, db: Path | None, state_dir: Path | None, spool_dir: Path) -> dict[str, Any]:
    """Move database, spool and caches of version 0.1 to these paths, unless something is there.

    None stands for a path that the user chose; nothing is moved there. Return the old paths, by
    setting, of what could not be moved.
    """
    old = {"db": user_data_path(_OLD) / "memory.db", "state_dir": user_state_path(_OLD)}
    new = {"db": db, "state_dir": state_dir}
    if not any(map(os.path.exists, old.values())):
        return {}
    with _lock():
        moves = _plan(db, state_dir, spool_dir)
        if not moves:
            return {}
        _run(moves)
        left = {move.setting for move in _plan(db, state_dir, spool_dir)}
    moved = {move.setting for move in moves}
    for setting in sorted(moved - left):
        _notify(old[setting], new[setting])
    spools = old["state_dir"] / _SPOOLS
    for folder in (spools, spools.parent, old["state_dir"], old["db"].parent):
        with suppress(OSError):  # it is not empty
            folder.rmdir()
    return {setting: str(old[setting]) for setting in left}


def _plan(db: Path | None, state_dir: Path | None, spool_dir: Path) -> list[Move]:
    """Return the renames that are left, in their order. After an interruption there are fewer."""
    old_db = user_data_path(_OLD) / "memory.db"
    old_state = user_state_path(_OLD)
    old_spools = old_state / _SPOOLS
    spool = []
    state = []
    database = []
    if db is not None and not os.path.lexists(db) and _is_database(old_db):
        name = spool_name(str(old_db))
        new_spool = spool_dir / spool_name(str(db))
        spool.append(Move("db", spool_dir / name, new_spool))
        if state_dir is not None and spool_dir == state_dir / _SPOOLS:
            spool.append(Move("db", old_spools / name, new_spool))
        files = [*sorted(old_db.parent.glob("memory.db[-.]*")), old_db]
        database = [Move("db", file, db.with_name(file.name)) for file in files]
    if state_dir is not None:
        for each in (*sorted(old_spools.glob("*")), old_state / "embeddings_cache"):
            target = state_dir / each.relative_to(old_state)
            state.append(Move("state_dir", each, target))
    return _without_conflicts(spool + state + database)


def _without_conflicts(moves: Sequence[Move]) -> list[Move]:
    """Leave out what does not exist, is already planned, or would replace something."""
    chosen: list[Move] = []
    for move in moves:
        if not os.path.exists(move.source) or os.path.lexists(move.target):
            continue
        if any(move.source == each.source or move.target == each.target for each in chosen):
            continue
        chosen.append(move)
    return chosen


def _is_database(path: Path) -> bool:
    """Return whether this is a database of version 0.1.

    Closing it again writes its log back into the file.
    """
    if not os.path.exists(path):
        return False
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    except apsw.NotADBError:
        return False
    except apsw.Error:
        return True  # busy or damaged: opening it will show
    names = {row[0] for row in rows}
    return not names or names >= _TABLES


def spool_name(db: str) -> str:
    """Return the name of the folder that holds the spool of a database.

    It identifies the file, or the server and its database; users and passwords do not matter.
    """
    place = os.path.realpath(db)
    if "://" in db:
        address = urlsplit(db)
        where = address.netloc.rpartition("@")[2].lower()  # one host, or several with commas
        named = dict(parse_qsl(address.query)[::-1])  # of equal names the first one counts
        host = named.get("host") or (where if ":" in where else f"{where}:5432")
        name = named.get("dbname") or address.path.strip("/")
        place = f"{host} {named.get('port', '')} {name}"
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:16]


def _run(moves: Sequence[Move]) -> None:
    """Make the renames, or none of them if a check shows that one would fail."""
    try:
        for move in moves:
            source, folder = move.source, move.target.parent
            with suppress(FileNotFoundError):  # another process has moved it
                if source.is_symlink():
                    raise OSError(errno.ELOOP, "it is a symbolic link")
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if source.stat().st_dev != folder.stat().st_dev:
                    raise OSError(errno.EXDEV, "it is on another disk")
                for each in (source.parent, folder):
                    if not os.access(each, os.W_OK):
                        raise OSError(errno.EACCES, f"{each} is not writable")
        for move in moves:
            with suppress(FileNotFoundError):
                move.source.rename(move.target)
                with suppress(OSError):  # where folders cannot be synced
                    atomic.sync(move.target.parent)
    except OSError as error:
        why = error.strerror or str(error)
        _warn(f"{move.source} could not be moved to {move.target} ({why}): the old path is used")


@contextmanager
def _lock() -> Iterator[None]:
    """Allow one process at a time, where the system can lock a folder."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            stack.enter_context(atomic.lock(user_data_path(_OLD).parent))
        yield


def _notify(old: Path, new: Path | None) -> None:
    _warn(f"Recollect is called Memorist now: moved {old} to {new}")


@cache
def _warn(message: str) -> None:
    """Log a line once per process: settings are loaded several times."""
    log.warning(message)
