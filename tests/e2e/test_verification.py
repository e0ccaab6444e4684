"""Recall verifies the best memories of an uncertain answer: what only looks like an answer is left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist import aio
from memorist.embedders.local import MINILM
from memorist.rerankers import Verifier
from memorist.scoped import ScopedClient

SAID = [
    "hi! my grandson Callum is getting married in Halifax on the 22nd of August",
    "I have gone back to the bowling club, Tuesdays and Fridays at two",
    "Dr Sinclair has put the ramipril up to five milligrams",
    "penicillin brings me out in hives, since 1971",
    "Fiona has booked the flights, out on the 18th of August and home on the 1st",
    "I am building a model of the MV Hebridean Star, one to seventy-five",
    "my knees are not up to forking the garden, the right one was replaced in 2019",
    "I sign letters to officials with Yours faithfully, never Kind regards",
    "the brown bin was not collected again, I shall write to the council",
    "a fellow at the model club gave me a spare set of planks",
    "my hearing aids are to be fitted on the sixth of May at the Victoria",
    "The kettle is new and whistles in B flat.",
]


async def fill(client: aio.Client) -> ScopedClient:
    scope = client.scope("ewan")
    for number, text in enumerate(SAID):
        message = {"role": "user", "content": text, "session": f"s{number}", "id": f"m{number}"}
        await scope.remember([message])
    return scope


@pytest.fixture
async def ewan(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, extract="off") as client:
        yield await fill(client)


@pytest.mark.parametrize(("question", "answer"), [
    ("Which antibiotic disagrees with me?", 3),
    ("What dose of ramipril am I on?", 2),
    ("When is Callum's wedding?", 0),
    ("Where are the hearing aids fitted?", 10),
])  # fmt: skip
async def test_what_was_said_is_found(ewan: ScopedClient, question: str, answer: int) -> None:
    found = await ewan.recall(question)
    assert found.hits[0].memory.text == SAID[answer]


@pytest.mark.parametrize(
    "question",
    [
        "What is the name of Callum's bride?",
        "What was the fellow at the model club called?",
        "How much did the flights cost?",
    ],
)
async def test_a_detail_that_was_never_said_gets_less_confidence(
    ewan: ScopedClient, tmp_path: Path, question: str
) -> None:
    verified = await ewan.recall(question, min_confidence=0)
    assert verified.legs["verifier"] == "ok"
    async with aio.open(
        tmp_path / "other.db", state_dir=tmp_path, extract="off", verifier=False
    ) as client:
        usual = await (await fill(client)).recall(question, min_confidence=0)
    assert "verifier" not in usual.legs
    assert verified.confidence is not None
    assert usual.confidence is not None
    assert verified.confidence < 0.7 * usual.confidence


async def test_the_verdict_is_a_part_of_the_score(ewan: ScopedClient) -> None:
    found = await ewan.recall("Which pills disagree with me?", min_confidence=0)
    assert found.legs["verifier"] == "ok"
    for hit in found:
        assert sum(hit.parts.values()) == pytest.approx(hit.score)
        assert 0 <= hit.parts["verdict"] <= 0.8
    assert "verdict" in found.explain()


async def test_without_the_verifier_recall_goes_on_and_says_so(
    ewan: ScopedClient, tmp_path: Path
) -> None:
    ewan.ctx.verifier = Verifier(MINILM, folder=tmp_path / "removed")
    found = await ewan.recall("What dose of ramipril am I on?")
    assert found.hits[0].memory.text == SAID[2]
    assert "verifier did not load" in found.legs["verifier"]


async def test_a_question_in_another_language_is_not_verified(ewan: ScopedClient) -> None:
    found = await ewan.recall("Wann ist die Hochzeit von meinem Enkel Callum?", min_confidence=0)
    assert "verifier" not in found.legs
    assert found.hits[0].memory.text == SAID[0]


async def test_a_memory_in_another_language_is_not_rejected_for_it(ewan: ScopedClient) -> None:
    german = "Meine Schwester Greta wohnt seit zwei Jahren in Rostock."
    await ewan.remember([{"role": "user", "content": german, "session": "g"}])
    found = await ewan.recall("Where does my sister Greta live?")
    assert found.hits[0].memory.text == german
    assert "verifier" not in found.legs


async def test_the_answer_in_a_long_note_is_read_where_it_stands(ewan: ScopedClient) -> None:
    filler = "The committee met again and nothing much was decided about the hall. "
    note = 4 * filler + "The plumber for the hall is called Agnes Rae. " + 4 * filler
    await ewan.remember(note)
    found = await ewan.recall("What is the plumber called?")
    assert found.hits[0].memory.text == note.strip()
    assert found.hits[0].parts["verdict"] > 0.4


async def test_why_not_shows_the_score_with_the_verdict(ewan: ScopedClient) -> None:
    question = "What is the name of Callum's bride?"
    cut = (await ewan.recall(question)).cut[0]
    why = await ewan.why_not(question, cut.id)
    assert why.score == pytest.approx(cut.score)
    assert sum(why.parts.values()) == pytest.approx(why.score)


@pytest.mark.parametrize("count", [1, 2])
async def test_one_or_two_memories_are_verified_too(tmp_path: Path, count: int) -> None:
    async with aio.open(tmp_path / "few.db", state_dir=tmp_path, extract="off") as client:
        scope = client.scope("ewan")
        for text in ["I have two cats.", "My sister is called Moira."][:count]:
            await scope.remember(text)
        found = await scope.recall("What is my sister called?", min_confidence=0)
        assert found.hits[0].memory.text.startswith("My sister" if count == 2 else "I have")
        usual = await scope.recall("How many cats do I have?")
        assert usual.hits[0].memory.text == "I have two cats."


REPLY = "the fourteenth, at seven in the morning"
WHEN = "When does my wife have surgery on her knee?"


async def judge_reply(scope: ScopedClient) -> float:
    """Return the verdict on the reply to the question about the operation."""
    found = await scope.recall(WHEN, min_confidence=0)
    assert found.legs["verifier"] == "ok"
    [verdict] = [hit.parts["verdict"] for hit in found if hit.memory.text == REPLY]
    return verdict


async def test_a_short_reply_is_read_together_with_the_turn_before_it(ewan: ScopedClient) -> None:
    dialog = [("assistant", "When is the operation on your wife's knee?"), ("user", REPLY)]
    messages = [{"role": who, "content": text, "session": "k"} for who, text in dialog]
    [asked, _] = (await ewan.remember(messages)).ids
    assert await judge_reply(ewan) > 0.5
    await ewan.forget(asked)
    assert await judge_reply(ewan) < 0.4
