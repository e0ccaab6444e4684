"""From drafts to chunks: cleaned, split and classified, with everything known before the store is
asked.

Each derived value is computed once per chunk. All of it is pure, and happens before the write lock.
"""

from __future__ import annotations

import hashlib
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
        draft = self.draft
        if (draft.steps_text is not None) != (memory.procedural_form == "workflow"):
            return False
        source = (draft.speaker, draft.labels.subject, draft.labels.role)
        return source == (memory.speaker, memory.labels.subject, memory.labels.role)

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
        said = self.draft.at
        other = memory.occurred_at
        is_same_day = (said and said.date()) == (other and other.date())
        return is_same_day or not clock.has_time(self.text)


@dataclass(slots=True)
class Item:
    """One draft on its way through the pipeline."""

    draft: Draft  # with no more authority than its speaker has
    outcome: Outcome | None = None  # None: it is still on its way
    chunks: list[Chunk] = field(default_factory=list)
    note: str = ""  # for the caller, if it is created with less authority than was asked for

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


def is_on_purpose(draft: Draft) -> bool:
    """Return whether the person wants exactly this kept."""
    return draft.pinned or draft.manually_saved


def analyze(draft: Draft, policy: Policy) -> list[Chunk]:
    """Split a draft into chunks, and derive what can be known of each by its words."""
    is_said = is_turn(draft)
    chunks = []
    for text in _split(draft.text, policy):
        item_type = draft.item_type
        kind: str | None = draft.kind
        if policy.route == "item_type":
            item_type = classify.item_type(text, item_type)
            kind = kind or classify.kind_of(item_type)
        elif policy.route == "signals":
            kind = classify.kind(text, kind)
        elif kind is None and policy.route == "default" and draft.message_id in (None, draft.id):
            found = classify.kind(text)
            kind = "episodic" if found == "working" else found  # nothing ends with a session
        kind = kind or "episodic"
        chunk = Chunk(
            draft=draft,
            text=text,
            kind=cast(Kind, kind),
            category=draft.category or classify.category(kind, item_type),
            item_type=item_type,
            session=draft.labels.session,
            is_turn=is_said,
            on_purpose=is_on_purpose(draft),
            content_hash=normalize.content_hash(text),
            simhash=normalize.simhash64(text),
        )
        chunks.append(chunk)
        if policy.conflicts and not is_said:
            chunk.clause = parse_clause(text)
        if policy.keyed_preferences and kind == "procedural":
            line = normalize.one_line(text).lower().encode("utf-8", "surrogatepass")
            chunk.key = f"preference_{hashlib.sha256(line).hexdigest()[:12]}"
        if policy.score == "given":
            continue
        names = entities.entities(text)
        # A turn of a conversation is about what the turns around it are about.
        chunk.takes_tags = chunk.session is None and policy.score != "novelty"
        chunk.about = entities.about(text, names) if chunk.takes_tags else []
        chunk.tags, chunk.confidence = entities.tags(chunk.about)
        if policy.score != "heuristic":
            chunk.salience = classify.salience(text, names).total
        if policy.score != "novelty":
            chunk.heuristic = classify.heuristic_importance(
                text,
                manually_saved=chunk.on_purpose,
                metadata_confidence=chunk.confidence,
                has_tags=bool(chunk.tags),
            )
    return chunks


def _split(text: str, policy: Policy) -> list[str]:
    """Return the cleaned text, in as many parts as the policy asks for or the model needs."""
    text = normalize.clean(text)
    if policy.longest is not None:
        text = normalize.one_line(text)[: policy.longest]
    minimum, maximum = policy.chunk or (0, WINDOW)
    if tokens.count_tokens(text) > maximum:
        return by_meaning(text, tokens.count_tokens, minimum, maximum)
    return [text] if text else []
