"""Cut a text where its meaning is cut: at blank lines, then at sentence ends, then at lines, then
at blanks.

Chunks are stretches of the text itself, so nothing is lost but the whitespace between them. A
fenced block of code stays whole while it fits. The work is linear in the text: a stretch is counted
when it is made, joined sizes are added up, and only a sum that passes a limit is counted again.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
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
class _Span:
    start: int
    end: int
    size: int  # tokens; of a joined span the sum of its parts, which may be a little too high


@dataclass(frozen=True, slots=True, kw_only=True)
class _Splitter:
    """A text, what counts as a token in it, and how large its spans may be."""

    text: str
    count: Callable[[str], int]
    minimum: int
    maximum: int
    fences: Sequence[tuple[int, int]]

    def span(self, start: int, end: int) -> _Span:
        return _Span(start=start, end=end, size=self.count(self.text[start:end].strip()))


def by_meaning(
    text: str,
    count: Callable[[str], int],
    minimum: int = MIN_CHUNK_TOKENS,
    maximum: int = MAX_CHUNK_TOKENS,
) -> list[str]:
    """Cut a text into chunks of `minimum` to `maximum` tokens at the ends of paragraphs and
    sentences.

    A text shorter than the minimum is one chunk. Only a chunk that no neighbour can take in stays
    below the minimum.

    >>> words = lambda text: len(text.split())
    >>> text = "One two. Three four five.\\n\\nSix seven eight.\\n\\nNine."
    >>> by_meaning(text, words, minimum=2, maximum=4)
    ['One two.', 'Three four five.', 'Six seven eight.\\n\\nNine.']
    """
    splitter = _Splitter(
        text=text, count=count, minimum=minimum, maximum=maximum, fences=_fences(text)
    )
    blank_lines = [match.end() for match in _BLANK_LINE.finditer(text)]
    paragraphs: list[_Span] = []
    for start, end in _stretches(text, 0, len(text), _outside(blank_lines, splitter.fences)):
        paragraphs += _fit(splitter, start, end)
    spans: list[_Span] = []
    for span in _merge_short(splitter, paragraphs):
        spans += _fit(splitter, span.start, span.end)
    return [text[span.start : span.end].strip() for span in _balance(splitter, spans)]


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


def _sentences(splitter: _Splitter, start: int, end: int) -> list[tuple[int, int]]:
    text, fences = splitter.text, splitter.fences
    cuts = [match.end() for match in _BLANK_LINE.finditer(text, start, end)]
    for match in _SENTENCE_END.finditer(text, start, end):
        # A capital has to follow, or a letter of a script without capitals.
        following = text[match.end() : match.end() + 4].lstrip(_OPENING)[:1]
        if following.isalpha() and not following.islower():
            cuts.append(match.end())
    inside = fences[bisect_right(fences, (start,)) : bisect_right(fences, (end,))]
    return _stretches(text, start, end, {*_outside(cuts, fences), *chain.from_iterable(inside)})


def _lines(splitter: _Splitter, start: int, end: int) -> list[tuple[int, int]]:
    cuts = [match.end() for match in _LINE.finditer(splitter.text, start, end)]
    return _stretches(splitter.text, start, end, cuts)


def _outside(cuts: Iterable[int], fences: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yield the cuts that are not inside a block of code."""
    for cut in cuts:
        before = bisect_right(fences, (cut,)) - 1
        if before < 0 or cut >= fences[before][1]:
            yield cut


def _stretches(text: str, start: int, end: int, cuts: Iterable[int]) -> list[tuple[int, int]]:
    """Return the parts between the cuts that are not blank."""
    inner = sorted(cut for cut in cuts if start < cut < end)
    return [(a, b) for a, b in pairwise((start, *inner, end)) if text[a:b].strip()]


def _fit(splitter: _Splitter, start: int, end: int) -> list[_Span]:
    """Split a stretch at the coarsest boundaries that make it fit, and pack what is small."""
    whole = splitter.span(start, end)
    if whole.size <= splitter.maximum:
        return [whole]
    packed: list[_Span] = []
    for span in _split_small(splitter, start, end):
        joined = _join(splitter, packed[-1], span) if packed else None
        packed[-1:] = [joined] if joined else [*packed[-1:], span]
    fitting: list[_Span] = []
    for span in packed:
        fitting += _recount(splitter, span)
    return fitting


