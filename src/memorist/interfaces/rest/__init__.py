"""How every REST request is handled.

The middleware checks origin and size and sets a request id. The route class authenticates the
caller before it reads the body, accepts only strict JSON, and does not repeat a request with the
same `Idempotency-Key`. Errors are `application/problem+json` (RFC 9457), without internals.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import uuid4

from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ... import storage
from ...client import Client
from ...errors import Busy, KeyRefused, MemoristError
from ...settings import Settings
from ...telemetry import request_id
from ...text import wording
from ...types import Memory
from .. import Json, codes
from ..auth import Caller, ClientAccess, Requires, authenticate, challenge
from ..remote import is_loopback
from .bodies import PATTERN_ERRORS

log = logging.getLogger("memorist.rest")
Reader = Annotated[ClientAccess, Depends(Requires("read"))]
Writer = Annotated[ClientAccess, Depends(Requires("write"))]
Owner = Annotated[ClientAccess, Depends(Requires("owner"))]
Admin = Annotated[ClientAccess, Depends(Requires("admin"))]
Rememberer = Annotated[ClientAccess, Depends(Requires("remember"))]
Responses = dict[int | str, Json]  # of a route, by status, for OpenAPI
MEDIA = "application/problem+json"
NO_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Page not found</title>
<h1>Page not found</h1><p>There is no page at this address. <a href="/">Go to the start page</a>.</p>
</html>"""
_KEY = "Create one with `memorist keys create`. A server on localhost may be used without a key."
REPLAY_PERIOD = timedelta(days=1)  # how long an answer is replayed
BODY_SECONDS = 10  # for a body to arrive, and more for each byte received
SLOWEST = 10_000  # bytes per second
MOST_REQUESTS = 256  # answered at the same time
MAX_KEY_LENGTH = 200  # characters of an `Idempotency-Key`
UPLOAD = "/v1/memory/import/file"
_UPLOADS = (UPLOAD, "/import")  # files, which may be larger than other requests
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CHANGING = {"write", "remember", "owner"}  # rights of routes that change something
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Problem(BaseModel, extra="forbid"):
    """Why a request failed."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, str]] | None = None


def declare(*statuses: int) -> Responses:
    """Return the OpenAPI responses for error statuses."""
    content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"content": content} for status in statuses}


def describe(app: FastAPI) -> Json:
    """Return the OpenAPI 3.1 document."""
    document = FastAPI.openapi(app)
    components = document["components"]
    components["schemas"]["Problem"] = Problem.model_json_schema()
    key = {"type": "http", "scheme": "bearer", "description": _KEY}
    components["securitySchemes"] = {"key": key}
    return document


def problem(
    request: Request,
    status: int,
    detail: str,
    *,
    kind: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a problem as a response."""
    phrase = HTTPStatus(status).phrase
    camel_case = kind or phrase.title().replace(" ", "")
    name = _WORDS.sub("-", camel_case).lower()
    body = {
        "type": f"urn:memorist:{name}",
        "title": phrase,
        "status": status,
        "detail": detail,
        "request_id": getattr(request.state, "request_id", ""),
        **more,
    }
    return Response(json.dumps(body), status, headers=headers, media_type=MEDIA)


def answer_error(request: Request, error: Exception) -> Response:
    """Answer a failed request. Details of internal errors (5xx) are only logged."""
    if isinstance(error, HTTPException):
        is_unknown = error.status_code == 404 and error.detail == HTTPStatus.NOT_FOUND.phrase
        if is_unknown and "text/html" in request.headers.get("accept", ""):
            return Response(NO_PAGE, 404, media_type="text/html")
        return problem(request, error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, RequestValidationError):
        found = []
        for each in error.errors()[:20]:  # without the input
            at = ".".join(map(str, each["loc"]))
            why = PATTERN_ERRORS.get(each.get("ctx", {}).get("pattern"), wording.explain(each))
            found.append({"at": at, "why": why})
        detail = f"{found[0]['at']}: {found[0]['why']}"
        return problem(request, 422, detail, kind="InvalidInput", errors=found)
    status = codes(error).status
    detail = str(error)
    headers = dict[str, str]()
    if status >= 500:
        detail = inspect.cleandoc(type(error).__doc__ or "")
        # Log where it was raised, but not its message: that may contain a memory.
        where = "unknown"
        for frame, line in traceback.walk_tb(error.__traceback__):
            where = f"{frame.f_code.co_filename}:{line}"
        id = getattr(request.state, "request_id", "-")
        log.error("request %s failed: %s at %s", id, type(error).__name__, where)
    if not isinstance(error, MemoristError):
        return problem(request, 500, "Internal error. The server log has the details for this id.")
    if isinstance(error, KeyRefused):
        headers["WWW-Authenticate"] = challenge(request)
    if error.retry:
        headers["Retry-After"] = "1"
    return problem(request, status, detail, kind=type(error).__name__, headers=headers)


