"""Which part of a text a newer one changes: of "I live in Bonn and work as a nurse", one may end.

Parts are told apart by the words that they share with the newer text, or with a question. Some words
stand for what they are about: who moved no longer lives where they did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from .compare import RELATIVES
from .cues import CHANGING, ComparedText, read_cues
from .statements import says_more, split_parts
from .tokens import analyze_spoken, word_groups, words
from .values import is_value

Asked = Literal["changed", "another", "unknown"]
_COVERED = 0.5  # of the words of a part, in a fact that is based on it
_NONE = (False, 0, False)
# "a nurse in Leeds", "moved to Porto"
_PLACE = re.compile(
    r"\b(?:in|near|to|from|nach|aus|à|au|a|en|em|no|na|para|per) (?:[oa] )?(?=[^\W\d_a-z])(?P<name>[^\W_]+)"
)
# What follows is said besides: "… with her two boys", "… because of the noise"
_BESIDES = re.compile(
    r"\s(?=(?:(?:with|mit|avec|con|com) (?:my|our|his|her|their|meine[nmr]?|unsere[nmr]?|ihre[nmr]?|seine[nmr]?"
    r"|mes|mon|ma|ses|son|sa|notre|nos|mis?|sus?|meus?|minhas?)|because|weil|parce que|porque|perché|whose)\s)",
    re.IGNORECASE,
)
_HOME = "home"
_JOB = "job"
_NEW_JOB = re.compile(r"\b(?i:(?:first|last) (?:day|week|month|shift) at(?: the)?) (?=[A-Z])")
_ASPECTS = word_groups("""
    home live lives living lived reside moved moving moves relocated flat apartment house address
    city town unpacked landlord wohne wohnt wohnen gezogen umgezogen umzug wohnung habite habitons
    déménagé déménage appartement vivo vive vivimos mudé mudado piso moro mora mudei mudamos abito
    abita trasferito trasferita trasferiti
    /job work works working worked employed employer company quit resigned promoted hired career
    arbeite arbeitet gekündigt firma travaille travaillons emploi trabajo trabaja empleo trabalho
    trabalha emprego lavoro lavora
    /partner boyfriend girlfriend husband wife fiance married engaged divorced separated broke split
    /diet eat eats eating vegetarian vegan meat fish
    """)


def read_terms(text: str) -> frozenset[str]:
    """Return the stems of a text, and what its words are about.

    >>> sorted(read_terms("I moved to Kiel"))
    ['home', 'kiel', 'move']
    """
    return read_aspects(text).union(analyze_spoken(text))


def read_aspects(text: str) -> frozenset[str]:
    """Return which of home, job, partner and diet a text has a word of.

    >>> sorted(read_aspects("I quit and moved to Kiel"))
    ['home', 'job']
    >>> sorted(read_aspects("I left Dunmore Glass, first week at Orval Labs!"))
    ['job']
    """
    found = {_ASPECTS[word] for word in words(text) if word in _ASPECTS}
    if _NEW_JOB.search(text) and "ended" in read_cues(text):
        found.add(_JOB)
    return frozenset(found)


def find_changed(old: str, new: str) -> tuple[frozenset[int], list[str]]:
    """Return the places of the parts of a text that a newer one changes, and all parts.

    What the newer text says in a clause with a cue of a change counts first.

    >>> old = "I started Dutch lessons on Mondays. The teacher is Ana."
    >>> find_changed(old, "Dutch is on Fridays now")[0], find_changed(old, "I have a cat")[0]
    (frozenset({0}), frozenset())
    """
    parts = [part for part in split_parts(old) if part.strip()]
    return _find_changed_of(parts, new), parts


def _find_changed_of(parts: Sequence[str], new: str) -> frozenset[int]:
    """Return the places of those parts that a newer text changes."""
    clauses = ComparedText(new).parts
    changing = [each for each in clauses if not CHANGING.isdisjoint(read_cues(each))]
    for said in (changing, clauses, [new]):
        found = [max((_compare(part, each) for each in said), default=_NONE) for part in parts]
        best = max(found, default=_NONE)
        _, shared, _ = best
        if shared or (best > _NONE and found.count(best) == 1):
            return frozenset(i for i, each in enumerate(found) if each == best)
    return frozenset()


def _compare(part: str, clause: str) -> tuple[bool, int, bool]:
    """Return whether a clause has another number for a part, how many words they share, and whether
    these say what it is about. If they share none: whether both have a value of the same kind; another
    number and another place count as much as a shared word.

    What the clause only says again is not changed by it.
    """
    ours = read_terms(clause)
    theirs = read_terms(part)
    if theirs <= ours and not _denies(clause):
        return _NONE
    are_places = _names_place(part) and _names_place(clause)
    shared = (theirs | {_HOME} if are_places else theirs) & ours
    numbers = ComparedText(clause).numbers
    others = ComparedText(part).numbers
    is_other = bool(numbers and others) and numbers.isdisjoint(others)
    if shared:
        return is_other, len(shared), not shared.isdisjoint(_ASPECTS.values())
    are_both = are_places and is_other
    return are_both, int(are_both), are_places or is_other


def _denies(clause: str) -> bool:
    """Return whether a clause says that something is not so, or no longer."""
    said = ComparedText(clause)
    return "ended" in said.cues or bool(said.values.negations)


def _names_place(text: str) -> bool:
    found = _PLACE.search(text)
    return found is not None and not is_value(found["name"].lower())


def find_covered(parts: Sequence[str], fact: str) -> frozenset[int]:
    """Return the places of the parts that a fact is based on.

    >>> sorted(find_covered(["I speak Dutch", "live in Ghent"], "Ana lives in Ghent"))
    [1]
    """
    ours = read_terms(fact)
    covered = []
    for place, part in enumerate(parts):
        theirs = read_terms(part)
        if theirs and len(theirs & ours) >= _COVERED * len(theirs):
            covered.append(place)
    return frozenset(covered)


def find_asked(question: str, old: str, new: str) -> Asked:
    """Return whether a question is about the part of a text that a newer text changes.

    It is unknown if no part has a word of the question, apart from whom it is about.

    >>> old = "Clara is vegetarian and I'm allergic to nuts"
    >>> find_asked("What am I allergic to?", old, "Clara eats meat now")
    'another'
    >>> find_asked("What does Clara eat?", old, "Clara eats meat now")
    'changed'
    >>> find_asked("What do you know of Clara?", old, "Clara eats meat now")
    'unknown'
    >>> old = "Eva moves to Bonn with her two boys, Max and Theo"
    >>> find_asked("How old is Theo?", old, "Eva moves to Kiel now")
    'another'
    """
    if not says_more(old) and not _BESIDES.search(old):
        return "unknown"
    parts = [part for each in split_parts(old) for part in _BESIDES.split(each) if part.strip()]
    if len(parts) < 2:
        return "unknown"
    changed = _find_changed_of(parts, new)
    if not changed:
        return "unknown"
    said = " ".join(parts[place] for place in changed)
    asked = read_terms(question) - read_terms(" ".join(_name_people(f"{said} {new}")))
    for terms in (asked - read_terms(new), asked):
        counts = [len(read_terms(part) & terms) for part in parts]
        if most := max(counts):
            best = {place for place, count in enumerate(counts) if count == most}
            return "another" if best.isdisjoint(changed) else "changed"
    return "unknown"


def answers_alike(question: str, text: str, restating: str) -> bool:
    """Return whether what restates a part of a text has all words of the question that the text has.

    >>> old = "I'm a nurse and I live in Ghent."
    >>> answers_alike("Am I a nurse?", old, "The user is a nurse.")
    True
    >>> answers_alike("Which city do I live in?", old, "The user is a nurse.")
    False
    """
    asked = read_terms(question) & read_terms(text)
    asked -= read_terms(" ".join(_name_people(text)))
    return bool(asked) and asked <= read_terms(restating)


def _name_people(text: str) -> list[str]:
    return [*ComparedText(text).names, *RELATIVES.intersection(words(text))]
