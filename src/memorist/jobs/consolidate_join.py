"""Two memories that state the same fact become one, as changes that can be undone.

What a person pinned or saved on purpose stays as it is; of two such memories neither goes. Nothing is erased: what goes
is superseded by what stays, which keeps the evidence of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from ..ingest import transitions
from ..ingest.policies import Bands
from ..ports import Vectors
from ..storage.changes import Change, Checked, Put, Relation
from ..text import compare, contradictions, normalize
from ..text.statements import parse
from ..types import CONTRADICTS, Memory

WORKER = "worker"  # who did it, in the history


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two memories that may say the same."""

    old: Memory
    new: Memory
    cosine: float

    @property
    def fingerprint(self) -> tuple[str, str, float]:
        a, b = sorted((self.old.id, self.new.id))
        return a, b, round(self.cosine, 2)

    def checked(self, now: datetime) -> Checked:
        a, b, score = self.fingerprint
        return Checked(a=a, b=b, score=score, at=now)


def paired(a: Memory, b: Memory, cosine: float) -> Pair | None:
    """Both as a pair, the older one first, if they can be about the same.

    They have to be statements of one speaker about one subject; what is derived by guessing is compared with its like,
    a how-to with nothing, and "tomorrow" is another day on another day.
    """
    if not (a.is_active and b.is_active) or "workflow" in (a.procedural_form, b.procedural_form):
        return None
    if _said_by(a) != _said_by(b) or (a.kind == "insight") != (b.kind == "insight"):
        return None
    if transitions.held_since(a).date() != transitions.held_since(b).date() and any(
        contradictions.is_relative(each.text) for each in (a, b)
    ):
        return None
    old, new = sorted((a, b), key=lambda memory: (transitions.held_since(memory), memory.id))
    return Pair(old=old, new=new, cosine=cosine)


def is_same(pair: Pair, bands: Bands) -> bool:
    """Whether rules find that both say the same; where they are very near, in other words or with a little less."""
    old, new = parse(pair.old.text), parse(pair.new.text)
    if pair.old.content_hash == pair.new.content_hash:
        return True
    verdict = compare.verdict(new, old)
    if verdict == "same" or (verdict != "other" and pair.cosine >= bands.auto_update):
        return True
    return pair.cosine >= bands.reworded and compare.is_reworded(old, new)


def is_update(pair: Pair) -> bool:
    """Whether the newer one gives another value to what the older one is about."""
    return contradictions.contradicts(parse(pair.new.text), parse(pair.old.text))


def staying(pair: Pair) -> tuple[Memory, Memory] | None:
    """Which of the two stays as it is, and which goes; None if a person wants both.

    What was saved on purpose stays, or what says more, or the longer text, or the older memory.
    """
    old, new = pair.old, pair.new
    if old.on_purpose != new.on_purpose:
        return (old, new) if old.on_purpose else (new, old)
    if old.on_purpose:
        return None
    text = compare.pick_containing(parse(new.text), parse(old.text)) or max(
        old.text, new.text, key=len
    )
    return (old, new) if text == old.text else (new, old)


def kept(pair: Pair, now: datetime) -> list[Put]:
    """One of the two stays, with what the other had gained; empty if a person wants both."""
    chosen = staying(pair)
    if chosen is None:
        return []
    stays, goes = chosen
    again = transitions.absorb(stays, goes, now)
    gone = transitions.supersede(goes, now, by=stays.id)
    return [
        Put(
            memory=again,
            event="merged",
            old_ref=goes.id,
            actor=WORKER,
            meta={"reason": "the same fact"},
        ),
        Put(memory=gone, event="superseded", actor=WORKER, meta={"superseded_by": stays.id}),
    ]


def remade(
    pair: Pair,
    text: str,
    now: datetime,
    *,
    new_id: Callable[[], str],
    vector: Vectors | None,
    model: str,
) -> list[Put]:
    """A new memory with a text made of both takes the place of both."""
    made = replace(
        pair.new,
        **transitions.absorbed_fields(pair.new, pair.old),
        id=new_id(),
        text=text,
        created_at=now,
        updated_at=now,
        content_hash=normalize.content_hash(text),
        simhash=normalize.simhash64(text),
        summary=None,
        evidence_text=None,
        source_message_id=None,
        key=None,
        sequence=None,
        last_accessed=None,
        access_count=0,
        last_scores=None,
        needs_embedding=vector is None,
        revision=1,
    )
    made = replace(
        made, evidence_ids=transitions.union(made.evidence_ids, (pair.old.id, pair.new.id))
    )
    meta = {"reason": "the same fact", "supersedes": [pair.old.id, pair.new.id]}
    return [
        Put(
            memory=made,
            event="created",
            vector=vector,
            model=model,
            old_ref=pair.new.id,
            actor=WORKER,
            meta=meta,
        ),
        *(
            Put(
                memory=transitions.supersede(each, now, by=made.id),
                event="merged",
                actor=WORKER,
                meta={"superseded_by": made.id},
            )
            for each in (pair.old, pair.new)
        ),
    ]


def replaced(pair: Pair, now: datetime) -> list[Change]:
    """The newer value takes the place of the older one, and the two are listed for a decision."""
    if pair.old.on_purpose:
        return []
    gone = transitions.supersede(
        pair.old, now, by=pair.new.id, since=transitions.held_since(pair.new)
    )
    meta = {"reason": CONTRADICTS, "superseded_by": pair.new.id}
    return [
        Put(memory=gone, event="superseded", actor=WORKER, meta=meta),
        Relation(from_id=pair.new.id, to_id=pair.old.id, type=CONTRADICTS, at=now),
    ]


def is_free(pair: Pair) -> bool:
    """Whether no person saved either of the two on purpose."""
    return not (pair.old.on_purpose or pair.new.on_purpose)


def _said_by(memory: Memory) -> tuple[str | None, ...]:
    return memory.speaker, memory.labels.subject, memory.labels.role
