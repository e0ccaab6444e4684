"""What statements of a person say of their home and diet, in the words of six languages.

"Me mudé a Valencia" has no word in common with "Vivo en Madrid", and yet replaces it. A country and a
place that is not a country do not contradict each other: "I live in Porto" may only be more precise.
"""

from __future__ import annotations

import re

from .cues import CHANGING, read
from .tokens import compile_all, detect_language, load_patterns, reduce_spoken, words

_TABLES = load_patterns(__file__)
_HOME = compile_all(_TABLES["home"])
_DIET = compile_all(_TABLES["diet"])
_JOB = compile_all(_TABLES["job"])
_COUNTRY = re.compile(rf"\b(?:{_TABLES['names']['countries']})\b", re.IGNORECASE)
_UNCERTAIN = frozenset(("past", "hypothetical"))


def have_other_values(new: str, old: str) -> bool:
    """Return whether two texts tell another home or diet of the speaker, or the newer one a new job.

    >>> have_other_values("Me mudé a Valencia.", "Vivo en Madrid.")
    True
    >>> have_other_values("I eat meat again since Christmas.", "I'm vegetarian.")
    True
    >>> have_other_values("Vivo en Sevilla.", "Vivo en España.")
    False
    """
    if not _UNCERTAIN.isdisjoint(read(new).cues):
        return False
    for read_value in (read_home, read_diet):
        value = read_value(new)
        if value and read_value(old) not in ("", value):
            return not refines(new, old)
    has_new_job = _JOB["new"].search(new.lower()) and "added" not in read(new).cues
    return bool(has_new_job and _JOB["held"].search(old.lower()))


def read_home(text: str) -> str:
    """Return where the speaker says to live, in another language than English; empty if nowhere.

    >>> read_home("Ich bin letzten Monat nach Bonn gezogen."), read_home("Ich fliege nach Bonn.")
    ('bonn', '')
    """
    for pattern in _HOME.values():
        if found := pattern.search(text):
            return found["place"].lower()
    return ""


def read_diet(text: str) -> str:
    """Return whether the speaker eats plants or meat; empty if unknown.

    >>> read_diet("I'm a vegetarian"), read_diet("I eat fish again"), read_diet("I eat late")
    ('plants', 'meat', '')
    """
    said = text.lower()
    return next((name for name, pattern in _DIET.items() if pattern.search(said)), "")


def refines(new: str, old: str) -> bool:
    """Return whether one text has a country where the other has a place, and nothing has changed.

    >>> refines("I live in Porto.", "I live in Portugal."), refines("I live in Spain.", "I live in Peru.")
    (True, False)
    >>> refines("I live in Porto now.", "I live in Portugal.")
    False
    """
    if _COUNTRY.search(new) is None and _COUNTRY.search(old) is None:
        return False
    if not CHANGING.isdisjoint(read(new).cues):
        return False
    language = detect_language(words(f"{new} {old}"))
    rest = [words(_COUNTRY.sub(" ", text)) for text in (new, old)]
    fewer, more = sorted((set(reduce_spoken(each, language)) for each in rest), key=len)
    return fewer < more
