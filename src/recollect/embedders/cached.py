"""An embedder that remembers: vectors already made are read from memory or disk, and the model is not called.

One `.npy` file per text under a directory, named by the SHA-256 of `model:text`. The cache is a convenience: a
directory that is full, read-only or damaged costs time and never an error.
"""

import asyncio
import io
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np

from ..errors import EmbedderUnavailable
from ..ports import Embedder, Vectors

LIMIT_BYTES = 256 * 1024 * 1024  # about 160,000 texts
_RECENT = 2_048  # vectors kept in memory
_MOST_WAITING = 20_000  # vectors not yet on disk; more than that are not written at all
_ROOM = 0.9  # of the limit is kept when the oldest are deleted, so that it happens seldom

Result = TypeVar("Result")


class Cached:
    """The same port around another embedder. Safe to share between threads and event loops.

    Files are read in one thread and written in another after the answer was given: 500 of them take 70 to 190 ms
    to write (500 that are not there take 20 ms to look for); `close` waits for the writing.
    """

    def __init__(self, embedder: Embedder, directory: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.inner = embedder
        self._recent = _Recent(_RECENT)
        self._folder = _Folder(directory, embedder.dimensions, limit_bytes)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache-read")
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache-write")
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
        wanted = {key(self.model, text): text for text in texts}
        found = self._recent.get(wanted)
        if missing := [name for name in wanted if name not in found]:
            found |= self._kept(await self._run(self._reader, self._folder.read, missing))
        if missing := [name for name in missing if name not in found]:
            found |= await self._made({name: wanted[name] for name in missing})
        rows = [found[key(self.model, text)] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), self.dimensions)

    async def forget(self, texts: Iterable[str]) -> None:
        """Delete what is kept of these texts, in memory and on disk."""
        names = [key(self.model, text) for text in texts]
        self._recent.drop(names)
        await self._run(self._writer, self._folder.delete, names)

    async def close(self) -> None:
        """Finish writing, then close the embedder."""
        await asyncio.to_thread(self._writer.shutdown)
        await asyncio.to_thread(self._reader.shutdown)
        await self.inner.close()

    async def _made(self, texts: dict[str, str]) -> dict[str, Vectors]:
        vectors = await self.inner.encode_batch(list(texts.values()))
        made = self._kept(dict(zip(texts, vectors, strict=True)))
        if self._wait_for(len(made)) <= _MOST_WAITING:
            with suppress(RuntimeError):  # closed meanwhile: the answer is still good
                self._writer.submit(self._write, made)
        else:
            self._wait_for(-len(made))
        return made

    def _write(self, vectors: dict[str, Vectors]) -> None:
        try:
            self._folder.write(vectors)
        finally:
            self._wait_for(-len(vectors))

    def _wait_for(self, more: int) -> int:
        with self._lock:
            self._waiting += more
            return self._waiting

    def _kept(self, vectors: dict[str, Vectors]) -> dict[str, Vectors]:
        self._recent.put(vectors)
        return vectors

    async def _run(self, thread: ThreadPoolExecutor, step: Callable[..., Result], *arguments: object) -> Result:
        try:
            future = thread.submit(step, *arguments)
        except RuntimeError as error:
            raise EmbedderUnavailable(f"The embedder {self.model} is closed") from error
        return await asyncio.wrap_future(future)


def key(model: str, text: str) -> str:
    """The name under which a text's vector is kept.

    >>> key("all-MiniLM-L6-v2", "tea")[:8]
    '8dd53a0a'
    """
    return sha256(f"{model}:{text}".encode("utf-8", "surrogatepass")).hexdigest()


class _Recent:
    """The vectors used last, in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = Lock()

    def get(self, names: Iterable[str]) -> dict[str, Vectors]:
        with self._lock:
            found = {name: self._vectors[name] for name in names if name in self._vectors}
            for name in found:
                self._vectors.move_to_end(name)
        return found

    def put(self, vectors: dict[str, Vectors]) -> None:
        with self._lock:
            self._vectors.update(vectors)
            while len(self._vectors) > self._limit:
                self._vectors.popitem(last=False)

    def drop(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._vectors.pop(name, None)


class _Folder:
    """Vectors as files. Reading and writing happen in different threads and never raise OSError."""

    def __init__(self, directory: Path, dimensions: int, limit_bytes: int) -> None:
        self._directory = directory
        self._header = npy_header(dimensions)
        self._size = len(self._header) + 4 * dimensions
        self._limit = limit_bytes
        self._files: int | None = None  # counted at the first write

    def read(self, names: Iterable[str]) -> dict[str, Vectors]:
        """What is there and sound; a file that was read counts as used now."""
        return {name: vector for name in names if (vector := self._read(name)) is not None}

    def write(self, vectors: dict[str, Vectors]) -> None:
        """Write as many as possible, then delete the oldest if it became too much."""
        with suppress(OSError):
            for name, vector in vectors.items():
                self._write(name, vector)
        with suppress(OSError):
            self._bound(len(vectors))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self._directory / name[:2] / f"{name}.npy"

    def _read(self, name: str) -> Vectors | None:
        path = self._path(name)
        try:
            vector = self._parsed(path.read_bytes())
        except OSError:
            return None
        if vector is not None:
            with suppress(OSError):  # what may not be touched may still be read
                os.utime(path)
        return vector

    def _parsed(self, content: bytes) -> Vectors | None:
        if len(content) != self._size or not content.startswith(self._header):
            return None
        vector = np.frombuffer(content, dtype="<f4", offset=len(self._header)).astype(np.float32)
        return vector if abs(float(vector @ vector) - 1) < 1e-3 else None  # NaN is not near 1 either

    def _write(self, name: str, vector: Vectors) -> None:
        path = self._path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with open(handle, "wb") as file:
                file.write(self._header + vector.astype("<f4").tobytes())
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise

    def _bound(self, written: int) -> None:
        if self._files is None:
            self._files = sum(len(os.listdir(shard)) for shard in self._shards())
        else:
            self._files += written
        if self._files * self._size > self._limit:
            self._files = self._trim()

    def _trim(self) -> int:
        """Delete the files used longest ago until there is room again; how many are left."""
        files = sorted(_used_files(self._shards()))
        used = sum(size for _, size, _ in files)
        for left, (_, size, path) in zip(range(len(files), 0, -1), files, strict=True):
            if used <= self._limit * _ROOM:
                return left
            with suppress(FileNotFoundError):
                os.unlink(path)
            used -= size
        return 0

    def _shards(self) -> list[str]:
        return [entry.path for entry in os.scandir(self._directory) if len(entry.name) == 2 and entry.is_dir()]


def _used_files(shards: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """When each file was used last, its size and its path. What another process deletes meanwhile is passed over."""
    for shard in shards:
        for entry in os.scandir(shard):
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                yield status.st_mtime_ns, status.st_size, entry.path


def npy_header(dimensions: int) -> bytes:
    """How numpy begins the file of one float32 vector.

    >>> npy_header(384)[:6]
    b'\\x93NUMPY'
    """
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (dimensions,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()
