"""Whether two statements say the same, may be the same fact, or rest on each other, by their words
alone.

Where it is in doubt the answer is "no": two memories can be joined later, lost words cannot be
recovered. A language model that takes two notes for the same fact may be wrong, so it is not
believed against the values: words may differ, but numbers, times, names, negations and dislikes may
not. Contradictions are in `contradictions`.
"""

import math
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Literal

from ..types import Memory
from .entities import is_common
from .normalize import compact
from .prompts import LONGEST
from .statements import Statement, parse
from .tokens import ENGLISH, analyze, word_set
from .values import is_value, value_tokens

Verdict = Literal["same", "more", "less", "other"]
FEW = 8  # one word in so many may be missing on one side of long texts
SHORT = 12  # words that carry meaning
STEM = 5  # letters that make two rare words the same: physiotherapist, physiotherapy
LEAST_REPEATED = 0.4  # of what a memory adds to the question; unrelated replies repeat less
SUPPORTED_SHARE = 0.45  # of the words of a line that its source has to hold
_MOST_LINE_WORDS = 32
_MOST_SOURCE_WORDS = 64
_MEASURED = ("numbers", "times", "dates", "units", "weekdays", "months")  # in any order
_TURNED = {"-", "off", "left", "sell", "past"}
_OPPOSED = ("before after", "more less", "on off", "joined left", "buy sell")
# One of these missing on one side is no difference.
_VAGUE = word_set("morning afternoon evening night daily weekly monthly yearly")
_RELATIVES = word_set("""
    mother mom mum father dad parents brother sister siblings uncle aunt cousin nephew niece son
    daughter child children wife husband partner boyfriend girlfriend fiance fiancee grandmother
    grandma grandfather grandpa neighbour neighbor flatmate roommate friend boss manager
    colleague landlord landlady stepmother stepfather stepson stepdaughter mother-in-law
    father-in-law brother-in-law sister-in-law ex twin godmother godfather
    """)
_STANCE = word_set("""
    want wants wanted need needs needed plan plans planned planning hope hopes hoped try tries
    tried trying going will intend intends wish wishes almost nearly once sometimes often rarely
    usually consider considers considering think thinks start starts started finish finished
    stop stops begin began goal aim forgot remember promised ask asked
    """)
_PLACES = word_set("in on")
_UNSURE = {"if", "maybe", "would", "must", "only", "or", "?"}


def verdict(new: Statement, old: Statement) -> Verdict:
    """Return whether a text says what an older one says, or a little more, or a little less.

    >>> verdict(parse("Remember: I am allergic to peanuts!"), parse("I have an allergy to peanuts"))
    'same'
    >>> verdict(parse("My favorite color is blue"), parse("My favorite color is green"))
    'other'
    """
    if new.marks != old.marks or not have_same_persons(new, old):
        return "other"
    places = _PLACES.intersection(new.spoken)
    other_places = _PLACES.intersection(old.spoken)
    if places - other_places and other_places - places:  # one is in it, the other on it
        return "other"
    if new.spoken == old.spoken != ():  # emoji have no words
        return "same" if values_agree(new, old) else "other"
    ours = set(new.words)
    theirs = set(old.words)
    both = ours & theirs
    extra = ours ^ theirs
    if not both or len(extra) * FEW > len(both) or not (extra <= ours or extra <= theirs):
        return "other"
    one = [word for word in new.words if word in both]
    other = [word for word in old.words if word in both]
    if one != other:  # a part may have moved to the other end, in longer texts
        turn = one.index(other[0])
        is_moved = one[turn:] + one[:turn] == other and len(one) > 2
        if not is_moved or new.has_possessive or old.has_possessive:
            return "other"
    if not values_agree(new, old):
        return "other"
    if not extra:
        return "same"
    return "more" if extra <= ours else "less"


def have_same_persons(a: Statement, b: Statement) -> bool:
    """Return whether the pronouns agree; a text without any agrees with all."""
    return a.persons == b.persons or not (a.persons and b.persons)


def values_agree(a: Statement, b: Statement) -> bool:
    """Return whether two texts state the same numbers, times, dates, negations, likes and names.

    A link or an author–year citation that only one of them has is no difference; two different ones
    are.

    >>> values_agree(parse("It moved to Tuesday at ten."), parse("It moved to Friday."))
    False
    >>> values_agree(parse("anna likes TEA"), parse("Anna likes tea!"))
    True
    >>> values_agree(parse("I like tea"), parse("I don't like tea"))
    False
    """
    first = a.values
    second = b.values
    if first.differing(second):
        return False
    if first.references and second.references and first.references != second.references:
        return False
    # A name written in lower case in the other text is still the name, so all words are searched.
    names = {name.lower() for name in (*first.names, *second.names)}
    ours = dict.fromkeys(filter(names.__contains__, value_tokens(a.core)))
    theirs = dict.fromkeys(filter(names.__contains__, value_tokens(b.core)))
    return list(ours) == list(theirs)


