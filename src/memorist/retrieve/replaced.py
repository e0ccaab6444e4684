"""What may replace a memory comes before it, or in its place: an answer begins with what is true now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..storage import Relation
from ..storage.queries import Reader
from ..text.parts import answers_alike, find_asked
from ..text.statements import says_more
from ..text.subjects import answers_instead
from ..types import REPLACES, Cut, Memory, Query
from .score import Candidate

TRUST = 8.0  # how much more an uncertain change reaches, times its probability
DOUBT = 0.25  # how far the verdict on a change may be below that on the older statement
REPEATED = "it repeats a turn"
_TIE = 1e-9  # how far what replaces a memory is above it


async def put_current_first(
    ranked: Sequence[Candidate],
    query: Query,
    store: Reader,
    is_open: bool,
) -> tuple[list[Candidate], list[Cut]]:
    """Put what may replace a candidate before it; if that is certain, in its place.

    A turn such as "it is ten now" may not match the question: it takes over the score and the
    confidence of what it replaces, unless the question is about another part of that, by its words
    or because the verifier clearly prefers that. A candidate that says more than what was replaced
    stays, unless a fact of it that is still valid, and says nothing else, answers the question as
    well. A pinned one is always returned with what may replace it. An uncertain change comes first
    only if it matches the question itself, the better the less likely it is, and if the verifier
    does not clearly prefer the older one; if it has ended by now, what ended it comes first instead.
    What is no candidate is only added if the question `is_open`.
    """
    by_id = {each.memory.id: each for each in ranked}
    pairs = await store.links(query.scope, list(by_id), REPLACES)
    restating = _find_restating(ranked, pairs)
    newer = {pair.from_id for pair in pairs} - by_id.keys()
    added = await store.get(query.scope, sorted(newer)) if newer and is_open else []
    memories = {memory.id: memory for memory in added}
    memories |= {id: each.memory for id, each in by_id.items()}
    certain, uncertain = _split(pairs, memories)
    ended_by = {pair.to_id: pair.from_id for pair in certain}
    cut: dict[str, Cut] = {}
    for pair in (*certain, *uncertain):
        is_certain = pair.to_id in ended_by
        id = pair.from_id if is_certain else _follow(pair.from_id, ended_by)
        old, new = by_id[pair.to_id], by_id.get(id)
        text = old.memory.text
        memory = memories[id]
        restated = answers_alike(query.text, text, restating[pair.to_id])
        asks_another = find_asked(query.text, text, memory.text) == "another"
        asks_another |= is_certain and says_more(text) and _is_clearly_better(old, new)
        if is_certain and (restated or not (asks_another or says_more(text))):
            cut[pair.to_id] = old.cut(f"it was replaced by {id}")
        if asks_another:
            continue
        if not is_certain and not _may_come_first(query, old, new, memory, pair.strength):
            continue
        if new is None:
            new = replace(old, memory=memory, parts={}, features={}, score=0.0)
        if new.score <= old.score:
            total = old.score + _TIE
            parts = {**new.parts, "current": total - new.score}
            new = replace(new, parts=parts, score=total, confidence=old.confidence)
        by_id[id] = new
    kept = [each for id, each in by_id.items() if id not in cut]
    cut |= {each.memory.id: each.cut(REPEATED) for each in _find_repeats(kept)}
    kept = [each for each in kept if each.memory.id not in cut]
    return sorted(kept, key=lambda each: -each.score), list(cut.values())


def _find_repeats(kept: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yield facts that only repeat a turn which matches as well."""
    ordered = sorted(kept, key=lambda each: (-each.score, bool(each.memory.evidence_text)))
    better: dict[str, Memory] = {}
    for each in ordered:
        if repeats_any(each.memory, better):
            yield each
        better[each.memory.id] = each.memory


def repeats_any(fact: Memory, turns: Mapping[str, Memory]) -> bool:
    """Return whether a fact only repeats one of the turns, by id.

    Of an outdated turn it may be the part that still holds, unless it says several things.
    """
    sources = [turns[id] for id in fact.evidence_ids if id in turns]
    if not sources or not fact.evidence_text:
        return False
    return says_more(fact.text) or any(turn.valid_to is None for turn in sources)


def _find_restating(ranked: Iterable[Candidate], pairs: Iterable[Relation]) -> dict[str, str]:
    """Return what restates each memory that may have been replaced, and still holds."""
    restating = {pair.to_id: "" for pair in pairs}
    for each in ranked:
        restated_ids = restating.keys() & each.memory.evidence_ids
        if restated_ids and each.memory.valid_to is None and not says_more(each.memory.text):
            for id in restated_ids:
                restating[id] += f"{each.memory.text}\n"
    return restating


def _split(
    pairs: Iterable[Relation],
    memories: Mapping[str, Memory],
) -> tuple[list[Relation], list[Relation]]:
    """Return what ended a memory, and what may have replaced one that has not ended, oldest first.

    What was said before a memory ended did not end it, unless that was never valid.
    """
    certain = []
    uncertain = []
    for pair in sorted(pairs, key=lambda pair: pair.at):
        if pair.from_id not in memories:
            continue
        new, old = memories[pair.from_id], memories[pair.to_id]
        starts = [each.valid_from or each.created_at for each in (new, old)]
        if old.valid_to is None:
            uncertain.append(pair)
        elif max(starts) >= old.valid_to:
            certain.append(pair)
    return certain, uncertain


def _follow(id: str, ended_by: Mapping[str, str]) -> str:
    """Return what has ended a memory, and that in turn, and so on; itself if it has not ended."""
    for _ in ended_by:
        if id not in ended_by:
            break
        id = ended_by[id]
    return id


def _may_come_first(
    query: Query,
    old: Candidate,
    new: Candidate | None,
    memory: Memory,
    strength: float,
) -> bool:
    """Return whether a memory that may have replaced a candidate comes before it."""
    if old.memory.pinned:
        return True
    reach = new.unverified * (1.0 + TRUST * strength) if new is not None else 0.0
    if reach < old.unverified:
        return False
    if new is not None and "verdict" in new.parts:
        return not _is_clearly_better(old, new)
    return answers_instead(query.text, memory.text, old.memory.text)


def _is_clearly_better(old: Candidate, new: Candidate | None) -> bool:
    """Return whether the verifier clearly prefers an older statement to a newer one."""
    if new is None or "verdict" not in new.parts:
        return False
    return old.verdict > new.verdict + DOUBT
