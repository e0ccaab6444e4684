"""Commands for the database, the index, background jobs and statistics."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import memorist

from ... import telemetry
from ...errors import InvalidInput
from .. import FAILED, Blocking, BlockingScope, Call, load, plain
from .app import Words, command
from .output import Progress, note

REPORT_SECONDS = 60.0  # between two reports of a worker

NICENESS = 10  # of workers: servers on the same machine come first


@command("db migrate")
def migrate(
    call: Call,
    *,
    partitions: int | None = None,
    hnsw: bool = False,
) -> object:
    """Migrate the database to the schema of this version. Opening it does the same.

    Args:
        hnsw: Build HNSW indexes for very large scopes, without blocking others.
        partitions: <1..1024> Split a new PostgreSQL database into that many partitions.

    Example: memorist db migrate --db postgresql://db.example/memories --partitions 16
    """
    place = load("settings").load(db=call.db).db
    steps: list[int] = []
    indexes: list[str] = []
    if place.startswith(("postgresql://", "postgres://")):
        with load("aio").needs_postgres():
            postgres = load("storage.postgres.migrate")
        steps = asyncio.run(postgres.migrate(place, partitions=partitions))
        if hnsw:
            indexes = asyncio.run(postgres.build_indexes(place))
    elif partitions is not None or hnsw:
        raise InvalidInput("--partitions and --hnsw need PostgreSQL: --db postgresql://…")
    else:
        with call.memory():
            pass
    applied = ", ".join(map(str, steps)) or "none"
    created = ", ".join(indexes) or "none"
    text = f"migrations applied: {applied}; indexes created: {created}"
    return {"steps": steps, "indexes": indexes}, text


@command("db copy")
def copy(progress: Progress, source: str, target: str) -> object:
    """Copy a whole database into a new one of any kind, with its history, and compare both.

    Run the same command again to continue an interrupted copy. A name that ends in .jsonl is an
    archive in text form. It includes the key of the digests.

    Args:
        source: <SOURCE> A file, postgresql://… or archive.jsonl.
        target: <TARGET> A new file, database or archive.jsonl.

    Example: memorist db copy memory.db postgresql://db.example/memories
    """
    with progress("Copying") as advance:
        done = asyncio.run(load("aio").copy_store(source, target, progress=advance))
    memories = done.tables.get("memories", 0)
    text = f"{done.rows} rows copied, {memories} of them memories; both sides are equal"
    return asdict(done), text


@command("db vacuum")
def vacuum(memory: Blocking) -> object:
    """Return unused space in the database file to the disk."""
    before = memory.stats()["bytes"]
    memory.vacuum()
    after = memory.stats()["bytes"]
    sizes = {"bytes_before": before, "bytes_after": after}
    return sizes, f"{before:,} bytes before, {after:,} after"


@command("db replay")
def replay(memory: Blocking) -> object:
    """Replay writes that were spooled while the store was down. This also happens automatically."""
    done = memory.replay()
    aside = memory.stats().get("set_aside", [])
    notes = [f"Lines that could not be replayed are in {file}." for file in aside]
    if done is None:
        return None, "another process is replaying", notes
    text = f"{done.taken_in} replayed, {done.waiting} waiting"
    return {**asdict(done), "files": aside}, text, notes


@command("index update")
def update(
    progress: Progress,
    memory: Blocking,
    *,
    dry_run: bool = False,
    batch_size: int = 32,
    force: bool = False,
    stats: bool = False,
) -> object:
    """Embed memories that have no vector yet, for all users.

    Args:
        dry_run: Only report what would be done.
        force: Embed all memories again.
        stats: Only print how many memories are embedded.
        batch_size: <1..> Memories per batch.

    Example: memorist index update --dry-run
    """
    counts = memory.stats()
    if stats:
        names = ("memories", "with_embeddings", "without_embeddings", "model")
        return {name: counts[name] for name in names}
    total = counts["memories" if force else "without_embeddings"]
    with progress("Embedding", total) as advance:
        done = memory.index(batch_size=batch_size, force=force, dry_run=dry_run, progress=advance)
    what = "would be embedded" if dry_run else "embedded"
    text = f"{done.found} {what} in {done.batches} batches of at most {batch_size}"
    return {**asdict(done), "dry_run": dry_run}, text


@command("index rebuild")
def rebuild(progress: Progress, memory: Blocking) -> object:
    """Rebuild the vector index from the store."""
    with progress("Rebuilding", len(memory.scopes())) as advance:
        indexed = memory.rebuild_index(progress=advance)
    return {"indexed": indexed}, f"{indexed} vectors in the index"


@command("index reembed")
def reembed(
    call: Call,
    progress: Progress,
    *,
    model: str,
    batch_size: int = 32,
    drop_others: bool = False,
) -> object:
    """Embed all memories with another model while the current one stays in use.

    Recall uses the new vectors once the setting `embedder` names the model. Run the same command
    again to continue after an interruption.

    Args:
        model: <NAME> minilm, hashing or openai:MODEL.
        batch_size: <1..> Memories per batch.
        drop_others: Delete the vectors of other models afterwards.

    Example: memorist index reembed --model minilm
    """
    if model not in ("minilm", "hashing") and not model.startswith("openai"):
        raise InvalidInput(
            f"Unknown embedding model {model!r}: choose minilm, hashing or openai:MODEL"
        )
    with call.memory():  # raises if there is no database
        pass
    with memorist.open(call.db, embedder=model) as memory:
        missing = memory.stats()["without_embeddings"]
        with progress("Embedding", missing) as advance:
            done = memory.index(batch_size=batch_size, progress=advance)
        dropped = memory.drop_vectors() if drop_others else 0
        counts = memory.stats()
    left = counts["without_embeddings"]
    values = {**asdict(done), "dropped": dropped, "without_embeddings": left}
    text = f"{done.embedded} embedded by {counts['model']}, {left} left, {dropped} dropped"
    note = f"To recall with it, set MEMORIST_EMBEDDER={model}."
    return values, text, [] if call.json else [note]


@command("jobs run")
def run(
    progress: Progress,
    memory: Blocking,
    *,
    only: Words = None,
    retry: bool = False,
    batch_size: int = 32,
) -> object:
    """Run all jobs that are due, once: embed, expire, purge, compress and so on.

    Args:
        only: <JOB> This job; can be repeated.
        retry: Also retry jobs that were given up.
        batch_size: <1..1024> Memories per batch.

    Example: memorist jobs run --only purge
    """
    with progress("Running") as advance:
        done = memory.run_jobs(
            only=only or (), retry=retry, batch_size=batch_size, progress=advance
        )
    text = _count_jobs(done.jobs)
    if any(job.failed for job in done.jobs.values()):
        note = "Failed jobs are retried by the next `memorist jobs run`. See `memorist doctor`."
        return done.jobs, text, [note], FAILED
    return done.jobs, text


@command("jobs backfill")
def backfill(call: Call, progress: Progress, memory: Blocking) -> object:
    """Extract facts from conversations that were stored before extraction was on.

    Run it again to continue after an interruption. Earlier statements that a later one replaced, or
    may replace, are listed, and `memorist conflicts` decides on them.

    Example: memorist jobs backfill
    """
    with progress("Reading") as advance:
        done = memory.backfill(progress=advance)
    replaced: list[dict[str, str]] = []
    uncertain: list[dict[str, str]] = []
    for each in done.conflicts:
        is_over = each.old.valid_to is not None or not each.old.is_active
        pairs = replaced if is_over else uncertain
        pairs.append({"new": each.new.text, "old": each.old.text})
    lines = [f"{done.facts} facts extracted, {len(replaced)} earlier statements replaced"]
    lines += [f"- {plain(each['old'])} → {plain(each['new'])}" for each in replaced]
    if uncertain:
        lines.append(f"{len(uncertain)} earlier statements may be outdated")
        lines += [f"- {plain(each['old'])} → {plain(each['new'])}?" for each in uncertain]
    has_pairs = bool(done.conflicts) and not call.json
    notes = ["Decide on them: `memorist conflicts`."] if has_pairs else []
    answer = {"facts": done.facts, "replaced": replaced, "uncertain": uncertain}
    return answer, "\n".join(lines), notes


@command("jobs worker")
def worker(call: Call, *, batch_size: int = 32) -> object:
    """Run jobs as they become due, until stopped. Any number of workers can share the work.

    It prints which jobs it waits for, and at most once a minute how often each has run.

    Args:
        batch_size: <1..1024> Memories per batch.
    """
    if hasattr(os, "setpriority"):
        now = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, max(now, NICENESS))

    async def work() -> Any:
        async with memorist.aio.open(call.db, run_jobs=False) as memory:
            telemetry.configure_log(memory.settings.log, memory.ctx.observers)
            jobs = load("jobs.worker")
            working = jobs.Worker(memory.ctx, batch_size=batch_size)
            on_signals(working.stop)
            names = [jobs.EMBED, *(job.name for job in jobs.list_jobs(memory.ctx))]
            announce(memory.settings, f"Waiting for jobs: {', '.join(names)}")
            reporting = asyncio.create_task(report(working))
            try:
                return await working.run()
            finally:
                reporting.cancel()

    async def report(working: Any) -> None:
        """Print how often each job has run, whenever that has changed."""
        shown = ""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            counts = "; ".join(_count_jobs(working.report.jobs).splitlines())
            if counts != shown and working.ctx.settings.log == "off":
                note(counts)
            shown = counts

    jobs = asyncio.run(work()).jobs
    return jobs, _count_jobs(jobs)


def _count_jobs(jobs: Mapping[str, Any]) -> str:
    lines = []
    for name, job in jobs.items():
        counts = f"{job.runs} done, {job.changed} changed, {job.failed} failed"
        lines.append(f"{name}: {counts}, {job.skipped} postponed")
    return "\n".join(lines)


@command("jobs purge")
def purge(mine: BlockingScope, *, all: bool = False, dry_run: bool = False) -> object:
    """Archive memories that have not been used for long, and erase those archived for long.

    Args:
        dry_run: Only report what would be done.

    Example: memorist jobs purge --dry-run
    """
    done = mine.purge(dry_run=dry_run)
    would = "would be " if dry_run else ""
    text = f"{len(done.expired)} {would}archived, {len(done.purged)} {would}erased"
    return {**asdict(done), "dry_run": dry_run}, text


@command("stats overview")
def overview(mine: BlockingScope) -> object:
    """Summarize the memory: counts, pinned memories, and the latest ones by topic.

    Example: memorist stats overview --space work
    """
    text = mine.overview()
    lines = "\n".join(map(plain, text.splitlines()))
    return {"space": mine.scope.space, "overview": text}, lines


@command("stats llm-usage")
def llm_usage(
    call: Call,
    mine: BlockingScope,
    *,
    all: bool = False,
    days: float = 30,
) -> object:
    """Show the tokens that the language model used, by day, task and model.

    Args:
        days: <DAYS> Number of days to look back.

    Example: memorist stats llm-usage --all --days 7
    """
    found = mine.llm_usage(days=days)
    if call.json:
        return found
    lines = []
    for usage in found:
        tokens = f"{usage.calls:>5} calls {usage.tokens_in:>9,} in {usage.tokens_out:>8,} out"
        words = [f"{usage.day}  {usage.task:<10}{tokens}", usage.model]
        if all:
            scope = usage.scope
            words.append(f"{scope.tenant}/{scope.user}/{scope.space}")
        if usage.reserved:
            words.append(f"{usage.reserved:,} reserved")
        lines.append("  ".join(words))
    return found, "\n".join(lines)


def announce(settings: Any, text: str) -> None:
    """Say that a server or worker has started, on stderr: in the log, if there is one."""
    if settings.log == "off":
        note(f"{text}; press Ctrl-C to stop.")
    else:
        telemetry.log.info(text)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM and Ctrl-C, so that the current work is finished."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
