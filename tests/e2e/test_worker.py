"""A memory that tends itself: what is due is done once, what fails is put off, and what waits can be seen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memorist
from clocks import Clock
from memorist.client import Client
from memorist.context import Context
from memorist.embedders import Hashing
from memorist.errors import EmbedderUnavailable, InvalidInput, ProviderFailed
from memorist.interfaces.cli import app, database
from memorist.jobs import backoff, next_due, next_turn
from memorist.jobs.worker import Job, JobResult, Worker, list_jobs
from memorist.manage import privacy
from memorist.storage import tasks
from memorist.storage.tasks import NewTask, Task
from memorist.types import Filter, Scope

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
async def memory(place: str, clock: Clock, tmp_path: Path) -> AsyncIterator[Client]:
    """Vectors are left to whoever tends."""
    async with memorist.aio.open(
        place, embedder="hashing", policy="theoria", journal_dir=tmp_path / "j"
    ) as made:
        made.ctx.clock = clock
        yield made


class Duties:
    """A worker with a duty of the test."""

    def __init__(self, memory: Client, run: Callable[[Context, Task], Any], **more: Any) -> None:
        self._memory, self.duty = memory, Job(name="sum", run=run, **more)
        self.seconds = 60.0

    def worker(self) -> Worker:
        return Worker(self._memory.ctx, [self.duty], only=["sum"], lease_seconds=self.seconds)

    async def once(self, **more: Any) -> JobResult:
        return (await self.worker().run_once(**more))["sum"]


async def finish(ctx: Context, task: Task, *, again_at: datetime | None = None) -> None:
    async with ctx.store.transaction(task.scope) as tx:
        await tasks.finish(tx, task, again_at=again_at)


async def queued(memory: Client, *keys: str, user: str = "ana") -> None:
    async with memory.ctx.store.transaction(Scope(user=user)) as tx:
        await tasks.add(tx, *[NewTask(name="sum", key=key, due_at=NOW) for key in keys])


def logged(found: Any, name: str) -> Any:
    return next(each for each in found if each.name == name)


@pytest.mark.spec("THE-94")
async def test_tending_gives_vectors_to_what_has_none(memory: Client) -> None:
    texts = [
        f"The {word} shelf holds {n} books."
        for n, word in enumerate(["red", "blue", "green", "old", "new"])
    ]
    for text in texts:
        await memory.scope("ana").remember(text)
    assert (
        len(await memory.ctx.store.rows_where(Scope(user="ana"), Filter(needs_embedding=True))) == 5
    )
    told: list[tuple[int, int]] = []
    tended = await memory.run_jobs(
        only=["embed"], batch_size=2, progress=lambda done, of: told.append((done, of))
    )
    assert tended.jobs == {"embed": JobResult(runs=1, changed=5)}
    assert [done for done, _ in told[:3]] == [2, 4, 5], "two at a time"
    assert told[-1] == (5, 5)
    assert await memory.ctx.store.rows_where(Scope(user="ana"), Filter(needs_embedding=True)) == []
    assert (await memory.run_jobs(only=["embed"])).jobs == {}
    with pytest.raises(InvalidInput, match="Unknown job 'sweep': choose from embed, purge"):
        await memory.run_jobs(only=["sweep"])


async def test_all_duties_of_a_memory_are_done_once_and_then_wait_for_their_turn(
    memory: Client, clock: Clock, tmp_path: Path
) -> None:
    await memory.scope("ana").remember("The kettle is blue.", importance=0.4)
    await memory.scope("bob").remember("The garden has a gate.", importance=0.4)
    tended = await memory.run_jobs()
    assert {name: did.runs for name, did in tended.jobs.items()} == {
        "embed": 1,
        "purge": 2,
        "trim": 2,
        "shorten": 2,
        "snapshot": 1,
    }
    assert (tmp_path / "j" / "MEMORY.md").exists()
    assert (await memory.run_jobs()).jobs == {}
    clock.now = NOW + 70 * DAY
    tended = await memory.run_jobs()
    assert {name: did.runs for name, did in tended.jobs.items()} == {
        "purge": 2,
        "trim": 2,
        "shorten": 2,
        "snapshot": 1,
    }
    assert tended["purge"].changed == 2


@pytest.mark.spec("IMP-33")
async def test_a_worker_that_was_off_for_a_week_does_a_daily_duty_once(
    memory: Client, clock: Clock
) -> None:
    await memory.scope("ana").remember("The kettle is blue.")
    runs: list[datetime] = []

    async def run(ctx: Context, task: Task) -> None:
        runs.append(ctx.clock())
        await finish(ctx, task, again_at=next_due(task, DAY, ctx.clock()))

    duties = Duties(memory, run, every=DAY)
    for hours in (0, 1, 7 * 24, 7 * 24 + 1, 9 * 24):
        clock.now = NOW + hours * HOUR
        await duties.once()
    assert runs == [NOW, NOW + 7 * DAY, NOW + 9 * DAY]


@pytest.mark.spec("IMP-33")
def test_scopes_have_their_turns_spread_over_the_day_and_each_always_at_the_same_time() -> None:
    scopes = [Scope(user=f"user {n}") for n in range(2400)]
    turns = [next_turn(scope, "sum", DAY, NOW) for scope in scopes]
    assert all(NOW <= each < NOW + DAY for each in turns)
    by_hour = Counter(each.hour for each in turns)
    assert len(by_hour) == 24
    assert max(by_hour.values()) < 160
    for scope, first in zip(scopes[:50], turns, strict=False):
        task = Task(
            scope=scope, name="sum", key="", payload={}, due_at=first, attempts=1, lease="l"
        )
        assert next_due(task, DAY, first + timedelta(minutes=3)) == first + DAY
        assert next_due(task, DAY, first + 7 * DAY + HOUR) == first + 8 * DAY


@pytest.mark.spec("IMP-33")
@pytest.mark.parametrize("minutes", [0, 100], ids=["on time", "now and then late"])
async def test_a_run_once_a_day_reaches_everybody_every_day(
    memory: Client, clock: Clock, minutes: int
) -> None:
    users = [f"user {n}" for n in range(40)]
    for user in users:
        said = {"role": "user", "content": "The kettle is blue.", "session": "s1"}
        await memory.scope(user).remember([said])
    reached: Counter[str] = Counter()

    async def run(ctx: Context, task: Task) -> None:
        reached[task.scope.user] += 1
        clock.now += timedelta(seconds=3)  # the run takes two minutes
        await finish(ctx, task, again_at=next_due(task, DAY, ctx.clock()))

    duties = Duties(memory, run, every=DAY)
    for day in range(5):
        clock.now = NOW + day * DAY + (day % 2) * timedelta(minutes=minutes)
        await duties.once()
        await duties.once()
        assert reached == Counter(dict.fromkeys(users, day + 1))


@pytest.mark.spec("IMP-33")
def test_a_job_that_missed_its_turn_gets_back_to_it_and_never_waits_longer_than_a_day() -> None:
    scope = Scope(user="ana")
    turn = next_turn(scope, "sum", DAY, NOW)
    for late in range(24):
        ran = turn + late * HOUR
        for _ in range(6):
            task = Task(
                scope=scope, name="sum", key="", payload={}, due_at=ran, attempts=1, lease="l"
            )
            due = next_due(task, DAY, ran)
            assert DAY / 2 <= due - ran <= DAY
            ran = due
        assert (ran - turn) % DAY == timedelta(0), late


async def test_a_staying_worker_begins_with_each_scope_at_its_own_time(memory: Client) -> None:
    for n in range(5):
        await memory.scope(f"user {n}").remember("The kettle is blue.")
    worker = Worker(memory.ctx, only=["purge"])
    worker.start()
    await _until(lambda: _waiting_later(memory))
    await worker.close()
    found = await memory.ctx.store.tasks.claim(["purge"], now=NOW + DAY, limit=9, lease_seconds=60)
    assert {task.due_at for task in found} == {
        next_turn(Scope(user=f"user {n}"), "purge", DAY, NOW) for n in range(5)
    }


async def _waiting_later(memory: Client) -> bool:
    return (
        sum(
            each.waiting
            for each in await memory.ctx.store.tasks.backlog(NOW + DAY)
            if each.name == "purge"
        )
        == 5
    )


async def _until(happened: Callable[[], Any], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await happened():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_duty_that_a_clock_put_off_for_years_comes_back(
    memory: Client, clock: Clock
) -> None:
    await memory.scope("ana").remember("The kettle is blue.")
    clock.now = NOW + 3650 * DAY
    await memory.run_jobs(only=["purge"])
    clock.now = NOW
    assert (await memory.run_jobs(only=["purge"])).jobs == {}
    clock.now = NOW + 2 * DAY
    assert (await memory.run_jobs(only=["purge"]))["purge"].runs == 1


@pytest.mark.spec("THE-94")
async def test_what_fails_is_put_off_and_after_eight_times_set_aside(
    memory: Client, clock: Clock
) -> None:
    tries: list[datetime] = []

    async def run(ctx: Context, task: Task) -> None:
        tries.append(ctx.clock())
        raise ProviderFailed("away")

    await memory.scope("ana").remember("The kettle is blue.")
    await queued(memory, "m1")
    duties = Duties(memory, run)
    for hours in range(12):
        clock.now = NOW + hours * HOUR
        await duties.once()
        assert await duties.once() == JobResult()  # not again at once
    assert tries == [NOW + hours * HOUR for hours in range(8)]
    log = logged(await memory.backlog(), "sum")
    assert (log.waiting, log.failing, log.set_aside) == (0, 1, 1)
    assert {(e.node, e.op, e.status) for e in await memory.scope("ana").events(op="sum")} == {
        ("worker", "sum", "error")
    }

    duties.duty = Job(name="sum", run=finish)
    assert await duties.once() == JobResult()
    assert await duties.once(retry=True) == JobResult(runs=1)
    assert [each for each in await memory.backlog() if each.name == "sum"] == []


@pytest.mark.spec("THE-94")
async def test_two_tasks_that_failed_together_are_due_again_at_different_times(
    memory: Client,
) -> None:
    async def run(ctx: Context, task: Task) -> None:
        raise ProviderFailed("away")

    await queued(memory, "m1", "m2", "m3")
    assert await Duties(memory, run).once() == JobResult(failed=3)
    again = await memory.ctx.store.tasks.claim(["sum"], now=NOW + HOUR, limit=9, lease_seconds=60)
    waits = [(task.due_at - NOW).total_seconds() for task in again]
    assert len(set(waits)) == 3
    assert 15 <= min(waits) < max(waits) <= 30


@pytest.mark.spec("THE-94")
def test_two_that_failed_together_do_not_try_again_together() -> None:
    waits = [backoff(3, 30, 3600) for _ in range(50)]
    assert len(set(waits)) == 50
    assert 60 <= min(waits) < max(waits) <= 120
    assert (
        max(backoff(1, 30, 3600) for _ in range(50))
        <= 30
        < min(backoff(4, 30, 3600) for _ in range(50))
    )
    assert backoff(1000, 30, 3600) <= 3600


async def test_a_bug_in_a_duty_stops_nothing(
    memory: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(ctx: Context, task: Task) -> int:
        if task.key == "m1":
            raise KeyError("a secret word")
        await finish(ctx, task)
        return 3

    await memory.scope("ana").remember("The kettle is blue.")
    await queued(memory, "m1", "m2", "m3")
    assert await Duties(memory, run).once() == JobResult(runs=2, changed=6, failed=1)
    assert [e.status for e in await memory.scope("ana").events(op="sum")] == ["error"]
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


async def test_where_memory_is_off_nothing_is_derived_and_nothing_counts_as_failed(
    memory: Client, clock: Clock
) -> None:
    await queued(memory, "m1")
    duties = Duties(memory, finish, derives=True)
    await memory.scope("ana").privacy.set(memory_enabled=False)
    for hours in range(20):
        clock.now = NOW + hours * 2 * HOUR
        assert await duties.once() == JobResult(skipped=1)
    log = logged(await memory.backlog(), "sum")
    assert (log.failing, log.set_aside) == (0, 0)
    await memory.scope("ana").privacy.set(memory_enabled=True)
    clock.now += 2 * HOUR
    assert await duties.once() == JobResult(runs=1)


async def test_a_space_that_was_turned_off_is_seen_by_tending(memory: Client) -> None:
    ana = memory.scope("ana")
    await ana.remember("The kettle is blue.")
    assert not await privacy.is_space_off(memory.ctx, ana.scope)
    await ana.privacy.set(memory_enabled=False)
    assert await privacy.is_space_off(memory.ctx, ana.scope)


async def test_a_long_duty_keeps_its_lease_and_is_not_done_twice(memory: Client) -> None:
    begun: list[str] = []

    async def slow(ctx: Context, task: Task) -> None:
        begun.append(task.key)
        await asyncio.sleep(1.2)
        await finish(ctx, task)

    await queued(memory, "m1")
    duties = Duties(memory, slow)
    duties.seconds = 0.4
    first = asyncio.create_task(duties.once())
    others = []
    while not first.done():
        await asyncio.sleep(0.1)
        others.append(await duties.once())
    assert (await first, begun) == (JobResult(runs=1), ["m1"])
    assert set(others) == {JobResult()}


async def test_a_duty_whose_lease_was_lost_is_stopped_and_changes_nothing(memory: Client) -> None:
    ended: list[str] = []

    async def slow(ctx: Context, task: Task) -> None:
        try:
            await asyncio.sleep(20)
        finally:
            ended.append(task.key)

    await queued(memory, "m1")
    duties = Duties(memory, slow)
    duties.seconds = 2.7
    working = asyncio.create_task(duties.once())
    await _until(lambda: _running(memory))
    async with memory.ctx.store.transaction(Scope(user="ana")) as tx:  # somebody else has it
        number = await tx.number(Scope(user="ana"))  # type: ignore[attr-defined]
        await tx.connection.rows(
            "UPDATE tasks SET lease = 'theirs' WHERE scope = ?", (number,), scope=number
        )  # type: ignore[attr-defined]
    assert await asyncio.wait_for(working, 10) == JobResult(skipped=1)
    assert ended == ["m1"]


async def _running(memory: Client) -> bool:
    return any(each.running for each in await memory.backlog())


async def test_a_worker_that_is_told_to_stop_gives_back_what_it_cannot_finish(
    memory: Client,
) -> None:
    async def endless(ctx: Context, task: Task) -> None:
        await asyncio.sleep(600)

    await queued(memory, "m1")
    made = Duties(memory, endless)
    worker = Worker(memory.ctx, [made.duty], only=["sum"], drain_seconds=0.1)
    worker.start()
    await _until(lambda: _running(memory))
    await worker.close()
    log = logged(await memory.backlog(), "sum")
    assert (log.waiting, log.running, log.failing) == (1, 0, 0)


class Moody(Hashing):
    """A model that is away, or that cannot take some texts."""

    away = False

    async def encode_batch(self, texts: Any) -> Any:
        if self.away or any("poison" in text for text in texts):
            raise EmbedderUnavailable
        return await super().encode_batch(texts)


@pytest.mark.spec("THE-94", "THE-95", "CLK-86")
async def test_backlog_age_time_to_embed_and_failures_are_figures(
    memory: Client, clock: Clock
) -> None:
    ana = memory.scope("ana")
    memory.ctx.embedder = embedder = Moody()
    for n, color in enumerate(("blue", "green", "red")):
        clock.now = NOW + n * HOUR
        await ana.remember(f"The {color} shelf holds {n} books.")
    log = logged(await memory.backlog(), "embed")
    assert (log.waiting, log.oldest, log.p95_seconds, log.failure_rate) == (3, NOW, None, None)
    embedder.away, clock.now = True, NOW + 3 * HOUR
    assert (await memory.run_jobs(only=["embed"]))["embed"] == JobResult(failed=2)
    assert logged(await memory.backlog(), "embed").failure_rate == 1.0
    embedder.away, clock.now = False, NOW + 4 * HOUR
    await memory.run_jobs(only=["embed"])
    log = logged(await memory.backlog(), "embed")
    assert (log.waiting, log.oldest, log.p95_seconds, log.failure_rate) == (0, None, 4 * 3600, 0.5)
    statuses = Counter(line.status for line in await ana.events(node="worker", op="embed"))
    assert statuses == {"ok": 3, "error": 2}
    await ana.pin((await ana.list()).memories[0].id)
    clock.now += HOUR
    assert logged(await memory.backlog(), "embed").p95_seconds == 4 * 3600


async def test_a_text_that_the_model_cannot_take_keeps_no_other_from_its_vector(
    memory: Client,
) -> None:
    memory.ctx.embedder = Moody()
    for n in range(9):
        await memory.scope("ana").remember(
            f"The {'poison' if n == 2 else 'green'} shelf number {n * 111} has {n} books."
        )
    tended = await memory.run_jobs(only=["embed"], batch_size=4)
    assert tended["embed"].changed == 8
    assert tended["embed"].failed
    log = logged(await memory.backlog(), "embed")
    assert (log.waiting, log.running) == (1, 0)


async def test_a_memory_can_tend_itself_while_it_is_used(place: str) -> None:
    async with memorist.aio.open(
        place, embedder="hashing", policy="theoria", run_jobs=True
    ) as memory:
        ana = memory.scope("ana")
        for n in range(20):
            await ana.remember(f"The {n} green shelves hold {n * 7} books.")
        assert (await ana.recall("green shelves")).hits
        await _until(lambda: _embedded(memory))
    async with memorist.aio.open(place, embedder="hashing", spool=False) as memory:
        assert await memory.check() == []
        assert [each.running for each in await memory.backlog()] == [0] * len(
            await memory.backlog()
        )


async def _embedded(memory: Client) -> bool:
    stats = await memory.stats()
    return bool(stats["memories"] == 20 and stats["without_embeddings"] == 0)


def test_a_blocking_memory_tends_itself_and_closes(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", embedder="hashing", run_jobs=True) as memory:
        memory.scope("ana").remember("The kettle is blue.")
    with memorist.open(tmp_path / "m.db", embedder="hashing") as memory:
        assert memory.check() == []


def test_the_commands_say_what_was_done_and_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    monkeypatch.setenv("MEMORIST_POLICY", "theoria")
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path))
    run, db = CliRunner(), ["--db", str(tmp_path / "m.db")]
    assert run.invoke(app, ["remember", "The kettle is blue.", *db]).exit_code == 0
    assert (
        "embed: 1 waiting, the oldest for 0:00:0"
        in run.invoke(app, ["jobs", "backlog", *db]).stdout
    )
    made = json.loads(run.invoke(app, ["jobs", "run", "--json", *db]).stdout)
    assert made["embed"] == {"runs": 1, "changed": 1, "failed": 0, "skipped": 0}
    assert made["purge"]["runs"] == 1
    assert "No jobs were due." in run.invoke(app, ["jobs", "run", *db]).output
    (found,) = [
        each
        for each in json.loads(run.invoke(app, ["jobs", "backlog", "--json", *db]).stdout)
        if each["name"] == "embed"
    ]
    assert (found["waiting"], found["failure_rate"]) == (0, 0.0)
    assert run.invoke(app, ["jobs", "run", "--only", "sweep", *db]).exit_code != 0


def test_while_a_model_is_away_the_other_duties_are_done(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", embedder="none", spool=False) as memory:
        memory.scope("ana").remember("The kettle is blue.")
        memory._inner.ctx.embedder = embedder = Moody()
        embedder.away = True
        tended = memory.run_jobs()
    assert tended["embed"].failed == 2
    assert tended["purge"].runs == 1


async def test_each_job_has_its_period(tmp_path: Path) -> None:
    async with memorist.aio.open(
        tmp_path / "m.db",
        embedder="hashing",
        policy="supervisor",
        capacity=100,
        journal_dir=tmp_path / "j",
        extract="rules",
        llm="openai:small",
        llm_url="http://127.0.0.1:9/v1",
        rollup_days=90,
        compression_threshold=10,
    ) as opened:
        assert {job.name: job.every for job in list_jobs(opened.ctx)} == {
            "purge": DAY,
            "trim": DAY,
            "snapshot": HOUR,
            "extract": None,
            "backfill": None,
            "consolidate": DAY,
            "reflect": DAY,
            "compress": DAY,
            "promote": DAY,
            "rollup": 7 * DAY,
            "shorten": DAY,
        }


def test_the_command_says_what_it_waits_for_and_how_often_each_job_ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        if "embed: 1 done" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(database, "note", note)
    monkeypatch.setattr(database, "REPORT_SECONDS", 0.05)
    place = str(tmp_path / "memory.db")
    with memorist.open(place, embedder="none", state_dir=tmp_path) as memory:
        memory.scope("ana").remember("The heron stands in the river.")
    environment = {"MEMORIST_EMBEDDER": "hashing", "MEMORIST_STATE_DIR": str(tmp_path)}
    done = CliRunner().invoke(app, ["jobs", "worker", "--db", place], env=environment)
    assert said[0].startswith("Waiting for jobs: embed, purge, ")
    # A report may come between the embedding of the memory and the end of the job.
    ended = [line for line in said[1:] if line != "embed: 0 done, 1 changed, 0 failed, 0 postponed"]
    assert ended == ["embed: 1 done, 1 changed, 0 failed, 0 postponed"]
    assert done.stdout == "embed: 1 done, 1 changed, 0 failed, 0 postponed\n"
