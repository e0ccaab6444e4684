"""Whether a new statement takes the place of an older one: the same attribute of the same thing, with another value.

Rules, and few of them: most facts can stand beside each other, and a memory that was retired wrongly is worse than two
that contradict each other. A statement is one short sentence. It is split at its verb; what stands before it has to say
the same in both, and what follows has to be of a sort that holds one value at a time: a schedule, a quantity, a home,
an employer, a favourite, a like or dislike. What the rules do not know is no conflict. They know English.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from . import saying, values
from .common_words import word_set
from .dates import MONTHS
from .saying import Said
from .values import Values

LONGEST = 25  # words of a statement

_CHANGE = word_set("""
    moved rescheduled postponed changed switched pushed updated shifted delayed now instead anymore longer actually
    correction new current currently any has been got brought forward back set scheduled planned again since
    """)
_HOURS = {
    w: n
    for n, w in enumerate(
        "one two three four five six seven eight nine ten eleven twelve".split(), 1
    )
}
_CLOCK = re.compile(rf"\b(?:at|to|from|until) ({'|'.join(_HOURS)})\b(?! [a-z])")
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" for month in MONTHS)
_DATE = re.compile(
    rf"\b(?:(?P<month>{_MONTH})\.? (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    rf"|(?:the )?(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month2>{_MONTH}))\b(?! \d{{4}})",
    re.IGNORECASE,
)
_MOVED = re.compile(
    r"\b(?P<who>I|we|he|she|they|my \w+|[A-Z]\w+)(?:['’]ve|['’]s| have| has)?(?: just| recently)?"
    r" (?:moved|relocated) to\b"
)
_JOINED = re.compile(
    r"(?:['’]ve|['’]s| have| has)?(?: just| recently)? (?:joined|(?:started|began)(?: working| work)? (?:at|for))\b"
)
_VERB = re.compile(
    r"\s(?:is|are|am|costs?|weighs?|earns?|has|have|owns?|lives?|works?|prefers?|stays?|studies|study|will be"
    r"|takes? place|starts?|begins?|leaves?|departs?|ends?|goes|opens?|closes?|due)\b|(?<=\bi)['’]m\b"
    r"|(?:(?<=\bhe)|(?<=\bshe)|(?<=\bit))['’]s\b|(?:(?<=\bwe)|(?<=\bthey))['’]re\b|\s?[:=]\s",
    re.IGNORECASE,
)
_EVENTS = word_set("""
    meeting meetings appointment call review standup deadline exam test interview flight train bus ferry party dinner
    lunch breakfast wedding birthday anniversary class lesson course workshop concert show match game delivery visit
    checkup surgery operation demo launch release presentation conference seminar webinar session retrospective sprint
    rehearsal practice training shift trip departure arrival check-in checkin tour ceremony election vote hearing
    inspection move-in handover sync kickoff webinar talk lecture pickup due
    """)
_QUANTITIES = word_set("""
    phone number mobile telephone pin code password room price rent salary budget age size weight height seat gate limit
    version port zip postcode iban account fee wage income rate balance target quota headcount speed temperature dose
    dosage capacity score rank floor desk locker extension threshold timeout discount mileage bmi subscription bill
    """)
_NAMED = word_set("""
    name city hometown boss manager supervisor doctor dentist gp therapist landlord employer company school university
    bank team password address capital headquarters provider hairdresser trainer coach teacher mentor assistant lead
    country town surname nickname username accountant lawyer vet insurer carrier airline currency timezone
    """)
_PLAIN = word_set("""
    colour color password username email diet profession occupation status nickname language address title size shift
    timezone currency wifi framework editor role plan theme
    """)
_RECURRING = re.compile(r"\b(?:every|each|weekly|daily|\w+days)\b", re.IGNORECASE)
_SENTENCES = re.compile(r"[.!?;]\s+\S")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A sentence as the rules see it."""

    text: str
    subject: str  # what stands before the verb
    verb: str
    rest: str
    changed: bool  # it says itself that something is other than before

    @cached_property
    def said(self) -> Said:
        return saying.said(self.text)

    @cached_property
    def values(self) -> Values:
        return values.values(self.text)

    @cached_property
    def told(self) -> tuple[str, ...]:
        """The words that follow the verb."""
        return saying.said(self.rest).words


