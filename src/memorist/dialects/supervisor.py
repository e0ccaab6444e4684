"""The memory of a supervisor and its agents: one tool to ask with, context by category, recall in doubt, how-tos."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InvalidInput
from ..manage import agent_query
from ..retrieve import profiles, render
from ..retrieve.budget import Caps, fit
from ..scoped import ScopedClient
from ..settings import allowlists
from ..text import normalize
from ..text.tokens import analyze, count_tokens
from ..types import Draft, Filter, Memory, Outcome

TOOL = "memory.query"
UNSURE = 0.5  # a supervisor less confident than this looks again
MOST_STEPS, LONGEST_STEP, MOST_TOKENS = (
    20,
    240,
    400,
)  # of a how-to: steps, characters of one, tokens of all
STABLE = 2  # runs in the same steps make a how-to
_TAKES = (
    "agent",
    "query",
    "categories",
    "filters",
    "top_k",
    "return",
    "budget_tokens",
    "threshold",
)
_NUMBER = re.compile(r"^\s*(?:\d{1,3}[.)]|[-*•])\s+")
_WHO = re.compile(
    r"(?:(?:first|second|third|next|then|after that|afterwards|finally|lastly|now|and)\b,? ){0,2}"
    r"(?:(?:i|we|you|one|the (?:user|agent|executor))(?:'ll|'d)? "
    r"(?:(?:should|must|will|can|may|would|need to|needs to|have to|has to|ought to|want to)\b )?)?(?:then |always )?",
    re.IGNORECASE,
)
_MIND = re.compile(
    r"(?:the user|the person|he|she|they|i|we)\b (?:\w+ )?"
    r"(?:feels?|thinks?|believes?|seems?|wants?|hopes?|worries|likes?|prefers?|trusts?)\b",
    re.IGNORECASE,
)
_BACK = re.compile(  # what a turn says that leans on another one
    r"\b(?:(?:do|did|can|don't) you (?:still |even )?(?:remember|recall)"
    r"|remember (?:when|what|how|who|where|which|the|my|our)"
    r"|(?:as|like|what|than) (?:i|we|you) (?:just |already |once )?"
    r"(?:said|told|mentioned|discussed|agreed|decided|planned)"
    r"|i (?:already |once )?(?:told you|mentioned)|we (?:once |already )?(?:talked|spoke|discussed|agreed|decided)"
    r"|(?:last|previous) (?:time|conversation|chat|session)|(?:the|my) usual|as (?:usual|before|always)"
    r"|what(?:'s| is| was| were| are) (?:my|our)|(?:what|which|who|when|where|how) (?:[a-z]+ ){0,3}did (?:i|we))\b",
    re.IGNORECASE,
)


class Supervisor:
    """The API of the implementation spec over one scope."""

    def __init__(self, scope: ScopedClient) -> None:
        self._scope, self._ctx = scope, scope.ctx

    async def query(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Answer a call of the tool `memory.query`. Raises NotAllowed for a category the agent may not read."""
        if unknown := [name for name in request if name not in _TAKES]:
            raise InvalidInput(f"{TOOL} takes no {unknown[0]!r}: it takes {', '.join(_TAKES)}")
        if missing := [
            name for name in ("agent", "query") if not isinstance(request.get(name), str)
        ]:
            raise InvalidInput(f"{TOOL} needs {missing[0]!r}, as text")
        given = {"return_" if name == "return" else name: value for name, value in request.items()}
        return await self._scope.query(
            **{name: value for name, value in given.items() if value is not None}
        )

    async def recall_if_unsure(
        self,
        message: str,
        *,
        agent: str,
        confidence: float | None = None,
        context: str = "",
        budget_tokens: int = 512,
    ) -> list[dict[str, Any]]:
        """Look again, for three bullets, if the supervisor is not confident; otherwise ask nothing at all.

        A supervisor that does not know how sure it is leaves that to `confident`, with the context it was given.
        """
        if (confident(message, context) if confidence is None else confidence) >= UNSURE:
            return []
        return await self._scope.query(message, agent=agent, top_k=3, budget_tokens=budget_tokens)

    async def context(
        self, message: str, *, agent: str = "supervisor", limit: int = 5, budget: int = 1000
    ) -> str:
        """What an agent gets to read before it answers: whole categories first, then what fits the message.

        How-tos are left out, and so is every category that the agent may not read; where memory is off, it is empty.
        Raises NotAllowed.
        """
        access, count = self._ctx.allowlists, self._ctx.count_tokens
        if await self._scope.privacy.disabled_reason():
            return ""
        names = [name for name in access.allowed(agent) if name != allowlists.PROCEDURAL]
        whole = [name for name in names if access.category(name).context == "all"]
        lines = [self._line(memory) for memory in await self._all(whole)] if whole else []
        if rest := [name for name in names if name not in whole]:
            where = Filter(categories=allowlists.spellings(rest))
            found = await self._scope.recall(
                message, limit=limit, profile=profiles.SUPERVISOR, where=where
            )
            lines += [self._line(memory) for memory in agent_query.few(found, access)]
            lines += [f"{self._line(memory)} (related)" for memory in found.related]
        caps = Caps(tokens=budget)
        unique = list(dict.fromkeys(lines))
        return fit(unique, caps, "\n".join, count, cost=lambda line: count(line + "\n")).text

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
            text=normalize.one_line(task),
            steps_text=numbered(steps),
            kind="procedural",
            category=allowlists.PROCEDURAL,
            labels=labels,
            tags=tuple(tags),
            importance=importance,
            pinned=pinned,
        )
        if not draft.text or len(draft.text) > LONGEST_STEP:
            raise InvalidInput(f"A task is named in 1 to {LONGEST_STEP} characters")
        return (await self._scope.remember_drafts([draft], policy="supervisor")).outcomes[0]

    async def capture_workflow(
        self, task: str, runs: Sequence[Sequence[str]], **given: Any
    ) -> Outcome:
        """Keep how a task is done once it was done twice in a row in the same steps; otherwise nothing is kept.

        Takes what `save_workflow` takes. Raises InvalidInput.
        """
        done = [numbered(steps) for steps in runs]
        if len(done) < STABLE or len({steps.casefold() for steps in done[-STABLE:]}) > 1:
            return Outcome(
                status="skipped", reason=f"the last {STABLE} runs did not take the same steps"
            )
        return await self.save_workflow(task, runs[-1], **given)

    def _line(self, memory: Memory) -> str:
        return f"- {render.bullet(memory, self._ctx.allowlists.category(memory.category or memory.kind).name)}"

    async def _all(self, names: Sequence[str]) -> list[Memory]:
        where = Filter(categories=allowlists.spellings(names))
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
    said = [imperative(step) for step in steps] if not isinstance(steps, str) else []
    if (
        not said
        or len(said) > MOST_STEPS
        or any(not 1 <= len(step) <= LONGEST_STEP for step in said)
    ):
        raise InvalidInput(
            f"A how-to is a list of 1 to {MOST_STEPS} steps of 1 to {LONGEST_STEP} characters"
        )
    if wrong := [
        number
        for number, step in enumerate(steps, 1)
        if _MIND.match(_NUMBER.sub("", step).lstrip())
    ]:
        raise InvalidInput(
            f"Step {wrong[0]} tells what somebody thinks or feels: a step says what to do"
        )
    made = "\n".join(f"{number}. {step}" for number, step in enumerate(said, 1))
    if count_tokens(made) > MOST_TOKENS:
        raise InvalidInput(
            f"A how-to has at most {MOST_TOKENS} tokens, not {count_tokens(made)}: say it shorter"
        )
    return made


def imperative(step: str) -> str:
    """A step as an order, without its number and without who is to do it.

    >>> imperative("2) Then we should push the image."), imperative("Push it")
    ('Push the image.', 'Push it')
    """
    said = _WHO.sub("", normalize.one_line(_NUMBER.sub("", step)), count=1)
    return said[:1].upper() + said[1:]


def confident(message: str, context: str = "") -> float:
    """How sure one can be that a turn is answered with the context at hand: 1 unless it leans on something earlier.

    Then it is the share of its words that the context holds.

    >>> confident("Let us paint the boat."), confident("What was my boat called?", "My boat is called Miso.")
    (1.0, 1.0)
    >>> confident("What was my boat called?", "The tea is green.")
    0.0
    """
    if not _BACK.search(message.replace("’", "'")):
        return 1.0
    asked = set(analyze(message)) - set(analyze(" ".join(_BACK.findall(message))))
    return len(asked & set(analyze(context))) / len(asked) if asked else 0.0
