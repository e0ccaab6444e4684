"""Commands that store, recall, browse, edit, forget and restore memories, and summarize them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import typer

from ...errors import InvalidInput
from ...storage import codec
from ...types import KINDS, STATES, Filter, Kind, Labels
from .. import OK, REFUSED, Blocking, BlockingScope, Call, load, plain
from . import output
from .app import Words, command, complete_id, memory_id
from .personal_data import read_text


@command("remember", "Remember and recall", creates=True)
def remember(
    mine: BlockingScope,
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
) -> object:
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
    is_refused = all(outcome.status == "refused" for outcome in receipt.outcomes)
    return output.Answer(receipt, receipt, exit_code=REFUSED if is_refused else OK)


@command("recall", "Remember and recall")
def recall(
    call: Call,
    mine: BlockingScope,
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
) -> object:
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
    if shared:
        answers = mine.recall_shared(question, **limits)
        if call.json:
            return answers
        for answer in answers:
            output.answer(answer, explain=explain)
        return None
    where = _filter(call, kind, category, tag, None, speaker, after, before)
    found = mine.recall(
        question, where=where, as_of=as_of, profile=profile, rerank=rerank, **limits
    )
    if call.json:
        return {**codec.dump(found), "degraded": found.degraded}
    if prompt:
        print(found.prompt())
    else:
        output.answer(found, explain=explain)
    return None


@command("list", "Browse")
def list_(
    call: Call,
    memory: Blocking,
    mine: BlockingScope,
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
) -> object:
    """List memories, newest first. With --json, one per line.

    Args:
        limit: <N> Maximum number of memories.
        cursor: <CURSOR> Cursor of the next page.
        pinned: Only pinned ones, or the others.

    Example: memorist list --tag home --limit 20
    """
    where = _filter(call, kind, category, tag, state, speaker, after, before, pinned)
    page = mine.list(where, limit=limit, cursor=cursor)
    memories = list(page.memories)
    if page.cursor:
        output.result(memories, json=call.json)
        output.note(f"There are more: --cursor {page.cursor}")
        return None
    if memories or call.json:
        return memories
    if where != Filter():
        return memories, "", ["No memories match."]
    own = mine.scope
    elsewhere = []
    for scope in memory.scopes():
        if (scope.tenant, scope.user) == (own.tenant, own.user) and scope.space != own.space:
            counts = memory.scope(scope.user, scope.space, scope.tenant).stats()
            elsewhere.append(f"{counts['memories']} in {scope.space!r}")
    others = f" ({', '.join(elsewhere)})" if elsewhere else ""
    note = f"No memories for user {own.user!r} in space {own.space!r}{others}."
    return memories, "", [note]


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
def show(mine: BlockingScope, id: str) -> object:
    """Show all fields of one memory.

    Example: memorist show 019a3c5e-7ddf-7926-adf6-688e0fc76dd8
    """
    memory = mine.get(memory_id(mine, id))
    hidden = ("text", "simhash", "content_hash", "last_scores")
    fields = codec.dump(memory)
    known = {name: value for name, value in fields.items() if value and name not in hidden}
    return memory, [output.headline(memory), output.pairs(known)]


@command("history", "Browse")
def history(call: Call, mine: BlockingScope, id: str | None = None, *, limit: int = 100) -> object:
    """Show the history of a memory or of all, newest first. With --json, one entry per line.

    Args:
        id: <[ID]> Id, or its first characters.
        limit: <N> Maximum number of entries.

    Example: memorist history --limit 20
    """
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
def overview(mine: BlockingScope) -> object:
    """Summarize what is stored: counts, what is pinned, and the latest memories by topic.

    Example: memorist stats overview --space work
    """
    text = mine.overview()
    lines = "\n".join(map(plain, text.splitlines()))
    return {"space": mine.scope.space, "overview": text}, lines


@command("stats llm-usage", empty="The language model was not called.")
def llm_usage(call: Call, mine: BlockingScope, *, all: bool = False, days: float = 30) -> object:
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
            words.append("/".join((usage.scope.tenant, usage.scope.user, usage.scope.space)))
        if usage.reserved:
            words.append(f"{usage.reserved:,} reserved")
        lines.append("  ".join(words))
    return found, "\n".join(lines)


@command("edit", "Change")
def edit(
    call: Call,
    id: str,
    text: str | None = None,
    *,
    summary: str | None = None,
    category: str | None = None,
    tag: Words = None,
    importance: float | None = None,
) -> object:
    """Edit a memory. Its id stays, and the previous version stays readable.

    Args:
        text: <[TEXT]> New text; - reads stdin.
        summary: <TEXT> New summary, at most 280 characters.
        category: <NAME> New category.
        tag: <TAG> New tags; can be repeated.
        importance: <0..1> New importance.

    Example: memorist edit 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 "I moved to Porto in May."
    """
    changes: dict[str, Any] = {"summary": summary, "category": category, "tags": tag}
    changes |= {"text": text and read_text(text), "importance": importance}
    if all(given is None for given in changes.values()):
        raise typer.BadParameter(
            "Nothing to change: give a new TEXT, --summary, --category, --tag or --importance"
        )
    with call.mine() as mine:
        return mine.edit(memory_id(mine, id), actor=mine.scope.user, **changes)


@command("forget", "Change")
def forget(
    call: Call,
    mine: BlockingScope,
    id: str | None = None,
    *,
    query: str | None = None,
    category: Words = None,
    tag: Words = None,
    dry_run: bool = False,
    reason: str = "",
    keep_days: float = 0,
    never_again: bool = False,
    yes: bool = False,
) -> object:
    """Forget memories for good, with what was derived from them alone. --keep-days only hides them.

    It lists what it found and asks. Without a terminal, --query, --category and --tag need --yes.

    Args:
        id: <[ID]> Id, or its first characters.
        query: <TEXT> Memories that this question finds.
        category: <NAME> Memories of this category.
        tag: <TAG> Memories with this tag.
        dry_run: Only list what would be forgotten.
        reason: <TEXT> Reason, for the history.
        never_again: Never store it again automatically.
        yes: Do not ask.
        keep_days: <DAYS> Only hide it for that many days.

    Example: memorist forget --query "my old address" --dry-run
    """
    has_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not call.json
    is_confirmed = dry_run or yes or keep_days > 0
    asks = has_terminal and not is_confirmed
    if id is not None:
        ids: tuple[str, ...] = (mine.get(memory_id(mine, id)).id,)
    else:
        where = Filter(categories=tuple(category or ()), tags=tuple(tag or ()))
        ids = mine.forget_where(query, where=where).ids
        if ids and not is_confirmed and not has_terminal:
            raise InvalidInput(
                f"Nothing was forgotten: {len(ids)} found, but no terminal to confirm. "
                "Look with --dry-run, then forget with --yes"
            )
    if asks or (dry_run and not call.json):
        output.show([mine.get(each) for each in ids])
    if asks:
        typer.confirm("Forget this for good?", abort=True, err=True)
    options: dict[str, Any] = {
        "actor": mine.scope.user,
        "reason": reason,
        "keep_days": keep_days,
        "never_again": never_again,
    }
    if not ids:
        found = load("manage.forget").Forgotten(dry_run=dry_run)
    elif len(ids) == 1 and not dry_run:
        found = mine.forget(ids[0], **options)
    else:
        where = Filter(ids=ids, states=STATES)
        found = mine.forget_where(where=where, dry_run=dry_run, **options)
    text = f"{'would forget' if dry_run else 'forgotten'}  {id or f'{len(ids)} memories'}"
    if keep_days and not dry_run:
        text += f"  `memorist restore` brings it back for {keep_days:g} days"
    notes = []
    if found.derived and not call.json:
        notes.append(f"{len(found.derived)} more are derived from this alone.")
    if found.flagged and not call.json:
        notes.append(f"{len(found.flagged)} more stay, but lose a source.")
    return {**asdict(found), "keep_days": keep_days}, text, notes


@command("undo", "Change")
def undo(
    call: Call, mine: BlockingScope, operation: str | None = None, *, dry_run: bool = False
) -> object:
    """Undo an operation, or a --session. The history shows this, and it can itself be undone.

    Args:
        operation: <[OPERATION]> Operation in `memorist history`.
        dry_run: Only show the result.

    Example: memorist undo --session chat-7 --dry-run
    """
    session = call.session
    if operation:
        known = [str(entry.meta.get("operation", "")) for entry in mine.history(limit=10_000)]
        operation = complete_id(operation, known)
        session = None
    done = mine.undo(operation, session=session, dry_run=dry_run, actor=mine.scope.user)
    text = f"{'would undo' if dry_run else 'undone'}  {' '.join(done.operations)}"
    return done, [*done.memories, text]
