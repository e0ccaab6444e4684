"""Values on their way in and out: times are ISO text and JSON is text on our side, typed columns on
the other.

Everything is read in the binary protocol, so a vector costs a copy and no parsing.
"""

from __future__ import annotations

import itertools
import re
import struct
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.types.numeric import Int8Dumper

_EPOCH = datetime(2000, 1, 1)
_MARK = re.compile(r"\?")
_READ_MICROS = struct.Struct(">q").unpack


class _Time(Loader):
    """Microseconds since 2000 as the fixed-width text that sorts."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        (micros,) = _READ_MICROS(data)
        try:
            return (_EPOCH + timedelta(microseconds=micros)).isoformat(
                timespec="microseconds"
            ) + "Z"
        except OverflowError:  # before the year 1, after 9999: nothing that was written by us
            return f"{micros} microseconds after 2000"


class _Uuid(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return str(UUID(bytes=bytes(data)))


class _Json(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class _Jsonb(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data[1:]).decode()  # the first byte is a version


class _Vector(Loader):
    """Dimensions and a reserved number, two bytes each, then the numbers, all with the high byte
    first."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return np.frombuffer(data, ">f4", offset=4).astype("<f4").tobytes()


class _Numbers(Dumper):
    format = Format.BINARY

    def dump(self, obj: NDArray[np.float32]) -> bytes:
        return struct.pack(">HH", len(obj), 0) + obj.astype(">f4").tobytes()


def adapters(vector: int | None) -> AdaptersMap:
    """How values are written and read; `vector` is the number that the database gave pgvector's
    type."""
    made = AdaptersMap(psycopg.adapters)
    made.register_dumper(int, Int8Dumper)  # one width for all, so that a statement is prepared once
    for name, loader in (
        ("timestamptz", _Time),
        ("uuid", _Uuid),
        ("json", _Json),
        ("jsonb", _Jsonb),
    ):
        made.register_loader(name, loader)
    if vector is not None:
        made.register_loader(vector, _Vector)
        made.register_dumper(np.ndarray, type("Numbers", (_Numbers,), {"oid": vector}))
    return made


@lru_cache(1024)
def number_placeholders(sql: str) -> str:
    """Return the statement with $1, $2, … for its question marks; those in quotes are left alone.

    >>> number_placeholders("SELECT '?' WHERE a = ? AND b = ?")
    "SELECT '?' WHERE a = $1 AND b = $2"
    """
    count = itertools.count(1)
    parts = sql.split("'")
    return "'".join(
        part if i % 2 else _MARK.sub(lambda _: f"${next(count)}", part)
        for i, part in enumerate(parts)
    )
