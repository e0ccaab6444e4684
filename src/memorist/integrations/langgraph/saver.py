"""Checkpoints of LangGraph: durable, and shared by processes."""

from __future__ import annotations

import builtins
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from ...errors import InvalidInput, StoreDamaged
from ...manage.checkpoints import thread_name
from ...scoped import ScopedClient
from ...storage.graphs import Found, Graphs, Lacking, State, Typed, Wanted, Write
from ...sync import Blocking, BlockingScope
from .bridge import Bridge, blocking
from .serde import StrictSerializer

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory

USER = "langgraph"  # owner of the checkpoints if no other is given
_PAGE = 10  # checkpoints per query
_COUNTERS = "counters_since_delta_snapshot"


class MemoristSaver(BaseCheckpointSaver[str]):
    """Stores the checkpoints of graphs in one scope, for any number of threads, event loops and
    processes.

    When a call returns, what it stored is durable. Raises InvalidInput for values that cannot be
    serialized or are larger than `max_checkpoint_mb`, StoreUnavailable, and NotAllowed if a
    checkpoint names a type that is neither plain data, nor LangGraph's or LangChain's own, nor in
    `allowed_types`. A custom `serde` is trusted.
    """

    def __init__(
        self,
        scope: ScopedClient | BlockingScope,
        *,
        allowed_types: Iterable[type | tuple[str, ...]] = (),
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde or StrictSerializer(allowed_types))
        self._bridge = Bridge(scope)
        ctx = self._bridge.scope.ctx
        self._graphs = Graphs(ctx.store, scope.scope)
        self._most = ctx.settings.max_checkpoint_mb << 20

    @classmethod
    @contextmanager
    def from_url(
        cls,
        url: str | Path,
        *,
        user: str = USER,
        space: str | None = None,
        tenant: str | None = None,
        allowed_types: Iterable[type | tuple[str, ...]] = (),
        serde: SerializerProtocol | None = None,
        **settings: Any,
    ) -> Iterator[MemoristSaver]:
        """Open a memory for a `with` block: a file, `:memory:` or `postgresql://…`."""
        with Blocking.open(url, **{"embedder": "none", **settings}) as memory:
            yield cls(memory.scope(user, space, tenant), allowed_types=allowed_types, serde=serde)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; values whose version is stored already are not written again."""
        about = get_checkpoint_metadata(config, metadata)
        bare = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        data = self._dump("checkpoint", {"checkpoint": bare, "metadata": about})
        thread, ns = _place(config)
        state = State(
            thread,
            ns,
            checkpoint["id"],
            get_checkpoint_id(config),
            _channels(checkpoint, about),
            data,
        )
        words: dict[str, str] = {}
        for name, value in about.items():
            if value is not None:
                words[quote(str(name))] = _canonical(value)
        run = about.get("run_id")
        keep = partial(
            self._graphs.put, state, metadata=words, run=None if run is None else str(run)
        )
        values = self._values(
            checkpoint, [name for name in new_versions if state.channels.get(name)]
        )
        try:
            await self._bridge.wait(keep(values))
        except Lacking as lacking:
            await self._bridge.wait(keep(values | self._values(checkpoint, lacking.channels)))
        return _config(thread, ns, checkpoint["id"])

    def _values(self, checkpoint: Checkpoint, names: Sequence[str]) -> dict[str, Typed]:
        values = {name: self._dump(name, checkpoint["channel_values"][name]) for name in names}
        self._check_size(sum(len(data) for _, data in values.values()))
        return values

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote. Storing it again changes nothing."""
        made = [
            Write(
                task_id,
                WRITES_IDX_MAP.get(channel, place),
                task_path,
                channel,
                self._dump(channel, value),
            )
            for place, (channel, value) in enumerate(writes)
        ]
        self._check_size(sum(len(write.data[1]) for write in made))
        id = _id(config)
        if id is None:
            raise InvalidInput(
                "Writes belong to a checkpoint: the config has to name its checkpoint_id"
            )
        await self._bridge.wait(self._graphs.write(*_place(config), id, made))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the named checkpoint, or the newest of the thread; None if there is none."""
        wanted = Wanted(*_place(config), get_checkpoint_id(config) or None)
        page = await self._bridge.wait(self._graphs.page(wanted, limit=1))
        return self._tuple(page.found[0]) if page.found else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints of a thread or the scope that match the filter, newest first."""
        wanted = _wanted(config, filter or {}, before)
        left, after = 1 << 62 if limit is None else limit, None
        while left > 0:
            page = await self._bridge.wait(
                self._graphs.page(wanted, limit=min(left, _PAGE), after=after)
            )
            for found in page.found:
                yield self._tuple(found)
            if page.last is None:
                return
            left, after = left - len(page.found), page.last

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """See `alist`."""
        return self._bridge.iterate(self.alist(config, filter=filter, before=before, limit=limit))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        await self._bridge.wait(self._graphs.delete_threads([thread_name(str(thread_id))]))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes.

        A delta channel of a later run that was built from them starts anew.
        """
        await self._bridge.wait(self._graphs.delete_runs([str(run) for run in run_ids]))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy everything of a thread to another."""
        source, target = thread_name(str(source_thread_id)), thread_name(str(target_thread_id))
        await self._bridge.wait(self._graphs.copy_thread(source, target))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints (`delete`) or all but the newest of each namespace
        (`keep_latest`).

        Ancestors that the values of a delta channel are built from stay, too.
        """
        threads = [thread_name(str(thread)) for thread in thread_ids]
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"No prune strategy {strategy!r}: choose keep_latest or delete")
        graphs = self._graphs
        prune = graphs.keep_latest if strategy == "keep_latest" else graphs.delete_threads
        await self._bridge.wait(prune(threads))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the values of delta channels are built from: a first value, and the writes
        since.
        """
        found = await self._bridge.wait(
            self._graphs.made_up(*_place(config), _id(config), channels)
        )
        out: dict[str, DeltaChannelHistory] = {}
        for channel, (first, writes) in found.items():
            out[channel] = {"writes": [self._pending(write) for write in writes]}
            if first is not None:
                out[channel]["seed"] = self._load(first)
        return out

    put = blocking(aput)
    put_writes = blocking(aput_writes)
    get_tuple = blocking(aget_tuple)
    delete_thread = blocking(adelete_thread)
    delete_for_runs = blocking(adelete_for_runs)
    copy_thread = blocking(acopy_thread)
    prune = blocking(aprune)
    get_delta_channel_history = blocking(aget_delta_channel_history)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version that sorts after the current one and differs from that of any fork."""
        if isinstance(current, (int, float)):  # a thread that another saver began
            return current + 1
        number = int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{secrets.token_hex(8)}"

    def _tuple(self, found: Found) -> CheckpointTuple:
        state = found.state
        kept = self._load(state.data)
        values = {name: self._load(value) for name, value in found.values.items()}
        return CheckpointTuple(
            config=_config(state.thread, state.ns, state.id),
            checkpoint=cast(Checkpoint, {**kept["checkpoint"], "channel_values": values}),
            metadata=kept["metadata"],
            parent_config=_config(state.thread, state.ns, state.parent) if state.parent else None,
            pending_writes=[self._pending(write) for write in found.writes],
        )

    def _pending(self, write: Write) -> PendingWrite:
        return write.task, write.channel, self._load(write.data)

    def _load(self, data: Typed) -> Any:
        try:
            return self.serde.loads_typed(data)
        except ValueError as error:
            raise StoreDamaged(
                "A checkpoint is damaged and cannot be read: use an older one"
            ) from error

    def _dump(self, name: str, value: Any) -> Typed:
        try:
            dumped = self.serde.dumps_typed(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"The value of {name!r} cannot be serialized: {error}") from error
        self._check_size(len(dumped[1]))
        return dumped

    def _check_size(self, size: int) -> None:
        if size > self._most:
            most = self._most >> 20
            raise InvalidInput(
                f"{size:,} bytes are too many: store less, or raise max_checkpoint_mb ({most})"
            )


def migrate(source: BaseCheckpointSaver[Any], target: MemoristSaver) -> int:
    """Copy everything from another saver, oldest first; return the number of checkpoints.

    Threads continue where they stopped. Copying again changes nothing, so it may be repeated after
    a failure.
    """
    tuples = builtins.list(source.list(None))
    for each in reversed(tuples):
        place = {**each.config["configurable"], "checkpoint_id": _id(each.parent_config)}
        target.put({"configurable": place}, each.checkpoint, each.metadata, {})
    for config, writes in _writes_of(source, tuples, target._dump):
        target._bridge.run(target._graphs.write(*_place(config), str(_id(config)), writes))
    return len(tuples)


def _writes_of(
    source: BaseCheckpointSaver[Any],
    tuples: Sequence[CheckpointTuple],
    dumped: Callable[[str, Any], Typed],
) -> Iterator[tuple[RunnableConfig, builtins.list[Write]]]:
    """Yield the writes of each checkpoint."""
    if not isinstance(source, InMemorySaver):
        for each in tuples:
            yield (
                each.config,
                [  # tuples have no path: the position keeps the order
                    Write(
                        task,
                        WRITES_IDX_MAP.get(channel, position),
                        f"{position:08}",
                        channel,
                        dumped(channel, value),
                    )
                    for position, (task, channel, value) in enumerate(each.pending_writes or [])
                ],
            )
        return
    for key, writes in source.writes.items():
        yield (
            _config(*key),
            [
                Write(task, place, path, channel, dumped(channel, source.serde.loads_typed(data)))
                for (task, place), (_, channel, data, path) in writes.items()
            ],
        )


def _place(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread and the namespace. Raises InvalidInput."""
    named = config.get("configurable", {})
    if "thread_id" not in named:
        raise InvalidInput(
            'A checkpoint belongs to a thread: pass {"configurable": {"thread_id": "…"}}'
        )
    return thread_name(str(named["thread_id"])), str(named.get("checkpoint_ns") or "")


def _id(config: RunnableConfig | None) -> str | None:
    return get_checkpoint_id(config) if config else None


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


def _channels(checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the version of each channel that has a value, and None for those built from older
    writes.
    """
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    made_up = {name: None for name in metadata.get(_COUNTERS) or {} if name in versions}
    return made_up | {
        name: json.dumps(version) for name, version in versions.items() if name in values
    }


def _wanted(
    config: RunnableConfig | None, filter: Mapping[str, Any], before: RunnableConfig | None
) -> Wanted:
    words = {
        quote(str(name)): None if value is None else _canonical(value)
        for name, value in filter.items()
    }
    if config is None:
        return Wanted(before=_id(before), metadata=words)
    thread, ns = _place(config)
    named = config["configurable"].get("checkpoint_ns")
    return Wanted(thread, None if named is None else ns, _id(config) or None, _id(before), words)


def _canonical(value: Any) -> str:
    """Return JSON that is equal for equal values.

    >>> _canonical({"b": 1.0, "a": [True]}), _canonical(2.0)
    ('{"a": [true], "b": 1.0}', '2')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True, default=str)
