"""all-MiniLM-L6-v2, in the package: 384 numbers a text, on the CPU, with no download and no key.

The model is loaded on first use. Everything runs in one thread that belongs to the embedder; a
large batch gives that thread back between its parts, so a question asked meanwhile waits for one
part and not for all of them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import EmbedderUnavailable
from ..ports import Vectors
from ..providers import onnx
from ..providers.onnx import LONGEST_INPUT, WordPiece

MODEL = "all-MiniLM-L6-v2"
DIMENSIONS = 384
PACKAGED = Path(__file__).parent / "minilm_model"

_WINDOW = LONGEST_INPUT - 2  # pieces beside [CLS] and [SEP]
_MOST_WINDOWS = 16  # of one text; a longer text is read in this many places, evenly spread
BATCH_TOKENS = 512  # padding included


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """As much of a text as the model reads at once."""

    text: int  # its place in the call
    ids: list[int]
    part: int = 0  # its place in the text

    @property
    def weight(self) -> int:
        """How many pieces it says something with; a blank text counts as one."""
        return max(1, len(self.ids) - 2)


class MiniLM:
    """The packaged model as an Embedder. Safe to share between threads and event loops."""

    model, dimensions = MODEL, DIMENSIONS

    def __init__(self, *, directory: Path = PACKAGED, threads: int | None = None) -> None:
        """Read the model from `directory`; use `threads` cores, by default all that this process
        may use.
        """
        self._directory = directory
        cores = os.cpu_count() or 1
        if hasattr(os, "sched_getaffinity"):
            cores = len(os.sched_getaffinity(0))
        self._threads = threads or cores
        closed = EmbedderUnavailable(f"The embedder {MODEL} is closed")
        self._thread = onnx.WorkerThread("minilm", closed)
        self._loaded: tuple[WordPiece, Any] | None = None  # used in that thread only

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order. Raises EmbedderUnavailable.

        A text longer than the model reads is cut into windows; its vector is their mean, weighted
        by length.
        """
        if len(texts) == 1 and (found := await self._thread.run(self._at_once, texts)) is not None:
            return found  # a question: one trip to the thread instead of two
        windows = await self._thread.run(self._windows, texts)
        sums = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for batch in onnx.batches(windows, lambda window: window.ids, tokens=BATCH_TOKENS):
            vectors = await self._thread.run(self._infer, batch, "embedding")
            for window, vector in zip(batch, vectors, strict=True):
                sums[window.text] += window.weight * vector
        return unit(sums)

    async def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the unit-length states of each text's pieces, one row a piece. Raises
        EmbedderUnavailable.

        [CLS], [SEP] and padding are left out, so a blank text has no rows.
        """
        windows = await self._thread.run(self._windows, texts)
        found: dict[tuple[int, int], Vectors] = {}
        for batch in onnx.batches(windows, lambda window: window.ids, tokens=BATCH_TOKENS):
            states = await self._thread.run(self._infer, batch, "tokens")
            for window, rows in zip(batch, states, strict=True):
                found[window.text, window.part] = rows[1 : len(window.ids) - 1].copy()
        parts: list[list[Vectors]] = [[] for _ in texts]
        for place in sorted(found):
            parts[place[0]].append(found[place])
        return [np.concatenate(rows) for rows in parts]

    async def close(self) -> None:
        """Wait for running work and release the model. Closing twice is fine; encoding afterwards
        is not.
        """
        await self._thread.close()
        self._loaded = None

    def _at_once(self, texts: Sequence[str]) -> Vectors | None:
        windows = self._windows(texts)
        return unit(self._infer(windows, "embedding")) if len(windows) == 1 else None

    def _windows(self, texts: Sequence[str]) -> list[Window]:
        tokenizer, _ = self._ready()
        windows = []
        for place, text in enumerate(texts):
            for part, ids in enumerate(windows_of(tokenizer, text)):
                windows.append(Window(text=place, part=part, ids=ids))
        return windows

    def _infer(self, batch: Sequence[Window], output: str) -> Vectors:
        _, session = self._ready()
        with _translate_errors("run"):
            found: list[Vectors] = session.run([output], onnx.pad([window.ids for window in batch]))
        return found[0]

    def _ready(self) -> tuple[WordPiece, Any]:
        if self._loaded is None:
            with _translate_errors(f"load from {self._directory}"):
                self._loaded = onnx.load_model(self._directory, self._threads)
        return self._loaded


@contextmanager
def _translate_errors(action: str) -> Iterator[None]:
    """Turn whatever the runtime raises into our error; its own errors share no base class."""
    try:
        yield
    except Exception as error:
        raise EmbedderUnavailable(
            f"The embedding model {MODEL} did not {action}: {error}"
        ) from error


def windows_of(tokenizer: WordPiece, text: str) -> list[list[int]]:
    """Return the ids of a text in windows that the model can read: one for most texts, never more
    than 16.
    """
    most = _MOST_WINDOWS * _WINDOW
    pieces = tokenizer.pieces(text, limit=most + 1)
    if len(pieces) > most:
        size = max(1, -(-len(text) // _MOST_WINDOWS))
        return [tokenizer.encode(text[i : i + size]) for i in range(0, len(text), size)]
    return [tokenizer.framed(part) for part in balance(pieces, _WINDOW)]


def balance(pieces: list[int], longest: int) -> list[list[int]]:
    """Cut a list into the fewest parts no longer than `longest`, about equally long.

    >>> balance([1, 2, 3, 4, 5], 4)
    [[1, 2, 3], [4, 5]]
    >>> balance([], 4)
    [[]]
    """
    count = max(1, -(-len(pieces) // longest))
    size = max(1, -(-len(pieces) // count))
    return [pieces[start : start + size] for start in range(0, len(pieces) or 1, size)]


def unit(rows: Vectors) -> Vectors:
    """Scale rows to unit length.

    >>> unit(np.array([[0.0, 4.0]], dtype=np.float32)).tolist()
    [[0.0, 1.0]]
    """
    lengths: Vectors = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths
