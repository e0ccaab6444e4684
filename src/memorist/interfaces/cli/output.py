"""What commands print: answers on stdout, as text or JSON; notes and progress on stderr.

`show` prints a result by its type. The text of a memory is printed as plain text: it can neither
color nor control the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import Progress as ProgressBars
from rich.table import Table
from rich.text import Text

from ... import storage
from ...types import NEAREST, NO_ANSWER, Conflict, Evidence, Hit, Memory, Reason, Recall, Receipt
from .. import OK, plain

if TYPE_CHECKING:
    from ...storage.accounts import Key
    from ...storage.tasks import Backlog


SHOWN = 8  # last characters of an id: random, and enough for millions of memories


class _Screen(Console):
    """A console that reports a closed pipe to its caller."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(*, stderr: bool = False) -> Console:
    """Return the terminal, or the pipe in its place: without colors and 80 columns wide."""
    return _Screen(stderr=stderr, highlight=False, markup=False, emoji=False)


def draw(*things: RenderableType) -> None:
    """Print to stdout and wrap lines to the width of the terminal."""
    for thing in things:
        screen().print(thing)


def line(text: str | Text) -> None:
    """Print one line to stdout without wrapping it, so that other programs can parse it."""
    screen().print(text, soft_wrap=True)


def block(text: str) -> None:
    """Print a text that is stored, line by line."""
    for each in text.splitlines():
        line(plain(each))


def note(text: str) -> None:
    """Print a note to stderr."""
    styled = Text(text, style="dim")
    screen(stderr=True).print(styled, soft_wrap=True)


def as_json(value: Any) -> None:
    """Print one JSON document on a line."""
    if isinstance(value, Conflict):
        value = {
            "id": value.id,
            "new": value.new.text,
            "old": value.old.text,
            "old_id": value.old.id,
            "old_valid_to": value.old.valid_to and value.old.valid_to.isoformat(),
        }
    elif is_dataclass(value):
        value = storage.dump(value)
    text = json.dumps(
        value,
        ensure_ascii=not _is_unicode(),
        default=lambda inner: asdict(inner) if is_dataclass(inner) else str(inner),  # type: ignore
    )
    print(text)


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")


class Answer(NamedTuple):
    """The result of a command, if it is more than one value."""

    value: Any  # printed with --json
    shown: Any  # printed without it, by `show`
    notes: Sequence[str] = ()
    exit_code: int = OK


def result(returned: Any, *, json: bool, empty: str | None = None) -> None:
    """Print the result of a command: nothing for None, because the command has printed it.

    A tuple holds the fields of an `Answer`. The items of a list are separate JSON documents, one
    per line.
    """
    if returned is None:
        return
    if json and isinstance(returned, list):
        for each in returned:
            as_json(each)
        return
    if not isinstance(returned, tuple):
        returned = (returned, returned)
    answer = Answer(*returned)
    if json:
        as_json(answer.value)
    elif empty and not answer.value:
        note(empty)
    elif answer.shown != "":
        show(answer.shown)
    for text in answer.notes:
        note(text)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)


Progress = Callable[..., AbstractContextManager[Callable[..., None]]]