def _split_small(splitter: _Splitter, start: int, end: int) -> Iterator[_Span]:
    """Yield the sentences of a stretch; of longer ones the lines, and of longer lines windows."""
    for sentence in _sentences(splitter, start, end):
        span = splitter.span(*sentence)
        if span.size <= splitter.maximum:
            yield span
            continue
        for line in _lines(splitter, *sentence):
            span = splitter.span(*line)
            yield from [span] if span.size <= splitter.maximum else _windows(splitter, span)


def _join(splitter: _Splitter, a: _Span, b: _Span) -> _Span | None:
    """Join two neighbors, or return None if that is too large; sums are trusted up to a limit."""
    size = a.size + b.size
    joined = _Span(start=a.start, end=b.end, size=size)
    if size > splitter.maximum or a.size < splitter.minimum <= size:
        joined = splitter.span(a.start, b.end)
    return joined if joined.size <= splitter.maximum else None


def _recount(splitter: _Splitter, span: _Span) -> list[_Span]:
    """Count what was only added up: a tokenizer may find more in the whole than in its parts."""
    exact = splitter.span(span.start, span.end)
    if exact.size <= splitter.maximum or span.end - span.start < 2:
        return [exact]
    cut = _nearest_middle(splitter, span.start, span.end)[0]
    first, second = replace(span, end=cut), replace(span, start=cut)
    return [*_recount(splitter, first), *_recount(splitter, second)]


def _nearest_middle(splitter: _Splitter, start: int, end: int) -> list[int]:
    """Return the best places to cut a stretch in two: sentences, else lines, else a blank."""
    middle = (start + end) // 2
    for parts in (_sentences, _lines):
        cuts = [cut for cut, _ in parts(splitter, start, end)][1:]
        if cuts:
            return sorted(cuts, key=lambda cut: abs(cut - middle))
    return [_blank_before(splitter.text, start, middle)]


def _windows(splitter: _Splitter, span: _Span) -> Iterator[_Span]:
    """Cut a stretch without inner boundaries at blanks, else between two characters."""
    start, length = span.start, 4 * splitter.maximum
    while start < span.end:
        window = _window(splitter, start, span.end, length)
        if splitter.text[window.start : window.end].strip():
            yield window
        start, length = window.end, max(1, window.end - window.start)


def _window(splitter: _Splitter, start: int, end: int, length: int) -> _Span:
    """Find a stretch that fits and is nearly full, in a few tries that learn from each other."""
    best: _Span | None = None
    for attempt in range(64):
        window = splitter.span(start, _blank_before(splitter.text, start, min(end, start + length)))
        if window.size <= splitter.maximum and (best is None or window.end > best.end):
            best = window
        full = window.size >= 0.9 * splitter.maximum or window.end == end
        if window.end - start == 1 or (best and (full or attempt > 3)):
            break
        slack = 0.97 if attempt < 3 else 0.5
        length = max(1, int((window.end - start) * slack * splitter.maximum / max(1, window.size)))
    return best or window


def _blank_before(text: str, start: int, stop: int) -> int:
    if stop == len(text) or text[stop] in _BLANKS:
        return stop
    blank = max(text.rfind(mark, start, stop) for mark in _BLANKS) + 1
    if blank > start:
        return blank
    for cut in range(stop, max(start, stop - 40), -1):
        if not combining(text[cut]) and text[cut] not in "\u200d\ufe0f":
            return cut
    return stop


def _merge_short(splitter: _Splitter, spans: Iterable[_Span]) -> list[_Span]:
    """Add a short span to the one before it, else to the one after it."""
    merged: list[_Span] = []
    for span in spans:
        is_short = bool(merged) and min(span.size, merged[-1].size) < splitter.minimum
        joined = _join(splitter, merged[-1], span) if is_short else None
        merged[-1:] = [joined] if joined else [*merged[-1:], span]
    return merged


def _balance(splitter: _Splitter, spans: Iterable[_Span]) -> list[_Span]:
    """Move sentences to a short span that fits into no neighbor, from the one before or after."""
    settled: list[_Span] = []
    for span in spans:
        settled.append(span)
        if len(settled) < 2 or min(span.size, settled[-2].size) >= splitter.minimum:
            continue
        start = settled[-2].start
        for cut in _nearest_middle(splitter, start, span.end)[:3]:
            first, second = splitter.span(start, cut), splitter.span(cut, span.end)
            smallest, largest = sorted((first.size, second.size))
            if splitter.minimum <= smallest and largest <= splitter.maximum:
                settled[-2:] = [first, second]
                break
    return settled
