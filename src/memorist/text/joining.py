"""Two texts of which somebody says that they state the same fact: whether that can be, and what they say together.

A language model that takes two notes for the same may be wrong, so it is not believed against the values: words may
differ, but numbers, times, dates, names, negations and dislikes may not.
"""

import re
from collections import Counter
from difflib import SequenceMatcher

from . import saying, style_check
from .common_words import GIVEN_NAMES, is_common, word_set
from .normalize import composed, without_links
from .stopwords import ENGLISH
from .values import Values, is_value, values

LONGEST = style_check.LONGEST
SHORT = 12  # words that carry meaning
STEM = 5  # letters that make two rare words the same: physiotherapist, physiotherapy
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?:^|[.!?:;…])[\s\"“'‘(]*$")
_POSSESSIVE = re.compile(r"['’]s?$")
_MEASURED = (
    "numbers",
    "times",
    "dates",
    "units",
    "weekdays",
    "months",
)  # said in any order, but as often
_TURNED = {"-", "off", "left", "sell", "past"}
_OPPOSED = (
    ("before", "after"),
    ("more", "less"),
    ("on", "off"),
    ("joined", "left"),
    ("buy", "sell"),
)
_VAGUE = word_set(
    "morning afternoon evening night daily weekly monthly yearly"
)  # missing on one side, no difference


def permitted(a: str, b: str) -> bool:
    """Whether the values of two texts let them be the same fact, however it is worded.

    >>> permitted("Ana's dog Biscuit is a beagle", "Biscuit, the dog of Ana, is of the beagle breed")
    True
    >>> permitted("Ana likes jazz", "Ana hates jazz"), permitted("Ana was born in 1980", "Ana was born in 1981")
    (False, False)
    """
    one, other = values(a), values(b)
    if any(Counter(getattr(one, name)) != Counter(getattr(other, name)) for name in _MEASURED):
        return False
    if (
        len(one.negations) != len(other.negations)
        or _turned(one, other)
        or not _same_days(one, other)
    ):
        return False
    return _same_names(a, b)


def contrasted(a: str, b: str, *, near: bool = False) -> bool:
    """Whether two texts set one thing against another, so that only somebody careless takes them for the same.

    A word or two is other, or more, in a sentence that is the same around it; the same words say something else;
    one is a guess, a question or a condition; they speak of other relatives; or each has a rare word that the other has
    not. Where the texts are very `near` by meaning, such words may mean the same.

    >>> contrasted("Ana keeps the tent in the attic", "Ana keeps the tent in the cellar", near=True)
    True
    >>> contrasted("Bo told Ana about the move", "Ana told Bo about the move"), contrasted("I win", "I could win")
    (True, True)
    >>> contrasted("Ana works as a vet at Lumen", "Lumen pays Ana to be their vet")
    False
    """
    one, other = saying.said(a), saying.said(b)
    spoken, spoken_too = set(one.spoken), set(other.spoken)
    if (
        one.marks & _UNSURE != other.marks & _UNSURE
        or spoken & _RELATIVES != spoken_too & _RELATIVES
    ):
        return True
    if _is_changed(one.spoken, other.spoken) or set(one.words) == set(other.words):
        return saying.judged(one, other) == "other"
    return not near and bool(_own(a, b)) and bool(_own(b, a))


def alike(a: str, b: str) -> bool:
    """Whether two short texts that are very near by meaning say the same in other words, as far as rules can tell.

    >>> alike("Ana works as a vet at Lumen", "Ana is a vet who works for Lumen")
    True
    >>> alike("I need to call the bank about the loan", "I have called the bank about the loan")
    False
    """
    one, other = saying.said(a), saying.said(b)
    if max(len(one.words), len(other.words)) > SHORT or {"past"} & (one.marks ^ other.marks):
        return False
    if one.persons != other.persons or bool(_STANCE & set(one.spoken)) != bool(
        _STANCE & set(other.spoken)
    ):
        return False
    return permitted(a, b) and not contrasted(a, b)


