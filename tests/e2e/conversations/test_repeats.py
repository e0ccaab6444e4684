"""What a person says again in other words, in another session: one fact with every turn as evidence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist import aio
from memorist.client import Client
from memorist.scoped import ScopedClient
from memorist.types import Filter, Memory

FACTS = Filter(tags=("extracted",))


@pytest.fixture
async def memory(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(place, state_dir=tmp_path, run_jobs=False) as opened:
        yield opened


@pytest.fixture
def ana(memory: Client) -> ScopedClient:
    return memory.scope("ana")


async def talk(memory: Client, *texts: str, at_once: bool = False, name: str = "Ana") -> list[str]:
    """Tell each text in a session of its own, and extract the facts; return the ids of the turns."""
    ids = []
    for number, text in enumerate(texts):
        month = f"2026-{number + 1:02}"
        turn = {"content": text, "id": f"m{number}", "name": name, "at": f"{month}-03T10:00:00Z"}
        receipt = await memory.scope("ana", session=month).remember([turn])
        ids.append(receipt.ids[0])
        if not at_once:
            await memory.run_jobs(only=["extract"])
    await memory.run_jobs(only=["extract"])
    return ids


async def facts(ana: ScopedClient) -> list[Memory]:
    return list(await ana.list(FACTS, limit=100))


@pytest.mark.spec("THE-32", "THE-33", "THE-36", "THE-37")
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "in one task"])
@pytest.mark.parametrize(
    "texts",
    [
        (
            "I'm allergic to walnuts, they make my throat itch",
            "brownies, but no walnuts, I'm allergic",
        ),
        ("my daughter is called Tove", "Tove, my daughter, wants a drum kit"),
        ("we live in Malmö, by the canal", "send it to Malmö please, that's where we live"),
        ("terrified of spiders here", "the cabin is off. spiders! I'm terrified of them"),
        ("ich bin Vegetarierin", "für mich ohne Speck, ich bin Vegetarierin"),
        (
            "my bike is a red Gazelle",
            "someone scratched my bike, the red Gazelle",
            "the red Gazelle is my bike, as you know",
        ),
    ],
    ids=lambda texts: texts[0],
)
async def test_said_again_in_other_words_is_one_fact(
    memory: Client, ana: ScopedClient, texts: tuple[str, ...], at_once: bool
) -> None:
    turns = await talk(memory, *texts, at_once=at_once)
    (fact,) = await facts(ana)
    assert fact.evidence_ids == tuple(turns)
    assert fact.repeat_count == len(texts) - 1
    assert fact.importance > fact.base_importance
    said = [each for each in await ana.list(limit=100) if each.id in turns]
    assert sorted(each.text for each in said) == sorted(texts), "the turns stay as they are"


@pytest.mark.parametrize(
    "texts",
    [
        ("my dog Biko is a whippet", "my dog Biko is afraid of thunder"),
        ("I have 3 sisters", "I have 4 sisters"),
        ("I like oysters", "I don't like oysters"),
        ("my brother Jonas lives in Ghent", "my brother Jonas sent chocolate from Ghent"),
        ("thanks Mia, that means a lot to me", "thanks Mia, your support means a lot to me"),
        ("I swim on Mondays", "on Monday the pool was closed"),
    ],
    ids=lambda texts: texts[0],
)
async def test_similar_words_about_something_else_are_not_joined(
    memory: Client, ana: ScopedClient, texts: tuple[str, ...]
) -> None:
    await talk(memory, *texts)
    assert [fact.text for fact in await facts(ana) if len(fact.evidence_ids) > 1] == []


@pytest.mark.parametrize(
    "texts",
    [
        ("私は大阪に住んでいます。", "妹は東京に住んでいます。"),
        ("私は大阪に住んでいます。", "私は京都に住んでいます。"),
        ("Mieszkam w Warszawie od roku", "Mój brat mieszka w Krakowie od roku"),
        ("Moja siostra mieszka w Łodzi", "Moja siostra mieszka w Gdyni"),
        ("मैं दिल्ली में रहता हूँ", "मेरा भाई मुंबई में रहता है"),
        ("Ik woon in Gent bij mijn zus", "Mijn broer woont in Gent bij mijn zus"),
        ("Моя сестра живёт в Омске", "Моя сестра больше не живёт в Омске"),
        ("我住在上海，在银行工作", "我弟弟住在上海，在银行工作"),
        ("أختي تعيش في القاهرة", "أختي تعيش في دبي"),
    ],
    ids=lambda texts: texts[0],
)
async def test_in_other_languages_another_person_or_value_is_not_a_repetition(
    memory: Client, ana: ScopedClient, texts: tuple[str, ...]
) -> None:
    await talk(memory, *texts)
    assert [fact.text for fact in await facts(ana) if len(fact.evidence_ids) > 1] == []


@pytest.mark.parametrize(
    "texts",
    [
        ("私は大阪に住んでいます。", "こんにちは！私は大阪に住んでいます。"),
        ("Moja siostra mieszka w Łodzi.", "Dzień dobry! moja siostra mieszka w Łodzi"),
    ],
    ids=lambda texts: texts[0],
)
async def test_in_other_languages_the_same_sentence_is_a_repetition(
    memory: Client, ana: ScopedClient, texts: tuple[str, ...]
) -> None:
    turns = await talk(memory, *texts)
    (fact,) = await facts(ana)
    assert fact.evidence_ids == tuple(turns)


async def test_what_two_persons_say_are_two_facts(memory: Client, ana: ScopedClient) -> None:
    chat = memory.scope("ana", session="june")
    await chat.remember([{"content": "I'm allergic to walnuts", "id": "a", "name": "Ana"}])
    chat = memory.scope("ana", session="july")
    await chat.remember([{"content": "no walnuts, I'm allergic", "id": "b", "name": "Bo"}])
    await memory.run_jobs(only=["extract"])
    assert [fact.text for fact in await facts(ana) if fact.repeat_count] == []


async def test_extracting_twice_counts_a_repetition_once(memory: Client, ana: ScopedClient) -> None:
    turns = await talk(memory, "my daughter is called Tove", "Tove, my daughter, wants a drum kit")
    await ana.extract(turns[1])
    (fact,) = await facts(ana)
    assert (fact.repeat_count, fact.evidence_ids) == (1, tuple(turns))


async def test_forgetting_one_of_the_turns_keeps_the_fact_with_the_other(
    memory: Client, ana: ScopedClient
) -> None:
    first, second = await talk(
        memory, "my daughter is called Tove", "Tove, my daughter, wants a drum kit"
    )
    await ana.forget(second)
    (fact,) = await facts(ana)
    assert fact.evidence_ids == (first,)
