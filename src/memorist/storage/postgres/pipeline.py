"""Several statements in one journey to the server and back.

The driver's own pipeline waits once or more for each statement; here everything is sent, and then everything is read.
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
_LOOK_SECONDS = 0.1
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


async def asked(
    connection: Connection, statements: Sequence[Statement]
) -> list[list[tuple[Any, ...]]]:
    """The rows of each statement. Outside of a transaction they are one; the first that fails ends them all."""
    transformer = Transformer(connection)
    dumped = [(sql.encode(), *_dumped(transformer, values)) for sql, values in statements]
    results = await _exchanged(
        connection, [partial(_send, connection.pgconn, *each) for each in dumped]
    )
    return [_rows(transformer, result) for result in results]


async def rows(connection: Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of one statement."""
    return (await asked(connection, [(sql, values)]))[0]


async def repeated(connection: Connection, sql: str, batch: Sequence[Sequence[Any]]) -> None:
    """Run one statement for each set of values; the server reads it once."""
    transformer = Transformer(connection)
    dumped = [_dumped(transformer, values) for values in batch]
    types = [
        next(filter(None, kinds), 0)
        for kinds in zip(*(kinds for _, kinds, _ in dumped), strict=True)
    ]
    send = connection.pgconn.send_query_prepared
    runs = [partial(send, b"", values, formats) for values, _, formats in dumped]
    await _exchanged(
        connection, [partial(connection.pgconn.send_prepare, b"", sql.encode(), types), *runs]
    )


async def commit(connection: Connection) -> None:
    """Raises ProviderFailed if nothing was left to commit: the server says ROLLBACK then, and calls it no error."""
    (result,) = await _exchanged(
        connection, [partial(_send, connection.pgconn, b"COMMIT", [], [], [])]
    )
    if result.command_status != b"COMMIT":
        raise ProviderFailed(
            "A statement had failed before, so nothing was kept: repeat the whole change"
        )


async def rollback(connection: Connection) -> None:
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        await asked(connection, [("ROLLBACK", ())])


def _send(pgconn: PGconn, sql: bytes, values: Any, types: Any, formats: Any) -> None:
    pgconn.send_query_params(sql, values, types, formats, Format.BINARY)


def _dumped(transformer: abc.Transformer, values: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Values as the server takes them, with their types and formats."""
    made = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values)) if values else []
    return (
        made,
        tuple(transformer.types or ()) if values else (),
        tuple(transformer.formats or ()) if values else (),
    )


def _rows(transformer: abc.Transformer, result: PGresult) -> list[tuple[Any, ...]]:
    if not result.ntuples:
        return []
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


async def _exchanged(connection: Connection, sends: Sequence[Callable[[], None]]) -> list[PGresult]:
    # The driver's own way to wait would, when it is cancelled, wait once more for a server that may be gone for ever.
    results = await waiting.wait_async(
        _exchange(connection.pgconn, sends), connection.pgconn.socket, interval=_LOOK_SECONDS
    )
    for result in results:
        if result.status not in _GOOD:
            raise errors.error_from_result(result)
    return results


def _exchange(
    pgconn: PGconn, sends: Sequence[Callable[[], None]]
) -> Generator[Wait, Ready | int, list[PGresult]]:
    pgconn.enter_pipeline_mode()
    for send in sends:
        send()
    pgconn.pipeline_sync()
    results: list[PGresult] = []
    is_sent = pgconn.flush() == 0
    while True:
        ready = (
            yield Wait.R if is_sent else Wait.RW
        ) or Ready.NONE  # None where the driver waits anew to cancel it
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
