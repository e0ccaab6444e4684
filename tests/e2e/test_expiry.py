"""Time limits: what is put away when nobody uses it, what is erased after that, and what has no limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import memorist
from clocks import Clock
from memorist.errors import InvalidInput, Misconfigured, NotFound
from memorist.jobs.expire import Purged
from memorist.storage import Save
from memorist.sync import Blocking, BlockingScope
from memorist.types import Filter

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
TEA, BOAT = "The green tea stands on the shelf.", "Maren's boat is called Petrel."


def opened(place: str, clock: Clock, **settings: Any) -> Blocking:
    memory = memorist.open(place, embedder="hashing", policy="theoria", **settings)
    memory._inner.ctx.clock = clock
    return memory


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def memory(place: str, clock: Clock) -> Iterator[Blocking]:
    with opened(place, clock) as made:
        yield made


@pytest.fixture
def ana(memory: Blocking) -> BlockingScope:
    return memory.scope("ana", thread="t")


def told(ana: BlockingScope, text: str = TEA, importance: float = 0.4, **more: Any) -> str:
    return ana.remember(text, importance=importance, **more).ids[0]


@pytest.mark.spec("IMP-69", "IMP-70")
def test_what_nobody_used_for_sixty_days_is_put_away_for_thirty(
    ana: BlockingScope, clock: Clock
) -> None:
    id = told(ana)
    clock.now = NOW + 60 * DAY - SECOND
    assert ana.purge() == Purged()
    clock.now = NOW + 60 * DAY + SECOND
    assert ana.purge().expired == (id,)
    away = ana.get(id)
    assert (away.state, away.purge_at) == ("soft_deleted", clock.now + 30 * DAY)
    assert list(ana.list()) == []
    assert [line.event for line in ana.history(id)] == ["TTL", "ADD"]
    assert [(line.node, line.op) for line in ana.events(op="ttl")] == [("worker", "ttl")]


@pytest.mark.spec("IMP-70", "IMP-73")
def test_what_was_put_away_is_in_no_context(ana: BlockingScope, clock: Clock) -> None:
    told(ana)
    assert TEA in ana.recall("Where is the green tea?").text
    clock.now = NOW + 61 * DAY
    ana.purge()
    for more in (
        {},
        {"include_compressed": True},
        {"since": 0},
        {"as_of": clock.now},
        {"profile": "imp.bullets"},
    ):
        answer = ana.recall("Where is the green tea?", **more)
        assert (answer.hits, "green tea" in answer.text) == ((), False), more


KEPT: dict[str, dict[str, Any]] = {
    "pinned": {"pinned": True},
    "saved on purpose": {"manually_saved": True},
    "important": {"importance": 0.41},
}


@pytest.mark.spec("IMP-69")
@pytest.mark.parametrize("why", KEPT)
def test_what_is_pinned_saved_on_purpose_or_important_has_no_limit(
    ana: BlockingScope, clock: Clock, why: str
) -> None:
    told(ana, **KEPT[why])
    clock.now = NOW + 4000 * DAY
    assert ana.purge() == Purged()


@pytest.mark.spec("IMP-69")
def test_being_recalled_counts_as_use(memory: Blocking, ana: BlockingScope, clock: Clock) -> None:
    told(ana)
    clock.now = NOW + 59 * DAY
    assert ana.recall("Where is the green tea?").hits
    memory._loop.run(memory._inner.ctx.access_log.flush())
    clock.now = NOW + 118 * DAY
    assert ana.purge().expired == ()
    clock.now = NOW + 120 * DAY
    assert len(ana.purge().expired) == 1


@pytest.mark.spec("IMP-69")
def test_being_recalled_counts_as_use_where_another_category_goes_sooner(
    place: str, clock: Clock
) -> None:
    with opened(place, clock, ttl_days={"event": 7, "*": 60}) as memory:
        ana = memory.scope("ana")
        told(ana, category="things")
        clock.now = NOW + 59 * DAY
        assert ana.recall("Where is the green tea?").hits
        memory._loop.run(memory._inner.ctx.access_log.flush())
        clock.now = NOW + 70 * DAY
        assert ana.purge().expired == ()


@pytest.mark.spec("IMP-71")
def test_what_was_put_away_can_be_restored_and_has_its_time_again(
    ana: BlockingScope, clock: Clock
) -> None:
    id = told(ana)
    clock.now = NOW + 61 * DAY
    ana.purge()
    clock.now = NOW + 90 * DAY
    back = ana.restore(id)
    assert (back.state, back.purge_at) == ("active", None)
    assert [hit.memory.id for hit in ana.recall("Where is the green tea?")] == [id]
    assert ana.purge() == Purged()


@pytest.mark.spec("IMP-74")
def test_what_was_put_away_for_long_enough_is_erased(
    memory: Blocking, ana: BlockingScope, clock: Clock
) -> None:
    id = told(ana)
    ana.edit(id, "The green tea stands in the box.")
    clock.now = NOW + 61 * DAY
    ana.purge()
    clock.now += 30 * DAY
    assert ana.purge().purged == ()
    clock.now += SECOND
    assert ana.purge().purged == (id,)
    with pytest.raises(NotFound):
        ana.get(id)
    states = memorist.types.STATES
    assert list(ana.list(Filter(states=states))) == []
    assert ana.history(id)[0].meta["reason"]
    assert "green" not in str(ana.history())
    assert memory.check() == []
    assert told(ana) != id, "nobody asked for it to be forgotten, so it may come back"


def test_a_soft_forget_lasts_as_long_as_it_was_told(ana: BlockingScope, clock: Clock) -> None:
    id, other = told(ana), told(ana, BOAT, importance=0.9)
    ana.forget(id, keep_days=3)
    clock.now = NOW + 3 * DAY - SECOND
    assert ana.purge().purged == ()
    clock.now = NOW + 3 * DAY + SECOND
    assert ana.purge().purged == (id,)
    assert [memory.id for memory in ana.list()] == [other]


def test_a_memory_is_erased_before_its_earlier_versions(ana: BlockingScope, clock: Clock) -> None:
    id = told(ana)
    ana.edit(id, "The green tea stands in the box.")
    versions = ana.forget(id, keep_days=1).derived
    clock.now = NOW + 2 * DAY
    assert ana.purge().purged == (id, *versions)
    assert versions


@pytest.mark.spec("IMP-72")
def test_the_thread_is_told_once_that_something_went(ana: BlockingScope, clock: Clock) -> None:
    told(ana, category="things")
    ana.delta()
    clock.now = NOW + 61 * DAY
    ana.purge()
    ana.purge()
    assert ana.delta().text.splitlines()[1:] == ["- ↓soft_deleted: [Things] 1 memory, restorable"]
    assert ana.delta().text == ""


def test_a_category_can_have_a_time_of_its_own(place: str, clock: Clock) -> None:
    with opened(place, clock, ttl_days={"event": 7, "*": 60, "lore": 0}) as memory:
        ana = memory.scope("ana")
        ids = [
            told(ana, f"Something about {name} and {name * 2}", category=name)
            for name in ("Event", "lore", "fact")
        ]
        clock.now = NOW + 8 * DAY
        assert ana.purge(dry_run=True).expired == (ids[0],)
        assert ana.purge().expired == (ids[0],)
        clock.now = NOW + 61 * DAY
        done = ana.purge()
        assert (done.expired, done.purged) == ((ids[2],), (ids[0],))
        clock.now = NOW + 4000 * DAY
        assert ids[1] not in ana.purge().expired


def test_a_dry_run_says_what_would_go_and_changes_nothing(ana: BlockingScope, clock: Clock) -> None:
    unused, due = told(ana), told(ana, BOAT)
    ana.forget(due, keep_days=1)
    clock.now = NOW + 61 * DAY
    before = list(ana.export())
    planned = ana.purge(dry_run=True)
    assert (planned.expired, planned.purged) == ((unused,), (due,))
    assert list(ana.export()) == before
    assert ana.purge() == planned


def test_everybody_is_looked_at_and_nobody_else_is_touched(
    memory: Blocking, ana: BlockingScope, clock: Clock
) -> None:
    bob = memory.scope("bob")
    mine, his = told(ana), told(bob, BOAT)
    clock.now = NOW + 61 * DAY
    assert ana.purge().expired == (mine,)
    assert bob.get(his).state == "active"
    assert memory.purge().expired == (his,)


@pytest.mark.spec("THE-110")
def test_what_was_summed_up_is_erased_after_the_retention_and_the_summary_stays(
    place: str, clock: Clock
) -> None:
    with opened(place, clock, retention_days=180, ttl_days={"*": 0}) as memory:
        ana = memory.scope("ana")
        plain, pinned, other = (
            told(ana),
            told(ana, BOAT, pinned=True),
            told(ana, "The key lies under the mat."),
        )
        clock.now = NOW + 100 * DAY
        sum_up(memory, ana, told(ana, "Tea, a boat and a shelf were spoken of."), (plain, pinned))
        clock.now = NOW + 280 * DAY - SECOND
        assert ana.purge().purged == ()
        clock.now = NOW + 280 * DAY + SECOND
        assert ana.purge(dry_run=True).purged == (plain,), "and not what is pinned"
        assert ana.purge().purged == (plain,)
        assert {each.text for each in ana.list()} >= {
            BOAT,
            "Tea, a boat and a shelf were spoken of.",
        }
        assert ana.get(other).is_active
        assert TEA not in str(list(ana.export()))
        assert memory.check() == []


@pytest.mark.spec("THE-110")
def test_without_a_retention_nothing_that_was_summed_up_goes(
    memory: Blocking, clock: Clock
) -> None:
    ana = memory.scope("ana")
    plain = told(ana, importance=0.9)
    sum_up(memory, ana, told(ana, "Tea was spoken of.", importance=0.9), (plain,))
    clock.now = NOW + 4000 * DAY
    assert ana.purge() == Purged()


def sum_up(memory: Blocking, ana: BlockingScope, id: str, evidence: tuple[str, ...]) -> None:
    """Make a memory the summary of others, as compressing does."""

    async def change() -> None:
        async with memory._inner.ctx.store.transaction(ana.scope) as tx:
            (summary,) = await tx.get(ana.scope, [id])
            made = replace(summary, compression_source=True, evidence_ids=evidence)
            await tx.apply([Save(memory=made, event="updated")])

    memory._loop.run(change())


def test_old_events_are_let_go_of(ana: BlockingScope, clock: Clock) -> None:
    told(ana, importance=0.9)
    clock.now = NOW + 89 * DAY
    ana.purge()
    assert ana.events()
    clock.now = NOW + 91 * DAY
    ana.purge()
    assert ana.events() == []


@pytest.mark.parametrize(
    "wrong", [{"ttl_days": "soon"}, {"ttl_level": 0}, {"purge_days": -1}, {"retention_days": -1}]
)
def test_a_limit_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match=next(iter(wrong))):
        memorist.open(":memory:", embedder="hashing", **wrong)


def test_what_is_active_has_nothing_to_restore(ana: BlockingScope) -> None:
    with pytest.raises(InvalidInput, match="nothing to restore"):
        ana.restore(told(ana))


async def test_a_worker_keeps_the_limits_too(place: str) -> None:
    async with memorist.aio.open(place, embedder="hashing", policy="theoria") as memory:
        clock = Clock(NOW)
        memory.ctx.clock = clock
        ana = memory.scope("ana")
        (id,) = (await ana.remember(TEA, importance=0.4)).ids
        clock.now = NOW + 61 * DAY
        assert (await memory.run_jobs())["purge"].changed == 1
        assert (await ana.get(id)).state == "soft_deleted"


def test_the_command_says_how_many_went(tmp_path: Path, clock: Clock) -> None:
    from typer.testing import CliRunner

    from memorist.interfaces.cli import app

    place = str(tmp_path / "m.db")
    with opened(place, clock) as memory:
        id = told(memory.scope("ana"))
        memory.scope("ana").forget(id, keep_days=1)
    shared = ["--db", place, "--user", "ana"]
    planned = CliRunner().invoke(app, ["jobs", "purge", "--dry-run", *shared])
    assert planned.stdout == "0 would be archived, 1 would be erased\n"
    done = CliRunner().invoke(app, ["jobs", "purge", "--all", "--json", *shared])
    assert json.loads(done.stdout) == {"expired": [], "purged": [id], "dry_run": False}
