"""Local models: onnxruntime, loaded late and without telemetry, worker threads, and WordPiece.

WordPiece returns the same ids as the reference tokenizer of BERT's uncased models. That uses the
marks and punctuation of Unicode 8, so their tables are part of this module.
"""

import asyncio
import os
import re
import unicodedata
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import EmbedderUnavailable, ProviderFailed

Result = TypeVar("Result")
Item = TypeVar("Item")
Loaded = TypeVar("Loaded")

LONGEST_INPUT = 256  # pieces the model reads, [CLS] and [SEP] included
_MOST_WINDOWS = 16  # of one text; a longer text is read in this many places, evenly spread
LONGEST_WORD = 100  # characters; a longer word is one [UNK]
_WINDOW = 2_048  # characters looked at in one go
_CACHED_WORDS = 32_768
_CACHED_CHARACTERS = 65_536

# Removed, as of Unicode 8: control, format and private-use characters, non-spacing marks, U+FFFD.
# Lone surrogates, which the reference cannot be given, vanish like the U+FFFD that stands for them.
_REMOVED = """
    0-8 b-c e-1f 7f-9f ad 300-36f 483-487 591-5bd 5bf 5c1-5c2 5c4-5c5 5c7 600-605 610-61a 61c
    64b-65f 670 6d6-6dd 6df-6e4 6e7-6e8 6ea-6ed 70f 711 730-74a 7a6-7b0 7eb-7f3 816-819 81b-823
    825-827 829-82d 859-85b 8e3-902 93a 93c 941-948 94d 951-957 962-963 981 9bc 9c1-9c4 9cd
    9e2-9e3 a01-a02 a3c a41-a42 a47-a48 a4b-a4d a51 a70-a71 a75 a81-a82 abc ac1-ac5 ac7-ac8 acd
    ae2-ae3 b01 b3c b3f b41-b44 b4d b56 b62-b63 b82 bc0 bcd c00 c3e-c40 c46-c48 c4a-c4d c55-c56
    c62-c63 c81 cbc cbf cc6 ccc-ccd ce2-ce3 d01 d41-d44 d4d d62-d63 dca dd2-dd4 dd6 e31 e34-e3a
    e47-e4e eb1 eb4-eb9 ebb-ebc ec8-ecd f18-f19 f35 f37 f39 f71-f7e f80-f84 f86-f87 f8d-f97
    f99-fbc fc6 102d-1030 1032-1037 1039-103a 103d-103e 1058-1059 105e-1060 1071-1074 1082
    1085-1086 108d 109d 135d-135f 1712-1714 1732-1734 1752-1753 1772-1773 17b4-17b5 17b7-17bd 17c6
    17c9-17d3 17dd 180b-180e 18a9 1920-1922 1927-1928 1932 1939-193b 1a17-1a18 1a1b 1a56 1a58-1a5e
    1a60 1a62 1a65-1a6c 1a73-1a7c 1a7f 1ab0-1abd 1b00-1b03 1b34 1b36-1b3a 1b3c 1b42 1b6b-1b73
    1b80-1b81 1ba2-1ba5 1ba8-1ba9 1bab-1bad 1be6 1be8-1be9 1bed 1bef-1bf1 1c2c-1c33 1c36-1c37
    1cd0-1cd2 1cd4-1ce0 1ce2-1ce8 1ced 1cf4 1cf8-1cf9 1dc0-1df5 1dfc-1dff 200b-200f 202a-202e
    2060-2064 2066-206f 20d0-20dc 20e1 20e5-20f0 2cef-2cf1 2d7f 2de0-2dff 302a-302d 3099-309a a66f
    a674-a67d a69e-a69f a6f0-a6f1 a802 a806 a80b a825-a826 a8c4 a8e0-a8f1 a926-a92d a947-a951
    a980-a982 a9b3 a9b6-a9b9 a9bc a9e5 aa29-aa2e aa31-aa32 aa35-aa36 aa43 aa4c aa7c aab0 aab2-aab4
    aab7-aab8 aabe-aabf aac1 aaec-aaed aaf6 abe5 abe8 abed d800-f8ff fb1e fe00-fe0f fe20-fe2f feff
    fff9-fffb fffd 101fd 102e0 10376-1037a 10a01-10a03 10a05-10a06 10a0c-10a0f 10a38-10a3a 10a3f
    10ae5-10ae6 11001 11038-11046 1107f-11081 110b3-110b6 110b9-110ba 110bd 11100-11102
    11127-1112b 1112d-11134 11173 11180-11181 111b6-111be 111ca-111cc 1122f-11231 11234
    11236-11237 112df 112e3-112ea 11300-11301 1133c 11340 11366-1136c 11370-11374 114b3-114b8
    114ba 114bf-114c0 114c2-114c3 115b2-115b5 115bc-115bd 115bf-115c0 115dc-115dd 11633-1163a
    1163d 1163f-11640 116ab 116ad 116b0-116b5 116b7 1171d-1171f 11722-11725 11727-1172b
    16af0-16af4 16b30-16b36 16f8f-16f92 1bc9d-1bc9e 1bca0-1bca3 1d167-1d169 1d173-1d182
    1d185-1d18b 1d1aa-1d1ad 1d242-1d244 1da00-1da36 1da3b-1da6c 1da75 1da84 1da9b-1da9f
    1daa1-1daaf 1e8d0-1e8d6 e0001 e0020-e007f e0100-e01ef f0000-ffffd 100000-10fffd
"""

