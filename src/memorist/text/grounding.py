"""Check whether a text that a language model wrote says what its source says.

A model invents facts and mixes them up. So a text is split into parts, and each part is compared
with the clauses of the source: its words have to occur there, in any inflection, with the same
numbers, names, negations and order, about the same person. A few paraphrases are recognized, in
English, German, French, Spanish and Portuguese.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from . import tokens, values
from .clauses import (
    NEGATIONS,
    NO_SUBJECT,
    ClausePart,
    Word,
    is_same,
    keys_of,
    name_of,
    name_words,
    split,
)
from .compare import is_supported
from .normalize import one_line
from .tokens import detect_language

_VALUES = "numbers units times dates weekdays months days".split()
LONGEST_NAME = 40
LONGEST_SOURCE = 4000  # characters in which relatives are looked for
MOST_TURNS = 2  # that one clause of a summary is based on
OTHER_WORDS = "its words do not match the source"
OTHER_MEANING = "it changes the meaning of the source"
OTHER_PERSON = "it is about someone else"
_OWN_RELATIVE = re.compile(
    r"(?i:\b(?:my|our|meine?|mein(?:e[nm]|er)|unsere?|mon|ma|notre|mi|nuestr[oa]|meu|minha|noss[oa]|mio|mia"
    r"|nostr[oa])) (?P<relation>[^\W\d_]{2,30}),? (?P<name>[^\W\d_][^\W\d_-]{1,30})\b"
)
_ARTICLE = r"(?:(?:the|an?|der|die|das|eine?n?|une?|l[ea]|el|un[oa]?|uma?|[oa]|il|lo) |l')?"
_OF = r"(?:de la|des|der|von|de l'|de|del|d[ao]|di|dell'|della) ?"
# How a fact tells what a relative or friend of a person is called.
_RELATIVE_FACTS = (
    "{who}'s {relation} is (?:called |named )?{name}",
    "{name} is {who}'s {relation}",
    "{article}{relation} {of}{who} (?:is|heißt|ist|s'appelle|est|se llama|es|(?:se )?chama(?:-se)?|é"
    "|si chiama|è) {name}",
    "{name} (?:is|ist|est|es|é|è) {article}{relation} {of}{who}",
    "{who} (?:has|hat|a|tiene|tem|ha) {article}{relation} (?:named|called|namens|nommée?|appelée?"
    "|llamad[oa]|chamad[oa]|di nome|de nombre) {name}",
)


class Turn(NamedTuple):
    """Something that was said, and by whom, where that matters."""

    text: str
    speaker: str = ""

    @property
    def lead(self) -> str:
        """What stands before it."""
        plain = self.speaker.replace(":", " ")
        name = one_line(plain)[:LONGEST_NAME].strip()
        return f"{name}: " if name else ""


def find_fault(
    text: str,
    source: Sequence[Turn],
    who: str | None = None,
    *,
    by_words: bool = False,
    is_verified: bool = False,
) -> str:
    """Return why the source does not support a text; empty if it does.

    With `who`, the text is a fact about that person, who is the speaker of the source: it may not
    leave out what restricts a statement. Without, it is a summary of what several people said. With
    `by_words`, nearly half of its words have to be in the source, and its names and numbers. If a
    model verified that the source supports it, it may have other words, but no other names and no
    other negation.

    >>> source = [Turn("I don't eat meat on Fridays, but I love fish.")]
    >>> find_fault("Ana loves fish.", source, "Ana"), find_fault("Ana eats meat.", source, "Ana")
    ('', 'it changes the meaning of the source')
    >>> find_fault("Ana loves cheese.", source, "Ana")
    'its words do not match the source'
    """
    everything = "\n".join(f"{each.speaker}: {each.text}" for each in source)
    stated = values.read_values(everything)
    claimed = values.read_values(text)
    for name in _VALUES:
        if not set(getattr(claimed, name)).issubset(getattr(stated, name)):
            return f"it has {name} that are not in the source"
    if by_words:
        has_names = set(claimed.names).issubset({*stated.names, *(who or "").split()})
        return "" if has_names and is_supported(text, everything) else OTHER_WORDS
    if who is not None and _tells_relative(text, source, who):
        return ""
    language = detect_language(tokens.words(everything))
    parts: list[ClausePart] = []
    for each in source:
        parts += split(each.text, language, parts, name_of(each.speaker))
    names = name_words([who or "", *(each.speaker for each in source)])
    claims = split(text, detect_language(tokens.words(text), language), [], "", names)
    words = [word for claim in claims for word in claim.content]
    if language not in NEGATIONS and bool(claimed.negations) != bool(stated.negations):
        return OTHER_MEANING
    is_as_negative = bool(claimed.negations) == bool(stated.negations)
    has_names = all(_is_mentioned(name, everything, who) for name in claimed.names)
    may_reword = is_verified and is_as_negative and has_names
    index = _index(parts)
    has_content = False
    for claim in claims:
        found, is_known = _align(claim, parts, index, names, is_fact=who is not None)
        if not is_known and not may_reword:
            return OTHER_WORDS
        if not found or not is_known:
            continue
        has_content = True
        if why := _compare(claim, found, parts, language, words if who else None):
            return why
    return "" if has_content or may_reword else OTHER_WORDS


def _is_mentioned(name: str, source: str, who: str | None) -> bool:
    """Return whether a source mentions a name, perhaps in another form.

    >>> _is_mentioned("Petras", "My sister Petra", None), _is_mentioned("Bo", "My boss", None)
    (True, False)
    """
    stem = name.casefold().removesuffix("s")
    mentioned = tokens.words(f"{source} {who or ''}".casefold())
    same = [word for word in mentioned if word.startswith(stem)]
    return any(len(word) - len(stem) < len(stem) // 2 for word in same)


def _tells_relative(text: str, source: Sequence[Turn], who: str) -> bool:
    """Return whether a fact only tells what a relative or friend of the speaker is called.

    >>> _tells_relative("Ana's sister is called Ida.", [Turn("My sister Ida is a nurse")], "Ana")
    True
    >>> _tells_relative("Ida's sister is Ana.", [Turn("My sister Ida is a nurse")], "Ana")
    False
    """
    plain = one_line(text).strip(" .").replace("’", "'")
    last = re.escape(who.split()[-1].removeprefix("L'").removeprefix("l'")) if who.split() else ""
    speaker = rf"(?:(?:the|der|die|el|la|[oa]) |l')?{last}s?"
    for turn in source:
        for found in _OWN_RELATIVE.finditer(turn.text[:LONGEST_SOURCE]):
            if not found["name"][0].isupper() or not last:
                continue
            named = {name: re.escape(value) for name, value in found.groupdict().items()}
            for fact in _RELATIVE_FACTS:
                pattern = fact.format(**named, who=speaker, article=_ARTICLE, of=_OF)
                if re.fullmatch(pattern, plain, re.IGNORECASE):
                    return True
    return False


def _index(parts: Sequence[ClausePart]) -> Mapping[str, list[tuple[Word, int]]]:
    """Return the words of the source by what they may have in common with others, each with the
    number of its part.
    """
    index: defaultdict[str, list[tuple[Word, int]]] = defaultdict(list)
    for number, part in enumerate(parts):
        for word in part.content:
            for key in keys_of(word):
                index[key].append((word, number))
    return index


def _align(
    claim: ClausePart,
    parts: Sequence[ClausePart],
    index: Mapping[str, list[tuple[Word, int]]],
    names: Mapping[str, str],
    *,
    is_fact: bool,
) -> tuple[list[tuple[Word, ClausePart]], bool]:
    """Return the words of the source that those of a claim repeat, and whether nothing is new.

    Those of the main part come first: for a fact one that is repeated as a whole, for a summary one
    of the person it tells of, and then the one with most of the words.
    """
    missing = []
    matches: defaultdict[int, dict[Word, Word]] = defaultdict(dict)  # by the number of the part
    for word in claim.content:
        name = name_of(word.text)
        if word.is_negation or name in names or name.removesuffix("s") in names:
            continue
        missing.append(word)
        for key in keys_of(word):
            for other, number in index.get(key, ()):
                if word not in matches[number] and is_same(word, other):
                    matches[number][word] = other
    found: list[tuple[Word, ClausePart]] = []

    def rank(number: int) -> tuple[float, ...]:
        part = parts[number]
        count = sum(word in matches[number] for word in missing)
        repeated = set(matches[number].values())
        left = sum(word not in repeated for word in needed_words(part))
        main = found[0][1] if found else None
        is_near = main is not None and main.words[0].turn == part.words[0].turn
        is_preferred = not left if is_fact else is_near or part.person == claim.person
        return bool(count), is_preferred, count, count / (1 + left), -number

    while matches and any(word in match for match in matches.values() for word in missing):
        best = max(matches, key=rank)
        match = matches.pop(best)
        found += [(match[word], parts[best]) for word in missing if word in match]
        missing = [word for word in missing if word not in match]
    allowed = ["neutral", "against", "person"]
    if not is_fact:
        allowed.append("telling")
    return found, all(word.among(*allowed) and not word.is_name for word in missing)


def _compare(
    claim: ClausePart,
    found: Sequence[tuple[Word, ClausePart]],
    parts: Sequence[ClausePart],
    language: str,
    fact: Sequence[Word] | None,
) -> str:
    """Return what a claim changes in the parts of the source that it repeats; empty if nothing.

    `fact` has all the words of a fact; it is None for a summary.
    """
    main = found[0][1]
    order = _sort([word for word, _ in found], claim)
    first = next(n for n, word in enumerate(order) if word in main.words)
    # In a fact, words before those of the main part only name what a pronoun in it stands for.
    is_named = fact is not None and main.has_pronoun
    naming = set(order[:first]) if is_named else set()
    clauses = {part.clause for word, part in found if word not in naming}
    around = [part for part in parts if part.clause in clauses]
    if _is_negative([claim]) != _is_negative(around):
        return OTHER_MEANING
    # Verbs move in German, and everything does in a summary.
    nouns_only = fact is None or language == "german"
    in_part: list[Word] = []
    if not nouns_only:
        in_part = [word for word in main.words if word in order and not word.among("light")]
        in_part += [word for part in around for word in part.words if word.is_negation]
    firm = [part for part in parts if part.clause == main.clause and not part.is_about] + [main]
    names = [word for word in order if word.is_name and any(word in part.words for part in firm)]
    is_passive = claim.has("passive") and not main.has("passive")
    for words in (_sort(in_part, claim), names):
        if not _is_in_order(words, is_free=is_passive or language in NO_SUBJECT):
            return "its words are in another order than in the source"
    if fact is None:
        return _find_other_teller(claim, found)
    clause = [part for part in around if part.clause == main.clause]
    is_negated = any(part.is_negated for part in clause)
    for part in clause if is_negated else [main]:
        for word in needed_words(part, is_negated=is_negated):
            said = claim.content if word.is_name and language != "german" else fact
            if not any(is_same(each, word) for each in said):
                return "it leaves out a part of the source"
    for name in ("unsure", "formerly"):
        if any(part.has(name) for part in clause) != claim.has(name):
            return OTHER_MEANING
    is_over = main.has("was") and not main.has("perfect")
    if is_over and claim.has("is") and not claim.has("was"):
        return OTHER_MEANING
    is_group = claim.has("group") and main.subject == "person"
    is_own = main.has("possessive")
    if claim.subject == "person" != main.subject:
        return OTHER_PERSON
    if claim.subject == "other" and any(part.has("speaker") for part in clause) and not is_passive:
        return OTHER_PERSON
    if claim.subject == "theirs" != main.subject and not is_group and not is_own:
        return OTHER_PERSON
    return ""


def _find_other_teller(claim: ClausePart, found: Sequence[tuple[Word, ClausePart]]) -> str:
    """Return why a summary tells something of the wrong person; empty if it does not.

    What people say about themselves may be stated only about them.
    """
    if len({word.turn for word, _ in found}) > MOST_TURNS:
        return OTHER_WORDS
    main = found[0][1]
    for part in dict.fromkeys(part for _, part in found):
        repeated = [word for word, of in found if of == part]
        is_stated = len(repeated) > 1 or part.content[0] in repeated
        is_own = part.subject == "person" or part.subject == claim.subject == "theirs"
        if is_stated and is_own and claim.person and part.person not in ("", claim.person):
            return OTHER_PERSON
    if main.subject == "person" and main.has("speaker") and not main.has("we"):
        order = _sort([word for word, _ in found], claim)
        first = next(n for n, word in enumerate(order) if word in main.words)
        clauses = {word: part.clause for word, part in found}
        if any(word.is_name and clauses[word] != main.clause for word in order[:first]):
            return OTHER_PERSON
    return ""


def needed_words(part: ClausePart, *, is_negated: bool = False) -> list[Word]:
    """Return the words of a part of the source that a fact must not leave out. A time may be left
    out if the part is not negated.
    """
    found: list[Word] = []
    for n, word in enumerate(part.content):
        is_optional = word.among("light", "neutral", "against", "stopped") or word.is_negation
        around = part.content[max(0, n - 2) : n + 3]
        is_time = word.is_time or (word.text.isdecimal() and any(each.is_time for each in around))
        is_first = word == part.words[0] and part.is_about
        if not is_optional and not is_first and (is_negated or not is_time):
            found.append(word)
    return found


def _sort(found: Sequence[Word], claim: ClausePart) -> list[Word]:
    """Return words of the source in the order in which a claim repeats them."""
    order: list[Word] = []
    for word in claim.content:
        for other in found:
            if is_same(word, other) and other not in order:
                order.append(other)
                break
    return order


def _is_in_order(words: Sequence[Word], *, is_free: bool) -> bool:
    """Return whether words of the source are in its order, except that one end may come first, or
    the first word later: "we chose green tea", "green tea was chosen".
    """
    places = [word.place for word in words]
    breaks = [n for n, (a, b) in enumerate(pairwise(places)) if b < a]
    if not breaks:
        return True
    if len(places) == 2:
        return is_free and any(not word.is_name and not word.is_negation for word in words)
    is_turned = len(breaks) == 1 and places[-1] < places[0]
    others = [place for place in places if place != min(places)]
    return is_turned or others == sorted(others)


def _is_negative(parts: Sequence[ClausePart]) -> bool:
    """Return whether parts say that something is not so: by a negation or by a word such as
    "hates", but not by both.
    """
    is_negated = any(part.is_negated for part in parts)
    against = sum(word.among("against", "stopped") for part in parts for word in part.words)
    return (is_negated + against) % 2 == 1