def _is_changed(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """The same words stand around one or two that differ, or that only one has."""
    parts = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    sizes = [
        max(end - start, stop - begin) for tag, start, end, begin, stop in parts if tag != "equal"
    ]
    return len(sizes) == 1 and sizes[0] <= 2


def _own(a: str, b: str) -> set[str]:
    """The rare words of a text for which the other has none of the same stem."""
    theirs = _words(b)
    begun, stems = {word[:STEM] for word in theirs}, set(saying.said(b).words)
    rare = {
        word
        for word in _words(a) - theirs
        if word not in ENGLISH and not is_value(word) and not is_common(word)
    }
    return {
        word
        for word in rare
        if word[:STEM] not in begun and not stems.intersection(saying.said(word).words)
    }


def overlap(a: str, b: str) -> bool:
    """Whether two texts share a word that tells something, or a whole number, or have two numbers one apart.

    >>> overlap("I ride a bike", "My bike is red"), overlap("Level 4 now", "reached 5"), overlap("I swim", "He sings")
    (True, True, False)
    """
    if set(saying.said(a).words) & set(saying.said(b).words):
        return True
    one, other = (
        {int(n) for n in values(text).numbers if n.lstrip("-").isdecimal()} for text in (a, b)
    )
    return any(n + step in other for n in one for step in (-1, 0, 1))


def containing(a: str, b: str) -> str | None:
    """That of two texts which has all the words of the other, the longer one if both have; None if neither has.

    >>> containing("Ana has a red bike", "Ana has a bike"), containing("Ana has a bike", "Ana owns a red car")
    ('Ana has a red bike', None)
    """
    one, other = (set(saying.said(text).words) for text in (a, b))
    if one == other:
        return max(a, b, key=len)
    return a if one > other else b if other > one else None


def together(a: str, b: str) -> str:
    """What both say: the text that contains the other, or both in a row; the longer one where there is no room.

    >>> together("Ana has a bike", "Ana cycles to work")
    'Ana has a bike. Ana cycles to work'
    """
    row = f"{a.rstrip(' .!')}. {b}"
    return containing(a, b) or (row if len(row) <= LONGEST else max(a, b, key=len))


def grounded(made: str, a: str, b: str) -> bool:
    """Whether a text that somebody made of two others says nothing that neither says, and has all their values.

    >>> grounded("Ana cycles to work on a bike", "Ana has a bike", "Ana cycles to work")
    True
    >>> grounded("Ana cycles to work on an expensive bike", "Ana has a bike", "Ana cycles to work")
    False
    """
    if not made.strip() or len(made) > LONGEST or "\n" in made:
        return False
    new, one, other = (saying.said(text) for text in (made, a, b))
    if not set(new.words) <= {*one.words, *other.words} or not new.marks <= one.marks | other.marks:
        return False
    if not set(new.persons) <= {*one.persons, *other.persons}:
        return False
    return permitted(made, a) and permitted(made, b)


def invents(made: str, source: str) -> bool:
    """Whether a text has a number, a date or a name that its source has not.

    >>> invents("The user trusts Ana", "I told Ana everything"), invents("The user trusts Bo", "I told Ana everything")
    (False, True)
    """
    new, told = values(made), values(source)
    if any(set(getattr(new, name)) - set(getattr(told, name)) for name in _MEASURED):
        return True
    return bool(_names(made)[0] - _words(source))


def _turned(one: Values, other: Values) -> bool:
    """Whether a dislike, a parting or the past is in one only, or they lean to opposite sides."""
    ours, theirs = set(one.leanings), set(other.leanings)
    if ours & _TURNED != theirs & _TURNED:
        return True
    return any(
        {first, second} <= ours ^ theirs and not {first, second} & ours & theirs
        for first, second in _OPPOSED
    )


def _same_days(one: Values, other: Values) -> bool:
    """A time of day or a "weekly" may be missing on one side; "tomorrow" may not."""
    ours, theirs = set(one.days), set(other.days)
    return ours == theirs or (ours | theirs <= _VAGUE and not (ours and theirs))


def _same_names(a: str, b: str) -> bool:
    """Both have all the names; of words that may be none, each at the head of a sentence, only one side has its own."""
    (sure, maybe), (sure_too, maybe_too) = _names(a), _names(b)
    ours, theirs = _words(a), _words(b)
    names = sure | sure_too
    return names & ours == names & theirs and not (maybe - theirs and maybe_too - ours)


def _words(text: str) -> set[str]:
    return {_POSSESSIVE.sub("", word).lower() for word in _WORD.findall(_plain(text))}


def _names(text: str) -> tuple[set[str], set[str]]:
    """The names, and the uncommon words that may only have their capital from the head of a sentence."""
    sure, maybe, plain = set(), set(), _plain(text)
    for match in _WORD.finditer(plain):
        word = _POSSESSIVE.sub("", match.group())
        lower = word.lower()
        if lower in _NO_NAMES or lower in ENGLISH or is_value(lower):
            continue
        is_first = (
            _SENTENCE_END.search(plain[max(0, match.start() - 8) : match.start()]) is not None
        )
        if lower in GIVEN_NAMES or lower.upper() == lower or (word != lower and not is_first):
            sure.add(lower)
        elif word != lower and not is_common(lower):
            maybe.add(lower)
    return sure, maybe


def _plain(text: str) -> str:
    return without_links(composed(text))


_RELATIVES = word_set("""
    mother mom mum father dad parents brother sister siblings uncle aunt cousin nephew niece son daughter child children
    wife husband partner boyfriend girlfriend fiance fiancee grandmother grandma grandfather grandpa neighbour neighbor
    flatmate roommate friend boss manager colleague landlord landlady stepmother stepfather stepson stepdaughter
    mother-in-law father-in-law brother-in-law sister-in-law ex twin godmother godfather
    """)
_STANCE = word_set("""
    want wants wanted need needs needed plan plans planned planning hope hopes hoped try tries tried trying going will
    intend intends wish wishes almost nearly once sometimes often rarely usually consider considers considering think
    thinks start starts started finish finished stop stops begin began goal aim forgot remember promised ask asked
    """)
_UNSURE = {"if", "maybe", "would", "must", "only", "or", "?"}
_NO_NAMES = {"user", "i", "i'm", "i've", "i'd", "i'll"}
