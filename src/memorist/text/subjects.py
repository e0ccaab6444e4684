"""What a statement is about: "My passport expires in June" and "My licence expires in May" are alike,
and both are true.

Without a grammar, different subjects are recognized by the words that two statements do not have in
common. Values, units and words such as "name" and "month" say nothing about what a statement is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from .cues import TURNING, ComparedText
from .statements import Clause, parse
from .tokens import analyze, detect_language, reduce_spoken, word_groups, word_set, words
from .values import is_value, read_values

_GENERIC = word_set("""
    name names number numbers named call called month months year years week weeks day days hour hours minute
    minutes each every per mg g kg km ml kilo kilos mile miles percent time times date thing
    things new old first last next
    """)
_NO_KIND = word_set("new old current next other same first last own previous main whole right")
# Of these a person may have one or two, and they do not become one another, as a fiancé does.
_PEOPLE = word_groups("""
    mother mom mum/father dad/brother/sister/uncle/aunt/cousin/nephew/niece/son/daughter/boss manager
    /grandmother grandma/grandfather grandpa/neighbour neighbor/landlord landlady/flatmate roommate
    """)
# "my vet appointment", "Tom's birthday"
_KIND = re.compile(
    r"(?i)\b(?:(?:my|our|the|his|her|their|your|a|an) ([^\W\d_]{3,40})|([^\W\d_]{3,40})['’]s)"
    r" ([^\W\d_]{3,40})\b"
)
_PRONOUN = re.compile(r"(?:he|she|it|they|his|her|its|their)\b", re.IGNORECASE)
_IS = frozenset(("is", "are"))
_SPEAKERS = frozenset(("i", "we", "and"))
_MOST_BEFORE = 4  # words that may come before a verb
_LEAST_PART = 4  # letters of a word that is part of another one
_OWNER = re.compile(r"\b[A-Z][^\W\d_]*['’]s?(?=\s+[^\W\d_])")


def read_subject(text: str) -> frozenset[str]:
    """Return the stems that may tell what a text is about, without values and their units.

    Whose something is does not count: "Jonas's parents" are not Jonas.

    >>> sorted(read_subject("I pay 40 euros a month for Ana's car"))
    ['car', 'pay']
    """
    spoken = words(_OWNER.sub(" ", text))
    kept = [word for word in spoken if not (word in _GENERIC or is_value(word))]
    stems = reduce_spoken(kept, detect_language(spoken))
    return frozenset(stem for stem in stems if not stem[0].isdigit())


def share_subject(new: str, old: str) -> bool:
    """Return whether two texts have a word in common that says what they are about.

    >>> share_subject("We charge 3 euros a month", "I pay 9 euros a month for my phone")
    False
    >>> share_subject("I left my choir", "The choirmaster is Ann")
    True
    """
    ours = read_subject(new)
    theirs = read_subject(old)
    if not ours.isdisjoint(theirs):
        return True
    for one, another in product(ours, theirs):
        part, whole = sorted((one, another), key=len)
        if len(part) >= _LEAST_PART and (whole.startswith(part) or whole.endswith(part)):
            return True
    return False


def are_parallel(new: str, old: str) -> bool:
    """Return whether two statements have something in common, and each a subject of its own.

    >>> are_parallel("Anna owes me 20 euros", "Tom owes me 50 euros")
    True
    >>> are_parallel("The rent is 900 euros", "My rent is 850 euros a month")
    False
    >>> are_parallel("My address is 9 Rua Nova, Faro", "My address is 3 Rua Augusta, Lisbon")
    False
    """
    ours = read_subject(new)
    theirs = read_subject(old)
    clauses = [parse(text).clause for text in (new, old)]
    is_about = [read_subject(each.subject) for each in clauses if each and each.verb in _IS]
    if len(is_about) == 2 and is_about[0] and is_about[0] == is_about[1]:
        return False
    return not ours.isdisjoint(theirs) and not (ours <= theirs or theirs <= ours)


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
    if _differ_in_person(new, old) or _differ_in_person(old, new):
        return True
    people, others = ({_PEOPLE[word] for word in said & _PEOPLE.keys()} for said in spoken)
    if not people or not others or people & others:
        return False
    return not set(read_values(new).names) & set(read_values(old).names)


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


def may_mean_same(new: str, clause: Clause, old: str, older_clause: Clause) -> bool:
    """Return whether the subject of a clause of each text may stand for the same.

    A pronoun does not if the rest of both texts has nothing in common.
    """
    if not _PRONOUN.match(clause.subject):
        return True
    ours = read_subject(new) - read_subject(clause.text)
    theirs = read_subject(old) - read_subject(older_clause.text)
    return not ours or not theirs or not ours.isdisjoint(theirs)


def answers_instead(question: str, new: str, old: str) -> bool:
    """Return whether a text that may replace an older one answers the question like that one does.

    It does not if the older one alone has a word of the question, unless the newer one refers back to
    it: by a pronoun, by saying what ended or changed, or because it only has another value. This
    is known of English only.

    >>> asked, old = "When do we launch the app?", "We launch on 1 June"
    >>> answers_instead(asked, "I signed up for a marathon on 24 May", old)
    False
    >>> answers_instead(asked, "make it 8 June", old)
    True
    """
    missing = set(analyze(question)).intersection(analyze(old)).difference(analyze(new))
    said = ComparedText(new)
    if not missing or not said.is_english:
        return True
    return said.opens_referring or not TURNING.isdisjoint(said.cues) or not read_subject(new)


def _read_kinds(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a text names by a noun or a name before it, with that."""
    for match in _KIND.finditer(text):
        kind = (match[1] or match[2]).lower()
        if kind not in _NO_KIND:
            yield " ".join(analyze(match[3])), kind