@dataclass
class RequestMiddleware:
    """Rejects cross-site, oversized, slow and too many requests; sets the request id and headers;
    logs requests."""

    app: ASGIApp
    settings: Settings
    local_only: bool
    active: int = 0  # requests that are being answered

    def check_size(self, path: str, size: int) -> None:
        """Raise HTTPException for a request that is too large."""
        name = "max_upload_mb" if path in _UPLOADS else "max_body_mb"
        most: int = getattr(self.settings, name) << 20
        if size > most:
            limit = f"A request has at most {most:,} bytes"
            raise HTTPException(413, f"{limit}: send less at once, or raise `{name}`")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        state: Json = scope.setdefault("state", {})
        id = request.headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(id):
            id = str(uuid4())
        state["request_id"] = id
        request_id.set(id)
        start = time.perf_counter()
        status = 0
        received = 0
        has_body = True

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                sent = MutableHeaders(scope=message)
                sent["X-Request-Id"] = id
                headers = _HEADERS | state.get("limit", {})
                for name, value in headers.items():
                    sent.setdefault(name, value)
            await send(message)

        async def receive_limited() -> Message:
            nonlocal received, has_body
            ends = start + BODY_SECONDS + received / SLOWEST
            left = max(0.0, ends - time.perf_counter()) if has_body else None
            try:
                async with asyncio.timeout(left):
                    message = await receive()
            except TimeoutError as error:
                close = {"Connection": "close"}
                raise HTTPException(408, "The body did not arrive in time", close) from error
            received += len(message.get("body", b""))
            has_body = message.get("more_body", False)
            self.check_size(scope["path"], received)
            return message

        self.active += 1
        try:
            if self.active > MOST_REQUESTS and scope["path"] != "/healthz":
                raise Busy
            self.check(request)
            await self.app(scope, receive_limited, send_with_headers)
        except ClientDisconnect:
            pass  # nobody waits for an answer
        except Exception as error:
            if status:
                raise
            await answer_error(request, error)(scope, receive, send_with_headers)
        finally:
            self.active -= 1
            route = getattr(scope.get("route"), "path", "-")  # the path itself may contain a name
            caller = getattr(state.get("caller"), "name", None)
            seconds = time.perf_counter() - start
            about = {"ms": round(1000 * seconds, 1), "caller": caller}
            log.info("%s %s %d", scope["method"], route, status, extra={"about": about})

    def check(self, request: Request) -> None:
        """Raise HTTPException if a request is rejected before its body is read."""
        headers = request.headers
        host = headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            raise HTTPException(421, "`Host` is not a valid host name") from None
        if self.local_only and not is_loopback(name):
            raise HTTPException(421, "This server only answers as localhost")
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        is_foreign = origin is not None and origin.partition("://")[2] != host
        is_cross_site = is_foreign or site not in ("none", "same-origin")
        if is_cross_site and request.method not in ("GET", "HEAD", "OPTIONS"):
            raise HTTPException(403, "Cross-site requests may not change anything")
        length = headers.get("content-length", "0")
        size = int(length) if length.isdigit() else sys.maxsize
        self.check_size(request.url.path, size)


