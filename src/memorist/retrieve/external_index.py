"""The dense leg of a scope whose vectors another index holds.

The index is asked for what is near, and nothing more is believed of it: what is not in the scope is dropped, and every
cosine is worked out again from the store's own vectors. The best matches by words are measured too, so that without
the index, or with one that is behind, an answer is poorer and never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ProviderFailed
from ..index import Corpus
from ..ports import NearestRows, Reading, Vectors
from ..types import Scope
from . import sparse

ASKED = 200  # rows wanted of the index
BY_WORDS = 200  # of the best matches by words
EXACT = 2_000  # where a filter lets through no more than this, all of it is measured


async def near(
    corpus: Corpus,
    terms: Sequence[int],
    vector: Vectors,
    allowed: NDArray[np.bool_],
    *,
    scope: Scope,
    store: Reading,
    index: NearestRows | None,
) -> tuple[Corpus, str]:
    """The corpus with the vectors that matter to this question, and how the leg fared."""
    said = "ok"
    if int(allowed.sum()) <= min(EXACT, corpus.count - 1):
        rows = corpus.row[allowed].tolist()
    else:
        found, said = await _asked(index, scope, vector, corpus.revision)
        rows = [*found, *corpus.row[_best_by_words(corpus, terms, allowed)].tolist()]
    return corpus.with_near(
        await store.vectors(scope, list(dict.fromkeys(rows)), model=corpus.model)
    ), said


async def _asked(
    index: NearestRows | None, scope: Scope, vector: Vectors, revision: int
) -> tuple[list[int], str]:
    if index is None:
        return [], "no vector index is configured for a scope of this size"
    try:
        return await index.nearest(scope, vector, limit=ASKED, revision=revision)
    except ProviderFailed as error:
        return [], str(error)


def _best_by_words(
    corpus: Corpus, terms: Sequence[int], allowed: NDArray[np.bool_]
) -> NDArray[np.intp]:
    scores, _ = sparse.bm25(corpus, terms)
    found = np.flatnonzero(allowed & (scores > 0))
    return found[np.argsort(-scores[found], kind="stable")[:BY_WORDS]]
