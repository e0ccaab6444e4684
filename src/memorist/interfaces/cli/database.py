"""Commands for the database, the index, background jobs and the state of the installation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

import memorist

from ... import telemetry
from ...errors import InvalidInput
from ..call import Call
from ..errors import FAILED
from . import doctor as checks
from . import lazy, output
from .app import command
from .table import All


@command("doctor", "Administration")
def doctor(call: Call) -> None:
    """Check the installation, the settings, the model and the database; say how to fix problems."""
    found = checks.examine(call.db)
    output.as_json(checks.as_plain(found)) if call.json else output.draw(checks.table(found))
    if any(finding.state == "bad" for finding in found):
        raise typer.Exit(FAILED)


@command(
    "db migrate",
    example="--db postgresql://db.example/memories --partitions 16",
    creates=True,
    hnsw="Build HNSW indexes for very large scopes, without blocking others.",
    partitions="<1..1024> Split a new PostgreSQL database into that many partitions.",
)
def migrate(
    call: Call,
    partitions: int | None = None,
    hnsw: bool = False,
) -> None:
    """Migrate the database to the schema of this version, as opening it does."""
    place = lazy.settings.load(db=call.db).db
    done: dict[str, list[Any]] = {"steps": [], "indexes": []}
    if place.startswith(("postgresql://", "postgres://")):
        with lazy.bootstrap.needs_postgres():
            postgres, indexes = lazy.postgres_migrate, lazy.hnsw
        done["steps"] += asyncio.run(postgres.migrate(place, partitions=partitions))
        if hnsw:
            done["indexes"] += asyncio.run(indexes.build(place))
    elif partitions is not None or hnsw:
        raise InvalidInput("--partitions and --hnsw need PostgreSQL: --db postgresql://…")
    else:
        with call.memory():
            pass
    steps = ", ".join(map(str, done["steps"])) or "none"
    created = ", ".join(map(str, done["indexes"])) or "none"
    output.either(call.json, done, f"migrations applied: {steps}; indexes created: {created}")


@command(
    "db copy",
    example="memory.db postgresql://db.example/memories",
    source="<SOURCE> A file, postgresql://… or archive.jsonl.",
    target="<TARGET> A new file, database or archive.jsonl.",
)
def copy(
    call: Call,
    source: str,
    target: str,
) -> None:
    """Copy a whole database into a new one of any kind, with its history, and compare both.

    Run the same command again to continue an interrupted copy. A name that ends in .jsonl is a text
    file with everything, including the key of the digests.
    """
    with output.progress("Copying", None, hidden=call.json) as advance:
        done = asyncio.run(lazy.bootstrap.copied(source, target, progress=advance))
    memories = done.tables.get("memories", 0)
    text = f"{done.rows} rows copied, {memories} of them memories; both sides are equal"
    output.either(call.json, asdict(done), text)


@command(
    "db backup",
    example="memory-2026-05-31.db",
    file="<FILE> A new file.",
)
def backup(
    call: Call,
    file: str,
) -> None:
    """Copy the database into a new file while it is in use."""
    with call.memory() as memory:
        memory.backup(file)
    output.either(call.json, {"file": file}, f"copied to {file}")


@command("db vacuum")
def vacuum(call: Call) -> None:
    """Return unused space in the database file to the disk."""
    with call.memory() as memory:
        before = memory.stats()["bytes"]
        memory.vacuum()
        after = memory.stats()["bytes"]
    sizes = {"bytes_before": before, "bytes_after": after}
    output.either(call.json, sizes, f"{before:,} bytes before, {after:,} after")


@command("db replay")
def replay(call: Call) -> None:
    """Replay writes that were spooled while the store was down. This also happens automatically."""
    with call.memory() as memory:
        done = memory.replay()
        aside = memory.stats().get("set_aside", [])
    if call.json:
        output.as_json(None if done is None else {**asdict(done), "files": aside})
    elif done is None:
        output.line("another process is replaying")
    else:
        output.line(f"{done.taken_in} replayed, {done.waiting} waiting")
    for file in aside:
        output.note(f"Lines that could not be used are in {file}.")


@command(
    "index update",
    example="--dry-run",
    dry_run="Only report what would be done.",
    force="Embed all memories again.",
    stats="Only print how many memories are embedded.",
    batch_size="<1..> Memories per batch.",
)
def update(
    call: Call,
    dry_run: bool = False,
    batch_size: int = 32,
    force: bool = False,
    stats: bool = False,
) -> None:
    """Embed memories that have no vector yet, for all users."""
    with call.memory() as memory:
        counts = memory.stats()
        if stats:
            names = ("memories", "with_embeddings", "without_embeddings", "model")
            output.result({name: counts[name] for name in names}, json=call.json)
            return
        total = counts["memories" if force else "without_embeddings"]
        with output.progress("Embedding", total, hidden=call.json) as advance:
            done = memory.index(
                batch_size=batch_size, force=force, dry_run=dry_run, progress=advance
            )
    what = "would be embedded" if dry_run else "embedded"
    text = f"{done.found} {what} in {done.batches} batches of at most {batch_size}"
    output.either(call.json, {**asdict(done), "dry_run": dry_run}, text)


@command("index rebuild")
def rebuild(call: Call) -> None:
    """Rebuild the vector index from the store."""
    with call.memory() as memory:
        scopes = len(memory.scopes())
        with output.progress("Rebuilding", scopes, hidden=call.json) as advance:
            held = memory.rebuild_index(progress=advance)
    output.either(call.json, {"indexed": held}, f"{held} vectors in the index")


@command(
    "index reembed",
    example="--model minilm",
    batch_size="<1..> Memories per batch.",
    drop_others="Then delete the vectors of other models.",
)
def reembed(
    call: Call,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="minilm, hashing or openai:MODEL.", show_default=False
        ),
    ],
    batch_size: int = 32,
    drop_others: bool = False,
) -> None:
    """Embed all memories with another model while the current one stays in use.

    Recall uses the new vectors once the setting `embedder` names the model. Run the same command
    again to continue after an interruption.
    """
    if model not in ("minilm", "hashing") and not model.startswith("openai"):
        raise InvalidInput(
            f"Unknown embedding model {model!r}: choose minilm, hashing or openai:MODEL"
        )
    with call.memory():  # raises if there is no database
        pass
    with memorist.open(call.db, embedder=model) as memory:
        missing = memory.stats()["without_embeddings"]
        with output.progress("Embedding", missing, hidden=call.json) as advance:
            done = memory.index(batch_size=batch_size, progress=advance)
        dropped = memory.drop_vectors() if drop_others else 0
        counts = memory.stats()
    left = counts["without_embeddings"]
    if call.json:
        output.as_json({**asdict(done), "dropped": dropped, "without_embeddings": left})
        return
    output.line(f"{done.embedded} embedded by {counts['model']}, {left} left, {dropped} dropped")
    output.note(f"To recall with it, set MEMORIST_EMBEDDER={model}.")


@command(
    "jobs run",
    example="--only purge",
    creates=True,
    only="<JOB> This job; can be repeated.",
    retry="Also retry jobs that were given up.",
    batch_size="<1..1024> Memories per batch.",
)
def run(
    call: Call,
    only: list[str] | None = None,
    retry: bool = False,
    batch_size: int = 32,
) -> None:
    """Run all jobs that are due, once: embed, expire, purge, compress and so on."""
    with call.memory() as memory, output.progress("Running", None, hidden=call.json) as advance:
        done = memory.run_jobs(
            only=only or (), retry=retry, batch_size=batch_size, progress=advance
        )
    _show_jobs(call, done)
    if any(job.failed for job in done.jobs.values()):
        output.note(
            "Failed jobs are retried by the next `memorist jobs run`. See `memorist doctor`."
        )
        raise typer.Exit(FAILED)


@command("jobs worker", creates=True, batch_size="<1..1024> Memories per batch.")
def worker(call: Call, batch_size: int = 32) -> None:
    """Run jobs as they become due, until stopped. Any number of workers can share the work."""

    async def work() -> Any:
        async with memorist.aio.open(call.db, run_jobs=False) as memory:
            telemetry.configure_log(memory.settings.log, memory.ctx.observers)
            working = lazy.job_worker.Worker(memory.ctx, batch_size=batch_size)
            on_signals(working.stop)
            return await working.run()

    _show_jobs(call, asyncio.run(work()))


def _show_jobs(call: Call, done: Any) -> None:
    if call.json:
        output.as_json({name: asdict(job) for name, job in done.jobs.items()})
        return
    for name, job in done.jobs.items():
        counts = f"{job.runs} done, {job.changed} changed, {job.failed} failed"
        output.line(f"{name}: {counts}, {job.skipped} postponed")
    if not done.jobs:
        output.note("No jobs were due.")


@command(
    "jobs purge",
    example="--dry-run",
    creates=True,
    dry_run="Only report what would be done.",
)
def purge(
    call: Call,
    everyone: All = False,
    dry_run: bool = False,
) -> None:
    """Archive memories that have not been used for long, and erase those archived for long."""
    with call.memory() as memory:
        target: Any = memory if everyone else call.scope(memory)
        done = target.purge(dry_run=dry_run)
    would = "would be " if dry_run else ""
    text = f"{len(done.expired)} {would}archived, {len(done.purged)} {would}erased"
    output.either(call.json, {**asdict(done), "dry_run": dry_run}, text)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at SIGTERM and Ctrl-C, to finish the current work."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
