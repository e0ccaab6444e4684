"""Recalling, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..embedders import checked
from ..errors import ProviderFailed, StoreDamaged
from ..index import WORKING, Corpus
from ..ports import Embedder, NearestRows, Reading, Reranker, Vectors
from ..text.derived import IS_EXTRACTED
from ..types import Cut, Hit, Memory, Query, Recall, Scope
from . import budget, candidates, diversify, external_index, gate, links, rank, rerank
from .candidates import Candidates
from .profiles import Profile
from .question import Question, understand
from .render import RENDERERS

MOST_PREFERENCES = 100  # looked at, where they all stand first


class Snapshots(Protocol):
    """Where the snapshot of a scope comes from, as a rule `Corpora`."""

    async def current(self, scope: Scope, source: Reading) -> Corpus: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieve:
    """What recalling needs beside the question."""

    store: Reading
    corpora: Snapshots
    embedder: Embedder | None
    reranker: Reranker | None
    count: Callable[[str], int]  # tokens of a text
    language: str
    index: NearestRows | None = None  # where the vectors of scopes are that are too large to hold


async def recall(query: Query, profile: Profile, parts: Retrieve, now: datetime) -> Recall:
    """Answer a question with what is remembered."""
    if not query.text.strip():
        return Recall(query=query, profile=profile.name, hits=(), text="", tokens=0)
    corpus, found, legs = await look(query, profile, parts, now, pool=_pool(profile, query.limit))
    found, memories = await read(corpus, found, query, parts.store, legs)
    found = await links.with_links(
        profile, query, with_words(profile, query, found, memories), memories, parts.store
    )
    found, memories = _ordered(profile, rank.scored(profile, found), memories)
    if profile.rerank and memories:
        found, memories, legs["rerank"] = await rerank.closer(
            query.text, profile, parts.reranker, found, memories
        )
    found, memories, weak = gate.kept(profile, found, memories)
    found, memories = _diversified(profile, corpus, found, memories, query.limit)
    if profile.sources_first:
        found, memories = _sources_first(found, memories, query.limit)
    if profile.preferences_first:
        found, memories = await _preferences_first(query, parts.store, found, memories)
    fitted = _fitted(query, profile, memories, parts.count)
    along = await links.beside(profile, query, [memories[i] for i in fitted.taken], parts.store)
    along, text = _with_related(query, profile, along, fitted.text, parts.count)
    cut = [
        Cut(id=memories[i].id, reason=why, score=float(found.score[i]))
        for i, why in fitted.cut.items()
    ]
    return Recall(
        query=query,
        profile=profile.name,
        hits=tuple(_hit(found, memories[i], i, parts.count) for i in fitted.taken),
        text=text,
        tokens=parts.count(text) if text else 0,
        cut=(*cut, *weak),
        related=tuple(along),
        legs=legs,
    )


def _pool(profile: Profile, limit: int) -> int:
    """How many candidates to read: few more than are wanted, where the steps after ranking keep the order."""
    if profile.candidates in ("dense", "recent"):
        return 0  # these specifications say how many, as `candidates` knows
    looks_closer = profile.rerank or profile.diversity is not None
    return max(30, 4 * limit) if looks_closer or profile.candidates != "blend" else limit + 2


async def look(
    query: Query, profile: Profile, parts: Retrieve, now: datetime, *, pool: int
) -> tuple[Corpus, Candidates, dict[str, str]]:
    """Find candidates: both legs over the scope, what the filter lets through, and which legs answered."""
    corpus = _view(await parts.corpora.current(query.scope, parts.store), query)
    allowed = await _allowed(corpus, query, profile, parts.store)
    question = understand(query.text, corpus.speakers, now, parts.language)
    by_meaning = profile.needs_meaning and len(query.text.strip()) >= profile.shortest
    vector, legs = (
        await _embedded(question, corpus, parts.embedder)
        if by_meaning
        else (None, {"sparse": "ok"})
    )
    if corpus.is_lean and vector is not None:
        corpus, said = await external_index.near(
            corpus,
            question.terms,
            vector,
            allowed,
            scope=query.scope,
            store=parts.store,
            index=parts.index,
        )
        legs["dense"] = said if legs["dense"] == "ok" else legs["dense"]
    if profile.sources_first and (corpus.flags & IS_EXTRACTED).any():
        pool *= 2  # some will stand behind
    channel = corpus.code("channel", query.labels.channel)
    found = candidates.find(
        profile,
        corpus,
        question,
        vector,
        allowed,
        channel=channel,
        limit=query.limit,
        pool=pool,
        now=now,
    )
    return corpus, found, legs


def _view(corpus: Corpus, query: Query) -> Corpus:
    """The scope with those memories alive that this question is about."""
    states = (*query.where.states, "compressed") if query.include_compressed else query.where.states
    return (
        corpus
        if states == ("active",) and query.as_of is None
        else corpus.seen_as(states, query.as_of)
    )


async def _allowed(
    corpus: Corpus, query: Query, profile: Profile, store: Reading
) -> NDArray[np.bool_]:
    """What the filter, asked of the store, and the profile let through."""
    allowed = corpus.alive
    if not query.where.is_plain:
        rows = await store.rows_where(query.scope, replace(query.where, states=()))
        allowed = allowed & np.isin(corpus.row, np.array(rows, np.int64))
    if not profile.working_elsewhere:
        here = corpus.session == corpus.code("session", query.labels.session)
        allowed = allowed & ((corpus.kind != WORKING) | here)
    return allowed


async def _embedded(
    question: Question, corpus: Corpus, embedder: Embedder | None
) -> tuple[Vectors | None, dict[str, str]]:
    """The question's vector, or why there is none."""
    if embedder is None:
        return None, {"sparse": "ok", "dense": "no embedding model is configured"}
    try:
        vector = (await checked.encode(embedder, [question.dense_text]))[0]
    except ProviderFailed as error:
        return None, {"sparse": "ok", "dense": str(error)}
    missing = (
        f"{corpus.unembedded} of {corpus.count} memories have no vector yet: run `memorist index`"
    )
    return vector, {"sparse": "ok", "dense": "ok" if corpus.is_embedded else missing}


