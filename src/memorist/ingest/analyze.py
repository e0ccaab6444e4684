"""From drafts to chunks: cleaned, split and classified, with everything known before the store is
asked.

Each derived value is computed once per chunk. All of it is pure, and happens before the write lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from ..ports import Vectors
from ..text import clock, entities, normalize, tokens
from ..text.entities import Entity
from ..text.statements import Clause, Statement, parse, parse_clause
from ..types import Draft, Kind, Memory, Outcome
from . import classify
from .chunk import by_meaning
from .policies import Policy

WINDOW = 200  # tokens by our count that surely fit into the 256 word pieces of the packaged model
SELF_CONTAINED = 4  # words; fewer say nothing without the turn before


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
    on_purpose: bool  # the person wants exactly this kept
    clause: Clause | None = None  # where contradictions are looked for
    about: list[Entity] = field(default_factory=list)  # names and topics
    tags: tuple[str, ...] = ()
    confidence: float = 0.0  # in the tags
    takes_tags: bool = False  # of memories that are near
    heuristic: float = 0.0  # importance by its words
    salience: float = 0.0
    key: str | None = None  # under which a newer preference replaces an older one
    vector: Vectors | None = None

    @property
    def during(self) -> dict[str, str]:
        """The session, as the history names it."""
        return {"session": self.session} if self.session else {}

    @cached_property
    def statement(self) -> Statement:
        return parse(self.text)

    def has_same_source(self, memory: Memory) -> bool:
        """Return whether one speaker in one role said both of one subject; a how-to is no
        statement.
        """
        draft, ours, theirs = self.draft, self.draft.labels, memory.labels
        if (draft.steps_text is not None) != (memory.procedural_form == "workflow"):
            return False
        source = (draft.speaker, ours.subject, ours.role)
        return source == (memory.speaker, theirs.subject, theirs.role)

    def is_comparable(self, memory: Memory) -> bool:
        """Return whether both can be about the same: one source, and no "yesterday" of two days.

        "I went there yesterday", said on two days, is two memories. A turn of a conversation is a
        repetition only in its own session and if it says something by itself: "Yes." answers
        another question each time.
        """
        if not self.has_same_source(memory):
            return False
        is_other_session = self.session not in (None, memory.labels.session)
        is_fragment = self.session is not None and len(self.text.split()) < SELF_CONTAINED
        if is_other_session or is_fragment:
            return False
        said, other = self.draft.at, memory.occurred_at
        is_same_day = (said and said.date()) == (other and other.date())
        return is_same_day or not clock.has_time(self.text)


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

    def refuse(self, reason: str) -> None:
        """End with a refusal."""
        message_id = self.draft.message_id
        self.outcome = Outcome(status="refused", reason=reason, message_id=message_id)


def is_turn(of: Draft | Memory) -> bool:
    """Return whether someone said it in a conversation; turns are kept apart, however alike."""
    return of.labels.session is not None and of.speaker is not None


def analyze(draft: Draft, policy: Policy) -> list[Chunk]:
    """Split a draft into chunks, and derive what can be known of each by its words."""
    text = normalize.clean(draft.text)
    if policy.longest is not None:
        text = normalize.one_line(text)[: policy.longest]
    minimum, maximum = policy.chunk or (0, WINDOW)
    texts = [text] if text else []
    if tokens.count_tokens(text) > maximum:  # more than the policy allows or the model can read
        texts = by_meaning(text, tokens.count_tokens, minimum, maximum)
    return [analyze_text(draft, text, policy) for text in texts]


def analyze_text(draft: Draft, text: str, policy: Policy) -> Chunk:
    """Return the chunk of a draft that has this text."""
    item_type = draft.item_type
    if policy.route == "item_type":
        item_type = classify.item_type(text, item_type)
    kind = draft.kind
    if policy.route == "signals":
        kind = cast(Kind, classify.kind(text, kind))
    elif kind is None and policy.route == "item_type" and item_type is not None:
        kind = cast(Kind, classify.kind_of(item_type))
    elif kind is None and policy.route == "default" and draft.message_id in (None, draft.id):
        found = cast(Kind, classify.kind(text))
        kind = "episodic" if found == "working" else found  # nothing ends with a session
    kind = kind or "episodic"
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
        on_purpose=draft.on_purpose,
    )
    if policy.conflicts and not made.is_turn:
        made.clause = parse_clause(text)
    if policy.keyed_preferences and kind == "procedural":
        line = normalize.one_line(text).lower().encode("utf-8", "surrogatepass")
        made.key = f"preference_{hashlib.sha256(line).hexdigest()[:12]}"
    if policy.score == "given":
        return made
    names = entities.entities(text)
    if policy.score != "heuristic":
        made.salience = classify.salience(text, names).total
    if policy.score != "novelty":
        # A turn of a conversation is about what the turns around it are about.
        made.takes_tags = draft.labels.session is None
        made.about = entities.about(text, names) if made.takes_tags else []
        made.tags, made.confidence = entities.tags(made.about)
        made.heuristic = classify.heuristic_importance(
            text,
            manually_saved=made.on_purpose,
            metadata_confidence=made.confidence,
            has_tags=bool(made.tags),
        )
    return made


def score(
    chunk: Chunk, policy: Policy, centroid: Vectors | None
) -> tuple[float, Mapping[str, float]]:
    """Return the importance of a chunk by the policy's measure, and its parts."""
    given, heuristic = chunk.draft.importance, chunk.heuristic
    if policy.score == "given":
        usual = policy.usual_importance if given is None else given
        return usual, {"given": usual}
    if policy.score == "heuristic":
        return (
            (heuristic, {"heuristics": heuristic}) if given is None else (given, {"given": given})
        )
    novelty = 1.0 if chunk.vector is None else classify.novelty(chunk.vector, centroid)
    parts = {"novelty": novelty, "salience": chunk.salience}
    by_novelty = classify.novelty_importance(novelty, chunk.salience)
    if policy.score == "novelty":
        return by_novelty, parts
    parts |= {"heuristics": heuristic, "given": given or 0.0}
    return classify.unified(by_novelty, heuristic, given or 0.0), parts
