"""Stands between us and a server, and lets the line be cut, stall, or lose an answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from memorist.sync import Loop

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


class Proxy:
    """Listens on a port of this machine and passes everything on to a Unix socket, until it is told otherwise."""

    def __init__(self, target: Path) -> None:
        self._target, self._loop = str(target), Loop()
        self._lines: set[Writer] = set()
        self._is_down, self._unanswered = False, b""
        self.port = self._loop.run(self._listen())

    def stall(self) -> None:
        """Lines stay open, and nothing comes through any more."""
        self._loop.run(self._flow(False))

    def cut(self) -> None:
        """End all lines at once, and take no new ones."""
        self._is_down = True
        self._loop.run(self._hang_up())

    def lose_answer_to(self, question: bytes) -> None:
        """The next time this is asked it arrives, and the answer is lost with the line."""
        self._unanswered = question

    def mend(self) -> None:
        self._is_down = False
        self._loop.run(self._flow(True))

    def end(self) -> None:
        self.cut()
        self._server.close()
        self._loop.close()

    async def _listen(self) -> int:
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _flow(self, on: bool) -> None:
        self._flows.set() if on else self._flows.clear()

    async def _hang_up(self) -> None:
        for writer in self._lines:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _accept(self, reader: Reader, writer: Writer) -> None:
        if self._is_down:
            writer.transport.abort()
            return
        self._lines.add(writer)
        with suppress(OSError, asyncio.CancelledError):
            await self._flows.wait()
            await self._joined(reader, writer)
        writer.transport.abort()

    async def _joined(self, reader: Reader, writer: Writer) -> None:
        there, back = await asyncio.open_unix_connection(self._target)
        self._lines.add(back)
        deaf = asyncio.Event()
        try:
            await asyncio.gather(self._ask(reader, back, deaf), self._answer(there, writer, deaf))
        finally:
            back.transport.abort()

    async def _ask(self, reader: Reader, writer: Writer, deaf: asyncio.Event) -> None:
        while data := await reader.read(65_536):
            await self._flows.wait()
            if self._unanswered and self._unanswered in data:
                self._unanswered = b""
                deaf.set()
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _answer(self, reader: Reader, writer: Writer, deaf: asyncio.Event) -> None:
        while (data := await reader.read(65_536)) and not deaf.is_set():
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
