"""An embedder that remembers: vectors already made are read from memory or disk, and the model is not called.

The vectors are kept in one SQLite file under a directory, by the SHA-256 of `model:text`. The cache is a convenience:
a directory that is full, read-only or damaged costs time and never an error.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b, sha256
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import apsw
import numpy as np

from ..errors import EmbedderUnavailable
from ..ports import Embedder, Vectors
from ..providers.onnx import OneThread

FILE = "vectors.db"
LIMIT_BYTES = 256 * 1024 * 1024  # about 160,000 texts
_RECENT = 2_048  # vectors kept in memory
_MOST_WAITING = 20_000  # vectors not yet on disk; more than that are not written at all
_ROOM = 0.9  # of the limit is kept when the oldest are deleted, so that it happens seldom
_FEW = 500  # values in one IN (…)
_SEAL = 8  # bytes
_BESIDE = (
    300  # bytes that a vector costs beside itself: key, seal, indexes, what is left free in a page
)
_BUSY_MS = 2_000

Result = TypeVar("Result")


class Cached:
    """The same port around another embedder. Safe to share between threads and event loops.

    One thread reads and writes the file; what is new is written after the answer was given, and `close` waits for it.
    """

    def __init__(
        self, embedder: Embedder, directory: Path, *, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self.inner = embedder
        self._recent = _Recent(_RECENT)
        self._disk = _Disk(directory / FILE, embedder.dimensions, limit_bytes)
        self._thread = OneThread(
            "vector-cache", EmbedderUnavailable(f"The embedder {embedder.model} is closed")
        )
        self._waiting = 0
        self._lock = Lock()

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def dimensions(self) -> int:
        return self.inner.dimensions

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """One unit-length row per text, in order; the embedder is asked once, for the new texts only.

        Raises EmbedderUnavailable when there are new texts and the embedder does not answer.
        """
        names = [key(self.model, text) for text in texts]
        wanted = dict(zip(names, texts, strict=True))
        found = self._recent.get(wanted)
        if missing := [name for name in wanted if name not in found]:
            found |= self._kept(await self._thread.run(self._disk.read, missing))
        if missing := [name for name in missing if name not in found]:
            found |= await self._made({name: wanted[name] for name in missing})
        return np.array([found[name] for name in names], dtype=np.float32).reshape(
            len(texts), self.dimensions
        )

    async def forget(self, texts: Iterable[str]) -> None:
        """Delete what is kept of these texts, in memory and on disk."""
        names = [key(self.model, text) for text in texts]
        self._recent.drop(names)
        await self._thread.run(self._disk.delete, names)

    async def close(self) -> None:
        """Finish writing, then close the embedder."""
        self._thread.later(self._disk.close)
        await self._thread.close()
        await self.inner.close()

    async def _made(self, texts: dict[bytes, str]) -> dict[bytes, Vectors]:
        vectors = await self.inner.encode_batch(list(texts.values()))
        made = self._kept(dict(zip(texts, vectors, strict=True)))
        if self._wait_for(len(made)) > _MOST_WAITING or not self._thread.later(self._write, made):
            self._wait_for(-len(made))
        return made

    def _write(self, vectors: dict[bytes, Vectors]) -> None:
        try:
            self._disk.write(vectors)
        finally:
            self._wait_for(-len(vectors))

    def _wait_for(self, more: int) -> int:
        with self._lock:
            self._waiting += more
            return self._waiting

    def _kept(self, vectors: dict[bytes, Vectors]) -> dict[bytes, Vectors]:
        self._recent.put(vectors)
        return vectors


def key(model: str, text: str) -> bytes:
    """Under which a text's vector is kept.

    >>> key("all-MiniLM-L6-v2", "tea").hex()[:8]
    '8dd53a0a'
    """
    return sha256(f"{model}:{text}".encode("utf-8", "surrogatepass")).digest()


class _Recent:
    """The vectors used last, in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._vectors: OrderedDict[bytes, Vectors] = OrderedDict()
        self._lock = Lock()

    def get(self, names: Iterable[bytes]) -> dict[bytes, Vectors]:
        with self._lock:
            found = {name: self._vectors[name] for name in names if name in self._vectors}
            for name in found:
                self._vectors.move_to_end(name)
        return found

    def put(self, vectors: dict[bytes, Vectors]) -> None:
        with self._lock:
            self._vectors.update(vectors)
            while len(self._vectors) > self._limit:
                self._vectors.popitem(last=False)

    def drop(self, names: Iterable[bytes]) -> None:
        with self._lock:
            for name in names:
                self._vectors.pop(name, None)


