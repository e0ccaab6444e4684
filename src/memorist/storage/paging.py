"""All the memories that pass a filter, page by page."""

from __future__ import annotations

from ..ports import Reading
from ..types import Filter, Memory, Scope

PAGE = 1000


async def matching(reading: Reading, scope: Scope, where: Filter) -> list[Memory]:
    """All memories that pass a filter, newest first."""
    page = await reading.page(scope, where, limit=PAGE)
    found = [*page.memories]
    while page.cursor:
        page = await reading.page(scope, where, limit=PAGE, cursor=page.cursor)
        found += page.memories
    return found
