"""A route of ours: it knows its caller before it reads anything, reads strict JSON, does a repeated request once."""

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
from .auth import Caller, May, admitted

KEPT = timedelta(days=1)  # how long the answer to a request is the answer to the same request
LONGEST = 200  # characters of an `Idempotency-Key`
_CHANGING = {
    "write",
    "remember",
    "owner",
}  # what needs one of these rights is done once; the rest can be asked again


class Strict(Request):
    """A request whose body is JSON as the standard has it."""

    async def json(self) -> Any:
        try:
            return json.loads((await self.body()).decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"The body is no JSON: {_brief(error)}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _brief(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)[:200]


class Door(APIRoute):
    """A route with a doorkeeper."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        needed = tuple(rights(self.dependant))

        async def handle(request: Request) -> Response:
            if needed:
                caller = await admitted(request)
                for right in needed:
                    caller.must(right)
            strict = Strict(request.scope, request.receive)
            if self.body_field is not None:
                await _check_media(strict)
            key = strict.headers.get("idempotency-key")
            if key is None or not _CHANGING & set(needed):
                return await answer(strict)
            return await _once(strict, caller, key, self.response_model is Memory, answer)

        return handle


def rights(dependant: Dependant) -> Iterator[str]:
    """Which rights a route asks for."""
    if isinstance(dependant.call, May):
        yield dependant.call.right
    for each in dependant.dependencies:
        yield from rights(each)


async def _check_media(request: Request) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and (media or await request.body()):
        raise HTTPException(415, "Send application/json", headers={"Accept": "application/json"})


async def _once(
    request: Request,
    caller: Caller,
    key: str,
    is_memory: bool,
    answer: Callable[[Request], Awaitable[Response]],
) -> Response:
    """The answer to a request, or the one it got before. Only ids are kept: words are read anew."""
    if not 1 <= len(key) <= LONGEST:
        raise HTTPException(422, f"An Idempotency-Key has 1 to {LONGEST} characters")
    engine: Client = request.app.state.engine
    now = engine.ctx.clock()
    head = f"{request.method} {request.url}\n{request.headers.get('if-match', '')}\n"
    asked = hashlib.sha256(head.encode() + await request.body()).hexdigest()
    known = await engine.ctx.store.begin_request(caller.name, key, asked, at=now, since=now - KEPT)
    if known is not None:
        return await _again(engine, caller, known)
    kept = None
    try:
        given = await answer(request)
        if given.status_code < 300:
            body = json.loads(bytes(given.body)) if given.body else None
            kept = json.dumps({"status": given.status_code, **_kept(body, is_memory)})
    finally:
        await engine.ctx.store.end_request(caller.name, key, kept, begun=now)
    return given


def _kept(body: Any, is_memory: bool) -> dict[str, Any]:
    """What is kept of an answer: of a memory where it is, of other answers all but what was said in words."""
    if is_memory:
        return {"memory": body["id"], "space": body["scope"]["space"]}
    return {"body": {**body, "say": ""} if isinstance(body, dict) and "say" in body else body}


async def _again(engine: Client, caller: Caller, known: str) -> Response:
    if known == "":
        raise HTTPException(
            422, "This Idempotency-Key was used for another request: take a new one"
        )
    if known == "pending":
        raise HTTPException(
            409, "The same request is being answered: ask again", headers={"Retry-After": "1"}
        )
    kept = json.loads(known)
    headers = {"Idempotency-Replayed": "true"}
    if "memory" in kept:
        memory = await caller.scope(engine, kept["space"]).get(kept["memory"])
        body, headers["ETag"] = json.dumps(codec.dump(memory)).encode(), f'"{memory.revision}"'
    else:
        body = json.dumps(kept["body"]).encode() if kept["body"] is not None else b""
    return Response(body, kept["status"], media_type="application/json", headers=headers)
