"""Facts of several sessions that say the same become one, with the turns of all of them as evidence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import Clock
from llm_server import Request, Server
from memorist import aio
from memorist.client import Client
from memorist.scoped import ScopedClient
from memorist.types import Filter, Memory

STAMPS = ("I collect old stamps.", "I own a collection of old stamps.")
TEA = ("I prefer tea to coffee.", "I like tea more than coffee.")
BOAT, RIVER = "I own a boat.", "I live by the river."
HOUSE, TIN = "I own a house on the river.", "I own a blue coffee tin."
DOCTOR = "I am a doctor at a small hospital."
CARES = "I look after sick people in a hospital downtown."  # cosine of the facts: 0.68
PLACES = (
    "by the door",
    "on the floor",
    "under the lamp",
    "near the wall",
    "in the corner",
    "behind the chair",
)
VERBS = ("reading", "drawing", "writing", "sewing", "singing")
DAY = timedelta(days=1)


class Judge:
    """What the language model answers about pairs of facts."""

    def __init__(self, *, same: bool) -> None:
        self.same = same

    def __call__(self, request: Request) -> dict[str, Any]:
        given = json.loads(request.user)
        if isinstance(given, list):
            pairs = [{"pair": each["pair"], "same_fact": self.same} for each in given]
            return {"verdicts": pairs}
        return {"text": ""} if "same_fact" not in request.system else {"same_fact": self.same}


@asynccontextmanager
async def opened(
    place: str | Path, folder: Path, clock: Clock, server: Server | None = None, **given: Any
) -> AsyncIterator[Client]:
    options: dict[str, Any] = {"extract": "rules", "policy": "supervisor", "run_jobs": False}
    if server is not None:
        options |= {"llm": "openai:m", "llm_url": f"{server.url}/v1", "llm_key": "k"}
        server.answer = Judge(same=False)
    async with aio.open(place, state_dir=folder, **{**options, **given}) as memory:
        memory.ctx.clock = clock
        yield memory


async def talk(memory: Client, *texts: str, user: str = "ana", space: str = "default") -> list[str]:
    """Tell each text in a session of its own, and have its facts extracted; return the turns."""
    ids = []
    for number, text in enumerate(texts):
        chat = memory.scope(user, space, session=f"chat {number}")
        reply = {"role": "assistant", "content": "I see, thank you for telling me."}
        ids.append((await chat.remember([{"role": "user", "content": text}, reply])).ids[0])
    await memory.run_jobs(only=["extract"])
    return ids


async def consolidate(memory: Client) -> int:
    """Run the job if it is due; return how many pairs were joined."""
    return (await memory.run_jobs(only=["consolidate"]))["consolidate"].changed


async def facts(ana: ScopedClient) -> list[Memory]:
    return [memory for memory in await ana.list(limit=200) if memory.evidence_ids]


def questions(server: Server) -> list[list[dict[str, Any]]]:
    """Return the questions about several pairs."""
    given = [json.loads(request.user) for request in server.requests]
    return [each for each in given if isinstance(each, list)]


async def asked(ana: ScopedClient, server: Server) -> list[set[str]]:
    """Return the pairs that the model was asked about, by the turns that the facts come from."""
    states = Filter(states=("active", "superseded"))
    memories = {memory.id: memory for memory in await ana.list(states, limit=500)}
    said = {}
    for memory in memories.values():
        for id in memory.evidence_ids:
            said[memory.text] = memories[id].text
    return [{said[pair["a"]], said[pair["b"]]} for some in questions(server) for pair in some]


@pytest.mark.spec("IMP-40", "IMP-43")
@pytest.mark.parametrize(
    ("policy", "stored", "joined"),
    [("default", 3, 0), ("supervisor", 5, 2)],  # by default, repetitions are seen by extraction
)
async def test_rules_join_facts_of_several_sessions_in_nearly_the_same_words(
    place: str, tmp_path: Path, clock: Clock, policy: str, stored: int, joined: int
) -> None:
    async with opened(place, tmp_path, clock, policy=policy) as memory:
        ana = memory.scope("ana")
        turns = await talk(memory, *STAMPS, *TEA, BOAT)
        assert len(await facts(ana)) == stored
        assert await consolidate(memory) == joined
        left = await facts(ana)
        assert {frozenset(fact.evidence_ids) & set(turns) for fact in left} == {
            frozenset(turns[:2]),
            frozenset(turns[2:4]),
            frozenset(turns[4:]),
        }
        assert sorted(fact.repeat_count for fact in left) == [0, 1, 1]
        said = [memory for memory in await ana.list(limit=100) if memory.id in turns]
        assert len(said) == 5, "the turns stay"


@pytest.mark.spec("IMP-40")
@pytest.mark.parametrize(("policy", "is_new"), [("default", False), ("supervisor", True)])
async def test_the_model_joins_facts_of_two_sessions_as_the_policy_says(
    place: str, tmp_path: Path, clock: Clock, llm_server: Server, policy: str, is_new: bool
) -> None:
    async with opened(place, tmp_path, clock, llm_server, policy=policy) as memory:
        llm_server.answer = Judge(same=True)
        ana = memory.scope("ana")
        turns = await talk(memory, DOCTOR, CARES)
        old = {fact.id for fact in await facts(ana)}
        assert len(old) == 2
        assert await consolidate(memory) == 1
        (left,) = await facts(ana)
        assert (left.id not in old) is is_new
        assert left.repeat_count == 1
        assert set(turns) <= set(left.evidence_ids)
        merges = [entry for entry in await ana.history() if entry.memory_id in {left.id, *old}]
        actors = [entry.actor for entry in merges if entry.event == "MERGE"]
        assert actors == ["worker"] * (2 if is_new else 1)


@pytest.mark.spec("IMP-33", "IMP-41")
async def test_it_runs_once_a_day_and_asks_about_a_pair_again_after_two_weeks(
    place: str, tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    async with opened(place, tmp_path, clock, llm_server) as memory:
        ana = memory.scope("ana")
        await talk(memory, DOCTOR, CARES)
        seen = []
        for step in (timedelta(0), timedelta(hours=1), DAY, 12 * DAY, DAY):
            clock.now += step
            done = (await memory.run_jobs(only=["consolidate"]))["consolidate"]
            seen.append((done.runs, len(await asked(ana, llm_server))))
        assert seen == [(1, 1), (0, 1), (1, 1), (1, 1), (1, 2)]
        assert (await asked(ana, llm_server))[0] == {DOCTOR, CARES}


def say_at_places(*verbs: str) -> list[str]:
    return [f"I love {verb} {place}." for verb in verbs for place in PLACES]


@pytest.mark.spec("IMP-34", "IMP-39")
@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({}, [10] * 5),
        ({"consolidate_pairs": 12}, [6, 6]),
        ({"consolidate_pairs": 7}, [7]),
    ],
    ids=["50", "12", "7"],
)
async def test_a_person_has_fifty_pairs_a_day_in_questions_of_five_to_ten(
    tmp_path: Path,
    clock: Clock,
    llm_server: Server,
    settings: dict[str, int],
    sizes: list[int],
) -> None:
    given = {"embedder": "hashing", **settings}
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server, **given) as memory:
        await talk(memory, *say_at_places(*VERBS))
        assert len(await facts(memory.scope("ana"))) == 30
        await consolidate(memory)
        assert list(map(len, questions(llm_server))) == sizes
        clock.now += timedelta(hours=1)
        await consolidate(memory)
        assert list(map(len, questions(llm_server))) == sizes, "that was all for the day"


@pytest.mark.spec("IMP-34")
async def test_the_pairs_of_a_day_are_counted_over_all_spaces_of_a_person(
    place: str, tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    given: dict[str, Any] = {"embedder": "hashing", "consolidate_pairs": 7}
    async with opened(place, tmp_path, clock, llm_server, **given) as memory:
        for user, space in (("ana", "home"), ("ana", "work"), ("ben", "home")):
            await talk(memory, *say_at_places(*VERBS[:2]), user=user, space=space)
        await consolidate(memory)
        assert sum(map(len, questions(llm_server))) == 14, "seven of ana, seven of ben"


@pytest.mark.spec("IMP-35")
@pytest.mark.parametrize(
    ("hours", "importance", "count"), [(71, 0.2, 1), (73, 0.2, 0), (73, 0.4, 0), (73, 0.41, 1)]
)
async def test_facts_are_compared_for_three_days_or_if_they_are_important(
    tmp_path: Path, clock: Clock, llm_server: Server, hours: int, importance: float, count: int
) -> None:
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server) as memory:
        ana = memory.scope("ana")
        await talk(memory, DOCTOR, CARES)
        for fact in await facts(ana):
            await ana.edit(fact.id, importance=importance)
        clock.now += timedelta(hours=hours)
        await consolidate(memory)
        assert await asked(ana, llm_server) == [{DOCTOR, CARES}] * count


@pytest.mark.spec("IMP-35")
async def test_a_fact_that_is_recalled_most_is_compared_though_it_is_old(
    tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server) as memory:
        ana = memory.scope("ana")
        await talk(memory, DOCTOR, CARES, BOAT, TIN, TEA[0], STAMPS[0])
        for fact in await facts(ana):
            await ana.edit(fact.id, importance=0.2)
        clock.now += timedelta(days=4)
        await consolidate(memory)
        assert await asked(ana, llm_server) == []
        (doctor,) = [fact for fact in await facts(ana) if "is a doctor" in fact.text]
        for _ in range(3):
            await ana.recall("doctor at a hospital", where=Filter(ids=(doctor.id,)))
        await memory.ctx.access_log.flush()
        clock.now += DAY
        await consolidate(memory)
        assert await asked(ana, llm_server) == [{DOCTOR, CARES}]


@pytest.mark.spec("IMP-37")
@pytest.mark.parametrize(("days", "count"), [(89, 1), (91, 0)])
async def test_a_fact_is_compared_with_those_of_the_last_ninety_days(
    tmp_path: Path, clock: Clock, llm_server: Server, days: int, count: int
) -> None:
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server) as memory:
        ana = memory.scope("ana")
        await talk(memory, DOCTOR)
        clock.now += timedelta(days=days)
        await talk(memory, BOAT, CARES)
        await consolidate(memory)
        assert await asked(ana, llm_server) == [{DOCTOR, CARES}] * count


@pytest.mark.spec("IMP-36", "IMP-38")
async def test_only_facts_that_are_near_and_share_a_word_are_asked_about(
    tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server) as memory:
        ana = memory.scope("ana")
        await talk(memory, BOAT, RIVER, HOUSE, TIN)
        cosines = await measure(memory)
        assert cosines[BOAT, RIVER] > 0.5, "near, but they share no word"
        assert cosines[BOAT, TIN] < 0.45, "they share a word, but are not near"
        assert 0.45 < cosines[BOAT, HOUSE] < 0.7
        await consolidate(memory)
        pairs = await asked(ana, llm_server)
        assert {BOAT, HOUSE} in pairs
        assert {BOAT, RIVER} not in pairs
        assert all(TIN not in pair for pair in pairs)


@pytest.mark.spec("IMP-36")
async def test_facts_above_the_band_are_not_asked_about(
    tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server) as memory:
        await talk(memory, BOAT, RIVER, HOUSE)
        await consolidate(memory)
        assert await asked(memory.scope("ana"), llm_server) == [{BOAT, HOUSE}]


async def measure(memory: Client) -> dict[tuple[str, str], float]:
    """Return the cosines of the facts, by the turns that they come from."""
    ana = memory.scope("ana")
    turns = {each.id: each.text for each in await ana.list(limit=100)}
    by_turn = {turns[fact.evidence_ids[0]]: fact.text for fact in await facts(ana)}
    assert memory.ctx.embedder is not None
    vectors = await memory.ctx.embedder.encode_batch(list(by_turn.values()))
    return {
        (a, b): float(vectors[i] @ vectors[j])
        for i, a in enumerate(by_turn)
        for j, b in enumerate(by_turn)
    }


@pytest.mark.spec("IMP-42")
@pytest.mark.parametrize("budget", ["llm_daily_tokens_per_tenant", "llm_daily_tokens_per_user"])
async def test_without_tokens_nothing_is_asked_and_rules_still_join(
    tmp_path: Path, clock: Clock, llm_server: Server, budget: str
) -> None:
    given = {budget: 1}
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server, **given) as memory:
        ana = memory.scope("ana")
        await talk(memory, *STAMPS, DOCTOR, CARES)
        assert await consolidate(memory) == 1
        assert llm_server.requests == []
        assert len(await facts(ana)) == 3
        events = await ana.events(node="worker", op="classify")
        assert [event.status for event in events].count("skipped") == 1


@pytest.mark.spec("IMP-42")
async def test_the_work_of_a_day_is_bounded_whatever_the_sessions_said(
    tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    given: dict[str, Any] = {"embedder": "hashing", "consolidate_pairs": 10}
    async with opened(tmp_path / "m.db", tmp_path, clock, llm_server, **given) as memory:
        await talk(memory, *say_at_places(*VERBS))
        spent = []
        for _ in range(3):
            del llm_server.requests[:]
            await consolidate(memory)
            spent.append(list(map(len, questions(llm_server))))
            clock.now += DAY + timedelta(seconds=1)
        assert spent == [[10], [10], [10]]
