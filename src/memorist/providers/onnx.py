"""Local models: onnxruntime, loaded late and without telemetry, in threads, and what they read.

WordPiece returns the same ids as the reference tokenizer of BERT's uncased models. That uses the
marks and punctuation of Unicode 8, so their tables are in `characters.toml`.
"""

import asyncio
import os
import re
import tomllib
import unicodedata
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import providers
from ..errors import EmbedderUnavailable, ProviderFailed

Result = TypeVar("Result")
Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
Inputs = dict[str, NDArray[Any]]  # of a model, by name

LONGEST_INPUT = 256  # pieces the model reads, [CLS] and [SEP] included
_MOST_WINDOWS = 16  # of one text; a longer text is read in this many places, evenly spread
LONGEST_WORD = 100  # characters; a longer word is one [UNK]
_WINDOW = 2_048  # characters looked at in one go
_CACHED_WORDS = 32_768
_CACHED_CHARACTERS = 65_536
_CHARACTERS = tomllib.loads(Path(__file__).with_name("characters.toml").read_text("utf-8"))
_SPECIAL = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")
# Where a long text may be cut without changing a word. "]" is left out: it may end a special token.
_SEPARATOR = re.compile(r"[ \t\n\r!-/:-@\[\\^_`{-~\u3001\u3002\u3400-\u4dbf\u4e00-\u9fff]")


def load_runtime() -> Any:
    """Import onnxruntime with its telemetry switched off; the name of the switch changed once."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    import onnxruntime

    return onnxruntime


class LocalModel(Generic[Loaded]):
    """A model that is loaded on first use and runs in threads of its own, on up to 4 cores.

    A few batches at a time, each on one core, are faster than one batch on all cores. A call has no
    more batches in the queue than there are threads, so a concurrent question waits for one batch.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        load: Callable[[Path], Loaded],
        failure: type[ProviderFailed] = EmbedderUnavailable,
    ) -> None:
        cores = os.cpu_count() or 1
        if hasattr(os, "sched_getaffinity"):
            cores = len(os.sched_getaffinity(0))
        self._threads = min(4, cores)
        self._pool = ThreadPoolExecutor(
            self._threads, thread_name_prefix=name, initializer=providers.begin_thread
        )
        self._name = name
        self._folder = folder
        self._load = load
        self._failure = failure
        self._lock = Lock()
        self._loaded: Loaded | None = None

    async def infer(
        self, split: Callable[[Loaded], list[Item]], run: Callable[[Loaded, Item], Result]
    ) -> AsyncIterator[tuple[Item, Result]]:
        """Yield each batch of `split` with its result, in order. Raises the `failure`."""

        def begin() -> tuple[list[Item], list[Result]]:
            with self._lock, self._translate_errors(f"load from {self._folder}"):
                if self._loaded is None:
                    self._loaded = self._load(self._folder)
            batches = split(self._loaded)
            return batches, [step(batches[0])] if len(batches) == 1 else []

        def step(batch: Item) -> Result:
            assert self._loaded is not None
            with self._translate_errors("run"):
                return run(self._loaded, batch)

        batches, found = await self._start(begin)
        if found:  # a question needs one switch to a thread
            yield batches[0], found[0]
            return
        running: deque[asyncio.Future[Result]] = deque()
        try:
            for place, batch in enumerate(batches):
                for each in batches[place + len(running) : place + self._threads]:
                    running.append(self._start(step, each))
                yield batch, await running.popleft()
        finally:
            for future in running:
                future.cancel()

    async def close(self) -> None:
        """Wait for running work and release the model. Closing twice is fine."""
        await asyncio.to_thread(self._pool.shutdown)
        self._loaded = None

    def _start(self, step: Callable[..., Result], *arguments: object) -> asyncio.Future[Result]:
        try:
            return asyncio.wrap_future(self._pool.submit(step, *arguments))
        except RuntimeError as error:
            raise self._failure(f"The model {self._name} is closed") from error

    @contextmanager
    def _translate_errors(self, action: str) -> Iterator[None]:
        """Turn any error of the runtime into ours; they have no common base class."""
        try:
            yield
        except Exception as error:
            raise self._failure(f"The model {self._name} did not {action}: {error}") from error


