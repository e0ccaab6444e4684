"""Coming in and going out, and the files that the page consists of."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.responses import FileResponse

from ...errors import KeyRefused, MemoristError
from .request import HERE, IN_PLACE, THEMES, filled, keep, onward, page, routes, sessions, told
from .sessions import COOKIE, LASTS

_FILES = {"page.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}


async def file(request: Request) -> Response:
    """A file of ours."""
    name = request.url.path.rpartition("/")[2]
    return FileResponse(
        HERE / "static" / name, media_type=_FILES[name], headers={"Cache-Control": "no-cache"}
    )


async def sign_in(request: Request) -> Response:
    """Ask for a key."""
    return page(request, "login.html", to=request.query_params.get("to", "/"), refused="")


async def signed_in(request: Request) -> Response:
    """Let somebody in who has a good key."""
    try:
        form = await filled(request)
        key, to = (form.get("key") or [""])[0].strip(), (form.get("to") or ["/"])[0]
        await request.app.state.authenticator.verify(f"Bearer {key}")
    except KeyRefused as error:
        return page(request, "login.html", status=401, to=to, refused=str(error))
    except MemoristError as error:
        return told(request, error)
    sessions(request).end(request.cookies.get(COOKIE))
    answer = onward(request, to)
    keep(request, answer, COOKIE, sessions(request).begin(key), seconds=LASTS)
    for name in IN_PLACE:  # where somebody else may have looked
        answer.delete_cookie(name)
    return answer


async def sign_out(request: Request) -> Response:
    """Forget the key, here and there."""
    try:
        await filled(request)
    except MemoristError as error:
        return told(request, error)
    sessions(request).end(request.cookies.get(COOKIE))
    answer = onward(request, "/login")
    for name in (COOKIE, *IN_PLACE):
        answer.delete_cookie(name)
    return answer


async def theme(request: Request) -> Response:
    """Light, dark, or as the device has it."""
    try:
        form = await filled(request)
    except MemoristError as error:
        return told(request, error)
    chosen, to = (form.get("theme") or [""])[0], (form.get("to") or ["/"])[0]
    answer = onward(request, to)
    keep(
        request,
        answer,
        "memorist_theme",
        chosen if chosen in THEMES else "auto",
        seconds=365 * 86_400,
    )
    return answer


routes += [(f"/static/{name}", "GET", file) for name in _FILES]
routes += [
    ("/login", "GET", sign_in),
    ("/login", "POST", signed_in),
    ("/logout", "POST", sign_out),
    ("/theme", "POST", theme),
]
