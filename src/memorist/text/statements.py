"""A text, parsed once: the words that carry meaning, its values, its names, and its clause around a
verb.

`compare` and `contradictions` answer questions about two statements. Similar vectors do not imply
the same meaning ("my favorite color is green" and "… is blue" are neighbors), so a text is reduced
to the words that carry meaning, and the values that it states are read separately. The word lists
are English.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from . import tokens
from .entities import GIVEN_NAMES, is_common
from .normalize import LINK, compose, for_hash, split_clause, strip_preface
from .tokens import ENGLISH, word_groups, word_set, word_table
from .values import Values, is_value, read_values

_EMPTY = word_set("""
    really very quite totally absolutely definitely certainly actually basically literally truly
    simply just also too so please kindly still already now currently though anyway indeed well
    honestly frankly obviously haha lol uh um hmm kinda
    ok okay oh hey hi yes yeah yep btw fyi always got get gets thing things lot lots bit oclock
    pm p dont doesnt didnt cant couldnt wont wouldnt shouldnt isnt arent wasnt werent hasnt
    havent hadnt im ive id ill youre theyre whats thats its lets user der die das den dem ein
    eine einen einem ist bin sind im am und mein meine le la les un une est suis et mon ma el
    los las una es soy y mi mis il lo di è sono e mio mia o os as um uma é sou meu minha
    """)
_MARKS = word_groups("""
    from/under below beneath/over above/against/out outside/off/up/down/between/behind/beside near
    /inside/until/through/around/all every each/some any/most mostly/few/many/only/both/either/or
    /if unless whether/than/by/who whose whom/when/where/why/how/what which/into/would
    /maybe perhaps possibly probably might could/must should
    /past was were had did wasn't weren't hadn't didn't
    """)
_PERSONS = word_table("""
    I: i me my mine myself i'm i've i'd i'll im ive
    we: we us our ours we're we've we'll we'd
    you: you your yours you're you've you'll you'd
    he: he him his he's he'll he'd
    she: she her hers she's she'll she'd
    they: they them their theirs they're they've they'll they'd
    """)
_PRESENT = word_set(
    "is are am be being been isn't aren't i'm he's she's it's we're they're you're that's get gets"
)
_SMALL = _EMPTY | _MARKS.keys() | _PERSONS.keys() | ENGLISH
_AFTERTHOUGHT = re.compile(
    r"(?i),\s?(?:you know|i mean|(?:as|like) i said|by the way|to be honest|of course)[.!]*$"
)
_WENT = word_set("""
    went bought sold ate drank wrote took made came saw gave told said met lost paid felt kept
    found thought got brought taught spent built began broke chose drove fell flew forgot grew
    knew rode sang slept spoke swam threw
    """)
_ROLE = re.compile(r"\bworks? as\b")
_PAST = re.compile(r"(?<!e)ed$")
_SYNONYMS = word_groups("""
    like love enjoy adore/film movie/flat apartment/begin start/buy bought purchase purchased
    /phone mobile cellphone telephone/big large/job occupation profession/mom mum mother
    /dad father/kid child children/photo picture/car automobile/reply answer/colour color
    /favourite favorite/holiday vacation/grocery groceries/doctor physician/lawyer attorney
    /shop store/allergic allergy/vegetarian veggie/bike bicycle/name call called named
    /tv television/fridge refrigerator/sofa couch/reside live/hate detest loathe/meeting meet
    /organise organize/programme program/neighbour neighbor/centre center/grey gray
    /theatre theater/birthday bday/appointment appt/minutes mins minute min/hours hrs hour hr
    /kilometres km kilometers kilometer/kilograms kg kilos kilo/university uni/fluent fluently
    /prefer preference/travel trip/afraid scared/glad happy/finish complete/quickly fast
    /parents folks/bathroom restroom/trash garbage
    """)
_SAME_STEMS = {stem: first for word, first in _SYNONYMS.items() for stem in tokens.analyze(word)}

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?:^|[.!?:;…])[\s\"“'‘(]*$")
_POSSESSIVE = re.compile(r"['’]s?$")
_MOST_COMPARED = 1000  # characters of a text in which parts are told apart
_LEAST_SAID = 4  # words of a sentence that says something by itself
_STATED = re.compile(r"[.!?;\n。！？]+\s*")
_JOINED = re.compile(r"(?i)\s(?:and|but|und|aber|et|mais|y|pero|e|mas|ma)(?:\s+\S+){3}")
# The period of "am 12. April" ends nothing.
_MONTH = r"(?:jan|feb|mär|apr|mai|jun|jul|aug|sept?|okt|nov|dez)\w{0,6}\b"
CLAUSE_END = re.compile(
    rf"(?i)(?<=[.!?;:])\s+(?!(?<=\d\.\s){_MONTH})|,\s+|\s[–—-]\s|\s(?:and|but)\s(?=(?:i|we|live|work)\b)"
)
# A part that begins with a pronoun continues the one before it: "my phone broke. It's a Nokia."
_PART = re.compile(
    rf"(?i)(?!(?<=\d)\.\s?{_MONTH})"
    r"(?:[.!?;,\n。！？]++\s*+|\s(?:and|but|und|aber|et|mais|y|pero|e|mas|ma)\s|\swith\s(?=(?:my|our)\s))"
    r"(?!(?:it|he|she|they|that|this|es|er|sie|il|elle|él|ella|ele|ela|lui|lei)\b)"
)
_NO_NAMES = {"user", "i", "i'm", "i've", "i'd", "i'll"}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a text says. Parts that are rarely needed are computed on first use."""

    text: str
    core: str  # the text without a preface such as "please remember that", or ", you know"
    spoken: tuple[str, ...]  # all its words
    words: tuple[str, ...]  # stems of the words that carry meaning, each once, in order
    marks: frozenset[str]  # small words that change the meaning: from, under, if, maybe, past …
    persons: tuple[str, ...]  # who is referred to by a pronoun, in order
    has_possessive: bool  # "Ana's": the order of the words matters

    @cached_property
    def values(self) -> Values:
        """The numbers, times, negations, … of the core."""
        return read_values(self.core)

    @cached_property
    def text_values(self) -> Values:
        """The same of the whole text."""
        return self.values if self.core == self.text else read_values(self.text)

    @cached_property
    def clause(self) -> "Clause | None":
        return parse_clause(self.text)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """All words in lower case, without the 's of a possessive."""
        found = _WORD.findall(LINK.sub(" ", compose(self.text)))
        return frozenset(_POSSESSIVE.sub("", word).lower() for word in found)

    @cached_property
    def names(self) -> tuple[set[str], set[str]]:
        """Names, and uncommon words that may have a capital only because they begin a sentence."""
        sure = set()
        possible = set()
        plain = LINK.sub(" ", compose(self.text))
        for match in _WORD.finditer(plain):
            word = _POSSESSIVE.sub("", match[0])
            lower = word.lower()
            start = match.start()
            if lower in _NO_NAMES or lower in ENGLISH or is_value(lower):
                continue
            is_inside = word != lower and not _SENTENCE_END.search(plain[max(0, start - 8) : start])
            if lower in GIVEN_NAMES or lower.upper() == lower or is_inside:
                sure.add(lower)
            elif word != lower and not is_common(lower):
                possible.add(lower)
        return sure, possible


