"""The HTTP protocol of the server, with a deadline for the head of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_SECONDS = 10  # from the first byte of a request, or from connecting, to its last header
_Base: Any = AutoHTTPProtocol  # of the parser that is installed


class DeadlineProtocol(_Base):  # type: ignore[misc]
    """Closes a connection that does not send a whole request line and all headers in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._stop()

    def _await_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
