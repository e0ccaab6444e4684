"""What is kept of a memory so that it can be found: its terms, a few marks, and what is embedded."""

from __future__ import annotations

from ..types import GUILD, Memory
from . import dates, terms, tokens, turns

LONGEST_FACT, LONGEST_EVIDENCE = 220, 180  # characters that are embedded
IS_QUESTION, HAS_TIME, FROM_USER, FROM_ASSISTANT, ENDS_ASKING, IS_SUMMARY, IS_DRAWN = (
    1 << bit for bit in range(7)
)


def terms_of(memory: Memory, language: str) -> bytes:
    """The packed terms of everything about a memory that a question may name: words, tags, speaker, date."""
    said = tokens.analyse(
        tokens.sparse_text(memory.text, memory.speaker, memory.occurred_at), language
    )
    tags = (
        set(tokens.analyse(" ".join(memory.tags), language)).difference(said) if memory.tags else ()
    )
    return terms.pack(tokens.term_id(term) for term in (*said, *tags))


def meaning_of(memory: Memory) -> str:
    """What a model is to embed of a memory: its text, and of a fact of a guild also its type and its evidence."""
    if memory.scope.user != GUILD or memory.fact_type is None:
        return memory.text
    quoted = (
        f"\nevidence: {memory.evidence_text[:LONGEST_EVIDENCE]}" if memory.evidence_text else ""
    )
    return f"type: {memory.fact_type}\nfact: {memory.text[:LONGEST_FACT]}{quoted}"


def flags_of(memory: Memory) -> int:
    """Marks that ranking looks at: it only asks, it speaks of a time, who said it, it was made out of others."""
    voice = {"user": FROM_USER, "assistant": FROM_ASSISTANT}.get(
        memory.labels.role or memory.speaker or "", 0
    )
    asks = IS_QUESTION * turns.is_question(memory.text) | ENDS_ASKING * turns.ends_asking(
        memory.text
    )
    made = IS_SUMMARY * memory.compression_source | IS_DRAWN * bool(
        memory.evidence_text and memory.evidence_ids
    )
    return voice | asks | HAS_TIME * dates.has_time(memory.text) | made
