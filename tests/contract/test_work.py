"""What every store promises about work that waits, and about what the language model costs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memorist.errors import RevisionConflict
from memorist.ports import LlmUsage
from memorist.storage import Save, tasks
from memorist.storage.store import Store
from memorist.storage.tasks import NewTask, Task
from memorist.types import Memory, Scope
from stores import done, write

NOW = datetime(2026, 5, 31, 14, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
ANA, BOB = Scope(user="ana"), Scope(user="bob")
DAY = "2026-05-31"
NAMES = ("extract", "consolidate")


async def apply(store: Store, *changes: Any, scope: Scope = ANA) -> None:
    await write(store, scope, *changes)


async def claim(
    store: Store, *, now: datetime = NOW, limit: int = 10, seconds: float = 60
) -> list[Task]:
    return await store.tasks.claim(NAMES, now=now, limit=limit, lease_seconds=seconds)


async def test_work_is_given_to_one_only_and_the_longest_due_first(store: Store) -> None:
    await apply(store, NewTask(name="extract", key="m2", due_at=NOW, payload={"ids": ["m2"]}))
    await apply(
        store, NewTask(name="extract", key="m1", due_at=NOW - timedelta(hours=1)), scope=BOB
    )
    await apply(store, NewTask(name="consolidate", due_at=LATER))
    first, second = await claim(store)
    assert (first.scope, first.key, first.attempts) == (BOB, "m1", 1)
    assert (second.scope, second.key, second.payload, second.due_at) == (
        ANA,
        "m2",
        {"ids": ["m2"]},
        NOW,
    )
    assert await claim(store) == []
    assert [task.name for task in await claim(store, now=LATER)] == ["consolidate"]
    assert await store.tasks.claim(["other"], now=LATER, limit=9, lease_seconds=1) == []


async def test_work_that_is_done_is_over_or_comes_round_again(store: Store) -> None:
    await apply(
        store,
        NewTask(name="extract", key="m1", due_at=NOW),
        NewTask(name="consolidate", due_at=NOW),
    )
    duty, once = sorted(await claim(store), key=lambda task: task.name)
    await apply(store, done(once), done(duty, again_at=LATER))
    assert await claim(store) == []
    (again,) = await claim(store, now=LATER)
    assert (again.name, again.attempts) == ("consolidate", 1)


async def test_what_a_dead_worker_had_is_free_after_its_lease_and_its_late_result_is_refused(
    store: Store,
) -> None:
    await apply(store, NewTask(name="extract", key="m1", due_at=NOW))
    (late,) = await claim(store, seconds=0.01)
    await asyncio.sleep(0.05)
    (taken,) = await claim(store)
    assert taken.attempts == 2
    with pytest.raises(RevisionConflict, match="extract"):
        await apply(store, NewTask(name="consolidate", due_at=NOW), done(late))
    await store.tasks.postpone(late, due_at=LATER)  # not his any more
    await apply(store, done(taken))
    assert await claim(store, now=LATER) == []


async def test_work_that_fails_is_put_off_and_counted(store: Store) -> None:
    await apply(
        store,
        NewTask(name="extract", key="m1", due_at=NOW),
        NewTask(name="extract", key="m2", due_at=NOW),
    )
    (failed,) = await claim(store, limit=1)
    (log,) = await store.tasks.backlog(NOW)
    assert (log.name, log.waiting, log.running, log.failing, log.oldest) == (
        "extract",
        1,
        1,
        0,
        NOW,
    )
    await store.tasks.postpone(failed, due_at=LATER)
    (log,) = await store.tasks.backlog(NOW)
    assert (log.waiting, log.running, log.failing) == (1, 0, 1)
    (log,) = await store.tasks.backlog(LATER)
    assert log.waiting == 2


async def test_the_same_work_waits_once_and_the_earlier_time_counts(store: Store) -> None:
    for due in (LATER, NOW, LATER):
        await apply(store, NewTask(name="consolidate", due_at=due))
    (task,) = await claim(store)
    assert task.due_at == NOW


async def test_work_that_is_asked_for_once_leaves_what_waits_as_it_is(store: Store) -> None:
    for due in (LATER, NOW):
        async with store.transaction(ANA) as tx:
            await tasks.add(tx, NewTask(name="consolidate", due_at=due), once=True)
    assert await claim(store) == []
    assert [task.due_at for task in await claim(store, now=LATER)] == [LATER]


async def test_many_workers_never_get_the_same_work(store: Store) -> None:
    await apply(store, *(NewTask(name="extract", key=f"m{n:03}", due_at=NOW) for n in range(60)))
    given = await asyncio.gather(*(claim(store, limit=10) for _ in range(12)))
    keys = [task.key for some in given for task in some]
    assert len(keys) == len(set(keys))
    rest = await claim(store, limit=60)
    assert sorted(keys + [task.key for task in rest]) == [f"m{n:03}" for n in range(60)]


async def test_a_pair_that_was_compared_is_known_for_a_while(store: Store) -> None:
    first, second = (
        Memory(id=id, scope=ANA, text=id, kind="semantic", created_at=NOW, updated_at=NOW)
        for id in ("a", "b")
    )
    await apply(store, *(Save(memory=each, event="created") for each in (first, second)))
    await apply(store, lambda tx: tx.record_comparisons([("a", "b", 0.71)], NOW))
    assert await store.compared_since(ANA, NOW) == {("a", "b", 0.71)}
    assert await store.compared_since(ANA, LATER) == set()
    assert await store.compared_since(BOB, NOW) == set()
    async with store.transaction(ANA) as tx:
        await tx.delete_old(LATER)
    assert await store.compared_since(ANA, NOW) == set()


USAGE = LlmUsage(scope=ANA, day=DAY, task="extract", model="m", calls=1, tokens_in=0, tokens_out=0)


async def spend(store: Store, scope: Scope, tokens: int, **caps: int) -> bool:
    asked = replace(USAGE, scope=scope, reserved=tokens)
    return await store.llm_usage.reserve(asked, **{"user_cap": 0, "tenant_cap": 0, **caps})


async def test_what_was_set_aside_counts_until_it_is_known_what_it_cost(store: Store) -> None:
    assert await spend(store, ANA, 900, user_cap=1000)
    assert not await spend(store, ANA, 200, user_cap=1000)
    assert not await spend(
        store, Scope(user="ana", space="work"), 200, user_cap=1000
    )  # the cap is the person's
    assert await spend(store, BOB, 200, user_cap=1000)
    await store.llm_usage.settle(replace(USAGE, reserved=900, tokens_in=100, tokens_out=20))
    assert await spend(store, ANA, 200, user_cap=1000)
    assert await store.llm_usage.list(ANA, DAY) == [
        replace(USAGE, calls=1, tokens_in=100, tokens_out=20, reserved=200)
    ]
    assert len(await store.llm_usage.list(None, DAY)) == 2
    assert await store.llm_usage.list(None, "2026-06-01") == []


async def test_the_tenant_has_a_cap_of_its_own(store: Store) -> None:
    assert await spend(store, ANA, 600, tenant_cap=1000)
    assert not await spend(store, BOB, 600, tenant_cap=1000)
    assert await spend(store, Scope(user="bob", tenant="other"), 600, tenant_cap=1000)


async def test_nobody_gets_beyond_a_cap_however_many_ask_at_once(store: Store) -> None:
    asked = await asyncio.gather(*(spend(store, ANA, 30, user_cap=1000) for _ in range(50)))
    assert sum(asked) == 33


async def test_a_lease_can_be_renewed_by_whoever_has_it(store: Store) -> None:
    await apply(store, NewTask(name="extract", key="m1", due_at=NOW))
    (task,) = await claim(store, seconds=0.3)
    assert await store.tasks.renew(task, lease_seconds=60)
    await asyncio.sleep(0.4)
    assert await claim(store) == []
    await apply(store, done(task))
    assert not await store.tasks.renew(task, lease_seconds=60)


async def test_what_was_given_back_unbegun_does_not_count_as_begun(store: Store) -> None:
    await apply(store, NewTask(name="extract", key="m1", due_at=NOW))
    for _ in range(20):
        (task,) = await claim(store)
        assert task.attempts == 1
        await store.tasks.postpone(task, due_at=NOW, failed=False)


async def test_what_ended_whoever_began_it_comes_after_what_nobody_began(store: Store) -> None:
    await apply(
        store,
        NewTask(name="extract", key="deadly", due_at=NOW),
        NewTask(name="extract", key="m2", due_at=LATER),
    )
    assert [task.key for task in await claim(store, seconds=0.01, now=LATER, limit=1)] == ["deadly"]
    await asyncio.sleep(0.05)
    assert [task.key for task in await claim(store, now=LATER, limit=1)] == ["m2"]


async def test_work_that_fails_again_and_again_is_set_aside_but_not_a_duty(store: Store) -> None:
    await apply(
        store,
        NewTask(name="extract", key="m1", due_at=NOW),
        NewTask(name="consolidate", due_at=NOW),
    )
    for _ in range(8):
        for task in await claim(store):
            await store.tasks.postpone(task, due_at=NOW)
    assert [task.name for task in await claim(store)] == ["consolidate"]
    logs = {log.name: log for log in await store.tasks.backlog(NOW)}
    assert (logs["extract"].waiting, logs["extract"].failing, logs["extract"].set_aside) == (
        0,
        1,
        1,
    )
    assert (logs["consolidate"].running, logs["consolidate"].set_aside) == (1, 0)
    assert await store.tasks.retry(["extract"], now=LATER) == 1
    assert [(task.key, task.attempts) for task in await claim(store, now=LATER)] == [("m1", 1)]
    assert await store.tasks.retry(["extract"], now=LATER) == 0


async def test_each_scope_gets_a_duty_once_and_the_whole_store_only_one(store: Store) -> None:
    for scope in (ANA, BOB):
        await apply(store, NewTask(name="other", due_at=NOW), scope=scope)
    due = {ANA: NOW, BOB: LATER}
    assert await store.tasks.seed("consolidate", due=due.__getitem__, latest=LATER) == 2
    assert await store.tasks.seed("consolidate", due=due.__getitem__, latest=LATER) == 0
    assert await store.tasks.seed("extract", due=due.__getitem__, latest=LATER, where="one") == 1
    assert await store.tasks.seed("embed", due=due.__getitem__, latest=LATER, where="queued") == 0
    found = await claim(store, now=LATER)
    assert [(t.name, t.scope, t.due_at) for t in found] == [
        ("consolidate", ANA, NOW), ("extract", ANA, NOW), ("consolidate", BOB, LATER),
    ]  # fmt: skip


async def test_a_duty_that_is_due_too_late_is_due_earlier(store: Store) -> None:
    await apply(store, NewTask(name="consolidate", due_at=NOW + timedelta(days=9999)))
    assert await store.tasks.seed("consolidate", due=lambda scope: NOW, latest=LATER) == 0
    assert [task.due_at for task in await claim(store, now=LATER)] == [LATER]
