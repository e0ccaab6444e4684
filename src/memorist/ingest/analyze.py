"""Analysis of drafts: they are cleaned, split into chunks and classified by rules.

Each derived value is computed once per chunk. All functions are pure and run before the write lock.
A kind or type given by the caller always wins; `request` and `result` can only be given. Importance
goes from 0 (skip) to 1 (vital). There are two measures, by novelty and by heuristics; `unified` is
the highest of them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np

from ..errors import InvalidInput
from ..ports import FindNames, Vectors
from ..text import clock, entities, normalize
from ..text.agent_records import is_decision
from ..text.cues import CHATTER, LONGEST_CHATTER, MOST_CHATTER, UNSPACED_CHATTER
from ..text.entities import Entity
from ..text.normalize import ClauseParts, split_clause
from ..text.statements import Statement, parse
from ..text.tokens import compile_all, count_tokens, load_patterns, word_table, words
from ..types import ITEM_TYPES, KINDS, Draft, Kind, Memory
from .chunk import by_meaning
from .policies import Policy

WINDOW = 200  # tokens that always fit into the 256 word pieces of the packaged model
SELF_CONTAINED = 4  # words; shorter turns depend on the previous turn
CHIT_CHAT = -0.1  # added to the importance, which is at least 0; parts of it show this
CONFIDENT_FROM = 0.6  # tags found with this confidence count in `heuristic_importance`
SALIENCE = {"entity": 0.3, "number": 0.2, "preference": 0.4, "technical": 0.1}
_KIND_OF = word_table("""
    procedural: preference procedural
    semantic: fact profile relationship project lore goals
    """)  # of everything else: episodic
_CATEGORIES = "event fact preference activity profile".split()  # in the order of the kinds
_PATTERNS = compile_all(load_patterns(__file__)["patterns"])


@dataclass(kw_only=True)
class Chunk:
    """The part of a draft that becomes one memory."""

    draft: Draft
    text: str
    content_hash: str
    simhash: int
    kind: Kind
    category: str
    item_type: str | None
    session: str | None
    is_turn: bool  # a turn of a conversation; a rewording of it is another turn
    on_purpose: bool  # the user asked to store exactly this
    clause: ClauseParts | None = None  # where contradictions are looked for
    about: list[Entity] = field(default_factory=list)  # names and topics
    tags: tuple[str, ...] = ()
    confidence: float = 0.0  # in the tags
    takes_tags: bool = False  # from near memories
    heuristic: float = 0.0  # importance by its words
    salience: float = 0.0
    key: str | None = None  # under which a newer preference replaces an older one
    vector: Vectors | None = None
    id: str | None = None  # of its memory, once it is created
    answers: bool = False  # it follows a question of the other side
    older: Sequence[tuple[Memory | Chunk, float]] = ()  # what it may replace, with the similarity
    earlier: int = 0  # number of memories before it
    # Whether it can repeat something: a short turn depends on the one before it.
    is_self_contained: bool = field(init=False)

    def __post_init__(self) -> None:
        words = len(self.text.split())
        self.is_self_contained = self.session is None or words >= SELF_CONTAINED

    @property
    def during(self) -> dict[str, str]:
        """The session, as metadata of a history entry."""
        return {"session": self.session} if self.session else {}

    @cached_property
    def statement(self) -> Statement:
        return parse(self.text)

    def has_same_source(self, memory: Memory) -> bool:
        """Return whether both have the same speaker, role, subject and form."""
        draft = self.draft
        if (draft.steps_text is not None) != (memory.procedural_form == "workflow"):
            return False
        source = (draft.speaker, draft.labels.subject, draft.labels.role)
        return source == (memory.speaker, memory.labels.subject, memory.labels.role)

    def is_comparable(self, memory: Memory) -> bool:
        """Return whether a chunk can repeat a memory: same source, and no relative dates.

        "I went there yesterday", said on two days, is two memories; in an extracted fact, such words
        are dates. A turn of a conversation repeats another one only if it is self-contained: "Yes."
        answers another question each time.
        """
        if not self.has_same_source(memory):
            return False
        if not self.is_self_contained:
            return False
        said = self.draft.at
        other = memory.occurred_at
        is_same_day = (said and said.date()) == (other and other.date())
        is_extracted = bool(self.draft.evidence_ids)
        return is_same_day or is_extracted or not clock.has_time(self.text)


def is_turn(of: Draft | Memory) -> bool:
    """Return whether it is a turn of a conversation."""
    return of.labels.session is not None and of.speaker is not None


def analyze(draft: Draft, policy: Policy, find: FindNames | None = None) -> list[Chunk]:
    """Split a draft into chunks, and classify each by its words and the names in it.

    Names are found by rules unless `find` finds them.
    """
    is_said = is_turn(draft)
    chunks = []
    for text in split(draft.text, policy):
        content_hash = normalize.content_hash(text)
        simhash = normalize.simhash64(text)
        linkless = normalize.remove_links(text)
        clause = split_clause(text) if policy.conflicts and not is_said else None
        names: list[Entity] = []
        about: list[Entity] = []
        takes_tags = policy.score not in ("given", "novelty")
        has_salience = policy.score not in ("given", "heuristic")
        if policy.score != "given":
            names = entities.entities(linkless) if find is None else find(text)
            about = entities.about(linkless, names) if takes_tags else []
        tags, confidence = entities.tags(about)
        is_technical = has_salience and entities.is_technical(linkless)
        item_type = draft.item_type
        kind: str | None = draft.kind
        if policy.route == "item_type":
            item_type = choose_item_type(text, item_type)
            kind = kind or usual_kind(item_type)
        elif policy.route == "signals":
            kind = choose_kind(text, kind)
        elif kind is None and policy.route == "default" and draft.message_id in (None, draft.id):
            found = choose_kind(text)
            is_passing = found != "procedural" and _has("now", text)
            kind = "episodic" if is_passing else found  # it is kept beyond the session
        kind = kind or "episodic"
        recorded = "decision" if draft.labels.role == "assistant" and is_decision(text) else None
        chunk = Chunk(
            draft=draft,
            text=text,
            kind=cast(Kind, kind),
            category=draft.category or choose_category(kind, item_type or recorded),
            item_type=item_type,
            session=draft.labels.session,
            is_turn=is_said,
            on_purpose=draft.pinned or draft.manually_saved,
            content_hash=content_hash,
            simhash=simhash,
            clause=clause,
            about=about,
            tags=tags,
            confidence=confidence,
            takes_tags=takes_tags,
        )
        chunks.append(chunk)
        if policy.keyed_preferences and kind == "procedural":
            line = normalize.one_line(text).lower().encode("utf-8", "surrogatepass")
            chunk.key = f"preference_{hashlib.sha256(line).hexdigest()[:12]}"
        if has_salience:
            signals = find_signals(text, names, is_technical=is_technical)
            chunk.salience = min(1.0, round(sum(signals.values()), 9))
        if takes_tags:
            chunk.heuristic = heuristic_importance(
                text,
                manually_saved=chunk.on_purpose,
                metadata_confidence=confidence,
                has_tags=bool(tags),
            )
    return chunks


def split(text: str, policy: Policy) -> list[str]:
    """Return the cleaned text, split as the policy or the model requires."""
    text = normalize.clean(text)
    if policy.longest is not None:
        text = normalize.one_line(text)[: policy.longest]
    minimum, maximum = policy.chunk or (0, WINDOW)
    if minimum or count_tokens(text) > maximum:
        return by_meaning(text, count_tokens, minimum, maximum)
    return [text] if text else []


def _has(pattern: str, text: str) -> bool:
    return _PATTERNS[pattern].search(text) is not None


def is_preference(text: str) -> bool:
    """Return whether someone likes, dislikes or prefers something.

    >>> is_preference("We can't stand loud music"), is_preference("It rained")
    (True, False)
    """
    return _has("liking", " ".join(text.split())) or _has("preference", text)


def is_commitment_or_goal(text: str) -> bool:
    """Return whether someone commits to something, plans it or has it as a goal.

    >>> is_commitment_or_goal("My goal is a marathon"), is_commitment_or_goal("It rained")
    (True, False)
    """
    return _has("commitment", " ".join(text.split()))


def is_fact(text: str) -> bool:
    """Return whether the text has a subject, a predicate and an object.

    >>> is_fact("My sister lives in Oslo"), is_fact("We went home")
    (True, False)
    """
    line = " ".join(text.split())
    return _has("fact", line) and not _has("question", line)


def is_chit_chat(text: str) -> bool:
    """Return whether a text is only a greeting, thanks, a filler or an emoji.

    >>> [is_chit_chat(text) for text in ("haha ok, thanks!", "👍", "Thanks, my flight is at 9")]
    [True, True, False]
    """
    line = " ".join(text.split())
    if line.strip(" !.。！~") in UNSPACED_CHATTER:
        return True
    if len(line) > LONGEST_CHATTER:
        return False
    found = words(line)
    return len(found) <= MOST_CHATTER and CHATTER.issuperset(found)


def choose_kind(text: str, hint: str | None = None) -> str:
    """Return the kind of a memory: the hint, else procedural, working, semantic or episodic.

    Working is what is about the current session, not every statement with a word for now.

    >>> [choose_kind(text) for text in ("I prefer tea", "I am on a train now", "We went home")]
    ['procedural', 'working', 'episodic']
    >>> choose_kind("My sister now lives in Oslo")
    'semantic'
    """
    if hint is not None:
        _check(hint, KINDS, "kind")
        return hint
    if _has("preference", text):
        return "procedural"
    if _has("session", text):
        return "working"
    return "semantic" if is_fact(text) else "episodic"


def choose_item_type(text: str, given: str | None = None) -> str:
    """Return which of the seven item types a text has; a type given by the caller wins.

    >>> [choose_item_type(text) for text in ("I love rye bread", "We decided to use Go", "hm")]
    ['preference', 'decision', 'crumb']
    >>> choose_item_type("Turn on the lights", given="request")
    'request'
    """
    if given is not None:
        _check(given, ITEM_TYPES, "item type")
        return given
    line = " ".join(text.split())
    if _has("question", line) or is_chit_chat(line):
        return "crumb"
    if _has("choice", line):
        return "decision"
    if is_preference(line):
        return "preference"
    if _has("project", line):
        return "project"
    return "fact" if is_fact(line) and not _has("now", line) else "crumb"


def choose_category(kind: str, item_type: str | None = None) -> str:
    """Return the category of a memory: its type if it has one, else the default of its kind.

    >>> choose_category("semantic"), choose_category("episodic", "decision")
    ('fact', 'decision')
    """
    if item_type:
        return item_type
    _check(kind, KINDS, "kind")
    return _CATEGORIES[KINDS.index(kind)]


def usual_kind(category: str) -> str:
    """Return the usual kind of the memories of a type or category.

    >>> usual_kind("preference"), usual_kind("relationship"), usual_kind("something else")
    ('procedural', 'semantic', 'episodic')
    """
    return _KIND_OF.get(category.lower(), "episodic")


def _check(value: str, choices: Sequence[str], what: str) -> None:
    if value not in choices:
        raise InvalidInput(f"Unknown {what} {value!r}; choose one of {', '.join(choices)}")


def novelty(vector: Vectors, centroid: Vectors | None) -> float:
    """Return the cosine distance to the known memories, from 0 to 1; 1 if there are none.

    The centroid may be a plain sum of vectors: only its direction counts.

    >>> novelty(np.array([1.0, 0.0]), np.array([3.0, 0.0])), novelty(np.array([1.0, 0.0]), None)
    (0.0, 1.0)
    """
    if centroid is None:
        return 1.0
    lengths = float(np.linalg.norm(vector)) * float(np.linalg.norm(centroid))
    if lengths == 0.0 or not math.isfinite(lengths):
        return 1.0
    return _clamp(1.0 - float(np.dot(vector, centroid)) / lengths)


def find_signals(
    text: str, names: Sequence[Entity], *, is_technical: bool = False
) -> dict[str, float]:
    """Return the signals that make a text with these names salient, with their weights.

    >>> find_signals("I prefer tea at 4", names=[])
    {'number': 0.2, 'preference': 0.4}
    """
    found = {
        "entity": names,
        "number": _has("number_or_date", text),
        "preference": _has("preference", text),
        "technical": is_technical,
    }
    return {signal: SALIENCE[signal] for signal, is_there in found.items() if is_there}


def novelty_importance(novelty: float, salience: float) -> float:
    """Return the importance by novelty and salience, weighted 0.6 and 0.4.

    >>> novelty_importance(0.5, 0.9)
    0.66
    """
    return _clamp(0.6 * novelty + 0.4 * salience)


def heuristic_importance(
    text: str,
    manually_saved: bool = False,
    metadata_confidence: float = 0.0,
    has_tags: bool = False,
) -> float:
    """Return the importance by explicit saves, preferences, goals, tags and chit-chat.

    >>> heuristic_importance("I prefer tea", manually_saved=True), heuristic_importance("ok thanks")
    (0.8, 0.0)
    """
    score = 0.5 if manually_saved else 0.0
    if is_preference(text) or is_commitment_or_goal(text):
        score += 0.3
    if has_tags and metadata_confidence >= CONFIDENT_FROM:
        score += 0.2
    if is_chit_chat(text):
        score += CHIT_CHAT
    return max(0.0, round(score, 12))


def unified(*measures: float) -> float:
    """Return the highest of the measures.

    >>> unified(0.16, 0.3), unified(0.16, 0.3, 0.8)
    (0.3, 0.8)
    """
    return _clamp(max(measures))


def is_kept(importance: float, gate: float, on_purpose: bool) -> bool:
    """Return whether a chunk passes the gate; what the user saved or pinned always does.

    >>> is_kept(0.3, 0.3, False), is_kept(0.29, 0.3, False), is_kept(0.0, 0.3, True)
    (True, False, True)
    """
    return on_purpose or importance >= gate


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, round(value, 12)))  # rounded, so that 0.1 + 0.2 is 0.3
