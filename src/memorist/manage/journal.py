"""The layer for people who run it: what was said each day, and what is known, as Markdown in a folder.

The store is the memory; these files are for reading. A journal line is never read back into an answer, but it does
stand in the highlights of the snapshot, so names and texts are written in a way that cannot forge a line.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path

from ..context import Context
from ..errors import InvalidInput, StoreUnavailable
from ..storage.store import Store
from ..text import authority, normalize
from ..types import Draft, Filter, Memory, Scope

SNAPSHOT = "MEMORY.md"
LORE = "__lore__"
SUBJECTS, FACTS, LORE_LINES = 80, 6, 6
READ_FILES, READ_ENTRIES, HIGHLIGHTS, OF_ONE = 3, 120, 24, 8
SHORTEST, LONGEST = 8, 220  # characters of a highlight
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.md")
_ENTRY = re.compile(r"- \S+ \| (?P<author>[^|]*) \| \[[^\]]*\] (?P<text>.*)")
_LINK = re.compile(r"\S+://\S+")


def find_journal(ctx: Context) -> Journal | None:
    """Return the journal that the settings ask for, or None."""
    folder = ctx.settings.journal_dir
    return None if folder is None else Journal(folder)


async def snapshot(ctx: Context, *, refresh: bool) -> str:
    """Write what is known to MEMORY.md and return it; without `refresh` only if there is none.

    Raises InvalidInput if no `journal_dir` is configured.
    """
    journal = find_journal(ctx)
    if journal is None:
        raise InvalidInput("No folder is configured for it: set `journal_dir`")
    if not refresh and (kept := await asyncio.to_thread(journal.read_snapshot)) is not None:
        return kept
    people, lore = await load_known(ctx.store)
    text = await asyncio.to_thread(journal.write, people, lore, ctx.clock())
    shown = [*lore, *chain.from_iterable(people.values())]
    erased = await find_erased(
        ctx.store, [(memory.scope, memory.id, memory.text) for memory in shown]
    )
    return await asyncio.to_thread(journal.redact, erased) or text


class Journal:
    """A folder of daily files and a snapshot. Its methods block: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, drafts: Iterable[Draft], scope: Scope, now: datetime) -> None:
        """Append one line for each message, to the file of the day."""
        lines = "".join(f"{_line(draft, scope, now)}\n" for draft in drafts)
        if lines:
            with (
                self._alone(),
                open(self._today(now), "a", encoding="utf-8", errors="replace") as file,
            ):
                file.write(lines)

    def redact(self, texts: Iterable[str]) -> str:
        """Take the lines out that say one of these texts; privacy counts for more than an unbroken journal.

        What then is left of the snapshot, if something was taken out of it.
        """
        gone = [
            (text, re.compile(rf"(?<!\w){re.escape(text)}(?!\w)"))
            for text in set(map(_one_line, texts))
            if text
        ]
        left = ""
        for path in (*self.days(), self.folder / SNAPSHOT) if gone else ():
            with self._alone():
                lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
                kept = [
                    line
                    for line in lines
                    if not any(text in line and words.search(line) for text, words in gone)
                ]
                if len(kept) < len(lines):
                    left = _replace(path, "".join(kept))
        return left

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time, in this process and in others: a line that is added meanwhile would be lost."""
        import fcntl

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def days(self) -> list[Path]:
        """The daily files, newest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted((path for path in found if _DAY.fullmatch(path.name)), reverse=True)

    def write(self, people: dict[str, list[Memory]], lore: Sequence[Memory], now: datetime) -> str:
        """Make the snapshot anew, and give its text."""
        text = "\n".join(
            _sections(
                people, lore, list(self._highlights()), [path.name for path in self.days()[:5]], now
            )
        )
        with self._alone():
            return _replace(self.folder / SNAPSHOT, text)

    def read_snapshot(self) -> str | None:
        """The snapshot as it was made last."""
        path = self.folder / SNAPSHOT
        return path.read_text("utf-8") if path.exists() else None

    def _today(self, now: datetime) -> Path:
        path = self.folder / f"{now.astimezone():%Y-%m-%d}.md"
        with (
            suppress(FileExistsError),
            open(path, "x", encoding="utf-8") as file,
        ):  # only one process writes the header
            file.write(f"# {path.stem}\n\n")
        return path

    def _highlights(self) -> Iterator[str]:
        said: Counter[str] = Counter()
        seen: set[str] = set()
        for author, text in self._entries():
            if (
                SHORTEST <= len(text) <= LONGEST
                and not _LINK.fullmatch(text)
                and text.casefold() not in seen
            ):
                seen.add(text.casefold())
                said[author] += 1
                if said[author] <= OF_ONE:
                    yield f"{author}: {text}"
            if len(seen) >= HIGHLIGHTS:
                return

    def _entries(self) -> Iterator[tuple[str, str]]:
        """Who said what, newest first."""
        for path in self.days()[:READ_FILES]:
            for line in path.read_text("utf-8").splitlines()[-READ_ENTRIES:][::-1]:
                if found := _ENTRY.fullmatch(line):
                    yield found["author"], found["text"]


