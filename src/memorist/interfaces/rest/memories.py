"""The routes that the verb table cannot express: memories, recall, import, export and privacy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from ...errors import NotFound, RevisionConflict
from ...manage.chat_commands import Reply
from ...manage.forget import Forgotten
from ...manage.privacy import FIELDS
from ...scoped import ScopedClient
from ...storage.documents import SavedCheckpoint
from ...types import Filter, Memory, Recall, Receipt
from . import bodies
from .bodies import Count, Days, Id, Name, ScopeParams, ScopeQuery, Word
from .request import Asker, AuthenticatedRoute, Owner, Reader, Rememberer, Writer, declare
from .table import with_etag

routes = APIRouter(prefix="/v1/memory", route_class=AuthenticatedRoute)
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


class PrivacyStatus(BaseModel):
    """The privacy settings of a space or session."""

    space: str
    memory_enabled: bool
    incognito_default: bool
    sharing: bool
    on: bool
    reason: str


class Withdrawal(BaseModel):
    """How many values of a field were erased."""

    field: str
    values: int


class ListQuery(ScopeQuery):
    """Which memories to list."""

    pinned: bool | None = None
    manually_saved: bool | None = None
    kind: bodies.KindName | None = None
    state: bodies.StateName = "active"
    category: Word | None = None
    tag: Word | None = None
    limit: Count = 50
    cursor: Annotated[str, Field(max_length=100)] | None = None

    def filter(self) -> Filter:
        given = {"kinds": self.kind, "categories": self.category, "tags": self.tag}
        chosen: dict[str, Any] = {"states": (self.state,)}
        for name, value in given.items():
            chosen[name] = () if value is None else (value,)
        return Filter(pinned=self.pinned, manually_saved=self.manually_saved, **chosen)


class ForgetQuery(ScopeQuery):
    """How to forget a memory."""

    reason: Word = ""
    keep_days: Days = 0
    never_again: bool = False


@routes.get("/summary")
async def summary(access: Reader, query: ScopeParams) -> SpaceSummary:
    """Summarize what is stored in a space, for people to read."""
    mine = access.scope(query)
    text = await mine.overview()
    return SpaceSummary(space=mine.scope.space, summary=text, counts=await mine.stats())


@routes.get("/entries", responses=declare(404))
async def list_entries(access: Reader, query: Annotated[ListQuery, Query()]) -> MemoryPage:
    """List memories, newest first. Pass `cursor` to get the next page of the same list."""
    mine = access.scope(query)
    where = query.filter()
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
    return MemoryPage(entries=list(page), cursor=following)


@routes.post("/entries", status_code=201, responses=NOTHING_NEW)
async def add_entry(response: Response, access: Rememberer, body: bodies.EntryBody) -> Receipt:
    """Remember a text. Everything reported as `created` is durable and can be recalled."""
    mine = access.scope(body)
    return with_status(response, await mine.remember(body.text, **body.options("text")))


@routes.post("/messages", status_code=201, responses=NOTHING_NEW)
async def add_messages(
    response: Response, access: Rememberer, body: bodies.MessagesBody
) -> Receipt:
    """Remember messages. A message id that is already known gives the same outcome again."""
    messages = [each.model_dump() for each in body.messages]
    mine = access.scope(body)
    return with_status(response, await mine.remember(messages, **body.options("messages")))


def with_status(response: Response, receipt: Receipt) -> Receipt:
    """Answer 200 instead of 201 if nothing was created."""
    if not receipt.count("created"):
        response.status_code = 200
    return receipt


@routes.patch("/entries/{id}", responses=declare(404, 409, 412))
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
    mine = access.scope(query)
    user = access.caller.user
    revision = int(etag[1]) if etag else None
    try:
        new = await mine.edit(id, **body.options(), revision=revision, actor=user)
    except RevisionConflict as error:
        raise HTTPException(412, str(error)) from error
    return with_etag(response, new)


@routes.delete("/entries/{id}", responses=declare(404))
async def forget_entry(id: Id, access: Writer, query: Annotated[ForgetQuery, Query()]) -> Forgotten:
    """Forget a memory and everything derived from it alone, or hide it for `keep_days`."""
    mine = access.scope(query)
    return await mine.forget(id, **query.options(), actor=access.caller.user)


@routes.post("/forget")
async def forget_where(access: Writer, body: bodies.ForgetBody) -> Forgotten:
    """Forget everything that a question finds or a filter matches. By default a dry run."""
    mine = access.scope(body)
    return await mine.forget_where(**body.options(), actor=access.caller.user)


@routes.post("/undo", responses=declare(404, 409))
async def undo(
    access: Writer, body: bodies.UndoOperationBody | bodies.UndoSessionBody
) -> UndoResult:
    """Undo one operation of the history, or everything that a session did."""
    mine = access.caller.scope(access.client, body.space)
    done = await mine.undo(**body.model_dump(exclude={"space"}), actor=access.caller.user)
    ids = [memory.id for memory in done.memories]
    return UndoResult(operations=list(done.operations), ids=ids, dry_run=done.dry_run)


@routes.post("/recall")
async def recall(access: Reader, body: bodies.RecallBody) -> Recall:
    """Recall memories that answer a question, within a budget. Each hit explains its score."""
    return await access.scope(body).recall(**body.options())


@routes.post("/feedback")
async def feedback(access: Reader, body: bodies.FeedbackBody) -> dict[str, str]:
    """Report which recalled memories a reply used: told, cited or echoed. No text is stored."""
    evidence = {"reply": body.reply} if body.used is None else {"used": body.used}
    return await access.scope(body).feedback(body.recalled, **evidence)


@routes.post("/query")
async def query(access: Asker, body: bodies.QueryBody) -> list[dict[str, Any]]:
    """Answer the question of an agent, as bullets or in full. Its allowlist always applies."""
    options = body.options("shape", "filters")
    options["agent"] = access.caller.agent or body.agent or ""
    if body.filters:
        options["filters"] = body.filters.model_dump()
    return await access.scope(body).query(**options, return_=body.shape)


@routes.post("/say", response_model=CommandResult)
async def say(access: Writer, body: bodies.SayBody) -> Reply:
    """Run a chat command: "what do you remember about …?", "forget that", "turn memory off"."""
    access.caller.require("read")
    reply = await access.scope(body).command(**body.options())
    return reply or Reply(command="", say="", done=False)


@routes.put("/checkpoints/{thread}")
async def save_checkpoint(
    thread: Name, access: Writer, query: ScopeParams, body: bodies.CheckpointBody
) -> SavedCheckpoint:
    """Save the state of a thread. It replaces the previous checkpoint."""
    return await access.scope(query).checkpoints.save(thread, body.model_dump())


@routes.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}}},
)
async def export(access: Reader, query: ScopeParams) -> StreamingResponse:
    """Export everything in a space as JSON lines, which `import` reads."""
    mine = access.scope(query)

    async def lines() -> AsyncIterator[str]:
        async for record in mine.export():
            yield json.dumps(record) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@routes.post("/import", status_code=201, responses=NOTHING_NEW)
async def import_(response: Response, access: Owner, body: bodies.ImportBody) -> Receipt:
    """Import exported records or messages. Needs the right `owner`. Repeating it changes nothing.

    Records pass the guard and the privacy settings like any other write. With `restore`, for your
    own export, they are stored unchanged.
    """
    mine = access.scope(body)
    return with_status(response, await mine.import_(**body.options()))


async def privacy_status(mine: ScopedClient) -> PrivacyStatus:
    """Return the privacy settings of a space or session."""
    reason = await mine.privacy.disabled_reason()
    settings = asdict(await mine.privacy.settings())
    return PrivacyStatus(space=mine.scope.space, **settings, on=not reason, reason=reason)


@routes.get("/settings")
async def settings(access: Reader, query: ScopeParams) -> PrivacyStatus:
    """Return the privacy settings of a space, or of a session in it."""
    return await privacy_status(access.scope(query))


@routes.post("/settings")
async def set_settings(access: Writer, body: bodies.SpaceSettingsBody) -> PrivacyStatus:
    """Turn memory in a space on or off, and choose whether its sessions start incognito."""
    mine = access.scope(body)
    await mine.privacy.set(**body.options(), actor=access.caller.user)
    return await privacy_status(mine)


@routes.post("/incognito/start")
async def start_incognito(access: Writer, body: bodies.SessionBody) -> PrivacyStatus:
    """Make a session incognito: nothing is stored or recalled in it."""
    mine = access.scope(body)
    await mine.privacy.start_incognito()
    return await privacy_status(mine)


@routes.post("/incognito/end")
async def end_incognito(access: Writer, body: bodies.SessionBody) -> PrivacyStatus:
    """End incognito mode: the session stores and recalls again."""
    mine = access.scope(body)
    await mine.privacy.end_incognito()
    return await privacy_status(mine)


@routes.delete("/about/{field}")
async def withdraw(
    field: Literal[FIELDS],  # type: ignore[valid-type]
    access: Writer,
    query: ScopeParams,
) -> Withdrawal:
    """Erase a field about the person, its proposals and all its previous values."""
    erased = await access.scope(query).consent.withdraw(field, actor=access.caller.user)
    return Withdrawal(field=field, values=erased)
