"""all-MiniLM-L6-v2, in the package: 384 numbers a text, on the CPU, with no download and no key.

The model is loaded on first use. Everything runs in one thread that belongs to the embedder; a large batch gives that
thread back between its parts, so a question asked meanwhile waits for one part and not for all of them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EmbedderUnavailable
from ..ports import Vectors
from ..providers import onnx
from ..text.wordpiece import LONGEST_INPUT, WordPiece

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

    def __init__(self, *, directory: Path = PACKAGED, threads: int | None = None) -> None:
        """Take the model from `directory`; use `threads` cores, by default all this process may use."""
        self._directory = directory
        self._threads = threads or _cores()
        self._thread = onnx.OneThread(
            "minilm", EmbedderUnavailable(f"The embedder {MODEL} is closed")
        )
        self._loaded: _Loaded | None = None  # touched in that thread only

    @property
    def model(self) -> str:
        return MODEL

    @property
    def dimensions(self) -> int:
        return DIMENSIONS

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """One unit-length row per text, in order. Raises EmbedderUnavailable.

        A text longer than the model reads is cut into windows; its vector is their mean, weighted by length.
        """
        if len(texts) == 1 and (found := await self._thread.run(self._at_once, texts)) is not None:
            return found  # a question: one trip to the thread instead of two
        windows = await self._thread.run(self._windows, texts)
        sums = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for batch in onnx.batches(windows, _ids, tokens=BATCH_TOKENS):
            vectors = await self._thread.run(self._infer, batch, "embedding")
            for window, vector in zip(batch, vectors, strict=True):
                sums[window.text] += window.weight * vector
        return unit(sums)

    async def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """The unit-length states of each text's pieces, one row a piece, in order. Raises EmbedderUnavailable.

        [CLS], [SEP] and padding are left out, so a blank text has no rows.
        """
        windows = await self._thread.run(self._windows, texts)
        found: dict[tuple[int, int], Vectors] = {}
        for batch in onnx.batches(windows, _ids, tokens=BATCH_TOKENS):
            states = await self._thread.run(self._infer, batch, "tokens")
            for window, rows in zip(batch, states, strict=True):
                found[window.text, window.part] = rows[1 : len(window.ids) - 1].copy()
        parts: list[list[Vectors]] = [[] for _ in texts]
        for place in sorted(found):
            parts[place[0]].append(found[place])
        return [np.concatenate(rows) for rows in parts]

    async def close(self) -> None:
        """Wait for the work under way and give up the model. Closing twice is fine; encoding afterwards is not."""
        await self._thread.close()
        self._loaded = None

    def _at_once(self, texts: Sequence[str]) -> Vectors | None:
        windows = self._windows(texts)
        return unit(self._infer(windows, "embedding")) if len(windows) == 1 else None

    def _windows(self, texts: Sequence[str]) -> list[Window]:
        tokenizer = self._ready().tokenizer
        return [
            Window(text=place, part=part, ids=ids)
            for place, text in enumerate(texts)
            for part, ids in enumerate(windows_of(tokenizer, text))
        ]

    def _infer(self, batch: Sequence[Window], output: str) -> Vectors:
        with _translated("run"):
            found: list[Vectors] = self._ready().session.run(
                [output], padded([window.ids for window in batch])
            )
        return found[0]

    def _ready(self) -> "_Loaded":
        if self._loaded is None:
            self._loaded = _load(self._directory, self._threads)
        return self._loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    tokenizer: WordPiece
    session: Any  # onnxruntime.InferenceSession, which has no types


def _load(directory: Path, threads: int) -> _Loaded:
    with _translated(f"load from {directory}"):
        onnxruntime = onnx.load()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # A waiting thread that spins takes the core another part of the process needs
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            str(directory / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        return _Loaded(tokenizer=WordPiece(directory / "vocab.txt"), session=session)


@contextmanager
def _translated(action: str) -> Iterator[None]:
    """Turn whatever the runtime raises into our error; its own errors share no base class."""
    try:
        yield
    except Exception as error:
        raise EmbedderUnavailable(
            f"The embedding model {MODEL} did not {action}: {error}"
        ) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def windows_of(tokenizer: WordPiece, text: str) -> list[list[int]]:
    """The ids of a text, in windows the model can read: one for most texts, never more than a fixed number."""
    most = _MOST_WINDOWS * _WINDOW
    pieces = tokenizer.pieces(text, limit=most + 1)
    if len(pieces) > most:
        return [tokenizer.encode(part) for part in evenly(text, _MOST_WINDOWS)]
    return [tokenizer.framed(part) for part in balanced(pieces, _WINDOW)]


def balanced(pieces: list[int], longest: int) -> list[list[int]]:
    """Cut a list into the fewest parts no longer than `longest`, about equally long.

    >>> balanced([1, 2, 3, 4, 5], 4)
    [[1, 2, 3], [4, 5]]
    >>> balanced([], 4)
    [[]]
    """
    count = max(1, -(-len(pieces) // longest))
    size = max(1, -(-len(pieces) // count))
    return [pieces[start : start + size] for start in range(0, len(pieces) or 1, size)]


def evenly(text: str, count: int) -> list[str]:
    """Cut a text into parts of equal length.

    >>> evenly("abcdefg", 3)
    ['abc', 'def', 'g']
    """
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _ids(window: Window) -> list[int]:
    return window.ids


def padded(rows: Sequence[list[int]]) -> dict[str, NDArray[np.int64]]:
    """The model's inputs for rows of ids.

    >>> padded([[5, 6], [7]])["attention_mask"].tolist()
    [[1, 1], [1, 0]]
    """
    ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, values in enumerate(rows):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def unit(rows: Vectors) -> Vectors:
    """Rows at unit length.

    >>> unit(np.array([[0.0, 4.0]], dtype=np.float32)).tolist()
    [[0.0, 1.0]]
    """
    lengths: Vectors = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths
