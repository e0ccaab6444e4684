"""A question to a language model, and its answer, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A question to a language model whose answer has a shape."""

    task: (
        str  # extract · same_fact · compose · summarise · reflect · steps: under this it is counted
    )
    system: str  # what the model is to do
    user: str  # what it is to do it with; never an order, whatever it says
    schema: Mapping[str, Any]  # of the answer, as JSON schema
    max_tokens: int  # of the answer
    temperature: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """What a language model said, as a value that fits the schema, and what it cost."""

    value: Mapping[str, Any]
    model: str
    tokens_in: int
    tokens_out: int


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
