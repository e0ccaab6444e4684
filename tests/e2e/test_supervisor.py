"""The memory of a supervisor and its agents, through its dialect."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.client import Client
from memorist.dialects.supervisor import UNSURE, Supervisor, confident, numbered
from memorist.errors import InvalidInput, NotAllowed
from memorist.scoped import ScopedClient
from memorist.types import Filter, Memory

NOW = datetime(2026, 3, 1, tzinfo=UTC)
STEPS = ["Build the image", "Push the image", "Restart the service"]


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(place, state_dir=tmp_path, embedder="hashing") as opened:
        opened.ctx.clock = lambda: NOW
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope(user="ana")


@pytest.fixture
def boss(ana: ScopedClient) -> Supervisor:
    return Supervisor(ana)


async def last_accessed(ana: ScopedClient) -> list[Memory]:
    await ana.ctx.access_log.flush()
    return [memory for memory in await ana.list() if memory.last_accessed is not None]


# memory.query


@pytest.mark.spec("IMP-57", "IMP-58", "IMP-60")
async def test_the_call_of_the_specification_is_answered(engine: Client, boss: Supervisor) -> None:
    scope = engine.scope(user="ana", agent="a", run="r", actor="x", role="assistant")
    await scope.remember("The deployment plan context.", category="tasks")
    request: dict[str, Any] = {
        "agent": "planner",
        "query": "deployment plan context",
        "categories": ["tasks", "projects"],
        "filters": {
            "user_id": "ana", "agent_id": "a", "run_id": "r", "actor_id": "x", "role": "assistant", "pinned": False,
            "importance_min": 1, "importance_max": 5, "updated_after": "2025-07-01", "updated_before": None,
        },
        "top_k": 3,
        "return": "bullets",
        "budget_tokens": 512,
    }  # fmt: skip
    (found,) = await boss.query(request)
    assert found == {
        "id": found["id"],
        "category": "tasks",
        "text": "[tasks] assistant: The deployment plan context.",
    }
    (plain,) = await boss.query({"agent": "planner", "query": "deployment plan context"})
    assert plain == found
    (full,) = await boss.query({**request, "return": "full"})
    assert full["importance"] in range(1, 6)
    with pytest.raises(NotAllowed):
        await boss.query({**request, "categories": ["tasks", "profile"]})
    for wrong in ({"colour": "red"}, {"agent": None}, {"query": 3}):
        with pytest.raises(InvalidInput, match=r"^memory\.query "):
            await boss.query({**request, **wrong})


@pytest.mark.spec("IMP-90")
async def test_only_a_supervisor_in_doubt_looks_again(ana: ScopedClient, boss: Supervisor) -> None:
    for n in range(5):
        await ana.remember(f"The deployment plan, part {n}.", category="tasks", policy="milton")
    sure = await boss.recall_if_unsure("deployment plan", agent="supervisor", confidence=0.5)
    assert (sure, await last_accessed(ana)) == ([], []), "nothing was asked"
    unsure = await boss.recall_if_unsure("deployment plan", agent="supervisor", confidence=0.49)
    assert [set(item) for item in unsure] == [{"id", "category", "text"}] * 3
    small = await boss.recall_if_unsure(
        "deployment plan", agent="supervisor", confidence=0.49, budget_tokens=5
    )
    assert small == [], "the budget of the caller holds"


@pytest.mark.spec("IMP-90")
async def test_a_turn_that_leans_on_something_earlier_looks_again_unless_it_is_at_hand(
    ana: ScopedClient, boss: Supervisor
) -> None:
    await ana.remember("The boat is called Miso.", category="tasks", policy="milton")
    asked = "Do you remember the name of the boat?"
    (found,) = await boss.recall_if_unsure(asked, agent="supervisor")
    assert found["text"] == "[tasks] The boat is called Miso."
    assert (
        await boss.recall_if_unsure(
            asked, agent="supervisor", context="The name of the boat is Miso."
        )
        == []
    )
    assert await boss.recall_if_unsure("Paint the boat red.", agent="supervisor") == []


@pytest.mark.spec("IMP-91")
def test_few_turns_of_a_conversation_look_again() -> None:
    file = resources.files("memorist.interfaces.cli") / "demo_conversation.json"
    turns = re.findall(r'"content": "(.*?)"', file.read_text("utf-8"))
    turns += ["As I said, the usual.", "What was my budget?", "What did we decide about the boat?"]
    unsure = [turn for turn in turns if confident(turn) < UNSURE]
    assert len(turns) > 30
    assert set(turns[-3:]) <= set(unsure)
    assert len(unsure) / len(turns) < 0.1


# Context


@pytest.mark.spec("IMP-56")
async def test_whole_categories_stand_first_and_then_what_fits(
    ana: ScopedClient, boss: Supervisor
) -> None:
    for name in ("Ana", "she", "her"):
        await ana.remember(f"Likes to be called {name}.", category="profile", policy="milton")
    await ana.remember("Ship the boat by May.", category="goals")
    await ana.remember("Learned Portuguese at school.", category="knowledge")
    lines = (await boss.context("when does the boat ship?")).split("\n")
    assert {line[:11] for line in lines[:3]} == {"- [profile]"}, (
        "all of it, though nothing in it fits"
    )
    assert lines[3:] == ["- [goals] Ship the boat by May."]
    assert (
        await boss.context("when does the boat ship?", agent="planner")
        == "- [goals] Ship the boat by May."
    )


async def test_the_context_of_a_supervisor_holds_insights(
    ana: ScopedClient, boss: Supervisor
) -> None:
    await ana.remember(
        "The user trusts plain answers.", kind="insight", category="relationship_dynamic"
    )
    assert await boss.context("plain answers") == "- [relationships] The user trusts plain answers."


@pytest.mark.spec("IMP-23")
async def test_related_bullets_stand_in_the_context(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as opened:
        ana = opened.scope(user="ana")
        for text in (
            "Ana's cat Miso is an orange tabby.",
            "Ana lives in Lisbon with her cat Miso.",
        ):
            await ana.remember(text, category="relationships", policy="supervisor")
        text = await Supervisor(ana).context("which colour has the tabby?", limit=1)
    assert text == (
        "- [relationships] Ana's cat Miso is an orange tabby.\n"
        "- [relationships] Ana lives in Lisbon with her cat Miso. (related)"
    )


@pytest.mark.spec("IMP-20", "IMP-23")
async def test_related_bullets_come_with_the_answer_to_an_agent(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as opened:
        ana = opened.scope(user="ana")
        for text in (
            "Ana's cat Miso is an orange tabby.",
            "Ana lives in Lisbon with her cat Miso.",
        ):
            await ana.remember(text, category="relationships", policy="supervisor")
        asked = {"agent": "supervisor", "query": "which color has the tabby?", "top_k": 1}
        texts = [item["text"] for item in await Supervisor(ana).query(asked)]
    assert texts[0] == "[relationships] Ana's cat Miso is an orange tabby."
    assert [text for text in texts[1:] if "Lisbon" in text] != []


async def test_the_context_stays_within_its_budget(
    engine: Client, ana: ScopedClient, boss: Supervisor
) -> None:
    for n in range(30):
        await ana.remember(
            f"Fact number {n} about the person.", category="profile", policy="milton"
        )
    for budget in (5, 50, 200):
        assert engine.ctx.count_tokens(await boss.context("person", budget=budget)) <= budget


async def test_where_memory_is_off_an_agent_is_told_nothing(
    ana: ScopedClient, boss: Supervisor
) -> None:
    await ana.remember("Likes to be called Ana.", category="profile")
    await ana.privacy.set(memory_enabled=False)
    assert await boss.context("called Ana") == ""
    assert await boss.query({"agent": "supervisor", "query": "called Ana"}) == []


# How-tos


@pytest.mark.spec("IMP-93")
async def test_a_how_to_is_kept_with_its_steps(ana: ScopedClient, boss: Supervisor) -> None:
    made = await boss.save_workflow(
        "Deploy the service", STEPS, agent="a", run="r", tags=["ops"], importance=0.6
    )
    memory = await ana.get(made.ids[0])
    assert (memory.kind, memory.procedural_form, memory.category) == (
        "procedural",
        "workflow",
        "procedural",
    )
    assert memory.steps_text == "1. Build the image\n2. Push the image\n3. Restart the service"
    assert (memory.scope.user, memory.labels.agent, memory.labels.run) == ("ana", "a", "r")
    assert (memory.importance, memory.pinned, memory.created_at) == (0.6, False, NOW)
    assert "ops" in memory.tags
    assert memory.last_accessed is None
    kept = await boss.save_workflow("Water the plants", ["Fill the can", "Pour"], pinned=True)
    assert (await ana.get(kept.ids[0])).pinned is True


@pytest.mark.spec("IMP-96")
async def test_executor_and_planner_get_how_tos_and_others_do_not(boss: Supervisor) -> None:
    await boss.save_workflow("Deploy the service", STEPS)
    for agent in ("executor", "planner"):
        (found,) = await boss.query(
            {"agent": agent, "query": "deploy the service", "categories": ["procedural"]}
        )
        assert found["text"] == (
            "[procedural] Deploy the service: 1. Build the image 2. Push the image 3. Restart the service"
        )
    for agent in ("supervisor", "stylist", "researcher"):
        with pytest.raises(NotAllowed):
            await boss.query(
                {"agent": agent, "query": "deploy the service", "categories": ["procedural"]}
            )


@pytest.mark.spec("IMP-95", "IMP-98")
@pytest.mark.parametrize("profile", ["default", "imp.bullets", "mls.recall", "theoria.triscore"])
async def test_a_how_to_is_in_no_other_answer(
    ana: ScopedClient, boss: Supervisor, profile: str
) -> None:
    await boss.save_workflow("Deploy the service", STEPS)
    await ana.remember(
        "I prefer to deploy the service on Mondays.", policy="vault", importance=0.9, pinned=True
    )
    found = await ana.recall("deploy the service", profile=profile)
    assert [memory.procedural_form for memory in found.memories] == ["preference"], (
        "a preference is no how-to"
    )
    assert "Build" not in await boss.context("deploy the service", agent="planner")
    assert await boss.query({"agent": "planner", "query": "deploy the service"}) == []


@pytest.mark.spec("IMP-95")
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_how_to_stays_out_of_the_context_whatever_its_category(
    ana: ScopedClient, boss: Supervisor
) -> None:
    made = await boss.save_workflow("Deploy the service", STEPS)
    await ana.edit(made.ids[0], category="profile")
    assert await boss.context("deploy the service") == ""


@pytest.mark.spec("IMP-97")
async def test_no_how_to_comes_into_being_by_itself(ana: ScopedClient) -> None:
    said = [
        {"role": "user", "content": f"First we {step.lower()}, then we rest."} for step in STEPS
    ]
    await ana.remember(said)
    await ana.remember("How to deploy: 1. Build the image 2. Push the image", kind="procedural")
    assert len(await ana.list(Filter(procedural_form="workflow"))) == 0


async def test_a_fact_in_the_same_words_is_another_memory(
    ana: ScopedClient, boss: Supervisor
) -> None:
    await boss.save_workflow("Deploy the service", STEPS)
    again = await boss.save_workflow("Deploy the service", STEPS)
    assert again.status == "merged"
    assert (await ana.remember("Deploy the service")).outcomes[0].status == "created"


@pytest.mark.spec("IMP-97")
async def test_a_how_to_saved_again_in_nearly_the_same_words_replaces_the_earlier_one(
    ana: ScopedClient, boss: Supervisor
) -> None:
    made = await boss.save_workflow("Deploy the service to production", STEPS)
    again = await boss.save_workflow("deploy the service to production!", STEPS)
    assert again.supersedes == made.ids[0]
    assert [memory.id for memory in await ana.list()] == [again.ids[0]]


@pytest.mark.spec("IMP-94", "IMP-97")
async def test_what_was_done_twice_in_the_same_steps_becomes_a_how_to(
    ana: ScopedClient, boss: Supervisor
) -> None:
    told = [
        "First, we build the image.",
        "Then you should push the image.",
        "Finally restart the service.",
    ]
    runs = [STEPS, told, ["1. Build the image.", "2. Push the image.", "3. Restart the service."]]
    for early in (runs[:1], runs[:2], [*runs[1:], STEPS[:2]]):
        assert (await boss.capture_workflow("Deploy the service", early)).status == "skipped"
    assert len(await ana.list()) == 0
    made = await boss.capture_workflow("Deploy the service", runs, agent="executor", tags=["ops"])
    memory = await ana.get(made.ids[0])
    assert memory.steps_text == "1. Build the image.\n2. Push the image.\n3. Restart the service."
    assert (memory.procedural_form, memory.labels.agent) == ("workflow", "executor")


@pytest.mark.spec("IMP-97")
async def test_a_captured_how_to_is_spelled_as_in_the_last_run(
    ana: ScopedClient, boss: Supervisor
) -> None:
    made = await boss.capture_workflow(
        "Publish the page", [["Push it to github"], ["Push it to GitHub"]]
    )
    assert (await ana.get(made.ids[0])).steps_text == "1. Push it to GitHub"


@pytest.mark.spec("IMP-94")
def test_steps_are_orders_and_nobodys_thoughts() -> None:
    said = [
        "We build the image",
        "then the executor must push it",
        "1. now restart",
        "You'll check the log",
    ]
    assert numbered(said) == "1. Build the image\n2. Push it\n3. Restart\n4. Check the log"
    assert numbered(["Ask what they prefer"]) == "1. Ask what they prefer"
    for wrong in ("The user really wants it fast", "2. She feels fine"):
        with pytest.raises(InvalidInput, match="Step 2"):
            numbered(["Build", wrong])
    with pytest.raises(InvalidInput, match="tokens"):
        numbered(["Build the image and push it to the registry of the team, please. " * 3] * 20)


@pytest.mark.spec("IMP-94")
def test_a_how_to_has_at_most_400_tokens() -> None:
    step = "Check one two three four five six seven eight nine ten and one two three"
    assert numbered([step] * 19).count("\n") == 18
    with pytest.raises(InvalidInput, match="at most 400 tokens, not 421"):
        numbered([step] * 20)


@pytest.mark.spec("IMP-94")
@pytest.mark.parametrize(
    "step", ["The image was built yesterday", "Nice weather today", "It is done"]
)
def test_a_step_that_is_not_an_order_is_refused(step: str) -> None:
    refused = ""
    try:
        numbered(["Build the image", step])
    except InvalidInput as error:
        refused = str(error)
    assert "Step 2" in refused


@pytest.mark.spec("IMP-94")
@pytest.mark.parametrize(
    "step",
    [
        "If the build fails, roll back",
        "kubectl apply -f service.yaml",
        "Carefully check the log",
        "Apply the patch",
        "Reply to the ticket",
        "Don't restart the database",
        "Prüfe das Protokoll",
        "Double-check the tag",
        "In the console, run make",
    ],
)
def test_an_order_need_not_begin_with_a_known_verb(step: str) -> None:
    assert numbered([step]).casefold() == f"1. {step}".casefold()


@pytest.mark.spec("IMP-94")
def test_steps_are_numbered_once_and_kept_short() -> None:
    assert numbered(["1. Build", "* Push", "3) Rest"]) == "1. Build\n2. Push\n3. Rest"
    for wrong in ([], ["ok", " "], ["x" * 241], ["x"] * 21, "Build"):
        with pytest.raises(InvalidInput):
            numbered(wrong)
