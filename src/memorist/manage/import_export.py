"""Everything out of a memory, and into one again."""

from __future__ import annotations

import json
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any
from uuid import UUID, uuid5

from ..context import Context
from ..errors import InvalidInput
from ..ingest import guard, policies, validation
from ..ingest.decide import FORGOTTEN
from ..ingest.policies import Policy
from ..ports import Vectors
from ..storage import codec, rows, summaries
from ..storage.changes import Save, SeenMessage
from ..storage.export import export
from ..storage.history import HistoryEntry
from ..storage.store import Store
from ..storage.summaries import Summary
from ..storage.transaction import Transaction
from ..text import authority, normalize
from ..types import HISTORY_EVENTS, Draft, Labels, Memory, Message, Outcome, Receipt, Scope
from . import privacy
from .edit import encode, release_key, with_vector
from .records import PROFILE, PROJECT

FORMAT = 1
_HEADS = ("memorist", "recollect")  # the first record; version 0.1 wrote "recollect"
_NOTES = (*_HEADS, "damaged", "proposal")  # about other records, or what the person agreed to here
BATCH = 256
_MOST_NAME, _MOST_LABEL, _MOST_SUMMARY = 200, 1_000, 2_000  # characters
_MOST_LISTED = 10_000  # entries of a list, each as long as a label may be
_MOST_COUNT = 10**9
_AS_IT_WAS = "if this is an export of your own, restore it (restore=True, --restore)"


