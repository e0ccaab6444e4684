"""Milton's memory through its own API, on a real file."""

import inspect
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memorist import aio
from memorist.client import Client
from memorist.dialects.milton import MemoryItem, Milton, ProjectMemory, UserProfile
from memorist.embedders import Cached, Hashing
from memorist.errors import EmbedderUnavailable, InvalidInput, RevisionConflict
from memorist.ports import Vectors
from memorist.providers import onnx
from memorist.storage import person
from memorist.types import Filter

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SEVEN = ["fact", "preference", "project", "decision", "crumb", "request", "result"]


class Away:
    """An embedder that never answers."""

    dimensions = 384

    def __init__(self, model: str = "hashing-384") -> None:
        self.model, self.asked = model, list[str]()

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        raise EmbedderUnavailable

    async def close(self) -> None: ...


class Uneven(Hashing):
    """An embedder whose vectors are as long as their texts."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        return await super().encode_batch(texts) * np.array(
            [[len(text)] for text in texts], np.float32
        )


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as opened:
        opened.ctx.clock = lambda: NOW
        yield opened


@pytest.fixture
def milton(engine: Client) -> Milton:
    return Milton(engine.scope(user="cole"))


def contents(items: list[MemoryItem]) -> list[str]:
    return [item.content for item in items]


# Items


@pytest.mark.spec("MIL-1")
@pytest.mark.parametrize("type", SEVEN)
async def test_each_of_the_seven_types_is_accepted(milton: Milton, type: str) -> None:
    await milton.add(type=type, content="The build is green.")
    assert [item.type for item in await milton.query_recent(1)] == [type]


@pytest.mark.spec("MIL-1")
@pytest.mark.parametrize("type", ["episodic", "Fact", "memory", " "])
async def test_any_other_type_is_refused(milton: Milton, type: str) -> None:
    with pytest.raises(InvalidInput, match=r"Unknown item type .*; choose one of fact, preference"):
        await milton.add(type=type, content="The build is green.")
    assert await milton.query_recent(1) == []


@pytest.mark.parametrize(
    ("content", "type"),
    [
        pytest.param("My sister lives in Oslo.", "fact", marks=pytest.mark.spec("MIL-2")),
        pytest.param("The user works as a nurse.", "fact", marks=pytest.mark.spec("MIL-2")),
        pytest.param("I prefer short answers.", "preference", marks=pytest.mark.spec("MIL-3")),
        pytest.param("I can't stand loud music.", "preference", marks=pytest.mark.spec("MIL-3")),
        pytest.param("I love a release on Friday.", "preference", marks=pytest.mark.spec("MIL-3")),
        pytest.param(
            "The goal of the Atlas project is a public beta.",
            "project",
            marks=pytest.mark.spec("MIL-4"),
        ),
        pytest.param("We decided to use PostgreSQL.", "decision", marks=pytest.mark.spec("MIL-5")),
        pytest.param("Let's go with the blue logo.", "decision", marks=pytest.mark.spec("MIL-5")),
        pytest.param(
            "We decided that we always pay in cash.", "decision", marks=pytest.mark.spec("MIL-5")
        ),
        pytest.param("ok, one second", "crumb", marks=pytest.mark.spec("MIL-6")),
        pytest.param("Did it rain?", "crumb", marks=pytest.mark.spec("MIL-6")),
        pytest.param(
            "What did I say that I prefer, tea or coffee?", "crumb", marks=pytest.mark.spec("MIL-6")
        ),
    ],
)
async def test_an_item_without_a_type_gets_the_one_its_content_shows(
    milton: Milton, content: str, type: str
) -> None:
    await milton.add(content=content)
    assert [item.type for item in await milton.query_recent(1)] == [type]


@pytest.mark.spec("MIL-7")
@pytest.mark.parametrize("source", ["ntfy", "iPhone"])
async def test_what_arrives_over_ntfy_or_iphone_is_a_request(milton: Milton, source: str) -> None:
    await milton.add(content="I prefer the window seat, book it.", source=source, request_id="r-7")
    (item,) = await milton.query_recent(1)
    assert (item.type, item.source, item.request_id) == ("request", source, "r-7")


@pytest.mark.spec("MIL-8", "MIL-53")
async def test_a_result_keeps_the_paths_and_links_that_support_it(milton: Milton) -> None:
    evidence = ("reports/q1.md", "https://ci.example/run/7")
    await milton.add(type="result", content="The report is written.", evidence=evidence)
    (item,) = await milton.query_recent(1)
    assert (item.type, item.evidence) == ("result", evidence)


async def test_an_item_comes_back_with_every_field_it_had(milton: Milton) -> None:
    item = MemoryItem(
        id="item-1", ts=NOW - HOUR, agent="planner", type="decision", content="Ship on Friday.",
        tags=("release",), importance=0.9, source="chat", request_id="r1", evidence=("notes.md",),
    )  # fmt: skip
    assert await milton.store(item) == "item-1"
    assert await milton.query_recent(2) == [item]


async def test_an_item_needs_nothing_but_content(milton: Milton) -> None:
    id = await milton.add(content="The build is green.")
    (item,) = await milton.query_recent(1)
    assert (item.id, item.ts, item.importance, item.tags) == (id, NOW, 0.5, ())


async def test_unknown_fields_are_refused(milton: Milton) -> None:
    with pytest.raises(InvalidInput, match="unknown field 'mood': it takes content, type"):
        await milton.add(content="x", mood="good")
    with pytest.raises(InvalidInput, match="no 'content'"):
        await milton.add(type="fact")


async def test_a_time_without_a_zone_is_utc_and_others_become_utc(milton: Milton) -> None:
    await milton.add(content="a", ts=datetime(2026, 3, 1, 11))
    await milton.add(content="b", ts=datetime(2026, 3, 1, 11, 30, tzinfo=timezone(HOUR)))
    assert {item.content: item.ts for item in await milton.query_recent(9)} == {
        "a": datetime(2026, 3, 1, 11, tzinfo=UTC),
        "b": datetime(2026, 3, 1, 10, 30, tzinfo=UTC),
    }


async def test_tags_are_lower_case_and_single(milton: Milton) -> None:
    await milton.add(content="x", tags=["Work", "work", "Project:Atlas"])
    assert (await milton.query_recent(1))[0].tags == ("work", "project:atlas")


async def test_the_same_id_again_changes_nothing_and_with_other_words_it_is_a_conflict(
    milton: Milton,
) -> None:
    await milton.add(id="m1", content="The sky is blue.")
    assert await milton.add(id="m1", content="The sky is blue.") == "m1"
    with pytest.raises(RevisionConflict, match="'m1' was stored with another text"):
        await milton.add(id="m1", content="The sky is green.")
    assert contents(await milton.query_recent(1)) == ["The sky is blue."]


async def test_two_people_may_use_the_same_ids(engine: Client, milton: Milton) -> None:
    other = Milton(engine.scope(user="ana"))
    await milton.add(id="m1", content="mine")
    await other.add(id="m1", content="hers")
    assert contents(await milton.query_relevant("mine hers")) == ["mine"]


async def test_an_item_is_never_cut_in_pieces(milton: Milton) -> None:
    long = "\n\n".join(f"Paragraph {i} tells about the harbour and its ships." for i in range(200))
    await milton.add(content=long)
    assert contents(await milton.query_recent(1)) == [long]


async def test_equal_items_are_all_kept(milton: Milton) -> None:
    ids = [await milton.add(content="ping", type="crumb") for _ in range(3)]
    assert len(set(ids)) == len(await milton.query_recent(1)) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": "  "},
        {"content": 7},
        {"content": "x", "importance": 1.5},
        {"content": "x", "tags": "a"},
        {"content": "x", "tags": None},
        {"content": "x", "source": 7},
        {"content": "x", "ts": "yesterday"},
        {"content": "x", "importance": True},
        {"content": "x", "importance": "0.5"},
    ],
)
async def test_an_item_that_cannot_be_used_is_refused(
    milton: Milton, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await milton.add(**wrong)
    with pytest.raises(InvalidInput):
        await milton.store(MemoryItem(**wrong))
    assert await milton.query_recent(1) == []


# Deterministic retrieval


@pytest.mark.spec("MIL-9", "MIL-20", "MIL-30", "MIL-31")
def test_the_queries_have_miltons_parameters_and_defaults() -> None:
    def parameters(method: object) -> dict[str, object]:
        found = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
        return {each.name: each.default for each in found if each.name != "self"}

    no = inspect.Parameter.empty
    assert parameters(Milton.query_relevant) == {"text": no, "limit": 10, "recency_bias": 0.35}
    assert parameters(Milton.query_recent) == {"hours": no, "tags": None, "limit": 20}
    assert parameters(Milton.query_relevant_hybrid) == {
        "text": no, "limit": 10, "recency_bias": 0.35, "semantic_weight": 0.5, "mode": "hybrid",
    }  # fmt: skip


@pytest.mark.spec("MIL-9")
async def test_query_relevant_does_not_ask_the_embedder(engine: Client, milton: Milton) -> None:
    await milton.add(content="green tea")
    engine.ctx.embedder = away = Away()
    answer = await engine.scope(user="cole").recall("tea", profile="milton.deterministic")
    assert not answer.degraded
    assert contents(await milton.query_relevant("tea")) == ["green tea"]
    assert away.asked == []


@pytest.mark.spec("MIL-10")
async def test_the_same_question_gives_the_same_answer(milton: Milton) -> None:
    for i in [*range(15), *range(15)]:  # each is there twice
        await milton.add(
            content=f"tea number {i % 5}", ts=NOW - (i % 3) * HOUR, importance=(i % 4) / 4
        )
    first = await milton.query_relevant("tea number 3", limit=30)
    assert first == await milton.query_relevant("tea number 3", limit=30)
    assert len(first) == 30


@pytest.mark.spec("MIL-11", "MIL-13", "MIL-14", "MIL-15")
async def test_a_score_is_made_of_words_age_and_importance(engine: Client, milton: Milton) -> None:
    await milton.add(content="green tea at noon", ts=NOW - 3 * HOUR, importance=0.8)
    answer = await engine.scope(user="cole").recall("green coffee", profile="milton.deterministic")
    assert answer.hits[0].parts == pytest.approx(
        {"lexical": 0.5 * 0.65, "recency": 0.25 * 0.35, "importance": 0.8 * 0.15}
    )
    assert answer.hits[0].score == pytest.approx(0.5325)


@pytest.mark.spec("MIL-12")
async def test_a_match_in_the_tags_counts_like_one_in_the_content(milton: Milton) -> None:
    await milton.add(content="Bring the boxes.", ts=NOW - HOUR)
    await milton.add(content="Call the landlord.", tags=["moving"], ts=NOW - HOUR)
    assert contents(await milton.query_relevant("moving"))[0] == "Call the landlord."


@pytest.mark.spec("MIL-13", "MIL-15")
async def test_the_recency_bias_moves_the_new_before_the_fitting(milton: Milton) -> None:
    await milton.add(content="green tea", ts=NOW - 48 * HOUR)
    await milton.add(content="nothing of the kind", ts=NOW)
    assert contents(await milton.query_relevant("green tea", recency_bias=0.0))[0] == "green tea"
    assert (
        contents(await milton.query_relevant("green tea", recency_bias=1.0))[0]
        == "nothing of the kind"
    )


@pytest.mark.spec("MIL-16")
@pytest.mark.parametrize("importance", [0.1, 0.5, 0.7, 0.9])
async def test_of_equal_scores_the_more_important_comes_first(
    milton: Milton, importance: float
) -> None:
    question = " ".join(f"word{i}" for i in range(200))
    shared = " ".join(f"word{i}" for i in range(round(200 * 0.15 * importance)))
    for content, weight in ((shared, 0.0), ("nothing", importance), (shared, 0.0)):
        older = NOW - HOUR if weight else NOW  # being newer counts less
        await milton.add(
            content=content, importance=weight, ts=older
        )  # words of one, importance of the other: the same
    assert contents(await milton.query_relevant(question, recency_bias=0.0))[0] == "nothing"


@pytest.mark.spec("MIL-16")
async def test_then_the_newer_and_then_the_id(milton: Milton) -> None:
    for id, hours in (("c", 5), ("b", 1), ("a", 5)):
        await milton.add(id=id, content=f"tea {id}", ts=NOW - hours * HOUR)
    found = [item.id for item in await milton.query_relevant("tea", recency_bias=0.0)]
    assert found == ["b", "c", "a"]


async def test_a_blank_question_finds_nothing(milton: Milton) -> None:
    await milton.add(content="green tea")
    assert await milton.query_relevant("  ") == []


async def test_the_limit_of_a_query_holds(milton: Milton) -> None:
    for i in range(15):
        await milton.add(content=f"tea {i}")
    assert len(await milton.query_relevant("tea")) == 10
    assert len(await milton.query_relevant("tea", limit=3)) == 3


@pytest.mark.spec("MIL-17")
async def test_recent_items_are_those_of_the_last_hours_newest_first(milton: Milton) -> None:
    for hours in (3, 1, 2, 0):
        await milton.add(content=f"{hours} hours", ts=NOW - hours * HOUR)
    assert contents(await milton.query_recent(2)) == ["0 hours", "1 hours", "2 hours"]
    assert contents(await milton.query_recent(1.99)) == ["0 hours", "1 hours"]
    assert len(await milton.query_recent(10**12)) == 4


@pytest.mark.spec("MIL-18")
async def test_tags_leave_out_items_that_have_none_of_them(milton: Milton) -> None:
    await milton.add(content="a", tags=["Work", "tea"])
    await milton.add(content="b", tags=["home"], ts=NOW - HOUR)
    await milton.add(content="c")
    assert contents(await milton.query_recent(9, tags=["WORK"])) == ["a"]
    assert contents(await milton.query_recent(9, tags=["home", "work"])) == ["a", "b"]


@pytest.mark.spec("MIL-19")
async def test_a_negative_limit_of_recent_items_is_refused(milton: Milton) -> None:
    await milton.add(content="tea")
    found: list[MemoryItem] | None = None
    with suppress(InvalidInput):
        found = await milton.query_recent(9, limit=-1)
    assert found is None


@pytest.mark.spec("MIL-19")
async def test_no_more_recent_items_than_asked_for(milton: Milton) -> None:
    for i in range(25):
        await milton.add(content=f"item {i}", ts=NOW - timedelta(minutes=i))
    assert contents(await milton.query_recent(9, limit=2)) == ["item 0", "item 1"]
    assert len(await milton.query_recent(9)) == 20


# Hybrid retrieval


@pytest.mark.spec("MIL-21", "MIL-22", "MIL-24", "MIL-27", "MIL-33", "MIL-37")
async def test_the_default_model_finds_what_shares_no_word_with_the_question(
    tmp_path: Path,
) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as engine:
        milton = Milton(engine.scope(user="cole"))
        await milton.add(content="She takes her espresso without sugar.")
        await milton.add(content="The train to Porto leaves at noon.")
        found = await milton.query_relevant_hybrid("How does she drink coffee?", mode="semantic")
        memory = (await engine.scope(user="cole").list()).memories[0]
        vector = (await engine.ctx.embedder.encode_batch(["tea"]))[0]
    assert contents(found)[0] == "She takes her espresso without sugar."
    assert engine.ctx.embedder.model == "all-MiniLM-L6-v2"
    assert vector.shape == (384,)
    assert not memory.needs_embedding


@pytest.mark.spec("MIL-24", "MIL-26", "MIL-27", "MIL-28", "MIL-29")
@pytest.mark.parametrize("embedder", [Hashing, Uneven])
@pytest.mark.parametrize("importance", [0.0, 0.8])
async def test_a_hybrid_score_is_half_words_and_half_cosine(
    engine: Client, milton: Milton, embedder: type[Hashing], importance: float
) -> None:
    engine.ctx.embedder = embedder()
    await milton.add(content="green tea", importance=importance)
    await milton.add(content="green coffee beans", importance=importance)
    answer = await engine.scope(user="cole").recall("green tea", profile="milton.hybrid")
    asked, other = await Hashing().encode_batch(["green tea", "green coffee beans"])
    bonus = 0.15 * importance
    words = (0.5 * 0.65 + 0.35 + bonus) / (1.0 * 0.65 + 0.35 + bonus)  # both as shares of the best
    expected = [1.0, 0.5 * words + 0.5 * float(asked @ other)]
    assert [hit.score for hit in answer.hits] == pytest.approx(expected, abs=1e-6)


@pytest.mark.spec("MIL-26")
async def test_words_age_and_importance_count_in_a_hybrid_query(milton: Milton) -> None:
    """Of the same text, so that words and meaning are equal: the rest is 0.35 / (1 + h) + 0.15 i."""
    for id, hours, importance in (
        ("0.238", 3, 1.0),
        ("0.350", 0, 0.0),
        ("0.250", 1, 0.5),
        ("0.267", 2, 1.0),
    ):
        await milton.add(content="green tea", id=id, ts=NOW - hours * HOUR, importance=importance)
    found = await milton.query_relevant_hybrid("green tea")
    assert [item.id for item in found] == ["0.350", "0.267", "0.250", "0.238"]


@pytest.mark.spec("MIL-20", "MIL-29")
async def test_the_semantic_weight_decides_whether_words_and_age_or_meaning_count(
    milton: Milton,
) -> None:
    await milton.add(content="green tea", ts=NOW - 99 * HOUR)
    await milton.add(content="green", ts=NOW)
    by_weight = {
        w: await milton.query_relevant_hybrid("green tea", semantic_weight=w) for w in (0.0, 1.0)
    }
    assert contents(by_weight[0.0]) == ["green", "green tea"]
    assert contents(by_weight[1.0]) == ["green tea", "green"]


@pytest.mark.spec("MIL-20")
async def test_a_hybrid_query_heeds_its_limit_and_recency_bias(milton: Milton) -> None:
    for hours in (1, 2, 3):
        await milton.add(content=" ".join(["tea", "milk", "rum"][:hours]), ts=NOW - hours * HOUR)
    found = await milton.query_relevant_hybrid(
        "tea milk rum", limit=2, recency_bias=1.0, semantic_weight=0.0
    )
    assert contents(found) == ["tea", "tea milk"]
    found = await milton.query_relevant_hybrid(
        "tea milk rum", limit=1, recency_bias=0.0, semantic_weight=0.0
    )
    assert contents(found) == ["tea milk rum"]


@pytest.mark.spec("MIL-30", "MIL-31")
async def test_by_default_both_halves_count_the_same(engine: Client, milton: Milton) -> None:
    await milton.add(content="green tea")
    await milton.add(content="teas, greenish", ts=NOW - 9 * HOUR)
    default = await milton.query_relevant_hybrid("green tea")
    assert default == await milton.query_relevant_hybrid("green tea", 10, 0.35, 0.5, "hybrid")
    parts = (
        (await engine.scope(user="cole").recall("green tea", profile="milton.hybrid")).hits[0].parts
    )
    assert parts == pytest.approx({"deterministic": 0.5, "semantic": 0.5})


@pytest.mark.spec("MIL-32")
async def test_the_deterministic_mode_is_query_relevant(milton: Milton) -> None:
    for i in range(12):
        await milton.add(content=f"tea {i % 3}", ts=NOW - i * HOUR, importance=i / 12)
    plain = await milton.query_relevant("tea 2", 5, 0.6)
    assert await milton.query_relevant_hybrid("tea 2", 5, 0.6, mode="deterministic") == plain


@pytest.mark.spec("MIL-33")
async def test_the_semantic_mode_knows_neither_age_nor_importance(milton: Milton) -> None:
    await milton.add(content="green teas", ts=NOW - 999 * HOUR, importance=0.0)
    await milton.add(content="greenhouse", ts=NOW, importance=1.0)
    await milton.add(content="old maps", ts=NOW, importance=1.0)
    found = await milton.query_relevant_hybrid("green tea", mode="semantic")
    assert contents(found) == ["green teas", "greenhouse"], (
        "what means something else is not returned"
    )


@pytest.mark.spec("MIL-34")
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_without_embeddings_the_answer_is_the_deterministic_one(
    engine: Client, milton: Milton, mode: str
) -> None:
    for i in range(9):
        await milton.add(content=f"tea {i}", ts=NOW - i * HOUR)
    engine.ctx.embedder = Away()
    assert await milton.query_relevant_hybrid("tea 4", mode=mode) == await milton.query_relevant(
        "tea 4"
    )


@pytest.mark.spec("MIL-34")
async def test_an_item_is_stored_while_the_embedder_is_away(engine: Client, milton: Milton) -> None:
    engine.ctx.embedder = Away()
    await milton.add(content="green tea")
    assert contents(await milton.query_relevant_hybrid("tea")) == ["green tea"]


@pytest.mark.spec("MIL-35")
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_without_the_runtime_of_the_model_the_answer_is_the_deterministic_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    onnx.load_model.cache_clear()  # type: ignore[attr-defined]  # the tests load it once
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as engine:
        milton = Milton(engine.scope(user="cole"))
        for content in ("green tea", "black coffee", "tea with milk"):
            await milton.add(content=content)
        found = await milton.query_relevant_hybrid("tea", mode=mode)
        assert contents(found) == contents(await milton.query_relevant("tea"))


@pytest.mark.spec("MIL-23")
async def test_where_weaviate_is_configured_it_is_asked_for_what_is_near(tmp_path: Path) -> None:
    pytest.importorskip("weaviate")
    from weaviate_server import WeaviateServer

    with WeaviateServer() as server:
        settings = {
            "embedder": "hashing",
            "state_dir": tmp_path,
            "vector_index": f"weaviate:{server.url}",
        }
        async with aio.open(tmp_path / "m.db", **settings) as engine:
            milton = Milton(engine.scope(user="cole"))
            await milton.add(content="green tea")
            assert contents(await milton.query_relevant_hybrid("a cup of tea")) == ["green tea"]
    assert len(server.searched) == 1


@pytest.mark.spec("MIL-36")
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_while_weaviate_is_away_the_answer_is_the_deterministic_one(
    tmp_path: Path, mode: str
) -> None:
    pytest.importorskip("weaviate")
    settings = {
        "embedder": "hashing",
        "state_dir": tmp_path,
        "vector_index": "weaviate:http://127.0.0.1:1",
    }
    async with aio.open(tmp_path / "m.db", **settings) as engine:
        engine.ctx.clock = lambda: NOW
        milton = Milton(engine.scope(user="cole"))
        await milton.add(content="green tea", ts=NOW - 99 * HOUR)
        await milton.add(content="green", ts=NOW)
        plain = await milton.query_relevant("green tea")
        found = await milton.query_relevant_hybrid("green tea", semantic_weight=0.9, mode=mode)
    assert contents(found) == contents(plain)


@pytest.mark.spec("MIL-25")
async def test_a_text_is_embedded_once_and_then_read_from_the_cache(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "a.db", state_dir=tmp_path) as engine:
        await Milton(engine.scope(user="cole")).add(content="green tea")
    away = Cached(Away("all-MiniLM-L6-v2"), tmp_path / "embeddings_cache")
    assert (await away.encode_batch(["green tea"])).shape == (1, 384)
    await away.close()


@pytest.mark.spec("MIL-25")
async def test_a_cached_text_does_not_need_the_model(tmp_path: Path) -> None:
    cache = Cached(Hashing(), tmp_path / "embeddings_cache")
    made = await cache.encode_batch(["green tea"])
    await cache.close()
    again = Cached(Away(), tmp_path / "embeddings_cache")
    assert (await again.encode_batch(["green tea"])).tolist() == made.tolist()
    await again.close()


@pytest.mark.spec("MIL-37")
async def test_an_item_is_embedded_while_it_is_stored(engine: Client, milton: Milton) -> None:
    await milton.add(content="green tea")
    assert (await engine.scope(user="cole").list(Filter(needs_embedding=False))).memories[
        0
    ].text == "green tea"
    assert (await engine.index(dry_run=True)).found == 0


# Long-term records


@pytest.mark.spec("MIL-49", "MIL-52")
async def test_a_profile_without_evidence_is_refused(milton: Milton) -> None:
    id = await milton.add(content="I prefer tea.")
    before = await milton.upsert_user_profile({"preferences": ["tea"]}, [id])
    with pytest.raises(InvalidInput, match="needs evidence"):
        await milton.upsert_user_profile({"preferences": ["coffee"]}, [])
    assert await milton.user_profile() == before


@pytest.mark.spec("MIL-49")
async def test_a_project_without_evidence_is_refused(milton: Milton) -> None:
    with pytest.raises(InvalidInput, match="needs evidence"):
        await milton.upsert_project_memory("atlas", {"goals": ["beta"]}, [])
    assert await milton.project_memory("atlas") == ProjectMemory(project_name="atlas")


@pytest.mark.spec("MIL-50")
async def test_each_evidence_of_a_profile_is_an_item_that_is_there(
    engine: Client, milton: Milton
) -> None:
    mine = await milton.add(content="I prefer tea.")
    hers = await Milton(engine.scope(user="ana")).add(content="I prefer coffee.")
    for wrong in ("nothing", hers):
        with pytest.raises(InvalidInput, match=f"No item with id '{wrong}'"):
            await milton.upsert_user_profile({"preferences": ["tea"]}, [mine, wrong])
    assert await milton.user_profile() == UserProfile()
    made = await milton.upsert_user_profile({"preferences": ["tea"]}, [mine])
    assert made == UserProfile(preferences=("tea",), last_updated=NOW, evidence_ids=(mine,))


@pytest.mark.spec("MIL-50")
async def test_evidence_is_named_by_the_ids_that_items_were_given(milton: Milton) -> None:
    await milton.add(id="item-1", content="I prefer tea.")
    made = await milton.upsert_user_profile({"preferences": ["tea"]}, ["item-1"])
    assert made.evidence_ids == ("item-1",)


@pytest.mark.spec("MIL-51")
async def test_each_evidence_of_a_project_is_an_item_that_is_there(milton: Milton) -> None:
    id = await milton.add(content="Atlas needs a beta.", tags=["project:atlas"])
    with pytest.raises(InvalidInput, match="No item with id 'nothing'"):
        await milton.upsert_project_memory("atlas", {"goals": ["beta"]}, ["nothing"])
    made = await milton.upsert_project_memory("atlas", {"goals": ["beta"]}, [id])
    assert (made.goals, made.evidence_ids) == (("beta",), (id,))


async def test_a_forgotten_item_is_no_evidence(engine: Client, milton: Milton) -> None:
    id = await milton.add(content="I prefer tea.")
    await engine.scope(user="cole").forget(id)
    with pytest.raises(InvalidInput, match="has to be stored first"):
        await milton.upsert_user_profile({"preferences": ["tea"]}, [id])


async def test_a_patch_adds_to_the_profile_and_repeats_nothing(
    engine: Client, milton: Milton
) -> None:
    first, second = (
        await milton.add(content="I prefer tea."),
        await milton.add(content="My sister lives in Oslo."),
    )
    await milton.upsert_user_profile({"preferences": ["tea"]}, [first])
    engine.ctx.clock = lambda: NOW + HOUR
    patch = {"preferences": ["tea", "quiet"], "stable_facts": ["sister: Oslo"]}
    made = await milton.upsert_user_profile(patch, [second])
    assert made.preferences == ("tea", "quiet")
    assert made.stable_facts == ("sister: Oslo",)
    assert (made.last_updated, made.evidence_ids) == (NOW + HOUR, (first, second))
    assert await milton.user_profile() == made


async def test_every_update_of_a_profile_is_a_version_that_stays(
    engine: Client, milton: Milton
) -> None:
    id = await milton.add(content="I prefer tea.")
    for value in ("tea", "quiet"):
        await milton.upsert_user_profile({"preferences": [value]}, [id])
    versions = await person.load_summaries(
        engine.ctx.store, engine.scope(user="cole").scope, "user_profile"
    )
    assert [list(version.data["preferences"]) for version in versions] == [
        ["tea", "quiet"],
        ["tea"],
    ]


async def test_a_patch_takes_only_the_three_lists(milton: Milton) -> None:
    id = await milton.add(content="I prefer tea.")
    with pytest.raises(
        InvalidInput, match="cannot set 'evidence_ids': it takes preferences, stable_facts"
    ):
        await milton.upsert_user_profile({"evidence_ids": ["x"]}, [id])
    with pytest.raises(InvalidInput, match="must be a list of texts"):
        await milton.upsert_user_profile({"preferences": "tea"}, [id])


async def test_projects_are_kept_apart_by_name_and_merged_by_it(milton: Milton) -> None:
    id = await milton.add(content="Atlas needs a beta.")
    await milton.upsert_project_memory("Atlas", {"goals": ["beta"]}, [id])
    await milton.upsert_project_memory("hermes", {"goals": ["speed"]}, [id])
    await milton.upsert_project_memory(
        "atlas", {"blockers": ["no server"], "goals": ["beta"]}, [id]
    )
    atlas = await milton.project_memory("ATLAS")
    assert (atlas.goals, atlas.blockers, atlas.next_steps) == (("beta",), ("no server",), ())


async def test_records_are_written_in_a_database_in_memory() -> None:
    async with aio.open(":memory:", embedder="hashing") as opened:
        milton = Milton(opened.scope("ana"))
        id = await milton.add(content="I prefer tea.", type="preference")
        await milton.upsert_user_profile({"preferences": ["tea"]}, [id])
        done = await milton.compress_short_to_long(0)
        assert done == {"compressed": 1, "projects": 0, "profile": 1}
        profile = await milton.user_profile()
    assert (profile.preferences, profile.evidence_ids) == (("tea", "I prefer tea."), (id,))
