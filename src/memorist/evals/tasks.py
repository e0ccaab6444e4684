"""Tasks: how they are read from files, run in a temporary memory, and judged.

A task is a file in JSON or TOML. Without a language model there is no written answer: the block of
memories that a model would get is judged literally. A block that quotes an old value next to the
new one fails, although a model would see the dates.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AwareDatetime, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as validated

from .. import aio
from ..errors import (
    BadModelAnswer,
    InvalidInput,
    ModelUnavailable,
    NotFound,
    OverBudget,
)
from ..ports import BudgetedModel
from ..retrieve.profiles import Profile
from ..settings import load
from ..text import commands, prompts
from ..types import frozen

SUFFIXES = (".json", ".toml")
FOLDER = Path(__file__).parent
_STRICT = ConfigDict(extra="forbid")
Text = Annotated[str, Field(min_length=1)]
Alternatives = Annotated[tuple[Text, ...], Field(min_length=1)]  # one of them is enough
# Called with the question, the recalled block, and the time of the question.
Answerer = Callable[[str, str, datetime], Awaitable[str]]
Advance = Callable[[int, int], None]  # called with the steps done and the total
USER = "sam"


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class EvalTurn:
    """One message. Those of the user have the role `user` and no name."""

    content: Text
    role: Text = "user"
    name: Text | None = None


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class EvalSession:
    """One conversation, on one day."""

    at: AwareDatetime
    messages: Annotated[tuple[EvalTurn, ...], Field(min_length=1)]


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class EvalTask:
    """Conversations, a question asked later, and what an answer must and must not say."""

    name: Text
    sessions: Annotated[tuple[EvalSession, ...], Field(min_length=1)]
    question: Text
    asked_at: AwareDatetime
    must: tuple[Text | Alternatives, ...] = ()
    must_not: tuple[Text, ...] = ()
    about: str = ""
    kind: Text = "own"
    chatter: bool = True  # mix in small talk, so that recall has something to choose from

    def missing(self, answer: str) -> tuple[str, ...]:
        """Return what an answer should say and does not."""
        missing = []
        for each in self.must:
            alternatives = _alternatives(each)
            if not any(says(answer, one) for one in alternatives):
                missing.append(" / ".join(alternatives))
        return tuple(missing)

    def forbidden(self, answer: str) -> tuple[str, ...]:
        """Return what an answer says and should not."""
        return tuple(each for each in self.must_not if says(answer, each))


def _alternatives(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    return (wanted,) if isinstance(wanted, str) else wanted


def says(text: str, wanted: str) -> bool:
    """Return whether a text contains whole words, ignoring case and spacing.

    >>> says("on\\nThursday.", "thursday"), says("at 10:30am", "10:30"), says("at 10:30", "10")
    (True, True, False)
    >>> says("我住在上海市", "上海"), says("He is Catarina's boss", "Catarina"), says("concatenate", "cat")
    (True, True, False)
    """
    inner = _fold(wanted)
    before = ""
    after = ""
    if _is_bounded(inner[:1]):
        before = r"(?<!\w)(?<!\d[.,:])"
    if inner[-1:].isdigit():
        after = r"(?!\d|[.,:]\d)"
    elif _is_bounded(inner[-1:]):
        after = r"(?!\w)"
    return re.search(before + re.escape(inner) + after, _fold(text)) is not None


def _fold(text: str) -> str:
    normalized = unicodedata.normalize("NFKC", text)
    return " ".join(normalized.replace("’", "'").casefold().split())


def _is_bounded(character: str) -> bool:
    """Return whether a character belongs to a script that separates words by spaces."""
    return character.isalnum() and unicodedata.category(character) != "Lo"


def packaged() -> list[EvalTask]:
    """Return the tasks that come with Memorist, by name."""
    return from_folder(FOLDER / "suite")


def from_folder(folder: str | Path) -> list[EvalTask]:
    """Return the tasks in the files of a folder, by name.

    Raises NotFound if there are none; InvalidInput for an invalid file, with its name and the
    field.
    """
    found = [path for path in sorted(Path(folder).glob("*")) if path.suffix in SUFFIXES]
    if not found:
        raise NotFound(
            f"No tasks in {str(folder)!r}: put them in .json or .toml files, see the documentation"
        )
    return list(map(_read_task, found))


def _read_task(path: Path) -> EvalTask:
    """Read a task. Raises InvalidInput."""
    parse = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        read = parse(path.read_bytes().decode())
    except ValueError as error:
        raise InvalidInput(f"{path.name}: cannot be read: {error}") from error
    if not isinstance(read, dict):
        raise InvalidInput(
            f"{path.name}: expected an object with sessions, question, asked_at and must"
        )
    try:
        task = EvalTask(**{"name": path.stem, **read})
    except ValidationError as error:
        raise InvalidInput(f"{path.name}: {name_field(error)}") from error
    if not task.must and not task.must_not:
        raise InvalidInput(
            f"{path.name}: must: list what an answer has to contain, "
            "or in must_not what it may not contain"
        )
    if task.asked_at < max(session.at for session in task.sessions):
        raise InvalidInput(f"{path.name}: asked_at: the question comes before the last session")
    return task


def name_field(error: ValidationError) -> str:
    """Return the first field that is invalid, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def small_talk(task: EvalTask) -> list[EvalSession]:
    """Return small talk for the weeks before the question, without lines about its subject."""
    wanted: list[str] = []
    for each in (*task.must, *task.must_not):
        wanted += _alternatives(each)
    sessions = []
    for talk in json.loads((FOLDER / "chatter.json").read_text("utf-8")):
        turns = [EvalTurn(**message) for message in talk["messages"]]
        kept = [turn for turn in turns if not any(says(turn.content, one) for one in wanted)]
        if kept:
            at = task.asked_at - timedelta(days=talk["days_before"])
            sessions.append(EvalSession(at=at, messages=tuple(kept)))
    return sessions


