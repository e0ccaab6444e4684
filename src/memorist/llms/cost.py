"""What a question can cost, in tokens: at least, and at most."""

from __future__ import annotations

import json

from ..ports import Prompt
from ..text.tokens import count_tokens

TRIES = 2  # a question is asked once more if the answer cannot be used
ADDED = 1_500  # tokens that a server adds of its own, and we for the shape of the answer or a second try


def most(ask: Prompt) -> tuple[int, int]:
    """What one try can cost at most, in and out: no tokenizer makes more tokens than there are bytes.

    >>> most(Ask(task="t", system="", user="é", schema={}, max_tokens=100))
    (1506, 100)
    """
    texts = (ask.system, ask.user, 2 * json.dumps(dict(ask.schema)))  # it may be told and sent
    return ADDED + sum(len(text.encode("utf-8", "replace")) for text in texts), ask.max_tokens


def likely(ask: Prompt, said: str, told: tuple[int, int]) -> tuple[int, int]:
    """What a try cost: as the server told, but not less than about what the words make, nor more than can be.

    >>> likely(Ask(task="t", system="", user="tea " * 8, schema={}, max_tokens=9), "tea", (0, 10**12))
    (9, 9)
    """
    least = (count_tokens(ask.system) + count_tokens(ask.user), count_tokens(said))
    figures = (
        min(bound, max(given, low))
        for given, low, bound in zip(told, least, most(ask), strict=True)
    )
    tokens_in, tokens_out = figures
    return tokens_in, tokens_out
