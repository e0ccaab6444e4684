"""Facts of the turns of several sessions, under the limits of the supervisor policy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import Clock
from llm_server import Server
from memorist import aio, context
from memorist.client import Client
from memorist.scoped import ScopedClient
from memorist.text import prompts
from memorist.types import Memory

DATA = Path(__file__).parents[2] / "data" / "extraction.jsonl"
DEPOT, CELLAR, BEES, ROSES, PIANO, BARN = (  # none of which the rules read
    "The depot in Ghent closes at six.",
    "The cellar is dry all winter.",
    "The bees live behind the barn.",
    "The roses are red and yellow.",
    "The piano is older than the house.",
    "The barn has a green roof.",
)
LONG = f"{DEPOT} {CELLAR} {BEES} {ROSES} {PIANO} {BARN} " + "It rains. " * 8


@pytest.fixture(autouse=True)
def _no_idle_extraction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extract only when a test says so, however long it takes on a busy machine."""
    monkeypatch.setattr(context, "IDLE_SECONDS", 3600)


@asynccontextmanager
async def opened(
    place: str | Path, folder: Path, clock: Clock, server: Server | None = None, **given: Any
) -> AsyncIterator[Client]:
    options: dict[str, Any] = {"embedder": "hashing", "extract": "rules", "run_jobs": False}
    if server is not None:
        options |= {"llm": "openai:m", "llm_url": f"{server.url}/v1", "llm_key": "k"}
        options["extract"] = "model"
    options |= {"policy": "supervisor", "state_dir": folder}
    async with aio.open(place, **{**options, **given}) as memory:
        memory.ctx.clock = clock
        yield memory


async def talk(memory: Client, *texts: str, space: str = "default") -> list[str]:
    """Tell each text in a session of its own; return the ids of the turns."""
    ids = []
    for number, text in enumerate(texts, 1):
        chat = memory.scope("ana", space, session=f"chat {number}")
        ids += (await chat.remember([{"role": "user", "content": text}])).ids
    return ids


async def extract(memory: Client) -> int:
    """Run the extraction that is due; return of how many turns."""
    return (await memory.run_jobs(only=["extract"]))["extract"].runs


async def facts(ana: ScopedClient) -> list[Memory]:
    found = [memory for memory in await ana.list(limit=1000) if memory.evidence_ids]
    return sorted(found, key=lambda memory: memory.text)


def claim(fact: str, quote: str, importance: float = 0.6) -> dict[str, Any]:
    given = {"fact": fact, "evidence": quote, "importance": importance}
    return {**given, "type": "other", "confidence": 0.9}


@pytest.mark.spec("IMP-81", "IMP-83")
@pytest.mark.parametrize(
    ("answer", "kept", "why", "dropped"),
    [
        (f"{DEPOT} {CELLAR}", [f"{DEPOT} {CELLAR}"], "", ()),
        (f"{DEPOT} {CELLAR} {BEES}", [f"{DEPOT} {CELLAR}"], "", ()),
        ("x" * 281, [], "BadModelAnswer", ()),
        (" \n\t", [], "", ("it has no content",)),
        ("…", [], "", ("it has no content",)),
    ],
    ids=["two sentences", "a third one is cut", "too long", "blank", "no word"],
)
async def test_what_a_model_says_of_a_turn_is_refused_or_trimmed_if_it_breaks_the_format(
    place: str,
    tmp_path: Path,
    clock: Clock,
    llm_server: Server,
    answer: str,
    kept: list[str],
    why: str,
    dropped: tuple[str, ...],
) -> None:
    llm_server.answer = lambda request: {"facts": [claim(answer, DEPOT)]}
    async with opened(place, tmp_path, clock, llm_server) as memory:
        ana = memory.scope("ana")
        _, id = await talk(memory, "What a nice day.", LONG)
        done = await ana.extract(id)
        assert (done.why, done.dropped) == (why, dropped)
        assert [fact.text for fact in await facts(ana)] == kept
    request = llm_server.requests[0]
    guard = (
        "complete statement",
        "understood by itself",
        "third person",
        "without any pronoun",
        "neutral tone",
        "one or two sentences",
        "at most 280 characters",
    )
    assert [rule for rule in guard if rule not in request.system] == []


@pytest.mark.spec("IMP-84")
async def test_at_least_95_percent_of_the_facts_of_many_sessions_are_well_worded_at_once(
    tmp_path: Path, clock: Clock
) -> None:
    said = [json.loads(line)["text"] for line in DATA.read_text("utf-8").splitlines()]
    async with opened(tmp_path / "m.db", tmp_path, clock) as memory:
        for day, first in enumerate(range(0, len(said), 10)):
            turns = [{"role": "user", "content": text} for text in said[first : first + 10]]
            await memory.scope("ana", session=f"day {day}").remember(turns)
            await extract(memory)
            clock.now += timedelta(days=1)
        made = await facts(memory.scope("ana"))
    assert len(made) >= 50
    well_worded = [fact for fact in made if not prompts.find_fault(fact.text)]
    assert len(well_worded) >= 0.95 * len(made)


