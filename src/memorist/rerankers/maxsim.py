"""Re-ranking with the packaged model: each piece of the question looks for the nearest piece of a text."""

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
        """The unit-length states of each text's pieces, one row a piece. Raises EmbedderUnavailable."""
        ...

    async def close(self) -> None: ...


class MaxSim:
    """Late interaction as a Reranker. The model may be shared with the embedder; closing it twice is fine."""

    def __init__(self, model: TokenEncoder) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return "maxsim"

    async def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """How well each text answers, in [0, 1] and in order. Raises EmbedderUnavailable."""
        asked, *told = await self._model.encode_tokens([question, *texts])
        return await asyncio.to_thread(
            lambda: np.array([likeness(asked, each) for each in told], np.float32)
        )

    async def close(self) -> None:
        await self._model.close()


def likeness(asked: Vectors, told: Vectors) -> float:
    """The mean over the question's pieces of the best cosine with a piece of the text, from 0 to 1.

    >>> likeness(np.eye(2, dtype=np.float32), np.array([[1.0, 0.0]], np.float32))
    0.5
    """
    if not len(asked) or not len(told):
        return 0.0
    best = (asked @ told.T).max(axis=1)
    return float(np.clip(best.mean(), 0.0, 1.0))
