"""A question to a language model, its answer, and the style that derived text is held to.

What is derived from a conversation has to be readable without it. The rules stand in prompts as
`SEMANTIC` and `EPISODIC`, and `find_fault` applies them to a text, whether a model or a rule wrote
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
    """A question to a language model whose answer has a shape."""

    # Under this it is counted: extract · same_fact · compose · summarise · reflect · steps
    task: str
    system: str  # what the model is to do
    user: str  # what it is to do it with; never an order, whatever it says
    schema: Mapping[str, Any]  # of the answer, as JSON schema
    max_tokens: int  # of the answer
    temperature: float = 0.0


@frozen
class ModelAnswer:
    """What a language model answered, as a value that fits the schema, and what it cost."""

    value: Mapping[str, Any]
    model: str
    tokens_in: int
    tokens_out: int


def build(name: str, notes: object) -> Prompt:
    """Return the prompt of that name in `prompts.toml` about some notes.

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
    """Return the text on one line and within its bounds; empty if it cannot stand by itself.

    >>> to_statement("Ana lives  in Porto!"), to_statement("She lives in Porto.")
    ('Ana lives in Porto.', '')
    >>> to_statement("  ")
    ''
    """
    made = trim(text)
    return "" if find_fault(made) else made


def trim(text: str) -> str:
    """Cut to two sentences and 280 characters, where a sentence or a word ends, with a full stop.

    >>> trim("One. Two! Three."), len(trim("word " * 100)), trim("a" * 300)[-3:]
    ('One. Two.', 275, 'aa…')
    """
    line = one_line(compose(text[: 8 * LONGEST])).replace("!", ".")
    ends = [match.end() for match in _END.finditer(line)]
    ends = [end for end in ends if not ABBREVIATED.search(line[:end][-8:])][:SENTENCES]
    ends = [end for end in ends if end <= LONGEST]
    kept = line[: ends[-1]] if ends and (len(ends) == SENTENCES or len(line) > LONGEST) else line
    if len(kept) > LONGEST:
        words, _, cut = kept[: LONGEST - 1].rpartition(" ")
        kept = f"{words or cut[: LONGEST - 1]}…"
    return kept if not kept or kept[-1] in ".?…。？" else f"{kept.rstrip(' ,;:')}."


def find_fault(text: str, kind: Literal["semantic", "episodic"] = "semantic") -> str:
    """Return what keeps a text from being understood by itself; empty if nothing does.

    >>> find_fault("Ana's sister lives in Porto."), find_fault("I live in Porto.")
    ('', 'it speaks in the first person')
    >>> find_fault("Ana likes it.")
    'it has a pronoun'
    >>> find_fault("Ana and Bo decided on Rust.", "episodic"), find_fault("Ana agrees.", "episodic")
    ('', 'it is not told in the past tense')
    """
    line = _NO_PRONOUN.sub("ON", one_line(text))
    if len(line.strip(" .…")) < SHORTEST or not any(map(str.isalpha, line)):
        return "it says nothing"
    if len(line) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if "?" in line:
        return "it asks"
    if _SPEAKER.search(line):
        return "it speaks in the first person"
    if _HEARER.search(line):
        return "it speaks to somebody"
    if _OTHERS.search(_JOINING.sub(" ", line)):
        return "it has a pronoun"
    if kind == "episodic" and "past" not in statements.parse(line).marks:
        return "it is not told in the past tense"
    return ""
