"""Memorist: long-term memory for AI agents that remembers with evidence, recalls within a budget
and says why.

import memorist

with memorist.open("memory.db") as memory:
    ana = memory.scope(user="ana")
    ana.remember("I moved to Lisbon in May.")
    print(ana.recall("where does she live?").prompt())
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from . import errors
from .errors import MemoristError
from .types import Draft, Filter, Labels, Memory, Message, Recall, Receipt, Scope

if TYPE_CHECKING:
    from . import aio
    from .settings import Options
    from .sync import Blocking

__version__ = "0.1.0"
__all__ = [
    "Draft",
    "Filter",
    "Labels",
    "MemoristError",
    "Memory",
    "Message",
    "Recall",
    "Receipt",
    "Scope",
    "aio",
    "errors",
    "open",
]


def open(
    db: str | Path | None = None,
    *,
    count_tokens: Callable[[str], int] | None = None,
    **settings: Unpack[Options],
) -> Blocking:
    """Open a memory: a file, `:memory:`, or the default place. Use it in a `with` block, or close
    it.

    Every setting can be given by name; `count_tokens` says what a text costs, where an estimate
    will not do.
    Raises Misconfigured, StoreUnavailable, StoreDamaged, MigrationNeeded.
    """
    from .sync import Blocking

    return Blocking.open(db, count_tokens=count_tokens, **settings)


def __getattr__(name: str) -> Any:
    if name == "aio":  # loaded when it is used, so that `import memorist` stays quick
        return import_module(".aio", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
