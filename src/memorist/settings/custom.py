"""Models that the caller brings: an object with the method of a port, a function, or a plug-in.

A plug-in is an entry point of an installed package (the groups are in `providers.GROUPS`): a
function that returns such an object or function. What follows a colon in the setting is passed to
it, so `embedder="acme:small"` calls the entry point `acme` with "small".
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..embedders import check_vectors
from ..errors import (
    BadModelAnswer,
    EmbedderUnavailable,
    MemoristError,
    Misconfigured,
    ModelUnavailable,
    ProviderFailed,
)
from ..llms import CheckedModel, ModelReply, Tries, likely_cost, max_cost, with_schema
from ..ports import Embedder, Vectors
from ..providers import WorkerThread, list_plugins
from ..text.entities import Entity
from ..text.prompts import ModelAnswer, Prompt
from . import MODELS

METHODS = {"embedder": "encode_batch", "llm": "answer", "reranker": "score", "entities": "detect"}
FAILURES = {"embedder": EmbedderUnavailable, "llm": ModelUnavailable}  # what its errors become
PROBE = "Ana moved to Lisbon in May and drinks green tea."  # changing it renames nameless models
CLOSE_SECONDS = 5.0  # how long closing waits for a running call
LARGEST = 4  # numbers of a vector that tell one model from another


async def _wait(made: Any) -> Any:
    """Return what a function returned, or what that results in."""
    return await made if inspect.isawaitable(made) else made


class CustomCall:
    """The method or function of the caller: an async one runs on the event loop, any other in a
    thread of its own, one call at a time.
    """

    def __init__(self, setting: str, given: Any, *, closes: bool = False) -> None:
        """Raise Misconfigured if it is neither an object of the port nor a function."""
        method = getattr(given, METHODS[setting], None)
        self.given = given
        self.has_method = callable(method)
        self._function: Any = method if self.has_method else given
        self._closes = closes
        if isinstance(given, type) or not callable(self._function):
            what = f"the class {given.__name__}" if isinstance(given, type) else repr(type(given))
            raise Misconfigured(
                f"Setting {setting!r}: pass a name, a function or an object with the method"
                f" {METHODS[setting]!r}, not {what}"
            )
        names = [getattr(given, each, None) for each in ("model", "name", "__qualname__")]
        named = [name for name in names if isinstance(name, str) and name]
        self.name: str = [*named, type(given).__qualname__][0]
        self._failure = FAILURES.get(setting, ProviderFailed)
        closed = self._failure(f"{self.name} is closed")
        self._thread = WorkerThread(f"memorist-{setting}", closed)

    async def __call__(self, *arguments: object) -> Any:
        """Return the result. Raises ProviderFailed, of the type that the setting calls for."""
        try:
            if inspect.iscoroutinefunction(self._function):
                return await self._function(*arguments)
            return await _wait(await self._thread.run(self._function, *arguments))
        except MemoristError:
            raise
        except Exception as error:  # its text may quote what was sent, so it is only the cause
            raise self._failure(f"{self.name} raised {type(error).__name__}") from error

    async def close(self) -> None:
        """Close what a plug-in has opened; the caller's own object is left open."""
        with suppress(TimeoutError):  # a function that hangs does not keep a memory open
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._thread.close()
        close = getattr(self.given, "close", None)
        if self._closes and callable(close):
            await _wait(close())


class CustomModel:
    """A model that the caller brings."""

    def __init__(self, call: CustomCall) -> None:
        self._call = call
        self.name = call.name

    async def close(self) -> None:
        await self._call.close()


class CustomEmbedder(CustomModel):
    """An Embedder of the caller. Without a `model` of its own it is named by what it returns."""

    def __init__(self, call: CustomCall, model: str, dimensions: int) -> None:
        super().__init__(call)
        self.model = model
        self.dimensions = dimensions

    @classmethod
    async def open(cls, call: CustomCall) -> Embedder:
        """Ask for one vector unless it says its model and dimensions. Raises ProviderFailed."""
        model = getattr(call.given, "model", None)
        dimensions = getattr(call.given, "dimensions", None)
        if isinstance(model, str) and model and isinstance(dimensions, int):
            return cls(call, model, dimensions)
        wanted = f"Setting 'embedder': {call.name} has to return one row of numbers for each text"
        try:
            made = np.asarray(await call([PROBE]), np.float32)
        except (TypeError, ValueError) as error:
            raise Misconfigured(f"{wanted}: {error}") from error
        if made.ndim != 2 or len(made) != 1:
            raise Misconfigured(
                f"{wanted}, but returned an array of shape {made.shape} for one text"
            )
        if not isinstance(model, str) or not model:
            model = f"{call.name}-{fingerprint(made[0])}"
        return cls(call, model, made.shape[1])

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order.

        Raises EmbedderUnavailable, WrongDimensions.
        """
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        return check_vectors(await self._call(list(texts)), len(texts), self)

    async def forget(self, texts: Sequence[str]) -> None:
        """Delete what the caller's object has cached of these texts, if it can."""
        forget = getattr(self._call.given, "forget", None)
        if callable(forget):
            await _wait(forget(texts))


