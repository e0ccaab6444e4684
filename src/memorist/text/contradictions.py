"""Detect whether a new statement contradicts an older one: it gives the same attribute of the same
thing another value.

The rules are few: most facts can coexist, and a memory that was retired wrongly is worse than two
that contradict each other. Both texts are short clauses, split at the verb. The part before the
verb has to say the same in both. The part after it has to be of a kind that has one value at a
time: a schedule, a quantity, a home, an employer, a favorite, a like or dislike. Anything else is
not a contradiction. The rules cover English only.

A correction is a contradiction that somebody points out: it says how it really is, and may say which
value is wrong.
"""

import re
from difflib import SequenceMatcher
from itertools import product
from unicodedata import normalize

from .attributes import have_other_values, refines
from .compare import have_same_persons, verdict
from .cues import read
from .entities import is_technical
from .statements import Clause, Statement, parse
from .subjects import may_mean_same
from .tokens import analyze, word_set, words
from .values import read_values

_EVENTS = word_set("""
    meeting meetings appointment call review standup deadline exam test interview flight train
    bus ferry party dinner lunch breakfast wedding birthday anniversary class lesson course
    workshop concert show match game delivery visit checkup surgery operation demo launch
    release presentation conference seminar webinar session retrospective sprint rehearsal
    practice training shift trip departure arrival check-in checkin tour ceremony election vote
    hearing inspection move-in handover sync kickoff webinar talk lecture pickup due
    """)
_QUANTITIES = word_set("""
    phone number mobile telephone pin code password room price rent salary budget age size
    weight height seat gate limit version port zip postcode iban account fee wage income rate
    balance target quota headcount speed temperature dose dosage capacity score rank floor desk
    locker extension threshold timeout discount mileage bmi subscription bill
    """)
_NAMED = word_set("""
    name city hometown boss manager supervisor doctor dentist gp therapist landlord employer
    company school university bank team password address capital headquarters provider
    hairdresser trainer coach teacher mentor assistant lead country town surname nickname
    username accountant lawyer vet insurer carrier airline currency timezone
    """)
_PLAIN = word_set("""
    colour color password username email diet profession occupation status nickname language
    address title size shift timezone currency wifi framework editor role plan theme
    """)
ATTRIBUTES = _QUANTITIES | _NAMED | _PLAIN  # what has one value at a time
_RECURRING = re.compile(r"(?i)\b(?:every|each|weekly|daily|\w+days)\b")
_FAVORITE = re.compile(r"(?i)\bfavou?rite\b")
_UNSURE = word_set("maybe would must if")
BEING = word_set("is are am : = 'm ’m 's ’s 're ’re") | {"will be"}
_MEASURING = word_set("cost costs weigh weighs earn earns have has own owns")
_WHEN = "times dates weekdays months".split()
_SMALL = r"(?:(?:in|at|on|a|an|the|my|no|na|em|à|en|das|die|der) )?"
_CONTRASTS = (
    re.compile(
        r"(?P<right>.{2,200}?)[,;]? (?:and |but )?(?:not|instead of|rather than|nicht|pas|não|non) "
        rf"{_SMALL}(?P<wrong>[^,;]{{1,60}})",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?:not|nicht|non) {_SMALL}(?P<wrong>[^,;]{{1,80}})[,;] (?P<right>.{{2,200}})",
        re.IGNORECASE,
    ),
)
# One can have and like several things, so another one corrects nothing.
_SEVERAL = word_set("have has like likes love loves hate own owns play eat drink speak want")
ALIKE = 0.7  # of the letters of two spellings of a word
_SPELLING = re.compile(
    r"(?P<subject>.{0,60}?)(?:(?<=t)['’]?s| is| are)(?: actually)?(?P<how> spelled| spelt| written)?"
    r"(?: as| like)? (?P<right>[^\W\d_]{2,40})(?:,? with [^,.;!]{1,30})?"
    r"(?:,? (?:and )?not (?P<wrong>[^\W\d_]{2,40}))?",
    re.IGNORECASE,
)
_SPELLED = word_set("spelled spelt written pronounced")
_LETTERS = re.compile(r"[^\W\d_]{2,40}")
POINTING = re.compile(r"^(?:it['’]?s|it is|to|as) (?:actually )?", re.IGNORECASE)
_OWN = re.compile(
    r"(?:i|my|we|our|he|she|his|her|they|their)\b", re.IGNORECASE
)  # begins a sentence
# What makes a sentence complete: a person it is about, or a verb between nouns.
_WHOLE = re.compile(
    r"\b(?:i|i['’]?m|i['’]?ve|my|we|our|he|she|his|her|they|their|ich|mein\w{0,2}|wir|je|j['’]\w+|mon|ma"
    r"|mes|nous|yo|mi|mis|soy|vivo|tengo|me|eu|meu|minha|moro|sou|tenho|io|mio|mia|sono|abito|ho)\b"
    r"|\w (?:is|are|was|ist|est|es|é|è) \w"
    r"|[\u0400-\u04ff\u0600-\u06ff\u0900-\u097f\u3040-\u9fff]",
    re.IGNORECASE,
)


