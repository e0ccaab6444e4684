"""The packaged verifier reads two texts together: a question and an answer, a statement and its source."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memorist.embedders.local import MINILM
from memorist.errors import ProviderFailed
from memorist.rerankers import Verifier


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    model = Verifier(MINILM)
    yield model
    asyncio.run(model.close())


@pytest.mark.parametrize(("question", "answers", "near_miss"), [
    ("What's Marta's last name?", "user: her full name is Marta Lindqvist",
     "user: Marta from billing left early today"),
    ("How old is my cat?", "user: the cat is 11 and thinks she is the boss",
     "user: the cat woke me up at five again"),
    ("What does the translator charge?", "user: the translator takes 12 cents a word",
     "user: we pay a person for the French translation"),
    ("What did Carla make in her class?", "Carla: I made a lopsided bowl in the pottery class",
     "Tom: I made a lopsided bowl in the pottery class"),
    ("When does my train leave?", "user: got the ticket, my train leaves at 7:42",
     "user: should I take the train or drive?"),
])  # fmt: skip
async def test_what_has_the_answer_is_told_from_what_is_only_about_it(
    verifier: Verifier, question: str, answers: str, near_miss: str
) -> None:
    verdicts = await verifier.read_pairs([(question, answers), (question, near_miss)])
    right, wrong = verdicts.answers.tolist()
    assert right > 0.0
    assert wrong < -1.4


@pytest.mark.parametrize(("source", "supported", "twisted"), [
    ("The user: Started at the hospital pharmacy two weeks ago, night shifts until June.",
     "The user works night shifts until June.", "The user works at a hotel."),
    ("Ana: My sister Ida sold her car, she cycles now.", "Ida no longer has a car.", "Ida bought a car."),
    ("The user: might get a dog when the kids are older", "The user is considering getting a dog.",
     "The user has a dog."),
])  # fmt: skip
async def test_what_a_source_supports_is_more_likely_than_what_it_does_not(
    verifier: Verifier, source: str, supported: str, twisted: str
) -> None:
    verdicts = await verifier.read_pairs([(supported, source), (twisted, source)])
    right, wrong = verdicts.supports.tolist()
    assert right > wrong + 0.4


async def test_a_text_has_the_same_score_alone_and_among_others(verifier: Verifier) -> None:
    texts = [f"user: the locker {n} is in room {n * 7}. " * (1 + n % 4) for n in range(30)]
    pairs = [("where is locker 3?", text) for text in texts]
    together = await verifier.read_pairs(pairs)
    for place, pair in enumerate(pairs):
        alone = await verifier.read_pairs([pair])
        for odds, whole in zip(alone, together, strict=True):
            assert odds[0] == pytest.approx(whole[place], abs=0.011)


def test_the_word_table_is_where_the_verifier_looks_for_it() -> None:
    content = (MINILM / "model.onnx").read_bytes()
    table = content[14_067 : 14_067 + 30_522 * 384 * 2]
    digest = "8c1ee80a9ea4f65aa385ba30112010068af3d209bebc6e149d3d4589c2cd0a5a"
    assert hashlib.sha256(table).hexdigest() == digest


async def test_no_pairs_have_no_verdicts(verifier: Verifier) -> None:
    assert all(odds.shape == (0,) for odds in await verifier.read_pairs([]))


async def test_texts_of_any_length_and_script_are_read(verifier: Verifier) -> None:
    texts = ["", "x" * 100_000, "word " * 50_000, "東京", "\udc80", "\0"]
    verdicts = await verifier.read_pairs([("what? " * 5_000, text) for text in texts])
    assert all(np.isfinite(odds).all() for odds in verdicts)


async def test_a_missing_model_is_a_provider_that_failed(tmp_path: Path) -> None:
    verifier = Verifier(MINILM, folder=tmp_path / "nothing")
    with pytest.raises(ProviderFailed, match="verifier did not load from"):
        await verifier.read_pairs([("tea?", "tea")])
    await verifier.close()


async def test_a_closed_verifier_says_so_and_can_be_closed_again() -> None:
    verifier = Verifier(MINILM)
    await verifier.close()
    await verifier.close()
    with pytest.raises(ProviderFailed, match="verifier is closed"):
        await verifier.read_pairs([("tea?", "tea")])
