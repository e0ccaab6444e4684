"""Regular expressions and rules about text take time that grows with the length of the text, not with its square."""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

import memorist
from memorist.errors import MissingExtra
from memorist.extraction import rules
from memorist.ingest import analyze, guard, policies
from memorist.manage import chat_commands
from memorist.readers import coding
from memorist.readers.notes import read_markdown
from memorist.readers.source import ImportRun, Source
from memorist.retrieve import question, render
from memorist.text import (
    clock,
    compare,
    cues,
    entities,
    grounding,
    normalize,
    prompts,
    summarize,
    tokens,
)
from memorist.text.statements import parse
from memorist.text.values import read_values
from memorist.types import Draft, Memory, Scope

NOW = datetime(2026, 1, 1, tzinfo=UTC)
# Repeated to a long text, each of these makes some kind of pattern try again and again.
SEEDS = (
    *(
        "A",
        "1",
        "é",
        "猫",
        "a",
        " ",
        "\n",
        ".",
        "-",
        "'",
        "<",
        "[",
        "a ",
        "1 ",
        "1.",
        "a_",
        "a@",
        "Aa",
        "(A, ",
    ),
    *(
        "4111 ",
        "http://",
        "a://b:",
        '"a" ',
        "et al ",
        "and Aa ",
        "password is ",
        "i like ",
        "ignore previous ",
    ),
)
MEASURABLE = 0.0005  # seconds
LONGEST = 2000  # characters of the shorter text


def cpu_of(rule: Callable[[str], Any], text: str) -> float:
    before = time.thread_time()  # other tests leave threads that work in the background
    rule(text)
    return time.thread_time() - before


def is_linear(rule: Callable[[str], Any], seed: str) -> bool:
    """Return whether a text four times as long takes much less than 16 times as long."""
    length = 500
    while cpu_of(rule, text_of(seed, length)) < MEASURABLE:
        length *= 4
        if length > LONGEST:
            return True  # a square of this length would take longer
    short, long = text_of(seed, length), text_of(seed, 4 * length)
    return any(ratio(rule, short, long, times) < 8 for times in (1, 3, 9))


