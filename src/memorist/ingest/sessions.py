"""How a session went on: who said the last turn, and whether it asks."""

from __future__ import annotations

import numpy as np

from ..index import Snapshot
from ..text import cues


def read_last(
    snapshot: Snapshot,
    session: str | None,
    before: int | None = None,
) -> tuple[bool, str | None]:
    """Return whether the last turn of a session, or the one before another, asks, and who said it."""
    is_here = snapshot.alive & (snapshot.session == snapshot.code("session", session))
    if before is not None:
        is_here &= snapshot.sequence < before
    positions = np.flatnonzero(is_here)
    if not len(positions):
        return False, None
    latest = positions[np.argmax(snapshot.sequence[positions])]
    asks = bool(snapshot.flags[latest] & cues.ENDS_ASKING)
    code = int(snapshot.speaker[latest])
    names = {number: name for name, number in snapshot.codes["speaker"].items()}
    return asks, names.get(code)
