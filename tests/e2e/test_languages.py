"""Recall across languages: the vectors of the second model, and the background fill that adds missing ones."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memorist import aio
from memorist.client import Client
from memorist.embedders.local import MiniLM, Multilingual
from memorist.errors import EmbedderUnavailable
from memorist.interfaces.cli import app
from memorist.ports import Vectors
from memorist.scoped import ScopedClient
from memorist.storage.database import EVERY
from memorist.types import Recall

FIRST = MiniLM.model
SECOND = Multilingual.model

DOG = "My dog is afraid of thunderstorms."
HUND = "Wovor hat mein Hund Angst?"
TEXTS = (
    DOG,
    "The kettle in the kitchen is blue.",
    "The ship to Porto leaves at noon.",
    "I moved to Rome last year.",
    "My sister Ana plays the violin.",
    "I am allergic to peanuts.",
)
PATIENCE = 30.0  # seconds


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MEMORIST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MEMORIST_SPOOL_DIR", str(tmp_path / "spool"))


async def counted(client: Client) -> dict[str, int]:
    """How many vectors there are of each model."""
    sql = "SELECT model, count(*) FROM vectors GROUP BY model"
    return dict(await client.ctx.store.database.rows(sql, scope=EVERY))


async def filled(client: Client, many: int) -> None:
    """Wait until so many memories have a vector of the second model."""
    end = time.monotonic() + PATIENCE
    while (await counted(client)).get(SECOND) != many:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def make_without_second(place: str | Path, texts: Sequence[str] = TEXTS) -> None:
    async with aio.open(place, multilingual=False) as client:
        for text in texts:
            await client.scope("ana").remember(text)


def texts_of(found: Recall) -> list[str]:
    return [hit.memory.text for hit in found]


# The background fill


async def test_the_first_recall_fills_a_database_that_has_no_second_vectors(place: str) -> None:
    await make_without_second(place)
    async with aio.open(place) as client:
        ana = client.scope("ana")
        assert await counted(client) == {FIRST: len(TEXTS)}
        assert (await ana.recall(HUND)).hits == ()
        await filled(client, len(TEXTS))
        found = await ana.recall(HUND)
        assert found.hits[0].memory.text == DOG
        assert not found.degraded
        assert await client.check() == []


async def test_filling_is_not_a_change_of_a_memory(tmp_path: Path) -> None:
    await make_without_second(tmp_path / "m.db")
    async with aio.open(tmp_path / "m.db") as client:
        ana = client.scope("ana")
        before = (await ana.list()), (await ana.history())
        await ana.recall(HUND)
        await filled(client, len(TEXTS))
        assert ((await ana.list()), (await ana.history())) == before


async def test_a_memory_without_its_second_vector_is_compared_by_the_first(tmp_path: Path) -> None:
    await make_without_second(tmp_path / "m.db")
    question = "What is my dog scared of?"
    async with aio.open(tmp_path / "m.db", multilingual=False) as client:
        alone = await client.scope("ana").recall(question)
    async with aio.open(tmp_path / "m.db") as client:
        client.ctx.filler = None
        found = await client.scope("ana").recall(question)
    assert found.confidence == pytest.approx(alone.confidence)
    assert texts_of(found)[0] == DOG


async def test_closing_while_it_fills_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    texts = [f"On day {number} I wrote a letter about clouds." for number in range(300)]
    async with aio.open(path, embedder="hashing", extract="off") as client:
        await client.scope("ana").remember([{"content": text} for text in texts])
    async with aio.open(path, extract="off") as client:
        await client.index()
        many = len(await client.scope("ana").list(limit=1000))
        await client.ctx.store.embeddings.drop_vectors(FIRST)
    async with aio.open(path, extract="off") as client:
        await client.scope("ana").recall("clouds")  # and is closed at once
    async with aio.open(path, extract="off") as client:
        done = (await counted(client)).get(SECOND, 0)
        assert 0 < done < many  # it stops after a batch
        assert await client.ctx.store.database.rows("SELECT * FROM claims", scope=EVERY) == []
        await client.scope("ana").recall("clouds")
        await filled(client, many)
        assert (await counted(client))[FIRST] == many
        assert await client.check() == []


async def test_without_the_second_model_nothing_is_filled(tmp_path: Path) -> None:
    await make_without_second(tmp_path / "m.db")
    async with aio.open(tmp_path / "m.db", multilingual=False) as client:
        assert client.ctx.filler is None
        await client.scope("ana").recall("What is my dog scared of?")
        await client.scope("ana").remember("Mein Bruder wohnt in Hamburg.")
        assert await counted(client) == {FIRST: len(TEXTS) + 1}


async def test_other_embedders_have_no_second_model(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", embedder="hashing") as client:
        assert client.ctx.multilingual is None
        assert client.ctx.filler is None


class Down:
    """A second model that is down."""

    model = SECOND
    dimensions = 256

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        raise EmbedderUnavailable("out of memory")

    async def close(self) -> None:
        pass


async def test_a_second_model_that_is_down_costs_only_its_share(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with aio.open(path) as client:
        client.ctx.multilingual = Down()
        ana = client.scope("ana")
        receipt = await ana.remember(DOG)
        assert receipt.count("created") == 1
        found = await ana.recall("What is my dog scared of?")
        assert texts_of(found) == [DOG]
        assert found.legs == {"sparse": "ok", "dense": "ok", "multilingual": "out of memory"}
    async with aio.open(path) as client:
        await client.scope("ana").recall(HUND)
        await filled(client, 1)


async def test_the_index_command_fills_both(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with aio.open(path, embedder="none") as client:
        for text in TEXTS:
            await client.scope("ana").remember(text)
    run = CliRunner(env={"MEMORIST_DB": str(path)})
    done = await asyncio.to_thread(run.invoke, app, ["index"])
    assert done.exit_code == 0
    async with aio.open(path) as client:
        assert await counted(client) == {FIRST: len(TEXTS), SECOND: len(TEXTS)}
        assert await client.drop_vectors() == 0


# Writes


async def test_forgetting_removes_both_vectors(place: str) -> None:
    async with aio.open(place) as client:
        ana = client.scope("ana")
        (id,) = (await ana.remember(DOG)).ids
        await ana.remember("I moved to Rome last year.")
        assert await counted(client) == {FIRST: 2, SECOND: 2}
        await ana.forget(id)
        assert await counted(client) == {FIRST: 1, SECOND: 1}
        assert DOG not in texts_of(await ana.recall(HUND, min_confidence=0))


async def test_an_edited_text_is_found_by_its_new_meaning_alone(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db") as client:
        ana = client.scope("ana")
        (id,) = (await ana.remember(DOG)).ids
        await ana.edit(id, text="I am allergic to peanuts.")
        await ana.recall("What am I allergic to?")
        await filled(client, 2)  # and of the earlier version
        found = await ana.recall("Wogegen bin ich allergisch?")
        old = await ana.recall(HUND, min_confidence=0)
        assert found.hits[0].score > 2 * old.hits[0].score


# Recall


CHAT = (
    ("user", "Mein Bruder Jonas wohnt seit März in Hamburg."),
    ("assistant", "How does he like the city?"),
    ("user", "He loves the harbor. He works on a ferry now."),
    ("user", "Ich bin gegen Erdnüsse allergisch."),
    ("assistant", "Noted. I will leave out peanuts in recipes."),
    ("user", "私の猫は窓の近くで寝るのが好きです。"),
    ("user", "The kettle in the kitchen is blue."),
)
ASKED = (
    "Where does my brother live?",
    "What am I allergic to?",
    "Wo arbeitet Jonas?",
    "Where does my cat like to sleep?",
    "Welche Farbe hat der Wasserkocher?",
    "What did you say about peanuts?",
)


async def told(ana: ScopedClient) -> ScopedClient:
    messages = [{"role": role, "content": text} for role, text in CHAT]
    await ana.remember(messages)
    return ana


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where does my brother live?", CHAT[0][1]),
        ("What am I allergic to?", CHAT[3][1]),
        ("Where does my cat like to sleep?", CHAT[5][1]),
        ("Welche Farbe hat der Wasserkocher?", CHAT[6][1]),
    ],
)
async def test_a_memory_is_found_in_another_language(
    tmp_path: Path, question: str, answer: str
) -> None:
    async with aio.open(tmp_path / "m.db") as client:
        found = await (await told(client.scope("ana", session="s"))).recall(question)
        assert texts_of(found)[0] == answer


async def test_both_databases_give_the_same_order_and_confidence(
    tmp_path: Path, ready_database: str
) -> None:
    seen = []
    for place in (tmp_path / "m.db", ready_database):
        async with aio.open(place) as client:
            ana = await told(client.scope("ana", session="s"))
            found = [await ana.recall(question) for question in ASKED]
            seen.append(found)
    for here, there in zip(*seen, strict=True):
        assert texts_of(here) == texts_of(there) != []
        assert here.confidence == pytest.approx(there.confidence, abs=1e-6)
        scores = [hit.score for hit in there]
        assert [hit.score for hit in here] == pytest.approx(scores, abs=1e-4)  # by recency


async def test_an_empty_scope_answers_nothing_without_confidence(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db") as client:
        found = await client.scope("eve").recall("What is my name?")
        assert (found.hits, found.confidence, found.degraded) == ((), None, False)


async def test_one_memory_is_found_and_not_for_anything_else(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db") as client:
        eve = client.scope("eve")
        await eve.remember("My name is Eve.")
        found = await eve.recall("What is my name?")
        assert texts_of(found) == ["My name is Eve."]
        assert found.confidence is not None
        assert found.confidence > 0.9
        other = await eve.recall("Convert 40 kilometers to miles")
        assert other.hits == ()
        reason = other.cut[0].reason
        assert reason.startswith("the confidence of 0.")
        assert texts_of(await eve.recall("Convert 40 kilometers", min_confidence=0)) != []


async def test_a_scope_of_questions_answers_nothing(tmp_path: Path) -> None:
    asked = ["What is my dog's name?", "Where did I park the car?", "How old am I?"]
    async with aio.open(tmp_path / "m.db") as client:
        eve = client.scope("eve")
        for text in asked:
            await eve.remember(text)
        found = await eve.recall("Where is the car?")
        assert (found.hits, found.confidence) == ((), 0.0)
        found = await eve.recall("Where is the car?", min_confidence=0)
        assert texts_of(found)[0] == "Where did I park the car?"


@pytest.mark.parametrize("text", TEXTS)
async def test_a_question_that_repeats_a_text_finds_it_with_confidence(
    tmp_path: Path, text: str
) -> None:
    async with aio.open(tmp_path / "m.db") as client:
        ana = client.scope("ana")
        for each in TEXTS:
            await ana.remember(each)
        found = await ana.recall(text)
        assert texts_of(found)[0] == text
        assert found.confidence is not None
        assert found.confidence > 0.8


async def test_a_large_scope_is_searched_in_every_language(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few English memories are compared by the second model there, and all others."""
    async with aio.open(place, verifier=False) as client:
        ana = client.scope("ana")
        for text in (*TEXTS, "Ich habe eine Katze namens Mimi.", "The pool opens at nine."):
            await ana.remember(text)
        english = await ana.recall("What is my dog afraid of?", min_confidence=0)
        monkeypatch.setattr("memorist.retrieve.features.WHOLE", 4)
        monkeypatch.setattr("memorist.retrieve.features.LIKELY", 2)
        again = await ana.recall("What is my dog afraid of?", min_confidence=0)
        assert texts_of(again)[0] == DOG
        assert again.hits[0].score == pytest.approx(english.hits[0].score, abs=1e-6)
        scores = [hit.score for hit in again.hits[:3]]
        assert scores == pytest.approx([2.333, 0.685, 0.414], abs=0.002)
        assert texts_of(await ana.recall("What is my cat called?"))[0].endswith("Mimi.")
        assert texts_of(await ana.recall(HUND))[0] == DOG