def statement(text: str) -> Statement | None:
    """Read a text as a statement, or not at all.

    >>> read = statement("My phone number is 555 0199")
    >>> read.subject, read.verb, read.rest
    ('My phone number', 'is', '555 0199')
    """
    told = saying.bare(text.strip())
    if len(told.split()) > LONGEST or "?" in told or _SENTENCES.search(told):
        return None
    told = _CLOCK.sub(lambda match: f"at {_HOURS[match[1].lower()]}:00", told)
    told = _DATE.sub(_in_figures, told)
    told = _MOVED.sub(r"\g<who> lives in", _JOINED.sub(" works at", told))
    bare = " ".join(word for word in told.split() if word.strip(",.!").lower() not in _CHANGE)
    verb = _VERB.search(f" {bare}")
    before, after = (bare[: verb.start()], bare[verb.end() - 1 :]) if verb else (bare, "")
    return Statement(
        text=bare,
        subject=before.strip(" ,."),
        verb=verb.group().strip().lower() if verb else "",
        rest=after.strip(" ,."),
        changed=bare != told,
    )


def is_relative(text: str) -> bool:
    """Whether it says "tomorrow" or the like, which is another day on another day."""
    return bool(values.values(text).days)


def _in_figures(match: re.Match[str]) -> str:
    month = (match["month"] or match["month2"]).lower()[:3]
    return f"1-{[each[:3] for each in MONTHS].index(month) + 1}-{match['day'] or match['day2']}"


def contradicts(new: str, old: str) -> bool:
    """Whether a text gives another value to what an older one is about.

    >>> contradicts("The dentist appointment was moved to Friday", "My dentist appointment is on Tuesday at ten")
    True
    >>> contradicts("I like coffee", "I like tea"), contradicts("Tom lives in Porto", "Anna lives in Rome")
    (False, False)
    """
    a, b = statement(new), statement(old)
    return a is not None and b is not None and opposed(a, b)


def opposed(a: Statement, b: Statement) -> bool:
    """The same of statements that were read already."""
    if not _comparable(a, b):
        return False
    if (
        _same_verb(a, b)
        and (_counted(a, b) or _renamed(a, b) or _replaced(a, b))
        and _same_subject(a, b)
    ):
        return True
    return _moved(a, b) or _turned(a, b)


def _comparable(a: Statement, b: Statement) -> bool:
    """Both are about the same people, and neither is a guess, a wish or a story."""
    unsure = {"maybe", "would", "must", "if"}
    persons_agree = a.said.persons == b.said.persons or not (a.said.persons and b.said.persons)
    return persons_agree and not unsure & (a.said.marks | b.said.marks)


def _turned(a: Statement, b: Statement) -> bool:
    """A like became a dislike, or what was so is not so any more."""
    one, other = (set(each.said.words) - _LIKINGS for each in (a, b))
    if not one or one != other or "past" in a.said.marks | b.said.marks:
        return False
    if not _same_but(a, b, "negations", "leanings"):
        return False
    sign = _sign(a.values)
    return sign is not None and sign == _opposite(_sign(b.values))


def _moved(a: Statement, b: Statement) -> bool:
    """One event, another time."""
    if a.said.words != b.said.words or not (_about(a, _EVENTS) and _about(b, _EVENTS)):
        return False
    if ("past" in b.said.marks) or ("past" in a.said.marks and not a.changed):
        return False
    if not _same_but(a, b, "times", "dates", "weekdays", "months"):
        return False
    if not a.changed and any(_RECURRING.search(each.text) for each in (a, b)):
        return False
    return any(_differ(a, b, name) for name in ("times", "dates", "weekdays", "months"))


def _counted(a: Statement, b: Statement) -> bool:
    """One quantity, another figure."""
    if a.told != b.told or not _same_but(a, b, "numbers") or not _differ(a, b, "numbers"):
        return False
    return a.verb in _MEASURING or (
        a.verb in _BEING and (_about(a, _QUANTITIES) or "old" in a.said.words)
    )


