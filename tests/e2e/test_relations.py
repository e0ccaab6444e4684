"""Links between memories that are about the same, through the engine, on both stores."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

import memorist
from memorist import aio
from memorist.client import Client
from memorist.embedders import Hashing
from memorist.errors import NotFound
from memorist.ingest import links
from memorist.ingest.policies import Links
from memorist.interfaces.cli import app
from memorist.ports import Vectors
from memorist.retrieve import profiles
from memorist.scoped import ScopedClient
from memorist.storage import Relation, Save
from memorist.types import RELATED, Draft, Filter, Memory

LISBON = "Ana lives in Lisbon with her cat Miso."
TABBY = "Ana's cat Miso is an orange tabby."
BAKERY = "Ana works at a bakery in Lisbon."
OPENS = "The bakery where Ana works opens at six."
TAXES = "The tax office of Osaka closes on Sundays."


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(place, state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope(user="ana")


async def told(scope: ScopedClient, *texts: str, **fields: object) -> list[str]:
    return [(await scope.remember(text, **fields)).ids[0] for text in texts]  # type: ignore[arg-type]


async def edges(scope: ScopedClient) -> list[Relation]:
    return await scope.ctx.store.relations(scope.scope, RELATED, limit=10_000)


async def texts(scope: ScopedClient, id: str) -> list[str]:
    return [each.memory.text for each in await scope.related(id)]


# Writing


@pytest.mark.spec("IMP-15", "IMP-16")
def test_relations_are_found_quickly_from_both_ends(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "memory.db", state_dir=tmp_path, embedder="hashing"):
        file = apsw.Connection(str(tmp_path / "memory.db"), flags=apsw.SQLITE_OPEN_READONLY)
        columns = {name for _, name, *_ in file.execute("PRAGMA table_info(relations)")}
        plan = "EXPLAIN QUERY PLAN SELECT 1 FROM relations WHERE scope = 1 AND {} = 'x'"
        plans = [str(file.execute(plan.format(end)).fetchall()) for end in ("from_id", "to_id")]
        file.close()
    assert columns >= {"id", "from_id", "to_id", "relation_type", "strength", "created_at"}
    assert all("SEARCH" in each and "INDEX relations_" in each for each in plans)


@pytest.mark.spec("IMP-15", "IMP-17")
async def test_a_new_fact_is_linked_to_its_neighbours_with_their_cosine(
    engine: Client, ana: ScopedClient
) -> None:
    lisbon, _, tabby = await told(ana, LISBON, TAXES, TABBY)
    (edge,) = await edges(ana)
    assert engine.ctx.embedder is not None
    a, b = await engine.ctx.embedder.encode_batch([LISBON, TABBY])
    assert (edge.from_id, edge.to_id, edge.type) == (tabby, lisbon, "related_to")
    assert edge.strength == pytest.approx(float(a @ b), abs=1e-4)
    assert edge.strength >= Links().least


@pytest.mark.spec("IMP-18")
async def test_facts_told_in_one_call_are_linked_as_well(ana: ScopedClient) -> None:
    ids = (await ana.remember_drafts([Draft(text=text) for text in (LISBON, TABBY, TAXES)])).ids
    (edge,) = await edges(ana)
    assert {edge.from_id, edge.to_id} == set(ids[:2])


@pytest.mark.spec("IMP-17")
async def test_a_fact_is_linked_to_the_nearest_few_and_no_others(ana: ScopedClient) -> None:
    rooms = [f"Ana's cat Miso is an orange tabby, and room {name} is hers." for name in "ABCDEFGH"]
    await told(ana, *rooms, TABBY)
    newest = (await ana.list(limit=1)).memories[0]
    own = [edge for edge in await edges(ana) if edge.from_id == newest.id]
    assert len(own) == Links().most == 5


class Alike(Hashing):
    """A model to which all texts mean the same."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        return await super().encode_batch(["the same"] * len(texts))


async def test_of_many_that_are_equally_near_the_oldest_are_not_linked(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, embedder="hashing") as engine:
        ana = Client(replace(engine.ctx, embedder=Alike())).scope(user="ana")
        rooms = [f"Room {number} is for guests." for number in range(100, 113)]
        ids = await told(ana, *rooms, kind="semantic")
        newest = [edge.to_id for edge in await edges(ana) if edge.from_id == ids[-1]]
    assert len(newest) == Links().most == 5
    assert ids[0] not in newest