@frozen
class Result:
    """The result of one task."""

    task: str
    kind: str
    missing: tuple[str, ...] = ()  # what the answer does not say, but must
    forbidden: tuple[str, ...] = ()  # what it says, but must not
    tokens: int  # of the recalled block
    problem: str = ""  # why there is no answer

    @property
    def passed(self) -> bool:
        return not (self.missing or self.forbidden or self.problem)


@frozen
class Run:
    """The results of all tasks in one setup."""

    name: str
    results: tuple[Result, ...]

    def mean(self, figure: Callable[[Result], float]) -> float:
        return sum(map(figure, self.results)) / max(1, len(self.results))

    @property
    def accuracy(self) -> float:
        return self.mean(lambda each: each.passed)

    @property
    def found(self) -> float:
        """Return the share of tasks where the answer says all that it must."""
        return self.mean(lambda each: not each.missing and not each.problem)

    @property
    def tokens(self) -> float:
        """Return the mean number of tokens in the recalled block."""
        return self.mean(lambda each: each.tokens)


@frozen
class Report:
    """The same tasks, run in several setups."""

    runs: tuple[Run, ...]

    def run(self, name: str) -> Run:
        """Return one of the runs. Raises NotFound."""
        runs = self._by_name
        if name not in runs:
            raise NotFound(f"Unknown run {name!r}: choose one of {', '.join(runs)}")
        return runs[name]

    @property
    def best_equipped(self) -> Run:
        """Return the run with memory, and with the model if there is one: what a user gets."""
        runs = self._by_name
        return runs.get("model, memory") or runs["memory"]

    @property
    def _by_name(self) -> dict[str, Run]:
        return {each.name: each for each in self.runs}


