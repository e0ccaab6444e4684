"""Answers in a given shape from any server: in the best way that it supports, validated, and asked
for once more.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..errors import BadModelAnswer, ModelUnavailable
from ..providers import http
from ..text.prompts import ModelAnswer, Prompt
from . import budget, schema

MAX_BYTES = 1 << 20  # of a response
TOOL = "answer"
_UNSUPPORTED = (400, 422, 501)
_SCHEMA = "\n\nAnswer with one JSON object that fits this JSON schema, and with nothing else:\n"
_RETRY = (
    "\n\nAn answer that was given before cannot be used: {:.200}."
    " Give one that fits, and nothing else."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What a server answered."""

    text: str
    tokens: tuple[int, int] = (0, 0)  # in and out, as reported; 0 if it does not report them
    is_cut: bool = False  # it stopped at the token limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStyle:
    """How to ask a server."""

    mode: str  # one of StructuredModel.modes
    without: frozenset[str] = frozenset()  # parameters it does not accept


class StructuredModel(ABC):
    """A LanguageModel over a server with several ways to ask for structured output, best first.

    A way that the server rejected is not tried again. Belongs to the event loop that first uses it.
    """

    library: ClassVar[str]  # the client library, which is also the name of the extra
    client: ClassVar[str]  # its class
    call: ClassVar[str]  # its method
    url: ClassVar[str]  # the default address
    modes: ClassVar[Sequence[str]]
    quirks: ClassVar[Mapping[str, str]] = {
        "temperature": "temperature"
    }  # word in an error: parameter

    def __init__(
        self, model: str, *, url: str | None = None, key: str | None = None, timeout: float = 20.0
    ) -> None:
        """Raise Misconfigured if the client library is missing.

        A server of your own may need no key.
        """
        self._model, self._own_url, self._timeout = model, url, timeout
        self._mode, self._without = 0, frozenset[str]()
        self._server = http.ModelServer(
            self.library,
            self.client,
            self.call,
            limit=MAX_BYTES,
            base_url=url or self.url,
            api_key=key or "none",
            timeout=timeout,
        )

    @property
    def name(self) -> str:
        return f"{self.library}:{self._model}"

    async def answer(self, ask: Prompt) -> ModelAnswer:
        """Return an answer that fits the schema; the timeout covers all tries.

        Raises ModelUnavailable, BadModelAnswer.
        """
        await self._server.ready()
        ask = replace(ask, system=_encodable(ask.system), user=_encodable(ask.user))
        spent = _Cost()
        retry, problem = ask, ""
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(budget.TRIES):
                    value, problem = _parse(await self._ask(retry, spent), ask)
                    if not problem:
                        tokens_in, tokens_out = spent.tokens
                        return ModelAnswer(
                            value=value, model=self.name, tokens_in=tokens_in, tokens_out=tokens_out
                        )
                    retry = replace(ask, system=ask.system + _RETRY.format(problem))
        except TimeoutError:
            spent.add(budget.max_cost(ask))
            problem = f"did not answer within {self._timeout:g} seconds"
            raise self._unavailable(problem, spent) from None
        error = BadModelAnswer(f"The answer of {self.name} could not be used: {problem}")
        error.cost = spent.tokens
        raise error

    async def close(self) -> None:
        await self._server.close()

    @abstractmethod
    def build_request(self, ask: Prompt, style: RequestStyle) -> dict[str, Any]:
        """Return the parameters of the request."""

    @abstractmethod
    def read_reply(self, data: Any) -> ModelReply:
        """Return the reply in the JSON of a response. Raises Failed if there is none."""

    async def _ask(self, ask: Prompt, spent: _Cost) -> ModelReply:
        """Return the reply of the server, in the best way that it supports.

        Raises ModelUnavailable.
        """
        mode, without = self._mode, self._without
        while mode < len(self.modes):
            style = RequestStyle(mode=self.modes[mode], without=without)
            try:
                reply = self.read_reply(await self._server.ask(**self.build_request(ask, style)))
            except http.Failed as error:
                if error.status not in _UNSUPPORTED:
                    spent.add((0, 0) if error.is_free else budget.max_cost(ask))
                    raise self._unavailable(f"failed: {error}", spent) from None
                rejected = {name for word, name in self.quirks.items() if word in error.said}
                if rejected - without:
                    without |= rejected
                else:
                    without, mode = self._without, mode + 1
            else:
                self._mode, self._without = mode, without
                spent.add(budget.likely_cost(ask, reply.text, reply.tokens))
                return reply
        raise self._unavailable(
            "rejected every way to ask it: is the address right, is the text too long?", spent
        )

    def _unavailable(self, why: str, spent: _Cost) -> ModelUnavailable:
        error = ModelUnavailable(f"The language model {self.name} {why}")
        error.cost = spent.tokens
        return error


class _Cost:
    def __init__(self) -> None:
        self.tokens = (0, 0)

    def add(self, more: tuple[int, int]) -> None:
        self.tokens = (self.tokens[0] + more[0], self.tokens[1] + more[1])


def _parse(reply: ModelReply, ask: Prompt) -> tuple[Any, str]:
    """Return the value in a reply, and what is wrong with it."""
    if reply.is_cut:
        return None, "it is too long, be brief"
    try:
        value = schema.find_object(reply.text)
    except ValueError as error:
        return None, str(error)
    return value, schema.problem(value, ask.schema) or ""


def with_schema(ask: Prompt) -> str:
    """Return the instructions followed by the schema, for a server that does not get it as a
    parameter.
    """
    return f"{ask.system}{_SCHEMA}{json.dumps(dict(ask.schema))}"


def token_count(figure: Any) -> int:
    """Return a number of tokens as a server reported it; 0 if it cannot be one.

    >>> token_count(7), token_count(-7), token_count("7"), token_count(True)
    (7, 0, 0, 0)
    """
    return figure if isinstance(figure, int) and not isinstance(figure, bool) and figure > 0 else 0


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent
