"""Compare two statements by their words alone: whether they say the same, may be the same fact, or
one supports the other.

If in doubt the answer is "no": two memories can be merged later, lost words cannot be recovered. A
language model that takes two notes for the same fact may be wrong, so the values have the last
word: the wording may differ, but numbers, times, names, negations and dislikes may not.
Contradictions are in `contradictions`.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

from ..types import Memory
from .entities import is_common
from .normalize import compact
from .prompts import LONGEST
from .statements import Statement, parse
from .tokens import ENGLISH, analyze, word_set
from .values import is_value, value_tokens

Verdict = Literal["same", "more", "less", "other"]
FEW = 8  # one word in this many may be missing on one side of long texts
SHORT = 12  # words that carry meaning
STEM = 5  # letters that make two rare words the same: physiotherapist, physiotherapy
LEAST_REPEATED = 0.4  # of what a memory adds to the question; unrelated replies repeat less
SUPPORTED_SHARE = 0.45  # of the words of a line that its source has to contain
_MOST_LINE_WORDS = 32
_MOST_SOURCE_WORDS = 64
_MEASURED = "numbers times dates units weekdays months".split()  # compared in any order
_TURNED = word_set("- off left sell past")
_OPPOSED = ("before after", "more less", "on off", "joined left", "buy sell")
# A word of these that is missing on one side is not a difference.
_VAGUE = word_set("morning afternoon evening night daily weekly monthly yearly")
RELATIVES = word_set("""
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
_UNSURE = word_set("if maybe would must only or ?")


def verdict(new: Statement, old: Statement) -> Verdict:
    """Return whether a text says what an older one says, or a little more, or a little less.

    >>> verdict(parse("Remember: I am allergic to peanuts!"), parse("I have an allergy to peanuts"))
    'same'
    >>> verdict(parse("My favorite color is blue"), parse("My favorite color is green"))
    'other'
    """
    if new.marks != old.marks:
        return "other"
    if not have_same_persons(new, old):
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
    if not both or len(extra) * FEW > len(both):
        return "other"
    if extra & ours and extra & theirs:
        return "other"
    one = list(filter(both.__contains__, new.words))
    other = list(filter(both.__contains__, old.words))
    if one != other:  # a part may have moved to the other end, in longer texts
        if len(one) < 3 or new.has_possessive or old.has_possessive:
            return "other"
        turn = one.index(other[0])
        if one[turn:] + one[:turn] != other:
            return "other"
    if not values_agree(new, old):
        return "other"
    if not extra:
        return "same"
    return "more" if extra <= ours else "less"


def have_same_persons(a: Statement, b: Statement) -> bool:
    """Return whether the pronouns agree; a text without any agrees with all."""
    if not a.persons or not b.persons:
        return True
    return a.persons == b.persons


def values_agree(a: Statement, b: Statement) -> bool:
    """Return whether two texts state the same numbers, times, dates, negations, likes and names.

    A link or an author–year citation that only one of them has is not a difference; two different
    ones are.

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
    has_references = first.references and second.references
    if has_references and first.references != second.references:
        return False
    # A name written in lower case in the other text is still the name, so all words are searched.
    names = [*first.names, *second.names]
    is_name = {*map(str.lower, names)}.__contains__
    ours = dict.fromkeys(filter(is_name, value_tokens(a.core)))
    theirs = dict.fromkeys(filter(is_name, value_tokens(b.core)))
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
        stated = getattr(one, name)
        if sorted(stated) != sorted(getattr(other, name)):
            return False
    if len(one.negations) != len(other.negations):
        return False
    # Only one side may not have a dislike, a parting or the past, nor may they be opposed.
    apart = {*one.leanings} ^ {*other.leanings}
    if apart & _TURNED:
        return False
    for pair in _OPPOSED:
        if apart.issuperset(pair.split()):
            return False
    # A time of day or a "weekly" may be missing on one side; "tomorrow" may not.
    days = {*one.days}
    other_days = {*other.days}
    if days and other_days:
        if days != other_days:
            return False
    elif not days | other_days <= _VAGUE:
        return False
    # Both have all the names; of possible names, only one side may have its own.
    sure, possible = a.names
    other_sure, other_possible = b.names
    if (sure | other_sure) & (a.vocabulary ^ b.vocabulary):
        return False
    return possible <= b.vocabulary or other_possible <= a.vocabulary


def is_contrast(
    a: Statement,
    b: Statement,
    *,
    near: bool = False,
) -> bool:
    """Return whether two texts differ in a way that makes them different facts.

    One or two words differ, or are added, in an otherwise equal sentence; the same words say
    something else; one is a guess, a question or a condition; they name different relatives; or
    each has a rare word that the other does not have. If the texts are very `near` by meaning, such
    words may mean the same.

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
    relatives = RELATIVES.intersection(a.spoken)
    if relatives != RELATIVES.intersection(b.spoken):
        return True
    ours, theirs = _trim_equal(a.spoken, b.spoken)
    is_short = max(len(ours), len(theirs)) <= 2
    is_one_change = is_short and set(ours).isdisjoint(theirs) and a.spoken != b.spoken
    if is_one_change or set(a.words) == set(b.words):
        return verdict(a, b) == "other"
    if near:
        return False
    return _has_own_word(a, b) and _has_own_word(b, a)


