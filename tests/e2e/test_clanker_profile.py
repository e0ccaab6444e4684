"""Clanker's vectors, scores and gates, through the engine on a real file."""

import tomllib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import numpy as np
import pytest

from memorist import aio
from memorist.client import Client
from memorist.embedders import Hashing
from memorist.ports import Vectors
from memorist.scoped import ScopedClient
from memorist.types import Draft, Hit, Labels

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALL = {"semantic", "lexical", "confidence", "recency", "channel"}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as opened:
        opened.ctx.clock = lambda: NOW
        yield opened


@pytest.fixture
def guild(engine: Client) -> ScopedClient:
    return engine.scope(user="ana", space="guild-1", channel="general")


async def fact(
    scope: ScopedClient, text: str, *, channel: str | None = None, **fields: object
) -> str:
    draft = Draft(text=text, labels=Labels(channel=channel, subject="ana"), **fields)
    return (await scope.remember_drafts([draft], policy="clanker")).ids[0]


async def hit(scope: ScopedClient, question: str, profile: str = "clanker.hybrid") -> Hit:
    (found,) = (await scope.recall(question, profile=profile)).hits
    return found


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What the file holds, read by apsw too: two SQLite libraries in one process break each other's locks."""
    file = apsw.Connection(str(path / "memory.db"), flags=apsw.SQLITE_OPEN_READONLY)
    found = file.execute(sql).fetchall()
    file.close()
    return found


# Vectors


@pytest.mark.spec("CLK-12")
async def test_a_fact_has_one_vector_for_each_model(
    engine: Client, guild: ScopedClient, tmp_path: Path
) -> None:
    await fact(guild, "Ana likes green tea.")
    await engine.index()
    await engine.index(force=True)
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as other:  # the packaged model
        await other.index()
    found = rows(tmp_path, "SELECT model FROM vectors ORDER BY model")
    assert found == [("all-MiniLM-L6-v2",), ("hashing-384",), ("use-multilingual-v3-256",)]
    keys = rows(tmp_path, "SELECT name FROM pragma_table_info('vectors') WHERE pk > 0 ORDER BY pk")
    assert keys == [("scope",), ("memory",), ("model",)]


@pytest.mark.spec("CLK-13")
async def test_a_vector_is_kept_with_its_dimensions_as_32_bit_floats(
    engine: Client, guild: ScopedClient, tmp_path: Path
) -> None:
    await fact(guild, "Ana likes green tea.")
    await engine.index()
    ((dims, blob),) = rows(tmp_path, "SELECT dims, embedding FROM vectors")
    (made,) = await engine.ctx.embedder.encode_batch(["Ana likes green tea."])
    assert dims == 384
    assert np.frombuffer(blob, "<f4").tolist() == made.tolist()


