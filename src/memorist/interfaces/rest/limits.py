"""How often one caller may ask: a bucket that fills again by itself, in this process."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException

MOST_CALLERS = 10_000  # who was not seen for longest begins anew


@dataclass(frozen=True, slots=True)
class Limit:
    """What is left to a caller, as the headers `RateLimit` and `RateLimit-Policy` tell it."""

    per_minute: int
    left: int
    full_in: int  # seconds

    @property
    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Policy": f'"default";q={self.per_minute};w=60',
            "RateLimit": f'"default";r={self.left};t={self.full_in}',
        }


class Limits:
    """Counts the requests of callers."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> Limit | None:
        """Count one request; None if there is no limit. Raises HTTPException 429, which says when to ask again."""
        if not self._per_minute:
            return None
        now, most = self._clock(), float(self._per_minute)
        left, at = self._buckets.pop(caller, (most, now))
        left = min(most, left + (now - at) * most / 60)
        taken = left - 1 if left >= 1 else left
        self._buckets[caller] = taken, now
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        limit = Limit(self._per_minute, int(taken), math.ceil((most - taken) * 60 / most))
        if left < 1:
            again = math.ceil((1 - left) * 60 / most)
            headers = {"Retry-After": str(again), **limit.headers}
            raise HTTPException(429, f"Too many requests: ask again in {again} s", headers=headers)
        return limit
