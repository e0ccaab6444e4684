"""Rerank with the packaged model: compare the pieces of the question with those of a text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..ports import Vectors


class TokenEncoder(Protocol):
    """A model that gives the states of a text's pieces, as `MiniLM` does."""

    async def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the unit-length states of each text's pieces, one row a piece. Raises
        EmbedderUnavailable.
        """
        ...

    async def close(self) -> None: ...


class MaxSim:
    """Late interaction as a Reranker. The model may be shared with the embedder; closing it twice
    is fine.
    """

    name = "maxsim"

    def __init__(self, model: TokenEncoder) -> None:
        self._model = model

    async def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return how well each text answers, in [0, 1] and in order. Raises EmbedderUnavailable."""
        asked, *read = await self._model.encode_tokens([question, *texts])

        def compare() -> NDArray[np.float32]:
            return np.array([likeness(asked, text) for text in read], np.float32)

        return await asyncio.to_thread(compare)

    async def close(self) -> None:
        await self._model.close()


def likeness(asked: Vectors, text: Vectors) -> float:
    """Return the mean over the question's pieces of the best cosine with a piece of the text, from
    0 to 1.

    >>> likeness(np.eye(2, dtype=np.float32), np.array([[1.0, 0.0]], np.float32))
    0.5
    """
    if not len(asked) or not len(text):
        return 0.0
    best = (asked @ text.T).max(axis=1)
    return float(np.clip(best.mean(), 0.0, 1.0))
