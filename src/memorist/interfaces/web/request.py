"""What every view has in common: who looks, at which space, in which colours, and how it is told if it goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode

import jinja2
from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from ... import __version__
from ...client import Client
from ...errors import InvalidInput, KeyRefused, MemoristError, NotAllowed
from ...scoped import ScopedClient
from ..rest import problems
from ..rest.auth import Caller
from . import charts, text
from .sessions import COOKIE, Sessions

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'none'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
# With `no-referrer` a browser would send our own forms as if they came from nowhere; others learn nothing from this.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
MOST_FIELDS = 60
THEMES = ("auto", "light", "dark")
IN_PLACE = ("memorist_in_space", "memorist_in_session")  # cookies: what this page shows
_OURS = re.compile(r"/(?![/\\])[!-~]*")  # an address of this page, and of no other

Handler = Callable[[Request], Awaitable[Response]]
routes: list[tuple[str, str, Handler]] = []
pages = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
pages.filters.update(said=text.said, brief=text.brief, moment=text.moment, span=text.span)
pages.globals.update(changed=text.changed, charts=charts, version=__version__)


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody at a view: what they may see and do, and what their form says."""

    request: Request
    caller: Caller
    mine: ScopedClient
    form: dict[str, list[str]] = field(default_factory=dict)

    @property
    def engine(self) -> Client:
        engine: Client = self.request.app.state.engine
        return engine

    def asked(self, name: str) -> str:
        """What the address says."""
        return self.request.query_params.get(name, "").strip()

    def told(self, name: str) -> str:
        """What the form says. Line ends are what they were before a browser sent them."""
        return (self.form.get(name) or [""])[0].replace("\r\n", "\n").strip()

    def number(self, name: str, most: int) -> int | None:
        """A number that the address or the form says; None without one. Raises InvalidInput."""
        given = self.asked(name) or self.told(name)
        if given and not (
            given.isascii() and given.isdigit() and len(given) < 12 and int(given) <= most
        ):
            raise InvalidInput(f"{name} is a whole number up to {most:,}")
        return int(given) if given else None

    def may(self, right: str) -> bool:
        try:
            self.caller.require(right)
        except NotAllowed:
            return False
        return True

    def address(self, **changes: str | None) -> str:
        """This view with something else in its address."""
        kept = {**dict(self.request.query_params), **changes}
        query = urlencode({name: value for name, value in kept.items() if value})
        return f"{self.request.url.path}?{query}" if query else self.request.url.path

    async def show(self, template: str, **values: Any) -> Response:
        disabled_reason, settings = (
            await self.mine.privacy.disabled_reason(),
            await self.mine.privacy.settings(),
        )
        return page(
            self.request,
            template,
            visit=self,
            scope=self.mine.scope,
            session=self.mine.labels.session,
            disabled_reason=disabled_reason,
            incognito_default=settings.incognito_default,
            now=self.engine.ctx.clock(),
            **values,
        )


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """A view as it is sent."""
    theme = request.cookies.get("memorist_theme", "auto")
    signed_in, note = request.cookies.get(COOKIE), request.cookies.get("memorist_note", "")
    common = {
        "path": request.url.path if request.method == "GET" else back(request),
        "theme": theme if theme in THEMES else "auto",
        "themes": THEMES,
        "note": unquote(note),
        "proof": sessions(request).proof(signed_in or ""),
        "signed_in": signed_in,
        "visit": None,
        "disabled_reason": "",
        "incognito_default": False,
        "session": None,
        "scope": None,
    }
    made = pages.get_template(template).render(**{**common, **values})
    answer = Response(made.encode("utf-8", "replace"), status, HEADERS, "text/html; charset=utf-8")
    if note:
        answer.delete_cookie("memorist_note")
    return answer


def back(request: Request) -> str:
    """The view that somebody came from, or the first one."""
    to = request.headers.get("referer", "").partition("://")[2].removeprefix(request.url.netloc)
    return to if _OURS.fullmatch(to) and to != request.url.path else "/"


