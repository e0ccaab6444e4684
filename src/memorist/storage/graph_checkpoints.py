"""Checkpoints of LangGraph graphs: the state after each step, the values of its channels and the
writes of its tasks.

Each version of a channel value is stored once, even if many checkpoints share it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import RevisionConflict, StoreDamaged
from ..types import Scope
from .store import Store
from .transaction import Transaction

Typed = tuple[str, bytes]  # the format of a serialized value, and its bytes
# The thread and the namespace with the checkpoint, or with the channel and the version of a value.
GraphKey = tuple[str, ...]
_PAGE = 10  # checkpoints read at a time, with their values
_GENERATIONS = 100  # of a lineage, read at a time
_THREAD = "WHERE scope = ? AND thread_id = ?"
_CHECKPOINT = "(thread_id, ns, checkpoint_id)"
_VALUE = "(thread_id, ns, channel, version)"
_STORED = "SELECT thread_id, ns, channel, version FROM graph_values WHERE scope = ?"
_STATE = "SELECT thread_id, ns, checkpoint_id, parent_id, channels"
_LINEAGE = f"""WITH RECURSIVE lineage AS (
    SELECT first.*, 0 AS generation FROM (
        SELECT scope, thread_id, ns, checkpoint_id, parent_id, channels FROM graph_checkpoints
        WHERE scope = ? AND thread_id = ? AND ns = ? {{only}} ORDER BY checkpoint_id DESC LIMIT 1
    ) AS first
    UNION ALL
    SELECT scope, thread_id, ns, parent.checkpoint_id, parent.parent_id, parent.channels,
    generation + 1 FROM lineage JOIN graph_checkpoints parent USING (scope, thread_id, ns)
    WHERE parent.checkpoint_id = lineage.parent_id AND generation < {_GENERATIONS}
)
{_STATE} FROM lineage WHERE generation > 0 ORDER BY generation"""
_CONDITIONS = {
    "thread": "thread_id = ?",
    "ns": "ns = ?",
    "id": "checkpoint_id = ?",
    "before": "checkpoint_id < ?",
}
_TABLES = {
    "graph_checkpoints": "ns, checkpoint_id, parent_id, run_id, channels, metadata, type, data",
    "graph_values": "ns, channel, version, type, data",
    "graph_writes": "ns, checkpoint_id, task_id, idx, task_path, channel, type, data",
}
_PUT_VALUE = """INSERT INTO graph_values
(scope, thread_id, ns, channel, version, type, data) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, thread_id, ns, channel, version) DO NOTHING"""
_PUT = """INSERT INTO graph_checkpoints (scope, thread_id, ns, checkpoint_id, parent_id, run_id,
channels, metadata, type, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, thread_id, ns, checkpoint_id) DO UPDATE SET parent_id = excluded.parent_id,
run_id = excluded.run_id, channels = excluded.channels, metadata = excluded.metadata,
type = excluded.type, data = excluded.data"""
_WRITE = """INSERT INTO graph_writes (scope, thread_id, ns, checkpoint_id, task_id, idx,
task_path, channel, type, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, thread_id, ns, checkpoint_id, task_id, idx) DO UPDATE SET
channel = excluded.channel, type = excluded.type, data = excluded.data WHERE excluded.idx < 0"""


class GraphState(NamedTuple):
    """One checkpoint, without the values of its channels."""

    thread: str
    ns: str
    id: str
    parent: str | None
    # Their versions; None where the value is built from the writes of older checkpoints.
    channels: Mapping[str, str | None]
    data: Typed


class TaskWrite(NamedTuple):
    """What a task wrote to a channel. A negative place is a special write of LangGraph, such as an
    error, and may be overwritten."""

    task: str
    place: int
    path: str
    channel: str
    data: Typed


class StoredCheckpoint(NamedTuple):
    """One checkpoint with its values, and its writes in the order in which their tasks ran."""

    state: GraphState
    values: Mapping[str, Typed]
    writes: Sequence[TaskWrite]


@dataclass(frozen=True, slots=True)
class GraphCheckpoints:
    """The checkpoints of the graphs of one scope. Each call that writes is one transaction."""

    store: Store
    scope: Scope

    async def put(
        self,
        state: GraphState,
        dump: Callable[[Sequence[str]], Mapping[str, Typed]],
        metadata: Mapping[str, str],
        run: str | None = None,
    ) -> None:
        """Store a checkpoint. `dump` returns the values of the channels whose version is not stored
        yet."""
        row = (
            *state[:4],
            run,
            json.dumps(dict(state.channels), sort_keys=True),
            json.dumps(dict(metadata)),
            *state.data,
        )
        keys = _value_keys(state)
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            stored = set(await tx.rows_in(self.scope, _STORED, _VALUE, keys.values()))
            new = [name for name, key in keys.items() if key not in stored]
            values = [(*keys[name], *value) for name, value in dump(new).items()]
            await tx.write_each(_PUT_VALUE, values)
            await tx.write_each(_PUT, [row])

    async def write(
        self,
        thread: str,
        ns: str,
        id: str,
        writes: Iterable[TaskWrite],
    ) -> None:
        """Store what a task wrote. Repeating it changes nothing, except for special writes."""
        values = [(thread, ns, id, *write[:4], *write.data) for write in writes]
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            await tx.write_each(_WRITE, values)

    async def find(
        self,
        *,
        metadata: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        **wanted: str | None,
    ) -> AsyncIterator[StoredCheckpoint]:
        """Yield the checkpoints of a `thread`, an `ns`, with an `id`, or `before` one, newest
        first.

        None does not restrict; metadata is compared as JSON text.
        """
        sql = f"{_STATE}, type, data FROM graph_checkpoints WHERE scope = ?"
        values: list[Any] = []
        for name, value in wanted.items():
            if value is not None:
                sql += f" AND {_CONDITIONS[name]}"
                values.append(value)
        for name, value in (metadata or {}).items():
            values.append(name)
            if value is None:
                sql += " AND metadata ->> CAST(? AS TEXT) IS NULL"
            else:
                sql += " AND metadata ->> CAST(? AS TEXT) = ?"
                values.append(value)
        after: tuple[str, ...] = ()
        left = 1 << 62 if limit is None else limit
        while left > 0:
            size = min(left, _PAGE)
            bound = " AND (checkpoint_id, thread_id, ns) < (?, ?, ?)" if after else ""
            page = f"{sql}{bound} ORDER BY checkpoint_id DESC, thread_id DESC, ns DESC LIMIT ?"
            place = (*values, *after, size)
            found = await self.store.rows(self.scope, page, place)
            states = list(map(_state, found))
            for checkpoint in await self._fill(states):
                yield checkpoint
                left -= 1
            if len(states) < size:
                return
            last = states[-1]
            after = (last.id, last.thread, last.ns)

    async def built_from(
        self,
        thread: str,
        ns: str,
        id: str | None,
        channels: Sequence[str],
    ) -> dict[str, tuple[Typed | None, list[TaskWrite]]]:
        """Return what the values of channels are built from: the nearest value before a
        checkpoint, or before the newest, and the writes since. Raises RevisionConflict."""
        path: list[GraphState] = []
        keys: dict[str, GraphKey] = {}
        lengths: dict[str, int] = {}  # of the path to the value of a channel
        async for state in self._ancestors(thread, ns, id):
            path.append(state)
            own = _value_keys(state)
            sought = set(channels) - keys.keys()
            for channel in sought & own.keys():
                keys[channel] = own[channel]
                lengths[channel] = len(path)
            if len(keys) == len(channels):
                break
        writes = await self._writes(path)
        values = await self._values(keys.values())
        if len(values) < len(keys):
            raise RevisionConflict(f"Thread {thread!r} was pruned while it was read: read it again")
        found: dict[str, tuple[Typed | None, list[TaskWrite]]] = {}
        for channel in channels:
            since: list[TaskWrite] = []
            for state in reversed(path[: lengths.get(channel)]):
                written = writes.get(state[:3], ())
                since += (write for write in written if write.channel == channel)
            value = values[keys[channel]] if channel in keys else None
            found[channel] = (value, since)
        return found

    async def _ancestors(
        self,
        thread: str,
        ns: str,
        id: str | None,
    ) -> AsyncIterator[GraphState]:
        """Yield the checkpoints that one followed, or the newest, nearest first, without data."""
        while True:
            only = ""
            start: tuple[str, ...] = (thread, ns)
            if id is not None:
                only = "AND checkpoint_id = ?"
                start = (thread, ns, id)
            sql = _LINEAGE.format(only=only)
            page = await self.store.rows(self.scope, sql, start)
            for row in page:
                yield _state(row)
            if len(page) < _GENERATIONS:
                return
            id = page[-1][2]

    async def _fill(self, states: Sequence[GraphState]) -> list[StoredCheckpoint]:
        """Return checkpoints with their values and writes, without those removed since."""
        keys: set[GraphKey] = set()
        for state in states:
            keys.update(_value_keys(state).values())
        values = await self._values(keys)
        writes = await self._writes(states)
        filled: list[StoredCheckpoint] = []
        for state in states:
            own = _value_keys(state)
            if values.keys() >= set(own.values()):
                mine = {channel: values[key] for channel, key in own.items()}
                written = writes.get(state[:3], [])
                filled.append(StoredCheckpoint(state, mine, written))
                continue
            sql = "SELECT 1 FROM graph_checkpoints WHERE scope = ?"
            if await self.store.rows_in(self.scope, sql, _CHECKPOINT, [state[:3]]):
                raise StoreDamaged(
                    f"Values of checkpoint {state.id!r} of thread {state.thread!r} are missing:"
                    " use an older one"
                )
        return filled

    async def _values(self, keys: Iterable[GraphKey]) -> dict[GraphKey, Typed]:
        """Return the values with these keys that are stored."""
        sql = "SELECT thread_id, ns, channel, version, type, data FROM graph_values WHERE scope = ?"
        stored = await self.store.rows_in(self.scope, sql, _VALUE, keys)
        return {row[:4]: (row[4], row[5]) for row in stored}

    async def _writes(self, states: Iterable[GraphState]) -> dict[GraphKey, list[TaskWrite]]:
        """Return the writes of checkpoints, in the order in which their tasks ran."""
        sql = """SELECT task_path, task_id, idx, thread_id, ns, checkpoint_id, channel, type, data
        FROM graph_writes WHERE scope = ?"""
        keys = [state[:3] for state in states]
        found = await self.store.rows_in(self.scope, sql, _CHECKPOINT, keys)
        writes: dict[GraphKey, list[TaskWrite]] = defaultdict(list)
        found.sort(key=lambda row: row[:3])
        for path, task, place, *key, channel, type, data in found:
            write = TaskWrite(task, place, path, channel, (type, data))
            writes[tuple(key)].append(write)
        return writes

    async def delete_threads(self, threads: Sequence[str]) -> None:
        """Delete everything that is stored of threads."""
        async with self.store.transaction(self.scope) as tx:
            tx.connection.wipe_after_commit()
            gone = [(thread,) for thread in threads]
            for table in _TABLES:
                await tx.write_each(f"DELETE FROM {table} {_THREAD}", gone)

    async def delete_runs(self, runs: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes."""
        sql = "SELECT thread_id, ns, checkpoint_id FROM graph_checkpoints WHERE scope = ?"
        async with self.store.transaction(self.scope) as tx:
            tx.connection.wipe_after_commit()
            await _remove(tx, await tx.rows_in(self.scope, sql, "run_id", runs))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy everything that is stored of a thread; existing rows of the target are kept."""
        async with self.store.transaction(self.scope) as tx:
            number = await tx.create_scope()
            for table, columns in _TABLES.items():
                sql = f"""INSERT INTO {table} (scope, thread_id, {columns}) SELECT ?, ?, {columns}
                FROM {table} {_THREAD} ON CONFLICT DO NOTHING"""
                await tx.rows(self.scope, sql, (target, number, source))

    async def keep_latest(self, threads: Sequence[str]) -> None:
        """Delete all but the newest checkpoint in each namespace and those its values are built
        from."""
        async with self.store.transaction(self.scope) as tx:
            tx.connection.wipe_after_commit()
            for thread in threads:
                states = {state[:3]: state for state in await _load_states(tx, thread)}
                latest = {ns: states[thread, ns, id] for _, ns, id in sorted(states)}
                kept: set[GraphKey] = set()
                for newest in latest.values():
                    state: GraphState | None = newest
                    sought = set(newest.channels)
                    while state is not None:
                        kept.add(state[:3])
                        sought -= _value_keys(state).keys()
                        parent = (thread, state.ns, state.parent or "")
                        state = states.get(parent) if sought else None
                await _remove(tx, sorted(states.keys() - kept))


def _value_keys(state: GraphState) -> dict[str, GraphKey]:
    """Return the keys of the values that a checkpoint stores itself, by channel."""
    keys: dict[str, GraphKey] = {}
    for channel, version in state.channels.items():
        if version is not None:
            keys[channel] = (state.thread, state.ns, channel, version)
    return keys


async def _load_states(tx: Transaction, thread: str) -> Iterator[GraphState]:
    sql = f"{_STATE} FROM graph_checkpoints {_THREAD}"
    return map(_state, await tx.rows(tx.scope, sql, (thread,)))


async def _remove(tx: Transaction, keys: Sequence[Sequence[Any]]) -> None:
    """Delete checkpoints with their writes, and the values that no other checkpoint uses."""
    for table in ("graph_checkpoints", "graph_writes"):
        sql = f"DELETE FROM {table} {_THREAD} AND ns = ? AND checkpoint_id = ?"
        await tx.write_each(sql, keys)
    for thread in {key[0] for key in keys}:
        unused = set(await tx.rows(tx.scope, f"{_STORED} AND thread_id = ?", (thread,)))
        for state in await _load_states(tx, thread):
            unused.difference_update(_value_keys(state).values())
        sql = f"DELETE FROM graph_values {_THREAD} AND ns = ? AND channel = ? AND version = ?"
        await tx.write_each(sql, sorted(unused))


def _state(row: Sequence[Any]) -> GraphState:
    thread, ns, id, parent, channels, *data = row
    return GraphState(
        thread,
        ns,
        id,
        parent,
        json.loads(channels),
        tuple(data) or ("", b""),
    )
