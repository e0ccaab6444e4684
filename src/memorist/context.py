"""What every feature function receives: the parts of an open memory, and whether it is on.

Also what runs beside a call: long computations in a thread, accesses that are written later, and
work that waits until nothing is stored.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from .errors import Busy, MemoristError, NotAllowed, StoreUnavailable
from .index import SnapshotCache
from .ingest import validation
from .ingest.policies import Policy
from .ports import (
    BudgetedModel,
    Embedder,
    EntityDetector,
    NearestRows,
    PairReader,
    Reranker,
    Starter,
)
from .retrieve.profiles import Profiles
from .settings import Settings
from .settings.allowlists import Access
from .storage import Checks, Event
from .storage.fingerprints import Fingerprints
from .storage.queries import Reader
from .storage.store import MemoryAccess, Store, record_access
from .telemetry import Observer, observe
from .text import tokens
from .text.clock import utcnow
from .text.cues import is_own_role, speaker_of
from .text.second_process import LONG, compute_shared
from .types import Draft, Labels, Memory, Recall, Scope, frozen

P = ParamSpec("P")
T = TypeVar("T")
Given = TypeVar("Given")
Verb = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
Recaller = Callable[..., Awaitable[Recall]]  # has the arguments of `retrieve.pipeline.recall`
Use: TypeAlias = MemoryAccess | Event | Callable[[], Event]
Disabled = Mapping[str | None, str]  # sessions in which memory is disabled, with the reason
INCOGNITO = "this session is incognito: nothing is stored or recalled"
OFF = "memory is off in this space: `memorist privacy set on` turns it on"
OFF_EVERYWHERE = (
    "memory is off: disabled by MEMORIST_MEMORY_ENABLED, MILTON_MEMORY_ENABLED or the setting"
    " `memory_enabled`"
)
MOST_KNOWN = 10_000  # sessions in which memory was found disabled
_VARIABLES = ("MEMORIST_MEMORY_ENABLED", "MILTON_MEMORY_ENABLED")
_YES = frozenset("1 true yes on t y".split())
ROW = 16  # characters that take as long as a row of a table
RECENCY_TAU = timedelta(days=7)  # the recency of a memory falls to 1/e in this time
MOST_ACCESSES = 256  # buffered before they are written
FLUSH_SECONDS = 1.0
IDLE_SECONDS = 3.0  # after the last write
CLOSING_SECONDS = 2.0  # how long closing waits; what is left then is done by the next process


@dataclass(slots=True, kw_only=True)
class Context:
    """The parts of an open memory. `aio.py` builds one; the client closes its parts."""

    store: Store
    index: SnapshotCache
    settings: Settings
    access_log: AccessLog
    allowlists: Access
    profiles: Profiles  # ranking profiles by name
    policies: dict[str, Policy]  # write policies by name
    embedder: Embedder | None = None
    multilingual: Embedder | None = None  # a second model, used by recall alone
    filler: Starter | None = None  # adds vectors of the second model where they are missing
    extractor: IdleRunner | None = None  # extracts facts soon after turns were stored
    reranker: Reranker | None = None
    verifier: PairReader | None = None  # reads a question with an answer, or two statements
    llm: BudgetedModel | None = None  # None: rules do what a language model would
    entities: EntityDetector | None = None  # None: rules find names
    external_index: NearestRows | None = None
    has_spool: bool = False  # writes are spooled while the store is unavailable
    clock: Callable[[], datetime] = utcnow
    count_tokens: Callable[[str], int] = tokens.count_tokens
    observers: list[Observer] = field(default_factory=list)
    # Of the scope that is being imported into.
    fingerprints: dict[Scope, Fingerprints] = field(default_factory=dict)
    # Why memory was last found disabled, by scope and session: used while the store is down.
    disabled: dict[tuple[Scope, str | None], str] = field(default_factory=dict)
    # What was recalled for the last message of each conversation: the reply is compared with it.
    awaiting_reply: dict[tuple[Scope, str | None], Recall] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """The write policy that the settings name. Raises InvalidInput."""
        return validation.policy(self.policies, self.settings.policy, self.settings.capacity)

    def storing(self) -> AbstractContextManager[None]:
        """Extract nothing while something is stored."""
        return nullcontext() if self.extractor is None else self.extractor.pause()

    def at(self, now: datetime) -> Context:
        """Return the same context with the clock stopped at a time."""
        return replace(self, clock=lambda: now)

    async def load_disabled(
        self,
        reading: Reader,
        scope: Scope,
        sessions: Iterable[str | None],
        hashes: Collection[str] = (),
    ) -> tuple[Disabled, Checks | None]:
        """Return the sessions in which memory is disabled, with the reasons, and the checks read.

        Memory is disabled if it is off everywhere or in the space, or the session is incognito.
        While the store is unavailable, the last known state applies. Raises StoreUnavailable
        without a spool.
        """
        asked = set(sessions)
        everywhere = "" if self.settings.memory_enabled else OFF_EVERYWHERE
        for name in _VARIABLES:
            value = os.environ.get(name, "").strip()
            if value and value.lower() not in _YES:
                everywhere = OFF_EVERYWHERE
        found: dict[str | None, str] = {}
        checks = None
        try:
            checks = await reading.checks(scope, sessions=asked, hashes=hashes)
        except StoreUnavailable as error:
            if not self.has_spool or isinstance(error, Busy):
                raise
        for session in asked:
            if checks is None:
                why = self.disabled.get((scope, session)) or everywhere
            else:
                reason = everywhere or ("" if checks.settings.memory_enabled else OFF)
                why = INCOGNITO if session in checks.incognito else reason
                if why or (scope, session) in self.disabled:
                    self.note_disabled(scope, session, why)
            if why:
                found[session] = why
        return found, checks

    def note_disabled(self, scope: Scope, session: str | None, why: str) -> None:
        """Note whether memory is disabled in a session, for use while the store is unavailable."""
        self.disabled.pop((scope, session), None)
        if why:
            self.disabled[scope, session] = why
        if len(self.disabled) > MOST_KNOWN:
            del self.disabled[next(iter(self.disabled))]


@frozen
class Voice:
    """On whose behalf a caller speaks. Without an agent, the application names the speakers."""

    agent: str | None = None  # the only one whose words the caller can store
    is_owner: bool = True  # whether the caller may save on purpose and give commands for the user

    def speak(self, draft: Draft) -> Draft:
        """Return a draft in this voice. Raises NotAllowed."""
        if draft.pinned or draft.manually_saved:
            self.require_owner("Saving explicitly (`pinned`, `manually_saved`)")
        if self.agent is None:
            return draft
        role = "assistant" if is_own_role(draft.labels.role) else draft.labels.role
        labels = replace(draft.labels, role=role, agent=self.agent)
        return replace(draft, labels=labels, speaker=speaker_of(role, self.agent))

    def require_rewording(self, memory: Memory) -> None:
        """Raise NotAllowed unless the caller may change the words of a memory."""
        if self.agent not in (None, memory.speaker):
            raise NotAllowed("A caller bound to an agent can only edit what this agent said")
        if memory.on_purpose:
            self.require_owner("Editing what was saved explicitly")

    def require_removal(self, memories: Iterable[Memory]) -> None:
        """Raise NotAllowed unless the caller may remove memories."""
        if any(memory.on_purpose for memory in memories):
            self.require_owner("Removing what was saved explicitly")

    def require_owner(self, what: str) -> None:
        """Raise NotAllowed unless the caller may do something on behalf of the user."""
        if not self.is_owner:
            raise NotAllowed(f"{what} needs a key with the right 'owner', which is not for agents")


class Place:
    """One scope of an open memory and the labels of the caller: what the verbs work on."""

    def __init__(self, ctx: Context, scope: Scope, labels: Labels) -> None:
        self.ctx = ctx
        self.scope = scope
        self.labels = labels
        self.parts = ctx, scope, labels
        self.voice = Voice()  # of the caller; a server sets another one
        self.recall_offline: Recaller | None = None  # recalls also while the database is down
        self.command_id: str | None = None  # of the chat command that is carried out here


def observed(what: str, count: Callable[[Any], int]) -> Callable[[Verb[P, T]], Verb[P, T]]:
    """Decorate a verb of a `Place` so that it is observed; `count` returns how many memories a
    result concerns.
    """

    def wrap(method: Verb[P, T]) -> Verb[P, T]:
        @functools.wraps(method)
        async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if not self.ctx.observers:
                return await method(self, *args, **kwargs)
            with observe(self.ctx.observers, what) as report_count:
                result = await method(self, *args, **kwargs)
                report_count(count(result))
                return result

        return call

    return wrap


async def compute(size: int, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Call a function that works on so many characters, in a thread if that takes long."""
    if size <= LONG:
        return work(*args, **named)
    return await asyncio.to_thread(work, *args, **named)


