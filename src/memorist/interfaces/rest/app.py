"""The HTTP server: REST, MCP and the web page over one client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ... import __version__
from ...client import Client
from ...errors import MemoristError
from .. import metrics
from ..mcp import build_http_server, serve_http
from ..web import pages
from . import dialects
from . import routes as memories
from .auth import Authenticator, Caller, RateLimiter
from .request import AuthenticatedRoute, Problem, RequestMiddleware, answer_error, problem

_NO_TELEMETRY: Any = dict.fromkeys(
    "tracing metrics logs operation_spans auto_configure".split(), False
)
_DESCRIPTION = (
    "Long-term memory for AI agents. The API key identifies the caller; space, session and other "
    "labels select a part of their memory. Errors are `application/problem+json`. Requests that "
    "change something accept an `Idempotency-Key`: repeated within a day, they are done once."
)
_KEY = "Create one with `memorist keys create`. A server on localhost may be used without a key."
health = APIRouter(route_class=AuthenticatedRoute)
ROUTERS = (
    health,
    metrics.routes,
    memories.routes,
    dialects.routes,
)


@health.get("/healthz")
async def healthz() -> dict[str, str]:
    """Report that the server is running."""
    return {"status": "ok"}


@health.get("/readyz")
async def readyz(request: Request) -> dict[str, str]:
    """Report that the store answers."""
    await request.app.state.engine.ctx.store.name()
    return {"status": "ready"}


def create_app(engine: Client, *, local: Caller | None = None) -> FastAPI:
    """Create the server of a client. The caller keeps the client open, and closes it.

    `local` is the caller of requests without a key, for a server that listens on localhost. Without
    it, every request needs a key.
    """
    app = FastAPI(
        title="Memorist",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        lifespan=lambda app: serve_http(app, build_http_server(engine)),
    )
    app.state.engine = engine
    app.state.authenticator = Authenticator(engine, local)
    app.state.rate_limiter = RateLimiter(engine.settings.rate_limit)
    app.state.metrics = metrics.Metrics(engine)
    pages.mount(app)
    for router in ROUTERS:
        app.include_router(router)
    for kind in (MemoristError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer_error)
    app.add_exception_handler(405, _method_not_allowed)
    app.add_middleware(
        RequestMiddleware,
        max_bytes=engine.settings.max_body_mb << 20,
        local_only=local is not None,
    )
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


def _method_not_allowed(request: Request, error: Exception) -> Response:
    """Answer 405 with all methods that the path allows."""
    allowed: set[str] = set()
    for route in routes():
        if route.path_regex.match(request.url.path):
            allowed |= route.methods or set()
    headers = getattr(error, "headers", None)
    if allowed:
        headers = {"Allow": ", ".join(sorted(allowed))}
    return problem(request, 405, f"{request.method} is not supported here", headers=headers)


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    document = FastAPI.openapi(app)
    components = document["components"]
    components["schemas"]["Problem"] = Problem.model_json_schema()
    key = {"type": "http", "scheme": "bearer", "description": _KEY}
    components["securitySchemes"] = {"key": key}
    return document


def routes() -> Iterator[AuthenticatedRoute]:
    """Yield all REST routes."""
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, AuthenticatedRoute):
                yield route
