"""Whether two statements of one person say the same in other words.

"My sister is called Edda" and, months later, "a present for Edda, my sister". Values that differ rule
it out. Otherwise a logistic model over readable measures gives the probability that both say the
same; `bench/changes.py` fits its weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from .contradictions import contradicts_clause
from .cues import ComparedText, read_cues
from .entities import is_common
from .normalize import for_hash, strip_preface
from .statements import Statement, parse
from .tokens import detect_language, reduce_spoken, word_set, words
from .values import is_value

LEAST = 0.5  # probability from which on a turn repeats a statement
LONGEST = 40  # words
LEAST_SHARED = 2.0  # worth of the words that both have
ENOUGH_SHARED = 3.0
MOST_SHARED = 6.0
MOST_OTHERS = 6.0
FOREIGN_SIMILAR = 0.6  # of unrelated texts in languages other than English, by the second model
STEM = 7  # letters
LEAST_LETTERS = 3  # of a word that counts in languages that the rules cannot read
LEAST_FORMS = 2  # words of a text
LEAST_OF_CLAUSE = 3  # words of a clause of it
LEAST_CHARACTERS = 3
_TELLING = frozenset("ended moved corrected past hypothetical".split())
_MEANINGFUL = re.compile(r"[^\W\u3040-\u309f我私僕俺]")  # also Kanji and Katakana, without "I"
_ARABIC_AND = re.compile(r"^و(?=\w{3})")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_ADDRESSED = re.compile(r"(?i)\b(?:hey|hi|hello|dear|thanks|thank you|bye)[ ,]{1,2}([^\W\d_]+)")
_POINTS = re.compile(r"(?i)\b(?:this|these)\b")
# Of greetings, thanks, reactions and times of day; sharing them says nothing.
_EMPTY = word_set("""
    thank thanks support mean means appreciate appreciated bye goodbye hello hey hi wow awesome
    amazing great cool nice good lovely wonderful fantastic incredible awful talk talking chat
    chatting soon later care glad happy sorry welcome luck congrats congratulations word words
    kind proud inspire inspired inspiring inspiration sound sounds look looks love loved hope
    hopefully hear heard wait excited exciting sure right know think thought guess feel feeling
    thing things stuff way time times day days today tomorrow yesterday tonight morning afternoon
    evening night week weekend month year lol haha hahaha omg yeah yep yup nope nah yay ohh ooh
    ugh jk okay ok please pls definitely exactly totally absolutely agree true crazy fun funny
    weird guy guys man dude friend buddy one ones lot see meet catch touch keep going go come make
    making made take taking get getting gonna wanna gotta let say said tell told really impact
    difference journey positive help best better well worry worries problem prob idea ask question
    dang damn suck sucks hilarious thou tho maybe delicious cute beautiful cheers anything
    something everything nothing anyone someone advice tip tips enjoy remind reminds reminded
    interesting believe bad tired fine gn gm first second last next much many more most little bit
    big small new old long start started try trying doing call wake woke morgen guten tag bonjour
    bonsoir buenos buenas boa bom buongiorno merci danke bitte gracias obrigado obrigada grazie
    prego hallo hola salut ciao super bien bueno bene oui sim não
    """)
# Most of the measures are 1 if something holds, and 0 otherwise.
WEIGHTS = {
    "always": -0.9,
    "similar": 1.73,  # mean cosine by the two models
    "foreign": 0.62,  # the same, if the turn is not in English
    "shared": 0.85,  # words and numbers that both have, rare ones count twice
    "differs": -1.01,  # other words of the clauses in which they are
    "begins_alike": -2.3,  # and goes on otherwise
    "shared_name": 0.67,
    "shared_number": 1.33,
    "new_number": -0.35,  # only the new statement has it
    "new_name": -0.89,
    "lost_name": -0.79,  # only the older one has it
    "averse": 2.04,  # both say that the speaker avoids, fears or refuses something
    "past": -1.22,  # only the new one is in the past tense
    "unsure": -0.68,  # only one is a guess or a condition
    "days": -0.8,  # only the new one says "today" or the like
    "relative": -0.85,  # only the new one is about this relative or friend
    "changed": -1.02,  # the new one says that something changed
    "added": -0.88,  # … that it is one more
    "again": 1.24,  # … that it was said before
    "length": -1.48,  # words of the older statement, at most 40, divided by 10
    "new_length": -0.26,  # words of the new one, likewise
}
_CHANGED = frozenset(("ended", "moved", "corrected", "new", "now"))
_UNSURE = frozenset(("if", "maybe", "would", "or"))
_OWN = frozenset(("I", "we"))
_DENIAL = re.compile(
    r"\b(?:not|\w{2,6}n['’]t|no longer|never|nicht|keine?|pas|plus|no|não|non)(?P<denied>(?: [\w'’]{1,30}){1,3})"
)
_DAYTIMES = frozenset(("morning", "evening", "night"))


class Said(ComparedText):
    """A text with what makes it say the same as another one."""

    @cached_property
    def statement(self) -> Statement:
        return parse(self.text)

    @cached_property
    def stems(self) -> dict[str, str]:
        """The words that carry meaning, by their stems."""
        return find_stems(self.text, self.is_english)

    @cached_property
    def figures(self) -> set[str]:
        """Its numbers, if a word of it is one."""
        return set(map(str, self.numbers)) if any(map(is_value, self.spoken)) else set()

    @cached_property
    def worth(self) -> dict[str, float]:
        """Stems and figures, with what each is worth."""
        return {stem: self.weigh(stem) for stem in (*self.stems, *self.figures)}

    def weigh(self, stem: str) -> float:
        """Return what a stem or figure is worth: the rarer, the more."""
        word = self.stems.get(stem)
        if word is None:
            return 0.5 if stem in ("1", "2") else 2.0
        if _UNSPACED.match(word):
            return 1.0
        return 2.0 if not is_common(word) or word in self.names else 1.0

    @cached_property
    def groups(self) -> list[set[str]]:
        """The stems and figures of each clause."""
        groups = []
        for part in self.parts:
            figures = Said(part).figures if self.figures else set()
            groups.append(find_stems(part, self.is_english).keys() | figures)
        return groups

    @cached_property
    def is_averse(self) -> bool:
        """It says that the speaker avoids, fears or refuses something."""
        values = self.values
        return bool(values.negations) or "-" in values.leanings or "averse" in self.cues

    @cached_property
    def denies_aversion(self) -> bool:
        """It says that the speaker does not avoid, fear or refuse something: "not allergic"."""
        if "averse" not in self.cues:
            return False
        denials = _DENIAL.finditer(self.text.lower())
        return any("averse" in read_cues(denial["denied"]) for denial in denials)

    @cached_property
    def is_own(self) -> bool:
        """It speaks of the speaker."""
        return not _OWN.isdisjoint(self.statement.persons)


def find_stems(text: str, is_english: bool) -> dict[str, str]:
    """Return the words of a text that carry meaning, by their stems; pairs of letters in scripts
    without spaces.

    >>> find_stems("Thanks! My sisters keep llamas", is_english=True)
    {'sister': 'sisters', 'llama': 'llamas'}
    """
    addressed = {name.lower() for name in _ADDRESSED.findall(text)}
    found: dict[str, str] = {}
    for word in words(for_hash(strip_preface(text))):
        if runs := _UNSPACED.findall(word):
            for run in runs:
                for i in range(max(1, len(run) - 1)):
                    found[run[i : i + 2]] = run
            continue
        bare = word.removesuffix("'s")
        is_short = len(bare) < 4 and not is_english
        is_empty = is_short or bare in _EMPTY or bare in addressed
        if not is_empty and (stem := _stem(bare)):
            found[stem] = bare
    return found


@lru_cache(maxsize=1 << 12)
def _stem(word: str) -> str:
    """Return the beginning of the stem of a word; empty if it carries no meaning."""
    stems = parse(word).words
    return stems[0][:STEM] if stems else ""


def find_shared(new: Said, old: Said, partners: Iterable[str] = ()) -> dict[str, float]:
    """Return the words of both texts with what they are worth, without names of those addressed."""
    shared = new.stems.keys() & old.stems.keys()
    shared |= new.figures & old.figures
    names = [_stem(name.lower()) for name in partners] if shared else []
    worth = {}
    for stem in shared:
        if not any(name.startswith(stem) for name in names):
            worth[stem] = min(new.weigh(stem), old.weigh(stem))
    return worth


def count_shared(text: str, other: str) -> float:
    """Return what the words that two texts share are worth.

    >>> count_shared("Ana is allergic to kiwi.", "no kiwi please")
    2.0
    """
    return sum(find_shared(Said(text), Said(other)).values())


def measure(new: Said, old: Said, similar: float, partners: Iterable[str]) -> dict[str, float]:
    """Return the measures of two statements; none if they cannot say the same.

    `partners` are the names of the other speakers.
    """
    shared = find_shared(new, old, partners)
    if _is_ruled_out(new, old, shared):
        return {}
    worth = sum(shared.values())
    names = new.names
    old_names = old.names
    is_english = new.is_english
    marks = new.statement.marks
    old_marks = old.statement.marks
    days = {*new.values.days} - {*old.values.days}
    others = min(_count_others(new, shared), _count_others(old, shared))
    begins_alike = new.statement.spoken[:2] == old.statement.spoken[:2]
    measures = {
        "always": 1.0,
        "similar": similar,
        "foreign": 0.0 if is_english else similar - FOREIGN_SIMILAR,
        "shared": min(worth, MOST_SHARED) / 2,
        "differs": others / 2,
        "begins_alike": begins_alike and others > 0,
        "shared_name": any(_stem(name) in shared for name in names & old_names),
        "shared_number": not new.numbers.isdisjoint(old.numbers),
        "new_number": bool(new.numbers - old.numbers),
        "new_name": is_english and bool(names - old.words),
        "lost_name": is_english and bool(old_names - new.words),
        "averse": new.is_averse and old.is_averse,
        "past": "past" in marks and "past" not in old_marks,
        "unsure": not _UNSURE.isdisjoint(marks ^ old_marks),
        "days": bool(days - _DAYTIMES),
        "relative": bool(new.relatives - old.relatives),
        "changed": not _CHANGED.isdisjoint(new.cues),
        "added": "added" in new.cues,
        "again": "again" in new.cues,
        "length": min(old.length, LONGEST) / 10,
        "new_length": min(new.length, LONGEST) / 10,
    }
    return {name: float(value) for name, value in measures.items()}


def _count_others(said: Said, shared: Mapping[str, float]) -> float:
    """Return what the other words are worth in the clause that has the fewest beside shared ones."""
    fewest = MOST_OTHERS
    for group in said.groups:
        if sum(shared.get(stem, 0.0) for stem in group) >= LEAST_SHARED:
            others = sum(said.worth.get(stem, 0.0) for stem in group - shared.keys())
            fewest = min(fewest, others)
    return fewest


def _is_one_word(said: Said) -> bool:
    return said.length < 2 and not _UNSPACED.search(said.text)


def _is_ruled_out(new: Said, old: Said, shared: Mapping[str, float]) -> bool:
    """Return whether two statements cannot say the same: their values or words are too different."""
    worth = sum(shared.values())
    if worth < LEAST_SHARED or _is_one_word(new) or _is_one_word(old):
        return True
    is_own = new.is_own or old.is_own or (new.is_averse and old.is_averse)
    is_clear = is_own or "again" in new.cues or not new.is_english
    if worth < ENOUGH_SHARED and (not is_clear or _POINTS.search(new.text)):
        return True
    if not new.is_english and ("ended" in new.cues - old.cues or _ends_in_other(new, old)):
        return True
    numbers = new.numbers
    if numbers and old.numbers and numbers.isdisjoint(old.numbers):
        return True
    if new.denies_aversion != old.denies_aversion:
        return True
    for one, other in ((new, old), (old, new)):
        negated = () if other.is_averse else one.values.negations
        is_reversed = one.stems.keys() == other.stems.keys()
        if negated and (is_reversed or any(_stem(word) in shared for word in negated)):
            return True
        likes = "+" in one.values.leanings
        if likes and "-" in other.values.leanings:
            return True
    return contradicts_clause(new.text, old.text)


def _ends_in_other(new: Said, old: Said) -> bool:
    """Return whether two texts differ in the last word, and one has all other words of the other.

    >>> _ends_in_other(Said("Ma fille s'appelle Inès"), Said("Ma fille s'appelle Léa"))
    True
    >>> _ends_in_other(Said("In Kiel wohne ich"), Said("Ich wohne in Kiel"))
    False
    """
    language = detect_language(words(f"{new.text} {old.text}"))
    *ours, our_last = reduce_spoken(words(new.text), language) or [""]
    *theirs, their_last = reduce_spoken(words(old.text), language) or [""]
    if our_last in (their_last, *theirs) or their_last in ours:
        return False
    fewer, more = sorted((set(ours), set(theirs)), key=len)
    return bool(fewer) and fewer <= more


def has_same_words(one: Said, other: Said) -> bool:
    """Return whether one text has all words of the other, or of most of it, in the same forms.

    For languages that the rules cannot read: another person or tense mostly has another form.

    >>> has_same_words(Said("mieszkam w Gdyni"), Said("paczka do Gdyni, przecież tam mieszkam"))
    True
    >>> has_same_words(Said("mieszkam w Gdyni"), Said("brat mieszka w Gdyni"))
    False
    >>> has_same_words(Said("納豆が苦手です"), Said("納豆は苦手なんだってば"))
    True
    """
    if bool(one.values.negations) != bool(other.values.negations):
        return False
    if not _TELLING.isdisjoint(one.cues ^ other.cues):
        return False
    if _UNSPACED.search(f"{one.text} {other.text}"):
        ours, theirs = ("".join(_MEANINGFUL.findall(each.text)) for each in (one, other))
        return len(ours) >= LEAST_CHARACTERS and set(ours) == set(theirs)
    pairs = ((one, other), (other, one))
    return any(_is_contained(these, those) for these, those in pairs)


def _is_contained(said: Said, other: Said) -> bool:
    """Return whether a text, or a clause that is at least half of it, has only words of another."""
    there = _find_forms(other.text)
    all_forms = _find_forms(said.text)
    for part in (said.text, *said.parts):
        forms = _find_forms(part)
        is_most = forms == all_forms or len(forms) >= max(LEAST_OF_CLAUSE, len(all_forms) / 2)
        if len(forms) >= LEAST_FORMS and is_most and forms <= there:
            return True
    return False


def _find_forms(text: str) -> set[str]:
    """Return the longer words of a text, and what has a digit, as they are."""
    found = (word for word in words(text.lower()) if len(word) >= LEAST_LETTERS or is_value(word))
    return {_ARABIC_AND.sub("", word) for word in found}


def weigh(measures: Mapping[str, float], weights: Mapping[str, float] = WEIGHTS) -> float:
    """Return the probability of what the measures were weighted for; 0 without any."""
    if not measures:
        return 0.0
    odds = sum(weight * measures[name] for name, weight in weights.items())
    return 1.0 / (1.0 + math.exp(-odds))
