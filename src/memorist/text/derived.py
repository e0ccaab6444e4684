"""What the store derives from a memory: search terms, flags, the text to embed, and changed fields.

Stored terms and flags are part of the index: raise `ANALYSIS` when they have to be made again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..types import GUILD, Memory
from . import clock, dates, tokens

ANALYSIS = 2  # raised when stored terms, flags or fingerprints have to be made again, on opening
LONGEST_FACT, LONGEST_EVIDENCE = 220, 180  # characters that are embedded
FLAGS = tuple(1 << bit for bit in range(7))
IS_QUESTION, HAS_TIME, FROM_USER, FROM_ASSISTANT, ENDS_ASKING, IS_SUMMARY, IS_EXTRACTED = FLAGS
FEW = 4  # words: "Wow, that's cool, Caroline!" before a question tells nothing
_MOST_COUNTED = 255  # a term counts at most this often in one text
_SENTENCE = re.compile(r"[^.!?。！？…؟\u037e]*+[.!?。！？…؟\u037e]*+")
_ASKING = ("?", "？", "؟", "\u037e")
# A smiley or a quotation mark may follow the question mark.
_LAST_MARK = re.compile(r"[?？؟\u037e][^\w.!…]*$")
_WORDS = re.compile(r"\w+")

# What a memory is or holds; the rest says where it stands and how often it was used or changed.
_ASIDE = {"id", "scope", "labels", "updated_at", "revision", "needs_embedding"}
_USE = {"last_accessed", "access_count", "last_scores"}
CONTENT = tuple(each.name for each in fields(Memory) if each.name not in _ASIDE | _USE)
_TIMES = tuple(name for name in CONTENT if name.endswith("_at") or name.startswith("valid_"))
_LISTS = ("tags", "source_ids", "evidence", "evidence_ids")


def terms_of(memory: Memory, language: str) -> bytes:
    """Pack the terms of everything a question may name: words, tags, speaker, date."""
    text = tokens.sparse_text(memory.text, memory.speaker, memory.occurred_at)
    terms = tokens.analyze(text, language)
    if memory.tags:
        terms += set(tokens.analyze(" ".join(memory.tags), language)).difference(terms)
    return pack(map(tokens.term_id, terms))


def meaning_of(memory: Memory) -> str:
    """Return the text to embed: of a fact of a guild also its type and its evidence."""
    if memory.scope.user != GUILD or memory.fact_type is None:
        return memory.text
    text = f"type: {memory.fact_type}\nfact: {memory.text[:LONGEST_FACT]}"
    if memory.evidence_text:
        text += f"\nevidence: {memory.evidence_text[:LONGEST_EVIDENCE]}"
    return text


def flags_of(memory: Memory) -> int:
    """Return the flags that ranking reads: who said it, whether it asks, names a time, is
    derived.
    """
    voice = memory.labels.role or memory.speaker
    flags = 0
    if voice == "user":
        flags |= FROM_USER
    elif voice == "assistant":
        flags |= FROM_ASSISTANT
    if is_question(memory.text):
        flags |= IS_QUESTION
    if ends_asking(memory.text):
        flags |= ENDS_ASKING
    if dates.has_time(memory.text):
        flags |= HAS_TIME
    if memory.compression_source:
        flags |= IS_SUMMARY
    if memory.evidence_text and memory.evidence_ids:
        flags |= IS_EXTRACTED
    return flags


def is_question(text: str) -> bool:
    """Return whether a turn only asks: beside a question it has at most a few words of courtesy.

    >>> is_question("Wow, that's great! What happened next?")
    True
    >>> is_question("I moved to Rome last year. And you?")
    False
    """
    asks = False
    for sentence in _SENTENCE.findall(text):
        if sentence.rstrip().endswith(_ASKING):
            asks = True
        elif len(_WORDS.findall(sentence)) > FEW:
            return False
    return asks


def ends_asking(text: str) -> bool:
    """Return whether a turn ends in a question, so that the next one is likely to answer it.

    >>> ends_asking("I moved to Rome. And you? 🙂"), ends_asking("Really? I did not know.")
    (True, False)
    """
    return _LAST_MARK.search(text[-80:]) is not None


def pack(terms: Iterable[int]) -> bytes:
    """Pack the 32-bit ids of terms, sorted, then how often each occurs, one byte each.

    >>> unpack(pack([7, 3, 7]))
    (array([3, 7], dtype=uint32), array([1, 2], dtype=uint8))
    """
    counts = sorted(Counter(terms).items())
    numbers = np.array([term for term, _ in counts], dtype="<u4")
    return numbers.tobytes() + bytes(min(count, _MOST_COUNTED) for _, count in counts)


def unpack(packed: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Reverse `pack`."""
    count = len(packed) // 5
    terms = np.frombuffer(packed, dtype="<u4", count=count)
    return terms, np.frombuffer(packed, dtype=np.uint8, offset=4 * count)


def changed_fields(old: Memory, new: Memory) -> dict[str, Any]:
    """Return what the old memory holds that the new one does not, as JSON values by field."""
    changed = (name for name in CONTENT if getattr(old, name) != getattr(new, name))
    return {name: field_value(old, name) for name in changed}


def field_value(of: Memory, name: str) -> Any:
    """Return one field of a memory as a JSON value."""
    value = getattr(of, name)
    if isinstance(value, datetime):
        return clock.iso(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if name in _LISTS else value


def with_fields(of: Memory, plain: Mapping[str, Any]) -> Memory:
    """Return the memory with other values in some fields, as `changed_fields` gave them."""
    values = dict(plain)
    for name in _TIMES:
        if values.get(name) is not None:
            values[name] = clock.parse(values[name])
    for name in _LISTS:
        if name in values:
            values[name] = tuple(values[name])
    return replace(of, **values)
