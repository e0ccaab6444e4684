"""The ports to providers. A docstring here is a contract; `tests/contract` checks every provider
against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .text.entities import Entity
from .text.prompts import ModelAnswer, Prompt
from .types import Scope, frozen

Vectors = NDArray[np.float32]
FindNames = Callable[[str], list[Entity]]


class Closable(Protocol):
    """A provider that releases its resources when it is closed."""

    async def close(self) -> None: ...


class Embedder(Closable, Protocol):
    """Turns texts into vectors of one model."""

    @property
    def model(self) -> str:
        """The name of the vector space: vectors of different models are never compared."""
        ...

    @property
    def dimensions(self) -> int: ...

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order: shape (len(texts), dimensions).

        The row of a text does not depend on the other texts. Raises EmbedderUnavailable.
        """
        ...


class Starter(Closable, Protocol):
    """Work in the background."""

    def start(self) -> None:
        """Begin soon, unless it is running."""
        ...


@runtime_checkable
class Forgetful(Protocol):
    """An embedder that caches texts or their vectors, and can delete them."""

    async def forget(self, texts: Sequence[str]) -> None:
        """Delete everything that is cached for these texts."""
        ...


class Reranker(Closable, Protocol):
    """Scores a question and each text together: slower and more precise than vectors."""

    @property
    def name(self) -> str: ...

    async def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return how well each text answers, from 0 to 1, in order. Raises ProviderFailed."""
        ...


class Verdicts(NamedTuple):
    """What a `PairReader` says of pairs of texts, as log odds: one number for each pair."""

    answers: NDArray[np.float32]  # the second text has what the first, a question, asks for
    supports: NDArray[np.float32]  # the second text says what the first, a statement, claims


class PairReader(Closable, Protocol):
    """Reads two texts together and says how they are related. It reads English."""

    @property
    def name(self) -> str: ...

    async def read_pairs(self, pairs: Sequence[tuple[str, str]]) -> Verdicts:
        """Return what it says of each pair, in order. Raises ProviderFailed."""
        ...


class LanguageModel(Closable, Protocol):
    """Answers prompts with values that fit a schema."""

    @property
    def name(self) -> str: ...

    async def answer(self, ask: Prompt) -> ModelAnswer:
        """Return an answer that fits the schema; ask once more if the first does not.

        Raises ModelUnavailable if none arrives in time, BadModelAnswer if none can be used.
        """
        ...


class EntityDetector(Closable, Protocol):
    """Finds the names of people, places and things in texts."""

    @property
    def name(self) -> str: ...

    async def detect(self, texts: Sequence[str]) -> list[list[Entity]]:
        """Return the names in each text, as they are written there. Raises ProviderFailed."""
        ...


class BudgetedModel(Closable, Protocol):
    """A language model that charges each call to the budget of a scope."""

    async def answer(self, scope: Scope, ask: Prompt) -> Mapping[str, Any]:
        """Return a value that fits the schema of the question, and charge its cost to the scope.

        Raises ModelUnavailable, BadModelAnswer or OverBudget: then rules do the work, and the
        receipt says so.
        """
        ...


class IndexRow(NamedTuple):
    """What the legs of recall need to know about one memory, without its text."""

    row: int  # number of the row in the store; a memory keeps it for life
    state: str
    session: str | None
    sequence: int | None
    speaker: str | None
    channel: str | None
    kind: str
    occurred: int | None  # this and the next five: microseconds since 1970
    created: int
    updated: int
    valid_from: int | None
    valid_to: int | None
    expires: int | None
    importance: float
    confidence: float
    pinned: bool
    simhash: int
    flags: int  # as `text.cues` sets them
    terms: bytes  # as `text.tokens` packs them
    vector: bytes | None  # float32, or None if the model has not embedded it
    second: bytes | None = None  # of the second model
    source: int | None = None  # row of the turn that a fact was extracted from


@frozen
class Delta:
    """What changed in a scope."""

    revision: int  # of the scope, when this page was read
    rows: list[IndexRow] = field(default_factory=list)  # as they are now
    gone: list[int] = field(default_factory=list)  # erased since; only on the first page
    next: int | None = None  # where the next page begins
    total: int = 0  # how many rows changed, on the first of several pages


class ChangeSource(Protocol):
    """Reports what changed in a scope, to bring a snapshot of it up to date."""

    async def changed_since(
        self,
        scope: Scope,
        revision: int,
        *,
        model: str,
        limit: int,
        after: int = 0,
        second: str | None = None,
    ) -> Delta:
        """Return what changed after a revision, in pages of at most `limit` rows, by row number."""
        ...


@frozen
class LlmUsage:
    """What one task of a language model cost in a scope on one day."""

    scope: Scope
    day: str  # 2026-11-16, UTC
    task: str
    model: str
    calls: int
    tokens_in: int
    tokens_out: int
    reserved: int = 0  # tokens reserved for calls that are running or never returned


class TokenLedger(Protocol):
    """Counts the tokens of language models against daily caps."""

    async def reserve(self, usage: LlmUsage, *, user_cap: int, tenant_cap: int) -> bool:
        """Reserve tokens for a call; False if that would exceed a cap (0: no cap)."""
        ...

    async def settle(self, usage: LlmUsage) -> None:
        """Replace the reservation of a call by its cost."""
        ...


@frozen
class IndexEntry:
    """A memory in a vector index: its row in the store, its vector, and fields to filter on."""

    row: int
    vector: Vectors
    # user_id, session_id, memory_type, importance, compressed, created_at …
    about: Mapping[str, str | float | bool]


class VectorIndex(Closable, Protocol):
    """Finds near vectors outside this process. It holds derived data that is filled from the store
    and checked against it.

    Every method raises IndexUnavailable if the index does not answer in time.
    """

    @property
    def name(self) -> str:
        """The name of the index and its location: another name is another, empty index."""
        ...

    async def put(self, scope: Scope, entries: Sequence[IndexEntry]) -> None:
        """Add entries, or replace those of the same rows."""
        ...

    async def delete(self, scope: Scope, rows: Sequence[int]) -> None:
        """Remove rows; a missing row is not an error."""
        ...

    async def nearest(self, scope: Scope, vector: Vectors, *, limit: int) -> list[int]:
        """Return the rows of a scope with the nearest vectors by cosine, nearest first.

        The search may be approximate.
        """
        ...

    async def clear(self) -> None:
        """Remove everything of this store and model, so that it can be filled again."""
        ...

    async def count(self) -> int:
        """Return the number of entries of this store and model."""
        ...


class NearestRows(Closable, Protocol):
    """Answers for the dense leg of scopes whose vectors are not held in this process."""

    async def nearest(
        self, scope: Scope, vector: Vectors, *, limit: int, revision: int
    ) -> tuple[list[int], str]:
        """Return the nearest rows at a revision of the scope, and "ok" or what is wrong.

        Raises ProviderFailed.
        """
        ...

    def notify(self, scope: Scope) -> None:
        """Bring the index up to date with the scope soon, in the background."""
        ...

    async def sync(self, scope: Scope) -> bool:
        """Bring the index up to date with the scope now; False if another process is doing it."""
        ...
