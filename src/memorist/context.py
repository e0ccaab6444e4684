"""What every feature function receives: the parts of an open memory, whether it is on, and a thread
for what takes long.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from .errors import Busy, StoreUnavailable
from .index import SnapshotCache
from .ingest import validation
from .ingest.policies import Policy
from .ports import (
    BudgetedModel,
    Embedder,
    EntityDetector,
    IdleWork,
    NearestRows,
    PairReader,
    Reranker,
    Starter,
)
from .retrieve.profiles import Profiles
from .settings import Settings
from .settings.allowlists import Access
from .storage import Checks
from .storage.fingerprints import Fingerprints
from .storage.queries import Reader
from .storage.store import AccessLog, Store
from .telemetry import Observer, observe
from .text import tokens
from .text.authority import Voice
from .text.clock import utcnow
from .text.second_process import LONG
from .types import Labels, Recall, Scope

P = ParamSpec("P")
T = TypeVar("T")
Verb = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
Recaller = Callable[..., Awaitable[Recall]]  # has the arguments of `retrieve.pipeline.recall`
Disabled = Mapping[str | None, str]  # sessions in which memory is disabled, with the reason
INCOGNITO = "this session is incognito: nothing is stored and nothing is recalled"
OFF = "memory is off in this space: `memorist privacy set on` turns it on"
OFF_EVERYWHERE = (
    "memory is off: disabled by MEMORIST_MEMORY_ENABLED, MILTON_MEMORY_ENABLED or the setting"
    " `memory_enabled`"
)
MOST_KNOWN = 10_000  # sessions in which memory was found disabled
_VARIABLES = ("MEMORIST_MEMORY_ENABLED", "MILTON_MEMORY_ENABLED")
_YES = frozenset("1 true yes on t y".split())
ROW = 16  # characters that take as long as a row of a table


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
    extractor: IdleWork | None = None  # extracts facts soon after turns were stored
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


class Place:
    """One scope of an open memory and the labels of the caller: what the verbs work on."""

    def __init__(self, ctx: Context, scope: Scope, labels: Labels) -> None:
        self.ctx = ctx
        self.scope = scope
        self.labels = labels
        self.parts = ctx, scope, labels
        self.voice = Voice()  # of the caller; a server sets another one
        self.recall_offline: Recaller | None = None  # recalls also while the database is down


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
