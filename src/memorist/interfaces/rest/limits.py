"""Rate limits: one token bucket per caller, in this process."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException

MAX_CALLERS = 10_000  # beyond this, the caller not seen for longest starts over


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What a caller has left, for the headers `RateLimit` and `RateLimit-Policy`."""

    per_minute: int
    left: int
    full_in: int  # seconds

    @property
    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Policy": f'"default";q={self.per_minute};w=60',
            "RateLimit": f'"default";r={self.left};t={self.full_in}',
        }


class RateLimiter:
    """Counts the requests of callers."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> RateLimit | None:
        """Count one request. Returns None if there is no limit. Raises HTTPException 429."""
        if not self._per_minute:
            return None
        now, capacity = self._clock(), float(self._per_minute)
        left, at = self._buckets.pop(caller, (capacity, now))
        left = min(capacity, left + (now - at) * capacity / 60)
        is_over = left < 1
        if not is_over:
            left -= 1
        self._buckets[caller] = left, now
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        limit = RateLimit(self._per_minute, int(left), math.ceil((capacity - left) * 60 / capacity))
        if is_over:
            seconds = math.ceil((1 - left) * 60 / capacity)
            headers = {"Retry-After": str(seconds), **limit.headers}
            raise HTTPException(429, f"Too many requests: retry in {seconds} s", headers=headers)
        return limit
