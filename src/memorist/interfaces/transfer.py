"""Import of an uploaded file, over REST and on the web page, and export and erasure of one user.

An upload is saved for the time of its import, and progress is streamed. The import begins when the
whole file has arrived, so an upload that breaks off stores nothing. It ends with the connection;
uploading the same file again continues it and changes nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from ..errors import InvalidInput, MemoristError
from ..manage.import_export import ImportReport
from ..manage.whole_user import ErasedUser
from ..readers import FORMATS
from ..scoped import ScopedClient
from ..types import frozen
from . import Json
from .rest import UPLOAD, AuthenticatedRoute, Owner, Responses, declare
from .rest.bodies import Moment, Name, OptionalName, ScopeQuery
from .web import HEADERS, PageRequest, route, templates

PROGRESS_SECONDS = 1.0  # between two reports of progress
MAX_NAME_BYTES = 200
CHUNK = 1 << 18  # bytes
_HERE = b"<!-- progress -->"
FORMAT_NAMES = ("auto", *FORMATS)
routes = APIRouter(route_class=AuthenticatedRoute)
AS_LINES: Json = {
    "response_class": StreamingResponse,
    "responses": {200: {"content": {"application/x-ndjson": {}}}},
}
_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ANSWER: Responses = {
    200: {"content": {"application/x-ndjson": {}}, "description": "Progress, then a receipt"}
}


def to_lines(records: AsyncIterator[Json]) -> StreamingResponse:
    """Return records as JSON lines."""
    lines = (json.dumps(record) + "\n" async for record in records)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@frozen
class Progress:
    """How much of a file was imported."""

    read: int  # bytes
    total: int


class UploadQuery(ScopeQuery):
    """What is imported, and how."""

    name: Name = "upload"  # of the file; some formats are recognized by how it ends
    format: Annotated[str, Field(alias="from", json_schema_extra={"enum": list(FORMAT_NAMES)})] = (
        "auto"
    )
    me: OptionalName = None  # the person's name in chats between people
    since: Moment | None = None
    dry_run: bool = False


async def import_upload(
    mine: ScopedClient, chunks: AsyncIterator[bytes], name: str, **options: Any
) -> AsyncIterator[Progress | ImportReport]:
    """Save an upload and import it. Yield progress once a part is stored, and then the report.

    The options are those of `import_files`. Raises what that raises; a file that is not complete,
    or not imported to its end, is deleted like any other.
    """
    progress: list[Progress] = []

    def on_progress(read: int, total: int) -> None:
        progress[:] = [Progress(read=read, total=total)]

    with TemporaryDirectory(prefix="memorist-upload-") as folder:
        # The last part of the name, short enough for a file and with its ending.
        last = PurePosixPath(name.replace("\\", "/")).name.encode("utf-8", "replace")
        short = last[-MAX_NAME_BYTES:].decode("utf-8", "ignore")
        path = Path(folder) / (short if short.strip(". ") else "upload")
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            async for chunk in chunks:
                await asyncio.to_thread(file.write, chunk)
        task = asyncio.create_task(mine.import_files(path, on_progress=on_progress, **options))
        try:
            while not task.done():
                await asyncio.wait([task], timeout=PROGRESS_SECONDS)
                if progress and not task.done():
                    yield progress[0]
            yield task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, MemoristError):
                await task


@routes.post(
    UPLOAD,
    response_class=StreamingResponse,
    responses={**_ANSWER, **declare(413)},
    openapi_extra={"requestBody": {"content": _FILE, "required": True}},
)
async def import_file(
    request: Request, access: Owner, query: Annotated[UploadQuery, Query()]
) -> StreamingResponse:
    """Import what another program exported: the body is the file, or a ZIP archive of a folder.

    Needs the right `owner`. The response is JSON lines: `read` and `total` bytes as progress, and
    finally the counts of what was stored, skipped and refused, with reasons. Importing again
    changes nothing, and continues an interrupted import.
    """
    events = import_upload(
        access.scope(query),
        request.stream(),
        query.name,
        from_=query.format,
        me=query.me,
        since=query.since,
        dry_run=query.dry_run,
    )
    event = await anext(events)

    async def records() -> AsyncIterator[Json]:
        nonlocal event
        try:
            while isinstance(event, Progress):
                yield asdict(event)
                event = await anext(events)
            yield {"done": True, **vars(event)}
        except MemoristError as error:
            yield {"error": str(error)}

    return to_lines(records())


@route("GET", "/import", "owner")
async def show_import(page: PageRequest) -> Response:
    """Ask for a file."""
    return await page.render("import.html", formats=FORMAT_NAMES)


@route("POST", "/import", "owner")
async def import_on_page(page: PageRequest) -> Response:
    """Import a file, and show progress and a receipt. The page grows meanwhile, without scripts."""
    upload = page.upload
    if upload is None or not upload.filename:
        raise InvalidInput("Choose a file to import")
    format = page.choose("from", FORMAT_NAMES) or "auto"

    async def read() -> AsyncIterator[bytes]:
        while chunk := await upload.read(CHUNK):
            yield chunk

    events = import_upload(
        page.memories,
        read(),
        upload.filename,
        from_=format,
        me=page.value("me") or None,
        since=page.value("since") or None,
        dry_run=bool(page.value("dry_run")),
    )
    first = await anext(events)
    frame = await page.render("importing.html")
    head, _, tail = bytes(frame.body).partition(_HERE)
    fragment = templates.get_template("receipt.html")

    async def parts() -> AsyncIterator[bytes]:
        yield head
        event = first
        error = ""
        try:
            while isinstance(event, Progress):
                yield fragment.render(progress=event).encode()
                event = await anext(events)
        except MemoristError as caught:
            error = str(caught)
        receipt = fragment.render(progress=None, report=event, error=error)
        yield receipt.encode("utf-8", "replace")
        yield tail

    return StreamingResponse(parts(), 200, HEADERS, "text/html; charset=utf-8")


# Only a key of the whole user may use the following routes.


@routes.get("/v1/user/export", **AS_LINES)
async def export_user(access: Owner) -> StreamingResponse:
    """Export all data of the user as JSON lines: all spaces, checkpoints, API keys without their
    secrets, spooled writes, and lines of the journal."""
    return to_lines(access.client.export_user(*access.caller.whole_user()))


@routes.delete("/v1/user")
async def erase_user(access: Owner) -> ErasedUser:
    """Erase all data of the user for good: all spaces, checkpoints, API keys (also that of this
    request), spooled writes, and lines of the journal."""
    return await access.client.erase_user(*access.caller.whole_user())
