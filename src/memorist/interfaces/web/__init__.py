"""The web page at `/` of the server, where users see and manage their memories.

This module holds what all pages share: sessions, forms, cookies, the displayed scope, rendering and
signing in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

import jinja2
from fastapi import Request, Response
from starlette.datastructures import ImmutableMultiDict, UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, RedirectResponse

from ... import __version__, dialects
from ...client import Client
from ...errors import InvalidInput, KeyRefused, MemoristError, NotAllowed
from ...readers.source import count_skipped
from ...scoped import ScopedClient
from ...types import KINDS, STATES, Filter, Page
from .. import plain
from ..auth import Caller
from ..rest import answer_error
from . import markup

FOLDER = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'none'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with `no-referrer`, browsers send `Origin: null`
    "X-Frame-Options": "DENY",
}
MAX_FIELDS = 60
PAGE_SIZE = 25
THEMES = ("auto", "light", "dark")
SESSION_COOKIE = "memorist_session"
SESSION_SECONDS = 12 * 3600  # after the last request
THEME_SECONDS = 365 * 86_400
MAX_SESSIONS = 10_000  # the least recently used is dropped first
SCOPE_COOKIES = ("memorist_in_space", "memorist_in_session")  # which scope the page shows
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-~]*")
_WHOLE = re.compile("[0-9]{1,11}")
_SHARE = re.compile(r"[01]|[01]?\.[0-9]{1,9}")

Form = ImmutableMultiDict[str, str]
routes: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = []  # path, method, …
templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
for _filter in (
    markup.as_text,
    markup.shorten,
    markup.format_time,
    markup.format_duration,
    plain,
    count_skipped,
):
    templates.filters[_filter.__name__] = _filter
templates.globals.update(
    kinds=KINDS,
    states=STATES,
    profiles=dialects.PROFILES,
    themes=THEMES,
    render_diff=markup.render_diff,
    version=__version__,
)


class Sessions:
    """API keys of signed-in users. Browsers only get a random session id, in an HttpOnly cookie."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._keys: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def start(self, key: str) -> str:
        """Start a session for a verified key and return its id."""
        id = secrets.token_urlsafe(32)
        self._keys[id] = key, self._clock()
        while len(self._keys) > MAX_SESSIONS:
            self._keys.popitem(last=False)
        return id

    def get_key(self, id: str) -> str | None:
        """Return the key of a session and extend it, or None if it ended or expired."""
        key, last_seen = self._keys.pop(id, ("", 0.0))
        if not key or self._clock() - last_seen > SESSION_SECONDS:
            return None
        self._keys[id] = key, self._clock()
        return key

    def end(self, id: str) -> None:
        """Sign a session out."""
        self._keys.pop(id, None)

    def csrf_token(self, id: str) -> str:
        """Return the token that forms of this session must contain."""
        return hmac.new(self._secret, id.encode(), hashlib.sha256).hexdigest()


