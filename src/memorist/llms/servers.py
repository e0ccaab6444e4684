"""Language models on servers that speak OpenAI's or Anthropic's protocol.

Each is asked for structured output in the best way that it supports.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..providers import Failed, ModelServer, at
from ..text.prompts import ModelAnswer, Prompt
from . import CheckedModel, ModelReply, Tries, drop_keywords, likely_cost, max_cost, with_schema

MAX_BYTES = 1 << 20  # of a response
TOOL = "answer"
_UNSUPPORTED = (400, 422, 501)


class StructuredModel(CheckedModel):
    """A LanguageModel over a server with several ways to ask for structured output, best first.

    A way that the server rejected is not tried again. Belongs to the event loop that first uses it.
    """

    library: ClassVar[str]  # the client library, which is also the name of the extra
    client: ClassVar[str]  # its class
    call: ClassVar[str]  # its method
    url: ClassVar[str]  # the default address
    modes: ClassVar[Sequence[str]]
    quirks: ClassVar[Mapping[str, str]] = {"temperature": "temperature"}  # word in an error: field

    def __init__(
        self,
        model: str,
        *,
        url: str | None = None,
        key: str | None = None,
        timeout: float = 20.0,
    ) -> None:
        """Raise Misconfigured if the client library is missing.

        A self-hosted server may not need a key.
        """
        self._model = model
        self._own_url = url
        self._mode = 0
        self._without = frozenset[str]()
        super().__init__(f"{self.library}:{model}", timeout)
        self._server = ModelServer(
            self.library,
            self.client,
            self.call,
            limit=MAX_BYTES,
            base_url=url or self.url,
            api_key=key or "none",
            timeout=timeout,
        )

    async def answer(self, ask: Prompt) -> ModelAnswer:
        """Return an answer that fits the schema. Raises ModelUnavailable, BadModelAnswer."""
        await self._server.ready()  # before the timeout begins
        return await super().answer(ask)

    async def close(self) -> None:
        await self._server.close()

    @abstractmethod
    def build_request(
        self,
        ask: Prompt,
        mode: str,
        without: frozenset[str],
    ) -> dict[str, Any]:
        """Return the parameters of the request, without those that the server does not accept."""

    @abstractmethod
    def read_reply(self, data: Any) -> ModelReply:
        """Return the reply in the JSON of a response. Raises Failed if there is none."""

    async def send(self, ask: Prompt, tries: Tries) -> ModelReply:
        """Return the reply of the server in the best format that it supports, and note the cost.

        Raises ModelUnavailable.
        """
        mode = self._mode
        without = self._without
        while mode < len(self.modes):
            request = self.build_request(ask, self.modes[mode], without)
            try:
                reply = self.read_reply(await self._server.ask(**request))
            except Failed as error:
                if error.status not in _UNSUPPORTED:
                    tries.append((0, 0) if error.is_free else max_cost(ask))
                    raise self.unavailable(f"failed: {error}") from None
                rejected = {name for word, name in self.quirks.items() if word in error.said}
                if rejected - without:
                    without |= rejected
                else:
                    without = self._without
                    mode += 1
            else:
                self._mode = mode
                self._without = without
                tries.append(likely_cost(ask, reply.text, reply.tokens))
                return reply
        raise self.unavailable(
            "rejected every request format: is the address right, is the text too long?"
        )


class OpenAIModel(StructuredModel):
    """A LanguageModel behind OpenAI's protocol: OpenAI, Ollama, vLLM, llama.cpp, many others."""

    library = "openai"
    client = "AsyncOpenAI"
    url = "https://api.openai.com/v1"
    call = "chat.completions"
    modes = ("json_schema", "json_object", "tool", "text")
    quirks: ClassVar = {
        **StructuredModel.quirks,
        "max_completion_tokens": "max_tokens",  # newer models want the longer name
    }

    def build_request(
        self,
        ask: Prompt,
        mode: str,
        without: frozenset[str],
    ) -> dict[str, Any]:
        is_own = self._own_url is not None
        in_words = ("json_schema", "json_object", "text") if is_own else ("json_object", "text")
        system = with_schema(ask) if mode in in_words else ask.system
        is_new = not is_own or "max_tokens" in without
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": ask.user},
            ],
            "max_completion_tokens" if is_new else "max_tokens": ask.max_tokens,
        }
        if "temperature" not in without:
            request["temperature"] = ask.temperature
        shape = dict(ask.schema)
        if mode == "json_schema":
            # OpenAI itself does not support limits of length.
            known = shape if is_own else drop_keywords(shape, ("minLength", "maxLength"))
            wanted = {"name": TOOL, "schema": known, "strict": True}
            request["response_format"] = {"type": mode, mode: wanted}
        elif mode == "json_object":
            request["response_format"] = {"type": mode}
        elif mode == "tool":
            function = {"name": TOOL, "description": "Give the answer.", "parameters": shape}
            request["tools"] = [{"type": "function", "function": function}]
            request["tool_choice"] = {"type": "function", "function": {"name": TOOL}}
        return request

    def read_reply(self, data: Any) -> ModelReply:
        message = at(data, "choices", 0, "message")
        if not isinstance(message, dict):
            raise Failed("it does not use this protocol")
        arguments = at(message, "tool_calls", 0, "function", "arguments")
        given = arguments or message.get("content")
        used = at(data, "usage")
        return ModelReply(
            text=given if isinstance(given, str) else json.dumps(given or ""),
            tokens=(token_count(used, "prompt_tokens"), token_count(used, "completion_tokens")),
            is_cut=at(data, "choices", 0, "finish_reason") == "length",
        )


