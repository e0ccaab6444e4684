"""The commands for a memory that many processes share: its schema, and what is due in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import InvalidInput
from ..errors import FAILED
from .app import Call, command

if TYPE_CHECKING:
    from ...jobs.worker import JobReport
    from ...results import Backlog

CLUSTER = "Cluster"


@command(
    CLUSTER,
    example="memorist migrate --db postgresql://db.example/memories --partitions 16",
    writes=True,
)
def migrate(
    call: Call,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            min=1,
            max=1024,
            help="Cut a new PostgreSQL database into N parts.",
        ),
    ] = None,
    hnsw: Annotated[
        bool,
        typer.Option(
            "--hnsw", help="Build the index for scopes with very many vectors, while others go on."
        ),
    ] = False,
) -> None:
    """Bring the database to the schema of this version, as opening it does, and shape it for its size."""
    import asyncio

    from ...settings import load
    from . import output

    place = load(db=call.db).db
    if place.startswith(("postgresql://", "postgres://")):
        made = asyncio.run(_postgres(place, partitions, hnsw))
    elif partitions is not None or hnsw:
        raise InvalidInput(
            "Partitions and HNSW are of PostgreSQL: name a database with --db postgresql://…"
        )
    else:
        with call.memory():
            made = {"steps": [], "indexes": []}
    if call.json:
        output.as_json(made)
    else:
        steps, indexes = (
            ", ".join(map(str, made[name])) or "none" for name in ("steps", "indexes")
        )
        output.line(f"schema steps made: {steps}; indexes made: {indexes}")


async def _postgres(place: str, partitions: int | None, hnsw: bool) -> dict[str, list[object]]:
    from ...bootstrap import needs_postgres

    with needs_postgres():
        from ...storage.postgres import hnsw as indexes
        from ...storage.postgres.migrate import migrate
    steps = await migrate(place, partitions=partitions)
    return {"steps": [*steps], "indexes": [*await indexes.build(place)] if hnsw else []}


BatchSize = Annotated[
    int,
    typer.Option("--batch-size", metavar="N", min=1, max=1024, help="Memories embedded together."),
]


@command(CLUSTER, example="memorist tend --only purge", writes=True)
def tend(
    call: Call,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="DUTY", help="This duty; can be repeated.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Also what was set aside because it failed too often.")
    ] = False,
    batch_size: BatchSize = 32,
) -> None:
    """Do what is due, once: embed what has no vector, put away and erase what is over, and the other duties."""
    from . import output

    with call.memory() as memory, output.progress("Tending", None, hidden=call.json) as advance:
        tended = memory.run_jobs(
            only=only or (), retry=retry, batch_size=batch_size, progress=advance
        )
    _told(call, tended)
    if any(did.failed for did in tended.jobs.values()):
        output.note(
            "What failed is tried again by the next `memorist tend`; `memorist doctor` says what is wrong."
        )
        raise typer.Exit(FAILED)


@command(CLUSTER, example="memorist worker", writes=True)
def worker(call: Call, batch_size: BatchSize = 32) -> None:
    """Do what is due until told to stop; any number of workers share the work."""
    import asyncio

    _told(call, asyncio.run(_work(call.db, batch_size)))


@command(CLUSTER, example="memorist backlog --json")
def backlog(call: Call) -> None:
    """Show how much work waits, since when, and what fails, by duty."""
    from . import output

    with call.memory() as memory:
        found, now = memory.backlog(), datetime.now(UTC)
    if call.json:
        output.as_json([asdict(each) for each in found])
        return
    for each in found:
        output.line(f"{each.name}: {', '.join(_figures(each, now))}")
    if not found:
        output.note("Nothing waits.")


def _figures(work: Backlog, now: datetime) -> Iterator[str]:
    yield f"{work.waiting} waiting"
    if work.oldest is not None:
        yield f"the oldest for {timedelta(seconds=round((now - work.oldest).total_seconds()))}"
    yield from (f"{work.running} running", f"{work.failing} failing")
    if work.set_aside:
        yield f"{work.set_aside} of them set aside: `memorist tend --retry`"
    if work.p95_seconds is not None:
        yield f"95 % had a vector within {work.p95_seconds:.1f} s"
    if work.failure_rate is not None:
        yield f"{work.failure_rate:.0%} of batches failed"


def _told(call: Call, tended: JobReport) -> None:
    from . import output

    if call.json:
        output.as_json({name: asdict(did) for name, did in tended.jobs.items()})
        return
    for name, did in tended.jobs.items():
        output.line(
            f"{name}: {did.runs} done, {did.changed} changed, {did.failed} failed, {did.skipped} put off"
        )
    if not tended.jobs:
        output.note("Nothing was due.")


async def _work(db: str | None, batch_size: int) -> JobReport:
    import memorist

    from ...jobs import registry
    from ...telemetry import logs

    async with memorist.aio.open(db, run_jobs=False) as memory:
        logs.configure(memory.settings.log, memory.ctx.observers)
        working = registry.worker(memory.ctx, batch_size=batch_size)
        on_signals(working.stop)
        return await working.run()


def on_signals(stop: object) -> None:
    """Finish what is under way at SIGTERM and Ctrl-C, instead of dropping it."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)  # type: ignore[arg-type]
        except NotImplementedError:  # on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))  # type: ignore[arg-type]
