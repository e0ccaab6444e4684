"""Facts are drawn out of turns after they were taken in: they rest on what was said, and go with it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hostile_answers as hostile
from llm_server import Request, Server
from memorist import aio, extraction
from memorist.client import Client
from memorist.errors import BadModelAnswer, ModelUnavailable, OverBudget, RevisionConflict
from memorist.extraction import Extracted, rules
from memorist.interfaces.cli import app
from memorist.scoped import ScopedClient
from memorist.storage.tasks import Task
from memorist.text.prompts import Prompt
from memorist.types import STATES, Draft, Filter, Labels, Memory, Scope

NOW = datetime(2026, 5, 8, 9, tzinfo=UTC)
TOLD = "I'm allergic to peanuts."
FACT = "The user is allergic to peanuts."
FACTS = Filter(tags=(extraction.TAG,))


class Scripted:
    """A language model that says what it is told to, or fails."""

    def __init__(self, say: Callable[[Prompt], Any]) -> None:
        self.say, self.asked = say, list[Prompt]()

    async def answer(self, scope: Scope, ask: Prompt) -> Mapping[str, Any]:
        self.asked.append(ask)
        said = self.say(ask)
        if isinstance(said, Exception):
            raise said
        return said  # type: ignore[no-any-return]

    async def close(self) -> None: ...


def item(fact: str = FACT, quote: str = TOLD, type: str = "profile") -> dict[str, Any]:
    return {"fact": fact, "type": type, "confidence": 0.9, "evidence": quote, "importance": 0.8}


@asynccontextmanager
async def opened(
    place: str | Path, say: Callable[[Prompt], Any] | None = None, **settings: Any
) -> AsyncIterator[Client]:
    asked = {"embedder": "hashing", "extract": "rules" if say is None else "model", **settings}
    async with aio.open(place, **asked) as engine:
        engine.ctx.clock = lambda: NOW
        if say is not None:
            engine.ctx.llm = Scripted(say)
        yield engine


async def tended(engine: Client) -> int:
    return (await engine.run_jobs(only=["extract"]))["extract"].runs


async def facts(scope: ScopedClient, where: Filter = FACTS) -> list[Memory]:
    return sorted(await scope.list(where, limit=1000), key=lambda memory: memory.text)


def turn(text: str, id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"content": text, "id": id, "session": "s1", "role": "user", **more}


@pytest.mark.spec("CLK-28", "IMP-101")
async def test_a_fact_is_drawn_after_the_turn_was_taken_in_and_rests_on_it(place: str) -> None:
    async with opened(place) as engine:
        ana = engine.scope("ana")
        receipt = await ana.remember([turn(TOLD)])
        assert await facts(ana) == [], "the person does not wait for it"
        assert [each.waiting for each in await engine.backlog() if each.name == "extract"] == [1]
        assert await tended(engine) == 1
        (fact,) = await facts(ana)
        assert (fact.text, fact.kind, fact.category, fact.fact_type) == (
            FACT,
            "semantic",
            "profile",
            "profile",
        )
        assert (fact.evidence_ids, fact.evidence_text, fact.speaker) == (receipt.ids, TOLD, "user")
        assert [memory.id for memory in (await ana.why(fact.id)).memories] == list(receipt.ids)
        (said,) = await ana.list(Filter(ids=receipt.ids))
        assert said.text == TOLD, "the turn stays what it was"
        assert await tended(engine) == 0, "and it is done once"


@pytest.mark.spec("IMP-104")
async def test_taking_in_waits_for_no_model(tmp_path: Path) -> None:
    async with opened(tmp_path / "m.db", lambda ask: ModelUnavailable()) as engine:
        ana, took = engine.scope("ana"), list[float]()
        for n in range(21):
            started = time.perf_counter()
            await ana.remember([turn(f"I own {n} boats.", f"m{n}")])
            took.append(time.perf_counter() - started)
        assert isinstance(engine.ctx.llm, Scripted)
        assert engine.ctx.llm.asked == []
        assert statistics.median(took) < 0.15


async def test_a_fact_goes_with_the_only_turn_it_rests_on(place: str) -> None:
    async with opened(place) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(TOLD)])).ids
        await tended(engine)
        assert len((await ana.forget(id)).derived) == 1
        assert await facts(ana, Filter(states=STATES)) == []
        await ana.remember([turn("By the way, I'm allergic to peanuts.", "m2")])
        await tended(engine)
        assert await facts(ana) == [], "what was forgotten does not come back by itself"


async def test_a_fact_of_two_turns_loses_the_quotation_of_the_one_that_is_forgotten(
    place: str,
) -> None:
    async with opened(place) as engine:
        ana = engine.scope("ana")
        (first,) = (await ana.remember([turn("Oh, I'm allergic to peanuts!")])).ids
        (second,) = (await ana.remember([turn("As I said, I'm allergic to peanuts", "m2")])).ids
        assert await tended(engine) == 2
        (fact,) = await facts(ana)
        assert (set(fact.evidence_ids), fact.repeat_count) == ({first, second}, 1)
        await ana.forget(first)
        (left,) = await facts(ana)
        assert (left.text, left.evidence_ids, left.evidence_text) == (FACT, (second,), None)


@pytest.mark.spec("IMP-101")
@pytest.mark.parametrize("policy", ["default", "supervisor"])
async def test_a_newer_value_supersedes_the_fact_of_an_earlier_turn(
    place: str, policy: str
) -> None:
    async with opened(place, policy=policy) as engine:
        ana = engine.scope("ana")
        for n, city in enumerate(("Berlin", "Porto")):
            await ana.remember([turn(f"I live in {city}.", f"m{n}", at=NOW + timedelta(days=n))])
            await tended(engine)
        assert [fact.text for fact in await facts(ana)] == ["The user lives in Porto."]
        pairs = [(pair.new.text, pair.old.text) for pair in await ana.conflicts()]
        assert pairs == [("I live in Porto.", "I live in Berlin.")], "the facts are no other change"


@pytest.mark.spec("CLK-43", "CLK-44")
async def test_in_a_guild_a_fact_belongs_to_who_it_is_about(place: str) -> None:
    async with opened(place) as engine:
        guild = engine.scope("__guild__", "g1", channel="c1", subject="u7")
        said = {
            "id": "m1",
            "role": "user",
            "name": "Bo",
            "content": "I prefer tea. ok. " + "I own a boat and a car " * 20,
        }
        await guild.remember(
            [said, {"id": "m2", "role": "user", "name": "Bo", "content": "hm"}],
            policy="clanker.messages",
        )
        await tended(engine)
        (fact,) = await facts(guild)
        assert (fact.text, fact.kind, fact.fact_type) == (
            "Bo prefers tea.",
            "procedural",
            "preference",
        )
        assert (fact.labels.subject, fact.labels.channel, fact.confidence) == ("u7", "c1", 0.9)


@pytest.mark.spec("CLK-43", "CLK-44")
async def test_in_a_guild_a_fact_has_one_of_five_types_and_at_most_190_characters(
    tmp_path: Path,
) -> None:
    boat = "I own a boat with a red sail, a blue flag, a white hull, a green anchor, a brown deck, a gray rope, "
    boat += "a black wheel, a yellow lamp, a silver bell, a golden horn and a purple rug from the harbor."
    async with opened(tmp_path / "m.db") as engine:
        guild = engine.scope("__guild__", "g1", channel="c1", subject="u7")
        told = [("m1", "I want to learn Thai."), ("m2", boat)]
        said = [{"id": id, "role": "user", "name": "Bo", "content": text} for id, text in told]
        await guild.remember(said, policy="clanker.messages")
        await tended(engine)
        assert [(fact.text, fact.fact_type) for fact in await facts(guild)] == [
            ("Bo wants to learn Thai.", "other")
        ]


@pytest.mark.spec("CLK-47")
async def test_in_a_guild_a_fact_that_shares_half_its_words_with_the_message_is_kept(
    tmp_path: Path,
) -> None:
    said, fact = "I usually drink green tea in the morning.", "Bo prefers green tea in the morning."
    async with opened(
        tmp_path / "m.db", lambda ask: {"facts": [item(fact, "green tea in the morning")]}
    ) as engine:
        guild = engine.scope("__guild__", "g1", channel="c1", subject="u7")
        await guild.remember(
            [{"id": "m1", "role": "user", "name": "Bo", "content": said}], policy="clanker.messages"
        )
        await tended(engine)
        assert [each.text for each in await facts(guild)] == [fact]


@pytest.mark.spec("CLK-47")
@pytest.mark.parametrize(
    "fact",
    [
        "Bo never drinks green tea in the morning.",
        "Bo drinks green tea with Olga in the morning.",
        "Bo drinks 3 cups of green tea in the morning.",
        "Bo loves his old red bike and tea.",
    ],
)
async def test_in_a_guild_a_fact_needs_its_words_names_numbers_and_negations(
    tmp_path: Path, fact: str
) -> None:
    said = "I usually drink green tea in the morning."
    async with opened(
        tmp_path / "m.db", lambda ask: {"facts": [item(fact, "green tea in the morning")]}
    ) as engine:
        guild = engine.scope("__guild__", "g1", channel="c1", subject="u7")
        told = {"id": "m1", "role": "user", "name": "Bo", "content": said}
        await guild.remember([told], policy="clanker.messages")
        await tended(engine)
        assert await facts(guild) == []


@pytest.mark.spec("CLK-26")
async def test_a_guild_message_of_four_characters_is_worth_a_question(tmp_path: Path) -> None:
    async with opened(tmp_path / "m.db", lambda ask: {"facts": []}) as engine:
        said = [
            {"id": text, "role": "user", "name": "Bo", "content": text}
            for text in ("hmm", "Cats", "ok then")
        ]
        await engine.scope("__guild__", "g1").remember(said, policy="clanker.messages")
        await tended(engine)
        assert isinstance(engine.ctx.llm, Scripted)
        assert {ask.user.rpartition("\n")[2] for ask in engine.ctx.llm.asked} == {"Cats", "ok then"}


async def test_what_is_forgotten_before_its_turn_comes_gives_nothing(place: str) -> None:
    async with opened(place) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(TOLD)])).ids
        await ana.forget(id)
        await tended(engine)
        assert await facts(ana) == []
        assert [
            each for each in await engine.backlog() if each.name == "extract" and each.waiting
        ] == []


async def test_a_turn_that_was_corrected_gives_what_it_says_now(place: str) -> None:
    async with opened(place) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(TOLD)])).ids
        await ana.edit(id, "I'm allergic to walnuts.")
        await tended(engine)
        assert [fact.text for fact in await facts(ana)] == ["The user is allergic to walnuts."]


async def test_a_turn_that_is_forgotten_while_the_model_thinks_leaves_no_fact(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "m.db", lambda ask: {"facts": [item()]}) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(TOLD)])).ids

        class Slow(Scripted):
            async def answer(self, scope: Scope, ask: Prompt) -> Mapping[str, Any]:
                await ana.forget(id)
                return await super().answer(scope, ask)

        engine.ctx.llm = Slow(lambda ask: {"facts": [item()]})
        await engine.run_jobs(only=["extract"])
        assert await facts(ana, Filter(states=STATES)) == []


@pytest.mark.parametrize("message", [
    turn(TOLD, role="assistant"), turn(TOLD, role="tool"), turn(TOLD, role="system"),
    turn("<memory>\n- I'm allergic to peanuts.\n</memory>"),
    turn("What am I allergic to? Maybe peanuts."),
], ids=["assistant", "tool", "system", "recalled", "question"])  # fmt: skip
async def test_nothing_is_drawn_from_what_the_person_did_not_state(
    message: dict[str, Any], tmp_path: Path
) -> None:
    async with opened(
        tmp_path / "m.db", lambda ask: {"facts": [item(quote=message["content"])]}
    ) as engine:
        ana = engine.scope("ana")
        await ana.remember([message])
        await tended(engine)
        assert await facts(ana) == []
        assert isinstance(engine.ctx.llm, Scripted)
        assert engine.ctx.llm.asked == []


async def test_nothing_is_drawn_from_what_was_derived_from_a_turn(tmp_path: Path) -> None:
    async with opened(tmp_path / "m.db") as engine:
        ana = engine.scope("ana", session="s1")
        (id,) = (await ana.remember("We talked for a while.", kind="semantic")).ids
        summary = Draft(text=TOLD, evidence_ids=(id,), labels=Labels(session="s1", role="user"))
        await ana.remember_drafts([summary])
        assert await tended(engine) == 0
        assert await facts(ana) == []


async def test_another_persons_words_become_no_preference_and_no_profile(place: str) -> None:
    async with opened(place) as engine:
        ana = engine.scope("ana")
        await ana.remember([turn("I prefer tea. I'm a nurse.", name="Mallory")])
        await tended(engine)
        found = await facts(ana)
        assert [fact.text for fact in found] == ["Mallory is a nurse.", "Mallory prefers tea."]
        assert {(fact.kind, fact.fact_type, fact.speaker) for fact in found} == {
            ("semantic", "other", "Mallory")
        }
        assert not {fact.category for fact in found} & {"preference", "profile"}


@pytest.mark.spec("CLK-49")
@pytest.mark.parametrize(
    "error", [ModelUnavailable(), BadModelAnswer(), OverBudget()], ids=lambda e: type(e).__name__
)
async def test_rules_take_over_from_a_model_that_fails_and_it_shows(
    error: Exception, place: str
) -> None:
    async with opened(place, lambda ask: error) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(TOLD)])).ids
        assert await tended(engine) == 1
        assert [fact.text for fact in await facts(ana)] == [FACT]
        (event,) = await ana.events(node="worker", op="classify")
        assert (event.status, event.category) == (
            "error",
            f"extract by rules: {type(error).__name__}",
        )
        receipt = await ana.extract(id)
        assert (receipt.by, receipt.why) == ("rules", type(error).__name__)


@pytest.mark.spec("CLK-27", "IMP-100", "IMP-102")
async def test_of_one_turn_three_facts_are_kept_and_each_other_one_is_accounted_for(
    tmp_path: Path,
) -> None:
    said = (
        "I hate figs. I love tea. I own a boat. I have two kids. I'm a nurse. I'm allergic to dust."
    )
    async with opened(tmp_path / "m.db", policy="supervisor") as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(said)])).ids
        done = await ana.extract(id)
        assert (len(done.outcomes), done.dropped) == (
            3,
            ("the turn has more than 3 facts",) * 2,
        ), "of five at most"
        kept = ["The user has two kids.", "The user is a nurse.", "The user owns a boat."]
        assert [fact.text for fact in await facts(ana)] == kept, "what matters most"


@pytest.mark.spec("IMP-100", "IMP-102")
async def test_a_model_gives_up_to_five_candidates_with_category_and_importance(
    tmp_path: Path,
) -> None:
    clauses = [  # none of which the rules read
        "The depot in Ghent closes at six",
        "The cellar is dry all winter",
        "The bees live behind the barn",
        "The roses are red and yellow",
        "The kitchen is in the north wing of the house",
        "The piano is older than the house",
    ]
    kinds = ["preference", "preference", "profile", "relationship", "other", "other"]
    given = [item(f"{said}.", said, kind) for said, kind in zip(clauses, kinds, strict=True)]
    for candidate, importance in zip(given, (0.91, 0.92, 0.93, 0.94, 0.95, 0.99), strict=True):
        candidate["importance"] = importance
    async with opened(tmp_path / "m.db", lambda ask: {"facts": given}) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(". ".join(clauses) + ". It rains." * 5)])).ids
        done = await ana.extract(id)
        assert isinstance(engine.ctx.llm, Scripted)
        (ask,) = engine.ctx.llm.asked
        assert "Note at most 5 facts." in ask.user
        assert ask.schema["properties"]["facts"]["maxItems"] == 5
        assert done.dropped == ("there are more than 5", *["the turn has more than 3 facts"] * 2)
        kept = [(fact.text, fact.category, fact.importance) for fact in await facts(ana)]
    assert kept == [
        ("The bees live behind the barn.", "profile", 0.93),
        ("The kitchen is in the north wing of the house.", "fact", 0.95),
        ("The roses are red and yellow.", "relationship", 0.94),
    ]


LIBRARY = "The library on Elm Street closes at six."


@pytest.mark.spec("IMP-100")
@pytest.mark.parametrize(
    ("answered", "kept", "dropped"),
    [
        ([], [FACT], ()),
        ([item(LIBRARY, LIBRARY)], [LIBRARY, FACT], ()),
        ([item("The user is rich.")], [FACT], ("its words do not match the source",)),
        ([item()], [FACT], ("it is a duplicate",)),
    ],
    ids=["nothing", "more", "an invention", "the same"],
)
async def test_a_model_adds_to_what_the_rules_find_and_takes_nothing_away(
    place: str, answered: list[Any], kept: list[str], dropped: tuple[str, ...]
) -> None:
    async with opened(place, lambda ask: {"facts": answered}) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(f"{TOLD} {LIBRARY}")])).ids
        done = await ana.extract(id)
        assert (done.by, done.dropped) == ("model", dropped)
        assert [fact.text for fact in await facts(ana)] == kept


async def test_the_three_facts_of_the_rules_leave_no_room_for_those_of_a_model(
    tmp_path: Path,
) -> None:
    said = f"I own a boat. I have two kids. I'm a nurse. {LIBRARY}"
    answer = {"facts": [item(LIBRARY, LIBRARY) | {"importance": 1.0}]}
    async with opened(tmp_path / "m.db", lambda ask: answer) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(said)])).ids
        done = await ana.extract(id)
        assert done.dropped == ("the turn has more than 3 facts",)
        kept = ["The user has two kids.", "The user is a nurse.", "The user owns a boat."]
        assert [fact.text for fact in await facts(ana)] == kept


@pytest.mark.spec("IMP-99")
async def test_a_short_turn_that_holds_nothing_sure_is_not_worth_a_question(tmp_path: Path) -> None:
    async with opened(
        tmp_path / "m.db", policy="supervisor", say=lambda ask: {"facts": []}
    ) as engine:
        await engine.scope("ana").remember(
            [turn("The weather is nice."), turn(TOLD, "m2"), turn("It rains. " * 30, "m3")]
        )
        await tended(engine)
        assert isinstance(engine.ctx.llm, Scripted)
        asked = {ask.user.rpartition("\n")[2] for ask in engine.ctx.llm.asked}
        assert asked == {TOLD, ("It rains. " * 30).strip()}


@pytest.mark.spec("IMP-99")
async def test_a_turn_is_read_from_241_characters_on_or_if_it_surely_holds_a_fact(
    tmp_path: Path,
) -> None:
    long = ["It rains. " * 23 + "It pours..", "It snows. " * 23 + "Ice grows.."]
    said = [*long, "I usually eat soup.", "I collect stamps."]  # the rules are sure of the last one
    assert [len(text) for text in said[:2]] == [240, 241]
    async with opened(
        tmp_path / "m.db", policy="supervisor", say=lambda ask: {"facts": []}
    ) as engine:
        await engine.scope("ana").remember([turn(text, f"m{n}") for n, text in enumerate(said)])
        await tended(engine)
        assert isinstance(engine.ctx.llm, Scripted)
        assert {ask.user.rpartition("\n")[2] for ask in engine.ctx.llm.asked} == {said[1], said[3]}


@pytest.mark.spec("IMP-103")
async def test_no_more_than_thirty_facts_are_drawn_out_a_day(place: str) -> None:
    async with opened(place, policy="supervisor") as engine:
        ana = engine.scope("ana")
        words = [f"{a}{b}" for a in ("blue", "red", "green") for b in "abcdefghijklm"]
        await ana.remember(
            [
                turn(f"I collect {word} stamps and {word} coins.", f"m{n}")
                for n, word in enumerate(words)
            ]
        )
        await tended(engine)
        thirty = await facts(ana)
        assert len(thirty) == 30
        await ana.forget(thirty[0].id, keep_days=30)
        (id,) = (await ana.remember([turn("I own a boat.", "late")])).ids
        assert (await ana.extract(id)).dropped == ("the daily limit of 30 is reached",), (
            "what was put away since counts, too"
        )
        engine.ctx.clock = lambda: NOW + timedelta(days=1)
        (id,) = (await ana.remember([turn("I collect old maps.", "next")])).ids
        assert (await ana.extract(id)).outcomes[0].status == "created"


@pytest.mark.spec("IMP-103")
async def test_the_cap_of_a_day_holds_over_all_spaces_of_a_user(tmp_path: Path) -> None:
    async with opened(tmp_path / "m.db", policy="supervisor") as engine:
        for space in ("home", "work"):
            said = [
                f"I collect {n}{space}x coins. I own {n}{space}y stamps. I grow {n}{space}z figs."
                for n in "abcdef"
            ]
            await engine.scope("ana", space).remember(
                [turn(text, f"m{n}") for n, text in enumerate(said)]
            )
        await tended(engine)
        drawn_out = [len(await facts(engine.scope("ana", space))) for space in ("home", "work")]
        assert min(drawn_out) > 0
        assert sum(drawn_out) == 30


async def test_the_same_twice_over_a_worker_is_the_same_once(place: str) -> None:
    """Two workers were given one task; the one whose lease is over changes nothing."""
    async with opened(place) as engine:
        ana = engine.scope("ana")
        await ana.remember([turn(TOLD)])
        (old,) = await engine.ctx.store.tasks.claim(["extract"], now=NOW, limit=1, lease_seconds=0)
        (new,) = await engine.ctx.store.tasks.claim(["extract"], now=NOW, limit=1, lease_seconds=60)
        assert await extraction.run(engine.ctx, new) == 1
        with pytest.raises(RevisionConflict, match="in the meantime"):
            await extraction.run(engine.ctx, old)
        (fact,) = await facts(ana)
        assert fact.repeat_count == 0


async def test_where_memory_is_off_nothing_is_drawn(tmp_path: Path) -> None:
    async with opened(tmp_path / "m.db") as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(TOLD)])).ids
        await ana.privacy.start_incognito("s1")
        await tended(engine)
        assert await facts(ana, Filter(states=STATES, tags=(extraction.TAG,))) == []
        assert (await ana.extract(id)).by == "none"


async def test_it_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path / "m.db", extract="off") as engine:
        await engine.scope("ana").remember([turn(TOLD)])
        assert [each.name for each in await engine.backlog() if each.name == "extract"] == []


@pytest.mark.spec("CLK-42", "CLK-80", "IMP-81")
async def test_a_real_client_asks_with_the_prompt_and_gets_a_grounded_fact(
    tmp_path: Path, llm_server: Server
) -> None:
    def answer(request: Request) -> Any:
        return {
            "facts": [item(), item("The user is allergic to milk."), item("The user owns a yacht.")]
        }

    llm_server.answer = answer
    settings = {
        "llm": "openai:m",
        "llm_url": f"{llm_server.url}/v1",
        "llm_key": "k",
        "extract": "model",
    }
    async with aio.open(tmp_path / "m.db", embedder="hashing", **settings) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(TOLD)])).ids
        done = await ana.extract(id)
        assert (done.by, len(done.outcomes), len(done.dropped)) == ("model", 1, 3), (
            "the rules found the first one too"
        )
        assert [fact.text for fact in await facts(ana)] == [FACT]
    (asked,) = llm_server.requests
    assert "durable facts" in asked.system
    for rule in ("complete statement", "by itself", "third person", "without any pronoun", "neutral tone",
                 "one or two sentences", "at most 280 characters"):  # fmt: skip
        assert rule in asked.system
    assert asked.user.endswith(TOLD)
    assert (asked.body["temperature"], asked.most) == (0, 320)


async def test_one_fact_that_does_not_fit_does_not_spoil_the_others(
    tmp_path: Path, llm_server: Server
) -> None:
    llm_server.answer = lambda request: {"facts": [item("x" * 281), item(LIBRARY, LIBRARY)]}
    settings = {"llm": "openai:m", "llm_url": f"{llm_server.url}/v1", "llm_key": "k"}
    async with aio.open(
        tmp_path / "m.db", embedder="hashing", extract="model", **settings
    ) as engine:
        ana = engine.scope("ana")
        (id,) = (await ana.remember([turn(f"{TOLD} {LIBRARY}")])).ids
        done = await ana.extract(id)
        assert done.by == "model"
        assert [fact.text for fact in await facts(ana)] == [LIBRARY, FACT]
    assert len(llm_server.requests) == 1


@pytest.mark.spec("CLK-80")
async def test_the_model_that_is_configured_for_memory_draws_the_facts(
    tmp_path: Path, llm_server: Server
) -> None:
    llm_server.answer = lambda request: {"facts": [item()]}
    settings = {
        "llm": "openai:memory-1",
        "llm_url": f"{llm_server.url}/v1",
        "llm_key": "k",
        "extract": "model",
    }
    async with aio.open(tmp_path / "m.db", embedder="none", **settings) as engine:
        await engine.scope("ana").remember([turn(TOLD)])
        await engine.run_jobs(only=["extract"])
        (event,) = await engine.scope("ana").events(op="classify", node="worker")
        assert event.category == "extract by model"
    (asked,) = llm_server.requests
    assert asked.body["model"] == "memory-1"


def checks_each_turn(engine: Client) -> str:
    """Return the name of a policy that asks about every turn and checks the answer as the default one does."""
    like = engine.ctx.policies["clanker.messages"]
    assert like.extract is not None
    limits = replace(like.extract, trusts_model=False)
    engine.ctx.policies["each_turn"] = replace(like, name="each_turn", extract=limits)
    return "each_turn"


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
async def test_no_hostile_answer_leaves_a_fact_and_each_is_accounted_for(
    tmp_path: Path, every: int
) -> None:
    cases = list(hostile.cases())[::every]
    waiting: dict[str, list[Any]] = {}
    for case in cases:
        waiting.setdefault(" ".join(case.source.split()), []).append(case.answer)
    async with opened(
        tmp_path / "m.db", lambda ask: waiting[ask.user.partition("message:\n")[2]].pop()
    ) as engine:
        ana = engine.scope("ana")
        said = [turn(case.source, f"m{n}", session=f"s{n}") for n, case in enumerate(cases)]
        await ana.remember(said, policy=checks_each_turn(engine))
        given = sum(map(len, waiting.values()))
        tasks = await engine.ctx.store.tasks.claim(
            ["extract"], now=NOW, limit=len(cases), lease_seconds=600
        )
        done = [await drawn(engine, task) for task in tasks]
        asked = [each for each in done if each.by == "model" and each.dropped]
        assert len(tasks) > 0.9 * len(cases)
        assert len(asked) == given - sum(map(len, waiting.values())) > 0
        texts = {" ".join(case.source.split()) for case in cases}
        right = {
            fact.text for text in texts for fact in rules.find_facts(text, who="The user", at=NOW)
        }
        everything = Filter(states=STATES, kinds=("semantic", "procedural", "insight"))
        assert {fact.text for fact in await facts(ana, everything)} <= right, "of the rules alone"


async def drawn(engine: Client, task: Task) -> Extracted:
    policy = engine.ctx.policies[task.payload["policy"]]
    settings = engine.settings.model_copy(update={"extract": "model"})
    ctx = replace(engine.ctx, settings=settings)
    return await extraction.draw(task.payload["turns"], task.scope, ctx, policy=policy, task=task)


async def test_hostile_answers_over_a_real_client_leave_only_what_rules_find(
    tmp_path: Path, llm_server: Server
) -> None:
    cases = list(hostile.cases())[::25]
    waiting = {f"{' '.join(case.source.split())} {n}.": case.answer for n, case in enumerate(cases)}
    llm_server.answer = lambda request: waiting[
        request.user.partition("message:\n")[2].partition("\n\n")[0]
    ]
    settings = {
        "llm": "openai:m",
        "llm_url": f"{llm_server.url}/v1",
        "llm_key": "k",
        "extract": "model",
    }
    async with aio.open(tmp_path / "m.db", embedder="none", **settings) as engine:
        ana = engine.scope("ana")
        said = [turn(text, f"m{n}", session=f"s{n}") for n, text in enumerate(waiting)]
        await ana.remember(said, policy=checks_each_turn(engine))
        did = (await engine.run_jobs(only=["extract"]))["extract"]
        assert did.failed == 0
        found = {fact.text for fact in await facts(ana)}
    right = {
        fact.text for text in waiting for fact in rules.find_facts(text, who="The user", at=NOW)
    }
    assert len(llm_server.requests) > len(cases) / 2
    assert found <= right
    assert found, "an answer that cannot be used leaves the work to the rules"


def test_the_command_draws_facts_out_and_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_DB", str(tmp_path / "m.db"))
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    monkeypatch.setenv("MEMORIST_USER", "ana")
    run = CliRunner().invoke
    made = json.loads(run(app, ["remember", "I own a boat and I hate figs.", "--json"]).stdout)
    id = made["outcomes"][0]["ids"][0]
    told = run(app, ["jobs", "extract", id, "--json"])
    assert told.exit_code == 0, told.output
    done = json.loads(told.stdout)
    assert (done["by"], [each["status"] for each in done["outcomes"]]) == (
        "rules",
        ["created", "created"],
    )
    assert run(app, ["jobs", "extract", "nobody-has-this"]).exit_code == 3
