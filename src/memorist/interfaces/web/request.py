"""What all pages share: sessions, forms, cookies, the displayed scope, rendering; and signing in."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import jinja2
from fastapi import Request, Response
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, RedirectResponse

from ... import __version__
from ...client import Client
from ...errors import InvalidInput, KeyRefused, MemoristError, NotAllowed
from ...scoped import ScopedClient
from ...types import Filter, Page
from ..rest.auth import Caller
from ..rest.request import answer_error
from . import charts, text

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

Form = ImmutableMultiDict[str, str]
Handler = Callable[[Request], Awaitable[Response]]
routes: list[tuple[str, str, Handler]] = []  # path, method, handler
templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
for _filter in (text.as_text, text.shorten, text.format_time, text.format_duration):
    templates.filters[_filter.__name__] = _filter
templates.globals.update(render_diff=text.render_diff, charts=charts, version=__version__)


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

    def get_key(self, id: str | None) -> str | None:
        """Return the key of a session and extend it, or None if it ended or expired."""
        key, last_seen = self._keys.pop(id or "", ("", 0.0))
        if not key or self._clock() - last_seen > SESSION_SECONDS:
            return None
        self._keys[id or ""] = key, self._clock()
        return key

    def end(self, id: str | None) -> None:
        """Sign a session out."""
        self._keys.pop(id or "", None)

    def csrf_token(self, id: str | None) -> str:
        """Return the token that forms of this session must carry."""
        return hmac.new(self._secret, (id or "").encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An authenticated request to a page."""

    request: Request
    caller: Caller
    client: Client
    memories: ScopedClient
    form: Form

    @property
    def id(self) -> str:
        """The id in the path."""
        return str(self.request.path_params["id"])

    def param(self, name: str) -> str:
        """Return a query parameter, or an empty string."""
        return self.request.query_params.get(name, "").strip()

    def choose(self, name: str, options: Collection[str]) -> str | None:
        """Return a query parameter that must be one of the options. Raises InvalidInput."""
        value = self.param(name)
        if value and value not in options:
            raise InvalidInput(f"Unknown {name} {value!r:.40}")
        return value or None

    def value(self, name: str) -> str:
        """Return a form field, or an empty string. Browsers send line ends as CRLF."""
        return self.form.get(name, "").replace("\r\n", "\n").strip()

    def tags(self) -> list[str]:
        """Return the tags in a form field, which are separated by commas."""
        return [tag.strip() for tag in self.value("tags").split(",") if tag.strip()]

    def number(self, name: str, maximum: int) -> int | None:
        """Parse a query parameter or form field. Raises InvalidInput."""
        given = self.param(name) or self.value(name)
        if not given:
            return None
        is_number = given.isascii() and given.isdigit() and len(given) < 12
        if not is_number or int(given) > maximum:
            raise InvalidInput(f"{name} must be a whole number up to {maximum:,}")
        return int(given)

    def url_with(self, **params: str | None) -> str:
        """Return the URL of this page with other query parameters."""
        merged = {**self.request.query_params, **params}
        query = urlencode({name: value for name, value in merged.items() if value})
        return f"{self.request.url.path}?{query}" if query else self.request.url.path

    async def list_memories(self, where: Filter) -> Page:
        """Return the memories on this page of a list."""
        cursor = self.param("after") or None
        return await self.memories.list(where, limit=PAGE_SIZE, cursor=cursor)

    async def render(self, template: str, **values: Any) -> Response:
        privacy = self.memories.privacy
        return render_page(
            self.request,
            template,
            page=self,
            disabled_reason=await privacy.disabled_reason(),
            incognito_default=(await privacy.settings()).incognito_default,
            now=self.client.ctx.clock(),
            **values,
        )

    def redirect(self, path: str, message: str, **cookies: str) -> Response:
        response = redirect(self.request, path, message)
        for name, value in cookies.items():
            set_cookie(self.request, response, name, value)
        return response


PageHandler = Callable[[PageRequest], Awaitable[Response]]


