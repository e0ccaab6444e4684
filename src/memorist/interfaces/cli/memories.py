"""Commands that store, recall and show memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from ...ingest.messages import moment
from ...storage import codec
from ...types import KINDS, STATES, Filter, Kind, Labels
from ..call import Call
from ..errors import REFUSED
from ..verbs import BROWSE, SAMPLE
from . import demo as demonstration
from . import output
from .app import command
from .table import All, memory_id
from .transfer import standard_input

STORE = "Remember and recall"


def _one_of(known: Sequence[str]) -> Callable[[list[str] | None], list[str] | None]:
    """Return a check that each value is a known one."""

    def check(values: list[str] | None) -> list[str] | None:
        for value in values or ():
            if value not in known:
                raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
        return values

    return check


Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id of the memory, or the first characters of it.", show_default=False
    ),
]
Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="The question.", show_default=False)
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        callback=_one_of(KINDS),
        help=f"Only this kind: {', '.join(KINDS)}.",
    ),
]
Categories = Annotated[
    list[str] | None, typer.Option("--category", metavar="NAME", help="Only this category.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only this tag.")]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        callback=_one_of(STATES),
        help=f"Only this state: {', '.join(STATES)}.",
    ),
]
Speaker = Annotated[str | None, typer.Option(metavar="NAME", help="Only messages of this speaker.")]
After = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only from this time on: 2026-05-31.")
]
Before = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only before this time: 2026-06-30.")
]


@command("demo", STORE)
def demo(call: Call) -> None:
    """Store a sample conversation in memory and answer questions about it. Leaves nothing behind."""
    demonstration.run(as_json=call.json)


@command("remember", STORE, example='"I moved to Lisbon in May." --tag home', creates=True)
def remember(
    call: Call,
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="What to remember; - reads stdin.", show_default=False),
    ],
    kind: Annotated[Kind | None, typer.Option(help="Kind; by default it is detected.")] = None,
    category: Annotated[str | None, typer.Option(metavar="NAME", help="Category.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Can be repeated.")] = None,
    importance: Annotated[float | None, typer.Option(metavar="0..1", help="Importance.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it happened: 2026-05-31T14:00:00Z.")
    ] = None,
    evidence: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Evidence; can be repeated.")
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Never trim or expire it.")] = False,
    on_purpose: Annotated[
        bool,
        typer.Option(
            "--on-purpose", help="Store it even if it was forgotten before or contains a secret."
        ),
    ] = False,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write policy. [MEMORIST_POLICY]")
    ] = None,
) -> None:
    """Remember a text and report the outcome."""
    content = standard_input() if text == "-" else text
    with call.mine() as mine:
        receipt = mine.remember(
            content,
            policy=policy,
            at=at,
            kind=kind,
            category=category,
            tags=tag or (),
            importance=importance,
            evidence=evidence or (),
            pinned=pin,
            manually_saved=on_purpose,
        )
    output.result(receipt, json=call.json)
    if all(outcome.status == "refused" for outcome in receipt.outcomes):
        raise typer.Exit(REFUSED)


@command("recall", STORE, example='"where does she live?" --explain')
def recall(
    call: Call,
    question: Question,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", help="Maximum number of memories."),
    ] = None,
    budget: Annotated[int | None, typer.Option(metavar="TOKENS", help="Token budget.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the parts of each score, and what was left out.")
    ] = False,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print only the block for the prompt of a model.")
    ] = False,
    kind: Kinds = None,
    category: Categories = None,
    tag: Tags = None,
    speaker: Speaker = None,
    after: After = None,
    before: Before = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="What held at that time.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ranking profile. [MEMORIST_PROFILE]")
    ] = None,
    rerank: Annotated[
        bool | None, typer.Option("--rerank/--no-rerank", help="Re-rank the best candidates.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Only what your other spaces share with this one.")
    ] = False,
) -> None:
    """Recall memories that answer a question. Weak evidence gives an empty answer.

    The filters --kind, --category and --tag can be repeated. --shared ignores all filters.
    """
    if shared:
        with call.mine() as mine:
            for answer in mine.recall_shared(question, limit=limit, budget=budget):
                output.as_line(answer) if call.json else output.answer(answer, explain=explain)
        return
    where = _filter(call, kind, category, tag, None, speaker, after, before)
    with call.mine() as mine:
        found = mine.recall(
            question,
            limit=limit,
            budget=budget,
            profile=profile,
            where=where,
            as_of=as_of,
            rerank=rerank,
        )
    if call.json:
        output.as_json({**codec.dump(found), "degraded": found.degraded})
    elif prompt:
        print(found.prompt())
    else:
        output.answer(found, explain=explain)


@command("list", BROWSE, example="--tag home --limit 20")
def list_(
    call: Call,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", help="Maximum number of memories.")
    ] = 50,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Cursor of the next page.")
    ] = None,
    kind: Kinds = None,
    category: Categories = None,
    tag: Tags = None,
    state: States = None,
    pinned: Annotated[
        bool | None, typer.Option("--pinned/--not-pinned", help="Only pinned ones, or the others.")
    ] = None,
    speaker: Speaker = None,
    after: After = None,
    before: Before = None,
) -> None:
    """List memories, newest first. With --json, one per line."""
    where = _filter(call, kind, category, tag, state, speaker, after, before, pinned)
    with call.memory() as memory:
        mine = call.scope(memory)
        page = mine.list(where, limit=limit, cursor=cursor)
        output.result(list(page.memories), json=call.json)
        if page.cursor:
            output.note(f"There are more: --cursor {page.cursor}")
        elif not page.memories and not call.json:
            output.note(_nothing(memory, mine, where))


def _nothing(memory: Any, mine: Any, where: Filter) -> str:
    """Say that there are no memories, and how many the user has in other spaces."""
    if where != Filter():
        return "No memories match."
    own, elsewhere = mine.scope, []
    for scope in memory.scopes():
        if (scope.tenant, scope.user) == (own.tenant, own.user) and scope.space != own.space:
            counts = memory.scope(scope.user, scope.space, scope.tenant).stats()
            elsewhere.append(f"{counts['memories']} in {scope.space!r}")
    others = f" ({', '.join(elsewhere)})" if elsewhere else ""
    return f"No memories for user {own.user!r} in space {own.space!r}{others}."


@command("show", BROWSE, example=SAMPLE)
def show(call: Call, id: Id) -> None:
    """Show all fields of one memory."""
    with call.mine() as mine:
        memory = mine.get(memory_id(mine, id))
    output.as_json(memory) if call.json else output.full_memory(memory)


@command("stats overview", example="--space work")
def overview(call: Call) -> None:
    """Summarize what is stored: counts, what is pinned, and the latest memories by topic."""
    with call.mine() as mine:
        text = mine.overview()
    if call.json:
        output.as_json({"space": mine.scope.space, "overview": text})
        return
    for line in text.splitlines():
        output.line(output.plain(line))


@command("stats llm-usage", example="--all --days 7")
def llm_usage(
    call: Call,
    everyone: All = False,
    days: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Number of days to look back.")
    ] = 30,
) -> None:
    """Show the tokens that the language model used, by day, task and model. With --json, one per line."""
    with call.memory() as memory:
        target: Any = memory if everyone else call.scope(memory)
        found = target.llm_usage(days=days)
    if call.json:
        output.result(found, json=True)
        return
    for usage in found:
        tokens = f"{usage.calls:>5} calls {usage.tokens_in:>9,} in {usage.tokens_out:>8,} out"
        words = [f"{usage.day}  {usage.task:<10}{tokens}", usage.model]
        if everyone:
            words.append("/".join((usage.scope.tenant, usage.scope.user, usage.scope.space)))
        if usage.reserved:
            words.append(f"{usage.reserved:,} reserved")
        output.line("  ".join(words))
    if not found:
        output.note("The language model was not called.")


def _filter(
    call: Call,
    kinds: Any,
    categories: Any,
    tags: Any,
    states: Any,
    speaker: Any,
    after: Any,
    before: Any,
    pinned: Any = None,
) -> Filter:
    return Filter(
        kinds=tuple(kinds or ()),
        categories=tuple(categories or ()),
        tags=tuple(tags or ()),
        states=tuple(states or ("active",)),
        speaker=speaker,
        pinned=pinned,
        labels=Labels(session=call.session),
        occurred_after=moment(after),
        occurred_before=moment(before),
    )
