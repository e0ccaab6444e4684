"""Signing in and out, the color theme, and static files."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.responses import FileResponse

from ...errors import KeyRefused, MemoristError
from .request import (
    FOLDER,
    SCOPE_COOKIES,
    SESSION_COOKIE,
    SESSION_SECONDS,
    THEMES,
    get_sessions,
    read_form,
    redirect,
    render_error,
    render_page,
    routes,
    set_cookie,
)

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}
_YEAR = 365 * 86_400


async def send_file(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    headers = {"Cache-Control": "no-cache"}
    return FileResponse(FOLDER / "static" / name, media_type=_STATIC[name], headers=headers)


async def show_login(request: Request) -> Response:
    return render_page(request, "login.html", to=request.query_params.get("to", "/"), error="")


async def sign_in(request: Request) -> Response:
    """Start a session for a valid key."""
    try:
        form = await read_form(request)
        key, to = form.get("key", "").strip(), form.get("to", "/")
        await request.app.state.authenticator.verify(f"Bearer {key}")
    except KeyRefused as error:
        return render_page(request, "login.html", status=401, to=to, error=str(error))
    except MemoristError as error:
        return render_error(request, error)
    sessions = get_sessions(request)
    sessions.end(request.cookies.get(SESSION_COOKIE))
    response = redirect(request, to)
    set_cookie(request, response, SESSION_COOKIE, sessions.start(key), seconds=SESSION_SECONDS)
    for name in SCOPE_COOKIES:  # another user may have left them
        response.delete_cookie(name)
    return response


async def sign_out(request: Request) -> Response:
    """End the session, on the server and in the browser."""
    try:
        await read_form(request)
    except MemoristError as error:
        return render_error(request, error)
    get_sessions(request).end(request.cookies.get(SESSION_COOKIE))
    response = redirect(request, "/login")
    for name in (SESSION_COOKIE, *SCOPE_COOKIES):
        response.delete_cookie(name)
    return response


async def set_theme(request: Request) -> Response:
    try:
        form = await read_form(request)
    except MemoristError as error:
        return render_error(request, error)
    theme = form.get("theme", "")
    response = redirect(request, form.get("to", "/"))
    value = theme if theme in THEMES else "auto"
    set_cookie(request, response, "memorist_theme", value, seconds=_YEAR)
    return response


routes += [(f"/static/{name}", "GET", send_file) for name in _STATIC]
routes += [
    ("/login", "GET", show_login),
    ("/login", "POST", sign_in),
    ("/logout", "POST", sign_out),
    ("/theme", "POST", set_theme),
]
