"""Routes for privacy: memory on and off, incognito sessions, withdrawn consent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from ...manage.consent import FIELDS
from ...scoped import ScopedClient
from . import bodies
from .memories import ReadScope, Writer, WriteScope
from .route import AuthenticatedRoute

routes = APIRouter(prefix="/v1/memory", route_class=AuthenticatedRoute)


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


async def _status(mine: ScopedClient) -> PrivacyStatus:
    reason = await mine.privacy.disabled_reason()
    settings = asdict(await mine.privacy.settings())
    return PrivacyStatus(space=mine.scope.space, **settings, on=not reason, reason=reason)


@routes.get("/settings")
async def settings(mine: ReadScope) -> PrivacyStatus:
    """Return the privacy settings of a space, or of a session in it."""
    return await _status(mine)


@routes.post("/settings")
async def set_settings(
    request: Request, caller: Writer, body: bodies.SpaceSettingsBody
) -> PrivacyStatus:
    """Turn memory in a space on or off, and choose whether its sessions start incognito."""
    mine = bodies.scope_of(request, caller, body)
    await mine.privacy.set(**body.model_dump(exclude={"space"}), actor=caller.user)
    return await _status(mine)


@routes.post("/incognito/start")
async def start_incognito(
    request: Request, caller: Writer, body: bodies.SessionBody
) -> PrivacyStatus:
    """Make a session incognito: nothing is stored or recalled in it."""
    mine = bodies.scope_of(request, caller, body)
    await mine.privacy.start_incognito()
    return await _status(mine)


@routes.post("/incognito/end")
async def end_incognito(
    request: Request, caller: Writer, body: bodies.SessionBody
) -> PrivacyStatus:
    """End incognito mode: the session stores and recalls again."""
    mine = bodies.scope_of(request, caller, body)
    await mine.privacy.end_incognito()
    return await _status(mine)


@routes.delete("/about/{field}")
async def withdraw(
    field: Literal[FIELDS],  # type: ignore[valid-type]
    mine: WriteScope,
) -> Withdrawal:
    """Erase a field about the person, its proposals and all its previous values."""
    erased = await mine.consent.withdraw(field, actor=mine.scope.user)
    return Withdrawal(field=field, values=erased)
