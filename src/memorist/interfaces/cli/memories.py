"""The commands that take in, ask and look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from ...types import KINDS, STATES, Filter, Kind, Labels
from ..errors import REFUSED
from .app import Call, command

ASK = "Remember and recall"


def _among(known: Sequence[str]) -> Callable[[list[str] | None], list[str] | None]:
    """A check that each of the values is a known one."""

    def check(values: list[str] | None) -> list[str] | None:
        for value in values or ():
            if value not in known:
                raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
        return values

    return check


Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The memory, as `list` and `recall` name it.", show_default=False
    ),
]
Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="What you want to know.", show_default=False)
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        callback=_among(KINDS),
        help=f"Only this kind: {', '.join(KINDS)}.",
    ),
]
Categories = Annotated[
    list[str] | None, typer.Option("--category", metavar="NAME", help="Only about this.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with this tag.")]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        callback=_among(STATES),
        help=f"In this state: {', '.join(STATES)}.",
    ),
]
Speaker = Annotated[str | None, typer.Option(metavar="NAME", help="Only what this person said.")]
After = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what happened then or later: 2026-05-31.")
]
Before = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what happened before: 2026-06-30.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", metavar="N", help="So many memories at most.", show_default=False
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(metavar="TOKENS", help="So many tokens of text at most.", show_default=False),
]
Profile = Annotated[
    str | None, typer.Option(metavar="NAME", help="How to rank. [MEMORIST_PROFILE]")
]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="What held at that time.")
]


@command(ASK, example="memorist demo")
def demo(call: Call) -> None:
    """See it work: a conversation goes in, questions come out. Takes seconds and leaves nothing behind."""
    from . import demo as demonstration

    demonstration.run(as_json=call.json)


@command(ASK, example='memorist remember "I moved to Lisbon in May." --tag home', writes=True)
def remember(
    call: Call,
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="What to remember; - reads stdin.", show_default=False),
    ],
    kind: Annotated[
        Kind | None, typer.Option(help="What kind of memory it is, if you know better.")
    ] = None,
    category: Annotated[str | None, typer.Option(metavar="NAME", help="What it is about.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="May be repeated.")] = None,
    importance: Annotated[
        float | None, typer.Option(metavar="0..1", help="How much it matters.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it happened: 2026-05-31T14:00:00Z.")
    ] = None,
    evidence: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="What it rests on; may be repeated.")
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Never trim or expire it.")] = False,
    on_purpose: Annotated[
        bool,
        typer.Option(
            "--on-purpose", help="Keep it even if it was forgotten before or holds a secret."
        ),
    ] = False,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="How to take it in. [MEMORIST_POLICY]")
    ] = None,
) -> None:
    """Remember a text, and say what became of it."""
    from . import output
    from .files import standard_input

    said = standard_input() if text == "-" else text
    with call.mine() as mine:
        receipt = mine.remember(
            said,
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
    output.as_json(receipt) if call.json else output.receipt(receipt)
    if all(outcome.status == "refused" for outcome in receipt.outcomes):
        raise typer.Exit(REFUSED)


@command(ASK, example='memorist recall "where does she live?" --explain')
def recall(
    call: Call,
    question: Question,
    limit: Limit = None,
    budget: Budget = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why, part by part, and what was left out.")
    ] = False,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print only the block to put before a model.")
    ] = False,
    kind: Kinds = None,
    category: Categories = None,
    tag: Tags = None,
    speaker: Speaker = None,
    after: After = None,
    before: Before = None,
    as_of: AsOf = None,
    profile: Profile = None,
    rerank: Annotated[
        bool | None, typer.Option("--rerank/--no-rerank", help="Look closer at the best.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Only what your other spaces share with this one.")
    ] = False,
) -> None:
    """Recall what answers a question. Weak evidence gives an empty answer.

    The filters --kind, --category and --tag may be repeated; --shared takes none.
    """
    from ...storage.codec import dump
    from . import output

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
        output.as_json({**dump(found), "degraded": found.degraded})
    elif prompt:
        print(found.prompt())
    else:
        output.answer(found, explain=explain)


@command(ASK, example='memorist query "what is left to do?" --agent planner --category tasks')
def query(
    call: Call,
    question: Question,
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="Who asks: it sees only what its allowlist names.")
    ],
    category: Categories = None,
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", metavar="N", help="So many memories at most.")
    ] = 3,
    budget: Annotated[int, typer.Option(metavar="TOKENS", help="So many tokens at most.")] = 512,
    threshold: Annotated[
        float | None, typer.Option(metavar="0..1", help="The least similarity.")
    ] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="As importance_min=3 or run_id=r1; may be repeated."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Everything about each memory, in JSON.")
    ] = False,
) -> None:
    """Ask as an agent: a category that its allowlist does not name is refused."""
    from . import output

    with call.mine() as mine:
        found = mine.query(
            question,
            agent=agent,
            categories=category,
            filters=dict(map(_pair, filter or ())),
            top_k=top_k,
            return_="full" if full else "bullets",
            budget_tokens=budget,
            threshold=threshold,
        )
    if call.json or full:
        output.as_json(found)
    else:
        for item in found:
            output.line(f"{item['id']}  {output.plain(item['text'])}")


def _pair(given: str) -> tuple[str, Any]:
    """A filter from the command line: numbers, true and false are read as such."""
    import json

    name, is_pair, value = given.partition("=")
    if not is_pair:
        raise typer.BadParameter(f"{given!r} is no filter: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@command(ASK, name="list", example="memorist list --tag home --limit 20")
def list_(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="So many at most.")] = 50,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Where the page before ended.")
    ] = None,
    kind: Kinds = None,
    category: Categories = None,
    tag: Tags = None,
    state: States = None,
    pinned: Annotated[
        bool | None, typer.Option("--pinned/--not-pinned", help="Only those pinned, or not.")
    ] = None,
    speaker: Speaker = None,
    after: After = None,
    before: Before = None,
) -> None:
    """List memories, newest first. With --json one memory a line."""
    from . import output

    where = _filter(call, kind, category, tag, state, speaker, after, before, pinned)
    with call.mine() as mine:
        page = mine.list(where, limit=limit, cursor=cursor)
    if call.json:
        for memory in page:
            output.as_line(memory)
    else:
        output.memories(page)
    if page.cursor:
        output.note(f"There are more: --cursor {page.cursor}")
    elif not page.memories and not call.json:
        output.note(f"Nothing is remembered here of {mine.scope.user!r}.")


@command(ASK, example="memorist overview --space work")
def overview(call: Call) -> None:
    """Show what is remembered, for people to read: how much, what is pinned, and what was said last, by topic."""
    from . import output

    with call.mine() as mine:
        text = mine.overview()
    if call.json:
        output.as_json({"space": mine.scope.space, "overview": text})
    else:
        for line in text.splitlines():
            output.line(output.plain(line))


@command(ASK, name="show", example="memorist show 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def show_(call: Call, id: Id) -> None:
    """Show everything known about one memory."""
    from . import output

    with call.mine() as mine:
        memory = mine.get(id)
    output.as_json(memory) if call.json else output.memory(memory)


@command(ASK, example="memorist why 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def why(call: Call, id: Id) -> None:
    """Show what a memory rests on: who said it, when, and what it was derived from."""
    from . import output

    with call.mine() as mine:
        found = mine.why(id)
    output.as_json(found) if call.json else output.evidence(found)


@command(ASK, example="memorist related 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def related(
    call: Call,
    id: Id,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="So many at most.")] = 10,
) -> None:
    """Show what else is remembered about the same, nearest first. With --json one memory a line."""
    from ...storage.codec import dump
    from . import output

    with call.mine() as mine:
        found = mine.related(id, limit=limit)
    for each in found:
        if call.json:
            output.as_line(dump(each))
        else:
            output.line(f"{each.strength:.2f}  {each.memory.id}  {output.plain(each.memory.text)}")
    if not (found or call.json):
        output.note("Nothing is linked to it.")


@command(
    ASK,
    name="why-not",
    example='memorist why-not "where does she live?" 019a3c5e-7ddf-7926-adf6-688e0fc76dd8',
)
def why_not(
    call: Call,
    question: Question,
    id: Id,
    limit: Limit = None,
    budget: Budget = None,
    as_of: AsOf = None,
    profile: Profile = None,
) -> None:
    """Say why a memory was not returned for a question, or where it stands."""
    from . import output

    with call.mine() as mine:
        found = mine.why_not(question, id, limit=limit, budget=budget, as_of=as_of, profile=profile)
    output.as_json(found) if call.json else output.reason(found)


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
    from ...ingest.messages import moment

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
