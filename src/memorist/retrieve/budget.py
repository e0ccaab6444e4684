"""The one place that cuts to a budget: items are taken best first while every cap holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..text.tokens import count_tokens

T = TypeVar("T")
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The limits of one answer; None does not limit."""

    limit: int | None = None  # items
    tokens: int | None = None
    chars: int | None = None

    def beside(self, text: str, count: Count) -> Caps:
        """Return the room that is left beside a text and a line break."""
        tokens, chars = self.tokens, self.chars
        if tokens is not None:
            tokens = max(0, tokens - count(text) - 1)
        if chars is not None:
            chars = max(0, chars - len(text) - 1)
        return Caps(limit=self.limit, tokens=tokens, chars=chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Which items were taken, which were cut and why, by their place, and the text."""

    taken: list[int]
    cut: dict[int, str]
    text: str
    tokens: int


def fit(
    items: Sequence[T],
    caps: Caps,
    render: Callable[[Sequence[T]], str],
    count: Count = count_tokens,
    *,
    cost: Callable[[T], int] | None = None,
    skip: bool = True,
) -> Fitted:
    """Take what fits. An item that does not fit is skipped, and a smaller one may still be taken.

    Tokens are those of the rendered text, or with `cost` the sum of what the items cost. Without
    `skip` the first item that does not fit ends the list.

    >>> fit(["tea", "coffee", "milk"], Caps(chars=8), "\\n".join).text
    'tea\\nmilk'
    """
    limit = len(items) if caps.limit is None else caps.limit
    if cost is None:  # mostly everything fits, and one look is enough
        text = render(items[:limit])
        tokens = count(text) if text else 0
        if not _excess(text, tokens, caps):
            beyond = dict.fromkeys(range(limit, len(items)), f"beyond the limit of {limit}")
            taken = list(range(min(limit, len(items))))
            return Fitted(taken=taken, cut=beyond, text=text, tokens=tokens)
    taken, cut, used, text = list[int](), dict[int, str](), 0, ""
    for i, item in enumerate(items):
        if len(taken) == limit:
            cut[i] = f"beyond the limit of {limit}"
            continue
        if cut and not skip:
            cut[i] = "one before it does not fit"
            continue
        longer = render([*(items[j] for j in taken), item])
        price = count(longer) if cost is None else cost(item)
        total = price if cost is None else used + price
        problem = _excess(longer, total, caps)
        if problem and cost is not None and caps.tokens is not None and total > caps.tokens:
            problem = f"its {price} tokens do not fit into the budget of {caps.tokens}"
        if problem:
            cut[i] = problem
        else:
            taken.append(i)
            used, text = total, longer
    return Fitted(taken=taken, cut=cut, text=text, tokens=used)


def _excess(text: str, tokens: int, caps: Caps) -> str:
    """Return which cap a text exceeds, or nothing."""
    if caps.chars is not None and len(text) > caps.chars:
        return f"it does not fit into {caps.chars} characters"
    if caps.tokens is not None and tokens > caps.tokens:
        return f"it does not fit into the budget of {caps.tokens} tokens"
    return ""