async def compute_each(
    size: int,
    work: Callable[Concatenate[Given, P], T],
    items: Sequence[Given],
    *args: P.args,
    **named: P.kwargs,
) -> list[T]:
    """Call a pure function for each item, all of them with so many characters.

    If that takes long, it is done in a thread or shared with a second process.
    """
    if size <= LONG:
        return [work(item, *args, **named) for item in items]
    return await compute_shared(work, items, *args, **named)


def access_scores(memory: Memory, relevance: float, now: datetime) -> dict[str, Any]:
    """Return relevance, recency and importance, unweighted, and their sum."""
    age = max(0.0, (now - memory.created_at).total_seconds())
    recency = math.exp(-age / RECENCY_TAU.total_seconds())
    return {
        "relevance": relevance,
        "recency": recency,
        "importance": memory.importance,
        "total": relevance + recency + memory.importance,
    }


class AccessLog:
    """Buffers accesses and events and writes them shortly after; `flush` writes them now.

    An event that takes time to find out is given as a function, which is called then.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[Scope, list[Use]] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(self, scope: Scope, uses: Sequence[Use]) -> None:
        """Buffer accesses or events to be written later."""
        if not uses:
            return
        self._waiting.setdefault(scope, []).extend(uses)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._flush_later())
        if sum(map(len, self._waiting.values())) >= MOST_ACCESSES:
            self._hurry.set()

    async def flush(self) -> None:
        """Write the buffer. A failure loses statistics, never a memory."""
        waiting = self._waiting
        self._waiting = {}
        for scope, uses in waiting.items():
            with suppress(MemoristError):
                accesses = [use for use in uses if isinstance(use, MemoryAccess)]
                events = [use for use in uses if isinstance(use, Event)]
                events += [use() for use in uses if callable(use)]
                async with self._store.transaction(scope) as tx:
                    await tx.apply(events)
                    await record_access(tx, accesses)

    async def close(self) -> None:
        """Write the buffer and stop. A write in progress is not interrupted."""
        self._hurry.set()
        if self._task is not None:
            await self._task
        await self.flush()

    async def _flush_later(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), FLUSH_SECONDS)
            self._hurry.clear()
            await self.flush()


class IdleRunner:
    """Runs a step until it finds no work when nothing was stored for a moment, and before closing,
    for a process without a worker. What another process left is found after opening and recalling.
    """

    def __init__(self, step: Callable[[], Awaitable[bool]], *, is_quick: bool = True) -> None:
        self._step = step
        self._is_quick = is_quick  # whether closing has time for it even if nothing was stored
        self._has_news = False  # something was stored since the last run began
        self._is_storing = 0  # calls that store something now
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop after the current step while something is stored; begin a moment after."""
        self._is_storing += 1
        self._has_news = True
        self._cancel_timer()
        try:
            yield
        finally:
            self._is_storing -= 1
            self._cancel_timer()
            self.start()

    def start(self, *, has_news: bool = False) -> None:
        """Begin in a moment, unless something is being stored or this is planned already."""
        self._has_news |= has_news
        if self._timer is None and not self._is_storing:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._begin)

    async def close(self) -> None:
        """Do what is due, as far as there is time."""
        self._cancel_timer()
        is_due = self._has_news or self._is_quick
        if self._task is not None and not self._task.done():
            is_due = True
            self._task.cancel()  # its step is given back
            await asyncio.gather(self._task, return_exceptions=True)
        if is_due:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await self._run()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        else:
            self.start()  # it may stop after its step

    async def _run(self) -> None:
        """Run steps until there is no work, or something is stored again."""
        self._has_news = False
        with suppress(MemoristError, OSError):  # the next run tries again
            while not self._has_news and await self._step():
                pass
