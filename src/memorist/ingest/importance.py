"""How much a text is worth remembering, from 0 (skip) to 1 (vital).

Each specification has its own measure; `unified` takes the highest, so that what one of them values is not lost by
another. Every measure is a pure function of a text or of numbers.
"""

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memorist.ingest.classify_rules import (
    is_chit_chat,
    is_commitment_or_goal,
    is_preference,
    preference_signal,
)
from memorist.text.entities import EntityDetector, entities
from memorist.text.normalize import remove_links
from memorist.text.wordlists import ENGLISH, is_common, word_set
from memorist.text.wordlists import is_technical as is_of_the_trade

CONFIDENT_FROM = 0.6  # tags found with this confidence count in theoria
TECHNICAL_FROM = 0.25  # mean rarity of the words
TECHNICAL_WORDS = word_set("api async postgresql docker kubernetes vector embedding token schema")

_NUMBER_OR_DATE = re.compile(
    r"\d|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:january|february|april|june|july|august|september|october|november|december)\b"
    r"|\b(?:in|since|until|by|of|last|next|this|early|late|mid) (?:march|may)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_](?:[\w.-]*\w|\+\+|#)?(?:['’]\w+)?")
_CODE_SHAPE = re.compile(
    r"\w*[a-z][A-Z]\w*|[A-Z]{2,}[a-z]\w+|\w+_\w+|\w+\.[a-z]{1,5}\d?|\w*[a-z]\w*\d\w*|\w+(?:\+\+|#)"
)
_LONGEST_WORD = 64  # longer ones are noise, and would make the patterns slow
_TECHNICAL_ENDING = re.compile(
    r"\w{3,}(?:potent|ential|ization|isation|ology|metric|ware|base|sync|izer|iser|ector|gorithm|byte|script)s?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Salience:
    """The signals in a text, each with what it adds."""

    entity: float = 0.0
    number: float = 0.0
    preference: float = 0.0
    technical: float = 0.0

    @property
    def total(self) -> float:
        return min(1.0, round(self.entity + self.number + self.preference + self.technical, 9))


def novelty(vector: NDArray[np.float32], centroid: NDArray[np.float32] | None) -> float:
    """Return the cosine distance to what is already known, from 0 to 1; without anything known, 1.

    The centroid may be a plain sum of vectors: only its direction counts.

    >>> novelty(np.array([1.0, 0.0]), np.array([3.0, 0.0])), novelty(np.array([1.0, 0.0]), None)
    (0.0, 1.0)
    """
    if centroid is None:
        return 1.0
    lengths = float(np.linalg.norm(vector)) * float(np.linalg.norm(centroid))
    if lengths == 0.0 or not math.isfinite(lengths):
        return 1.0
    return _clamp(1.0 - float(np.dot(vector, centroid)) / lengths)


def salience(text: str, extra: Collection[str] = (), detect: EntityDetector = entities) -> Salience:
    """Look for a name, a number or date, a preference and technical terms; `extra` adds preference phrases.

    >>> salience("I prefer tea in Lisbon at 4"), salience("I prefer tea in Lisbon at 4").total
    (Salience(entity=0.3, number=0.2, preference=0.4, technical=0.0), 0.9)
    """
    return Salience(
        entity=0.3 if detect(text) else 0.0,
        number=0.2 if has_number_or_date(text) else 0.0,
        preference=0.4 if preference_signal(text, extra) else 0.0,
        technical=0.1 if is_technical(text) else 0.0,
    )


def has_number_or_date(text: str) -> bool:
    """Does the text hold a figure, a weekday or a month?

    >>> has_number_or_date("see you on Monday"), has_number_or_date("it may rain"), has_number_or_date("in May")
    (True, False, True)
    """
    return bool(_NUMBER_OR_DATE.search(text))


def is_technical(text: str) -> bool:
    """Is the text technical, judged by how rare its words are on average?

    >>> is_technical("The gRPC gateway retries idempotent PUTs with exponential backoff")
    True
    >>> is_technical("We had dinner with my sister and talked about the holidays")
    False
    """
    found = _WORD.findall(remove_links(text))
    return mean_rarity(found) >= TECHNICAL_FROM or not TECHNICAL_WORDS.isdisjoint(
        map(str.lower, found)
    )


def mean_rarity(found: Iterable[str]) -> float:
    """Return the mean rarity of words: 0 for words of every day, 1 for words of the trade; stop words do not count.

    >>> mean_rarity(["the", "parseTree", "grows"]), mean_rarity([])
    (0.5, 0.0)
    """
    rarities = [_rarity(word) for word in found if word.lower() not in ENGLISH]
    return sum(rarities) / len(rarities) if rarities else 0.0


@lru_cache(maxsize=1 << 14)
def _rarity(word: str) -> float:
    lower = word.lower()
    if len(word) > _LONGEST_WORD:
        return 0.2
    if _CODE_SHAPE.fullmatch(word) or is_of_the_trade(lower):
        return 1.0
    if is_common(lower) or lower.isdecimal():
        return 0.0
    return (
        1.0 if _TECHNICAL_ENDING.fullmatch(lower) else 0.2
    )  # unknown: a name, another language, a rarer word


def vault(novelty: float, salience: float) -> float:
    """Return the importance by the memory logic specification.

    >>> vault(0.5, 0.9)
    0.66
    """
    return _clamp(0.6 * novelty + 0.4 * salience)


def is_kept(importance: float, gate: float, *, on_purpose: bool = False) -> bool:
    """Is a chunk worth storing where less than the gate is not? What a person saved or pinned always is.

    >>> is_kept(0.3, 0.3), is_kept(0.29, 0.3), is_kept(0.0, 0.3, on_purpose=True)
    (True, False, True)
    """
    return on_purpose or importance >= gate


def theoria(
    text: str,
    manually_saved: bool = False,
    metadata_confidence: float = 0.0,
    has_tags: bool = False,
) -> float:
    """Return the importance by Theoria's heuristics.

    >>> theoria("I prefer tea", manually_saved=True), theoria("ok thanks")
    (0.8, 0.0)
    """
    lasting = is_preference(text) or is_commitment_or_goal(text)
    score = (
        0.5 * manually_saved
        + 0.3 * lasting
        + 0.2 * (has_tags and metadata_confidence >= CONFIDENT_FROM)
    )
    return _clamp(score - 0.1 * is_chit_chat(text))


def repeat_boost(repeats: int) -> float:
    """Return what being said again adds to the importance: it grows ever more slowly, up to 0.3.

    >>> [round(repeat_boost(n), 3) for n in (0, 1, 2, 3, 7, 100)]
    [0.0, 0.1, 0.158, 0.2, 0.3, 0.3]
    """
    return min(0.3, 0.1 * math.log2(1 + max(0, repeats)))


def repeated(base: float, repeats: int) -> float:
    """Return the importance of something said `repeats` times more, from its importance at first.

    >>> repeated(0.5, 3), repeated(0.9, 7)
    (0.7, 1.0)
    """
    return _clamp(base + repeat_boost(repeats))


def unified(*measures: float) -> float:
    """Return the highest of the measures, so that nothing one of them values is dropped.

    >>> unified(0.16, 0.3), unified(0.16, 0.3, 0.8)
    (0.3, 0.8)
    """
    return _clamp(max(measures))


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, round(value, 12)))  # rounded, so that 0.1 + 0.2 is 0.3
