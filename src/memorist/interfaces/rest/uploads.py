"""Import of an uploaded file: it is saved for the time of the import, and progress is streamed.

The import begins when the whole file has arrived, so an upload that breaks off stores nothing. It
ends with the connection; uploading the same file again continues it and changes nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from ...errors import MemoristError
from ...manage.import_export import ImportReport
from ...readers import FORMATS
from ...scoped import ScopedClient
from ...types import frozen
from .bodies import Moment, Name, OptionalName, ScopeQuery
from .request import UPLOAD, AuthenticatedRoute, Owner, declare

PROGRESS_SECONDS = 1.0  # between two reports of progress
MAX_NAME_BYTES = 200
FORMAT_NAMES = ("auto", *FORMATS)
routes = APIRouter(route_class=AuthenticatedRoute)
_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-ndjson": {}}, "description": "Progress, then a receipt"}
}


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
        path = Path(folder) / _file_name(name)
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


def _file_name(given: str) -> str:
    """Return the last part of a name, short enough for a file and with its ending."""
    name = PurePosixPath(given.replace("\\", "/")).name
    short = name.encode("utf-8", "replace")[-MAX_NAME_BYTES:].decode("utf-8", "ignore")
    return short if short.strip(". ") else "upload"


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

    Needs the right `owner`. The answer is JSON lines: `read` and `total` bytes while it goes on, and
    at last the counts of what was stored, left out and refused, with reasons. Importing again
    changes nothing, and continues an import that was interrupted.
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
    first = await anext(events)

    async def lines() -> AsyncIterator[str]:
        yield json.dumps(_to_json(first)) + "\n"
        try:
            async for event in events:
                yield json.dumps(_to_json(event)) + "\n"
        except MemoristError as error:
            yield json.dumps({"error": str(error)}) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _to_json(event: Progress | ImportReport) -> dict[str, Any]:
    if isinstance(event, Progress):
        return {"read": event.read, "total": event.total}
    return {"done": True, **vars(event)}
