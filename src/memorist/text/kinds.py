"""Whether two statements are about two things of one sort, or two people: "the vet appointment" and "the
dentist appointment", "Flight 3" and "Flight 4", a sister and a brother.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product, takewhile

from .entities import GIVEN_NAMES
from .subjects import GENERIC, differ_in_actor, name_kin
from .tokens import (
    ENGLISH,
    analyze,
    compile_all,
    detect_language,
    load_patterns,
    word_groups,
    word_set,
    words,
)
from .values import is_value, read_values

_TABLES = load_patterns(__file__)
_WORDS = {name: word_set(" ".join(lines)) for name, lines in _TABLES["words"].items()}
_PEOPLE = {name: word_groups("/".join(groups)) for name, groups in _TABLES["people"].items()}
_PATTERNS = compile_all(_TABLES["patterns"])
_KINDS = compile_all(_TABLES["kinds"])
_SPEAKERS = frozenset(("i", "we", "and"))
_MOST_READ = 1000  # characters in which compounds are searched
_MOST_BEFORE = 4  # words that may come before a verb
_LEAST_PART = 4  # letters of a word that is part of another one


def are_of_other_kinds(new: str, old: str) -> bool:
    """Return whether two statements are about things of one sort, or people, that are not the same.

    >>> old = "My dentist appointment is at nine"
    >>> are_of_other_kinds("The vet appointment was moved to ten", old)
    True
    >>> are_of_other_kinds("My appointment at the dentist was moved to ten", old)
    False
    >>> are_of_other_kinds("My sister moved to Bonn", "My brother lives in Kiel")
    True
    >>> are_of_other_kinds("I go to bed at eleven now", "The kids go to bed at eight")
    True
    >>> are_of_other_kinds("I live in Bonn now", "Ole and I live in Kiel")
    False
    """
    ours = dict(_read_kinds(new))
    theirs = dict(_read_kinds(old))
    spoken = set(words(new)), set(words(old))
    for head in ours.keys() & theirs.keys():
        if ours[head] not in spoken[1] and theirs[head] not in spoken[0]:
            return True
    if _differ_in_compound(new, old) or _differ_in_number(new, old):
        return True
    if _differ_in_person(new, old) or _differ_in_person(old, new) or differ_in_actor(new, old):
        return True
    if _differ_in_kin(new, old):
        return True
    people, others = _name_relatives(new), _name_relatives(old)
    if not people or not others or people & others:
        return False
    names = {name.lower() for name in set(read_values(new).names) & set(read_values(old).names)}
    is_english = detect_language(words(new)) == "english"
    return not (names if is_english else names & GIVEN_NAMES)  # other words have capitals, too


def _differ_in_compound(new: str, old: str) -> bool:
    """Return whether two texts in German name two things of one sort by one word each.

    >>> _differ_in_compound("Mein Stromvertrag endet im Mai", "Mein Handyvertrag endet im Juni")
    True
    """
    if detect_language(words(f"{new} {old}")) != "german":
        return False
    ours, theirs = (set(_PATTERNS["compound"].findall(text[:_MOST_READ])) for text in (new, old))
    for one, other in product(ours - theirs, theirs - ours):
        pairs = zip(reversed(one), reversed(other), strict=False)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        is_whole = min(len(one), len(other)) - same < 2
        is_value_word = is_value(one.lower()) or is_value(other.lower())
        if same >= _LEAST_PART and not is_whole and not is_value_word:
            return True
    return False


def _differ_in_number(new: str, old: str) -> bool:
    """Return whether two texts begin with things of one sort that are told apart by their numbers.

    >>> _differ_in_number("Flight 4 goes to Rome", "Flight 3 goes to Rome")
    True
    >>> _differ_in_number("Version 4 is live", "Version 3 is live"), _differ_in_number("At 9 we eat", "At 8 we eat")
    (False, False)
    """
    ours, theirs = (_PATTERNS["numbered"].match(text) for text in (new, old))
    if not ours or not theirs or ours["number"] == theirs["number"]:
        return False
    noun = ours["noun"].lower()
    is_sort = noun not in ENGLISH and noun not in GENERIC | _WORDS["no_numbered"]
    return is_sort and noun == theirs["noun"].lower()


def _name_relatives(text: str) -> set[str]:
    """Return the relatives that a text names, each by one word."""
    spoken = words(text)
    is_english = detect_language(spoken) == "english"
    known = _PEOPLE["english" if is_english else "elsewhere"]
    return {known[word] for word in spoken if word in known}


def _differ_in_kin(new: str, old: str) -> bool:
    """Return whether two texts give other names to a relative of whom one may have several.

    >>> _differ_in_kin("My sister Ana left Aldi", "My sister Bea is a vet")
    True
    """
    ours, theirs = name_kin(new), name_kin(old)
    return any(
        ours[kin] not in old and theirs[kin] not in new for kin in ours.keys() & theirs.keys()
    )


def _differ_in_person(one: str, other: str) -> bool:
    """Return whether someone else does what a text says of its speaker: "I go", "The kids go"."""
    first, *rest = words(one)[:2] or [""]
    if first != "i" or not rest:
        return False
    verb = rest[0].removesuffix("s")
    before: list[str] = []
    for word in words(other)[:_MOST_BEFORE]:
        if word.removesuffix("s") == verb:
            return bool(before) and _SPEAKERS.isdisjoint(before)
        before.append(word)
    return False


def _read_kinds(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a text names by a noun or a name before it, with that."""
    is_english = detect_language(words(text)) == "english"
    for name, pattern in _KINDS.items():
        if (name == "elsewhere") == is_english:
            continue
        for match in pattern.finditer(text):
            kind = match["kind"].lower()
            head = match["head"].lower()
            is_sort = kind not in _WORDS["no_kind"] and head not in _WORDS["no_head"]
            if is_sort and not is_value(head):
                yield " ".join(analyze(head)), kind
