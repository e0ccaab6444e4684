"""How the command line looks: answers on stdout, in words and bars or in JSON; remarks and progress on stderr.

What a memory says is printed as plain text: it can neither colour nor command the terminal.
"""

from __future__ import annotations

import json as jsonlib
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...storage import codec
from ...storage.history import HistoryEntry
from ...types import Evidence, Hit, Memory, Reason, Recall, Receipt

_JOINERS = "\u200c\u200d"  # parts of emoji and of Indic scripts


class _Screen(Console):
    """A console that lets a closed pipe be seen by whoever called it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(*, stderr: bool = False) -> Console:
    """The terminal, or what stands in its place: no colours in a pipe, 80 columns if nobody says otherwise."""
    return _Screen(stderr=stderr, highlight=False, markup=False, emoji=False)


def show(*things: RenderableType) -> None:
    """Print to stdout."""
    console = screen()
    for thing in things:
        console.print(thing)


def line(text: str | Text) -> None:
    """Print one line to stdout, however long, so that it can be cut apart again."""
    screen().print(text, soft_wrap=True)


def note(text: str) -> None:
    """Print a remark to stderr."""
    screen(stderr=True).print(Text(text, style="dim"), soft_wrap=True)


def as_json(value: Any) -> None:
    """Print one JSON document."""
    print(_dumped(value, indent=2))


def as_line(value: Any) -> None:
    """Print one JSON document on one line."""
    print(_dumped(value))


def _dumped(value: Any, indent: int | None = None) -> str:
    if is_dataclass(value):
        value = codec.dump(value)
    return jsonlib.dumps(
        value, ensure_ascii=not _speaks_unicode(sys.stdout), indent=indent, default=str
    )


def _speaks_unicode(stream: Any) -> bool:
    return str(getattr(stream, "encoding", "") or "").lower().replace("-", "").startswith("utf")


@contextmanager
def progress(
    title: str, total: int | None, *, hidden: bool = False
) -> Iterator[Callable[..., None]]:
    """A bar on stderr while a block runs; the block says how many are done, and of how many if it learns that late.

    Nothing is drawn where nobody looks.
    """
    console = screen(stderr=True)
    if hidden or not console.is_terminal:
        yield lambda done, of=None: None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done, of=total: shown.update(task, completed=done, total=of)


def plain(text: str) -> str:
    """A text on one line, without anything a terminal would obey.

    >>> plain("tea\\n\\x1b[31mand\\u202e milk")
    'tea [31mand milk'
    """
    line = " ".join(text.split())
    return "".join(
        c for c in line if c in _JOINERS or unicodedata.category(c) not in ("Cc", "Cf", "Cs")
    )


def bar(share: float, width: int = 10, *, unicode: bool = True) -> str:
    """A share from 0 to 1 as a bar.

    >>> bar(0.55, 10), bar(0.5, 4, unicode=False)
    ('█████▌    ', '##  ')
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if not unicode:
        return ("#" * round(eighths / 8)).ljust(width)
    full, rest = divmod(eighths, 8)
    return ("█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]).ljust(width)


def score_bar(share: float, width: int = 10) -> Text:
    return Text(bar(share, width, unicode=_speaks_unicode(sys.stdout)), style="cyan")


def said(memory: Memory) -> Text:
    """A memory on one line: when, who, what."""
    made = Text()
    if memory.occurred_at:
        made.append(f"{memory.occurred_at:%Y-%m-%d} ", style="dim")
    if memory.speaker:
        made.append(f"{plain(memory.speaker)}: ", style="bold")
    return made.append(plain(memory.text))


def marks(memory: Memory) -> Text:
    """What a memory is called by, and what it is."""
    words = [memory.kind, memory.category if memory.category != memory.kind else None]
    words += [
        memory.state if memory.state != "active" else None,
        "pinned" if memory.pinned else None,
    ]
    return Text(
        "  ".join([memory.id, ", ".join(plain(word) for word in words if word)]), style="dim"
    )


def hits(found: Sequence[Hit], *, parts: bool = False) -> RenderableType:
    """Memories that answer, best first, with bars that compare them to the best."""
    best = max((hit.score for hit in found), default=0.0) or 1.0
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    for hit in found:
        lines = (said(hit.memory), marks(hit.memory), *((made_of(hit),) if parts else ()))
        table.add_row(score_bar(hit.score / best), f"{hit.score:.2f}", Group(*lines))
    return table


def made_of(hit: Hit | Reason) -> RenderableType:
    """A score, part by part."""
    most = max((abs(value) for value in hit.parts.values()), default=0.0) or 1.0
    table = Table.grid(padding=(0, 1))
    for name, value in sorted(hit.parts.items(), key=lambda part: -abs(part[1])):
        if round(value, 4):
            table.add_row(f"{value:+.4f}", score_bar(abs(value) / most), plain(name))
    return table


def answer(recall: Recall, *, explain: bool) -> None:
    """What a question returned; with `explain` also why, and what was left out."""
    if recall.hits:
        show(hits(recall.hits, parts=explain))
    if explain and recall.cut:
        show(
            Text("\nLeft out", style="bold"),
            *(Text(f"  {c.score:.2f}  {c.id}  {c.reason}") for c in recall.cut),
        )
    if not recall.hits:
        note("Nothing that is remembered answers this." + _most_cut(recall))
    for leg, state in recall.legs.items():
        if state != "ok":
            note(f"Without {leg} search: {state}. See `memorist doctor`.")


def _most_cut(recall: Recall) -> str:
    return (
        f" {len(recall.cut)} left out, the best because {recall.cut[0].reason}."
        if recall.cut
        else ""
    )


def receipt(made: Receipt) -> None:
    """What became of each thing that was to be remembered."""
    for outcome in made.outcomes:
        ids = "  ".join(outcome.ids)
        line(f"{outcome.status:<9}  {ids}  {plain(outcome.reason)}".rstrip())


def memories(found: Iterable[Memory]) -> None:
    for memory in found:
        show(said(memory))
        line(Text("  ").append(marks(memory)))


def pairs(values: Mapping[str, Any]) -> Table:
    """Names and values, one a line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(name.replace("_", " "), _value(value))
    return table


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{name} {_value(each)}" for name, each in value.items() if each is not None)
            or "none"
        )
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value)) or "none"
    if isinstance(value, float):
        return f"{value:.3g}"
    return plain(str(value))


def memory(one: Memory) -> None:
    """Everything known about a memory, but for what is empty."""
    hidden = ("text", "simhash", "content_hash", "last_scores")
    known = {name: value for name, value in codec.dump(one).items() if name not in hidden and value}
    show(said(one), pairs(known))


def evidence(found: Evidence) -> None:
    """What a memory rests on."""
    memories([found.memory])
    for message in found.messages:
        when = f"{message.at:%Y-%m-%d %H:%M} " if message.at else ""
        show(
            Text(
                f"- said {when}by {plain(message.name or message.role)}: {plain(message.content)} ({message.id})"
            )
        )
    for other in found.memories:
        show(Text("- from ").append(said(other)).append(f" ({other.id})", style="dim"))
    for reference in found.missing:
        show(Text(f"- {plain(reference)}"))
    if not (found.messages or found.memories or found.missing):
        note("It was told directly: there is nothing behind it but these words.")


def reason(found: Reason) -> None:
    """Where a memory stands for a question."""
    place = (
        f"place {found.rank}, score {found.score:.4f}: "
        if found.rank and found.score is not None
        else ""
    )
    show(Text(f"{'Returned' if found.returned else 'Not returned'}: {place}{plain(found.reason)}"))
    if found.parts:
        show(made_of(found))


def history(entries: Iterable[HistoryEntry]) -> None:
    for entry in entries:
        more = " ".join(
            f"{name}={_value(value)}" for name, value in entry.meta.items() if name != "before"
        )
        who = f" by {plain(entry.actor)}" if entry.actor else ""
        line(
            f"{entry.at:%Y-%m-%d %H:%M:%S}  {entry.event:<12}{entry.memory_id}{who}  {plain(more)}".rstrip()
        )
