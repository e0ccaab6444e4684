"""The memory of a supervisor and its agents: one tool to ask with, context by category, recall in doubt, how-tos."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import querying
from ..errors import InvalidInput
from ..model import Draft, Filter, Memory, Outcome
from ..policy import allow, profiles
from ..retrieve import render
from ..scoped import Scoped
from ..text import normalise

TOOL = "memory.query"
UNSURE = 0.5  # a supervisor less confident than this looks again
MOST_STEPS, LONGEST_STEP = 20, 240  # characters
_TAKES = ("agent", "query", "categories", "filters", "top_k", "return", "budget_tokens", "threshold")
_NUMBER = re.compile(r"^\s*(?:\d{1,3}[.)]|[-*•])\s+")


class Supervisor:
    """The API of the implementation spec over one scope."""

    def __init__(self, scope: Scoped) -> None:
        self._scope, self._engine = scope, scope._engine

    async def query(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Answer a call of the tool `memory.query`. Raises NotAllowed for a category the agent may not read."""
        if unknown := [name for name in request if name not in _TAKES]:
            raise InvalidInput(f"{TOOL} takes no {unknown[0]!r}: it takes {', '.join(_TAKES)}")
        if missing := [name for name in ("agent", "query") if not isinstance(request.get(name), str)]:
            raise InvalidInput(f"{TOOL} needs {missing[0]!r}, as text")
        given = {"return_" if name == "return" else name: value for name, value in request.items()}
        return await self._scope.query(**{name: value for name, value in given.items() if value is not None})

    async def recall_if_unsure(
        self, message: str, *, agent: str, confidence: float, budget_tokens: int = 512
    ) -> list[dict[str, Any]]:
        """Look again, for three bullets, if the supervisor is not confident; otherwise ask nothing at all."""
        if confidence >= UNSURE:
            return []
        return await self._scope.query(message, agent=agent, top_k=3, budget_tokens=budget_tokens)

    async def context(self, message: str, *, agent: str = "supervisor", limit: int = 5, budget: int = 1000) -> str:
        """What an agent gets to read before it answers: whole categories first, then what fits the message.

        How-tos are left out, and so is every category that the agent may not read; where memory is off, it is empty.
        Raises NotAllowed.
        """
        access, count = self._engine.access, self._engine.count_tokens
        if await self._scope.privacy.why_off():
            return ""
        names = [name for name in access.allowed(agent) if name != allow.PROCEDURAL]
        whole = [name for name in names if access.category(name).context == "all"]
        lines = [self._line(memory) for memory in await self._all(whole)] if whole else []
        if rest := [name for name in names if name not in whole]:
            where = Filter(categories=allow.spellings(rest))
            found = await self._scope.recall(message, limit=limit, profile=profiles.SUPERVISOR, where=where)
            lines += [self._line(memory) for memory in querying.few(found, access)]
            lines += [f"{self._line(memory)} (related)" for memory in found.related]
        return "\n".join(_fitting(lines, budget, count))

    async def save_workflow(
        self,
        task: str,
        steps: Sequence[str],
        *,
        agent: str | None = None,
        run: str | None = None,
        tags: Sequence[str] = (),
        importance: float | None = None,
        pinned: bool = False,
    ) -> Outcome:
        """Keep how a task is done, in numbered steps. Only agents that ask for `procedural` get to see it.

        Raises InvalidInput.
        """
        labels = replace(self._scope.labels, agent=agent, run=run)
        draft = Draft(
            text=normalise.one_line(task), steps_text=numbered(steps), kind="procedural", category=allow.PROCEDURAL,
            labels=labels, tags=tuple(tags), importance=importance, pinned=pinned,
        )  # fmt: skip
        if not draft.text or len(draft.text) > LONGEST_STEP:
            raise InvalidInput(f"A task is named in 1 to {LONGEST_STEP} characters")
        return (await self._scope.remember_drafts([draft], policy="supervisor")).outcomes[0]

    def _line(self, memory: Memory) -> str:
        return f"- {render.bullet(memory, self._engine.access.category(memory.category or memory.kind).name)}"

    async def _all(self, names: Sequence[str]) -> list[Memory]:
        where = Filter(categories=allow.spellings(names))
        page = await self._scope.list(where, limit=1000)
        found = list(page.memories)
        while page.cursor:
            page = await self._scope.list(where, limit=1000, cursor=page.cursor)
            found += page.memories
        return [memory for memory in found if memory.procedural_form != "workflow"]


def numbered(steps: Sequence[str]) -> str:
    """Steps as numbered lines; numbers and bullets they came with are taken off. Raises InvalidInput.

    >>> numbered(["- Build the image", "2) Push it"])
    '1. Build the image\\n2. Push it'
    """
    said = [normalise.one_line(_NUMBER.sub("", step)) for step in steps] if not isinstance(steps, str) else []
    if not said or len(said) > MOST_STEPS or any(not 1 <= len(step) <= LONGEST_STEP for step in said):
        raise InvalidInput(f"A how-to is a list of 1 to {MOST_STEPS} steps of 1 to {LONGEST_STEP} characters")
    return "\n".join(f"{number}. {step}" for number, step in enumerate(said, 1))


def _fitting(lines: Sequence[str], budget: int, count: Callable[[str], int]) -> Iterator[str]:
    """The lines that fit into so many tokens."""
    for line in dict.fromkeys(lines):
        cost = count(line + "\n")
        if cost <= budget:
            budget -= cost
            yield line
