"""Memorist: long-term memory for AI agents that remembers with evidence, recalls within a budget
and says why.

import memorist

with memorist.open("memory.db") as memory:
    ana = memory.scope(user="ana")
    ana.remember("I moved to Lisbon in May.")
    print(ana.recall("where does she live?").prompt())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import MemoristError
from .types import Draft, Filter, Labels, Memory, Message, Recall, Receipt, Scope

if TYPE_CHECKING:
    from . import aio
    from .sync import Blocking

    open = Blocking.open

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


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import on first use, so that `import memorist` stays fast."""
        if name == "aio":
            return import_module(".aio", __name__)
        if name == "open":
            return import_module(".sync", __name__).Blocking.open
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
