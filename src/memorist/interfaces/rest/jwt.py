"""Tokens signed by an identity provider, verified with its published keys (JWKS)."""

from __future__ import annotations

import asyncio
import logging
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from ...errors import KeyRefused, Misconfigured, ProviderFailed
from ...settings import Settings

log = logging.getLogger("memorist.rest")
ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA".split()
FRESH_SECONDS = 300.0  # how long loaded keys are used without loading them again
RETRY_SECONDS = 10.0  # between two attempts to load them
_TIMEOUT, _MAX_BYTES = 5.0, 1 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class JwtVerifier:
    """Verifies tokens with a key set that is loaded again when it is old or lacks a key."""

    def __init__(self, settings: Settings) -> None:
        if not (settings.jwt_issuer and settings.jwt_audience):
            raise Misconfigured("`jwt_jwks` also needs `jwt_issuer` and `jwt_audience`")
        try:
            import jwt
        except ImportError as error:
            raise Misconfigured(
                'Signed tokens need an extra: pip install "memorist[server]"'
            ) from error
        self._jwt, self._settings, self._source = jwt, settings, settings.jwt_jwks or ""
        url = urlsplit(self._source)
        if url.scheme == "http" and url.hostname not in _LOOPBACK:
            raise Misconfigured("Setting 'jwt_jwks': keys must come from a file or over https")
        self._keys: Any = None
        self._lock, self._has_failed = asyncio.Lock(), True
        self._loaded_at = self._tried_at = -FRESH_SECONDS

    async def verify(self, token: str) -> dict[str, Any]:
        """Return the claims of a token. Raises KeyRefused unless it is valid and for us."""
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header.get("kid"))
            if header.get("alg") not in ALGORITHMS or key is None:
                raise KeyRefused
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[header["alg"]],
                issuer=self._settings.jwt_issuer,
                audience=self._settings.jwt_audience,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise KeyRefused from error
        return claims

    async def _key(self, kid: object) -> Any:
        """Return the public key with that id, or None.

        If the key set cannot be loaded, the previous one is used. Raises ProviderFailed if it does
        not contain the key.
        """
        found = self._find(kid)
        if found is None or self._is_due(found):  # None: another request may be loading it
            async with self._lock:
                if self._is_due(self._find(kid)):  # not loaded by another request
                    await self._load()
            found = self._find(kid)
        if found is None and self._has_failed:
            raise ProviderFailed("The JWKS used to verify tokens cannot be loaded")
        return found

    def _is_due(self, found: Any) -> bool:
        now = time.monotonic()
        is_stale = found is None or now - self._loaded_at >= FRESH_SECONDS
        return is_stale and now - self._tried_at >= RETRY_SECONDS

    async def _load(self) -> None:
        self._tried_at = time.monotonic()
        unusable = (OSError, HTTPException, ValueError, AttributeError, self._jwt.PyJWTError)
        try:
            self._keys = await asyncio.to_thread(self._read)
        except unusable as error:  # AttributeError: even `[]` is JSON
            self._has_failed = True
            log.warning("the JWKS cannot be loaded: %s", type(error).__name__)
        else:
            self._loaded_at, self._has_failed = self._tried_at, False

    def _find(self, kid: object) -> Any:
        known = self._keys.keys if self._keys is not None else []
        if kid is None and len(known) == 1:
            return known[0]
        for key in known:
            if key.key_id == kid:
                return key
        return None

    def _read(self) -> Any:
        if "://" in self._source:
            with build_opener(_NoRedirects).open(self._source, timeout=_TIMEOUT) as answer:
                text = answer.read(_MAX_BYTES)
        else:
            text = Path(self._source).read_bytes()
        return self._jwt.PyJWKSet.from_json(text.decode())
