"""The HTTP server: REST, MCP and the web page of one client.

Most routes are entries of the verb table: they parse the arguments, call the client and return the
result. The others are written by hand.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from dataclasses import asdict
from inspect import Parameter
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BeforeValidator, create_model
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ... import __version__
from ...client import Client
from ...errors import MemoristError, RevisionConflict
from ...manage.chat_list import Reply
from ...settings import Settings
from ...storage import Event
from ...storage.accounts import RIGHTS
from ...storage.documents import SavedCheckpoint
from ...storage.person import Proposal
from ...types import Memory, Receipt
from .. import Json, Verb, list_routes, metrics, transfer
from ..auth import (
    LABELS,
    MCP,
    WELL_KNOWN,
    Authenticator,
    Caller,
    ClientAccess,
    RateLimiter,
    Requires,
)
from ..mcp import build_http_server, serve_http
from ..remote import GROUPS
from ..web import pages
from . import (
    AuthenticatedRoute,
    Owner,
    Reader,
    RequestMiddleware,
    Responses,
    Writer,
    answer_error,
    bodies,
    declare,
    describe,
    dialects,
    mem0,
    problem,
    verbs,
)
from .bodies import Id, Name, ScopeParams

HEAD_SECONDS = 10  # from the first byte of a request, or from connecting, to its last header
_NO_TELEMETRY: Any = dict.fromkeys(
    "tracing metrics logs operation_spans auto_configure".split(), False
)
_DESCRIPTION = (
    "Long-term memory for AI agents. The API key identifies the caller; space, session and other "
    "labels select a part of their memory. A key with the right `service` acts for the user named "
    "in the header `X-Memorist-User`, or in `user`. Errors are `application/problem+json`. Requests that "
    "change something accept an `Idempotency-Key`: repeated within a day, they take effect once."
)
discovery = APIRouter()
memories = APIRouter(route_class=AuthenticatedRoute)
ROUTERS = (memories, transfer.routes, metrics.routes, dialects.routes, mem0.routes)
OWNERS: dict[str, Any] = {**GROUPS, "rest": verbs}
SHOWN: dict[Any, Any] = {  # response models of results that are returned in another form
    type(None): None,
    Response: Json,
    Proposal: bodies.Decision,
    list[Event]: list[Annotated[Json, BeforeValidator(asdict)]],
}
NOTHING_NEW: Responses = {200: {"model": Receipt, "description": "Nothing new was created"}}
_ETAG = re.compile(r'"(\d{1,18})"')


def add(verb: Verb) -> None:
    """Add the route of a verb."""
    method, path = verb.route.split()
    group, _, last = verb.method.rpartition(".")
    name = verb.name or last
    function = getattr(Client if verb.whole_client else OWNERS[group], last)
    result = get_type_hints(function)["return"]
    if group == "privacy":
        result = bodies.PrivacyStatus
    takes_actor = "actor" in inspect.signature(function).parameters
    responses = NOTHING_NEW if result is Receipt else {}
    if verb.may_be_missing:
        responses = declare(404)
    names_memory = "id" in [argument.kind for argument in verb.arguments]
    labels = set(LABELS) - {argument.name for argument in verb.arguments}

    async def endpoint(access: ClientAccess, response: Response, **values: Any) -> Any:
        values |= values.pop("query", ())
        values |= values.pop("body", ())
        place = {label: values.pop(label, None) for label in labels}
        access = access.for_user(values.pop("user", None))
        if takes_actor:
            values["actor"] = access.caller.user
        target: Any = access.client
        if names_memory and place["space"] is None:
            place["space"] = await access.caller.find_space(access.client, values["id"])
        if not verb.whole_client:
            target = access.caller.scope(access.client, **place)
        owner = getattr(target, group, target)
        answer = await function(owner, **values)
        if group == "privacy":
            answer = await verbs.privacy_status(target)
        if isinstance(answer, Receipt) and not answer.count("created"):
            response.status_code = 200
        return with_etag(response, answer) if isinstance(answer, Memory) else answer

    endpoint.__signature__ = describe_endpoint(verb, name)  # type: ignore[attr-defined]
    memories.add_api_route(
        path,
        endpoint,
        methods=[method],
        name=name,
        description=verb.help or inspect.getdoc(function),
        status_code=verb.status,
        response_model=SHOWN.get(result, result),
        responses=responses,
    )


def describe_endpoint(verb: Verb, name: str) -> inspect.Signature:
    """Return the signature of an endpoint, for FastAPI.

    A body names the space itself, unless the path names something in it.
    """
    method, path = verb.route.split()
    right = verb.right or ("read" if method == "GET" else "write")
    parameters: dict[str, Any] = {
        "response": Response,
        "access": Annotated[ClientAccess, Depends(Requires(right))],
    }
    fields: dict[str, Any] = {}
    for argument in verb.arguments:
        kind: Any = bodies.KINDS.get(argument.kind)
        if f"{{{argument.name}}}" in path:
            parameters[argument.name] = kind
        elif not argument.cli_only:
            default = ... if argument.required else argument.route_default
            if default is None:
                kind = kind | None
            fields[argument.name] = (kind, default)
    title = verb.body or name.title().replace("_", "") + "Body"
    model: Any = getattr(bodies, title, None)
    has_body = method in ("POST", "PUT") and bool(fields or model)
    names_space = has_body and "{" not in path
    if has_body:
        base = bodies.SpaceBody if names_space else bodies.Body
        if verb.has_labels:
            base = bodies.LabeledBody
        about = verb.body_help or verb.help
        parameters["body"] = model or create_model(title, __base__=base, __doc__=about, **fields)
        fields = {}
    if not (verb.whole_client or names_space):
        query = create_model(title, __base__=bodies.ScopeQuery, **fields)
        parameters["query"] = Annotated[query, Query()]
    named = []
    for each, annotation in parameters.items():
        named.append(Parameter(each, Parameter.KEYWORD_ONLY, annotation=annotation))
    return inspect.Signature(named)


def with_etag(response: Response, memory: Memory) -> Memory:
    """Set the revision of a memory as its ETag, for `If-Match`."""
    response.headers["ETag"] = f'"{memory.revision}"'
    return memory


@memories.patch("/v1/memory/entries/{id}", responses=declare(404, 409, 412))
async def edit_entry(
    id: Id,
    access: Writer,
    query: ScopeParams,
    response: Response,
    body: bodies.EditBody,
    if_match: Annotated[str, Header()] = "*",
) -> Memory:
    """Edit a memory. The previous version stays readable. With `If-Match`, only if unchanged."""
    etag = _ETAG.fullmatch(if_match)
    if etag is None and if_match != "*":
        raise HTTPException(412, "Unknown version: pass the `ETag` that came with the memory")
    space = query.space or await access.caller.find_space(access.client, id)
    mine = access.caller.scope(access.client, space, session=query.session)
    revision = int(etag[1]) if etag else None
    try:
        new = await mine.edit(id, **dict(body), revision=revision, actor=mine.scope.user)
    except RevisionConflict as error:
        raise HTTPException(412, str(error)) from error
    return with_etag(response, new)


@memories.post("/v1/memory/undo", responses=declare(404, 409))
async def undo(
    access: Writer, body: bodies.UndoOperationBody | bodies.UndoSessionBody
) -> bodies.UndoResult:
    """Undo one operation of the history, or everything that a session did."""
    caller = access.for_user(body.user).caller
    mine = caller.scope(access.client, body.space)
    options = body.model_dump(exclude={"space", "user"})
    done = await mine.undo(**options, actor=caller.user)
    return bodies.UndoResult(
        operations=list(done.operations),
        ids=[memory.id for memory in done.memories],
        dry_run=done.dry_run,
    )


@memories.post("/v1/memory/say", response_model=bodies.CommandResult)
async def say(access: Owner, body: bodies.SayBody) -> Reply:
    """Run a chat command: "what do you remember about …?", "forget that", "turn memory off"."""
    access.caller.require("read")
    reply = await access.scope(body).command(body.text, about=body.about)
    return reply or Reply(command="", say="", done=False)


@memories.put("/v1/memory/checkpoints/{thread}")
async def save_checkpoint(
    thread: Name, access: Writer, query: ScopeParams, body: bodies.CheckpointBody
) -> SavedCheckpoint:
    """Save the state of a thread. It replaces the previous checkpoint."""
    checkpoints = access.scope(query).checkpoints
    return await checkpoints.save(thread, dict(body))


@memories.get("/v1/memory/export", **transfer.AS_LINES)
async def export(access: Reader, query: ScopeParams) -> StreamingResponse:
    """Export everything in a space as JSON lines, which `import` reads."""
    return transfer.to_lines(access.scope(query).export())


for _verb in list_routes():
    if not _verb.by_hand:
        add(_verb)


def create_app(engine: Client, *, local: Caller | None = None) -> FastAPI:
    """Create the server of a client. The caller keeps the client open, and closes it.

    `local` is the caller of requests without a key, for a server that listens on localhost. Without
    it, every request needs a key.
    """
    app = FastAPI(
        title="Memorist",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        lifespan=lambda app: serve_http(app, build_http_server(engine)),
    )
    app.state.engine = engine
    app.state.authenticator = Authenticator(engine, local)
    app.state.rate_limiter = RateLimiter(engine.settings.rate_limit)
    app.state.metrics = metrics.Metrics(engine)
    pages.mount(app)
    for router in (discovery, *ROUTERS):
        app.include_router(router)
    for kind in (MemoristError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer_error)
    app.add_exception_handler(405, _method_not_allowed)
    app.add_middleware(
        RequestMiddleware,
        settings=engine.settings,
        local_only=local is not None,
    )
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


@discovery.get(WELL_KNOWN, include_in_schema=False)
@discovery.get(WELL_KNOWN + MCP, include_in_schema=False)
async def describe_resource(request: Request) -> Json:
    """Tell OAuth clients who issues the tokens for this server, or its MCP endpoint (RFC 9728).

    Hosts of remote MCP servers read it to log a person in.
    """
    settings: Settings = request.app.state.engine.settings
    if settings.jwt_jwks is None:
        raise HTTPException(404, "This server accepts API keys only, no tokens of an issuer")
    address = str(request.base_url).rstrip("/")
    return {
        "resource": address + request.url.path.removeprefix(WELL_KNOWN),
        "resource_name": "Memorist",
        "authorization_servers": [settings.jwt_issuer],
        "scopes_supported": list(RIGHTS),
        "bearer_methods_supported": ["header"],
    }


def _method_not_allowed(request: Request, error: Exception) -> Response:
    """Answer 405 with all methods that the path allows."""
    allowed: set[str] = set()
    for route in routes():
        if route.path_regex.match(request.url.path):
            allowed |= route.methods or set()
    headers = getattr(error, "headers", None)
    if allowed:
        headers = {"Allow": ", ".join(sorted(allowed))}
    return problem(request, 405, f"{request.method} is not supported here", headers=headers)


def routes() -> Iterator[AuthenticatedRoute]:
    """Yield all REST routes."""
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, AuthenticatedRoute):
                yield route


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
