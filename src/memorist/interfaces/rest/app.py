"""The HTTP server: REST, MCP and the web page of one client.

Most routes are entries of the verb table: they parse the arguments, call the client and return the
result. The others are written by hand.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BeforeValidator, create_model
from starlette.exceptions import HTTPException

from ... import __version__
from ...client import Client
from ...errors import MemoristError, NotFound, RevisionConflict
from ...manage.chat_list import Reply
from ...manage.checkpoints import Checkpoints
from ...manage.privacy import Consent, Privacy
from ...scoped import ScopedClient
from ...storage import Event, HistoryEntry
from ...storage.documents import SavedCheckpoint
from ...storage.person import Proposal
from ...types import Filter, Memory, Receipt
from .. import VERBS, Verb, metrics, read_verbs
from ..mcp import build_http_server, serve_http
from ..web import pages
from . import agents, bodies, dialects, mem0, oauth, uploads, users
from .auth import LABELS, Authenticator, Caller, ClientAccess, RateLimiter, Requires
from .bodies import Id, Name, ScopeParams
from .request import (
    AuthenticatedRoute,
    Owner,
    Reader,
    RequestMiddleware,
    Writer,
    answer_error,
    declare,
    describe,
    problem,
)

_NO_TELEMETRY: Any = dict.fromkeys(
    "tracing metrics logs operation_spans auto_configure".split(), False
)
_DESCRIPTION = (
    "Long-term memory for AI agents. The API key identifies the caller; space, session and other "
    "labels select a part of their memory. With the right `service` it acts for the user named in "
    "the header `X-Memorist-User`, or in `user`. Errors are `application/problem+json`. Requests that "
    "change something accept an `Idempotency-Key`: repeated within a day, they are done once."
)
memories = APIRouter(route_class=AuthenticatedRoute)
ROUTERS = (memories, uploads.routes, users.routes, metrics.routes, dialects.routes, mem0.routes)
OWNERS: dict[str, Any] = {
    "": ScopedClient,
    "consent": Consent,
    "checkpoints": Checkpoints,
    "privacy": Privacy,
    "agents": agents,
    "rest": sys.modules[__name__],  # functions below, which take the scope first
}
SHOWN: dict[Any, Any] = {  # response models of results that are returned in another form
    type(None): None,
    Response: dict[str, Any],
    Proposal: bodies.Decision,
    list[Event]: list[Annotated[dict[str, Any], BeforeValidator(asdict)]],
}
NOTHING_NEW: dict[int | str, dict[str, Any]] = {
    200: {"model": Receipt, "description": "Nothing new was created"}
}
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
            answer = await privacy_status(target)
        if isinstance(answer, Receipt) and not answer.count("created"):
            response.status_code = 200
        return with_etag(response, answer) if isinstance(answer, Memory) else answer

    parameters = []
    for each, annotation in _endpoint_parameters(verb, name, method, path).items():
        parameter = Parameter(each, Parameter.KEYWORD_ONLY, annotation=annotation)
        parameters.append(parameter)
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
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


def _endpoint_parameters(verb: Verb, name: str, method: str, path: str) -> dict[str, Any]:
    """Return the parameters of an endpoint with their types.

    A body names the space itself, unless the path names something in it.
    """
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
        base: type[bodies.Body] = bodies.SpaceBody if names_space else bodies.Body
        if verb.has_labels:
            base = bodies.LabeledBody
        about = verb.body_help or verb.help
        if model is None:
            model = create_model(title, __base__=base, __doc__=about, **fields)
        parameters["body"] = model
        fields = {}
    if not (verb.whole_client or names_space):
        query = create_model(title, __base__=bodies.ScopeQuery, **fields)
        parameters["query"] = Annotated[query, Query()]
    return parameters


def with_etag(response: Response, memory: Memory) -> Memory:
    """Set the revision of a memory as its ETag, for `If-Match`."""
    response.headers["ETag"] = f'"{memory.revision}"'
    return memory


async def summary(mine: ScopedClient) -> bodies.SpaceSummary:
    """Summarize a space as readable text."""
    return bodies.SpaceSummary(
        space=mine.scope.space,
        summary=await mine.overview(),
        counts=await mine.stats(),
    )


async def list_entries(
    mine: ScopedClient,
    *,
    kind: str | None,
    state: str,
    category: str | None,
    tag: str | None,
    limit: int,
    cursor: str | None,
    pinned: bool | None,
    manually_saved: bool | None,
) -> bodies.MemoryPage:
    """List memories, newest first. Pass `cursor` to get the next page of the same list."""
    where = Filter(
        kinds=() if kind is None else (kind,),
        states=(state,),
        categories=() if category is None else (category,),
        tags=() if tag is None else (tag,),
        pinned=pinned,
        manually_saved=manually_saved,
    )
    return await list_where(mine, where=where, limit=limit, cursor=cursor)


async def list_where(
    mine: ScopedClient, *, where: Filter | None, limit: int, cursor: str | None
) -> bodies.MemoryPage:
    """List the memories that a filter matches, newest first, with `cursor` for the next page."""
    # A cursor is only valid for the list it came from.
    digest = hashlib.sha256(f"{mine.scope}{where}".encode()).hexdigest()[:16]
    start = None
    if cursor is not None:
        try:
            start, _, bound = base64.urlsafe_b64decode(cursor).decode().partition(".")
        except ValueError:
            bound = ""
        if bound != digest:
            raise NotFound(
                "Unknown cursor: pass the one of the previous page, with the same filters"
            )
    page = await mine.list(where, limit=limit, cursor=start)
    following = None
    if page.cursor:
        following = base64.urlsafe_b64encode(f"{page.cursor}.{digest}".encode()).decode()
    return bodies.MemoryPage(entries=list(page), cursor=following)


async def memory_history(mine: ScopedClient, *, id: str, limit: int) -> list[HistoryEntry]:
    """List the history of a memory, newest first. It outlives the memory."""
    entries = await mine.history(id, limit=limit)
    if not entries:
        raise NotFound(f"No memory with id {id!r} in your spaces")
    return entries


async def load_checkpoint(mine: ScopedClient, *, thread: str) -> Response:
    """Return the last checkpoint of a thread, as it is stored."""
    return Response(await mine.checkpoints.load_json(thread), media_type="application/json")


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


@memories.get("/v1/memory/export", **users.AS_LINES)
async def export(access: Reader, query: ScopeParams) -> StreamingResponse:
    """Export everything in a space as JSON lines, which `import` reads."""
    return users.to_lines(access.scope(query).export())


async def privacy_status(mine: ScopedClient) -> bodies.PrivacyStatus:
    """Return the privacy settings of a space or session."""
    reason = await mine.privacy.disabled_reason()
    settings = asdict(await mine.privacy.settings())
    return bodies.PrivacyStatus(space=mine.scope.space, **settings, on=not reason, reason=reason)


async def withdraw(mine: ScopedClient, *, field: str, actor: str) -> bodies.Withdrawal:
    """Erase a field about the user, its proposals and all its previous values."""
    erased = await mine.consent.withdraw(field, actor=actor)
    return bodies.Withdrawal(field=field, values=erased)


_table = tomllib.loads(Path(__file__).with_name("routes.toml").read_text("utf-8"))
for _verb in (*VERBS, *read_verbs(_table)):
    if _verb.route:
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
    app.include_router(oauth.routes)
    for router in ROUTERS:
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