def contradicts(new: Statement, old: Statement) -> bool:
    """Return whether a text gives another value to an attribute that an older one states.

    >>> old = parse("My dentist appointment is on Tuesday at ten")
    >>> contradicts(parse("The dentist appointment was moved to Friday"), old)
    True
    >>> contradicts(parse("I like coffee"), parse("I like tea"))
    False
    >>> contradicts(parse("Tom lives in Porto"), parse("Anna lives in Rome"))
    False
    """
    if new.clause is None or old.clause is None:
        return False
    return clauses_contradict(new.clause, old.clause) and not refines(new.text, old.text)


def contradicts_clause(new: str, old: str) -> bool:
    """Return whether a clause of a text gives another value to an attribute that an older one has.

    >>> contradicts_clause("Boxes unpacked: I live in Leuven now!", "I live in Ghent, near the canal.")
    True
    >>> contradicts_clause("If I win, I live in Leuven.", "I live in Ghent.")
    False
    """
    if "hypothetical" in read(new).cues:
        return False
    if have_other_values(new, old):
        return True
    for one, other in product(read(new).clauses, read(old).clauses):
        if clauses_contradict(one, other) and may_mean_same(new, one, old, other):
            return not refines(new, old)
    return False


def clauses_contradict(a: Clause, b: Clause) -> bool:
    """Return whether a clause gives another value to an attribute that an older one states."""
    if a.text == b.text:  # often a greeting
        return False
    has_same_verb = a.base_verb != "" and a.base_verb == b.base_verb
    if not has_same_verb and a.topics != b.topics:
        return False  # every rule needs one of them
    marks = a.marks | b.marks
    if _UNSURE & marks:
        return False
    if not have_same_persons(a, b) and not _live_together(a, b):
        return False
    if _is_rescheduled(a, b):
        return True
    if "past" in marks:
        return False
    return _is_reversed(a, b) or _has_other_value(a, b)


def _live_together(a: Clause, b: Clause) -> bool:
    """Return whether both tell where the speaker lives: "we moved" says that of each of us."""
    return a.base_verb == b.base_verb == "live" and {a.subject, b.subject} <= {"I", "i", "we", "We"}


def is_relative(text: str) -> bool:
    """Return whether a text names a day relative to now, such as "tomorrow"."""
    return bool(read_values(text).days)