async def export_records(store: Store, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
    """All records as plain values: first what they are, then history, memories, messages, long-term records."""
    yield {"record_type": "memorist", "data": {"format": FORMAT}}
    async for record in export(store, scope):
        data = record["data"]
        yield {**record, "data": data if isinstance(data, dict) else codec.dump(data)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """How records are taken in."""

    ctx: Context
    scope: Scope | None = None  # without one, each record goes to the scope it names
    labels: Labels = field(default_factory=Labels)
    remember: Callable[[list[Any]], Awaitable[Receipt]] | None = None  # stores messages
    restore: bool = False  # the owner brings an own export back: neither the guard nor a space that is off stops it

    @property
    def policy(self) -> Policy:
        return policies.find(self.ctx.policies, self.ctx.settings.policy)


async def import_records(records: Iterable[Mapping[str, Any]], how: Import) -> Receipt:
    """Take in records, in batches that are each committed whole; a bad one ends it after what stood before."""
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise InvalidInput(
            f"import_ takes records one after the other, not {type(records).__name__}"
        )
    outcomes: list[Outcome] = []
    batch: list[Mapping[str, Any]] = []
    for number, record in enumerate(records, 1):
        problem = _problem(record, number, how)
        if batch and (problem or len(batch) == BATCH or _sort(record) != _sort(batch[0])):
            outcomes += await _take(batch, how)
            batch = []
        if problem:
            raise problem
        batch.append(record)
    return Receipt((*outcomes, *(await _take(batch, how) if batch else ())))


def _problem(record: Mapping[str, Any], number: int, how: Import) -> InvalidInput | None:
    """Why a record cannot be taken in, with its number."""
    try:
        _check(record, how)
    except InvalidInput as error:
        return InvalidInput(f"Record {number}: {error}")
    return None


def _check(record: Mapping[str, Any], how: Import) -> None:
    if not isinstance(record, Mapping):
        raise InvalidInput("it is no object")
    if "content" in record:
        if how.scope is None:
            raise InvalidInput("it is a message: say whose it is, with a scope or --user")
        validation.message(record, how.labels)
        return
    kind, data = record.get("record_type"), record.get("data")
    if kind not in (*_NOTES, *_READERS) or not isinstance(data, Mapping):
        raise InvalidInput("it is neither an exported record nor a message with 'content'")
    if kind in _HEADS and data.get("format") != FORMAT:
        raise InvalidInput(
            f"the export has format {data.get('format')!r}, this version reads {FORMAT}"
        )
    if kind in _READERS:
        _bound(_READERS[kind](data), how)
        if how.scope is None:
            _scope(data)


def _sort(record: Mapping[str, Any]) -> str:
    """Records that may be taken in together have the same sort: kind, and scope where they name one."""
    data = record.get("data", {})
    return "said" if "content" in record else f"{record['record_type']} {data.get('scope')}"


async def _take(batch: Sequence[Mapping[str, Any]], how: Import) -> Sequence[Outcome]:
    """Take in records of one sort. What is refused has an outcome; of the rest only memories and messages have one."""
    if "content" in batch[0]:
        assert how.remember is not None
        return (await how.remember(list(batch))).outcomes
    kind = batch[0]["record_type"]
    if kind in _NOTES:
        return []
    data = [record["data"] for record in batch]
    scope = how.scope if how.scope is not None else _scope(data[0])
    values = [_READERS[kind](each) for each in data]
    if kind == "memory":
        return await _take_memories(values, scope, how)
    reasons = await _find_refusals([_draft(value) for value in values], scope, how)
    kept = [value for value, why in zip(values, reasons, strict=True) if not why]
    if kind == "history":
        home = data[0].get("scope")
        entries = [each if home == asdict(scope) else _elsewhere(each, scope) for each in kept]
        await _take_history(entries, scope, how.ctx)
    elif kind == "message":
        async with how.ctx.store.transaction(scope) as tx:
            await tx.save_messages([await _drop_forgotten_words(each, tx, scope) for each in kept])
    else:
        reasons += await _take_summaries(kept, scope, how)
    return [Outcome(status="refused", reason=why) for why in reasons if why]


async def _find_refusals(made: Sequence[Draft], scope: Scope, how: Import) -> list[str]:
    """Return why each may not be taken in, empty where it may.

    A record that claims to be pinned or manually saved gets no exception.
    """
    off = await privacy.load_disabled(how.ctx, scope, {draft.labels.session for draft in made})
    return [_refusal(draft, off.get(draft.labels.session, ""), scope, how) for draft in made]


def _refusal(draft: Draft, off: str, scope: Scope, how: Import) -> str:
    if off == privacy.INCOGNITO or how.restore:
        return off if off == privacy.INCOGNITO else ""
    why = off or (guard.find_refusal(draft, how.policy, scope.user) if draft.text else "")
    return f"{why}; {_AS_IT_WAS}" if why else ""


def _draft(value: Value) -> Draft:
    """Return the text and the speaker of a record as a draft, for the guard to check."""
    if isinstance(value, Memory):
        return Draft(
            text=value.text,
            labels=value.labels,
            speaker=value.speaker,
            kind=value.kind,
            category=value.category,
            item_type=value.item_type,
            fact_type=value.fact_type,
            evidence=value.evidence,
            evidence_text=value.evidence_text,
            steps_text=value.steps_text,
        )
    if isinstance(value, SeenMessage):
        message = value.message
        labels = Labels(session=message.session, role=message.role)
        return Draft(
            text=message.content,
            labels=labels,
            speaker=authority.speaker_of(message.role, message.name),
        )
    if isinstance(value, Summary):  # derived text, so it is checked like the words of a tool
        lines = [line for each in value.data.values() for line in each]
        return Draft(text="\n".join(lines), labels=Labels(role="tool"))
    session = value.meta.get("session")
    return Draft(text="", labels=Labels(session=session if isinstance(session, str) else None))


async def _drop_forgotten_words(said: SeenMessage, tx: Transaction, scope: Scope) -> SeenMessage:
    """Return a message without its text if the memories made from it have been forgotten."""
    ids = said.outcome.ids
    there = {memory.id for memory in await tx.get(scope, ids)} if ids else set()
    return said if there.issuperset(ids) else replace(said, keep_text=False)


async def _take_summaries(records: Sequence[Summary], scope: Scope, how: Import) -> list[str]:
    """Keep long-term records that are not here yet; return why others are not taken."""
    store, reasons = how.ctx.store, list[str]()
    kinds = {each.record_type for each in records}
    here = {known.id for kind in kinds for known in await summaries.load(store, scope, kind)}
    async with store.transaction(scope) as tx:
        for each in records:
            if each.id in here:
                continue
            why = await _missing_support(each, tx, scope, how)
            if not why:
                await summaries.save(tx, each)
            reasons.append(why)
    return reasons


async def _missing_support(summary: Summary, tx: Transaction, scope: Scope, how: Import) -> str:
    """Return why a long-term record does not rest on what is remembered here; empty if it does."""
    found = await tx.get(scope, summary.evidence_ids)
    if not {memory.id for memory in found}.issuperset(summary.evidence_ids):
        return f"the {summary.record_type} rests on memories that are not here"
    is_own = how.restore or all(authority.is_persons(memory) for memory in found)
    return (
        ""
        if is_own or summary.record_type != "user_profile"
        else "a profile rests on the person's own words"
    )


def _scope(data: Mapping[str, Any]) -> Scope:
    made = data.get("scope")
    if not isinstance(made, Mapping) or set(made) != {"tenant", "user", "space"}:
        raise InvalidInput(f"A record needs a scope with tenant, user and space, not {made!r:.60}")
    return Scope(**{name: validation.name(name, value) for name, value in made.items()})


def _memory(data: Mapping[str, Any]) -> Memory:
    """A memory as it was; what is derived from its text, its place and its uses are made again. Raises InvalidInput."""
    made = codec.load(
        Memory, {name: value for name, value in data.items() if name not in _NOT_TAKEN}
    )
    validation.text(made.text, len(made.text))
    made = replace(
        made, text=normalize.storable(made.text), tags=tuple(map(normalize.storable, made.tags))
    )
    return replace(
        made,
        content_hash=normalize.content_hash(made.text),
        simhash=normalize.simhash64(made.text),
        superseded_by=None if made.is_active else made.superseded_by,
        purge_at=None if made.is_active else made.purge_at,
    )


_NOT_TAKEN = ("last_scores", "revision", "sequence", "needs_embedding")
_SHARES = ("importance", "base_importance", "confidence", "metadata_confidence")
_TEXTS = ("text", "steps_text", "evidence_text", "content")  # bounded by the setting for texts
Value = Memory | SeenMessage | HistoryEntry | Summary


def _bound(value: Value, how: Import) -> None:
    """Raise InvalidInput for what no verb would have made: it would break those that come later.

    An own export may hold longer names than others hand over.
    """
    if isinstance(value, Memory):
        _bound_memory(value)
    for name, each in _parts(value):
        _bound_part(name, each, how)


def _bound_memory(memory: Memory) -> None:
    if (
        not 0 < len(memory.id) <= _MOST_NAME
        or any(map(str.isspace, memory.id))
        or not memory.id.isprintable()
    ):
        raise InvalidInput(
            f"An id is a text of 1 to {_MOST_NAME} characters without blanks, not {memory.id!r:.60}"
        )
    if memory.id in (memory.superseded_by, *memory.evidence_ids):
        raise InvalidInput(
            f"Memory {memory.id!r:.60} names itself as its evidence or its successor"
        )
    for name in _SHARES:
        if not 0 <= getattr(memory, name) <= 1:  # also true for NaN
            raise InvalidInput(f"{name} lies between 0 and 1, not {getattr(memory, name)!r:.60}")
    for name in ("repeat_count", "access_count"):
        if not 0 <= getattr(memory, name) <= _MOST_COUNT:
            raise InvalidInput(
                f"{name} lies between 0 and {_MOST_COUNT:,}, not {getattr(memory, name)!r:.60}"
            )
    if not all(
        math.isfinite(part) and abs(part) <= _MOST_LABEL
        for part in memory.importance_parts.values()
    ):
        raise InvalidInput("importance_parts are small numbers")


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the fields of a record, and those of the values in it."""
    for each in fields(value):  # type: ignore[arg-type]
        part = getattr(value, each.name)
        if isinstance(part, Labels | Message | Outcome):
            yield from _parts(part)
        else:
            yield each.name, part


def _bound_part(name: str, value: object, how: Import) -> None:
    if isinstance(value, Mapping):
        _bound_part("text", json.dumps(value, default=str), how)
        return
    listed = value if isinstance(value, tuple) else (value,)
    texts = [text for text in listed if isinstance(text, str)]
    if any("\0" in text for text in texts):
        raise InvalidInput(f"{name} holds a NUL character: take it out")
    if name in _TEXTS:
        validation.size("".join(texts), how.ctx.settings.max_text_chars)
    if how.restore or name in _TEXTS:
        return
    most = _MOST_SUMMARY if name == "summary" else _MOST_LABEL
    if len(listed) > _MOST_LISTED or any(len(text) > most for text in texts):
        limits = f"at most {_MOST_LISTED:,} entries of {most:,} characters are taken"
        raise InvalidInput(f"{name} is too long: {limits}; {_AS_IT_WAS}")


def _summary(data: Mapping[str, Any]) -> Summary:
    made = codec.load(Summary, {name: value for name, value in data.items() if name != "scope"})
    if not made.evidence_ids:
        raise InvalidInput("a long-term record names the memories that it rests on (evidence_ids)")
    lists = PROFILE if made.record_type == "user_profile" else PROJECT
    for name, lines in made.data.items():
        if (
            name not in lists
            or not isinstance(lines, list | tuple)
            or not all(isinstance(line, str) for line in lines)
        ):
            raise InvalidInput(
                f"a {made.record_type} has lists of texts: {', '.join(lists)}, not {name!r:.60}"
            )
    return made


def _said(data: Mapping[str, Any]) -> SeenMessage:
    for name in ("id", "role", "text", "name", "session"):
        value = data.get(name)
        if not isinstance(value, str) and (value is not None or name in ("id", "role")):
            raise InvalidInput(f"This is no message: {name} is text, not {type(value).__name__}")
    text = data.get("text")
    fields = {name: data.get(name) for name in ("id", "role", "name", "session")}
    message = Message(content=text or "", at=validation.moment(data.get("at")), **fields)  # type: ignore[arg-type]
    outcome = codec.load(Outcome, rows.upgrade_outcome(data.get("outcome") or {}))
    digest = normalize.digest(text) if text is not None else ""
    return SeenMessage(
        id=data["id"],
        message=message,
        outcome=outcome,
        digest=digest,
        keep_text=data.get("kept") is True,
    )


def _entry(data: Mapping[str, Any]) -> HistoryEntry:
    made = codec.load(
        HistoryEntry, {name: value for name, value in data.items() if name != "scope"}
    )
    try:
        UUID(made.id)
    except ValueError as error:
        raise InvalidInput(
            f"This is no entry of a history: its id is no UUID but {made.id!r:.60}"
        ) from error
    if not isinstance(made.meta.get("before", {}), Mapping):
        raise InvalidInput("Not a history entry: `before` has to be an object of fields and values")
    if made.event not in HISTORY_EVENTS:
        raise InvalidInput(
            f"This is no entry of a history: {made.event!r:.60} is none of {', '.join(HISTORY_EVENTS)}"
        )
    return made


def _elsewhere(entry: HistoryEntry, scope: Scope) -> HistoryEntry:
    """An entry that goes into another scope than it came from: there it has a name of its own, always the same."""
    return replace(
        entry, id=str(uuid5(UUID(entry.id), "\0".join((scope.tenant, scope.user, scope.space))))
    )


async def _take_history(entries: Sequence[HistoryEntry], scope: Scope, ctx: Context) -> None:
    """Add what happened before, without the words of what was forgotten here; what is here already stays as it is."""
    words = {
        entry.id: normalize.wording(str(entry.meta.get("before", {}).get("text", "")))
        for entry in entries
    }
    async with ctx.store.transaction(scope) as tx:
        forgotten = await tx.tombstones(scope, set(words.values()), ctx.clock())
        await tx.import_history(
            [_mark_imported(each, keep=words[each.id] not in forgotten) for each in entries]
        )


def _mark_imported(entry: HistoryEntry, *, keep: bool) -> HistoryEntry:
    """Mark an entry as imported, and rename the keys by which `undo` would find it."""
    meta = entry.meta if keep else {}
    elsewhere = {
        f"imported_{name}" if name in _OF_UNDO else name: value for name, value in meta.items()
    }
    return replace(entry, meta={**elsewhere, "imported": True})


_OF_UNDO = ("operation", "session", "final")  # by these `undo` finds what it takes back


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "memory": _memory,
    "history": _entry,
    "message": _said,
    "user_profile": _summary,
    "project_memory": _summary,
}


async def _take_memories(memories: Sequence[Memory], scope: Scope, how: Import) -> list[Outcome]:
    """Keep memories as they are, with vectors of this engine's model; those already here stay untouched."""
    ctx = how.ctx
    refusals = await _find_refusals([_draft(memory) for memory in memories], scope, how)
    reasons = {memory.id: why for memory, why in zip(memories, refusals, strict=True)}
    memories = [
        memory if how.restore else _lower_authority(memory, scope, how) for memory in memories
    ]
    vectors = await encode(ctx, [memory.text for memory in memories if not reasons[memory.id]])
    async with ctx.store.transaction(scope) as tx:
        there = {memory.id for memory in await tx.get(scope, [memory.id for memory in memories])}
        compared = {memory.id: normalize.wording(memory.text) for memory in memories}
        forgotten = await tx.tombstones(scope, list(compared.values()), ctx.clock())
        reasons |= {id: FORGOTTEN for id, text in compared.items() if text in forgotten}
        new = {
            memory.id: memory
            for memory in memories
            if memory.id not in there and not reasons[memory.id]
        }
        placed = await _assign_places(list(new.values()), tx, scope)
        await tx.apply([_imported(memory, vectors.get(memory.text), ctx) for memory in placed])
    return [_taken(memory.id, there, reasons[memory.id]) for memory in memories]


def _lower_authority(memory: Memory, scope: Scope, how: Import) -> Memory:
    """Limit a memory to the authority of its speaker."""
    draft = _draft(memory)
    low = guard.lower_authority(draft, how.policy, scope.user)
    if low == draft and authority.is_own(memory.labels.role, memory.speaker, scope.user):
        return memory
    return replace(
        memory,
        text=low.text,
        steps_text=low.steps_text,
        kind=low.kind or "episodic",
        category=low.category,
        item_type=low.item_type,
        fact_type=low.fact_type,
        procedural_form=None,
        key=None,
        content_hash=normalize.content_hash(low.text),
        simhash=normalize.simhash64(low.text),
    )


async def _assign_places(memories: Sequence[Memory], tx: Transaction, scope: Scope) -> list[Memory]:
    """Number the memories of each session after those already stored, in the order of the file."""
    last: dict[str, int] = {}
    placed: list[Memory] = []
    for memory in memories:
        memory = await release_key(tx, replace(memory, scope=scope))
        if any(other.key == memory.key for other in placed):
            memory = replace(memory, key=None)
        session = memory.labels.session
        if session is not None:
            before = last[session] if session in last else await tx.last_sequence(scope, session)
            last[session] = before + 1
            memory = replace(memory, sequence=before + 1)
        placed.append(memory)
    return placed


def _imported(memory: Memory, vector: Vectors | None, ctx: Context) -> Save:
    return Save(
        memory=with_vector(memory, vector),
        event="created" if memory.state != "superseded" else None,
        vector=vector,
        model=ctx.index.model,
        meta={"imported": True},
    )


def _taken(id: str, there: set[str], refused: str) -> Outcome:
    if id in there:
        return Outcome(status="skipped", ids=(id,), reason="it is here already")
    if refused:
        return Outcome(status="refused", reason=refused)
    return Outcome(status="created", ids=(id,))
