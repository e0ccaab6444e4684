"""What commands print: answers on stdout, as text or JSON; notes and progress on stderr.

`show` prints a result by its type. The text of a memory is printed as plain text: it can neither
color nor control the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import singledispatch
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ...storage import codec
from ...storage.changes import Event, HistoryEntry
from ...storage.history import EventCount, Updates
from ...storage.proposals import Proposal
from ...storage.tasks import Backlog
from ...types import Conflict, Evidence, Hit, Memory, Reason, Recall, Receipt, Related
from ..render import plain


class _Screen(Console):
    """A console that reports a closed pipe to its caller."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(*, stderr: bool = False) -> Console:
    """Return the terminal, or the pipe in its place: without colors and 80 columns wide."""
    return _Screen(stderr=stderr, highlight=False, markup=False, emoji=False)


def draw(*things: RenderableType) -> None:
    """Print to stdout, wrapped to the width of the terminal."""
    console = screen()
    for thing in things:
        console.print(thing)


def line(text: str | Text) -> None:
    """Print one line to stdout, however long, so that other programs can split it."""
    screen().print(text, soft_wrap=True)


def note(text: str) -> None:
    """Print a note to stderr."""
    screen(stderr=True).print(Text(text, style="dim"), soft_wrap=True)


def as_json(value: Any) -> None:
    """Print one JSON document."""
    print(_dump(value, indent=2))


def as_line(value: Any) -> None:
    """Print one JSON document on one line."""
    print(_dump(value))


def _dump(value: Any, indent: int | None = None) -> str:
    if isinstance(value, Conflict):
        old, new = value.old, value.new
        value = {"id": value.id, "new": new.text, "old": old.text, "old_id": old.id}
    elif is_dataclass(value):
        value = codec.dump(value)
    return json.dumps(value, ensure_ascii=not _is_unicode(), indent=indent, default=str)


def _is_unicode() -> bool:
    encoding = str(getattr(sys.stdout, "encoding", "") or "")
    return encoding.lower().replace("-", "").startswith("utf")


def either(json: bool, value: Any, text: str) -> None:
    """Print a value as JSON, or a line of text."""
    as_json(value) if json else line(text)


