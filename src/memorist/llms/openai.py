"""Language models behind OpenAI's protocol: OpenAI, Ollama, vLLM, llama.cpp and many others."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ..providers import http
from ..text.prompts import Prompt
from . import schema
from .structured import TOOL, ModelReply, RequestStyle, StructuredModel, token_count, with_schema

_UNSUPPORTED_LIMITS = ("minLength", "maxLength")  # by OpenAI itself


class OpenAIModel(StructuredModel):
    """A LanguageModel behind OpenAI's protocol."""

    library, client, url = "openai", "AsyncOpenAI", "https://api.openai.com/v1"
    call = "chat.completions"
    modes = ("json_schema", "json_object", "tool", "text")
    quirks: ClassVar = {
        **StructuredModel.quirks,
        "max_completion_tokens": "max_tokens",  # newer models want the longer name
    }

    def build_request(self, ask: Prompt, style: RequestStyle) -> dict[str, Any]:
        is_own = self._own_url is not None
        in_words = ("json_schema", "json_object", "text") if is_own else ("json_object", "text")
        system = with_schema(ask) if style.mode in in_words else ask.system
        is_new = not is_own or "max_tokens" in style.without
        request: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": ask.user},
            ],
            "max_completion_tokens" if is_new else "max_tokens": ask.max_tokens,
        }
        if "temperature" not in style.without:
            request["temperature"] = ask.temperature
        shape = dict(ask.schema)
        if style.mode == "json_schema":
            known = shape if is_own else schema.without(shape, _UNSUPPORTED_LIMITS)
            wanted = {"name": TOOL, "schema": known, "strict": schema.is_closed(shape)}
            request["response_format"] = {"type": "json_schema", "json_schema": wanted}
        elif style.mode == "json_object":
            request["response_format"] = {"type": "json_object"}
        elif style.mode == "tool":
            function = {"name": TOOL, "description": "Give the answer.", "parameters": shape}
            request["tools"] = [{"type": "function", "function": function}]
            request["tool_choice"] = {"type": "function", "function": {"name": TOOL}}
        return request

    def read_reply(self, data: Any) -> ModelReply:
        message = http.at(data, "choices", 0, "message")
        if not isinstance(message, dict):
            raise http.Failed("it does not speak this protocol")
        arguments = http.at(message, "tool_calls", 0, "function", "arguments")
        given = arguments or message.get("content")
        tokens_in = token_count(http.at(data, "usage", "prompt_tokens"))
        tokens_out = token_count(http.at(data, "usage", "completion_tokens"))
        return ModelReply(
            text=given if isinstance(given, str) else json.dumps(given or ""),
            tokens=(tokens_in, tokens_out),
            is_cut=http.at(data, "choices", 0, "finish_reason") == "length",
        )
