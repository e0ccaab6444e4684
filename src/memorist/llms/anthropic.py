"""Language models behind Anthropic's protocol."""

from __future__ import annotations

import json
from typing import Any

from ..providers import http
from ..text.prompts import Prompt
from . import schema
from .structured import TOOL, ModelReply, RequestStyle, StructuredModel, token_count, with_schema

_UNSUPPORTED_LIMITS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "pattern",
)
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicModel(StructuredModel):
    """A LanguageModel behind Anthropic's protocol."""

    library, client, url = "anthropic", "AsyncAnthropic", "https://api.anthropic.com"
    call = "messages"
    modes = ("json_schema", "tool", "text")

    def build_request(self, ask: Prompt, style: RequestStyle) -> dict[str, Any]:
        extra = {} if "temperature" in style.without else {"temperature": ask.temperature}
        request: dict[str, Any] = {
            "model": self._model,
            "system": with_schema(ask) if style.mode == "text" else ask.system,
            "messages": [{"role": "user", "content": ask.user}],
            "max_tokens": ask.max_tokens,
            "extra_body": extra,  # not every model accepts it
        }
        shape = dict(ask.schema)
        if style.mode == "json_schema":
            known = schema.without(shape, _UNSUPPORTED_LIMITS)
            request["output_config"] = {"format": {"type": "json_schema", "schema": known}}
        elif style.mode == "tool":
            tool = {"name": TOOL, "description": "Give the answer.", "input_schema": shape}
            request |= {"tools": [tool], "tool_choice": {"type": "tool", "name": TOOL}}
        return request

    def read_reply(self, data: Any) -> ModelReply:
        blocks, used = http.at(data, "content"), http.at(data, "usage")
        if not isinstance(blocks, list):
            raise http.Failed("it does not speak this protocol")
        text, arguments = "", None
        for block in blocks:
            given, words = http.at(block, "input"), http.at(block, "text")
            if isinstance(given, dict) and arguments is None:
                arguments = given
            if isinstance(words, str):
                text += words
        tokens_in = sum(token_count(http.at(used, name)) for name in _INPUT)
        return ModelReply(
            text=text if arguments is None else json.dumps(arguments),
            tokens=(tokens_in, token_count(http.at(used, "output_tokens"))),
            is_cut=http.at(data, "stop_reason") == "max_tokens",
        )
