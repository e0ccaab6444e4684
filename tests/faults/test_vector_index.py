"""A vector index that is away, hangs, breaks off or lies: the adapter gives rows or IndexUnavailable, and in time."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

pytest.importorskip("chromadb", reason="pip install memorist[chroma]")
pytest.importorskip("weaviate", reason="pip install memorist[weaviate]")

from weaviate.proto.v1 import batch_delete_pb2, batch_pb2

from chroma_server import free_port, running
from memorist.errors import IndexUnavailable
from memorist.ports import IndexEntry, VectorIndex
from memorist.types import Scope
from memorist.vector_indexes import collection_name
from memorist.vector_indexes.chroma import Chroma
from memorist.vector_indexes.weaviate import Weaviate
from weaviate_server import WeaviateServer

ANA = Scope(user="ana")
NORTH = np.array([1, 0, 0], np.float32)
KINDS = {"chroma": Chroma, "weaviate": Weaviate}
Connect = Callable[..., VectorIndex]


def entry(row: int) -> IndexEntry:
    return IndexEntry(row=row, vector=NORTH, about={"session_id": "s1"})


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[VectorIndex] = []

    def make(kind: str, place: str, wait: float = 5.0) -> VectorIndex:
        made.append(KINDS[kind](place, collection_name("s", "m", 3), wait=wait))
        return made[-1]

    yield make
    for index in made:
        await index.close()


async def every_call_fails(index: VectorIndex, *, within: float) -> None:
    calls = [
        lambda: index.put(ANA, [entry(1)]),
        lambda: index.delete(ANA, [1]),
        lambda: index.nearest(ANA, NORTH, limit=3),
        index.clear,
        index.count,
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(IndexUnavailable) as told:
            await call()
        assert time.monotonic() - began < within
        assert told.value.retry
        assert index.name in str(told.value)


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """Accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def saying(answer: Callable[[str], tuple[int, bytes] | None]) -> Iterator[str]:
    """Answers each path as told, and breaks off where there is no answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if said := answer(self.path):
                self.send_response(said[0])
                self.send_header("Content-Length", str(len(said[1])))
                self.end_headers()
                self.wfile.write(said[1])

        do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_refuses_is_unavailable_at_once(kind: str, connect: Connect) -> None:
    await every_call_fails(connect(kind, f"http://127.0.0.1:{free_port()}"), within=2)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_hangs_is_given_up_in_time(kind: str, connect: Connect) -> None:
    with silent() as url:
        await every_call_fails(connect(kind, url, wait=0.3), within=1.5)


NONSENSE = {
    "a page": (200, b"<html>Sign in</html>"),
    "half a document": (200, b'{"id": "3f'),
    "another document": (200, b'{"version": 7, "ids": 3, "id": []}'),
    "a list": (200, b"[]"),
    "nothing": (200, b""),
    "an error": (500, b"oops"),
    "no access": (401, b'{"error": "AuthError", "message": "no"}'),
    "too busy": (429, b"slow down"),
    "an end": None,
}


@pytest.mark.parametrize("said", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_talks_nonsense_is_unavailable(
    kind: str, said: Any, connect: Connect
) -> None:
    with saying(lambda path: said) as url:
        await every_call_fails(connect(kind, url), within=4)


def _chroma_that_finds(ids: Any) -> Callable[[str], tuple[int, bytes]]:
    collection = {
        "id": str(UUID(int=1)),
        "name": "c",
        "tenant": "default_tenant",
        "database": "default_database",
        "configuration_json": {},
        "metadata": None,
        "dimension": 3,
        "version": 0,
        "log_position": 0,
    }

    def answer(path: str) -> tuple[int, bytes]:
        found = {"ids": ids, "include": []} if path.endswith("/query") else collection
        return 200, json.dumps(found).encode()

    return answer


async def test_ids_of_chroma_that_are_no_rows_are_dropped(connect: Connect) -> None:
    ids = [
        "7",
        "x",
        "",
        "-1",
        "0",
        "1_0",
        " 8",
        "９",
        "2.0",
        str(2**63),
        "9" * 5000,
        str(2**63 - 1),
        "5",
        "7",
    ]
    with saying(_chroma_that_finds([ids])) as url:
        found = await connect("chroma", url).nearest(ANA, NORTH, limit=3)
    assert found == [7, 2**63 - 1, 5, 7]


@pytest.mark.parametrize(
    "ids", [None, [], [None], [[None]], [[7]], "7", {"a": 1}, [["7"], ["8"]]], ids=repr
)
async def test_an_answer_of_chroma_that_is_no_list_of_ids_is_no_crash(
    ids: Any, connect: Connect
) -> None:
    with saying(_chroma_that_finds(ids)) as url:
        try:
            found = await connect("chroma", url).nearest(ANA, NORTH, limit=3)
        except IndexUnavailable:
            return
    assert all(isinstance(row, int) for row in found)


class Liar(WeaviateServer):
    """Finds what nobody asked for, and takes in nothing."""

    def Search(self, request: Any, context: Any) -> Any:  # noqa: N802
        numbers = [
            7,
            2**127,
            0,
            2**63,
            2**63 - 1,
            UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8").int,
            5,
        ]
        return self.reply([str(UUID(int=number)) for number in numbers])

    def BatchObjects(self, request: Any, context: Any) -> Any:  # noqa: N802
        refused = batch_pb2.BatchObjectsReply.BatchError(index=0, error="no room")
        return batch_pb2.BatchObjectsReply(errors=[refused])

    def BatchDelete(self, request: Any, context: Any) -> Any:  # noqa: N802
        return batch_delete_pb2.BatchDeleteReply(matches=2, successful=1, failed=1)


async def test_ids_of_weaviate_that_are_no_rows_are_dropped(connect: Connect) -> None:
    with Liar() as server:
        assert await connect("weaviate", server.url).nearest(ANA, NORTH, limit=3) == [
            7,
            2**63 - 1,
            5,
        ]


async def test_what_weaviate_did_not_take_in_or_delete_is_not_reported_as_done(
    connect: Connect,
) -> None:
    with Liar() as server:
        index = connect("weaviate", server.url)
        with pytest.raises(IndexUnavailable, match="no room"):
            await index.put(ANA, [entry(1), entry(2)])
        with pytest.raises(IndexUnavailable, match="could not be deleted"):
            await index.delete(ANA, [1, 2])


class Slow(WeaviateServer):
    """Its schema answers, its search does not."""

    def Search(self, request: Any, context: Any) -> Any:  # noqa: N802
        time.sleep(1.5)
        return self.reply([])


async def test_a_search_of_weaviate_that_hangs_is_given_up_in_time(connect: Connect) -> None:
    with Slow() as server:
        began = time.monotonic()
        with pytest.raises(IndexUnavailable, match=r"within 0\.5 seconds"):
            await connect("weaviate", server.url, wait=0.5).nearest(ANA, NORTH, limit=3)
        assert time.monotonic() - began < 10


async def test_weaviate_is_asked_again_when_it_is_back(connect: Connect) -> None:
    ports = {"rest_port": free_port(), "grpc_port": free_port()}
    with WeaviateServer(**ports) as server:
        index = connect("weaviate", server.url, wait=2)
        await index.put(ANA, [entry(1)])
    for _ in range(2):
        with pytest.raises(IndexUnavailable):
            await index.nearest(ANA, NORTH, limit=3)
    with WeaviateServer(**ports):
        await index.put(ANA, [entry(2)])
        assert await index.nearest(ANA, NORTH, limit=3) == [2]


async def test_chroma_is_asked_again_when_it_is_back(connect: Connect, tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, port=port) as url:
        index = connect("chroma", url)
        await index.put(ANA, [entry(1)])
    with pytest.raises(IndexUnavailable):
        await index.nearest(ANA, NORTH, limit=3)
    with running(tmp_path, port=port):
        assert await index.nearest(ANA, NORTH, limit=3) == [1]


def _damaged(folder: Path) -> list[Path]:
    """The files of the graph, none of whose bytes is what it was."""
    files = list(folder.glob("*/*.bin"))
    for file in files:
        file.write_bytes(b"\xff" * file.stat().st_size)
    return files


async def test_a_damaged_folder_of_chroma_is_unavailable_until_it_is_cleared(
    connect: Connect, tmp_path: Path
) -> None:
    index = connect("chroma", str(tmp_path))
    await index.put(
        ANA, [entry(row) for row in range(1, 1200)]
    )  # enough to be written to the graph's files
    await index.close()
    assert _damaged(tmp_path)
    with pytest.raises(IndexUnavailable, match="memorist index rebuild"):
        await index.nearest(ANA, NORTH, limit=3)
    await index.clear()
    await index.put(ANA, [entry(7)])
    assert await index.nearest(ANA, NORTH, limit=3) == [7]


async def test_a_folder_of_chroma_that_is_no_folder_is_unavailable(
    connect: Connect, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    await every_call_fails(connect("chroma", str(tmp_path / "file")), within=5)