def may_be_same(a: Statement, b: Statement) -> bool:
    """Return whether the values of two texts let them be the same fact, however it is worded.

    >>> dog = parse("Biscuit, the dog of Ana, is of the beagle breed")
    >>> may_be_same(parse("Ana's dog Biscuit is a beagle"), dog)
    True
    >>> may_be_same(parse("Ana likes jazz"), parse("Ana hates jazz"))
    False
    >>> may_be_same(parse("Ana was born in 1980"), parse("Ana was born in 1981"))
    False
    """
    one = a.text_values
    other = b.text_values
    for name in _MEASURED:
        if Counter(getattr(one, name)) != Counter(getattr(other, name)):
            return False
    # Only one may not have a dislike, a parting or the past, nor may they lean to opposite sides.
    apart = {*one.leanings} ^ {*other.leanings}
    if len(one.negations) != len(other.negations) or apart & _TURNED:
        return False
    if any(apart.issuperset(pair.split()) for pair in _OPPOSED):
        return False
    # A time of day or a "weekly" may be missing on one side; "tomorrow" may not.
    days = {*one.days, *other.days}
    is_other_day = {*one.days} != {*other.days}
    if is_other_day and ((one.days and other.days) or not days <= _VAGUE):
        return False
    # Both have all the names; of words that may be none, only one side may have its own.
    sure, possible = a.names
    other_sure, other_possible = b.names
    if (sure | other_sure) & (a.vocabulary ^ b.vocabulary):
        return False
    return not (possible - b.vocabulary and other_possible - a.vocabulary)


def is_contrast(a: Statement, b: Statement, *, near: bool = False) -> bool:
    """Return whether two texts set one thing against another, so that they are not the same fact.

    One or two words differ, or are added, in an otherwise equal sentence; the same words say
    something else; one is a guess, a question or a condition; they name other relatives; or each
    has a rare word that the other has not. Where the texts are very `near` by meaning, such words
    may mean the same.

    >>> attic, cellar = parse("Ana keeps it in the attic"), parse("Ana keeps it in the cellar")
    >>> is_contrast(attic, cellar, near=True), is_contrast(parse("I win"), parse("I could win"))
    (True, True)
    >>> is_contrast(parse("Ana works as a vet at Lumen"), parse("Lumen pays Ana to be their vet"))
    False
    >>> is_contrast(parse("Bo told Ana about the move"), parse("Ana told Bo about the move"))
    True
    """
    if a.marks & _UNSURE != b.marks & _UNSURE:
        return True
    if _RELATIVES.intersection(a.spoken) != _RELATIVES.intersection(b.spoken):
        return True
    changes = []  # how many words differ, or only one side has, at each place
    matcher = SequenceMatcher(None, a.spoken, b.spoken, False)
    for tag, start, end, begin, stop in matcher.get_opcodes():
        if tag != "equal":
            changes.append(max(end - start, stop - begin))
    if (len(changes) == 1 and changes[0] <= 2) or set(a.words) == set(b.words):
        return verdict(a, b) == "other"
    return not near and _has_own_word(a, b) and _has_own_word(b, a)


def _has_own_word(of: Statement, other: Statement) -> bool:
    """Return whether a text has a rare word for which the other has none of the same stem."""
    beginnings = {word[:STEM] for word in other.vocabulary}
    stems = set(other.words)
    for word in of.vocabulary - other.vocabulary:
        if word in ENGLISH or is_value(word) or is_common(word) or word[:STEM] in beginnings:
            continue
        if not stems.intersection(parse(word).words):
            return True
    return False


def is_reworded(a: Statement, b: Statement) -> bool:
    """Return whether two short texts that are very near by meaning say the same in other words.

    >>> is_reworded(parse("Ana works as a vet at Lumen"), parse("Ana is a vet who works for Lumen"))
    True
    >>> called = parse("I have called the bank about the loan")
    >>> is_reworded(parse("I need to call the bank about the loan"), called)
    False
    """
    if max(len(a.words), len(b.words)) > SHORT:
        return False
    if "past" in a.marks ^ b.marks or a.persons != b.persons:
        return False
    if _STANCE.isdisjoint(a.spoken) != _STANCE.isdisjoint(b.spoken):
        return False
    return may_be_same(a, b) and not is_contrast(a, b)


