"""The same verbs, blocking: each call runs on an event loop in a separate thread.

Each verb is made from the async one, so names, signatures and docstrings cannot drift apart.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from .aio import open_client
from .client import Client
from .errors import MemoristError
from .jobs import cancel
from .manage.checkpoints import Checkpoints
from .manage.privacy import Consent, Privacy
from .scoped import ScopedClient
from .settings import Options

P = ParamSpec("P")
T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        # The default event loop of Windows cannot wait for a PostgreSQL connection.
        self.inner = (
            asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()
        )
        self._thread = threading.Thread(target=self.inner.run_forever, name="memorist", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        if not self.is_running:
            work.close()
            raise MemoristError("This memory is closed: open it again")
        return asyncio.run_coroutine_threadsafe(work, self.inner).result()

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator."""
        while page := self.run(few(items)):
            yield from page

    def close(self) -> None:
        if self.is_running:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self.inner).result()
            self.inner.call_soon_threadsafe(self.inner.stop)
            self._thread.join()
            self.inner.close()


async def _cancel_others() -> None:
    """Cancel tasks that an interrupted call has left running."""
    await cancel(*(asyncio.all_tasks() - {asyncio.current_task()}))


async def few(items: AsyncIterator[T], most: int = 100) -> list[T]:
    """Return the next items of an async iterator."""
    page = []
    async for item in items:
        page.append(item)
        if len(page) == most:
            break
    return page


