"""Tokens that an identity provider has signed, checked with the public keys that it publishes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from ...errors import KeyRefused, Misconfigured, ProviderFailed
from ...manage.keys import RIGHTS
from ...settings import Settings
from .auth import Caller

log = logging.getLogger("memorist.rest")
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
FRESH_SECONDS, AGAIN_SECONDS = 300.0, 10.0
_TIMEOUT, _MOST_BYTES = 5.0, 1 << 20
_HERE = ("localhost", "127.0.0.1", "::1")


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Jwt:
    """Reads who somebody is from a token: `sub` is the user, `scope` the rights, `tenant` and `space` what they say."""

    def __init__(self, settings: Settings) -> None:
        if not (settings.jwt_issuer and settings.jwt_audience):
            raise Misconfigured(
                "`jwt_jwks` needs `jwt_issuer` and `jwt_audience`: whose tokens, and for whom"
            )
        try:
            import jwt
        except ImportError as error:
            raise Misconfigured(
                'Signed tokens need another package: pip install "memorist[server]"'
            ) from error
        self._jwt, self._settings, self._place = jwt, settings, settings.jwt_jwks or ""
        where = urlsplit(self._place)
        if where.scheme == "http" and where.hostname not in _HERE:
            raise Misconfigured("Setting 'jwt_jwks': public keys come from a file or over https")
        self._keys: Any = None
        self._reading, self._is_away = asyncio.Lock(), True
        self._read_at = self._tried_at = -FRESH_SECONDS

    async def caller(self, token: str) -> Caller:
        """Raises KeyRefused for anything but a token that is signed, current, and meant for us."""
        jwt = self._jwt
        try:
            head = jwt.get_unverified_header(token)
            key = await self._key(head.get("kid"))
            if head.get("alg") not in ALGORITHMS or key is None:
                raise KeyRefused
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[head["alg"]],
                issuer=self._settings.jwt_issuer,
                audience=self._settings.jwt_audience,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise KeyRefused from error
        return _caller(claims, self._settings.tenant)

    async def _key(self, kid: object) -> Any:
        """The public key of that name; they are read again when they are old, or a new name turns up.

        While they cannot be read, those that were read before are good. Raises ProviderFailed if it is none of them.
        """
        found = self._named(kid)
        if found is None or self._is_due(found):
            async with self._reading:
                if self._is_due(self._named(kid)):
                    await self._refresh()
            found = self._named(kid)
        if found is None and self._is_away:
            raise ProviderFailed("The public keys of those who sign tokens cannot be read")
        return found

    def _is_due(self, found: Any) -> bool:
        now = time.monotonic()
        return now - self._tried_at >= AGAIN_SECONDS and (
            found is None or now - self._read_at >= FRESH_SECONDS
        )

    async def _refresh(self) -> None:
        self._tried_at = time.monotonic()
        try:
            self._keys = await asyncio.to_thread(self._read)
        except (
            OSError,
            HTTPException,
            ValueError,
            AttributeError,
            self._jwt.PyJWTError,
        ) as error:  # even `[]` is JSON
            self._is_away = True
            log.warning(
                "the public keys of those who sign tokens cannot be read: %s", type(error).__name__
            )
        else:
            self._read_at, self._is_away = self._tried_at, False

    def _named(self, kid: object) -> Any:
        known = self._keys.keys if self._keys is not None else []
        return next(
            (each for each in known if each.key_id == kid or (kid is None and len(known) == 1)),
            None,
        )

    def _read(self) -> Any:
        if "://" in self._place:
            with build_opener(_Stay).open(self._place, timeout=_TIMEOUT) as answer:
                text = answer.read(_MOST_BYTES)
        else:
            text = Path(self._place).read_bytes()
        return self._jwt.PyJWKSet.from_json(text.decode())


def _caller(claims: dict[str, Any], tenant: str) -> Caller:
    names = {
        name: claims[name] for name in ("tenant", "space", "agent") if claims.get(name) is not None
    }
    texts = (claims["sub"], *names.values(), claims.get("scope", "none"))
    if not all(isinstance(each, str) and each for each in texts):
        raise KeyRefused
    who: dict[str, str] = {"tenant": tenant, **names, "user": claims["sub"]}
    granted = claims.get("scope", "").split()
    rights = tuple(right for right in RIGHTS if right in granted)
    named = repr(tuple(who.get(part) for part in ("tenant", "user", "space", "agent")))
    return Caller(
        name=f"jwt:{hashlib.sha256(named.encode()).hexdigest()[:32]}", rights=rights, **who
    )