def batches(
    items: Iterable[Item], ids: Callable[[Item], Sized], *, tokens: int
) -> Iterator[list[Item]]:
    """Group items of similar length, so that there is little padding and at most `tokens` in a
    group.

    >>> list(batches(["a" * 9, "bb", "ccc"], lambda text: text, tokens=9))
    [['bb', 'ccc'], ['aaaaaaaaa']]
    """
    batch: list[Item] = []
    for item in sorted(items, key=lambda item: len(ids(item))):
        size = (len(batch) + 1) * len(ids(item))
        if batch and size > tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def pad(rows: Sequence[list[int]]) -> Inputs:
    """Return a model's inputs for rows of ids.

    >>> pad([[5, 6], [7]])["attention_mask"].tolist()
    [[1, 1], [1, 0]]
    """
    longest = max(map(len, rows))
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, values in enumerate(rows):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def _one_of(kind: str) -> re.Pattern[str]:
    """Return a pattern for one character of a kind."""
    codes = re.sub("[0-9a-f]+", lambda code: rf"\U{code[0]:0>8}", _CHARACTERS[kind])
    return re.compile(f"[{''.join(codes.split())}]")


class _Fold(dict[int, str]):
    """A table for str.translate, filled as it is used: lower case, no accents, marks apart."""

    removed = _one_of("removed")
    punctuation = _one_of("punctuation")
    ideographs = _one_of("ideographs")

    def __missing__(self, code: int) -> str:
        folded = ""
        whole = chr(code)
        if not self.removed.match(whole):
            decomposed = unicodedata.normalize("NFD", whole)
            for char in self.removed.sub("", decomposed):
                folded += f" {char} " if self.punctuation.match(char) else char.lower()
            if whole.isspace():
                folded = " "
            elif self.ideographs.match(whole):
                folded = f" {folded} "
        if len(self) < _CACHED_CHARACTERS:
            self[code] = folded
        return folded


_FOLD = _Fold()


def words(text: str) -> list[str]:
    """Return the words of a text, folded.

    >>> words("Café, naïve 東京!")
    ['cafe', ',', 'naive', '東', '京', '!']
    """
    return text.translate(_FOLD).split()


def spans(text: str, *, window: int = _WINDOW) -> Iterator[str]:
    """Cut a text into spans of about a window, never inside a word.

    >>> list(spans("one two three", window=5))
    ['one two', ' three']
    """
    start = 0
    while len(text) - start > window:
        cut = _SEPARATOR.search(text, start + window)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


