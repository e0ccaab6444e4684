"""Vectors from a server, through the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from llm_server import Server
from memorist import aio
from memorist.dialects.clanker import embedding_model
from memorist.embedders.openai import LONGEST, OpenAIEmbedder
from memorist.errors import EmbedderUnavailable, Misconfigured, WrongDimensions

FAILING = ("500", "429", "401", "not json", "closing", "elsewhere", "bomb", "wrong protocol")


@pytest.fixture
async def embedder(llm_server: Server) -> AsyncIterator[OpenAIEmbedder]:
    made = OpenAIEmbedder(url=f"{llm_server.url}/v1", key="k", timeout=5)
    yield made
    await made.close()


def test_openai_models_are_known_and_others_have_to_say_how_long_their_vectors_are() -> None:
    assert (OpenAIEmbedder().model, OpenAIEmbedder().dimensions) == ("text-embedding-3-small", 1536)
    assert OpenAIEmbedder("text-embedding-3-large").dimensions == 3072
    assert OpenAIEmbedder(dimensions=256).model != OpenAIEmbedder().model
    assert OpenAIEmbedder("nomic-embed-text", dimensions=768).model == "nomic-embed-text"
    with pytest.raises(Misconfigured, match="embedder_dimensions"):
        OpenAIEmbedder("nomic-embed-text")


async def test_rows_come_at_unit_length_in_the_order_of_the_texts(
    embedder: OpenAIEmbedder, llm_server: Server
) -> None:
    texts = ["tea" * number for number in range(300)]
    rows = await embedder.encode_batch(texts)
    assert (rows.shape, rows.dtype) == ((300, 1536), np.float32)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.allclose(rows[[7, 299]], await embedder.encode_batch([texts[7], texts[299]]))
    assert [len(request.body["input"]) for request in llm_server.requests] == [128, 128, 44, 2]


async def test_no_texts_need_no_server(embedder: OpenAIEmbedder, llm_server: Server) -> None:
    assert (await embedder.encode_batch([])).shape == (0, 1536)
    assert not llm_server.requests


async def test_any_text_can_be_sent(embedder: OpenAIEmbedder, llm_server: Server) -> None:
    assert (await embedder.encode_batch(["", "\ud800", "東京" * 10_000])).shape == (3, 1536)
    sent = llm_server.requests[0].body["input"]
    assert sent[:2] == [" ", "?"]
    assert LONGEST - 3 < len(sent[2].encode()) <= LONGEST


async def test_shorter_vectors_are_asked_for_where_the_model_can_make_them(
    llm_server: Server,
) -> None:
    embedder = OpenAIEmbedder(url=f"{llm_server.url}/v1", dimensions=64)
    assert (await embedder.encode_batch(["tea"])).shape == (1, 64)
    await embedder.close()


@pytest.mark.parametrize("how", FAILING)
async def test_a_server_that_fails_makes_the_embedder_unavailable(
    embedder: OpenAIEmbedder, llm_server: Server, how: str
) -> None:
    llm_server.behaviour = how
    with pytest.raises(EmbedderUnavailable) as caught:
        await embedder.encode_batch(["whispered words"])
    assert "whispered" not in str(caught.value)


async def test_vectors_of_another_size_are_refused_and_the_setting_is_named(
    embedder: OpenAIEmbedder, llm_server: Server
) -> None:
    llm_server.dimensions = 768
    with pytest.raises(WrongDimensions, match=r"768.*embedder_dimensions"):
        await embedder.encode_batch(["tea"])


async def test_a_server_that_hangs_is_left_alone_after_three_times(llm_server: Server) -> None:
    embedder = OpenAIEmbedder(url=f"{llm_server.url}/v1", timeout=0.3)
    llm_server.behaviour = "silent"
    for _ in range(20):
        with pytest.raises(EmbedderUnavailable):
            await embedder.encode_batch(["tea"])
    assert len(llm_server.requests) == 3
    await embedder.close()


@pytest.mark.spec("MLS-19")
async def test_a_memory_is_embedded_and_found_through_it_and_asked_for_once(
    tmp_path: Path, llm_server: Server
) -> None:
    told = {"embedder": "openai", "embedder_url": f"{llm_server.url}/v1", "state_dir": tmp_path}
    for _ in range(2):
        async with aio.open(tmp_path / "m.db", **told) as engine:
            ana = engine.scope("ana")
            await ana.remember("I drink green tea.")
            assert (await ana.recall("tea?")).hits
            assert (await engine.stats())["without_embeddings"] == 0
    sent = [text for request in llm_server.requests for text in request.body["input"]]
    assert sent.count("I drink green tea.") == 1


async def test_while_the_server_is_away_words_still_find(tmp_path: Path) -> None:
    told = {"embedder": "openai", "embedder_url": "http://127.0.0.1:9/v1", "state_dir": tmp_path}
    async with aio.open(tmp_path / "m.db", **told) as engine:
        ana = engine.scope("ana")
        assert (await ana.remember("I drink green tea.")).outcomes[0].status == "created"
        assert (await ana.recall("tea?")).hits


@pytest.mark.spec("CLK-53")
def test_the_model_of_a_bot_comes_from_its_settings_then_the_environment_then_the_usual_one() -> (
    None
):
    large = {"memory": {"embeddingModel": "text-embedding-3-large"}}
    assert (
        embedding_model(large, {"DEFAULT_MEMORY_EMBEDDING_MODEL": "other"})
        == "text-embedding-3-large"
    )
    assert (
        embedding_model(
            {"memory": {"embeddingModel": " "}}, {"DEFAULT_MEMORY_EMBEDDING_MODEL": "other"}
        )
        == "other"
    )
    assert (
        embedding_model({"memory": None}, {"DEFAULT_MEMORY_EMBEDDING_MODEL": ""})
        == "text-embedding-3-small"
    )


@pytest.mark.spec("CLK-53")
async def test_the_model_that_the_environment_names_is_the_one_that_embeds(
    tmp_path: Path, llm_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_MEMORY_EMBEDDING_MODEL", "text-embedding-3-large")
    told = {"embedder": "openai", "embedder_url": f"{llm_server.url}/v1", "state_dir": tmp_path}
    async with aio.open(tmp_path / "m.db", **told) as engine:
        assert engine.ctx.embedder is not None
        assert (engine.ctx.embedder.model, engine.ctx.embedder.dimensions) == (
            "text-embedding-3-large",
            3072,
        )