@contextmanager
def progress(
    title: str, total: int | None = None, *, hidden: bool
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr, if that is a terminal. Commands get it as `progress`.

    Yields a function to call with the number of steps done, and optionally with a new total.
    """
    console = screen(stderr=True)
    if hidden or not console.is_terminal:
        yield lambda done, of=None: None
        return
    with ProgressBars(console=console, transient=True) as bars:
        task = bars.add_task(title, total=total)
        yield lambda done, of=total: bars.update(task, completed=done, total=of)


def score_bar(share: float, width: int = 10) -> Text:
    """Draw a share from 0 to 1 as a bar.

    >>> score_bar(0.5, 4).plain in ("██  ", "##  ")
    True
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + " ▏▎▍▌▋▊▉"[rest]
    if not _is_unicode():
        drawn = "#" * round(eighths / 8)
    return Text(drawn.rstrip().ljust(width), style="cyan")


def grid(
    rows: Iterable[Sequence[RenderableType]],
    *,
    columns: int,
    space: int = 1,
) -> Table:
    """Return a table without borders. Only the last column is wrapped."""
    table = Table.grid(padding=(0, space))
    for _ in range(columns - 1):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def headline(memory: Memory) -> Text:
    """Return the first line about a memory: date, until when it was true, speaker and text."""
    text = Text(f"{memory.occurred_at or memory.created_at:%Y-%m-%d} ", style="dim")
    if memory.valid_to:
        text.append(f"until {memory.valid_to:%Y-%m-%d} ")
    if memory.speaker:
        text.append(f"{plain(memory.speaker)}: ", style="bold")
    return Text().append(text).append(plain(memory.text))


def short(id: str) -> str:
    """Return the end of an id, which commands accept in its place: ids begin with the time.

    >>> short("019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
    '0fc76dd8'
    """
    return id[-SHOWN:] if len(id) == 36 else id


def details(memory: Memory) -> Text:
    """Return the second line about a memory: id, kind, category and state."""
    words = [memory.kind, memory.category, memory.state]
    if memory.pinned:
        words.append("pinned")
    shown = [word for word in dict.fromkeys(words) if word and word != "active"]
    return Text(f"{short(memory.id)}  {plain(', '.join(shown))}", style="dim")


def score_parts(hit: Hit | Reason) -> Table:
    """Return the parts of a score, the largest first."""
    parts = sorted(hit.parts.items(), key=lambda part: -abs(part[1]))
    largest = max(map(abs, hit.parts.values()), default=0.0) or 1.0
    rows = []
    for name, value in parts:
        if round(value, 4):
            bar = score_bar(abs(value) / largest)
            rows.append((f"{value:+.4f}", bar, plain(name)))
    return grid(rows, columns=3)


def pairs(values: Mapping[str, Any]) -> Table:
    """Return names and values, one per line."""
    rows = []
    for name, value in values.items():
        label = Text(name.replace("_", " "), style="dim")
        rows.append((label, format_value(value)))
    return grid(rows, columns=2, space=2)


def format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name} {format_value(each)}" for name, each in value.items() if each is not None]
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_value, value)) or "none"
    if isinstance(value, float):
        return f"{value:.3g}"
    return plain(str(value))


def answer(recall: Recall, *, explain: bool, texts: Mapping[str, str] | None = None) -> None:
    """Print the memories recalled for a question, with bars that compare them to the best.

    With `explain` also print the parts of each score, and what was left out, with its text if that
    is in `texts`.
    """
    rows: list[Sequence[RenderableType]] = []
    best = max((hit.score for hit in recall.hits), default=0.0) or 1.0
    for hit in recall.hits:
        lines: list[RenderableType] = [headline(hit.memory), details(hit.memory)]
        if explain:
            lines.append(score_parts(hit))
        bar = score_bar(hit.score / best)
        score = Text(f"{hit.score:.2f}", justify="right")
        rows.append((bar, score, Group(*lines)))
    if rows and recall.confidence is not None:
        draw(Text(f"confidence {recall.confidence:.2f}", style="dim"))
    if rows:
        draw(grid(rows, columns=3))
    if explain and recall.cut:
        draw(Text("\nLeft out", style="bold"))
        for cut in recall.cut[:NEAREST] if recall.is_unanswered else recall.cut:
            draw(Text(f"  {cut.score:.2f}  {short(cut.id)}  {cut.reason}"))
            if text := (texts or {}).get(cut.id):
                draw(Text(f"        {plain(text)}", style="dim"))
    if not rows:
        why = ""
        if recall.cut:
            why = f" {len(recall.cut)} left out, the best because {recall.cut[0].reason}."
        note((NO_ANSWER if recall.is_unanswered else "Nothing was returned.") + why)
    elif recall.query.min_confidence and recall.confidence is None:
        note("These memories have no confidence, so --min-confidence has no effect.")
    for leg, state in recall.legs.items():
        if leg == "memory":  # it is off, or the session is incognito
            note(f"{state[:1].upper()}{state[1:]}.")
        elif state != "ok":
            what = leg if leg in ("rerank", "store", "verifier") else f"{leg} search"
            note(f"Without {what}: {state}. See `memorist doctor`.")


