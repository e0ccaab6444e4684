"""Tasks: what they hold, and how they are read from files, one task a file, in JSON or TOML."""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError

from ..errors import InvalidInput, NotFound

SUFFIXES = (".json", ".toml")
Text = Annotated[str, Field(min_length=1)]
Alternatives = Annotated[tuple[Text, ...], Field(min_length=1)]  # any of them will do


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One thing that was said; the user's own words have the role `user` and no name."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    content: Text
    role: Text = "user"
    name: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation, on one day."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    at: AwareDatetime
    messages: Annotated[tuple[Turn, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Conversations, a question asked later, and what an answer must and must not say."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: Text
    sessions: Annotated[tuple[Session, ...], Field(min_length=1)]
    question: Text
    asked_at: AwareDatetime
    must: tuple[Text | Alternatives, ...] = ()
    must_not: tuple[Text, ...] = ()
    about: str = ""
    kind: Text = "own"
    chatter: bool = True  # small talk is mixed in, so that there is something to choose from

    def missing(self, answer: str) -> tuple[str, ...]:
        """What an answer should say and does not."""
        wanted = [(each,) if isinstance(each, str) else each for each in self.must]
        return tuple(
            " / ".join(each) for each in wanted if not any(says(answer, one) for one in each)
        )

    def forbidden(self, answer: str) -> tuple[str, ...]:
        """What an answer says and should not."""
        return tuple(each for each in self.must_not if says(answer, each))


def says(text: str, wanted: str) -> bool:
    """Whether a text holds some words, whatever their case and spacing, and not as a part of others.

    >>> says("It is at 10:30am on\\nThursday.", "thursday"), says("at 10:30am", "10:30"), says("at 10:30", "10")
    (True, True, False)
    >>> says("我住在上海市", "上海"), says("He is Catarina's boss", "Catarina"), says("concatenate", "cat")
    (True, True, False)
    """
    inner = _folded(wanted)
    before = r"(?<!\w)(?<!\d[.,:])" if _is_bounded(inner[:1]) else ""
    after = (
        r"(?!\d|[.,:]\d)" if inner[-1:].isdigit() else r"(?!\w)" if _is_bounded(inner[-1:]) else ""
    )
    return re.search(before + re.escape(inner) + after, _folded(text)) is not None


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


def _is_bounded(character: str) -> bool:
    """Whether words that begin or end with it stand apart from their neighbours; those of many scripts do not."""
    return character.isalnum() and unicodedata.category(character) != "Lo"


def packaged() -> list[Task]:
    """The tasks that come with Memorist, by name."""
    found = (
        each
        for each in files(__package__).joinpath("suite").iterdir()
        if each.name.endswith(".json")
    )
    return [
        _task(each.name, each.read_bytes()) for each in sorted(found, key=lambda each: each.name)
    ]


def from_folder(folder: str | Path) -> list[Task]:
    """The tasks in the files of a folder, by name.

    Raises NotFound if there is none; InvalidInput for a file that is no task, naming the file and the field.
    """
    found = [path for path in sorted(Path(folder).glob("*")) if path.suffix in SUFFIXES]
    if not found:
        raise NotFound(
            f"There is no task in {str(folder)!r}: put one in a .json or .toml file, see the documentation"
        )
    return [_task(path.name, path.read_bytes()) for path in found]


def unlike(task: Task) -> list[Session]:
    """Small talk for the weeks before the question, without a line that says what the task is about."""
    wanted = [
        one
        for each in (*task.must, *task.must_not)
        for one in ((each,) if isinstance(each, str) else each)
    ]
    said = [(task.asked_at - timedelta(days=days), turns) for days, turns in _chatter()]
    kept = [
        (at, tuple(t for t in turns if not any(says(t.content, one) for one in wanted)))
        for at, turns in said
    ]
    return [Session(at=at, messages=turns) for at, turns in kept if turns]


@cache
def _chatter() -> list[tuple[int, tuple[Turn, ...]]]:
    told = json.loads(files(__package__).joinpath("chatter.json").read_text("utf-8"))
    return [
        (each["days_before"], tuple(Turn(**turn) for turn in each["messages"])) for each in told
    ]


def _task(file: str, data: bytes) -> Task:
    try:
        read = json.loads(data) if file.endswith(".json") else tomllib.loads(data.decode())
    except ValueError as error:
        raise InvalidInput(f"{file}: it cannot be read: {error}") from error
    if not isinstance(read, dict):
        raise InvalidInput(
            f"{file}: a task is an object with sessions, question, asked_at and must"
        )
    return _checked(file, {"name": Path(file).stem, **read})


def _checked(file: str, read: dict[str, Any]) -> Task:
    try:
        task = _adapter().validate_python(read)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "task"
        raise InvalidInput(f"{file}: {where}: {first['msg']}") from error
    if not task.must and not task.must_not:
        raise InvalidInput(
            f"{file}: must: say what an answer has to contain, or with must_not what it may not"
        )
    if task.asked_at < _last(task.sessions):
        raise InvalidInput(f"{file}: asked_at: the question comes before the last session")
    return task


@cache
def _adapter() -> TypeAdapter[Task]:
    return TypeAdapter(Task)


def _last(sessions: Sequence[Session]) -> datetime:
    return max(session.at for session in sessions)
