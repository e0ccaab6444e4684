"""The checkpoints of graphs: how a graph stood after each step, the values of its channels, what its tasks wrote.

The value of a channel is kept once for each version, however many checkpoints share it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import RevisionConflict, StoreDamaged
from .repository import Shelf, Writing, few, marks

Typed = tuple[str, bytes]  # how something was serialised, and the bytes
Ask = Callable[[str, Sequence[Any]], Awaitable[list[tuple[Any, ...]]]]
_KEY = "scope = ? AND thread_id = ? AND ns = ?"
_COLUMNS = "thread_id, ns, checkpoint_id, parent_id, channels, type, data"
_TABLES = {
    "graph_checkpoints": "ns, checkpoint_id, parent_id, run_id, channels, metadata, type, data",
    "graph_values": "ns, channel, version, type, data",
    "graph_writes": "ns, checkpoint_id, task_id, idx, task_path, channel, type, data",
}


class State(NamedTuple):
    """One checkpoint, without the values of its channels."""

    thread: str
    ns: str
    id: str
    parent: str | None
    channels: Mapping[
        str, str | None
    ]  # their versions; None where the writes of older checkpoints make up the value
    data: Typed


class Write(NamedTuple):
    """What one task wrote to one channel. A negative place is a mark of the graph's own, and may be written again."""

    task: str
    place: int
    path: str
    channel: str
    data: Typed


class Found(NamedTuple):
    """One checkpoint with all that belongs to it; writes in the order in which their tasks ran."""

    state: State
    values: Mapping[str, Typed]
    writes: Sequence[Write]


class Page(NamedTuple):
    """Some checkpoints, and the one after which the next page begins."""

    found: list[Found]
    last: State | None


class Wanted(NamedTuple):
    """Which checkpoints; what is None does not restrict. Metadata is compared as the text of its JSON."""

    thread: str | None = None
    ns: str | None = None
    id: str | None = None
    before: str | None = None
    metadata: Mapping[str, str | None] = {}


class Lacking(Exception):
    """Values were left out that are not kept yet: put the checkpoint again, with those of the channels named here."""

    def __init__(self, channels: Sequence[str]) -> None:
        super().__init__(", ".join(channels))
        self.channels = channels