@dataclass(frozen=True, kw_only=True)
class Clause(Statement):
    """A short statement, with its parts."""

    subject: str  # the part before the verb
    verb: str
    rest: str
    says_changed: bool  # it says that something changed

    @cached_property
    def base_verb(self) -> str:
        """The verb without the ending of the third person."""
        return self.verb.removesuffix("s")

    @cached_property
    def topics(self) -> frozenset[str]:
        """The stems apart from those that like or dislike something."""
        return frozenset(self.words) - LIKINGS

    @cached_property
    def object_words(self) -> tuple[str, ...]:
        """The stems that follow the verb."""
        return parse(self.rest).words


class WordParts(NamedTuple):
    """What a single word contributes to a statement."""

    marks: tuple[str, ...]
    person: str | None
    is_possessive: bool
    stem: str | None  # None if it carries no meaning
    is_tensed: bool  # a verb in the past tense is searched among these
    is_past: bool


def parse(text: str) -> Statement:
    """Parse a text.

    >>> parse("Please remember that I'm still living in a small flat above the bakery").words
    ('reside', 'small', 'flat', 'bakeri')
    """
    return Statement(**_parse_fields(text))


def _parse_fields(text: str) -> dict[str, Any]:
    """Return the fields of a statement."""
    core = _AFTERTHOUGHT.sub("", strip_preface(text))
    plain = _ROLE.sub("am", for_hash(core))
    found = tokens.words(plain)
    stems: dict[str, None] = {}
    marks: set[str] = set()
    persons: dict[str, None] = {}
    before = ""
    has_possessive = False
    for word in found:
        marked, person, is_possessive, stem, is_tensed, is_past = _read_word(word)
        marks.update(marked)
        if person is not None:
            persons[person] = None
        has_possessive |= is_possessive
        if stem is not None:
            stems[stem] = None
        if is_past and before not in _PRESENT:
            marks.add("past")
        if is_tensed:
            before = word
    if "?" in plain:
        marks.add("?")
    return {
        "text": text,
        "core": core,
        "spoken": tuple(found),
        "words": tuple(stems),
        "marks": frozenset(marks),
        "persons": tuple(persons),
        "has_possessive": has_possessive,
    }


