"""Who has signed in at the page. The key stays here: the browser gets a name for it that no script can read."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

COOKIE = "memorist_session"
LASTS = 12 * 3600  # seconds after the last visit
MOST = 10_000  # whoever came first goes first


class Sessions:
    """Keys of those who have signed in, until they leave, stay away or this process ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._secret = clock, secrets.token_bytes(32)
        self._kept: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def begin(self, key: str) -> str:
        """A new name for a key that was found good."""
        name = secrets.token_urlsafe(32)
        self._kept[name] = key, self._clock()
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return name

    def key(self, name: str | None) -> str | None:
        """The key that somebody signed in with; None if there is no such session any more."""
        key, seen = self._kept.pop(name or "", ("", 0.0))
        if not key or self._clock() - seen > LASTS:
            return None
        self._kept[name or ""] = key, self._clock()
        return key

    def end(self, name: str | None) -> None:
        self._kept.pop(name or "", None)

    def proof(self, of: str) -> str:
        """What a form must carry that was made for this session."""
        return hmac.new(self._secret, of.encode(), hashlib.sha256).hexdigest()

    def is_proof(self, given: str, of: str) -> bool:
        return hmac.compare_digest(given.encode(), self.proof(of).encode())