def overlaps(a: Statement, b: Statement) -> bool:
    """Return whether two texts share a word or a whole number, or have two numbers one apart.

    >>> overlaps(parse("I ride a bike"), parse("My bike is red")), overlaps(parse("4"), parse("5"))
    (True, True)
    >>> overlaps(parse("I swim"), parse("He sings"))
    False
    """
    if set(a.words) & set(b.words):
        return True
    near = {number + step for number in _whole_numbers(a) for step in (-1, 0, 1)}
    return not near.isdisjoint(_whole_numbers(b))


def _whole_numbers(of: Statement) -> list[int]:
    return [int(each) for each in of.text_values.numbers if each.lstrip("-").isdecimal()]


def pick_containing(a: Statement, b: Statement) -> str | None:
    """Return the text that has all the words of the other, the longer one if both do.

    >>> pick_containing(parse("Ana has a red bike"), parse("Ana has a bike"))
    'Ana has a red bike'
    >>> pick_containing(parse("Ana has a bike"), parse("Ana owns a red car"))
    """
    longest_first = sorted((a, b), key=lambda each: -len(each.text))
    every = {*a.words, *b.words}
    return next((each.text for each in longest_first if every == {*each.words}), None)


def join(a: Statement, b: Statement) -> str:
    """Return the text that contains the other, or both in a row if they fit, or the longer one.

    >>> join(parse("Ana has a bike"), parse("Ana cycles to work"))
    'Ana has a bike. Ana cycles to work'
    """
    if containing := pick_containing(a, b):
        return containing
    row = f"{a.text.rstrip(' .!')}. {b.text}"
    return row if len(row) <= LONGEST else max(a.text, b.text, key=len)


def is_grounded(made: str, a: Statement, b: Statement) -> bool:
    """Return whether a text made of two others adds nothing to them and keeps all their values.

    >>> bike, work = parse("Ana has a bike"), parse("Ana cycles to work")
    >>> is_grounded("Ana cycles to work on a bike", bike, work)
    True
    >>> is_grounded("Ana cycles to work on an expensive bike", bike, work)
    False
    """
    if not made.strip() or len(made) > LONGEST or "\n" in made:
        return False
    new = parse(made)
    if not new.marks <= a.marks | b.marks:
        return False
    if not {*a.words, *b.words}.issuperset(new.words):
        return False
    if not {*a.persons, *b.persons}.issuperset(new.persons):
        return False
    return may_be_same(new, a) and may_be_same(new, b)


def invents(made: Statement, source: Statement) -> bool:
    """Return whether a text has a number, a date or a name that its source has not.

    >>> told = parse("I told Ana everything")
    >>> invents(parse("The user trusts Ana"), told), invents(parse("The user trusts Bo"), told)
    (False, True)
    """
    for name in _MEASURED:
        known = getattr(source.text_values, name)
        if not set(getattr(made.text_values, name)).issubset(known):
            return True
    return bool(made.names[0] - source.vocabulary)


def is_supported(line: str, source: str) -> bool:
    """Return whether a source holds a line word for word, or nearly half of its words.

    >>> is_supported("Ana likes green tea", "I'm Ana and green tea is all I drink")
    True
    >>> is_supported("Ana is rich", "I'm Ana")
    False
    """
    wanted = compact(line)
    given = compact(source)
    if wanted and wanted in given:
        return True
    words = _long_words(wanted)[:_MOST_LINE_WORDS]
    shared = len({*words}.intersection(_long_words(given)[:_MOST_SOURCE_WORDS]))
    if 2 <= len(words) <= 3 and shared == len(words):
        return True
    return shared >= max(2, math.ceil(SUPPORTED_SHARE * len(words)))


def _long_words(text: str) -> list[str]:
    return list(dict.fromkeys(word for word in text.split() if len(word) >= 3))


def find_used(
    reply: str,
    memories: Iterable[Memory],
    *,
    asked: str = "",
    language: str = "english",
) -> dict[str, str]:
    """Return the ids of the memories that went into a reply: `cited` by id or `echoed` in its
    words.

    An echo is an estimate: what is said in other words is not seen.
    """
    said = set(analyze(reply, language))
    known = set(analyze(asked, language))
    found = {}
    for memory in memories:
        own = set(analyze(memory.text, language)) - known  # what it adds to the question
        if memory.id in reply:
            found[memory.id] = "cited"
        elif own and len(own & said) / len(own) >= LEAST_REPEATED:
            found[memory.id] = "echoed"
    return found
