"""The forms of a text: storable, cleaned, hashed, fingerprinted, compared, split at its verb.

The original text is stored once; every other form is made from it by a function here. All of them
take time linear in its length.

SimHash is a 64-bit fingerprint that changes little when a text changes little. Words and pairs of
neighboring words are hashed with blake2b, so it is the same on every machine. Words alone would not
detect a changed order; longer shingles would miss small edits. A small distance is a hint, not
proof: `compare.values_agree` checks what must not differ.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from unicodedata import category, combining, normalize

import numpy as np
from numpy.typing import NDArray

from .clock import MONTH_NUMBERS, MONTHS
from .tokens import word_set, words

Range = tuple[int, int]  # start and end in a text
LONGEST_RUN_OF_MARKS = 30  # as in Unicode's Stream-Safe Text Format; real text needs fewer than ten
NEAR = 3  # bits that may differ between two fingerprints of one text
_FEW = 8  # fingerprints that are compared one by one
_LONGEST_KEPT = 24  # characters of a word whose hash is cached; a link or a key is not
_BLAKE2B = hashlib.blake2b(digest_size=8)  # a copy of it is faster than another one
_BATCH = 65_536  # features counted at a time: bounds the memory that a long text needs

LINK = re.compile(
    r"""(?i)(?<![A-Za-z0-9])(?:(?:https?|ftp)://|www\.)[^\s<>"“”‘’«»\u2e80-\U0010ffff]+"""
)
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_AUTHOR = rf"(?!(?i:{_MONTH})[a-z]*[ ,.])[A-Z][\w'’.-]{{0,40}}"
_AUTHORS = rf"{_AUTHOR}(?:,? (?:&|and|et al\.?|{_AUTHOR})){{0,8}}"
_YEAR = r"(?:1[5-9]|20)\d\d[a-z]?(?:, ?pp?\. ?[\d–-]{1,12})?"
AUTHOR_YEAR = re.compile(rf"[(\[]{_AUTHORS},? {_YEAR}(?:; {_AUTHORS},? {_YEAR}){{0,8}}[)\]]")
_NUMBERED = re.compile(
    r"""\[\^[\w-]{1,40}\]              # [^3] a footnote
    | \[[1-9]\d{0,2}(?:\s?[,;–-]\s?[1-9]\d{0,2}){0,20}\](?![\w(\[=]|\s?=)  # [12] [3–5], not x[1]=2
    | 【[^】\n]{1,60}】                # 【12†source】
    | \\cite[a-z]{0,8}\{[^}\n]{1,200}\}
    | \[@[\w:-]{1,60}(?:;\s?@[\w:-]{1,60}){0,8}\]
    | :contentReference\[oaicite:\d{1,4}\](?:\{index=\d{1,4}\})?
    | \ue200cite[^\ue201]{1,200}\ue201   # the private-use marks some chat products leave behind""",
    re.VERBOSE,
)
_CITING = ("[", "(", "【", "\\", "\ue200")  # every citation has one of them
_CUSTOM_EMOJI = re.compile(r"<a?:\w{1,64}:\d{1,24}>")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_EMPHASIS = re.compile(r"\*\*+|\*(?=[^\W\d])|(?<=[^\W\d])\*")
_HYPHEN = re.compile(r"(?<=\w)-|-(?!\d)")  # a minus sign comes before a digit
_SIGNS = frozenset("#%&*@/\\-")  # punctuation that makes another word: C#, @ana, a/b
_GAPS = frozenset("`|^")
# Words that begin a sentence without changing what it says.
_LEADS = frozenset(
    """so well ok okay oh um uh hm hmm and but also anyway actually basically yeah yes
    na und aber alors donc mais et pues bueno entonces pero y então mas e""".split()
)
_NEWLINE = re.compile(r"\r\n?")
_MANY_NEWLINES = re.compile(r"\n{3,}")
_PREFACE = re.compile(
    r"""^\W*(?:
    (?:please|pls)[ ](?:remember|note)(?:\s+that|:|,)?\s+
    |(?:please|pls|hey|ok|okay|so|also|again|oh|and|by[ ]the[ ]way|btw|fyi|just[ ]so[ ]you[ ]know
    |(?:as|like)[ ]i[ ]said)[,:]?\s+
    |(?:i[ ]mean|you[ ]know|to[ ]be[ ]honest|of[ ]course),\s+
    |(?:remember|note|keep[ ]in[ ]mind|don['’]?t[ ]forget|reminder|quick[ ]reminder|quick[ ]note
    |for[ ]the[ ]record|for[ ]your[ ]records|in[ ]case[ ]i[ ]forget)(?:\s+that|:|,)\s*
    )+""",
    re.IGNORECASE | re.VERBOSE,
)
LONGEST_CLAUSE = 25  # words of a statement that is split at its verb
_CHANGE = word_set("""
    moved rescheduled postponed changed switched pushed updated shifted delayed now instead
    anymore longer actually correction new current currently any has been got brought forward
    back set scheduled planned again since
    """)
