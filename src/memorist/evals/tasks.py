"""Tasks: read from files, run in a temporary memory, and judged.

A task is a file in JSON or TOML. Without a language model there is no written answer: what is
judged, to the letter, is the block of memories that a model would get. A block that quotes an
earlier value beside the newer one fails, though a model would see the dates.
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
from ..manage import chat_commands
from ..ports import BudgetedModel
from ..retrieve.profiles import Profile
from ..settings import load
from ..text import prompts
from ..types import frozen

SUFFIXES = (".json", ".toml")
FOLDER = Path(__file__).parent
_STRICT = ConfigDict(extra="forbid")
Text = Annotated[str, Field(min_length=1)]
Alternatives = Annotated[tuple[Text, ...], Field(min_length=1)]  # any of them is enough
# Called with the question, the recalled block, and when it is asked.
Answerer = Callable[[str, str, datetime], Awaitable[str]]
Advance = Callable[[int, int], None]  # how many are done, of how many
USER = "sam"


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class EvalTurn:
    """One message; the user's own have the role `user` and no name."""

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
    """Return whether a text contains some words, in any case and spacing, but not within others.

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
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


def _is_bounded(character: str) -> bool:
    """Return whether words that begin or end with a character are separated from others.

    In many scripts they are not.
    """
    return character.isalnum() and unicodedata.category(character) != "Lo"


def packaged() -> list[EvalTask]:
    """Return the tasks that come with Memorist, by name."""
    return from_folder(FOLDER / "suite")


def from_folder(folder: str | Path) -> list[EvalTask]:
    """Return the tasks in the files of a folder, by name.

    Raises NotFound if there is none, and InvalidInput for an invalid file, naming the file and the
    field.
    """
    found = [path for path in sorted(Path(folder).glob("*")) if path.suffix in SUFFIXES]
    if not found:
        raise NotFound(
            f"There is no task in {str(folder)!r}: put one in a .json or .toml file, "
            "see the documentation"
        )
    return list(map(_read_task, found))


def _read_task(path: Path) -> EvalTask:
    """Read a task. Raises InvalidInput."""
    parse = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        read = parse(path.read_bytes().decode())
    except ValueError as error:
        raise InvalidInput(f"{path.name}: it cannot be read: {error}") from error
    if not isinstance(read, dict):
        raise InvalidInput(
            f"{path.name}: a task is an object with sessions, question, asked_at and must"
        )
    try:
        task = EvalTask(**{"name": path.stem, **read})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{path.name}: {where}: {first['msg']}") from error
    if not task.must and not task.must_not:
        raise InvalidInput(
            f"{path.name}: must: say what an answer has to contain, "
            "or with must_not what it may not"
        )
    if task.asked_at < max(session.at for session in task.sessions):
        raise InvalidInput(f"{path.name}: asked_at: the question comes before the last session")
    return task


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
    """How one task went."""

    task: str
    kind: str
    missing: tuple[str, ...] = ()  # what the answer should have said
    forbidden: tuple[str, ...] = ()  # what it should not have said
    tokens: int  # of the recalled block
    problem: str = ""  # why there is no answer

    @property
    def passed(self) -> bool:
        return not (self.missing or self.forbidden or self.problem)


@frozen
class Run:
    """All tasks, run one way."""

    name: str
    results: tuple[Result, ...]

    def mean(self, figure: Callable[[Result], float]) -> float:
        return sum(map(figure, self.results)) / max(1, len(self.results))

    @property
    def accuracy(self) -> float:
        return self.mean(lambda each: each.passed)

    @property
    def found(self) -> float:
        """The share of tasks where the answer says all that it must, whatever else it says."""
        return self.mean(lambda each: not each.missing and not each.problem)

    @property
    def tokens(self) -> float:
        """Tokens of the recalled block, on average."""
        return self.mean(lambda each: each.tokens)


@frozen
class Report:
    """The same tasks, run several ways."""

    runs: tuple[Run, ...]

    def run(self, name: str) -> Run:
        """Return one of the runs. Raises NotFound."""
        for each in self.runs:
            if each.name == name:
                return each
        raise NotFound(f"No run {name!r}: there are {', '.join(each.name for each in self.runs)}")

    @property
    def best_equipped(self) -> Run:
        """The run with memory, and with the model if there is one: what a user gets."""
        by_name = {each.name: each for each in self.runs}
        return by_name.get("model, memory") or by_name["memory"]


async def evaluate(
    tasks: Sequence[EvalTask],
    *,
    profile: str | Profile | None = None,
    limit: int | None = None,
    answerer: Answerer | None = None,
    progress: Advance = lambda done, of: None,
    **settings: Any,
) -> Report:
    """Run the tasks without memory, with it, and with its vectors switched off; with a model too,
    if there is one.

    The model is the `answerer`, or the one that the settings name. Raises InvalidInput,
    Misconfigured.
    """
    rules = {**settings, "llm": "none"}
    with_model = {"model, no memory": 0, "model, memory": limit}
    ways: list[tuple[dict[str, Any], dict[str, int | None]]] = [  # settings; limits of the runs
        (rules, {"no memory": 0, "memory": limit}),
        ({**rules, "embedder": "none"}, {"memory, no vectors": limit}),
    ]
    if answerer is not None:
        ways[0][1].update(with_model)
    elif load(**settings).llm != "none":
        ways.append((settings, with_model))
    runs: list[Run] = []
    steps = count(1)

    def advance() -> None:
        progress(next(steps), len(ways) * len(tasks))

    for chosen, limits in ways:
        async with filled_memory(tasks, progress=advance, **chosen) as memory:
            for name, many in limits.items():
                model = None
                if name in with_model:
                    model = answerer or _configured_model(memory)
                results = await ask_all(memory, tasks, profile=profile, limit=many, answerer=model)
                runs.append(Run(name=name, results=results))
    return Report(runs=tuple(runs))


@asynccontextmanager
async def filled_memory(
    tasks: Sequence[EvalTask],
    *,
    progress: Callable[[], None] = lambda: None,
    **settings: Any,
) -> AsyncIterator[aio.Client]:
    """Open a temporary memory that holds all conversations, each in a space of its own."""
    with tempfile.TemporaryDirectory() as folder:
        settings |= {"state_dir": folder, "journal_dir": None, "vector_index": None}
        async with aio.open(":memory:", **{**settings, "memory_enabled": True}) as memory:
            for task in tasks:
                sessions = [*task.sessions, *(small_talk(task) if task.chatter else ())]
                sessions.sort(key=lambda each: each.at)
                for number, session in enumerate(sessions):
                    await _remember_session(memory, task, str(number), session)
                progress()
            # Only what a write leaves to a worker: the daily jobs would clean up long before the
            # question.
            jobs = ["embed"]
            if memory.ctx.settings.extract != "off":
                jobs.append("extract")
            await memory.run_jobs(only=jobs)
            yield memory


async def _remember_session(
    memory: aio.Client, task: EvalTask, name: str, session: EvalSession
) -> None:
    """Store a session at its time; chat commands of the user are executed, as an agent would do."""
    memory.ctx.clock = lambda: session.at
    scope = memory.scope(USER, task.name, session=name)
    messages: list[dict[str, Any]] = []
    for turn in session.messages:
        is_user = turn.role == "user" and turn.name is None
        if is_user and chat_commands.parse(turn.content) is not None:
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
    """Ask each question at its time, in a session of its own; a limit of 0 recalls nothing."""
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
    """Return the language model of the settings, within its budget."""
    model = cast(BudgetedModel, memory.ctx.llm)
    scope = memory.scope(USER, "answers").scope

    async def ask(question: str, block: str, at: datetime) -> str:
        shown = {"today": f"{at:%A, %Y-%m-%d}", "remembered": block, "question": question}
        answer = await model.answer(scope, prompts.build("eval", shown))
        return str(answer["answer"])

    return ask
