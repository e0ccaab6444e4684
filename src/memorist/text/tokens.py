"""Derive from a text what keyword search stores: its words and terms.

The language of a text is told by its script, its function words and its letters. Words are Unicode
words, casefolded. Scripts without spaces (Han, Kana, Hangul, Thai, Lao, Khmer, Burmese) are split
into pairs of neighboring characters. The rest is stemmed by the language of its script. The result is
the same on every platform. Raise `ANALYSIS` when stored terms and flags have to be computed again.
"""

import importlib
import math
import re
import struct
import threading
import tomllib
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..types import GUILD, Memory
from . import clock

ANALYSIS = 5  # raise it to have stored terms, flags and fingerprints computed again on opening
LONGEST = 64  # a longer word is cut: it is not searched for, and stemmers slow down on it
LONGEST_FACT = 220
LONGEST_EVIDENCE = 180  # characters that are embedded
_MOST_COUNTED = 255  # a term counts at most this often in one text

# Languages that have a script to themselves, or nearly so.
SCRIPTS = {
    "greek": "[\u0370-\u03ff\u1f00-\u1fff]",
    "russian": "[\u0400-\u052f]",
    "armenian": "[\u0530-\u058f]",
    "arabic": "[\u0600-\u077f]",
    "hindi": "[\u0900-\u097f]",
    "tamil": "[\u0b80-\u0bff]",
    "cjk": "[\u3040-\u30ff\u3400-\u9fff]",
}
OTHER = "other"  # a language without function words or stems here
_MOST_READ = 80  # words that tell the language
_LETTER = 0.5  # how much a letter counts, against a function word
_LEAST = 0.1  # share of the words that speak for another language, if none is English
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
STOP_WORDS = {name: frozenset(words.split()) for name, words in _TABLES["words"].items()}
_ENGLISH_WORDS = frozenset(_TABLES["recognized"]["english"].split())
_LETTERS = {
    letter: names.split() for letters, names in _TABLES["letters"].items() for letter in letters
}

