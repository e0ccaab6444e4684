"""Weaviate as a vector index: one collection with an HNSW index by cosine, without a vectorizer.

The address is that of the REST API. gRPC is expected on port 50051 of the same host (443 with
https), or at `?grpc=HOST:PORT`. The client's start-up checks are off: they would ask PyPI for newer
versions.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from ..errors import IndexUnavailable
from ..ports import IndexEntry, Vectors
from ..types import Scope
from . import WAIT, batches, marks, old_name, own_rows, request, scope_mark, without_secrets

VECTOR = "memory"  # the name of the vector; unnamed ones are read differently by different servers
TEXTS = "scope tenant user_id space session_id memory_type".split()


class Weaviate:
    """A collection of a Weaviate server as a VectorIndex. It connects on first use, and again after
    a failure.
    """

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        api_key: str | None = None,
        wait: float = WAIT,
    ) -> None:
        self._wait = wait
        self._url = url
        self._key = api_key
        self._title = collection
        self._opening = asyncio.Lock()
        self._client: Any = None  # connected, and the collection exists

    @property
    def name(self) -> str:
        return f"weaviate:{without_secrets(self._url)}/{self._title}"

    async def put(self, scope: Scope, entries: Sequence[IndexEntry]) -> None:
        for batch in batches(entries):
            async with self._request() as collection:
                from weaviate.classes.data import DataObject

                await _create_collection(self._client, self._title)  # or its shape is guessed
                objects = []
                for entry in batch:
                    stored = DataObject(
                        marks(scope, entry),
                        uuid=UUID(int=entry.row),
                        vector={VECTOR: entry.vector.tolist()},
                    )
                    objects.append(stored)
                done = await collection.data.insert_many(objects)
                if done.has_errors:
                    first, *_ = done.errors.values()
                    raise RuntimeError(first.message)

    async def delete(self, scope: Scope, rows: Sequence[int]) -> None:
        for batch in batches(rows):
            async with self._request() as collection:
                from weaviate.classes.query import Filter

                ids = [UUID(int=row) for row in batch]
                named = Filter.by_id().contains_any(ids)
                done = await collection.data.delete_many(where=named & _within(scope))
                if done.failed:
                    raise RuntimeError("some entries could not be deleted")

    async def nearest(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        limit: int,
    ) -> list[int]:
        async with self._request() as collection:
            found = await collection.query.near_vector(
                vector.tolist(),
                target_vector=VECTOR,
                limit=limit,
                filters=_within(scope),
                return_properties=[],
            )
            return own_rows(each.uuid.int for each in found.objects)

    async def clear(self) -> None:
        async with self._request():
            await self._client.collections.delete(self._title)
            await _create_collection(self._client, self._title)

    async def count(self) -> int:
        async with self._request() as collection:
            counted = await collection.aggregate.over_all(total_count=True)
            return int(counted.total_count)

    async def close(self) -> None:
        client = self._client
        self._client = None
        if client is not None:
            async with request("weaviate", self.name, self._wait):
                await client.close()

    @asynccontextmanager
    async def _request(self) -> AsyncIterator[Any]:
        """Yield the collection for one request."""
        try:
            async with request("weaviate", self.name, self._wait):
                async with self._opening:
                    if self._client is None:
                        self._client = await self._connect()
                yield self._client.collections.use(self._title)
        except IndexUnavailable:
            # A new connection is refused at once; the old one would be retried again and again.
            await self.close()
            raise

    async def _connect(self) -> Any:
        import weaviate
        from weaviate.classes.init import AdditionalConfig, Auth, Timeout

        at = urlsplit(self._url)
        is_secure = at.scheme == "https"
        given, *_ = parse_qs(at.query).get("grpc", [""])
        grpc = urlsplit(f"//{given}")
        timeout = Timeout(
            init=self._wait,
            query=self._wait,
            insert=self._wait,
        )
        client = weaviate.use_async_with_custom(
            http_host=at.hostname or "",
            http_port=at.port or (443 if is_secure else 8080),
            http_secure=is_secure,
            grpc_host=grpc.hostname or at.hostname or "",
            grpc_port=grpc.port or (443 if is_secure else 50051),
            grpc_secure=is_secure,
            auth_credentials=Auth.api_key(self._key) if self._key else None,
            additional_config=AdditionalConfig(timeout=timeout),
            skip_init_checks=True,
        )
        try:
            await client.connect()
            old = old_name(self._title)
            if await client.collections.exists(old):  # it would keep what is forgotten from now on
                await client.collections.delete(old)
            await _create_collection(client, self._title)
        except BaseException:
            await client.close()
            raise
        return client


async def _create_collection(client: Any, title: str) -> None:
    """Create the collection unless it exists; several processes may try at once."""
    from weaviate.classes.config import Configure, DataType, Property, Tokenization, VectorDistances

    if await client.collections.exists(title):
        return
    whole = Tokenization.FIELD
    fields = [Property(name=name, data_type=DataType.TEXT, tokenization=whole) for name in TEXTS]
    fields += (
        Property(name="importance", data_type=DataType.NUMBER),
        Property(name="compressed", data_type=DataType.BOOL),
        Property(name="created_at", data_type=DataType.DATE),
    )
    hnsw = Configure.VectorIndex.hnsw(distance_metric=VectorDistances.COSINE)
    vectors = Configure.Vectors.self_provided(
        name=VECTOR,
        vector_index_config=hnsw,
    )
    try:
        await client.collections.create(
            title,
            vector_config=vectors,
            properties=fields,
        )
    except Exception:
        if not await client.collections.exists(title):
            raise


def _within(scope: Scope) -> Any:
    from weaviate.classes.query import Filter

    mark = scope_mark(scope)
    return Filter.by_property("scope").equal(mark)
