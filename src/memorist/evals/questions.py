"""Recall measured on conversations with questions: how much of the evidence comes back.

A file has one conversation per line, as JSON: its messages, and questions with the ids of the
messages that answer them. Two calls are made for each question:

- *Ranking* (recall@k): ten hits, with the gate and the cut switched off.
- *Default call* `recall(question)`: what a user gets. An empty answer has recall 0.

A turn counts by its message id. A derived memory (fact, summary) counts for a message only if the
message is in its evidence and its text has at least 60 % of the content words of the message, and
for at most two messages.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as validated

from .. import aio
from ..errors import InvalidInput, NotFound
from ..manage.recall import RecallOptions
from ..scoped import ScopedClient
from ..text.tokens import analyze
from ..types import Memory, Recall, frozen
from .tasks import Advance, name_field

KS = (1, 5, 10)
SHARE = 0.6  # content words of a message that a derived memory has to contain
MOST_PER_HIT = 2  # messages that a derived memory counts for
FIGURES = (
    *(f"@{k}" for k in KS),
    "first",  # the first hit is evidence
    "default",  # recall of the default call
    "precision",  # memories of the default call for answerable questions that are evidence
    "tokens",
    "empty",  # answerable, but nothing was returned
    "silent",  # not answerable, and nothing was returned
)
ROLES = ("user", "assistant")
EXAMPLE = (
    '{"name": …, "messages": [{"id": …, "speaker": …, "text": …}, …], '
    '"questions": [{"question": …, "evidence": [ids]}, …]}'
)
_LENIENT = ConfigDict(extra="ignore", coerce_numbers_to_str=True, validate_by_name=True)
Text = Annotated[str, Field(min_length=1)]


@validated(frozen=True, slots=True, kw_only=True, config=_LENIENT)
class _Message:
    id: Text
    speaker: Text  # user, assistant or a name
    text: Text
    session: Text | None = None
    at: datetime | None = None


@validated(frozen=True, slots=True, kw_only=True, config=_LENIENT)
class Question:
    """A question and the ids of the messages that answer it."""

    text: Annotated[Text, Field(validation_alias="question")]
    evidence: tuple[Text, ...]  # empty if nothing in the conversation answers it
    category: str = ""


@validated(frozen=True, slots=True, kw_only=True, config=_LENIENT)
class _Line:
    name: Text
    messages: Annotated[tuple[_Message, ...], Field(min_length=1)]
    questions: list[Question]


@frozen
class Conversation:
    """Messages between two people, or a person and an assistant, with questions about them."""

    name: str
    messages: list[dict[str, Any]]
    questions: list[Question]

    @property
    def texts(self) -> dict[str, str]:
        """Return the texts of the messages by their ids."""
        return {each["id"]: each["content"] for each in self.messages}


def read(path: str | Path) -> list[Conversation]:
    """Read the conversations of a file.

    Raises NotFound if there is no file; InvalidInput with the line and what is wrong in it.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().decode().split("\n")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"No file {str(path)!r}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path.name} is not UTF-8 text") from error
    found: dict[str, Conversation] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            conversation = _parse(line)
            if conversation.name in found:
                raise InvalidInput(f"name: {conversation.name!r} is used by an earlier line")
        except InvalidInput as error:
            raise InvalidInput(f"{path.name}, line {number}: {error}") from error
        found[conversation.name] = conversation
    if not found:
        raise InvalidInput(f"{path.name} is empty. Expected one conversation per line: {EXAMPLE}")
    return list(found.values())


def _parse(line: str) -> Conversation:
    """Parse a line. Raises InvalidInput."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise InvalidInput(f"not a JSON object. Expected one per line: {EXAMPLE}")
    try:
        parsed = _Line(**data)
    except ValidationError as error:
        raise InvalidInput(name_field(error)) from error
    messages = []
    texts = {}
    for number, said in enumerate(parsed.messages):
        if said.id in texts:
            raise InvalidInput(f"messages.{number}.id: {said.id!r} is used twice")
        texts[said.id] = said.text
        is_role = said.speaker in ROLES
        message = {
            "id": said.id,
            "session": said.session,
            "at": said.at.isoformat() if said.at else None,
            "content": said.text,
            "name": None if is_role else said.speaker,
            "role": said.speaker if is_role else "user",
        }
        messages.append(message)
    questions = []
    for number, asked in enumerate(parsed.questions):
        for id in asked.evidence:
            if id not in texts:
                raise InvalidInput(f"questions.{number}.evidence: no message has the id {id!r}")
        questions.append(replace(asked, evidence=tuple(dict.fromkeys(asked.evidence))))
    return Conversation(name=parsed.name, messages=messages, questions=questions)


class Figures:
    """What came back for some questions: values by the name of a figure, which is their mean."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {name: [] for name in FIGURES}
        self.sure: list[tuple[float, bool]] = []  # confidence of an answer, and whether it is right

    def add(self, values: Mapping[str, Sequence[float]]) -> None:
        """Add the values of one question."""
        for name, each in values.items():
            self.values.setdefault(name, []).extend(each)

    def row(self) -> dict[str, Any]:
        """Return the line of a table; None where no question counts."""
        asked = len(self.values["default"]) + len(self.values["silent"])
        line: dict[str, Any] = {"questions": asked}
        for name, values in self.values.items():
            line[name] = mean(values)
        line["error"] = calibration_error(self.sure) if self.sure else None
        return line


