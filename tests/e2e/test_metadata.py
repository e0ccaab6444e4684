"""What is known about a memory beside its words: tags, fingerprint, and that a vector is still to be made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import apsw
import psycopg
import pytest

from memorist import aio
from memorist.client import Client
from memorist.scoped import ScopedClient
from memorist.storage import Save
from memorist.text.normalize import simhash64
from memorist.types import Memory

BACK = "My physiotherapist wants me to stretch my back every morning."
STRETCHES = "The physiotherapist showed me three stretches for my back."
NOTES = "Theo keeps the notes of the research group in the shared folder."


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


async def told(scope: ScopedClient, text: str, *tags: str, policy: str | None = None) -> Memory:
    (id,) = (await scope.remember(text, tags=tags, policy=policy)).ids
    return await scope.get(id)


@pytest.mark.spec("THE-74", "THE-77")
async def test_names_and_topics_are_found_with_a_confidence(ana: ScopedClient) -> None:
    memory = await told(ana, "Anna Weber from ACME showed us the observatory.")
    assert memory.tags == ("anna weber", "acme", "observatory")
    assert memory.metadata_confidence == pytest.approx((0.9 + 0.7 + 0.4) / 3)


@pytest.mark.spec("THE-75", "THE-77")
async def test_a_near_memory_proposes_the_tags_it_was_given(ana: ScopedClient) -> None:
    back = await told(ana, BACK, "health")
    memory = await told(ana, STRETCHES)
    assert memory.tags == ("physiotherapist", "stretches", "health")
    assert 0.4 < memory.metadata_confidence < 0.6, (
        "the mean of two topics and of how near the neighbour is"
    )
    assert {hit.memory.id for hit in await ana.recall("health", limit=2)} == {back.id, memory.id}


@pytest.mark.spec("THE-75")
async def test_a_near_memory_proposes_tags_under_the_theoria_policy_too(
    engine: Client, ana: ScopedClient
) -> None:
    await told(ana, BACK, "health", policy="theoria")
    await engine.index()
    memory = await told(ana, STRETCHES, policy="theoria")
    await engine.index()
    assert "health" in (await ana.get(memory.id)).tags


@pytest.mark.spec("THE-74", "THE-77")
async def test_names_and_topics_are_found_in_a_conversation(engine: Client) -> None:
    chat = engine.scope("ana", session="chat-1")
    said = "Anna Weber from ACME showed us the observatory."
    (id,) = (await chat.remember([{"content": said}], policy="theoria")).ids
    await engine.run_jobs()
    memory = await chat.get(id)
    assert memory.tags == ("anna weber", "acme", "observatory")
    assert memory.metadata_confidence == pytest.approx((0.9 + 0.7 + 0.4) / 3)


@pytest.mark.spec("THE-75")
async def test_what_a_neighbour_says_stays_with_the_neighbour(ana: ScopedClient) -> None:
    await told(ana, "Anna Weber likes green tea in the afternoon.", "people")
    memory = await told(ana, "Bob Stone likes green tea in the morning.")
    assert "anna weber" not in memory.tags
    await told(ana, "The train to Porto leaves at noon.", "travel")
    assert "travel" not in (await told(ana, STRETCHES)).tags, "it is about something else"


async def test_a_mark_of_one_memory_is_not_handed_on(engine: Client, ana: ScopedClient) -> None:
    back = await told(ana, BACK, "health")
    async with engine.ctx.store.transaction(ana.scope) as tx:
        marked = replace(back, tags=(*back.tags, "source-forgotten", "do_not_assume"))
        await tx.apply([Save(memory=marked, event="updated")])
    assert (await told(ana, STRETCHES)).tags == ("physiotherapist", "stretches", "health")


async def test_tags_come_from_no_other_scope_speaker_or_policy(
    engine: Client, ana: ScopedClient
) -> None:
    for other in (
        engine.scope("bo"),
        engine.scope("ana", space="work"),
        engine.scope("ana", tenant="acme"),
    ):
        await told(other, BACK, "health")
    await ana.remember({"content": BACK, "role": "tool", "name": "calendar"}, tags=["advert"])
    await told(ana, BACK, "blocker", policy="milton")
    assert (await told(ana, STRETCHES)).tags == ("physiotherapist", "stretches")
    assert (
        await told(ana, "The physio showed me three stretches for the back.", policy="milton")
    ).tags == ()


@pytest.mark.spec("THE-75")
async def test_most_of_the_neighbours_have_to_agree_and_few_tags_are_taken(
    ana: ScopedClient,
) -> None:
    await told(ana, BACK, "a1", "b2", "c3", "d4")
    first = await told(ana, STRETCHES)
    assert first.tags == ("physiotherapist", "stretches", "a1", "b2", "c3"), "three at most"
    second = await told(ana, "The physiotherapist showed me how to stretch my back each morning.")
    for each in (first, second):
        await ana.edit(each.id, tags=["health"])
    third = await told(ana, "My physiotherapist says I should stretch my back daily.")
    assert third.tags == ("physiotherapist", "stretch", "health"), "two of three say so"


@pytest.mark.spec("THE-22", "THE-23")
async def test_an_older_store_gets_its_fingerprints_and_missing_vectors(
    place: str, tmp_path: Path
) -> None:
    options = {"embedder": "hashing", "state_dir": tmp_path}
    async with aio.open(place, **options) as engine:
        ana = engine.scope("ana")
        bare = replace(await told(ana, NOTES), id="019a3c5e-7ddf-7926-adf6-688e0fc76dd8", simhash=0)
        said = bare.content_hash
        whole = await told(ana, "I prefer green tea.")
        async with engine.ctx.store.transaction(ana.scope) as tx:
            await tx.apply(
                [
                    Save(
                        memory=replace(bare, content_hash="", needs_embedding=False),
                        event="created",
                    )
                ]
            )
    made_by_an_older_version(place)
    async with aio.open(place, **options) as engine:
        ana = engine.scope("ana")
        mended = await ana.get(bare.id)
        assert (mended.simhash, mended.needs_embedding) == (simhash64(NOTES), True)
        assert mended == replace(
            bare, simhash=mended.simhash, content_hash=said, needs_embedding=True
        )
        assert await ana.get(whole.id) == whole
        assert (await engine.index()).embedded == 1
        assert not (await ana.get(bare.id)).needs_embedding
        assert await engine.check() == []


@pytest.mark.spec("THE-22", "THE-23")
async def test_a_store_of_more_than_a_page_is_mended_to_its_end(tmp_path: Path) -> None:
    place, options = str(tmp_path / "many.db"), {"embedder": "none", "state_dir": tmp_path}
    async with aio.open(place, **options) as engine:
        ana = engine.scope("ana")
        bare = replace(await told(ana, NOTES), simhash=0, needs_embedding=False)
        many = [
            Save(memory=replace(bare, id=f"{bare.id[:-3]}{n:03}"), event=None) for n in range(501)
        ]
        async with engine.ctx.store.transaction(ana.scope) as tx:
            await tx.apply(many)
    made_by_an_older_version(place)
    async with aio.open(place, **options) as engine:
        last = await engine.scope("ana").get(many[-1].memory.id)
    assert (last.simhash, last.needs_embedding) == (simhash64(NOTES), True)


@pytest.mark.spec("THE-22", "THE-23")
async def test_records_without_fingerprint_and_vector_get_both_when_they_are_imported(
    place: str, tmp_path: Path
) -> None:
    async with aio.open(place, embedder="hashing", state_dir=tmp_path) as engine:
        ana, bo = engine.scope("ana"), engine.scope("bo")
        await told(ana, NOTES)
        records = [record async for record in ana.export() if record["record_type"] == "memory"]
        for record in records:
            record["data"].pop("simhash")
            record["data"] |= {"scope": {"tenant": "default", "user": "bo", "space": "default"}}
        engine.ctx.embedder = None
        (id,) = (await bo.import_(records)).ids
        memory = await bo.get(id)
        assert (memory.simhash, memory.needs_embedding) == (simhash64(NOTES), True)


def made_by_an_older_version(place: str) -> None:
    older = "UPDATE {}meta SET value = '1:english' WHERE key = 'analysis'"
    if "://" in place:
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(older.format("memorist.").encode())
        return
    connection = apsw.Connection(place)
    connection.execute(older.format(""))
    connection.close()
