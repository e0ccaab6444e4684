"""LangGraph's interfaces over a memory: `MemoristSaver` stores checkpoints of graphs,
`MemoristStore` items of agents.

Both belong to one scope: nothing of another user's graph is found, whatever its thread or namespace
is called.
"""

from __future__ import annotations

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as error:
    from ...errors import Misconfigured

    raise Misconfigured('LangGraph is not installed: pip install "memorist[langgraph]"') from error

from .saver import MemoristSaver, migrate
from .store import MemoristStore

__all__ = ["MemoristSaver", "MemoristStore", "migrate"]
