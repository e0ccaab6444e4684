"""Chroma as a vector index: a folder in this process, or a server.

Chroma's embedding functions and telemetry are off. As Chroma requires, a folder is used by one
process at a time.
"""

import asyncio
import ctypes
import re
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import numpy as np

from ..ports import IndexEntry, Vectors
from ..types import Scope
from . import WAIT, batches, marks, old_name, own_rows, request, scope_mark, without_secrets

SHAPE = {
    "hnsw": {
        "space": "cosine",
        "ef_construction": 200,
        "ef_search": 200,
        "max_neighbors": 32,
    }
}
_REPLACED = """SELECT q.seq_id, length(q.vector) FROM embeddings_queue q
WHERE q.vector IS NOT NULL AND EXISTS (SELECT 1 FROM embeddings_queue n
WHERE n.topic = q.topic AND n.id = q.id AND n.seq_id > q.seq_id)"""
_ROW = re.compile("[0-9]{1,19}")
_PERTURB = -6  # M_PERTURB of malloc.h


class Chroma:
    """A collection of a Chroma folder or server as a VectorIndex. It is opened on first use."""

    def __init__(
        self,
        place: str,
        collection: str,
        *,
        wait: float = WAIT,
    ) -> None:
        self._wait = wait
        self._is_server = place.startswith(("http://", "https://"))
        self._place = place
        if not self._is_server:
            self._place = str(Path(place).expanduser().resolve())
        self._title = collection
        self._opening = asyncio.Lock()
        self._client: Any = None
        self._collection: Any = None

    @property
    def name(self) -> str:
        return f"chroma:{without_secrets(self._place)}/{self._title}"

    async def put(self, scope: Scope, entries: Sequence[IndexEntry]) -> None:
        for batch in batches(entries):
            ids = []
            embeddings = []
            metadatas = []
            for entry in batch:
                ids.append(str(entry.row))
                embeddings.append(entry.vector)
                metadatas.append(marks(scope, entry))
            await self._ask(
                "upsert",
                ids=ids,
                embeddings=embeddings,
                metadatas=metadatas,
            )

    async def delete(self, scope: Scope, rows: Sequence[int]) -> None:
        where = {"scope": scope_mark(scope)}
        for batch in batches(rows):
            ids = list(map(str, batch))
            await self._ask("delete", ids=ids, where=where)

    async def nearest(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        limit: int,
    ) -> list[int]:
        def read(answer: Any) -> list[int]:
            ids = filter(_ROW.fullmatch, answer["ids"][0])
            return own_rows(map(int, ids))

        rows: list[int] = await self._ask(
            "query",
            read,
            query_embeddings=[vector],
            n_results=limit,
            where={"scope": scope_mark(scope)},
            include=[],
        )
        return rows

    async def clear(self) -> None:
        async with request("chromadb", self.name, self._wait):
            self._collection = None
            await self._open()  # deleting needs a collection
            self._collection = None
            await self._call(self._client.delete_collection, name=self._title)

    async def count(self) -> int:
        return int(await self._ask("count"))

    async def close(self) -> None:
        client = self._client
        self._client = None
        self._collection = None
        if client is not None:
            async with request("chromadb", self.name, self._wait):
                await self._call(client.close)
            if not self._is_server:
                await asyncio.to_thread(overwrite_replaced, self._place)

    async def _ask(
        self,
        verb: str,
        read: Callable[[Any], Any] = lambda answer: answer,
        **given: Any,
    ) -> Any:
        """Call a method of the collection; create it again if another process cleared it."""
        async with request("chromadb", self.name, self._wait):
            from chromadb.errors import NotFoundError

            async def attempt() -> Any:
                method = getattr(await self._open(), verb)
                return read(await self._call(method, **given))

            with suppress(NotFoundError):
                return await attempt()
            self._collection = None
            return await attempt()

    async def _open(self) -> Any:
        from chromadb.errors import NotFoundError

        async with self._opening:
            if self._client is None:
                if self._is_server:
                    self._client = _Server(self._place)
                else:
                    self._client = await asyncio.to_thread(_open_folder, self._place)
                # The collection of version 0.1 would keep what is forgotten from now on.
                with suppress(NotFoundError):
                    old = old_name(self._title)
                    await self._call(self._client.delete_collection, name=old)
            if self._collection is None:
                self._collection = await self._call(
                    self._client.get_or_create_collection,
                    name=self._title,
                    configuration=SHAPE,
                    embedding_function=None,
                )
            return self._collection

    async def _call(self, function: Callable[..., Any], **given: Any) -> Any:
        if self._is_server:
            return await function(**given)
        return await asyncio.to_thread(function, **given)


class _Server:
    """The client of a server, with the methods of a folder's client.

    Chroma's own `AsyncHttpClient` cannot be closed, shares its connections with every other server
    that the event loop talks to, caches each failed attempt forever, and does not check
    certificates by default.
    """

    def __init__(self, url: str) -> None:
        from chromadb.api.async_fastapi import AsyncFastAPI
        from chromadb.config import Settings, System

        at = urlsplit(url)
        is_secure = at.scheme == "https"
        settings = Settings(
            chroma_server_host=at.hostname,
            chroma_server_http_port=at.port or (443 if is_secure else 8000),
            chroma_server_ssl_enabled=is_secure,
            chroma_server_ssl_verify=True,
            anonymized_telemetry=False,
        )
        self._api = AsyncFastAPI(System(settings))
        self._api._clients = {}  # its own, not the class's

    async def get_or_create_collection(
        self,
        *,
        embedding_function: None,
        **shape: Any,
    ) -> Any:
        from chromadb.api.models.AsyncCollection import AsyncCollection

        model = await self._api.get_or_create_collection(**shape)
        return AsyncCollection(
            client=self._api,
            model=model,
            embedding_function=embedding_function,
        )

    async def delete_collection(self, *, name: str) -> None:
        await self._api.delete_collection(name)

    async def close(self) -> None:
        await self._api.__aexit__(None, None, None)


def _overwrite_new_memory() -> None:
    """Have the C library overwrite the memory that it hands out.

    Chroma writes memory to its files that it has not initialized, and that may hold texts which
    this process has used.
    """
    with suppress(OSError, AttributeError, TypeError):  # only glibc has this
        ctypes.CDLL(None).mallopt(_PERTURB, 0x55)


def overwrite_replaced(folder: str) -> None:
    """Overwrite vectors that were deleted or replaced in the write-ahead queue of a folder.

    Chroma reads the queue again when it opens the folder, so the entries stay. Nothing else may
    use the folder meanwhile.
    """
    path = Path(folder) / "chroma.sqlite3"
    if not path.exists():
        return
    with suppress(apsw.Error), closing(apsw.Connection(str(path))) as file:
        file.execute("PRAGMA secure_delete = ON").fetchall()
        with file:
            for seq_id, length in file.execute(_REPLACED).fetchall():
                blank = np.ones(int(str(length)) // 4, "<f4").tobytes()
                file.execute(
                    "UPDATE embeddings_queue SET vector = ? WHERE seq_id = ?", (blank, seq_id)
                )


def _open_folder(path: str) -> Any:
    from chromadb import PersistentClient
    from chromadb.config import Settings

    _overwrite_new_memory()
    overwrite_replaced(path)  # an earlier process may have been killed
    settings = Settings(anonymized_telemetry=False)
    return PersistentClient(path, settings=settings)
