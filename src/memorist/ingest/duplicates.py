"""Is this known already? Exactly, nearly, or in other words, and with the same values: then it is a repetition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ..text import dates, saying, simhash
from ..types import Memory
from . import importance
from .chunk import Piece
from .policies import Bands

TELLING = 4  # words; fewer say nothing without the turn before


class Twin(NamedTuple):
    """A memory that holds what a piece says, and whether the piece says more than that, or less."""

    memory: Memory
    verdict: saying.Verdict


def of_one(piece: Piece, memory: Memory) -> bool:
    """Whether both were said by one speaker in one role, about the same subject; a how-to is no statement."""
    told, kept = piece.draft.labels, memory.labels
    if (piece.draft.steps_text is not None) != (memory.procedural_form == "workflow"):
        return False
    return (piece.draft.speaker, told.subject, told.role) == (
        memory.speaker,
        kept.subject,
        kept.role,
    )


def comparable(piece: Piece, memory: Memory) -> bool:
    """Whether both can be about the same: the same speaker, the same subject, and no "yesterday" of two days.

    "I went there yesterday", said on two days, is two memories. A turn of a conversation is a repetition only in its
    own session and if it says something by itself: "Yes." answers another question each time.
    """
    draft = piece.draft
    if not of_one(piece, memory):
        return False
    session = draft.labels.session
    if session is not None and (
        session != memory.labels.session or len(piece.text.split()) < TELLING
    ):
        return False
    return _day(draft.at) == _day(memory.occurred_at) or not dates.has_time(piece.text)


def exact(piece: Piece, known: Iterable[Memory]) -> Twin | None:
    """The memory with the same words, if there is one."""
    return next((Twin(memory, "same") for memory in known if comparable(piece, memory)), None)


def near(piece: Piece, known: Iterable[Memory], limit: int = simhash.NEAR) -> Twin | None:
    """The nearest memory whose fingerprint differs in few bits, and which says the same but for a few words."""
    close = [
        (simhash.distance(piece.simhash, memory.simhash), memory.id, memory) for memory in known
    ]
    ranked = sorted((item for item in close if item[0] <= limit), key=lambda item: item[:2])
    return next(_twins(piece, (memory for _, _, memory in ranked)), None)


def banded(piece: Piece, kin: Sequence[tuple[float, Memory]], bands: Bands) -> Twin | None:
    """The nearest memory that says the same in other words; one that is very near may say a little less."""
    close = {memory.id: cosine for cosine, memory in kin if cosine >= bands.check_low}
    for twin in _twins(piece, (memory for _, memory in kin if memory.id in close)):
        if twin.verdict == "same" or (
            twin.verdict == "more" and close[twin.memory.id] >= bands.auto_update
        ):
            return twin
    return None


def _twins(piece: Piece, memories: Iterable[Memory]) -> Iterator[Twin]:
    """Those of the memories that say what the piece says."""
    for memory in memories:
        if comparable(piece, memory):
            is_same = piece.content_hash == memory.content_hash
            verdict: saying.Verdict = (
                "same" if is_same else saying.judged(piece.said, saying.said(memory.text))
            )
            if verdict != "other":
                yield Twin(memory, verdict)


def merged(memory: Memory, piece: Piece, now: datetime, tags: tuple[str, ...] = ()) -> Memory:
    """The memory after it was said once more: it counts for more, and what came along is added to it."""
    draft, repeated = piece.draft, memory.repeat_count + 1
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
