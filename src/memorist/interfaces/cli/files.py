"""Commands about all data of a user: import, export, privacy settings and erasure."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any, Literal

import typer

from ...errors import InvalidInput
from ...storage.atomic import new_file
from ...types import Outcome
from .. import FAILED, OK, REFUSED, SERVER, Blocking, BlockingScope, Call
from .app import command
from .lines import add_ids, read_lines, split_batches
from .output import Progress, note

if TYPE_CHECKING:
    from ...manage.import_export import ImportReport
    from ...readers.source import Source

MANY_TASKS = 8  # of extraction that wait after an import, each for up to 64 lines
REFUSALS = ("refused", "conflict")  # outcomes of what was not stored
RECORDS, MESSAGES = "records", "messages"  # what a file has in its lines
MANY_VECTORS = 1000  # that are computed after an import: a minute or more


@command("import")
def import_(
    call: Call,
    progress: Progress,
    memory: Blocking,
    path: str,
    *,
    from_: str = "auto",
    me: str | None = None,
    since: str | None = None,
    dry_run: bool = False,
    restore: bool = False,
) -> object:
    """Import your history from another program, or an export of Memorist.

    It reads a file, a folder or a ZIP archive: chats from ChatGPT, Claude, Claude Code, Codex, Slack,
    Discord, WhatsApp and Telegram, lists of messages, memories of Mem0, Letta, basic-memory,
    LangGraph and the MCP memory server, Markdown and Obsidian notes. Importing again changes
    nothing, and continues an interrupted import.
    A file with one JSON object per line is an export, or has messages with content and optionally
    role, name, at, session and id. Exported records return to their scope, or to --user if given.
    Everything passes the guard like any other write, unless --restore is given.
    With a server, files of other programs are uploaded.

    Args:
        path: <FILE_OR_FOLDER> What to import; - reads lines from stdin.
        from_: <FORMAT> The format, if it is not recognized.
        me: <NAME> Your name in chats between people.
        since: <DATE> Leave out what is older.
        dry_run: Only count, and show samples.
        restore: For your own export: store every record unchanged.

    Example: memorist import ~/Downloads/chatgpt-export.zip
    """
    from ...readers import BEFORE_SINCE  # with numpy, which other commands do without
    from ...readers.source import count_skipped

    lines, source = _find_own_lines(path) if from_ == "auto" else ("", None)
    if lines:
        if dry_run and lines == MESSAGES and path != "-":
            from_ = "openai"  # which only differs in the ids
        elif dry_run or ((me or since) and lines == RECORDS):
            raise InvalidInput("--me, --since and --dry-run only apply to files of other programs")
        else:
            return _import_lines(call, progress, memory, source, restore=restore, since=since)
    if restore:
        raise InvalidInput("--restore requires an export of Memorist")
    target = call.scope(memory)
    options: dict[str, Any] = {"from_": from_, "me": me, "since": since, "dry_run": dry_run}
    try:
        with progress("Importing") as advance:
            report = target.import_files(path, on_progress=advance, **options)
        without = 0 if _is_server(memory) else memory.stats()["without_embeddings"]
        if without and not dry_run:
            if without > MANY_VECTORS:
                note(
                    f"{without:,} memories are stored and can be found by keyword. Semantic search "
                    "follows; you can already ask, or stop with Ctrl-C and run `memorist index` later."
                )
            with progress("Embedding", without) as advance:
                memory.index(progress=advance)
    except KeyboardInterrupt:
        print("Interrupted: run the same command again to continue.", file=sys.stderr)
        raise
    read = sum(report.formats.values())
    by_format = ", ".join(f"{name}: {count}" for name, count in report.formats.items())
    stored = "nothing stored"
    if not dry_run:
        stored = f"{report.new_memories} new memories{_name_others(report)}"
    text = f"Read {by_format or 'nothing'}; {stored}{_name_problems(report.outcomes)}"
    if dry_run:
        for name, samples in report.samples.items():
            for sample in samples:
                text += f"\n  {name}: {shorten(sample, 70, placeholder=' …')}"
    notes = []
    for reasons, verb in ((report.skipped, "Skipped"), (report.refused, "Refused")):
        for reason, count in reasons.most_common(10):
            notes.append(f"{verb} {count_skipped(reason, count)}")
    if without and not dry_run:
        how = "memorist jobs backfill"
        notes.append(f"What changed between these conversations is not marked yet: run `{how}`")
    notes += _name_waiting(memory)
    code = exit_code_of(report.outcomes)
    if not read and report.skipped.keys() - {BEFORE_SINCE}:
        code = FAILED
    return {"entries": read, **vars(report)}, text, notes, code


def _find_own_lines(path: str) -> tuple[str, Source | None]:
    """Return what the lines of a file are, and the file: our own records, or messages.

    That is empty for other formats, and the file is None for stdin.
    """
    from ...readers import archive, detect  # with numpy, which other commands do without

    if path == "-":
        return MESSAGES, None
    sources = archive.find_sources(Path(path)) if Path(path).is_file() else []
    if len(sources) != 1:
        return "", None
    (source,) = sources
    kind, keys = source.shape
    is_lines = kind in ("lines", "object")
    if is_lines and "record_type" in keys:
        return RECORDS, source
    name = detect(source)
    if is_lines and "content" in keys and name in (None, "openai"):
        return MESSAGES, source
    is_unknown = name is None and source.suffix in ("", ".jsonl", ".ndjson")
    return (MESSAGES if is_unknown else ""), source


def exit_code_of(counts: Counter[Any]) -> int:
    """Return the exit code of an import: it was refused only if nothing else came of it."""
    is_refused = counts and all(status in REFUSALS for status, count in counts.items() if count)
    return REFUSED if is_refused else OK


def _name_problems(counts: Counter[Any]) -> str:
    """Return how many outcomes need attention, as the end of a sentence."""
    problems = ("refused", "conflict", "pending")
    return "".join(f", {counts[status]} {status}" for status in problems if counts[status])


def _name_others(report: ImportReport) -> str:
    """Return what became of entries that are no new memories, as part of a sentence."""
    counts = dict(report.outcomes)
    counts["imported before"] = counts.get("created", 0) - report.new_memories
    others = {
        "merged": "repeats merged",
        "updated": "memories extended",
        "skipped": "not stored",
        "imported before": "imported before",
    }
    return "".join(
        f", {counts[name]} {what}" for name, what in others.items() if counts.get(name, 0) > 0
    )


def _is_server(memory: Blocking) -> bool:
    """Return whether the memory is that of a server, which adds vectors and facts by itself."""
    return memory.settings.db.startswith(SERVER)


def _name_waiting(memory: Blocking) -> list[str]:
    """Return a note if many facts are still to be extracted."""
    if _is_server(memory):
        return []
    waiting = sum(work.waiting for work in memory.backlog() if work.name == "extract")
    if waiting <= MANY_TASKS:
        return []
    how = "memorist jobs run --only extract"
    return [f"Facts are still being extracted in the background. To finish now: {how}"]


def _import_lines(
    call: Call,
    progress: Progress,
    memory: Blocking,
    file: Source | None,
    *,
    restore: bool,
    since: str | None,
) -> object:
    """Import an export, or messages: those since a date. Without a file, from stdin.

    A line that cannot be read stops the import; the lines before it are stored.
    """
    # With numpy, which other commands do without.
    from ...ingest.validation import moment
    from ...manage.import_export import NewMemories
    from ...readers.source import ImportRun, opened

    start = moment(since)
    outcomes: list[Outcome] = []
    new = NewMemories()
    read = 0
    how = ImportRun()
    with opened(file, how) if file else nullcontext(sys.stdin.buffer) as stream:
        names_a_scope = call.user or call.space or call.tenant
        counted: Any = call.scope(memory) if names_a_scope else memory
        name = file.stem if file else "stdin"
        lines = add_ids(read_lines(stream), name=name, session=call.session)
        lines = filter(lambda line: line.is_since(start), lines)
        with progress("Importing", file.size if file else None) as advance:
            for batch in filter(None, split_batches(lines)):
                target = call.scope(memory) if batch[0].is_message else counted
                try:
                    receipt = target.import_([line.record for line in batch], restore=restore)
                except InvalidInput as error:
                    # It names the record in the batch: name the line in the file instead.
                    named = re.fullmatch(r"(?s)Record (\d+): (.*)", str(error))
                    if named is None:
                        raise
                    number = batch[int(named[1]) - 1].number
                    raise InvalidInput(f"Line {number}: {named[2]}") from error
                outcomes += receipt.outcomes
                new.add(receipt.outcomes)
                read += sum(line.is_counted for line in batch)
                advance(batch[-1].read)
    if how.damage:
        raise InvalidInput(f"Only lines before the damage are stored: {how.damage}")
    counts = Counter(outcome.status for outcome in outcomes)
    text = f"{read} records read, {len(new)} new memories{_name_problems(counts)}"
    values = {"records": read, "new_memories": len(new), "outcomes": counts}
    refused = [outcome for outcome in outcomes if outcome.status in REFUSALS]
    notes = [f"{outcome.status}: {outcome.reason}" for outcome in refused[:10]]
    if not call.json:
        notes += _name_waiting(memory)
    return values, text, notes, exit_code_of(counts)


@command("export")
def export(
    call: Call,
    progress: Progress,
    memory: Blocking,
    file: str | None = None,
    *,
    all: bool = False,
    force: bool = False,
) -> object:
    """Export all data of a user, one JSON object per line, as `import` reads it.

    Without --space that is every space, with checkpoints, API keys, spooled writes and lines of the
    journal, which `import` ignores.

    Args:
        file: <[FILE]> The file; default: stdout.
        force: Replace the file if it exists.

    Example: memorist export memories.jsonl
    """
    if file is not None and Path(file).is_file() and not force:
        raise InvalidInput(f"{file!r} already exists: choose a new name, or pass --force")
    mine = call.scope(memory)
    if all:
        exported = memory.export()
    elif call.space is not None:
        exported = mine.export()
    else:
        exported = memory.export_user(mine.scope.user, tenant=mine.scope.tenant)
    records = 0  # without the header, which comes first
    with (
        open_output(file) as target,
        progress("Exporting", hidden=call.json or file is None) as advance,
    ):
        for records, record in enumerate(exported):
            print(json.dumps(record, ensure_ascii=file is None), file=target)
            advance(records)
    if file is None or file == "-":
        return None
    return {"records": records, "file": file}, f"{records} records in {file}"


@contextmanager
def open_output(path: str | None) -> Iterator[IO[str]]:
    """Open a file or stdout for writing. A file appears under its name once it is complete."""
    if path is None or path == "-":
        yield sys.stdout
        return
    target = Path(path)
    is_special = target.exists() and not target.is_file()  # a device or a pipe is not replaced
    place = nullcontext(target) if is_special else new_file(target)
    with place as draft, open(draft, "w", encoding="utf-8") as file:
        yield file


@command("privacy status")
def privacy_status(mine: BlockingScope) -> object:
    """Show whether memory is on, in a space or in a --session.

    Example: memorist privacy status --session chat-7
    """
    reason = mine.privacy.disabled_reason()
    settings = asdict(mine.privacy.settings())
    return {**settings, "on": not reason, "reason": reason}, reason or "memory is on"


@command("privacy set")
def privacy_set(
    call: Call,
    state: Literal["on", "off"] | None = None,
    *,
    incognito_default: bool | None = None,
    sharing: bool | None = None,
) -> object:
    """Change the privacy settings of a space.

    While memory is off you can still read, edit, forget and save explicitly.

    Args:
        state: <[on|off]> Memory on or off.
        incognito_default: Start sessions incognito.
        sharing: Let your other spaces recall what is tagged share:SPACE.

    Example: memorist privacy set off
    """
    if (state, incognito_default, sharing) == (None, None, None):
        raise typer.BadParameter("Nothing to set: pass on, off, --incognito-default or --sharing")
    with call.mine() as mine:
        mine.privacy.set(
            memory_enabled=None if state is None else state == "on",
            incognito_default=incognito_default,
            sharing=sharing,
            actor=mine.scope.user,
        )
        return privacy_status(mine)


@command("privacy incognito")
def incognito(call: Call, action: Literal["start", "end", "on", "off"]) -> object:
    """Start or end incognito mode of a --session: nothing is stored or recalled in it.

    Args:
        action: <start|end> Or on and off.

    Example: memorist privacy incognito start --session chat-7
    """
    if call.session is None:
        raise typer.BadParameter("Missing --session NAME")
    with call.mine() as mine:
        privacy = mine.privacy
        privacy.start_incognito() if action in ("start", "on") else privacy.end_incognito()
        return privacy_status(mine)


@command("privacy erase")
def erase(call: Call, memory: Blocking, *, yes: bool = False) -> object:
    """Erase all data of a user for good.

    This includes every space, API key, checkpoint, spooled write and line of the journal. It asks
    for confirmation; without a terminal it needs --yes. Backups and exports are your own files:
    delete them yourself.

    Args:
        yes: Do not ask.

    Example: memorist privacy erase --user ana
    """
    scope = call.scope(memory).scope
    spaces = len(memory.scopes(user=scope.user, tenant=scope.tenant))
    if not yes:
        if call.json or not sys.stdin.isatty():
            raise InvalidInput(
                f"Nothing was erased for {scope.user!r} (spaces: {spaces}), because there is no "
                "terminal to confirm it. Pass --yes"
            )
        question = f"Erase all data of {scope.user!r} for good (spaces: {spaces})?"
        typer.confirm(question, abort=True, err=True)
    done = memory.erase_user(scope.user, tenant=scope.tenant)
    text = f"erased  memories: {done.memories}, spaces: {len(done.spaces)}, keys: {done.keys}"
    return done, text
