"""The driver, as we use it: several statements in one trip to the server, and values on their way
in
and out.

The driver's own pipeline waits once or more for each statement; here everything is sent, and then
everything is read. Times are ISO text and JSON is text on our side, typed columns on the other.
Everything is read in the binary protocol, so a vector costs a copy and no parsing.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Generator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import AsyncConnection, abc, errors, waiting
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader, PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.types.numeric import Int8Dumper
from psycopg.waiting import Ready, Wait

from ...errors import ProviderFailed
from ..database import Batch, Query, Rows

Connection: TypeAlias = "AsyncConnection[tuple[Any, ...]]"
_LOOK_SECONDS = 0.1
_EPOCH = datetime(2000, 1, 1)
_MARK = re.compile(r"'[^']*'|\?")
_READ_MICROS = struct.Struct(">q").unpack
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


async def exchange(connection: Connection, statements: Sequence[Query]) -> list[Rows]:
    """Return the rows of each statement. Outside a transaction they are one; the first failure
    ends them all."""
    transformer = Transformer(connection)
    sends: list[Callable[[], None]] = []
    for sql, values in statements:
        statement = (number_placeholders(sql), *_dump(transformer, values))
        sends.append(partial(connection.pgconn.send_query_params, *statement, Format.BINARY))
    found: list[Rows] = []
    for result in await _exchange_all(connection, sends):
        rows = []
        if result.ntuples:
            transformer.set_pgresult(result)
            rows = transformer.load_rows(0, result.ntuples, tuple)
        found.append(rows)
    return found


async def rows(connection: Connection, sql: str, *values: Any) -> Rows:
    """Return the rows of one statement."""
    return (await exchange(connection, [(sql, values)]))[0]


async def repeat(connection: Connection, batches: Sequence[Batch]) -> None:
    """Run each statement for each of its sets of values; the server parses a statement once."""
    transformer = Transformer(connection)
    pgconn = connection.pgconn
    sends: list[Callable[[], None]] = []
    for sql, batch in batches:
        dumped = [_dump(transformer, values) for values in batch]
        columns = zip(*(kinds for _, kinds, _ in dumped), strict=True)
        types = [next(filter(None, kinds), 0) for kinds in columns]
        sends.append(partial(pgconn.send_prepare, b"", number_placeholders(sql), types))
        for values, _, formats in dumped:
            sends.append(partial(pgconn.send_query_prepared, b"", values, formats))
    await _exchange_all(connection, sends)


async def commit(connection: Connection) -> None:
    """Commit. Raises ProviderFailed if nothing was left: the server answers ROLLBACK then,
    without an error."""
    send = partial(connection.pgconn.send_query_params, b"COMMIT", ())
    (result,) = await _exchange_all(connection, [send])
    if result.command_status != b"COMMIT":
        raise ProviderFailed(
            "A statement had failed before, so nothing was kept: repeat the whole change"
        )


async def rollback(connection: Connection) -> None:
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        await exchange(connection, [("ROLLBACK", ())])


def _dump(transformer: abc.Transformer, values: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return values as the server takes them, with their types and formats."""
    if not values:
        return (), (), ()
    made = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
    return made, tuple(transformer.types or ()), tuple(transformer.formats or ())


async def _exchange_all(
    connection: Connection, sends: Sequence[Callable[[], None]]
) -> list[PGresult]:
    # When cancelled, the driver's own wait would wait once more for a server that may be gone.
    results = await waiting.wait_async(
        _send_and_receive(connection.pgconn, sends),
        connection.pgconn.socket,
        interval=_LOOK_SECONDS,
    )
    for result in results:
        if result.status not in _GOOD:
            raise errors.error_from_result(result)
    return results


def _send_and_receive(
    pgconn: PGconn, sends: Sequence[Callable[[], None]]
) -> Generator[Wait, Ready | int, list[PGresult]]:
    pgconn.enter_pipeline_mode()
    for send in sends:
        send()
    pgconn.pipeline_sync()
    results: list[PGresult] = []
    is_sent = pgconn.flush() == 0
    while True:
        # None where the driver waits once more to cancel it
        ready = (yield Wait.R if is_sent else Wait.RW) or Ready.NONE
        if ready & Ready.R:
            pgconn.consume_input()
        is_sent = is_sent or pgconn.flush() == 0
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                return results
            if result is not None:
                results.append(result)


def _read_time(data: Buffer) -> str:
    """Return microseconds since 2000 as the fixed-width text that sorts."""
    (micros,) = _READ_MICROS(data)
    try:
        at = _EPOCH + timedelta(microseconds=micros)
        return f"{at.isoformat(timespec='microseconds')}Z"
    except OverflowError:  # before the year 1, after 9999: nothing that was written by us
        return f"{micros} microseconds after 2000"


def _read_vector(data: Buffer) -> bytes:
    """Return the numbers after dimensions and a reserved number, of two bytes each; all have the
    high byte first."""
    return np.frombuffer(data, ">f4", offset=4).astype("<f4").tobytes()


class _Numbers(Dumper):
    format = Format.BINARY

    def dump(self, obj: NDArray[np.float32]) -> bytes:
        return struct.pack(">HH", len(obj), 0) + obj.astype(">f4").tobytes()


_READERS: dict[str | int, Callable[[Buffer], Any]] = {
    "timestamptz": _read_time,
    "uuid": lambda data: str(UUID(bytes=bytes(data))),
    "json": lambda data: bytes(data).decode(),
    "jsonb": lambda data: bytes(data[1:]).decode(),  # the first byte is a version
}


def adapters(vector: int) -> AdaptersMap:
    """Return how values are written and read; `vector` is the number that the database gave
    pgvector's type."""
    made = AdaptersMap(psycopg.adapters)
    made.register_dumper(int, Int8Dumper)  # one width for all, so that a statement is prepared once
    for kind, read in (_READERS | {vector: _read_vector}).items():
        ways = {"format": Format.BINARY, "load": staticmethod(read)}
        made.register_loader(kind, type("BinaryLoader", (Loader,), ways))
    made.register_dumper(np.ndarray, type("Numbers", (_Numbers,), {"oid": vector}))
    return made


@lru_cache(1024)
def number_placeholders(sql: str) -> bytes:
    """Return the statement with $1, $2, … for its question marks; those in quotes are left alone.

    >>> number_placeholders("SELECT '?' WHERE a = ? AND b = ?")
    b"SELECT '?' WHERE a = $1 AND b = $2"
    """
    count = itertools.count(1)

    def number(found: re.Match[str]) -> str:
        return f"${next(count)}" if found[0] == "?" else found[0]

    return _MARK.sub(number, sql).encode()
