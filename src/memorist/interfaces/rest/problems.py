"""Errors as `application/problem+json` (RFC 9457), without internals."""

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
from .bodies import PATTERN_ERRORS

log = logging.getLogger("memorist.rest")
MEDIA = "application/problem+json"
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Problem(BaseModel):
    """Why a request failed."""

    model_config = ConfigDict(extra="forbid")
    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, str]] | None = None


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses for error statuses."""
    content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        responses[status] = {"description": HTTPStatus(status).phrase, "content": content}
    return responses


def response(
    request: Request,
    status: int,
    detail: str,
    *,
    kind: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a problem as a response."""
    phrase = HTTPStatus(status).phrase
    name = _WORDS.sub("-", kind or phrase.title().replace(" ", "")).lower()
    body = {
        "type": f"urn:memorist:{name}",
        "title": phrase,
        "status": status,
        "detail": detail,
        "request_id": getattr(request.state, "request_id", ""),
        **more,
    }
    return Response(json.dumps(body), status, headers=dict(headers or {}), media_type=MEDIA)


def from_memorist(request: Request, error: Exception) -> Response:
    """Answer one of our errors. From 500 on, its message is only logged: it is for the operator."""
    status = errors.codes(error).status
    detail = str(error) if status < 500 else inspect.cleandoc(type(error).__doc__ or "")
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, KeyRefused) else {}
    if status >= 500:
        log_failure(request, error)
    if getattr(error, "retry", False):
        headers["Retry-After"] = "1"
    return response(request, status, detail, kind=type(error).__name__, headers=headers)


def from_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return response(request, error.status_code, str(error.detail), headers=error.headers)


def from_validation(request: Request, error: Exception) -> Response:
    """Answer a request that does not match the schema, without repeating its input."""
    assert isinstance(error, RequestValidationError)
    found = []
    for each in error.errors()[:20]:
        pattern = each.get("ctx", {}).get("pattern")
        why = PATTERN_ERRORS.get(pattern, str(each["msg"]))
        found.append({"at": ".".join(map(str, each["loc"])), "why": why})
    detail = "The request does not match the schema"
    if found:
        detail = f"{found[0]['at']}: {found[0]['why']}"
    return response(request, 422, detail, kind="InvalidInput", errors=found)


def from_bug(request: Request, error: Exception) -> Response:
    log_failure(request, error)
    return response(request, 500, "Internal error. The server log has the details for this id.")


def log_failure(request: Request, error: Exception) -> None:
    """Log where an error was raised, without its message: that may contain a memory."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "unknown"
    if place is not None:
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
    request_id = getattr(request.state, "request_id", "-")
    log.error("request %s failed: %s at %s", request_id, type(error).__name__, where)


def add_to(app: FastAPI) -> None:
    """Add the error handlers to an app."""
    app.add_exception_handler(MemoristError, from_memorist)
    app.add_exception_handler(HTTPException, from_http)
    app.add_exception_handler(RequestValidationError, from_validation)