# Python's \w leaves out combining marks, which would split Hindi, Thai or decomposed Latin words.
_MARKS = "".join(
    r"""
    \u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a
    \u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0730-\u074a
    \u07eb-\u07f3\u0816-\u082d\u08d3-\u08ff\u0900-\u0903\u093a-\u093c\u093e-\u094f\u0951-\u0957
    \u0962\u0963\u0981-\u0983\u09bc-\u09d7\u09e2\u09e3\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71
    \u0a75\u0a81-\u0a83\u0abc-\u0acd\u0ae2\u0ae3\u0afa-\u0aff\u0b01-\u0b03\u0b3c-\u0b57\u0b62
    \u0b63\u0b82\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3c-\u0c56\u0c62\u0c63\u0c81-\u0c83
    \u0cbc-\u0cd6\u0ce2\u0ce3\u0d00-\u0d03\u0d3b-\u0d4d\u0d57\u0d62\u0d63\u0d81-\u0d83
    \u0dca-\u0ddf\u0df2\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece
    \u0f18\u0f19\u0f35-\u0f39\u0f3e\u0f3f\u0f71-\u0f84\u0f86\u0f87\u0f8d-\u0fbc\u102b-\u103e
    \u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f
    \u109a-\u109d\u17b4-\u17d3\u17dd\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u302a-\u302f\u3099
    \u309a\ufe20-\ufe2f
    """.split()
)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")
# Sorting long runs of marks is quadratic in the normalizer.
_MARK_RUN = re.compile(f"([{_MARKS}]{{4}})[{_MARKS}]+")
# Possessive quantifiers: linear time.
_WORD = re.compile(rf"(?:\d++(?:[.,:]\d++)*+|\w)[\w{_MARKS}]*+(?:['’][\w{_MARKS}]++)*+")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")
_UNSPACED = "".join(
    r"""
    \u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f
    \u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff
    \U00020000-\U000323af
    """.split()
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}{_MARKS}]+|[^{_UNSPACED}]+")
_CLUSTER = re.compile(f".[{_MARKS}]*", re.DOTALL)
_CJK = re.compile(f"[{_UNSPACED}]+")
_ACCENT = re.compile("[\u0300-\u036f]")
# French and Italian join articles and pronouns to the next word.
_JOINED = re.compile("(?:[cdjlmnst]|qu|un|dell|nell|all|dall|sull|quell)'(?=\\w)")
# A Snowball stemmer has the current word as its state, so threads cannot share one.
_stemmers = threading.local()


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text as a set.

    >>> sorted(word_set("tea milk"))
    ['milk', 'tea']
    """
    return frozenset(words.split())


def word_table(lines: str) -> dict[str, str]:
    """Map each word to the key that its line begins with.

    >>> word_table("two: pair couple; six: half-dozen".replace(";", chr(10)))
    {'pair': 'two', 'couple': 'two', 'half-dozen': 'six'}
    """
    table: dict[str, str] = {}
    for line in lines.strip().splitlines():
        key, _, words = line.partition(":")
        table |= dict.fromkeys(words.split(), key.strip())
    return table


def word_groups(groups: str) -> dict[str, str]:
    """Map each word of slash-separated groups to the first word of its group.

    >>> word_groups("big large/mom mum")
    {'big': 'big', 'large': 'big', 'mom': 'mom', 'mum': 'mom'}
    """
    table: dict[str, str] = {}
    for group in groups.split("/"):
        words = group.split()
        table |= dict.fromkeys(words, words[0])
    return table


def load_patterns(module: str) -> dict[str, Any]:
    """Read tables of regular expressions from the TOML file next to a module.

    A long expression may span several lines; line breaks and indentation are removed. `{name}`
    stands for the expression of that name in the table `parts`, which comes first.
    """
    path = Path(module).with_suffix(".toml")
    tables = tomllib.loads(path.read_text("utf-8"))

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            for name in value:
                value[name] = fill(value[name])
        if isinstance(value, list):
            return [fill(each) for each in value]
        if isinstance(value, str):
            flat = re.sub(r"(?:^|\n)\s*", "", value)
            return re.sub(r"\{([a-z_]+)\}", lambda part: tables["parts"][part[1]], flat)
        return value

    fill(tables)
    return tables


def compile_all(table: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Compile the regular expressions of a table."""
    return {name: re.compile(pattern) for name, pattern in table.items()}


ROLES = word_set("user assistant system tool human ai bot agent model developer")
# Stop words.
ENGLISH = word_set("""
    a about am an and any are aren't as at be because been being but by can can't cannot could
    couldn't did didn't do does doesn't doing don't for from had hadn't has hasn't have haven't
    having he he'd he'll he's her here hers herself him himself his how how's i i'd i'll i'm
    i've if in into is isn't it it's its itself just let's me might more most must my myself no
    nor not of on or our ours ourselves shall she she'd she'll she's should shouldn't so some
    such than that that's the their theirs them themselves then there there's these they they'd
    they'll they're they've this those to too us very was wasn't we we'd we'll we're we've were
    weren't what what's when when's where where's which while who who's whom whose why why's
    will with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
    d ll m re s t ve
    """)


def words(text: str) -> list[str]:
    """Return the words of a text: lower case, stop words kept, not stemmed.

    >>> words("Don’t forget: 3.5 km, Café Zoë!")
    ["don't", 'forget', '3.5', 'km', 'café', 'zoë']
    >>> words("我喜欢茶 and サッカー")
    ['我喜', '喜欢', '欢茶', 'and', 'サッ', 'ッカ', 'カー']
    """
    if text.isascii():
        plain = text.lower().replace("_", " ")
        return [word[:LONGEST] for word in _WORD.findall(plain)]
    visible = _INVISIBLE.sub("", text)
    short = _MARK_RUN.sub(r"\1", visible)
    folded = unicodedata.normalize("NFKC", short).casefold()
    folded = unicodedata.normalize("NFKC", folded)
    folded = folded.replace("_", " ").replace("’", "'")
    if not _CJK.search(folded):
        return [word[:LONGEST] for word in _WORD.findall(folded)]
    found: list[str] = []
    for word in _WORD.findall(folded):
        if not _CJK.search(word):
            found.append(word[:LONGEST])
            continue
        for run in _UNSPACED_RUN.findall(word):
            clusters = _CLUSTER.findall(run) if _CJK.match(run) else [run[:LONGEST]]
            pairs = map("".join, pairwise(clusters))
            found += [*pairs] or clusters
    return found


