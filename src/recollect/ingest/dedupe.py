"""Is this known already? Exactly, or nearly and with the same values: then it is a repetition and no new memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from ..model import Memory
from ..text import dates, simhash, values
from . import score
from .piece import Piece

TELLING = 4  # words; fewer say nothing without the turn before


def repeats(piece: Piece, memory: Memory) -> bool:
    """Whether a piece says again what a memory holds: the same speaker, the same subject, the same values.

    "I went there yesterday", said on two days, is two memories. A turn of a conversation is a repetition only in its
    own session and if it says something by itself: "Yes." answers another question each time.
    """
    draft = piece.draft
    if draft.speaker != memory.speaker or draft.labels.subject != memory.labels.subject:
        return False
    session = draft.labels.session
    if session is not None and (session != memory.labels.session or len(piece.text.split()) < TELLING):
        return False
    if _day(draft.at) != _day(memory.occurred_at) and dates.has_time(piece.text):
        return False
    return piece.content_hash == memory.content_hash or values.agree(piece.text, memory.text)


def exact(piece: Piece, known: Iterable[Memory]) -> Memory | None:
    """The memory with the same words, if there is one."""
    return next((memory for memory in known if repeats(piece, memory)), None)


def near(piece: Piece, known: Iterable[Memory], limit: int = simhash.NEAR) -> Memory | None:
    """The nearest memory whose fingerprint differs in few bits and whose values agree."""
    close = [(simhash.distance(piece.simhash, memory.simhash), memory.id, memory) for memory in known]
    ranked = sorted((item for item in close if item[0] <= limit), key=lambda item: item[:2])
    return next((memory for _, _, memory in ranked if repeats(piece, memory)), None)


def merged(memory: Memory, piece: Piece, now: datetime, tags: tuple[str, ...] = ()) -> Memory:
    """The memory after it was said once more: it counts for more, and what came along is added to it."""
    draft, repeated = piece.draft, memory.repeat_count + 1
    return replace(
        memory,
        repeat_count=repeated,
        importance=max(score.repeated(memory.base_importance, repeated), draft.importance or 0.0),
        manually_saved=memory.manually_saved or draft.manually_saved,
        pinned=memory.pinned or draft.pinned,
        confidence=max(memory.confidence, draft.confidence),
        tags=_union(memory.tags, tuple(tag.lower() for tag in draft.tags), tags),
        source_ids=_union(memory.source_ids, draft.source_ids),
        evidence=_union(memory.evidence, draft.evidence),
        evidence_ids=_union(memory.evidence_ids, draft.evidence_ids),
        valid_from=min((at for at in (memory.valid_from, draft.at) if at is not None), default=None),
        updated_at=now,
        revision=memory.revision + 1,
    )


def _union(*lists: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))


def _day(at: datetime | None) -> object:
    return at.date() if at is not None else None
