"""all-MiniLM-L6-v2, in the package: 384 numbers a text, on the CPU, with no download and no key.

The model is loaded on first use and runs in threads of its own, on up to 4 cores. A large call is
cut into batches, and a concurrent question waits for one batch, not for all of them.
"""

from collections.abc import AsyncIterator, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..ports import Vectors
from ..providers import onnx

MODEL = "all-MiniLM-L6-v2"
DIMENSIONS = 384
PACKAGED = Path(__file__).parent / "minilm_model"
BATCH_TOKENS = 256  # padding included; larger batches are not faster on one core

Loaded = tuple[onnx.WordPiece, Any]


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
        """Read the model from `directory`; use up to 4 of the cores that are allowed."""
        self._model = onnx.LocalModel(MODEL, directory, load)

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
        await self._model.close()

    async def _infer(
        self,
        texts: Sequence[str],
        output: str,
    ) -> AsyncIterator[tuple[Window, Vectors]]:
        """Yield each window of the texts with the model's output for it."""

        def split(loaded: Loaded) -> list[list[Window]]:
            tokenizer, _ = loaded
            windows = []
            for place, text in enumerate(texts):
                for part, ids in enumerate(onnx.windows_of(tokenizer, text)):
                    windows.append(Window(place, part, ids))
            return [*onnx.batches(windows, attrgetter("ids"), tokens=BATCH_TOKENS)]

        def run(loaded: Loaded, batch: list[Window]) -> Vectors:
            _, session = loaded
            inputs = onnx.pad([window.ids for window in batch])
            found: list[Vectors] = session.run([output], inputs)
            return found[0]

        async for batch, rows in self._model.infer(split, run):
            for each in zip(batch, rows, strict=True):
                yield each


def load(folder: Path) -> Loaded:
    """Read a model from a folder."""
    return onnx.load_model(folder, threads=1)
