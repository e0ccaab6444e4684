"""Models behind Anthropic's protocol."""

from __future__ import annotations

import json
from typing import Any

from ..ports import Prompt
from ..providers import http
from . import schema
from .structured import Laddered, Said, Way, count, told

_UNKNOWN_LIMITS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "pattern",
)
_TOOL = "answer"
_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Anthropic(Laddered):
    """A LanguageModel behind Anthropic's protocol."""

    library, client, url = "anthropic", "AsyncAnthropic", "https://api.anthropic.com"
    call = "messages"
    rungs = ("json_schema", "tool", "text")

    def _request(self, ask: Prompt, way: Way) -> dict[str, Any]:
        older = (
            {} if "temperature" in way.without else {"temperature": ask.temperature}
        )  # not every model takes it
        return {
            "model": self._model,
            "system": told(ask) if way.rung == "text" else ask.system,
            "messages": [{"role": "user", "content": ask.user}],
            "max_tokens": ask.max_tokens,
            "extra_body": older,
            **_shape(dict(ask.schema), way.rung),
        }

    def _read(self, data: Any) -> Said:
        blocks, used = http.at(data, "content"), http.at(data, "usage")
        if not isinstance(blocks, list):
            raise http.Failed("it does not speak this protocol")
        given = next(
            (block["input"] for block in blocks if isinstance(http.at(block, "input"), dict)), None
        )
        texts = [block["text"] for block in blocks if isinstance(http.at(block, "text"), str)]
        return Said(
            text="".join(texts) if given is None else json.dumps(given),
            tokens=(
                sum(count(http.at(used, name)) for name in _READ),
                count(http.at(used, "output_tokens")),
            ),
            is_cut=http.at(data, "stop_reason") == "max_tokens",
        )


def _shape(shape: dict[str, Any], rung: str) -> dict[str, Any]:
    if rung == "json_schema":
        wanted = {"type": "json_schema", "schema": schema.without(shape, _UNKNOWN_LIMITS)}
        return {"output_config": {"format": wanted}}
    if rung == "tool":
        tool = {"name": _TOOL, "description": "Give the answer.", "input_schema": shape}
        return {"tools": [tool], "tool_choice": {"type": "tool", "name": _TOOL}}
    return {}
