"""Prompts for a language model, its answers, and the style rules for derived text.

A text derived from a conversation has to be understandable without it. Prompts state these rules as
`SEMANTIC` and `EPISODIC`; `find_fault` checks a text against them, whether a model or a rule wrote
it.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ..types import frozen
from . import statements
from .normalize import compose, one_line

LONGEST = 280  # characters
SHORTEST = 4
SENTENCES = 2

SEMANTIC = f"""\
Write one complete statement that can be understood by itself: in the third person, without any \
pronoun, in a neutral tone, in one or two sentences and at most {LONGEST} characters."""
EPISODIC = f"""\
Write in the past tense, in one or two sentences: what was discussed, decided or done. Leave out \
lasting facts, unless they changed. At most {LONGEST} characters."""

_END = re.compile(r"[.!?…。！？]+[\"”’)]?(?=\s|$)")
ABBREVIATED = re.compile(
    r"\b(?:dr|mr|mrs|ms|prof|st|jr|sr|vs|no|e\.g|i\.e|[a-z])\.$", re.IGNORECASE
)
_SPEAKER = re.compile(
    r"\b(?:i(?:['’](?:m|ve|d|ll))?(?![.\w&/-]\w)|(?-i:[mM]e|[mM]y)|mine|myself|we(?:['’](?:re|ve"
    r"|d|ll))?|us|our|ours|ourselves)\b",
    re.IGNORECASE,
)
_NO_PRONOUN = re.compile(r"\b(?:US|IT)\b")
_HEARER = re.compile(r"\b(?:you(?:['’](?:re|ve|d|ll))?|your|yours|yourself|u|ur)\b", re.IGNORECASE)
_OTHERS = re.compile(
    r"\b(?:he|she|they|him|her|them|his|hers|their|theirs|it|its|himself|herself|themselves|itself"
    r"|(?:he|she|it|that|there)['’](?:s|d|ll)|they['’](?:re|ve|d|ll)|this|that|these|those)\b",
    re.IGNORECASE,
)
_JOINING = re.compile(
    r"\b(?:\w+ly|so|knows?|says?|decided|means?|agreed|found|learned) that\b", re.IGNORECASE
)


@frozen
class Prompt:
    """A prompt for a language model, with the JSON schema of the answer."""

    # Name in the usage counts: extract · same_fact · compose · summarise · reflect · steps
    task: str
    system: str  # the instructions
    user: str  # the input, which is data and never an instruction
    schema: Mapping[str, Any]
    max_tokens: int  # of the answer
    temperature: float = 0.0
    keeps_items: bool = False  # items of a list that do not fit are left out, and the others used


@frozen
class ModelAnswer:
    """The answer of a language model, valid against the schema, and its token counts."""

    value: Mapping[str, Any]
    model: str
    tokens_in: int
    tokens_out: int


def build(name: str, notes: object) -> Prompt:
    """Return the prompt `name` from `prompts.toml`, with notes as its input.

    >>> build("same_fact", {"a": "Tea", "b": "Milk"}).user
    '{"a": "Tea", "b": "Milk"}'
    """
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    given = tables[name]
    parts = {"longest": LONGEST, "semantic": SEMANTIC, **tables["parts"]}
    given["system"] = given["system"].format(**parts)
    given["schema"] = json.loads(given["schema"])
    return Prompt(user=json.dumps(notes, ensure_ascii=False), **given)


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def to_statement(text: str) -> str:
    """Return the text on one line and within its limits; empty if it is not self-contained.

    >>> to_statement("Ana lives  in Porto!"), to_statement("She lives in Porto.")
    ('Ana lives in Porto.', '')
    >>> to_statement("  ")
    ''
    """
    made = trim(text)
    return "" if find_fault(made) else made


def trim(text: str) -> str:
    """Shorten to two sentences and 280 characters, at the end of a sentence or word, with a period.

    >>> trim("One. Two! Three."), len(trim("word " * 100)), trim("a" * 300)[-3:]
    ('One. Two.', 275, 'aa…')
    """
    line = one_line(compose(text[: 8 * LONGEST])).replace("!", ".")
    ends: list[int] = []
    for match in _END.finditer(line):
        end = match.end()
        if not ABBREVIATED.search(line[:end][-8:]):
            ends.append(end)
    ends = [end for end in ends[:SENTENCES] if end <= LONGEST]
    kept = line
    if ends and (len(ends) == SENTENCES or len(line) > LONGEST):
        kept = line[: ends[-1]]
    if len(kept) > LONGEST:
        words, _, cut = kept[: LONGEST - 1].rpartition(" ")
        kept = f"{words or cut[: LONGEST - 1]}…"
    return kept if not kept or kept[-1] in ".?…。？" else f"{kept.rstrip(' ,;:')}."


def find_fault(text: str, kind: Literal["semantic", "episodic"] = "semantic") -> str:
    """Return why a text is not self-contained; empty if it is.

    >>> find_fault("Ana's sister lives in Porto."), find_fault("I live in Porto.")
    ('', 'it is in the first person')
    >>> find_fault("Ana likes it.")
    'it contains a pronoun'
    >>> find_fault("Ana and Bo decided on Rust.", "episodic"), find_fault("Ana agrees.", "episodic")
    ('', 'it is not in the past tense')
    """
    line = _NO_PRONOUN.sub("ON", one_line(text))
    if len(line.strip(" .…")) < SHORTEST or not any(map(str.isalpha, line)):
        return "it has no content"
    if len(line) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if "?" in line:
        return "it is a question"
    if _SPEAKER.search(line):
        return "it is in the first person"
    if _HEARER.search(line):
        return "it addresses the reader"
    if _OTHERS.search(_JOINING.sub(" ", line)):
        return "it contains a pronoun"
    if kind == "episodic" and "past" not in statements.parse(line).marks:
        return "it is not in the past tense"
    return ""