def find_script(word: str) -> str:
    """Return the language of the script that a word begins with; OTHER if it is not known here.

    >>> find_script("собака"), find_script("ไทย")
    ('russian', 'other')
    """
    for name, letters in SCRIPTS.items():
        if re.match(letters, word):
            return name
    return OTHER


@lru_cache(maxsize=1 << 14)
def _spoken_in(word: str) -> tuple[tuple[str, float], ...]:
    """Return the languages that a word speaks for, and how much."""
    if word[0] > "\u024f":
        return ((find_script(word), 1.0),)
    found = {name: 1.0 for name, words in STOP_WORDS.items() if word in words}
    if word in _ENGLISH_WORDS:
        found["english"] = 1.0
    if not found and not word.isascii():
        for letter in word:
            found |= dict.fromkeys(_LETTERS.get(letter, ()), _LETTER)
        found = found or {OTHER: _LETTER}
    return tuple(found.items())


def detect_language(words: Sequence[str], default: str = "english") -> str:
    """Return the language of a text, given its words; the default if nothing speaks for another.

    >>> detect_language(["mein", "hund", "heißt", "bello"])
    'german'
    >>> detect_language(["rubber", "duck"])
    'english'
    """
    votes: defaultdict[str, float] = defaultdict(float)
    for languages in map(_spoken_in, words[:_MOST_READ]):
        for name, weight in languages:
            votes[name] += weight
    most = max(votes.values(), default=0.0)
    if most < max(1.0, _LEAST * min(len(words), _MOST_READ)):
        return default
    names: tuple[str, ...] = (default, *STOP_WORDS, *votes)  # of equals, the first
    return next(name for name in names if votes.get(name) == most)


def analyze(text: str, language: str = "english") -> list[str]:
    """Return the terms of a text: words without stop words, stemmed by the language of their
    script.

    >>> analyze("When did Caroline's sisters go hiking in 2,000 BC?")
    ['carolin', 'sister', 'go', 'hike', '2000', 'bc']
    >>> analyze("Она любит собак", "russian")
    ['люб', 'собак']
    """
    return _reduce(words(text), language)


def analyze_spoken(text: str, default: str = "english") -> list[str]:
    """Return the terms of a text by its own language, or the default if nothing tells it.

    >>> analyze_spoken("Wo wohnen meine Schwestern?"), analyze_spoken("Where do my sisters live?")
    (['wohn', 'schwest'], ['sister', 'live'])
    """
    return reduce_spoken(words(text), default)


def reduce_spoken(spoken: list[str], default: str) -> list[str]:
    """Return the terms of the words of a text."""
    return _reduce(spoken, detect_language(spoken, default))


def _reduce(spoken: list[str], language: str) -> list[str]:
    """Return words without stop words and endings."""
    if language in ("french", "italian"):
        spoken = [_JOINED.sub("", word, count=1) for word in spoken]
    stopped = ENGLISH if language == "english" else STOP_WORDS.get(language, frozenset())
    return [_term(word, language) for word in spoken if word not in stopped]


