"""Split a text into clauses and their parts, with the words that carry meaning and whom each clause
is about, to compare what a language model wrote with its source.

The word lists are in `clauses.toml`: English, German, French, Spanish and Portuguese.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from . import tokens, values
from .normalize import compose
from .tokens import ENGLISH, STOP_WORDS, word_groups

# Whom a clause is about: the person, something or someone of theirs, or something else.
Subject = Literal["person", "theirs", "other"]
NO_SUBJECT = ("spanish", "portuguese", "italian")  # languages that leave out "I"
MOST_WORDS = 3000  # of a text
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_WORDS = {name: frozenset(words.split()) for name, words in _TABLES["words"].items()}
NEGATIONS = {name: frozenset(words.split()) for name, words in _TABLES["not"].items()}
_PRONOUNS = {name: frozenset(words.split()) for name, words in _TABLES["other"].items()}
_ANY_NEGATION: frozenset[str] = frozenset().union(*NEGATIONS.values())
_SAME = word_groups(_TABLES["groups"]["same"])
_TOKEN = re.compile(
    r"""\d+(?:[.,:h]\d+)*(?:\.(?=\s\w))?|(?:Mr|Mrs|Ms|Dr|St|Sr|Sra)\.
    |[^\W\d_][^\W_]*(?:['’][^\W\d_]+)*|[,;:.!?…–—()"“”«»]|\s-\s""",
    re.VERBOSE,
)
_SENTENCE_ENDS = frozenset(".!?…;")
_SHORTENED = frozenset("s m ve d ll re".split())  # after an apostrophe
_NAME_ENDINGS = frozenset(["", *"s es n en e er ern em".split()])
_ENDINGS = frozenset(["", *_TABLES["endings"]["words"].split()])
_NOT = "not"  # the stem of all negations


class Word(NamedTuple):
    """A word, with what is compared of it."""

    text: str  # in lower case
    stem: str
    is_name: bool = False  # it begins with a capital letter, or is a number
    is_small: bool = False  # it carries no meaning by itself
    is_owner: bool = False  # "Ana's"
    is_time: bool = False  # a day, a month or a year
    place: int = 0  # in the source
    turn: int = 0  # of the source

    def among(self, *names: str) -> bool:
        return any(self.text in _WORDS[name] for name in names)

    @property
    def is_negation(self) -> bool:
        return self.stem == _NOT


class ClausePart(NamedTuple):
    """A part of a clause."""

    clause: int
    words: tuple[Word, ...]
    subject: Subject  # of the clause
    person: str  # who said it, or whom it tells of; empty if unknown

    @property
    def content(self) -> list[Word]:
        """The words that carry meaning."""
        return [word for word in self.words if not word.is_small]

    @property
    def has_pronoun(self) -> bool:
        """It has a pronoun of the third person, of any language."""
        return any(word.text in words for word in self.words for words in _PRONOUNS.values())

    @property
    def is_about(self) -> bool:
        """It begins with a word such as "with"."""
        return self.words[0].among("about")

    @property
    def is_negated(self) -> bool:
        return any(word.is_negation for word in self.words)

    def has(self, name: str) -> bool:
        return any(word.among(name) for word in self.words)


def is_same(word: Word, other: Word) -> bool:
    """Return whether two words are the same, in any inflection.

    A name has to be the same but for an ending; other words may differ in more letters.
    """
    a = word.text
    b = other.text
    if a == b or word.stem == other.stem:
        return True
    if a in _SAME and _SAME[a] == _SAME.get(b):
        return True
    if a[0].isdecimal() or b[0].isdecimal() or word.is_negation or other.is_negation:
        return False
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    ends = {a[shared:], b[shared:]}
    if word.is_name:
        return shared >= 4 and ends <= _NAME_ENDINGS
    rest = max(len(a), len(b)) - shared
    return (shared >= 3 and ends <= _ENDINGS) or (shared >= 6 and rest <= 5)


def keys_of(word: Word) -> set[str]:
    """Return keys of which two words have one in common if they are the same."""
    return {word.text[:3], word.stem, _SAME.get(word.text, word.text)}


def name_words(speakers: Iterable[str]) -> dict[str, str]:
    """Return the words of the names of speakers, each with the word by which they are recognized.

    >>> name_words(["The user", "Anna Weber"])
    {'user': 'user', 'anna': 'weber', 'weber': 'weber'}
    """
    found: dict[str, str] = {}
    for speaker in speakers:
        for word in tokens.words(speaker):
            if word not in _WORDS["article"]:
                found[name_of(word)] = name_of(speaker)
    return found


def name_of(speaker: str) -> str:
    """Return the word by which a person is recognized: their last name, or their role."""
    words = tokens.words(speaker)
    word = words[-1] if words else ""
    if word in _WORDS["person"]:
        return "user"
    return "assistant" if word in _WORDS["assistant"] else word


def split(
    text: str,
    language: str,
    before: Sequence[ClausePart],
    speaker: str,
    names: Mapping[str, str] | None = None,
) -> list[ClausePart]:
    """Return the parts of a text: of its source, after those before, or with the names of the
    people, of what a model wrote.
    """
    parts: list[ClausePart] = []
    clause = before[-1].clause + 1 if before else 0
    turn = before[-1].words[0].turn + 1 if before else 0
    groups: list[list[Word]] = [[]]
    person = speaker
    subject: Subject | None = None
    is_claim = names is not None
    begins_about = False  # the part begins with a word such as "since"
    sentence = 0  # first part of the sentence
    words = [*_read(text, language), Word(".", ".")]
    for word, after in pairwise([*words, words[-1]]):
        is_end = word.text in _SENTENCE_ENDS
        is_contrast = word.among("and") and after.is_negation  # "tea and not milk"
        if (word.text == "," and is_claim) or is_contrast:
            continue
        if not is_end and word.text != "," and not word.among("and"):
            is_pronoun = _is_speaker(word, language) or word.text in _PRONOUNS.get(language, ())
            is_new = word.among("about") or (is_pronoun and begins_about)
            if is_new and groups[-1] and not is_claim:
                groups.append([])
            is_about = word.among("about") or (word.text.endswith("ing") and not groups[-1])
            begins_about = is_about or (begins_about and not is_new)
            groups[-1].append(word._replace(turn=turn))
            continue
        spoken = [each for group in groups for each in group]
        if spoken:
            if names is None:
                subject = _find_subject(spoken, language, subject)
            else:
                subject, person = _find_claimed(spoken, names, subject, person)
            parts += [
                ClausePart(clause, tuple(group), subject, person) for group in groups if group
            ]
            clause += 1
            groups = [[]]
        if word.text == "?":  # nobody says anything of themselves in a question
            parts[sentence:] = [part._replace(subject="other") for part in parts[sentence:]]
        if is_end:
            sentence = len(parts)
        if is_end and is_claim:
            person = ""
            subject = None
    return parts


def _is_speaker(word: Word, language: str) -> bool:
    """Return whether a word is "I" or "we"."""
    more = {"french": ("on",), "english": ("im", "ive")}
    return word.among("speaker") or word.text in more.get(language, ())


def _find_subject(words: Sequence[Word], language: str, before: Subject | None) -> Subject:
    """Return whom a clause of the source is about. Without a subject, it is that of the clause
    before.
    """
    if words[0].among("request"):
        return "person"
    for n, word in enumerate(words):
        if _is_speaker(word, language):
            return "person"
        if n < 3 and word.among("possessive"):
            return "theirs"
        if n < 3 and word.text in _PRONOUNS.get(language, ()):
            return "theirs" if before == "theirs" else "other"
    is_noun = words[0].among("article") or (language == "german" and words[0].is_name)
    if before is not None and (language in NO_SUBJECT or not is_noun):
        return before
    return "person" if language in NO_SUBJECT and not is_noun else "other"


def _find_claimed(
    words: Sequence[Word],
    names: Mapping[str, str],
    before: Subject | None,
    person: str,
) -> tuple[Subject, str]:
    """Return whom a clause that a model wrote is about, and the name of that person."""
    for n, word in enumerate(words):
        name = name_of(word.text)
        is_owner = word.is_owner
        if name not in names and name.removesuffix("s") in names:  # in German
            name = name.removesuffix("s")
            is_owner = True
        if name not in names:
            continue
        is_owner |= any(each.among("of") for each in words[max(1, n - 2) : n])
        if is_owner:
            return "theirs", names[name]
        if n < 3:
            return "person", names[name]
    return before or "other", person


def _read(text: str, language: str) -> Iterator[Word]:
    """Yield the words of a text, and a comma or full stop for its punctuation."""
    place = 0
    for token in _TOKEN.findall(compose(text[: 20 * MOST_WORDS]))[:MOST_WORDS]:
        place += 1
        if not token[0].isalnum():
            mark = token if token in _SENTENCE_ENDS else ","
            yield Word(mark, mark)
            continue
        left, _, right = token.replace("’", "'").partition("'")
        is_owner = right.lower() == "s"
        joined = left + right
        if not right or right.lower() in _SHORTENED:
            yield _make_word(left, language)._replace(is_owner=is_owner, place=place)
            if right.lower() == "ve":
                yield _make_word("have", language)._replace(place=place)
        elif joined.lower() in _ANY_NEGATION:
            yield _make_word(joined, language)._replace(place=place)
        else:  # in French
            yield _make_word(left, language)._replace(place=place)
            yield _make_word(right, language)._replace(place=place)


@lru_cache(maxsize=1 << 12)
def _make_word(token: str, language: str) -> Word:
    low = token.lower()
    read = values.read_values(low)
    is_time = bool(read.weekdays or read.months or read.days)
    if read.numbers and values.is_value(low):
        number = read.numbers[0]
        is_year = len(number) == 4 and number[:2] in ("19", "20")
        return Word(number, number, is_name=True, is_time=is_year)
    if low in NEGATIONS.get(language, _ANY_NEGATION):
        return Word(low, _NOT)
    stop_words = ENGLISH if language == "english" else STOP_WORDS.get(language, ENGLISH)
    is_small = low in stop_words or low in _WORDS["speaker"] or len(low) == 1
    stem = (tokens.analyze(low, language) or [low])[0]
    return Word(
        low,
        stem,
        is_name=token[0].isupper(),
        is_time=is_time,
        is_small=is_small and low not in _WORDS["turn"] and low not in _SAME,
    )