def _has_other_value(a: Clause, b: Clause) -> bool:
    """Return whether one attribute of one subject has another figure, name or choice."""
    verb = a.base_verb
    is_being = a.verb in BEING
    if not a.subject or not verb or verb != b.base_verb:
        return False
    if a.subject.lower() != b.subject.lower() and not _live_together(a, b):
        subject = parse(a.subject)
        other_subject = parse(b.subject)
        if verdict(subject, other_subject) != "same":
            return False
    if a.object_words == b.object_words:  # a quantity
        if not _differ(a, b, "numbers"):
            return False
        if not _have_same_values(a, b, "numbers"):
            return False
        is_quantity = _mentions(a, _QUANTITIES) or "old" in a.words
        return a.verb in _MEASURING or (is_being and is_quantity)
    if not _is_short(a) or not _is_short(b):
        return False
    if not _have_same_values(a, b, "names", "numbers"):
        return False
    if is_being and _is_about(a, _PLAIN) and " " not in a.rest and " " not in b.rest:
        return a.rest.strip(".!").lower() != b.rest.strip(".!").lower()  # an address, a user name
    one = set(a.object_words)
    other = set(b.object_words)
    values = a.text_values
    other_values = b.text_values
    has_names = values.names and other_values.names
    is_same_number = values.numbers == other_values.numbers
    if has_names and is_same_number and not one & other:  # a home, an employer, a role
        if verb in ("live", "work", "study"):
            is_home = not is_technical(a.rest)  # "we moved to Postgres"
            return is_home and _preposition(a) == _preposition(b)
        if is_being and _is_about(a, _NAMED):
            return True
    if one <= other or other <= one:
        return False
    if a.verb.startswith("prefer"):  # a favorite or a setting
        return a.object_words[-1] == b.object_words[-1]
    if one & other:
        return False
    return is_being and _is_about(a, _PLAIN)


def _is_rescheduled(a: Clause, b: Clause) -> bool:
    """Return whether one event has another time."""
    if a.words != b.words or "past" in b.marks:
        return False
    if not a.says_changed and ("past" in a.marks or _RECURRING.search(f"{a.text} {b.text}")):
        return False
    if not _mentions(a, _EVENTS) or not _mentions(b, _EVENTS):
        return False
    if not _have_same_values(a, b, *_WHEN):
        return False
    return any(_differ(a, b, name) for name in _WHEN)


def _is_reversed(a: Clause, b: Clause) -> bool:
    """Return whether a like became a dislike, or a statement is now negated."""
    if not a.topics or a.topics != b.topics:
        return False
    if not _have_same_values(a, b, "negations", "leanings"):
        return False
    attitude = _read_attitude(a)
    other_attitude = _read_attitude(b)
    if attitude is None or other_attitude is None:
        return False
    is_liking, is_positive = other_attitude
    return attitude == (is_liking, not is_positive)


def _read_attitude(of: Clause) -> tuple[bool, bool] | None:
    """Return whether it is a like or dislike, and whether it is positive; None if not clear."""
    leanings = of.text_values.leanings
    negations = of.text_values.negations
    if len(leanings) > 1 or len(negations) > 1:
        return None
    if not {"+", "-"}.issuperset(leanings):
        return None
    is_positive = ("-" not in leanings) ^ bool(negations)
    return bool(leanings), is_positive


def _have_same_values(
    a: Clause,
    b: Clause,
    *but: str,
) -> bool:
    """Return whether all values agree, except the named ones."""
    differing = a.text_values.differing(b.text_values)
    if not differing.issubset(but):
        return False
    return "names" in but or _later_names(a) == _later_names(b)


def _later_names(clause: Clause) -> set[str]:
    """Return the names except the first word, whose capital may mean nothing."""
    first = clause.text.split()[:1]
    names = clause.text_values.names
    return {name.lower() for name in names if [name] != first}


def _differ(
    a: Clause,
    b: Clause,
    name: str,
) -> bool:
    """Return whether both state values of that name, and other ones."""
    one = getattr(a.text_values, name)
    other = getattr(b.text_values, name)
    return bool(one and other) and one != other


def _mentions(of: Clause, nouns: frozenset[str]) -> bool:
    spoken = of.text.lower().split()
    return any(word.strip(",.!") in nouns or word.strip(",.!'’s") in nouns for word in spoken)


def _is_about(of: Clause, nouns: frozenset[str]) -> bool:
    """Return whether the last word of the subject is one of the nouns, or it is a favorite."""
    if _FAVORITE.search(of.subject):
        return True
    last = of.subject.lower().split()[-1:]
    return not nouns.isdisjoint(last)