@lru_cache(maxsize=1 << 14)
def _read_word(word: str) -> WordParts:
    """Look a word up in all tables; most words of a text are seen again and again."""
    marks = [_MARKS[word]] if word in _MARKS else []
    if word.endswith("'d"):
        marks.append("would")
    has_meaning = word not in _SMALL and not is_value(word)
    is_tensed = word != "not" and (word in _PRESENT or word not in _EMPTY)
    is_past = word in _WENT or (len(word) > 4 and _PAST.search(word) is not None)
    return WordParts(
        marks=tuple(marks),
        person=_PERSONS.get(word),
        is_possessive=word.endswith("'s") and word not in _PRESENT,
        stem=_stem(word) if has_meaning else None,
        is_tensed=is_tensed,
        is_past=is_tensed and is_past,
    )


def _stem(word: str) -> str:
    """Return the stem that stands for a word and its synonyms."""
    stem = (tokens.analyze(word) or [word])[0]
    return _SAME_STEMS.get(stem, stem)


def parse_clause(text: str) -> Clause | None:
    """Split a text at its verb and parse it; return None if it is not one short clause."""
    parts = split_clause(text)
    return parts and Clause(**parts._asdict() | _parse_fields(parts.text))


def says_more(text: str) -> bool:
    """Return whether a text has several statements, so that not all of it need be outdated.

    >>> says_more("I live in Lisbon and work as a nurse"), says_more("I live in Lisbon, downtown.")
    (True, False)
    """
    read = text[:_MOST_COMPARED]
    sentences = [each for each in _STATED.split(read) if len(each.split()) >= _LEAST_SAID]
    return len(sentences) > 1 or _JOINED.search(read) is not None


def split_parts(text: str) -> list[str]:
    """Return the parts of a text of which one may change while the others stay.

    >>> split_parts("I live in Bonn with my wife Ute. She is a vet and I'm a cook.")
    ['I live in Bonn', 'my wife Ute. She is a vet', "I'm a cook", '']
    """
    return _PART.split(text[:_MOST_COMPARED])


LIKINGS = frozenset(parse("like likes love enjoy hate dislike detest loathe adore").words)
