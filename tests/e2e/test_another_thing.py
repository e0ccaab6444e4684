"""Statements that share words with an older one, and words of a change, but leave it true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist import aio
from memorist.scoped import ScopedClient


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, run_jobs=False) as client:
        yield client.scope("ana")


async def tell(ana: ScopedClient, *said: str) -> set[str]:
    """Store each text as a turn of a session and a month of its own; return what is still true."""
    for month, text in enumerate(said, 1):
        turn = {
            "role": "user",
            "content": text,
            "session": f"s{month}",
            "at": f"2026-{month:02}-03",
        }
        await ana.remember([turn])
    return {each.text for each in await ana.list() if each.valid_to is None}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I'm a clerk at Dunmore Glass", "Dunmore Glass moved its summer party to July"),
        ("I sing in a gospel choir", "the gospel choir needs a new pianist, the old one retired"),
        ("my aunt keeps goats", "my aunt's goats broke the fence again"),
        ("I take 5 mg of bisoprolol", "grandpa's bisoprolol went up to 10"),
        ("I have a meeting with Priya at 2", "the meeting with Omar moved to 4"),
        ("Our bakery is in Ghent", "our new apprentice moved to Ghent"),
        ("The shop runs Magento 2", "staging moved to Magento 3"),
        ("Ma sœur étudie à Lille", "ma sœur a reporté son examen à Lille"),
        ("Trabajo en Correos", "Correos ha cambiado de logotipo"),
        ("Mein Vater hat ein Boot", "Papas Boot hat einen neuen Motor"),
    ],
)
async def test_a_change_of_another_thing_ends_nothing(
    ana: ScopedClient, old: str, new: str
) -> None:
    assert await tell(ana, old, new) == {old, new}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I drink a beer after work", "no beer for me tonight, I'm driving"),
        ("We bake on Sundays", "no baking this Sunday, the oven is off"),
        ("I vape", "I stopped vaping in the car"),
        ("I get up at six", "woke up at ten today, bliss"),
        ("I swim 2 km every Friday", "swam 2 km today in 40 minutes"),
        ("I walk to school", "I take the tram to school now and then"),
        ("Ich trinke morgens Kaffee", "heute keinen Kaffee für mich"),
    ],
)
async def test_an_exception_or_an_event_ends_nothing(ana: ScopedClient, old: str, new: str) -> None:
    assert await tell(ana, old, new) == {old, new}


async def test_things_that_are_told_apart_by_a_number_are_not_the_same(ana: ScopedClient) -> None:
    buses = [f"Bus {number} goes to Ghent." for number in (3, 4, 5)]
    assert await tell(ana, *buses) == set(buses)
    found = {hit.memory.text for hit in await ana.recall("Which buses go to Ghent?")}
    assert len(found & set(buses)) >= 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I'm a clerk at Dunmore Glass", "I left Dunmore Glass last Friday"),
        ("I sing in a gospel choir", "I quit the gospel choir"),
        ("I take 5 mg of bisoprolol", "the doctor put me up to 10 mg of bisoprolol"),
        ("We bake on Sundays", "we bake on Saturdays now"),
        ("I vape", "I stopped vaping"),
        ("Our shop is in Delft", "our shop moved to Leiden"),
        ("I have a meeting with Priya at 2", "the meeting with Priya moved to 4"),
    ],
)
async def test_a_change_of_the_same_thing_ends_it(ana: ScopedClient, old: str, new: str) -> None:
    assert await tell(ana, old, new) == {new}


async def test_a_new_job_ends_the_old_one_and_not_what_else_was_said_of_the_employer(
    ana: ScopedClient,
) -> None:
    party = "Dunmore Glass moved its party to July"
    new = "I left Dunmore Glass last Friday, first week at Orval Labs now"
    assert await tell(ana, "I work at Dunmore Glass", party, new) == {party, new}
    assert (await ana.recall("Where do I work?")).hits[0].memory.text == new
