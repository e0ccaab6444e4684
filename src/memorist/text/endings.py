"""Which facts end when a newer text replaces the one that they were extracted from.

Only what the newer text is about has changed: "I moved to Porto" says nothing about an allergy. A fact
that is lost does more harm than one that is listed after its newer value, so in doubt it stays.
"""

from collections.abc import Sequence

from .contradictions import BEING, contradicts_clause
from .parts import find_changed, find_covered
from .statements import parse, says_more
from .tokens import words


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
