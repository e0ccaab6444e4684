"""The packaged models, on the CPU, with no download and no key.

all-MiniLM-L6-v2 has 384 numbers a text and reads English. USE-multilingual v3 has 256 numbers a
text: texts of the same meaning are near each other in 16 languages, which are Arabic, Chinese (both
scripts), Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian,
Spanish, Thai and Turkish. It is an average over words and short phrases, about ten times as fast as
MiniLM; the rows of its pieces stay compressed until they are used.

A large call is cut into batches, and a concurrent question waits for one batch, not for all of them.
"""

import json
import re
import zlib
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from functools import lru_cache, partial
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..ports import Vectors
from ..providers import onnx
from ..providers.onnx import LocalModel, Window

MINILM = Path(__file__).parent / "minilm_model"
MULTILINGUAL = Path(__file__).parent / "use_model"
MINILM_TOKENS = 256  # of a batch, padding included; larger ones are not faster on one core
MULTILINGUAL_TOKENS = 512

LONGEST_INPUT = 512  # pieces that the multilingual model reads, <s> and </s> included
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

Bert = tuple[onnx.WordPiece, Any]  # a tokenizer and a session


class MiniLM(LocalModel[Bert]):
    """all-MiniLM-L6-v2 as an Embedder. Safe to share between threads and event loops."""

    model = "all-MiniLM-L6-v2"
    dimensions = 384

    def __init__(self, *, directory: Path = MINILM) -> None:
        super().__init__(self.model, directory, lambda folder: onnx.load_model(folder, threads=1))

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order. Raises EmbedderUnavailable.

        A text longer than the model reads is cut into windows; its vector is their mean, weighted
        by length.
        """
        sums = np.zeros((len(texts), self.dimensions), np.float32)
        async for window, vector in self._windows(texts, "embedding"):
            sums[window.text] += count_pieces(window) * vector
        lengths: Vectors = np.linalg.norm(sums, axis=1, keepdims=True)
        return sums / lengths

    async def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Return the unit-length states of each text's pieces, one row a piece.

        [CLS], [SEP] and padding are left out, so a blank text has no rows. Raises
        EmbedderUnavailable.
        """
        parts: list[tuple[Window, Vectors]] = []
        async for window, rows in self._windows(texts, "tokens"):
            last = len(window.ids) - 1
            parts.append((window, rows[1:last].copy()))
        states: list[list[Vectors]] = [[] for _ in texts]
        for window, rows in sorted(parts, key=itemgetter(0)):
            states[window.text].append(rows)
        return list(map(np.concatenate, states))

    async def _windows(
        self,
        texts: Sequence[str],
        output: str,
    ) -> AsyncIterator[tuple[Window, Vectors]]:
        """Yield each window of the texts with the model's output for it."""

        def run(loaded: Bert, batch: tuple[list[Window], onnx.Inputs]) -> Vectors:
            found: list[Vectors] = loaded[1].run([output], batch[1])
            return found[0]

        encode = partial(onnx.batch_windows, texts=texts, tokens=MINILM_TOKENS)
        async for (batch, _), rows in self.infer(lambda loaded: encode(loaded[0]), run):
            for each in zip(batch, rows, strict=True):
                yield each


def count_pieces(window: Window) -> int:
    """Return how many pieces it has without [CLS] and [SEP]; a blank text counts as one."""
    return max(1, len(window.ids) - 2)


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
    """Return a function from a piece to its numbers; the blocks last used stay unpacked."""
    count = CHUNKS * CHUNK_ROWS // BLOCK
    starts = np.fromfile(path, "<u4", count + 1).tolist()

    @lru_cache(_KEPT_BLOCKS)
    def unpack(block: int) -> bytes:
        with path.open("rb") as file:
            file.seek(starts[block])
            return zlib.decompress(file.read(starts[block + 1] - starts[block]))

    def read_row(piece: int) -> bytes:
        place, chunk = divmod(piece, CHUNKS)
        block, row = divmod(chunk * CHUNK_ROWS + place, BLOCK)
        return unpack(block)[row * WIDTH : (row + 1) * WIDTH]

    return read_row


class UseModel(NamedTuple):
    """All parts of the multilingual model."""

    tokenizer: Unigram
    read_row: Callable[[int], bytes]  # of a piece
    session: Any


class Multilingual(LocalModel[UseModel]):
    """USE-multilingual v3 as an Embedder. Safe to share between threads and event loops."""

    model = "use-multilingual-v3-256"
    dimensions = 256

    def __init__(self, *, directory: Path = MULTILINGUAL) -> None:
        super().__init__(self.model, directory, load_use)

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order. Raises EmbedderUnavailable.

        The model reads the first 512 pieces of a text, about 350 words.
        """

        def split(loaded: UseModel) -> list[list[tuple[int, list[int]]]]:
            encoded = [*enumerate(map(loaded.tokenizer.encode, texts))]
            return [*onnx.batches(encoded, itemgetter(1), tokens=MULTILINGUAL_TOKENS)]

        vectors = np.empty((len(texts), self.dimensions), np.float32)
        async for batch, found in self.infer(split, run_use):
            vectors[[place for place, _ in batch]] = found
        return vectors


def load_use(folder: Path) -> UseModel:
    """Read the multilingual model from a folder."""
    session = onnx.load_session(folder, threads=1)
    return UseModel(Unigram(folder), open_table(folder / "table.bin"), session)


def run_use(loaded: UseModel, batch: list[tuple[int, list[int]]]) -> Vectors:
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
    rows = b"".join(map(loaded.read_row, distinct.tolist()))
    inputs = {
        "rows": np.frombuffer(rows, np.uint8).reshape(-1, WIDTH),
        "chunk": distinct % CHUNKS,
        "piece": piece,
        "window": np.where(around == owner[:, None], places, len(piece)),
        "member": (texts[:, None] == owner).astype(np.float32),
    }
    found: list[Vectors] = loaded.session.run(["embedding"], inputs)
    return found[0]