async def load_known(
    store: Store, space: str | None = None
) -> tuple[dict[str, list[Memory]], list[Memory]]:
    """What is known of people, by subject, and what belongs to the space as a whole."""
    people: dict[str, list[Memory]] = {}
    lore: list[Memory] = []
    for scope in await store.scopes():
        if space is not None and scope.space != space:
            continue
        page = await store.page(
            scope, Filter(kinds=("semantic", "procedural", "insight")), limit=200
        )
        for memory in page.memories:
            subject = memory.labels.subject or scope.user
            (lore if subject == LORE else people.setdefault(subject, [])).append(memory)
    return people, lore


async def find_erased(store: Store, told: Iterable[tuple[Scope, str, str]]) -> list[str]:
    """The texts, of those told with whose they are and their ids, that are not there any more."""
    texts: dict[Scope, dict[str, str]] = {}
    for scope, id, text in told:
        texts.setdefault(scope, {})[id] = text
    there = {
        (scope, each.id)
        for scope, some in texts.items()
        for each in await store.get(scope, list(some))
    }
    return [
        text
        for scope, some in texts.items()
        for id, text in some.items()
        if (scope, id) not in there
    ]


async def append(ctx: Context, scope: Scope, drafts: Sequence[Draft], now: datetime) -> None:
    """Note what was kept, and take out again what was forgotten before it was noted."""
    journal = find_journal(ctx)
    if journal is None:
        return
    await asyncio.to_thread(journal.note, drafts, scope, now)
    with suppress(StoreUnavailable):  # what waits for the store cannot have been forgotten in it
        lost = await find_erased(
            ctx.store, [(scope, draft.id or "", draft.text) for draft in drafts]
        )
        await asyncio.to_thread(journal.redact, lost)


def _line(draft: Draft, scope: Scope, now: datetime) -> str:
    author = _one_line(draft.speaker or draft.labels.actor or scope.user)
    place = f"[guild:{_one_line(scope.space)} channel:{_one_line(draft.labels.channel or '-')}]"
    at = (draft.at or now).isoformat(timespec="seconds")
    return f"- {at} | {author} ({_one_line(scope.user)}) | {place} {_one_line(draft.text)}"


def _one_line(text: str) -> str:
    """A text that stays on its line and in its column."""
    return normalize.one_line(text).replace("|", "/").replace("[", "(").replace("]", ")")


def _credited(memory: Memory) -> str:
    """What a memory says, with who said it where that was not the person."""
    who = "" if authority.is_persons(memory) else memory.speaker or memory.labels.role or "somebody"
    return _one_line(f"{who}: {memory.text}" if who else memory.text)


def _sections(
    people: dict[str, list[Memory]],
    lore: Sequence[Memory],
    said: Sequence[str],
    files: Sequence[str],
    now: datetime,
) -> Iterator[str]:
    yield f"# Memory\n\nAs of {now.isoformat(timespec='seconds')}. For people to read; answers come from the store."
    yield "\n## People"
    for subject, memories in list(people.items())[:SUBJECTS]:
        yield f"\n### {_one_line(subject)}"
        yield from (f"- {_credited(memory)}" for memory in memories[:FACTS])
    for title, lines in (
        ("Ongoing lore", [_credited(memory) for memory in lore[:LORE_LINES]]),
        ("Recent journal highlights", said),
        ("Source daily logs", files),
    ):
        yield f"\n## {title}\n"
        yield from (f"- {line}" for line in lines)
    yield ""


def _replace(path: Path, text: str) -> str:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8", errors="replace")
    os.replace(draft, path)
    return text