# Punctuation in Unicode 8, and the ASCII symbols that BERT counts as such: each is its own word.
_PUNCTUATION = """
    21-2f 3a-40 5b-60 7b-7e a1 a7 ab b6-b7 bb bf 37e 387 55a-55f 589-58a 5be 5c0 5c3 5c6 5f3-5f4
    609-60a 60c-60d 61b 61e-61f 66a-66d 6d4 700-70d 7f7-7f9 830-83e 85e 964-965 970 af0 df4 e4f
    e5a-e5b f04-f12 f14 f3a-f3d f85 fd0-fd4 fd9-fda 104a-104f 10fb 1360-1368 1400 166d-166e
    169b-169c 16eb-16ed 1735-1736 17d4-17d6 17d8-17da 1800-180a 1944-1945 1a1e-1a1f 1aa0-1aa6
    1aa8-1aad 1b5a-1b60 1bfc-1bff 1c3b-1c3f 1c7e-1c7f 1cc0-1cc7 1cd3 2010-2027 2030-2043 2045-2051
    2053-205e 207d-207e 208d-208e 2308-230b 2329-232a 2768-2775 27c5-27c6 27e6-27ef 2983-2998
    29d8-29db 29fc-29fd 2cf9-2cfc 2cfe-2cff 2d70 2e00-2e2e 2e30-2e42 3001-3003 3008-3011 3014-301f
    3030 303d 30a0 30fb a4fe-a4ff a60d-a60f a673 a67e a6f2-a6f7 a874-a877 a8ce-a8cf a8f8-a8fa a8fc
    a92e-a92f a95f a9c1-a9cd a9de-a9df aa5c-aa5f aade-aadf aaf0-aaf1 abeb fd3e-fd3f fe10-fe19
    fe30-fe52 fe54-fe61 fe63 fe68 fe6a-fe6b ff01-ff03 ff05-ff0a ff0c-ff0f ff1a-ff1b ff1f-ff20
    ff3b-ff3d ff3f ff5b ff5d ff5f-ff65 10100-10102 1039f 103d0 1056f 10857 1091f 1093f 10a50-10a58
    10a7f 10af0-10af6 10b39-10b3f 10b99-10b9c 11047-1104d 110bb-110bc 110be-110c1 11140-11143
    11174-11175 111c5-111c9 111cd 111db 111dd-111df 11238-1123d 112a9 114c6 115c1-115d7
    11641-11643 1173c-1173e 12470-12474 16a6e-16a6f 16af5 16b37-16b3b 16b44 1bc9f 1da87-1da8b
"""

# A word of its own too. The gap 2b820-2b91f is the reference's.
_IDEOGRAPHS = "3400-4dbf 4e00-9fff f900-faff 20000-2a6df 2a700-2b81f 2b920-2ceaf 2f800-2fa1f"

_SPECIAL = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")
# Where a long text may be cut without changing a word. "]" is left out: it may end a special token.
_SEPARATOR = re.compile(r"[ \t\n\r!-/:-@\[\\^_`{-~\u3001\u3002\u3400-\u4dbf\u4e00-\u9fff]")


def load_runtime() -> Any:
    """Import onnxruntime with its telemetry switched off; the name of the switch changed once."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    import onnxruntime

    return onnxruntime


class WorkerThread:
    """A thread that runs functions one after the other, for any event loop."""

    def __init__(self, name: str, closed: ProviderFailed) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = closed  # raised by `run` after `close`

    async def run(self, step: Callable[..., Result], *arguments: object) -> Result:
        """Run a function and return its result."""
        try:
            future = self._pool.submit(step, *arguments)
        except RuntimeError as error:
            raise self._closed from error
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Wait for pending work. Closing twice is fine."""
        await asyncio.to_thread(self._pool.shutdown)


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
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=name)
        self._name = name
        self._folder = folder
        self._load = load
        self._failure = failure
        self._lock = Lock()
        self._loaded: Loaded | None = None

    async def infer(
        self,
        split: Callable[[Loaded], list[Item]],
        run: Callable[[Loaded, Item], Result],
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
    items: Iterable[Item],
    ids: Callable[[Item], Sized],
    *,
    tokens: int,
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


def pad(rows: Sequence[list[int]]) -> dict[str, NDArray[np.int64]]:
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


def _one_of(ranges: str) -> re.Pattern[str]:
    """Return a pattern for one character whose code is in the ranges."""
    codes = re.sub("[0-9a-f]+", lambda code: rf"\U{code[0]:0>8}", ranges)
    return re.compile(f"[{''.join(codes.split())}]")


class _Fold(dict[int, str]):
    """A table for str.translate, filled as it is used: lower case, no accents, marks apart."""

    removed = _one_of(_REMOVED)
    punctuation = _one_of(_PUNCTUATION)
    ideographs = _one_of(_IDEOGRAPHS)

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
        pieces = self.pieces(text, limit=LONGEST_INPUT - 2)
        return self.framed(pieces)

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
