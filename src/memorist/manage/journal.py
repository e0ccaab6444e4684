"""Markdown files for the operator: what was said each day, and a snapshot of what is known.

The store is the memory; these files are for reading. A line of the journal is never read back into
an answer, but it may appear among the highlights of the snapshot, so names and texts are written in
a way that cannot forge a line.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from ..context import Context
from ..errors import StoreUnavailable
from ..storage.atomic import lock, open_private
from ..storage.store import Store
from ..text import cues, normalize
from ..types import GUILD, Draft, Filter, Memory, Scope

SNAPSHOT = "MEMORY.md"
LORE = "__lore__"  # the subject of what belongs to a space as a whole
SUBJECTS = 80  # of a snapshot
FACTS = 6  # of one subject
LORE_LINES = 6
READ_FILES = 3
READ_ENTRIES = 120  # of one file
HIGHLIGHTS = 24
OF_ONE = 8  # highlights of one author
SHORTEST = 8  # characters of a highlight
LONGEST = 220
USUAL = "default"  # tenant
_MARKUP = str.maketrans("|[]", "/()")
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.md")
_ENTRY = re.compile(r"- \S+ \| (?P<author>[^|]*) \| \[(?P<place>[^\]]*)\] (?P<text>.*)")
_LINK = re.compile(r"(?<!\S)\S+?://\S+")


async def snapshot(ctx: Context, *, refresh: bool) -> str:
    """Write what is known to MEMORY.md and return it; without `refresh` only if it is missing.

    Without a `journal_dir` nothing is written, and there is no journal to read from.
    """
    folder = ctx.settings.journal_dir
    if not refresh and folder is not None and (path := folder / SNAPSHOT).exists():
        return await asyncio.to_thread(path.read_text, "utf-8")
    people: dict[str, list[Memory]] = {}
    lore = []
    written: dict[Scope, dict[str, str]] = {}
    where = Filter(kinds=("semantic", "procedural", "insight"))
    for scope in await ctx.store.scopes():
        for memory in await ctx.store.page(scope, where, limit=200):
            subject = memory.labels.subject or scope.user
            if subject == LORE:
                lore.append(memory)
            else:
                people.setdefault(subject, []).append(memory)
            written.setdefault(scope, {})[memory.id] = memory.text
    if folder is None:
        return compose(people, lore, ctx.clock())
    journal = Journal(folder)
    text = await asyncio.to_thread(journal.write, people, lore, ctx.clock())
    erased = await find_erased(ctx.store, written)  # in the meantime
    return await asyncio.to_thread(journal.redact, erased) or text


async def append(
    folder: Path,
    store: Store,
    scope: Scope,
    stored: Sequence[Draft],
    now: datetime,
    longest: int | None = None,
) -> None:
    """Add what was stored to the journal, each text as far as it was kept, without what was
    forgotten in the meantime.
    """
    journal = Journal(folder)
    drafts = [replace(draft, text=_one_line(draft.text)[:longest]) for draft in stored]
    await asyncio.to_thread(journal.note, drafts, scope, now)
    texts = {draft.id or "": draft.text for draft in drafts}
    with suppress(StoreUnavailable):  # what is spooled cannot have been forgotten in the store
        erased = await find_erased(store, {scope: texts})
        await asyncio.to_thread(journal.redact, erased)


async def find_erased(
    store: Store,
    written: Mapping[Scope, Mapping[str, str]],
) -> list[str]:
    """Return the texts, given by scope and id, whose memories no longer exist."""
    erased: list[str] = []
    for scope, by_id in written.items():
        left = dict(by_id)
        for memory in await store.get(scope, list(by_id)):
            left.pop(memory.id, None)
        erased += left.values()
    return erased


class Journal:
    """A folder of daily files and a snapshot. Its methods block: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, drafts: Iterable[Draft], scope: Scope, now: datetime) -> None:
        """Append one line for each message to the file of the day."""
        user = _name(scope.user)
        place = f"{_tenant(scope.tenant)}guild:{_one_line(scope.space)}"
        lines = ""
        for draft in drafts:
            labels = draft.labels
            author = _one_line(draft.speaker or labels.actor or scope.user)
            is_shared = scope.user == GUILD  # then the subject of a message is its author
            id = _name(labels.subject or scope.user) if is_shared else user
            channel = _one_line(labels.channel or "-")
            at = (draft.at or now).isoformat(timespec="seconds")
            text = f"[{place} channel:{channel}] {_one_line(draft.text)}"
            lines += f"- {at} | {author} ({id}) | {text}\n"
        if not lines:
            return
        with self._lock():
            path = self.folder / f"{now.astimezone():%Y-%m-%d}.md"
            title = "" if path.exists() else f"# {path.stem}\n\n"
            with open(path, "a", encoding="utf-8", errors="replace", opener=open_private) as file:
                file.write(title + lines)

    def redact(self, texts: Iterable[str]) -> str:
        """Remove the lines that contain one of these texts; return what is left of the snapshot.

        Privacy is more important than a complete journal. Returns "" if the snapshot stays.
        """
        gone = {}
        for text in filter(None, map(_one_line, texts)):
            gone[text] = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
        if not gone:
            return ""

        def is_gone(line: str) -> bool:
            line = normalize.compose(line)  # earlier versions did not
            return any(text in line and words.search(line) for text, words in gone.items())

        for path in self.days():
            self._drop_lines(path, is_gone)
        return self._drop_lines(self.folder / SNAPSHOT, is_gone)

    def _drop_lines(self, path: Path, is_gone: Callable[[str], bool]) -> str:
        """Remove lines from a file; return what is left, or "" if the file stays as it is."""
        with self._lock():
            if not path.exists():
                return ""
            lines = path.read_text("utf-8").splitlines(keepends=True)
            kept = list(itertools.filterfalse(is_gone, lines))
            return _replace(path, "".join(kept)) if len(kept) < len(lines) else ""

    @property
    def has_snapshot(self) -> bool:
        return (self.folder / SNAPSHOT).exists()

    def lines_of(self, tenant: str, user: str) -> list[str]:
        """Return the lines of a user, newest day first."""
        end = f" ({_name(user)})"
        start = f"{_tenant(tenant)}guild:"
        found = []
        for path in self.days():
            for line in path.read_text("utf-8").splitlines():
                if entry := _ENTRY.fullmatch(line):
                    is_theirs = entry["author"].endswith(end)
                    if is_theirs and entry["place"].startswith(start):
                        found.append(line)
        return found

    def erase_user(self, tenant: str, user: str) -> int:
        """Remove the lines of a user; return how many."""
        gone = set(self.lines_of(tenant, user))
        for path in self.days() if gone else ():
            self._drop_lines(path, lambda line: line.rstrip("\n") in gone)
        return len(gone)

    def _lock(self) -> AbstractContextManager[bool]:
        """Lock the folder, also against other processes: a line added in between would be lost."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return lock(self.folder)

    def days(self) -> list[Path]:
        """Return the daily files, newest first."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if _DAY.fullmatch(path.name)]
        return sorted(found, reverse=True)

    def write(
        self,
        people: Mapping[str, list[Memory]],
        lore: Sequence[Memory],
        now: datetime,
    ) -> str:
        """Replace the snapshot and return its text."""
        logs = [path.name for path in self.days()[:5]]
        text = compose(people, lore, now, self.highlights(), logs)
        with self._lock():
            return _replace(self.folder / SNAPSHOT, text)

    def highlights(self) -> list[str]:
        """Return what was said last, newest first, each text once and only some of each author."""
        found = []
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
                key = text.casefold()
                is_new = key not in seen and not _LINK.fullmatch(text)
                if is_new and SHORTEST <= len(text) <= LONGEST:
                    seen.add(key)
                    by_author[author] += 1
                    if by_author[author] <= OF_ONE:
                        found.append(f"- {author}: {text}")
        return found


