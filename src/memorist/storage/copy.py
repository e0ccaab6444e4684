"""A whole store into another one, table by table and row by row, between any two engines.

Every row keeps its key, so no reference has to be changed, and the keyed digests stay valid because
the copy takes the key over. Each page is committed together with the progress: an interrupted copy
goes on where it stopped. At the end both sides are counted and hashed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import RevisionConflict
from . import tables
from .store import Store
from .tables import KEYS, Copied

Report = Callable[[int, int], None]  # how much is done, and of how much


async def copy(source: Store, target: Store, report: Report) -> Copied:
    """Make the target equal to the source; a copy that is complete is only compared.

    Raises RevisionConflict if the target holds anything else, or if the source was written to meanwhile.
    """
    progress = await _begin(source, target)
    counts = {table: await tables.count(source, table) for table in KEYS}
    work = 2 * sum(counts.values())
    done = moved = 0
    if progress is not None:
        for table in KEYS:
            done += await tables.count(target, table)
            async for page in tables.pages(source, table, progress.get(table)):
                progress[table] = page.last
                async with target.database.transaction() as connection:
                    await tables.insert(connection, table, page.columns, page.rows)
                    await tables.save_progress(connection, progress)
                moved += len(page.rows)
                done += len(page.rows)
                report(min(done, work), work)
    for table in KEYS:
        if await tables.digest(source, table) != await tables.digest(target, table):
            if progress is None:
                raise RevisionConflict(
                    f"One of them was written to since the copy, as {table!r} shows: take a new "
                    "database"
                )
            await _restart(target, table, progress)
            raise RevisionConflict(
                f"{table!r} was written to during the copy: run it again, with nobody writing"
            )
        done += counts[table]
        report(min(done, work), work)
    await tables.finish(target)
    return Copied(rows=moved, tables={table: count for table, count in counts.items() if count})


async def _begin(source: Store, target: Store) -> dict[str, list[Any]] | None:
    """Return the progress of an earlier run, or None if it was finished. Raises RevisionConflict."""
    secret = await tables.secret_of(source)
    is_same = secret == await tables.secret_of(target)
    progress = await tables.load_progress(target)
    if progress is not None:
        if not is_same:
            raise RevisionConflict(
                "The target is an unfinished copy of another store: finish that one, or take a "
                "new one"
            )
        return progress
    if is_same:
        return None
    if await target.scopes():
        raise RevisionConflict(
            "The target holds memories already: copy into a new database, or `memorist import` "
            "into this"
        )
    await tables.begin(target, secret)
    return {}


async def _restart(target: Store, table: str, progress: dict[str, list[Any]]) -> None:
    """Empty a table that differs, and those that refer to it, so that the next run copies them
    again."""
    order = list(KEYS)
    stale = order[order.index(table) :] if table in ("scopes", "memories") else [table]
    async with target.database.transaction() as connection:
        await tables.delete_all(connection, stale)
        left = {name: last for name, last in progress.items() if name not in stale}
        await tables.save_progress(connection, left)