class PageRequest(Request):
    """A request to a page (GET) or a form action (POST). Public ones have no caller."""

    caller: Caller
    memories: ScopedClient  # the scope that the page shows
    fields = Form()  # of the form, or else of the query
    upload: UploadFile | None = None  # of the form

    @property
    def engine(self) -> Client:
        client: Client = self.app.state.engine
        return client

    @property
    def sessions(self) -> Sessions:
        sessions: Sessions = self.app.state.sessions
        return sessions

    @property
    def session_id(self) -> str:
        return self.cookies.get(SESSION_COOKIE, "")

    @property
    def csrf_token(self) -> str:
        """Return the token that forms of this session must contain."""
        return self.sessions.csrf_token(self.session_id)

    @property
    def id(self) -> str:
        """Return the id in the path."""
        return str(self.path_params["id"])

    @property
    def to(self) -> str:
        """Return the page to show after this one."""
        return self.fields.get("to", "/")

    def value(self, name: str) -> str:
        """Return a form field or query parameter, or an empty string."""
        # Browsers send line ends as CRLF.
        return self.fields.get(name, "").replace("\r\n", "\n").strip()

    def choose(self, name: str, options: Collection[str]) -> str | None:
        """Return a query parameter that must be one of the options. Raises InvalidInput."""
        value = self.value(name)
        if value and value not in options:
            raise InvalidInput(f"Unknown {name} {value!r:.40}")
        return value or None

    def tags(self) -> list[str]:
        """Return the tags in a form field, which are separated by commas."""
        return [tag.strip() for tag in self.value("tags").split(",") if tag.strip()]

    def number(self, name: str, maximum: int) -> int | None:
        """Parse a form field or query parameter. Raises InvalidInput."""
        given = self.value(name)
        if given and not (_WHOLE.fullmatch(given) and int(given) <= maximum):
            raise InvalidInput(f"{name} must be a whole number up to {maximum:,}")
        return int(given) if given else None

    def share(self, name: str) -> float | None:
        """Parse a number from 0 to 1. Raises InvalidInput."""
        given = self.value(name)
        if given and not (_SHARE.fullmatch(given) and float(given) <= 1):
            raise InvalidInput(f"{name} must be a number from 0 to 1")
        return float(given) if given else None

    def url_with(self, **params: str | None) -> str:
        """Return the URL of this page with other query parameters."""
        merged = {**self.query_params, **params}
        query = urlencode({name: value for name, value in merged.items() if value})
        return f"{self.url.path}?{query}" if query else self.url.path

    def previous_path(self) -> str:
        """Return the page that the user came from, or the start page."""
        referer = self.headers.get("referer", "").partition("://")[2]
        path = referer.removeprefix(self.url.netloc)
        return path if _LOCAL_PATH.fullmatch(path) and path != self.url.path else "/"

    async def list_memories(self, where: Filter) -> Page:
        """Return one page of a list of memories."""
        cursor = self.value("after") or None
        return await self.memories.list(where, limit=PAGE_SIZE, cursor=cursor)

    async def authenticate(self, right: str) -> None:
        """Set the caller and the scope. Raises KeyRefused, NotAllowed, HTTPException 429."""
        state = self.app.state
        key = self.sessions.get_key(self.session_id)
        self.caller = await state.authenticator.verify(None if key is None else f"Bearer {key}")
        self.state.caller = self.caller
        self.state.limit = state.rate_limiter.take(self.caller.name)
        self.open_scope()
        self.caller.require(right)

    def open_scope(self) -> None:
        """Open the scope that the form names, or else the one last shown, if the key allows it."""
        space, session = (unquote(self.cookies.get(name, "")) for name in SCOPE_COOKIES)
        if self.caller.space is not None:
            space = ""
        space = self.fields.get("space", space)
        session = self.fields.get("session", session)
        self.memories = self.caller.scope(self.engine, space or None, session=session or None)

    async def read_form(self) -> None:
        """Parse the form. Raises InvalidInput, or NotAllowed without the CSRF token."""
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_upload = media_type == "multipart/form-data" and self.url.path == "/import"
        if is_upload:
            parts = await self.form(max_files=1, max_fields=MAX_FIELDS)
            fields = []
            for name, value in parts.multi_items():
                if isinstance(value, str):
                    fields.append((name, value))
                else:
                    self.upload = value  # spooled to the disk
            form = Form(fields)
        else:
            try:
                body = (await self.body()).decode()
                form = Form(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
            except ValueError as error:
                raise InvalidInput("The form data is malformed") from error
        token = form.get("csrf_token", "").encode()
        is_ours = hmac.compare_digest(token, self.csrf_token.encode())
        is_form = is_upload or media_type == "application/x-www-form-urlencoded"
        if not is_form or not is_ours:
            raise NotAllowed("This form has expired. Go back, reload the page and try again")
        self.fields = form

    async def render(self, template: str, **values: Any) -> Response:
        """Render a page for its caller."""
        privacy = self.memories.privacy
        return self.respond(
            template,
            disabled_reason=await privacy.disabled_reason(),
            settings=await privacy.settings(),
            now=self.engine.ctx.clock(),
            **values,
        )

    def respond(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template. It may be a page for visitors who are not signed in."""
        message = self.cookies.get("memorist_note", "")
        page = templates.get_template(template)
        html = page.render(page=self, message=unquote(message), **values).encode("utf-8", "replace")
        response = Response(html, status, HEADERS, "text/html; charset=utf-8")
        if message:
            response.delete_cookie("memorist_note")
        return response

    def show_error(self, error: Exception) -> Response:
        """Render an error as the REST API reports it, or redirect to the sign-in page."""
        if isinstance(error, KeyRefused) and self.method == "GET":
            path = self.url.path + (f"?{self.url.query}" if self.url.query else "")
            return self.redirect(f"/login?{urlencode({'to': path})}")
        problem = answer_error(self, error)
        return self.respond(
            "error.html",
            problem.status_code,
            detail=json.loads(bytes(problem.body))["detail"],
        )

    def redirect(
        self, path: str, message: str = "", *, seconds: int | None = None, **cookies: str
    ) -> Response:
        """Redirect to a page of this server, with a message to show there, and set cookies.

        The message must not contain the text of a memory: browsers store cookies in files.
        """
        response = RedirectResponse(path if _LOCAL_PATH.fullmatch(path) else "/", 303, HEADERS)
        if message:
            cookies["memorist_note"] = message
        for name, value in cookies.items():
            response.set_cookie(
                name,
                quote(value, safe=""),
                60 if name == "memorist_note" else seconds,
                httponly=True,  # no script can read it
                samesite="strict",
                secure=self.url.scheme == "https",
            )
        return response


H = TypeVar("H", bound=Callable[[PageRequest], Awaitable[Response]])


def route(method: str, path: str, right: str = "") -> Callable[[H], H]:
    """Register a page or a form action. Without a right, it is public."""

    def register(answer: H) -> H:
        async def handle(request: Request) -> Response:
            page = PageRequest(request.scope, request.receive)
            try:
                if right:
                    await page.authenticate(right)
                if method == "POST":
                    await page.read_form()
                    if right:
                        page.open_scope()
                else:
                    page.fields = page.query_params
                return await answer(page)
            except (MemoristError, HTTPException) as error:
                return page.show_error(error)
            finally:
                await page.close()  # the file of a form

        routes.append((path, method, handle))
        return answer

    return register


@route("GET", "/login")
async def show_login(page: PageRequest) -> Response:
    """Ask for an API key."""
    return page.respond("login.html")


@route("GET", "/docs")
async def show_api(page: PageRequest) -> Response:
    """Show the OpenAPI document as a page, without scripts of others."""
    return page.respond("docs.html", api=page.app.openapi())


@route("POST", "/login")
async def sign_in(page: PageRequest) -> Response:
    """Start a session for a valid key."""
    key = page.value("key")
    try:
        await page.app.state.authenticator.verify(f"Bearer {key}")
    except KeyRefused as error:
        return page.respond("login.html", 401, error=str(error))
    page.sessions.end(page.session_id)
    cookie = {SESSION_COOKIE: page.sessions.start(key)}
    response = page.redirect(page.to, seconds=SESSION_SECONDS, **cookie)
    for name in SCOPE_COOKIES:  # another user may have left them
        response.delete_cookie(name)
    return response


@route("POST", "/logout")
async def sign_out(page: PageRequest) -> Response:
    """End the session, on the server and in the browser."""
    page.sessions.end(page.session_id)
    response = page.redirect("/login")
    for name in (SESSION_COOKIE, *SCOPE_COOKIES):
        response.delete_cookie(name)
    return response


@route("POST", "/theme")
async def set_theme(page: PageRequest) -> Response:
    """Choose light or dark colors."""
    theme = page.fields.get("theme", "")
    chosen = theme if theme in THEMES else "auto"
    return page.redirect(page.to, seconds=THEME_SECONDS, memorist_theme=chosen)


for _name in _STATIC:

    @route("GET", f"/static/{_name}")
    async def send_file(page: PageRequest) -> Response:
        """Send a static file."""
        name = page.url.path.rpartition("/")[2]
        headers = {"Cache-Control": "no-cache"}
        return FileResponse(FOLDER / "static" / name, media_type=_STATIC[name], headers=headers)
