"""Is this known already? Exactly, nearly, or in other words, and with the same values: then it is a repetition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ..text import compare, dates, normalize
from ..text.statements import parse
from ..types import Memory
from . import importance
from .chunk import Chunk
from .policies import Bands

TELLING = 4  # words; fewer say nothing without the turn before


class Duplicate(NamedTuple):
    """A memory that holds what a chunk says, and whether the chunk says more than that, or less."""

    memory: Memory
    verdict: compare.Verdict


def of_one(chunk: Chunk, memory: Memory) -> bool:
    """Whether both were said by one speaker in one role, about the same subject; a how-to is no statement."""
    told, kept = chunk.draft.labels, memory.labels
    if (chunk.draft.steps_text is not None) != (memory.procedural_form == "workflow"):
        return False
    return (chunk.draft.speaker, told.subject, told.role) == (
        memory.speaker,
        kept.subject,
        kept.role,
    )


def comparable(chunk: Chunk, memory: Memory) -> bool:
    """Whether both can be about the same: the same speaker, the same subject, and no "yesterday" of two days.

    "I went there yesterday", said on two days, is two memories. A turn of a conversation is a repetition only in its
    own session and if it says something by itself: "Yes." answers another question each time.
    """
    draft = chunk.draft
    if not of_one(chunk, memory):
        return False
    session = draft.labels.session
    if session is not None and (
        session != memory.labels.session or len(chunk.text.split()) < TELLING
    ):
        return False
    return _day(draft.at) == _day(memory.occurred_at) or not dates.has_time(chunk.text)


def exact(chunk: Chunk, known: Iterable[Memory]) -> Duplicate | None:
    """The memory with the same words, if there is one."""
    return next((Duplicate(memory, "same") for memory in known if comparable(chunk, memory)), None)


def near(chunk: Chunk, known: Iterable[Memory], limit: int = normalize.NEAR) -> Duplicate | None:
    """The nearest memory whose fingerprint differs in few bits, and which says the same but for a few words."""
    close = [
        (normalize.distance(chunk.simhash, memory.simhash), memory.id, memory) for memory in known
    ]
    ranked = sorted((item for item in close if item[0] <= limit), key=lambda item: item[:2])
    return next(_twins(chunk, (memory for _, _, memory in ranked)), None)


def banded(chunk: Chunk, kin: Sequence[tuple[float, Memory]], bands: Bands) -> Duplicate | None:
    """The nearest memory that says the same in other words; one that is very near may say a little less."""
    close = {memory.id: cosine for cosine, memory in kin if cosine >= bands.check_low}
    for duplicate in _twins(chunk, (memory for _, memory in kin if memory.id in close)):
        if duplicate.verdict == "same" or (
            duplicate.verdict == "more" and close[duplicate.memory.id] >= bands.auto_update
        ):
            return duplicate
    return None


def _twins(chunk: Chunk, memories: Iterable[Memory]) -> Iterator[Duplicate]:
    """Those of the memories that say what the chunk says."""
    for memory in memories:
        if comparable(chunk, memory):
            is_same = chunk.content_hash == memory.content_hash
            verdict: compare.Verdict = (
                "same" if is_same else compare.verdict(chunk.statement, parse(memory.text))
            )
            if verdict != "other":
                yield Duplicate(memory, verdict)


def merged(memory: Memory, chunk: Chunk, now: datetime, tags: tuple[str, ...] = ()) -> Memory:
    """The memory after it was said once more: it counts for more, and what came along is added to it."""
    draft, repeated = chunk.draft, memory.repeat_count + 1
    return replace(
        memory,
        repeat_count=repeated,
        importance=max(
            importance.repeated(memory.base_importance, repeated), draft.importance or 0.0
        ),
        manually_saved=memory.manually_saved or draft.manually_saved,
        pinned=memory.pinned or draft.pinned,
        confidence=max(memory.confidence, draft.confidence),
        tags=_union(memory.tags, tuple(tag.lower() for tag in draft.tags), tags),
        source_ids=_union(memory.source_ids, draft.source_ids),
        evidence=_union(memory.evidence, draft.evidence),
        evidence_ids=_union(memory.evidence_ids, draft.evidence_ids),
        valid_from=min(
            (at for at in (memory.valid_from, draft.at) if at is not None), default=None
        ),
        updated_at=now,
        revision=memory.revision + 1,
    )


def _union(*lists: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))


def _day(at: datetime | None) -> object:
    return at.date() if at is not None else None
