"""Vectors from a server that speaks OpenAI's protocol; it gets every stored text and question."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import EmbedderUnavailable, Misconfigured, WrongDimensions
from ..ports import Vectors
from ..providers import Circuit, Failed, ModelServer, at

MODEL = "text-embedding-3-small"
VARIABLE = "DEFAULT_MEMORY_EMBEDDING_MODEL"  # names another one, where the settings name none
DIMENSIONS = {MODEL: 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
URL = "https://api.openai.com/v1"
LONGEST = 8_000  # bytes of a text that are sent: never more tokens than the models accept
_MOST_TEXTS = 128
_MOST_BYTES = 250_000  # of one request
_BYTES_A_NUMBER = 32  # of an answer


class OpenAIEmbedder:
    """A model as an Embedder. Belongs to the event loop that first uses it.

    After three failures in a row it is not called for a while, so that calls do not wait for a
    timeout.
    """

    def __init__(
        self,
        model: str = MODEL,
        *,
        url: str | None = None,
        key: str | None = None,
        dimensions: int | None = None,
        timeout: float = 10.0,
    ) -> None:
        """Raise Misconfigured if the client library is missing or the dimensions are unknown."""
        known = DIMENSIONS.get(model)
        if known is None and dimensions is None:
            raise Misconfigured(
                f"Setting 'embedder_dimensions': set the number of dimensions of {model!r}"
            )
        self._request: dict[str, Any] = {"model": model, "encoding_format": "float"}
        self.model = model
        self.dimensions = int(dimensions or known or 0)
        if known not in (None, self.dimensions):
            self.model = f"{model}@{self.dimensions}"
            self._request["dimensions"] = self.dimensions
        self._timeout = timeout
        self._server = ModelServer(
            "openai",
            "AsyncOpenAI",
            "embeddings",
            base_url=url or URL,
            api_key=key or "none",
            timeout=timeout,
            limit=_MOST_TEXTS * self.dimensions * _BYTES_A_NUMBER + (1 << 20),
        )
        self._circuit = Circuit()

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order; a long text is cut.

        Raises EmbedderUnavailable.
        """
        sendable = []
        for text in texts:  # servers reject an empty text
            cut = text.encode("utf-8", "replace")[:LONGEST].decode("utf-8", "ignore")
            sendable.append(cut or " ")
        rows = [await self._encode(batch) for batch in batches(sendable)]
        return np.concatenate([np.empty((0, self.dimensions), np.float32), *rows])

    async def close(self) -> None:
        await self._server.close()

    async def _encode(self, batch: Sequence[str]) -> Vectors:
        if wait := self._circuit.wait:
            raise self._unavailable(f"failed and will be tried again in {wait:.0f} s")
        await self._server.ready()
        try:
            with self._circuit.call((TimeoutError, Failed)):
                async with asyncio.timeout(self._timeout):
                    data = await self._server.ask(input=list(batch), **self._request)
        except (TimeoutError, Failed) as error:
            raise self._unavailable(f"failed: {error or 'it took too long'}") from None
        return self.read_vectors(data, len(batch))

    def read_vectors(self, data: Any, wanted: int) -> Vectors:
        """Return the vectors in an answer, in the order of the texts, at unit length."""
        found = at(data, "data")
        placed = {}
        for row in found if isinstance(found, list) else ():
            place = at(row, "index")
            placed[place if isinstance(place, int) else None] = at(row, "embedding")
        if placed.keys() != set(range(wanted)):
            raise self._unavailable("did not return one vector for each text")
        try:
            rows: Vectors = np.array([placed[place] for place in range(wanted)], np.float32)
        except (TypeError, ValueError):
            raise self._unavailable("returned something other than numbers") from None
        if rows.shape != (wanted, self.dimensions):
            raise WrongDimensions(
                f"The embedder {self.model} gives vectors of {rows.shape[-1]} numbers, "
                f"not {self.dimensions}: correct `embedder_dimensions`"
            )
        lengths: Vectors = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            raise self._unavailable("returned vectors without a direction")
        return rows / lengths

    def _unavailable(self, why: str) -> EmbedderUnavailable:
        return EmbedderUnavailable(f"The embedder {self.model} {why}")


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts in order, as many at a time as fit in one request.

    >>> [len(batch) for batch in batches(["tea"] * 300)]
    [128, 128, 44]
    """
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if batch and (len(batch) == _MOST_TEXTS or size + length > _MOST_BYTES):
            yield batch
            batch = []
            size = 0
        batch.append(text)
        size += length
    if batch:
        yield batch
