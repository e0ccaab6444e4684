"""The dense leg of a scope whose vectors another index holds.

The index only proposes rows: what is not in the scope is dropped, and every cosine is computed
again from the store's own vectors. The best matches by words are measured, too, so that without the
index, or with a stale one, an answer is poorer but never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ProviderFailed
from ..index import Snapshot
from ..ports import NearestRows, Vectors
from ..storage.queries import Reader
from ..types import Scope
from .features import bm25

ASKED = 200  # rows that the index proposes
BY_WORDS = 200  # best matches by words
EXACT = 2_000  # if a filter lets through no more than this, all of it is measured


async def load_nearest(
    snapshot: Snapshot,
    terms: Sequence[int],
    vector: Vectors,
    usable: NDArray[np.bool_],
    scope: Scope,
    store: Reader,
    index: NearestRows | None,
) -> tuple[Snapshot, str]:
    """Return the snapshot with the vectors near the question, and "ok" or what is wrong."""
    if int(usable.sum()) <= min(EXACT, snapshot.count - 1):
        rows, status = snapshot.row[usable].tolist(), "ok"
    else:
        rows, status = [], "no vector index is configured for a scope of this size"
        if index is not None:
            try:
                rows, status = await index.nearest(
                    scope, vector, limit=ASKED, revision=snapshot.revision
                )
            except ProviderFailed as error:
                status = str(error)
        scores, _ = bm25(snapshot, terms)
        matching = np.flatnonzero(usable & (scores > 0))
        best = matching[np.argsort(-scores[matching], kind="stable")[:BY_WORDS]]
        rows = [*rows, *snapshot.row[best].tolist()]
    vectors = await store.vectors(scope, list(dict.fromkeys(rows)), model=snapshot.model)
    return snapshot.with_vectors(vectors), status
