"""What every request passes before anything reads it: where it came from, how large it is, and what it is called."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from urllib.parse import SplitResult, urlsplit
from uuid import uuid4

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...telemetry import logs
from . import problems

log = logging.getLogger("memorist.rest")
_SANE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_SAFE = ("GET", "HEAD", "OPTIONS")
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether a name is this machine and nothing else.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("localhost.example.com")
    (True, True, False)
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(address: str) -> SplitResult | None:
    try:
        return urlsplit(address)
    except ValueError:
        return None


class Gate:
    """Refuses other sites and what is too large, names each request, and tells what became of it."""

    def __init__(self, app: ASGIApp, *, most_bytes: int, only_here: bool) -> None:
        self._app, self._most, self._only_here = app, most_bytes, only_here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        given = headers.get("x-request-id", "")
        state["request_id"] = given if _SANE.fullmatch(given) else str(uuid4())
        logs.request.set(state["request_id"])
        begun, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _mark(MutableHeaders(scope=message), state)
            await send(message)

        request = Request(scope)
        try:
            if refused := self._refusal(request, headers):
                await refused(scope, receive, sending)
            else:
                await self._app(scope, self._counted(receive), sending)
        except Exception as error:
            if status:
                raise
            await problems.of_bug(request, error)(scope, receive, sending)
        finally:
            _tell(scope, status, time.perf_counter() - begun)

    def _refusal(self, request: Request, headers: Headers) -> ASGIApp | None:
        """What is refused unread."""
        host = headers.get("host", "")
        place = _split(f"//{host}")
        if place is None:
            return problems.response(request, 421, "`Host` is no name of a server")
        if self._only_here and not is_loopback(place.hostname or ""):
            return problems.response(
                request, 421, "This server answers under the name of this machine alone"
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_foreign = origin is not None and getattr(_split(origin), "netloc", None) != host
        if request.method not in _SAFE and (is_foreign or site not in ("none", "same-origin")):
            return problems.response(request, 403, "Another site may not change anything here")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._most:
            return problems.response(request, 413, self._too_large)
        return None

    @property
    def _too_large(self) -> str:
        return (
            f"A request has at most {self._most:,} bytes: send less at once, or raise `max_body_mb`"
        )

    def _counted(self, receive: Receive) -> Receive:
        read = 0

        async def receiving() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(413, self._too_large)
            return message

        return receiving


def _mark(headers: MutableHeaders, state: dict[str, object]) -> None:
    headers["X-Request-Id"] = str(state["request_id"])
    for name, value in _ALWAYS.items():
        headers.setdefault(name, value)
    limit = state.get("limit")
    if limit is not None:
        for name, value in limit.headers.items():  # type: ignore[attr-defined]
            headers.setdefault(name, value)


def _tell(scope: Scope, status: int, seconds: float) -> None:
    """One line for each request: the route, not the address, which may name somebody."""
    route, state = scope.get("route"), scope["state"]
    caller = state.get("caller")
    about = {"ms": round(1000 * seconds, 1), "caller": getattr(caller, "name", None)}
    log.info(
        "%s %s %d", scope["method"], getattr(route, "path", "-"), status, extra={"about": about}
    )
