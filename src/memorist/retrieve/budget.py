"""What fits: memories are taken best first while the text that is really injected stays within every cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..types import Memory
from .render import Renderer

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The limits of one answer; what is None does not limit."""

    limit: int
    tokens: int | None = None
    chars: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What was taken, what was not and why, and the text."""

    taken: list[int]
    cut: dict[int, str]
    text: str
    tokens: int


def fit(memories: Sequence[Memory], caps: Caps, render: Renderer, count: Count) -> Fitted:
    """Take what fits of the rendered text; one that does not fit is skipped, and a smaller one may still be taken."""
    taken: list[int] = list(range(min(caps.limit, len(memories))))
    cut: dict[int, str] = {}
    if _too_much(
        render([memories[i] for i in taken]), caps, count
    ):  # mostly all of them fit, and one look is enough
        taken, cut = _one_by_one(memories, caps, render, count)
    text = render([memories[i] for i in taken])
    beyond = (i for i in range(len(memories)) if i not in cut and i not in taken)
    cut |= dict.fromkeys(beyond, f"beyond the limit of {caps.limit}")
    return Fitted(taken=taken, cut=cut, text=text, tokens=count(text) if text else 0)


def _one_by_one(
    memories: Sequence[Memory], caps: Caps, render: Renderer, count: Count
) -> tuple[list[int], dict[int, str]]:
    taken: list[int] = []
    cut: dict[int, str] = {}
    for i in range(len(memories)):
        if len(taken) == caps.limit:
            break
        too_much = _too_much(render([memories[j] for j in (*taken, i)]), caps, count)
        if too_much:
            cut[i] = too_much
        else:
            taken.append(i)
    return taken, cut


def fit_content(memories: Sequence[Memory], caps: Caps, render: Renderer, count: Count) -> Fitted:
    """The same, counting the memories' own texts, as the Memory Logic Specification does."""
    taken: list[int] = []
    cut: dict[int, str] = {}
    used = 0
    for i, memory in enumerate(memories):
        cost = max(1, count(memory.text))
        if len(taken) >= caps.limit:
            cut[i] = f"beyond the limit of {caps.limit}"
        elif caps.tokens is not None and used + cost > caps.tokens:
            cut[i] = f"its {cost} tokens do not fit into the budget of {caps.tokens}"
        elif (
            caps.chars is not None and len(render([memories[j] for j in (*taken, i)])) > caps.chars
        ):
            cut[i] = f"it does not fit into {caps.chars} characters"
        else:
            taken.append(i)
            used += cost
    return Fitted(taken=taken, cut=cut, text=render([memories[i] for i in taken]), tokens=used)


def fits(text: str, caps: Caps, count: Count) -> bool:
    """Whether a text stays within the caps on its length."""
    return not _too_much(text, caps, count)


def _too_much(text: str, caps: Caps, count: Count) -> str:
    if caps.chars is not None and len(text) > caps.chars:
        return f"it does not fit into {caps.chars} characters"
    if caps.tokens is not None and count(text) > caps.tokens:
        return f"it does not fit into the budget of {caps.tokens} tokens"
    return ""
