"""New ids: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

import os
import time
import uuid


def new_id() -> str:
    """A UUIDv7: 48 bits of milliseconds, then 74 random bits."""
    millis = time.time_ns() // 1_000_000
    value = (millis << 80) | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | (7 << 76)
    return str(uuid.UUID(int=value & ~(0b11 << 62) | (0b10 << 62)))
