"""Who asks, and what they may do: by a key of ours, by a token that somebody we trust has signed, or by being here.

It knows nothing of FastAPI, so that every door has the same doorkeeper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection

from ...client import Client
from ...errors import KeyRefused, NotAllowed
from ...manage.keys import RIGHTS
from ...scoped import ScopedClient

if TYPE_CHECKING:
    from .jwt import Jwt

_WIDER = {"ask": "read", "remember": "write"}
_NARROWER = {wide: narrow for narrow, wide in _WIDER.items()}
_SCHEMES = ("bearer", "token")  # what clients of Mem0 say


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who asks. Who they are is never taken from what they ask."""

    name: str  # by which they are counted and logged: no secret
    user: str
    tenant: str
    space: str | None = None  # None: every space of the user
    agent: str | None = None
    rights: tuple[str, ...] = (
        RIGHTS  # those of a key, or in their place ask (of read) and remember (of write)
    )

    def must(self, right: str) -> None:
        """Raises NotAllowed without that right, or a wider one."""
        if right not in self.rights and _WIDER.get(right) not in self.rights:
            needed = _WIDER.get(right, right)  # what a key can be given
            raise NotAllowed(
                f"This needs the right {needed!r}; this key has {', '.join(self.rights) or 'none'}"
            )

    def scope(self, engine: Client, space: str | None = None, **labels: str | None) -> ScopedClient:
        """What they ask about. Raises NotAllowed for a space or an agent that is not theirs."""
        for what, own, named in (
            ("space", self.space, space),
            ("agent", self.agent, labels.get("agent")),
        ):
            if own is not None and named not in (None, own):
                raise NotAllowed(f"This key is for the {what} {own!r} alone")
        labels["agent"] = labels.get("agent") if self.agent is None else self.agent
        return engine.scope(
            self.user, space if self.space is None else self.space, self.tenant, **labels
        )


class Doorkeeper:
    """Knows callers by what they show; without anything they are the local person, where there is one."""

    def __init__(self, engine: Client, local: Caller | None = None) -> None:
        self._engine, self.local, self._jwt = engine, local, _signed(engine)

    async def verify(self, header: str | None) -> Caller:
        """The caller who shows this `Authorization` header, or a bare token. Raises KeyRefused."""
        if header is None:
            if self.local is None:
                raise KeyRefused(
                    "No key was shown: send `Authorization: Bearer …`. `memorist keys create` makes one."
                )
            return self.local
        scheme, _, rest = header.strip().partition(" ")
        token = rest.strip() if scheme.lower() in _SCHEMES and rest else header.strip()
        if self._jwt is not None and token.count(".") == 2:
            return self._listed(await self._jwt.caller(token))
        key = await self._engine.authenticate(token)
        return self._listed(
            Caller(
                name=key.id,
                user=key.user,
                tenant=key.tenant,
                space=key.space,
                agent=key.agent,
                rights=key.rights,
            )
        )

    def _listed(self, caller: Caller) -> Caller:
        """Narrow the rights of an agent: none acts for the person, and one with an allowlist may ask and remember.

        Whatever else there is would show it more than its list.
        """
        if caller.agent is not None:
            caller = replace(
                caller, rights=tuple(right for right in caller.rights if right != "owner")
            )
        if caller.agent not in self._engine.ctx.allowlists.allowlists:
            return caller
        return replace(
            caller, rights=tuple(_NARROWER[right] for right in caller.rights if right in _NARROWER)
        )


def _signed(engine: Client) -> Jwt | None:
    if engine.settings.jwt_jwks is None:
        return None
    from .jwt import Jwt

    return Jwt(engine.settings)


def shown(connection: HTTPConnection) -> str | None:
    """What a request shows of its caller."""
    given = connection.headers.get("authorization")
    return given if given is not None else connection.headers.get("x-api-key")


async def admitted(connection: HTTPConnection) -> Caller:
    """The caller of a request, looked up and counted once. Raises KeyRefused, or HTTPException 429."""
    state: Any = connection.state
    if not hasattr(state, "caller"):
        doorkeeper: Doorkeeper = connection.app.state.doorkeeper
        state.caller = await doorkeeper.verify(shown(connection))
        state.limit = connection.app.state.limits.take(state.caller.name)
    found: Caller = state.caller
    return found


class May:
    """A dependency that gives the caller, if they have a right."""

    def __init__(self, right: str) -> None:
        self.right = right

    async def __call__(self, connection: HTTPConnection) -> Caller:
        caller = await admitted(connection)
        caller.must(self.right)
        return caller


def caller(right: str = "read") -> May:
    """For `Depends`: who asks, with that right. Raises KeyRefused (401) or NotAllowed (403)."""
    return May(right)
