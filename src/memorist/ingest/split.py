"""Cut a text where its meaning is cut: at blank lines, then at sentence ends, then at lines, then at blanks.

Chunks are stretches of the text itself, so nothing is lost but the whitespace between them. A fenced block of code
stays whole while it fits. The work is linear in the text: a stretch is counted when it is made, joined sizes are added
up, and only a sum that passes a limit is counted again.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from unicodedata import combining

MIN_CHUNK_TOKENS = 50
MAX_CHUNK_TOKENS = 300

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_SENTENCE_END = re.compile(r"""[.!?…؟۔।]["'”’»)\]*_]*\s+|[。！？｡．]["'”’»」』）)\]]*\s*""")
_OPENING = "\"'“‘«„([{*_#¿¡「『（"
_LINE = re.compile(r"\n")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_BLANKS = " \n\t\u3000"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    start: int
    end: int
    size: int  # tokens; of a joined piece the sum of its parts, which may be a little more than there are


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutter:
    """A text, what counts as a token in it, and how large its pieces may be."""

    text: str
    count: Callable[[str], int]
    minimum: int
    maximum: int
    fences: Sequence[tuple[int, int]]

    def piece(self, start: int, end: int) -> _Piece:
        return _Piece(start=start, end=end, size=self.count(self.text[start:end].strip()))


def by_meaning(
    text: str,
    count: Callable[[str], int],
    minimum: int = MIN_CHUNK_TOKENS,
    maximum: int = MAX_CHUNK_TOKENS,
) -> list[str]:
    """Cut a text into chunks of `minimum` to `maximum` tokens at the ends of paragraphs and sentences.

    A text shorter than the minimum is one chunk. Only a chunk that no neighbour can take in stays below the minimum.

    >>> words = lambda text: len(text.split())
    >>> by_meaning("One two. Three four five.\\n\\nSix seven eight.\\n\\nNine.", words, minimum=2, maximum=4)
    ['One two.', 'Three four five.', 'Six seven eight.\\n\\nNine.']
    """
    cutter = _Cutter(text=text, count=count, minimum=minimum, maximum=maximum, fences=_fences(text))
    paragraphs = (
        piece for start, end in _paragraphs(cutter) for piece in _fitting(cutter, start, end)
    )
    merged = _merged(cutter, paragraphs)
    whole = [piece for one in merged for piece in _fitting(cutter, one.start, one.end)]
    return [text[piece.start : piece.end].strip() for piece in _balanced(cutter, whole)]


def _fences(text: str) -> list[tuple[int, int]]:
    """Find the fenced blocks of code that are closed."""
    found: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        if opened is None:
            opened = match if "`" not in match[2] else None  # ```code``` on one line opens nothing
        elif match[1].startswith(opened[1]) and not match[2].strip():
            found.append((opened.start(), match.end()))
            opened = None
    return found


def _paragraphs(cutter: _Cutter) -> Iterator[tuple[int, int]]:
    cuts = (match.end() for match in _BLANK_LINE.finditer(cutter.text))
    return _stretches(cutter, 0, len(cutter.text), _outside(cuts, cutter.fences))


def _sentences(cutter: _Cutter, start: int, end: int) -> Iterator[tuple[int, int]]:
    text, fences = cutter.text, cutter.fences
    ends = (match.end() for match in _SENTENCE_END.finditer(text, start, end))
    cuts = (cut for cut in ends if _starts_sentence(text, cut))
    blank = (match.end() for match in _BLANK_LINE.finditer(text, start, end))
    inside = fences[bisect_right(fences, (start,)) : bisect_right(fences, (end,))]
    edges = (edge for fence in inside for edge in fence)
    return _stretches(
        cutter, start, end, sorted({*_outside(cuts, fences), *_outside(blank, fences), *edges})
    )


def _lines(cutter: _Cutter, start: int, end: int) -> Iterator[tuple[int, int]]:
    return _stretches(
        cutter, start, end, (match.end() for match in _LINE.finditer(cutter.text, start, end))
    )


def _starts_sentence(text: str, position: int) -> bool:
    """Does a capital stand here, or a letter of a script without capitals?"""
    start = text[position : position + 4].lstrip(_OPENING)[:1]
    return start.isalpha() and not start.islower()


def _outside(cuts: Iterable[int], fences: Sequence[tuple[int, int]]) -> Iterator[int]:
    for cut in cuts:
        before = bisect_right(fences, (cut,)) - 1
        if before < 0 or cut >= fences[before][1]:
            yield cut


def _stretches(
    cutter: _Cutter, start: int, end: int, cuts: Iterable[int]
) -> Iterator[tuple[int, int]]:
    inner = (cut for cut in cuts if start < cut < end)
    return ((a, b) for a, b in pairwise((start, *inner, end)) if cutter.text[a:b].strip())


def _fitting(cutter: _Cutter, start: int, end: int) -> list[_Piece]:
    """Cut a stretch at the coarsest boundaries that make it fit, and pack what is small."""
    whole = cutter.piece(start, end)
    if whole.size <= cutter.maximum:
        return [whole]
    return [
        piece
        for part in _packed(cutter, _small(cutter, start, end))
        for piece in _checked(cutter, part)
    ]


def _small(cutter: _Cutter, start: int, end: int) -> Iterator[_Piece]:
    for a, b in _sentences(cutter, start, end):
        sentence = cutter.piece(a, b)
        if sentence.size <= cutter.maximum:
            yield sentence
            continue
        for line in (cutter.piece(*line) for line in _lines(cutter, a, b)):
            yield from [line] if line.size <= cutter.maximum else _windows(cutter, line)


def _packed(cutter: _Cutter, pieces: Iterable[_Piece]) -> list[_Piece]:
    packed: list[_Piece] = []
    for piece in pieces:
        joined = _joined(cutter, packed[-1], piece) if packed else None
        packed[-1:] = [joined] if joined else [*packed[-1:], piece]
    return packed


def _joined(cutter: _Cutter, a: _Piece, b: _Piece) -> _Piece | None:
    """Join two neighbours, or return None if that is too large; sums are trusted until they reach a limit."""
    size = a.size + b.size
    joined = _Piece(start=a.start, end=b.end, size=size)
    if size > cutter.maximum or a.size < cutter.minimum <= size:
        joined = cutter.piece(a.start, b.end)
    return joined if joined.size <= cutter.maximum else None


def _checked(cutter: _Cutter, piece: _Piece) -> list[_Piece]:
    """Count what was only added up: a tokenizer may find more in the whole than in its parts."""
    exact = cutter.piece(piece.start, piece.end)
    if exact.size <= cutter.maximum or piece.end - piece.start < 2:
        return [exact]
    cut = _nearest_middle(cutter, piece.start, piece.end)[0]
    halves = (replace(piece, end=cut), replace(piece, start=cut))
    return [part for half in halves for part in _checked(cutter, half)]


def _nearest_middle(cutter: _Cutter, start: int, end: int) -> list[int]:
    """List the best places to cut a stretch in two: between sentences, else between lines, else at a blank."""
    middle = (start + end) // 2
    for parts in (_sentences, _lines):
        cuts = [cut for cut, _ in parts(cutter, start, end)][1:]
        if cuts:
            return sorted(cuts, key=lambda cut: abs(cut - middle))
    return [_blank_before(cutter.text, start, middle)]


def _windows(cutter: _Cutter, piece: _Piece) -> Iterator[_Piece]:
    """Cut a stretch without inner boundaries at blanks, and where there are none between two characters."""
    start, length = piece.start, 4 * cutter.maximum
    while start < piece.end:
        window = _window(cutter, start, piece.end, length)
        if cutter.text[window.start : window.end].strip():
            yield window
        start, length = window.end, max(1, window.end - window.start)


def _window(cutter: _Cutter, start: int, end: int, length: int) -> _Piece:
    """Find a stretch that fits and is nearly full, in a few tries that learn from each other."""
    best: _Piece | None = None
    for attempt in range(64):
        window = cutter.piece(start, _blank_before(cutter.text, start, min(end, start + length)))
        if window.size <= cutter.maximum and (best is None or window.end > best.end):
            best = window
        full = window.size >= 0.9 * cutter.maximum or window.end == end
        if window.end - start == 1 or (best and (full or attempt > 3)):
            break
        slack = 0.97 if attempt < 3 else 0.5
        length = max(1, int((window.end - start) * slack * cutter.maximum / max(1, window.size)))
    return best or window


def _blank_before(text: str, start: int, stop: int) -> int:
    if stop == len(text) or text[stop] in _BLANKS:
        return stop
    blank = max(text.rfind(mark, start, stop) for mark in _BLANKS) + 1
    if blank > start:
        return blank
    letters = (cut for cut in range(stop, max(start, stop - 40), -1) if not _continues(text[cut]))
    return next(letters, stop)


def _continues(character: str) -> bool:
    return bool(combining(character)) or character in "\u200d\ufe0f"


def _merged(cutter: _Cutter, pieces: Iterable[_Piece]) -> list[_Piece]:
    """Add a short piece to the one before it, else to the one after it."""
    merged: list[_Piece] = []
    for piece in pieces:
        short = bool(merged) and min(piece.size, merged[-1].size) < cutter.minimum
        joined = _joined(cutter, merged[-1], piece) if short else None
        merged[-1:] = [joined] if joined else [*merged[-1:], piece]
    return merged


def _balanced(cutter: _Cutter, pieces: Sequence[_Piece]) -> list[_Piece]:
    """Where a short piece fits into no neighbour, move sentences over to it from the neighbour before or after."""
    settled: list[_Piece] = []
    for piece in pieces:
        short = bool(settled) and min(piece.size, settled[-1].size) < cutter.minimum
        pair = _evened(cutter, settled[-1], piece) if short else None
        settled[-1:] = pair or [*settled[-1:], piece]
    return settled


def _evened(cutter: _Cutter, a: _Piece, b: _Piece) -> list[_Piece] | None:
    for cut in _nearest_middle(cutter, a.start, b.end)[:3]:
        pair = [cutter.piece(a.start, cut), cutter.piece(cut, b.end)]
        if all(cutter.minimum <= piece.size <= cutter.maximum for piece in pair):
            return pair
    return None