@lru_cache(maxsize=1 << 16)
def _term(word: str, language: str) -> str:
    """Return a word without its ending, by the language of its script."""
    code = ord(word[0])
    if word[0].isdigit():
        return word.replace(",", "") if _GROUPED.fullmatch(word) else word
    spoken = language
    if code >= 0x250 and not 0x1E00 <= code < 0x1F00:
        spoken = find_script(word)
        if spoken in ("cjk", OTHER):
            return word
    elif language in SCRIPTS or language == OTHER:
        spoken = "english"
    known = _stemmers.__dict__
    if spoken not in known:
        # Not snowballstemmer.stemmer(): that prefers PyStemmer, whose version may stem differently.
        module = importlib.import_module(f"snowballstemmer.{spoken}_stemmer")
        title = spoken.title().replace("_", "")
        known[spoken] = getattr(module, f"{title}Stemmer")()
    if spoken == "english":
        word = word.removesuffix("'s")
    stem: str = known[spoken].stemWord(word)
    if code >= 0x250 or stem.isascii():
        return stem
    decomposed = unicodedata.normalize("NFKD", stem)
    return _ACCENT.sub("", decomposed)


@lru_cache(maxsize=1 << 16)
def term_id(stem: str) -> int:
    """Return a stable 32-bit number for a term.

    >>> term_id("carolin")
    1530245110
    """
    return zlib.crc32(stem.encode("utf-8", "surrogatepass"))


def count_tokens(text: str) -> int:
    """Estimate how many tokens a text is for a language model, erring on the high side.

    >>> count_tokens("I live in the Netherlands."), count_tokens("我喜欢茶"), count_tokens("")
    (8, 5, 0)
    """
    plain = len(text.encode("ascii", "ignore"))
    unspaced = 0 if text.isascii() else sum(map(len, _CJK.findall(text)))
    other = len(text) - plain - unspaced
    estimate = 1.1 * (plain / 4 + unspaced + other / 2)
    return math.ceil(round(estimate, 6))


def sparse_text(
    text: str,
    speaker: str | None = None,
    occurred_at: datetime | None = None,
) -> str:
    """Return the text that keyword search indexes: a question often names who spoke and when.

    >>> sparse_text("I went to the beach.", "Caroline", datetime(2023, 5, 8))
    '[8 May 2023] Caroline: I went to the beach.'
    >>> sparse_text("I went to the beach.", "user")
    'I went to the beach.'
    """
    if speaker and speaker.casefold() not in ROLES:
        text = f"{speaker}: {text}"
    if occurred_at:
        month = clock.MONTHS[occurred_at.month - 1].title()
        text = f"[{occurred_at.day} {month} {occurred_at.year}] {text}"
    return text


def terms_of(memory: Memory, language: str, spoken: list[str] | None = None) -> bytes:
    """Pack the terms of everything that a question may name: words, tags, speaker, date.

    `spoken` are the words of its text, if they are known.
    """
    about = sparse_text("", memory.speaker, memory.occurred_at)
    terms = analyze(about, language)
    terms += reduce_spoken(words(memory.text) if spoken is None else spoken, language)
    if memory.tags:
        tags = " ".join(memory.tags)
        terms += set(analyze(tags, language)).difference(terms)
    return pack(map(term_id, terms))


def pack(terms: Iterable[int]) -> bytes:
    """Pack the 32-bit ids of terms, sorted, then how often each occurs, one byte each.

    >>> unpack(pack([7, 3, 7]))
    (array([3, 7], dtype=uint32), array([1, 2], dtype=uint8))
    """
    counts = Counter(terms)
    ids = sorted(counts)
    frequencies = [min(counts[id], _MOST_COUNTED) for id in ids]
    return struct.pack(f"<{len(ids)}I", *ids) + bytes(frequencies)


def unpack(packed: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Reverse `pack`."""
    count = len(packed) // 5
    terms = np.frombuffer(packed, dtype="<u4", count=count)
    frequencies = np.frombuffer(packed, dtype=np.uint8, offset=4 * count)
    return terms, frequencies


def meaning_of(memory: Memory) -> str:
    """Return the text to embed; for a fact of a guild with its type and its evidence."""
    if memory.scope.user != GUILD or memory.fact_type is None:
        return memory.text
    text = f"type: {memory.fact_type}\nfact: {memory.text[:LONGEST_FACT]}"
    if memory.evidence_text:
        text += f"\nevidence: {memory.evidence_text[:LONGEST_EVIDENCE]}"
    return text
