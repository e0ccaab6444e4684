"""USE-multilingual v3, in the package: 256 numbers a text, on the CPU, with no download and no key.

Texts of the same meaning are near each other in 16 languages: Arabic, Chinese (both scripts),
Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish,
Thai and Turkish. The model is an average over words and short phrases, about ten times as fast as
MiniLM. It is loaded on first use. The rows of the pieces stay compressed until they are used.
"""

import json
import re
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..ports import Vectors
from ..providers import onnx

MODEL = "use-multilingual-v3-256"
DIMENSIONS = 256
PACKAGED = Path(__file__).parent / "use_model"
BATCH_TOKENS = 512

LONGEST_INPUT = 512  # pieces the model reads, <s> and </s> included
_LONGEST_TEXT = 4_096  # characters looked at
_LONGEST_CACHED = 32  # characters of a word
_CACHED_WORDS = 32_768
UNKNOWN, START, END = range(3)  # the ids of <unk>, <s> and </s>

WIDTH = 512  # numbers a piece
CHUNKS = 17  # piece i is row i // CHUNKS of chunk i % CHUNKS; a chunk shares a scale
CHUNK_ROWS = 7_530
BLOCK = 15  # rows that are compressed together
_KEPT_BLOCKS = 2_048  # unpacked, 8 kB each: a quarter of the table
_REACH = 2  # pieces before and after each that the model looks at


class Unigram:
    """SentencePiece's unigram tokenizer: the most probable pieces. Safe to share between threads.

    No piece reaches over a space, so each word is split on its own and remembered.
    """

    def __init__(self, folder: Path) -> None:
        """Read `vocab.txt`, `scores.npy` and `normalizer.json`. Raises OSError or ValueError."""
        pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        self._ids = {piece: index for index, piece in enumerate(pieces)}
        for index in (UNKNOWN, START, END):  # "<s>" in a text is text
            del self._ids[pieces[index]]
        self._longest_piece = max(map(len, pieces))
        self._scores = array("f", np.load(folder / "scores.npy").tobytes())
        self._unknown_score = min(self._scores) - 10
        self._seen: dict[str, tuple[int, ...]] = {}
        table = json.loads((folder / "normalizer.json").read_bytes())
        self._sequences = {key: value for key, value in table.items() if len(key) > 1}
        self._characters = {ord(key): value for key, value in table.items() if len(key) == 1}
        first = "".join({key[0] for key in self._sequences})
        later = "".join({char for key in self._sequences for char in key[1:]})
        self._sequence = re.compile(f"[{first}][{later}]+")

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text between <s> and </s>, cut to what the model reads."""
        ids: list[int] = []
        for word in self.words(text):
            ids += self._seen.get(word) or self._split(word)
            if len(ids) > LONGEST_INPUT:
                break
        return [START, *(ids[: LONGEST_INPUT - 2] or [UNKNOWN]), END]

    def words(self, text: str) -> list[str]:
        """Return the words of a text in Unicode's form NFKC, each with "▁" for the space before."""
        known = text.lstrip()[:_LONGEST_TEXT].translate(self._characters)
        composed = self._sequence.sub(self._compose, known)
        return [f"▁{word}" for word in composed[:_LONGEST_TEXT].split(" ") if word]

    def _compose(self, found: re.Match[str]) -> str:
        """Replace the longest known sequences from the left."""
        chars = found[0]
        composed = ""
        place = 0
        while place < len(chars):
            for size in (4, 3, 2, 1):
                part = chars[place : place + size]
                if part in self._sequences:
                    break
            composed += self._sequences.get(part, part)
            place += len(part)
        return composed

    def _split(self, word: str) -> tuple[int, ...]:
        """Return the pieces whose scores have the largest sum; a character without is unknown."""
        best = [0.0] + [-inf] * len(word)  # the largest sum up to each place
        last = [(0, UNKNOWN)] * len(best)  # where the piece before each place begins, and its id
        for start in range(len(word)):
            for end in range(start + 1, min(start + self._longest_piece, len(word)) + 1):
                index = self._ids.get(word[start:end])
                if index is not None:
                    score = best[start] + self._scores[index]
                elif end == start + 1:
                    index = UNKNOWN
                    score = best[start] + self._unknown_score
                else:
                    continue
                if score > best[end]:
                    best[end] = score
                    last[end] = start, index
        ids = []
        place = len(word)
        while place:
            place, index = last[place]
            ids.append(index)
        found = tuple(reversed(ids))
        if len(word) <= _LONGEST_CACHED:
            if len(self._seen) >= _CACHED_WORDS:
                self._seen.clear()
            self._seen[word] = found
        return found


