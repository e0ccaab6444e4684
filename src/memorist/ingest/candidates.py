"""Which memories a chunk may say again or contradict: found in the arrays of the snapshot, before anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..index import Corpus
from ..ports import Vectors
from ..text import tokens
from ..text.statements import parse
from ..types import Memory
from .chunk import Chunk
from .policies import Bands, Policy

MOST = 5  # memories looked at for each question
TOGETHER = 32  # chunks compared with the scope at a time: bounds the memory that it needs
_SAID_AS = {"live": ("live", "moved", "relocated"), "work": ("work", "joined", "started")}

Kin = dict[int, float]  # rows of the store, with their cosine


@dataclass(frozen=True, slots=True)
class Near:
    """What is near each chunk, by its text."""

    rows: Mapping[str, Kin]

    def all(self) -> set[int]:
        return {row for kin in self.rows.values() for row in kin}


def is_turn(chunk: Chunk | Memory) -> bool:
    """Whether somebody said it in a conversation; such turns stand for themselves, however alike they are."""
    told = chunk.draft if isinstance(chunk, Chunk) else chunk
    return told.labels.session is not None and told.speaker is not None


def found(
    corpus: Corpus, chunks: Sequence[Chunk], vectors: Mapping[str, Vectors], policy: Policy
) -> Near:
    """The memories of a scope that each chunk has to be compared with, by cosine and by what they speak of."""
    if policy.bands is None and not policy.conflicts:
        return Near({})
    texts = list(dict.fromkeys(chunk.text for chunk in chunks if not is_turn(chunk)))
    usable = corpus.alive & ((corpus.session < 0) | (corpus.speaker < 0))
    if not texts or not usable.any():
        return Near({})
    made: dict[str, Kin] = {}
    for text, cosines in _similar(corpus, texts, vectors):
        chosen = _nearest(corpus, cosines, usable, (policy.bands or Bands()).check_low)
        if policy.conflicts:
            chosen |= _rivals(corpus, text, cosines, usable)
        made[text] = {int(corpus.row[at]): float(cosines[at]) for at in sorted(chosen)}
    return Near(made)


def _similar(
    corpus: Corpus, texts: Sequence[str], vectors: Mapping[str, Vectors]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each text with its cosine to every position; 0 where either has no vector."""
    nothing = np.zeros(corpus.dimensions, np.float32)
    for start in range(0, len(texts), TOGETHER):
        few = texts[start : start + TOGETHER]
        stacked = np.stack([vectors.get(text, nothing) for text in few], axis=1)
        near = (
            np.zeros((corpus.n, len(few)), np.float32)
            if corpus.is_lean
            else corpus.similarity(stacked)
        )
        yield from zip(few, np.ascontiguousarray(near.T), strict=True)


def _nearest(
    corpus: Corpus, cosines: NDArray[np.float32], usable: NDArray[np.bool_], low: float
) -> set[int]:
    return _best(np.flatnonzero((cosines >= low) & usable), cosines)


def _rivals(
    corpus: Corpus, text: str, cosines: NDArray[np.float32], usable: NDArray[np.bool_]
) -> set[int]:
    """Where the same is spoken of, however far the vectors are: another city is another place in their space, too."""
    read = parse(text).clause
    if read is None:
        return set()
    verb = read.verb.removesuffix("s")
    groups = [tokens.analyze(word) for word in read.subject.split()]
    groups.append([stem for word in _SAID_AS.get(verb, (verb,)) for stem in tokens.analyze(word)])
    left: NDArray[np.bool_] | None = None
    for stems in filter(None, groups):
        here = np.zeros(corpus.n, np.bool_)
        for stem in stems:
            here[corpus.postings(tokens.term_id(stem))[0]] = True
        left = here if left is None else left & here
    return set() if left is None else _best(np.flatnonzero(left & usable), cosines)


def _best(positions: NDArray[np.intp], cosines: NDArray[np.float32]) -> set[int]:
    """The few with the highest cosine; of equals, the latest."""
    order = np.lexsort((-positions, -cosines[positions]))[:MOST]
    return {int(at) for at in positions[order]}
