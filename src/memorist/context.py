"""What every feature function receives: the parts of an open memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from .index import SnapshotCache
from .ingest import validation
from .ingest.policies import Policy
from .ports import BudgetedModel, Embedder, EntityDetector, IdleWork, NearestRows, Reranker, Starter
from .retrieve.profiles import Profiles
from .settings import Settings
from .settings.allowlists import Access
from .storage.fingerprints import Fingerprints
from .storage.store import AccessLog, Store
from .telemetry import Observer
from .text import tokens
from .text.authority import Voice
from .text.clock import utcnow
from .types import Labels, Recall, Scope


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
    verifier: Reranker | None = None  # reads the best candidates of uncertain answers
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


class Place:
    """One scope of an open memory and the labels of the caller: what the verbs work on."""

    def __init__(self, ctx: Context, scope: Scope, labels: Labels) -> None:
        self.ctx = ctx
        self.scope = scope
        self.labels = labels
        self.parts = ctx, scope, labels
        self.voice = Voice()  # of the caller; a server sets another one
