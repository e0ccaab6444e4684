"""Which memories went into a reply, as far as its words tell. An estimate: what is said in other words is not seen."""

from __future__ import annotations

from collections.abc import Iterable

from ..types import Memory
from .tokens import analyse

LEAST = (
    0.4  # of what a memory says beyond the question; less is met in chats that know nothing of it
)


def used(
    reply: str, memories: Iterable[Memory], *, asked: str = "", language: str = "english"
) -> dict[str, str]:
    """The ids of those that a reply names or whose words it repeats: `cited` or `echoed`."""
    found = {}
    for memory in memories:
        if memory.id in reply:
            found[memory.id] = "cited"
        elif share(reply, memory.text, asked, language) >= LEAST:
            found[memory.id] = "echoed"
    return found


def share(reply: str, text: str, asked: str = "", language: str = "english") -> float:
    """How much of what a text says beyond the question a reply says, too, from 0 to 1.

    >>> share("She lives in Porto.", "My sister Mara lives in Porto.", asked="Where does my sister live?")
    0.5
    """
    own = set(analyse(text, language)).difference(analyse(asked, language))
    return len(own.intersection(analyse(reply, language))) / len(own) if own else 0.0
