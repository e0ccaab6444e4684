"""The tasks of an evaluation, read from files: one task a file, in JSON or TOML."""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from ..errors import InvalidInput, NotFound

SUFFIXES = (".json", ".toml")
FOLDER = Path(__file__).parent
_STRICT = ConfigDict(extra="forbid")
Text = Annotated[str, Field(min_length=1)]
Alternatives = Annotated[tuple[Text, ...], Field(min_length=1)]  # any of them is enough


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class EvalTurn:
    """One message; the user's own have the role `user` and no name."""

    content: Text
    role: Text = "user"
    name: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class EvalSession:
    """One conversation, on one day."""

    at: AwareDatetime
    messages: Annotated[tuple[EvalTurn, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
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
            alternatives = (each,) if isinstance(each, str) else each
            if not any(says(answer, one) for one in alternatives):
                missing.append(" / ".join(alternatives))
        return tuple(missing)

    def forbidden(self, answer: str) -> tuple[str, ...]:
        """Return what an answer says and should not."""
        return tuple(each for each in self.must_not if says(answer, each))


def says(text: str, wanted: str) -> bool:
    """Return whether a text contains some words, in any case and spacing, but not within others.

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
    return list(map(read_task, found))


def read_task(path: Path) -> EvalTask:
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


def unlike(task: EvalTask) -> list[EvalSession]:
    """Return small talk for the weeks before the question.

    It leaves out lines that say what the task is about.
    """
    wanted: list[str] = []
    for each in (*task.must, *task.must_not):
        wanted += [each] if isinstance(each, str) else each
    sessions = []
    for talk in json.loads((FOLDER / "chatter.json").read_text("utf-8")):
        turns = [EvalTurn(**turn) for turn in talk["messages"]]
        kept = tuple(t for t in turns if not any(says(t.content, one) for one in wanted))
        if kept:
            at = task.asked_at - timedelta(days=talk["days_before"])
            sessions.append(EvalSession(at=at, messages=kept))
    return sessions
