"""Checkpoints of LangGraph graphs: the state after each step, the values of its channels, the
writes of its tasks.

The value of a channel is stored once for each version, however many checkpoints share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import RevisionConflict, StoreDamaged
from ..types import Scope
from .queries import Reader
from .store import Store
from .transaction import Transaction

Typed = tuple[str, bytes]  # how something was serialized, and the bytes
GraphKey = tuple[str, str, str]  # the thread, the namespace and the checkpoint
_KEY = "scope = ? AND thread_id = ? AND ns = ?"
_STATE = "SELECT thread_id, ns, checkpoint_id, parent_id, channels"
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
    # Their versions; None where the writes of older checkpoints make up the value.
    channels: Mapping[str, str | None]
    data: Typed


class TaskWrite(NamedTuple):
    """What one task wrote to one channel. A negative place is a mark of the graph's own, and may
    be written again."""

    task: str
    place: int
    path: str
    channel: str
    data: Typed


class StoredCheckpoint(NamedTuple):
    """One checkpoint with all that belongs to it; writes in the order in which their tasks ran."""

    state: GraphState
    values: Mapping[str, Typed]
    writes: Sequence[TaskWrite]


class CheckpointPage(NamedTuple):
    """Some checkpoints, and the one after which the next page begins."""

    found: list[StoredCheckpoint]
    last: GraphState | None


class CheckpointFilter(NamedTuple):
    """Which checkpoints; what is None does not restrict. Metadata is compared as the text of its
    JSON."""

    thread: str | None = None
    ns: str | None = None
    id: str | None = None
    before: str | None = None
    metadata: Mapping[str, str | None] = {}


class MissingValues(Exception):
    """Values were left out that are not stored yet: put the checkpoint again, with those of the
    channels named here."""

    def __init__(self, channels: Sequence[str]) -> None:
        super().__init__(", ".join(channels))
        self.channels = channels


@dataclass(frozen=True, slots=True)
class GraphCheckpoints:
    """The checkpoints of the graphs of one scope. Each call that writes is one transaction."""

    store: Store
    scope: Scope

    async def put(
        self,
        state: GraphState,
        values: Mapping[str, Typed],
        *,
        metadata: Mapping[str, str],
        run: str | None,
    ) -> None:
        """Store a checkpoint and those of its channels' values that are new. Raises
        MissingValues."""
        channels = json.dumps(dict(state.channels), sort_keys=True)
        row = (*state[:4], run, channels, json.dumps(dict(metadata)), *state.data)
        new = [(*state[:2], name, state.channels[name], *value) for name, value in values.items()]
        left_out = {pair for pair in _versions([state]) if pair[0] not in values}
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            await tx.write_each(_PUT_VALUE, new)
            found = await _load_values(tx, self.scope, state.thread, state.ns, left_out)
            if missing := sorted(left_out - found.keys()):
                raise MissingValues([channel for channel, _ in missing])
            await tx.write_each(_PUT, [row])

    async def write(self, thread: str, ns: str, id: str, writes: Iterable[TaskWrite]) -> None:
        """Store what a task wrote. The same again changes nothing, except for marks of the
        graph's own."""
        values = [(thread, ns, id, *write[:4], *write.data) for write in writes]
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            await tx.write_each(_WRITE, values)

    async def page(
        self, wanted: CheckpointFilter, *, limit: int, after: GraphState | None = None
    ) -> CheckpointPage:
        """Return some of the wanted checkpoints, newest first, from the one after `after` on."""
        sql = f"{_STATE}, type, data FROM graph_checkpoints WHERE scope = ?"
        values: list[Any] = []
        conditions = {
            "thread_id = ?": wanted.thread,
            "ns = ?": wanted.ns,
            "checkpoint_id = ?": wanted.id,
            "checkpoint_id < ?": wanted.before,
        }
        for condition, value in conditions.items():
            if value is not None:
                sql += f" AND {condition}"
                values.append(value)
        for name, value in wanted.metadata.items():
            is_value = "IS NULL" if value is None else "= ?"
            sql += f" AND metadata ->> CAST(? AS TEXT) {is_value}"
            values += [name] if value is None else [name, value]
        if after is not None:
            sql += " AND (checkpoint_id, thread_id, ns) < (?, ?, ?)"
            values += [after.id, after.thread, after.ns]
        sql += " ORDER BY checkpoint_id DESC, thread_id DESC, ns DESC LIMIT ?"
        found = await self.store.rows(self.scope, sql, [*values, limit])
        states = [_state(row) for row in found]
        last = states[-1] if len(states) == limit else None
        return CheckpointPage(await self._fill(states), last)

    async def _fill(self, states: Sequence[GraphState]) -> list[StoredCheckpoint]:
        """Return checkpoints with their values and writes, without those that were removed."""
        filled: dict[GraphKey, StoredCheckpoint] = {}
        for thread, ns in dict.fromkeys(state[:2] for state in states):
            group = [state for state in states if state[:2] == (thread, ns)]
            values = await _load_values(self.store, self.scope, thread, ns, _versions(group))
            writes = await self._writes(thread, ns, [state.id for state in group])
            for state in group:
                versions = sorted(_versions([state]))
                if values.keys() >= set(versions):
                    mine = {pair[0]: values[pair] for pair in versions}
                    filled[state[:3]] = StoredCheckpoint(state, mine, writes.get(state.id, []))
                    continue
                sql = f"SELECT 1 FROM graph_checkpoints WHERE {_KEY} AND checkpoint_id = ?"
                if await self.store.rows(self.scope, sql, state[:3]):
                    raise StoreDamaged(
                        f"Checkpoint {state.id!r} of thread {thread!r} lost values:"
                        " use an older one"
                    )
        return [filled[state[:3]] for state in states if state[:3] in filled]

    async def _writes(self, thread: str, ns: str, ids: Sequence[str]) -> dict[str, list[TaskWrite]]:
        """Return what was written to checkpoints, in the order in which the tasks ran."""
        sql = f"""SELECT task_path, task_id, idx, checkpoint_id, channel, type, data
        FROM graph_writes WHERE {_KEY}"""
        found = await self.store.rows_in(self.scope, sql, "checkpoint_id", ids, thread, ns)
        writes: dict[str, list[TaskWrite]] = {}
        for path, task, place, id, channel, *data in sorted(found, key=lambda row: row[:3]):
            write = TaskWrite(task, place, path, channel, (data[0], data[1]))
            writes.setdefault(id, []).append(write)
        return writes

    async def made_up(
        self, thread: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> dict[str, tuple[Typed | None, list[TaskWrite]]]:
        """Return what the values of channels are made up from: the nearest value before a
        checkpoint, and the writes since."""
        path = await self._ancestors(thread, ns, id, channels)
        writes = await self._writes(thread, ns, [state.id for state, _ in path])
        firsts: dict[str, str] = {}
        since: dict[str, list[TaskWrite]] = {channel: [] for channel in channels}
        for state, sought in reversed(path):
            firsts.update(pair for pair in _versions([state]) if pair[0] in sought)
            for write in writes.get(state.id, ()):
                if write.channel in sought:
                    since[write.channel].append(write)
        found = await _load_values(self.store, self.scope, thread, ns, set(firsts.items()))
        values = {channel: value for (channel, _), value in found.items()}
        if values.keys() != firsts.keys():
            raise RevisionConflict(f"Thread {thread!r} was pruned while it was read: read it again")
        return {channel: (values.get(channel), since[channel]) for channel in channels}

    async def _ancestors(
        self, thread: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> list[tuple[GraphState, set[str]]]:
        """Return the checkpoints before one, nearest first, each with the channels for which no
        value was found yet."""
        known = await self._up_to(thread, ns, id)
        state = known.get(id or max(known, default=""))
        path: list[tuple[GraphState, set[str]]] = []
        sought = set(channels)
        while sought and state is not None and state.parent is not None:
            if state.parent not in known:
                known |= await self._up_to(thread, ns, state.parent)
            state = known.get(state.parent)
            if state is not None:
                path.append((state, set(sought)))
                sought -= {channel for channel, _ in _versions([state])}
        return path

    async def _up_to(self, thread: str, ns: str, id: str | None) -> dict[str, GraphState]:
        """Return a checkpoint and the hundred before it, without their data."""
        bound = "" if id is None else " AND checkpoint_id <= ?"
        sql = f"""{_STATE} FROM graph_checkpoints WHERE {_KEY}{bound}
        ORDER BY checkpoint_id DESC LIMIT 101"""
        values = (thread, ns) if id is None else (thread, ns, id)
        found = await self.store.rows(self.scope, sql, values)
        return {row[2]: _state(row) for row in found}

    async def delete_threads(self, threads: Sequence[str]) -> None:
        """Remove all that is stored of some threads."""
        async with self.store.transaction(self.scope) as tx:
            tx.connection.wipe_after_commit()
            gone = [(thread,) for thread in threads]
            for table in _TABLES:
                await tx.write_each(f"DELETE FROM {table} WHERE scope = ? AND thread_id = ?", gone)

    async def delete_runs(self, runs: Sequence[str]) -> None:
        """Remove the checkpoints that some runs made, with what was written to them."""
        sql = "SELECT thread_id, ns, checkpoint_id FROM graph_checkpoints WHERE scope = ?"
        async with self.store.transaction(self.scope) as tx:
            tx.connection.wipe_after_commit()
            await _remove(tx, await tx.rows_in(self.scope, sql, "run_id", runs))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy all that is stored of a thread; what the target has already stays as it is."""
        async with self.store.transaction(self.scope) as tx:
            number = await tx.create_scope()
            for table, columns in _TABLES.items():
                sql = f"""INSERT INTO {table} (scope, thread_id, {columns}) SELECT ?, ?, {columns}
                FROM {table} WHERE scope = ? AND thread_id = ? ON CONFLICT DO NOTHING"""
                await tx.rows(self.scope, sql, (target, number, source))

    async def keep_latest(self, threads: Sequence[str]) -> None:
        """Remove all but the newest checkpoint in each namespace, and those its values are made
        up from."""
        sql = f"{_STATE} FROM graph_checkpoints WHERE scope = ? AND thread_id = ?"
        async with self.store.transaction(self.scope) as tx:
            tx.connection.wipe_after_commit()
            for thread in threads:
                found = [_state(row) for row in await tx.rows(self.scope, sql, (thread,))]
                states = {state[:3]: state for state in found}
                kept: set[GraphKey] = set()
                for newest in {state.ns: state for _, state in sorted(states.items())}.values():
                    state: GraphState | None = newest
                    open_channels = set(newest.channels)
                    while state is not None:
                        kept.add(state[:3])
                        open_channels -= {channel for channel, _ in _versions([state])}
                        before = states.get((thread, state.ns, state.parent or ""))
                        state = before if open_channels else None
                await _remove(tx, [key for key in states if key not in kept])


async def _load_values(
    reader: Reader, scope: Scope, thread: str, ns: str, versions: set[tuple[str, str]]
) -> dict[tuple[str, str], Typed]:
    """Return the values of channels in some versions."""
    sql = f"SELECT channel, version, type, data FROM graph_values WHERE {_KEY}"
    wanted = sorted(versions)
    found = await reader.rows_in(scope, sql, "(channel, version)", wanted, thread, ns)
    return {(row[0], row[1]): (row[2], row[3]) for row in found}


def _versions(states: Iterable[GraphState]) -> set[tuple[str, str]]:
    """Return the channels that have values of their own, with their versions."""
    found = set()
    for state in states:
        for channel, version in state.channels.items():
            if version is not None:
                found.add((channel, version))
    return found


async def _remove(tx: Transaction, keys: Sequence[Sequence[Any]]) -> None:
    """Remove checkpoints with their writes, and the values that no checkpoint shares any more."""
    for table in ("graph_checkpoints", "graph_writes"):
        await tx.write_each(f"DELETE FROM {table} WHERE {_KEY} AND checkpoint_id = ?", keys)
    for thread, ns in dict.fromkeys((key[0], key[1]) for key in keys):
        sql = f"{_STATE} FROM graph_checkpoints WHERE {_KEY}"
        left = [_state(row) for row in await tx.rows(tx.scope, sql, (thread, ns))]
        sql = f"SELECT channel, version FROM graph_values WHERE {_KEY}"
        unused = set(await tx.rows(tx.scope, sql, (thread, ns))) - _versions(left)
        delete = f"DELETE FROM graph_values WHERE {_KEY} AND channel = ? AND version = ?"
        await tx.write_each(delete, [(thread, ns, *pair) for pair in sorted(unused)])


def _state(row: Sequence[Any]) -> GraphState:
    thread, ns, id, parent, channels, *data = row
    return GraphState(thread, ns, id, parent, json.loads(channels), tuple(data) or ("", b""))