class WordPiece:
    """Reads one vocabulary; safe to share between threads."""

    def __init__(self, vocab_path: Path) -> None:
        """Read a vocabulary of one piece a line. Raises OSError if it cannot be read, KeyError if
        it is not BERT's.
        """
        content = vocab_path.read_text(encoding="utf-8")
        lines = content.rstrip("\n").split("\n")
        self._vocabulary = {piece: index for index, piece in enumerate(lines)}
        self._longest_piece = max(map(len, lines))
        self._start = self._vocabulary["[CLS]"]
        self._end = self._vocabulary["[SEP]"]
        self._unknown = (self._vocabulary["[UNK]"],)
        self._seen: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text between [CLS] and [SEP], cut to what the model reads."""
        return self.framed(self.pieces(text, limit=LONGEST_INPUT - 2))

    def framed(self, pieces: list[int]) -> list[int]:
        """Put pieces between [CLS] and [SEP], as the model expects them."""
        return [self._start, *pieces, self._end]

    def pieces(self, text: str, *, limit: int) -> list[int]:
        """Return the first ids of a text, at most `limit`, without the special ones."""
        ids: list[int] = []
        for span in spans(text):
            parts = _SPECIAL.split(span) if "[" in span else [span]
            for part in parts:
                if _SPECIAL.fullmatch(part):
                    ids.append(self._vocabulary[part])
                    continue
                for word in words(part):
                    ids += self._seen.get(word) or self._split(word)
            if len(ids) >= limit:
                break
        return ids[:limit]

    def _split(self, word: str) -> tuple[int, ...]:
        """Split at the longest known piece from the left; one [UNK] if some part is unknown."""
        if len(word) > LONGEST_WORD:
            return self._unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            last = min(len(word), start + self._longest_piece)
            for end in range(last, start, -1):
                index = self._vocabulary.get(prefix + word[start:end])
                if index is not None:
                    break
            else:
                found = [*self._unknown]
                break
            found.append(index)
            start = end
        if len(self._seen) >= _CACHED_WORDS:
            self._seen.clear()
        self._seen[word] = tuple(found)
        return self._seen[word]


def load_model(folder: Path, threads: int = 0) -> tuple[WordPiece, Any]:
    """Return the tokenizer of a model and its session; 0 threads: all cores."""
    session = load_session(folder, threads)
    return WordPiece(folder / "vocab.txt"), session


def load_session(folder: Path, threads: int) -> Any:
    """Return the session of a model; it has no types."""
    onnxruntime = load_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # A waiting thread that spins takes the core that another part of the process needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    path = folder / "model.onnx"
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def windows_of(tokenizer: WordPiece, text: str) -> list[list[int]]:
    """Return the ids of a text in windows that the model can read: mostly one, at most 16."""
    longest = LONGEST_INPUT - 2
    most = _MOST_WINDOWS * longest
    pieces = tokenizer.pieces(text, limit=most + 1)
    if len(pieces) > most:
        size = ceil(len(text) / _MOST_WINDOWS)
        return [tokenizer.encode(text[i : i + size]) for i in range(0, len(text), size)]
    return list(map(tokenizer.framed, balance(pieces, longest)))


def balance(pieces: list[int], longest: int) -> list[list[int]]:
    """Cut a list into the fewest parts no longer than `longest`, about equally long.

    >>> balance([1, 2, 3, 4, 5], 4)
    [[1, 2, 3], [4, 5]]
    >>> balance([], 4)
    [[]]
    """
    count = ceil(len(pieces) / longest) or 1
    size = ceil(len(pieces) / count) or 1
    starts = range(0, len(pieces) or 1, size)
    return [pieces[start : start + size] for start in starts]


class Window(NamedTuple):
    """As much of a text as the model reads at once."""

    text: int  # its place in the call
    part: int  # its place in the text
    ids: list[int]


def batch_windows(
    tokenizer: WordPiece, texts: Sequence[str], *, tokens: int
) -> list[tuple[list[Window], Inputs]]:
    """Return the windows of all texts in batches, with the inputs of the model for each."""
    windows = []
    for place, text in enumerate(texts):
        for part, ids in enumerate(windows_of(tokenizer, text)):
            windows.append(Window(place, part, ids))
    found = batches(windows, attrgetter("ids"), tokens=tokens)
    return [(batch, pad([window.ids for window in batch])) for batch in found]


class EncodedPair(NamedTuple):
    """Two texts as the model reads them."""

    place: int  # of the pair in the call
    ids: list[int]
    first: int  # how many of the ids belong to the first text


def encode_pairs(
    tokenizer: WordPiece, pairs: Sequence[tuple[str, str]], longest: int
) -> list[EncodedPair]:
    """Return pairs of texts as a model reads them, cut to `longest` pieces.

    If they are too long together, the longer one is cut first.
    """
    room = longest - 3  # [CLS], and a [SEP] after each
    encoded = []
    for place, texts in enumerate(pairs):
        first, second = [tokenizer.pieces(text, limit=longest) for text in texts]
        first = first[: max(room - len(second), room // 2)]
        head = tokenizer.framed(first)
        _, *tail = tokenizer.framed(second[: room - len(first)])
        encoded.append(EncodedPair(place, head + tail, len(head)))
    return encoded


def pad_pairs(batch: Sequence[EncodedPair]) -> Inputs:
    """Return the inputs that a BERT-like model takes for pairs.

    >>> pairs = [EncodedPair(0, [1, 7, 2, 8, 2], 3), EncodedPair(1, [1, 2, 2], 2)]
    >>> pad_pairs(pairs)["token_type_ids"].tolist()
    [[0, 0, 0, 1, 1], [0, 0, 1, 0, 0]]
    """
    inputs = pad([pair.ids for pair in batch])
    kinds = np.zeros_like(inputs["input_ids"])
    for row, pair in enumerate(batch):
        kinds[row, pair.first : len(pair.ids)] = 1
    return {**inputs, "token_type_ids": kinds}


def batch_pairs(
    tokenizer: WordPiece, pairs: Sequence[tuple[str, str]], longest: int, *, tokens: int
) -> list[tuple[list[EncodedPair], Inputs]]:
    """Return pairs of texts in batches, with the inputs of the model for each."""
    encoded = encode_pairs(tokenizer, pairs, longest)
    found = batches(encoded, attrgetter("ids"), tokens=tokens)
    return [(batch, pad_pairs(batch)) for batch in found]
