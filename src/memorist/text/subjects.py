"""What a statement is about: "My passport expires in June" and "My licence expires in May" are alike,
and both are true.

Without a grammar, different subjects are recognized by the words that two statements do not have in
common. Values, units and words such as "name" and "month" say nothing about what a statement is about.
"""

from __future__ import annotations

import re
from itertools import product

from .compare import RELATIVES
from .cues import CHANGING, TURNING, ComparedText, read
from .entities import GIVEN_NAMES, is_common
from .statements import Clause, parse
from .tokens import (
    ENGLISH,
    analyze,
    compile_all,
    detect_language,
    load_patterns,
    reduce_spoken,
    word_set,
    words,
)
from .values import is_value, read_values

_TABLES = load_patterns(__file__)
GENERIC = word_set(" ".join(_TABLES["words"]["generic"]))
_PATTERNS = compile_all(_TABLES["patterns"])
_COPULAS = compile_all(_TABLES["copulas"])
_PRONOUN = re.compile(r"(?:he|she|it|they|his|her|its|their)\b", re.IGNORECASE)
_IS = frozenset(("is", "are"))
_MOST_READ = 1000  # characters in which compounds are searched
_LEAST_PART = 4  # letters of a word that is part of another one
_OWNER = re.compile(r"\b[A-Z][^\W\d_]*['’]s?(?=\s+[^\W\d_])")


def read_subject(text: str, default: str = "english") -> frozenset[str]:
    """Return the stems that may tell what a text is about, without values and their units.

    Whose something is does not count: "Jonas's parents" are not Jonas. The language is the default if
    the text does not tell it.

    >>> sorted(read_subject("I pay 40 euros a month for Ana's car"))
    ['car', 'pay']
    """
    spoken = words(_OWNER.sub(" ", text))
    kept = [word for word in spoken if not (word in GENERIC or is_value(word))]
    stems = reduce_spoken(kept, detect_language(spoken, default))
    return frozenset(stem for stem in stems if not stem[0].isdigit())


