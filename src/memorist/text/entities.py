"""Detect names and topics in a text by how words are written and by short lists of words.

People, organizations, places and products stand out by their capitals, so this works for languages
that capitalize names and finds nothing in the others; German nouns look like names to it. The lists
are English and were written by hand for this project: they say whether a word is common, technical
or a given name, not how often it occurs.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .clock import MONTHS, WEEKDAYS
from .tokens import ENGLISH, word_set

MOST_TOPICS = 12
MOST_ENTITIES = 8
TECHNICAL_FROM = 0.25  # mean rarity of the words
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


class Entity(NamedTuple):
    """A name or topic as it is written, and how sure the detector is."""

    text: str
    confidence: float  # 0 a guess … 1 certain


_NOTHING = Entity("", 0.0)


class _Form(NamedTuple):
    """A word, and what can be told without its neighbors."""

    text: str
    is_long: bool
    is_shouted: bool
    is_name_like: bool
    is_unnamed: bool  # no name, even with a capital
    is_everyday: bool
    is_possible: bool  # it can be a part of a name


class _Word(NamedTuple):
    form: _Form
    starts_sentence: bool
    joined: bool  # only a blank stands between this word and the one before

    @property
    def text(self) -> str:
        return self.form.text


COMMON = word_set(_TABLES["common"])
TECHNICAL = word_set(_TABLES["technical"])
TECHNICAL_WORDS = word_set("api async postgresql docker kubernetes vector embedding token schema")
GIVEN_NAMES = word_set(_TABLES["given_names"])

_LONGEST_WORD = 64  # longer ones are noise, and would make the patterns slow
_CODE_SHAPE = re.compile(
    r"\b(?:\w*[a-z][A-Z]\w*|[A-Z]{2,}[a-z]\w+|\w+_\w+|\w+\.[a-z]{1,5}\d?"
    r"|(?>\w*?[a-z])\w*?\d\w*|\w+(?:\+\+|#))"
)
_TECHNICAL_ENDING = re.compile(
    r"\b\w{3,}(?:potent|ential|ization|isation|ology|metric|ware|base|sync|izer|iser|ector|gorithm"
    r"|byte|script)s?"
)
_CODE_WORD = re.compile(r"[^\W_](?:[\w.-]*\w|\+\+|#)?(?:['’]\w+)?")
_ENDINGS = "ing est ers ies ied es ed er ly s".split()
_WORD = re.compile(r"(?<![\w.])@[^\W_]\w{0,60}|[^\W_][\w'’&+#-]{0,60}")
_PHRASE_WORD = re.compile(r"[^\W\d_][\w'’-]{0,60}|[^\s\w]|\n|\d+")
# Their full stop does not end a sentence.
_ABBREVIATED = word_set("Dr Mr Mrs Ms Prof St Mme Herr Sr Jr")
_POSSESSIVE = re.compile(r"['’]s?$|(?<![-&'’])[-&'’]+$")
_SENTENCE_START = re.compile(r"""[.!?…:;\n•*>|/"“„(\[][\s"“„'‘(\[*_#>-]{0,20}$""")
_HANDLE = re.compile(r"@\w{2,40}")
_HUMPS = re.compile(
    r"\b(?:[a-z]{1,12}[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]{2,}\w*|[A-Z]\w*-?\d\w*)"
)
_ACRONYM = re.compile(r"[A-Z][A-Z&]{1,5}s?")
_PARTICLES = word_set("of de del della di da du la le van von der den ter bin ibn al el y")
_NO_ACRONYM = word_set(
    "OK AM PM FYI LOL ASAP BTW IMO IMHO OMG BRB TBD TBH NB PS EG IE NO YES AND OR NOT"
)
_SPEAKERS = word_set("i i'm i've i'll i'd im user assistant system")
_UNNAMED = ENGLISH.union(MONTHS, WEEKDAYS)  # not names, even with a capital
# Words that are never a topic: parts of dates, words of chats, and forms of verbs.
_EMPTY = _UNNAMED | _SPEAKERS | word_set(_TABLES["empty"])
_VERBS = word_set(_TABLES["verbs"])


@lru_cache(maxsize=1 << 14)
def is_common(word: str) -> bool:
    """Return whether a lower-case word, or its base form, is an everyday word.

    >>> is_common("walking"), is_common("cats"), is_common("idempotent")
    (True, True, False)
    """
    if word in COMMON:
        return True
    bare = word.removesuffix("'s").replace("'", "")
    return not COMMON.isdisjoint(_base_forms(bare))


@lru_cache(maxsize=1 << 14)
def rarity(word: str) -> float:
    """Return how rare a word is: 0 if everyday, 1 if technical.

    >>> rarity("endpoints"), rarity("parseTree"), rarity("dinner")
    (1.0, 1.0, 0.0)
    """
    lower = word.lower()
    if len(word) > _LONGEST_WORD:
        return 0.2
    if _CODE_SHAPE.fullmatch(word):
        return 1.0
    if not TECHNICAL.isdisjoint(_base_forms(lower)):
        return 1.0
    if is_common(lower) or lower.isdecimal():
        return 0.0
    # Unknown words are names, from another language, or rarer.
    return 1.0 if _TECHNICAL_ENDING.fullmatch(lower) else 0.2


def is_technical(text: str) -> bool:
    """Return whether a text without links is technical, by how rare its words are on average.

    >>> is_technical("The gRPC gateway retries idempotent PUTs"), is_technical("We had dinner")
    (True, False)
    """
    found = _CODE_WORD.findall(text)
    lower = list(map(str.lower, found))
    if not TECHNICAL_WORDS.isdisjoint(lower):
        return True
    rarities = [rarity(word) for word, low in zip(found, lower, strict=True) if low not in ENGLISH]
    return bool(rarities) and sum(rarities) / len(rarities) >= TECHNICAL_FROM


def _base_forms(word: str) -> list[str]:
    """Return a word and its possible forms without an ending."""
    found = [word]
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2:
            found += (stem, f"{stem}e", f"{stem}y")
            if stem[-1] == stem[-2]:
                found.append(stem[:-1])
    return found


def entities(text: str) -> list[Entity]:
    """List the names in a text without links, each once, in the order of their first mention.

    >>> text = "Yesterday Anna Weber from ACME showed us GitHub in Lisbon. Nice!"
    >>> [entity.text for entity in entities(text)]
    ['Anna Weber', 'ACME', 'GitHub', 'Lisbon']
    """
    words = _find_words(text)
    known = set()  # names inside a sentence, where a capital means something
    for form, starts_sentence, _ in words:
        if starts_sentence or form.is_unnamed or not form.is_name_like:
            continue
        if not form.is_everyday:
            known.add(form.text)
    best: dict[str, Entity] = {}
    for name in _names(words):
        confidence = _confidence(name, known)
        found = Entity(" ".join(word.text for word in name), confidence)
        key = found.text.casefold()
        if confidence > best.get(key, _NOTHING).confidence:
            best[key] = found
    return list(best.values())


def _find_words(text: str) -> list[_Word]:
    """Return the words that can be a part of a name, and note which begin a sentence."""
    found: list[_Word] = []
    end = 0
    longer = 0
    shouted = 0
    before: _Form | None = None
    for match in _WORD.finditer(text):
        form = _read_form(match[0])
        longer += form.is_long
        shouted += form.is_shouted
        if form.is_possible:
            start = match.start()
            gap = text[max(end, start - 24) : start]
            if gap == ". " and before is not None and before.text in _ABBREVIATED:
                gap = " "
            is_next = gap == " "
            is_first = before is None or (not is_next and bool(_SENTENCE_START.search(gap)))
            is_joined = is_next and before is not None and before.is_possible
            found.append(_Word(form, is_first, is_joined))
        before = form
        end = match.end()
    if longer > 2 and shouted > 0.6 * longer:  # capitals mean nothing here
        return [word for word in found if word.text.startswith("@")]
    return found


@lru_cache(maxsize=1 << 14)
def _read_form(found: str) -> _Form:
    text = found if found.isalnum() else _POSSESSIVE.sub("", found)
    is_long = len(text) > 1
    is_name_like = _is_name_like(text)
    return _Form(
        text=text,
        is_long=is_long,
        is_shouted=is_long and text.isupper(),
        is_name_like=is_name_like,
        is_unnamed=text.lower() in _UNNAMED,
        is_everyday=_is_everyday(text),
        is_possible=is_name_like or text in _PARTICLES or text.startswith("@"),
    )


def _is_name_like(text: str) -> bool:
    if text.lower() in _SPEAKERS:
        return False
    return text[0].isupper() or bool(_HUMPS.fullmatch(text))


def _is_everyday(text: str) -> bool:
    return text[1:].islower() and is_common(text.lower())


def _names(words: list[_Word]) -> Iterator[list[_Word]]:
    """Yield runs of neighboring words that may form one name; "of" only inside a run.

    A run is split where a word has its capital only by its place in the sentence or the calendar.
    """
    run: list[_Word] = []
    runs = [run]
    followers: list[_Word | None] = [*words[1:], None]
    for word, following in zip(words, followers, strict=False):
        form = word.form
        continues = form.is_name_like and not word.starts_sentence
        is_plain = form.is_unnamed
        if word.starts_sentence:
            is_plain |= form.is_everyday
        if form.text in _PARTICLES:
            is_plain = False
            if following is not None and following.joined:
                continues |= following.form.is_name_like
        is_inside = bool(run) and word.joined and continues
        if is_plain or not is_inside:
            run = []
            runs.append(run)
        if not is_plain and (is_inside or form.is_name_like or form.text.startswith("@")):
            run.append(word)
    for name in runs:
        while name and name[-1].text in _PARTICLES:
            name.pop()
        if name:
            yield name


def _confidence(words: list[_Word], known: set[str]) -> float:
    """Return how sure it is that words are a name; 0 if they are not."""
    first = words[0].text
    if all(word.form.is_everyday for word in words):
        return 0.6 if len(words) > 1 else 0.0  # "Red Cross", but not the emphasis in "so Good"
    if len(words) > 1 or _HANDLE.fullmatch(first):
        return 0.9
    if _ACRONYM.fullmatch(first):
        return 0.0 if first in _NO_ACRONYM else 0.7
    if _HUMPS.fullmatch(first):
        return 0.8
    given_name, *_ = first.lower().split("-")
    if given_name in GIVEN_NAMES:
        return 0.9
    is_unsure = len(first) < 2 or (words[0].starts_sentence and first not in known)
    return 0.0 if is_unsure else 0.8


def keyphrases(text: str) -> list[Entity]:
    """List what a text without links is about: runs of up to three uncommon words, the most
    telling first.

    >>> text = "Our gateway logs failed payments. Failed payments are retried."
    >>> [phrase.text for phrase in keyphrases(text)]
    ['gateway logs failed', 'failed payments', 'payments', 'retried']
    >>> [phrase.text for phrase in keyphrases("btw kept the parrot till feb, incl. the cage")]
    ['parrot', 'cage']
    """
    counts: Counter[str] = Counter()
    run: list[str] = []
    for topic in map(_to_topic, (*_PHRASE_WORD.findall(text.lower()), ".")):
        if topic:
            run.append(topic)
        elif run:
            for start in range(0, len(run), 3):
                phrase = " ".join(run[start : start + 3])
                counts[phrase] += 1
            run = []
    found = []
    for phrase, count in counts.items():
        length = phrase.count(" ")
        confidence = 0.4 + 0.15 * length + 0.2 * (count > 1)
        found.append(Entity(phrase, min(0.9, confidence)))
    return sorted(found, key=lambda each: -each.confidence)


@lru_cache(maxsize=1 << 14)
def _to_topic(token: str) -> str:
    """Return a token as a word of a topic; empty if it cannot be one."""
    word = token if token.isalnum() else _POSSESSIVE.sub("", token)
    is_empty = len(word) <= 2 or word in _EMPTY or is_common(word)
    return word if not is_empty and _VERBS.isdisjoint(_base_forms(word)) else ""


def about(text: str, names: Iterable[Entity]) -> list[Entity]:
    """List the names and the topics of a text without links, the surest first in each.

    `names` are what `entities` found in it.

    >>> text = "Anna moved to Lisbon for the observatory"
    >>> [one.text for one in about(text, entities(text))]
    ['Anna', 'Lisbon', 'observatory']
    """
    found = sorted(names, key=lambda each: -each.confidence)[:MOST_ENTITIES]
    taken: set[str] = set()
    for name in found:
        taken.update(name.text.casefold().split())
    most = len(found) + MOST_TOPICS
    for phrase in keyphrases(text):
        if not taken.issuperset(phrase.text.casefold().split()):
            found.append(phrase)
    return found[:most]


def tags(found: Iterable[Entity]) -> tuple[tuple[str, ...], float]:
    """Return what detectors found as lower-case tags, and the mean confidence in them.

    The mean is from 0 to 1; 0 if nothing was found.

    >>> tags(entities("Anna moved to Lisbon"))
    (('anna', 'lisbon'), 0.85)
    """
    listed = list(found)
    if not listed:
        return (), 0.0
    mean = sum(confidence for _, confidence in listed) / len(listed)
    bounded = min(1.0, max(0.0, round(mean, 9)))
    return tuple(dict.fromkeys(text.casefold() for text, _ in listed)), bounded
