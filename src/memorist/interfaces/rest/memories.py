"""Routes about memories: list, add, edit, forget, undo, recall, import and export."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from ...errors import NotFound, RevisionConflict
from ...manage.forget import Forgotten
from ...scoped import ScopedClient
from ...storage.documents import SavedCheckpoint
from ...types import Filter, Memory, Recall, Receipt
from . import bodies
from .auth import Caller, Requires
from .bodies import Count, Days, Id, KindName, Name, ScopeQuery, StateName, Word, scope_of
from .problems import declared
from .route import AuthenticatedRoute
from .table import with_etag

routes = APIRouter(prefix="/v1/memory", route_class=AuthenticatedRoute)
Reader = Annotated[Caller, Depends(Requires("read"))]
Writer = Annotated[Caller, Depends(Requires("write"))]
Owner = Annotated[Caller, Depends(Requires("owner"))]
Asker = Annotated[Caller, Depends(Requires("ask"))]
Rememberer = Annotated[Caller, Depends(Requires("remember"))]
NOT_FOUND = declared(404)
NOTHING_NEW: dict[int | str, dict[str, Any]] = {
    200: {"model": Receipt, "description": "Nothing new was created"}
}
_ETAG = re.compile(r'"(\d{1,18})"')


class MemoryPage(BaseModel):
    """One page of memories and the cursor of the next."""

    entries: list[Memory]
    cursor: str | None


class SpaceSummary(BaseModel):
    """What is stored in a space."""

    space: str
    summary: str
    counts: dict[str, Any]


class UndoResult(BaseModel):
    """What was undone, or would be."""

    operations: list[str]
    ids: list[str]
    dry_run: bool


class CommandResult(BaseModel):
    """The result of a chat command; `command` is empty if the text was none."""

    command: str
    say: str
    done: bool
    ids: list[str]


class ListQuery(ScopeQuery):
    """Which memories to list."""

    pinned: bool | None = None
    manually_saved: bool | None = None
    kind: KindName | None = None
    state: StateName = "active"
    category: Word | None = None
    tag: Word | None = None
    limit: Count = 50
    cursor: Annotated[str, Field(max_length=100)] | None = None

    def filter(self) -> Filter:
        return Filter(
            pinned=self.pinned,
            manually_saved=self.manually_saved,
            states=(self.state,),
            kinds=() if self.kind is None else (self.kind,),
            categories=() if self.category is None else (self.category,),
            tags=() if self.tag is None else (self.tag,),
        )


class ForgetQuery(ScopeQuery):
    """How to forget a memory."""

    reason: Word = ""
    keep_days: Days = 0
    never_again: bool = False


def reading(
    request: Request, caller: Reader, query: Annotated[ScopeQuery, Query()]
) -> ScopedClient:
    return scope_of(request, caller, query)


def writing(
    request: Request, caller: Writer, query: Annotated[ScopeQuery, Query()]
) -> ScopedClient:
    return scope_of(request, caller, query)


ReadScope = Annotated[ScopedClient, Depends(reading)]
WriteScope = Annotated[ScopedClient, Depends(writing)]


@routes.get("/summary")
async def summary(mine: ReadScope) -> SpaceSummary:
    """Summarize what is stored in a space, for people to read."""
    text = await mine.overview()
    return SpaceSummary(space=mine.scope.space, summary=text, counts=await mine.stats())


@routes.get("/entries", responses=NOT_FOUND)
async def list_entries(
    request: Request, caller: Reader, query: Annotated[ListQuery, Query()]
) -> MemoryPage:
    """List memories, newest first. Pass `cursor` to get the next page of the same list."""
    mine, where = scope_of(request, caller, query), query.filter()
    # A cursor is only valid for the list it came from.
    digest = hashlib.sha256(f"{mine.scope}{where}".encode()).hexdigest()[:16]
    start = None
    if query.cursor is not None:
        try:
            start, _, bound = base64.urlsafe_b64decode(query.cursor).decode().partition(".")
        except ValueError:
            bound = ""
        if bound != digest:
            raise NotFound(
                "Unknown cursor: pass the one of the previous page, with the same filters"
            )
    page = await mine.list(where, limit=query.limit, cursor=start)
    following = None
    if page.cursor:
        following = base64.urlsafe_b64encode(f"{page.cursor}.{digest}".encode()).decode()
    return MemoryPage(entries=list(page.memories), cursor=following)


@routes.post("/entries", status_code=201, responses=NOTHING_NEW)
async def add_entry(
    request: Request, response: Response, caller: Rememberer, body: bodies.EntryBody
) -> Receipt:
    """Remember a text. Everything reported as `created` is durable and can be recalled."""
    mine = scope_of(request, caller, body)
    return with_status(response, await mine.remember(body.text, at=body.at, **body.fields()))


@routes.post("/messages", status_code=201, responses=NOTHING_NEW)
async def add_messages(
    request: Request, response: Response, caller: Rememberer, body: bodies.MessagesBody
) -> Receipt:
    """Remember messages. A message id that is already known gives the same outcome again."""
    messages = [each.model_dump() for each in body.messages]
    mine = scope_of(request, caller, body)
    return with_status(response, await mine.remember(messages, **body.fields()))


def with_status(response: Response, receipt: Receipt) -> Receipt:
    """Answer 200 instead of 201 if nothing was created."""
    if not receipt.count("created"):
        response.status_code = 200
    return receipt


@routes.patch("/entries/{id}", responses=declared(404, 409, 412))
async def edit_entry(
    id: Id,
    mine: WriteScope,
    response: Response,
    body: bodies.EditBody,
    if_match: Annotated[str, Header()] = "*",
) -> Memory:
    """Edit a memory. The previous version stays readable. With `If-Match`, only if unchanged."""
    etag = _ETAG.fullmatch(if_match)
    if etag is None and if_match != "*":
        raise HTTPException(412, "Unknown version: pass the `ETag` that came with the memory")
    revision = int(etag[1]) if etag else None
    try:
        new = await mine.edit(id, **body.model_dump(), revision=revision, actor=mine.scope.user)
    except RevisionConflict as error:
        raise HTTPException(412, str(error)) from error
    return with_etag(response, new)


@routes.delete("/entries/{id}", responses=NOT_FOUND)
async def forget_entry(
    request: Request, id: Id, caller: Writer, query: Annotated[ForgetQuery, Query()]
) -> Forgotten:
    """Forget a memory and everything derived from it alone, or hide it for `keep_days`."""
    options = query.model_dump(exclude={*ScopeQuery.model_fields})
    return await scope_of(request, caller, query).forget(id, **options, actor=caller.user)


@routes.post("/forget")
async def forget_where(request: Request, caller: Writer, body: bodies.ForgetBody) -> Forgotten:
    """Forget everything that a question finds or a filter matches. By default a dry run."""
    where = body.where.filter() if body.where else None
    options = body.model_dump(include={"dry_run", "reason", "keep_days", "never_again"})
    mine = scope_of(request, caller, body)
    return await mine.forget_where(body.query, where=where, **options, actor=caller.user)


@routes.post("/undo", responses=declared(404, 409))
async def undo(
    request: Request, caller: Writer, body: bodies.UndoOperationBody | bodies.UndoSessionBody
) -> UndoResult:
    """Undo one operation of the history, or everything that a session did."""
    mine = caller.scope(bodies.client_of(request), body.space)
    done = await mine.undo(**body.model_dump(exclude={"space"}), actor=caller.user)
    ids = [memory.id for memory in done.memories]
    return UndoResult(operations=list(done.operations), ids=ids, dry_run=done.dry_run)


@routes.post("/recall")
async def recall(request: Request, caller: Reader, body: bodies.RecallBody) -> Recall:
    """Recall memories that answer a question, within a budget. Each hit explains its score."""
    options = body.model_dump(exclude={*bodies.LabeledBody.model_fields, "query", "where"})
    where = body.where.filter() if body.where else None
    return await scope_of(request, caller, body).recall(body.query, where=where, **options)


@routes.post("/feedback")
async def feedback(request: Request, caller: Reader, body: bodies.FeedbackBody) -> dict[str, str]:
    """Report which recalled memories a reply used: told, cited or echoed. No text is stored."""
    evidence = {"reply": body.reply} if body.used is None else {"used": body.used}
    return await scope_of(request, caller, body).feedback(body.recalled, **evidence)


@routes.post("/query")
async def query(request: Request, caller: Asker, body: bodies.QueryBody) -> list[dict[str, Any]]:
    """Answer the question of an agent, as bullets or in full. Its allowlist always applies."""
    return await scope_of(request, caller, body).query(
        body.query,
        agent=caller.agent or body.agent or "",
        categories=body.categories,
        top_k=body.top_k,
        return_=body.shape,
        filters=body.filters.model_dump() if body.filters else None,
        budget_tokens=body.budget_tokens,
        threshold=body.threshold,
    )


@routes.post("/say")
async def say(request: Request, caller: Writer, body: bodies.SayBody) -> CommandResult:
    """Run a chat command: "what do you remember about …?", "forget that", "turn memory off"."""
    caller.require("read")
    reply = await scope_of(request, caller, body).command(body.text, about=body.about)
    if reply is None:
        return CommandResult(command="", say="", done=False, ids=[])
    return CommandResult(command=reply.command, say=reply.say, done=reply.done, ids=list(reply.ids))


@routes.put("/checkpoints/{thread}")
async def save_checkpoint(
    thread: Name, mine: WriteScope, body: bodies.CheckpointBody
) -> SavedCheckpoint:
    """Save the state of a thread. It replaces the previous checkpoint."""
    return await mine.checkpoints.save(thread, body.model_dump())


@routes.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}}},
)
async def export(mine: ReadScope) -> StreamingResponse:
    """Export everything in a space as JSON lines, which `import` reads."""

    async def lines() -> AsyncIterator[str]:
        async for record in mine.export():
            yield json.dumps(record) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@routes.post("/import", status_code=201, responses=NOTHING_NEW)
async def import_(
    request: Request, response: Response, caller: Owner, body: bodies.ImportBody
) -> Receipt:
    """Import exported records or messages. Needs the right `owner`. Repeating it changes nothing.

    Records pass the guard and the privacy settings like any other write. With `restore`, for your
    own export, they are stored unchanged.
    """
    mine = scope_of(request, caller, body)
    return with_status(response, await mine.import_(body.records, restore=body.restore))
