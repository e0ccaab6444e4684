"""What passes: courtesies, moods and reports of what happened once.

"Thanks, Sam, talk to you soon!" states nothing, and "I visited Rome last week" stays true whatever
happens later. Neither replaces another statement, nor is replaced by one. What leaves something that
holds, such as a new job or a plan, does not pass. Numbers, times and days are never a courtesy.
"""

from __future__ import annotations

import re

from .cues import TURNING, read
from .tokens import compile_all, detect_language, load_patterns, words

_TABLES = load_patterns(__file__)
_CLAUSES = compile_all(_TABLES["clauses"])
_HAPPENED = compile_all(_TABLES["happened"])
_ENGLISH = _TABLES["english"]
_LASTING = re.compile(_ENGLISH["lasting"])
_PAST = re.compile(rf"\b{_ENGLISH['past']}\b")
_DID = re.compile(
    rf"(?:\b{_ENGLISH['who']} (?:\w+ly |also |just |all |both )?|\A(?!\w+ed\b)){_ENGLISH['past']}\b"
)
_SENTENCE = re.compile(r"[.!?\n]+\s*")
_FIRST = re.compile(r"\b(?:i|i['’]m|my|we|ich|je|yo|eu|io)\b")
_STATES = re.compile(r"\b(?:i|we|ich|wir|je|j['’]|nous|yo|soy|eu|sou|io|sono)(?!\w)")
_SPLIT = re.compile(r"[.!…,;:\n]+|\s[-–—]\s|\b(?:and|but|und|et|y|e)\s(?=(?:i|thanks?|thank)\b)")
_QUESTION = re.compile(r"(?:\A|(?<=[.!?\n…]))[^.!?\n…]*+\?")
_UNSPOKEN = re.compile(r"[^\w\s'’]+")
_LONGEST = 400  # characters of a courtesy
_LONGEST_REPORT = 1000
_LEAST_STATED = 3  # words beside a question
_MOST_ADDRESSED = 2  # words of a clause that only addresses somebody: "dear Sam"
_NEWS = frozenset(("moved", "new"))
_REPLACING = frozenset(("ended", "moved", "corrected"))


def is_courtesy(text: str) -> bool:
    """Return whether a text only greets, thanks, encourages, agrees, asks or tells a mood.

    >>> is_courtesy("Take care, Sam! I'll catch up with you later."), is_courtesy("Mir geht's gut, danke!")
    (True, True)
    >>> is_courtesy("Thanks! I moved to Porto."), is_courtesy("Thanks, see you on Friday at nine.")
    (False, False)
    """
    said = read(text)
    if len(text) > _LONGEST or said.numbers or not _NEWS.isdisjoint(said.cues):
        return False
    statements = _QUESTION.sub(".", text.lower())
    clauses = [" ".join(_UNSPOKEN.sub(" ", part).split()) for part in _SPLIT.split(statements)]
    spoken = [clause for clause in clauses if clause]
    polite = [clause for clause in spoken if _is_polite(clause)]
    others = [clause for clause in spoken if clause not in polite]
    return bool(polite) and all(map(_is_addressing, others))


def _is_addressing(clause: str) -> bool:
    return len(clause.split()) <= _MOST_ADDRESSED and not _FIRST.search(clause)


def _is_polite(clause: str) -> bool:
    """Return whether a clause is a courtesy or a mood, also after a greeting.

    What follows a greeting counts by itself; what follows a courtesy may not state something.

    >>> _is_polite("hi thanks for the tips"), _is_polite("hi i live in bern")
    (True, False)
    >>> _is_polite("thanks to ana we use go"), _is_polite("glad to hear i hope you win")
    (False, True)
    """
    rest = _CLAUSES["greeting"].sub("", clause, count=1)
    if rest != clause and _is_addressing(rest):
        return True
    if _CLAUSES["mood"].fullmatch(rest):
        return True
    found = _CLAUSES["courtesy"].match(rest)
    if found is None:
        return False
    stating = _STATES.search(rest, found.end())
    return stating is None or _is_polite(rest[stating.start() :])


def leave_out_questions(text: str) -> str:
    """Return a text without its questions, if it also states something.

    >>> leave_out_questions("Do you know Callum? I moved to Porto."), leave_out_questions("Hm. Why?")
    ('I moved to Porto.', 'Hm. Why?')
    >>> leave_out_questions("Did you hear that I moved to Porto? It rains a lot.")
    'Did you hear that I moved to Porto? It rains a lot.'
    """
    questions = _QUESTION.findall(text)
    if not questions or not TURNING.isdisjoint(read(" ".join(questions)).cues):
        return text
    statements = _QUESTION.sub(" ", text).strip()
    return statements if len(statements.split()) >= _LEAST_STATED else text


def is_event(text: str) -> bool:
    """Return whether a text only tells what happened once.

    >>> is_event("I watched a comedy and felt happy"), is_event("Ich habe gestern Rom besucht")
    (True, True)
    >>> is_event("woke up at 9, lovely"), is_event("Changed the port to 80")
    (True, False)
    >>> is_event("I moved to Porto last week"), is_event("I bought a Golf"), is_event("I play chess")
    (False, False, False)
    """
    if len(text) > _LONGEST_REPORT or "moved" in read(text).cues:
        return False
    language = detect_language(words(text))
    if language != "english":
        happened = _HAPPENED.get(language)
        return happened is not None and happened.search(text.lower()) is not None
    if _LASTING.search(text.lower()) or not _DID.search(text):
        return False
    return all(_PAST.search(part) for part in _SENTENCE.split(text) if " " in part)


def may_replace(new: str, old: str) -> bool:
    """Return whether a text states something that may replace what an older one states.

    What happened does so only if it says that something ended or changed.

    >>> may_replace("I ran 8 km today", "I ran 5 km today")
    False
    >>> may_replace("They cancelled the trip and I felt sad", "We go on a trip in May")
    True
    """
    if is_event(old) or is_courtesy(new) or is_courtesy(old):
        return False
    return not is_event(new) or not _REPLACING.isdisjoint(read(new).cues)