class _Disk:
    """Vectors in a file. Used in one thread; whatever is wrong with the file, it is as if nothing were kept."""

    def __init__(self, path: Path, dimensions: int, limit_bytes: int) -> None:
        self._path = path
        self._size = 4 * dimensions
        self._most = limit_bytes // (self._size + _BESIDE)
        self._connection: apsw.Connection | None = None
        self._count: int | None = None  # counted at the first write

    def read(self, names: Sequence[bytes]) -> dict[bytes, Vectors]:
        """What is there and sound; it counts as used now."""
        return self._try(self._found, names) or {}

    def write(self, vectors: dict[bytes, Vectors]) -> None:
        """Keep them; what was used longest ago makes room for them if it must."""
        self._try(
            self._keep,
            [(name, _sealed(name, vector)) for name, vector in vectors.items()][: self._most],
        )

    def delete(self, names: Sequence[bytes]) -> None:
        """Leave no trace of them, neither in the file nor in its log."""
        self._try(_deleted, names)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _try(
        self, step: Callable[[apsw.Connection, Sequence[Any]], Result], values: Sequence[Any]
    ) -> Result | None:
        """Open the file when it is first needed, begin it anew where it is damaged; None if it cannot be used."""
        for _ in range(2):
            try:
                self._connection = self._connection or _connected(self._path)
                return step(self._connection, values)
            except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
                self._begin_anew()
            except (OSError, apsw.Error):
                return None
        return None

    def _begin_anew(self) -> None:
        self.close()
        self._count = None
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self._path}{end}").unlink()

    def _found(self, file: apsw.Connection, names: Sequence[bytes]) -> dict[bytes, Vectors]:
        found: dict[bytes, Vectors] = {}
        for start in range(0, len(names), _FEW):
            some = names[start : start + _FEW]
            sql = f"SELECT key, vector FROM vectors WHERE key IN ({', '.join('?' * len(some))})"
            rows: list[Any] = file.execute(sql, some).fetchall()
            for name, content in rows:
                if (vector := self._opened(name, content)) is not None:
                    found[name] = vector
        with (
            suppress(apsw.ReadOnlyError, apsw.BusyError),
            file,
        ):  # what may not be changed may still be read
            file.executemany(
                f"UPDATE vectors SET used = {_NEXT} WHERE key = ?", [(name,) for name in found]
            )
        return found

    def _opened(self, name: bytes, content: object) -> Vectors | None:
        if not isinstance(content, bytes) or len(content) != self._size + _SEAL:
            return None
        vector = np.frombuffer(content[: self._size], dtype="<f4").astype(np.float32)
        return vector if _sealed(name, vector) == content else None

    def _keep(self, file: apsw.Connection, sealed: Sequence[tuple[bytes, bytes]]) -> None:
        with file:
            self._make_room(file, len(sealed))
            sql = f"INSERT INTO vectors (key, vector, used) VALUES (?, ?, {_NEXT}) "
            file.executemany(
                sql + "ON CONFLICT (key) DO UPDATE SET vector = excluded.vector", sealed
            )

    def _make_room(self, file: apsw.Connection, more: int) -> None:
        self._count = (_counted(file) if self._count is None else self._count) + more
        if self._count > self._most:
            left = max(0, int(self._most * _ROOM) - more)
            oldest = "SELECT rowid FROM vectors ORDER BY used, rowid LIMIT max(0, ? - ?)"
            file.execute(f"DELETE FROM vectors WHERE rowid IN ({oldest})", (_counted(file), left))
            self._count = left + more


_NEXT = "(SELECT coalesce(max(used), 0) + 1 FROM vectors)"
_PRAGMAS = (
    "page_size = 16384",
    "journal_mode = WAL",
    "wal_autocheckpoint = 64",
    "synchronous = OFF",  # what a power cut takes is made again
    "secure_delete = ON",
)
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS vectors (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, used INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS vectors_used ON vectors (used)",
)


def _connected(path: Path) -> apsw.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(_BUSY_MS)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    for statement in _SCHEMA:
        connection.execute(statement)
    return connection


def _counted(file: apsw.Connection) -> int:
    count: Any = file.execute("SELECT count(*) FROM vectors").fetchall()[0][0]
    return int(count)


def _deleted(file: apsw.Connection, names: Sequence[bytes]) -> None:
    file.executemany("DELETE FROM vectors WHERE key = ?", [(name,) for name in names])
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _sealed(name: bytes, vector: Vectors) -> bytes:
    """A vector with a seal that shows damage, and a vector that stands under the wrong key."""
    content = vector.astype("<f4").tobytes()
    return content + blake2b(name + content, digest_size=_SEAL).digest()
