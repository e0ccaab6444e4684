"""Authentication: callers are known by an API key, a signed token, or by being on this machine.

It does not depend on FastAPI: REST, MCP and the web page share it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import HTTPConnection

from ...client import Client
from ...errors import KeyRefused, NotAllowed
from ...manage.keys import RIGHTS
from ...scoped import ScopedClient
from .jwt import JwtVerifier

_WIDER = {"ask": "read", "remember": "write"}
_NARROWER = {wide: narrow for narrow, wide in _WIDER.items()}
_SCHEMES = ("bearer", "token")  # Mem0 clients send `Token`


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller. Their identity never comes from the request itself."""

    name: str  # for rate limits and logs; not secret
    user: str
    tenant: str
    space: str | None = None  # None: every space of the user
    agent: str | None = None
    rights: tuple[str, ...] = RIGHTS  # of a key; or `ask` (part of read), `remember` (of write)

    def require(self, right: str) -> None:
        """Raise NotAllowed if the caller has neither that right nor a wider one."""
        if right not in self.rights and _WIDER.get(right) not in self.rights:
            needed = _WIDER.get(right, right)  # a right that keys can have
            granted = ", ".join(self.rights) or "none"
            raise NotAllowed(f"This needs the right {needed!r}; this key has {granted}")

    def scope(self, engine: Client, space: str | None = None, **labels: str | None) -> ScopedClient:
        """Return the scope of a request. Raises NotAllowed for another space or agent."""
        bound = (("space", self.space, space), ("agent", self.agent, labels.get("agent")))
        for what, own, requested in bound:
            if own is not None and requested not in (None, own):
                raise NotAllowed(f"This key is only for the {what} {own!r}")
        if self.agent is not None:
            labels["agent"] = self.agent
        return engine.scope(
            self.user, space if self.space is None else self.space, self.tenant, **labels
        )


class Authenticator:
    """Authenticates callers. Without credentials they are the local person, if there is one."""

    def __init__(self, engine: Client, local: Caller | None = None) -> None:
        self._engine, self.local = engine, local
        has_tokens = engine.settings.jwt_jwks is not None
        self._jwt = JwtVerifier(engine.settings) if has_tokens else None

    async def verify(self, header: str | None) -> Caller:
        """Authenticate an `Authorization` header or a bare token. Raises KeyRefused."""
        if header is None:
            if self.local is None:
                raise KeyRefused(
                    "Missing API key: send `Authorization: Bearer …`. "
                    "Create one with `memorist keys create`."
                )
            return self.local
        scheme, _, rest = header.strip().partition(" ")
        token = rest.strip() if scheme.lower() in _SCHEMES and rest else header.strip()
        if self._jwt is not None and token.count(".") == 2:
            claims = await self._jwt.verify(token)
            return self._restrict(_caller_from(claims, self._engine.settings.tenant))
        key = await self._engine.authenticate(token)
        caller = Caller(
            name=key.id,
            user=key.user,
            tenant=key.tenant,
            space=key.space,
            agent=key.agent,
            rights=key.rights,
        )
        return self._restrict(caller)

    def _restrict(self, caller: Caller) -> Caller:
        """Restrict the rights of an agent.

        No agent is an owner. An agent with an allowlist may only ask and remember: any other route
        would show more than its list.
        """
        rights = caller.rights
        if caller.agent is not None:
            rights = tuple(right for right in rights if right != "owner")
        if caller.agent in self._engine.ctx.allowlists.allowlists:
            rights = tuple(_NARROWER[right] for right in rights if right in _NARROWER)
        return replace(caller, rights=rights)


def _caller_from(claims: dict[str, Any], tenant: str) -> Caller:
    """Read a caller from the claims of a token. Raises KeyRefused."""
    names: dict[str, Any] = {"tenant": tenant}
    for name in ("tenant", "space", "agent"):
        if claims.get(name) is not None:
            names[name] = claims[name]
    names["user"] = claims["sub"]
    scope = claims.get("scope", "none")
    for text in (*names.values(), scope):
        if not isinstance(text, str) or not text:
            raise KeyRefused
    granted = scope.split()
    identity = repr(tuple(names.get(part) for part in ("tenant", "user", "space", "agent")))
    return Caller(
        name=f"jwt:{hashlib.sha256(identity.encode()).hexdigest()[:32]}",
        rights=tuple(right for right in RIGHTS if right in granted),
        **names,
    )


async def authenticate(connection: HTTPConnection) -> Caller:
    """Authenticate a request and count it, once. Raises KeyRefused, or HTTPException 429."""
    state: Any = connection.state
    if not hasattr(state, "caller"):
        header = connection.headers.get("authorization")
        if header is None:
            header = connection.headers.get("x-api-key")
        state.caller = await connection.app.state.authenticator.verify(header)
        state.limit = connection.app.state.rate_limiter.take(state.caller.name)
    caller: Caller = state.caller
    return caller


class Requires:
    """A dependency that returns the caller. Raises KeyRefused (401) or NotAllowed (403)."""

    def __init__(self, right: str) -> None:
        self.right = right

    async def __call__(self, connection: HTTPConnection) -> Caller:
        caller = await authenticate(connection)
        caller.require(self.right)
        return caller
