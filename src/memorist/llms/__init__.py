"""What all language models share: a circuit breaker, a token budget and the check of answers.

Everything works without a model. One that failed several times is not called for a while, so that
calls do not wait for a timeout. The maximum cost of a call is reserved first, so no limit is
exceeded. The output of a model is not trusted: the JSON in it has to fit the schema of the prompt.
"""

import asyncio
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

from ..errors import BadModelAnswer, ModelUnavailable, OverBudget, ProviderFailed
from ..ports import LanguageModel, LlmUsage, TokenLedger
from ..providers import Circuit
from ..text.prompts import ModelAnswer, Prompt
from ..text.tokens import count_tokens
from ..types import Scope

TRIES = 2  # a prompt is sent once more if the answer is not usable
OVERHEAD = 1_500  # tokens that a server adds, or that the schema or a second try needs
MAX_STARTS = 50  # places in a text that are tried as the beginning of an object
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_SCHEMA = "\n\nAnswer with one JSON object that fits this JSON schema, and with nothing else:\n"
_RETRY = (
    "\n\nAn answer that was given before cannot be used: {:.200}."
    " Give one that fits, and nothing else."
)
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_LARGEST = 2**53
Tries = list[tuple[int, int]]  # the input and output tokens of each try


def max_cost(ask: Prompt) -> tuple[int, int]:
    """Return the most input and output tokens of one try: a text never has more tokens than bytes.

    >>> max_cost(Prompt(task="t", system="", user="é", schema={}, max_tokens=100))
    (1506, 100)
    """
    schema = json.dumps(dict(ask.schema))
    texts = (ask.system, ask.user, schema, schema)  # it may be sent as text and as a parameter
    return OVERHEAD + sum(len(text.encode("utf-8", "replace")) for text in texts), ask.max_tokens


def likely_cost(
    ask: Prompt,
    reply: str,
    reported: tuple[int, int],
) -> tuple[int, int]:
    """Return the tokens of a try as the server reported them, within what is possible.

    >>> ask = Prompt(task="t", system="", user="tea " * 8, schema={}, max_tokens=9)
    >>> likely_cost(ask, "tea", (0, 10**12))
    (9, 9)
    """
    max_in, max_out = max_cost(ask)
    min_in = count_tokens(ask.system) + count_tokens(ask.user)
    tokens_in = min(max_in, max(reported[0], min_in))
    return tokens_in, min(max_out, max(reported[1], count_tokens(reply)))


class ModelReply(NamedTuple):
    """The reply of a server."""

    text: str
    tokens: tuple[int, int]  # in and out, as reported; 0 if it does not report them
    is_cut: bool  # it stopped at the token limit


