"""A disk that can lose its power: what a process asked of it, and what is left after a cut at any moment.

What was synced is there. Of what was not, any part may be, in any order, the last of it torn at a sector. A name is
there for certain once its folder was synced, and names come and go in the order in which they were changed.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

SECTOR = 512
_HEAD = struct.Struct("<cIqI")


def built(source: str, folder: Path) -> Path:
    """A library made from a C file beside this one, to be loaded before all others. Skips where that cannot be done."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    library = folder / f"{source}.so"
    code = Path(__file__).with_name(f"{source}.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", library, code, "-ldl", "-lpthread"], check=True
    )
    return library


def watching(library: Path, folder: Path, log: Path | None = None) -> dict[str, str]:
    """The environment of a process whose files below a folder are watched."""
    told = {"DISK_LOG": str(log)} if log else {}
    return {**os.environ, "LD_PRELOAD": str(library), "DISK_FOLDER": str(folder), **told}


class Request(NamedTuple):
    """One thing that was asked of the disk."""

    kind: str  # w: write, t: truncate, s: sync, u: unlink
    name: str
    offset: int
    data: bytes


def requests(log: Path) -> Iterator[Request]:
    """What was asked of the disk, in order."""
    data, at = log.read_bytes(), 0
    while at < len(data):
        kind, length, offset, size = _HEAD.unpack_from(data, at)
        name, at = data[at + _HEAD.size : at + _HEAD.size + length], at + _HEAD.size + length
        yield Request(kind.decode(), name.decode(), offset, data[at : at + size])
        at += size


@dataclass
class Disk:
    """What is safe in a folder, and what was only asked for."""

    folder: str
    names: dict[str, int] = field(default_factory=dict)  # file numbers, as the process sees them
    safe_names: dict[str, int] = field(default_factory=dict)
    moves: list[tuple[str, int | None]] = field(
        default_factory=list
    )  # names that came or went since the last sync
    safe: dict[int, bytearray] = field(default_factory=dict)
    waiting: list[tuple[int, Request]] = field(default_factory=list)

    def ask(self, request: Request) -> None:
        if request.kind == "s" and request.name == self.folder:
            self._sync_names()
        elif request.kind == "s":
            self._sync(self._file(request.name))
        elif request.kind == "u":
            self.names.pop(request.name, None)
            self.moves.append((request.name, None))
        else:
            self.waiting.append((self._file(request.name), request))

    def after_a_cut(self, chance: random.Random) -> dict[str, bytes]:
        """The files that are found when the power is back."""
        kept = chance.choice((0.0, 0.5, 0.5, 0.9))
        content = {number: bytearray(data) for number, data in self.safe.items()}
        for number, request in self.waiting:
            if chance.random() < kept:
                _do(content[number], _torn(request, chance))
        names = dict(self.safe_names)
        for name, file in self.moves[: chance.randint(0, len(self.moves))]:
            _move(names, name, file)
        return {name: bytes(content[number]) for name, number in names.items()}

    def _file(self, name: str) -> int:
        if name not in self.names:
            self.names[name] = len(self.safe)
            self.safe[self.names[name]] = bytearray()
            self.moves.append((name, self.names[name]))
        return self.names[name]

    def _sync(self, file: int) -> None:
        for number, request in self.waiting:
            if number == file:
                _do(self.safe[file], request)
        self.waiting = [(number, request) for number, request in self.waiting if number != file]

    def _sync_names(self) -> None:
        for name, file in self.moves:
            _move(self.safe_names, name, file)
        self.moves.clear()


def _move(names: dict[str, int], name: str, file: int | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file


def _do(content: bytearray, request: Request) -> None:
    """Change a file as it was asked for; what lies between its end and a write beyond it is zero."""
    content.extend(bytes(max(0, request.offset - len(content))))
    if request.kind == "t":
        del content[request.offset :]
    else:
        content[request.offset : request.offset + len(request.data)] = request.data


def _torn(request: Request, chance: random.Random) -> Request:
    sectors = len(request.data) // SECTOR
    if sectors < 2 or chance.random() < 0.7:
        return request
    return request._replace(data=request.data[: SECTOR * chance.randint(1, sectors)])