async def evaluate(
    tasks: Sequence[EvalTask],
    *,
    profile: str | Profile | None = None,
    limit: int | None = None,
    answerer: Answerer | None = None,
    progress: Advance = lambda done, of: None,
    **settings: Any,
) -> Report:
    """Run the tasks without memory, with memory, and without vectors; with a model too, if any.

    The model is the `answerer`, or the one in the settings. Raises InvalidInput, Misconfigured.
    """
    rules = {**settings, "llm": "none"}
    with_model = {"model, no memory": 0, "model, memory": limit}
    setups: list[tuple[dict[str, Any], dict[str, int | None]]] = [  # settings; limits of the runs
        (rules, {"no memory": 0, "memory": limit}),
        ({**rules, "embedder": "none"}, {"memory, no vectors": limit}),
    ]
    if answerer is not None:
        setups[0][1].update(with_model)
    elif load(**settings).llm != "none":
        setups.append((settings, with_model))
    runs: list[Run] = []
    steps = count(1)

    def advance() -> None:
        progress(next(steps), len(setups) * len(tasks))

    for chosen, limits in setups:
        async with filled_memory(tasks, progress=advance, **chosen) as memory:
            for name, setup_limit in limits.items():
                model = None
                if name in with_model:
                    model = answerer or _configured_model(memory)
                results = await ask_all(
                    memory,
                    tasks,
                    profile=profile,
                    limit=setup_limit,
                    answerer=model,
                )
                runs.append(Run(name=name, results=results))
    return Report(runs=tuple(runs))


@asynccontextmanager
async def filled_memory(
    tasks: Sequence[EvalTask],
    *,
    progress: Callable[[], None] = lambda: None,
    **settings: Any,
) -> AsyncIterator[aio.Client]:
    """Open a temporary memory that holds all conversations, each in a separate space."""
    with tempfile.TemporaryDirectory() as folder:
        settings |= {"state_dir": folder, "journal_dir": None, "vector_index": None}
        async with aio.open(":memory:", **{**settings, "memory_enabled": True}) as memory:
            for task in tasks:
                sessions = list(task.sessions)
                if task.chatter:
                    sessions += small_talk(task)
                sessions.sort(key=lambda each: each.at)
                for number, session in enumerate(sessions):
                    await _remember_session(memory, task, str(number), session)
                progress()
            # Only the jobs that complete a write: the daily ones would clean up too early.
            jobs = ["embed"]
            if memory.ctx.settings.extract != "off":
                jobs.append("extract")
            await memory.run_jobs(only=jobs)
            yield memory


async def _remember_session(
    memory: aio.Client, task: EvalTask, name: str, session: EvalSession
) -> None:
    """Store a session at its time. Chat commands of the user are run, as an agent would do."""
    memory.ctx.clock = lambda: session.at
    scope = memory.scope(USER, task.name, session=name)
    messages: list[dict[str, Any]] = []
    for turn in session.messages:
        is_user = turn.role == "user" and turn.name is None
        order = commands.parse(turn.content) if is_user else None
        if order is not None and not order.content:
            await scope.remember(messages)
            messages = []
            await scope.command(turn.content)
        else:
            messages.append({**asdict(turn), "at": session.at})
    await scope.remember(messages)


async def ask_all(
    memory: aio.Client,
    tasks: Sequence[EvalTask],
    *,
    profile: str | Profile | None = None,
    limit: int | None = None,
    answerer: Answerer | None = None,
) -> tuple[Result, ...]:
    """Ask each question at its time, in a new session. A limit of 0 recalls nothing."""
    results = []
    for task in tasks:
        answer = ""
        tokens = 0
        if limit != 0:
            memory.ctx.clock = lambda at=task.asked_at: at  # type: ignore[misc]
            scope = memory.scope(USER, task.name, session="question")
            found = await scope.recall(task.question, profile=profile, limit=limit)
            answer = found.text
            tokens = found.tokens
        try:
            if answerer is not None:
                answer = await answerer(task.question, answer, task.asked_at)
            judged: dict[str, Any] = {"missing": task.missing(answer)}
            judged["forbidden"] = task.forbidden(answer)
        except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
            judged = {"problem": str(error)}
        results.append(Result(task=task.name, kind=task.kind, tokens=tokens, **judged))
    return tuple(results)


def _configured_model(memory: aio.Client) -> Answerer:
    """Return the language model in the settings, limited by its budget."""
    model = cast(BudgetedModel, memory.ctx.llm)
    scope = memory.scope(USER, "answers").scope

    async def ask(question: str, block: str, at: datetime) -> str:
        shown = {"today": f"{at:%A, %Y-%m-%d}", "remembered": block, "question": question}
        answer = await model.answer(scope, prompts.build("eval", shown))
        return str(answer["answer"])

    return ask
