"""What is accepted of what a model writes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorist.extraction import llm
from memorist.llms import find_object, find_problems
from memorist.text import summarize
from memorist.text.prompts import build, object_schema

FACTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 5}},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "sure": {"type": "boolean"},
        "level": {"type": "integer", "minimum": 1, "maximum": 5},
        "score": {"type": ["number", "null"]},
    },
    "required": ["facts"],
    "additionalProperties": False,
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from([*FACTS["properties"], "other"]), inner)
    ),
)


@pytest.mark.parametrize(
    "value", [{"facts": []}, {"facts": ["tea", "milk"], "kind": "b", "sure": True, "level": 5, "score": 0.5},
              {"facts": [], "score": None}, {"facts": [], "score": 3}],
)  # fmt: skip
def test_what_fits_has_no_problem(value: Any) -> None:
    assert not list(find_problems(value, FACTS))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "the answer is not of type object"),
        ({}, "the answer lacks facts"),
        ({"facts": [], "x": 1}, "the answer has other fields than facts, kind, sure, level, score"),
        ({"facts": "tea"}, "facts is not of type array"),
        ({"facts": ["a", "b", "c"]}, "facts has more than 2 items"),
        ({"facts": ["a", "coffee"]}, "facts[1] is longer than 5 characters"),
        ({"facts": [7]}, "facts[0] is not of type string"),
        ({"facts": ["\ud800"]}, "facts[0] has characters that are not text"),
        ({"facts": ["a\x00"]}, "facts[0] has characters that are not text"),
        ({"facts": [], "kind": "c"}, "kind is not one of a, b"),
        ({"facts": [], "sure": 1}, "sure is not of type boolean"),
        ({"facts": [], "level": True}, "level is not of type integer"),
        ({"facts": [], "level": 2.0}, "level is not of type integer"),
        ({"facts": [], "level": 6}, "level is out of range"),
        ({"facts": [], "level": 10**400}, "level is not of type integer"),
        ({"facts": [], "score": float("inf")}, "score is not of type number or null"),
        ({"facts": [], "score": float("nan")}, "score is not of type number or null"),
    ],
)
def test_what_does_not_fit_is_named(value: Any, problem: str) -> None:
    assert next(find_problems(value, FACTS)) == problem


@given(ANYTHING)
def test_nothing_that_a_model_says_makes_the_check_fail_or_passes_it_wrongly(value: Any) -> None:
    if not list(find_problems(value, FACTS)):
        assert set(value) <= set(FACTS["properties"])
        assert all(isinstance(fact, str) and len(fact) <= 5 for fact in value["facts"])
        json.dumps(value, allow_nan=False).encode()


@given(st.text() | st.text(alphabet='{}[]":,tru0 \\u`'))
def test_looking_for_json_finds_an_object_or_says_that_there_is_none(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(find_object(text), dict)


@pytest.mark.parametrize(
    "text", ["{" * 300_000, '{"a":' * 200_000, '{"a":"' + "\\" * 300_000, "[" * 300_000 + "{"]
)
def test_a_text_made_to_be_slow_is_not(text: str) -> None:
    begun = time.thread_time()
    with pytest.raises(ValueError):
        find_object(text)
    assert time.thread_time() - begun < 2


def test_an_object_is_found_after_49_broken_ones_and_not_after_50() -> None:
    assert find_object("{ " * 49 + '{"facts": []}') == {"facts": []}
    with pytest.raises(ValueError):
        find_object("{ " * 50 + '{"facts": []}')


@pytest.mark.parametrize("text", ['{"n": NaN}', '{"n": Infinity}', '{"n": ' + "9" * 5000 + "}"])
def test_numbers_that_are_none_are_no_json(text: str) -> None:
    with pytest.raises(ValueError):
        find_object(text)


def test_a_closed_schema_needs_all_its_fields_everywhere() -> None:
    closed = object_schema(a={"type": "string"})
    assert closed == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert is_closed(closed)
    assert is_closed({**closed, "properties": {"a": {"type": "array", "items": closed}}})
    assert not is_closed(FACTS)
    assert not is_closed(
        {**closed, "properties": {"a": {"type": "array", "items": {"type": "object"}}}}
    )


@pytest.mark.parametrize("task", ["same_facts", "same_fact", "compose", "reflect", "eval"])
def test_every_prompt_in_the_file_has_a_closed_schema(task: str) -> None:
    assert is_closed(build(task, {}).schema)


def test_summaries_and_facts_have_closed_schemas() -> None:
    assert is_closed(summarize.ask([]).schema)
    assert is_closed(llm.build_prompt("I live in Porto", "Ana", 1).schema)


def is_closed(schema: Any) -> bool:
    """Whether every object in it names and requires all its fields, as OpenAI's strict mode demands."""
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") != "object":
        return is_closed(schema.get("items"))
    fields = schema.get("properties", {})
    is_exact = schema.get("additionalProperties") is False
    is_exact = is_exact and set(schema.get("required", ())) == set(fields)
    return is_exact and all(map(is_closed, fields.values()))