@contextmanager
def progress(
    title: str, total: int | None, *, hidden: bool = False
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr, if that is a terminal.

    The block calls what it gets with how many are done, and with the total if it learns that late.
    """
    console = screen(stderr=True)
    if hidden or not console.is_terminal:
        yield lambda done, of=None: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(title, total=total)
        yield lambda done, of=total: bars.update(task, completed=done, total=of)


def bar(share: float, width: int = 10, *, unicode: bool = True) -> str:
    """Draw a share from 0 to 1 as a bar.

    >>> bar(0.55, 10), bar(0.5, 4, unicode=False)
    ('█████▌    ', '##  ')
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if not unicode:
        return ("#" * round(eighths / 8)).ljust(width)
    full, rest = divmod(eighths, 8)
    return ("█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]).ljust(width)


def score_bar(share: float, width: int = 10) -> Text:
    return Text(bar(share, width, unicode=_is_unicode()), style="cyan")


def headline(memory: Memory) -> Text:
    """Return the first line about a memory: when, who, what."""
    text = Text(f"{memory.occurred_at or memory.created_at:%Y-%m-%d} ", style="dim")
    if memory.speaker:
        text.append(f"{plain(memory.speaker)}: ", style="bold")
    return Text().append(text).append(plain(memory.text))


def details(memory: Memory) -> Text:
    """Return the second line about a memory: its id and what it is."""
    words: list[str] = [memory.kind]
    if memory.category and memory.category != memory.kind:
        words.append(memory.category)
    if memory.state != "active":
        words.append(memory.state)
    if memory.pinned:
        words.append("pinned")
    return Text(f"{memory.id}  {plain(', '.join(words))}", style="dim")


def hits(found: Sequence[Hit], *, parts: bool = False) -> Table:
    """Return hits, best first, with bars that compare them to the best."""
    best = max((hit.score for hit in found), default=0.0) or 1.0
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    for hit in found:
        lines: list[RenderableType] = [headline(hit.memory), details(hit.memory)]
        if parts:
            lines.append(score_parts(hit))
        table.add_row(score_bar(hit.score / best), f"{hit.score:.2f}", Group(*lines))
    return table


def score_parts(hit: Hit | Reason) -> Table:
    """Return the parts of a score, the largest first."""
    largest = max((abs(value) for value in hit.parts.values()), default=0.0) or 1.0
    table = Table.grid(padding=(0, 1))
    for name, value in sorted(hit.parts.items(), key=lambda part: -abs(part[1])):
        if round(value, 4):
            table.add_row(f"{value:+.4f}", score_bar(abs(value) / largest), plain(name))
    return table


def pairs(values: Mapping[str, Any]) -> Table:
    """Return names and values, one per line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(name.replace("_", " "), _value(value))
    return table


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        known = {name: each for name, each in value.items() if each is not None}
        return ", ".join(f"{name} {_value(each)}" for name, each in known.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value)) or "none"
    if isinstance(value, float):
        return f"{value:.3g}"
    return plain(str(value))


def answer(recall: Recall, *, explain: bool) -> None:
    """Print what a question returned; with `explain` also why, and what was left out."""
    if recall.hits:
        draw(hits(recall.hits, parts=explain))
    if explain and recall.cut:
        draw(Text("\nLeft out", style="bold"))
        draw(*(Text(f"  {cut.score:.2f}  {cut.id}  {cut.reason}") for cut in recall.cut))
    if not recall.hits:
        why = ""
        if recall.cut:
            why = f" {len(recall.cut)} left out, the best because {recall.cut[0].reason}."
        note("No memory answers this." + why)
    for leg, state in recall.legs.items():
        if state != "ok":
            note(f"Without {leg} search: {state}. See `memorist doctor`.")


def full_memory(memory: Memory) -> None:
    """Print all fields of a memory that are not empty."""
    hidden = ("text", "simhash", "content_hash", "last_scores")
    fields = codec.dump(memory)
    draw(headline(memory))
    draw(pairs({name: value for name, value in fields.items() if value and name not in hidden}))


def history(entries: Iterable[HistoryEntry], texts: Mapping[str, str]) -> None:
    """Print history entries with the text of their memories, as far as they still exist."""
    for entry in entries:
        meta = [f"{name}={_value(value)}" for name, value in entry.meta.items() if name != "before"]
        by = f" by {plain(entry.actor)}" if entry.actor else ""
        text = texts.get(entry.memory_id, "")
        start = f"{entry.at:%Y-%m-%d %H:%M:%S}  {entry.event:<12}{entry.memory_id}{by}"
        line(f"{start}  {plain(' '.join(meta))}".rstrip())
        if text:
            line(Text(f"  {plain(text)}", style="dim"))


@singledispatch
def show(result: Any) -> None:
    """Print a result as text, by its type."""
    # These two types are matched by name: importing them would load numpy for `memorist --help`.
    if type(result).__name__ == "SummaryReport":
        would = "would be " if result.dry_run else ""
        memories = len(result.memories)
        line(f"{result.groups} groups with {memories} memories {would}summarized")
        if result.left:
            note(f"{result.left} left: changed in the meantime, or their summary was refused.")
    elif type(result).__name__ == "Extracted":
        show(Receipt(result.outcomes))
        for why in filter(None, (result.why, *result.dropped)):
            note(f"{why}.")
    else:
        line(plain(str(result)))


@show.register(list)
@show.register(tuple)
def _(found: Sequence[Any]) -> None:
    for each in found:
        show(each)


@show.register
def _(values: dict) -> None:  # type: ignore[type-arg]
    draw(pairs(values))


@show.register
def _(memory: Memory) -> None:
    draw(headline(memory))
    line(Text("  ").append(details(memory)))


@show.register
def _(receipt: Receipt) -> None:
    for outcome in receipt.outcomes:
        ids = "  ".join(outcome.ids)
        line(f"{outcome.status:<9}  {ids}  {plain(outcome.reason)}".rstrip())


@show.register
def _(evidence: Evidence) -> None:
    show(evidence.memory)
    for message in evidence.messages:
        when = f"{message.at:%Y-%m-%d %H:%M} " if message.at else ""
        who = plain(message.name or message.role)
        draw(Text(f"- said {when}by {who}: {plain(message.content)} ({message.id})"))
    for other in evidence.memories:
        draw(Text("- from ").append(headline(other)).append(f" ({other.id})", style="dim"))
    for reference in evidence.missing:
        draw(Text(f"- {plain(reference)}"))
    if not (evidence.messages or evidence.memories or evidence.missing):
        note("It was stored directly: there is no other evidence.")


@show.register
def _(reason: Reason) -> None:
    place = ""
    if reason.rank and reason.score is not None:
        place = f"rank {reason.rank}, score {reason.score:.4f}: "
    returned = "Returned" if reason.returned else "Not returned"
    draw(Text(f"{returned}: {place}{plain(reason.reason)}"))
    if reason.parts:
        draw(score_parts(reason))


@show.register
def _(related: Related) -> None:
    line(f"{related.strength:.2f}  {related.memory.id}  {plain(related.memory.text)}")


@show.register
def _(conflict: Conflict) -> None:
    line(f"{conflict.id}  {plain(conflict.new.text)}")
    line(f"{'replaces':>{len(conflict.id)}}  {plain(conflict.old.text)}")


@show.register
def _(proposal: Proposal) -> None:
    state = proposal.decided or f"waiting until {proposal.lapses_at:%Y-%m-%d %H:%M} UTC"
    line(f"{proposal.id}  {proposal.field}: {plain(proposal.value)}  {state}")


@show.register
def _(updates: Updates) -> None:
    for each in updates.text.splitlines():
        line(plain(each))
    if not updates.text:
        note(f"Nothing changed since revision {updates.since}.")


@show.register
def _(count: EventCount) -> None:
    line(f"{count.day}  {count.node:<9}{count.op:<9}{count.status:<8}{count.count}")


@show.register
def _(event: Event) -> None:
    similarity = None if event.sim is None else f"sim={event.sim:.2f}"
    about = [event.memory_id, event.category, event.thread, similarity]
    start = f"{event.at:%Y-%m-%d %H:%M:%S}  {event.node:<9}{event.op:<9}{event.status:<8}"
    line(f"{start}{plain('  '.join(filter(None, about)))}".rstrip())


@show.register
def _(work: Backlog) -> None:
    parts = [f"{work.waiting} waiting"]
    if work.oldest is not None:
        age = timedelta(seconds=round((datetime.now(UTC) - work.oldest).total_seconds()))
        parts.append(f"the oldest for {age}")
    parts += [f"{work.running} running", f"{work.failing} failing"]
    if work.set_aside:
        parts.append(f"{work.set_aside} of them given up: `memorist jobs run --retry`")
    if work.p95_seconds is not None:
        parts.append(f"95 % embedded within {work.p95_seconds:.1f} s")
    if work.failure_rate is not None:
        parts.append(f"{work.failure_rate:.0%} of batches failed")
    line(f"{work.name}: {', '.join(parts)}")


def result(value: Any, *, json: bool, one_document: bool = False, empty: str = "") -> None:
    """Print a result as text or as JSON: of a list, one document per item or only one."""
    if not json:
        show(value)
        if empty and not value:
            note(empty)
    elif isinstance(value, list) and one_document:
        as_json([asdict(each) for each in value])
    elif isinstance(value, list):
        for each in value:
            as_line(each)
    else:
        as_json(value)
