"""The engine for hosts that speak the Model Context Protocol: `memorist mcp`, and `/mcp` in the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import Misconfigured


@contextmanager
def needs_mcp() -> Iterator[None]:
    """Say how to install the protocol where it is missing."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "starlette"):
            raise
        raise Misconfigured(
            'The Model Context Protocol needs another package: pip install "memorist[mcp]"'
        ) from error
