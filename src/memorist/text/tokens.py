"""From text to the terms that the sparse leg counts: the same on every platform, in time linear in
the text.

Words are Unicode words, casefolded. Scripts written without spaces (Han, Kana, Hangul, Thai, Lao,
Khmer, Burmese) are cut in pairs of neighbouring characters. The rest is stemmed by the language of
its script. Analysis is part of the index: whoever changes what `analyze` returns has to re-index.
"""

import importlib
import math
import re
import threading
import unicodedata
import zlib
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

from .dates import MONTHS
from .wordlists import ENGLISH

ROLES = frozenset(
    {"user", "assistant", "system", "tool", "human", "ai", "bot", "agent", "model", "developer"}
)
LONGEST = 64  # a longer word is cut: nobody searches for it, and stemmers slow down on it

# Python's \w leaves out combining marks, which would tear Hindi, Thai or decomposed Latin words apart.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0730-\u074a\u07eb-\u07f3\u0816-\u082d\u08d3-\u08ff"
    "\u0900-\u0903\u093a-\u093c\u093e-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09d7\u09e2\u09e3"
    "\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a75\u0a81-\u0a83\u0abc-\u0acd\u0ae2\u0ae3\u0afa-\u0aff\u0b01-\u0b03"
    "\u0b3c-\u0b57\u0b62\u0b63\u0b82\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3c-\u0c56\u0c62\u0c63\u0c81-\u0c83"
    "\u0cbc-\u0cd6\u0ce2\u0ce3\u0d00-\u0d03\u0d3b-\u0d4d\u0d57\u0d62\u0d63\u0d81-\u0d83\u0dca-\u0ddf\u0df2\u0df3"
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u0f18\u0f19\u0f35-\u0f39\u0f3e\u0f3f"
    "\u0f71-\u0f84\u0f86\u0f87\u0f8d-\u0fbc\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d"
    "\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\u17b4-\u17d3\u17dd\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff"
    "\u302a-\u302f\u3099\u309a\ufe20-\ufe2f"
)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_MARK_RUN = re.compile(
    f"([{_MARKS}]{{4}})[{_MARKS}]+"
)  # sorting long runs of marks is quadratic in the normaliser
_WORD = re.compile(
    rf"(?:\d++(?:[.,:]\d++)*+|\w)[\w{_MARKS}]*+(?:['’][\w{_MARKS}]++)*+"
)  # possessive: linear time
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U000323af"
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}{_MARKS}]+|[^{_UNSPACED}]+")
_CLUSTER = re.compile(f".[{_MARKS}]*", re.DOTALL)
_CJK = re.compile(f"[{_UNSPACED}]")
_ACCENT = re.compile("[\u0300-\u036f]")

_LANGUAGE_OF_SCRIPT = (  # first and last character of a script, and the stemmer for it
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x077F, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
    (0x1F00, 0x1FFF, "greek"),
)
_stemmers = (
    threading.local()
)  # a Snowball stemmer keeps its word in itself, so threads cannot share one


def words(text: str) -> list[str]:
    """Return the words of a text: lower case, stop words kept, not stemmed.

    >>> words("Don’t forget: 3.5 km, Café Zoë!")
    ["don't", 'forget', '3.5', 'km', 'café', 'zoë']
    >>> words("我喜欢茶 and サッカー")
    ['我喜', '喜欢', '欢茶', 'and', 'サッ', 'ッカ', 'カー']
    """
    found = _WORD.findall(_folded(text))
    if text.isascii():
        return [word[:LONGEST] for word in found]
    return [piece for word in found for piece in _pieces(word.replace("’", "'"))]


def analyze(text: str, language: str = "english") -> list[str]:
    """Return the terms of a text: words without stop words, stemmed by the language of their
    script.

    >>> analyze("When did Caroline's sisters go hiking in 2,000 BC?")
    ['carolin', 'sister', 'go', 'hike', '2000', 'bc']
    >>> analyze("Она любит собак")
    ['он', 'люб', 'собак']
    """
    stopped = ENGLISH if language == "english" else frozenset()
    return [_term(word, language) for word in words(text) if word not in stopped]


def term_id(stem: str) -> int:
    """Return a stable 32-bit number for a term.

    >>> term_id("carolin")
    1530245110
    """
    return zlib.crc32(stem.encode("utf-8", "surrogatepass"))


def sparse_text(text: str, speaker: str | None = None, occurred_at: datetime | None = None) -> str:
    """Return what the sparse leg indexes: a question often names who spoke and when.

    >>> sparse_text("I went to the beach.", "Caroline", datetime(2023, 5, 8))
    '[8 May 2023] Caroline: I went to the beach.'
    >>> sparse_text("I went to the beach.", "user")
    'I went to the beach.'
    """
    name = f"{speaker}: " if speaker and speaker.casefold() not in ROLES else ""
    day = (
        f"[{occurred_at.day} {MONTHS[occurred_at.month - 1].title()} {occurred_at.year}] "
        if occurred_at
        else ""
    )
    return f"{day}{name}{text}"


def count_tokens(text: str) -> int:
    """Estimate how many tokens a language model makes of a text: rather too many than too few.

    >>> count_tokens("I live in the Netherlands."), count_tokens("我喜欢茶"), count_tokens("")
    (8, 5, 0)
    """
    plain = len(text.encode("ascii", "ignore"))
    unspaced = 0 if plain == len(text) else len(_CJK.findall(text))
    other = len(text) - plain - unspaced
    return math.ceil(round(1.1 * (plain / 4 + unspaced + other / 2), 6))


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower().replace("_", " ")
    short = _MARK_RUN.sub(r"\1", _INVISIBLE.sub("", text))
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", short).casefold()).replace(
        "_", " "
    )


def _pieces(word: str) -> list[str]:
    """Return the word itself, or pairs of characters if its script has no spaces."""
    if word.isascii() or not _CJK.search(word):
        return [word[:LONGEST]]
    return [piece for run in _UNSPACED_RUN.findall(word) for piece in _pairs(run)]


def _pairs(run: str) -> list[str]:
    if not _CJK.match(run):
        return [run[:LONGEST]]
    clusters: list[str] = _CLUSTER.findall(run)
    return [left + right for left, right in pairwise(clusters)] or clusters


@lru_cache(maxsize=1 << 16)
def _term(word: str, language: str) -> str:
    if word[0].isdigit():
        return word.replace(",", "") if _GROUPED.fullmatch(word) else word
    spoken = _language_of(word, language)
    if spoken is None:
        return word
    stem: str = _stemmer(spoken).stemWord(word.removesuffix("'s") if spoken == "english" else word)
    return _ACCENT.sub("", unicodedata.normalize("NFKD", stem)) if ord(word[0]) < 0x250 else stem


def _language_of(word: str, language: str) -> str | None:
    code = ord(word[0])
    if code < 0x250 or 0x1E00 <= code < 0x1F00:
        return (
            language if all(language != other for _, _, other in _LANGUAGE_OF_SCRIPT) else "english"
        )
    return next((name for first, last, name in _LANGUAGE_OF_SCRIPT if first <= code <= last), None)


def _stemmer(language: str) -> Any:
    known = _stemmers.__dict__
    if language not in known:
        # Not snowballstemmer.stemmer(): that prefers PyStemmer if installed, whose version may stem differently.
        module = importlib.import_module(f"snowballstemmer.{language}_stemmer")
        known[language] = getattr(module, f"{language.title().replace('_', '')}Stemmer")()
    return known[language]
