"""Memories one by one: list, add, look at, correct, pin, forget, restore, and what they rest on."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from ...errors import NotFound
from ...errors import RevisionConflict as Changed
from ...results import Entry, Forgotten, Updates
from ...scoped import Scoped
from ...types import Conflict, Evidence, Filter, Memory, Reason, Receipt, Related
from . import bodies
from .answers import Listed, Summed, Taken
from .auth import Caller, May
from .bodies import Count, Days, Id, Name, Place, Revision, Word, scoped
from .problems import declared
from .route import Door

routes = APIRouter(prefix="/v1/memory", route_class=Door)
Reader = Annotated[Caller, Depends(May("read"))]
Writer = Annotated[Caller, Depends(May("write"))]
Teller = Annotated[Caller, Depends(May("remember"))]
MISSING, CLASHES = declared(404), declared(404, 409)
_ETAG = re.compile(r'"(\d{1,18})"')


def _reads(request: Request, caller: Reader, place: Annotated[Place, Query()]) -> Scoped:
    return scoped(request, caller, place)


def _writes(request: Request, caller: Writer, place: Annotated[Place, Query()]) -> Scoped:
    return scoped(request, caller, place)


Reads = Annotated[Scoped, Depends(_reads)]
Writes = Annotated[Scoped, Depends(_writes)]


def tagged(response: Response, memory: Memory) -> Memory:
    """The memory, with its revision as the ETag that `If-Match` names."""
    response.headers["ETag"] = f'"{memory.revision}"'
    return memory


class Listing(Place):
    """Which memories to list."""

    pinned: bool | None = None
    manually_saved: bool | None = None
    kind: Literal["episodic", "semantic", "procedural", "working", "insight"] | None = None
    state: Literal["active", "compressed", "archived", "superseded", "soft_deleted"] = "active"
    category: Word | None = None
    tag: Word | None = None
    limit: Count = 50
    cursor: Annotated[str, Field(max_length=100)] | None = None

    def filter(self) -> Filter:
        some = {"kinds": self.kind, "categories": self.category, "tags": self.tag}
        return Filter(
            pinned=self.pinned,
            manually_saved=self.manually_saved,
            states=(self.state,),
            **{name: (value,) for name, value in some.items() if value is not None},  # type: ignore[arg-type]
        )


class Manner(Place):
    """How to forget."""

    reason: Word = ""
    keep_days: Days = 0
    never_again: bool = False


class Asked(Place):
    """A question, about one memory."""

    query: str
    limit: Count | None = None


class Some(Place):
    """How many."""

    limit: Count = 100


class Since(Place):
    """What was told already."""

    thread: Name
    since: Revision = 0


@routes.get("/summary")
async def summary(mine: Reads) -> Summed:
    """What is remembered in a space, for people to read."""
    return Summed(space=mine.scope.space, summary=await mine.overview(), counts=await mine.stats())


@routes.get("/entries", responses=MISSING)
async def list_entries(
    request: Request, caller: Reader, asked: Annotated[Listing, Query()]
) -> Listed:
    """Memories, newest first; `cursor` is for the next page of the same list."""
    mine, where = scoped(request, caller, asked), asked.filter()
    page = await mine.list(where, limit=asked.limit, cursor=_place(asked.cursor, mine, where))
    return Listed(entries=list(page.memories), cursor=_cursor(page.cursor, mine, where))


def _bound(mine: Scoped, where: Filter) -> str:
    return hashlib.sha256(f"{mine.scope}{where}".encode()).hexdigest()[:16]


def _cursor(place: str | None, mine: Scoped, where: Filter) -> str | None:
    return place and base64.urlsafe_b64encode(f"{place}.{_bound(mine, where)}".encode()).decode()


def _place(cursor: str | None, mine: Scoped, where: Filter) -> str | None:
    """Where the store goes on. Raises NotFound for what is no cursor, or one of another list."""
    if cursor is None:
        return None
    try:
        place, _, bound = base64.urlsafe_b64decode(cursor.encode()).decode().partition(".")
    except ValueError:
        place = bound = ""
    if bound != _bound(mine, where):
        raise NotFound(
            "This list has no such page: pass the `cursor` of the page before, with the same filters"
        )
    return place


@routes.post(
    "/entries",
    status_code=201,
    responses={200: {"model": Receipt, "description": "Nothing new was made"}},
)
async def add_entry(
    request: Request, response: Response, caller: Teller, told: bodies.NewEntry
) -> Receipt:
    """Remember a text. The receipt says what became of it; what it calls created is on disk and can be recalled."""
    receipt = await scoped(request, caller, told).remember(told.text, at=told.at, **told.fields())
    return made(receipt, response)


@routes.post(
    "/messages",
    status_code=201,
    responses={200: {"model": Receipt, "description": "Nothing new was made"}},
)
async def add_messages(
    request: Request, response: Response, caller: Teller, told: bodies.NewMessages
) -> Receipt:
    """Remember what was said. A message id that was remembered before changes nothing and gives the same outcome."""
    said = [each.model_dump() for each in told.messages]
    return made(await scoped(request, caller, told).remember(said, **told.fields()), response)


def made(receipt: Receipt, response: Response) -> Receipt:
    if not receipt.count("created"):
        response.status_code = 200
    return receipt


@routes.get("/entries/{id}", responses=MISSING)
async def get_entry(id: Id, mine: Reads, response: Response) -> Memory:
    """One memory, in whatever state."""
    return tagged(response, await mine.get(id))


@routes.patch("/entries/{id}", responses=declared(404, 409, 412))
async def edit_entry(
    id: Id,
    mine: Writes,
    response: Response,
    change: bodies.Edit,
    if_match: Annotated[str, Header()] = "*",
) -> Memory:
    """Correct a memory. The version before can still be read; with `If-Match` only if nobody changed it meanwhile."""
    expected = _ETAG.fullmatch(if_match)
    if expected is None and if_match != "*":
        raise HTTPException(
            412, "No version of this memory is called so: pass the `ETag` that it came with"
        )
    try:
        revision = int(expected[1]) if expected else None
        new = await mine.edit(id, **change.model_dump(), revision=revision, actor=mine.scope.user)
    except Changed as error:
        raise HTTPException(412, str(error)) from error
    return tagged(response, new)


@routes.delete("/entries/{id}", responses=MISSING)
async def forget_entry(
    request: Request, id: Id, caller: Writer, how: Annotated[Manner, Query()]
) -> Forgotten:
    """Remove a memory everywhere, with what rests on it alone; or only hide it for `keep_days`."""
    mine = scoped(request, caller, how)
    return await mine.forget(
        id,
        reason=how.reason,
        keep_days=how.keep_days,
        never_again=how.never_again,
        actor=caller.user,
    )


@routes.post("/entries/{id}/pin", responses=MISSING)
async def pin(id: Id, mine: Writes, response: Response) -> Memory:
    """Keep a memory from being trimmed, expired, or left out for its low importance."""
    return tagged(response, await mine.pin(id, actor=mine.scope.user))


@routes.delete("/entries/{id}/pin", responses=MISSING)
async def unpin(id: Id, mine: Writes, response: Response) -> Memory:
    """Take the pin off again."""
    return tagged(response, await mine.unpin(id, actor=mine.scope.user))


@routes.post("/entries/{id}/restore", responses=CLASHES)
async def restore(id: Id, mine: Writes, response: Response) -> Memory:
    """Bring back a memory that was trimmed, expired, archived or softly forgotten."""
    return tagged(response, await mine.restore(id, actor=mine.scope.user))


@routes.get("/entries/{id}/why", responses=MISSING)
async def why(id: Id, mine: Reads) -> Evidence:
    """What a memory rests on: the messages and memories it came from."""
    return await mine.why(id)


@routes.get("/entries/{id}/why_not", responses=MISSING)
async def why_not(
    request: Request, id: Id, caller: Reader, asked: Annotated[Asked, Query()]
) -> Reason:
    """Where a memory stands for a question, and why it was returned or left out."""
    return await scoped(request, caller, asked).why_not(asked.query, id, limit=asked.limit)


@routes.get("/entries/{id}/related", responses=MISSING)
async def related(
    request: Request, id: Id, caller: Reader, asked: Annotated[Some, Query()]
) -> list[Related]:
    """What is remembered about the same, nearest first."""
    return await scoped(request, caller, asked).related(id, limit=asked.limit)


@routes.get("/entries/{id}/history")
async def entry_history(
    request: Request, id: Id, caller: Reader, asked: Annotated[Some, Query()]
) -> list[Entry]:
    """What happened to a memory, newest first. It outlives the memory."""
    return await scoped(request, caller, asked).history(id, limit=asked.limit)


@routes.get("/history")
async def history(request: Request, caller: Reader, asked: Annotated[Some, Query()]) -> list[Entry]:
    """What happened in a space, newest first."""
    return await scoped(request, caller, asked).history(limit=asked.limit)


@routes.get("/delta")
async def delta(request: Request, caller: Reader, asked: Annotated[Since, Query()]) -> Updates:
    """What changed in a thread after a revision; ask again from the `revision` of the answer."""
    return await scoped(request, caller, asked).delta(asked.since, thread=asked.thread)


@routes.post("/forget")
async def forget_where(request: Request, caller: Writer, told: bodies.ForgetWhere) -> Forgotten:
    """Forget all that a question finds or a filter lets through; by default only tell what that would be."""
    where = told.where.filter() if told.where else None
    manner: dict[str, Any] = told.model_dump(
        include={"dry_run", "reason", "keep_days", "never_again"}
    )
    return await scoped(request, caller, told).forget_where(
        told.query, where=where, **manner, actor=caller.user
    )


@routes.post("/undo", responses=CLASHES)
async def undo(
    request: Request, caller: Writer, told: bodies.UndoOperation | bodies.UndoSession
) -> Taken:
    """Take back one operation of the history, or everything that a session did."""
    mine = caller.scope(bodies.engine_of(request), told.space)
    done = await mine.undo(**told.model_dump(exclude={"space"}), actor=caller.user)
    return Taken(
        operations=list(done.operations),
        ids=[each.id for each in done.memories],
        dry_run=done.dry_run,
    )


@routes.get("/conflicts")
async def conflicts(
    request: Request, caller: Reader, asked: Annotated[Some, Query()]
) -> list[Conflict]:
    """Newer statements that took the place of older ones and wait for a decision, newest first."""
    return await scoped(request, caller, asked).conflicts(limit=asked.limit)


@routes.post("/conflicts/{id}/confirm", responses=MISSING)
async def confirm(id: Id, mine: Writes, response: Response) -> Memory:
    """Let the newer memory of a conflict stand."""
    return tagged(response, await mine.confirm(id, actor=mine.scope.user))


@routes.post("/conflicts/{id}/reject", responses=MISSING)
async def reject(id: Id, mine: Writes, response: Response) -> Memory:
    """Bring the older memory of a conflict back in the place of the newer one."""
    return tagged(response, await mine.reject(id, actor=mine.scope.user))
