"""Embedders turn texts into vectors. This module has what all of them share, a check and a cache,
and one that needs no model.

The cache is in memory and in one SQLite file, keyed by the SHA-256 of `model:text`, so the model is
called for new texts only. It is optional: a directory that is full, read-only or damaged costs time
but never raises.
"""

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b, sha256
from math import hypot, sqrt
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import apsw
import numpy as np

from ..errors import EmbedderUnavailable, ProviderFailed, WrongDimensions
from ..ports import Embedder, Forgetful, Vectors
from ..text.second_process import LONG

T = TypeVar("T")
PATIENCE = 16.0  # seconds until a call times out, and as many again for every sixteen texts
FILE = "vectors.db"
LIMIT_BYTES = 256 * 1024 * 1024  # about 160,000 texts
_RECENT = 2_048  # vectors held in memory
_MOST_WAITING = 20_000  # vectors not yet on disk; further ones are not written
_ROOM = 0.9  # share of the limit that is kept when the oldest are deleted
_FEW = 500  # values in one IN (…)
_SEAL = 8  # bytes
_OVERHEAD = 300  # bytes that a vector takes in addition: key, seal, indexes, free space in a page
_BUSY_MS = 2_000
_NEAR = 1e-3  # how far rounding may move a length from 1
_WORD = re.compile(r"\w+")
_TRIGRAM = 0.3  # of a word's weight
_NEXT = "(SELECT coalesce(max(used), 0) + 1 FROM vectors)"
_PREPARE = """
    PRAGMA page_size = 16384;
    PRAGMA journal_mode = WAL;
    PRAGMA wal_autocheckpoint = 64;
    PRAGMA synchronous = OFF; -- vectors lost in a power cut are computed again
    PRAGMA secure_delete = ON;
    CREATE TABLE IF NOT EXISTS vectors
        (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, used INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS vectors_used ON vectors (used);
    """


