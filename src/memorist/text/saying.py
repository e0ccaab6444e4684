"""Whether one text says what another says, more, less, or something else; decided by words alone, without a model.

Near vectors do not show that two texts say the same: "my favourite colour is green" and "… is blue" are neighbours.
So both are reduced to the words that carry meaning, and these have to be the same; the value guard compares the rest.
Where it is in doubt the answer is "other": two memories can be joined later, lost words cannot be found again.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal

from . import tokens
from . import values as stated
from .common_words import word_set
from .normalize import for_hash
from .stopwords import ENGLISH

Verdict = Literal["same", "more", "less", "other"]
FEW = 8  # one word in so many may be missing on one side of long texts


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a text says, without its values."""

    text: str  # without what only introduces it
    spoken: tuple[str, ...]  # all its words
    words: tuple[str, ...]  # stems of the words that carry meaning, each once, in order
    marks: frozenset[str]  # small words that turn the meaning: from, under, if, maybe, the past …
    persons: tuple[str, ...]  # who is spoken of by a pronoun, in order
    places: frozenset[str]  # in, on
    possessive: bool  # somebody's something: the order of the words matters

    @cached_property
    def values(self) -> stated.Values:
        return stated.values(self.text)


_EMPTY = word_set("""
    really very quite totally absolutely definitely certainly actually basically literally truly simply just also too so
    please kindly still already now currently though anyway indeed well ok okay oh hey hi yes yeah yep btw fyi always
    got get gets thing things lot lots bit oclock pm p dont doesnt didnt cant couldnt wont wouldnt shouldnt isnt arent
    wasnt werent hasnt havent hadnt im ive id ill youre theyre whats thats its lets user
    der die das den dem ein eine einen einem ist bin sind im am und mein meine le la les un une est suis et mon ma
    el los las una es soy y mi mis il lo di è sono e mio mia o os as um uma é sou meu minha
    """)
_MARKS = {
    word: group.split()[0]
    for group in (
        "from/under below beneath/over above/against/out outside/off/up/down/between/behind/beside near/inside/until"
        "/through/around/all every each/some any/most mostly/few/many/only/both/either/or/if unless whether/than/by"
        "/who whose whom/when/where/why/how/what which/into/would/maybe perhaps possibly probably might could"
        "/must should/past was were had did wasn't weren't hadn't didn't"
    ).split("/")
    for word in group.split()
}
_PERSONS = {
    word: person
    for person, words in {
        "I": "i me my mine myself i'm i've i'd i'll im ive",
        "we": "we us our ours we're we've we'll we'd",
        "you": "you your yours you're you've you'll you'd",
        "he": "he him his he's he'll he'd",
        "she": "she her hers she's she'll she'd",
        "they": "they them their theirs they're they've they'll they'd",
    }.items()
    for word in words.split()
}
_PRESENT = word_set(
    "is are am be being been isn't aren't i'm he's she's it's we're they're you're that's get gets"
)
_SMALL = _EMPTY | _MARKS.keys() | _PERSONS.keys() | ENGLISH
_PREFACE = re.compile(
    r"^\W*(?:(?:please|pls) (?:remember|note)(?:\s+that|:|,)?\s+"
    r"|(?:please|pls|hey|ok|okay|so|also|again|oh|and|by the way|btw|fyi|just so you know|(?:as|like) i said)"
    r"[,:]?\s+"
    r"|(?:remember|note|keep in mind|don['’]?t forget|reminder|quick reminder|quick note|for the record"
    r"|for your records|in case i forget)(?:\s+that|:|,)\s*)+",
    re.IGNORECASE,
)
_WENT = word_set(
    "went bought sold ate drank wrote took made came saw gave told said met lost paid felt kept found thought got"
    " brought taught spent built began broke chose drove fell flew forgot grew knew rode sang slept spoke swam threw"
)
_ROLE = re.compile(r"\bworks? as\b")
_PLACES = word_set("in on")
_PAST = re.compile(r"(?<!e)ed$")
_SYNONYMS = """
    like love enjoy adore/film movie/flat apartment/begin start/buy bought purchase purchased
    /phone mobile cellphone telephone/big large/job occupation profession/mom mum mother/dad father
    /kid child children/photo picture/car automobile/reply answer/colour color/favourite favorite/holiday vacation
    /grocery groceries/doctor physician/lawyer attorney/shop store/allergic allergy/vegetarian veggie/bike bicycle
    /name call called named/tv television/fridge refrigerator/sofa couch/reside live/hate detest loathe
    /meeting meet/organise organize/programme program/neighbour neighbor/centre center/grey gray
    /theatre theater/birthday bday/appointment appt/minutes mins minute min/hours hrs hour hr
    /kilometres km kilometers kilometer/kilograms kg kilos kilo/university uni/fluent fluently/prefer preference
    /travel trip/afraid scared/glad happy/finish complete/quickly fast/parents folks/bathroom restroom/trash garbage
"""


