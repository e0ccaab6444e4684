"""Markdown files for the operator: what was said each day, and a snapshot of what is known.

The store is the memory; these files are for reading. A line of the journal is never read back into
an answer, but it may appear among the highlights of the snapshot, so names and texts are written in
a way that cannot forge a line.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path

from ..context import Context
from ..errors import InvalidInput, StoreUnavailable
from ..storage.atomic import lock
from ..storage.store import Store
from ..text import authority, normalize
from ..types import Draft, Filter, Memory, Scope

SNAPSHOT = "MEMORY.md"
LORE = "__lore__"  # the subject of what belongs to a space as a whole
SUBJECTS = 80  # of a snapshot
FACTS = 6
LORE_LINES = 6
READ_FILES = 3
READ_ENTRIES = 120
HIGHLIGHTS = 24
OF_ONE = 8
SHORTEST = 8  # characters of a highlight
LONGEST = 220
_MARKUP = str.maketrans("|[]", "/()")
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.md")
_ENTRY = re.compile(r"- \S+ \| (?P<author>[^|]*) \| \[[^\]]*\] (?P<text>.*)")
_LINK = re.compile(r"\S+://\S+")


async def snapshot(ctx: Context, *, refresh: bool) -> str:
    """Write what is known to MEMORY.md and return it; without `refresh` only if there is none.

    Raises InvalidInput if no `journal_dir` is configured.
    """
    if ctx.settings.journal_dir is None:
        raise InvalidInput("No folder is configured for it: set `journal_dir`")
    journal = Journal(ctx.settings.journal_dir)
    path = journal.folder / SNAPSHOT
    if not refresh and path.exists():
        return await asyncio.to_thread(path.read_text, "utf-8")
    people: dict[str, list[Memory]] = {}
    lore: list[Memory] = []
    written: dict[Scope, dict[str, str]] = {}
    where = Filter(kinds=("semantic", "procedural", "insight"))
    for scope in await ctx.store.scopes():
        for memory in await ctx.store.page(scope, where, limit=200):
            subject = memory.labels.subject or scope.user
            about = lore if subject == LORE else people.setdefault(subject, [])
            about.append(memory)
            written.setdefault(scope, {})[memory.id] = memory.text
    text = await asyncio.to_thread(journal.write, people, lore, ctx.clock())
    erased = await find_erased(ctx.store, written)  # in the meantime
    return await asyncio.to_thread(journal.redact, erased) or text


async def append(
    folder: Path, store: Store, scope: Scope, drafts: Sequence[Draft], now: datetime
) -> None:
    """Add what was stored to the journal, without what was forgotten meanwhile."""
    journal = Journal(folder)
    await asyncio.to_thread(journal.note, drafts, scope, now)
    with suppress(StoreUnavailable):  # what is spooled cannot have been forgotten in the store
        texts = {draft.id or "": draft.text for draft in drafts}
        await asyncio.to_thread(journal.redact, await find_erased(store, {scope: texts}))


async def find_erased(store: Store, written: Mapping[Scope, Mapping[str, str]]) -> list[str]:
    """Return those of the texts, by scope and id, whose memories do not exist any more."""
    erased: list[str] = []
    for scope, by_id in written.items():
        stored = await store.get(scope, list(by_id))
        found = {memory.id for memory in stored}
        erased += [text for id, text in by_id.items() if id not in found]
    return erased


class Journal:
    """A folder of daily files and a snapshot. Its methods block: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, drafts: Iterable[Draft], scope: Scope, now: datetime) -> None:
        """Append one line for each message to the file of the day."""
        user = _one_line(scope.user)
        space = _one_line(scope.space)
        lines = ""
        for draft in drafts:
            author = _one_line(draft.speaker or draft.labels.actor or scope.user)
            place = f"[guild:{space} channel:{_one_line(draft.labels.channel or '-')}]"
            at = (draft.at or now).isoformat(timespec="seconds")
            lines += f"- {at} | {author} ({user}) | {place} {_one_line(draft.text)}\n"
        if lines:
            with self._lock():
                path = self.folder / f"{now.astimezone():%Y-%m-%d}.md"
                title = "" if path.exists() else f"# {path.stem}\n\n"
                with open(path, "a", encoding="utf-8", errors="replace") as file:
                    file.write(title + lines)

    def redact(self, texts: Iterable[str]) -> str:
        """Remove the lines that contain one of these texts; return what is left of the snapshot.

        Privacy counts for more than a complete journal. Returns nothing if the snapshot stays.
        """
        gone: dict[str, re.Pattern[str]] = {}
        for text in filter(None, map(_one_line, texts)):
            gone[text] = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")

        def is_gone(line: str) -> bool:
            return any(text in line and words.search(line) for text, words in gone.items())

        left = ""
        for path in (*self.days(), self.folder / SNAPSHOT) if gone else ():
            with self._lock():
                lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
                kept = [line for line in lines if not is_gone(line)]
                if len(kept) < len(lines):
                    left = _replace(path, "".join(kept))
        return left

    def _lock(self) -> AbstractContextManager[bool]:
        """Exclude others, in this process and in others: a line added meanwhile would be lost."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return lock(self.folder)

    def days(self) -> list[Path]:
        """Return the daily files, newest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted((path for path in found if _DAY.fullmatch(path.name)), reverse=True)

    def write(
        self,
        people: Mapping[str, list[Memory]],
        lore: Sequence[Memory],
        now: datetime,
    ) -> str:
        """Write the snapshot anew and return its text."""
        at = now.isoformat(timespec="seconds")
        lines = [f"# Memory\n\nAs of {at}. For people to read; answers come from the store."]
        lines.append("\n## People")
        for subject, memories in list(people.items())[:SUBJECTS]:
            lines.append(f"\n### {_one_line(subject)}")
            lines += [_item(memory) for memory in memories[:FACTS]]
        lines.append("\n## Ongoing lore\n")
        lines += [_item(memory) for memory in lore[:LORE_LINES]]
        lines.append("\n## Recent journal highlights\n")
        lines += self.highlights()
        lines.append("\n## Source daily logs\n")
        lines += [f"- {path.name}" for path in self.days()[:5]]
        with self._lock():
            return _replace(self.folder / SNAPSHOT, "\n".join([*lines, ""]))

    def highlights(self) -> list[str]:
        """Return what was said last, newest first, each text once and only some of one author."""
        found: list[str] = []
        by_author: Counter[str] = Counter()
        seen: set[str] = set()
        for path in self.days()[:READ_FILES]:
            lines = path.read_text("utf-8").splitlines()
            for line in reversed(lines[-READ_ENTRIES:]):
                entry = _ENTRY.fullmatch(line)
                if entry is None or len(seen) >= HIGHLIGHTS:
                    continue
                author = entry["author"]
                text = entry["text"]
                is_new = text.casefold() not in seen and not _LINK.fullmatch(text)
                if is_new and SHORTEST <= len(text) <= LONGEST:
                    seen.add(text.casefold())
                    by_author[author] += 1
                    if by_author[author] <= OF_ONE:
                        found.append(f"- {author}: {text}")
        return found


def _one_line(text: str) -> str:
    """Return a text that stays on its line and in its column."""
    return normalize.one_line(text).translate(_MARKUP)


def _item(memory: Memory) -> str:
    """Return a memory as an item of a list, with its speaker if that was not the person."""
    text = memory.text
    if not authority.is_persons(memory):
        text = f"{memory.speaker or memory.labels.role or 'somebody'}: {text}"
    return f"- {_one_line(text)}"


def _replace(path: Path, text: str) -> str:
    """Replace a file at once and return its text."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8", errors="replace")
    os.replace(draft, path)
    return text
