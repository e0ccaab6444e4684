"""The embedding model changes its name or its size between two openings, or gives nonsense, or nothing at all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memorist
from memorist import aio, embedders
from memorist.client import Client
from memorist.embedders import Hashing, encode
from memorist.errors import EmbedderUnavailable
from memorist.index import SnapshotCache
from memorist.ports import Vectors
from memorist.scoped import ScopedClient

KETTLE, SHIP = "The kettle in the kitchen is blue.", "The ship to Porto leaves at noon."


class Model(Hashing):
    """A model under any name; `turn` moves every vector, so that another model's vectors would find the wrong text."""

    def __init__(self, name: str, dimensions: int = 384, turn: int = 0) -> None:
        super().__init__(dimensions)
        self.model, self._turn = name, turn

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        return np.roll(await super().encode_batch(texts), self._turn, axis=1)


class Nonsense(Model):
    """A model that gives something else than vectors."""

    def __init__(self, kind: str) -> None:
        super().__init__("a")
        self._kind = kind

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        if self._kind == "hangs":
            await asyncio.Event().wait()
        wrong = {
            "nan": (len(texts), 384),
            "inf": (len(texts), 384),
            "short": (len(texts), 3),
            "few": (0, 384),
        }
        return np.full(
            wrong[self._kind], {"inf": math.inf, "nan": math.nan}.get(self._kind, 1.0), np.float32
        )


@asynccontextmanager
async def opened(path: Path, embedder: Hashing) -> AsyncIterator[Client]:
    async with aio.open(path, embedder="hashing", spool=False) as client:
        index = SnapshotCache(
            model=embedder.model, dimensions=embedder.dimensions, limit_bytes=1 << 30
        )
        yield Client(replace(client.ctx, embedder=embedder, index=index))


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A file with two memories, embedded by model "a"."""
    async with opened(tmp_path / "memory.db", Model("a")) as engine:
        ana = engine.scope("ana")
        for text in (KETTLE, SHIP):
            await ana.remember(text)
    return tmp_path / "memory.db"


async def meaning(ana: ScopedClient) -> list[float]:
    """How near each of the two stands by meaning alone."""
    found = await ana.recall("kettles", limit=2, profile="milton.semantic")
    return sorted(round(hit.relevance, 3) for hit in found)


CHANGED = {
    "another name": Model("b", turn=100),
    "another size": Model("b", dimensions=64),
    "another size under the old name": Model("a", dimensions=64),
}


@pytest.mark.parametrize("change", CHANGED)
async def test_another_model_answers_by_words_and_says_so_until_it_has_embedded(
    path: Path, change: str
) -> None:
    async with opened(path, CHANGED[change]) as engine:
        ana = engine.scope("ana")
        found = await ana.recall("what colour is the kettle?")
        assert [hit.memory.text for hit in found][:1] == [KETTLE]
        assert all(hit.parts.get("semantic", 0.0) == 0.0 for hit in found)
        assert found.degraded
        assert "2 of 2 memories have no vector yet: run `memorist index`" in found.legs["dense"]
        assert (await engine.index()).embedded == 2
        mended = await ana.recall("what colour is the kettle?")
        assert not mended.degraded
        assert mended.hits[0].memory.text == KETTLE
        assert mended.hits[0].parts["semantic"] > 0.1
        assert (await engine.index()).found == 0
        assert await engine.check() == []


async def test_what_is_new_meets_only_its_own_model(path: Path) -> None:
    async with opened(path, Model("b", turn=100)) as engine:
        ana = engine.scope("ana")
        receipt = await ana.remember("My kettle whistles.")
        assert receipt.count("created") == 1
        found = await ana.recall("kettles that whistle")
        near = {hit.memory.text: hit.parts.get("semantic", 0.0) for hit in found}
        assert near["My kettle whistles."] > 0.1
        assert near.get(KETTLE, 0.0) == 0.0
        assert "2 of 3 memories" in found.legs["dense"]


async def test_going_back_to_the_first_model_needs_nothing(path: Path) -> None:
    async with opened(path, Model("a")) as engine:
        before = await meaning(engine.scope("ana"))
    async with opened(path, Model("b", turn=100)) as engine:
        await engine.index()
    async with opened(path, Model("a")) as engine:
        assert await meaning(engine.scope("ana")) == before
        assert not (await engine.scope("ana").recall("kettle")).degraded


@pytest.mark.parametrize("kind", ["nan", "inf", "short", "few", "hangs"])
async def test_a_model_that_gives_nonsense_costs_the_meaning_and_not_the_answer(
    path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedders, "PATIENCE", 0.05)
    async with opened(path, Nonsense(kind)) as engine:
        ana = engine.scope("ana")
        receipt = await ana.remember("My garden has a violin.")
        assert receipt.count("created") == 1
        assert "not embedded yet" in receipt.outcomes[0].reason
        found = await ana.recall("where is the violin?")
        assert [hit.memory.text for hit in found] == ["My garden has a violin."]
        assert "'a'" in found.legs["dense"]
        with pytest.raises(memorist.errors.ProviderFailed):
            await engine.index()
    async with opened(path, Model("a")) as engine:
        assert (await engine.index()).embedded == 1
        assert not (await engine.scope("ana").recall("violin")).degraded


async def test_a_model_that_hangs_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedders, "PATIENCE", 1.0)
    with pytest.raises(EmbedderUnavailable, match="'a' did not answer within 1 s"):
        await encode(Nonsense("hangs"), ["tea"])
