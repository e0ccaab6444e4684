"""From drafts to chunks: cleaned, split and classified, with everything known before the store is
asked.

Each derived value is computed once per chunk. All of it is pure, and happens before the write lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from ..ports import Vectors
from ..text import entities, normalize, tokens
from ..text.entities import Entity
from ..text.statements import Clause, Statement, parse, parse_clause
from ..types import Draft, Kind, Memory, Outcome, Status
from . import chunk as chunking
from . import classify
from .policies import Policy

WINDOW = 200  # tokens by our count that surely fit into the 256 word pieces of the packaged model


@dataclass(kw_only=True)
class Chunk:
    """As much of a draft as becomes one memory."""

    draft: Draft
    text: str
    content_hash: str
    simhash: int
    kind: Kind
    category: str
    item_type: str | None
    session: str | None
    is_turn: bool  # of a conversation: turns are kept apart, however alike
    clause: Clause | None = None  # where contradictions are looked for
    about: list[Entity] = field(default_factory=list)  # names and topics
    tags: tuple[str, ...] = ()
    heuristic: float = 0.0  # importance by its words
    salience: float = 0.0
    key: str | None = None  # under which a newer preference replaces an older one
    vector: Vectors | None = None

    @cached_property
    def statement(self) -> Statement:
        return parse(self.text)


@dataclass(slots=True)
class Item:
    """One draft on its way through the pipeline."""

    given: Draft  # as the caller gave it
    draft: Draft  # with no more authority than its speaker has
    outcome: Outcome | None = None  # None: it is still on its way
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def is_new(self) -> bool:
        """A memory was created that replaces no other."""
        outcome = self.outcome
        return outcome is not None and outcome.status == "created" and outcome.supersedes is None

    def has_status(self, *statuses: Status) -> bool:
        return self.outcome is not None and self.outcome.status in statuses

    def refuse(self, reason: str) -> None:
        """End with a refusal."""
        message_id = self.draft.message_id
        self.outcome = Outcome(status="refused", reason=reason, message_id=message_id)


def to_items(drafts: Iterable[Draft]) -> list[Item]:
    """Wrap drafts for the pipeline."""
    return [Item(draft, draft) for draft in drafts]


def is_turn(of: Draft | Memory) -> bool:
    """Return whether someone said it in a conversation; turns are kept apart, however alike."""
    return of.labels.session is not None and of.speaker is not None


def split(draft: Draft, policy: Policy) -> list[str]:
    """Clean a draft and split it where the policy says, or where the model could not read it."""
    text = normalize.clean(draft.text)
    if policy.longest is not None:
        text = normalize.one_line(text)[: policy.longest]
    if not text:
        return []
    minimum, maximum = policy.chunk or (0, WINDOW)
    if tokens.count_tokens(text) <= maximum:
        return [text]
    return chunking.by_meaning(text, tokens.count_tokens, minimum, maximum)


def analyze(draft: Draft, policy: Policy) -> list[Chunk]:
    """Split a draft into chunks, and derive what can be known of each by its words."""
    return [_analyze_chunk(draft, text, policy) for text in split(draft, policy)]


def _analyze_chunk(draft: Draft, text: str, policy: Policy) -> Chunk:
    item_type = draft.item_type
    if policy.route == "milton":
        item_type = classify.item_type(text, item_type)
    kind = _choose_kind(draft, text, policy, item_type)
    made = Chunk(
        draft=draft,
        text=text,
        content_hash=normalize.content_hash(text),
        simhash=normalize.simhash64(text),
        kind=kind,
        category=draft.category or classify.category(kind, item_type),
        item_type=item_type,
        session=draft.labels.session,
        is_turn=is_turn(draft),
    )
    if policy.conflicts and not made.is_turn:
        made.clause = parse_clause(text)
    if policy.keyed_preferences and kind == "procedural":
        line = normalize.one_line(text).lower().encode("utf-8", "surrogatepass")
        made.key = f"preference_{hashlib.sha256(line).hexdigest()[:12]}"
    if policy.score == "given":
        return made
    names = entities.entities(text)
    if policy.score in ("unified", "vault"):
        made.salience = classify.salience(text, lambda _: names).total
    if policy.score in ("unified", "theoria"):
        # A turn of a conversation is about what the turns around it are about.
        made.about = [] if draft.labels.session is not None else entities.about(text, names)
        made.tags, confidence = entities.tags(made.about)
        made.heuristic = classify.theoria(
            text,
            manually_saved=draft.on_purpose,
            metadata_confidence=confidence,
            has_tags=bool(made.tags),
        )
    return made


def _choose_kind(draft: Draft, text: str, policy: Policy, item_type: str | None) -> Kind:
    hint = draft.kind
    if policy.route == "vault":
        return cast(Kind, classify.kind(text, hint))
    if hint is not None:
        return hint
    if policy.route == "milton" and item_type is not None:
        return cast(Kind, classify.kind_of(item_type))
    if policy.route == "default" and draft.message_id in (None, draft.id):
        kind = classify.kind(text)
        return "episodic" if kind == "working" else cast(Kind, kind)  # nothing ends with a session
    return "episodic"


def score(
    chunk: Chunk, policy: Policy, centroid: Vectors | None
) -> tuple[float, Mapping[str, float]]:
    """Return the importance of a chunk by the policy's measure, and its parts."""
    given = chunk.draft.importance
    if policy.score == "given":
        usual = policy.usual_importance if given is None else given
        return usual, {"given": usual}
    if policy.score == "theoria":
        if given is not None:
            return given, {"given": given}
        return chunk.heuristic, {"heuristics": chunk.heuristic}
    novelty = 1.0 if chunk.vector is None else classify.novelty(chunk.vector, centroid)
    parts = {"novelty": novelty, "salience": chunk.salience}
    vault = classify.vault(novelty, chunk.salience)
    if policy.score == "vault":
        return vault, parts
    parts |= {"heuristics": chunk.heuristic, "given": given or 0.0}
    return classify.unified(vault, chunk.heuristic, given or 0.0), parts