def compose(
    people: Mapping[str, list[Memory]],
    lore: Sequence[Memory],
    now: datetime,
    highlights: Sequence[str] = (),
    logs: Sequence[str] = (),
) -> str:
    """Return the text of a snapshot."""
    at = now.isoformat(timespec="seconds")
    lines = [f"# Memory\n\nAs of {at}. For people to read; answers come from the store."]
    lines.append("\n## People")
    for subject in list(people)[:SUBJECTS]:
        lines.append(f"\n### {_one_line(subject)}")
        lines += map(_item, people[subject][:FACTS])
    lines.append("\n## Ongoing lore\n")
    lines += map(_item, lore[:LORE_LINES])
    lines.append("\n## Recent journal highlights\n")
    lines += highlights
    lines.append("\n## Source daily logs\n")
    lines += [f"- {name}" for name in logs]
    return "\n".join([*lines, ""])


def _one_line(text: str) -> str:
    """Return a text that stays on its line and in its column."""
    return normalize.one_line(normalize.compose(text)).translate(_MARKUP)


def _name(name: str) -> str:
    """Return a name as lines contain it, different for each: others are percent-encoded."""
    is_plain = name == _one_line(name) and set("%()").isdisjoint(name)
    return name if is_plain else quote(name, safe="")


def _tenant(tenant: str) -> str:
    """Return what lines of a tenant begin their place with; nothing for the usual one."""
    return "" if tenant == USUAL else f"tenant:{quote(tenant, safe='')} "


def _item(memory: Memory) -> str:
    """Return a memory as an item of a list, with its speaker if that is not the person."""
    text = memory.text
    if not cues.is_persons(memory):
        speaker = memory.speaker or memory.labels.role or "somebody"
        text = f"{speaker}: {text}"
    return f"- {_one_line(text)}"


def _replace(path: Path, text: str) -> str:
    """Replace a file atomically and return its text."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", errors="replace", opener=open_private) as file:
        file.write(text)
    os.replace(draft, path)
    return text
