"""A clock that is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass
class Clock:
    now: datetime

    def __call__(self) -> datetime:
        return self.now
