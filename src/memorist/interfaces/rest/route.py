"""The route class of all REST routes.

It authenticates the caller before reading the body, accepts only strict JSON, and answers a
repeated request with the same `Idempotency-Key` without doing it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ...client import Client
from ...storage import codec
from ...types import Memory
from .auth import Caller, Requires, authenticate

REPLAY_PERIOD = timedelta(days=1)  # how long an answer is replayed
MAX_KEY_LENGTH = 200  # characters of an `Idempotency-Key`
_CHANGING = {"write", "remember", "owner"}  # rights of routes that change something


class StrictRequest(Request):
    """A request whose body is standard JSON: UTF-8, no NaN, no Infinity."""

    async def json(self) -> Any:
        try:
            return json.loads((await self.body()).decode(), parse_constant=_reject_constant)
        except RecursionError as error:
            raise HTTPException(400, "The body is not valid JSON: nested too deeply") from error
        except UnicodeError as error:
            raise HTTPException(400, "The body is not valid JSON: not UTF-8") from error
        except ValueError as error:
            reason = str(error)[:200]
            raise HTTPException(400, f"The body is not valid JSON: {reason}") from error


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


class AuthenticatedRoute(APIRoute):
    """A route that checks the rights of its caller first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        needed = tuple(rights(self.dependant))

        async def handle(request: Request) -> Response:
            if needed:
                caller = await authenticate(request)
                for right in needed:
                    caller.require(right)
            strict = StrictRequest(request.scope, request.receive)
            if self.body_field is not None:
                await _require_json(strict)
            key = strict.headers.get("idempotency-key")
            if key is None or not _CHANGING & set(needed):
                return await answer(strict)
            return await _answer_once(strict, caller, key, self.response_model is Memory, answer)

        return handle


def rights(dependant: Dependant) -> Iterator[str]:
    """Yield the rights that a route requires."""
    if isinstance(dependant.call, Requires):
        yield dependant.call.right
    for each in dependant.dependencies:
        yield from rights(each)


async def _require_json(request: Request) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and (media or await request.body()):
        raise HTTPException(415, "Send application/json", headers={"Accept": "application/json"})


async def _answer_once(
    request: Request,
    caller: Caller,
    key: str,
    is_memory: bool,
    answer: Callable[[Request], Awaitable[Response]],
) -> Response:
    """Answer a request, or replay the answer to the same request.

    Of an answer only ids are stored: a memory is read again, the text of a chat command is dropped.
    """
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise HTTPException(422, f"An Idempotency-Key has 1 to {MAX_KEY_LENGTH} characters")
    engine: Client = request.app.state.engine
    now = engine.ctx.clock()
    head = f"{request.method} {request.url}\n{request.headers.get('if-match', '')}\n"
    digest = hashlib.sha256(head.encode() + await request.body()).hexdigest()
    since = now - REPLAY_PERIOD
    stored = await engine.ctx.store.begin_request(caller.name, key, digest, at=now, since=since)
    if stored is not None:
        return await _replay(engine, caller, stored)
    record = None
    try:
        response = await answer(request)
        if response.status_code < 300:
            body: Any = json.loads(bytes(response.body)) if response.body else None
            kept: dict[str, Any] = {"status": response.status_code}
            if is_memory:
                kept |= {"memory": body["id"], "space": body["scope"]["space"]}
            elif isinstance(body, dict) and "say" in body:
                kept["body"] = {**body, "say": ""}
            else:
                kept["body"] = body
            record = json.dumps(kept)
    finally:
        await engine.ctx.store.end_request(caller.name, key, record, begun=now)
    return response


async def _replay(engine: Client, caller: Caller, stored: str) -> Response:
    if stored == "":
        raise HTTPException(422, "This Idempotency-Key was used for another request")
    if stored == "pending":
        raise HTTPException(
            409, "The same request is still being processed", headers={"Retry-After": "1"}
        )
    kept = json.loads(stored)
    headers = {"Idempotency-Replayed": "true"}
    body = b""
    if "memory" in kept:
        memory = await caller.scope(engine, kept["space"]).get(kept["memory"])
        body = json.dumps(codec.dump(memory)).encode()
        headers["ETag"] = f'"{memory.revision}"'
    elif kept["body"] is not None:
        body = json.dumps(kept["body"]).encode()
    return Response(body, kept["status"], media_type="application/json", headers=headers)
