"""The commands about the memory as a whole: files in and out, its index and its health."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InvalidInput
from ..errors import FAILED, REFUSED
from .app import Call, command

if TYPE_CHECKING:
    from ...types import Outcome
    from .files import Line

FILES, CARE = "Files", "Care"
BATCH = 64  # lines taken in together: few enough to see the bar move


@command(FILES, name="import", example="memorist import chat.jsonl --user ana", writes=True)
def import_(
    call: Call,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file; - reads stdin.", show_default=False)
    ],
    restore: Annotated[
        bool,
        typer.Option("--restore", help="It is an export of your own: keep every record as it was."),
    ] = False,
) -> None:
    """Take in an export, or a file of messages: one JSON object a line.

    A message has content, and may have role, name, at, session and id. Exported records go back to where they
    came from, or to --user if you name one. A line that cannot be read stops the import; what stood before it
    is kept, and importing the same file again changes nothing. Records pass the guard like any other write;
    --restore brings an export of your own back as it was.
    """
    from . import files, output

    outcomes: list[Outcome] = []
    read = 0
    with call.memory() as memory, files.opened(file) as source:
        about = call.scope(memory) if call.names_a_scope else memory
        before = about.stats()["memories"]
        found = files.named(files.lines(source), file=file, session=call.session)
        with output.progress("Importing", _size(source), hidden=call.json) as advance:
            for batch in _batches(found):
                mine = batch[0].is_message or call.names_a_scope
                target = call.scope(memory) if mine else memory
                outcomes += _taken(batch, partial(target.import_, restore=restore))
                read += len(batch)
                advance(batch[-1].read)
        new = about.stats()["memories"] - before
    counts = Counter(outcome.status for outcome in outcomes)
    if call.json:
        output.as_json({"records": read, "new_memories": new, "outcomes": counts})
    else:
        left = "".join(
            f", {counts[status]} {status}"
            for status in ("refused", "conflict", "pending")
            if counts[status]
        )
        output.line(f"{read} records read, {new} new memories{left}")
    refused = [outcome for outcome in outcomes if outcome.status in ("refused", "conflict")]
    for outcome in refused[:10]:
        output.note(f"{outcome.status}: {outcome.reason}")
    if refused:
        raise typer.Exit(REFUSED)


def _size(source: Any) -> int | None:
    import os

    try:
        return os.fstat(source.fileno()).st_size or None
    except (OSError, ValueError):
        return None


def _batches(found: Iterator[Line]) -> Iterator[list[Line]]:
    """A few lines of one sort at a time. What stands before a line that cannot be read is given before the error."""
    batch: list[Line] = []
    try:
        for line in found:
            if batch and (len(batch) == BATCH or line.is_message != batch[0].is_message):
                yield batch
                batch = []
            batch.append(line)
    except InvalidInput:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _taken(
    batch: Sequence[Line], import_: Callable[[list[dict[str, Any]]], Any]
) -> Sequence[Outcome]:
    """Import some lines together; if one of them is wrong, one by one up to that, so that the error can name it."""
    try:
        return tuple(import_([line.record for line in batch]).outcomes)
    except InvalidInput as error:
        if len(batch) == 1:
            said = str(error).removeprefix("Record 1 ")  # the first of the one that was given
            between = " " if said != str(error) else ": "
            raise InvalidInput(f"Line {batch[0].number}{between}{said}") from error
    return tuple(chain.from_iterable(_taken([line], import_) for line in batch))


@command(FILES, example="memorist export memories.jsonl")
def export(
    call: Call,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Where to; without it, stdout.", show_default=False),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="Of everybody, not only of --user.")
    ] = False,
) -> None:
    """Write everything that is kept, one JSON object a line, as `import` takes it."""
    from . import files, output

    written = 0  # without the header, which comes first
    with call.memory() as memory, files.written(file) as target:
        source = memory if everyone else call.scope(memory)
        with output.progress("Exporting", None, hidden=call.json or file is None) as advance:
            for written, record in enumerate(source.export()):
                print(json.dumps(record, ensure_ascii=file is None), file=target)
                advance(written)
    if file is not None and file != "-":
        output.as_json({"records": written, "file": file}) if call.json else output.line(
            f"{written} records in {file}"
        )


@command(FILES, example="memorist backup memory-2026-05-31.db")
def backup(
    call: Call,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.", show_default=False)],
) -> None:
    """Copy the whole memory into a new file, while others go on using it."""
    from . import output

    with call.memory() as memory:
        memory.backup(file)
    output.as_json({"file": file}) if call.json else output.line(f"copied to {file}")


@command(CARE, example="memorist index --dry-run")
def index(
    call: Call,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what there is to do.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, help="Memories embedded together.")
    ] = 32,
    force: Annotated[
        bool, typer.Option("--force", help="Also those that are embedded already.")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Print how many are embedded, and do nothing.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Fill the vector index anew from the store.")
    ] = False,
) -> None:
    """Embed the memories that have no vector yet, of everybody."""
    from . import output

    with call.memory() as memory:
        if rebuild:
            with output.progress("Filling", len(memory.scopes()), hidden=call.json) as advance:
                held = memory.rebuild_index(progress=advance)
            output.as_json({"indexed": held}) if call.json else output.line(
                f"{held} vectors in the index"
            )
            return
        counts = memory.stats()
        if stats:
            known = {
                name: counts[name]
                for name in ("memories", "with_embeddings", "without_embeddings", "model")
            }
            output.as_json(known) if call.json else output.show(output.pairs(known))
            return
        total = counts["memories" if force else "without_embeddings"]
        with output.progress("Embedding", total, hidden=call.json) as advance:
            done = memory.index(
                batch_size=batch_size, force=force, dry_run=dry_run, progress=advance
            )
    if call.json:
        output.as_json({**asdict(done), "dry_run": dry_run})
    else:
        what = "would be embedded" if dry_run else "embedded"
        output.line(f"{done.found} {what} in {done.batches} batches of at most {batch_size}")


@command(CARE, example="memorist stats --all")
def stats(
    call: Call,
    everyone: Annotated[
        bool, typer.Option("--all", help="Of everybody, not only of --user.")
    ] = False,
) -> None:
    """Count what is remembered."""
    from . import output

    with call.memory() as memory:
        counts = memory.stats() if everyone else call.scope(memory).stats()
    output.as_json(counts) if call.json else output.show(output.pairs(counts))


@command(CARE, example="memorist costs --all --days 7")
def costs(
    call: Call,
    everyone: Annotated[
        bool, typer.Option("--all", help="Of everybody, not only of --user.")
    ] = False,
    days: Annotated[float, typer.Option(metavar="DAYS", min=0, help="How far back to look.")] = 30,
) -> None:
    """Show what the language model cost, in tokens, by day, task and model. With --json one a line."""
    from . import output

    with call.memory() as memory:
        found = (memory if everyone else call.scope(memory)).llm_usage(days=days)
    for each in found:
        if call.json:
            output.as_line(each)
            continue
        whose = (
            f"  {'/'.join((each.scope.tenant, each.scope.user, each.scope.space))}"
            if everyone
            else ""
        )
        cost = f"{each.calls:>5} calls {each.tokens_in:>9,} in {each.tokens_out:>8,} out"
        aside = f"  {each.reserved:,} set aside" if each.reserved else ""
        output.line(
            output.plain(f"{each.day}  {each.task:<10}")
            + f"{cost}  {output.plain(each.model + whose)}{aside}"
        )
    if not found and not call.json:
        output.note("The language model was not asked.")


@command(CARE, example="memorist doctor")
def doctor(call: Call) -> None:
    """Look at what is installed, the settings, the model and the file, and say how to mend what is not well."""
    from . import doctor as checks
    from . import output

    found = checks.examined(call.db)
    output.as_json(checks.as_plain(found)) if call.json else output.show(checks.table(found))
    if any(finding.state == "bad" for finding in found):
        raise typer.Exit(FAILED)


@command(CARE, example="memorist replay")
def replay(call: Call) -> None:
    """Take in what was told while the store was away. It happens by itself too, soon after the store is back."""
    from . import output

    with call.memory() as memory:
        done = memory.replay()
        aside = memory.stats().get("set_aside", [])
    if call.json:
        output.as_json(None if done is None else {**asdict(done), "files": aside})
    elif done is None:
        output.line("another process is taking it in")
    else:
        output.line(f"{done.taken_in} taken in, {done.waiting} still waiting")
    for file in aside:
        output.note(f"What could not be used was set aside in {file}.")


@command(CARE, example="memorist vacuum")
def vacuum(call: Call) -> None:
    """Give unused space in the file back to the disk."""
    from . import output

    with call.memory() as memory:
        before = memory.stats()["bytes"]
        memory.vacuum()
        after = memory.stats()["bytes"]
    if call.json:
        output.as_json({"bytes_before": before, "bytes_after": after})
    else:
        output.line(f"{before:,} bytes before, {after:,} after")
