"""A memory that is open, async. `scope` gives the part of it that belongs to someone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import inputs, transfer
from .corpus import Corpora
from .errors import InvalidInput
from .lifecycle import backfill
from .lifecycle.usage import Usage
from .model import Receipt, Scope
from .ports import Embedder, Reranker, Store
from .scoped import Scoped
from .text import tokens

if TYPE_CHECKING:
    from .settings import Settings


def utcnow() -> datetime:
    return datetime.now(UTC)


class Engine:
    """A memory that is open. Whoever opened it closes it."""

    def __init__(
        self,
        *,
        store: Store,
        embedder: Embedder | None,
        reranker: Reranker | None,
        settings: Settings,
        clock: Callable[[], datetime] = utcnow,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.store, self.embedder, self.reranker = store, embedder, reranker
        self.settings, self.clock, self.count_tokens = settings, clock, count_tokens or tokens.count_tokens
        self.corpora = Corpora(
            model=embedder.model if embedder else "",
            dimensions=embedder.dimensions if embedder else 1,
            limit_bytes=settings.corpus_mb << 20,
        )
        self.usage = Usage(store)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def scope(self, user: str, space: str | None = None, tenant: str | None = None, **labels: str | None) -> Scoped:
        """The memory of one user in one space. Labels such as `session` or `agent` go with everything done through it.

        Raises InvalidInput if a name is missing or no text.
        """
        names = {
            "user": user,
            "space": self.settings.space if space is None else space,
            "tenant": self.settings.tenant if tenant is None else tenant,
        }
        scope = Scope(**{name: inputs.name(name, value) for name, value in names.items()})
        return Scoped(self, scope, inputs.labels(labels))

    async def scopes(self) -> list[Scope]:
        """Everybody something is remembered of."""
        return await self.store.scopes()

    async def stats(self) -> dict[str, Any]:
        """Counts and sizes of the whole store."""
        return await self.store.stats(None, self.corpora.model)

    async def index(
        self,
        *,
        batch_size: int = 32,
        force: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> backfill.Indexed:
        """Embed what has no vector of the current model, or everything with `force`. Raises EmbedderUnavailable."""
        if self.embedder is None:
            raise InvalidInput("There is no embedding model to index with: set `embedder` to minilm")
        inputs.number("batch_size", batch_size)
        return await backfill.backfill(
            self.store, self.embedder, batch_size=batch_size, force=force, dry_run=dry_run, progress=progress
        )

    def export(self) -> AsyncIterator[dict[str, Any]]:
        """Everything that is kept, record by record, as `import_` takes it."""
        return transfer.exported(self.store, None)

    async def import_(self, records: Iterable[Mapping[str, Any]]) -> Receipt:
        """Take in exported records, each into the scope it came from. Doing it twice changes nothing.

        Raises InvalidInput at the first record that cannot be read; what stood before it has been taken in.
        """
        return await transfer.imported(records, None, self)

    async def backup(self, path: str | Path) -> None:
        """A complete copy, taken while others write."""
        await self.store.backup(Path(path))

    async def vacuum(self) -> None:
        """Give unused space back to the disk."""
        await self.store.vacuum()

    async def check(self) -> list[str]:
        """What is wrong with the stored data; empty if nothing is."""
        return await self.store.check()

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""
        try:
            await self.usage.close()
        finally:
            for part in (self.embedder, self.reranker, self.store):
                if part is not None:
                    await part.close()