def onward(request: Request, to: str, note: str = "") -> Response:
    """To another view, with a word about what was done there. It names no memory's text: cookies are kept in files."""
    answer = RedirectResponse(to if _OURS.fullmatch(to) else "/", 303, HEADERS)
    if note:
        keep(request, answer, "memorist_note", note, seconds=60)
    return answer


def keep(
    request: Request, answer: Response, name: str, value: str, *, seconds: int | None = None
) -> None:
    """A cookie that no script and no other site gets."""
    answer.set_cookie(
        name,
        quote(value, safe=""),
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def view(
    path: str, right: str = "read"
) -> Callable[[Callable[[Visit], Awaitable[Response]]], Handler]:
    """A view that somebody may look at who has this right."""
    return _on("GET", path, right)


def act(
    path: str, right: str = "write"
) -> Callable[[Callable[[Visit], Awaitable[Response]]], Handler]:
    """What a form does, for somebody who has this right."""
    return _on("POST", path, right)


def _on(
    method: str, path: str, right: str
) -> Callable[[Callable[[Visit], Awaitable[Response]]], Handler]:
    def register(answer: Callable[[Visit], Awaitable[Response]]) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return await answer(await _visit(request, right))
            except (MemoristError, HTTPException) as error:
                return told(request, error)

        routes.append((path, method, handle))
        return handle

    return register


async def _visit(request: Request, right: str) -> Visit:
    """Raises KeyRefused, NotAllowed, InvalidInput, HTTPException."""
    key = sessions(request).key(request.cookies.get(COOKIE))
    caller = request.state.caller = await request.app.state.authenticator.verify(
        None if key is None else f"Bearer {key}"
    )
    request.state.limit = request.app.state.rate_limiter.take(caller.name)
    visit = request.state.visit = Visit(request, caller, _mine(request, caller, {}))
    caller.require(right)
    if request.method != "POST":
        return visit
    form = await filled(request)
    return replace(visit, mine=_mine(request, caller, form), form=form)


def _mine(request: Request, caller: Caller, form: dict[str, list[str]]) -> ScopedClient:
    """What a form is about, or what was last looked at; a caller who is bound to one space looks at no other."""
    space, session = (
        (form.get(part) or [unquote(request.cookies.get(f"memorist_in_{part}", ""))])[0] or None
        for part in ("space", "session")
    )
    own = None if caller.space is not None and "space" not in form else space
    return caller.scope(request.app.state.engine, own, session=session)


async def filled(request: Request) -> dict[str, list[str]]:
    """What a form says that we made for this session. Raises InvalidInput, NotAllowed."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        form = parse_qs(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError as error:
        raise InvalidInput("This form cannot be read") from error
    proof = (form.get("proof") or [""])[0]
    if media != "application/x-www-form-urlencoded" or not sessions(request).is_proof(
        proof, request.cookies.get(COOKIE) or ""
    ):
        raise NotAllowed(
            "This form is too old, or not one of ours: go back, load the page anew and try again"
        )
    return form


def told(request: Request, error: Exception) -> Response:
    """What went wrong, in the words that the other doors use; whoever is known keeps the way to the views."""
    if isinstance(error, KeyRefused) and request.method == "GET":
        to = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return onward(request, f"/login?{urlencode({'to': to})}")
    if isinstance(error, HTTPException):
        status, detail = error.status_code, str(error.detail)
    else:
        answer = problems.from_memorist(request, error)
        status, detail = answer.status_code, json.loads(bytes(answer.body))["detail"]
    visit: Visit | None = getattr(request.state, "visit", None)
    known = (
        {"visit": visit, "scope": visit.mine.scope, "session": visit.mine.labels.session}
        if visit
        else {}
    )
    has_keys = request.app.state.authenticator.local is None
    return page(
        request,
        "error.html",
        status=status,
        detail=detail,
        has_keys=has_keys,
        back=back(request),
        **known,
    )


def sessions(request: Request) -> Sessions:
    found: Sessions = request.app.state.sessions
    return found