@lru_cache(maxsize=1 << 12)
def _meaning(word: str) -> str:
    """The stem that stands for a word and those that mean the same."""
    stem = (tokens.analyse(word) or [word])[0]
    return _SAME.get(stem, stem)


_SAME = {
    stem: group.split()[0]
    for group in " ".join(_SYNONYMS.split()).split("/")
    for word in group.split()
    for stem in tokens.analyse(word)
}


def said(text: str) -> Said:
    """Reduce a text to what it says.

    >>> said("Please remember that I'm still living in a small flat above the bakery").words
    ('reside', 'small', 'flat', 'bakeri')
    """
    told = bare(text)
    plain = _ROLE.sub("am", for_hash(told))
    found = tokens.words(plain)
    left = [word for word in found if word not in _SMALL and not stated.is_value(word)]
    marks = {_MARKS[word] for word in found if word in _MARKS} | ({"?"} if "?" in plain else set())
    marks |= {"would"} if any(word.endswith("'d") for word in found) else set()
    tensed = [
        "",
        *(word for word in found if word != "not" and (word in _PRESENT or word not in _EMPTY)),
    ]
    if any(_is_past(word) and before not in _PRESENT for before, word in pairwise(tensed)):
        marks.add("past")
    return Said(
        text=told,
        spoken=tuple(found),
        words=tuple(dict.fromkeys(_meaning(word) for word in left)),
        marks=frozenset(marks),
        persons=tuple(dict.fromkeys(_PERSONS[word] for word in found if word in _PERSONS)),
        places=frozenset(found) & _PLACES,
        possessive=any(word.endswith("'s") and word not in _PRESENT for word in found),
    )


def bare(text: str) -> str:
    """The text without what only introduces it.

    >>> bare("Please remember that the keys are with Tom")
    'the keys are with Tom'
    """
    return _PREFACE.sub("", text) or text


def compare(new: str, old: str) -> Verdict:
    """Whether a text says what an older one says, or that and a little more, or a little less.

    >>> compare("Remember: I am allergic to peanuts!", "I have an allergy to peanuts")
    'same'
    >>> compare("My favourite colour is blue", "My favourite colour is green")
    'other'
    """
    return judged(said(new), said(old))


def judged(a: Said, b: Said) -> Verdict:
    """The same of texts that were read already."""
    persons_agree = a.persons == b.persons or not (a.persons and b.persons)
    if a.marks != b.marks or not persons_agree or (a.places - b.places and b.places - a.places):
        return "other"
    is_same = a.spoken == b.spoken != ()  # emoji have no words
    verdict = "same" if is_same else _contained(a, b)
    if verdict == "other" or not (is_same or _in_order(a, b)):
        return "other"
    return verdict if stated.agreeing(a.text, a.values, b.text, b.values) else "other"


def _contained(a: Said, b: Said) -> Verdict:
    ours, theirs = set(a.words), set(b.words)
    if ours == theirs:
        return "same" if ours else "other"
    extra = ours ^ theirs
    if len(extra) * FEW > len(ours & theirs):
        return "other"
    return "more" if extra <= ours else "less" if extra <= theirs else "other"


def _in_order(a: Said, b: Said) -> bool:
    """The words both have stand in the same order, or a part of them was only moved to the other end."""
    both = set(a.words) & set(b.words)
    one, other = ([word for word in each.words if word in both] for each in (a, b))
    if one == other:
        return True
    if a.possessive or b.possessive or len(one) < 3:
        return False
    turn = one.index(other[0])
    return one[turn:] + one[:turn] == other


def _is_past(word: str) -> bool:
    return word in _WENT or (len(word) > 4 and _PAST.search(word) is not None)