class AnthropicModel(StructuredModel):
    """A LanguageModel behind Anthropic's protocol."""

    library = "anthropic"
    client = "AsyncAnthropic"
    url = "https://api.anthropic.com"
    call = "messages"
    modes = ("json_schema", "tool", "text")
    unsupported = "minLength maxLength minItems maxItems minimum maximum pattern".split()
    counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

    def build_request(
        self,
        ask: Prompt,
        mode: str,
        without: frozenset[str],
    ) -> dict[str, Any]:
        extra = {} if "temperature" in without else {"temperature": ask.temperature}
        request: dict[str, Any] = {
            "model": self._model,
            "system": with_schema(ask) if mode == "text" else ask.system,
            "messages": [{"role": "user", "content": ask.user}],
            "max_tokens": ask.max_tokens,
            "extra_body": extra,  # not every model accepts it
        }
        shape = dict(ask.schema)
        if mode == "json_schema":
            known = drop_keywords(shape, self.unsupported)
            request["output_config"] = {"format": {"type": mode, "schema": known}}
        elif mode == "tool":
            tool = {"name": TOOL, "description": "Give the answer.", "input_schema": shape}
            request |= {"tools": [tool], "tool_choice": {"type": "tool", "name": TOOL}}
        return request

    def read_reply(self, data: Any) -> ModelReply:
        blocks = at(data, "content")
        used = at(data, "usage")
        if not isinstance(blocks, list):
            raise Failed("it does not use this protocol")
        text = ""
        arguments = ""
        for block in blocks:
            given = at(block, "input")
            words = at(block, "text")
            if isinstance(given, dict):
                arguments = arguments or json.dumps(given)
            if isinstance(words, str):
                text += words
        tokens_in = sum(token_count(used, name) for name in self.counted)
        return ModelReply(
            text=arguments or text,
            tokens=(tokens_in, token_count(used, "output_tokens")),
            is_cut=at(data, "stop_reason") == "max_tokens",
        )


def token_count(usage: Any, name: str) -> int:
    """Return a number of tokens as a server reported it; 0 if it is not valid.

    >>> [token_count({"in": given}, "in") for given in (7, -7, "7", True)]
    [7, 0, 0, 0]
    """
    figure = at(usage, name)
    return figure if type(figure) is int and figure > 0 else 0