# The lookaheads below only save time: at most places none of the alternatives can begin.
_HOURS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_CLOCK = re.compile(rf"\b(?:at|to|from|until) ({'|'.join(_HOURS[1:])})\b(?! [a-z])")
_MONTH_NAME = "|".join(f"{month[:3]}(?:{month[3:]})?" for month in MONTHS)
_DATE = re.compile(
    rf"(?i)\b(?=[adfjmnost\d])(?:(?P<month>{_MONTH_NAME})\.? (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    rf"|(?:the )?(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month2>{_MONTH_NAME}))\b(?! \d{{4}})"
)
_MOVED = re.compile(
    r"\b(?P<who>I|we|he|she|they|my \w+|[Tt]he user|[A-Z]\w+)"
    r"(?:['’]ve|['’]s| have| has)?(?: just| recently)?"
    r" (?:moved|relocated) to\b"
)
_RECENTLY = re.compile(
    r"(?P<moved> (?:moved|relocated) to .{1,60}?) (?:(?:on|in) "
    r"(?:the week(?:end)? of \d{4}-\d\d-\d\d|\d{4}-\d\d-\d\d|[A-Z][a-z]{2,8} \d{4})"
    r"|(?:last|this|over the) (?:week(?:end)?|month|spring|summer|fall|autumn|winter|[a-z]{3,6}day)"
    r"|yesterday|today)(?!\S*\w)"
)
_JOINED = re.compile(
    r"(?=[ '’])(?:['’]ve|['’]s| have| has)?(?: just| recently)? (?:joined|(?:started|began)(?: working"
    r"| work)? (?:at|for))\b"
)
_VERB = re.compile(
    r"(?i)(?=[\s'’:=])(?:\s(?:is|are|am|costs?|weighs?|earns?|has|have|owns?|lives?|works?|prefers?"
    r"|stays?|studies|study|will be"
    r"|takes? place|starts?|begins?|leaves?|departs?|ends?|goes|opens?|closes?|due)\b"
    r"|(?<=\bi)['’]m\b"
    r"|(?:(?<=\bhe)|(?<=\bshe)|(?<=\bit))['’]s\b|(?:(?<=\bwe)|(?<=\bthey))['’]re\b|\s?[:=]\s)"
)
_SENTENCES = re.compile(r"[.!?;]\s+\S")


class ClauseParts(NamedTuple):
    """A short text, split at its verb, without words such as "now" or "moved"."""

    text: str
    subject: str
    verb: str
    rest: str
    says_changed: bool


def storable(text: str) -> str:
    r"""Return the text as any database can store it: without NUL, lone surrogates as U+FFFD.

    >>> storable("a\x00b \ud83d\ude00 \ud83d!") == "ab \U0001f600 \ufffd!"
    True
    """
    encoded = text.encode("utf-16-le", "surrogatepass")
    whole = encoded.decode("utf-16-le", "replace")
    return whole.replace("\x00", "")


def clean(text: str) -> str:
    r"""Strip, compose to NFC, and leave at most one blank line in a row; formatting and code stay
    as they are.

    >>> clean("  # Cafe\u0301\r\n\n\n\n```\n  x = 1\n```\n") == "# Caf\u00e9\n\n```\n  x = 1\n```"
    True
    """
    lines = compose(_NEWLINE.sub("\n", text))
    return _MANY_NEWLINES.sub("\n\n", lines).strip()


def compose(text: str) -> str:
    r"""Return the NFC form, keeping at most thirty combining marks in a row.

    >>> compose("e\u0301") == "\u00e9", len(compose("e" + "\u0301" * 1000))
    (True, 30)
    """
    if text.isascii():
        return text
    # NFC sorts each run of marks in quadratic time, so runs are cut before; and again after,
    # because some marks decompose.
    composed = normalize("NFC", _limit_marks(text))
    return _limit_marks(composed)


def _limit_marks(text: str) -> str:
    combining_marks = sorted(filter(combining, set(text)))
    marks = "".join(map(re.escape, combining_marks))
    if not marks:
        return text
    run = rf"([{marks}]{{{LONGEST_RUN_OF_MARKS}}})[{marks}]+"
    return re.sub(run, r"\1", text)


