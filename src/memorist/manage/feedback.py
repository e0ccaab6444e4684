"""Whether recall helped: which recalled memories went into a reply. No text is stored.

A reply that is stored after `context` was called in its conversation is compared by itself, off the
hot path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from ..context import Context, Place
from ..errors import InvalidInput
from ..ingest import validation
from ..storage import Event
from ..text import compare
from ..types import Draft, Labels, Outcome, Recall, Scope
from . import privacy
from .turn_context import TurnContext

CONVERSATIONS = 1000  # whose next reply is awaited
REPLY_CHARS = 20_000  # of a reply that are compared


async def record_feedback(
    place: Place,
    recalled: Recall | TurnContext | Sequence[str],
    *,
    used: Sequence[str] | None = None,
    reply: str | None = None,
    question: str | None = None,
) -> dict[str, str]:
    """Count a turn, and whether the reply used what was recalled for it.

    `recalled` is the result of `recall` or `context`, or ids of memories. Pass the ids that were
    `used`, or the `reply`, which is searched for ids and echoed words; words of the `question` do
    not count. Returns the used ids and how that is known: `told`, `cited` or `echoed`. An echo is
    an estimate, made without a language model; no text is stored. Raises InvalidInput.
    """
    ctx, scope, labels = place.parts
    if (used is None) == (reply is None):
        raise InvalidInput("Pass either `used` (ids) or `reply` (the text of the reply)")
    validation.fields({"question": question})
    if isinstance(recalled, Recall):
        memories = [*recalled.memories]
        question = question or recalled.query.text
    elif isinstance(recalled, TurnContext):
        memories = await ctx.store.get(scope, recalled.ids)
        question = question or recalled.message
    else:
        validation.texts("recalled", recalled)
        memories = await ctx.store.get(scope, recalled)
    if reply is not None:
        validation.fields({"reply": reply})
        validation.size(reply, ctx.settings.max_text_chars)
        language = ctx.settings.language
        found = compare.find_used(reply, memories, asked=question or "", language=language)
    else:
        validation.texts("used", used)
        ids = [memory.id for memory in memories if memory.id in (used or ())]
        found = dict.fromkeys(ids, "told")
    ctx.awaiting_reply.pop((scope, _conversation(labels)), None)  # each turn is counted once
    if not await privacy.find_disabled_reason(place):
        event = _count_turn(ctx, found, labels.thread or labels.session)
        ctx.access_log.note(scope, [event])
    return found


def await_reply(place: Place, found: Recall) -> None:
    """Keep what was recalled for a message, until the reply to it is stored."""
    waiting = place.ctx.awaiting_reply
    key = (place.scope, _conversation(place.labels))
    waiting.pop(key, None)
    waiting[key] = found
    if len(waiting) > CONVERSATIONS:
        del waiting[next(iter(waiting))]  # the oldest


async def compare_reply(place: Place, reply: str) -> None:
    """Count whether a reply that is not stored used what was recalled for its message."""
    key = (place.scope, _conversation(place.labels))
    found = place.ctx.awaiting_reply.get(key)
    if found is not None:
        await record_feedback(place, found, reply=reply[:REPLY_CHARS])


def compare_replies(
    ctx: Context,
    scope: Scope,
    drafts: Sequence[Draft],
    outcomes: Sequence[Outcome],
) -> None:
    """Count whether the replies among these drafts used what was recalled for their messages.

    They are compared later, when the count is written.
    """
    replies: dict[str | None, str] = {}
    for draft, outcome in zip(drafts, outcomes, strict=True):
        is_stored = outcome.status not in ("skipped", "refused")
        if is_stored and draft.labels.role == "assistant":
            name = _conversation(draft.labels)
            replies[name] = f"{replies.get(name, '')}\n{draft.text}"[:REPLY_CHARS]
    for name, reply in replies.items():
        found = ctx.awaiting_reply.pop((scope, name), None)
        if found is not None:
            ctx.access_log.note(scope, [partial(_compare, ctx, found, reply, name)])


def _conversation(labels: Labels) -> str | None:
    return labels.session or labels.thread


def _compare(ctx: Context, found: Recall, reply: str, thread: str | None) -> Event:
    used = compare.find_used(
        reply,
        found.memories,
        asked=found.query.text,
        language=ctx.settings.language,
    )
    return _count_turn(ctx, used, thread)


def _count_turn(ctx: Context, used: Mapping[str, str], thread: str | None) -> Event:
    status: Literal["ok", "skipped"] = "ok" if used else "skipped"
    return Event(node="context", op="use", at=ctx.clock(), status=status, thread=thread)
