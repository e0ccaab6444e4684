"""What the person decides in a chat: incognito for one session, and which of two values holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.interfaces.rest.app import create_app
from memorist.scoped import ScopedClient
from rest_server import ANA

TUESDAY = "The budget meeting is on Tuesday at ten."
FRIDAY = "The budget meeting moved to Friday at four."
SLIDES = "I will bring the slides."
WHEN = "When is the budget meeting?"
CAT = "My cat Miso loves tuna."


@pytest.fixture
async def engine(place: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Client]:
    async with aio.open(place, extract="off", state_dir=tmp_path) as opened:
        opened.ctx.clock = clock
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


def turn(text: str, **more: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text, **more}]


async def move(engine: Client, clock: Clock, policy: str) -> tuple[ScopedClient, str, str]:
    """Tell the time of a meeting in one session, and another time in a later one."""
    first, later = (engine.scope("ana", session=day) for day in ("monday", "thursday"))
    (old,) = (await first.remember(turn(TUESDAY), policy=policy)).ids
    await first.remember(turn(SLIDES), policy=policy)
    clock.now += timedelta(days=3)
    (outcome,) = (await later.remember(turn(FRIDAY), policy=policy)).outcomes
    assert (outcome.status, outcome.supersedes) == ("created", old)
    assert outcome.reason == f"it replaces {old}: confirm it, reject it, or keep both"
    return later, old, outcome.ids[0]


@pytest.mark.spec("THE-117")
@pytest.mark.parametrize("policy", ["default", "supervisor"])
async def test_a_meeting_moved_in_another_session_is_noticed_and_confirmed_in_the_chat(
    engine: Client, ana: ScopedClient, clock: Clock, policy: str
) -> None:
    told = clock.now
    chat, old, new = await move(engine, clock, policy)
    assert [(pair.old.id, pair.new.id) for pair in await ana.conflicts()] == [(old, new)]
    found = [memory.text for memory in (await ana.recall(WHEN)).memories]
    assert (found[0], TUESDAY in found) == (FRIDAY, False), "before anybody decided"
    reply = await chat.command("yes, the new one")
    assert reply is not None
    assert (reply.done, reply.ids, reply.say) == (True, (new,), f"I will keep this:\n1. {FRIDAY}")
    assert await ana.conflicts() == []
    replaced = await ana.get(old)
    assert (replaced.text, replaced.valid_from, replaced.valid_to) == (TUESDAY, told, clock.now)
    found = [memory.text for memory in (await ana.recall(WHEN)).memories]
    assert (found[0], TUESDAY in found) == (FRIDAY, False)
    then = await ana.recall(WHEN, as_of=told + timedelta(days=1))
    assert then.memories[0].text == TUESDAY
    superseded = [each for each in await ana.history(old) if "superseded_by" in each.meta]
    assert [each.meta["superseded_by"] for each in superseded] == [new]
    assert len(await ana.list()) == 3, "no command was stored"


@pytest.mark.spec("THE-117")
@pytest.mark.parametrize(
    ("answer", "first", "is_listed"),
    [("no, keep the old one", TUESDAY, False), ("both are true", FRIDAY, True)],
)
async def test_the_person_may_keep_the_old_time_or_both(
    engine: Client, ana: ScopedClient, clock: Clock, answer: str, first: str, is_listed: bool
) -> None:
    chat, _, _ = await move(engine, clock, "default")
    await chat.command(answer)
    assert await ana.conflicts() == []
    found = [memory.text for memory in (await ana.recall(WHEN)).memories]
    other = FRIDAY if first == TUESDAY else TUESDAY
    assert (first in found, other in found) == (True, is_listed)


@pytest.mark.spec("THE-117")
async def test_turns_that_contradict_nothing_are_listed_nowhere(
    engine: Client, ana: ScopedClient, clock: Clock
) -> None:
    for day, text in (
        ("monday", TUESDAY),
        ("tuesday", "My sister arrives on Friday at four."),
        ("thursday", "When is the budget meeting, on Friday at four?"),
    ):
        await engine.scope("ana", session=day).remember(turn(text))
        clock.now += timedelta(days=1)
    await engine.scope("ben", session="monday").remember(turn(FRIDAY))
    assert await ana.conflicts() == []
    assert (await ana.recall(WHEN)).memories[0].text == TUESDAY


@pytest.mark.spec("THE-92")
async def test_incognito_holds_for_the_chat_in_which_it_was_said_and_for_no_other(
    engine: Client, ana: ScopedClient
) -> None:
    secret, other = (engine.scope("ana", session=name) for name in ("chat-1", "chat-2"))
    await secret.remember(turn(CAT))
    reply = await secret.command("start incognito for this chat")
    assert reply is not None
    assert reply.done
    hidden = turn("My locker code is blue heron.", id="m-7")
    assert (await secret.remember(hidden)).count("refused") == 1
    assert (await secret.recall("What does my cat love?")).hits == ()
    assert (await secret.context("What does my cat love?")).prompt() == ""
    kept = [f"My locker stands beside shelf {number}." for number in (3, 4)]
    assert (await other.remember(turn(kept[0]))).count("created") == 1
    assert (await other.recall("What does my cat love?")).memories[0].text == CAT
    assert {memory.text for memory in await ana.list()} == {CAT, kept[0]}
    assert "heron" not in str(await ana.history())
    await secret.command("stop incognito")
    assert (await secret.remember(turn(kept[1]))).count("created") == 1
    assert len(await ana.list()) == 3


@pytest_asyncio.fixture
async def rest(engine: Client) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(engine, local=ANA))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.spec("THE-92")
async def test_incognito_of_one_chat_over_rest(rest: httpx.AsyncClient) -> None:
    url = "/v1/memory"
    said = await rest.post(
        f"{url}/say", json={"text": "start incognito for this chat", "session": "chat-1"}
    )
    assert said.json()["done"]
    statuses = []
    for session in ("chat-1", "chat-2"):
        turns = {"messages": turn(CAT), "session": session}
        stored = (await rest.post(f"{url}/messages", json=turns)).json()
        statuses.append(stored["outcomes"][0]["status"])
    assert statuses == ["refused", "created"]
