"""Find the statements of a turn that are worth keeping and can be understood by themselves.

A line is split into sentences and these into clauses. Questions, requests, guesses, reported speech
and clauses that point outside of themselves are left out; what remains of a sentence, together with
fragments beside it that have no subject of their own, is one candidate. It is put into the third
person, or is quoted as what the speaker said, and a logistic model over cheap cues decides whether
it is lasting. The patterns and weights are in `durable.toml`; `bench/extract.py --fit` fits them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from ..text import cues, prompts
from ..text.normalize import LINK, one_line
from ..text.tokens import ENGLISH, compile_all, load_patterns
from .third_person import (
    TIME,
    date,
    possessive,
    replace_first_person,
    replace_second_person,
    replace_that,
)

Type = Literal[
    "preference", "profile", "relationship", "project", "commitment", "decision", "event", "other"
]
TYPES: tuple[Type, ...] = get_args(Type)
LONGEST = 300  # characters of a candidate
MOST_CLAUSES = 12  # of a sentence; the others are not read

_TABLES = load_patterns(__file__)
PATTERNS = compile_all(_TABLES["patterns"])
CUES = compile_all(_TABLES["cues"])
KINDS: dict[Type, re.Pattern[str]] = {
    type: re.compile(pattern) for type, pattern in _TABLES["types"].items()
}
WEIGHTS: dict[str, float] = _TABLES["weights"]
# Probability from which a statement is kept.
LEAST = WEIGHTS["least"]
LEAST_QUOTED = WEIGHTS["least_quoted"]  # if the speaker is not its subject
MANY_WORDS = 7  # in a row, without one such as "the" or "is", are no sentence

_WITH_ASSISTANT = "The user"  # the name of a speaker who talks to an assistant
_SUBJECTS = {"verb": "I", "doing": "I am", "been": "I have"}


class LastingStatement(NamedTuple):
    """A statement in the third person that may be worth keeping."""

    text: str
    source: str  # verbatim
    probability: float  # that it is lasting
    is_own: bool  # it is about the speaker


class Span(NamedTuple):
    """A part of a line."""

    start: int
    end: int
    is_linked: bool = False  # it continues the clause before it


def propose(
    text: str,
    who: str,
    at: datetime,
    known: Sequence[str] = (),
    *,
    keeps_all: bool = False,
) -> Iterator[LastingStatement]:
    """Yield the statements of a turn that are likely to last, except the clauses that are known.

    >>> said = "hey! im on nights at the hospital in Faro, can you wake me? no coffee after 2, ever"
    >>> [each.text for each in propose(said, "Ana", datetime(2026, 5, 8))]
    ['Ana is on nights at the hospital in Faro.', 'Ana said: no coffee after 2, ever.']
    """
    for line in text.splitlines():
        if PATTERNS["document"].match(line) or PATTERNS["log"].match(line):
            continue
        signed = PATTERNS["signature"].search(line)
        end = signed.start() if signed else len(line)
        for span in _find_spans(line[:end], known):
            source = line[span.start : span.end].strip(" ,;:–—-")
            statement = _add_subject(source, is_first=not line[: span.start].strip())
            is_own = PATTERNS["own_subject"].match(statement) is not None
            is_after_question = line[: span.start].rstrip().endswith("?")
            if is_after_question and not (is_own or CUES["rule"].search(statement)):
                continue  # it says what is asked for
            probability = estimate(statement)
            if probability < (LEAST if is_own else LEAST_QUOTED) and not keeps_all:
                continue
            if stated := state(statement, who, at):
                is_own = is_own or PATTERNS["myself"].search(statement) is not None
                yield LastingStatement(stated, source, probability, is_own)


def is_worth_keeping(text: str) -> bool:
    """Return whether a turn states something, a rule or a decision, and does not only ask.

    Of a text in another language than English, only questions are recognized.

    >>> is_worth_keeping("We deploy with Ansible. Fix the playbook."), is_worth_keeping("fix it")
    (True, False)
    """
    any_day = datetime(2000, 1, 1)
    is_english = cues.is_english(text)
    if is_english and any(propose(text, _WITH_ASSISTANT, any_day, keeps_all=True)):
        return True
    rules = (cues.TELLS[cues.HAS_RULE], CUES["rule"], CUES["decision"])
    is_rule = any(pattern.search(text) for pattern in rules)
    return cues.asking_share(text) < 1 and bool(is_rule or not is_english)


def _add_subject(source: str, *, is_first: bool) -> str:
    """Complete a statement that begins with its verb; empty if that is not of the speaker.

    >>> _add_subject("got a cat", is_first=True), _add_subject("Faro it is", is_first=False)
    ('I got a cat', 'I chose Faro')
    """
    statement = PATTERNS["lead"].sub("", PATTERNS["image"].sub("", source).strip(" ,;:–—-"))
    statement = PATTERNS["it_is"].sub(r"I chose \g<choice>", statement)
    verb = PATTERNS["subjectless"].match(statement)
    if verb is None:
        return statement
    if not is_first:
        return ""
    return f"{_SUBJECTS[verb.lastgroup or '']} {statement[0].lower()}{statement[1:]}"


def estimate(source: str) -> float:
    """Return the probability that a candidate is lasting."""
    total = WEIGHTS["bias"]
    for name, value in measure(source).items():
        total += WEIGHTS.get(name, 0.0) * value
    return 1 / (1 + math.exp(-total))


def measure(source: str) -> dict[str, float]:
    """Return the cues of a candidate that are present, and its length."""
    bare = PATTERNS["lead"].sub("", source)
    words = min(40, len(bare.split()))
    found = {"words": math.log(1 + words), "short": float(words < 4)}
    for name, cue in CUES.items():
        if cue.search(bare):
            found[name] = 1.0
    if not PATTERNS["own_subject"].match(bare):
        found["quoted"] = 1.0
        if not PATTERNS["finite"].search(bare):
            found["fragment"] = 1.0
    if "plan" in found and "date" not in found and "number" not in found:
        found["undated"] = 1.0
    if "emotion" in found and "number" not in found and "name" not in found:
        found["plain_emotion"] = 1.0
    return found


def classify(source: str) -> Type:
    """Return the type of a fact.

    >>> classify("always pnpm"), classify("my sister Eva lives in Oslo"), classify("12 pairs")
    ('preference', 'relationship', 'other')
    """
    for type, pattern in KINDS.items():
        if pattern.search(source):
            return type
    return "other"


def _find_spans(line: str, known: Sequence[str]) -> list[Span]:
    """Return the runs of neighboring clauses of a line that state something together.

    A clause belongs to the run before it if it is of the same sentence or cannot stand alone.
    """
    spans: list[Span] = []
    is_open = False  # the last run ends where the next clause begins
    for sentence in _split_sentences(line):
        if not _is_meant(line, sentence):
            is_open = False
            continue
        is_first = True
        for clause in _split_clauses(line, sentence):
            said = line[clause.start : clause.end].strip()
            before = line[spans[-1].start : spans[-1].end] if is_open else ""
            is_known = any(each in said or said in each for each in known)
            is_rest = not (is_first or before or PATTERNS["own"].match(said))  # of a dropped clause
            is_alone = is_rest or (clause.is_linked and not before)
            if is_known or is_alone or not states(said, before):
                is_open = False
            elif before and (not is_first or _depends(said, before)):
                spans[-1] = Span(spans[-1].start, clause.end)
            else:
                spans.append(clause)
                is_open = True
            is_first = False
    return spans


def _is_meant(line: str, sentence: Span) -> bool:
    """Return whether a sentence is neither hypothetical nor what somebody else said."""
    is_inside = line.count('"', 0, sentence.start) % 2 == 1
    quoted = PATTERNS["quoted"].findall(line, *sentence[:2])
    if is_inside or any(map(is_speech, quoted)):
        return False
    return PATTERNS["hypothetical"].search(line, *sentence[:2]) is None


def _depends(said: str, before: str) -> bool:
    """Return whether a sentence continues the one before it."""
    bare = PATTERNS["lead"].sub("", said).strip(" .!")
    if PATTERNS["own"].match(bare):
        is_topic = len(before) < 60 and not (CUES["emotion"].search(before) or TIME.search(before))
        return is_topic and not PATTERNS["finite"].search(before)
    is_word = " " not in bare and not (CUES["rule"].search(bare) or CUES["number"].search(bare))
    if is_word or CUES["emotion"].search(bare):
        return False
    is_fragment = not PATTERNS["finite"].search(said) or not PATTERNS["finite"].search(before)
    return is_fragment or PATTERNS["dependent"].match(said) is not None


def _split_sentences(line: str) -> Iterator[Span]:
    """Yield the sentences of a line; an abbreviation does not end one."""
    start = 0
    for match in PATTERNS["end"].finditer(line):
        if _is_abbreviation(line, match.end()):
            continue
        if match.start() > start:
            yield Span(start, match.end())
        start = match.end()
    if line[start:].strip():
        yield Span(start, len(line))


def _is_abbreviation(line: str, end: int) -> bool:
    """Return whether the period before `end` belongs to a word such as "Dr." or "no. 5"."""
    before = line[max(0, end - 9) : end].rstrip()
    if PATTERNS["no"].search(before):
        return line[end : end + 1].isdigit()
    return prompts.ABBREVIATED.search(before) is not None and before[-3:-2] not in "'’"


def _split_clauses(line: str, sentence: Span) -> list[Span]:
    start = sentence.start
    is_linked = False
    clauses: list[Span] = []
    for match in PATTERNS["clause"].finditer(line, *sentence[:2]):
        said = line[start : match.start()]
        if match["and"] and not PATTERNS["finite"].search(said):
            continue  # "my wife and I"
        if said:
            clauses.append(Span(start, match.start(), is_linked))
        start = match.end()
        is_linked = PATTERNS["linked"].match(match["link"] or "") is not None
    clauses.append(Span(start, sentence.end, is_linked))
    return clauses[:MOST_CLAUSES]


def states(clause: str, before: str = "") -> bool:
    """Return whether a clause states something in earnest, given the clauses that precede it.

    >>> states("I live in Porto."), states("do I?"), states("maybe I live there")
    (True, False, False)
    >>> states("he is six"), states("he is six", "My son Leo plays chess,")
    (False, True)
    """
    if "?" in clause or len(before) + len(clause) > LONGEST:
        return False
    bare = PATTERNS["it_is"].sub(r"I chose \g<choice>", PATTERNS["lead"].sub("", clause))
    if PATTERNS["asks"].match(bare) or PATTERNS["by_then"].search(clause):
        return False
    if PATTERNS["request"].match(bare) and not PATTERNS["rule"].search(bare):
        return False
    vague = "vague_rule" if PATTERNS["rule"].search(bare) else "vague"
    if any(PATTERNS[name].search(bare) for name in ("unsure", "report", vague)):
        return False
    is_name = len(bare.split()) <= 3  # "My wife. She is 40."
    if PATTERNS["own"].match(bare) and not (is_name or PATTERNS["predicate"].search(bare)):
        return False
    is_passing = PATTERNS["promise"].search(bare) or PATTERNS["feeling"].search(bare)
    if is_passing and not (TIME.search(bare) or CUES["number"].search(bare)):
        return False
    bare = replace_that(PATTERNS["this"].sub("the", bare))
    statement = resolve(f"{before}\n{bare}")
    return not PATTERNS["outside"].search(statement.rpartition("\n")[2])


def is_speech(quoted: str) -> bool:
    """Return whether a quotation is what somebody said, and not a title.

    >>> is_speech("I hate my job"), is_speech("Low Water")
    (True, False)
    """
    return bool(PATTERNS["person"].search(quoted)) or quoted.count(" ") > 5


def resolve(statement: str) -> str:
    """Replace "he", "she" and "they" by the only person or people that are named before.

    >>> resolve("My son Leo is six, he loves his bike; they race")
    "My son Leo is six, Leo loves Leo's bike; they race"
    """
    statement = _replace_pronouns(statement, PATTERNS["one_person"], PATTERNS["he_or_she"])
    return _replace_pronouns(statement, PATTERNS["people"], PATTERNS["they"])


def _replace_pronouns(statement: str, people: re.Pattern[str], pronouns: re.Pattern[str]) -> str:
    first = pronouns.search(statement)
    if first is None:
        return statement
    named = people.finditer(statement, 0, first.start())
    names = {match[match.lastgroup or 0] for match in named}
    if len(names) != 1:
        return statement
    (name,) = names
    return pronouns.sub(lambda match: possessive(name) if match["of"] else name, statement)


def _join_sentences(statement: str) -> str:
    """Separate the sentences of a candidate by semicolons, without empty words such as "ok".

    >>> _join_sentences("Ok. No. My cat is 11! Good news.")
    'my cat is 11'
    """
    parts: list[str] = []
    for start, end, _ in _split_sentences(statement):
        part = PATTERNS["lead"].sub("", statement[start:end]).strip(" .!…")
        if PATTERNS["own"].match(part):
            part = part[0].lower() + part[1:]
        if part:
            parts.append(part)
    return "; ".join(parts)


def _is_complete(statement: str, *, is_own: bool) -> bool:
    """Return whether a statement has a verb, or says what it is about.

    >>> [_is_complete(text, is_own=False) for text in ("paid to Ana, 20", "a girl", "rent: 20")]
    [False, False, True]
    """
    if is_own:
        return PATTERNS["predicate"].search(statement) is not None
    is_answer = PATTERNS["answer"].match(statement) and not PATTERNS["finite"].search(statement)
    is_part = PATTERNS["elliptic"].match(statement) or PATTERNS["something"].match(statement)
    return not is_answer and not is_part


def _lists_words(statement: str) -> bool:
    """Return whether a text is many words in a row that form no sentence.

    >>> _lists_words("tea milk kettle train ship water violin garden"), _lists_words("no gluten")
    (True, False)
    """
    words = statement.lower().split()
    is_plain = all(word.isalnum() for word in words)
    return is_plain and len(words) >= MANY_WORDS and ENGLISH.isdisjoint(words)


def state(source: str, who: str, at: datetime) -> str:
    """Return a candidate as a statement in the third person; empty if it is not self-contained.

    >>> at = datetime(2026, 5, 8)
    >>> state("ok so always pnpm", "The user", at), state("she likes it", "The user", at)
    ('The user said: always pnpm.', '')
    """
    line = LINK.sub(" ", one_line(source))
    statement = PATTERNS["lead"].sub("", line)
    statement = PATTERNS["tail"].sub("", PATTERNS["filler"].sub("", statement))
    statement = PATTERNS["this"].sub("the", statement)
    statement = resolve(_join_sentences(statement))
    is_cut = statement.count('"') % 2 or PATTERNS["hanging"].search(statement)
    is_short = len(statement.split()) < 3 and not PATTERNS["rule"].search(statement)
    if is_cut or is_short or _lists_words(statement):
        return ""
    is_own = PATTERNS["own_subject"].match(statement) is not None
    if not _is_complete(statement, is_own=is_own):
        return ""
    said = replace_first_person(statement, who)
    if who == _WITH_ASSISTANT and PATTERNS["rule"].search(statement):
        said = replace_second_person(said, "the assistant")
    if not is_own:
        said = f"{who} said: {said}"
    is_rule = CUES["rule"].search(statement) is not None
    parts = said.split("; ")
    for number, part in enumerate(parts):
        if not (is_rule and PATTERNS["weekday"].search(part)):  # "never on Friday" is every Friday
            parts[number] = date(part, at)
    said = "; ".join(parts)
    stated = prompts.trim(said[0].upper() + said[1:])
    return "" if prompts.find_fault(stated) else stated
