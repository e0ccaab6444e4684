"""Confidence: weak answers are empty, lists end where the evidence does, and callers can say how sure to be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.errors import EmbedderUnavailable, InvalidInput
from memorist.scoped import ScopedClient
from memorist.types import Recall

TEA = "Ana drinks green tea in the morning."
SERVER = "The build server has 64 cores."
UNRELATED = "Convert 40 kilometers to miles"


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as client:
        scope = client.scope("ana")
        for text in (TEA, SERVER, "I moved to Lisbon in May.", "The kettle is broken."):
            await scope.remember(text)
        yield scope


def texts_of(found: Recall) -> list[str]:
    return [hit.memory.text for hit in found]


async def test_what_scores_far_below_the_best_is_cut(ana: ScopedClient) -> None:
    found = await ana.recall("cores of the build server")
    assert texts_of(found) == [SERVER]
    (reason,) = {cut.reason for cut in found.cut}
    assert reason == "it is unlikely to answer the question"


async def test_a_weak_answer_is_empty_and_says_why(ana: ScopedClient) -> None:
    found = await ana.recall(UNRELATED)
    assert (found.hits, found.text, found.tokens) == ((), "", 0)
    assert found.confidence is not None
    assert found.confidence < 0.2
    reason = found.cut[0].reason
    assert reason == f"the confidence of {found.confidence:.2f} is below the required 0.21"
    assert f"confidence {found.confidence:.2f}" in found.explain()


async def test_a_question_about_a_known_person_is_not_general_knowledge(ana: ScopedClient) -> None:
    pork = "Give me a quick dinner for two, as always. My boyfriend Jonas doesn't eat pork."
    notes = [{"content": f"Note {n}: the {n * 7919} goes to shelf {n}."} for n in range(40)]
    await ana.remember([{"content": pork}, *notes])
    assert texts_of(await ana.recall("Who is Jonas?"))[0] == pork
    assert texts_of(await ana.recall("Who is Napoleon?")) == []


@pytest.mark.parametrize("said", [
    "thanks!", "Hello", "ok, go on", "Sounds good, thank you so much", "Can you rephrase that?", "danke dir", "👍",
    "Hi! How are you feeling today?", "Hallo, wie geht es dir?", "Salut, ça va bien ?",
    "Hola, ¿qué tal estás hoy?", "Oi, tudo bem?", "Ciao, come stai oggi?",
])  # fmt: skip
async def test_a_message_that_asks_nothing_brings_nothing(ana: ScopedClient, said: str) -> None:
    found = await ana.recall(said)
    assert (found.hits, found.confidence) == ((), 0.0)


@pytest.mark.parametrize("asked", [
    'translate "I moved to Lisbon" into Thai', "how do you spell kettle?", "give me a regex for green",
    "write a haiku about tea", "Can you give me another synonym for broken?",
])  # fmt: skip
async def test_a_request_that_is_the_same_for_everyone_brings_nothing(
    ana: ScopedClient, asked: str
) -> None:
    found = await ana.recall(asked)
    assert (found.hits, found.confidence) == ((), 0.0)


@pytest.mark.parametrize(
    "asked", ["Write a poem about my move to Lisbon", "what does my build server mean for cores?"]
)
async def test_a_request_about_the_person_needs_the_memory(ana: ScopedClient, asked: str) -> None:
    found = await ana.recall(asked)
    assert found.confidence is not None
    assert found.confidence > 0.1


@pytest.mark.parametrize("asked", ["Where did I move?", "What do you know about the kettle?"])
async def test_a_short_question_is_answered(ana: ScopedClient, asked: str) -> None:
    assert (await ana.recall(asked)).hits


async def test_at_zero_everything_that_matches_is_returned(ana: ScopedClient) -> None:
    for question in (UNRELATED, "cores of the build server"):
        usual = await ana.recall(question)
        whole = await ana.recall(question, min_confidence=0)
        assert len(whole) > len(usual)
        assert texts_of(whole)[: len(usual)] == texts_of(usual)
        assert whole.confidence == usual.confidence
        assert whole.cut == ()


async def test_a_caller_may_ask_for_more_confidence(ana: ScopedClient) -> None:
    question = "What does Ana drink?"
    found = await ana.recall(question)
    assert texts_of(found)[0] == TEA
    assert found.confidence is not None
    assert texts_of(await ana.recall(question, min_confidence=found.confidence - 0.01))[0] == TEA
    assert (await ana.recall(question, min_confidence=1)).hits == ()


@pytest.mark.parametrize("value", [-0.1, 1.1, "high", True, float("nan")])
async def test_a_confidence_that_is_no_share_is_refused(ana: ScopedClient, value: Any) -> None:
    with pytest.raises(InvalidInput, match="min_confidence must be a number from 0 to 1"):
        await ana.recall("tea", min_confidence=value)


async def test_hits_have_a_confidence_of_their_own(ana: ScopedClient) -> None:
    found = await ana.recall("cores of the build server", min_confidence=0)
    sure = [hit.confidence or 0.0 for hit in found]
    assert sure[0] > 0.75
    assert all(0 < each < 0.1 for each in sure[1:])


async def test_other_profiles_have_none(ana: ScopedClient) -> None:
    found = await ana.recall("green tea", profile="milton.hybrid")
    assert found.confidence is None
    assert [hit.confidence for hit in found] == [None] * len(found)


async def test_answers_by_words_alone_are_not_judged(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, embedder="none") as client:
        await client.scope("ana").remember(TEA)
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as client:
        found = await client.scope("ana").recall("green tea")  # it has no vector yet
        assert texts_of(found) == [TEA]
        assert found.confidence is None
        assert found.hits[0].confidence is None


async def stop_answering(_: Any) -> Any:
    raise EmbedderUnavailable("The model did not answer within 5 s")


@pytest.mark.parametrize("said", ["hello", "Convert 40 kilometers to miles"])
async def test_without_the_model_a_memory_needs_a_word_of_the_question(
    ana: ScopedClient, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    turns = ["We say hello in Portuguese", "I bought a blue bike", "My cat is called Miso"]
    await ana.remember([{"role": "user", "session": "s", "content": turn} for turn in turns])
    with monkeypatch.context() as patch:
        patch.setattr(ana.ctx.embedder, "encode_batch", stop_answering)
        words = [hit.text for hit in (await ana.context(said)).lines]
        assert len(words) <= 1
        found = await ana.recall("hello")
        assert texts_of(found) == [turns[0]]
        assert {cut.reason for cut in found.cut} == {
            "without vectors, it has no word of the question"
        }
        everything = await ana.recall("hello", min_confidence=0)
        assert len(everything) == 2
        await ana.remember("The ferry leaves at noon.")  # it is stored without a vector
    found = await ana.recall("Convert 40 kilometers to miles")
    assert texts_of(found) == []
    assert found.confidence is not None


async def test_a_memory_that_waits_for_its_vector_is_found_by_its_words(
    ana: ScopedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = [f"Item {number}-2 costs {number * 3} euros." for number in range(600, 650)]
    wanted = "Item 650-2 costs 1950 euros."
    await ana.remember([{"content": text} for text in prices])
    with monkeypatch.context() as patch:
        patch.setattr(ana.ctx.embedder, "encode_batch", stop_answering)
        await ana.remember(wanted)
    found = await ana.recall("Item 650-2 costs")
    first = found.hits[0]
    assert first.memory.text == wanted
    assert first.memory.needs_embedding
    assert first.parts["unembedded"] == pytest.approx(first.parts["sparse"] * 1.5 / 0.7)
    assert "semantic" not in first.parts
    assert sum(first.parts.values()) == pytest.approx(first.score)
    assert "until then, their words count again (`unembedded`)" in found.explain()


async def test_a_memory_that_was_cut_is_explained(ana: ScopedClient) -> None:
    for question in (UNRELATED, "cores of the build server"):
        cut = (await ana.recall(question)).cut[0]
        why = await ana.why_not(question, cut.id)
        assert (why.returned, why.reason) == (False, cut.reason)
        assert why.score == pytest.approx(cut.score)


@pytest.mark.parametrize("question", ["Where is my key?", "where did I leave the key"])
async def test_a_question_asked_before_is_no_answer(tmp_path: Path, question: str) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as client:
        scope = client.scope("ana")
        for text in ("Where is my key?", "When does the shop open?", "Who called?"):
            await scope.remember([{"role": "user", "content": text, "session": "s"}])
        found = await scope.recall(question)
        assert (found.hits, found.confidence) == ((), 0.0)
        answer = "My key is under the mat."
        await scope.remember([{"role": "user", "content": answer, "session": "s"}])
        found = await scope.recall(question)
        assert texts_of(found)[0] == answer
        assert found.confidence is not None
        assert found.confidence > 0.5
