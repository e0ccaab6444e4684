"""The page that imports an uploaded file. It grows while the file is imported, without scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import Response
from starlette.datastructures import UploadFile
from starlette.responses import StreamingResponse

from ...errors import InvalidInput, MemoristError
from ..rest.uploads import FORMAT_NAMES, Progress, import_upload
from . import HEADERS, PageRequest, route, templates

CHUNK = 1 << 18  # bytes
_HERE = b"<!-- progress -->"


@route("GET", "/import", "owner")
async def show_import(page: PageRequest) -> Response:
    """Ask for a file."""
    return await page.render("import.html", formats=FORMAT_NAMES)


@route("POST", "/import", "owner")
async def import_file(page: PageRequest) -> Response:
    """Import a file, and show progress and a receipt."""
    upload = page.upload
    if upload is None or not upload.filename:
        raise InvalidInput("Choose a file to import")
    format = page.choose("from", FORMAT_NAMES) or "auto"
    events = import_upload(
        page.memories,
        _read(upload),
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


async def _read(upload: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await upload.read(CHUNK):
        yield chunk