class StrictRequest(Request):
    """A request whose body is standard JSON: UTF-8, no NaN, no Infinity."""

    async def json(self) -> Any:
        def reject(name: str) -> None:
            raise ValueError(f"{name} is not a JSON number")

        reasons = {RecursionError: "nested too deeply", UnicodeDecodeError: "not UTF-8"}
        body = await self.body()
        try:
            return json.loads(body.decode(), parse_constant=reject)
        except (RecursionError, ValueError) as error:
            reason = reasons.get(type(error), str(error)[:200])
            raise HTTPException(400, f"The body is not valid JSON: {reason}") from error


class AuthenticatedRoute(APIRoute):
    """A route that checks the rights of its caller first, and declares all errors."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rights = tuple(rights(self.dependant))
        self.openapi_extra = self.openapi_extra or {}
        self.openapi_extra["security"] = [{"key": []}] if self.rights else []
        statuses = {500, 503}
        for right in self.rights:
            self.openapi_extra["x-right"] = right
            statuses |= {401, 403, 422, 429}
        if self.body_field:
            statuses |= {400, 413, 415}
        if self.methods != {"GET"}:
            statuses.add(409)
        self.responses = declare(*sorted(statuses)) | self.responses

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if self.rights:
                caller = await authenticate(request)
                for right in self.rights:
                    caller.require(right)
            strict = StrictRequest(request.scope, request.receive)
            media, _, _ = strict.headers.get("content-type", "").partition(";")
            media = media.strip().lower()
            is_other = self.body_field is not None and media != "application/json"
            if is_other and (media or await strict.body()):
                accept = {"Accept": "application/json"}
                raise HTTPException(415, "Send application/json", headers=accept)
            key = strict.headers.get("idempotency-key")
            if key is None or self.path == UPLOAD or not _CHANGING & set(self.rights):
                return await answer(strict)
            return await self.answer_once(strict, caller, key, answer)

        return handle

    async def answer_once(
        self,
        request: Request,
        caller: Caller,
        key: str,
        answer: Callable[[Request], Awaitable[Response]],
    ) -> Response:
        """Answer a request, or replay the answer to the same request.

        Stored answers contain no text: a memory is read again when its answer is replayed, and the
        reply to a chat command is dropped.
        """
        if not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise HTTPException(422, f"An Idempotency-Key has 1 to {MAX_KEY_LENGTH} characters")
        engine: Client = request.app.state.engine
        requests = engine.ctx.store.requests
        now = engine.ctx.clock()
        head = f"{request.method} {request.url}\n{request.headers.get('if-match', '')}\n"
        content = head.encode() + await request.body()
        stored = await requests.begin(
            caller.name,
            key,
            hashlib.sha256(content).hexdigest(),
            at=now,
            since=now - REPLAY_PERIOD,
        )
        if stored is not None:
            return await replay(engine, caller, stored)
        record = None
        try:
            response = await answer(request)
            if response.status_code < 300:
                body: Any = json.loads(bytes(response.body) or b"null")
                saved: Json = {"status": response.status_code}
                if self.response_model is Memory:
                    saved["memory"] = body["id"]
                    saved |= {name: body["scope"][name] for name in ("space", "user")}
                else:
                    saved["body"] = body
                    if isinstance(body, dict) and "say" in body:
                        body["say"] = ""
                record = json.dumps(saved)
        finally:
            await requests.end(caller.name, key, record, begun=now)
        return response


def rights(dependant: Dependant) -> Iterator[str]:
    """Yield the rights that a route requires."""
    if isinstance(dependant.call, Requires):
        yield dependant.call.right
    for each in dependant.dependencies:
        yield from rights(each)


async def replay(engine: Client, caller: Caller, stored: str) -> Response:
    """Return the stored answer to a request."""
    if stored == "":
        raise HTTPException(422, "This Idempotency-Key was used for another request")
    if stored == "pending":
        wait = {"Retry-After": "1"}
        raise HTTPException(409, "The same request is still being processed", headers=wait)
    saved = json.loads(stored)
    headers = {"Idempotency-Replayed": "true"}
    body = saved.get("body")
    if "memory" in saved:
        scope = caller.for_user(saved["user"]).scope(engine, saved["space"])
        memory = await scope.get(saved["memory"])
        body = storage.dump(memory)
        headers["ETag"] = f'"{memory.revision}"'
    content = b"" if body is None else json.dumps(body)
    return Response(content, saved["status"], media_type="application/json", headers=headers)
