"""Settings in, engine out: the one place that knows which parts there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .engine import Engine
from .errors import InvalidInput, Misconfigured
from .policy import profiles, writing
from .ports import Embedder, Reranker, Store
from .settings import Settings, load
from .text import tokens


async def open_engine(
    db: str | Path | None = None, *, count_tokens: Callable[[str], int] | None = None, **settings: Any
) -> Engine:
    """Open a memory; `count_tokens` says what a text costs.

    Raises Misconfigured, StoreUnavailable, StoreDamaged, MigrationNeeded.
    """
    chosen = load(db=None if db is None else str(db), **settings)
    _check(chosen)
    embedder = _embedder(chosen)
    reranker = _reranker(chosen, embedder)
    return Engine(
        store=await _store(chosen), embedder=embedder, reranker=reranker, settings=chosen, count_tokens=count_tokens
    )


def _check(settings: Settings) -> None:
    """Raises Misconfigured for a name that nothing goes by, before anything is opened."""
    try:
        profiles.named(settings.profile)
        writing.named(settings.policy)
        tokens.analyse("words", settings.language)
    except (InvalidInput, ImportError) as error:
        named = f"no stemmer for {settings.language!r}" if isinstance(error, ImportError) else str(error)
        raise Misconfigured(f"A setting cannot be used: {named}") from error


async def _store(settings: Settings) -> Store:
    if "://" in settings.db:
        raise Misconfigured(f"Recollect cannot open {settings.db.split('://')[0]}:// yet: name a file, or :memory:")
    from .storage.sqlite.store import SqliteStore

    return await SqliteStore.open(settings.db, language=settings.language)


def _embedder(settings: Settings) -> Embedder | None:
    if settings.embedder == "none":
        return None
    if settings.embedder == "hashing":
        from .embedders.hashing import Hashing

        return Hashing()
    from .embedders.cached import Cached
    from .embedders.minilm import MiniLM

    if settings.cache_mb == 0:
        return MiniLM()
    directory = settings.state_dir / "embeddings_cache"
    return Cached(MiniLM(), directory, limit_bytes=settings.cache_mb << 20)


def _reranker(settings: Settings, embedder: Embedder | None) -> Reranker | None:
    if settings.reranker == "maxsim":
        from .embedders.minilm import MiniLM
        from .rerankers.maxsim import MaxSim

        loaded = getattr(embedder, "inner", embedder)  # under the cache: one model in the process is enough
        return MaxSim(loaded if isinstance(loaded, MiniLM) else MiniLM())
    if settings.reranker == "cross-encoder":
        from .rerankers.cross_encoder import CrossEncoder

        if settings.cross_encoder is None:
            raise Misconfigured("Setting 'cross_encoder': name the folder that holds model.onnx and vocab.txt")
        return CrossEncoder(settings.cross_encoder)
    return None
