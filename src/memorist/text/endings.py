"""What ends with a newer text: only what it is about, and nothing before its time.

"I moved to Porto" says nothing about an allergy. A fact that is lost does more harm than one that is
listed after its newer value, so in doubt it stays.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product

from . import clock
from .contradictions import BEING, contradicts_clause
from .cues import CHANGING, read
from .parts import find_changed, find_covered
from .statements import parse, says_more
from .tokens import detect_language, reduce_spoken, words

_LONGEST_PLAN = timedelta(days=3650)
_PLAN = re.compile(
    r"\b(?:i|we)(?:['’](?:m|re|ll)| am| are| will)(?: \w+)? (?:mov(?:e|ing)|start(?:ing)?|join(?:ing)?)\b",
    re.IGNORECASE,
)
# Every week: "on Fridays", "freitags", "le vendredi", "los viernes"
_ON_DAYS = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days|weekends|(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend"
    r"|sonntag|wochenend)s|(?:le|les) (?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|week-end)s?"
    r"|los (?:lunes|martes|miércoles|jueves|viernes|sábados|domingos|fines de semana)"
    r"|(?:às|aos) (?:segundas|terças|quartas|quintas|sextas|sábados|domingos|fins de semana)"
    r"|(?:il|di) (?:lunedì|martedì|mercoledì|giovedì|venerdì|sabato|weekend)|(?:la|di) domenica)\b",
    re.IGNORECASE,
)


def ends_fact(new: str, old: str, fact: str) -> bool:
    """Return whether a text that replaces an older one replaces a fact of it, too.

    Of a text that says several things, it is the fact that the newer text contradicts or is about.
    One that also says something else does not end.

    >>> old = "My pills: perindopril 4 mg in the morning. I had amlodipine before, bad ankles."
    >>> new = "pills changed, no more perindopril, now losartan 50"
    >>> ends_fact(new, old, "Ana's pills: perindopril 4 mg."), ends_fact(new, old, "Ana had amlodipine.")
    (True, False)
    >>> ends_fact("I moved to Porto", "I work in Rome and row a lot", "Ana works in Rome and rows a lot.")
    False
    """
    changed, parts = find_changed(old, new)
    covered = find_covered(parts, fact)
    is_about = not changed.isdisjoint(covered)
    if not says_more(old):
        return is_about or not (changed and covered)
    states = {place for place in covered if _states_more(parts, place, min(covered), fact)}
    if states & changed and states - changed:
        return False
    return is_about or contradicts_clause(new, fact)


def _states_more(parts: Sequence[str], place: int, first: int, fact: str) -> bool:
    """Return whether a part of a fact says something by itself.

    It has a verb, which the fact puts into the third person, or continues a list of what somebody is:
    "I'm 30, vegan and shy".
    """
    clauses = [parse(parts[each]).clause for each in (first, place)]
    first_verb, own = [clause.verb if clause is not None else "" for clause in clauses]
    if own or first_verb in BEING:
        return True
    verb = words(parts[place])[0]
    return not {f"{verb}s", f"{verb}es"}.isdisjoint(words(fact))


def continues_ending(new: str, old: str) -> bool:
    """Return whether both texts say that something ended, and the newer one has no other value.

    >>> continues_ending("Ole moved out today", "Ole and I broke up")
    True
    >>> continues_ending("We dropped Go for Rust", "We dropped C++ and use Go")
    False
    """
    ours = read(new)
    theirs = read(old)
    if "ended" not in ours.cues & theirs.cues:
        return False
    return ours.names <= theirs.names and ours.numbers <= theirs.numbers


def ends_another(new: str, old: str) -> bool:
    """Return whether a text only says that something ended, and the older one is about another thing.

    >>> ends_another("I no longer work at the pub", "I work at Lumen")
    True
    >>> ends_another("I no longer work at Lumen", "I work at Lumen")
    False
    >>> ends_another("Ya no vivo en Madrid", "Vivo en Barcelona")
    True
    """
    ours = read(new)
    theirs = read(old)
    if CHANGING & ours.cues != {"ended"}:
        return False
    if not ours.is_english:
        named, other_named = _stem_names(new), _stem_names(old)
        if not named or not other_named or ours.topics.isdisjoint(theirs.topics):
            return False
        return named.isdisjoint(theirs.topics) and other_named.isdisjoint(ours.topics)
    for one, other in product(ours.clauses, theirs.clauses):
        are_named = one.object_words and other.object_words
        if are_named and one.base_verb and one.base_verb == other.base_verb:
            return set(one.object_words).isdisjoint(other.object_words)
    return False


def ends_on_days(new: str, old: str) -> bool:
    """Return whether a text says that something ended on some days, and the older one tells no days.

    >>> ends_on_days("Je ne travaille plus le samedi", "Je travaille à la Poste")
    True
    >>> ends_on_days("I no longer row on Mondays", "I row on Mondays")
    False
    >>> ends_on_days("I quit on Friday", "I work at Acme")
    False
    """
    is_ending = "ended" in read(new).cues and "moved" not in read(new).cues
    return is_ending and _ON_DAYS.search(new) is not None and not read(old).values.weekdays


def _stem_names(text: str) -> frozenset[str]:
    """Return the stems of the words with a capital that do not begin the text."""
    first, *_ = text.split()[:1] or [""]
    named = [name.lower() for name in read(text).values.names if name != first]
    return frozenset(reduce_spoken(named, detect_language(words(text))))


def is_planned(text: str, now: datetime) -> bool:
    """Return whether a text tells where somebody will live or work from a later time on.

    >>> now = clock.utc(datetime(2026, 3, 1))
    >>> is_planned("We're moving to Bonn in July", now), is_planned("We moved to Bonn in July", now)
    (True, False)
    """
    if _PLAN.search(text) is None:
        return False
    found = [each.within(now, now + _LONGEST_PLAN) for each in clock.intervals(text, now)]
    starts = [start for occurrences in found for start, _ in occurrences]
    return bool(starts) and min(starts) > now


def has_passed(text: str, said: datetime, now: datetime) -> bool:
    """Return whether a text announced something, when it was said, for a time that is over by now.

    >>> said, now = clock.utc(datetime(2026, 3, 1)), clock.utc(datetime(2026, 8, 1))
    >>> has_passed("We fly to Oslo on 4 May", said, now), has_passed("We flew to Oslo on 4 May 2025", said, now)
    (True, False)
    """
    ends = []
    for interval in clock.intervals(text, said):
        ends += [end for start, end in interval.within(said, now) if start > said]
    return bool(ends) and max(ends) <= now
