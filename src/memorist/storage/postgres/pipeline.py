"""Several statements in one trip to the server.

The driver's own pipeline waits once or more for each statement; here everything is sent, and then
everything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias

from psycopg import AsyncConnection, abc, errors, waiting
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from ...errors import ProviderFailed

Connection: TypeAlias = "AsyncConnection[tuple[Any, ...]]"
Statement: TypeAlias = tuple[str, Sequence[Any]]  # with $1, $2, … for its values
Repeated: TypeAlias = tuple[str, Sequence[Sequence[Any]]]  # run once for each set of values
_LOOK_SECONDS = 0.1
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


async def exchange(
    connection: Connection, statements: Sequence[Statement]
) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each statement. Outside a transaction they are one; the first failure
    ends them all."""
    transformer = Transformer(connection)
    dumped = [(sql.encode(), *_dump(transformer, values)) for sql, values in statements]
    results = await _exchange_all(
        connection, [partial(_send, connection.pgconn, *each) for each in dumped]
    )
    return [_load_rows(transformer, result) for result in results]


async def rows(connection: Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of one statement."""
    return (await exchange(connection, [(sql, values)]))[0]


async def repeat(connection: Connection, batches: Sequence[Repeated]) -> None:
    """Run each statement for each of its sets of values; the server parses a statement once."""
    transformer = Transformer(connection)
    pgconn = connection.pgconn
    sends: list[Callable[[], None]] = []
    for sql, batch in batches:
        dumped = [_dump(transformer, values) for values in batch]
        columns = zip(*(kinds for _, kinds, _ in dumped), strict=True)
        types = [next(filter(None, kinds), 0) for kinds in columns]
        sends.append(partial(pgconn.send_prepare, b"", sql.encode(), types))
        for values, _, formats in dumped:
            sends.append(partial(pgconn.send_query_prepared, b"", values, formats))
    await _exchange_all(connection, sends)


async def commit(connection: Connection) -> None:
    """Commit. Raises ProviderFailed if nothing was left: the server answers ROLLBACK then,
    without an error."""
    (result,) = await _exchange_all(
        connection, [partial(_send, connection.pgconn, b"COMMIT", [], [], [])]
    )
    if result.command_status != b"COMMIT":
        raise ProviderFailed(
            "A statement had failed before, so nothing was kept: repeat the whole change"
        )


async def rollback(connection: Connection) -> None:
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        await exchange(connection, [("ROLLBACK", ())])


def _send(pgconn: PGconn, sql: bytes, values: Any, types: Any, formats: Any) -> None:
    pgconn.send_query_params(sql, values, types, formats, Format.BINARY)


def _dump(transformer: abc.Transformer, values: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return values as the server takes them, with their types and formats."""
    made = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values)) if values else []
    return (
        made,
        tuple(transformer.types or ()) if values else (),
        tuple(transformer.formats or ()) if values else (),
    )


def _load_rows(transformer: abc.Transformer, result: PGresult) -> list[tuple[Any, ...]]:
    if not result.ntuples:
        return []
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


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
