"""Times in UTC, written so that they sort as text, and ids that sort by time."""

from __future__ import annotations

import os
import time
import uuid
from datetime import UTC, datetime, timedelta

NO_TIME = -(2**63)  # stands for "unknown" where times are numbers
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def utcnow() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def utc(at: datetime) -> datetime:
    """Return the same moment in UTC; a time without a zone is taken as UTC.

    >>> utc(datetime(2023, 5, 8, 13, 56)).isoformat()
    '2023-05-08T13:56:00+00:00'
    """
    if at.tzinfo is UTC:
        return at
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    try:
        return at.astimezone(UTC)
    except OverflowError:  # the first and last day of the calendar in a far zone
        return at.replace(tzinfo=UTC)


def micros(at: datetime | None, *, missing: int = NO_TIME) -> int:
    """Return the exact microseconds since 1970.

    >>> micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return missing if at is None else (utc(at) - _EPOCH) // _MICROSECOND


def micros_of(text: str) -> int:
    """Return the microseconds of a time that `iso` wrote. Raises ValueError.

    >>> micros_of("1970-01-01T00:00:01.000000Z")
    1000000
    """
    if text.endswith("Z") and len(text) == 27:
        return (datetime.fromisoformat(text[:-1]) - _NAIVE_EPOCH) // _MICROSECOND
    return micros(parse(text))


def iso(at: datetime) -> str:
    """Return a fixed-width text that sorts by time.

    >>> iso(datetime(2023, 5, 8, 13, 56, tzinfo=UTC))
    '2023-05-08T13:56:00.000000Z'
    """
    return utc(at).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse(text: str) -> datetime:
    """Read a time that `iso` wrote, or any other ISO 8601 text. Raises ValueError."""
    return utc(datetime.fromisoformat(text))


def new_id() -> str:
    """Return a new UUIDv7: 48 bits of milliseconds, then 74 random bits."""
    millis = time.time_ns() // 1_000_000
    value = (millis << 80) | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | (7 << 76)
    return str(uuid.UUID(int=value & ~(0b11 << 62) | (0b10 << 62)))