def show(result: Any) -> None:
    """Print a result as text, by the name of its type: importing all types would be slow."""
    match type(result).__name__:
        case "list" | "tuple":
            for each in result:
                show(each)
        case "dict":
            draw(pairs(result))
        case "Table" | "Group" | "Text":
            draw(result)
        case "Memory":
            draw(headline(result))
            line(Text("  ").append(details(result)))
        case "Receipt":
            for outcome in result.outcomes:
                ids = "  ".join(map(short, outcome.ids))
                line(f"{outcome.status:<9}  {ids}  {plain(outcome.reason)}".rstrip())
        case "Evidence":
            _show_evidence(result)
        case "Reason":
            parts = []
            if result.rank and result.score is not None:
                parts.append(f"rank {result.rank}, score {result.score:.4f}")
            if not parts or not result.returned:
                parts.append(plain(result.reason))
            returned = "Returned" if result.returned else "Not returned"
            draw(Text(f"{returned}: {': '.join(parts)}."))
            if result.parts:
                draw(score_parts(result))
        case "Related":
            line(f"{result.strength:.2f}  {short(result.memory.id)}  {plain(result.memory.text)}")
        case "Conflict":
            line(f"{short(result.id)}  {plain(result.new.text)}")
            ended = result.old.valid_to
            verb = "replaces" if ended else "may replace"
            state = f"ended {ended:%Y-%m-%d}" if ended else "still valid"
            line(f"  {verb}  {plain(result.old.text)} ({state})")
        case "Proposal":
            state = result.decided or f"waiting until {result.lapses_at:%Y-%m-%d %H:%M} UTC"
            line(f"{short(result.id)}  {result.field}: {plain(result.value)}  {state}")
        case "Reply":
            block(result.say)
        case "Updates":
            block(result.text)
            if not result.text:
                note(f"Nothing changed since revision {result.since}.")
        case "TurnContext":
            block(result.prompt())
            for cut in result.cut:
                note(f"Left out: {short(cut.id)}, {cut.reason}.")
        case "EventCount":
            line(f"{result.day}  {result.node:<9}{result.op:<9}{result.status:<8}{result.count}")
        case "Event":
            similarity = None if result.sim is None else f"sim={result.sim:.2f}"
            about = [short(result.memory_id or ""), result.category, result.thread, similarity]
            start = f"{result.at:%Y-%m-%d %H:%M:%S}  {result.node:<9}{result.op:<9}"
            words = plain("  ".join(filter(None, about)))
            line(f"{start}{result.status:<8}{words}".rstrip())
        case "Backlog":
            _show_backlog(result)
        case "Key":
            _show_key(result)
        case "SummaryReport":
            would = "would be " if result.dry_run else ""
            memories = len(result.memories)
            line(f"{result.groups} groups with {memories} memories {would}summarized")
            if result.left:
                note(f"{result.left} left: changed in the meantime, or their summary was refused.")
        case "Extracted":
            show(Receipt(result.outcomes))
            for why in filter(None, (result.why, *result.dropped)):
                note(f"{why}.")
        case _:
            line(str(result))


def _show_evidence(evidence: Evidence) -> None:
    show(evidence.memory)
    for message in evidence.messages:
        when = f"{message.at:%Y-%m-%d %H:%M} " if message.at else ""
        who = plain(message.name or message.role)
        draw(Text(f"- said {when}by {who}: {plain(message.content)} ({message.id})"))
    for other in evidence.memories:
        source = Text("- from ").append(headline(other))
        draw(source.append(f" ({short(other.id)})", style="dim"))
    for reference in evidence.missing:
        draw(Text(f"- {plain(reference)}"))
    if not (evidence.messages or evidence.memories or evidence.missing):
        note("Saved directly; it has no source messages.")


def _show_backlog(work: Backlog) -> None:
    parts = [f"{work.waiting} waiting"]
    if work.oldest is not None:
        age = datetime.now(UTC) - work.oldest
        rounded = timedelta(seconds=round(age.total_seconds()))
        parts.append(f"the oldest for {rounded}")
    parts += [f"{work.running} running", f"{work.failing} failing"]
    if work.set_aside:
        parts.append(f"{work.set_aside} of them given up: `memorist jobs run --retry`")
    if work.p95_seconds is not None:
        parts.append(f"95 % embedded within {work.p95_seconds:.1f} s")
    if work.failure_rate is not None:
        parts.append(f"{work.failure_rate:.0%} of batches failed")
    line(f"{work.name}: {', '.join(parts)}")


def _show_key(key: Key) -> None:
    space = key.space and f"space {key.space}"
    agent = key.agent and f"agent {key.agent}"
    if key.revoked_at:
        validity = f"revoked {key.revoked_at:%Y-%m-%d %H:%M} UTC"
    elif key.expires_at is None:
        validity = "does not expire"
    else:
        state = "until" if key.is_good(datetime.now(UTC)) else "expired"
        validity = f"{state} {key.expires_at:%Y-%m-%d %H:%M} UTC"
    rights = ", ".join(key.rights)
    words = [key.id, key.name, key.user, space, agent, rights, validity]
    line(plain("  ".join(filter(None, words))))
