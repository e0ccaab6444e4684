"""How important a chunk is, what kind of memory it becomes and what it is about, as the write policy decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from ..ports import Vectors
from ..text.entities import Entity
from ..types import Kind, Memory
from . import classify_rules, duplicates
from . import importance as score
from .chunk import Chunk
from .policies import Policy

MOST_PROPOSED = 3
_MARKS = (
    "source-forgotten",
    "do_not_assume",
)  # like all with a colon, they tell something of one memory alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """What the scoring and routing steps found."""

    importance: float
    parts: Mapping[str, float]
    kind: Kind
    category: str | None
    item_type: str | None


def classify(
    chunk: Chunk, policy: Policy, vector: Vectors | None, centroid: Vectors | None
) -> Classification:
    """Score a chunk and give it a kind."""
    importance, parts = _importance(chunk, policy, vector, centroid)
    item_type = chunk.draft.item_type
    if policy.route == "milton":
        item_type = classify_rules.item_type(chunk.text, item_type)
    kind = _kind(chunk, policy, item_type)
    return Classification(
        importance=importance,
        parts=parts,
        kind=kind,
        category=chunk.draft.category or classify_rules.category(kind, item_type),
        item_type=item_type,
    )


def _importance(
    chunk: Chunk, policy: Policy, vector: Vectors | None, centroid: Vectors | None
) -> tuple[float, Mapping[str, float]]:
    given = chunk.draft.importance
    if policy.score == "given":
        usual = policy.usual_importance if given is None else given
        return usual, {"given": usual}
    tags, confidence = chunk.tags
    saved = chunk.draft.manually_saved or chunk.draft.pinned
    heuristic = score.theoria(
        chunk.text, manually_saved=saved, metadata_confidence=confidence, has_tags=bool(tags)
    )
    if policy.score == "theoria":
        return (
            (heuristic, {"heuristics": heuristic}) if given is None else (given, {"given": given})
        )
    novelty = 1.0 if vector is None else score.novelty(vector, centroid)
    salience = chunk.salience.total
    vault = score.vault(novelty, salience)
    parts = {"novelty": novelty, "salience": salience}
    if policy.score == "vault":
        return vault, parts
    return score.unified(vault, heuristic, given or 0.0), {
        **parts,
        "heuristics": heuristic,
        "given": given or 0.0,
    }


def _kind(chunk: Chunk, policy: Policy, item_type: str | None) -> Kind:
    hint = chunk.draft.kind
    if policy.route == "vault":
        return cast(Kind, classify_rules.kind(chunk.text, hint))
    if policy.route == "milton" and hint is None and item_type is not None:
        return cast(Kind, classify_rules.kind_of(item_type))
    if (
        policy.route == "default"
        and hint is None
        and chunk.draft.message_id in (None, chunk.draft.id)
    ):
        found = classify_rules.kind(chunk.text)
        return cast(
            Kind, found if found != "working" else "episodic"
        )  # nothing is lost when a session ends
    return hint or "episodic"


def proposed(chunk: Chunk, neighbours: Iterable[tuple[float, Memory]]) -> list[Entity]:
    """The tags that most of the near memories were given, classified by their cosine.

    Only what one speaker said in one role about one subject lends tags to each other. A tag that stands in the words of
    a neighbour is its own: what is near to "Anna likes tea" need not be about Anna.
    """
    near = [
        (cosine, m)
        for cosine, m in neighbours
        if duplicates.of_one(chunk, m) and m.item_type == chunk.draft.item_type
    ]
    votes: dict[str, float] = {}
    for cosine, memory in near:
        words = memory.text.casefold()
        for tag in memory.tags:
            if tag not in words and tag not in _MARKS and ":" not in tag:
                votes[tag] = votes.get(tag, 0.0) + cosine
    total = sum(cosine for cosine, _ in near)
    best = sorted((-vote, tag) for tag, vote in votes.items() if 2 * vote >= total)[:MOST_PROPOSED]
    return [Entity(text=tag, confidence=-vote / len(near)) for vote, tag in best]