class Uneven(Hashing):
    """An embedder whose vectors are as long as their texts."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        return await super().encode_batch(texts) * np.array(
            [[len(text)] for text in texts], np.float32
        )


@pytest.mark.spec("CLK-14", "CLK-64")
@pytest.mark.parametrize("embedder", [Hashing, Uneven])
async def test_similarity_is_one_less_the_cosine_distance(
    engine: Client, guild: ScopedClient, tmp_path: Path, embedder: type[Hashing]
) -> None:
    engine.ctx.embedder = embedder()
    await fact(guild, "Ana likes green tea.")
    await engine.index()
    found = await hit(guild, "who likes tea?")
    ((blob,),) = rows(tmp_path, "SELECT embedding FROM vectors")
    (asked,) = await engine.ctx.embedder.encode_batch(["who likes tea?"])
    assert found.parts["semantic"] == pytest.approx(
        0.50 * (1 - cosine_distance(asked.tobytes(), blob)), abs=1e-6
    )


def cosine_distance(a: bytes, b: bytes) -> float:
    """As sqlite-vec computes it, by sqlite-vec itself where the extra `test` is installed."""
    try:
        import sqlite_vec  # type: ignore[import-not-found]
    except ImportError:
        x, y = (np.frombuffer(blob, "<f4").astype(np.float64) for blob in (a, b))
        return float(1 - x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))
    db = apsw.Connection(":memory:")  # the module of Python may be built without extensions
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    ((distance,),) = db.execute("SELECT vec_distance_cosine(?, ?)", (a, b))
    return float(distance)


@pytest.mark.spec("CLK-14", "CLK-64")
def test_sqlite_vec_is_installed_with_the_tests_that_compare_with_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    assert any(each.startswith("sqlite-vec") for each in project["optional-dependencies"]["test"])


# Scores


@pytest.mark.spec("CLK-63")
async def test_words_are_looked_for_in_the_fact_and_its_evidence(guild: ScopedClient) -> None:
    await fact(guild, "Ana likes green tea.", evidence_text="I drink it at the harbour")
    parts = (await hit(guild, "green harbour coffee milk")).parts
    assert parts["lexical"] == pytest.approx(0.75 * 2 / 4)
    assert (await hit(guild, "likes GREEN tea")).parts["lexical"] == pytest.approx(0.75)


@pytest.mark.spec("CLK-65")
async def test_a_fact_counts_with_the_confidence_it_was_stored_with(guild: ScopedClient) -> None:
    await fact(guild, "Ana likes green tea.", confidence=0.7)
    assert (await hit(guild, "green tea")).parts["confidence"] == pytest.approx(0.07)


@pytest.mark.spec("CLK-66")
async def test_a_fact_is_worth_half_after_45_days(engine: Client, guild: ScopedClient) -> None:
    await fact(guild, "Ana likes green tea.")
    engine.ctx.clock = lambda: NOW + timedelta(days=45)
    assert (await hit(guild, "green tea")).parts["recency"] == pytest.approx(0.10 * 0.5)


@pytest.mark.spec("CLK-67")
@pytest.mark.parametrize(
    ("channel", "expected"), [("general", 0.05), (None, 0.0125), ("random", 0.0)]
)
async def test_the_channel_of_a_fact_counts_a_little(
    guild: ScopedClient, channel: str | None, expected: float
) -> None:
    await fact(guild, "Ana likes green tea.", channel=channel)
    assert (await hit(guild, "green tea")).parts.get("channel", 0.0) == pytest.approx(expected)


@pytest.mark.spec("CLK-68")
async def test_with_vectors_five_parts_make_the_score(engine: Client, guild: ScopedClient) -> None:
    await fact(guild, "green tea", channel="general", confidence=0.7)
    await engine.index()
    engine.ctx.clock = lambda: NOW + timedelta(days=45)
    found = await hit(guild, "green tea")
    assert set(found.parts) == ALL
    assert found.score == pytest.approx(
        0.50 * 1 + 0.28 * 1 + 0.10 * 0.7 + 0.07 * 0.5 + 0.05 * 1, abs=1e-6
    )


@pytest.mark.spec("CLK-69")
async def test_without_vectors_four_parts_make_the_score(
    engine: Client, guild: ScopedClient
) -> None:
    await fact(guild, "green tea", channel="general", confidence=0.7)
    engine.ctx.clock = lambda: NOW + timedelta(days=45)
    found = await hit(guild, "green tea")
    assert set(found.parts) == ALL - {"semantic"}
    assert found.score == pytest.approx(0.75 * 1 + 0.10 * 0.7 + 0.10 * 0.5 + 0.05 * 1, abs=1e-6)


# Gates


@pytest.mark.spec("CLK-70")
async def test_with_vectors_meaning_or_words_let_a_fact_through(
    engine: Client, guild: ScopedClient
) -> None:
    await fact(guild, "Ana likes green tea.")
    await fact(guild, "The tram stops at noon.")
    await engine.index()
    answer = await guild.recall("does she like green tea or coffee?", profile="clanker.strict")
    assert [found.memory.text for found in answer.hits] == ["Ana likes green tea."]
    assert [cut.reason for cut in answer.cut] == ["its score is too low to count as evidence"]


@pytest.mark.spec("CLK-71")
async def test_without_vectors_a_quarter_of_the_words_is_enough(guild: ScopedClient) -> None:
    await fact(guild, "Ana likes green tea.")
    four, five = "green xxx yyy zzz", "green xxx yyy zzz www"
    assert len((await guild.recall(four, profile="clanker.strict")).hits) == 1  # 0.25
    assert len((await guild.recall(five, profile="clanker.strict")).hits) == 0  # 0.20


@pytest.mark.spec("CLK-72")
async def test_where_every_fact_fails_the_strict_gate_nothing_is_returned(
    engine: Client, guild: ScopedClient
) -> None:
    await fact(guild, "Ana likes green tea.")
    assert (await guild.recall("quarterly revenue", profile="clanker.strict")).hits == ()
    assert (await guild.recall("quarterly revenue", profile="clanker.strict")).text == ""
    assert (
        len((await guild.recall("quarterly revenue", profile="clanker.hybrid")).hits) == 1
    )  # lenient


async def test_equal_scores_are_ordered_by_the_newer_fact(
    engine: Client, guild: ScopedClient
) -> None:
    await fact(guild, "green tea one")
    engine.ctx.clock = lambda: NOW + timedelta(milliseconds=5)
    await fact(guild, "green tea two")
    answer = await guild.recall("green tea", profile="clanker.hybrid")
    assert [found.memory.text for found in answer.hits] == ["green tea two", "green tea one"]
