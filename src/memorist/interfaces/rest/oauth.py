"""Discovery for OAuth clients: who issues the tokens that this server accepts (RFC 9728).

Hosts of remote MCP servers read it to log a person in. Without the setting `jwt_jwks` there is none.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException

from ...settings import Settings
from ...storage.accounts import RIGHTS

WELL_KNOWN = "/.well-known/oauth-protected-resource"
MCP = "/mcp"
routes = APIRouter()


@routes.get(WELL_KNOWN, include_in_schema=False)
@routes.get(f"{WELL_KNOWN}{MCP}", include_in_schema=False)
async def describe_resource(request: Request) -> dict[str, Any]:
    """Describe this server, or its MCP endpoint, as a protected resource."""
    settings: Settings = request.app.state.engine.settings
    if settings.jwt_jwks is None:
        raise HTTPException(404, "This server accepts API keys, and no tokens of an issuer")
    path = request.url.path.removeprefix(WELL_KNOWN)
    return {
        "resource": f"{_address(request)}{path}",
        "resource_name": "Memorist",
        "authorization_servers": [settings.jwt_issuer],
        "scopes_supported": list(RIGHTS),
        "bearer_methods_supported": ["header"],
    }


def challenge(request: Request) -> str:
    """Return the `WWW-Authenticate` header of an answer to a caller without credentials."""
    settings: Settings = request.app.state.engine.settings
    if settings.jwt_jwks is None:
        return "Bearer"
    path = MCP if request.url.path == MCP else ""
    return f'Bearer resource_metadata="{_address(request)}{WELL_KNOWN}{path}"'


def _address(request: Request) -> str:
    return str(request.base_url).rstrip("/")