def fingerprint(vector: Vectors) -> str:
    """Return a short name for a vector space: where the largest numbers are, and their signs.

    Rounding does not change it, as a hash of all numbers would.

    >>> fingerprint(np.array([0.1, -0.9, 0.3], np.float32))
    '3-fbf99100'
    """
    largest = np.argsort(-np.abs(vector), kind="stable")[:LARGEST]
    signed = [f"{place}{'-' if vector[place] < 0 else '+'}" for place in sorted(largest)]
    digest = blake2b(" ".join(signed).encode(), digest_size=4)
    return f"{len(vector)}-{digest.hexdigest()}"


class CustomReranker(CustomModel):
    """A Reranker of the caller."""

    async def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return how well each text answers, in [0, 1] and in order. Raises ProviderFailed."""
        if not texts:
            return np.empty(0, np.float32)
        made = await self._call(question, list(texts))
        try:
            scores = np.asarray(made, np.float32)
        except (TypeError, ValueError) as error:
            raise BadModelAnswer(f"{self.name} has to return one number for each text") from error
        if scores.shape != (len(texts),):
            raise BadModelAnswer(
                f"{self.name} returned an array of shape {scores.shape} for {len(texts)} texts"
            )
        if not ((scores >= 0) & (scores <= 1)).all():
            raise BadModelAnswer(
                f"{self.name} has to return scores from 0 to 1: map logits by 1 / (1 + exp(-x))"
            )
        return scores


class CustomDetector(CustomModel):
    """An EntityDetector of the caller; a function gets one text at a time."""

    async def detect(self, texts: Sequence[str]) -> list[list[Entity]]:
        """Return the names in each text. Raises ProviderFailed."""
        if self._call.has_method:
            found = await self._call(list(texts))
        else:
            found = [await self._call(text) for text in texts]
        read: list[list[Entity]] = []
        try:
            for _, names in zip(texts, found, strict=True):
                read.append([])
                for name in names:
                    text, confidence = (name, 1.0) if isinstance(name, str) else name
                    if not isinstance(text, str) or not 0 <= confidence <= 1:
                        raise ValueError("not a name")
                    if text.strip():
                        read[-1].append(Entity(text.strip(), float(confidence)))
            return read
        except (TypeError, ValueError) as error:
            raise BadModelAnswer(
                f"{self.name} has to return names, or pairs of a name and a confidence, per text"
            ) from error


class CustomLanguageModel(CustomModel, CheckedModel):
    """A LanguageModel of the caller; a function gets one prompt as text, and returns text."""

    def __init__(self, call: CustomCall, timeout: float) -> None:
        CheckedModel.__init__(self, call.name, timeout)
        self._call = call

    async def answer(self, ask: Prompt) -> ModelAnswer:
        """Return an answer that fits the schema. Raises ModelUnavailable, BadModelAnswer."""
        if not self._call.has_method:
            return await super().answer(ask)
        made = await self._call(ask)
        if not isinstance(made, ModelAnswer):
            raise BadModelAnswer(f"{self.name} returned {type(made).__name__}, not ModelAnswer")
        return made

    async def send(self, ask: Prompt, tries: Tries) -> ModelReply:
        try:
            made = await self._call(f"{with_schema(ask)}\n\n{ask.user}")
        except ModelUnavailable:
            tries.append(max_cost(ask))
            raise
        text = made if isinstance(made, str) else json.dumps(made, default=str)
        tries.append(likely_cost(ask, text, (0, 0)))
        return ModelReply(text, (0, 0), is_cut=False)


def find_call(setting: str, given: Any) -> CustomCall | None:
    """Return the caller's own model, or that of an installed plug-in; None for a name of ours.

    Raises Misconfigured.
    """
    if not isinstance(given, str):
        return CustomCall(setting, given)
    kind, _, rest = given.partition(":")
    if kind in {name.partition(":")[0] for name in MODELS[setting]}:
        return None
    try:
        build = list_plugins(setting)[kind].load()
        return CustomCall(setting, build(rest) if rest else build(), closes=True)
    except MemoristError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise Misconfigured(f"Setting {setting!r}: {given!r} cannot be loaded: {why}") from error