def _is_short(of: Clause) -> bool:
    if "," in of.rest or " and " in f" {of.rest} ":
        return False
    return 0 < len(of.object_words) <= 4


def _preposition(of: Clause) -> str:
    """Return the first word of the rest; a person works "at" or "for" a company."""
    first, *_ = of.rest.lower().split() or [""]
    return "at" if first == "for" else first


def split_contrast(content: str) -> tuple[str, str]:
    """Return how it really is, and the value that is wrong if it says that: "34, not 33"."""
    content = content.strip(" .!")
    for pattern in _CONTRASTS:
        if found := pattern.fullmatch(content):
            return found["right"].strip(" ,;"), found["wrong"].strip(" ,;.!")
    return content, ""


def read_correction(content: str, topic: str = "") -> tuple[str, str]:
    """Return how it really is, as a sentence, and the value that is wrong; empty if unknown.

    >>> read_correction("I'm 34, not 33"), read_correction("it's May 4", "my birthday")
    (("I'm 34", '33'), ('My birthday is May 4', ''))
    >>> read_correction("I work at Tidewater now", "my job"), read_correction("two kids")
    (('I work at Tidewater now', ''), ('', ''))
    """
    content, wrong = split_contrast(content)
    if topic and content and not _OWN.match(content):
        value = POINTING.sub("", content)
        content = f"{topic[:1].upper()}{topic[1:]} is {value}"
    return (content if _WHOLE.search(content) else ""), wrong


def respell(text: str, correction: str) -> str:
    """Return a text with the spelling that a correction gives; empty if it gives none for it.

    >>> respell("My name is Anna Muller.", "my name is spelled Müller")
    'My name is Anna Müller.'
    >>> respell("My name is Anna Muller.", "it's Müller with an umlaut, not Muller")
    'My name is Anna Müller.'
    >>> respell("My class is on Monday.", "it's Tuesday, not Monday")
    ''
    """
    found = _SPELLING.fullmatch(correction.strip(" .!"))
    if not found or not (found["how"] or found["wrong"]):
        return ""
    right = found["right"]
    wrong = found["wrong"] or ""
    if wrong and not found["how"] and not _is_spelled_alike(wrong, right):
        return ""  # another value, not another spelling
    subject = analyze(found["subject"])
    if subject and set(subject).isdisjoint(analyze(text)):
        return ""
    old = {
        word
        for word in _LETTERS.findall(text)
        if (word.lower() == wrong.lower() if wrong else _is_spelled_alike(word, right))
    }
    if len(old) != 1 or right in old:
        return ""
    return re.sub(rf"(?<!\w){re.escape(old.pop())}(?!\w)", lambda _: right, text)


def _is_spelled_alike(one: str, other: str) -> bool:
    """Return whether two words differ by accents or a few letters only."""
    plain = normalize("NFKD", one.lower())  # an accent is a character of its own
    other_plain = normalize("NFKD", other.lower())
    if plain[0] != other_plain[0]:
        return False
    return SequenceMatcher(None, plain, other_plain).ratio() >= ALIKE


def corrects(text: str, statement: str, wrong: str) -> bool:
    """Return whether a statement corrects a text: it has the wrong value, or both begin alike.

    >>> corrects("I am 33.", "I'm 34", "33"), corrects("I live in Rome.", "I live in Bari", "")
    (True, True)
    >>> corrects("I go to the gym with Ines.", "I go swimming with Ines", "")
    False
    >>> corrects("I have a dog.", "I have a cat", ""), corrects("I have 2 dogs", "I have 3 dogs", "")
    (False, True)
    """
    old = words(text)
    if wrong and set(words(wrong)) <= set(old):
        return True
    new = words(statement)
    if not _SPELLED.isdisjoint(new) and len(old) >= len(new):
        return False  # the spelling of one word says nothing about the others
    alike = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        alike += 1
    if alike < max(2, len(new) - 2):
        return False
    return new[1] not in _SEVERAL or new[-1] == old[-1]
