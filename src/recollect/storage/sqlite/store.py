"""The embedded store: one SQLite file, any number of processes.

One thread owns the connection that writes, a few own connections that read; nothing blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import apsw

from ...errors import RecollectError, StoreDamaged, StoreUnavailable
from ...model import Entry, Memory, Message, Scope, Summary
from ...text import clock, index, terms
from .. import rows
from ..reading import Readings
from ..session import Values
from ..writing import Writings
from . import checks
from .connection import IN_MEMORY, connect, translated, wait
from .migrate import migrate

T = TypeVar("T")
_READERS = 2
_RESERVE = 1 << 20  # bytes kept aside, so that forgetting still works when the disk is full
_CLEAN_SECONDS = 2  # a forget waits so long for others to let go of the log; then the next write cleans it


class Thread:
    """A connection that lives in threads of its own. Implements `Session`."""

    def __init__(self, path: str, *, name: str, threads: int = 1, create: bool = False) -> None:
        self.path, self._create = path, create
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"recollect-{name}")
        self._own = threading.local()
        self._opened: list[apsw.Connection] = []
        self._closed = False

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something with the connection, in its thread."""
        if self._closed:
            raise RecollectError("This memory is closed: open it again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._work, work)

    def _work(self, work: Callable[[apsw.Connection], T]) -> T:
        with translated(self.path):
            connection = getattr(self._own, "connection", None)
            if connection is None:
                connection = self._own.connection = connect(self.path, create=self._create)
                self._opened.append(connection)
            return work(connection)

    async def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return await self.run(lambda connection: connection.execute(sql, tuple(values)).fetchall())

    async def many(self, sql: str, values: Iterable[Values]) -> None:
        batch = [tuple(each) for each in values]
        if batch:
            await self.run(lambda connection: connection.executemany(sql, batch).fetchall())

    async def close(self) -> None:
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for connection in self._opened:
            connection.close()


class SqliteStore(Readings):
    """Memories in one file. Implements `ports.Store`; open it with `SqliteStore.open`."""

    def __init__(self, path: str, *, language: str, secret: bytes, writer: Thread, reader: Thread) -> None:
        self._known: dict[Scope, int] = {}
        super().__init__(reader, self._known, secret)
        self.path, self._language = path, language
        self._writer, self._reader = writer, reader
        self._turn = asyncio.Lock()  # one transaction at a time in this process; SQLite sees to the other processes
        self._unclean = False  # erased words may still stand in the log

    @classmethod
    async def open(cls, path: str | Path, *, language: str = "english") -> SqliteStore:
        """Open or make the file. `:memory:` keeps everything in the process. Raises StoreUnavailable, StoreDamaged."""
        on_disk = str(path) != ":memory:"
        place = _made_ready(Path(path)) if on_disk else f"{IN_MEMORY}{uuid4().hex}?vfs=memdb"
        writer = Thread(place, name="writer", create=True)
        try:
            await writer.run(lambda connection: migrate(connection, place))
            await writer.run(lambda connection: _reanalyse(connection, language))
            secret = _secret(await writer.rows("SELECT value FROM meta WHERE key = 'secret'"), place)
            if on_disk:
                await writer.run(lambda connection: checkpoint(connection, seconds=0))  # after a crash: see `_clean`
                await writer.run(lambda _: _keep_reserve(place))
        except BaseException:
            await writer.close()
            raise
        reader = Thread(place, name="reader", threads=_READERS)
        return cls(place, language=language, secret=secret, writer=writer, reader=reader)

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[Writings]:
        """Commits when the block ends, durably, and rolls back if it raises."""
        async with self._turn:
            writings = Writings(self._writer, self._known, self._secret, scope=scope, language=self._language)
            try:
                await self._writer.run(_begin)
                yield writings
                if writings.failed is not None:
                    raise writings.failed
                self._unclean |= writings.erased
                await asyncio.shield(self._writer.rows("COMMIT"))
            except BaseException:  # cancelled too: whatever still runs in the thread is undone after it
                await asyncio.shield(self._writer.run(_rollback))
                raise
            if self._unclean:
                await self._clean()

    async def _clean(self) -> None:
        """Leave no erased word in the log. What was committed stands, so a failure waits for the next write."""
        with suppress(RecollectError):
            self._unclean = not await self._writer.run(checkpoint)

    async def messages(self, scope: Scope, ids: Sequence[str]) -> dict[str, Message]:
        sql = "SELECT id, text, role, name, at, session FROM messages WHERE scope = ?"
        return {
            id: Message(id=id, content=text, role=role, name=name, at=rows.moment(at) if at else None, session=session)
            for id, text, role, name, at, session in await self._in(sql, scope, "id", ids)
            if text is not None
        }

    async def history(self, scope: Scope, memory_id: str | None = None, *, limit: int = 100) -> list[Entry]:
        sql = "SELECT id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history WHERE scope = ?"
        one = " AND memory_id = ?" if memory_id is not None else ""
        values = [await self.number(scope), *([memory_id] if memory_id is not None else []), limit]
        found = await self._session.rows(f"{sql}{one} ORDER BY ts DESC, rowid DESC LIMIT ?", values)
        return [rows.entry(row) for row in found]

    async def summaries(self, scope: Scope, record_type: str) -> list[Summary]:
        sql = "SELECT id, record_type, name, data, evidence_ids, at FROM summaries WHERE scope = ? AND record_type = ?"
        found = await self._session.rows(f"{sql} ORDER BY at DESC, id DESC", (await self.number(scope), record_type))
        return [
            Summary(
                id=id, record_type=kind, name=name, data=rows.loaded(data),
                evidence_ids=tuple(rows.loaded(ids)), at=rows.moment(at),
            )
            for id, kind, name, data, ids, at in found
        ]  # fmt: skip

    async def unembedded(
        self, model: str, *, limit: int, everything: bool = False, after: int = 0
    ) -> list[tuple[int, Memory]]:
        columns = ", ".join(f"m.{column}" for column in rows.COLUMNS)
        missing = "NOT EXISTS (SELECT 1 FROM vectors v WHERE v.memory = m.row AND v.model = ?)"
        found = await self._session.rows(
            f"SELECT s.tenant, s.user_id, s.space, m.row, {columns} FROM memories m JOIN scopes s ON s.id = m.scope "
            f"WHERE m.row > ? AND m.state <> 'soft_deleted' AND ({missing} OR ?) ORDER BY m.row LIMIT ?",
            (after, model, everything, limit),
        )
        return [(r[3], rows.memory(r[4:], Scope(tenant=r[0], user=r[1], space=r[2]))) for r in found]

    async def scopes(self) -> list[Scope]:
        found = await self._session.rows("SELECT tenant, user_id, space FROM scopes ORDER BY id")
        return [Scope(tenant=tenant, user=user, space=space) for tenant, user, space in found]

    async def stats(self, scope: Scope | None, model: str) -> dict[str, Any]:
        number = None if scope is None else await self.number(scope)
        return await self._reader.run(lambda connection: checks.stats(connection, number, model, self.path))

    async def export(self, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
        for each in [scope] if scope is not None else await self.scopes():
            async for record in self._export(each):
                yield record

    async def _export(self, scope: Scope) -> AsyncIterator[dict[str, Any]]:
        number, after = await self.number(scope), 0
        sql = f"SELECT row, {', '.join(rows.COLUMNS)} FROM memories WHERE scope = ? AND row > ? ORDER BY row LIMIT 500"
        while page := await self._session.rows(sql, (number, after)):
            for row in page:
                try:
                    yield {"record_type": "memory", "data": rows.memory(row[1:], scope)}
                except StoreDamaged as error:  # what can still be read is more than nothing
                    yield {"record_type": "damaged", "data": {"id": row[1], "reason": str(error)}}
            after = page[-1][0]
        async for record in self._export_rest(scope, number):
            yield record

    async def _export_rest(self, scope: Scope, number: int) -> AsyncIterator[dict[str, Any]]:
        whose = {"tenant": scope.tenant, "user": scope.user, "space": scope.space}
        found = await self._session.rows(
            "SELECT s.id, s.session, s.role, s.name, s.at, s.text, s.outcome, m.id, m.text, m.revision FROM messages s "
            "LEFT JOIN memories m ON m.scope = s.scope AND m.id = json_extract(s.outcome, '$[1][0]') "
            "WHERE s.scope = ? ORDER BY s.row",
            (number,),
        )
        for id, session, role, name, at, text, outcome, head, words, revision in found:
            if text is None and revision is not None and revision > 1:  # the first version holds what was said
                words = (await self.wordings(scope, head))[0]
            status, ids, reason = rows.loaded(outcome)
            made = {"status": status, "ids": ids, "reason": reason, "message_id": id}
            said = {"text": words if text is None else text, "kept": text is not None, "outcome": made, "scope": whose}
            place = {"id": id, "session": session, "role": role, "name": name, "at": at}
            yield {"record_type": "message", "data": {**place, **said}}
        for kind in ("user_profile", "project_memory"):
            for each in await self.summaries(scope, kind):
                plain = {"at": clock.iso(each.at), "evidence_ids": list(each.evidence_ids), "scope": whose}
                yield {"record_type": kind, "data": {**asdict(each), **plain}}

    async def backup(self, path: Path) -> None:
        """A complete copy of the file, taken while others write."""
        await self._reader.run(lambda connection: checks.backup(connection, path))

    async def vacuum(self) -> None:
        async with self._turn:
            await self._writer.rows("VACUUM")
            await self._clean()

    async def check(self) -> list[str]:
        try:
            return await self._reader.run(lambda connection: checks.problems(connection, self._language))
        except StoreDamaged as error:  # so badly that it cannot be read to the end
            return [str(error)]

    def make_room(self) -> bool:
        """Give the reserve back to a full disk; False if it was used up before."""
        reserve = Path(f"{self.path}-reserve")
        with suppress(OSError):
            reserve.unlink()
            return True
        return False

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()


def checkpoint(connection: apsw.Connection, *, seconds: int = _CLEAN_SECONDS) -> bool:
    """Move what was committed into the file and empty the log; False if others would not let go of it in time."""
    if not connection.filename:  # in memory there is no log
        return True
    wait(connection, connection.filename, seconds)
    try:
        return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
    except apsw.BusyError:
        return False
    finally:
        wait(connection, connection.filename)


def _begin(connection: apsw.Connection) -> None:
    if connection.filename and not os.path.exists(connection.filename):  # SQLite would go on writing to nowhere
        raise StoreUnavailable(f"{connection.filename!r} was moved or deleted while it was open: open it again")
    connection.execute("BEGIN IMMEDIATE")


def _rollback(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _secret(found: list[tuple[Any, ...]], path: str) -> bytes:
    try:
        return bytes.fromhex(found[0][0])
    except (IndexError, TypeError, ValueError) as error:
        raise StoreDamaged(f"{path!r} has lost its key: restore a backup") from error


def _keep_reserve(path: str) -> None:
    """Set a little room aside, where there is plenty."""
    reserve = Path(f"{path}-reserve")
    with suppress(OSError):
        if reserve.exists() or shutil.disk_usage(reserve.parent).free < 4 * _RESERVE:
            return
        try:
            reserve.write_bytes(os.urandom(_RESERVE))  # not zeros: some file systems keep those for nothing
        except OSError:
            reserve.unlink()


def _made_ready(path: Path) -> str:
    """The whole path of the file, its folder made: what begins with `file:` is a name like any other."""
    path = path.absolute()
    if "\0" in str(path):
        raise StoreUnavailable(f"{str(path)!r} is no name that a file can have: choose another one")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"The folder {str(path.parent)!r} cannot be made: choose another place") from error
    if path.is_dir():
        raise StoreUnavailable(f"{str(path)!r} is a folder: name a file in it, such as {str(path / 'memory.db')!r}")
    return str(path)


def _reanalyse(connection: apsw.Connection, language: str) -> None:
    """Make terms and marks anew if the analysis or the language is not the one they were made with."""
    wanted = f"{terms.ANALYSIS}:{language}"
    if _analysis(connection) == wanted:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _analysis(connection) != wanted:  # another process may have been faster
            _make_terms(connection, language)
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('analysis', ?)", (wanted,))
        connection.execute("COMMIT")
    except BaseException:
        _rollback(connection)
        raise


def _analysis(connection: apsw.Connection) -> str | None:
    known = connection.execute("SELECT value FROM meta WHERE key = 'analysis'").fetchall()
    return str(known[0][0]) if known else None


def _make_terms(connection: apsw.Connection, language: str) -> None:
    connection.execute("UPDATE scopes SET revision = revision + 1")
    scopes: list[Any] = connection.execute("SELECT id, tenant, user_id, space, revision FROM scopes").fetchall()
    for number, tenant, user, space, revision in scopes:
        scope = Scope(tenant=tenant, user=user, space=space)
        sql = f"SELECT row, {', '.join(rows.COLUMNS)} FROM memories WHERE scope = ?"
        for row in connection.execute(sql, (number,)).fetchall():
            with suppress(StoreDamaged):  # `check` tells of it; the others can still be found
                memory = rows.memory(row[1:], scope)
                made = (index.terms_of(memory, language), index.flags_of(memory))
                change = "UPDATE memories SET terms = ?, flags = ?, changed = ? WHERE scope = ? AND row = ?"
                connection.execute(change, (*made, revision, number, row[0]))
