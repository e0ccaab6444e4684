"""What a text says changed, if it is another thing than an older statement is about.

"The wedding band needs a new van" has words of a change, and words of "I play bass in a wedding band",
but only the van is new. And what is so for a day, or in one place, ends nothing: "no coffee for me today".
The patterns are for English, apart from those of exceptions.
"""

from __future__ import annotations

import re

from .compare import RELATIVES
from .cues import CHANGING, read, read_cues
from .entities import GIVEN_NAMES
from .tokens import analyze, compile_all, load_patterns, word_set, words
from .values import is_value

_TABLES = load_patterns(__file__)
_WORDS = {name: word_set(" ".join(lines)) for name, lines in _TABLES["words"].items()}
_PATTERNS = compile_all(_TABLES["patterns"])
_EXCEPTION = compile_all(_TABLES["exception"])
_REFERRING = re.compile(r"(?i)the (?:\w+ )?ones?\b")  # to what the clause before names
_OWN = frozenset(("my", "our"))
_SENTENCE = re.compile(r"(?:[.!?;,:\n]+|\s[-–—]|\s(?:and|but|so|because)\b)\s*")


def is_of_another_thing(new: str, old: str) -> bool:
    """Return whether a text says that another thing changed, or that something is otherwise for a while."""
    return changes_another_thing(new, old) or is_exception(new, old)


def changes_another_thing(new: str, old: str) -> bool:
    """Return whether all that a text says changed is not what an older one is about.

    >>> old = "I play bass in a wedding band"
    >>> changes_another_thing("the wedding band needs a new van, the old one died", old)
    True
    >>> changes_another_thing("sold my bass, the wedding band split up", old)
    False
    >>> changes_another_thing("Acme moved its party", "I work at Acme")
    True
    >>> changes_another_thing("The site moved from Django to Go", "Our site uses Django")
    False
    """
    parts = [part for part in _SENTENCE.split(new) if not CHANGING.isdisjoint(read_cues(part))]
    parts = [part for part in parts if not _REFERRING.match(part)] or parts
    stated = frozenset(analyze(old))
    return bool(parts) and all(_is_of_another_thing(part, old, stated) for part in parts)


def _is_of_another_thing(part: str, old: str, stated: frozenset[str]) -> bool:
    """Return whether a clause names what changed, and an older text with these stems does not."""
    found = _PATTERNS["subject"].match(part)
    if found is None or _PATTERNS["speaker"].match(found["rest"]):
        return False
    named = words(found["named"])
    first, head = named[0], named[-1]
    if head in _WORDS["pronouns"] or is_value(head):
        return False
    if head in _WORDS["own_groups"] and first in _OWN:
        return False
    changed = _PATTERNS["object"].match(found["rest"])
    has_object = changed is not None and not _mentions(changed["named"], stated)
    if not _mentions(head, stated):
        return changed is None or has_object
    if _is_of_another_owner(found["named"], old):
        return True
    return has_object and _PATTERNS["changing_own"].match(found["verb"]) is not None


def _mentions(named: str, stated: frozenset[str]) -> bool:
    stems = analyze(named)
    return not stems or not stated.isdisjoint(stems)


def _is_of_another_owner(named: str, old: str) -> bool:
    """Return whether a thing is somebody's whom an older text does not name: "mum's dose"."""
    found = _PATTERNS["owner"].search(named)
    if found is None:
        return False
    owner = found["owner"].lower()
    return owner in RELATIVES | GIVEN_NAMES and owner not in words(old)


def is_exception(new: str, old: str) -> bool:
    """Return whether a text says that something is not so for a while, or not in one place.

    >>> is_exception("No more coffee for me today", "I drink coffee")
    True
    >>> is_exception("No coffee for me from today on", "I drink coffee")
    False
    >>> is_exception("I stopped smoking in the flat", "I smoke"), is_exception("I quit smoking", "I smoke")
    (True, False)
    """
    without, lasting = _EXCEPTION["without"], _EXCEPTION["lasting"]
    if _EXCEPTION["while"].search(new) and without.search(new):
        return lasting.search(new) is None and not _EXCEPTION["while"].search(old)
    found = _EXCEPTION["ending"].search(new)
    if found is None:
        return False
    place = [word for word in words(found["place"]) if not is_value(word)]
    stems = analyze(" ".join(place))
    return bool(stems) and read(old).topics.isdisjoint(stems)
