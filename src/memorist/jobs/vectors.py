"""Embed memories that have no vector, and copy all vectors to an external index.

A memory has no vector after an outage, after a change of model, or if the policy defers embedding.
The index follows the change log of the store: each scope has a revision, each row the revision that
last changed it, and the index a position in the log that advances only after the index has accepted
everything before it. So nothing is lost if the index or the store is down, and applying the same
changes twice is harmless.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from zlib import crc32

import numpy as np

from ..context import Context
from ..embedders import encode
from ..errors import IndexUnavailable, InvalidInput, ProviderFailed, StoreUnavailable
from ..ingest import decide, transitions
from ..ingest.candidates import MOST
from ..ingest.policies import Bands
from ..ports import Embedder, IndexEntry, VectorIndex, Vectors
from ..storage import Event, Save, tasks
from ..storage.store import Store
from ..storage.tasks import Embedding
from ..storage.transaction import Transaction
from ..text import clock, entities, normalize, tokens
from ..types import Memory, Scope, frozen

LEASE_SECONDS = 120.0  # longer than a model may take for a batch
READ_NEAR = 32  # memories that are read to find a few of the same speaker
PAGE = 1024  # rows read from the store and put into the index at a time
LOCKS = 16
WAIT_SECONDS = 5.0  # a search waits for the index to catch up; loading its library takes a while
REST_SECONDS = 5.0  # before an index that failed is used again
POLL_SECONDS = 0.05


@frozen
class IndexReport:
    """What an indexing run did, or would do."""

    found: int
    embedded: int
    batches: int


async def backfill(
    ctx: Context,
    *,
    second: bool = False,
    batch_size: int = 32,
    force: bool = False,
    dry_run: bool = False,
    waiting: bool = False,
    lease_seconds: float = LEASE_SECONDS,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda done: None,
) -> IndexReport:
    """Embed what the model has not embedded yet; with `force` everything, with `waiting` only new
    memories, with `second` by the multilingual model.

    Each batch is claimed and committed separately: any number of processes share the work, an
    interrupted run continues where it stopped, and the claims of a killed process expire with their
    lease. A text that the model cannot embed is skipped, and the error is raised at the end. Raises
    InvalidInput if there is no model, ProviderFailed.
    """
    embedder = ctx.multilingual if second else ctx.embedder
    queue = ctx.store.embeddings
    if embedder is None:
        raise InvalidInput("No embedding model is configured: set `embedder` to minilm")
    dimensions = embedder.dimensions
    if dry_run:
        found = await queue.count(embedder.model, everything=force, dimensions=dimensions)
        progress(found)
        return IndexReport(found=found, embedded=0, batches=-(-found // batch_size))
    worker = clock.new_id()
    found = 0
    embedded = 0
    batches = 0
    after = 0
    problem: ProviderFailed | None = None
    while not stop():
        batch = await queue.claim(
            embedder.model,
            worker=worker,
            lease_seconds=lease_seconds,
            waiting=waiting,
            after=after,
            limit=batch_size,
            everything=force,
            dimensions=dimensions,
        )
        if not batch:
            break
        after = batch[-1][0]
        found += len(batch)
        batches += 1
        memories = [memory for _, memory in batch]
        try:
            vectors, error = await _encode(embedder, memories)
            await _save(ctx, embedder.model, memories, vectors, second=second)
        except StoreUnavailable:
            raise
        except ProviderFailed:
            with suppress(StoreUnavailable):
                nothing = [None] * len(memories)
                await _save(ctx, embedder.model, memories, nothing, second=second)
            raise
        finally:
            with suppress(StoreUnavailable):  # then the lease expires
                await asyncio.shield(queue.release(worker))
        embedded += sum(vector is not None for vector in vectors)
        problem = problem or error
        progress(embedded)
    if problem is not None:
        raise problem
    return IndexReport(found=found, embedded=embedded, batches=batches)


async def embed_now(ctx: Context, memories: Sequence[Memory]) -> None:
    """Embed a few memories without claiming them, if there is a model. Raises ProviderFailed."""
    if ctx.embedder is not None and memories:
        vectors, _ = await _encode(ctx.embedder, memories)
        await _save(ctx, ctx.embedder.model, memories, vectors)


async def _encode(
    embedder: Embedder, memories: Sequence[Memory]
) -> tuple[list[Vectors | None], ProviderFailed | None]:
    """Return the vectors, with None for each text that the model refuses, and the error.

    Raises ProviderFailed if the model is down.
    """
    texts = [tokens.meaning_of(memory) for memory in memories]
    try:
        return [*await encode(embedder, texts)], None
    except ProviderFailed as error:
        await encode(embedder, ["tea"])  # raises if the model is the cause, not one of the texts
        problem = error
    vectors: list[Vectors | None] = []
    for text in texts:
        vectors.append(None)
        with suppress(ProviderFailed):
            (vectors[-1],) = await encode(embedder, [text])
    return vectors, problem


async def _save(
    ctx: Context,
    model: str,
    memories: Sequence[Memory],
    vectors: Sequence[Vectors | None],
    *,
    second: bool = False,
) -> None:
    """Store the vectors, with one event per memory, and one per scope for those that failed.

    Vectors of the second model are not reported.
    """
    by_scope: dict[Scope, dict[str, tuple[str, Vectors | None]]] = {}
    for memory, vector in zip(memories, vectors, strict=True):
        by_scope.setdefault(memory.scope, {})[memory.id] = memory.text, vector
    for scope, given in by_scope.items():
        made = []
        events = []
        new = []
        event = Event(node="worker", op="embed", at=ctx.clock())
        async with ctx.store.transaction(scope) as tx:
            for memory in await tx.get(scope, list(given)):
                text, vector = given[memory.id]
                if vector is not None and memory.text == text:  # not edited since it was read
                    made.append(Embedding(memory_id=memory.id, model=model, vector=vector))
                    if memory.needs_embedding:
                        events.append(replace(event, memory_id=memory.id))
                        new.append((memory, vector))
            await tasks.save_embeddings(tx, made, second=second)
            if second:
                continue
            await _add_tags(ctx, tx, new)
            if made and not events:
                events.append(event)
            if any(vector is None for _, vector in given.values()):
                events.append(replace(event, status="error"))
            await tx.apply(events)


async def _add_tags(ctx: Context, tx: Transaction, new: Sequence[tuple[Memory, Vectors]]) -> None:
    """Add the tags that near memories propose to those that were stored without a vector.

    As when a memory is embedded at once, they come from the same speaker, role and subject, and
    only if the policy scores memories by their words.
    """
    taking = [each for each in new if "heuristics" in each[0].importance_parts]
    snapshot = await ctx.index.current(tx.scope, tx) if taking else None
    if snapshot is None or snapshot.matrix is None:
        return
    saves = []
    vectors = [vector for _, vector in taking]
    if snapshot.dimensions != len(vectors[0]):  # nothing has a vector of this model yet
        return
    found = snapshot.similarities(vectors, snapshot.alive)
    for (memory, _), cosines in zip(taking, found, strict=True):
        places = np.flatnonzero(snapshot.alive & (cosines >= Bands().check_low))
        best = places[np.argsort(-cosines[places], kind="stable")][:READ_NEAR]
        rows = snapshot.row[best].tolist()
        known = await tx.at_rows(tx.scope, rows) if rows else {}
        near = []
        for place, row in zip(best, rows, strict=True):
            other = known.get(row)
            if other is not None and other.id != memory.id and _source(other) == _source(memory):
                near.append((other, float(cosines[place])))
        proposed = decide.vote(near[:MOST])
        if proposed:
            linkless = normalize.remove_links(memory.text)
            about = entities.about(linkless, entities.entities(linkless))
            if ctx.entities is not None:  # its names are tags already
                about = [entities.Entity(tag, memory.metadata_confidence) for tag in memory.tags]
            tags, confidence = entities.tags([*about, *proposed])
            tagged = replace(
                memory,
                tags=transitions.union(memory.tags, tags),
                metadata_confidence=confidence,
                needs_embedding=False,
            )
            saves.append(Save(memory=tagged, event=None))
    await tx.apply(saves)


def _source(of: Memory) -> tuple[object, ...]:
    is_workflow = of.procedural_form == "workflow"
    return of.item_type, of.speaker, of.labels.role, of.labels.subject, is_workflow


class BackgroundFill:
    """Embeds in the background what the multilingual model has not embedded, one run at a time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._is_closed = False
        self._task: asyncio.Task[IndexReport] | None = None

    def start(self) -> None:
        """Begin, unless it is running or closed."""
        if self._is_closed or (self._task is not None and not self._task.done()):
            return
        run = backfill(self._ctx, second=True, stop=lambda: self._is_closed)
        self._task = asyncio.get_running_loop().create_task(run)
        # After a failure the next recall starts it again.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def close(self) -> None:
        """Stop after the current batch."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


class IndexSync:
    """Copies the vectors of the store into an index, scope by scope."""

    def __init__(
        self,
        store: Store,
        index: VectorIndex,
        *,
        model: str,
        dimensions: int,
    ) -> None:
        self.index = index
        self._store = store
        self._model = model
        self._dimensions = dimensions
        self._synced: dict[Scope, int] = {}  # revisions that the index is known to have
        self._tasks: dict[Scope, asyncio.Task[bool]] = {}
        self._error = ""  # of the last failure
        self._resumes_at = 0.0  # monotonic

    def notify(self, scope: Scope) -> None:
        """Start to copy the changes of a scope in the background."""
        # A failure is retried by the next change, search or worker.
        self._start(scope).add_done_callback(lambda task: task.cancelled() or task.exception())

    async def nearest(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        limit: int,
        revision: int,
    ) -> tuple[list[int], str]:
        """Search the index once it has caught up with `revision`. If that takes too long, search it
        as it is and return a status that says so.

        Raises IndexUnavailable.
        """
        status = "ok"
        if time.monotonic() < self._resumes_at:
            raise IndexUnavailable(self._error)
        try:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    while self._synced.get(scope, -1) < revision:
                        is_done = await asyncio.shield(self._start(scope))
                        if not is_done:  # another process is copying
                            await asyncio.sleep(POLL_SECONDS)
            except TimeoutError:
                status = "the vector index is still being filled"
            return await self.index.nearest(scope, vector, limit=limit), status
        except IndexUnavailable as error:
            self._error = str(error)
            self._resumes_at = time.monotonic() + REST_SECONDS
            raise

    def _start(self, scope: Scope) -> asyncio.Task[bool]:
        task = self._tasks.get(scope)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self.sync(scope))
            self._tasks[scope] = task
        return task

    async def sync(self, scope: Scope) -> bool:
        """Copy the changes up to the newest revision of a scope; return False if another process is
        copying them.

        Raises IndexUnavailable, StoreUnavailable.
        """
        # Scopes share a fixed set of locks, so the number of locks does not grow with them.
        key = repr((self.index.name, scope.tenant, scope.user, scope.space))
        number = crc32(key.encode("utf-8", "surrogatepass")) % LOCKS
        async with self._store.database.try_lock(f"index-{number:x}") as is_alone:
            if is_alone:
                await self._copy(scope)
        return is_alone

    async def rebuild(self, progress: Callable[[int], None] = lambda done: None) -> int:
        """Empty the index and fill it from the store; return the number of its entries."""
        await self.index.clear()
        for done, scope in enumerate(await self._store.scopes(), 1):
            await self._store.set_index_position(scope, self.index.name, 0)
            self._synced.pop(scope, None)
            await self.sync(scope)
            progress(done)
        return await self.index.count()

    async def close(self) -> None:
        """Wait for copies in progress, then close the index."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.index.close()

    async def _copy(self, scope: Scope) -> None:
        since = await self._store.index_position(scope, self.index.name)
        revision = since
        after: int | None = 0
        while after is not None:
            delta = await self._store.changed_since(
                scope,
                since,
                model=self._model,
                limit=PAGE,
                after=after,
            )
            if not after:
                revision = delta.revision  # of the first page
            entries = []
            deleted = list(delta.gone)
            for row in delta.rows:
                if row.vector is None or len(row.vector) != 4 * self._dimensions:
                    deleted.append(row.row)
                    continue
                created = datetime.fromtimestamp(row.created / 1e6, UTC)
                entry = IndexEntry(
                    row=row.row,
                    vector=np.frombuffer(row.vector, "<f4").astype(np.float32),
                    about={
                        "tenant": scope.tenant,
                        "user_id": scope.user,
                        "space": scope.space,
                        "session_id": row.session or "",
                        "memory_type": row.kind,
                        "importance": float(row.importance),
                        "compressed": row.state == "compressed",
                        "created_at": created.isoformat(timespec="microseconds"),
                    },
                )
                entries.append(entry)
            if deleted:
                await self.index.delete(scope, deleted)
            if entries:
                await self.index.put(scope, entries)
            after = delta.next
        if revision != since:
            await self._store.set_index_position(scope, self.index.name, revision)
        self._synced[scope] = revision