def _trim_equal(a: Sequence[str], b: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return what is left of two texts without the words that both begin and end with.

    >>> _trim_equal("a red bike with bell".split(), "a blue bike with bell".split())
    (['red'], ['blue'])
    """
    most = min(len(a), len(b))
    start = next((i for i in range(most) if a[i] != b[i]), most)
    most -= start
    same = next((i for i in range(most) if a[-1 - i] != b[-1 - i]), most)
    return a[start : len(a) - same], b[start : len(b) - same]


def _has_own_word(of: Statement, other: Statement) -> bool:
    """Return whether a text has a rare word, and the other has none of the same stem."""
    beginnings = {word[:STEM] for word in other.vocabulary}
    for word in of.vocabulary - other.vocabulary:
        if word in ENGLISH or word[:STEM] in beginnings:
            continue
        if is_value(word) or is_common(word):
            continue
        stems = set(parse(word).words)
        if stems.isdisjoint(other.words):
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
    if len(a.words) > SHORT or len(b.words) > SHORT:
        return False
    if a.persons != b.persons:
        return False
    if "past" in a.marks ^ b.marks:
        return False
    has_stance = not _STANCE.isdisjoint(a.spoken)
    if has_stance == _STANCE.isdisjoint(b.spoken):
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
    near: set[int] = set()
    for number in _whole_numbers(a):
        near |= {number - 1, number, number + 1}
    return not near.isdisjoint(_whole_numbers(b))


def _whole_numbers(of: Statement) -> set[int]:
    numbers = of.text_values.numbers
    return {int(each) for each in numbers if each.lstrip("-").isdecimal()}


def pick_containing(a: Statement, b: Statement) -> str | None:
    """Return the text that has all the words of the other, the longer one if both do.

    >>> pick_containing(parse("Ana has a red bike"), parse("Ana has a bike"))
    'Ana has a red bike'
    >>> pick_containing(parse("Ana has a bike"), parse("Ana owns a red car"))
    """
    words = set(a.words)
    other_words = set(b.words)
    if words == other_words:
        return max(a.text, b.text, key=len)
    if words > other_words:
        return a.text
    return b.text if words < other_words else None


def join(a: Statement, b: Statement) -> str:
    """Return the text that contains the other, or both in a row if they fit, or the longer one.

    >>> join(parse("Ana has a bike"), parse("Ana cycles to work"))
    'Ana has a bike. Ana cycles to work'
    """
    if containing := pick_containing(a, b):
        return containing
    row = f"{a.text.rstrip(' .!')}. {b.text}"
    if len(row) <= LONGEST:
        return row
    return max(a.text, b.text, key=len)


def is_grounded(
    made: str,
    a: Statement,
    b: Statement,
) -> bool:
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
    words = {*a.words, *b.words}
    persons = {*a.persons, *b.persons}
    if not words.issuperset(new.words):
        return False
    if not persons.issuperset(new.persons):
        return False
    return may_be_same(new, a) and may_be_same(new, b)


def invents(made: Statement, source: Statement) -> bool:
    """Return whether a text has a number, a date or a name that its source does not have.

    >>> source = parse("I told Ana everything")
    >>> invents(parse("The user trusts Ana"), source), invents(parse("The user trusts Bo"), source)
    (False, True)
    """
    for name in _MEASURED:
        known = getattr(source.text_values, name)
        stated = getattr(made.text_values, name)
        if not set(stated).issubset(known):
            return True
    sure, _ = made.names
    return not sure <= source.vocabulary


def is_supported(line: str, source: str) -> bool:
    """Return whether a source contains a line word for word, or nearly half of its words.

    >>> is_supported("Ana likes green tea", "I'm Ana and green tea is all I drink")
    True
    >>> is_supported("Ana is rich", "I'm Ana")
    False
    """
    wanted = compact(line)
    given = compact(source)
    if wanted and wanted in given:
        return True
    words = _long_words(wanted, _MOST_LINE_WORDS)
    shared = words & _long_words(given, _MOST_SOURCE_WORDS)
    if 2 <= len(words) <= 3 and shared == words:
        return True
    least = math.ceil(SUPPORTED_SHARE * len(words))
    return len(shared) >= max(2, least)


def _long_words(text: str, most: int) -> set[str]:
    """Return the first different words of at least three letters."""
    words = filter(lambda word: len(word) >= 3, text.split())
    return {*islice(dict.fromkeys(words), most)}


def find_used(
    reply: str,
    memories: Iterable[Memory],
    *,
    asked: str = "",
    language: str = "english",
) -> dict[str, str]:
    """Return the ids of the memories that a reply used: `cited` by id or `echoed` in its words.

    An echo is an estimate: a paraphrase is not recognized.
    """
    said = set(analyze(reply, language))
    known = set(analyze(asked, language))
    found = {}
    for memory in memories:
        if memory.id in reply:
            found[memory.id] = "cited"
            continue
        words = analyze(memory.text, language)
        own = set(words) - known  # what it adds to the question
        if own and len(own & said) / len(own) >= LEAST_REPEATED:
            found[memory.id] = "echoed"
    return found
