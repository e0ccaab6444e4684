"""What statements of a person say of their home and diet, in the words of six languages.

"Me mudé a Valencia" has no word in common with "Vivo en Madrid", and yet replaces it. A country and a
place that is not a country do not contradict each other: "I live in Porto" may only be more precise.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .cues import CHANGING, read
from .entities import rarity
from .tokens import compile_all, detect_language, load_patterns, reduce_spoken, words

_TABLES = load_patterns(__file__)
_AGE = re.compile(_TABLES["age"]["english"])
_HOME = compile_all(_TABLES["home"])
_DIETS = {name: compile_all(_TABLES[name]) for name in ("plants", "meat")}
_STOPPED = compile_all(_TABLES["stopped"])
_DOES = re.compile(_TABLES["does"]["first"])
_JOB = compile_all(_TABLES["job"])
_GIVEN_UP = compile_all(_TABLES["given_up"])
_CONSUMES = re.compile(_TABLES["consumes"]["first"])
_SOBER = re.compile(_TABLES["sober"]["drinking"])
_ALCOHOL = re.compile(_TABLES["sober"]["alcohol"])
_WAYS = compile_all(_TABLES["ways"])
_PHONE = compile_all(_TABLES["phone"])
_LEAST_DIGITS = 7  # of a telephone number
_COUNTRY = re.compile(rf"\b(?:{_TABLES['names']['countries']})\b", re.IGNORECASE)
_TECHNICAL = 1.0  # rarity of a word: "nos mudamos a Postgres"
_UNCERTAIN = frozenset(("past", "hypothetical"))


class Home(NamedTuple):
    """Where somebody lives."""

    place: str  # in lower case
    is_area: bool  # a country or region


def have_other_values(new: str, old: str) -> bool:
    """Return whether two texts tell another home, diet, way to work or telephone number of the speaker,
    or another age of somebody, or the newer one a new job, or that something is given up.

    >>> have_other_values("Me mudé a Valencia.", "Vivo en Madrid.")
    True
    >>> have_other_values("I eat meat again since Christmas.", "I'm vegetarian.")
    True
    >>> have_other_values("Vivo en Sevilla.", "Vivo en España.")
    False
    """
    if not _UNCERTAIN.isdisjoint(read(new).cues | read(old).cues):
        return False
    home = read_home(new)
    other_home = read_home(old)
    if home and other_home and home.place != other_home.place:
        return not refines(new, old)
    diet = read_diet(new)
    if diet and read_diet(old) not in ("", diet):
        return True
    if _has_stopped(new, old) or _gives_up(new, old):
        return True
    ages, other_ages = _read_ages(new), _read_ages(old)
    if any(ages[who] != other_ages[who] for who in ages.keys() & other_ages.keys()):
        return True
    if _goes_otherwise(new, old) or _has_new_number(new, old):
        return True
    has_new_job = _JOB["new"].search(new.lower()) and "added" not in read(new).cues
    return bool(has_new_job and _JOB["held"].search(old.lower()))


def _read_ages(text: str) -> dict[str, str]:
    """Return how old somebody is, by the name.

    >>> _read_ages("Aoife is 9, Finn turned 6 and I'm 34."), _read_ages("Iva has 3 cats, I run 5 km")
    ({'Aoife': '9', 'Finn': '6', 'I': '34'}, {})
    """
    return {found["who"]: found["age"] for found in _AGE.finditer(text)}


def _has_stopped(new: str, old: str) -> bool:
    """Return whether a text says that the speaker no longer does what the older one says.

    >>> _has_stopped("Ho smesso di fumare", "Fumo dieci sigarette al giorno")
    True
    >>> _has_stopped("Ho smesso di fumare", "Mio padre fuma")
    False
    """
    does = _DOES.search(old.lower())
    matches = (pattern.search(new.lower()) for pattern in _STOPPED.values())
    acts = [found["act"] for found in matches if found]
    if does is None or not acts:
        return False
    language = detect_language(words(f"{new} {old}"))
    done, stopped = (
        reduce_spoken([does["act"] or does["verb"]], language),
        reduce_spoken(acts, language),
    )
    return bool(done) and done == stopped


def _gives_up(new: str, old: str) -> bool:
    """Return whether the speaker no longer eats, drinks, smokes or takes what the older text says.

    >>> _gives_up("No more coffee for me", "I drink coffee every morning")
    True
    >>> _gives_up("I stopped drinking", "I drink water"), _gives_up("I stopped drinking", "I drink wine")
    (False, True)
    """
    consumed = _CONSUMES.match(old.lower())
    if consumed is None or read(old).values.negations:
        return False
    said = new.lower()
    language = detect_language(words(f"{new} {old}"))
    has = set(reduce_spoken(words(consumed["what"]), language))
    if _SOBER.search(said) and _ALCOHOL.search(consumed["what"]):
        return True
    matches = (pattern.search(said) for pattern in _GIVEN_UP.values())
    things = [found["thing"] for found in matches if found]
    return not has.isdisjoint(reduce_spoken(things, language))


def _read_way(text: str) -> tuple[str, str] | None:
    """Return where the speaker usually goes, and how.

    >>> _read_way("I cycle to work now"), _read_way("I cycle to Rome")
    (('work', 'cycle'), None)
    """
    for pattern in _WAYS.values():
        if found := pattern.search(text.lower()):
            return found["where"], found["how"]
    return None


def _goes_otherwise(new: str, old: str) -> bool:
    """Return whether the speaker now goes to work in another way.

    >>> _goes_otherwise("I cycle to work now", "I drive to work")
    True
    >>> _goes_otherwise("I also cycle to work now", "I drive to work")
    False
    """
    cues = read(new).cues
    if CHANGING.isdisjoint(cues) or "added" in cues:
        return False
    way, other_way = _read_way(new), _read_way(old)
    if way is None or other_way is None:
        return False
    return way[0] == other_way[0] and way[1] != other_way[1]


def _has_new_number(new: str, old: str) -> bool:
    """Return whether a text gives a new telephone number of the speaker, and the older one an old one.

    >>> _has_new_number("new number: 07700 900456", "My number is 07700 900123")
    True
    >>> _has_new_number("new number: 07700 900456", "My sister's number is 07700 900123")
    False
    """
    if not _PHONE["new"].search(new.lower()) or not _PHONE["held"].search(old.lower()):
        return False
    ours, theirs = (
        {each for each in read(text).values.numbers if len(each) >= _LEAST_DIGITS}
        for text in (new, old)
    )
    return bool(ours and theirs) and ours.isdisjoint(theirs)


def differ_in_area(new: str, old: str) -> bool:
    """Return whether one text tells the country or region of a home, and the other the place.

    >>> differ_in_area("We live in Toledo now", "I live in Spain")
    True
    """
    home, other_home = read_home(new), read_home(old)
    if home is None or other_home is None:
        return False
    return home.is_area != other_home.is_area


def read_home(text: str) -> Home | None:
    """Return where the speaker says to live; None if nowhere.

    >>> read_home("Ich bin letzten Monat nach Bonn gezogen.")
    Home(place='bonn', is_area=False)
    >>> read_home("Ich fliege nach Bonn."), read_home("Ya no vivo en Madrid.")
    (None, None)
    """
    for pattern in _HOME.values():
        found = pattern.search(text)
        if found and rarity(found["place"]) < _TECHNICAL:
            place = found["place"].lower()
            has_area = "area" in pattern.groupindex and found["area"] is not None
            return Home(place, has_area or _COUNTRY.fullmatch(place) is not None)
    return None


def read_diet(text: str) -> str:
    """Return whether the speaker eats plants or meat; empty if unknown.

    >>> read_diet("I'm a vegetarian"), read_diet("I eat fish again"), read_diet("I never eat fish")
    ('plants', 'meat', '')
    """
    said = text.lower()
    for name, patterns in _DIETS.items():
        if any(pattern.search(said) for pattern in patterns.values()):
            return name
    return ""


def refines(new: str, old: str) -> bool:
    """Return whether one text has a country where the other has a place, or says more precisely where
    that is, and nothing has changed.

    >>> refines("I live in Porto.", "I live in Portugal."), refines("I live in Spain.", "I live in Peru.")
    (True, False)
    >>> refines("I live in Porto now.", "I live in Portugal."), refines("Abito a Como", "Vivo in Lombardia")
    (False, True)
    """
    if not CHANGING.isdisjoint(read(new).cues):
        return False
    home = read_home(new)
    other_home = read_home(old)
    if home and other_home:
        is_named_with_it = other_home.place in new.lower() or home.place in old.lower()
        return home.is_area != other_home.is_area or is_named_with_it
    if _COUNTRY.search(new) is None and _COUNTRY.search(old) is None:
        return False
    language = detect_language(words(f"{new} {old}"))
    rest = [words(_COUNTRY.sub(" ", text)) for text in (new, old)]
    fewer, more = sorted((set(reduce_spoken(each, language)) for each in rest), key=len)
    return fewer < more
