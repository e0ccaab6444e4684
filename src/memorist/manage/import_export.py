"""Import records that were exported before, and files of other programs, in batches that are each
stored in one transaction.

`record_reader.py` reads and checks records, `readers/` reads files; `storage/scan.py` exports.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid5

from ..context import INCOGNITO, Context
from ..errors import InvalidInput
from ..ingest import guard, validation
from ..ingest.decide import FORGOTTEN
from ..readers import BETWEEN_PEOPLE, FilesByFormat, find, read
from ..readers.source import ImportRun, Skipped
from ..storage import HistoryEntry, SeenMessage
from ..storage.person import Summary
from ..storage.transaction import Transaction
from ..text import cues
from ..text.clock import new_id
from ..text.second_process import share_work
from ..types import Draft, HistoryEvent, Labels, Memory, Outcome, Receipt, Scope
from . import edit
from .record_reader import HOW_TO_RESTORE, IGNORED, MESSAGE, Import, Record, Value, read_batches
from .records import add_missing

BATCH = 128  # entries of files that are read and stored together
# Of a large import, more are read at a time: each batch of them is analyzed while another is written.
LARGE_BATCH = 4096
LARGE_BATCH_CHARS = 4_000_000  # long texts are read fewer at a time
LARGE = 5_000_000  # bytes from which on vectors are added afterwards: words are found at once
LAST = datetime.max.replace(tzinfo=UTC)
SAMPLES = 3  # texts that are shown of each format
FEW_NAMES = 8
_MILLISECOND = len("0190a6c2-1f3b")  # of an id: when it was made
_UNDO_KEYS = "operation session final".split()  # by these `undo` finds what it reverts
_SAID = "text labels speaker evidence evidence_text".split()  # what the guard reads of a memory
_LOWERED = "kind steps_text category item_type fact_type".split()  # … and may change
Admitted = list[tuple[Any, str]]  # values, and why they are refused
NamedItem = tuple[str, Draft | Skipped]  # with the name of its format


async def import_records(records: Iterable[Mapping[str, Any]], how: Import) -> Receipt:
    """Import records in batches that are each stored whole.

    Raises InvalidInput at the first record that cannot be read; those before it are stored.
    """
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        given = type(records).__name__
        raise InvalidInput(f"import_ takes an iterable of records, not {given}")
    outcomes: list[Outcome] = []
    batches = iter(read_batches(records, how))
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        outcomes += await _store_batch(batch, how)
    return Receipt(tuple(outcomes))


async def _store_batch(batch: Sequence[Record], how: Import) -> Sequence[Outcome]:
    """Store records of one kind; return the outcomes of memories and messages, and refusals."""
    if not batch or batch[0].kind in IGNORED:
        return []
    kind, _, scope, origin = batch[0]
    values = [record.value for record in batch]
    if kind == MESSAGE and how.remember is not None:
        return (await how.remember(values)).outcomes
    assert scope is not None
    if kind == "relation":
        async with how.ctx.store.transaction(scope) as tx:
            ids = {id for each in values for id in (each.from_id, each.to_id)}
            there = {memory.id for memory in await tx.get(scope, sorted(ids))}
            await tx.apply([each for each in values if {each.from_id, each.to_id} <= there])
        return []
    admitted = await admit(values, scope, how)
    if kind == "memory":
        return await _store_memories(admitted, scope, how.ctx)
    allowed = [value for value, why in admitted if not why]
    reasons = [why for _, why in admitted if why]
    async with how.ctx.store.transaction(scope) as tx:
        if kind == "history":
            is_moved = origin != asdict(scope)
            await _store_history(tx, allowed, how.ctx.clock(), is_moved=is_moved)
        elif kind == "message":
            for number, seen in enumerate(allowed):
                ids = set(seen.outcome.ids)
                found = await tx.get(scope, list(ids))
                if len(found) < len(ids):  # its memories were forgotten here
                    allowed[number] = replace(seen, keep_text=False)
            await tx.save_messages(allowed)
        else:
            reasons += await add_missing(tx, scope, allowed, any_speaker=how.restore)
    return [Outcome(status="refused", reason=why) for why in reasons]


async def admit(values: Sequence[Value], scope: Scope, how: Import) -> Admitted:
    """Return the values with the authority of their speakers, and the reason of each refusal.

    A record that claims to be pinned or manually saved gets no exception.
    """
    ctx = how.ctx
    drafts = list(map(_to_draft, values))
    sessions = {draft.labels.session for draft in drafts}
    disabled, _ = await ctx.load_disabled(ctx.store, scope, sessions)
    policy = ctx.policy
    admitted: Admitted = []
    for value, draft in zip(values, drafts, strict=True):
        labels = draft.labels
        why = disabled.get(labels.session, "")
        is_own = cues.is_own(labels.role, draft.speaker, scope.user)
        if how.restore:
            why = why if why == INCOGNITO else ""
        elif why != INCOGNITO:
            if draft.text and not why:
                why = guard.find_refusal(draft, policy, is_own=is_own)
            if why:
                why += f"; {HOW_TO_RESTORE}"
        if isinstance(value, Memory) and not how.restore:
            low = guard.lower_authority(draft, policy, is_own=is_own)
            if low != draft or not is_own:
                fields = {name: getattr(low, name) for name in _LOWERED}
                fields["kind"] = low.kind or "episodic"
                fields |= {"procedural_form": None, "key": None}
                value = edit.reword(value, low.text, **fields)
        admitted.append((value, why))
    return admitted


def _to_draft(value: Value) -> Draft:
    """Return the text and the speaker of a value as a draft, for the guard to check."""
    if isinstance(value, Memory):
        return Draft(**{name: getattr(value, name) for name in (*_SAID, *_LOWERED)})
    if isinstance(value, SeenMessage):
        message = value.message
        labels = Labels(session=message.session, role=message.role)
        speaker = cues.speaker_of(message.role, message.name)
        return Draft(text=message.content, labels=labels, speaker=speaker)
    if isinstance(value, Summary):  # derived text, so it is checked like the words of a tool
        text = "\n".join(chain.from_iterable(value.data.values()))
        return Draft(text=text, labels=Labels(role="tool"))
    assert isinstance(value, HistoryEntry)
    session = value.meta.get("session")
    return Draft(text="", labels=Labels(session=session if isinstance(session, str) else None))


async def _store_memories(admitted: Admitted, scope: Scope, ctx: Context) -> list[Outcome]:
    """Store memories as they are, with vectors of the current model; those already here stay.

    The memories of a session are numbered after those already stored, in the order of the file.
    """
    vectors = await edit.encode(ctx, [memory.text for memory, why in admitted if not why])
    outcomes = []
    async with ctx.store.transaction(scope) as tx:
        stored = await tx.get(scope, [memory.id for memory, _ in admitted])
        here = {memory.id for memory in stored}
        words = [memory.text for memory, _ in admitted]
        forgotten = await tx.tombstones(scope, words, ctx.clock())
        new = {}
        for memory, why in admitted:
            own = (memory.id,)
            if memory.text in forgotten:
                why = FORGOTTEN
            if memory.id in here:
                outcome = Outcome(status="skipped", ids=own, reason="it is here already")
            elif why:
                outcome = Outcome(status="refused", reason=why)
            else:
                outcome = Outcome(status="created", ids=own)
                new[memory.id] = memory
            outcomes.append(outcome)
        saves = []
        keys = set()
        last = {}
        for memory in new.values():
            memory = await edit.release_key(tx, replace(memory, scope=scope))
            if memory.key in keys:
                memory = replace(memory, key=None)
            keys.add(memory.key)
            session = memory.labels.session
            if session is not None:
                if session not in last:
                    last[session] = await tx.last_sequence(scope, session)
                last[session] += 1
                memory = replace(memory, sequence=last[session])
            event: HistoryEvent | None = None if memory.state == "superseded" else "created"
            meta = {"imported": True}
            saves.append(edit.to_save(memory, vectors, ctx.index.model, event, meta=meta))
        await tx.apply(saves)
    return outcomes


async def _store_history(
    tx: Transaction,
    entries: Sequence[HistoryEntry],
    now: datetime,
    *,
    is_moved: bool,
) -> None:
    """Add entries, without words that were forgotten here, and so that `undo` ignores them.

    Entries from another scope get new ids, which are the same at each import.
    """
    words = []
    for entry in entries:
        before = entry.meta.get("before", {})
        texts = (before.get("text", ""), *entry.meta.get("merged", ()))
        words.append(set(map(str, texts)))
    forgotten = await tx.tombstones(tx.scope, set().union(*words), now)
    name = "\0".join((tx.scope.tenant, tx.scope.user, tx.scope.space))
    imported = []
    for entry, said in zip(entries, words, strict=True):
        meta = {}
        for key, value in entry.meta.items() if forgotten.isdisjoint(said) else ():
            meta[f"imported_{key}" if key in _UNDO_KEYS else key] = value
        meta["imported"] = True
        id = str(uuid5(UUID(entry.id), name)) if is_moved else entry.id
        imported.append(replace(entry, id=id, meta=meta))
    await tx.import_history(imported)


@dataclass
class ImportReport:
    """What an import of files stored, and what it left out."""

    new_memories: int = 0
    formats: Counter[str] = field(default_factory=Counter)  # entries read, by format
    outcomes: Counter[str] = field(default_factory=Counter)  # by status
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    refused: Counter[str] = field(default_factory=Counter)  # by reason
    samples: dict[str, list[str]] = field(default_factory=dict)

    def select(self, batch: Sequence[NamedItem], longest: int) -> Iterator[Draft]:
        """Yield what is to be stored, and count everything."""
        for name, item in batch:
            if isinstance(item, Draft) and len(item.text) > longest:
                item = Skipped(f"longer than {longest:,} characters")
            if isinstance(item, Skipped):
                self.skipped[item.reason] += 1
                continue
            self.formats[name] += 1
            samples = self.samples.setdefault(name, [])
            if len(samples) < SAMPLES:
                samples.append(f"{item.speaker}: {item.text}" if item.speaker else item.text)
            yield item

    def count(self, receipt: Receipt) -> None:
        """Count the outcomes, and the reasons of those that were not stored."""
        for outcome in receipt.outcomes:
            self.outcomes[outcome.status] += 1
            if outcome.status == "conflict":
                self.refused["stored before, with another text or other headings"] += 1
            elif outcome.status == "refused":
                # Not what to do about it, which is advice for a single text.
                self.refused[outcome.reason.partition(": ")[0]] += 1


class NewMemories:
    """Counts the memories that an import created, whatever other processes store meanwhile."""

    def __init__(self) -> None:
        self._start = new_id()[:_MILLISECOND]
        self._ids: set[str] = set()

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Count what was created; a message that was stored before returns its older outcome."""
        for outcome in outcomes:
            if outcome.status == "created":
                is_record = outcome.message_id is None  # it keeps its id
                new = [id for id in outcome.ids if is_record or id >= self._start]
                self._ids.update(new)

    def __len__(self) -> int:
        return len(self._ids)


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

    The format is detected, or named by `from_`. Ids come from the files: a second run changes
    nothing, and continues an interrupted one. `me` is the name of the person in chats between
    people. `dry_run` only counts. `on_progress` is called with the bytes read and their total.
    For files above 5 MB, vectors are added later by jobs or `index`; keyword search works at once.
    Raises InvalidInput before anything is stored if the format is unknown, or if no one in a chat
    has the name `me`.
    """
    how = ImportRun(me=me, since=validation.moment(since), user=mine.scope.user)
    longest = mine.ctx.settings.max_text_chars
    found = await asyncio.to_thread(find, Path(path), from_)
    if not BETWEEN_PEOPLE.isdisjoint(found.files):
        await asyncio.to_thread(_require_name, found, me, mine.scope.user)
    report = ImportReport()
    new = NewMemories()
    items = read(found, how)
    is_large = found.size > LARGE
    count = 0  # of all items, if they are known before the first is stored
    if not is_large:
        by_time = await asyncio.to_thread(_sort_by_time, items)
        items = iter(by_time)
        count = len(by_time)
    done = 0
    with share_work() if is_large and not dry_run else nullcontext():
        most = LARGE_BATCH if is_large else BATCH
        while batch := await asyncio.to_thread(_take, items, most):
            drafts = list(report.select(batch, longest))
            if drafts and not dry_run:
                receipt = await mine.remember_drafts(drafts, defer_vectors=is_large)
                report.count(receipt)
                new.add(receipt.outcomes)
            done += len(batch)
            if on_progress is not None:
                on_progress(found.size * done // count if count else how.read, found.size)
    report.new_memories = len(new)
    return report


def _take(items: Iterator[NamedItem], most: int) -> list[NamedItem]:
    """Return the next items, fewer if they are long."""
    taken = []
    chars = 0
    for name, item in islice(items, most):
        taken.append((name, item))
        chars += len(item.text) if isinstance(item, Draft) else 0
        if chars > LARGE_BATCH_CHARS:
            break
    return taken


def _sort_by_time(items: Iterable[NamedItem]) -> list[NamedItem]:
    """Return the items with the conversation first that began first; what has no time is last.

    Many programs export the newest conversation first, but what changed is found most reliably in
    the order in which it was said.
    """
    found = list(items)
    starts: dict[str | None, datetime] = {}
    for _, item in found:
        if isinstance(item, Draft) and item.at is not None:
            session = item.labels.session
            starts[session] = min(item.at, starts.get(session, item.at))

    def find_start(named: NamedItem) -> datetime:
        _, item = named
        if not isinstance(item, Draft):
            return LAST
        session = item.labels.session
        start = item.at if session is None else starts.get(session)
        return start or LAST

    return sorted(found, key=find_start)


def _require_name(found: FilesByFormat, me: str | None, user: str) -> None:
    """Raise InvalidInput unless one of the speakers has this name, or that of the user."""
    how = ImportRun()
    wanted = (me or user).casefold()
    chats = {name: found.files[name] for name in BETWEEN_PEOPLE & found.files.keys()}
    for _ in read(FilesByFormat(chats, []), how):
        if wanted in map(str.casefold, how.names):
            return
    if how.names:
        if me is None:
            problem = "This is a chat between people: say which of them is you with --me NAME"
        else:
            problem = f"No message is by {me!r}: give your name in this chat with --me NAME"
        names = ", ".join(name for name, _ in how.names.most_common(FEW_NAMES))
        raise InvalidInput(f"{problem}. The names are {names}")