@pytest.mark.spec("IMP-99")
async def test_of_the_turns_of_all_sessions_only_long_or_sure_ones_are_read(
    place: str, tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    llm_server.answer = lambda request: {"facts": []}
    long = ["It rains. " * 23 + "It pours..", "It snows. " * 23 + "Ice grows.."]
    said = [*long, "Soup is nice in winter.", "I collect stamps."]
    assert [len(text) for text in long] == [240, 241]
    async with opened(place, tmp_path, clock, llm_server) as memory:
        await talk(memory, *said)
        assert await extract(memory) == 4
    asked = {request.user.rpartition("\n")[2] for request in llm_server.requests}
    assert asked == {said[1], said[3]}


@pytest.mark.spec("IMP-100", "IMP-102")
async def test_of_five_candidates_of_a_turn_three_are_written_in_each_session(
    place: str, tmp_path: Path, clock: Clock, llm_server: Server
) -> None:
    given = [claim(text, text, 0.9 - n / 10) for n, text in enumerate((DEPOT, CELLAR, BEES, ROSES))]
    llm_server.answer = lambda request: {"facts": [*given, claim(PIANO, PIANO, 0.5)]}
    async with opened(place, tmp_path, clock, llm_server) as memory:
        ana = memory.scope("ana")
        ids = await talk(memory, LONG, f"Good morning! {LONG}")
        for id in ids:
            done = await ana.extract(id)
            assert len(done.outcomes) == 3
            assert done.dropped == ("the turn has more than 3 facts",) * 2
        made = [(fact.text, fact.category, fact.importance_level) for fact in await facts(ana)]
        assert made == [(BEES, "fact", 4), (CELLAR, "fact", 5), (DEPOT, "fact", 5)]
    assert len(llm_server.requests) == 2
    assert all("Note at most 5 facts." in request.user for request in llm_server.requests)


@pytest.mark.spec("IMP-101")
async def test_a_fact_of_another_session_passes_the_bands_and_becomes_one_with_the_first(
    place: str, tmp_path: Path, clock: Clock
) -> None:
    async with opened(place, tmp_path, clock, embedder="minilm") as memory:
        ana = memory.scope("ana")
        turns = await talk(
            memory,
            "I'm allergic to peanuts.",
            "By the way, I'm allergic to peanuts!",  # the same fact
            "I have an allergy to peanuts.",  # the same in other words
            "I live in Berlin.",
        )
        assert await extract(memory) == 4
        allergy, home = sorted(await facts(ana), key=lambda fact: -fact.repeat_count)
        assert allergy.repeat_count == 2
        assert set(turns[:3]) <= set(allergy.evidence_ids)
        clock.now += timedelta(days=30)
        moved = memory.scope("ana", session="chat 5")
        await moved.remember([{"role": "user", "content": "I live in Porto."}])
        assert await extract(memory) == 1
        (newer,) = [fact for fact in await facts(ana) if fact.id not in (allergy.id, home.id)]
        older = await ana.get(home.id)
        assert "Porto" in newer.text
        assert (older.state, older.superseded_by) == ("superseded", newer.id)
        pairs = [(pair.old.id, pair.new.id) for pair in await ana.conflicts()]
        assert pairs == [(home.evidence_ids[0], newer.evidence_ids[0])], "it is one change"


@pytest.mark.spec("IMP-102", "IMP-103")
async def test_three_facts_a_turn_and_thirty_a_day_over_all_sessions_are_written(
    place: str, tmp_path: Path, clock: Clock
) -> None:
    async with opened(place, tmp_path, clock) as memory:
        ana = memory.scope("ana")
        said = [
            f"I collect {n}x coins. I own {n}y stamps. I grow {n}z figs. I play {n}w golf."
            for n in ("bla", "cre", "dri", "flo", "gru", "hye", "jiv", "kla", "mro", "nop", "pru")
        ]
        turns = await talk(memory, *said)
        assert await extract(memory) == 11
        by_turn = [sum(id in fact.evidence_ids for fact in await facts(ana)) for id in turns]
        assert sorted(by_turn) == [0, *[3] * 10]
        late = memory.scope("ana", session="chat 12")
        (id,) = (await late.remember([{"role": "user", "content": "I own a boat."}])).ids
        assert (await ana.extract(id)).dropped == ("the daily limit of 30 is reached",)
        clock.now += timedelta(days=1)
        assert [outcome.status for outcome in (await ana.extract(id)).outcomes] == ["created"]


@pytest.mark.spec("IMP-104")
async def test_a_turn_is_stored_without_a_question_to_the_model_and_with_one_more_write(
    tmp_path: Path, clock: Clock, llm_server: Server, statements: list[str]
) -> None:
    llm_server.answer = lambda request: {"facts": []}
    counts = []
    for name in ("off", "model"):
        server = llm_server if name == "model" else None
        place = tmp_path / f"{name}.db"
        async with opened(place, tmp_path, clock, server, extract=name) as memory:
            await talk(memory, "I own a boat.", "I collect old stamps.")
            chat = memory.scope("ana", session="chat 3")
            del statements[:]
            await chat.remember([{"role": "user", "content": "I'm allergic to peanuts."}])
            counts.append(len(statements))
            assert await facts(memory.scope("ana")) == []
            assert llm_server.requests == []
            waiting = [each.waiting for each in await memory.backlog() if each.name == "extract"]
            assert waiting == ([3] if name == "model" else [])
    assert counts[1] == counts[0] + 1, "the turn is queued"
