"""Supervisor, the implementation specification: one tool for agents, context by category, recall if
unsure, workflows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InvalidInput
from ..ingest import validation
from ..scoped import ScopedClient
from ..text import normalize
from ..text.steps import numbered
from ..text.tokens import analyze
from ..types import Draft, Outcome
from . import SUPERVISOR

TOOL = "memory.query"
UNSURE = 0.5  # a supervisor less confident than this looks again
STABLE = 2  # runs in the same steps make a workflow
_FIELDS = "agent query categories filters top_k return budget_tokens threshold since".split()
_BACK = re.compile(  # a turn that refers to an earlier one
    r"(?i)\b(?:(?:do|did|can|don't) you (?:still |even )?(?:remember|recall)"
    r"|remember (?:when|what|how|who|where|which|the|my|our)"
    r"|(?:as|like|what|than) (?:i|we|you) (?:just |already |once )?"
    r"(?:said|told|mentioned|discussed|agreed|decided|planned)"
    r"|i (?:already |once )?(?:told you|mentioned)"
    r"|we (?:once |already )?(?:talked|spoke|discussed|agreed|decided)"
    r"|(?:last|previous) (?:time|conversation|chat|session)"
    r"|(?:the|my) usual|as (?:usual|before|always)"
    r"|what(?:'s| is| was| were| are) (?:my|our)"
    r"|(?:what|which|who|when|where|how) (?:[a-z]+ ){0,3}did (?:i|we))\b"
)


class Supervisor:
    """The API of the implementation specification over one scope."""

    def __init__(self, scope: ScopedClient) -> None:
        self._scope = scope

    async def query(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Answer a call of the tool `memory.query`.

        Raises NotAllowed for a category the agent may not read.
        """
        arguments: dict[str, Any] = {}
        for name, value in request.items():
            if name not in _FIELDS:
                raise InvalidInput(f"{TOOL} takes no {name!r}: it takes {', '.join(_FIELDS)}")
            if value is not None:
                arguments["return_" if name == "return" else name] = value
        for name in ("agent", "query"):
            if not isinstance(request.get(name), str):
                raise InvalidInput(f"{TOOL} needs {name!r}, as text")
        return await self._scope.query(**arguments)

    async def recall_if_unsure(
        self,
        message: str,
        *,
        agent: str,
        confidence: float | None = None,
        context: str = "",
        budget_tokens: int = 512,
    ) -> list[dict[str, Any]]:
        """Return three bullets, and up to two related ones, if the supervisor is not confident.

        Otherwise nothing is queried. Without a confidence, `confident` estimates it from the context that the
        supervisor has.
        """
        if confidence is None:
            confidence = confident(message, context)
        if confidence >= UNSURE:
            return []
        return await self._scope.query(
            message,
            agent=agent,
            top_k=3,
            budget_tokens=budget_tokens,
        )

    async def context(
        self,
        message: str,
        *,
        agent: str = "supervisor",
        limit: int = 5,
        budget: int = 1000,
        since: int | None = None,
    ) -> str:
        """Return what an agent reads before it answers: what changed in the thread, whole
        categories, then at most `limit` memories that are relevant to the message.

        The text has at most `budget` tokens, and is empty if memory is off. Raises NotAllowed.
        """
        profile = replace(SUPERVISOR, limit=limit)
        found = await self._scope.context(
            message,
            since=since,
            agent=agent,
            budget=budget,
            profile=profile,
        )
        return found.text

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
        """Store how a task is done, in numbered steps. Only agents that ask for `procedural` get
        it.

        Raises InvalidInput.
        """
        draft = Draft(
            **validation.workflow(task, steps),
            text=normalize.one_line(task),
            labels=replace(self._scope.labels, agent=agent, run=run),
            tags=tuple(tags),
            importance=importance,
            pinned=pinned,
        )
        receipt = await self._scope.remember_drafts([draft], policy="supervisor")
        return receipt.outcomes[0]

    async def capture_workflow(
        self,
        task: str,
        runs: Sequence[Sequence[str]],
        **given: Any,
    ) -> Outcome:
        """Store how a task is done if the last two runs took the same steps.

        Accepts the options of `save_workflow`. Raises InvalidInput.
        """
        done = [numbered(steps).casefold() for steps in runs]
        if len(done) < STABLE or len(set(done[-STABLE:])) > 1:
            return Outcome(
                status="skipped", reason=f"the last {STABLE} runs did not take the same steps"
            )
        return await self.save_workflow(task, runs[-1], **given)


def confident(message: str, context: str = "") -> float:
    """Return how likely it is that a turn can be answered with the given context.

    1 unless the turn refers to something earlier; then the share of its words that are in the
    context.

    >>> confident("Let us paint the boat.")
    1.0
    >>> confident("What was my boat called?", "My boat is called Miso.")
    1.0
    >>> confident("What was my boat called?", "The tea is green.")
    0.0
    """
    if not _BACK.search(message.replace("’", "'")):
        return 1.0
    references = " ".join(_BACK.findall(message))
    asked = set(analyze(message)).difference(analyze(references))
    known = asked.intersection(analyze(context))
    return len(known) / max(1, len(asked))
