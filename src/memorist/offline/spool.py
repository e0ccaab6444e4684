"""The spool: writes that wait until the store is back, one JSON object per line, fsynced.

`short_term.jsonl` holds drafts, `long_term.jsonl` additions to long-term records. Each store has a
folder of its own for them. Where a write policy prescribes one place for all stores, the lines are
in the folder above and name their store. Processes take turns by a lock on a file beside them,
which the system releases when its holder dies.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from .. import storage
from ..errors import InvalidInput
from ..ingest import validation
from ..settings import Settings
from ..storage import Tombstone
from ..storage.atomic import lock, sync
from ..storage.person import Summary
from ..text.clock import utcnow
from ..types import Draft, Scope, frozen

ITEM = "memory_item"
_NAMES = ("short_term", "long_term")  # in the order of the replay: evidence comes first
TOMBSTONE = "tombstone"
ASIDE = "*.corrupt-*.jsonl"  # files with lines that could not be used
_KINDS: dict[str, type[Draft | Summary | Tombstone]] = {
    ITEM: Draft,
    TOMBSTONE: Tombstone,
    "user_profile": Summary,
    "project_memory": Summary,
}


@frozen
class Pending:
    """A write that waits until the store is back."""

    scope: Scope
    # A summary holds what is added to the newest record of its name.
    what: Draft | Summary | Tombstone
    policy: str = "default"  # of a draft
    shared: bool = False  # it is in the files that all stores share

    @property
    def id(self) -> str:
        return self.what.id or ""

    @property
    def key(self) -> tuple[Scope, str]:
        """What makes two drafts the same message."""
        message = self.what.message_id if isinstance(self.what, Draft) else None
        return self.scope, message or self.id


Lines: TypeAlias = dict[bytes, Pending | None]  # None: it cannot be read


def to_line(pending: Pending, store: str) -> bytes:
    """Return a line of a file, checked by reading it back. Raises InvalidInput."""
    kind = ITEM if isinstance(pending.what, Draft) else TOMBSTONE
    if isinstance(pending.what, Summary):
        kind = pending.what.record_type
    data = {"scope": asdict(pending.scope), "policy": pending.policy}
    try:
        dumped = storage.dump(pending.what, strict=True)
        record = {"record_type": kind, "data": {**dumped, **data}}
        if pending.shared:
            record["_store"] = store  # sorted to the front, so that a line that was cut has it
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
        line = text.encode() + b"\n"
    except ValueError as error:  # half a surrogate pair, not a number, not a text
        raise InvalidInput(f"This cannot be spooled: {error}") from error
    from_line(line)
    return line


def from_line(line: bytes) -> Pending:
    """Parse a line. Raises InvalidInput if it was cut, altered, or is not a line of a spool."""
    try:
        record = json.loads(line)
        data = record["data"]
        what = storage.load(_KINDS[record["record_type"]], data)
        scope = storage.load(Scope, data["scope"])
        pending = Pending(
            scope=scope,
            what=what,
            policy=data["policy"],
            shared="_store" in record,
        )
        if not pending.id or not isinstance(pending.policy, str):
            raise ValueError("a name is missing")
        if isinstance(what, Draft):
            numbers = {"importance": what.importance, "confidence": what.confidence}
            validation.fields(numbers, optional=("importance",))
            validation.metadata(what.metadata)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"This is not a line of a spool: {error}") from error
    return pending


@dataclass
class _File:
    """One file of the spool, and what was read of it so far."""

    path: Path
    folder: Path  # for lines that are set aside
    mark: bytes = b""  # in each line of this store, if others write to the file, too
    _lines: Lines = field(default_factory=dict)  # in order
    _open: BinaryIO | None = None  # held, so that its inode cannot be given to another file

    @property
    def is_empty(self) -> bool:
        """Whether it has no line of this store, not even one that was cut."""
        with suppress(FileNotFoundError):
            self.path.stat()
            return bool(self.mark) and not self.read() and self.mark not in self.path.read_bytes()
        return True

    def read(self) -> Lines:
        """Return what is in it now; only new lines are read, and no line that is still written."""
        known = self._lines
        try:
            there = self.path.stat()
            if self._open is not None:
                is_other = os.fstat(self._open.fileno()).st_ino != there.st_ino
                if is_other or there.st_size < self._open.tell():
                    self.close()
            file = self._open = self._open or self.path.open("rb")
        except FileNotFoundError:
            self.close()
            return {}
        new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        file.seek(len(whole) - len(new), os.SEEK_CUR)
        self._lines |= self._parse(whole, known)
        return self._lines

    def _parse(self, content: bytes, known: Lines) -> Lines:
        """Return the lines of this store with what they hold; each is parsed only once, because
        spools can be long.
        """
        found: Lines = {}
        for line in filter(None, content.split(b"\n")):
            if self.mark not in line:
                continue
            try:
                found[line] = known[line] if line in known else from_line(line)
            except InvalidInput:
                found[line] = None
        return found

    def remove(self, ids: set[str], problems: set[str]) -> list[str]:
        """Rewrite the file without these lines; return the ids that were found.

        Lines with a problem, and what cannot be read, are set aside first.
        """
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        kept = [line + b"\n" for line in content.split(b"\n") if line and self.mark not in line]
        aside = []
        found = []
        for line, pending in self._parse(content, self._lines).items():
            if pending is None or pending.id in problems:
                aside.append(line + b"\n")
            elif pending.id in ids:
                found.append(pending.id)
            else:
                kept.append(line + b"\n")
        if aside:
            name = f"{self.path.stem}.corrupt-{utcnow().date().isoformat()}.jsonl"
            append(self.folder / name, b"".join(aside))
        if not kept:
            self.path.unlink()
        elif aside or found:
            beside = self.path.with_suffix(".new")
            beside.unlink(missing_ok=True)
            append(beside, b"".join(kept))
            beside.replace(self.path)
        sync(self.path.parent)
        return found

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None
        self._lines = {}

    __del__ = close


class Spool:
    """The files of one store. Methods block for as long as the disk takes, and raise OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mark = f'"_store": "{folder.name}"'.encode()  # quotes are escaped inside of texts
        self._files = []
        for name in _NAMES:
            own = _File(folder / f"{name}.jsonl", folder)
            shared = _File(folder.parent / f"{name}.jsonl", folder, mark)
            self._files += [own, shared]
        self.paths = [file.path for file in self._files]
        self._lock = threading.RLock()  # among threads; the lock on disk is among processes

    @staticmethod
    def of(settings: Settings) -> Spool | None:
        """Return the spool of a database; None if it has none."""
        if not settings.spool or settings.db == ":memory:" or sys.platform == "win32":
            return None
        return Spool(settings.spool_folder)

    @property
    def is_empty(self) -> bool:
        with self._lock:
            return all(file.is_empty for file in self._files)

    def waiting(self) -> list[Pending]:
        """Return all writes in the spool, in order."""
        found: list[Pending] = []
        with self._lock:
            for file in self._files:
                found += filter(None, file.read().values())
        return found

    def path_of(self, pending: Pending) -> Path:
        """Return the file in which a write waits."""
        name = _NAMES[isinstance(pending.what, Summary)]
        folder = self.folder.parent if pending.shared else self.folder
        return folder / f"{name}.jsonl"

    def add(self, new: Sequence[Pending]) -> list[Pending]:
        """Add writes durably; return them, or for a message that is there already, the first
        one."""
        with self._turn():
            known = {each.key: each for each in self.waiting()}
            lines: dict[Path, bytes] = {}
            held = []
            for pending in new:
                first = known.setdefault(pending.key, pending)
                if first is pending:
                    path = self.path_of(pending)
                    lines[path] = lines.get(path, b"") + to_line(pending, self.folder.name)
                held.append(first)
            for path, content in lines.items():
                append(path, content)
        return held

    def remove(self, ids: Iterable[str], problems: Collection[str] = ()) -> list[str]:
        """Remove writes; return the ids that were found. Those with a problem are set aside."""
        wanted = set(ids)
        found = []
        with self._turn():
            for file in self._files:
                found += file.remove(wanted, set(problems))
        return found

    def set_aside(self) -> list[Path]:
        """Return the files with lines that could not be used."""
        return sorted(self.folder.glob(ASIDE))

    def aside(self) -> list[Pending]:
        """Return the writes that were set aside, as far as they can be read."""
        found: list[Pending] = []
        for path in self.set_aside():
            found += filter(None, _File(path, self.folder).read().values())
        return found

    def of_user(self, tenant: str, user: str) -> list[Pending]:
        """Return the writes of a user that wait or were set aside."""
        found = [*self.waiting(), *self.aside()]
        return [each for each in found if (each.scope.tenant, each.scope.user) == (tenant, user)]

    def prepare(self) -> None:
        """Create the folder: it also shows that this store was reached before."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Let one process at a time replay; yields False if another one does."""
        self.prepare()
        with lock(self.folder / "replay.lock", wait=False) as is_mine:
            yield is_mine

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self.prepare()
        own = self.folder / "files.lock"
        shared = self.folder.parent / "files.lock"
        with self._lock, lock(own), lock(shared):
            yield

    def close(self) -> None:
        with self._lock:
            for file in self._files:
                file.close()


def append(path: Path, content: bytes) -> None:
    """Add lines durably, or nothing. A line that was cut before is ended first."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        try:
            is_cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            rest = memoryview(b"\n" + content if is_cut else content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if is_new:
        sync(path.parent)
        sync(path.parent.parent)
