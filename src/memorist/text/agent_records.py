"""What an assistant recorded: a decision or a state in a few words, not advice and not an answer."""

from __future__ import annotations

import re

from .cues import ComparedText, ends_asking
from .subjects import read_subject
from .tokens import word_set

LONGEST = 30  # words; the longer, the more it is advice
_LEAST = 3  # words
_MOST_READ = 400  # characters
# A text that addresses the person, suggests something or reacts is not a record.
_TALKING = word_set("""
    you your yours yourself let's please sure okay ok thanks welcome sorry great glad recommend
    suggest try consider should could would might maybe perhaps hope here's happy congratulations
    noted understood yes clear dir dich dein deine ihnen ihr vous votre tu te tes su usted você seu sua
    """)
_DECIDED = re.compile(
    r"(?i)\A\s*+(?:decision\b|(?:it was |we )?(?:have )?(?:decided|agreed|chosen)\b)"
)
_MARKUP = re.compile(r"[?\n]|```|[.!;]\s+\S")  # also a second sentence
_REPORTS = re.compile(
    r"(?i)\A\s*+(?:\w{1,30}ed|done|ran|wrote|rewrote|put|set|split|cut|built|made|fix)\b"
)


def is_record(text: str) -> bool:
    """Return whether a text of an assistant records something, as far as its words tell.

    >>> is_record("The API is written in Rust."), is_record("Decision: we deploy with Fly.io.")
    (True, True)
    >>> is_record("You could rewrite the API in Go."), is_record("Sure, noted!")
    (False, False)
    """
    if len(text) > _MOST_READ:
        return False
    said = ComparedText(text)
    if not _LEAST <= said.length <= LONGEST or _MARKUP.search(text) or ends_asking(text):
        return False
    if not _TALKING.isdisjoint(said.spoken) or "hypothetical" in said.cues:
        return False
    return bool(read_subject(text))


def is_state(text: str) -> bool:
    """Return whether a record says how something is, and not only what the assistant did.

    >>> is_state("The API is written in Rust."), is_state("Removed 14 comments from the API.")
    (True, False)
    """
    return is_record(text) and not _REPORTS.match(text)


def is_decision(text: str) -> bool:
    """Return whether a record is about a decision.

    >>> is_decision("Decision: ids are ULIDs"), is_decision("The ids are ULIDs")
    (True, False)
    """
    return _DECIDED.match(text) is not None and is_record(text)
