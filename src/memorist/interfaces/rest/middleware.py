"""What every request passes: origin and size checks, a request id, headers, a log line."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from typing import Any
from urllib.parse import SplitResult, urlsplit
from uuid import uuid4

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...telemetry import request_id
from . import problems

log = logging.getLogger("memorist.rest")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether a host name means this machine only.

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


class RequestMiddleware:
    """Rejects cross-site and oversized requests; sets the request id and headers; logs requests."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, local_only: bool) -> None:
        self._app, self._max_bytes, self._local_only = app, max_bytes, local_only
        self._too_large = (
            f"A request has at most {max_bytes:,} bytes: send less at once, or raise `max_body_mb`"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state: dict[str, Any] = scope.setdefault("state", {})
        given = headers.get("x-request-id", "")
        state["request_id"] = given if _REQUEST_ID.fullmatch(given) else str(uuid4())
        request_id.set(state["request_id"])
        start, status, received = time.perf_counter(), 0, 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = MutableHeaders(scope=message)
                sent["X-Request-Id"] = state["request_id"]
                limit = state.get("limit")
                extra = _HEADERS if limit is None else _HEADERS | limit.headers
                for name, value in extra.items():
                    sent.setdefault(name, value)
            await send(message)

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, self._too_large)
            return message

        request = Request(scope)
        try:
            if rejection := self._reject(request, headers):
                await rejection(scope, receive, send_with_headers)
            else:
                await self._app(scope, receive_limited, send_with_headers)
        except Exception as error:
            if status:
                raise
            await problems.from_bug(request, error)(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "-")  # the path itself may contain a name
            caller = getattr(state.get("caller"), "name", None)
            about = {"ms": round(1000 * (time.perf_counter() - start), 1), "caller": caller}
            log.info("%s %s %d", scope["method"], route, status, extra={"about": about})

    def _reject(self, request: Request, headers: Headers) -> ASGIApp | None:
        """Return the answer to a request that is rejected unread, or None."""
        host = headers.get("host", "")
        address = _split(f"//{host}")
        if address is None:
            return problems.response(request, 421, "`Host` is not a valid host name")
        if self._local_only and not is_loopback(address.hostname or ""):
            return problems.response(request, 421, "This server only answers as localhost")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_foreign = origin is not None and getattr(_split(origin), "netloc", None) != host
        is_cross_site = is_foreign or site not in ("none", "same-origin")
        if is_cross_site and request.method not in _SAFE_METHODS:
            return problems.response(request, 403, "Cross-site requests may not change anything")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._max_bytes:
            return problems.response(request, 413, self._too_large)
        return None
