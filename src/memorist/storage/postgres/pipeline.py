"""Send several statements to PostgreSQL in one round trip, and convert values in both directions.

The pipeline mode of the driver waits at least once per statement; here everything is sent before
anything is read. Times and JSON are text in Python and typed columns in the database. Results are
read in the binary protocol, so a vector is copied and not parsed.
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
    """Return the rows of each statement. Outside a transaction, they form one; the first failure
    ends all of them."""
    transformer = Transformer(connection)
    sends: list[Callable[[], None]] = []
    for sql, values in statements:
        send = partial(
            connection.pgconn.send_query_params,
            number_placeholders(sql),
            *_dump(transformer, values),
            Format.BINARY,
        )
        sends.append(send)
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
    (found,) = await exchange(connection, [(sql, values)])
    return found


async def repeat(connection: Connection, batches: Sequence[Batch]) -> None:
    """Run each statement for each of its sets of values; the server parses a statement once."""
    transformer = Transformer(connection)
    pgconn = connection.pgconn
    sends: list[Callable[[], None]] = []
    for sql, batch in batches:
        queries: list[Callable[[], None]] = []
        kinds: list[tuple[int, ...]] = []
        for given in batch:
            values, types, formats = _dump(transformer, given)
            kinds.append(types)
            queries.append(partial(pgconn.send_query_prepared, b"", values, formats))
        columns = zip(*kinds, strict=True)
        known = [next(filter(None, column), 0) for column in columns]
        sends.append(partial(pgconn.send_prepare, b"", number_placeholders(sql), known))
        sends += queries
    await _exchange_all(connection, sends)


async def commit(connection: Connection) -> None:
    """Commit. Raises ProviderFailed if the transaction was already rolled back, which the server
    reports by answering ROLLBACK, without an error."""
    send = partial(connection.pgconn.send_query_params, b"COMMIT", ())
    (result,) = await _exchange_all(connection, [send])
    if result.command_status != b"COMMIT":
        raise ProviderFailed(
            "An earlier statement failed, so nothing was stored: repeat the whole change"
        )


async def rollback(connection: Connection) -> None:
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        await exchange(connection, [("ROLLBACK", ())])


def _dump(transformer: abc.Transformer, values: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return values in the format of the server, with their types and formats."""
    if not values:
        return (), (), ()
    made = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
    types = tuple(transformer.types or ())
    formats = tuple(transformer.formats or ())
    return made, types, formats


async def _exchange_all(
    connection: Connection,
    sends: Sequence[Callable[[], None]],
) -> list[PGresult]:
    """Send everything in one round trip and return the results. Raises if one of them failed."""
    # When canceled, the wait of AsyncConnection would wait again for a server that may be gone.
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
    pgconn: PGconn,
    sends: Sequence[Callable[[], None]],
) -> Generator[Wait, Ready | int, list[PGresult]]:
    """Send and receive without blocking: yield what to wait for, return the results."""
    pgconn.enter_pipeline_mode()
    for send in sends:
        send()
    pgconn.pipeline_sync()
    results: list[PGresult] = []
    is_sent = pgconn.flush() == 0
    while True:
        ready = yield Wait.R if is_sent else Wait.RW
        if ready and ready & Ready.R:  # None if the driver waits again in order to cancel
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
    """Return microseconds since 2000 as fixed-width text, which sorts by time."""
    (micros,) = _READ_MICROS(data)
    try:
        at = _EPOCH + timedelta(microseconds=micros)
        return f"{at.isoformat(timespec='microseconds')}Z"
    except OverflowError:  # before the year 1 or after 9999, so not written by Memorist
        return f"{micros} microseconds after 2000"


def _read_vector(data: Buffer) -> bytes:
    """Return the numbers of a vector, little-endian. The server sends them big-endian, after two
    bytes for the dimensions and two reserved bytes."""
    numbers = np.frombuffer(data, ">f4", offset=4)
    return numbers.astype("<f4").tobytes()


class _Numbers(Dumper):
    format = Format.BINARY

    def dump(self, obj: NDArray[np.float32]) -> bytes:
        head = struct.pack(">HH", len(obj), 0)
        return head + obj.astype(">f4").tobytes()


_READERS: dict[str | int, Callable[[Buffer], Any]] = {
    "timestamptz": _read_time,
    "uuid": lambda data: str(UUID(bytes=bytes(data))),
    "json": lambda data: bytes(data).decode(),
    "jsonb": lambda data: bytes(data[1:]).decode(),  # the first byte is a version
}


def adapters(vector: int) -> AdaptersMap:
    """Return the adapters that write and read values; `vector` is the OID of pgvector's type."""
    made = AdaptersMap(psycopg.adapters)
    made.register_dumper(int, Int8Dumper)  # one width for all, so that a statement is prepared once
    readers = _READERS | {vector: _read_vector}
    for kind, read in readers.items():
        members = {"format": Format.BINARY, "load": staticmethod(read)}
        loader = type("BinaryLoader", (Loader,), members)
        made.register_loader(kind, loader)
    dumper = type("Numbers", (_Numbers,), {"oid": vector})
    made.register_dumper(np.ndarray, dumper)
    return made


@lru_cache(1024)
def number_placeholders(sql: str) -> bytes:
    """Return the statement with $1, $2, … in place of question marks that are not in quotes.

    >>> number_placeholders("SELECT '?' WHERE a = ? AND b = ?")
    b"SELECT '?' WHERE a = $1 AND b = $2"
    """
    count = itertools.count(1)

    def number(found: re.Match[str]) -> str:
        return f"${next(count)}" if found[0] == "?" else found[0]

    return _MARK.sub(number, sql).encode()
