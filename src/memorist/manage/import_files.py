"""Import files of other programs: read them in the background, and store them in batches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Protocol

from ..context import Context
from ..errors import InvalidInput
from ..ingest import validation
from ..readers import BETWEEN_PEOPLE, FilesByFormat, find, read
from ..readers.source import ImportRun, Skipped
from ..types import Draft, Receipt, Scope

BATCH = 128  # drafts stored together
LARGE = 5_000_000  # bytes from which on vectors are added afterwards: words are found at once
SAMPLES = 3  # texts that are shown of each format
FEW_NAMES = 8


@dataclass
class ImportReport:
    """What an import stored, and what it left out."""

    new_memories: int = 0
    formats: Counter[str] = field(default_factory=Counter)  # entries read, by format
    outcomes: Counter[str] = field(default_factory=Counter)  # by status
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    refused: Counter[str] = field(default_factory=Counter)  # by reason
    samples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Writable(Protocol):
    """A scope in which drafts can be stored."""

    ctx: Context
    scope: Scope

    async def remember_drafts(
        self, drafts: Sequence[Draft], *, defer_vectors: bool = False
    ) -> Receipt: ...


async def import_files(
    mine: Writable,
    path: str | Path,
    *,
    from_: str = "auto",
    me: str | None = None,
    since: datetime | str | None = None,
    dry_run: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import what another program exported: a file, a folder or a ZIP archive.

    The format is recognized, or named by `from_`. Ids come from the files: a second run changes
    nothing, and continues one that was interrupted. In chats between people, `me` is the person's
    name there. `dry_run` only counts. `on_progress` is called with the bytes read and their total.
    Vectors of more than 5 MB are added afterwards, by jobs or `index`: words are found at once.
    Raises InvalidInput before anything is stored if the format is not known, or if `me` is missing.
    """
    path = Path(path)
    how = ImportRun(me=me, since=validation.moment(since), user=mine.scope.user)
    longest = mine.ctx.settings.max_text_chars
    found = await asyncio.to_thread(find, path, from_)
    if me is None and not BETWEEN_PEOPLE.isdisjoint(found.files):
        await asyncio.to_thread(_require_name, found, mine.scope.user)
    report = ImportReport()
    before = await _count_memories(mine)
    items = read(found, how)
    while batch := await asyncio.to_thread(lambda: list(islice(items, BATCH))):
        drafts = list(_select(batch, report, longest))
        if drafts and not dry_run:
            receipt = await mine.remember_drafts(drafts, defer_vectors=found.size > LARGE)
            report.outcomes.update(outcome.status for outcome in receipt.outcomes)
            for outcome in receipt.outcomes:
                if outcome.status in ("refused", "conflict"):
                    report.refused[outcome.reason] += 1
        if on_progress is not None:
            on_progress(how.read, found.size)
    report.new_memories = await _count_memories(mine) - before
    if me is not None and how.names and me.casefold() not in map(str.casefold, how.names):
        report.notes.append(f"No message is by {me!r}. The names are {_list(how.names)}.")
    return report


async def _count_memories(mine: Writable) -> int:
    stats = await mine.ctx.store.stats(mine.scope, mine.ctx.index.model)
    return int(stats["memories"])


def _select(
    batch: Sequence[tuple[str, Draft | Skipped]], report: ImportReport, longest: int
) -> Iterator[Draft]:
    """Yield what is to be stored, and count everything."""
    for name, item in batch:
        if isinstance(item, Draft) and len(item.text) > longest:
            item = Skipped(f"longer than {longest:,} characters")
        if isinstance(item, Skipped):
            report.skipped[item.reason] += 1
            continue
        report.formats[name] += 1
        samples = report.samples.setdefault(name, [])
        if len(samples) < SAMPLES:
            samples.append(f"{item.speaker}: {item.text}" if item.speaker else item.text)
        yield item


def _require_name(found: FilesByFormat, user: str) -> None:
    """Raise InvalidInput unless the user of the scope is one of the speakers."""
    how = ImportRun(user=user)
    for _ in islice(read(found, how), 1000):
        pass
    if how.names and user.casefold() not in map(str.casefold, how.names):
        raise InvalidInput(
            "This is a chat between people: say which of them is you with --me NAME. The names are "
            f"{_list(how.names)}"
        )


def _list(names: Counter[str]) -> str:
    return ", ".join(name for name, _ in names.most_common(FEW_NAMES))
