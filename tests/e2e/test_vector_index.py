"""Recall where the vectors are in an index of their own: the same answers, and nothing believed that is not so."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.dialects.vault import Vault
from memorist.embedders.local import MiniLM
from memorist.errors import IndexUnavailable
from memorist.index import SnapshotCache
from memorist.jobs import vectors
from memorist.jobs.vectors import IndexSync
from memorist.ports import IndexEntry, Vectors
from memorist.types import Filter, Scope

chromadb = pytest.importorskip("chromadb")

TOPICS = (
    "tea",
    "the piano",
    "sailing",
    "old maps",
    "bread",
    "mountains",
    "chess",
    "the harbour",
    "tulips",
    "radio",
)
SAID = [
    {
        "content": f"{name} told me about {topic} on day {i}",
        "id": f"{name}{i}{topic}",
        "session": str(i),
    }
    for i in range(8)
    for name in ("Ana", "Bo")
    for topic in TOPICS
]
ASKED = (
    "Who likes to brew a hot drink?",
    "Which instrument was it?",
    "boats on the water",
    "flowers in spring",
)


class Shelf:
    """A vector index in a dictionary, which may be away, lie, or hang. It does what the port says and no more."""

    name = "shelf"

    def __init__(self) -> None:
        self.held: dict[Scope, dict[int, Vectors]] = {}
        self.is_away = False
        self.lies: list[int] = []

    async def put(self, scope: Scope, entries: Sequence[IndexEntry]) -> None:
        self._there().setdefault(scope, {}).update({entry.row: entry.vector for entry in entries})

    async def delete(self, scope: Scope, rows: Sequence[int]) -> None:
        for row in rows:
            self._there().get(scope, {}).pop(row, None)

    async def nearest(self, scope: Scope, vector: Vectors, *, limit: int) -> list[int]:
        held = self._there().get(scope, {})
        best = sorted(held, key=lambda row: -float(held[row] @ vector))[:limit]
        return [*self.lies, *best]

    async def clear(self) -> None:
        self._there().clear()

    async def count(self) -> int:
        return sum(map(len, self._there().values()))

    async def close(self) -> None: ...

    def _there(self) -> dict[Scope, dict[int, Vectors]]:
        if self.is_away:
            raise IndexUnavailable("the shelf does not answer")
        return self.held


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def engine(tmp_path: Path, shelf: Shelf) -> AsyncIterator[Client]:
    """A memory whose vectors are on the shelf."""
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as opened:
        store = opened.ctx.store
        near = IndexSync(store, shelf, model=MiniLM().model, dimensions=384)
        index = SnapshotCache(
            model=opened.ctx.index.model,
            dimensions=opened.ctx.index.dimensions,
            limit_bytes=opened.settings.index_cache_mb << 20,
            lean_from=0,
        )
        yield Client(replace(opened.ctx, index=index, external_index=near))
        await near.close()


def texts(answer: Any) -> list[str]:
    return [hit.memory.text for hit in answer]


@pytest.mark.spec("MLS-38")
async def test_chroma_answers_as_the_process_does_and_knows_whose_memory_it_is(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "chroma"
    # An index holds the vectors of one model.
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, multilingual=False) as memory:
        await memory.scope("ana").remember(SAID)
        plain = [texts(await memory.scope("ana").recall(question)) for question in ASKED]
    async with aio.open(
        tmp_path / "m.db", state_dir=tmp_path, vector_index=f"chroma:{folder}"
    ) as memory:
        assert await memory.rebuild_index() == len(SAID)
        answers = [await memory.scope("ana").recall(question) for question in ASKED]
        await memory.scope("bo").remember(
            [{"content": "I repair clocks", "session": "s", "id": "1"}]
        )
        assert texts(await memory.scope("bo").recall("what does Bo repair?")) == ["I repair clocks"]
        assert memory.ctx.external_index is not None
        assert await memory.ctx.external_index.index.count() == len(SAID) + 1
    assert [answer.legs["dense"] for answer in answers] == ["ok"] * len(ASKED)
    assert [texts(answer) for answer in answers] == plain
    (collection,) = chromadb.PersistentClient(str(folder)).list_collections()
    kept = collection.get(where={"user_id": "bo"})["metadatas"][0]
    assert kept["memory_type"] == "episodic"
    assert (kept["session_id"], kept["compressed"]) == ("s", False)
    assert 0 <= kept["importance"] <= 1
    assert kept["created_at"][:2] == "20"


@pytest.mark.spec("MLS-38")
async def test_chroma_keeps_the_metadata_of_each_memory_as_it_is(tmp_path: Path) -> None:
    folder, clock = tmp_path / "chroma", Clock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    async with aio.open(
        tmp_path / "m.db", state_dir=tmp_path, embedder="hashing", vector_index=f"chroma:{folder}"
    ) as memory:
        memory.ctx.clock, vault = clock, Vault(memory)
        (fact,) = await vault.ingest("Anna Weber is a doctor.", "bo", "s1")
        (trip,) = await vault.ingest("We went to Porto by train.", "bo", "s2")
        (later,) = await vault.ingest("We came back from Porto at 9.", "bo", "s3")
        clock.now += timedelta(days=1)
        await memory.scope("bo").pin(fact.memory_id)  # a change of the same memory on another day
        await vault.compress("bo", compression_threshold=1, sessions_to_compress=1)
        await memory.rebuild_index()
    (collection,) = chromadb.PersistentClient(str(folder)).list_collections()
    found = {
        each["session_id"]: each for each in collection.get(where={"user_id": "bo"})["metadatas"]
    }
    names = ("memory_type", "importance", "compressed", "created_at")
    day = "2026-03-01T12:00:00.000000+00:00"
    assert {
        session: tuple(found[session][name] for name in names) for session in ("s1", "s2", "s3")
    } == {
        "s1": ("semantic", 1.0, False, day),  # pinned, so saved on purpose
        "s2": ("episodic", pytest.approx(trip.importance), True, day),
        "s3": ("episodic", pytest.approx(later.importance), False, day),
    }


async def test_what_was_just_said_is_found_and_what_was_forgotten_is_gone_from_the_index(
    engine: Client, shelf: Shelf
) -> None:
    ana = engine.scope("ana")
    await ana.remember(SAID)
    made = (await ana.remember("The lighthouse keeper is called Ines")).outcomes[0].ids[0]
    assert texts(await ana.recall("Who keeps the lighthouse?", limit=1)) == [
        "The lighthouse keeper is called Ines"
    ]
    held = await shelf.count()
    await ana.edit(made, "The lighthouse keeper is called Rita")
    assert texts(await ana.recall("Who keeps the lighthouse?", limit=1)) == [
        "The lighthouse keeper is called Rita"
    ]
    await ana.forget(made)
    assert await shelf.count() == held - 1
    assert not any(
        "lighthouse" in text for text in texts(await ana.recall("Who keeps the lighthouse?"))
    )


@pytest.mark.spec("MIL-36", "THE-73", "THE-106")
async def test_without_its_index_recall_answers_by_words_and_says_so(
    engine: Client, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "REST_SECONDS", 0.3)
    ana = engine.scope("ana")
    await ana.remember(SAID)
    shelf.is_away = True
    await ana.remember("The ferry leaves at nine")
    answer = await ana.recall("When does the ferry leave?", limit=1)
    assert texts(answer) == ["The ferry leaves at nine"]
    assert answer.degraded
    assert answer.legs == {"sparse": "ok", "dense": "the shelf does not answer"}
    shelf.is_away = False
    assert (await ana.recall("When does the ferry leave?")).degraded  # it is left alone for a while
    await asyncio.sleep(vectors.REST_SECONDS)
    assert (await ana.recall("At what time does the boat go?")).legs["dense"] == "ok"
    assert await shelf.count() == len(SAID) + 1


async def test_an_index_that_lies_changes_no_answer(engine: Client, shelf: Shelf) -> None:
    ana, bo = engine.scope("ana"), engine.scope("bo")
    await ana.remember(SAID)
    await bo.remember("Ana must never read this about tea and boats")
    honest = [texts(await ana.recall(question)) for question in ASKED]
    foreign = [row for scope, held in shelf.held.items() if scope.user == "bo" for row in held]
    shelf.lies = [*foreign, 10**15, 0, -5]
    assert foreign
    assert [texts(await ana.recall(question)) for question in ASKED] == honest


async def test_a_filter_holds_there_too(engine: Client) -> None:
    ana = engine.scope("ana")
    await ana.remember(SAID)
    pinned = (await ana.list(limit=1)).memories[0]
    await ana.pin(pinned.id)
    answer = await ana.recall("Who listens to the radio?", where=Filter(pinned=True))
    assert texts(answer) == [pinned.text]


async def test_two_at_once_fill_the_index_once(tmp_path: Path, shelf: Shelf) -> None:
    async with aio.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as memory:
        await memory.scope("ana").remember(SAID)
        mirrors = [
            IndexSync(memory.ctx.store, shelf, model="hashing-384", dimensions=384)
            for _ in range(4)
        ]
        scope = memory.scope("ana").scope
        done = await asyncio.gather(*(each.sync(scope) for each in mirrors for _ in range(3)))
        assert any(done)
        assert await shelf.count() == len(SAID)
        row, vector = next(iter(shelf.held[scope].items()))
        kept = await memory.ctx.store.vectors(scope, [row], model="hashing-384")
        assert np.frombuffer(kept[row], "<f4").tolist() == vector.tolist()


def test_the_command_fills_the_index_anew(tmp_path: Path) -> None:
    def memorist(*words: str) -> Any:
        base = [
            sys.executable,
            "-m",
            "memorist",
            "--db",
            str(tmp_path / "m.db"),
            "--user",
            "ana",
            "--json",
        ]
        there = {
            "MEMORIST_VECTOR_INDEX": f"chroma:{tmp_path / 'chroma'}",
            "MEMORIST_EMBEDDER": "hashing",
        }
        done = subprocess.run(
            [*base, *words], capture_output=True, text=True, env=_environment(tmp_path) | there
        )
        return json.loads(done.stdout or done.stderr)

    memorist("remember", "I like green tea")
    assert memorist("index", "rebuild") == {"indexed": 1}
    assert memorist("recall", "green tea")["hits"][0]["memory"]["text"] == "I like green tea"


def _environment(state: Path) -> dict[str, str]:
    import os

    return {**os.environ, "MEMORIST_STATE_DIR": str(state)}
