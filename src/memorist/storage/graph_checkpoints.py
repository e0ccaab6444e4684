"""Checkpoints of LangGraph graphs: the state after each step, the values of its channels, the
writes of its tasks.

The value of a channel is stored once for each version, however many checkpoints share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import RevisionConflict, StoreDamaged
from ..types import Scope
from .database import Rows
from .queries import Reader
from .rows import placeholders, portions
from .store import Store
from .transaction import Transaction

Typed = tuple[str, bytes]  # how something was serialised, and the bytes
FEW = 200  # values in one statement
_KEY = "scope = ? AND thread_id = ? AND ns = ?"
_COLUMNS = "thread_id, ns, checkpoint_id, parent_id, channels, type, data"
_TABLES = {
    "graph_checkpoints": "ns, checkpoint_id, parent_id, run_id, channels, metadata, type, data",
    "graph_values": "ns, channel, version, type, data",
    "graph_writes": "ns, checkpoint_id, task_id, idx, task_path, channel, type, data",
}


class GraphState(NamedTuple):
    """One checkpoint, without the values of its channels."""

    thread: str
    ns: str
    id: str
    parent: str | None
    channels: Mapping[
        str, str | None
    ]  # their versions; None where the writes of older checkpoints make up the value
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
    """Values were left out that are not kept yet: put the checkpoint again, with those of the
    channels named here."""

    def __init__(self, channels: Sequence[str]) -> None:
        super().__init__(", ".join(channels))
        self.channels = channels


class GraphCheckpoints:
    """The checkpoints of the graphs of one scope. Each call that writes is one transaction."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    async def put(
        self,
        state: GraphState,
        values: Mapping[str, Typed],
        *,
        metadata: Mapping[str, str],
        run: str | None,
    ) -> None:
        """Keep a checkpoint and those of its channels' values that are new. Raises
        MissingValues."""
        channels = json.dumps(dict(state.channels), sort_keys=True)
        row = (*state[:4], run, channels, json.dumps(dict(metadata)), *state.data)
        new = [(*state[:2], name, state.channels[name], *value) for name, value in values.items()]
        async with self._store.transaction(self._scope) as tx:
            await tx.create_scope()
            await tx.write_each(
                "INSERT INTO graph_values (scope, thread_id, ns, channel, version, type, data) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, thread_id, ns, channel, "
                "version) DO NOTHING",
                new,
            )
            left_out = {pair for pair in _pairs([state]) if pair[0] not in values}
            kept = await _load_values(
                tx, self._scope, state.thread, state.ns, left_out, "channel, version"
            )
            if lacking := sorted(left_out - {(channel, version) for channel, version in kept}):
                raise MissingValues([channel for channel, _ in lacking])
            await tx.rows(
                self._scope,
                "INSERT INTO graph_checkpoints (scope, thread_id, ns, checkpoint_id, parent_id, "
                "run_id, channels, "
                "metadata, type, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (scope, thread_id, ns, checkpoint_id) DO UPDATE SET parent_id = "
                "excluded.parent_id, "
                "run_id = excluded.run_id, channels = excluded.channels, metadata = "
                "excluded.metadata, "
                "type = excluded.type, data = excluded.data",
                row,
            )

    async def write(self, thread: str, ns: str, id: str, writes: Iterable[TaskWrite]) -> None:
        """Keep what a task wrote. The same again changes nothing, except for marks of the
        graph's own."""
        async with self._store.transaction(self._scope) as tx:
            await tx.create_scope()
            await tx.write_each(
                "INSERT INTO graph_writes (scope, thread_id, ns, checkpoint_id, task_id, idx, "
                "task_path, channel, "
                "type, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (scope, thread_id, ns, checkpoint_id, task_id, idx) DO UPDATE SET "
                "channel = excluded.channel, type = excluded.type, data = excluded.data WHERE "
                "excluded.idx < 0",
                [(thread, ns, id, *write[:4], *write.data) for write in writes],
            )

    async def page(
        self, wanted: CheckpointFilter, *, limit: int, after: GraphState | None = None
    ) -> CheckpointPage:
        """Some of the wanted checkpoints, newest first, from the one after `after` on."""
        conditions, values = _conditions(wanted)
        if after is not None:
            conditions += " AND (checkpoint_id, thread_id, ns) < (?, ?, ?)"
            values += [after.id, after.thread, after.ns]
        sql = f"SELECT {_COLUMNS} FROM graph_checkpoints WHERE scope = ?{conditions} "
        found = await self._store.rows(
            self._scope,
            f"{sql} ORDER BY checkpoint_id DESC, thread_id DESC, ns DESC LIMIT ?",
            [*values, limit],
        )
        states = [_state(row) for row in found]
        return CheckpointPage(
            await self._filled(states), states[-1] if len(states) == limit else None
        )

    async def _filled(self, states: Sequence[GraphState]) -> list[StoredCheckpoint]:
        """Return checkpoints with their values and writes, without those that were removed."""
        groups: dict[tuple[str, str], list[GraphState]] = {}
        for state in states:
            groups.setdefault((state.thread, state.ns), []).append(state)
        values: dict[tuple[str, str], dict[tuple[str, str], Typed]] = {}
        writes: dict[tuple[str, str], dict[str, list[TaskWrite]]] = {}
        for (thread, ns), group in groups.items():
            columns = "channel, version, type, data"
            found_values = await _load_values(
                self._store, self._scope, thread, ns, _pairs(group), columns
            )
            values[thread, ns] = {(each[0], each[1]): (each[2], each[3]) for each in found_values}
            writes[thread, ns] = await self._writes(thread, ns, [state.id for state in group])
        found = []
        for state in states:
            kept = values[state[:2]]
            versions = _pairs([state])
            if versions <= kept.keys():
                mine = {name: kept[name, version] for name, version in sorted(versions)}
                found.append(StoredCheckpoint(state, mine, writes[state[:2]].get(state.id, [])))
                continue
            sql = f"SELECT 1 FROM graph_checkpoints WHERE {_KEY} AND checkpoint_id = ?"
            if await self._store.rows(self._scope, sql, state[:3]):
                raise StoreDamaged(
                    f"Checkpoint {state.id!r} of thread {state.thread!r} has lost values: use an "
                    "older one"
                )
        return found

    async def _writes(
        self, thread: str, ns: str, ids: Sequence[str], channels: Sequence[str] = ()
    ) -> dict[str, list[TaskWrite]]:
        out: dict[str, list[TaskWrite]] = {}
        only = f" AND channel IN ({placeholders(channels)})" if channels else ""
        for some in portions(ids, FEW):
            found = await self._store.rows(
                self._scope,
                "SELECT checkpoint_id, task_id, idx, task_path, channel, type, data FROM "
                f"graph_writes WHERE {_KEY} "
                f"AND checkpoint_id IN ({placeholders(some)}){only} ORDER BY task_path, "
                "task_id, idx",
                (thread, ns, *some, *channels),
            )
            for id, task, place, path, channel, kind, data in found:
                out.setdefault(id, []).append(TaskWrite(task, place, path, channel, (kind, data)))
        return out

    async def made_up(
        self, thread: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> dict[str, tuple[Typed | None, list[TaskWrite]]]:
        """What the values of channels are made up from: the nearest value before a checkpoint,
        and the writes since."""
        path = await self._ancestors(thread, ns, id, channels)
        writes = await self._writes(thread, ns, [state.id for state, _ in path], channels)
        firsts: dict[str, str] = {}
        since: dict[str, list[TaskWrite]] = {channel: [] for channel in channels}
        for state, sought in reversed(path):
            firsts |= {name: version for name in sought if (version := state.channels.get(name))}
            for write in writes.get(state.id, ()):
                since[write.channel] += [write] if write.channel in sought else []
        found = await _load_values(
            self._store, self._scope, thread, ns, set(firsts.items()), "channel, type, data"
        )
        values = {channel: (kind, data) for channel, kind, data in found}
        if values.keys() != firsts.keys():
            raise RevisionConflict(f"Thread {thread!r} was pruned while it was read: read it again")
        return {channel: (values.get(channel), since[channel]) for channel in channels}

    async def _ancestors(
        self, thread: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> list[tuple[GraphState, set[str]]]:
        """The checkpoints before one, nearest first, each with the channels for which no value
        was found yet."""
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
                sought -= {name for name, version in state.channels.items() if version is not None}
        return path

    async def _up_to(self, thread: str, ns: str, id: str | None) -> dict[str, GraphState]:
        """A checkpoint and the hundred before it, without their data."""
        bound, values = ("", ()) if id is None else (" AND checkpoint_id <= ?", (id,))
        sql = (
            f"SELECT checkpoint_id, parent_id, channels FROM graph_checkpoints WHERE {_KEY}{bound} "
        )
        found = await self._store.rows(
            self._scope, f"{sql} ORDER BY checkpoint_id DESC LIMIT 101", (thread, ns, *values)
        )
        return {row[0]: _state((thread, ns, *row, "", b"")) for row in found}

    async def delete_threads(self, threads: Sequence[str]) -> None:
        """Remove all that is kept of some threads."""
        async with self._store.transaction(self._scope) as tx:
            tx.connection.wipe_after_commit()
            gone = [(thread,) for thread in threads]
            for table in _TABLES:
                await tx.write_each(f"DELETE FROM {table} WHERE scope = ? AND thread_id = ?", gone)

    async def delete_runs(self, runs: Sequence[str]) -> None:
        """Remove the checkpoints that some runs made, with what was written to them."""
        async with self._store.transaction(self._scope) as tx:
            tx.connection.wipe_after_commit()
            gone: list[tuple[Any, ...]] = []
            for some in portions(runs, FEW):
                gone += await tx.rows(
                    self._scope,
                    f"SELECT thread_id, ns, checkpoint_id FROM graph_checkpoints WHERE scope = ? "
                    f"AND run_id IN ({placeholders(some)})",
                    some,
                )
            await _remove(tx, gone)

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy all that is kept of a thread; what the target has already stays as it is."""
        async with self._store.transaction(self._scope) as tx:
            await tx.create_scope()
            for table, columns in _TABLES.items():
                await tx.rows(
                    self._scope,
                    f"INSERT INTO {table} (scope, thread_id, {columns}) SELECT ?, ?, {columns} "
                    f"FROM {table} "
                    "WHERE scope = ? AND thread_id = ? ON CONFLICT DO NOTHING",
                    (target, await tx.number(self._scope), source),
                )

    async def keep_latest(self, threads: Sequence[str]) -> None:
        """Remove all but the newest checkpoint in each namespace, and those its values are made
        up from."""
        async with self._store.transaction(self._scope) as tx:
            tx.connection.wipe_after_commit()
            for thread in threads:
                rows = await tx.rows(
                    self._scope,
                    "SELECT ns, checkpoint_id, parent_id, channels FROM graph_checkpoints "
                    "WHERE scope = ? AND thread_id = ?",
                    (thread,),
                )
                states = {(row[0], row[1]): _state((thread, *row, "", b"")) for row in rows}
                latest = dict(sorted(states))
                kept = {key for newest in latest.items() for key in _chain(newest, states)}
                await _remove(tx, [(thread, *key) for key in states if key not in kept])


async def _load_values(
    reader: Reader, scope: Scope, thread: str, ns: str, pairs: set[tuple[str, str]], columns: str
) -> Rows:
    """Return columns of the values of channels, given with their versions."""
    found: Rows = []
    for some in portions(sorted(pairs), FEW):
        sql = f"SELECT {columns} FROM graph_values WHERE {_KEY} "
        sql += f"AND (channel, version) IN (VALUES {placeholders(some, '(?, ?)')})"
        values = [thread, ns]
        for pair in some:
            values += pair
        found += await reader.rows(scope, sql, values)
    return found


def _pairs(states: Iterable[GraphState]) -> set[tuple[str, str]]:
    """The channels that have values of their own, with their versions."""
    return {
        (name, version)
        for state in states
        for name, version in state.channels.items()
        if version is not None
    }


async def _remove(tx: Transaction, keys: Sequence[tuple[Any, ...]]) -> None:
    """Remove checkpoints with their writes, and the values that no checkpoint shares any more."""
    for table in ("graph_checkpoints", "graph_writes"):
        await tx.write_each(f"DELETE FROM {table} WHERE {_KEY} AND checkpoint_id = ?", keys)
    for thread, ns in dict.fromkeys(key[:2] for key in keys):
        left = await tx.rows(
            tx.scope, f"SELECT channels FROM graph_checkpoints WHERE {_KEY}", (thread, ns)
        )
        used = {pair for row in left for pair in json.loads(row[0]).items()}
        kept = await tx.rows(
            tx.scope, f"SELECT channel, version FROM graph_values WHERE {_KEY}", (thread, ns)
        )
        unused = [(thread, ns, *pair) for pair in kept if pair not in used]
        await tx.write_each(
            f"DELETE FROM graph_values WHERE {_KEY} AND channel = ? AND version = ?", unused
        )


def _chain(
    newest: tuple[str, str], states: Mapping[tuple[str, str], GraphState]
) -> list[tuple[str, str]]:
    """A checkpoint and as many of its ancestors as its values are made up from."""
    state = states[newest]
    chain, open_ = [newest], {name for name, version in state.channels.items() if version is None}
    while open_ and state.parent is not None and (state.ns, state.parent) in states:
        state = states[state.ns, state.parent]
        chain.append((state.ns, state.id))
        open_ -= {name for name, version in state.channels.items() if version is not None}
    return chain


def _conditions(wanted: CheckpointFilter) -> tuple[str, list[Any]]:
    parts: list[tuple[str, list[Any]]] = [
        (f" AND {column} {sign} ?", [value])
        for column, sign, value in (
            ("thread_id", "=", wanted.thread),
            ("ns", "=", wanted.ns),
            ("checkpoint_id", "=", wanted.id),
            ("checkpoint_id", "<", wanted.before),
        )
        if value is not None
    ]
    for name, value in wanted.metadata.items():
        if value is None:
            parts.append((" AND metadata ->> CAST(? AS TEXT) IS NULL", [name]))
        else:
            parts.append((" AND metadata ->> CAST(? AS TEXT) = ?", [name, value]))
    return "".join(sql for sql, _ in parts), [value for _, values in parts for value in values]


def _state(row: Sequence[Any]) -> GraphState:
    thread, ns, id, parent, channels, kind, data = row
    return GraphState(thread, ns, id, parent, json.loads(channels), (kind, data))