class CheckedModel(ABC):
    """A LanguageModel whose replies are text: the JSON in them is parsed and validated, and
    requested once more if it does not fit the schema.
    """

    def __init__(self, name: str, timeout: float) -> None:
        self.name = name
        self._timeout = timeout

    async def answer(self, ask: Prompt) -> ModelAnswer:
        """Return an answer that fits the schema; the timeout covers all tries.

        Raises ModelUnavailable, BadModelAnswer.
        """
        ask = replace(ask, system=_encodable(ask.system), user=_encodable(ask.user))
        tries: Tries = []
        retry = ask
        problem = ""
        error: ModelUnavailable | BadModelAnswer
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(TRIES):
                    reply = await self.send(retry, tries)
                    problem = "it is too long, be brief"
                    if not reply.is_cut:
                        try:
                            value = find_object(reply.text)
                            if ask.keeps_items:
                                value = drop_misfits(value, ask.schema)
                            problem = next(find_problems(value, ask.schema), "")
                        except ValueError as wrong:
                            problem = str(wrong)
                    if not problem:
                        tokens_in, tokens_out = _sum(tries)
                        return ModelAnswer(
                            value=value,
                            model=self.name,
                            tokens_in=tokens_in,
                            tokens_out=tokens_out,
                        )
                    retry = replace(ask, system=ask.system + _RETRY.format(problem))
            error = BadModelAnswer(f"The answer of {self.name} could not be used: {problem}")
        except TimeoutError:
            tries.append(max_cost(ask))
            error = self.unavailable(f"did not answer within {self._timeout:g} seconds")
        except ModelUnavailable as failure:
            error = failure
        error.cost = _sum(tries)
        raise error from None

    @abstractmethod
    async def send(self, ask: Prompt, tries: Tries) -> ModelReply:
        """Return the reply to a prompt, and add what it cost to `tries`. Raises ModelUnavailable."""

    @abstractmethod
    async def close(self) -> None: ...

    def unavailable(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(f"The language model {self.name} {why}")


class Breaker:
    """Wraps a LanguageModel: after three failures in a row, it is not called for 30 s or more."""

    def __init__(
        self, inner: LanguageModel, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.inner = inner
        self.name = inner.name
        self._circuit = Circuit(clock)

    def check(self) -> None:
        """Raise ModelUnavailable while the circuit is open."""
        if wait := self._circuit.wait:
            why = f"failed and will be tried again in {wait:.0f} s"
            error = ModelUnavailable(f"The language model {self.name} {why}")
            error.cost = (0, 0)
            raise error

    async def answer(self, ask: Prompt) -> ModelAnswer:
        """Return the answer of the inner model.

        Raises ModelUnavailable at once while the circuit is open.
        """
        self.check()
        # A bad answer may be due to the text: the model is up.
        with self._circuit.call((ModelUnavailable,), successes=(BadModelAnswer,)):
            return await self.inner.answer(ask)

    async def close(self) -> None:
        await self.inner.close()


class MeteredModel:
    """A BudgetedModel. The limits are tokens per day (UTC) for a user and for a tenant; 0 is no
    limit.

    Tokens that a process reserved before it crashed stay counted until the day ends.
    """

    def __init__(
        self,
        model: Breaker,
        ledger: TokenLedger,
        *,
        user_cap: int,
        tenant_cap: int,
        clock: Callable[[], datetime],
    ) -> None:
        self.model = model
        self._ledger = ledger
        self._clock = clock
        self._user_cap = user_cap
        self._tenant_cap = tenant_cap

    async def answer(self, scope: Scope, ask: Prompt) -> Mapping[str, Any]:
        """Return a value that fits the schema.

        Raises ModelUnavailable, BadModelAnswer, OverBudget.
        """
        self.model.check()
        max_in, max_out = (TRIES * tokens for tokens in max_cost(ask))
        day = self._clock().date().isoformat()
        usage = LlmUsage(
            scope=scope,
            day=day,
            task=ask.task,
            model=self.model.name,
            calls=1,
            tokens_in=0,
            tokens_out=0,
            reserved=max_in + max_out,
        )
        try:
            is_within = await self._ledger.reserve(
                usage, user_cap=self._user_cap, tenant_cap=self._tenant_cap
            )
        except ProviderFailed as error:
            raise ModelUnavailable(
                "The language model is not used because its cost cannot be recorded right now"
            ) from error
        if not is_within:
            raise OverBudget(
                "The daily token budget of the language model is used up, so rules were used. "
                "Raise `llm_daily_tokens_per_user` or `llm_daily_tokens_per_tenant`, or wait until"
                " tomorrow (UTC)"
            )
        spent = (max_in, max_out)  # until the real figures are known
        try:
            answer = await self.model.answer(ask)
            spent = (answer.tokens_in, answer.tokens_out)
            return answer.value
        except (ModelUnavailable, BadModelAnswer) as error:
            spent = error.cost or spent
            raise
        finally:
            with suppress(ProviderFailed):  # then the reservation stays counted
                tokens_in = min(spent[0], max_in)
                tokens_out = min(spent[1], max_out)
                await self._ledger.settle(
                    replace(usage, tokens_in=tokens_in, tokens_out=tokens_out)
                )

    async def close(self) -> None:
        await self.model.close()


def find_object(text: str) -> Any:
    """Return the first JSON object in a text, whatever surrounds it. Raises ValueError.

    >>> find_object('<think>{no}</think>Sure! ```json\\n{"facts": []}\\n``` Anything else?')
    {'facts': []}
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number")

    text = text.rpartition("</think>")[2]
    decoder = json.JSONDecoder(parse_constant=refuse)
    start = -1
    for _ in range(MAX_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            break
        with suppress(ValueError, RecursionError):
            return decoder.raw_decode(text, start)[0]
    raise ValueError("it has no complete JSON object")


def find_problems(
    value: Any, schema: Mapping[str, Any], where: str = "the answer"
) -> Iterator[str]:
    """Yield what is wrong with a value, in words that quote the schema but not the value.

    >>> list(find_problems({"n": "3"}, {"type": "object", "properties": {"n": {"type": "integer"}}}))
    ['n is not of type integer']
    >>> list(find_problems([1, 2], {"type": "array", "maxItems": 1}))
    ['the answer has more than 1 items']
    """
    types = schema.get("type", list(_TYPES))
    types = [types] if isinstance(types, str) else types
    if value is None and "null" in types:
        return
    is_number = isinstance(value, int | float)
    is_typed = any(type(value) in _TYPES.get(each, ()) for each in types)
    if not is_typed or (is_number and not abs(value) <= _LARGEST):
        yield f"{where} is not of type {' or '.join(types)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is not one of {', '.join(map(str, schema['enum']))}"
    if is_number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{where} is out of range"
    if isinstance(value, str):
        if _NO_TEXT.search(value):
            yield f"{where} has characters that are not text"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"{where} is longer than {schema['maxLength']} characters"
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{where} has more than {schema['maxItems']} items"
        for index, item in enumerate(value):
            yield from find_problems(item, schema.get("items", {}), f"{where}[{index}]")
    elif isinstance(value, dict):
        known = schema.get("properties", {})
        missing = [name for name in schema.get("required", ()) if name not in value]
        if missing:
            yield f"{where} lacks {', '.join(missing)}"
        if schema.get("additionalProperties") is False and not value.keys() <= known.keys():
            yield f"{where} has other fields than {', '.join(known)}"
        for name in filter(value.__contains__, known):
            yield from find_problems(value[name], known[name], name)


def drop_misfits(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return an answer without the items of its lists that do not fit, if others do.

    >>> schema = {"properties": {"n": {"type": "array", "items": {"type": "integer"}}}}
    >>> drop_misfits({"n": [1, "two", 3]}, schema), drop_misfits({"n": ["two"]}, schema)
    ({'n': [1, 3]}, {'n': ['two']})
    """
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    for name, part in schema.get("properties", {}).items():
        if part.get("type") == "array" and isinstance(value.get(name), list):
            items = part.get("items", {})
            fitting = [item for item in value[name] if not any(find_problems(item, items))]
            kept[name] = fitting or value[name]
    return kept


def drop_keywords(schema: Any, keywords: Collection[str]) -> Any:
    """Return a schema without some of its keywords, for a server that does not support them.

    >>> drop_keywords({"maxItems": 3, "items": {"type": "string", "maxLength": 9}}, ["maxLength"])
    {'maxItems': 3, 'items': {'type': 'string'}}
    """
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for name, part in schema.items():
        if name == "properties":  # their names are not keywords
            kept[name] = {field: drop_keywords(each, keywords) for field, each in part.items()}
        elif name not in keywords:
            kept[name] = drop_keywords(part, keywords)
    return kept


def with_schema(ask: Prompt) -> str:
    """Return the instructions with the schema, for a server that has no parameter for it."""
    return f"{ask.system}{_SCHEMA}{json.dumps(dict(ask.schema))}"


def _sum(tries: Sequence[tuple[int, int]]) -> tuple[int, int]:
    tokens_in, tokens_out = zip((0, 0), *tries, strict=True)
    return sum(tokens_in), sum(tokens_out)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent
