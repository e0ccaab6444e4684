"""Apply a correction to what a memory says: "it's a Skoda" to "My car is a VW Golf."."""

from __future__ import annotations

import re

from .compare import RELATIVES
from .contradictions import ATTRIBUTES, POINTING, respell, split_contrast
from .entities import GIVEN_NAMES, is_common
from .statements import Clause, parse
from .tokens import analyze, analyze_spoken, compile_all, load_patterns, word_set, words
from .values import is_value, read_values

# Words before a value that a correction may leave out: "it's Bath" for "I live in Leeds".
_LEADING = word_set("in at on for from to near with called named of by")

_TABLES = load_patterns(__file__)
_REPLACED = compile_all(_TABLES["replaced"])
_DOSE = re.compile(_TABLES["dose"]["amount"])
_STEP = re.compile(_TABLES["dose"]["step"])
_SPEAKERS = word_set(" ".join(_TABLES["words"]["speakers"]))
_BEFORE = _SPEAKERS | word_set(" ".join(_TABLES["words"]["before"]))
_LONGEST_UNIT = 4  # letters
_OWNERS = word_set("the my our his her their")
_PERSON = word_set("i me i'm i've us we")
_MOST_WRONG = 4  # words of a value
_OBJECTION = re.compile(r"(?i)^(?:no|nope|no wait|wait|sorry|nein|non)[,.!]?\s+")
_WITH_LETTER = re.compile(r"(?i)^it['’]?s (?=[^\W\d_]+,? with [^\W\d_]{1,2}[.!]?$)")


def restate(text: str, correction: str) -> str:
    """Return a statement with another value; empty if it is not clear what the value was.

    >>> restate("My car is a VW Golf.", "it's a Skoda"), restate("I live in Leeds.", "it's Bath")
    ('My car is a Skoda', 'I live in Bath')
    >>> restate("I drive a VW Golf.", "it's a Skoda"), restate("I live in Leeds.", "two kids")
    ('', '')
    """
    content, _ = split_contrast(correction)
    value = POINTING.sub("", content)
    clause = _read_clause(text)
    if clause is None or not value or value == content:
        return ""
    start, found, _ = text.partition(clause.rest)
    if not found:
        return ""
    leading = clause.rest.split()[0]
    if leading.lower() in _LEADING and value.split()[0].lower() not in _LEADING:
        value = f"{leading} {value}"
    return f"{start}{value}"


def names_wrong(correction: str, text: str) -> bool:
    """Return whether a text says that the value of another one is wrong, or how it is spelled.

    >>> names_wrong("Our landlord is Brandis, not Brandt.", "Our landlord is called Brandt.")
    True
    >>> names_wrong("No, it's Müller, with ü.", "My surname is Muller.")
    True
    >>> names_wrong("It's Monday, not Sunday.", "My surname is Muller.")
    False
    """
    content = _OBJECTION.sub("", correction.strip())
    right, wrong = split_contrast(content)
    said = set(words(text)) if wrong else set()
    if wrong and len(wrong.split()) <= _MOST_WRONG and set(words(wrong)) <= said:
        ours = set(analyze_spoken(right)) - set(analyze_spoken(wrong))
        is_same = POINTING.match(content) or not ours.isdisjoint(analyze_spoken(text))
        return bool(is_same) and not set(words(right)) <= said
    spelled = _WITH_LETTER.sub("it is spelled ", content, count=1)
    return spelled != content and respell(text, spelled.rstrip(" .!")) != ""


def names_replaced(new: str, old: str) -> bool:
    """Return whether the speaker says by what something was replaced that an older text uses.

    >>> names_replaced("Done: replaced Celery with Dramatiq", "We use Celery")
    True
    >>> names_replaced("I replaced the celery in the soup with fennel", "We use Celery")
    False
    >>> names_replaced("Bo replaced Celery with Dramatiq", "We use Celery")
    False
    """
    first, *_ = words(old) or [""]
    if first not in _SPEAKERS or read_values(old).negations:
        return False
    said = set(words(old))
    for pattern in _REPLACED.values():
        found = pattern.search(new)
        if found and _BEFORE.issuperset(words(new[: found.start()])):
            wrong = set(words(found["wrong"]))
            return bool(wrong) and wrong <= said and not set(words(found["right"])) <= said
    return False


def changes_dose(new: str, old: str) -> bool:
    """Return whether a text gives another dose of a medicine.

    >>> changes_dose("They put me up to 10 mg ramipril, 5 did too little", "I take 5 mg of ramipril")
    True
    >>> changes_dose("I'm up to 10 mg of losartan", "I take 5 mg of ramipril")
    False
    """
    amounts, others = (
        {(n, unit.lower()) for n, unit in _DOSE.findall(text)} for text in (new, old)
    )
    if not others or not amounts - others or not _STEP.search(new):
        return False
    if {unit for _, unit in amounts} != {unit for _, unit in others}:
        return False
    spoken, said = set(words(new)), set(words(old))
    if words(new)[0] in _OWNERS and spoken.isdisjoint(_PERSON):
        return False  # "the dog is up to 10 mg"
    named = {name.lower() for name in read_values(old).names}
    if (spoken ^ said) & (GIVEN_NAMES | RELATIVES) or named - spoken - _SPEAKERS:
        return False
    return any(
        not is_common(word) and not is_value(word) and len(word) > _LONGEST_UNIT
        for word in spoken & said
    )


def is_about_another_attribute(text: str, topic: str) -> bool:
    """Return whether a statement names what it tells, and that is something else.

    >>> is_about_another_attribute("My phone number is 07700 900111.", "my address")
    True
    >>> is_about_another_attribute("My flat is on Albert Road.", "my address")
    False
    """
    clause = _read_clause(text)
    if clause is None or not topic:
        return False
    named = ATTRIBUTES.intersection(words(clause.subject))
    return bool(named) and set(analyze(" ".join(named))).isdisjoint(analyze(topic))


def _read_clause(text: str) -> Clause | None:
    """Return the parts of a short statement; None if it is no such statement."""
    clause = parse(text).clause
    return clause if clause is not None and clause.verb and clause.rest else None
