"""What a clause refers to outside of itself: people, things and what was said before.

A pronoun is replaced by the only person it can mean. What depends on more than the clauses before
it, or loses its meaning once the speaker is named, is better found in the turn itself.
"""

from __future__ import annotations

import re

from ..text.tokens import ENGLISH, compile_all, load_patterns
from .third_person import possessive

_TABLES = load_patterns(__file__)
PATTERNS = compile_all(_TABLES["patterns"])
UNCLEAR = compile_all(_TABLES["unclear"])
MANY_WORDS = 7  # in a row, without one such as "the" or "is", are no sentence


def is_unclear(clause: str, before: str = "") -> bool:
    """Return whether a clause needs more than what precedes it, or loses its sense without "I".

    >>> is_unclear("I won the tournament"), is_unclear("the club is old", "I run a club")
    (True, False)
    """
    if any(pattern.search(clause) for pattern in UNCLEAR.values()):
        return True
    if PATTERNS["number_only"].search(clause) and not before:
        return True
    found = PATTERNS["mentioned"].search(clause)
    if found is None:
        return False
    known = f"{before} {clause[: found.start()]}".lower()
    return found["what"].lower() not in known


def points_outside(statement: str) -> bool:
    """Return whether a pronoun of the statement refers to someone or something else."""
    return PATTERNS["outside"].search(statement) is not None


def is_speech(quoted: str) -> bool:
    """Return whether a quotation is something a person said, and not a title.

    >>> is_speech("I hate my job"), is_speech("Low Water")
    (True, False)
    """
    return bool(PATTERNS["person"].search(quoted)) or quoted.count(" ") > 5


def resolve(statement: str) -> str:
    """Replace "he", "she" and "they" by the only person or people that are named before.

    >>> resolve("My son Leo is six, he loves his bike; they race")
    "My son Leo is six, Leo loves Leo's bike; they race"
    """
    statement = _replace_pronouns(statement, PATTERNS["one_person"], PATTERNS["he_or_she"])
    return _replace_pronouns(statement, PATTERNS["people"], PATTERNS["they"])


def _replace_pronouns(statement: str, people: re.Pattern[str], pronouns: re.Pattern[str]) -> str:
    first = pronouns.search(statement)
    if first is None:
        return statement
    named = people.finditer(statement, 0, first.start())
    names = {match[match.lastgroup or 0] for match in named}
    if len(names) != 1:
        return statement
    (name,) = names
    return pronouns.sub(lambda match: possessive(name) if match["of"] else name, statement)


def lists_words(statement: str) -> bool:
    """Return whether a text is many words in a row that form no sentence.

    >>> lists_words("tea milk kettle train ship water violin garden"), lists_words("no gluten")
    (True, False)
    """
    words = statement.lower().split()
    is_plain = all(word.isalnum() for word in words)
    return is_plain and len(words) >= MANY_WORDS and ENGLISH.isdisjoint(words)