def text_of(seed: str, length: int) -> str:
    """Repeat a seed as a whole and an even number of times, so that texts of any length take the same branches."""
    return seed * (2 * (length // (2 * len(seed)))) + "!"


def ratio(rule: Callable[[str], Any], short: str, long: str, times: int) -> float:
    """Return how much longer the long text takes, each time the least of so many."""
    return min(cpu_of(rule, long) for _ in range(times)) / min(
        cpu_of(rule, short) for _ in range(times)
    )


def slow_seed(rule: Callable[[str], Any]) -> str | None:
    """Return the first seed that takes more than linear time."""
    return next((seed for seed in SEEDS if not is_linear(rule, seed)), None)


def memory(text: str) -> Memory:
    return Memory(
        id="m", scope=Scope(user="ana"), text=text, kind="episodic", created_at=NOW, updated_at=NOW
    )


def read_note(text: str) -> None:
    source = Source("note.md", len(text), lambda: io.BytesIO(text.encode()))
    deque(read_markdown(source, ImportRun()), maxlen=0)


RULES: dict[str, Callable[[str], Any]] = {
    "clean": normalize.clean,
    "storable": normalize.storable,
    "for_hash": normalize.for_hash,
    "compact": normalize.compact,
    "normalized wording": normalize.wording,
    "secret": guard.find_secret,
    "intervals": lambda text: clock.intervals(text, NOW),
    "has_time": clock.has_time,
    "entities": entities.entities,
    "about": lambda text: entities.about(text, entities.entities(text)),
    "values": read_values,
    "agree": lambda text: compare.values_agree(parse(text), parse(text + " x")),
    "statement": lambda text: parse(text).clause,
    "said": parse,
    "compare": lambda text: compare.verdict(
        parse(text), parse(f"{text[: len(text) // 2]} y {text[len(text) // 2 :]}")
    ),
    "analyze": tokens.analyze,
    "count_tokens": tokens.count_tokens,
    "simhash64": normalize.simhash64,
    "forged": guard.find_forgery,
    "injection": lambda text: guard.find_injection(text, "strict"),
    "grounded": lambda text: compare.is_supported(text[: len(text) // 2], text),
    "salience": lambda text: analyze.find_signals(text, entities.entities(text)),
    "technical": entities.is_technical,
    "kind": analyze.choose_kind,
    "item_type": analyze.choose_item_type,
    "pieces": lambda text: analyze.analyze(Draft(text=text), policies.DEFAULT),
    "facts": lambda text: rules.find_facts(text, who="Ana", at=NOW),
    "safe": render.safe,
    "block": lambda text: render.block([memory(text)]),
    "parse": chat_commands.parse,
    "used": lambda text: compare.find_used(text, [memory(text)]),
    "asking_share": cues.asking_share,
    "is_english": cues.is_english,
    "kinds_asked": question.kinds_asked,
    "names_in": question.names_in,
    "terms_of": lambda text: tokens.terms_of(memory(text), "english"),
    "summary": lambda text: summarize.extract([grounding.Turn(text=text, speaker="Ana")]),
    "understand": lambda text: question.understand(text, ("Ana", "Bob"), NOW, "english"),
    "containing": lambda text: compare.pick_containing(parse(text), parse(text + " x")),
    "alike": lambda text: compare.is_reworded(parse(text), parse(text + " x")),
    "wording": prompts.to_statement,
    "note": lambda text: read_note(f"a{text}"),
    "front matter": lambda text: read_note(f"---\n{text}"),
    "prompt": lambda text: coding.read_line(
        {"type": "user", "message": {"content": text.replace("<", "<system-reminder>")}}
    ),
}


def rules_of_one_text() -> dict[str, Callable[[str], Any]]:
    """Return every function of the packages about text that needs nothing but one text."""
    found = {}
    for name in ("text", "ingest", "extraction", "retrieve"):
        package = importlib.import_module(f"memorist.{name}")
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            for called, function in inspect.getmembers(module, inspect.isroutine):
                plain = inspect.unwrap(function)
                if plain.__module__ == info.name and needs_one_text(plain):
                    found[f"{info.name.removeprefix('memorist.')}.{called}"] = plain
    return found


def needs_one_text(function: Callable[..., Any]) -> bool:
    signature = inspect.signature(function)
    if inspect.iscoroutinefunction(function) or "Pattern" in str(signature):
        return False
    given = signature.parameters.values()
    required = [each for each in given if each.default is each.empty]
    return [each.annotation for each in required] in (["str"], [str])


@pytest.mark.parametrize("rule", rules_of_one_text())
def test_a_function_of_one_text_takes_linear_time(rule: str) -> None:
    function = rules_of_one_text()[rule]

    def run(text: str) -> None:
        with suppress(ValueError, LookupError, OSError, memorist.MemoristError):
            result = function(text)
            if isinstance(result, Iterator):
                deque(result, maxlen=0)

    assert slow_seed(run) is None


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_takes_linear_time(rule: str) -> None:
    assert slow_seed(RULES[rule]) is None


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Return every compiled pattern of the package, by the name of its module and its own."""
    found = {}
    for module in pkgutil.walk_packages(memorist.__path__, "memorist."):
        try:
            loaded = importlib.import_module(module.name)
        except MissingExtra:  # an adapter, whose framework is not installed
            continue
        for name, value in vars(loaded).items():
            for number, pattern in enumerate(compiled(value)):
                found[
                    f"{module.name.rpartition('.')[2]}.{name}" + (f"[{number}]" if number else "")
                ] = pattern
    return found


def compiled(value: Any, depth: int = 4) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a value, however they are nested."""
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, dict | list | tuple | set | frozenset) and depth:
        for each in value.values() if isinstance(value, dict) else value:
            yield from compiled(each, depth - 1)
    elif isinstance(value, type) and value.__module__.startswith("memorist.") and depth:
        yield from compiled(dict(vars(value)), depth - 1)
    elif hasattr(value, "cache_info") and not inspect.signature(value).parameters and depth:
        yield from compiled(value(), depth - 1)


def find_all(pattern: re.Pattern[str]) -> Callable[[str], int]:
    return lambda text: sum(1 for _ in pattern.finditer(text))


def test_every_regular_expression_takes_linear_time() -> None:
    by_pattern = {pattern: name for name, pattern in patterns().items()}
    assert len(by_pattern) > 150
    slow = {name: slow_seed(find_all(each)) for each, name in by_pattern.items()}
    assert {name: seed for name, seed in slow.items() if seed is not None} == {}