def render_page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Render a template. `page` is None where nobody is signed in."""
    theme = request.cookies.get("memorist_theme", "auto")
    session_id = request.cookies.get(SESSION_COOKIE)
    message = request.cookies.get("memorist_note", "")
    page: PageRequest | None = values.get("page")
    context = {
        "page": None,
        "scope": page.memories.scope if page else None,
        "session": page.memories.labels.session if page else None,
        "path": request.url.path if request.method == "GET" else previous_path(request),
        "theme": theme if theme in THEMES else "auto",
        "themes": THEMES,
        "message": unquote(message),
        "csrf_token": get_sessions(request).csrf_token(session_id),
        "signed_in": session_id,
        "disabled_reason": "",
        "incognito_default": False,
        **values,
    }
    html = templates.get_template(template).render(context).encode("utf-8", "replace")
    response = Response(html, status, HEADERS, "text/html; charset=utf-8")
    if message:
        response.delete_cookie("memorist_note")
    return response


def render_error(request: Request, error: Exception) -> Response:
    """Render an error as the REST API reports it, or redirect to the sign-in page."""
    if isinstance(error, KeyRefused) and request.method == "GET":
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return redirect(request, f"/login?{urlencode({'to': path})}")
    problem = answer_error(request, error)
    return render_page(
        request,
        "error.html",
        status=problem.status_code,
        page=getattr(request.state, "page", None),
        detail=json.loads(bytes(problem.body))["detail"],
        has_keys=request.app.state.authenticator.local is None,
        back=previous_path(request),
    )


def previous_path(request: Request) -> str:
    """Return the page that the user came from, or the first one."""
    referer = request.headers.get("referer", "").partition("://")[2]
    path = referer.removeprefix(request.url.netloc)
    return path if _LOCAL_PATH.fullmatch(path) and path != request.url.path else "/"


def redirect(request: Request, path: str, message: str = "") -> Response:
    """Redirect to a page of ours, with a message to show there.

    The message must not contain the text of a memory: browsers store cookies in files.
    """
    response = RedirectResponse(path if _LOCAL_PATH.fullmatch(path) else "/", 303, HEADERS)
    if message:
        set_cookie(request, response, "memorist_note", message, seconds=60)
    return response


def set_cookie(
    request: Request, response: Response, name: str, value: str, *, seconds: int | None = None
) -> None:
    """Set a cookie that scripts and other sites cannot read."""
    is_secure = request.url.scheme == "https"
    response.set_cookie(
        name, quote(value, safe=""), seconds, httponly=True, samesite="strict", secure=is_secure
    )


def public(method: str, path: str) -> Callable[[Handler], Handler]:
    """Register a page (GET) or a form action (POST) that needs no sign-in."""

    def register(answer: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return await answer(request)
            except (MemoristError, HTTPException) as error:
                return render_error(request, error)

        routes.append((path, method, handle))
        return handle

    return register


def route(method: str, path: str, right: str) -> Callable[[PageHandler], Handler]:
    """Register a page (GET) or a form action (POST) that needs a right."""

    def register(answer: PageHandler) -> Handler:
        @public(method, path)
        async def handle(request: Request) -> Response:
            return await answer(await authenticate(request, right))

        return handle

    return register


async def authenticate(request: Request, right: str) -> PageRequest:
    """Raises KeyRefused, NotAllowed, InvalidInput, HTTPException."""
    state = request.app.state
    client: Client = state.engine
    key = get_sessions(request).get_key(request.cookies.get(SESSION_COOKIE))
    caller: Caller = await state.authenticator.verify(None if key is None else f"Bearer {key}")
    request.state.caller = caller
    request.state.limit = state.rate_limiter.take(caller.name)

    def open_scope(form: Form) -> ScopedClient:
        """Open the scope that the form names, or else the one last shown, if the key allows it."""
        shown = [unquote(request.cookies.get(name, "")) for name in SCOPE_COOKIES]
        space, session = form.get("space", shown[0]), form.get("session", shown[1])
        if caller.space is not None and "space" not in form:
            space = ""
        return caller.scope(client, space or None, session=session or None)

    form = Form()
    page = PageRequest(request, caller, client, open_scope(form), form)
    request.state.page = page  # for the page that shows an error
    caller.require(right)
    if request.method != "POST":
        return page
    form = await read_form(request)
    return replace(page, memories=open_scope(form), form=form)


async def read_form(request: Request) -> Form:
    """Parse a form. Raises InvalidInput, or NotAllowed without the CSRF token of this session."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        body = (await request.body()).decode()
        form = Form(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise InvalidInput("The form data is malformed") from error
    token = get_sessions(request).csrf_token(request.cookies.get(SESSION_COOKIE))
    is_ours = hmac.compare_digest(form.get("csrf_token", "").encode(), token.encode())
    if media_type != "application/x-www-form-urlencoded" or not is_ours:
        raise NotAllowed("This form has expired. Go back, reload the page and try again")
    return form


def get_sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


@public("GET", "/login")
async def show_login(request: Request) -> Response:
    return render_page(request, "login.html", to=request.query_params.get("to", "/"), error="")


@public("POST", "/login")
async def sign_in(request: Request) -> Response:
    """Start a session for a valid key."""
    form = await read_form(request)
    key, to = form.get("key", "").strip(), form.get("to", "/")
    try:
        await request.app.state.authenticator.verify(f"Bearer {key}")
    except KeyRefused as error:
        return render_page(request, "login.html", status=401, to=to, error=str(error))
    sessions = get_sessions(request)
    sessions.end(request.cookies.get(SESSION_COOKIE))
    response = redirect(request, to)
    set_cookie(request, response, SESSION_COOKIE, sessions.start(key), seconds=SESSION_SECONDS)
    for name in SCOPE_COOKIES:  # another user may have left them
        response.delete_cookie(name)
    return response


@public("POST", "/logout")
async def sign_out(request: Request) -> Response:
    """End the session, on the server and in the browser."""
    await read_form(request)
    get_sessions(request).end(request.cookies.get(SESSION_COOKIE))
    response = redirect(request, "/login")
    for name in (SESSION_COOKIE, *SCOPE_COOKIES):
        response.delete_cookie(name)
    return response


@public("POST", "/theme")
async def set_theme(request: Request) -> Response:
    form = await read_form(request)
    theme = form.get("theme", "")
    response = redirect(request, form.get("to", "/"))
    value = theme if theme in THEMES else "auto"
    set_cookie(request, response, "memorist_theme", value, seconds=THEME_SECONDS)
    return response


for _name in _STATIC:

    @public("GET", f"/static/{_name}")
    async def send_file(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        headers = {"Cache-Control": "no-cache"}
        return FileResponse(FOLDER / "static" / name, media_type=_STATIC[name], headers=headers)
