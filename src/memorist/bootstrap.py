"""Settings in, engine out: the one place that knows which parts there are."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from .client import Client
from .context import Context, utcnow
from .dialects import catalog
from .errors import InvalidInput, Misconfigured, NotFound, StoreFull, StoreUnavailable
from .index import SnapshotCache
from .ingest import policies
from .jobs.index_sync import IndexSync, StoreSearch
from .jobs.worker import Worker
from .offline.outage import Down, Offline, Switch
from .offline.spool import Spool
from .ports import BudgetedModel, Embedder, NearestRows, Reranker
from .retrieve import profiles
from .settings import Settings, allowlists, load
from .settings.options import Options
from .storage.access_log import AccessLog
from .storage.store import Store
from .telemetry import span_observer
from .text import tokens

if TYPE_CHECKING:
    from pydantic import SecretStr

    from .llms.budget import Breaker
    from .storage.store import Store
    from .storage.tables import Copied

    Opening = Callable[[Settings], Awaitable[Store]]

ARCHIVE = ".jsonl"  # what the name of a store that is a text file ends with
TENDED_AT_ONCE = 8  # memories embedded together in the background of a process that also answers
TENDED_SECONDS = 2.0  # that closing waits for a duty
LEAN_FROM = (
    250_000  # memories of a scope whose vectors are left to a store that searches them itself
)


async def open_client(
    db: str | Path | None = None,
    *,
    count_tokens: Callable[[str], int] | None = None,
    **settings: Unpack[Options],
) -> Client:
    """Open a memory; `count_tokens` says what a text costs.

    Raises Misconfigured, StoreUnavailable, StoreDamaged, MigrationNeeded.
    """
    chosen = load(db=None if db is None else str(db), **settings)
    _check(chosen)
    embedder = _embedder(chosen)
    reranker = _reranker(chosen, embedder)
    model = language_model(chosen)
    observers = [span_observer()] if chosen.otel else []
    down: Down = {}
    spool = Spool.of(chosen)
    store = await (_store(chosen) if spool is None else _offline_store(chosen, spool, down))
    external_index, usual = await _external_index(chosen, store, embedder)
    ctx = Context(
        store=store,
        index=SnapshotCache(
            model=embedder.model if embedder else "",
            dimensions=embedder.dimensions if embedder else 1,
            limit_bytes=chosen.index_cache_mb << 20,
            lean_from=usual if chosen.vector_index_from is None else chosen.vector_index_from,
        ),
        settings=chosen,
        access_log=AccessLog(store),
        allowlists=allowlists.load(chosen.categories),
        profiles=catalog.PROFILES,
        policies=dict(catalog.POLICIES),
        embedder=embedder,
        reranker=reranker,
        llm=None if model is None else _metered(chosen, model, store),
        external_index=external_index,
        has_spool=spool is not None,
        count_tokens=count_tokens or tokens.count_tokens,
        observers=observers,
    )
    offline = None
    if spool is not None:
        offline = Offline(ctx, spool, down, lambda: _store(chosen))
        await offline.start()
    client = Client(ctx, offline)
    if chosen.run_jobs:
        client.background = Worker(ctx, batch_size=TENDED_AT_ONCE, drain_seconds=TENDED_SECONDS)
        client.background.start()
    return client


async def copied(
    source: str, target: str, *, progress: Callable[[int, int], None] = lambda done, of: None
) -> Copied:
    """Copy a whole store into a new one, or go on with a copy; a name in `.jsonl` is a text file with everything in it.

    Raises NotFound, RevisionConflict, InvalidInput, StoreUnavailable.
    """
    from .storage import archive
    from .storage.copy import copy

    if source.endswith(ARCHIVE):
        return await _with(
            load(db=target), lambda store: archive.read(Path(source), store, progress), _any_store
        )
    _there(source)
    if source == target:
        raise InvalidInput(
            "Source and target are the same: name a new file or database as the target"
        )
    if target.endswith(ARCHIVE):
        return await _with(
            load(db=source), lambda store: archive.write(store, Path(target), progress)
        )
    return await _with(
        load(db=source),
        lambda one: _with(load(db=target), lambda other: copy(one, other, progress), _any_store),
    )


async def _with(
    settings: Settings,
    work: Callable[[Store], Awaitable[Copied]],
    opened: Opening | None = None,
) -> Copied:
    """Do something with a store, and close it."""
    store = await (opened or _store)(settings)
    try:
        return await work(store)
    finally:
        await store.close()


def _there(source: str) -> None:
    if "://" not in source and not os.path.exists(source):
        raise NotFound(f"There is no memory at {source!r}")


def _check(settings: Settings) -> None:
    """Raises Misconfigured for a name that nothing goes by, before anything is opened."""
    try:
        profiles.find(catalog.PROFILES, settings.profile)
        policies.find(catalog.POLICIES, settings.policy)
        tokens.analyze("words", settings.language)
    except (InvalidInput, ImportError) as error:
        named = (
            f"no stemmer for {settings.language!r}"
            if isinstance(error, ImportError)
            else str(error)
        )
        raise Misconfigured(f"A setting cannot be used: {named}") from error


async def _external_index(
    settings: Settings, store: Store, embedder: Embedder | None
) -> tuple[NearestRows | None, int | None]:
    """What is asked for near vectors where a scope is too large to hold them, and from which size on that is usual."""
    if embedder is None or (settings.vector_index is None and not _is_postgres(settings)):
        return None, None
    if settings.vector_index in (None, "store"):
        if not _is_postgres(settings):
            raise Misconfigured(
                "Setting 'vector_index': only PostgreSQL searches vectors itself; name chroma:… or weaviate:…"
            )
        return StoreSearch(store, embedder.model), LEAN_FROM
    from . import vector_indexes

    try:
        name = await store.name()
    except (
        StoreUnavailable
    ):  # it is away: until it is opened again, vectors are searched in the process
        return None, None
    index = vector_indexes.opened(
        settings.vector_index, model=embedder.model, dimensions=embedder.dimensions, store=name
    )
    return IndexSync(store, index, model=embedder.model, dimensions=embedder.dimensions), 0


def _is_postgres(settings: Settings) -> bool:
    return settings.db.startswith(("postgresql://", "postgres://"))


async def _store(settings: Settings) -> Store:
    store = await _any_store(settings)
    if await store.is_unfinished():
        await store.close()
        raise Misconfigured(
            f"{settings.db!r} is a copy that was interrupted: run the same `memorist db copy` again"
        )
    return store


async def _any_store(settings: Settings) -> Store:
    kind, is_address, _ = settings.db.partition("://")
    if kind in ("postgresql", "postgres") and is_address:
        return await _postgres(settings)
    if is_address:
        raise Misconfigured(
            f"Memorist cannot open {kind}://: name a file, :memory:, or postgresql://…"
        )
    from .storage.sqlite.database import SqliteDatabase

    return await Store.open(await SqliteDatabase.open(settings.db), language=settings.language)


async def _offline_store(settings: Settings, spool: Spool, down: Down) -> Store:
    """Open a store that may be down later, or is down now: then `down` says why.

    A server may be down if it was reached from this machine before. A file has to be there.
    """
    if "://" not in settings.db:
        return await _store(settings)
    database = None
    try:
        database = (await _store(settings)).database
        with suppress(OSError):  # a machine without a place for files can still use the server
            spool.prepare()
    except StoreUnavailable as error:
        if isinstance(error, StoreFull) or not spool.folder.exists():
            raise
        down |= {"reading": str(error), "writing": str(error)}
    return Store(Switch(database, down), language=settings.language)


async def _postgres(settings: Settings) -> Store:
    with needs_postgres():
        from .storage.postgres.database import PostgresDatabase
    return await Store.open(await PostgresDatabase.open(settings.db), language=settings.language)


@contextmanager
def needs_postgres() -> Iterator[None]:
    """Say how to install the driver where it is missing."""
    try:
        yield
    except ImportError as error:
        raise Misconfigured(
            'PostgreSQL needs another package: pip install "memorist[postgres]"'
        ) from error


def _embedder(settings: Settings) -> Embedder | None:
    if settings.embedder == "none":
        return None
    if settings.embedder == "hashing":
        from .embedders.hashing import Hashing

        return Hashing()
    from .embedders import Cached

    made = _inferring(settings)
    if settings.cache_mb == 0:
        return made
    directory = settings.state_dir / "embeddings_cache"
    return Cached(made, directory, limit_bytes=settings.cache_mb << 20)


def _inferring(settings: Settings) -> Embedder:
    """The model itself, in this process or on a server."""
    kind, _, named = settings.embedder.partition(":")
    if kind != "openai":
        from .embedders.minilm import MiniLM

        return MiniLM()
    from .embedders.openai import MODEL, OpenAIEmbedder

    key = _key("embedder_key", settings.embedder_key, settings.embedder_url, "OPENAI_API_KEY")
    return OpenAIEmbedder(
        named or MODEL, url=settings.embedder_url, key=key, dimensions=settings.embedder_dimensions
    )


def language_model(settings: Settings) -> Breaker | None:
    """The language model of the settings, left alone for a while when it fails. Raises Misconfigured."""
    kind, _, named = settings.llm.partition(":")
    if kind == "none":
        return None
    from .llms.budget import Breaker
    from .llms.servers import AnthropicModel, OpenAIModel

    provider = OpenAIModel if kind == "openai" else AnthropicModel
    key = _key("llm_key", settings.llm_key, settings.llm_url, f"{kind.upper()}_API_KEY")
    return Breaker(provider(named, url=settings.llm_url, key=key, timeout=settings.llm_timeout))


def _key(setting: str, given: SecretStr | None, url: str | None, variable: str) -> str | None:
    """The key for a server. One that is meant for the provider itself is not shown to a server of somebody else."""
    key = given.get_secret_value() if given else None if url else os.environ.get(variable)
    if not key and not url:
        raise Misconfigured(
            f"Setting {setting!r}: there is no key; set it or {variable}, or name a server of your own"
        )
    return key


def _metered(settings: Settings, model: Breaker, store: Store) -> BudgetedModel:
    from .llms.budget import MeteredModel

    return MeteredModel(
        model,
        store.llm_usage,
        user_cap=settings.llm_daily_tokens_per_user,
        tenant_cap=settings.llm_daily_tokens_per_tenant,
        clock=utcnow,
    )


def _reranker(settings: Settings, embedder: Embedder | None) -> Reranker | None:
    if settings.reranker == "maxsim":
        from .embedders.minilm import MiniLM
        from .rerankers.local import MaxSim

        loaded = getattr(
            embedder, "inner", embedder
        )  # under the cache: one model in the process is enough
        return MaxSim(loaded if isinstance(loaded, MiniLM) else MiniLM())
    if settings.reranker == "cross-encoder":
        from .rerankers.local import CrossEncoder

        if settings.cross_encoder is None:
            raise Misconfigured(
                "Setting 'cross_encoder': name the folder that holds model.onnx and vocab.txt"
            )
        return CrossEncoder(settings.cross_encoder)
    return None
