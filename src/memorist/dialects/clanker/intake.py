"""Clanker's intake: stores the messages in a bot's channels in order, each once.

A message is stored, with the task to extract facts from it, before the call returns. So the queue
has only callers that wait for the facts, and nothing is lost if the process is killed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from ... import extraction
from ...client import Client
from ...errors import InvalidInput, MemoristError, Misconfigured, ProviderFailed
from ...ingest import guard
from ...jobs import Debounced, cancel
from ...jobs.worker import EMBED
from ...telemetry import ReportCount
from ...text.clock import new_id
from ...types import Message, Outcome
from . import Clanker

MAX_WAITING = 400
DRAIN_SECONDS = 5.0
SHUTDOWN_SECONDS = 4.0
VOICE = {"stt": "voice_stt", "realtime": "voice_realtime"}  # pipeline: source of its messages
log = logging.getLogger("memorist")

Store = Callable[[], Awaitable[bool]]


class Intake:
    """Stores messages and extracts their facts. Use it with `async with`, which drains the queue on
    exit.

    With `drop_oldest`, as in the original, a message is stored when its turn comes, and if more
    than 400 messages wait, the oldest is dropped.
    """

    def __init__(
        self,
        client: Client,
        *,
        most: int = MAX_WAITING,
        drop_oldest: bool = False,
    ) -> None:
        if client.settings.extract == "off":
            raise Misconfigured(
                "The intake extracts facts: open the memory with extract='rules' or 'model'"
            )
        self._client = client
        self._clanker = Clanker(client)
        self._most = most
        self._drops = drop_oldest
        self._active: dict[tuple[str, str], asyncio.Task[bool]] = {}  # by guild and message
        self._queue: deque[tuple[asyncio.Future[bool], Store]] = deque()
        self._authors: set[tuple[str, str]] = set()  # their oldest facts may have to be archived
        self._work: asyncio.Task[None] | None = None
        self._refresh: Debounced | None = None

    async def __aenter__(self) -> Self:
        self._client.ctx.observers.append(self._notice)
        if self._client.settings.journal_dir is not None:
            await self.refresh_memory_markdown()
            self._refresh = Debounced(self.refresh_memory_markdown)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.ctx.observers.remove(self._notice)
        await self.drain_ingest_queue(SHUTDOWN_SECONDS)
        await cancel(*self._running())
        if self._refresh is not None:
            await self._refresh.close()

    async def ingest_message(
        self,
        guild_id: str,
        channel_id: str,
        message: Message,
        *,
        author_id: str,
        source: str = "text",
    ) -> bool:
        """Store a message of a channel and extract facts about its author; False if it is not
        stored.

        Calls for a message that is still in progress share its result. If 400 calls wait already,
        a call returns as soon as the message is stored, and its facts follow. Raises InvalidInput
        for a message without an id.
        """
        if not message.id:
            raise InvalidInput("A message needs an id, so that it is stored only once")
        if len(guard.to_line(message.content, "content")) < guard.SHORTEST["content"]:
            return False
        key = (guild_id, message.id)

        async def store() -> bool:
            """Return whether the message was stored. A failure is recorded, not raised."""
            try:
                outcome = await self._clanker.add_message(
                    guild_id, channel_id, message, author_id=author_id, source=source
                )
            except ProviderFailed as error:
                log.warning("A message was not stored: %s", type(error).__name__)
                self._clanker.note_failure(guild_id, source)
                return False
            self._authors.add((guild_id, author_id))
            return bool(outcome.ids) or outcome.status == "pending"

        if key not in self._active:
            self._active[key] = asyncio.create_task(self._ingest(store))
            self._active[key].add_done_callback(lambda _: self._active.pop(key))
        return await asyncio.shield(self._active[key])

    async def ingest_voice(
        self,
        guild_id: str,
        channel_id: str,
        transcript: str,
        *,
        author_id: str,
        author_name: str | None = None,
        pipeline: str = "stt",
    ) -> bool:
        """Ingest a transcript under a new id; `pipeline` is stt or realtime."""
        if pipeline not in VOICE:
            raise InvalidInput(
                f"Unknown voice pipeline {pipeline!r}: choose from {', '.join(VOICE)}"
            )
        source = VOICE[pipeline]
        said = Message(id=f"{source}:{new_id()}", content=transcript, name=author_name)
        return await self.ingest_message(
            guild_id, channel_id, said, author_id=author_id, source=source
        )

    async def remember_line(
        self,
        guild_id: str,
        line: str,
        **about: str | None,
    ) -> Outcome:
        """Store a line of lore; its vector and the snapshot follow."""
        return await self._clanker.remember_line(guild_id, line, **about)

    async def drain_ingest_queue(self, seconds: float = DRAIN_SECONDS) -> bool:
        """Wait until the queue is empty; False if that takes longer, and it continues later."""
        running = self._running()
        if not running:
            return True
        _, late = await asyncio.wait(running, timeout=seconds)
        return not late

    async def refresh_memory_markdown(self) -> str:
        """Write the Markdown snapshot again."""
        return await self._client.snapshot()

    @contextmanager
    def _notice(self, what: str) -> Iterator[ReportCount]:
        """Let vectors and the snapshot follow what is stored past the queue, such as the lore of a
        reply.
        """
        counts = [0]
        yield counts.append
        is_ours = asyncio.current_task() in self._running()
        if what == "remember" and counts[-1] and not is_ours:
            self._enqueue(lambda: asyncio.sleep(0, True))  # it is stored already

    def _running(self) -> list[asyncio.Task[Any]]:
        running: list[asyncio.Task[Any]] = list(self._active.values())
        if self._work is not None:
            running.append(self._work)
        return running

    async def _ingest(self, store: Store) -> bool:
        """Store a message and wait for its turn, unless the queue is too long."""
        if not self._drops and not await store():
            return False
        if len(self._queue) >= self._most:
            if not self._drops:
                return True
            self._queue.popleft()[0].set_result(False)
        return await self._enqueue(store)

    def _enqueue(self, store: Store) -> asyncio.Future[bool]:
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append((turn, store))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._drain())
        return turn

    async def _drain(self) -> None:
        """Extract the facts of waiting messages, in order.

        The worker retries a message that fails; the queue continues with the next.
        """
        while self._queue:
            turns = [self._queue.popleft()]
            if not self._drops:
                turns += self._queue
                self._queue.clear()
            is_stored = not self._drops
            try:
                if self._drops:
                    is_stored = await turns[0][1]()
                await self._client.run_jobs(only=[extraction.NAME, EMBED])
                while self._authors:
                    await self._clanker.archive(*self._authors.pop())
            except MemoristError:
                is_stored = not self._drops
            for turn, _ in turns:
                if not turn.done():  # its caller may have been canceled
                    turn.set_result(is_stored)
            if self._refresh is not None:
                self._refresh.request()
