"""Check what an embedder returns: a bad vector would silently spoil every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from ..errors import EmbedderUnavailable, WrongDimensions
from ..ports import Embedder, Vectors

PATIENCE = 16.0  # seconds that a model has, and as many again for every sixteen texts
_NEAR = 1e-3  # of a length to 1: what rounding may do


async def encode(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return one checked row of length 1 per text. Raises EmbedderUnavailable, WrongDimensions."""
    if not texts:
        return np.empty((0, embedder.dimensions), np.float32)
    seconds = PATIENCE * (1 + len(texts) / 16)
    try:
        async with asyncio.timeout(seconds):
            made = np.asarray(await embedder.encode_batch(texts), np.float32)
    except TimeoutError as error:
        raise EmbedderUnavailable(
            f"The model {embedder.model!r} did not answer within {seconds:.0f} s"
        ) from error
    if made.shape != (len(texts), embedder.dimensions):
        wanted = f"{len(texts)} vectors of {embedder.dimensions} numbers"
        raise WrongDimensions(
            f"The model {embedder.model!r} gave an array of shape {made.shape} instead of {wanted}"
        )
    if not np.isfinite(made).all():
        raise EmbedderUnavailable(f"The model {embedder.model!r} gave NaN or infinite numbers")
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    if (np.abs(lengths - 1) < _NEAR).all():
        return made
    return np.asarray(made / np.where(lengths == 0, 1, lengths), np.float32)
