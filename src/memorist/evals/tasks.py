"""The tasks of an evaluation, read from files: one task a file, in JSON or TOML."""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError

from ..errors import InvalidInput, NotFound

SUFFIXES = (".json", ".toml")
Text = Annotated[str, Field(min_length=1)]
Alternatives = Annotated[tuple[Text, ...], Field(min_length=1)]  # any of them is enough


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTurn:
    """One message; the user's own have the role `user` and no name."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    content: Text
    role: Text = "user"
    name: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSession:
    """One conversation, on one day."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    at: AwareDatetime
    messages: Annotated[tuple[EvalTurn, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTask:
    """Conversations, a question asked later, and what an answer must and must not say."""

    __pydantic_config__ = ConfigDict(extra="forbid")
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
            alternatives = (each,) if isinstance(each, str) else each
            if not any(says(answer, one) for one in alternatives):
                missing.append(" / ".join(alternatives))
        return tuple(missing)

    def forbidden(self, answer: str) -> tuple[str, ...]:
        """Return what an answer says and should not."""
        return tuple(each for each in self.must_not if says(answer, each))


def says(text: str, wanted: str) -> bool:
    """Whether a text contains some words, whatever their case and spacing, but not as a part of
    others.

    >>> says("on\\nThursday.", "thursday"), says("at 10:30am", "10:30"), says("at 10:30", "10")
    (True, True, False)
    >>> says("我住在上海市", "上海"), says("He is Catarina's boss", "Catarina"), says("concatenate", "cat")
    (True, True, False)
    """
    inner, before, after = _fold(wanted), "", ""
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
    """Whether words that begin or end with it are separated from others; in many scripts they are
    not.
    """
    return character.isalnum() and unicodedata.category(character) != "Lo"


def packaged() -> list[EvalTask]:
    """Return the tasks that come with Memorist, by name."""
    folder = files(__package__).joinpath("suite")
    found = sorted(folder.iterdir(), key=lambda each: each.name)
    return [_parse(each.name, each.read_bytes()) for each in found if each.name.endswith(".json")]


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
    return [_parse(path.name, path.read_bytes()) for path in found]


def unlike(task: EvalTask) -> list[EvalSession]:
    """Return small talk for the weeks before the question, without a line that says what the task
    is about.
    """
    wanted: list[str] = []
    for each in (*task.must, *task.must_not):
        wanted += [each] if isinstance(each, str) else each
    sessions = []
    for talk in _chatter():
        turns = [EvalTurn(**turn) for turn in talk["messages"]]
        kept = tuple(t for t in turns if not any(says(t.content, one) for one in wanted))
        if kept:
            at = task.asked_at - timedelta(days=talk["days_before"])
            sessions.append(EvalSession(at=at, messages=kept))
    return sessions


@cache
def _chatter() -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads(
        files(__package__).joinpath("chatter.json").read_text("utf-8")
    )
    return read


def _parse(file: str, data: bytes) -> EvalTask:
    try:
        read = json.loads(data) if file.endswith(".json") else tomllib.loads(data.decode())
    except ValueError as error:
        raise InvalidInput(f"{file}: it cannot be read: {error}") from error
    if not isinstance(read, dict):
        raise InvalidInput(
            f"{file}: a task is an object with sessions, question, asked_at and must"
        )
    try:
        task = _adapter().validate_python({"name": Path(file).stem, **read})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "task"
        raise InvalidInput(f"{file}: {where}: {first['msg']}") from error
    if not task.must and not task.must_not:
        raise InvalidInput(
            f"{file}: must: say what an answer has to contain, or with must_not what it may not"
        )
    if task.asked_at < max(session.at for session in task.sessions):
        raise InvalidInput(f"{file}: asked_at: the question comes before the last session")
    return task


@cache
def _adapter() -> TypeAdapter[EvalTask]:
    return TypeAdapter(EvalTask)
