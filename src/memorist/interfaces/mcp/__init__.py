"""The Model Context Protocol: `memorist mcp` over stdio, and `/mcp` of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import Misconfigured


@contextmanager
def require_mcp() -> Iterator[None]:
    """Raise Misconfigured with install instructions if an import in the body fails."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "starlette"):
            raise
        raise Misconfigured(
            'MCP support is not installed. Run: pip install "memorist[mcp]"'
        ) from error