def for_hash(text: str) -> str:
    """Return what near-duplicates share: lower case, no links, no citations, single blanks.

    >>> for_hash("Tea  [12] is GOOD (Smith, 2020), see https://tea.example/x?y=1")
    'tea is good , see'
    """
    linkless = remove_links(compose(text))
    bare = remove_citations(linkless)
    return one_line(bare).lower()


def remove_links(text: str) -> str:
    """Replace web addresses by a blank.

    >>> remove_links("see https://a.example/b and www.b.example.")
    'see   and  '
    """
    if "://" not in text and "www." not in text.lower():
        return text
    return LINK.sub(" ", text)


def find_fences(text: str) -> list[Range]:
    """Return where the closed code blocks start and end."""
    fences: list[Range] = []
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        marks, rest = match.groups()
        if opened is None:
            if "`" not in rest:  # ```code``` on one line opens nothing
                opened = match
        elif marks.startswith(opened[1]) and not rest.strip():
            fences.append((opened.start(), match.end()))
            opened = None
    return fences


def remove_citations(text: str) -> str:
    """Remove numbered and author–year citations.

    >>> remove_citations("Sleep matters[1,2] (Walker et al., 2017) in 2020 (May, 2020).")
    'Sleep matters    in 2020 (May, 2020).'
    >>> remove_citations("So it is[12]【3†source】, but x[1] = 2.")
    'So it is  , but x[1] = 2.'
    """
    if not any(mark in text for mark in _CITING):
        return text
    unnumbered = _NUMBERED.sub(" ", text)
    return AUTHOR_YEAR.sub(" ", unnumbered)


def compact(text: str) -> str:
    """Return letters and digits of any script, lower-cased, with single blanks between.

    >>> compact("Ça va? <:wave:42> https://a.example C++ & नमस्ते!")
    'ça va c नमस्ते'
    """
    linkless = remove_links(compose(text))
    bare = _CUSTOM_EMOJI.sub(" ", linkless).lower()
    gaps = {}
    for character in set(bare):
        # Vowel signs of Indic scripts are marks.
        if not character.isalnum() and category(character)[0] != "M":
            gaps[ord(character)] = " "
    return one_line(bare.translate(gaps))


def wording(text: str) -> str:
    """Return what two texts share that a reader would call the same statement.

    Case, sentence punctuation, emphasis, citations and words such as "So" at the beginning do not
    matter; signs and links do.

    >>> wording("So I dislike *Bob*! [1]") == wording("i dislike  bob"), wording("👍")
    (True, '👍')
    >>> wording("It is -5 in C++."), wording("It is 5 in C#, see https://a.example")
    ('it is -5 in c++', 'it is 5 in c# see https //a example')
    """
    bare = _CUSTOM_EMOJI.sub(" ", remove_citations(compose(text))).lower()
    plain = _HYPHEN.sub(" ", _EMPHASIS.sub(" ", bare))
    gaps = {}
    for character in set(plain):
        is_sign = character in _SIGNS or (category(character)[0] in "MS" and character not in _GAPS)
        if not character.isalnum() and not is_sign:
            gaps[ord(character)] = " "
    words = plain.translate(gaps).split()
    start = 0
    for word in words[:-1]:
        if word not in _LEADS and any(map(str.isalnum, word)):
            break
        start += 1
    return " ".join(words[start:]) or one_line(text)


def content_hash(text: str) -> str:
    """Return a hash that is the same for texts that differ only in case and white space.

    >>> content_hash("Tea  time") == content_hash("tea time")
    True
    >>> content_hash("tea") == content_hash("tree")
    False
    """
    return digest(one_line(text).casefold())


def one_line(text: str) -> str:
    r"""Fold every run of whitespace, line breaks included, into one blank.

    >>> one_line(" a\t b\n\nc ")
    'a b c'
    """
    return " ".join(text.split())


def digest(text: str) -> str:
    """Return the SHA-256 of a text; together with its id, it identifies a message."""
    encoded = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(encoded).hexdigest()


