"""Files at a path: one, those of a folder, or those in a ZIP archive, which may be cut off."""

from __future__ import annotations

import io
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, NoReturn

from ..errors import NotFound
from .source import PIECE, UNREADABLE, ImportRun, Source, opened

IN_MEMORY = 32 << 20  # an archive inside an archive is copied to disk from this size on
_LEFT_OUT = {".git", ".obsidian", ".trash", "node_modules", "__MACOSX"}
_BEGIN = b"PK\x03\x04"
# Before each file: flags, method, size in the archive, size, length of the name and of the rest.
_HEADER = struct.Struct("<4x2xHH4x4xIIHH")
_ENCRYPTED, _SIZE_FOLLOWS, _UTF8 = 1, 8, 0x800  # flags
_NO_SIZE = 0xFFFFFFFF  # it is written elsewhere
_TRAILER = 64  # bytes in which the next file begins if the size comes after a file


def find_sources(path: Path) -> list[Source]:
    """Return the files at a path: a file, a folder, or what is in a ZIP archive."""
    if not path.exists():
        raise NotFound(f"No such file or folder: {str(path)!r}")
    found: list[Source] = []
    for name, file in list_files(path):
        place = file.resolve().parent.name if path.is_dir() else ""
        found += _expand(Source(name, file.stat().st_size, partial(open, file, "rb"), place))
    return found


def list_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file, or the files in a folder that may be imported, with their names in it."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        name = file.relative_to(path) if path.is_dir() else Path(path.name)
        if file.is_file() and _is_wanted(name.as_posix()):
            yield name.as_posix(), file


def pack(folder: Path, archive: IO[bytes]) -> list[str]:
    """Write the files of a folder to a ZIP archive. Return which cannot be read to the end, and why."""
    damages = []
    with zipfile.ZipFile(archive, "w") as made:
        for name, file in list_files(folder):
            source = Source(name, 0, partial(open, file, "rb"))
            if source.damage and not source.head:
                damages.append(source.damage)
                continue
            info = zipfile.ZipInfo.from_file(file, name, strict_timestamps=False)
            info.compress_type = zipfile.ZIP_DEFLATED
            how = ImportRun()
            with opened(source, how) as content, made.open(info, "w") as member:
                shutil.copyfileobj(content, member)
            if how.damage:
                damages.append(how.damage)
    return damages


def _is_wanted(name: str) -> bool:
    return _LEFT_OUT.isdisjoint(PurePosixPath(name).parts)


def _expand(source: Source) -> Iterator[Source]:
    """Yield a file, or the files in it if it is a ZIP archive."""
    if not source.head.startswith(_BEGIN):
        yield source
        return
    try:
        with _open_archive(source) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
    except UNREADABLE as error:
        yield from _expand_damaged(source, error)
        return
    for info in sorted(members, key=lambda info: info.filename):
        opener = partial(_open_member, source, info)
        yield from _expand_member(source, info.filename, info.file_size, opener)


def _expand_member(
    archive: Source, name: str, size: int, opener: Callable[[], AbstractContextManager[IO[Any]]]
) -> Iterator[Source]:
    """Yield a file in an archive, or the files in it, if it may be imported."""
    if _is_wanted(name):
        place = PurePosixPath(name).parent.name or archive.stem
        yield from _expand(Source(name, size, opener, place))


@contextmanager
def _open_member(source: Source, info: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    with _open_archive(source) as archive:
        try:
            file = archive.open(info)
        except struct.error as error:  # the list of files gives a wrong place
            raise zipfile.BadZipFile(str(error)) from error
        with file:
            yield file


@contextmanager
def _open_archive(source: Source) -> Iterator[zipfile.ZipFile]:
    with source.open() as file:
        if file.seekable() and isinstance(file, io.BufferedReader):
            with zipfile.ZipFile(file) as archive:
                yield archive
            return
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as copy:
            shutil.copyfileobj(file, copy)
            with zipfile.ZipFile(copy) as archive:
                yield archive


class _Member(NamedTuple):
    """A file in an archive, as the bytes before it describe it."""

    name: str
    start: int  # of its data
    packed: int | None  # bytes in the archive, if they are known
    size: int
    method: int


def _expand_damaged(source: Source, error: Exception) -> Iterator[Source]:
    """Yield the files of an archive without its list of files, which is at the end of it.

    The last of them has no content but the damage.
    """
    try:
        members = list(_scan(source))
    except UNREADABLE:
        members = []
    for member in members:
        if not member.name.endswith("/"):
            opener = partial(_open_scanned, source, member)
            yield from _expand_member(source, member.name, member.size, opener)
    yield Source(source.name, 0, partial(_refuse, f"incomplete ZIP archive: {error}"))


def _refuse(reason: str) -> NoReturn:
    raise zipfile.BadZipFile(reason)


def _scan(source: Source) -> Iterator[_Member]:
    """Yield the files of an archive in the order in which they are stored."""
    with source.open() as file:
        start = 0
        while member := _read_header(file, start):
            yield member
            start = member.start + (member.packed or 0)
            if member.packed is None:
                start = _find_next(source, member)


def _read_header(file: IO[bytes], start: int) -> _Member | None:
    file.seek(start)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_BEGIN):
        return None
    flags, method, packed, size, length, rest = _HEADER.unpack(header)
    name = file.read(length)
    is_known = not flags & _SIZE_FOLLOWS and packed != _NO_SIZE
    if flags & _ENCRYPTED or method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return None
    if not is_known and method == zipfile.ZIP_STORED:
        return None
    decoded = name.decode("utf-8" if flags & _UTF8 else "cp437", "replace")
    data = start + _HEADER.size + length + rest
    size = size if is_known else 0
    return _Member(decoded, data, packed if is_known else None, size, method)


def _find_next(source: Source, member: _Member) -> int:
    """Return where the file after one of unknown size begins; the end of data if none does."""
    with source.open() as file:
        file.seek(member.start)
        inflated = _Inflated(file, member)
        try:
            while inflated.read(PIECE):
                pass
        except UNREADABLE:
            return int(file.seek(0, io.SEEK_END))
        end = file.tell() - len(inflated.inflater.unused_data)
        file.seek(end)
        return int(end + max(file.read(_TRAILER).find(_BEGIN), 0))


@contextmanager
def _open_scanned(source: Source, member: _Member) -> Iterator[IO[bytes]]:
    with source.open() as file:
        file.seek(member.start)
        yield _Inflated(file, member)  # type: ignore[misc]  # only read


class _Inflated(io.RawIOBase):
    """The content of a file in an archive, up to where the archive ends."""

    def __init__(self, file: IO[bytes], member: _Member) -> None:
        self.file = file
        self.left = member.packed
        self.is_stored = member.method == zipfile.ZIP_STORED
        self.inflater = zlib.decompressobj(-zlib.MAX_WBITS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = b""
        while not found and not self.inflater.eof and self.left != 0:
            if packed := self.inflater.unconsumed_tail:
                found = self.inflater.decompress(packed, len(buffer))
                continue
            most = len(buffer) if self.is_stored else PIECE
            packed = self.file.read(most if self.left is None else min(most, self.left))
            if not packed:
                raise EOFError("the archive ends in this file")
            if self.left is not None and self.is_stored:
                self.left -= len(packed)
            found = packed if self.is_stored else self.inflater.decompress(packed, len(buffer))
        buffer[: len(found)] = found
        return len(found)