async def encode(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return one row of length 1 per text, checked: a bad vector would silently spoil every answer.

    Raises EmbedderUnavailable, WrongDimensions.
    """
    if not texts:
        return np.empty((0, embedder.dimensions), np.float32)
    seconds = PATIENCE * (1 + len(texts) / 16)
    try:
        async with asyncio.timeout(seconds):
            made = await embedder.encode_batch(texts)
    except TimeoutError as error:
        name = f"The model {embedder.model!r}"
        raise EmbedderUnavailable(f"{name} did not answer within {seconds:.0f} s") from error
    return check_vectors(made, len(texts), embedder)


async def encode_by_both(
    embedder: Embedder,
    second: Embedder | None,
    texts: Sequence[str],
) -> tuple[Vectors, Vectors | None, str]:
    """Return the vectors by the first model, those by the second, and why that did not answer.

    Without the second, its vectors are missing. Raises what `encode` raises for the first.
    """

    async def encode_second() -> tuple[Vectors | None, str]:
        if second is None:
            return None, ""
        try:
            return await encode(second, texts), ""
        except ProviderFailed as error:
            return None, str(error)

    made, (others, problem) = await asyncio.gather(encode(embedder, texts), encode_second())
    return made, others, problem


def check_vectors(made: object, count: int, embedder: Embedder) -> Vectors:
    """Return what an embedder made as rows of length 1. Raises EmbedderUnavailable, WrongDimensions."""
    name = f"The model {embedder.model!r}"
    wanted = f"{count} vectors of {embedder.dimensions} numbers"
    try:
        rows = np.asarray(made, np.float32)
    except (TypeError, ValueError) as error:
        raise WrongDimensions(f"{name} returned something other than {wanted}") from error
    if rows.shape != (count, embedder.dimensions):
        raise WrongDimensions(f"{name} returned an array of shape {rows.shape}, not {wanted}")
    squares = np.einsum("ij,ij->i", rows, rows)
    lengths = np.sqrt(squares)
    errors = np.abs(lengths - 1)
    if (errors < _NEAR).all():
        return rows
    if not np.isfinite(rows).all():
        raise EmbedderUnavailable(f"{name} returned NaN or infinite numbers")
    lengths[lengths == 0] = 1
    return np.asarray(rows / lengths[:, None], np.float32)


class Cached:
    """Wraps another embedder. Safe to share between threads and event loops.

    One thread reads and writes the file, in the order of the calls. New vectors are written after
    a call returned; the next call with a new text waits for that, and so does `close`.
    """

    def __init__(
        self,
        embedder: Embedder,
        directory: Path,
        *,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self.inner = embedder
        self.model = embedder.model
        self.dimensions = embedder.dimensions
        self._recent: OrderedDict[bytes, Vectors] = OrderedDict()
        self._file = VectorFile(
            directory / FILE,
            embedder.dimensions,
            limit_bytes,
        )
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vector-cache")
        self._waiting = 0  # vectors not yet on disk
        self._lock = Lock()

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order; the embedder gets new texts in one call.

        Raises EmbedderUnavailable when there are new texts and the embedder does not answer.
        """
        names = [key(self.model, text) for text in texts]
        wanted = dict(zip(names, texts, strict=True))
        found = {}
        with self._lock:
            for name in wanted:
                if name in self._recent:
                    self._recent.move_to_end(name)
                    found[name] = self._recent[name]
        missing = [name for name in wanted if name not in found]
        if missing:
            on_disk = await asyncio.wrap_future(self._submit(self._file.read, missing))
            self._hold(on_disk)
            found |= on_disk
            missing = [name for name in missing if name not in found]
        if missing:
            new = [wanted[name] for name in missing]
            vectors = await self.inner.encode_batch(new)
            made = dict(zip(missing, vectors, strict=True))
            self._hold(made)
            found |= made
            self._write_later(made)
        rows = np.array([found[name] for name in names], dtype=np.float32)
        return rows.reshape(len(texts), self.dimensions)

    async def forget(self, texts: Sequence[str]) -> None:
        """Delete the vectors of these texts, in memory and on disk."""
        if isinstance(self.inner, Forgetful):
            await self.inner.forget(texts)
        names = [key(self.model, text) for text in texts]
        with self._lock:
            for name in names:
                self._recent.pop(name, None)
        if names:
            await asyncio.wrap_future(self._submit(self._file.delete, names))

    async def close(self) -> None:
        """Finish writing, then close the embedder."""
        with suppress(EmbedderUnavailable):  # closing twice is fine
            self._submit(self._file.close)
        await asyncio.to_thread(self._thread.shutdown)
        await self.inner.close()

    def _submit(self, step: Callable[..., T], *arguments: object) -> Future[T]:
        try:
            return self._thread.submit(step, *arguments)
        except RuntimeError as error:
            raise EmbedderUnavailable(f"The embedder {self.model} is closed") from error

    def _hold(self, vectors: dict[bytes, Vectors]) -> None:
        with self._lock:
            self._recent.update(vectors)
            while len(self._recent) > _RECENT:
                self._recent.popitem(last=False)

    def _write_later(self, vectors: dict[bytes, Vectors]) -> None:
        """Queue vectors for the file, unless too many wait already."""
        count = len(vectors)

        def write() -> None:
            self._file.write(vectors)
            with self._lock:
                self._waiting -= count

        with self._lock:
            if self._waiting + count > _MOST_WAITING:
                return
            self._waiting += count
        with suppress(EmbedderUnavailable):
            self._submit(write)


def key(model: str, text: str) -> bytes:
    """Return the cache key of a text.

    >>> key("all-MiniLM-L6-v2", "tea").hex()[:8]
    '8dd53a0a'
    """
    named = f"{model}:{text}"
    return sha256(named.encode("utf-8", "surrogatepass")).digest()


class VectorFile:
    """Vectors in a file, used in one thread; a file that cannot be used is like an empty one."""

    def __init__(
        self,
        path: Path,
        dimensions: int,
        limit_bytes: int,
    ) -> None:
        self._path = path
        self._size = 4 * dimensions
        self._most = limit_bytes // (self._size + _OVERHEAD)
        self._connection: apsw.Connection | None = None
        self._rows: int | None = None  # counted at the first write

    def read(self, names: Sequence[bytes]) -> dict[bytes, Vectors]:
        """Return the vectors that are present and undamaged, and mark them as used."""
        found: dict[bytes, Vectors] = {}
        with self._ignore_failures():
            file = self._open()
            for start in range(0, len(names), _FEW):
                some = names[start : start + _FEW]
                marks = ", ".join("?" * len(some))
                sql = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"
                rows: list[Any] = file.execute(sql, some).fetchall()
                for name, sealed in rows:
                    content = sealed[: self._size] if isinstance(sealed, bytes) else b""
                    if _seal(name, content) == sealed:
                        vector = np.frombuffer(content, "<f4")
                        found[name] = vector.astype(np.float32)
            with suppress(apsw.ReadOnlyError, apsw.BusyError), file:  # a file may be read-only
                sql = f"UPDATE vectors SET used = {_NEXT} WHERE key = ?"
                file.executemany(sql, zip(found, strict=True))
        return found

    def write(self, vectors: dict[bytes, Vectors]) -> None:
        """Store vectors; the least recently used ones are deleted to make room."""
        sealed = []
        for name, vector in vectors.items():
            content = vector.astype("<f4").tobytes()
            sealed.append((name, _seal(name, content)))
        sealed = sealed[: self._most]
        with self._ignore_failures(), self._open() as file:
            if self._rows is None:
                count: Any = file.execute("SELECT count(*) FROM vectors").fetchall()
                self._rows = int(count[0][0])
            self._rows += len(sealed)
            if self._rows > self._most:
                target = int(self._most * _ROOM)
                left = max(0, target - len(sealed))
                oldest = (
                    "SELECT rowid FROM vectors ORDER BY used DESC, rowid DESC LIMIT -1 OFFSET ?"
                )
                file.execute(f"DELETE FROM vectors WHERE rowid IN ({oldest})", (left,))
                self._rows = left + len(sealed)
            sql = f"INSERT INTO vectors (key, vector, used) VALUES (?, ?, {_NEXT}) "
            sql += "ON CONFLICT (key) DO UPDATE SET vector = excluded.vector"
            file.executemany(sql, sealed)

    def delete(self, names: Sequence[bytes]) -> None:
        """Leave no trace of vectors, neither in the file nor in its log."""
        with self._ignore_failures():
            file = self._open()
            sql = "DELETE FROM vectors WHERE key = ?"
            file.executemany(sql, zip(names, strict=True))
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._path.chmod(0o600)  # it may be older, and SQLite gives its log the same mode
            connection = apsw.Connection(str(self._path))
            connection.set_busy_timeout(_BUSY_MS)
            connection.execute(_PREPARE).fetchall()
            self._connection = connection
        return self._connection

    @contextmanager
    def _ignore_failures(self) -> Iterator[None]:
        """Ignore failures of the file; remove a damaged one, so that a new one is created."""
        try:
            yield
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
            self.close()
            self._rows = None
            for end in ("", "-wal", "-shm"):
                with suppress(OSError):
                    Path(f"{self._path}{end}").unlink()
        except (OSError, apsw.Error):
            return


def _seal(name: bytes, content: bytes) -> bytes:
    """Return a vector with a checksum that reveals damage and a wrong key."""
    checksum = blake2b(name + content, digest_size=_SEAL)
    return content + checksum.digest()


class Hashing:
    """An embedder without a model: words and their trigrams, hashed. For tests, and where no model
    can run.

    It compares spelling, not meaning: "tea" and "teas" are near each other, "tea" and "coffee" are
    not. The same text gives the same vector on every machine. Needs nothing, never fails.
    """

    def __init__(self, dimensions: int = 384) -> None:
        self.dimensions = dimensions
        self.model = f"hashing-{dimensions}"

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order."""
        if sum(map(len, texts)) <= LONG:
            made = list(map(self._row, texts))
        else:
            made = await asyncio.to_thread(lambda: list(map(self._row, texts)))
        rows = np.array(made, np.float32)
        return rows.reshape(len(texts), self.dimensions)

    async def close(self) -> None:
        """Release nothing."""

    def _row(self, text: str) -> list[float]:
        """Return the vector of a text; as a list, because other threads hardly run beside writes to an
        array.
        """
        row = [0.0] * self.dimensions
        for feature, weight in features(text).items():
            place = hash_feature(feature)
            row[place % self.dimensions] += weight if place & 1 << 63 else -weight
        length = hypot(*row)
        return [value / length for value in row] if length else self._row("")


def features(text: str) -> dict[str, float]:
    """Return the words and trigrams of a text with weights that grow as the root of their count.

    >>> features("Tea")
    {'tea': 1.0, '#<te': 0.3, '#tea': 0.3, '#ea>': 0.3}
    >>> features(" ")
    {'': 1.0}
    """
    words = Counter(_WORD.findall(text.casefold()) or [""])
    trigrams: Counter[str] = Counter()
    for word, times in words.items():
        framed = f"<{word}>"
        for start in range(len(framed) - 2):
            trigrams[f"#{framed[start : start + 3]}"] += times
    weights = {}
    for word, times in words.items():
        weights[word] = sqrt(times)
    for trigram, times in trigrams.items():
        weights[trigram] = _TRIGRAM * sqrt(times)
    return weights


@lru_cache(maxsize=65_536)
def hash_feature(feature: str) -> int:
    """Return a 64-bit number for a feature, the same in every process.

    >>> hash_feature("tea") == hash_feature("tea") != hash_feature("coffee")
    True
    """
    encoded = feature.encode("utf-8", "surrogatepass")
    digest = blake2b(encoded, digest_size=8).digest()
    return int.from_bytes(digest, "little")
