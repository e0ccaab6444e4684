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
from ..text.tokens import compile_all, load_patterns
from . import references
from .third_person import (
    TIME,
    date_if_certain,
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
LEAST = WEIGHTS["least"]  # probability from which a statement is kept
LEAST_QUOTED = WEIGHTS["least_quoted"]  # if the speaker is not its subject

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

    >>> _add_subject("got a cat", is_first=True), _add_subject("got a cat", is_first=False)
    ('I got a cat', '')
    """
    statement = PATTERNS["lead"].sub("", PATTERNS["image"].sub("", source).strip(" ,;:–—-"))
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
    gap = ""  # the sentence before, if it was left out
    for sentence in _split_sentences(line):
        whole = line[sentence.start : sentence.end]
        if (gap and _only_adds(whole)) or not _is_meant(line, sentence):
            is_open = False
            continue
        is_first = True
        left_out = ""  # the clause before, of the same sentence
        for clause in _split_clauses(line, sentence):
            said = line[clause.start : clause.end].strip()
            before = line[spans[-1].start : spans[-1].end] if is_open else ""
            is_known = any(each in said or said in each for each in known)
            part = left_out if line.endswith(", ", 0, clause.start) else ""
            is_cut = not is_first and _is_cut(said, before, part)
            is_alone = is_cut or (clause.is_linked and not before)
            left_out = ""
            if is_known or is_alone or not states(said, before):
                is_open = False
                left_out = said
            elif before and (not is_first or _depends(said, before)):
                spans[-1] = Span(spans[-1].start, clause.end)
            else:
                spans.append(clause)
                is_open = True
            is_first = False
        is_told = has_verb(whole) and not PATTERNS["request"].match(whole) and "?" not in whole
        gap = whole if is_told and not is_open else ""
    return spans


def _only_adds(sentence: str) -> bool:
    """Return whether a sentence only goes on from the one before: "No cake, no guests."."""
    return bool(PATTERNS["remainder"].match(sentence)) and not has_verb(sentence.split(",")[0])


def _is_cut(said: str, before: str, left_out: str) -> bool:
    """Return whether a later clause of a sentence lost what it belongs to."""
    if not before and not PATTERNS["own"].match(said):
        return True
    has_subject = CUES["first"].search(said) or CUES["we"].search(said)
    if PATTERNS["circumstance"].match(said) and not has_subject:
        return True
    return left_out.count(" ") > 2 and not has_verb(left_out)


def _is_meant(line: str, sentence: Span) -> bool:
    """Return whether a sentence is neither hypothetical nor what somebody else said."""
    is_inside = line.count('"', 0, sentence.start) % 2 == 1
    quoted = PATTERNS["quoted"].findall(line, *sentence[:2])
    if is_inside or any(map(references.is_speech, quoted)):
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
    start, is_linked = sentence.start, False
    clauses: list[Span] = []
    for match in PATTERNS["clause"].finditer(line, *sentence[:2]):
        said = line[start : match.start()]
        is_joint = PATTERNS["joint"].search(line, max(start, match.start() - 22), match.end() + 2)
        if match["and"] and (is_joint or not PATTERNS["finite"].search(said)):
            continue  # "my wife and I"
        if match[0].strip() == "," and is_introduction(said):
            continue  # "as a child, I"
        if said:
            clauses.append(Span(start, match.start(), is_linked))
        start = match.end()
        is_linked = PATTERNS["linked"].match(match["link"] or "") is not None
    clauses.append(Span(start, sentence.end, is_linked))
    return clauses[:MOST_CLAUSES]


def has_verb(said: str) -> bool:
    """Return whether a part of a sentence states something by itself, or says nothing.

    >>> has_verb("my birthday, 14 March"), has_verb("sold my car"), has_verb("oh well")
    (False, True, True)
    """
    bare = PATTERNS["lead"].sub("", f"{said},").strip(" ,")
    has_subject = PATTERNS["finite"].search(bare) is not None
    return not bare or has_subject or PATTERNS["subjectless"].match(bare) is not None


def is_introduction(said: str) -> bool:
    """Return whether what precedes a clause says when or under which condition it holds.

    >>> is_introduction("when I was six"), is_introduction("in Rome"), is_introduction("I was ill")
    (True, True, False)
    """
    if "," in said or PATTERNS["lead"].sub("", f"{said},") == "":
        return False  # "as I said"
    is_adverbial = PATTERNS["adverbial"].match(said) and not PATTERNS["finite"].search(said)
    return bool(is_adverbial or PATTERNS["intro"].match(said))


def states(clause: str, before: str = "") -> bool:
    """Return whether a clause states something in earnest, given the clauses that precede it.

    >>> states("I live in Porto."), states("do I?"), states("maybe I live there")
    (True, False, False)
    >>> states("he is six"), states("he is six", "My son Leo plays chess,")
    (False, True)
    """
    if "?" in clause or len(before) + len(clause) > LONGEST:
        return False
    bare = PATTERNS["lead"].sub("", clause)
    if PATTERNS["asks"].match(bare) or PATTERNS["by_then"].search(clause):
        return False
    is_rule = PATTERNS["rule"].search(bare) is not None
    if (PATTERNS["request"].match(bare) and not is_rule) or references.is_unclear(bare, before):
        return False
    vague = "vague_rule" if is_rule else "vague"
    if any(PATTERNS[name].search(bare) for name in ("unsure", "report", vague)):
        return False
    is_name = len(bare.split()) <= 3 and bare[-1:] in ".!"  # "My wife. She is 40."
    if PATTERNS["own"].match(bare) and not (is_name or PATTERNS["predicate"].search(bare)):
        return False
    is_dated = TIME.search(bare) or CUES["number"].search(bare)
    if not is_dated and (PATTERNS["promise"].search(bare) or PATTERNS["feeling"].search(bare)):
        return False
    statement = replace_that(PATTERNS["this"].sub("the", bare))
    statement = references.resolve(f"{before}\n{statement}")
    return not references.points_outside(statement.rpartition("\n")[2])


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


def state(source: str, who: str, at: datetime) -> str:
    """Return a candidate as a statement in the third person; empty if it is not self-contained.

    >>> at = datetime(2026, 5, 8)
    >>> state("ok so always pnpm", "The user", at), state("she likes it", "The user", at)
    ('The user said: always pnpm.', '')
    """
    line = LINK.sub(" ", one_line(source))
    statement = PATTERNS["lead"].sub("", line)
    statement = PATTERNS["tail"].sub("", PATTERNS["filler"].sub("", statement))
    statement = PATTERNS["vocative"].sub(r"\g<said>", statement)
    statement = PATTERNS["this"].sub("the", statement)
    statement = references.resolve(_join_sentences(statement))
    statement = PATTERNS["repeated"].sub(r"\g<who>", statement)
    is_cut = statement.count('"') % 2 or PATTERNS["hanging"].search(statement)
    is_short = len(statement.split()) < 3 and not PATTERNS["rule"].search(statement)
    if is_cut or is_short or references.lists_words(statement):
        return ""
    is_own = PATTERNS["own_subject"].match(statement) is not None
    if not _is_complete(statement, is_own=is_own):
        return ""
    is_rule = CUES["rule"].search(statement) is not None
    parts = statement.split("; ")
    for number, part in enumerate(parts):
        if not (is_rule and PATTERNS["weekday"].search(part)):  # "never on Friday" is every Friday
            parts[number] = date_if_certain(part, at, has_tense=is_own)
    said = replace_first_person("; ".join(parts), who)
    if who == _WITH_ASSISTANT and PATTERNS["rule"].search(statement):
        said = replace_second_person(said, "the assistant")
    if not is_own:
        said = f"{who} said: {said}"
    stated = prompts.trim(said[0].upper() + said[1:])
    return "" if prompts.find_fault(stated) else stated
