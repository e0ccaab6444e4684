"""Find models that other packages provide, run them in a thread, and call model servers over HTTP
through their client libraries, with a size limit and a circuit breaker.

The text of a server's error may quote the request, so no part of it appears in our messages.
"""

import asyncio
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, TypeVar

from ..errors import Misconfigured, ProviderFailed

T = TypeVar("T")
begin_thread: Callable[[], None] | None = None  # called first in each thread that runs a model

# The entry points that provide a model, by the setting that names it.
GROUPS = {
    "embedder": "memorist.embedders",
    "llm": "memorist.llms",
    "reranker": "memorist.rerankers",
    "entities": "memorist.entities",
}
FAILURES = 3  # in a row, after which no call is made for a while
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 600.0  # seconds
Errors = tuple[type[Exception], ...]
_NEVER_ARRIVED = {"ConnectError", "ConnectTimeout", "PoolTimeout"}


class Failed(Exception):
    """A call to a server failed."""

    def __init__(
        self,
        why: str,
        *,
        status: int = 0,
        said: str = "",
        is_free: bool = False,
    ) -> None:
        super().__init__(why)
        self.status = status
        self.said = said
        self.is_free = is_free  # the server did no work, so nothing is charged


def list_plugins(setting: str) -> dict[str, EntryPoint]:
    """Return the installed entry points that provide a model for a setting, by name."""
    return {each.name: each for each in entry_points(group=GROUPS[setting])}


class WorkerThread:
    """A thread that runs functions one after the other, for any event loop."""

    def __init__(self, name: str, closed: ProviderFailed) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = closed  # raised by `run` after `close`

    async def run(self, step: Callable[..., T], *arguments: object) -> T:
        """Run a function and return its result."""
        try:
            future = self._pool.submit(step, *arguments)
        except RuntimeError as error:
            raise self._closed from error
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Wait for pending work. Closing twice is fine."""
        await asyncio.to_thread(self._pool.shutdown)


class ModelServer:
    """One call of a server through its client library: at most `limit` bytes are read, no redirect
    is followed.
    """

    def __init__(
        self,
        library: str,
        client: str,
        call: str,
        *,
        limit: int,
        **options: Any,
    ) -> None:
        """Raise Misconfigured if the library is not installed."""
        if importlib.util.find_spec(library) is None:
            raise Misconfigured(f'This needs another package: pip install "memorist[{library}]"')
        self._library = library
        self._name = client
        self._call = call
        self._limit = limit
        self._options = options
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def ready(self) -> None:
        """Load the library before the first call: its second does not count as the server's time."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._open)

    async def ask(self, **request: Any) -> Any:
        """Return the JSON of the response; call `ready` first. Raises Failed."""
        sdk = sys.modules[self._library]
        call = attrgetter(f"{self._call}.with_raw_response.create")(self._client)
        try:
            raw = await call(**request)
        except sdk.APIStatusError as error:
            status = error.status_code
            said = str(error.body)[:200].lower()  # the rest may be an echo
            is_free = 400 <= status < 500
            raise Failed(f"status {status}", status=status, said=said, is_free=is_free) from None
        except Exception as error:  # the libraries' errors have no common base class
            cause = type(error.__cause__ or error).__name__
            raise Failed(cause, is_free=cause in _NEVER_ARRIVED) from None
        try:
            return json.loads(raw.http_response.content)
        except (ValueError, RecursionError):
            raise Failed("the response is not JSON") from None

    async def close(self) -> None:
        async with self._opening:
            if self._client is not None:
                await self._client.close()

    def _open(self) -> Any:
        sdk = importlib.import_module(self._library)
        client = _limited_client(sdk, self._limit)
        return getattr(sdk, self._name)(http_client=client, max_retries=0, **self._options)


def at(data: Any, *path: str | int) -> Any:
    """Return the value at a path in untrusted JSON, or None.

    >>> at({"choices": [{"message": "hi"}]}, "choices", 0, "message"), at([], "choices", 0)
    ('hi', None)
    """
    with suppress(LookupError, TypeError):
        for step in path:
            data = data[step]
        return data
    return None


def _limited_client(sdk: Any, limit: int) -> Any:
    """Return an HTTP client that reads at most `limit` bytes of an answer."""
    base = sdk.DefaultAsyncHttpxClient.__base__.__module__
    http = sys.modules[base.partition(".")[0]]  # httpx or its successor

    class Capped(http.AsyncByteStream):  # type: ignore[misc, name-defined]
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> Any:
            left = limit
            async for part in self._inner:
                left -= len(part)
                if left < 0:
                    raise http.ReadError("the answer is too long")
                yield part

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def cap(response: Any) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise http.ReadError("the answer is compressed")  # its real size is unknown
        response.stream = Capped(response.stream)

    return sdk.DefaultAsyncHttpxClient(
        follow_redirects=False,  # a redirect would send the text elsewhere
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [cap]},
    )


class Circuit:
    """A circuit breaker: after some failures in a row it only allows an occasional trial call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._until = 0.0
        self._pause = FIRST_PAUSE
        self._trying = False

    @property
    def wait(self) -> float:
        """Seconds until a call makes sense; 0 if it does now."""
        if self._failures < FAILURES:
            return 0.0
        return max(1.0 if self._trying else 0.0, self._until - self._clock())

    @contextmanager
    def call(self, failures: Errors, successes: Errors = ()) -> Iterator[None]:
        """Run a call that `wait` allows, and count it as failed or successful by what it raises.

        Any other error, such as a cancellation, counts as neither.
        """
        is_trial = self._failures >= FAILURES
        worked = None
        self._trying = self._trying or is_trial
        try:
            yield
            worked = True
        except failures:
            worked = False
            raise
        except successes:
            worked = True
            raise
        finally:
            if is_trial:
                self._trying = False
            if worked:
                self._failures = 0
                self._pause = FIRST_PAUSE
            elif worked is False:
                self._failures += 1
                if self._failures == FAILURES or is_trial:
                    self._until = self._clock() + self._pause
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)
