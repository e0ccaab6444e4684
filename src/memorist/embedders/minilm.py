"""all-MiniLM-L6-v2, in the package: 384 numbers a text, on the CPU, with no download and no key.

The model is loaded on first use. Everything runs in one thread that belongs to the embedder. A
large batch releases that thread between its parts, so a concurrent question waits for one part, not
for all of them.
"""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import EmbedderUnavailable
from ..ports import Vectors
from ..providers import onnx

MODEL = "all-MiniLM-L6-v2"
DIMENSIONS = 384
PACKAGED = Path(__file__).parent / "minilm_model"
BATCH_TOKENS = 512  # padding included


class Window(NamedTuple):
    """As much of a text as the model reads at once."""

    text: int  # its place in the call
    part: int  # its place in the text
    ids: list[int]

    @property
    def weight(self) -> int:
        """How many pieces it has without [CLS] and [SEP]; a blank text counts as one."""
        return max(1, len(self.ids) - 2)


class MiniLM:
    """The packaged model as an Embedder. Safe to share between threads and event loops."""

    model = MODEL
    dimensions = DIMENSIONS

    def __init__(self, *, directory: Path = PACKAGED) -> None:
        """Read the model from `directory`; use all cores that are allowed."""
        self._directory = directory
        self._threads = os.cpu_count() or 1
        if hasattr(os, "sched_getaffinity"):
            self._threads = len(os.sched_getaffinity(0))
        closed = EmbedderUnavailable(f"The embedder {MODEL} is closed")
        self._thread = onnx.WorkerThread("minilm", closed)
        self._loaded: tuple[onnx.WordPiece, Any] | None = None  # used in that thread only

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order. Raises EmbedderUnavailable.

        A text longer than the model reads is cut into windows; its vector is their mean, weighted
        by length.
        """
        sums = np.zeros((len(texts), DIMENSIONS), np.float32)
        async for window, vector in self._infer(texts, "embedding"):
            sums[window.text] += window.weight * vector
        lengths: Vectors = np.linalg.norm(sums, axis=1, keepdims=True)
        return sums / lengths

    async def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the unit-length states of each text's pieces, one row a piece.

        [CLS], [SEP] and padding are left out, so a blank text has no rows. Raises
        EmbedderUnavailable.
        """
        parts: list[tuple[Window, Vectors]] = []
        async for window, rows in self._infer(texts, "tokens"):
            last = len(window.ids) - 1
            parts.append((window, rows[1:last].copy()))
        states: list[list[Vectors]] = [[] for _ in texts]
        for window, rows in sorted(parts, key=itemgetter(0)):
            states[window.text].append(rows)
        return list(map(np.concatenate, states))

    async def close(self) -> None:
        """Wait for running work and release the model. Closing twice is fine, encoding is not."""
        await self._thread.close()
        self._loaded = None

    async def _infer(
        self,
        texts: Sequence[str],
        output: str,
    ) -> AsyncIterator[tuple[Window, Vectors]]:
        """Yield each window of the texts with the model's output for it."""
        made: Vectors | None
        batches, made = await self._thread.run(self._begin, texts, output)
        for batch in batches:
            if made is None:
                made = await self._thread.run(self._run, batch, output)
            for each in zip(batch, made, strict=True):
                yield each
            made = None

    def _begin(
        self,
        texts: Sequence[str],
        output: str,
    ) -> tuple[list[list[Window]], Any]:
        """Return batches of windows, and the output for the first: a question needs one switch to
        the thread.
        """
        with _translate_errors(f"load from {self._directory}"):
            if self._loaded is None:
                self._loaded = onnx.load_model(self._directory, self._threads)
        tokenizer, _ = self._loaded
        windows = []
        for place, text in enumerate(texts):
            for part, ids in enumerate(onnx.windows_of(tokenizer, text)):
                windows.append(Window(place, part, ids))
        batches = [*onnx.batches(windows, attrgetter("ids"), tokens=BATCH_TOKENS)]
        first = self._run(batches[0], output) if batches else None
        return batches, first

    def _run(self, batch: Sequence[Window], output: str) -> Vectors:
        assert self._loaded is not None
        _, session = self._loaded
        with _translate_errors("run"):
            inputs = onnx.pad([window.ids for window in batch])
            found: list[Vectors] = session.run([output], inputs)
        return found[0]


@contextmanager
def _translate_errors(action: str) -> Iterator[None]:
    """Turn any error of the runtime into ours; they have no common base class."""
    try:
        yield
    except Exception as error:
        raise EmbedderUnavailable(
            f"The embedding model {MODEL} did not {action}: {error}"
        ) from error
