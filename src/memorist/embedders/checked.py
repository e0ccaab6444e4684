"""Asking an embedder, without trusting it: a vector that is none would silently spoil every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from ..errors import EmbedderUnavailable, WrongDimensions
from ..ports import Embedder, Vectors

PATIENCE = 16.0  # seconds that a model has, and as many again for every sixteen texts
_NEAR = 1e-3  # of a length to 1: what rounding may do


async def encode(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """One row per text, checked. Raises EmbedderUnavailable, WrongDimensions."""
    if not texts:
        return np.empty((0, embedder.dimensions), np.float32)
    made = np.asarray(await _asked(embedder, texts), np.float32)
    if made.shape != (len(texts), embedder.dimensions):
        wanted = f"{len(texts)} vectors of {embedder.dimensions} numbers"
        raise WrongDimensions(
            f"The model {embedder.model!r} gave an array of shape {made.shape} instead of {wanted}"
        )
    if not np.isfinite(made).all():
        raise EmbedderUnavailable(f"The model {embedder.model!r} gave numbers that are none")
    return _unit(made)


async def _asked(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    seconds = PATIENCE * (1 + len(texts) / 16)
    try:
        async with asyncio.timeout(seconds):
            return await embedder.encode_batch(texts)
    except TimeoutError as error:
        raise EmbedderUnavailable(
            f"The model {embedder.model!r} did not answer within {seconds:.0f} s"
        ) from error


def _unit(made: Vectors) -> Vectors:
    """Vectors of length 1, as the port promises them: others would count for more than they say."""
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    if (np.abs(lengths - 1) < _NEAR).all():
        return made
    return np.asarray(made / np.where(lengths == 0, 1, lengths), np.float32)
