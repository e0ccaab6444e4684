"""Milton's short-term items become long-term records, and stay behind them as evidence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.dialects.milton import Hooks, Milton
from memorist.errors import InvalidInput
from memorist.types import Filter

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(hours=48)


@pytest.fixture
async def engine(place: str) -> AsyncIterator[Client]:
    async with aio.open(place, embedder="hashing") as engine:
        engine.ctx.clock = lambda: NOW
        yield engine


@pytest.fixture
def milton(engine: Client) -> Milton:
    return Milton(engine.scope("ana"))


async def stored(
    milton: Milton, content: str, type: str, *tags: str, ts: datetime = OLD - timedelta(seconds=1)
) -> str:
    return await milton.add(content=content, type=type, tags=list(tags), ts=ts)


@pytest.mark.spec("MIL-44", "MIL-45", "MIL-48")
async def test_items_older_than_two_days_leave_the_short_term_memory_and_younger_ones_stay(
    milton: Milton,
) -> None:
    await stored(milton, "I prefer tea.", "preference")
    await stored(milton, "I prefer jazz.", "preference", ts=OLD)
    assert await milton.compress_short_to_long() == {"compressed": 1, "projects": 0, "profile": 1}
    assert [item.content for item in await milton.query_recent(10_000)] == ["I prefer jazz."]
    assert [item.content for item in await milton.query_relevant("I prefer tea")] == [
        "I prefer jazz."
    ]
    assert await milton.compress_short_to_long() == {"compressed": 0, "projects": 0, "profile": 0}
    assert await milton.compress_short_to_long(cutoff_hours=1) == {
        "compressed": 1,
        "projects": 0,
        "profile": 1,
    }


@pytest.mark.spec("MIL-48")
async def test_an_item_of_any_type_leaves_the_short_term_memory(milton: Milton) -> None:
    for type in ("fact", "preference", "project", "decision", "crumb", "request", "result"):
        await stored(milton, f"The build of a {type} is green.", type)
    assert (await milton.compress_short_to_long())["compressed"] == 7
    assert await milton.query_recent(10_000) == []
    assert await milton.query_relevant("build") == []


@pytest.mark.spec("MIL-46", "MIL-50")
async def test_what_belongs_to_no_project_goes_into_the_profile_with_its_evidence(
    engine: Client, milton: Milton
) -> None:
    ids = [
        await stored(milton, "I prefer tea.", "preference"),
        await stored(milton, "I live in Porto.", "fact"),
        await stored(milton, "We rent, we do not buy.", "decision"),
        await stored(milton, "Nobody is vegan.", "fact", "do_not_assume"),
    ]
    await stored(milton, "Looked at the weather.", "crumb")
    await stored(milton, "Book a table.", "request")
    done = await milton.compress_short_to_long()
    assert done == {"compressed": 6, "projects": 0, "profile": 1}
    profile = await milton.user_profile()
    assert profile.preferences == ("I prefer tea.",)
    assert profile.stable_facts == ("I live in Porto.", "We rent, we do not buy.")
    assert profile.do_not_assume == ("Nobody is vegan.",)
    assert sorted(profile.evidence_ids) == sorted(ids)
    archived = (await engine.scope("ana").list(Filter(states=("archived",)))).memories
    assert len(archived) == 6, "nothing is lost, not even a crumb"
    assert (await engine.scope("ana").restore(archived[0].id)).is_active


@pytest.mark.spec("MIL-47", "MIL-51")
async def test_what_belongs_to_a_project_goes_into_its_record(milton: Milton) -> None:
    ids = [
        await stored(milton, "Atlas ships in May.", "project", "project:Atlas"),
        await stored(milton, "The API key is missing.", "fact", "project:atlas", "blocker"),
        await stored(milton, "Write the tests.", "request", "project:atlas", "next_step"),
        await stored(milton, "Be fast.", "fact", "project:atlas", "goal"),
        await stored(milton, "The build passed.", "result", "project:atlas"),
        await stored(milton, "Ask for a key.", "project", "project:atlas", "next_step"),
        await stored(milton, "Call the vendor.", "project", "project:atlas", "next"),
    ]
    await stored(milton, "Paint the hull.", "request", "project:boat")
    assert await milton.compress_short_to_long() == {"compressed": 8, "projects": 2, "profile": 0}
    atlas = await milton.project_memory("Atlas")
    assert atlas.goals == ("Atlas ships in May.", "Be fast.")
    assert atlas.blockers == ("The API key is missing.",)
    assert atlas.next_steps == (
        "Write the tests.",
        "The build passed.",
        "Ask for a key.",
        "Call the vendor.",
    )
    assert sorted(atlas.evidence_ids) == sorted(ids)
    assert (await milton.project_memory("boat")).next_steps == ("Paint the hull.",)
    assert (await milton.user_profile()).stable_facts == ()


async def test_a_later_run_adds_to_what_is_there(milton: Milton) -> None:
    await stored(milton, "I prefer tea.", "preference", ts=OLD - timedelta(days=1))
    await milton.compress_short_to_long()
    await stored(milton, "I prefer jazz.", "preference")
    await milton.compress_short_to_long()
    profile = await milton.user_profile()
    assert profile.preferences == ("I prefer tea.", "I prefer jazz.")
    assert len(profile.evidence_ids) == 2


async def test_what_somebody_else_said_and_what_is_pinned_is_no_profile(
    engine: Client, milton: Milton
) -> None:
    ana = engine.scope("ana")
    await ana.remember(
        {"role": "user", "name": "Bo", "content": "I prefer rum."},
        policy="milton",
        at=OLD.isoformat(),
    )
    (pinned,) = (
        await ana.remember("I prefer tea.", policy="milton", pinned=True, at=OLD.isoformat())
    ).ids
    assert (await milton.compress_short_to_long(1))["profile"] == 0
    assert (await milton.user_profile()).preferences == ()
    assert (await ana.get(pinned)).is_active


async def test_what_is_forgotten_goes_from_the_records_too(engine: Client, milton: Milton) -> None:
    await stored(milton, "I prefer tea.", "preference")
    await stored(milton, "I prefer absinthe.", "preference")
    await milton.compress_short_to_long()
    ana = engine.scope("ana")
    (gone,) = [
        m for m in (await ana.list(Filter(states=("archived",)))).memories if "absinthe" in m.text
    ]
    await ana.forget(gone.id)
    assert (await milton.user_profile()).preferences == ("I prefer tea.",)


@pytest.mark.spec("MIL-48")
async def test_the_literal_reading_deletes_the_items(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", embedder="hashing") as engine:
        engine.ctx.clock = lambda: NOW
        milton = Milton(engine.scope("ana"))
        await stored(milton, "Looked at the Quuxnebel.", "crumb")
        await stored(milton, "I prefer tea.", "preference")
        await milton.compress_short_to_long(hard_delete=True)
        states = ("active", "archived", "soft_deleted", "superseded", "compressed")
        assert (await engine.scope("ana").list(Filter(states=states))).memories == ()
        assert (await milton.user_profile()).preferences == ("I prefer tea.",)
    assert b"Quuxnebel" not in _bytes(tmp_path)


def _bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_hours_are_a_number_and_not_negative(milton: Milton) -> None:
    for wrong in (-1, float("nan"), "48", True):
        with pytest.raises(InvalidInput, match="cutoff_hours"):
            await milton.compress_short_to_long(wrong)  # type: ignore[arg-type]


@pytest.mark.spec("MIL-44", "MIL-45", "MIL-46", "MIL-48")
async def test_under_its_policy_a_job_moves_items_older_than_two_days_every_day(
    place: str,
) -> None:
    clock = Clock(NOW)
    async with aio.open(place, embedder="hashing", policy="milton") as engine:
        engine.ctx.clock = clock
        ana = engine.scope("ana", session="s1")
        await ana.remember("I prefer tea.", item_type="preference")
        await Hooks(ana).after("Hello there!")
        milton = Milton(engine.scope("ana"))
        for hours, left in ((0, 2), (24, 2), (48, 2), (72, 0)):
            clock.now = NOW + timedelta(hours=hours)
            await engine.run_jobs()
            assert len(await milton.query_recent(10_000)) == left, hours
        profile = await milton.user_profile()
        assert profile.preferences == ("I prefer tea.",)
        assert len(profile.evidence_ids) == 1
        assert len(await ana.list(Filter(states=("archived",)))) == 2


@pytest.mark.spec("MIL-44", "MIL-45")
async def test_what_the_dialect_stored_is_moved_after_two_days_without_any_setting(
    place: str,
) -> None:
    clock = Clock(NOW)
    async with aio.open(place, embedder="hashing") as engine:
        engine.ctx.clock = clock
        milton = Milton(engine.scope("ana"))
        await milton.add(content="I prefer tea.", type="preference")
        await engine.scope("ben").remember("I prefer jazz.")
        for hours, left in ((0, 1), (24, 1), (48, 1), (72, 0)):
            clock.now = NOW + timedelta(hours=hours)
            report = await engine.run_jobs()
            assert report["promote"].runs == 1, "only in the scope that the dialect wrote to"
            assert len(await milton.query_recent(10_000)) == left, hours
        assert (await milton.user_profile()).preferences == ("I prefer tea.",)
        assert len(await engine.scope("ben").list()) == 1


async def test_under_another_policy_no_job_moves_items(place: str) -> None:
    clock = Clock(NOW)
    async with aio.open(place, embedder="hashing") as engine:
        engine.ctx.clock = clock
        await engine.scope("ana").remember("I prefer tea.", item_type="preference")
        clock.now += timedelta(days=9)
        assert "promote" not in (await engine.run_jobs()).jobs
        assert len(await engine.scope("ana").list()) == 1