@pytest.mark.spec("IMP-17", "IMP-76")
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_the_nearest_fact_comes_first_in_the_history_and_the_event(ana: ScopedClient) -> None:
    nearest, near, newest = await told(ana, "Miso is an orange tabby cat.", LISBON, TABBY)
    linked, _ = await ana.history(newest)
    (event,) = [each for each in await ana.events(op="link") if each.memory_id == newest]
    assert list(linked.meta["links"]) == [nearest, near]
    assert linked.new_ref == nearest
    assert event.sim == linked.meta["links"][nearest] > linked.meta["links"][near]


@pytest.mark.spec("IMP-17")
@pytest.mark.parametrize("policy", ["default", "supervisor"])
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_facts_are_linked_from_a_cosine_of_0_60_on(ana: ScopedClient, policy: str) -> None:
    near = ("I wear glasses for reading", "My glasses lie on the shelf")  # 0.63
    not_near_enough = ("I take the train to work", "The train is often late")  # 0.58
    older, newer, *_ = await told(ana, *near, *not_near_enough, kind="semantic", policy=policy)
    assert [(edge.from_id, edge.to_id) for edge in await edges(ana)] == [(newer, older)]


@pytest.mark.spec("IMP-17", "IMP-18", "IMP-22")
async def test_whatever_is_written_there_is_one_edge_for_two_memories(ana: ScopedClient) -> None:
    ids = await told(ana, LISBON, TABBY)
    await ana.remember_drafts([Draft(text=BAKERY), Draft(text=OPENS)])
    for text in (LISBON, BAKERY, TABBY, OPENS):
        await ana.remember(text)
    await ana.edit(ids[0], "Ana lives in Lisbon with Miso, her cat, near the bakery.")
    await ana.edit(ids[0], LISBON)
    pairs = [frozenset((edge.from_id, edge.to_id)) for edge in await edges(ana)]
    assert len(pairs) == len(set(pairs)) > 0
    assert all(len(pair) == 2 for pair in pairs), "nothing is related to itself"


@pytest.mark.spec("IMP-17")
async def test_a_corrected_fact_is_linked_by_its_new_words(ana: ScopedClient) -> None:
    lisbon, tabby, taxes = await told(ana, LISBON, TABBY, TAXES)
    await ana.edit(tabby, "On Sundays the tax office of Osaka is closed.")
    assert await texts(ana, tabby) == [TAXES]
    assert await texts(ana, lisbon) == []
    assert await texts(ana, taxes) == ["On Sundays the tax office of Osaka is closed."]


@pytest.mark.spec("IMP-76")
async def test_links_stand_in_the_history_beside_the_write_that_made_them(
    engine: Client, ana: ScopedClient
) -> None:
    lisbon, taxes, tabby = await told(ana, LISBON, TAXES, TABBY)
    linked, added = await ana.history(tabby)
    assert (linked.event, linked.new_ref, added.event) == ("LINK", lisbon, "ADD")
    assert linked.meta["operation"] == added.meta["operation"]
    assert list(linked.meta["links"]) == [lisbon]
    assert [entry.event for entry in await ana.history(taxes)] == ["ADD"], "it is linked to nothing"
    assert [(line.node, line.memory_id) for line in await ana.events(op="link")] == [
        ("hotpath", tabby)
    ]
    assert [memory.id for memory in (await ana.undo(linked.meta["operation"])).memories] == [tabby]
    assert await texts(ana, lisbon) == []
    assert await engine.check() == []


async def test_the_turns_of_a_conversation_make_no_links(ana: ScopedClient) -> None:
    said = [{"role": "user", "content": text, "session": "s"} for text in (LISBON, TABBY, BAKERY)]
    await ana.remember(said)
    assert await edges(ana) == []


async def test_a_policy_without_links_makes_none(ana: ScopedClient) -> None:
    await told(ana, LISBON, TABBY, policy="milton", kind="semantic")
    assert await edges(ana) == []


