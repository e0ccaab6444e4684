"""Every error as `application/problem+json` (RFC 9457): what is wrong, and the way out; nothing about our insides."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...errors import KeyRefused, MemoristError
from .. import errors
from .bodies import WHY

log = logging.getLogger("memorist.rest")
MEDIA = "application/problem+json"
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Problem(BaseModel):
    """Why a request was not answered as it asked."""

    model_config = ConfigDict(extra="forbid")
    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, str]] | None = None


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route may answer with, for OpenAPI."""
    content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def response(
    request: Request,
    status: int,
    detail: str,
    *,
    kind: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """A problem, told."""
    phrase = HTTPStatus(status).phrase
    named = _WORDS.sub("-", kind or phrase.title().replace(" ", "")).lower()
    body = {
        "type": f"urn:memorist:{named}",
        "title": phrase,
        "status": status,
        "detail": detail,
        "request_id": getattr(request.state, "request_id", ""),
        **more,
    }
    return Response(json.dumps(body), status, headers=dict(headers or {}), media_type=MEDIA)


def of_ours(request: Request, error: Exception) -> Response:
    """An error of ours, as the one table has it; above 500 without its message, which is for whoever runs this."""
    status = errors.codes(error).status
    detail = str(error) if status < 500 else inspect.cleandoc(type(error).__doc__ or "")
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, KeyRefused) else {}
    if status >= 500:
        unexpected(request, error)
    if getattr(error, "retry", False):
        headers["Retry-After"] = "1"
    return response(request, status, detail, kind=type(error).__name__, headers=headers)


def of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return response(request, error.status_code, str(error.detail), headers=error.headers)


def of_input(request: Request, error: Exception) -> Response:
    """What does not fit the schema: where, and why; what was given is not repeated."""
    assert isinstance(error, RequestValidationError)
    found = [
        {"at": ".".join(map(str, each["loc"])), "why": _why(each)} for each in error.errors()[:20]
    ]
    detail = (
        f"{found[0]['at']}: {found[0]['why']}" if found else "The request does not fit the schema"
    )
    return response(request, 422, detail, kind="InvalidInput", errors=found)


def _why(error: Mapping[str, Any]) -> str:
    """In a sentence, where the library would show a pattern."""
    return WHY.get(error.get("ctx", {}).get("pattern"), str(error["msg"]))


def of_bug(request: Request, error: Exception) -> Response:
    unexpected(request, error)
    return response(
        request, 500, "Something unexpected went wrong. It is in the log of the server, by this id."
    )


def unexpected(request: Request, error: Exception) -> None:
    """Note where it went wrong. The message of an error may hold words of a memory, so it is left out."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = (
        f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "nowhere"
    )
    log.error(
        "request %s failed: %s at %s",
        getattr(request.state, "request_id", "-"),
        type(error).__name__,
        where,
    )


def add_to(app: FastAPI) -> None:
    """Tell all errors of an app this way."""
    app.add_exception_handler(MemoristError, of_ours)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_input)