def _renamed(a: Statement, b: Statement) -> bool:
    """One home, employer or person of a role, another name."""
    if not (_short(a) and _short(b)) or set(a.told) & set(b.told) or not _same_but(a, b, "names"):
        return False
    if not (a.values.names and b.values.names):
        return False
    if a.verb.removesuffix("s") in ("live", "work", "study"):
        return _preposition(a.rest) == _preposition(b.rest)
    return a.verb in _BEING and (_heads(a.subject, _NAMED) or _is_favourite(a.subject))


def _replaced(a: Statement, b: Statement) -> bool:
    """One favourite or setting, another choice."""
    one, other = set(a.told), set(b.told)
    if (
        not (_short(a) and _short(b))
        or one <= other
        or other <= one
        or not _same_but(a, b, "names", "numbers")
    ):
        return False
    if a.verb.startswith("prefer"):
        return a.told[-1] == b.told[-1]
    return (
        a.verb in _BEING
        and not one & other
        and (_heads(a.subject, _PLAIN) or _is_favourite(a.subject))
    )


_BEING = frozenset({"is", "are", "am", ":", "=", "will be", "'m", "’m", "'s", "’s", "'re", "’re"})
_MEASURING = frozenset(
    {"cost", "costs", "weigh", "weighs", "earn", "earns", "have", "has", "own", "owns"}
)
_LIKINGS = {
    word
    for each in "like likes love enjoy hate dislike detest loathe adore".split()
    for word in saying.said(each).words
}
_FIELDS = (
    "numbers",
    "units",
    "times",
    "dates",
    "weekdays",
    "months",
    "days",
    "negations",
    "leanings",
)


def _same_but(a: Statement, b: Statement, *but: str) -> bool:
    """All values agree, except those that are named."""
    if any(_found(a, name) != _found(b, name) for name in _FIELDS if name not in but):
        return False
    return "names" in but or _names(a) == _names(b)


def _found(each: Statement, name: str) -> tuple[object, ...]:
    return tuple(getattr(each.values, name))


def _differ(a: Statement, b: Statement, name: str) -> bool:
    return bool(_found(a, name)) and bool(_found(b, name)) and _found(a, name) != _found(b, name)


def _names(each: Statement) -> set[str]:
    """Names that are no ordinary first word of the sentence."""
    first = each.text.split()[:1]
    return {name.lower() for name in each.values.names if [name] != first}


def _same_verb(a: Statement, b: Statement) -> bool:
    """The same is said of something, as it is now."""
    if not a.subject or a.verb.removesuffix("s") != b.verb.removesuffix("s"):
        return False
    return "past" not in a.said.marks | b.said.marks


def _same_subject(a: Statement, b: Statement) -> bool:
    return a.subject.lower() == b.subject.lower() or saying.compare(a.subject, b.subject) == "same"


def _about(each: Statement, nouns: frozenset[str]) -> bool:
    return any(
        word.strip(",.!'’s") in nouns or word.strip(",.!") in nouns
        for word in each.text.lower().split()
    )


def _heads(subject: str, nouns: frozenset[str]) -> bool:
    """The last word of what is spoken of, which says what it is, is one of these."""
    return subject.lower().split()[-1:] != [] and subject.lower().split()[-1] in nouns


def _is_favourite(subject: str) -> bool:
    return re.search(r"\bfavou?rite\b", subject, re.IGNORECASE) is not None


def _short(each: Statement) -> bool:
    return 0 < len(each.told) <= 4 and "," not in each.rest and " and " not in f" {each.rest} "


def _preposition(rest: str) -> str:
    word = rest.lower().split()[:1]
    return "at" if word in (["at"], ["for"]) else " ".join(word)


def _sign(found: Values) -> tuple[str, bool] | None:
    """What sort of attitude it is, and whether it is a yes."""
    likes = [leaning for leaning in found.leanings if leaning in "+-"]
    others = [leaning for leaning in found.leanings if leaning not in "+-"]
    if others or len(likes) > 1 or len(found.negations) > 1:
        return None
    yes = ("-" not in likes) ^ bool(found.negations)
    return ("liking" if likes else "fact"), yes


def _opposite(sign: tuple[str, bool] | None) -> tuple[str, bool] | None:
    return None if sign is None else (sign[0], not sign[1])
