"""Commands that store, recall and show memories."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...storage import codec
from ...types import KINDS, STATES, Filter, Kind, Labels
from ..call import Call
from ..errors import REFUSED
from ..render import plain
from ..verbs import BROWSE, SAMPLE
from . import demo as demonstration
from . import lazy, output
from .app import command
from .table import All, memory_id
from .transfer import standard_input

STORE = "Remember and recall"


Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id of the memory, or the first characters of it.", show_default=False
    ),
]
Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="The question.", show_default=False)
]


def _filter_option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help)


Kinds = Annotated[
    list[str] | None, _filter_option("--kind", "KIND", f"Only this kind: {', '.join(KINDS)}.")
]
States = Annotated[
    list[str] | None,
    _filter_option("--state", "STATE", f"Only this state: {', '.join(STATES)}."),
]
Categories = Annotated[
    list[str] | None, _filter_option("--category", "NAME", "Only this category.")
]
Tags = Annotated[list[str] | None, _filter_option("--tag", "TAG", "Only this tag.")]
Speaker = Annotated[
    str | None, _filter_option("--speaker", "NAME", "Only messages of this speaker.")
]
After = Annotated[
    str | None, _filter_option("--after", "TIME", "Only from this time on: 2026-05-31.")
]
Before = Annotated[
    str | None, _filter_option("--before", "TIME", "Only before this time: 2026-06-30.")
]


@command("demo", STORE)
def demo(call: Call) -> None:
    """Store a sample conversation and answer questions about it. Leaves nothing behind."""
    demonstration.run(as_json=call.json)


@command(
    "remember",
    STORE,
    example='"I moved to Lisbon in May." --tag home',
    creates=True,
    text="<TEXT> What to remember; - reads stdin.",
    kind="Kind; by default it is detected.",
    category="<NAME> Category.",
    tag="<TAG> Can be repeated.",
    importance="<0..1> Importance.",
    at="<TIME> When it happened: 2026-05-31T14:00:00Z.",
    evidence="<URL> Evidence; can be repeated.",
    pin="Never trim or expire it.",
    on_purpose="Store it even if it was forgotten before or contains a secret.",
    policy="<NAME> Write policy. [MEMORIST_POLICY]",
)
def remember(
    call: Call,
    text: str,
    kind: Kind | None = None,
    category: str | None = None,
    tag: list[str] | None = None,
    importance: float | None = None,
    at: str | None = None,
    evidence: list[str] | None = None,
    pin: bool = False,
    on_purpose: bool = False,
    policy: str | None = None,
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


@command(
    "recall",
    STORE,
    example='"where does she live?" --explain',
    limit="<N> Maximum number of memories.",
    budget="<TOKENS> Token budget.",
    explain="Show the parts of each score, and what was left out.",
    prompt="Print only the block for the prompt of a model.",
    as_of="<TIME> What held at that time.",
    profile="<NAME> Ranking profile. [MEMORIST_PROFILE]",
    rerank="Re-rank the best candidates.",
    shared="Only what your other spaces share with this one.",
)
def recall(
    call: Call,
    question: Question,
    limit: int | None = None,
    budget: int | None = None,
    explain: bool = False,
    prompt: bool = False,
    kind: Kinds = None,
    category: Categories = None,
    tag: Tags = None,
    speaker: Speaker = None,
    after: After = None,
    before: Before = None,
    as_of: str | None = None,
    profile: str | None = None,
    rerank: bool | None = None,
    shared: bool = False,
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


@command(
    "list",
    BROWSE,
    example="--tag home --limit 20",
    limit="<N> Maximum number of memories.",
    cursor="<CURSOR> Cursor of the next page.",
    pinned="Only pinned ones, or the others.",
)
def list_(
    call: Call,
    limit: int = 50,
    cursor: str | None = None,
    kind: Kinds = None,
    category: Categories = None,
    tag: Tags = None,
    state: States = None,
    pinned: bool | None = None,
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
        output.line(plain(line))


@command(
    "stats llm-usage",
    example="--all --days 7",
    days="<DAYS> Number of days to look back.",
)
def llm_usage(
    call: Call,
    everyone: All = False,
    days: float = 30,
) -> None:
    """Show the tokens that the language model used, by day, task and model."""
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
    for values, known in ((kinds, KINDS), (states, STATES)):
        for value in values or ():
            if value not in known:
                raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
    return Filter(
        kinds=tuple(kinds or ()),
        categories=tuple(categories or ()),
        tags=tuple(tags or ()),
        states=tuple(states or ("active",)),
        speaker=speaker,
        pinned=pinned,
        labels=Labels(session=call.session),
        occurred_after=lazy.validation.moment(after),
        occurred_before=lazy.validation.moment(before),
    )
