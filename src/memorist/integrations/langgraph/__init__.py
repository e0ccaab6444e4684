"""LangGraph on a memory of ours: `MemoristSaver` keeps the checkpoints of graphs, `MemoristStore` what agents put by.

Both belong to one scope: what another user's graph keeps is not found, whatever its thread or namespace is called.
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
