"""Environment variables that are named like settings but are none, most likely by a typing error.

Other programs may use the prefix, too, so an unknown name is not an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches

from .. import load
from .output import note

PREFIX = "MEMORIST_"
OTHERS = ("config", "traceback")  # variables that are not settings
SIMILAR = 0.75  # of 1, from which on a name is taken for a typing error


def find_unknown() -> Iterator[tuple[str, str]]:
    """Yield the variables that are no settings, each with the one that is most like it, or ""."""
    given = {name: name.removeprefix(PREFIX).lower() for name in os.environ}
    unknown = {name: rest for name, rest in given.items() if name.startswith(PREFIX)}
    if not unknown:
        return
    known = {*load("settings").Settings.model_fields, *OTHERS}  # slow to import
    for name, rest in sorted(unknown.items()):
        if rest not in known:
            close = get_close_matches(rest, known, n=1, cutoff=SIMILAR)
            yield name, f"{PREFIX}{close[0].upper()}" if close else ""


def warn() -> None:
    """Warn about variables that are nearly named like a setting."""
    for name, close in find_unknown():
        if close:
            note(f"memorist: {name} is not a setting and has no effect: did you mean {close}?")
