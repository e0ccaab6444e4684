"""Names and topics in a text, found by how words are written.

People, organizations, places and products stand out by their capitals, so this works for languages
that write names that way and stays silent for the others; German nouns look like names to it.
Anything better plugs in as an `EntityDetector`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from memorist.text.dates import MONTHS, WEEKDAYS
from memorist.text.normalize import remove_links
from memorist.text.wordlists import ENGLISH, GIVEN_NAMES, is_common, word_set

MOST_TOPICS = 12
MOST_ENTITIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A name or topic as it is written, and how sure the detector is."""

    text: str
    confidence: float  # 0 a guess … 1 certain


EntityDetector = Callable[[str], list[Entity]]


class _Word(NamedTuple):
    text: str
    starts_sentence: bool
    joined: bool  # only a blank stands between this word and the one before


_WORD = re.compile(r"(?<![\w.])@[^\W_]\w{0,60}|[^\W_][\w'’&+#-]{0,60}")
_ABBREVIATED = word_set("Dr Mr Mrs Ms Prof St Mme Herr Sr Jr")  # their full stop ends no sentence
_POSSESSIVE = re.compile(r"['’]s?$|[-&'’]+$")
_SENTENCE_START = re.compile(r"""[.!?…:;\n•*>|/"“„(\[][\s"“„'‘(\[*_#>-]{0,20}$""")
_HANDLE = re.compile(r"@\w{2,40}")
_HUMPS = re.compile(
    r"[a-z]{1,12}[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]{2,}\w*|[A-Z]\w*-?\d\w*"
)
_ACRONYM = re.compile(r"[A-Z][A-Z&]{1,5}s?")
_PARTICLES = word_set("of de del della di da du la le van von der den ter bin ibn al el y")
_NO_ACRONYM = word_set(
    "OK AM PM FYI LOL ASAP BTW IMO IMHO OMG BRB TBD TBH NB PS EG IE NO YES AND OR NOT"
)
_CALENDAR = frozenset(MONTHS + WEEKDAYS)
_SPEAKERS = word_set("i i'm i've i'll i'd im user assistant system")
_EMPTY = _CALENDAR | ENGLISH | _SPEAKERS  # words that are never a topic


def entities(text: str) -> list[Entity]:
    """List the names in a text, each once, in the order of their first mention.

    >>> text = "Yesterday Anna Weber from ACME showed us GitHub in Lisbon. Nice!"
    >>> [entity.text for entity in entities(text)]
    ['Anna Weber', 'ACME', 'GitHub', 'Lisbon']
    """
    words = _words(remove_links(text))
    long = [word.text for word in words if len(word.text) > 1]
    if len(long) > 2 and sum(map(str.isupper, long)) > 0.6 * len(long):  # everything is shouted
        words = [word for word in words if word.text.startswith("@")]
    known = set()  # names inside a sentence, where a capital means something
    for word in words:
        is_inside = not word.starts_sentence and _is_name_like(word.text)
        if is_inside and not _is_plain(word) and not _is_everyday(word):
            known.add(word.text)
    best: dict[str, Entity] = {}
    for run in _runs(words):
        for entity in _split_run(run, known):
            key = entity.text.casefold()
            if key not in best or best[key].confidence < entity.confidence:
                best[key] = entity
    return list(best.values())


def _words(text: str) -> list[_Word]:
    found: list[_Word] = []
    end = 0
    for match in _WORD.finditer(text):
        start, stop = match.span()
        before = text[max(end, start - 24) : start]
        if before == ". " and found and found[-1].text in _ABBREVIATED:
            before = " "
        joined = before == " "
        begins = not found or (not joined and bool(_SENTENCE_START.search(before)))
        word = match.group()
        if word[-1] == "s" or not word[-1].isalpha():
            word = _POSSESSIVE.sub("", word)
        found.append(_Word(word, begins, joined))
        end = stop
    return found


@lru_cache(maxsize=1 << 14)
def _is_name_like(text: str) -> bool:
    return (text[0].isupper() or bool(_HUMPS.fullmatch(text))) and text.lower() not in _SPEAKERS


def _is_everyday(word: _Word) -> bool:
    return word.text[1:].islower() and is_common(word.text.lower())


def _is_plain(word: _Word) -> bool:
    """Return whether a word has its capital only by its place in the sentence or the calendar."""
    lower = word.text.lower()
    return lower in _CALENDAR or lower in ENGLISH or (word.starts_sentence and _is_everyday(word))


