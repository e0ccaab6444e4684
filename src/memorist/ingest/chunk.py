"""Split a text at paragraph, sentence, line or word boundaries, in this order of preference.

Chunks are substrings of the text, so only the whitespace between them is lost. A fenced code block
stays whole while it fits. The work is linear in the length of the text: a span is counted when it
is created, sizes of joined spans are added up, and only a sum above a limit is counted again.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple
from unicodedata import combining

from ..text.normalize import Range, find_fences

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_LINE_BREAK = re.compile("\n")
_SENTENCE_END = re.compile(r"""[.!?…؟۔।]["'”’»)\]*_]*\s+|[。！？｡．]["'”’»」』）)\]]*\s*""")
_OPENING = "\"'“‘«„([{*_#¿¡「『（"
_BLANKS = " \n\t\u3000"


class _Span(NamedTuple):
    start: int
    end: int
    size: int  # tokens; of a joined span the sum of its parts, which may be slightly too high


def by_meaning(
    text: str,
    count: Callable[[str], int],
    minimum: int = 50,
    maximum: int = 300,
) -> list[str]:
    """Split a text into chunks of `minimum` to `maximum` tokens at paragraph and sentence ends.

    A text shorter than the minimum is one chunk. Other chunks stay below the minimum only if they
    fit together with neither neighbor.

    >>> words = lambda text: len(text.split())
    >>> text = "One two. Three four five.\\n\\nSix seven eight.\\n\\nNine."
    >>> by_meaning(text, words, minimum=2, maximum=4)
    ['One two.', 'Three four five.', 'Six seven eight.\\n\\nNine.']
    """
    splitter = _Splitter(text, count, minimum, maximum)
    merged: list[_Span] = []
    for start, end in splitter.stretches(splitter.paragraphs, 0, len(text)):
        for span in splitter.fit(start, end):
            splitter.append(merged, span, below=minimum)
    spans: list[_Span] = []
    for span in merged:
        for part in splitter.fit(span.start, span.end):
            spans.append(part)
            splitter.balance(spans)
    return [text[span.start : span.end].strip() for span in spans]


class _Splitter:
    """A text, the positions where it may be cut, and the limits for its spans."""

    def __init__(
        self,
        text: str,
        count: Callable[[str], int],
        minimum: int,
        maximum: int,
    ) -> None:
        self.text = text
        self.count = count
        self.minimum = minimum
        self.maximum = maximum
        fences = find_fences(text)
        sentence_ends = []
        for match in _SENTENCE_END.finditer(text):
            # An uppercase letter has to follow, or a letter of a script without case.
            cut = match.end()
            following = text[cut : cut + 4].lstrip(_OPENING)
            first = following[:1]
            if first.isalpha() and not first.islower():
                sentence_ends.append(cut)
        blank_lines = _find_ends(_BLANK_LINE, text)
        self.paragraphs = _drop_fenced(blank_lines, fences)
        outside = _drop_fenced([*blank_lines, *sentence_ends], fences)
        edges = chain.from_iterable(fences)
        self.sentences = sorted({*outside, *edges})
        self.lines = _find_ends(_LINE_BREAK, text)

    def span(self, start: int, end: int) -> _Span:
        stripped = self.text[start:end].strip()
        return _Span(start, end, self.count(stripped))

    def stretches(
        self,
        cuts: list[int],
        start: int,
        end: int,
    ) -> list[Range]:
        """Return the parts between the cuts that are not blank."""
        first = bisect_right(cuts, start)
        last = bisect_left(cuts, end)
        parts = pairwise((start, *cuts[first:last], end))
        return [(a, b) for a, b in parts if self.text[a:b].strip()]

    def fit(self, start: int, end: int) -> list[_Span]:
        """Split a stretch at the coarsest boundaries that make it fit, and join small parts."""
        packed: list[_Span] = []
        for part in self.parts(start, end, self.sentences, self.lines):
            self.append(packed, part)
        fitting: list[_Span] = []
        for span in packed:
            fitting += self.recount(span.start, span.end)
        return fitting

    def parts(self, start: int, end: int, *boundaries: list[int]) -> Iterator[_Span]:
        """Yield a stretch whole if it fits, otherwise in parts between its boundaries."""
        whole = self.span(start, end)
        if whole.size <= self.maximum:
            yield whole
        elif not boundaries:
            yield from self.windows(start, end)
        else:
            coarsest, *finer = boundaries
            for stretch in self.stretches(coarsest, start, end):
                yield from self.parts(*stretch, *finer)

    def append(
        self,
        spans: list[_Span],
        span: _Span,
        below: float = math.inf,
    ) -> None:
        """Add a span; join it with the last one if one is smaller than `below` and both fit."""
        last = spans[-1] if spans else None
        if last is not None and min(last.size, span.size) < below:
            size = last.size + span.size
            joined = _Span(last.start, span.end, size)
            if size > self.maximum or last.size < self.minimum <= size:
                joined = self.span(last.start, span.end)
            if joined.size <= self.maximum:
                spans[-1] = joined
                return
        spans.append(span)

    def recount(self, start: int, end: int) -> list[_Span]:
        """Return a joined stretch with its exact size, halved until it fits.

        A tokenizer may find more tokens in the whole than in the parts.
        """
        exact = self.span(start, end)
        if exact.size <= self.maximum or end - start < 2:
            return [exact]
        cut = self.middles(start, end)[0]
        return [
            *self.recount(start, cut),
            *self.recount(cut, end),
        ]

    def middles(self, start: int, end: int) -> list[int]:
        """Return the cuts nearest to the middle: at sentences, else at lines, else at a blank."""
        middle = (start + end) // 2
        for cuts in (self.sentences, self.lines):
            later = self.stretches(cuts, start, end)[1:]
            if later:
                inner = [cut for cut, _ in later]
                return sorted(inner, key=lambda cut: abs(cut - middle))
        return [self.blank_before(start, middle)]

    def windows(self, start: int, end: int) -> Iterator[_Span]:
        """Cut a stretch without inner boundaries at blanks, otherwise between two characters.

        Each window fits and is nearly full. Its length is estimated from the previous attempt.
        """
        length = 4 * self.maximum
        while start < end:
            best: _Span | None = None
            for attempt in range(64):
                stop = min(end, start + length)
                window = self.span(start, self.blank_before(start, stop))
                taken = window.end - start
                fits = window.size <= self.maximum
                if fits and (best is None or window.end > best.end):
                    best = window
                is_full = window.size >= 0.9 * self.maximum or window.end == end
                is_enough = best is not None and (is_full or attempt > 3)
                if is_enough or taken == 1:
                    break
                slack = 0.97 if attempt < 3 else 0.5
                share = slack * self.maximum / max(1, window.size)
                length = max(1, int(taken * share))
            window = best or window
            if self.text[start : window.end].strip():
                yield window
            length = window.end - start
            start = window.end

    def blank_before(self, start: int, stop: int) -> int:
        """Return where to cut before `stop`: after a blank, otherwise between two characters."""
        text = self.text
        if stop == len(text) or text[stop] in _BLANKS:
            return stop
        blank = max(text.rfind(mark, start, stop) for mark in _BLANKS)
        if blank >= start:
            return blank + 1
        for cut in range(stop, max(start, stop - 40), -1):
            following = text[cut]
            if not combining(following) and following not in "\u200d\ufe0f":
                return cut
        return stop

    def balance(self, spans: list[_Span]) -> None:
        """Move the cut between the last two spans if one is too short and they cannot be joined."""
        if len(spans) < 2:
            return
        before, last = spans[-2:]
        if min(before.size, last.size) >= self.minimum:
            return
        for cut in self.middles(before.start, last.end)[:3]:
            head = self.span(before.start, cut)
            tail = self.span(cut, last.end)
            smaller, larger = sorted((head.size, tail.size))
            if self.minimum <= smaller and larger <= self.maximum:
                spans[-2:] = [head, tail]
                return


def _find_ends(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.end() for match in pattern.finditer(text)]


def _drop_fenced(
    cuts: Iterable[int],
    fences: list[Range],
) -> list[int]:
    """Return the cuts that are not inside a code block."""
    kept = []
    for cut in cuts:
        before = bisect_right(fences, (cut,)) - 1
        if before < 0 or cut >= fences[before][1]:
            kept.append(cut)
    return kept
