"""Commands that store, recall, browse, edit and restore memories, and summarize them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from ... import storage
from ...errors import InvalidInput, NotFound
from ...types import KINDS, NEAREST, STATES, Filter, Labels
from .. import Blocking, BlockingScope, Call, load, plain
from . import output
from .app import SHORTEST, Words, command, complete_id, memory_id, read_metadata

if TYPE_CHECKING:
    from ...storage import HistoryEntry

_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


@command("recall")
def recall(
    call: Call,
    mine: BlockingScope,
    question: str,
    *,
    limit: int | None = None,
    budget: int | None = None,
    min_confidence: float | None = None,
    explain: bool = False,
    prompt: bool = False,
    kind: Words = None,
    category: Words = None,
    tag: Words = None,
    metadata: Words = None,
    speaker: str | None = None,
    after: str | None = None,
    before: str | None = None,
    as_of: str | None = None,
    profile: str | None = None,
    rerank: bool | None = None,
    shared: bool = False,
) -> object:
    """Recall memories that answer a question. Returns nothing if the evidence is weak.

    The filters --kind, --category, --tag and --metadata can be repeated. --shared ignores all filters.
    --session names the session in which you ask; memories of all sessions are found.

    Args:
        limit: <N> Maximum number of memories.
        min_confidence: <0..1> Return nothing below this confidence; 0 returns every match. By
            default the ranking profile decides.
        explain: Show the parts of each score, and what was left out.
        prompt: Print only the block for the prompt of a model.
        as_of: <TIME> Only what was valid at this time.
        rerank: Re-rank the best candidates.
        shared: Only what your other spaces share with this one.

    Example: memorist recall "where does she live?" --explain
    """
    if not question.strip():
        raise InvalidInput("The question is empty")
    limits: dict[str, Any] = {"limit": limit, "budget": budget, "min_confidence": min_confidence}
    if shared:
        answers = mine.recall_shared(question, **limits)
        if call.json:
            return answers
        for answer in answers:
            output.answer(answer, explain=explain)
        return None
    where = _filter(kind, category, tag, metadata, speaker, after, before)
    found = mine.recall(
        question, where=where, as_of=as_of, profile=profile, rerank=rerank, **limits
    )
    if call.json:
        return {**storage.dump(found), "degraded": found.degraded}
    if prompt:
        print(found.prompt())
        return None
    texts: dict[str, str] = {}
    if explain and found.cut:
        shown = found.cut[:NEAREST] if found.is_unanswered else found.cut
        where = Filter(ids=tuple(cut.id for cut in shown), states=STATES)
        texts = {memory.id: memory.text for memory in mine.list(where, limit=1000)}
    output.answer(found, explain=explain, texts=texts)
    return None


@command("list")
def list_(
    call: Call,
    memory: Blocking,
    mine: BlockingScope,
    *,
    limit: int = 50,
    cursor: str | None = None,
    kind: Words = None,
    category: Words = None,
    tag: Words = None,
    metadata: Words = None,
    state: Words = None,
    pinned: bool | None = None,
    speaker: str | None = None,
    after: str | None = None,
    before: str | None = None,
) -> object:
    """List memories, newest first. With --json, one per line.

    With --session, only what was stored in this session.

    Args:
        limit: <N> Maximum number of memories.
        cursor: <CURSOR> Cursor of the next page.
        pinned: Only pinned memories, or only the others.

    Example: memorist list --tag home --limit 20
    """
    options: dict[str, Any] = {"state": state, "pinned": pinned, "session": call.session}
    where = _filter(kind, category, tag, metadata, speaker, after, before, **options)
    page = mine.list(where, limit=limit, cursor=cursor)
    memories = list(page.memories)
    if page.cursor:
        output.result(memories, json=call.json)
        output.note(f"Next page: --cursor {page.cursor}")
        return None
    if memories or call.json:
        return memories
    own = mine.scope
    if where != Filter() or not own.user:
        return memories, "", ["No memories match."]
    elsewhere = []
    for scope in memory.scopes(user=own.user, tenant=own.tenant):
        if scope.space != own.space:
            counts = memory.scope(scope.user, scope.space, scope.tenant).stats()
            elsewhere.append(f"{counts['memories']} in {scope.space!r}")
    others = f" ({', '.join(elsewhere)})" if elsewhere else ""
    note = f"No memories for user {own.user!r} in space {own.space!r}{others}."
    return memories, "", [note]


def _filter(
    kind: Any,
    category: Words,
    tag: Words,
    metadata: Words,
    speaker: str | None,
    after: str | None,
    before: str | None,
    *,
    state: Any = None,
    pinned: bool | None = None,
    session: str | None = None,
) -> Filter:
    for values, known in ((kind, KINDS), (state, STATES)):
        for value in values or ():
            if value not in known:
                raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
    moment = load("ingest.validation").moment
    return Filter(
        kinds=tuple(kind or ()),
        categories=tuple(category or ()),
        tags=tuple(tag or ()),
        states=tuple(state or ("active",)),
        speaker=speaker,
        pinned=pinned,
        labels=Labels(session=session),
        metadata=read_metadata(metadata),
        occurred_after=moment(after),
        occurred_before=moment(before),
    )


@command("show")
def show(mine: BlockingScope, id: str) -> object:
    """Show all fields of one memory.

    Example: memorist show 019a3c5e-7ddf-7926-adf6-688e0fc76dd8
    """
    memory = mine.get(memory_id(mine, id))
    hidden = ("text", "simhash", "content_hash", "last_scores")
    fields = storage.dump(memory)
    known = {name: value for name, value in fields.items() if value and name not in hidden}
    return memory, [output.headline(memory), output.pairs(known)]


@command("history")
def history(
    call: Call,
    mine: BlockingScope,
    id: str | None = None,
    *,
    limit: int = 100,
) -> object:
    """Show the history of a memory or of all, newest first. With --json, one entry per line.

    Args:
        id: <[ID]> Id, or its first or last characters.
        limit: <N> Maximum number of entries.

    Example: memorist history --limit 20
    """
    if id is not None:
        id = memory_id(mine, id)
        if SHORTEST <= len(id) < 36:  # it may be gone
            id = complete_id(id, [entry.memory_id for entry in mine.history(limit=10_000)])
    entries = mine.history(id, limit=limit)
    if id is not None and not entries:
        raise NotFound(f"No memory with id {id!r} in this scope")
    if call.json:
        return entries
    ids = tuple({entry.memory_id for entry in entries})
    texts: dict[str, str] = {}
    for start in range(0, len(ids), 1000):
        where = Filter(ids=ids[start : start + 1000], states=STATES)
        texts |= {memory.id: memory.text for memory in mine.list(where, limit=1000)}
    _print_history(entries, texts)
    return None


def _print_history(entries: Iterable[HistoryEntry], texts: dict[str, str]) -> None:
    """Print history entries, newest first, each with the text that its memory had after it."""
    for entry in entries:
        about = ""
        for name, value in entry.meta.items():
            if name == "session":
                about += f" session={output.format_value(value)}"
            elif name != "before":
                shortened = _ID.sub(lambda id: output.short(id[0]), output.format_value(value))
                about += f" {name}={shortened}"
        by = f" by {plain(entry.actor)}" if entry.actor else ""
        start = (
            f"{entry.at:%Y-%m-%d %H:%M:%S}  {entry.event:<12}{output.short(entry.memory_id)}{by}"
        )
        output.line(f"{start}  {plain(about)}".rstrip())
        if text := texts.get(entry.memory_id):
            output.line(Text(f"  {plain(text)}", style="dim"))
        before = entry.meta.get("before")
        if isinstance(before, Mapping) and "text" in before:
            texts[entry.memory_id] = str(before["text"])
