"""Authentication and rate limits.

Callers authenticate with an API key or a token signed by an identity provider; a server on localhost
may accept requests without either. REST, MCP and the web page share this module, so it does not
depend on FastAPI's routing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.client import HTTPException as HttpClientError
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit
from urllib.request import build_opener

from pydantic import BaseModel, StringConstraints
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from ..client import Client
from ..context import Voice
from ..errors import (
    InvalidInput,
    KeyRefused,
    Misconfigured,
    NotAllowed,
    ProviderFailed,
    StoreUnavailable,
)
from ..ingest import validation
from ..scoped import ScopedClient
from ..storage.accounts import OF_USER, RIGHTS
from ..types import frozen
from .remote import NoRedirects, is_loopback

log = logging.getLogger("memorist.rest")
ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split()
FRESH_SECONDS = 300.0  # after which the JWKS is loaded again
RETRY_SECONDS = 10.0  # between two attempts to load it
MAX_CALLERS = 10_000  # with a rate limit; the least recently seen is dropped first
_WIDER = {"ask": "read", "remember": "write"}
_NARROWER = {"service": "service"} | {wide: narrow for narrow, wide in _WIDER.items()}
ON_BEHALF = "X-Memorist-User"  # percent-encoded UTF-8
_SCHEMES = ("bearer", "token")  # Mem0 clients send `Token`
LABELS = ("space", "session", "thread", "channel", "run", "agent", "actor")
MCP = "/mcp"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
_TIMEOUT = 5.0
_LATEST = 253_402_300_799  # the last second of the year 9999
_MAX_BYTES = 1 << 20
_NonEmpty = Annotated[str, StringConstraints(min_length=1)]


@frozen
class Caller:
    """An authenticated caller. Their identity never comes from the request itself, unless their key
    has the right `service`.
    """

    name: str  # for rate limits and logs; not secret
    user: str
    tenant: str
    space: str | None = None  # None: every space of the user
    agent: str | None = None
    rights: tuple[str, ...] = OF_USER  # of a key; or `ask` (part of read), `remember` (of write)
    expires_at: datetime | None = None  # when the key or token does

    def has_right(self, right: str) -> bool:
        """Return whether the caller has that right or a wider one."""
        return right in self.rights or _WIDER.get(right) in self.rights

    def require(self, right: str) -> None:
        """Raise NotAllowed if the caller has neither that right nor a wider one."""
        if not self.has_right(right):
            needed = _WIDER.get(right, right)  # a right that keys can have
            granted = ", ".join(self.rights) or "none"
            raise NotAllowed(f"This needs the right {needed!r}; this key has {granted}")

    def for_user(self, user: str) -> Caller:
        """Return the caller on behalf of a user, without the right to act for another one.

        Raises NotAllowed if the caller does not act for that user.
        """
        if "service" not in self.rights:
            if user != self.user:
                raise NotAllowed(
                    f"This caller acts for user {self.user!r} only: acting for others needs a key with"
                    " the right 'service'"
                )
            return self
        validation.name("user", user)
        digest = hashlib.sha256(user.encode()).hexdigest()[:16]  # names do not belong in logs
        rights = tuple(right for right in self.rights if right != "service")
        return replace(self, name=f"{self.name}:{digest}", user=user, rights=rights)

    def require_user(self) -> None:
        """Raise InvalidInput if the caller acts for many users and the request names none."""
        if "service" in self.rights:
            raise InvalidInput(f"This key acts for many users: name one in the header {ON_BEHALF}")

    def scope(self, engine: Client, space: str | None = None, **labels: str | None) -> ScopedClient:
        """Return the scope of a request, in the voice of the caller. Raises NotAllowed for another
        space or agent, and InvalidInput if no user was named.
        """
        self.require_user()
        labels["space"] = space
        for what, own in (("space", self.space), ("agent", self.agent)):
            if own is not None and labels.get(what) not in (None, own):
                raise NotAllowed(f"This key is only for the {what} {own!r}")
            labels[what] = own or labels.get(what)
        scope = engine.scope(self.user, tenant=self.tenant, **labels)
        scope.voice = Voice(agent=self.agent, is_owner=self.has_right("owner"))
        return scope

    def whole_user(self) -> tuple[str, str]:
        """Return user and tenant. Raises NotAllowed for a key of one space or agent."""
        self.require_user()
        if self.space is not None or self.agent is not None:
            raise NotAllowed(
                "This affects all spaces: use a key that is not bound to a space or agent"
            )
        return self.user, self.tenant

    async def find_space(self, engine: Client, id: str) -> str | None:
        """Return the space of the caller that has a memory with this id; None: the usual one."""
        if self.space is not None:
            return None
        try:
            found = await engine.ctx.store.history.find_spaces(self.tenant, self.user, id)
        except StoreUnavailable:
            return None
        return None if not found or engine.settings.space in found else found[0]

    async def spaces(self, engine: Client) -> list[str]:
        """Return the spaces with memories that the caller may open."""
        scopes = await engine.scopes(user=self.user, tenant=self.tenant)
        return [scope.space for scope in scopes if self.space in (None, scope.space)]


class Claims(BaseModel, strict=True):
    """The claims of a token."""

    sub: _NonEmpty
    tenant: _NonEmpty | None = None
    space: _NonEmpty | None = None
    agent: _NonEmpty | None = None
    scope: _NonEmpty = "none"


class JwtVerifier:
    """Verifies tokens with the published keys of their issuer (JWKS).

    The key set is loaded again when it is old or lacks a key.
    """

    def __init__(self, client: Client) -> None:
        settings = client.settings
        if not (settings.jwt_issuer and settings.jwt_audience):
            raise Misconfigured("`jwt_jwks` also needs `jwt_issuer` and `jwt_audience`")
        try:
            import jwt
        except ImportError as error:
            raise Misconfigured(
                'Support for signed tokens is not installed. Run: pip install "memorist[server]"'
            ) from error
        self._jwt = jwt
        self._settings = settings
        self._source = settings.jwt_jwks or ""
        url = urlsplit(self._source)
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise Misconfigured("Setting 'jwt_jwks': keys must come from a file or over https")
        self._keys: list[Any] = []
        self._lock = asyncio.Lock()
        self._loaded_at = self._tried_at = -FRESH_SECONDS

    async def verify(self, token: str) -> Caller:
        """Return the caller of a token. Raises KeyRefused unless it is valid for this server."""
        jwt = self._jwt
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header.get("kid"))
            if header.get("alg") not in ALGORITHMS or key is None:
                raise KeyRefused
            decoded = jwt.decode(
                token,
                key.key,
                algorithms=[header["alg"]],
                issuer=settings.jwt_issuer,
                audience=settings.jwt_audience,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
            claims = Claims.model_validate(decoded)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise KeyRefused from error
        tenant = claims.tenant or settings.tenant
        granted = claims.scope.split()
        identity = repr((tenant, claims.sub, claims.space, claims.agent))
        return Caller(
            name=f"jwt:{hashlib.sha256(identity.encode()).hexdigest()[:32]}",
            user=claims.sub,
            tenant=tenant,
            space=claims.space,
            agent=claims.agent,
            rights=tuple(right for right in RIGHTS if right in granted),
            expires_at=datetime.fromtimestamp(min(int(decoded["exp"]), _LATEST), UTC),
        )

    async def _key(self, kid: object) -> Any:
        """Return the public key with that id, or None.

        If the key set cannot be loaded, the previous one is used. Raises ProviderFailed if it does
        not contain the key.
        """
        if self._find(kid) is None or self._is_due(kid):  # None: another request may be loading it
            async with self._lock:
                if self._is_due(kid):  # not loaded by another request
                    await self._load()
        found = self._find(kid)
        if found is None and self._loaded_at < self._tried_at:
            raise ProviderFailed("The JWKS used to verify tokens cannot be loaded")
        return found

    def _find(self, kid: object) -> Any:
        for key in self._keys:
            if key.key_id == kid or (kid is None and len(self._keys) == 1):
                return key
        return None

    def _is_due(self, kid: object) -> bool:
        now = time.monotonic()
        is_stale = self._find(kid) is None or now - self._loaded_at >= FRESH_SECONDS
        return is_stale and now - self._tried_at >= RETRY_SECONDS

    async def _load(self) -> None:
        def read() -> bytes:
            if "://" not in self._source:
                return Path(self._source).read_bytes()
            with build_opener(NoRedirects).open(self._source, timeout=_TIMEOUT) as answer:
                return bytes(answer.read(_MAX_BYTES))

        self._tried_at = time.monotonic()
        unusable = (OSError, HttpClientError, ValueError, AttributeError, self._jwt.PyJWTError)
        try:
            text = await asyncio.to_thread(read)
            self._keys = self._jwt.PyJWKSet.from_json(text.decode()).keys
        except unusable as error:  # AttributeError: even `[]` is JSON
            log.warning("the JWKS cannot be loaded: %s", type(error).__name__)
        else:
            self._loaded_at = self._tried_at


class Authenticator:
    """Authenticates callers. A request without credentials comes from `local`, if that is set."""

    def __init__(self, engine: Client, local: Caller | None = None) -> None:
        self._engine = engine
        self.local = local
        self._jwt = JwtVerifier(engine) if engine.settings.jwt_jwks is not None else None

    async def verify(self, header: str | None) -> Caller:
        """Authenticate an `Authorization` header or a bare token. Raises KeyRefused.

        Agents never have the right `owner`. An agent with an allowlist may only ask and remember:
        other routes would show more than its allowlist permits.
        """
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
            caller = await self._jwt.verify(token)
        else:
            key = await self._engine.authenticate(token)
            caller = Caller(
                name=key.id,
                user=key.user,
                tenant=key.tenant,
                space=key.space,
                agent=key.agent,
                rights=key.rights,
                expires_at=key.expires_at,
            )
        rights = caller.rights
        if caller.agent is not None:
            rights = tuple(right for right in rights if right != "owner")
        if caller.agent in self._engine.ctx.allowlists.allowlists:
            rights = tuple(_NARROWER[right] for right in rights if right in _NARROWER)
        return replace(caller, rights=rights)


@dataclass
class RateLimiter:
    """Counts the requests of callers: one token bucket for each, in this process."""

    per_minute: int
    clock: Callable[[], float] = time.monotonic
    buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, caller: str) -> dict[str, str]:
        """Count one request and return the rate limit headers, if there is a limit.

        Raises HTTPException 429 if it is exceeded.
        """
        capacity = self.per_minute
        if not capacity:
            return {}
        now = self.clock()
        left, at = self.buckets.pop(caller, (capacity, now))
        left = min(capacity, left + (now - at) * capacity / 60)
        is_over = left < 1
        if not is_over:
            left -= 1
        self.buckets[caller] = left, now
        if len(self.buckets) > MAX_CALLERS:
            self.buckets.popitem(last=False)
        full_in = math.ceil((capacity - left) * 60 / capacity)
        headers = {
            "RateLimit-Policy": f'"default";q={capacity};w=60',
            "RateLimit": f'"default";r={int(left)};t={full_in}',
        }
        if is_over:
            seconds = math.ceil((1 - left) * 60 / capacity)
            headers["Retry-After"] = str(seconds)
            raise HTTPException(429, f"Too many requests: retry in {seconds} s", headers=headers)
        return headers


async def authenticate(connection: HTTPConnection) -> Caller:
    """Authenticate a request and count it, once. The header or the query may name its user.

    Raises KeyRefused, NotAllowed, InvalidInput, or HTTPException 429.
    """
    state: Any = connection.state
    if not hasattr(state, "caller"):
        header = connection.headers.get("authorization", connection.headers.get("x-api-key"))
        caller = await connection.app.state.authenticator.verify(header)
        named = connection.headers.get(ON_BEHALF)
        if named is not None:
            if not named.isascii():
                raise InvalidInput(f"{ON_BEHALF} is not ASCII: percent-encode the name as UTF-8")
            caller = caller.for_user(unquote(named, errors="surrogateescape"))
        if "user" in connection.query_params:
            caller = caller.for_user(connection.query_params["user"])
        state.caller = caller
        state.limit = connection.app.state.rate_limiter.take(state.caller.name)
    found: Caller = state.caller
    return found


def challenge(connection: HTTPConnection) -> str:
    """Return the `WWW-Authenticate` header of an answer to a caller without credentials."""
    if connection.app.state.engine.settings.jwt_jwks is None:
        return "Bearer"
    path = MCP if connection.url.path == MCP else ""
    return f'Bearer resource_metadata="{connection.base_url}{WELL_KNOWN[1:]}{path}"'


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """The client, and the caller of a route, who has the required right."""

    caller: Caller
    client: Client

    def scope(self, given: object) -> ScopedClient:
        """Return the scope that a body or query selects in the caller's memory."""
        labels = {name: getattr(given, name, None) for name in LABELS}
        caller = self.for_user(getattr(given, "user", None)).caller
        return caller.scope(self.client, **labels)

    def for_user(self, user: str | None) -> ClientAccess:
        """Return the access on behalf of the user whom a body names. Raises NotAllowed."""
        return self if user is None else ClientAccess(self.caller.for_user(user), self.client)


@dataclass(frozen=True)
class Requires:
    """The dependency of a route that requires a right, which its route class checks."""

    right: str

    async def __call__(self, connection: HTTPConnection) -> ClientAccess:
        return ClientAccess(connection.state.caller, connection.app.state.engine)
