"""The server: an engine, its doors, and who may come in."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from ... import __version__
from ...client import Client
from .. import metrics, web
from ..mcp.server import serve_http
from . import entries, mem0, people, problems, recalling, seeds, upkeep
from .auth import Caller, Doorkeeper, admitted
from .limits import Limits
from .middleware import Gate
from .route import Door, rights

_QUIET: Any = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_DESCRIPTION = (
    "Long-term memory that remembers with evidence, recalls within a budget and says why. Who asks is known by "
    "the key; a space, a session and the rest say what is asked about. Errors are `application/problem+json`. A "
    "request that changes something can carry an `Idempotency-Key`: asked again within a day, it is done once."
)
_KEY = "`memorist keys create` makes one. On this machine alone the server may be asked without."
health = APIRouter(route_class=Door)
ROUTERS = (
    health,
    metrics.routes,
    entries.routes,
    recalling.routes,
    people.routes,
    upkeep.routes,
    seeds.routes,
    mem0.routes,
)


@health.get("/healthz")
async def healthz() -> dict[str, str]:
    """The server runs."""
    return {"status": "ok"}


@health.get("/readyz")
async def readyz(request: Request) -> dict[str, str]:
    """The store answers."""
    await request.app.state.engine.ctx.store.name()
    return {"status": "ready"}


def create_app(engine: Client, *, local: Caller | None = None) -> FastAPI:
    """The server of an engine, which stays open until whoever opened it closes it.

    `local` is who asks without a key, for an address that only this machine reaches; without it, everybody needs a key.
    """
    app = FastAPI(
        title="Memorist",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
        telemetry=_QUIET,
        lifespan=lambda app: serve_http(app, engine, admitted),
    )
    app.state.engine = engine
    app.state.doorkeeper = Doorkeeper(engine, local)
    app.state.limits = Limits(engine.settings.rate_limit)
    app.state.metrics = metrics.Metrics(engine)
    web.mount(app)
    for router in ROUTERS:
        app.include_router(router)
    problems.add_to(app)
    app.add_exception_handler(405, _not_allowed)
    app.add_middleware(
        Gate, most_bytes=engine.settings.max_body_mb << 20, only_here=local is not None
    )
    app.openapi = lambda: described(app)  # type: ignore[method-assign]
    return app


def _not_allowed(request: Request, error: Exception) -> Response:
    """A method that an address does not know, with those that it does."""
    known = {
        method
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, Door) and route.path_regex.match(request.url.path)
        for method in route.methods or ()
    }
    headers = {"Allow": ", ".join(sorted(known))} if known else getattr(error, "headers", None)
    return problems.response(request, 405, f"{request.method} is not known here", headers=headers)


def described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1: every answer that a route can give, and the right that it needs."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = made["components"]["schemas"]
        schemas["Problem"] = problems.Problem.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        made["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": _KEY}
        }
        for path, method, needed in table():
            _complete(made["paths"][path][method], method, needed)
        app.openapi_schema = made
    return app.openapi_schema


def _complete(operation: dict[str, Any], method: str, needed: str) -> None:
    """What every route does: refuse, and tell why."""
    statuses = [500, 503]
    if needed:
        operation["x-right"] = needed
        statuses += [401, 403, 422, 429]
    if "requestBody" in operation:
        statuses += [400, 413, 415]
    if method != "get":
        statuses += [409]
    operation["security"] = [{"key": []}] if needed else []
    operation["responses"].pop("422", None)
    operation["responses"] |= {
        str(status): told for status, told in problems.declared(*sorted(statuses)).items()
    }


def table() -> list[tuple[str, str, str]]:
    """All routes: their address, method, and the right that they need, empty if anybody may ask."""
    return [
        (route.path, method.lower(), next(rights(route.dependant), ""))
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, Door)
        for method in sorted(route.methods or ())
    ]