class Graphs(Shelf):
    """The checkpoints of the graphs of one scope. Each call that writes is one transaction."""

    async def put(
        self,
        state: State,
        values: Mapping[str, Typed],
        *,
        metadata: Mapping[str, str],
        run: str | None,
    ) -> None:
        """Keep a checkpoint and those of its channels' values that are new. Raises Lacking."""
        channels = json.dumps(dict(state.channels), sort_keys=True)
        row = (*state[:4], run, channels, json.dumps(dict(metadata)), *state.data)
        new = [(*state[:2], name, state.channels[name], *value) for name, value in values.items()]
        async with self._writing() as writing:
            await writing.many(
                "INSERT INTO graph_values (scope, thread_id, ns, channel, version, type, data) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, thread_id, ns, channel, version) DO NOTHING",
                new,
            )
            left_out = {pair for pair in _pairs([state]) if pair[0] not in values}
            kept = await _found_values(
                writing.rows, state.thread, state.ns, left_out, "channel, version"
            )
            if lacking := sorted(left_out - {(channel, version) for channel, version in kept}):
                raise Lacking([channel for channel, _ in lacking])
            await writing.rows(
                "INSERT INTO graph_checkpoints (scope, thread_id, ns, checkpoint_id, parent_id, run_id, channels, "
                "metadata, type, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (scope, thread_id, ns, checkpoint_id) DO UPDATE SET parent_id = excluded.parent_id, "
                "run_id = excluded.run_id, channels = excluded.channels, metadata = excluded.metadata, "
                "type = excluded.type, data = excluded.data",
                row,
            )

    async def write(self, thread: str, ns: str, id: str, writes: Iterable[Write]) -> None:
        """Keep what a task wrote. The same again changes nothing, except for marks of the graph's own."""
        async with self._writing() as writing:
            await writing.many(
                "INSERT INTO graph_writes (scope, thread_id, ns, checkpoint_id, task_id, idx, task_path, channel, "
                "type, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (scope, thread_id, ns, checkpoint_id, task_id, idx) DO UPDATE SET "
                "channel = excluded.channel, type = excluded.type, data = excluded.data WHERE excluded.idx < 0",
                [(thread, ns, id, *write[:4], *write.data) for write in writes],
            )

    async def page(self, wanted: Wanted, *, limit: int, after: State | None = None) -> Page:
        """Some of the wanted checkpoints, newest first, from the one after `after` on."""
        conditions, values = _conditions(wanted)
        if after is not None:
            conditions += " AND (checkpoint_id, thread_id, ns) < (?, ?, ?)"
            values += [after.id, after.thread, after.ns]
        sql = f"SELECT {_COLUMNS} FROM graph_checkpoints WHERE scope = ?{conditions} "
        found = await self._rows(
            f"{sql} ORDER BY checkpoint_id DESC, thread_id DESC, ns DESC LIMIT ?", [*values, limit]
        )
        states = [_state(row) for row in found]
        return Page(await self._filled(states), states[-1] if len(states) == limit else None)

    async def _filled(self, states: Sequence[State]) -> list[Found]:
        """The checkpoints with their values and writes, but without any that was removed in the meantime."""
        groups: dict[tuple[str, str], list[State]] = {}
        for state in states:
            groups.setdefault((state.thread, state.ns), []).append(state)
        values = {key: await self._values(*key, group) for key, group in groups.items()}
        writes = {
            key: await self._writes(*key, [state.id for state in group])
            for key, group in groups.items()
        }
        found = []
        for state in states:
            kept = values[state[:2]]
            mine = {
                name: kept.get((name, version))
                for name, version in state.channels.items()
                if version is not None
            }
            if None not in mine.values():
                whole = {name: value for name, value in mine.items() if value is not None}
                found.append(Found(state, whole, writes[state[:2]].get(state.id, [])))
            elif await self._exists(state):
                raise StoreDamaged(
                    f"Checkpoint {state.id!r} of thread {state.thread!r} has lost values: use an older one"
                )
        return found

    async def _values(
        self, thread: str, ns: str, states: Sequence[State]
    ) -> dict[tuple[str, str], Typed]:
        found = await _found_values(
            self._rows, thread, ns, _pairs(states), "channel, version, type, data"
        )
        return {(channel, version): (kind, data) for channel, version, kind, data in found}

    async def _writes(
        self, thread: str, ns: str, ids: Sequence[str], channels: Sequence[str] = ()
    ) -> dict[str, list[Write]]:
        out: dict[str, list[Write]] = {}
        only = f" AND channel IN ({marks(len(channels))})" if channels else ""
        for some in few(ids):
            found = await self._rows(
                f"SELECT checkpoint_id, task_id, idx, task_path, channel, type, data FROM graph_writes WHERE {_KEY} "
                f"AND checkpoint_id IN ({marks(len(some))}){only} ORDER BY task_path, task_id, idx",
                (thread, ns, *some, *channels),
            )
            for id, task, place, path, channel, kind, data in found:
                out.setdefault(id, []).append(Write(task, place, path, channel, (kind, data)))
        return out

    async def _exists(self, state: State) -> bool:
        sql = f"SELECT 1 FROM graph_checkpoints WHERE {_KEY} AND checkpoint_id = ?"
        return bool(await self._rows(sql, state[:3]))

    async def made_up(
        self, thread: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> dict[str, tuple[Typed | None, list[Write]]]:
        """What the values of channels are made up from: the nearest value before a checkpoint, and the writes since."""
        path = await self._ancestors(thread, ns, id, channels)
        writes = await self._writes(thread, ns, [state.id for state, _ in path], channels)
        firsts: dict[str, str] = {}
        since: dict[str, list[Write]] = {channel: [] for channel in channels}
        for state, sought in reversed(path):
            firsts |= {name: version for name in sought if (version := state.channels.get(name))}
            for write in writes.get(state.id, ()):
                since[write.channel] += [write] if write.channel in sought else []
        found = await _found_values(
            self._rows, thread, ns, set(firsts.items()), "channel, type, data"
        )
        values = {channel: (kind, data) for channel, kind, data in found}
        if values.keys() != firsts.keys():
            raise RevisionConflict(f"Thread {thread!r} was pruned while it was read: read it again")
        return {channel: (values.get(channel), since[channel]) for channel in channels}

    async def _ancestors(
        self, thread: str, ns: str, id: str | None, channels: Sequence[str]
    ) -> list[tuple[State, set[str]]]:
        """The checkpoints before one, nearest first, each with the channels for which no value was found yet."""
        known = await self._up_to(thread, ns, id)
        state = known.get(id or max(known, default=""))
        path: list[tuple[State, set[str]]] = []
        sought = set(channels)
        while sought and state is not None and state.parent is not None:
            if state.parent not in known:
                known |= await self._up_to(thread, ns, state.parent)
            state = known.get(state.parent)
            if state is not None:
                path.append((state, set(sought)))
                sought -= {name for name, version in state.channels.items() if version is not None}
        return path

    async def _up_to(self, thread: str, ns: str, id: str | None) -> dict[str, State]:
        """A checkpoint and the hundred before it, without their data."""
        bound, values = ("", ()) if id is None else (" AND checkpoint_id <= ?", (id,))
        sql = (
            f"SELECT checkpoint_id, parent_id, channels FROM graph_checkpoints WHERE {_KEY}{bound} "
        )
        found = await self._rows(
            f"{sql} ORDER BY checkpoint_id DESC LIMIT 101", (thread, ns, *values)
        )
        return {row[0]: _state((thread, ns, *row, "", b"")) for row in found}

    async def delete_threads(self, threads: Sequence[str]) -> None:
        """Remove all that is kept of some threads."""
        async with self._writing(new=False) as writing:
            writing.erased()
            gone = [(thread,) for thread in threads]
            for table in _TABLES:
                await writing.many(f"DELETE FROM {table} WHERE scope = ? AND thread_id = ?", gone)

    async def delete_runs(self, runs: Sequence[str]) -> None:
        """Remove the checkpoints that some runs made, with what was written to them."""
        async with self._writing(new=False) as writing:
            writing.erased()
            gone: list[tuple[Any, ...]] = []
            for some in few(runs):
                gone += await writing.rows(
                    f"SELECT thread_id, ns, checkpoint_id FROM graph_checkpoints WHERE scope = ? "
                    f"AND run_id IN ({marks(len(some))})",
                    some,
                )
            await _removed(writing, gone)

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy all that is kept of a thread; what the target has already stays as it is."""
        async with self._writing() as writing:
            for table, columns in _TABLES.items():
                await writing.rows(
                    f"INSERT INTO {table} (scope, thread_id, {columns}) SELECT ?, ?, {columns} FROM {table} "
                    "WHERE scope = ? AND thread_id = ? ON CONFLICT DO NOTHING",
                    (target, writing.number, source),
                )

    async def keep_latest(self, threads: Sequence[str]) -> None:
        """Remove all but the newest checkpoint in each namespace, and those its values are made up from."""
        async with self._writing(new=False) as writing:
            writing.erased()
            for thread in threads:
                rows = await writing.rows(
                    "SELECT ns, checkpoint_id, parent_id, channels FROM graph_checkpoints "
                    "WHERE scope = ? AND thread_id = ?",
                    (thread,),
                )
                states = {(row[0], row[1]): _state((thread, *row, "", b"")) for row in rows}
                latest = dict(sorted(states))
                kept = {key for newest in latest.items() for key in _chain(newest, states)}
                await _removed(writing, [(thread, *key) for key in states if key not in kept])


async def _found_values(
    ask: Ask, thread: str, ns: str, pairs: set[tuple[str, str]], columns: str
) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = []
    for some in few(sorted(pairs)):
        which = f"(channel, version) IN (VALUES {marks(len(some), '(?, ?)')})"
        values = (thread, ns, *(each for pair in some for each in pair))
        out += await ask(f"SELECT {columns} FROM graph_values WHERE {_KEY} AND {which}", values)
    return out


def _pairs(states: Iterable[State]) -> set[tuple[str, str]]:
    """The channels that have values of their own, with their versions."""
    return {
        (name, version)
        for state in states
        for name, version in state.channels.items()
        if version is not None
    }


async def _removed(writing: Writing, keys: Sequence[tuple[Any, ...]]) -> None:
    """Remove checkpoints with their writes, and the values that no checkpoint shares any more."""
    for table in ("graph_checkpoints", "graph_writes"):
        await writing.many(f"DELETE FROM {table} WHERE {_KEY} AND checkpoint_id = ?", keys)
    for thread, ns in dict.fromkeys(key[:2] for key in keys):
        left = await writing.rows(
            f"SELECT channels FROM graph_checkpoints WHERE {_KEY}", (thread, ns)
        )
        used = {pair for row in left for pair in json.loads(row[0]).items()}
        kept = await writing.rows(
            f"SELECT channel, version FROM graph_values WHERE {_KEY}", (thread, ns)
        )
        unused = [(thread, ns, *pair) for pair in kept if pair not in used]
        await writing.many(
            f"DELETE FROM graph_values WHERE {_KEY} AND channel = ? AND version = ?", unused
        )


def _chain(
    newest: tuple[str, str], states: Mapping[tuple[str, str], State]
) -> list[tuple[str, str]]:
    """A checkpoint and as many of its ancestors as its values are made up from."""
    state = states[newest]
    chain, open_ = [newest], {name for name, version in state.channels.items() if version is None}
    while open_ and state.parent is not None and (state.ns, state.parent) in states:
        state = states[state.ns, state.parent]
        chain.append((state.ns, state.id))
        open_ -= {name for name, version in state.channels.items() if version is not None}
    return chain


def _conditions(wanted: Wanted) -> tuple[str, list[Any]]:
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


def _state(row: Sequence[Any]) -> State:
    thread, ns, id, parent, channels, kind, data = row
    return State(thread, ns, id, parent, json.loads(channels), (kind, data))