@pytest.mark.slow
@pytest.mark.spec("IMP-21")
async def test_an_edge_takes_less_than_two_milliseconds(engine: Client, ana: ScopedClient) -> None:
    drafts = [
        Draft(text=f"The orange cat number {n} sleeps in room {n * 7}.", kind="semantic")
        for n in range(500)
    ]
    off = replace(engine.ctx.policies["milton"], name="test.plain")
    engine.ctx.policies[off.name] = off
    ids = (await ana.remember_drafts(drafts, policy=off.name)).ids
    new = await engine.ctx.store.get(ana.scope, ids[-50:])
    assert engine.ctx.embedder is not None
    vectors = await engine.ctx.embedder.encode_batch([memory.text for memory in new])
    puts = [
        Save(memory=memory, event="created", vector=v)
        for memory, v in zip(new, vectors, strict=True)
    ]
    async with engine.ctx.store.transaction(ana.scope) as tx:
        snapshot = await engine.ctx.index.current(ana.scope, tx)
        start = time.process_time()
        await links.link(tx, snapshot, puts, Links(), engine.ctx.clock())
        spent = time.process_time() - start
    made = len(await edges(ana))
    assert made >= 50
    assert spent / made <= 0.002, f"{1000 * spent / made:.2f} ms"


@pytest.mark.spec("IMP-21")
async def test_an_edge_takes_less_than_two_milliseconds_in_a_small_memory(tmp_path: Path) -> None:
    drafts = [
        Draft(text=f"The orange cat number {n} sleeps in room {n * 7}.", kind="semantic")
        for n in range(40)
    ]
    async with aio.open(tmp_path / "small.db", state_dir=tmp_path, embedder="hashing") as small:
        scope, spent = small.scope("ana"), []
        ids = (await scope.remember_drafts(drafts, policy="milton")).ids
        new = await small.ctx.store.get(scope.scope, ids[-10:])
        assert small.ctx.embedder is not None
        vectors = await small.ctx.embedder.encode_batch([memory.text for memory in new])
        puts = [
            Save(memory=memory, event="created", vector=v)
            for memory, v in zip(new, vectors, strict=True)
        ]
        for _ in range(5):
            async with small.ctx.store.transaction(scope.scope) as tx:
                snapshot = await small.ctx.index.current(scope.scope, tx)
                start = time.process_time()
                await links.link(tx, snapshot, puts, Links(), small.ctx.clock())
                spent.append(time.process_time() - start)
        made = len(await edges(scope))
    assert made >= 30
    assert min(spent) / made <= 0.002, f"{1000 * min(spent) / made:.2f} ms"


# Reading


@pytest.mark.spec("IMP-19")
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_bullets_weigh_meaning_importance_age_pin_and_the_strongest_link(
    engine: Client, ana: ScopedClient
) -> None:
    question = "where is Miso?"
    (lisbon,) = await told(ana, LISBON, importance=0.6, pinned=True)
    await told(ana, TABBY, BAKERY)
    strengths = [edge.strength for edge in await edges(ana) if lisbon in (edge.from_id, edge.to_id)]
    assert len(set(strengths)) == 2
    assert engine.ctx.embedder is not None
    asked, vector = await engine.ctx.embedder.encode_batch([question, LISBON])
    (hit,) = [
        hit for hit in await ana.recall(question, profile="imp.bullets") if hit.memory.id == lisbon
    ]
    level = 0.20 * hit.memory.importance_level / 5
    assert hit.parts == pytest.approx(
        {
            "semantic": 0.55 * float(asked @ vector),
            "level": level,
            "recency": 0.15,
            "pinned": 0.10,
            "related": 0.05 * max(strengths),
        },
        abs=1e-3,
    )
    assert hit.parts["related"] == pytest.approx(0.05 * max(strengths), abs=1e-6)


@pytest.mark.spec("IMP-19")
async def test_the_nearest_link_of_a_memory_raises_its_score(ana: ScopedClient) -> None:
    lisbon, tabby, taxes = await told(ana, LISBON, TABBY, TAXES)
    (edge,) = await edges(ana)
    hits = {hit.memory.id: hit for hit in await ana.recall("where is Miso?", profile="imp.bullets")}
    for id in (lisbon, tabby):
        assert hits[id].parts["related"] == pytest.approx(0.05 * edge.strength, abs=1e-6)
        assert hits[id].score == pytest.approx(sum(hits[id].parts.values()))
    assert "related" not in hits[taxes].parts
    stands = await ana.why_not("where is Miso?", lisbon, profile="imp.bullets")
    assert stands.parts["related"] == pytest.approx(0.05 * edge.strength, abs=1e-6)


@pytest.mark.spec("IMP-20", "IMP-23")
async def test_related_bullets_come_along(ana: ScopedClient) -> None:
    await told(ana, LISBON, TABBY, BAKERY, OPENS, TAXES)
    found = await ana.recall("which colour has the tabby?", profile="imp.bullets", limit=1)
    assert [memory.text for memory in found.memories] == [TABBY]
    assert [memory.text for memory in found.related] == [LISBON]
    assert found.text == f"- [fact] {TABBY}\n- [fact] {LISBON} (related)"
    wide = await ana.recall("where does Ana live?", profile="imp.bullets", limit=1)
    assert 1 <= len(wide.related) <= 2