async def read(
    corpus: Corpus, found: Candidates, query: Query, store: Reading, legs: dict[str, str]
) -> tuple[Candidates, list[Memory]]:
    """The candidates' memories; one that was erased a moment ago is left out, and one that was altered on disk."""
    rows = corpus.row[found.positions].tolist()
    memories = await _at(rows, query, store, legs)
    there = [i for i, row in enumerate(rows) if row in memories]
    kept = found if len(there) == len(rows) else found.taken(np.array(there, np.intp))
    return kept, [memories[rows[i]] for i in there]


async def _at(
    rows: list[int], query: Query, store: Reading, legs: dict[str, str]
) -> dict[int, Memory]:
    """Memories by row; if one of them is damaged, the others are read one by one and the answer says so."""
    try:
        return await store.at_rows(query.scope, rows)
    except StoreDamaged as error:
        legs["store"] = str(error)
    found: dict[int, Memory] = {}
    for row in rows:
        with suppress(StoreDamaged):
            found |= await store.at_rows(query.scope, [row])
    return found


def with_words(
    profile: Profile, query: Query, found: Candidates, memories: list[Memory]
) -> Candidates:
    """The candidates with their overlap in words, where the profile counts it."""
    if not profile.needs_text:
        return found
    return replace(
        found, features={**found.features, "lexical": rank.lexical(profile, query.text, memories)}
    )


def _ordered(
    profile: Profile, found: Candidates, memories: list[Memory]
) -> tuple[Candidates, list[Memory]]:
    """Best first; equals in the order the profile says, so that the same question gives the same answer."""
    order = list(range(len(memories)))
    if profile.only_semantic and rank.has_semantic(found):
        order = [i for i in order if found.score[i] > 0]
    order.sort(key=lambda i: _id(memories[i], profile), reverse=profile.ties != "row")
    digits = 6 if profile.ties == "newest" else 7  # as many as 32-bit features have
    order.sort(
        key=lambda i: (-round(float(found.score[i]), digits), *_TIES[profile.ties](memories[i]))
    )
    return found.taken(np.array(order, np.intp)), [memories[i] for i in order]


