"""LangGraph interfaces of a memory: `MemoristSaver` stores checkpoints of graphs, durable and shared
by processes; `MemoristStore` stores items of agents.

Both belong to one scope: graphs of another user are not visible, even if threads or namespaces have
the same name.
"""

from __future__ import annotations

import builtins
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from ...errors import InvalidInput, MissingExtra, StoreDamaged
from ...manage.checkpoints import thread_name
from ...storage.graph_checkpoints import (
    GraphCheckpoints,
    GraphState,
    StoredCheckpoint,
    TaskWrite,
    Typed,
)
from ...sync import Blocking, few, stream, verb
from .. import Adapter, AnyScope, Bridge

try:
    import langgraph.checkpoint  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra('LangGraph is not installed: pip install "memorist[langgraph]"') from error

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
from langgraph.checkpoint.serde.base import SerializerProtocol

from .serializer import StrictSerializer
from .store import MemoristStore

__all__ = ["MemoristSaver", "MemoristStore", "migrate"]

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory

_COUNTERS = "counters_since_delta_snapshot"


class MemoristSaver(Adapter, BaseCheckpointSaver[str]):
    """Stores the checkpoints of graphs in one scope, for any number of threads, event loops and
    processes.

    When a call returns, what it stored is durable. Raises InvalidInput for values that cannot be
    serialized or are larger than `max_checkpoint_mb`, StoreUnavailable, and NotAllowed if a
    checkpoint names a type that is not plain data, not one of LangGraph or LangChain, and not in
    `allowed_types`. A custom `serde` is trusted.
    """

    def __init__(
        self,
        scope: AnyScope,
        *,
        allowed_types: Iterable[type | tuple[str, ...]] = (),
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde or StrictSerializer(allowed_types))
        self._loop = Bridge(scope)
        self._wait = self._loop.wait
        ctx = self._loop.scope.ctx
        self._graphs = GraphCheckpoints(ctx.store, scope.scope)
        self._most = ctx.settings.max_checkpoint_mb << 20

    @classmethod
    @contextmanager
    def from_url(
        cls,
        url: str | Path,
        *,
        user: str = "langgraph",
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
        """Store a checkpoint. Values whose version is already stored are not written again."""
        thread, ns = _place(config)
        id = checkpoint["id"]
        values = checkpoint["channel_values"]
        versions = checkpoint["channel_versions"]
        about: Mapping[str, Any] = get_checkpoint_metadata(config, metadata)
        # The version of each channel that has a value; None for those built from older writes.
        counters = about.get(_COUNTERS) or {}
        channels: dict[str, str | None] = {}
        for name, version in versions.items():
            if name in values:
                channels[name] = json.dumps(version)
            elif name in counters:
                channels[name] = None
        bare = dict(checkpoint)
        del bare["channel_values"]
        ((_, data),) = self._dump([("checkpoint", {"checkpoint": bare, "metadata": about})])
        state = GraphState(
            thread,
            ns,
            id,
            get_checkpoint_id(config),
            channels,
            data,
        )
        run = about.get("run_id")

        def dump(names: Sequence[str]) -> dict[str, Typed]:
            return dict(self._dump((name, values[name]) for name in names))

        put = self._graphs.put(
            state,
            dump,
            metadata={name: word for name, word in _words(about).items() if word is not None},
            run=None if run is None else str(run),
        )
        await self._wait(put)
        return _config(thread, ns, id)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote. Storing it again changes nothing."""
        made: list[TaskWrite] = []
        for number, (channel, data) in enumerate(self._dump(writes)):
            place = WRITES_IDX_MAP.get(channel, number)
            made.append(
                TaskWrite(
                    task_id,
                    place,
                    task_path,
                    channel,
                    data,
                )
            )
        id = get_checkpoint_id(config)
        if id is None:
            raise InvalidInput(
                "Writes belong to a checkpoint: the config must contain its checkpoint_id"
            )
        await self._wait(self._graphs.write(*_place(config), id, made))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the named checkpoint, or the newest of the thread; None if there is none."""
        thread, ns = _place(config)
        id = get_checkpoint_id(config) or None
        wanted = self._graphs.find(thread=thread, ns=ns, id=id, limit=1)
        found = await self._wait(few(wanted))
        return self._tuple(found[0]) if found else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints of a thread or the scope that match the filter, newest first."""
        thread = ns = id = None
        if config is not None:
            thread, ns = _place(config)
            if config["configurable"].get("checkpoint_ns") is None:
                ns = None
            id = get_checkpoint_id(config) or None
        found = self._graphs.find(
            thread=thread,
            ns=ns,
            id=id,
            before=get_checkpoint_id(before) if before else None,
            metadata=_words(filter or {}),
            limit=limit,
        )
        while page := await self._wait(few(found, 1)):
            yield self._tuple(page[0])

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything that is stored of a thread."""
        await self._wait(self._graphs.delete_threads([thread_name(str(thread_id))]))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their writes.

        A delta channel of a later run that was built from them starts empty.
        """
        await self._wait(self._graphs.delete_runs([str(run) for run in run_ids]))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy everything that is stored of a thread to another thread."""
        source = thread_name(str(source_thread_id))
        target = thread_name(str(target_thread_id))
        await self._wait(self._graphs.copy_thread(source, target))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints (`delete`) or all but the newest of each namespace
        (`keep_latest`).

        Ancestors that the values of a delta channel are built from are kept as well.
        """
        threads = [thread_name(str(thread)) for thread in thread_ids]
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"Unknown prune strategy {strategy!r}: use keep_latest or delete")
        graphs = self._graphs
        prune = graphs.keep_latest if strategy == "keep_latest" else graphs.delete_threads
        await self._wait(prune(threads))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the values of delta channels are built from: an initial value and the writes
        since.
        """
        id = get_checkpoint_id(config)
        found = await self._wait(self._graphs.built_from(*_place(config), id, channels))
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, (first, writes) in found.items():
            histories[channel] = {"writes": [self._pending(write) for write in writes]}
            if first is not None:
                histories[channel]["seed"] = self._load(first)
        return histories

    put = verb(aput)
    put_writes = verb(aput_writes)
    get_tuple = verb(aget_tuple)
    list = stream(alist)
    delete_thread = verb(adelete_thread)
    delete_for_runs = verb(adelete_for_runs)
    copy_thread = verb(acopy_thread)
    prune = verb(aprune)
    get_delta_channel_history = verb(aget_delta_channel_history)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version that sorts after the current one and differs from that of any fork."""
        if isinstance(current, (int, float)):  # a thread of another saver
            return current + 1
        number = int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{secrets.token_hex(8)}"

    def _tuple(self, found: StoredCheckpoint) -> CheckpointTuple:
        state = found.state
        stored = self._load(state.data)
        values = {name: self._load(value) for name, value in found.values.items()}
        return CheckpointTuple(
            config=_config(state.thread, state.ns, state.id),
            checkpoint=cast(Checkpoint, {**stored["checkpoint"], "channel_values": values}),
            metadata=stored["metadata"],
            parent_config=_config(state.thread, state.ns, state.parent) if state.parent else None,
            pending_writes=[self._pending(write) for write in found.writes],
        )

    def _pending(self, write: TaskWrite) -> PendingWrite:
        return write.task, write.channel, self._load(write.data)

    def _load(self, data: Typed) -> Any:
        try:
            return self.serde.loads_typed(data)
        except ValueError as error:
            raise StoreDamaged(
                "A checkpoint is damaged and cannot be read: use an older one"
            ) from error

    def _dump(self, values: Iterable[tuple[str, Any]]) -> builtins.list[tuple[str, Typed]]:
        """Serialize named values. Raises InvalidInput if one cannot be serialized, or if they are
        too large together."""
        dumped: builtins.list[tuple[str, Typed]] = []
        for name, value in values:
            try:
                dumped.append((name, self.serde.dumps_typed(value)))
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidInput(
                    f"The value of {name!r} cannot be serialized: {error}"
                ) from error
        size = sum(len(data) for _, (_, data) in dumped)
        if size > self._most:
            most = self._most >> 20
            raise InvalidInput(
                f"{size:,} bytes are too many: store less, or raise max_checkpoint_mb ({most})"
            )
        return dumped


def migrate(source: BaseCheckpointSaver[Any], target: MemoristSaver) -> int:
    """Copy everything from another saver, oldest first; return the number of checkpoints.

    Threads continue where they stopped. Copying again changes nothing, so it can be repeated after a
    failure.
    """
    tuples = builtins.list(source.list(None))
    for each in reversed(tuples):
        parent = get_checkpoint_id(each.parent_config) if each.parent_config else None
        named = {**each.config["configurable"], "checkpoint_id": parent}
        target.put({"configurable": named}, each.checkpoint, each.metadata, {})
    for each in tuples:
        writes: builtins.list[TaskWrite] = []
        for position, (task, channel, value) in enumerate(each.pending_writes or ()):
            place = WRITES_IDX_MAP.get(channel, position)
            ((_, dumped),) = target._dump([(channel, value)])
            # Pending writes have no task path: the position preserves their order.
            writes.append(
                TaskWrite(
                    task,
                    place,
                    f"{position:08}",
                    channel,
                    dumped,
                )
            )
        id = each.config["configurable"]["checkpoint_id"]
        target._loop.run(target._graphs.write(*_place(each.config), id, writes))
    return len(tuples)


def _place(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread and the namespace. Raises InvalidInput."""
    named = config.get("configurable", {})
    if "thread_id" not in named:
        raise InvalidInput(
            'A checkpoint belongs to a thread: pass {"configurable": {"thread_id": "…"}}'
        )
    return thread_name(str(named["thread_id"])), str(named.get("checkpoint_ns") or "")


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


def _words(metadata: Mapping[str, Any]) -> dict[str, str | None]:
    """Return metadata as JSON texts; equal values have equal texts, and None stays None.

    >>> _words({"b": {"d": 1.0, "c": [True]}, "a": 2.0, "e": None})
    {'b': '{"c": [true], "d": 1.0}', 'a': '2', 'e': None}
    """
    words: dict[str, str | None] = {}
    for name, value in metadata.items():
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        word = None if value is None else json.dumps(value, sort_keys=True, default=str)
        words[quote(str(name))] = word
    return words
