"""Asking an embedder, without trusting it: a vector that is none would silently spoil every answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import EmbedderUnavailable, WrongDimensions
from .ports import Embedder, Vectors


async def encode(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """One row per text, checked. Raises EmbedderUnavailable, WrongDimensions."""
    if not texts:
        return np.empty((0, embedder.dimensions), np.float32)
    made = np.asarray(await embedder.encode_batch(texts), np.float32)
    if made.shape != (len(texts), embedder.dimensions):
        wanted = f"{len(texts)} vectors of {embedder.dimensions} numbers"
        raise WrongDimensions(f"The model {embedder.model!r} gave an array of shape {made.shape} instead of {wanted}")
    if not np.isfinite(made).all():
        raise EmbedderUnavailable(f"The model {embedder.model!r} gave numbers that are none")
    return made
