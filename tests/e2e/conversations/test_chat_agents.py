"""Agents in conversations with sessions: when they look again, and who reads how a task is done."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.dialects.supervisor import Supervisor
from memorist.errors import NotAllowed
from memorist.manage.privacy import SENSITIVE
from memorist.scoped import ScopedClient
from memorist.types import Filter

from .conftest import Say

BOAT = (
    "We rowed the boat to the island.",
    "I painted the boat red in May.",
    "The boat needed new oars.",
    "We sold the boat trailer.",
)
TASK = "Deploy the service"
STEPS = ["Build the image", "Push the image", "Restart the service"]
NUMBERED = "1. Build the image 2. Push the image 3. Restart the service"


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


async def count_searches(scope: ScopedClient) -> int:
    """Return how often something was looked up for a context."""
    await scope.ctx.access_log.flush()
    return sum(event.node == "context" for event in await scope.events(op="search", limit=1000))


# Looking again


@pytest.mark.spec("IMP-90")
async def test_an_unsure_supervisor_gets_three_bullets_of_what_other_sessions_said(
    engine: Client, say: Say, ana: ScopedClient
) -> None:
    for day, text in zip(("monday", "tuesday", "thursday", "friday"), BOAT, strict=True):
        await say(day, text, policy="supervisor")
    boss = Supervisor(engine.scope("ana", session="sunday"))
    sure = await boss.recall_if_unsure("Tell me of the boat.", agent="supervisor", confidence=0.5)
    assert (sure, await count_searches(ana)) == ([], 0), "nothing was asked"
    bullets = await boss.recall_if_unsure("the boat", agent="supervisor", confidence=0.49)
    assert [set(bullet) for bullet in bullets] == [{"id", "category", "text"}] * 3
    assert {bullet["text"] for bullet in bullets} < {f"[event] {text}" for text in BOAT}
    assert await count_searches(ana) == 1
    budget = engine.ctx.count_tokens(json.dumps(bullets[0]))
    few = await boss.recall_if_unsure(
        "the boat", agent="supervisor", confidence=0.49, budget_tokens=budget
    )
    assert few == bullets[:1], "the budget holds for the whole answer"


@pytest.mark.spec("IMP-90")
async def test_a_turn_that_refers_to_an_earlier_session_looks_again_unless_it_is_at_hand(
    engine: Client, say: Say, ana: ScopedClient
) -> None:
    await say("monday", *BOAT, policy="supervisor")
    boss = Supervisor(engine.scope("ana", session="friday"))
    asked = "What did we say about the oars of the boat?"
    bullets = await boss.recall_if_unsure(asked, agent="supervisor")
    assert f"[event] {BOAT[2]}" in [bullet["text"] for bullet in bullets]
    assert await boss.recall_if_unsure(asked, agent="supervisor", context=BOAT[2]) == []
    assert await boss.recall_if_unsure("Paint the boat blue.", agent="supervisor") == []
    assert await count_searches(ana) == 1


@pytest.mark.spec("IMP-91")
async def test_fewer_than_one_in_ten_turns_of_a_conversation_look_again(
    engine: Client, ana: ScopedClient
) -> None:
    file = resources.files("memorist.interfaces.cli") / "demo_conversation.json"
    sessions: list[list[dict[str, Any]]] = json.loads(file.read_text("utf-8"))["sessions"]
    sessions[-1].append({"session": "spring", "content": "What did we decide about the vet?"})
    sessions[-1].append({"session": "spring", "content": "As I said, the usual train."})
    turns = [turn for session in sessions for turn in session]
    for turn in turns:
        chat = engine.scope("ana", session=turn["session"])
        await Supervisor(chat).recall_if_unsure(turn["content"], agent="supervisor")
        await chat.remember([turn], policy="supervisor")
    assert (len(turns), len(sessions)) == (30, 4)
    assert await count_searches(ana) == 2, "the two turns that refer to something earlier"


@pytest.mark.spec("IMP-92")
async def test_looking_again_takes_as_many_steps_in_a_long_conversation_as_in_a_short_one(
    tmp_path: Path, statements: list[str]
) -> None:
    options: dict[str, Any] = {"embedder": "hashing", "extract": "off", "state_dir": tmp_path}
    async with aio.open(tmp_path / "m.db", **options) as memory:
        ana = memory.scope("ana")
        boss = Supervisor(memory.scope("ana", session="today"))
        counts = []
        for start, end in ((0, 30), (30, 600)):
            for first in range(start, end, 30):
                numbers = range(first, first + 30)
                turns = [{"content": f"Box {n} stood in room {n * 7}."} for n in numbers]
                await memory.scope("ana", session=f"chat {first}").remember(turns, policy="milton")
            await boss.recall_if_unsure("box 7", agent="supervisor", confidence=0)
            await count_searches(ana)
            del statements[:]
            await boss.recall_if_unsure("box 9 in a room", agent="supervisor", confidence=0)
            counts.append(len(statements))
        assert len(await ana.list(limit=1000)) == 600
    assert counts[0] == counts[1] < 20


# What is known about the person


@pytest.mark.spec("IMP-89")
async def test_no_conversation_changes_a_sensitive_field_without_a_decision(
    place: str, tmp_path: Path, clock: Clock
) -> None:
    options: dict[str, Any] = {"embedder": "hashing", "extract": "rules", "state_dir": tmp_path}
    async with aio.open(place, policy="supervisor", run_jobs=False, **options) as memory:
        memory.ctx.clock = clock
        ana, ids = memory.scope("ana"), []
        for day, text in (
            ("monday", "Please call me Annie, my pronouns are she/her."),
            ("tuesday", "I live in Porto."),
            ("friday", "As I said, I live in Porto, and I speak Portuguese."),
        ):
            chat = memory.scope("ana", session=day)
            ids += (await chat.remember([{"role": "user", "content": text}])).ids
        await memory.run_jobs()
        assert await ana.consent.about() == {}
        proposals = [
            await ana.consent.propose(field, value, evidence=ids)
            for field, value in zip(
                SENSITIVE, ("Annie", "she/her", "Porto", "Portuguese"), strict=True
            )
        ]
        assert await ana.consent.about() == {}, "though three turns support it"
        _, pronouns, city, _ = proposals
        await ana.consent.approve(city.id, actor="ana")
        await ana.consent.deny(pronouns.id, actor="ana")
        assert await ana.consent.about() == {"city": "Porto"}
        await memory.scope("ana", session="sunday").remember(
            [{"role": "user", "content": "I live in Braga now."}]
        )
        await memory.run_jobs()
        assert await ana.consent.about() == {"city": "Porto"}
        trail = [
            (entry.meta["field"], entry.meta["decision"], entry.actor)
            for entry in await ana.history(limit=1000)
            if entry.meta.get("decision") in ("approved", "denied")
        ]
        assert sorted(trail) == [("city", "approved", "ana"), ("pronouns", "denied", "ana")]


# How a task is done


async def deploy(say: Say) -> list[list[str]]:
    """Tell how a task is done in two sessions; return the steps that were told."""
    runs = []
    for day in ("monday", "tuesday"):
        await say(day, "Deploy the service, please.", *(f"{step}." for step in STEPS))
        runs.append([f"{step}." for step in STEPS])
    return runs


@pytest.mark.spec("IMP-93", "IMP-94", "IMP-97")
async def test_what_two_sessions_did_in_the_same_steps_is_captured_only_if_it_is_asked_for(
    engine: Client, say: Say, ana: ScopedClient, clock: Clock
) -> None:
    runs = await deploy(say)
    await engine.run_jobs()
    assert len(await ana.list(Filter(procedural_form="workflow"))) == 0, "none by itself"
    boss = Supervisor(engine.scope("ana", session="tuesday"))
    assert (await boss.capture_workflow(TASK, runs[:1])).status == "skipped", (
        "one run is not enough"
    )
    given: dict[str, Any] = {"agent": "executor", "run": "r-2", "tags": ["ops"], "importance": 0.6}
    made = await boss.capture_workflow(TASK, runs, **given)
    (kept,) = await ana.list(Filter(procedural_form="workflow"))
    assert made.ids == (kept.id,)
    assert kept.steps_text == "1. Build the image.\n2. Push the image.\n3. Restart the service."
    assert (kept.kind, kept.text, kept.scope.user) == ("procedural", TASK, "ana")
    labels = kept.labels
    assert (labels.agent, labels.run, labels.session) == ("executor", "r-2", "tuesday")
    assert (kept.tags[0], kept.importance, kept.pinned) == ("ops", 0.6, False)
    assert (kept.created_at, kept.last_accessed) == (clock.now, None)


@pytest.mark.spec("IMP-95", "IMP-96", "IMP-98")
@pytest.mark.parametrize("session", ["tuesday", "friday"])
async def test_a_how_to_of_a_session_is_only_for_agents_that_ask_for_it(
    engine: Client, say: Say, session: str
) -> None:
    runs = await deploy(say)
    await Supervisor(engine.scope("ana", session="tuesday")).capture_workflow(
        TASK, [STEPS] * len(runs), pinned=True
    )
    chat = engine.scope("ana", session=session)
    boss = Supervisor(chat)
    asked = {"query": "deploy the service", "categories": ["procedural"]}
    for agent in ("executor", "planner"):
        (found,) = await boss.query({**asked, "agent": agent})
        assert found["text"] == f"[procedural] {TASK}: {NUMBERED}"
    for agent in ("supervisor", "stylist", "researcher"):
        with pytest.raises(NotAllowed):
            await boss.query({**asked, "agent": agent})
    question = "How do we deploy the service?"
    told = [(await chat.context(question, since=0)).text, (await chat.delta(0)).text]
    told += [
        await boss.context(question, agent=each, since=0) for each in ("supervisor", "planner")
    ]
    told += [
        (await chat.recall(question, profile=profile, since=0)).text
        for profile in ("default", "imp.bullets", "mls.recall", "theoria.triscore")
    ]
    assert [text for text in told if "1. Build" in text] == []
    for kinds in (("semantic",), ("episodic",)):
        found_memories = (await chat.recall(question, where=Filter(kinds=kinds))).memories
        assert all(memory.procedural_form is None for memory in found_memories)


@pytest.mark.spec("IMP-97")
async def test_a_conversation_about_a_task_makes_no_how_to_with_extraction_on(
    place: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"embedder": "hashing", "extract": "rules", "state_dir": tmp_path}
    async with aio.open(place, policy="supervisor", run_jobs=False, **options) as memory:
        for day in ("monday", "tuesday", "friday"):
            turns = [{"role": "user", "content": f"To deploy, {step.lower()}."} for step in STEPS]
            reply = {"role": "assistant", "content": f"How to deploy: {NUMBERED}"}
            await memory.scope("ana", session=day).remember([*turns, reply])
        await memory.run_jobs()
        assert len(await memory.scope("ana").list(Filter(procedural_form="workflow"))) == 0