def verb(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return an async verb in blocking form."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = self._loop.run(method(self._inner, *args, **kwargs))
        return done

    return call


def stream(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return an async iterator in blocking form."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        given: Iterator[T] = self._loop.iterate(method(self._inner, *args, **kwargs))
        return given

    return call


class Facade:
    """Blocking verbs over the async ones of another object."""

    def __init__(self, inner: Any, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop


class BlockingCheckpoints(Facade):
    """The verbs for checkpoints, blocking."""

    save = verb(Checkpoints.save)
    load = verb(Checkpoints.load)
    load_json = verb(Checkpoints.load_json)
    list = verb(Checkpoints.list)
    delete = verb(Checkpoints.delete)


class BlockingPrivacy(Facade):
    """The verbs for privacy, blocking."""

    settings = verb(Privacy.settings)
    set = verb(Privacy.set)
    disabled_reason = verb(Privacy.disabled_reason)
    start_incognito = verb(Privacy.start_incognito)
    end_incognito = verb(Privacy.end_incognito)


class BlockingConsent(Facade):
    """The verbs for consent, blocking."""

    about = verb(Consent.about)
    list = verb(Consent.list)
    propose = verb(Consent.propose)
    approve = verb(Consent.approve)
    deny = verb(Consent.deny)
    set = verb(Consent.set)
    withdraw = verb(Consent.withdraw)


class BlockingScope(Facade):
    """The verbs for one scope, blocking."""

    def __init__(self, inner: ScopedClient, loop: Loop) -> None:
        super().__init__(inner, loop)
        self.scope = inner.scope
        self.labels = inner.labels

    @property
    def checkpoints(self) -> BlockingCheckpoints:
        """Save, load, list and delete the state of threads; see `ScopedClient.checkpoints`."""
        return BlockingCheckpoints(self._inner.checkpoints, self._loop)

    @property
    def privacy(self) -> BlockingPrivacy:
        """Turn memory on and off; see `ScopedClient.privacy`."""
        return BlockingPrivacy(self._inner.privacy, self._loop)

    @property
    def consent(self) -> BlockingConsent:
        """Read and change what is known of the person; see `ScopedClient.consent`."""
        return BlockingConsent(self._inner.consent, self._loop)

    remember = verb(ScopedClient.remember)
    remember_drafts = verb(ScopedClient.remember_drafts)
    recall = verb(ScopedClient.recall)
    context = verb(ScopedClient.context)
    feedback = verb(ScopedClient.feedback)
    recall_shared = verb(ScopedClient.recall_shared)
    query = verb(ScopedClient.query)
    why_not = verb(ScopedClient.why_not)
    get = verb(ScopedClient.get)
    list = verb(ScopedClient.list)
    edit = verb(ScopedClient.edit)
    why = verb(ScopedClient.why)
    related = verb(ScopedClient.related)
    history = verb(ScopedClient.history)
    delta = verb(ScopedClient.delta)
    events = verb(ScopedClient.events)
    event_counts = verb(ScopedClient.event_counts)
    llm_usage = verb(ScopedClient.llm_usage)
    purge = verb(ScopedClient.purge)
    extract = verb(ScopedClient.extract)
    compress = verb(ScopedClient.compress)
    roll_up = verb(ScopedClient.roll_up)
    pin = verb(ScopedClient.pin)
    unpin = verb(ScopedClient.unpin)
    forget = verb(ScopedClient.forget)
    forget_where = verb(ScopedClient.forget_where)
    forget_all = verb(ScopedClient.forget_all)
    undo = verb(ScopedClient.undo)
    restore = verb(ScopedClient.restore)
    conflicts = verb(ScopedClient.conflicts)
    confirm = verb(ScopedClient.confirm)
    reject = verb(ScopedClient.reject)
    keep_both = verb(ScopedClient.keep_both)
    command = verb(ScopedClient.command)
    overview = verb(ScopedClient.overview)
    stats = verb(ScopedClient.stats)
    export = stream(ScopedClient.export)
    import_ = verb(ScopedClient.import_)
    import_files = verb(ScopedClient.import_files)


class Blocking(Facade):
    """An open memory, blocking. Use it in a `with` block, or close it."""

    def __init__(self, inner: Client, loop: Loop) -> None:
        super().__init__(inner, loop)
        self.settings = inner.settings

    @classmethod
    def open(
        cls,
        db: str | Path | None = None,
        *,
        count_tokens: Callable[[str], int] | None = None,
        **settings: Unpack[Options],
    ) -> Blocking:
        """Open a memory: a file, `:memory:`, a PostgreSQL URL, or by default the setting `db`.

        Use it in a `with` block, or close it. Every setting can be given by name. `count_tokens`
        counts the tokens of a text exactly; by default they are estimated. `embedder`, `llm`,
        `reranker` and `entities` also take your own model: an object with the methods of the port
        (`memorist.ports`), or a function, which runs in a thread unless it is async.
        Raises Misconfigured, StoreUnavailable, StoreDamaged, MigrationNeeded.
        """
        loop = Loop()
        try:
            client = loop.run(open_client(db, count_tokens=count_tokens, **settings))
            return cls(client, loop)
        except BaseException:
            loop.close()
            raise

    def scope(
        self,
        user: str,
        space: str | None = None,
        tenant: str | None = None,
        **labels: str | None,
    ) -> BlockingScope:
        """Return the memory of one user in one space; see `Client.scope`."""
        inner = self._inner.scope(user, space, tenant, **labels)
        return BlockingScope(inner, self._loop)

    scopes = verb(Client.scopes)
    stats = verb(Client.stats)
    llm_usage = verb(Client.llm_usage)
    replay = verb(Client.replay)
    purge = verb(Client.purge)
    run_jobs = verb(Client.run_jobs)
    backfill = verb(Client.backfill)
    backlog = verb(Client.backlog)
    index = verb(Client.index)
    rebuild_index = verb(Client.rebuild_index)
    drop_vectors = verb(Client.drop_vectors)
    snapshot = verb(Client.snapshot)
    create_key = verb(Client.create_key)
    keys = verb(Client.keys)
    revoke_key = verb(Client.revoke_key)
    authenticate = verb(Client.authenticate)
    export = stream(Client.export)
    erase_user = verb(Client.erase_user)
    export_user = stream(Client.export_user)
    import_ = verb(Client.import_)
    backup = verb(Client.backup)
    vacuum = verb(Client.vacuum)
    check = verb(Client.check)

    def close(self) -> None:
        """Finish what is running and close everything. Closing twice is allowed."""
        if self._loop.is_running:
            self._loop.run(self._inner.close())
            self._loop.close()

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blocking(dialect: Callable[..., Any], memory: Blocking | BlockingScope, **options: Any) -> Any:
    """Return a dialect whose async methods block, over a memory or a scope.

    `blocking(Milton, scope).add(content="…")` waits for `Milton(scope).add(content="…")`.
    """
    inner = dialect(memory._inner, **options)
    members: dict[str, Any] = {"_inner": inner, "_loop": memory._loop}
    for name, method in vars(type(inner)).items():
        if not name.startswith("_") and inspect.iscoroutinefunction(method):
            members[name] = verb(method)
    return type(f"Blocking{type(inner).__name__}", (), members)()