def _runs(words: list[_Word]) -> Iterator[list[_Word]]:
    """Group neighboring words that may form one name; "of" only between two capitalized words."""
    run: list[_Word] = []
    for word, following in zip(words, [*words[1:], None], strict=False):
        is_name_like = _is_name_like(word.text)
        is_particle = (
            word.text in _PARTICLES
            and following is not None
            and following.joined
            and _is_name_like(following.text)
        )
        continues = is_particle or (is_name_like and not word.starts_sentence)
        if run and word.joined and continues:
            run.append(word)
            continue
        if run:
            yield run
        run = [word] if is_name_like or word.text.startswith("@") else []
    if run:
        yield run


def _split_run(run: list[_Word], known: set[str]) -> Iterator[Entity]:
    """Yield the names in a run of capitalized words, split at common words and the calendar."""
    for is_plain, group in groupby(
        run, key=lambda word: _is_plain(word) and word.text not in _PARTICLES
    ):
        words = list(group)
        while words and words[0].text in _PARTICLES:
            words.pop(0)
        while words and words[-1].text in _PARTICLES:
            words.pop()
        confidence = 0.0 if is_plain or not words else _confidence(words, known)
        if confidence > 0:
            yield Entity(text=" ".join(word.text for word in words), confidence=confidence)


def _confidence(words: list[_Word], known: set[str]) -> float:
    first = words[0]
    if all(map(_is_everyday, words)):  # "Red Cross", but not the emphasis in "so Good"
        return 0.6 if len(words) > 1 else 0.0
    if len(words) > 1 or _HANDLE.fullmatch(first.text):
        return 0.9
    if _ACRONYM.fullmatch(first.text):
        return 0.0 if first.text in _NO_ACRONYM else 0.7
    if _HUMPS.fullmatch(first.text):
        return 0.8
    if first.text.lower().split("-")[0] in GIVEN_NAMES:
        return 0.9
    if len(first.text) < 2 or (first.starts_sentence and first.text not in known):
        return 0.0
    return 0.8


_PHRASE_WORD = re.compile(r"[^\W\d_][\w'’-]{0,60}|[^\s\w]|\n|\d+")


def keyphrases(text: str) -> list[Entity]:
    """List what a text is about: runs of at most three uncommon words, the most telling first.

    >>> text = "Our gateway logs failed payments. Failed payments are retried."
    >>> [phrase.text for phrase in keyphrases(text)]
    ['gateway logs failed', 'failed payments', 'payments', 'retried']
    """
    counts: Counter[str] = Counter()
    run: list[str] = []
    for token in [*_PHRASE_WORD.findall(remove_links(text).lower()), "."]:
        word = _POSSESSIVE.sub("", token)
        if len(word) > 2 and not is_common(word) and word not in _EMPTY:
            run.append(word)
            continue
        counts.update(" ".join(run[i : i + 3]) for i in range(0, len(run), 3))
        run = []
    found = []
    for phrase, count in counts.items():
        confidence = min(0.9, 0.4 + 0.15 * phrase.count(" ") + 0.2 * (count > 1))
        found.append(Entity(text=phrase, confidence=confidence))
    return sorted(found, key=lambda phrase: -phrase.confidence)


def about(text: str, detect: EntityDetector = entities) -> list[Entity]:
    """List the names and the topics of a text, the surest first in each.

    >>> [one.text for one in about("Anna moved to Lisbon for the observatory")]
    ['Anna', 'Lisbon', 'observatory']
    """
    names = sorted(detect(text), key=lambda entity: -entity.confidence)[:MOST_ENTITIES]
    taken = {part for name in names for part in name.text.casefold().split()}
    phrases = keyphrases(text)
    topics = [each for each in phrases if not taken.issuperset(each.text.casefold().split())]
    return [*names, *topics[:MOST_TOPICS]]


def tags(found: Iterable[Entity]) -> tuple[tuple[str, ...], float]:
    """Return what detectors found as tags in lower case, and the mean confidence in them.

    >>> tags(about("Anna moved to Lisbon"))
    (('anna', 'lisbon'), 0.85)
    """
    every = list(found)
    return tuple(dict.fromkeys(one.text.casefold() for one in every)), mean_confidence(every)


def mean_confidence(found: Iterable[Entity]) -> float:
    """Return the mean confidence of what detectors found, from 0 to 1; 0 if they found nothing.

    >>> mean_confidence([Entity(text="a", confidence=1.4), Entity(text="b", confidence=0.2)])
    0.8
    """
    values = [entity.confidence for entity in found]
    return min(1.0, max(0.0, round(sum(values) / len(values), 9))) if values else 0.0