def open_table(path: Path) -> Callable[[int], bytes]:
    """Return a function from the number of a block to its rows; those last used stay unpacked."""
    count = CHUNKS * CHUNK_ROWS // BLOCK
    starts = np.fromfile(path, "<u4", count + 1).tolist()

    @lru_cache(_KEPT_BLOCKS)
    def unpack(block: int) -> bytes:
        with path.open("rb") as file:
            file.seek(starts[block])
            return zlib.decompress(file.read(starts[block + 1] - starts[block]))

    return unpack


class Loaded(NamedTuple):
    """All parts of the model."""

    tokenizer: Unigram
    block: Callable[[int], bytes]
    session: Any

    def row(self, piece: int) -> bytes:
        """Return the numbers of a piece."""
        place, chunk = divmod(piece, CHUNKS)
        block, row = divmod(chunk * CHUNK_ROWS + place, BLOCK)
        return self.block(block)[row * WIDTH : (row + 1) * WIDTH]


class Multilingual:
    """The packaged model as an Embedder. Safe to share between threads and event loops."""

    model = MODEL
    dimensions = DIMENSIONS

    def __init__(self, *, directory: Path = PACKAGED) -> None:
        """Read the model from `directory`; use up to 4 of the cores that are allowed."""
        self._model = onnx.LocalModel(MODEL, directory, load)

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order. Raises EmbedderUnavailable.

        The model reads the first 512 pieces of a text, about 350 words.
        """

        def split(loaded: Loaded) -> list[list[tuple[int, list[int]]]]:
            encoded = enumerate(map(loaded.tokenizer.encode, texts))
            return [*onnx.batches(encoded, itemgetter(1), tokens=BATCH_TOKENS)]

        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        async for batch, found in self._model.infer(split, run):
            vectors[[place for place, _ in batch]] = found
        return vectors

    async def close(self) -> None:
        """Wait for running work and release the model. Closing twice is fine, encoding is not."""
        await self._model.close()


def load(folder: Path) -> Loaded:
    """Read a model from a folder."""
    session = onnx.load_session(folder, threads=1)
    return Loaded(Unigram(folder), open_table(folder / "table.bin"), session)


def run(loaded: Loaded, batch: list[tuple[int, list[int]]]) -> Vectors:
    """Return the vectors of texts, given their places and pieces.

    The pieces of all texts stand one after the other: `piece` is the row of each, and `window` names
    the pieces around each; those outside its text are one row of zeros after the last.
    """
    texts = np.arange(len(batch))
    distinct, piece = np.unique([each for _, ids in batch for each in ids], return_inverse=True)
    owner = np.repeat(texts, [len(ids) for _, ids in batch])
    outside = np.full(_REACH, -1)
    padded = np.concatenate([outside, owner, outside])
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _REACH + 1)
    places = np.arange(len(piece))[:, None] + np.arange(-_REACH, _REACH + 1)
    rows = b"".join(map(loaded.row, distinct.tolist()))
    inputs = {
        "rows": np.frombuffer(rows, np.uint8).reshape(-1, WIDTH),
        "chunk": distinct % CHUNKS,
        "piece": piece,
        "window": np.where(around == owner[:, None], places, len(piece)),
        "member": (texts[:, None] == owner).astype(np.float32),
    }
    found: list[Vectors] = loaded.session.run(["embedding"], inputs)
    return found[0]
