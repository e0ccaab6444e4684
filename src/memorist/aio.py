"""Open a memory: `async with memorist.aio.open("memory.db") as memory: …`.

Settings in, client out: this is the one place that picks the store and the providers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Unpack

from pydantic import SecretStr

from . import dialects
from .client import Client
from .context import AccessLog, Context, IdleRunner
from .embedders import Cached, Hashing
from .embedders.local import MINILM, MiniLM, Multilingual
from .errors import InvalidInput, Misconfigured, NotFound, StoreFull, StoreUnavailable
from .index import SnapshotCache
from .ingest import validation
from .ingest.pipeline import EXTRACT
from .jobs.vectors import BackgroundFill, IndexSync
from .jobs.worker import Worker
from .llms import Breaker, MeteredModel
from .offline import Offline
from .offline.replay import Down, Switch
from .offline.spool import Spool
from .ports import Embedder, NearestRows, Reranker
from .rerankers import CrossEncoder, MaxSim, Verifier
from .scoped import ScopedClient
from .settings import MODELS, Options, Settings, allowlists, custom, load
from .settings.custom import CustomCall, find_call
from .storage import copy as copying
from .storage.database import Database
from .storage.sqlite import SqliteDatabase
from .storage.store import Store
from .telemetry import span_observer
from .text import tokens
from .text.clock import utcnow

__all__ = ["Client", "ScopedClient", "open"]
ARCHIVE = ".jsonl"  # suffix of a store that is a text file
JOB_BATCH = 8  # memories embedded at once in the background of a process that also answers
JOB_SECONDS = 2.0  # how long closing waits for a running job
LEAN_FROM = 250_000  # memories in a scope from which on PostgreSQL searches the vectors


@asynccontextmanager
async def open(
    db: str | Path | None = None,
    *,
    count_tokens: Callable[[str], int] | None = None,
    **settings: Unpack[Options],
) -> AsyncIterator[Client]:
    """Open a memory for the duration of a block. Every setting can be given by name.

    `embedder`, `llm`, `reranker` and `entities` also take your own model; see `memorist.open`.
    """
    async with await open_client(db, count_tokens=count_tokens, **settings) as memory:
        yield memory


async def open_client(
    db: str | Path | None = None,
    *,
    count_tokens: Callable[[str], int] | None = None,
    **settings: Unpack[Options],
) -> Client:
    """Open a memory; `count_tokens` counts the tokens of a text.

    Raises Misconfigured, StoreUnavailable, StoreDamaged, MigrationNeeded.
    """
    if not isinstance(db, str | Path | None):
        raise Misconfigured(
            f"Setting 'db': {db!r:.60} is not a path: name a file, :memory: or postgresql://…"
        )
    given: dict[str, Any] = {**settings}
    own = {name: given.pop(name) for name in MODELS if not isinstance(given.get(name), str | None)}
    chosen = load(db=None if db is None else str(db), **given)
    _check(chosen)
    calls = {name: find_call(name, own.get(name, getattr(chosen, name))) for name in MODELS}
    names = {name: call.name for name, call in calls.items() if call and name in own}
    chosen = chosen.model_copy(update=names)
    embedder = await _embedder(chosen, calls["embedder"])
    multilingual = None
    verifier = None
    if calls["embedder"] is None and chosen.embedder == "minilm":
        multilingual = Multilingual() if chosen.multilingual else None
        verifier = Verifier(MINILM) if chosen.verifier else None
    model = language_model(chosen, calls["llm"])
    detector = calls["entities"]
    observers = [span_observer()] if chosen.otel else []
    down: Down = {}
    spool = Spool.of(chosen)
    store = await (_open_store(chosen) if spool is None else _offline_store(chosen, spool, down))
    external_index = await _external_index(chosen, store, embedder)
    lean_from = chosen.vector_index_from
    if lean_from is None and external_index is not None:
        lean_from = 0
    elif lean_from is None and _is_postgres(chosen):
        lean_from = LEAN_FROM
    llm = None
    if model is not None:
        llm = MeteredModel(
            model,
            store.llm_usage,
            user_cap=chosen.llm_daily_tokens_per_user,
            tenant_cap=chosen.llm_daily_tokens_per_tenant,
            clock=utcnow,
        )
    ctx = Context(
        store=store,
        index=SnapshotCache(
            model=embedder.model if embedder else "",
            dimensions=embedder.dimensions if embedder else 1,
            limit_bytes=chosen.index_cache_mb << 20,
            lean_from=lean_from,
            second=(multilingual.model, multilingual.dimensions) if multilingual else None,
        ),
        settings=chosen,
        access_log=AccessLog(store),
        allowlists=allowlists.load(chosen.categories),
        profiles=dialects.PROFILES,
        policies=dict(dialects.POLICIES),
        embedder=embedder,
        multilingual=multilingual,
        reranker=_reranker(chosen, embedder, calls["reranker"]),
        verifier=verifier,
        llm=llm,
        entities=custom.CustomDetector(detector) if detector else None,
        external_index=external_index,
        has_spool=spool is not None,
        count_tokens=count_tokens or tokens.count_tokens,
        observers=observers,
    )
    if multilingual is not None:
        ctx.filler = BackgroundFill(ctx)
    offline = None
    if spool is not None:
        offline = Offline(ctx, spool, down, lambda: _open_store(chosen))
        await offline.start()
    client = Client(ctx, offline)
    if chosen.run_jobs:
        client.background = Worker(ctx, batch_size=JOB_BATCH, drain_seconds=JOB_SECONDS)
        client.background.start()
    elif chosen.extract != "off":
        ctx.extractor = _make_extractor(ctx)
        ctx.extractor.start()
    return client


def _make_extractor(ctx: Context) -> IdleRunner:
    """Return what extracts facts while the client is idle; it writes only if something is due."""
    worker = Worker(ctx, only=[EXTRACT])

    async def step() -> bool:
        is_due = await ctx.store.tasks.has_due(EXTRACT, ctx.clock())
        return is_due and await worker.run_next()

    # A model may take longer than closing does, and would be asked in vain each time.
    return IdleRunner(step, is_quick=ctx.settings.extract == "rules")


async def copy_store(
    source: str,
    target: str,
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> copying.Copied:
    """Copy a whole store into a new one, or continue a copy.

    A name that ends in `.jsonl` is a text file with everything in it.
    Raises NotFound, RevisionConflict, InvalidInput, StoreUnavailable.
    """
    async with AsyncExitStack() as stack:

        async def opened(db: str, **options: bool) -> Store:
            store = await _open_store(load(db=db), **options)
            stack.push_async_callback(store.close)
            return store

        if source.endswith(ARCHIVE):
            store = await opened(target, unfinished=True)
            return await copying.read_archive(Path(source), store, progress)
        if "://" not in source and not await asyncio.to_thread(os.path.exists, source):
            raise NotFound(f"No database at {source!r}")
        if source == target:
            raise InvalidInput("Source and target are the same: name a new file or database")
        store = await opened(source)
        if target.endswith(ARCHIVE):
            return await copying.write_archive(store, Path(target), progress)
        return await copying.copy(store, await opened(target, unfinished=True), progress)


def _check(settings: Settings) -> None:
    """Raise Misconfigured for a name that does not exist, before anything is opened."""
    if "\0" in settings.db:
        raise Misconfigured(f"Setting 'db': {settings.db!r} contains a NUL character: name a file")
    try:
        dialects.PROFILES[settings.profile]
        validation.policy(dialects.POLICIES, settings.policy)
        tokens.analyze("words", settings.language)
    except (InvalidInput, ImportError) as error:
        why = error if isinstance(error, InvalidInput) else f"no stemmer for {settings.language!r}"
        raise Misconfigured(f"A setting cannot be used: {why}") from error


async def _external_index(
    settings: Settings,
    store: Store,
    embedder: Embedder | None,
) -> NearestRows | None:
    """Return the external index for scopes that are too large to hold in this process.

    None if none is configured, or if the store searches vectors itself.
    """
    if embedder is None or settings.vector_index is None:
        return None
    if settings.vector_index == "store":
        if not _is_postgres(settings):
            raise Misconfigured(
                "Setting 'vector_index': only PostgreSQL searches vectors itself;"
                " name chroma:… or weaviate:…"
            )
        return None
    from . import vector_indexes

    try:
        name = await store.name()
    except StoreUnavailable:  # until it is opened again, vectors are searched in the process
        return None
    index = vector_indexes.open_index(
        settings.vector_index,
        model=embedder.model,
        dimensions=embedder.dimensions,
        store=name,
    )
    return IndexSync(store, index, model=embedder.model, dimensions=embedder.dimensions)


def _is_postgres(settings: Settings) -> bool:
    return settings.db.startswith(("postgresql://", "postgres://"))


async def _open_store(settings: Settings, *, unfinished: bool = False) -> Store:
    """Open the store. With `unfinished`, it may be a copy that was interrupted."""
    database: Database
    if _is_postgres(settings):
        with needs_postgres():
            from .storage.postgres import PostgresDatabase
        database = await PostgresDatabase.open(settings.db)
    elif "://" in settings.db:
        kind = settings.db.partition("://")[0]
        if kind in ("http", "https"):
            raise Misconfigured(
                f"This needs a database, and {settings.db} is a server: run it where the database "
                "is, or name a file or postgresql://…"
            )
        raise Misconfigured(
            f"Memorist cannot open {kind}://: name a file, :memory: or postgresql://…; commands "
            "also take a server, https://…"
        )
    else:
        if "db" not in settings.model_fields_set:  # nobody has chosen this place
            with suppress(OSError):  # opening says what is wrong
                Path(settings.db).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = await SqliteDatabase.open(settings.db)
    store = await Store.open(database, language=settings.language)
    if not unfinished and await store.is_unfinished():
        await store.close()
        raise Misconfigured(
            f"{settings.db!r} is a copy that was interrupted: run the same `memorist db copy` again"
        )
    return store


async def _offline_store(settings: Settings, spool: Spool, down: Down) -> Store:
    """Open a store that may be unavailable now or later; `down` then says why.

    A server may be down if this machine reached it before. A file has to exist.
    """
    if "://" not in settings.db:
        return await _open_store(settings)
    database = None
    try:
        database = (await _open_store(settings)).database
        with suppress(OSError):  # a machine without a place for files can still use the server
            spool.prepare()
    except StoreUnavailable as error:
        if isinstance(error, StoreFull) or not spool.folder.exists():
            raise
        down |= {"reading": str(error), "writing": str(error)}
    return Store(Switch(database, down), language=settings.language)


@contextmanager
def needs_postgres() -> Iterator[None]:
    """Raise Misconfigured with the command that installs the driver if it is missing."""
    try:
        yield
    except ImportError as error:
        raise Misconfigured(
            'PostgreSQL needs another package: pip install "memorist[postgres]"'
        ) from error


async def _embedder(settings: Settings, own: CustomCall | None) -> Embedder | None:
    kind, _, name = settings.embedder.partition(":")
    model: Embedder
    match own or kind:
        case CustomCall() as call:
            model = await custom.CustomEmbedder.open(call)
        case "none":
            return None
        case "hashing":
            return Hashing()
        case "minilm":
            model = MiniLM()
        case _:
            from .embedders.openai import MODEL, VARIABLE, OpenAIEmbedder

            url = settings.embedder_url
            key = _key("embedder_key", settings.embedder_key, url, "OPENAI_API_KEY")
            size = settings.embedder_dimensions
            named = name or os.environ.get(VARIABLE, "").strip() or MODEL
            model = OpenAIEmbedder(named, url=url, key=key, dimensions=size)
    if settings.cache_mb == 0:
        return model
    directory = settings.state_dir / "embeddings_cache"
    return Cached(model, directory, limit_bytes=settings.cache_mb << 20)


def language_model(settings: Settings, own: CustomCall | None = None) -> Breaker | None:
    """Return the language model behind a circuit breaker. Raises Misconfigured."""
    kind, _, named = settings.llm.partition(":")
    if own := own or find_call("llm", settings.llm):
        return Breaker(custom.CustomLanguageModel(own, settings.llm_timeout))
    if kind == "none":
        return None
    from .llms.servers import AnthropicModel, OpenAIModel

    provider = OpenAIModel if kind == "openai" else AnthropicModel
    key = _key("llm_key", settings.llm_key, settings.llm_url, f"{kind.upper()}_API_KEY")
    return Breaker(provider(named, url=settings.llm_url, key=key, timeout=settings.llm_timeout))


def _key(setting: str, given: SecretStr | None, url: str | None, variable: str) -> str | None:
    """Return the API key of a server. The variable is used for the provider's own server only."""
    if given or url:
        return given.get_secret_value() if given else None
    if not os.environ.get(variable):
        raise Misconfigured(
            f"Setting {setting!r} is missing: set it or {variable}, or name your own server"
        )
    return os.environ[variable]


def _reranker(
    settings: Settings, embedder: Embedder | None, own: CustomCall | None
) -> Reranker | None:
    if own is not None:
        return custom.CustomReranker(own)
    if settings.reranker == "maxsim":
        loaded = getattr(embedder, "inner", embedder)  # below the cache: one model is enough
        return MaxSim(loaded if isinstance(loaded, MiniLM) else MiniLM())
    if settings.reranker == "cross-encoder":
        if settings.cross_encoder is None:
            raise Misconfigured(
                "Setting 'cross_encoder': name the folder that holds model.onnx and vocab.txt"
            )
        return CrossEncoder(settings.cross_encoder)
    return None