def simhash64(text: str) -> int:
    """Return the fingerprint of a text as an unsigned 64-bit number.

    >>> simhash64("I like tea.") == simhash64("i LIKE  tea! https://tea.example")
    True
    >>> (simhash64("I like tea") ^ simhash64("The train leaves at noon")).bit_count() > 3
    True
    """
    found = words(for_hash(text))
    single = Counter(found)
    if not found:  # an emoji or a bare link still has to differ from the next one
        single[one_line(text).lower()] = 1
    pairs = Counter(map(" ".join, pairwise(found)))
    digests = [(_hash_word if len(word) <= _LONGEST_KEPT else _hash)(word) for word in single]
    digests += map(_hash, pairs)
    counts = [*single.values(), *pairs.values()]
    votes = np.zeros(64)
    for start in range(0, len(counts), _BATCH):
        few = slice(start, start + _BATCH)
        bits = np.unpackbits(np.frombuffer(b"".join(digests[few]), np.uint8)).reshape(-1, 64)
        weights = np.array(counts[few], np.float64)  # products of whole numbers take longer
        votes += 2 * (weights @ bits) - weights.sum()
    fingerprint = np.packbits(votes > 0).tobytes()
    return int.from_bytes(fingerprint, "big")


def _hash(feature: str) -> bytes:
    started = _BLAKE2B.copy()
    started.update(feature.encode("utf-8", "surrogatepass"))
    return started.digest()


_hash_word = lru_cache(maxsize=1 << 14)(_hash)  # most pairs of words are new


def find_near(hashes: NDArray[np.uint64], values: Iterable[int]) -> NDArray[np.intp]:
    """Return the positions of the fingerprints that are near to one of the values, ascending.

    Near ones have one of their four parts in common, so only those with such a part are compared.

    >>> find_near(np.array([0b1111, 0b0000, 0b0111], dtype=np.uint64), [0b0000, 0b1111]).tolist()
    [0, 1, 2]
    """
    wanted = np.array(sorted(set(values)), np.uint64)
    is_near = np.zeros(len(hashes), np.bool_)
    if len(wanted) <= _FEW:  # comparing with all of them is faster
        for value in wanted:
            is_near |= np.bitwise_count(hashes ^ value) <= NEAR
        return np.flatnonzero(is_near)
    parts = np.ascontiguousarray(hashes).view(np.uint16).reshape(-1, 4)
    for column, part in enumerate(wanted.view(np.uint16).reshape(-1, 4).T):
        is_asked = np.zeros(1 << 16, np.bool_)
        is_asked[part] = True
        positions = np.flatnonzero(is_asked[parts[:, column]])
        order = np.argsort(part)
        there = parts[positions, column]
        first = np.searchsorted(part, there, "left", sorter=order)
        last = np.searchsorted(part, there, "right", sorter=order)
        for place in range(int((last - first).max(initial=0))):  # those with the same part
            left = first + place < last
            compared = positions[left]
            partners = wanted[order[first[left] + place]]
            is_near[compared] |= np.bitwise_count(hashes[compared] ^ partners) <= NEAR
    return np.flatnonzero(is_near)


def strip_preface(text: str) -> str:
    """Remove an introduction such as "please remember that".

    >>> strip_preface("Please remember that the keys are with Tom")
    'the keys are with Tom'
    """
    return _PREFACE.sub("", text) or text


def split_clause(text: str) -> ClauseParts | None:
    """Split a text at its verb; return None if it is longer than one clause, or a question.

    >>> split_clause("My phone number is 555 0199")[1:4]
    ('My phone number', 'is', '555 0199')
    """
    statement = strip_preface(text.strip())
    if len(statement.split()) > LONGEST_CLAUSE or "?" in statement or _SENTENCES.search(statement):
        return None

    def in_figures(date: re.Match[str]) -> str:
        month = MONTH_NUMBERS[(date["month"] or date["month2"]).lower()[:3]]
        return f"1-{month}-{date['day'] or date['day2']}"

    statement = _CLOCK.sub(lambda match: f"at {_HOURS.index(match[1])}:00", statement)
    statement = _DATE.sub(in_figures, statement)
    statement = _JOINED.sub(" works at", statement)
    statement = _RECENTLY.sub(r"\g<moved>", statement)
    statement, moves = _MOVED.subn(r"\g<who> lives in", statement)
    if moves:
        statement = statement.partition(",")[0]
    kept = [word for word in statement.split() if word.strip(",.!").lower() not in _CHANGE]
    bare = " ".join(kept)
    match = _VERB.search(f" {bare}")
    start, end = match.span() if match else (len(bare), len(bare) + 1)
    return ClauseParts(
        text=bare,
        subject=bare[:start].strip(" ,."),
        verb=match[0].strip().lower() if match else "",
        rest=bare[end - 1 :].strip(" ,."),
        says_changed=bare != statement,
    )
