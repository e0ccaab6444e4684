"""Clanker's way in: what is said in the channels of a bot, one message after the other, each once.

A message is on disk, with the note that facts are to be drawn from it, before it counts as taken in. So what is queued
here are only the callers who wait for its facts: however many there are, and whatever is killed, nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType

from ..client import Client
from ..errors import InvalidInput, MemoristError, Misconfigured, ProviderFailed
from ..extraction import job
from ..ingest import guard
from ..jobs.debounce import Refresh
from ..jobs.worker import EMBED
from ..text.clock import new_id
from ..types import Message, Outcome
from .clanker import Clanker

MOST_WAITING = 400
DRAIN_SECONDS, SHUTDOWN_SECONDS = 5.0, 4.0
VOICE = {
    "stt": "voice_stt",
    "realtime": "voice_realtime",
}  # where a transcript came from, as its messages name it
log = logging.getLogger("memorist")

Keep = Callable[[], Awaitable[bool]]


class Intake:
    """Takes messages in. Open it with `async with`: at its end everything that waits is worked off.

    `drop_oldest` is the way of the original: a message is kept when its turn comes, and of more than 400 the one that
    waits longest is dropped.
    """

    def __init__(
        self, engine: Client, *, most: int = MOST_WAITING, drop_oldest: bool = False
    ) -> None:
        if engine.settings.extract == "off":
            raise Misconfigured(
                "Facts are drawn from messages here: open the memory with extract='rules' or 'model'"
            )
        self._engine, self._clanker, self._most, self._drops = (
            engine,
            Clanker(engine),
            most,
            drop_oldest,
        )
        self._taking: dict[tuple[str, str], asyncio.Task[bool]] = {}  # by guild and message
        self._line: deque[tuple[asyncio.Future[bool], Keep]] = deque()
        self._authors: set[tuple[str, str]] = set()  # who may have more facts now than are kept
        self._work: asyncio.Task[None] | None = None
        self._refresh: Refresh | None = None

    async def __aenter__(self) -> Intake:
        if self._engine.settings.journal_dir is not None:
            await self.refresh_memory_markdown()
            self._refresh = Refresh(self.refresh_memory_markdown)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.drain_ingest_queue(SHUTDOWN_SECONDS)
        left = [*self._taking.values(), *([self._work] if self._work is not None else [])]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)
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
        """Keep a message of a channel and draw facts about its author from it; False if it is not taken in.

        Who asks for a message that is still worked on shares its result. Beyond 400 nobody waits: the message is on
        disk, and its facts follow. Raises InvalidInput for a message without an id.
        """
        if not message.id:
            raise InvalidInput("A message needs an id: the same message is taken in once")
        if len(guard.to_line(message.content, "content")) < guard.SHORTEST["content"]:
            return False
        key = (guild_id, message.id)
        if key not in self._taking:
            keep = partial(self._kept, guild_id, channel_id, message, author_id, source)
            self._taking[key] = asyncio.create_task(self._taken(keep))
            self._taking[key].add_done_callback(lambda _: self._taking.pop(key))
        return await asyncio.shield(self._taking[key])

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
        """Take in what somebody said aloud, under an id made for it; `pipeline` is stt or realtime."""
        if pipeline not in VOICE:
            raise InvalidInput(f"{pipeline!r} is no voice pipeline: choose from {', '.join(VOICE)}")
        source = VOICE[pipeline]
        said = Message(id=f"{source}:{new_id()}", content=transcript, name=author_name)
        return await self.ingest_message(
            guild_id, channel_id, said, author_id=author_id, source=source
        )

    async def remember_line(self, guild_id: str, line: str, **about: str | None) -> Outcome:
        """Keep a line of lore, as `Clanker.remember_line` does; its vector and the snapshot follow by themselves."""
        outcome = await self._clanker.remember_line(guild_id, line, **about)
        if outcome.ids:
            self._wake((asyncio.get_running_loop().create_future(), self._nothing_to_keep))
        return outcome

    async def drain_ingest_queue(self, seconds: float = DRAIN_SECONDS) -> bool:
        """Wait until everything that was taken in is worked off; False if that takes longer, and it goes on later."""
        under_way = [*self._taking.values(), *([self._work] if self._work is not None else [])]
        _, late = await asyncio.wait(under_way, timeout=seconds) if under_way else (None, ())
        return not late

    async def refresh_memory_markdown(self) -> str:
        """Write the snapshot for people anew."""
        return await self._engine.snapshot()

    async def _taken(self, keep: Keep) -> bool:
        """Keep a message, and wait for its turn; in a line that is too long, nobody waits."""
        if not self._drops and not await keep():
            return False
        if len(self._line) >= self._most:
            if not self._drops:
                return True
            self._line.popleft()[0].set_result(False)
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._wake((turn, keep))
        return await turn

    def _wake(self, turn: tuple[asyncio.Future[bool], Keep]) -> None:
        self._line.append(turn)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._worked_off())

    async def _nothing_to_keep(self) -> bool:
        return True

    async def _kept(
        self, guild_id: str, channel_id: str, message: Message, author_id: str, source: str
    ) -> bool:
        """Whether a message was kept. A failure is noted, and the bot goes on."""
        try:
            outcome = await self._clanker.add_message(
                guild_id, channel_id, message, author_id=author_id, source=source
            )
        except ProviderFailed as error:
            log.warning("A message was not taken in: %s", type(error).__name__)
            self._clanker.failed(guild_id, source)
            return False
        self._authors.add((guild_id, author_id))
        return bool(outcome.ids) or outcome.status == "pending"

    async def _worked_off(self) -> None:
        """Draw the facts out of what waits, in the order in which it was said."""
        while self._line:
            turns = [self._line.popleft()] if self._drops else [*self._line]
            if not self._drops:
                self._line.clear()
            is_taken = await self._turn(turns[0][1])
            for turn, _ in turns:
                if not turn.done():  # whoever waited for it may have gone
                    turn.set_result(is_taken)
            if self._refresh is not None:
                self._refresh.soon()

    async def _turn(self, keep: Keep) -> bool:
        """One turn; a failure is put off and counted by whoever tends, and the next turn comes all the same."""
        try:
            is_taken = await keep() if self._drops else True
            await self._engine.run_jobs(only=[job.NAME, EMBED])
            while self._authors:
                await self._clanker.archive(*self._authors.pop())
        except MemoristError:
            return not self._drops
        return is_taken