def _id(memory: Memory, profile: Profile) -> str:
    """What the caller knows a memory by."""
    return memory.source_message_id or memory.id if profile.ties == "milton" else memory.id


_TIES: dict[str, Callable[[Memory], tuple[float, ...]]] = {
    "row": lambda memory: (),
    "milton": lambda memory: (-memory.importance, -memory.created_at.timestamp()),
    "newest": lambda memory: (-memory.created_at.timestamp(),),
}


def _diversified(
    profile: Profile, corpus: Corpus, found: Candidates, memories: list[Memory], limit: int
) -> tuple[Candidates, list[Memory]]:
    if profile.diversity is None or len(memories) < 2:
        return found, memories
    tags = [frozenset(memory.tags) for memory in memories]
    checked = corpus.vectors(found.positions)
    order = diversify.order(found.score, checked, tags, trade=profile.diversity, k=4 * limit)
    return found.taken(np.array(order, np.intp)), [memories[i] for i in order]


def _sources_first(
    found: Candidates, memories: list[Memory], limit: int
) -> tuple[Candidates, list[Memory]]:
    """Behind all others, what was drawn out of turns that are among the first themselves: it says nothing new."""
    first = {memory.id for memory in memories[:limit]}
    told = [
        bool(memory.evidence_text and memory.evidence_ids) and first.issuperset(memory.evidence_ids)
        for memory in memories
    ]
    order = sorted(range(len(memories)), key=told.__getitem__)
    return (
        (found.taken(np.array(order, np.intp)), [memories[i] for i in order])
        if any(told)
        else (found, memories)
    )


async def _preferences_first(
    query: Query, store: Reading, found: Candidates, memories: list[Memory]
) -> tuple[Candidates, list[Memory]]:
    """All preferences stand before everything else, newest first, whether they match or not."""
    if query.where.kinds and "procedural" not in query.where.kinds:
        return found, memories
    there = [memory for memory in memories if memory.kind == "procedural"]
    if query.as_of is None:
        where = replace(query.where, kinds=("procedural",))
        there = list(
            (
                await store.page(query.scope, where, limit=max(query.limit, MOST_PREFERENCES))
            ).memories
        )
    first = [memory for memory in there if memory.procedural_form != "workflow"]
    first.sort(key=lambda memory: memory.updated_at, reverse=True)
    known = {memory.id: i for i, memory in enumerate(memories)}
    rest = [i for i, memory in enumerate(memories) if memory.kind != "procedural"]
    order = [known.get(memory.id, -1) for memory in first] + rest
    return found.taken(np.array(order, np.intp)), [*first, *(memories[i] for i in rest)]


def _fitted(
    query: Query, profile: Profile, memories: list[Memory], count: Callable[[str], int]
) -> budget.Fitted:
    caps = budget.Caps(limit=query.limit, tokens=query.budget, chars=query.max_chars)
    fit = budget.fit_content if profile.budget_of == "content" else budget.fit
    return fit(memories, caps, RENDERERS[profile.render], count)


def _with_related(
    query: Query, profile: Profile, along: list[Memory], text: str, count: Callable[[str], int]
) -> tuple[list[Memory], str]:
    """As many of the related as still fit, and the text with them."""
    taken: list[Memory] = []
    for memory in along:
        longer = f"{text}\n{RENDERERS[profile.render]([memory])} (related)"
        if budget.fits(
            longer, budget.Caps(limit=1, tokens=query.budget, chars=query.max_chars), count
        ):
            taken, text = [*taken, memory], longer
    return taken, text


def _hit(found: Candidates, memory: Memory, i: int, count: Callable[[str], int]) -> Hit:
    near = found.features.get("relevance", found.features.get("semantic"))
    return Hit(
        memory=memory,
        score=float(found.score[i]),
        parts=found.parts_of(i),
        relevance=0.0 if near is None else float(near[i]),
        tokens=count(memory.text),
    )