async def measure(
    conversations: Sequence[Conversation],
    *,
    progress: Advance = lambda done, of: None,
    options: RecallOptions | None = None,
    **settings: Any,
) -> dict[str, Figures]:
    """Store the conversations in a temporary memory and ask all questions.

    Each conversation is a separate user. Returns the figures of all questions by the name "all",
    then those of each category if there are several. Raises InvalidInput.
    """
    categories = {each.category for talk in conversations for each in talk.questions}
    figures = {"all": Figures()}
    total = sum(1 + len(each.questions) for each in conversations)
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        settings |= {"state_dir": folder, "journal_dir": None, "vector_index": None}
        settings |= {"llm": "none", "memory_enabled": True, "run_jobs": False}
        async with aio.open(":memory:", **settings) as memory:
            for conversation in conversations:
                scope = memory.scope(conversation.name)
                await scope.remember(conversation.messages)
                if memory.settings.extract != "off":
                    await memory.run_jobs(only=["extract"])
                progress(done := done + 1, total)
                for question in conversation.questions:
                    parts = [figures["all"]]
                    if len(categories) > 1:
                        name = question.category or "other"
                        parts.append(figures.setdefault(name, Figures()))
                    await ask(scope, question, conversation.texts, parts, options or {})
                    progress(done := done + 1, total)
    return figures


async def ask(
    scope: ScopedClient,
    question: Question,
    texts: Mapping[str, str],
    parts: Sequence[Figures],
    options: RecallOptions,
    *,
    budgets: Sequence[int] = (),
) -> None:
    """Ask one question in all ways, and add what came back to all figures that it counts for."""
    evidence = question.evidence
    answer = await scope.recall(question.text, **options)
    found = found_share(answer, evidence, texts)
    values: dict[str, Sequence[float]] = {"silent": [not answer.hits]}
    if evidence:
        ungated: RecallOptions = {**options, "limit": max(KS), "budget": 10**6, "min_confidence": 0}
        ranking = await scope.recall(question.text, **ungated)
        useful = [bool({*evidence} & {*credited(hit.memory, texts)}) for hit in answer.hits]
        values = {f"@{k}": [found_share(ranking, evidence, texts, k)] for k in KS}
        values["first"] = [found_share(ranking, evidence, texts, 1) > 0]
        values["default"] = [found]
        values["precision"] = useful
        values["tokens"] = [answer.tokens]
        values["empty"] = [not answer.hits]
        for budget in budgets:
            limited: RecallOptions = {**options, "budget": budget}
            within = await scope.recall(question.text, **limited)
            values[f"{budget} t"] = [found_share(within, evidence, texts)]
    for into in parts:
        into.add(values)
        if answer.confidence is not None:
            into.sure.append((answer.confidence, found > 0))


def credited(memory: Memory, texts: Mapping[str, str]) -> list[str]:
    """Return the ids of the messages that a memory counts for."""
    sources = [source for source in memory.source_ids if source in texts]
    if not memory.evidence_ids and not memory.compression_source:
        return sources
    words = set(analyze(memory.text))
    found = []
    for source in sources:
        wanted = set(analyze(texts[source]))
        if wanted and len(wanted & words) >= SHARE * len(wanted):
            found.append(source)
    return found[:MOST_PER_HIT]


def found_share(
    answer: Recall,
    evidence: Sequence[str],
    texts: Mapping[str, str],
    k: int | None = None,
) -> float:
    """Return the share of the evidence that the first k hits contain, or all hits."""
    found: set[str] = set()
    for hit in answer.hits[:k]:
        found.update(credited(hit.memory, texts))
    return sum(id in found for id in evidence) / max(1, len(evidence))


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None if there is nothing to average."""
    return sum(values) / len(values) if values else None


def calibration_error(guesses: Sequence[tuple[float, bool]]) -> float:
    """Return the expected calibration error of guesses and whether they came true, in ten bins.

    >>> calibration_error([(0.25, True), (0.25, False), (0.75, True)])
    0.25
    """
    bins = [0.0] * 10
    for guess, is_true in guesses:
        bins[min(int(10 * guess), 9)] += guess - is_true
    return sum(map(abs, bins)) / len(guesses)
