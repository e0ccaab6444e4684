"""How an answer in a given shape is got from any server: by the best way it knows, checked, and asked for once more."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..errors import BadModelAnswer, ModelUnavailable
from ..providers import http
from ..results import Answer, Ask
from . import cost, schema

MOST_BYTES = 1 << 20  # of an answer, with all that is around it
_NOT_UNDERSTOOD = (400, 422, 501)
_SHAPE = "\n\nAnswer with one JSON object that fits this JSON schema, and with nothing else:\n"
_AGAIN = "\n\nAn answer that was given before cannot be used: {:.200}. Give one that fits, and nothing else."


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a server answered."""

    text: str
    tokens: tuple[int, int] = (0, 0)  # in and out, as it says; 0 where it does not
    is_cut: bool = False  # it stopped for want of tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to ask a server."""

    rung: str
    without: frozenset[str] = frozenset()  # parameters it does not take


class Laddered(ABC):
    """A LanguageModel over a server with several ways to ask for a shape, best first.

    A way that the server does not understand is not tried again. Belongs to the event loop that first uses it.
    """

    library: ClassVar[str]  # the client library, which is also the name of the extra
    client: ClassVar[str]  # its class
    call: ClassVar[str]  # what of it answers
    url: ClassVar[str]  # where it asks if nothing else is said
    rungs: ClassVar[Sequence[str]]
    oddities: ClassVar[Mapping[str, str]] = {
        "temperature": "temperature"
    }  # what a server says, what it does not take

    def __init__(
        self, model: str, *, url: str | None = None, key: str | None = None, timeout: float = 20.0
    ) -> None:
        """Raises Misconfigured if the client library is missing. A server of your own may need no key."""
        self._model, self._own_url, self._timeout = model, url, timeout
        self._rung, self._without = 0, frozenset[str]()
        self._server = http.ModelServer(
            self.library,
            self.client,
            self.call,
            limit=MOST_BYTES,
            base_url=url or self.url,
            api_key=key or "none",
            timeout=timeout,
        )

    @property
    def name(self) -> str:
        return f"{self.library}:{self._model}"

    async def answer(self, ask: Ask) -> Answer:
        """An answer that fits the schema, within the timeout for everything together.

        Raises ModelUnavailable, BadModelAnswer.
        """
        await self._server.ready()
        clean = replace(ask, system=_clean(ask.system), user=_clean(ask.user))
        spent = _Spent()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._answered(clean, spent)
        except TimeoutError:
            spent.add(cost.most(clean))
            raise self._away(f"did not answer within {self._timeout:g} seconds", spent) from None

    async def close(self) -> None:
        await self._server.close()

    @abstractmethod
    def _request(self, ask: Ask, way: Way) -> dict[str, Any]:
        """What is sent to ask in this way."""

    @abstractmethod
    def _read(self, data: Any) -> Said:
        """What was answered, out of the JSON that came back. Raises Failed if that is no answer at all."""

    async def _answered(self, ask: Ask, spent: _Spent) -> Answer:
        asked, wrong = ask, ""
        for _ in range(cost.TRIES):
            said = await self._said(asked, spent)
            value, wrong = _value(said, ask)
            if not wrong:
                return Answer(
                    value=value,
                    model=self.name,
                    tokens_in=spent.tokens[0],
                    tokens_out=spent.tokens[1],
                )
            asked = replace(ask, system=ask.system + _AGAIN.format(wrong))
        error = BadModelAnswer(f"The answer of {self.name} could not be used: {wrong}")
        error.cost = spent.tokens
        raise error

    async def _said(self, ask: Ask, spent: _Spent) -> Said:
        """What the server says when it is asked in the best way that it understands."""
        rung, without = self._rung, self._without
        while rung < len(self.rungs):
            try:
                said = await self._asked(ask, Way(rung=self.rungs[rung], without=without))
            except http.Failed as error:
                if error.status not in _NOT_UNDERSTOOD:
                    spent.add((0, 0) if error.is_free else cost.most(ask))
                    raise self._away(f"failed: {error}", spent) from None
                odd = {name for word, name in self.oddities.items() if word in error.said} - without
                without, rung = (without | odd, rung) if odd else (self._without, rung + 1)
            else:
                self._rung, self._without = rung, without
                spent.add(cost.likely(ask, said.text, said.tokens))
                return said
        raise self._away(
            "understands none of the ways to ask it: is the address right, is the text too long?",
            spent,
        )

    async def _asked(self, ask: Ask, way: Way) -> Said:
        return self._read(await self._server.ask(**self._request(ask, way)))

    def _away(self, why: str, spent: _Spent) -> ModelUnavailable:
        error = ModelUnavailable(f"The language model {self.name} {why}")
        error.cost = spent.tokens
        return error


class _Spent:
    def __init__(self) -> None:
        self.tokens = (0, 0)

    def add(self, more: tuple[int, int]) -> None:
        self.tokens = (self.tokens[0] + more[0], self.tokens[1] + more[1])


def _value(said: Said, ask: Ask) -> tuple[Any, str]:
    """The value in an answer, and what is wrong with it."""
    if said.is_cut:
        return None, "it is too long, be brief"
    try:
        value = schema.found(said.text)
    except ValueError as error:
        return None, str(error)
    return value, schema.problem(value, ask.schema) or ""


def told(ask: Ask) -> str:
    """The instructions with the shape of the answer, for a server that is not sent it otherwise."""
    return f"{ask.system}{_SHAPE}{json.dumps(dict(ask.schema))}"


def count(figure: Any) -> int:
    """A number of tokens as a server tells it; 0 for what cannot be one.

    >>> count(7), count(-7), count("7"), count(True)
    (7, 0, 0, 0)
    """
    return figure if isinstance(figure, int) and not isinstance(figure, bool) and figure > 0 else 0


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")  # half a character cannot be sent
