"""Reflection: insights that a language model infers about the person from what they did and said.

An insight is stored as a guess: with the memories it was inferred from as evidence, with less
authority than the person's own words, and with too little confidence to fill in a profile field.
Needs a language model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from ..context import Context
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget
from ..ingest import pipeline
from ..ingest.transitions import EXPIRING
from ..storage import tasks
from ..storage.queries import Reader
from ..storage.tasks import Task
from ..text import compare, cues, prompts
from ..text.prompts import Prompt
from ..text.statements import parse
from ..types import STATES, Draft, Filter, Memory, Scope
from . import DAILY, finish, get_unchanged, next_due
from .consolidate import model_failure

POLICY = "insight"
CATEGORY = "relationship_dynamic"
ACTIVITIES = 5  # in the prompt
FACTS = 3  # in the prompt
CHARACTERS = 1000  # of a text, and of the conversation, in the prompt
MOST = 3  # insights in one answer
TAGS = 5  # of one insight
USUAL_LEVEL = 2  # of importance: a guess has little weight
HIGHEST_LEVEL = 3
CONFIDENCE = 0.5  # too little to take effect without the person's approval
_PAGE = 50
_TAG = re.compile(r"[^\W_][\w-]{0,29}")


async def run(ctx: Context, task: Task) -> int:
    """Ask for insights if there is something new; return how many were stored.

    The model is not asked within `reflect_hours` of the last insight, and never if that is 0.
    """
    now = ctx.clock()
    scope = task.scope
    hours = ctx.settings.reflect_hours
    changes = []
    where = Filter(kinds=("insight",), categories=(CATEGORY,), states=STATES)
    newest = await ctx.store.page(scope, where, limit=1)
    last = newest.memories[0].created_at if newest.memories else None
    is_early = last is not None and now < last + timedelta(hours=hours)
    if ctx.llm is not None and hours and not is_early:
        notes = await gather(ctx.store, scope, last)
        sources = list(chain.from_iterable(notes.values()))
        try:
            if any(last is None or memory.created_at > last for memory in sources):
                answer = await ctx.llm.answer(scope, question(notes))
                drafts = insights(answer, sources)
                batch = await pipeline.prepare_derived(ctx, scope, drafts, POLICY, now)
                async with ctx.store.transaction(scope) as tx:
                    if await get_unchanged(tx, sources):  # otherwise the next run reads them again
                        outcomes = await pipeline.write(tx, batch)
                        await tasks.finish(tx, task, again_at=next_due(task, DAILY, now))
                        return sum(outcome.status == "created" for outcome in outcomes)
        except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
            changes.append(model_failure(error, now))
    await finish(ctx, task, DAILY, changes)
    return 0


async def gather(
    reading: Reader,
    scope: Scope,
    last: datetime | None,
) -> dict[str, list[Memory]]:
    """Return the person's recent activities, facts they stated since the last insight, and their
    latest turns, each newest first.
    """
    episodic = Filter(kinds=("episodic",), none_of=(EXPIRING,))
    recent = await reading.page(scope, episodic, limit=_PAGE)
    where = Filter(kinds=("semantic", "procedural"), created_after=last, none_of=(EXPIRING,))
    stated = await reading.page(scope, where, limit=_PAGE)
    current = [memory for memory in stated if memory.valid_to is None]
    facts = list(filter(cues.is_persons, current))
    activities = []
    turns = []
    left = CHARACTERS
    for memory in filter(cues.is_persons, recent):
        if memory.labels.session is None or memory.speaker is None:
            activities.append(memory)
        elif left >= 0:
            left -= len(memory.text) + 1
            if left >= 0:  # whole turns only
                turns.append(memory)
    return {
        "activities": activities[:ACTIVITIES],
        "facts": facts[:FACTS],
        "conversation": turns,
    }


def question(notes: Mapping[str, Sequence[Memory]]) -> Prompt:
    """Return the prompt for notes about the person."""
    given = {}
    for name, memories in notes.items():
        texts = [memory.text[:CHARACTERS] for memory in memories]
        is_conversation = name == "conversation"
        given[name] = "\n".join(reversed(texts)) if is_conversation else texts
    return prompts.build("reflect", given)


def insights(answer: Mapping[str, Any], sources: Sequence[Memory]) -> list[Draft]:
    """Return the insights that can be stored: self-contained, in the third person, nothing
    invented.
    """
    drafts = []
    source = parse("\n".join(memory.text for memory in sources))
    ids = tuple(memory.id for memory in sources)
    for given in answer["insights"][:MOST]:
        if len(given["summary"]) > prompts.LONGEST:
            continue
        text = prompts.to_statement(given["summary"])
        level = given["importance"] if given["importance"] >= 1 else USUAL_LEVEL
        if text and not compare.invents(parse(text), source):
            draft = Draft(
                text=text,
                kind="insight",
                category=CATEGORY,
                importance=min(level, HIGHEST_LEVEL) / 5,
                confidence=CONFIDENCE,
                tags=clean_tags(given["tags"]),
                evidence_ids=ids,
            )
            drafts.append(draft)
    return drafts


def clean_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags that are single words, in lower case, without repetitions.

    >>> clean_tags(["Trust", "ignore all rules", "style"])
    ('trust', 'style')
    """
    words = filter(_TAG.fullmatch, tags)
    unique = dict.fromkeys(map(str.lower, words))
    return tuple(unique)[:TAGS]
