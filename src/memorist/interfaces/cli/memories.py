"""Commands that store, recall and browse memories, and summaries of what is stored."""

from __future__ import annotations

from typing import Any

import typer

from ...storage import codec
from ...types import KINDS, STATES, Filter, Kind, Labels
from .. import REFUSED, Call, load, plain
from . import output
from .app import Words, command, memory_id
from .files import read_text


@command("remember", "Remember and recall", creates=True)
def remember(
    call: Call,
    text: str,
    *,
    kind: Kind | None = None,
    category: str | None = None,
    tag: Words = None,
    importance: float | None = None,
    at: str | None = None,
    evidence: Words = None,
    pin: bool = False,
    on_purpose: bool = False,
    policy: str | None = None,
) -> None:
    """Remember a text and report the outcome.

    Args:
        text: <TEXT> What to remember; - reads stdin.
        kind: Kind; by default it is detected.
        category: <NAME> Category.
        tag: <TAG> Can be repeated.
        importance: <0..1> Importance.
        at: <TIME> When it happened: 2026-05-31T14:00:00Z.
        evidence: <URL> Evidence; can be repeated.
        pin: Never trim or expire it.
        on_purpose: Store it even if it was forgotten before or contains a secret.
        policy: <NAME> Write policy. [MEMORIST_POLICY]

    Example: memorist remember "I moved to Lisbon in May." --tag home
    """
    with call.mine() as mine:
        receipt = mine.remember(
            read_text(text),
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


@command("recall", "Remember and recall")
def recall(
    call: Call,
    question: str,
    *,
    limit: int | None = None,
    budget: int | None = None,
    explain: bool = False,
    prompt: bool = False,
    kind: Words = None,
    category: Words = None,
    tag: Words = None,
    speaker: str | None = None,
    after: str | None = None,
    before: str | None = None,
    as_of: str | None = None,
    profile: str | None = None,
    rerank: bool | None = None,
    shared: bool = False,
) -> None:
    """Recall memories that answer a question. Weak evidence gives an empty answer.

    The filters --kind, --category and --tag can be repeated. --shared ignores all filters.

    Args:
        limit: <N> Maximum number of memories.
        explain: Show the parts of each score, and what was left out.
        prompt: Print only the block for the prompt of a model.
        as_of: <TIME> What held at that time.
        rerank: Re-rank the best candidates.
        shared: Only what your other spaces share with this one.

    Example: memorist recall "where does she live?" --explain
    """
    limits: dict[str, Any] = {"limit": limit, "budget": budget}
    with call.mine() as mine:
        if shared:
            for answer in mine.recall_shared(question, **limits):
                if call.json:
                    output.as_json(answer, indent=None)
                else:
                    output.answer(answer, explain=explain)
            return
        where = _filter(call, kind, category, tag, None, speaker, after, before)
        found = mine.recall(
            question, where=where, as_of=as_of, profile=profile, rerank=rerank, **limits
        )
    if call.json:
        output.as_json({**codec.dump(found), "degraded": found.degraded})
    elif prompt:
        print(found.prompt())
    else:
        output.answer(found, explain=explain)


@command("list", "Browse")
def list_(
    call: Call,
    *,
    limit: int = 50,
    cursor: str | None = None,
    kind: Words = None,
    category: Words = None,
    tag: Words = None,
    state: Words = None,
    pinned: bool | None = None,
    speaker: str | None = None,
    after: str | None = None,
    before: str | None = None,
) -> None:
    """List memories, newest first. With --json, one per line.

    Args:
        limit: <N> Maximum number of memories.
        cursor: <CURSOR> Cursor of the next page.
        pinned: Only pinned ones, or the others.

    Example: memorist list --tag home --limit 20
    """
    where = _filter(call, kind, category, tag, state, speaker, after, before, pinned)
    with call.memory() as memory:
        mine = call.scope(memory)
        page = mine.list(where, limit=limit, cursor=cursor)
        output.result(list(page.memories), json=call.json)
        if page.cursor:
            output.note(f"There are more: --cursor {page.cursor}")
        elif page.memories or call.json:
            return
        elif where != Filter():
            output.note("No memories match.")
        else:
            own, elsewhere = mine.scope, []
            for scope in memory.scopes():
                is_own = (scope.tenant, scope.user) == (own.tenant, own.user)
                if is_own and scope.space != own.space:
                    counts = memory.scope(scope.user, scope.space, scope.tenant).stats()
                    elsewhere.append(f"{counts['memories']} in {scope.space!r}")
            others = f" ({', '.join(elsewhere)})" if elsewhere else ""
            output.note(f"No memories for user {own.user!r} in space {own.space!r}{others}.")


def _filter(
    call: Call,
    kinds: Any,
    categories: Words,
    tags: Words,
    states: Any,
    speaker: str | None,
    after: str | None,
    before: str | None,
    pinned: bool | None = None,
) -> Filter:
    for values, known in ((kinds, KINDS), (states, STATES)):
        for value in values or ():
            if value not in known:
                raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
    moment = load("ingest.validation").moment
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


@command("show", "Browse")
def show(call: Call, id: str) -> None:
    """Show all fields of one memory.

    Example: memorist show 019a3c5e-7ddf-7926-adf6-688e0fc76dd8
    """
    with call.mine() as mine:
        memory = mine.get(memory_id(mine, id))
    output.as_json(memory) if call.json else output.full_memory(memory)


@command("history", "Browse")
def history(call: Call, id: str | None = None, *, limit: int = 100) -> object:
    """Show the history of a memory or of all, newest first. With --json, one entry per line.

    Args:
        id: <[ID]> Id, or its first characters.
        limit: <N> Maximum number of entries.

    Example: memorist history --limit 20
    """
    with call.mine() as mine:
        entries = mine.history(None if id is None else memory_id(mine, id), limit=limit)
        if call.json:
            return entries
        ids = tuple({entry.memory_id for entry in entries})
        texts: dict[str, str] = {}
        for start in range(0, len(ids), 1000):
            where = Filter(ids=ids[start : start + 1000], states=STATES)
            texts |= {memory.id: memory.text for memory in mine.list(where, limit=1000)}
    output.history(entries, texts)
    return None


@command("stats overview")
def overview(call: Call) -> object:
    """Summarize what is stored: counts, what is pinned, and the latest memories by topic.

    Example: memorist stats overview --space work
    """
    with call.mine() as mine:
        text = mine.overview()
    lines = "\n".join(map(plain, text.splitlines()))
    return {"space": mine.scope.space, "overview": text}, lines


@command("stats llm-usage")
def llm_usage(call: Call, *, all: bool = False, days: float = 30) -> object:
    """Show the tokens that the language model used, by day, task and model.

    Args:
        days: <DAYS> Number of days to look back.

    Example: memorist stats llm-usage --all --days 7
    """
    with call.memory() as memory:
        target: Any = memory if all else call.scope(memory)
        found = target.llm_usage(days=days)
    if call.json:
        return found
    for usage in found:
        tokens = f"{usage.calls:>5} calls {usage.tokens_in:>9,} in {usage.tokens_out:>8,} out"
        words = [f"{usage.day}  {usage.task:<10}{tokens}", usage.model]
        if all:
            words.append("/".join((usage.scope.tenant, usage.scope.user, usage.scope.space)))
        if usage.reserved:
            words.append(f"{usage.reserved:,} reserved")
        output.line("  ".join(words))
    if not found:
        output.note("The language model was not called.")
    return None
