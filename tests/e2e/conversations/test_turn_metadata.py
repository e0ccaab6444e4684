"""What is known about the turns of a conversation beside their words: tags, sources, summaries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.dialects.supervisor import Supervisor
from memorist.dialects.theoria import Theoria, context
from memorist.scoped import ScopedClient

from .conftest import Say

SCALES = "My violin teacher wants me to practice scales every evening."
PRACTICE = "I practice scales every evening for my violin teacher."
BOILER = (
    "Well, where do I begin, it was one of those days again and I am still a bit tired from it. "
    "The plumber came at last and looked at the boiler, and we had some coffee and a chat. "
    "He says the boiler in the cellar has to be replaced before 15 October for 2300 euros. "
    "After that the neighbors rang the bell because of a parcel, and it took a long time. "
    "I paid 400 euros in advance to Marek Novak. "
    "So that is that, and now I will sit down and read something nice for an hour or two."
)


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


@pytest.fixture
async def model(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a memory with the packaged embedding models."""
    async with aio.open(place, extract="off", state_dir=tmp_path) as opened:
        yield opened


@pytest.mark.spec("THE-74", "THE-77")
@pytest.mark.parametrize("policy", ["default", "theoria", "supervisor"])
async def test_names_and_topics_are_found_in_the_turns_of_each_session(
    say: Say, ana: ScopedClient, policy: str
) -> None:
    said = [
        ("monday", "Anna Weber from ACME showed us the observatory.", (0.9 + 0.7 + 0.4) / 3),
        ("friday", "We met Bob Stone.", 0.9),
        ("friday", "Yes, we did that.", 0.0),
    ]
    found = []
    for session, text, confidence in said:
        (id,) = (await say(session, text, policy=policy)).ids
        memory = await ana.get(id)
        assert memory.metadata_confidence == pytest.approx(confidence)
        found.append(memory.tags)
    assert found == [("anna weber", "acme", "observatory"), ("bob stone",), ()]


@pytest.mark.spec("THE-75", "THE-77")
async def test_a_near_turn_of_another_session_proposes_the_tags_it_was_given(model: Client) -> None:
    sessions = [model.scope("ana", session=name) for name in ("monday", "friday", "sunday")]
    said = [[{"role": "user", "content": text}] for text in (SCALES, PRACTICE)]
    await sessions[0].remember(said[0], tags=["music"])
    (id,) = (await sessions[1].remember(said[1])).ids
    near = await model.scope("ana").get(id)
    assert near.tags == ("scales", "violin", "music")
    assert 0.5 < near.metadata_confidence < 0.6, "two topics at 0.4, and how near the other turn is"
    tram = [{"role": "user", "content": "The tram to the castle leaves at noon."}]
    (id,) = (await sessions[2].remember(tram)).ids
    far = await model.scope("ana").get(id)
    assert far.tags == ("tram", "castle"), "it is about something else"


@pytest.mark.spec("THE-75")
async def test_tags_of_a_turn_come_from_no_other_speaker_or_person(model: Client) -> None:
    others = [
        (model.scope("ben", session="monday"), {"role": "user"}),
        (model.scope("ana", "work", session="monday"), {"role": "user"}),
        (model.scope("ana", session="monday"), {"role": "assistant"}),
        (model.scope("ana", session="monday"), {"role": "user", "name": "Ben"}),
    ]
    for scope, speaker in others:
        await scope.remember([{**speaker, "content": SCALES}], tags=["music"])
    said = [{"role": "user", "content": PRACTICE}]
    (id,) = (await model.scope("ana", session="friday").remember(said)).ids
    assert (await model.scope("ana").get(id)).tags == ("scales", "violin")


@pytest.mark.spec("THE-75")
async def test_a_near_turn_proposes_tags_under_the_theoria_policy_too(model: Client) -> None:
    for day, text, tags in (("monday", SCALES, ["music"]), ("friday", PRACTICE, [])):
        turns = [{"role": "user", "content": text}]
        chat = model.scope("ana", session=day)
        (id,) = (await chat.remember(turns, policy="theoria", tags=tags)).ids
        await model.index()
    assert "music" in (await model.scope("ana").get(id)).tags


@pytest.mark.spec("THE-76")
async def test_a_recalled_turn_brings_the_ids_of_its_messages_along(
    engine: Client, ana: ScopedClient, clock: Clock
) -> None:
    said = "The ferry to Vis leaves at seven."
    for session, id in (("monday", "m-1"), ("friday", "m-2")):
        turns = [{"role": "user", "content": said, "id": id}]
        await engine.scope("ana", session=session).remember(turns, policy="theoria")
    found = await Theoria(engine).retrieve_memories("ana", "default", "ferry to Vis", clock.now)
    assert [memory.source_ids for memory in found] == [("m-1", "m-2")]
    assert context(found) == f"## vis\n- {said} (sources: m-1, m-2)"
    (hit,) = await ana.recall("When does the ferry leave?")
    assert hit.memory.source_ids == ("m-1", "m-2")


@pytest.mark.spec("THE-69")
@pytest.mark.parametrize("policy", ["default", "theoria", "supervisor"])
async def test_a_context_shows_a_long_turn_by_its_summary(
    engine: Client, say: Say, ana: ScopedClient, clock: Clock, policy: str
) -> None:
    await say("monday", BOILER, policy=policy)
    await say("friday", "We had soup with the neighbors.", policy=policy)
    assert (await engine.run_jobs(only=["shorten"]))["shorten"].changed == 1
    found = await Theoria(engine).retrieve_memories("ana", "default", "boiler", clock.now)
    boss = Supervisor(engine.scope("ana", session="sunday"))
    for text in (context(found[:1]), await boss.context("What about the boiler?", limit=1)):
        lines = [line for line in text.splitlines() if "boiler" in line]
        assert [len(line) <= 300 for line in lines if line.startswith("- ")] == [True]
        for part in ("15 October", "2300 euros", "Marek Novak"):
            assert part in text
        assert "coffee and a chat" not in text
    (turn,) = [memory for memory in await ana.list() if memory.summary is not None]
    assert (turn.text, turn.labels.session) == (BOILER, "monday"), "which stays as it is"
