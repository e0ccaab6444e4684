"""Cut a text where its meaning is cut: at blank lines, then at sentence ends, then at lines, then
at blanks.

Chunks are stretches of the text itself, so nothing is lost but the whitespace between them. A
fenced block of code stays whole while it fits. The work is linear in the text: a stretch is counted
when it is made, joined sizes are added up, and only a sum that passes a limit is counted again.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple
from unicodedata import combining

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_SENTENCE_END = re.compile(r"""[.!?…؟۔।]["'”’»)\]*_]*\s+|[。！？｡．]["'”’»」』）)\]]*\s*""")
_OPENING = "\"'“‘«„([{*_#¿¡「『（"
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_BLANKS = " \n\t\u3000"


class _Span(NamedTuple):
    start: int
    end: int
    size: int  # tokens; of a joined span the sum of its parts, which may be a little too high


def by_meaning(
    text: str,
    count: Callable[[str], int],
    minimum: int = 50,
    maximum: int = 300,
) -> list[str]:
    """Cut a text into chunks of `minimum` to `maximum` tokens at the ends of paragraphs and
    sentences.

    A text shorter than the minimum is one chunk. Only a chunk that no neighbor can take in stays
    below the minimum.

    >>> words = lambda text: len(text.split())
    >>> text = "One two. Three four five.\\n\\nSix seven eight.\\n\\nNine."
    >>> by_meaning(text, words, minimum=2, maximum=4)
    ['One two.', 'Three four five.', 'Six seven eight.\\n\\nNine.']
    """
    splitter = _Splitter(text, count, minimum, maximum)
    merged: list[_Span] = []  # a short span is added to the one before it, else to the one after it
    for start, end in splitter.stretches(splitter.paragraphs, 0, len(text)):
        for span in splitter.fit(start, end):
            is_short = bool(merged) and min(span.size, merged[-1].size) < minimum
            splitter.append(merged, span, may_join=is_short)
    spans: list[_Span] = []
    for span in merged:
        for part in splitter.fit(span.start, span.end):
            spans.append(part)
            splitter.balance(spans)
    return [text[span.start : span.end].strip() for span in spans]


class _Splitter:
    """A text with the places where it may be cut, and how large its spans may be."""

    def __init__(self, text: str, count: Callable[[str], int], minimum: int, maximum: int) -> None:
        self.text = text
        self.count = count
        self.minimum = minimum
        self.maximum = maximum
        fences: list[tuple[int, int]] = []  # blocks of code that are closed
        opened: re.Match[str] | None = None
        for match in _FENCE.finditer(text):
            if opened is None:  # ```code``` on one line opens nothing
                opened = match if "`" not in match[2] else None
            elif match[1].startswith(opened[1]) and not match[2].strip():
                fences.append((opened.start(), match.end()))
                opened = None
        blank_lines = [match.end() for match in _BLANK_LINE.finditer(text)]
        ends = []
        for match in _SENTENCE_END.finditer(text):
            # A capital has to follow, or a letter of a script without capitals.
            following = text[match.end() : match.end() + 4].lstrip(_OPENING)[:1]
            if following.isalpha() and not following.islower():
                ends.append(match.end())
        self.paragraphs = _drop_fenced(blank_lines, fences)
        outside = _drop_fenced([*blank_lines, *ends], fences)
        self.sentences = sorted({*outside, *chain.from_iterable(fences)})
        self.lines = [match.end() for match in re.finditer("\n", text)]

    def span(self, start: int, end: int) -> _Span:
        return _Span(start, end, self.count(self.text[start:end].strip()))

    def stretches(self, cuts: list[int], start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts between the cuts that are not blank."""
        inner = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
        parts = pairwise((start, *inner, end))
        return [(a, b) for a, b in parts if self.text[a:b].strip()]

    def fit(self, start: int, end: int) -> list[_Span]:
        """Split a stretch at the coarsest boundaries that make it fit, and pack what is small."""
        packed: list[_Span] = []
        for part in self.parts(start, end, self.sentences, self.lines):
            self.append(packed, part)
        fitting: list[_Span] = []
        for span in packed:
            fitting += self.recount(span.start, span.end)
        return fitting

    def parts(self, start: int, end: int, *boundaries: list[int]) -> Iterator[_Span]:
        """Yield a stretch that fits as it is, and others by the parts between their boundaries."""
        whole = self.span(start, end)
        if whole.size <= self.maximum:
            yield whole
        elif not boundaries:
            yield from self.windows(start, end)
        else:
            for stretch in self.stretches(boundaries[0], start, end):
                yield from self.parts(*stretch, *boundaries[1:])

    def append(self, spans: list[_Span], span: _Span, *, may_join: bool = True) -> None:
        """Add a span to the last one if both fit together; sums are trusted up to a limit."""
        if spans and may_join:
            last = spans[-1]
            joined = _Span(last.start, span.end, last.size + span.size)
            if joined.size > self.maximum or last.size < self.minimum <= joined.size:
                joined = self.span(last.start, span.end)
            if joined.size <= self.maximum:
                spans[-1] = joined
                return
        spans.append(span)

    def recount(self, start: int, end: int) -> list[_Span]:
        """Count what was only added up: a tokenizer may find more in the whole than in its
        parts.
        """
        exact = self.span(start, end)
        if exact.size <= self.maximum or end - start < 2:
            return [exact]
        cut = self.middles(start, end)[0]
        return [*self.recount(start, cut), *self.recount(cut, end)]

    def middles(self, start: int, end: int) -> list[int]:
        """Return the best places to cut a stretch in two: sentences, else lines, else a blank."""
        middle = (start + end) // 2
        for cuts in (self.sentences, self.lines):
            inner = [cut for cut, _ in self.stretches(cuts, start, end)][1:]
            if inner:
                return sorted(inner, key=lambda cut: abs(cut - middle))
        return [self.blank_before(start, middle)]

    def windows(self, start: int, end: int) -> Iterator[_Span]:
        """Cut a stretch without inner boundaries at blanks, else between two characters.

        Each window fits and is nearly full, found in a few tries that learn from each other.
        """
        length = 4 * self.maximum
        while start < end:
            best: _Span | None = None
            for attempt in range(64):
                window = self.span(start, self.blank_before(start, min(end, start + length)))
                if window.size <= self.maximum and (best is None or window.end > best.end):
                    best = window
                is_full = window.size >= 0.9 * self.maximum or window.end == end
                if window.end - start == 1 or (best and (is_full or attempt > 3)):
                    break
                slack = 0.97 if attempt < 3 else 0.5
                share = slack * self.maximum / max(1, window.size)
                length = max(1, int((window.end - start) * share))
            window = best or window
            if self.text[start : window.end].strip():
                yield window
            start, length = window.end, window.end - start

    def blank_before(self, start: int, stop: int) -> int:
        """Return where to cut before `stop`: after a blank, else between two characters."""
        text = self.text
        if stop == len(text) or text[stop] in _BLANKS:
            return stop
        blank = max(text.rfind(mark, start, stop) for mark in _BLANKS) + 1
        if blank > start:
            return blank
        for cut in range(stop, max(start, stop - 40), -1):
            if not combining(text[cut]) and text[cut] not in "\u200d\ufe0f":
                return cut
        return stop

    def balance(self, spans: list[_Span]) -> None:
        """Move sentences between the last two spans, if one is short and they fit together
        nowhere.
        """
        if len(spans) < 2 or min(spans[-1].size, spans[-2].size) >= self.minimum:
            return
        start = spans[-2].start
        end = spans[-1].end
        for cut in self.middles(start, end)[:3]:
            parts = [self.span(start, cut), self.span(cut, end)]
            sizes = [part.size for part in parts]
            if self.minimum <= min(sizes) and max(sizes) <= self.maximum:
                spans[-2:] = parts
                return


def _drop_fenced(cuts: Iterable[int], fences: list[tuple[int, int]]) -> list[int]:
    """Return the cuts that are not inside a block of code."""
    kept = []
    for cut in cuts:
        before = bisect_right(fences, (cut,)) - 1
        if before < 0 or cut >= fences[before][1]:
            kept.append(cut)
    return kept
