"""Models behind an address that speaks OpenAI's protocol: OpenAI, Ollama, vLLM, llama.cpp and many others."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ..ports import Prompt
from ..providers import http
from . import schema
from .structured import Laddered, Said, Way, count, told

_UNKNOWN_LIMITS = ("minLength", "maxLength")  # of the schemas that OpenAI itself takes
_TOOL = "answer"


class OpenAI(Laddered):
    """A LanguageModel behind OpenAI's protocol."""

    library, client, url = "openai", "AsyncOpenAI", "https://api.openai.com/v1"
    call = "chat.completions"
    rungs = ("json_schema", "json_object", "tool", "text")
    oddities: ClassVar = {
        **Laddered.oddities,
        "max_completion_tokens": "max_tokens",
    }  # newer models want the longer name

    def _request(self, ask: Prompt, way: Way) -> dict[str, Any]:
        is_told = way.rung in ("json_object", "text") or (
            way.rung == "json_schema" and self._own_url is not None
        )
        is_new = self._own_url is None or "max_tokens" in way.without
        return {
            "model": self._model,
            "messages": [
                {"role": "system", "content": told(ask) if is_told else ask.system},
                {"role": "user", "content": ask.user},
            ],
            "max_completion_tokens" if is_new else "max_tokens": ask.max_tokens,
            **({} if "temperature" in way.without else {"temperature": ask.temperature}),
            **self._shape(dict(ask.schema), way.rung),
        }

    def _shape(self, shape: dict[str, Any], rung: str) -> dict[str, Any]:
        if rung == "json_schema":
            known = shape if self._own_url else schema.without(shape, _UNKNOWN_LIMITS)
            named = {"name": "answer", "schema": known, "strict": schema.is_closed(shape)}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        if rung == "json_object":
            return {"response_format": {"type": "json_object"}}
        if rung == "tool":
            function = {"name": _TOOL, "description": "Give the answer.", "parameters": shape}
            choice = {"type": "function", "function": {"name": _TOOL}}
            return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
        return {}

    def _read(self, data: Any) -> Said:
        message = http.at(data, "choices", 0, "message")
        if not isinstance(message, dict):
            raise http.Failed("it does not speak this protocol")
        given = http.at(message, "tool_calls", 0, "function", "arguments") or message.get("content")
        used = http.at(data, "usage")
        return Said(
            text=given if isinstance(given, str) else json.dumps(given or ""),
            tokens=(
                count(http.at(used, "prompt_tokens")),
                count(http.at(used, "completion_tokens")),
            ),
            is_cut=http.at(data, "choices", 0, "finish_reason") == "length",
        )