@pytest.mark.spec("IMP-20")
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_two_of_many_related_memories_come_along(ana: ScopedClient) -> None:
    await told(
        ana, *(f"Ana's cat Miso is an orange tabby, and room {name} is hers." for name in "ABCDE")
    )
    found = await ana.recall("which color has the tabby?", profile="imp.bullets", limit=1)
    assert (len(found.memories), len(found.related)) == (1, 2)
    assert found.text.count("(related)") == 2


@pytest.mark.spec("IMP-20")
async def test_related_bullets_stay_within_the_budget_and_the_filter(
    engine: Client, ana: ScopedClient
) -> None:
    await told(ana, LISBON, category="profile")
    await told(ana, TABBY, category="event")
    question = "which colour has the tabby?"
    one = await ana.recall(
        question, profile="imp.bullets", limit=1, where=Filter(categories=("event",))
    )
    assert (len(one.hits), one.related) == (1, ())
    alone = engine.ctx.count_tokens(one.text)
    tight = await ana.recall(question, profile="imp.bullets", limit=1, budget=alone)
    assert (tight.text, tight.related) == (one.text, ())
    assert (
        await ana.recall(question, profile="imp.bullets", limit=1, budget=2 * alone + 10)
    ).related


async def test_the_default_ranking_takes_no_notice_of_links(ana: ScopedClient) -> None:
    await told(ana, LISBON, TABBY)
    found = await ana.recall("where is Miso?")
    assert found.related == ()
    assert all("related" not in hit.parts for hit in found)
    assert "related" not in profiles.DEFAULT.weights


# related(id)


async def test_what_is_about_the_same_can_be_asked_for_nearest_first(ana: ScopedClient) -> None:
    ids = await told(ana, LISBON, TABBY, BAKERY)
    found = await ana.related(ids[0])
    assert [each.memory.text for each in found] == [TABBY, BAKERY]
    assert found[0].strength > found[1].strength >= Links().least
    assert len(await ana.related(ids[0], limit=1)) == 1
    with pytest.raises(NotFound):
        await ana.related("nothing")


async def test_what_was_forgotten_hidden_or_superseded_is_related_to_nothing(
    ana: ScopedClient,
) -> None:
    lisbon, tabby, bakery = await told(ana, LISBON, TABBY, BAKERY)
    await ana.forget(tabby)
    await ana.forget(bakery, keep_days=3)
    assert await texts(ana, lisbon) == []
    assert all(tabby not in (edge.from_id, edge.to_id) for edge in await edges(ana))
    await ana.restore(bakery)
    assert await texts(ana, lisbon) == [BAKERY]


async def test_links_stay_within_the_wall(engine: Client, ana: ScopedClient) -> None:
    bo = engine.scope(user="bo")
    (lisbon,) = await told(ana, LISBON)
    (tabby,) = await told(bo, TABBY)
    assert (await ana.related(lisbon), await bo.related(tabby)) == ([], [])
    with pytest.raises(NotFound):
        await bo.related(lisbon)
    assert await engine.ctx.store.links(bo.scope, [lisbon, tabby]) == []


async def test_without_a_model_nothing_is_linked_and_nothing_fails(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "plain.db", state_dir=tmp_path, embedder="none") as plain:
        ids = await told(plain.scope(user="ana"), LISBON, TABBY)
        assert await plain.scope(user="ana").related(ids[0]) == []


def test_the_blocking_door_and_the_command_line_ask_the_same(tmp_path: Path) -> None:
    place = str(tmp_path / "memory.db")
    with memorist.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        lisbon, tabby = (ana.remember(text).ids[0] for text in (LISBON, TABBY))
        (found,) = ana.related(lisbon)
        assert isinstance(found.memory, Memory)
    words = ["related", lisbon, "--db", place, "--user", "ana"]
    assert tabby[-8:] in CliRunner().invoke(app, words).stdout
    shown = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (shown["memory"]["id"], shown["strength"]) == (tabby, pytest.approx(found.strength))
    assert (
        CliRunner().invoke(app, ["related", "nothing", "--db", place, "--user", "ana"]).exit_code
        == 3
    )
