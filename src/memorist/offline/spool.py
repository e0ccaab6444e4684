"""Fail-safe files: what is told while the store is away, one JSON object a line, on disk before it is acknowledged.

`short_term.jsonl` holds drafts, `long_term.jsonl` what is to be added to long-term records. Processes take turns by
a lock on a file beside them, which the system lets go of when its holder dies.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from ..storage import codec
from ..storage.person import Summary
from ..types import Draft, Scope

ITEM = "memory_item"
_NAMES = (
    "short_term",
    "long_term",
)  # in the order in which they are handed over: evidence comes first
_KINDS: dict[str, type[Draft | Summary]] = {
    ITEM: Draft,
    "user_profile": Summary,
    "project_memory": Summary,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Something that waits until the store is back."""

    scope: Scope
    what: Draft | Summary  # a summary holds what is to be added to the newest record of its name
    policy: str = "default"  # of a draft

    @property
    def id(self) -> str:
        return self.what.id or ""


def line(pending: Pending) -> bytes:
    """One line of a file, checked by reading it back. Raises InvalidInput."""
    kind = ITEM if isinstance(pending.what, Draft) else pending.what.record_type
    where = {name: getattr(pending.scope, name) for name in ("tenant", "user", "space")}
    try:
        data = {**codec.dump(pending.what, strict=True), "scope": where, "policy": pending.policy}
        text = json.dumps(
            {"record_type": kind, "data": data}, sort_keys=True, ensure_ascii=False, allow_nan=False
        )
        made = text.encode() + b"\n"
    except (
        ValueError
    ) as error:  # half a surrogate pair, a number that is none, a text that is no text
        raise InvalidInput(f"This cannot be kept: {error}") from error
    read(made)
    return made


def read(text: bytes) -> Pending:
    """What a line says. Raises InvalidInput if it was cut, altered, or never was one of ours."""
    try:
        record = json.loads(text)
        data, kind = record["data"], record["record_type"]
        what, scope = codec.load(_KINDS[kind], data), Scope(**data["scope"])
        made = Pending(scope=scope, what=what, policy=data["policy"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"This is no line of a fail-safe file: {error}") from error
    if not made.id or not all(
        isinstance(name, str) for name in (scope.tenant, scope.user, scope.space, made.policy)
    ):
        raise InvalidInput("This is no line of a fail-safe file: a name is missing")
    if isinstance(what, Draft) and not (
        0 <= what.confidence <= 1 and 0 <= (what.importance or 0) <= 1
    ):
        raise InvalidInput(
            "This is no line of a fail-safe file: importance and confidence lie between 0 and 1"
        )
    return made


@dataclass
class _File:
    """One of the files, and what was read of it so far."""

    path: Path
    waiting: dict[str, Pending] = field(default_factory=dict)  # by id, in order
    _offset: int = 0
    _open: Any = None  # held, so that its number cannot be given to another file

    def refreshed(self) -> dict[str, Pending]:
        """What waits now; only what was added since is read, and a line that is still being written is not."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            self.close()
            return self.waiting
        if (
            self._open is None
            or os.fstat(self._open.fileno()).st_ino != there.st_ino
            or there.st_size < self._offset
        ):
            self.close()
            with suppress(FileNotFoundError):
                self._open = self.path.open("rb")
        if self._open is not None and there.st_size > self._offset:
            self._open.seek(self._offset)
            new = self._open.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            self.waiting.update(
                {pending.id: pending for _, pending in _parsed(whole) if pending is not None}
            )
        return self.waiting

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open, self._offset, self.waiting = None, 0, {}

    __del__ = close


def _parsed(content: bytes) -> Iterator[tuple[bytes, Pending | None]]:
    """The lines and what they say; None for one that cannot be read."""
    for each in filter(None, content.split(b"\n")):
        try:
            yield each, read(each)
        except InvalidInput:
            yield each, None


class Files:
    """The fail-safe files of one store. Methods block for as long as the disk takes, and raise OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = {name: _File(folder / f"{name}.jsonl") for name in _NAMES}
        self._mine = (
            threading.RLock()
        )  # the lock on disk keeps other processes out, this one other threads

    @property
    def is_empty(self) -> bool:
        return not any(file.path.exists() for file in self._files.values())

    def waiting(self) -> list[Pending]:
        with self._mine:
            return [
                pending for file in self._files.values() for pending in file.refreshed().values()
            ]

    def add(self, new: Sequence[Pending]) -> list[Pending]:
        with self._mine, self._turn():
            known = {key: each for each in self.waiting() if (key := _message(each)) is not None}
            kept, lines = [], dict.fromkeys(_NAMES, b"")
            for pending in new:
                key = _message(pending)
                twin = pending if key is None else known.setdefault(key, pending)
                kept.append(twin)
                if twin is pending:
                    lines[_name(pending)] += line(pending)
            for name, content in lines.items():
                if content:
                    _append(self._files[name].path, content)
        return kept

    def remove(self, ids: Iterable[str], problems: Collection[str] = ()) -> list[str]:
        wanted, wrong, found = {*ids}, {*problems}, list[str]()
        with self._mine, self._turn():
            for file in self._files.values():
                if file.path.exists():
                    found += _rewrite(file.path, wanted, wrong)
        return found

    def set_aside(self) -> list[Path]:
        return sorted(self.folder.glob("*.corrupt-*.jsonl"))

    def prepare(self) -> None:
        """Make the folder: from now on the store is one that was there before."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        self.prepare()
        descriptor = _locked(self.folder / "replay.lock", wait=False)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self.prepare()
        descriptor = _locked(self.folder / "files.lock", wait=True)
        assert descriptor is not None
        try:
            yield
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._mine:
            for file in self._files.values():
                file.close()


def _locked(path: Path, *, wait: bool) -> int | None:
    """The file, open and locked until it is closed; None if somebody else has it and nobody wants to wait."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _rewrite(path: Path, ids: set[str], problems: set[str]) -> list[str]:
    """The file without these lines; those with a problem, and what cannot be read, are set aside first."""
    kept, aside, found = [], [], []
    for text, pending in _parsed(path.read_bytes()):
        if pending is None or pending.id in problems:
            aside.append(text)
        elif pending.id in ids:
            found.append(pending.id)
        else:
            kept.append(text)
    if aside:
        today = datetime.now(UTC).date().isoformat()
        _append(path.with_name(f"{path.stem}.corrupt-{today}.jsonl"), b"\n".join((*aside, b"")))
    if aside or found or not kept:
        _replace(path, b"\n".join((*kept, b"")) if kept else b"")
    return found


def _name(pending: Pending) -> str:
    return _NAMES[0] if isinstance(pending.what, Draft) else _NAMES[1]


def _message(pending: Pending) -> tuple[Scope, str] | None:
    """What makes two drafts the same message."""
    named = pending.what.message_id if isinstance(pending.what, Draft) else None
    return None if named is None else (pending.scope, named)


def _append(path: Path, content: bytes) -> None:
    """Add lines durably, or nothing. A line that was cut before is ended first."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        try:
            cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            _write(descriptor, b"\n" + content if cut else content)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if is_new:
        _sync(path.parent)
        _sync(path.parent.parent)


def _replace(path: Path, content: bytes) -> None:
    """Put other lines in the place of the file, all at once."""
    beside = path.with_suffix(".new")
    if content:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(descriptor, content)
        finally:
            os.close(descriptor)
        beside.replace(path)
    else:
        path.unlink()
    _sync(path.parent)


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
