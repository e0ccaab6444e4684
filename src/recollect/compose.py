"""Settings in, engine out: the one place that knows which parts there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .engine import Engine
from .errors import Misconfigured
from .ports import Embedder, Reranker, Store
from .settings import Settings, load


async def open_engine(db: str | Path | None = None, **settings: Any) -> Engine:
    """Open a memory. Raises Misconfigured, StoreUnavailable, StoreDamaged, MigrationNeeded."""
    chosen = load(db=None if db is None else str(db), **settings)
    embedder = _embedder(chosen)
    reranker = _reranker(chosen, embedder)
    return Engine(store=await _store(chosen), embedder=embedder, reranker=reranker, settings=chosen)


async def _store(settings: Settings) -> Store:
    if "://" in settings.db and not settings.db.startswith("file:"):
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

    directory = settings.state_dir / "embeddings_cache"
    return Cached(MiniLM(), directory, limit_bytes=settings.cache_mb << 20)


def _reranker(settings: Settings, embedder: Embedder | None) -> Reranker | None:
    if settings.reranker == "maxsim":
        from .embedders.minilm import MiniLM
        from .rerankers.maxsim import MaxSim

        loaded = getattr(embedder, "_embedder", None)  # under the cache: one model in the process is enough
        return MaxSim(loaded if isinstance(loaded, MiniLM) else MiniLM())
    if settings.reranker == "cross-encoder":
        from .rerankers.cross_encoder import CrossEncoder

        if settings.cross_encoder is None:
            raise Misconfigured("Setting 'cross_encoder': name the folder that holds model.onnx and vocab.txt")
        return CrossEncoder(settings.cross_encoder)
    return None