def _read_subjects(new: str, old: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the stems of two texts; a text that does not tell its language has that of both."""
    language = detect_language(words(f"{new} {old}"))
    return read_subject(new, language), read_subject(old, language)


def share_subject(new: str, old: str) -> bool:
    """Return whether two texts have a word in common that says what they are about.

    >>> share_subject("We charge 3 euros a month", "I pay 9 euros a month for my phone")
    False
    >>> share_subject("I left my choir", "The choirmaster is Ann")
    True
    >>> share_subject("Non fumo più", "Fumo")
    True
    >>> share_subject("Ben got a bike", "Ben is allergic to nuts"), share_subject("Rex died", "Rex is a pug")
    (False, True)
    """
    new, old = _leave_out_label(new), _leave_out_label(old)
    ours, theirs = _read_subjects(new, old)
    if "ended" not in read(new).cues:
        ours -= _name_shared_people(new, old)
    if not ours.isdisjoint(theirs):
        return True
    for one, another in product(ours, theirs):
        part, whole = sorted((one, another), key=len)
        if len(part) >= _LEAST_PART and (whole.startswith(part) or whole.endswith(part)):
            return True
    return False


def _leave_out_label(text: str) -> str:
    """Return a text without what kind of record it is: "Decision: ids are ULIDs"."""
    return _PATTERNS["label"].sub("", text)


def _name_shared_people(new: str, old: str) -> frozenset[str]:
    """Return the stems of the people and pets whom two texts name, by a given name or in first place."""
    named = {name.lower() for name in read(new).values.names}
    named &= {name.lower() for name in read(old).values.names}
    first = {text.split()[0].lower() for text in (new, old) if text.strip()}
    language = detect_language(words(f"{new} {old}"))
    is_first = len(first) == 1
    kin = {name.lower() for text in (new, old) for name in name_kin(text).values()}
    people = {name for name in named if name in GIVEN_NAMES | kin or (is_first and name in first)}
    return frozenset(reduce_spoken(sorted(people), language))


def name_kin(text: str) -> dict[str, str]:
    """Return the names of relatives in a text, by what they are to somebody.

    >>> name_kin("My sister Ana is a vet")
    {'sister': 'Ana'}
    """
    return dict(_PATTERNS["kin"].findall(text[:_MOST_READ]))


def share_only_names(new: str, old: str) -> bool:
    """Return whether two texts have words in common, and these do not say what they are about.

    They are names of people and pets, days, or what kind of record both are. Something new on the same
    day may take the place of what was on that day.

    >>> share_only_names("Rex had an ear infection", "Rex is a pug")
    True
    >>> share_only_names("The plumber comes on Tuesday", "I row on Tuesday")
    True
    >>> share_only_names("I row on Friday", "I row on Tuesday"), share_only_names("We moved", "I row")
    (False, False)
    """
    shared = read(new).topics & read(old).topics
    if not shared:
        return False
    plain_new, plain_old = _leave_out_label(new), _leave_out_label(old)
    if read(plain_new).topics.isdisjoint(read(plain_old).topics):
        return True
    ours, theirs = _read_subjects(plain_new, plain_old)
    if ours.isdisjoint(theirs):
        return "new" not in read(new).cues
    return (ours & theirs) <= _name_shared_people(new, old)


def judges_another(new: str, old: str) -> bool:
    """Return whether a text says how a new thing is liked, and the older one what is liked in general.

    >>> judges_another("I don't like the new jazz bar", "I love jazz")
    True
    >>> judges_another("I like the new flat in Bonn", "I live in Kiel")
    False
    """
    if not _PATTERNS["likes"].search(old) or _PATTERNS["judged_new"].search(old):
        return False
    return _PATTERNS["judged_new"].search(new) is not None


def are_parallel(new: str, old: str) -> bool:
    """Return whether two statements have something in common, and each a subject of its own.

    >>> are_parallel("Anna owes me 20 euros", "Tom owes me 50 euros")
    True
    >>> are_parallel("The rent is 900 euros", "My rent is 850 euros a month")
    False
    >>> are_parallel("My address is 9 Rua Nova, Faro", "My address is 3 Rua Augusta, Lisbon")
    False
    """
    ours, theirs = _read_subjects(new, old)
    are_had = all(_PATTERNS["having"].search(text) for text in (new, old))
    if are_had and read_values(new).weekdays:
        return bool(ours) and ours == theirs  # tickets for two days
    topic = _read_topic(new)
    if topic and topic == _read_topic(old):
        return False
    return not ours.isdisjoint(theirs) and not (ours <= theirs or theirs <= ours)


def _read_topic(text: str) -> frozenset[str]:
    """Return the stems of what a text says something is, such as an address."""
    if copula := _COPULAS.get(detect_language(words(text))):
        before, *rest = copula.split(text, maxsplit=1)
        return read_subject(before) if rest else frozenset()
    clause = parse(text).clause
    return read_subject(clause.subject) if clause and clause.verb in _IS else frozenset()


def differ_in_actor(new: str, old: str) -> bool:
    """Return whether two people do or have what two texts say, and neither is named in the other.

    Who holds a role may be replaced by somebody else: "Tom is our coach", "Ana is our coach now".
    """
    ours, theirs = _read_actor(new), _read_actor(old)
    if not ours or not theirs or ours in words(old) or theirs in words(new):
        return False
    if _PATTERNS["holds"].search(new) and _PATTERNS["holds"].search(old):
        return False
    if GIVEN_NAMES.issuperset((ours, theirs)):
        return True
    if _PATTERNS["first"].search(new) or _PATTERNS["first"].search(old):
        return False
    are_people = _is_person(ours, new) and _is_person(theirs, old)
    return are_people or CHANGING.isdisjoint(ComparedText(new).cues)


def _read_actor(text: str) -> str:
    """Return the name with which a text begins, or that follows when or where it was.

    >>> _read_actor("Ines won a race"), _read_actor("At the zoo, Bo's son fell"), _read_actor("Rent is due")
    ('ines', 'bo', '')
    """
    found = _PATTERNS["actor"].match(text)
    name = found["name"].lower() if found else ""
    if name in GIVEN_NAMES:
        return name
    is_known = name in ENGLISH or is_common(name) or detect_language(words(text)) != "english"
    return "" if is_known else name


def _is_person(name: str, text: str) -> bool:
    return name in GIVEN_NAMES or _PATTERNS["personal"].search(text) is not None


def is_of_another_person(new: str, old: str) -> bool:
    """Return whether a text only speaks of its speaker, and the older one of somebody else.

    >>> is_of_another_person("We switched to Linear", "Anna uses Jira at her job")
    True
    >>> is_of_another_person("I got a new boss", "My boss is Rita")
    False
    """
    if _PATTERNS["personal"].search(new) or not _PATTERNS["first"].search(new):
        return False
    spoken = words(new)
    if _read_actor(new):
        return False
    name = _read_actor(old)
    if name and _is_person(name, old):
        return name not in spoken
    _, *rest = words(old)[:2] or [""]
    own = {word.removesuffix("'s") for word in rest}
    relatives = own & RELATIVES if words(old)[:1] == ["my"] else set()
    return bool(relatives) and relatives.isdisjoint(word.removesuffix("'s") for word in spoken)


def changes_another(text: str) -> bool:
    """Return whether a text says that somebody or something else moved, quit or left.

    >>> changes_another("Our office moved to Bonn"), changes_another("We moved to Bonn")
    (True, False)
    """
    return _PATTERNS["mover"].match(text) is not None


def may_mean_same(new: str, clause: Clause, old: str, older_clause: Clause) -> bool:
    """Return whether the subject of a clause of each text may stand for the same.

    A pronoun does not if the rest of both texts has nothing in common.
    """
    if not _PRONOUN.match(clause.subject):
        return True
    ours = read_subject(new) - read_subject(clause.text)
    theirs = read_subject(old) - read_subject(older_clause.text)
    return not ours or not theirs or not ours.isdisjoint(theirs)


def answers_instead(question: str, new: str, old: str) -> bool:
    """Return whether a text that may replace an older one answers the question like that one does.

    It does not if the older one alone has a word of the question, unless the newer one refers back to
    it: by a pronoun, by saying what ended or changed, or because it only has another value. This
    is known of English only.

    >>> asked, old = "When do we launch the app?", "We launch on 1 June"
    >>> answers_instead(asked, "I signed up for a marathon on 24 May", old)
    False
    >>> answers_instead(asked, "make it 8 June", old)
    True
    """
    missing = set(analyze(question)).intersection(analyze(old)).difference(analyze(new))
    said = ComparedText(new)
    if not missing or not said.is_english:
        return True
    return said.opens_referring or not TURNING.isdisjoint(said.cues) or not read_subject(new)
