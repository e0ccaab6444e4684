"""Weaviate as a vector index: one collection with an HNSW index by cosine, which makes no vectors itself.

The address is the one of REST; gRPC is looked for on port 50051 of the same host (443 with https), or where
`?grpc=HOST:PORT` says. The client's own start-up checks stay off: they would ask the package index for newer versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from ..errors import IndexUnavailable
from ..ports import IndexEntry, Vectors
from ..types import Scope
from . import (
    LARGEST_ROW,
    WAIT,
    answered,
    batches,
    collection_name,
    loaded,
    marks,
    old_name,
    scope_mark,
    without_secrets,
)

VECTOR = "memory"  # the name of the vector; unnamed ones are read differently by different servers
TEXTS = ("scope", "tenant", "user_id", "space", "session_id", "memory_type")


class Weaviate:
    """A collection of a Weaviate server as a VectorIndex. It connects when it is first asked, and after a failure."""

    def __init__(
        self,
        url: str,
        *,
        model: str,
        dimensions: int,
        store: str,
        api_key: str | None = None,
        wait: float = WAIT,
    ) -> None:
        self._url, self._key, self._wait, self._title = (
            url,
            api_key,
            wait,
            collection_name(store, model, dimensions),
        )
        self._opening = asyncio.Lock()
        self._client: Any = None  # connected, and the collection is there

    @property
    def name(self) -> str:
        return f"weaviate:{without_secrets(self._url)}/{self._title}"

    async def put(self, scope: Scope, entries: Sequence[IndexEntry]) -> None:
        for batch in batches(entries):
            async with self._asked() as collection:
                await _make_if_missing(
                    self._client, self._title
                )  # or the server would guess at its shape
                done = await collection.data.insert_many([_object(scope, entry) for entry in batch])
                if done.has_errors:
                    raise RuntimeError(next(iter(done.errors.values())).message)

    async def delete(self, scope: Scope, rows: Sequence[int]) -> None:
        for batch in batches(rows):
            async with self._asked() as collection:
                from weaviate.classes.query import Filter

                named = Filter.by_id().contains_any([UUID(int=row) for row in batch])
                if (await collection.data.delete_many(where=named & _within(scope))).failed:
                    raise RuntimeError("some entries could not be deleted")

    async def nearest(self, scope: Scope, vector: Vectors, *, limit: int) -> list[int]:
        async with self._asked() as collection:
            found = await collection.query.near_vector(
                vector.tolist(),
                target_vector=VECTOR,
                limit=limit,
                filters=_within(scope),
                return_properties=[],
            )
            return [
                each.uuid.int for each in found.objects if 0 < each.uuid.int <= LARGEST_ROW
            ]  # others are not ours

    async def clear(self) -> None:
        async with self._asked():
            await self._client.collections.delete(self._title)
            await _make_if_missing(self._client, self._title)

    async def count(self) -> int:
        async with self._asked() as collection:
            return int((await collection.aggregate.over_all(total_count=True)).total_count)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            async with answered(self.name, self._wait):
                await client.close()

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Any]:
        """The collection, for one request."""
        await loaded("weaviate")
        try:
            async with answered(self.name, self._wait):
                yield (await self._connected()).collections.use(self._title)
        except IndexUnavailable:
            await self.close()  # a new connection is refused at once where the old one would be tried again and again
            raise

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                client = _client(self._url, self._key, self._wait)
                try:
                    await client.connect()
                    await _delete_old(client, self._title)
                    await _make_if_missing(client, self._title)
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client


def _client(url: str, key: str | None, wait: float) -> Any:
    import weaviate
    from weaviate.classes.init import AdditionalConfig, Auth, Timeout

    at = urlsplit(url)
    is_secure = at.scheme == "https"
    grpc = urlsplit(f"//{parse_qs(at.query).get('grpc', [''])[0]}")
    return weaviate.use_async_with_custom(
        http_host=at.hostname or "",
        http_port=at.port or (443 if is_secure else 8080),
        http_secure=is_secure,
        grpc_host=grpc.hostname or at.hostname or "",
        grpc_port=grpc.port or (443 if is_secure else 50051),
        grpc_secure=is_secure,
        auth_credentials=Auth.api_key(key) if key else None,
        additional_config=AdditionalConfig(timeout=Timeout(init=wait, query=wait, insert=wait)),
        skip_init_checks=True,
    )


async def _make_if_missing(client: Any, title: str) -> None:
    """Make the collection unless it is there; several processes may try at once."""
    from weaviate.classes.config import Configure, DataType, Property, Tokenization, VectorDistances

    if await client.collections.exists(title):
        return
    texts = [
        Property(name=name, data_type=DataType.TEXT, tokenization=Tokenization.FIELD)
        for name in TEXTS
    ]
    kinds = {
        "importance": DataType.NUMBER,
        "compressed": DataType.BOOL,
        "created_at": DataType.DATE,
    }
    others = [Property(name=name, data_type=kind) for name, kind in kinds.items()]
    hnsw = Configure.VectorIndex.hnsw(distance_metric=VectorDistances.COSINE)
    vectors = Configure.Vectors.self_provided(name=VECTOR, vector_index_config=hnsw)
    try:
        await client.collections.create(title, vector_config=vectors, properties=texts + others)
    except Exception:
        if not await client.collections.exists(title):
            raise


async def _delete_old(client: Any, title: str) -> None:
    """Delete the collection of version 0.1: what is forgotten now would stay in it."""
    old = old_name(title)
    if await client.collections.exists(old):
        await client.collections.delete(old)


def _object(scope: Scope, entry: IndexEntry) -> Any:
    from weaviate.classes.data import DataObject

    return DataObject(
        marks(scope, entry), uuid=UUID(int=entry.row), vector={VECTOR: entry.vector.tolist()}
    )


def _within(scope: Scope) -> Any:
    from weaviate.classes.query import Filter

    return Filter.by_property("scope").equal(scope_mark(scope))
