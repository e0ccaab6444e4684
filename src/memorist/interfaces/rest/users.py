"""Routes about everything of one user, in all spaces. Only a key of the whole user may use them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from ...manage.whole_user import ErasedUser
from .request import AuthenticatedRoute, Owner

routes = APIRouter(route_class=AuthenticatedRoute)
AS_LINES: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {"application/x-ndjson": {}}}},
}


def to_lines(records: AsyncIterator[dict[str, Any]]) -> StreamingResponse:
    """Return records as JSON lines."""
    lines = (json.dumps(record) + "\n" async for record in records)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@routes.get("/v1/user/export", **AS_LINES)
async def export_user(access: Owner) -> StreamingResponse:
    """Export everything of the user as JSON lines: all spaces, checkpoints, API keys without their
    secrets, spooled writes, and lines of the journal."""
    return to_lines(access.client.export_user(*access.caller.whole_user()))


@routes.delete("/v1/user")
async def erase_user(access: Owner) -> ErasedUser:
    """Erase everything of the user for good: all spaces, checkpoints, API keys, also that of this
    request, spooled writes, and lines of the journal."""
    return await access.client.erase_user(*access.caller.whole_user())
