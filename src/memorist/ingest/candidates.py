"""Which memories a chunk may repeat or contradict.

Near rows are found in the arrays of the snapshot, before anything is read. Then the memories are
compared: exactly, by fingerprint, or in other words with the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from ..text import compare, contradictions, dates, normalize, tokens
from ..text.entities import Entity
from ..text.statements import parse
from ..types import Memory
from . import transitions
from .analyze import Chunk
from .policies import Bands, Policy

MOST = 5  # memories compared for each question
MOST_TAGS = 3  # taken over from near memories
TOGETHER = 32  # chunks compared with the scope at a time: bounds the memory that it needs
SELF_CONTAINED = 4  # words; fewer say nothing without the turn before
_SAID_AS = {"live": "live moved relocated", "work": "work joined started"}
# Like all tags with a colon, these say something about one memory alone.
_OWN_TAGS = ("source-forgotten", "do_not_assume")

NearRows = Mapping[str, Mapping[int, float]]  # rows of the store with their cosine, by chunk text


class Duplicate(NamedTuple):
    """A memory that holds what a chunk says, and whether the chunk says more than that, or less."""

    memory: Memory
    verdict: compare.Verdict


def find_near_rows(snapshot: Snapshot, chunks: Sequence[Chunk], policy: Policy) -> NearRows:
    """Return the rows that each chunk has to be compared with, by cosine and by subject."""
    if policy.bands is None and not policy.conflicts:
        return {}
    by_text = {chunk.text: chunk for chunk in chunks if not chunk.is_turn}
    usable = snapshot.alive & ((snapshot.session < 0) | (snapshot.speaker < 0))
    if not by_text or not usable.any():
        return {}
    low = (policy.bands or Bands()).check_low
    found = {}
    for chunk, cosines in _compare_with_all(snapshot, list(by_text.values())):
        chosen = _pick_best(np.flatnonzero((cosines >= low) & usable), cosines)
        if policy.conflicts:
            same_subject = _find_same_subject(snapshot, chunk) & usable
            chosen |= _pick_best(np.flatnonzero(same_subject), cosines)
        rows = {int(snapshot.row[at]): float(cosines[at]) for at in sorted(chosen)}
        found[chunk.text] = rows
    return found


def _compare_with_all(
    snapshot: Snapshot, chunks: Sequence[Chunk]
) -> Iterator[tuple[Chunk, NDArray[np.float32]]]:
    """Yield each chunk with its cosine to every position; 0 where either has no vector."""
    nothing = np.zeros(snapshot.dimensions, np.float32)
    for start in range(0, len(chunks), TOGETHER):
        few = chunks[start : start + TOGETHER]
        if snapshot.is_lean:
            cosines = np.zeros((snapshot.n, len(few)), np.float32)
        else:
            vectors = [nothing if chunk.vector is None else chunk.vector for chunk in few]
            cosines = snapshot.similarity(np.stack(vectors, axis=1))
        yield from zip(few, np.ascontiguousarray(cosines.T), strict=True)


def _find_same_subject(snapshot: Snapshot, chunk: Chunk) -> NDArray[np.bool_]:
    """Mark what has the same subject and verb: another city may be far away as a vector, too."""
    nowhere = np.zeros(snapshot.n, np.bool_)
    if chunk.clause is None:
        return nowhere
    verb = chunk.clause.verb.removesuffix("s")
    found: NDArray[np.bool_] | None = None
    for words in (*chunk.clause.subject.split(), _SAID_AS.get(verb, verb)):
        stems = tokens.analyze(words)
        if not stems:
            continue
        here = nowhere.copy()
        for stem in stems:
            here[snapshot.postings(tokens.term_id(stem))[0]] = True
        found = here if found is None else found & here
        if not found.any():
            break
    return nowhere if found is None else found


def _pick_best(positions: NDArray[np.intp], cosines: NDArray[np.float32]) -> set[int]:
    """Return the few with the highest cosine; of equals, the latest."""
    order = np.lexsort((-positions, -cosines[positions]))[:MOST]
    return set(positions[order].tolist())


def find_near_fingerprints(snapshot: Snapshot, chunks: Iterable[Chunk]) -> set[int]:
    """Return the rows whose SimHash differs from that of a chunk in few bits."""
    rows: set[int] = set()
    for chunk in chunks:
        positions = normalize.find_near(snapshot.simhash, chunk.simhash)
        rows.update(snapshot.row[positions[snapshot.alive[positions]]].tolist())
    return rows


def have_same_source(chunk: Chunk, memory: Memory) -> bool:
    """Return whether one speaker in one role said both of one subject; a how-to is no statement."""
    draft, ours, theirs = chunk.draft, chunk.draft.labels, memory.labels
    if (draft.steps_text is not None) != (memory.procedural_form == "workflow"):
        return False
    if draft.speaker != memory.speaker:
        return False
    return (ours.subject, ours.role) == (theirs.subject, theirs.role)


def is_comparable(chunk: Chunk, memory: Memory) -> bool:
    """Return whether both can be about the same: one source, and no "yesterday" of two days.

    "I went there yesterday", said on two days, is two memories. A turn of a conversation is a
    repetition only in its own session and if it says something by itself: "Yes." answers another
    question each time.
    """
    if not have_same_source(chunk, memory):
        return False
    is_other_session = chunk.session not in (None, memory.labels.session)
    is_fragment = chunk.session is not None and len(chunk.text.split()) < SELF_CONTAINED
    if is_other_session or is_fragment:
        return False
    said, other = chunk.draft.at, memory.occurred_at
    is_same_day = (said and said.date()) == (other and other.date())
    return is_same_day or not dates.has_time(chunk.text)


def find_exact(chunk: Chunk, memories: Iterable[Memory]) -> Duplicate | None:
    """Return a memory with the same words."""
    for memory in memories:
        if memory.content_hash == chunk.content_hash and is_comparable(chunk, memory):
            return Duplicate(memory, "same")
    return None


def find_by_fingerprint(chunk: Chunk, memories: Iterable[Memory]) -> Duplicate | None:
    """Return the nearest memory whose fingerprint differs in few bits and which says the same."""
    close = []
    for memory in memories:
        distance = normalize.distance(chunk.simhash, memory.simhash)
        if distance <= normalize.NEAR:
            close.append((distance, memory.id, memory))
    for _, _, memory in sorted(close, key=lambda each: each[:2]):
        if duplicate := _compare(chunk, memory):
            return duplicate
    return None


def find_reworded(
    chunk: Chunk, neighbors: Iterable[tuple[float, Memory]], bands: Bands
) -> Duplicate | None:
    """Return the nearest memory that says the same in other words; a very near one may say less."""
    for cosine, memory in neighbors:
        duplicate = _compare(chunk, memory) if cosine >= bands.check_low else None
        if duplicate is None:
            continue
        is_extended = duplicate.verdict == "more" and cosine >= bands.auto_update
        if duplicate.verdict == "same" or is_extended:
            return duplicate
    return None


def _compare(chunk: Chunk, memory: Memory) -> Duplicate | None:
    if not is_comparable(chunk, memory):
        return None
    if chunk.content_hash == memory.content_hash:
        return Duplicate(memory, "same")
    verdict = compare.verdict(chunk.statement, parse(memory.text))
    return None if verdict == "other" else Duplicate(memory, verdict)


def find_contradicted(
    chunk: Chunk, neighbors: Iterable[tuple[float, Memory]], now: datetime
) -> Memory | None:
    """Return the memory that a chunk replaces, because it gives another value to an attribute.

    What is said late about an earlier time replaces nothing, and "tomorrow" is another day on
    another day.
    """
    if chunk.clause is None:
        return None
    since = chunk.draft.at or chunk.draft.told_at or now
    for _, memory in neighbors:
        held = transitions.held_since(memory)
        if since < held or not have_same_source(chunk, memory):
            continue
        if not contradictions.contradicts(chunk.statement, parse(memory.text)):
            continue
        if since.date() == held.date() or not contradictions.is_relative(
            f"{chunk.text} {memory.text}"
        ):
            return memory
    return None


def propose_tags(chunk: Chunk, neighbors: Iterable[tuple[float, Memory]]) -> list[Entity]:
    """Return the tags that most of the near memories have, weighted by their cosine.

    Only what one speaker said in one role about one subject lends tags to each other. A tag that
    stands in the words of a neighbor is its own: what is near to "Anna likes tea" need not be about
    Anna.
    """
    votes: dict[str, float] = {}
    count, total = 0, 0.0
    for cosine, memory in neighbors:
        if memory.item_type != chunk.draft.item_type or not have_same_source(chunk, memory):
            continue
        count, total = count + 1, total + cosine
        words = memory.text.casefold()
        for tag in memory.tags:
            if tag not in words and tag not in _OWN_TAGS and ":" not in tag:
                votes[tag] = votes.get(tag, 0.0) + cosine
    best = sorted((-vote, tag) for tag, vote in votes.items() if 2 * vote >= total)[:MOST_TAGS]
    return [Entity(text=tag, confidence=-vote / count) for vote, tag in best]
