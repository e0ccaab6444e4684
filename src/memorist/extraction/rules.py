"""Rules that extract what a person says about themselves, and put it into the third person.

The rules match English sentences that begin with "I" or "my" and state something lasting: what the
speaker likes, is, has, plans, decided or experienced. Questions, guesses, jokes, reported speech
and clauses that depend on the context are skipped: a missing fact can still be found in the turn,
but a wrong one does harm. Each fact has the words it was extracted from as evidence. All patterns
are anchored or bounded, and only the beginning of a long text is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ..ingest import guard
from ..text import clock, prompts
from ..text.cues import ROLE_WORDS, poses
from ..text.normalize import LINK, one_line, strip_preface
from ..text.tokens import compile_all, detect_language, load_patterns, words
from ..types import frozen
from . import durable, references
from .durable import Type
from .third_person import TIME, date, to_third_person

THE_USER = "The user"
THE_SPEAKER = "The speaker"
LONGEST_READ = 4000  # characters of a turn
LONGEST_CLAUSE = 300
LONGEST_QUOTED = 500  # characters of a turn of which any statement may be quoted
CONFIDENT = 0.8  # a fact with this confidence makes a short turn worth extracting

_CATEGORY = {"commitment": "goals", "other": "fact"}
_ENDED = re.compile(  # "no longer"
    r"(?i)\b(?:no longer|not? .{0,60}\bany ?more|(?:nicht|keine?[nrs]?) .{0,60}mehr|nicht mehr"
    r"|(?:ne|n['’]\w+|pas) .{0,20}\bplus|ya no|j[aá] n[aã]o|n[aã]o .{0,60}\bmais|non .{0,60}\bpiù)\b"
)
WORTH = {"decision": 0.75, "preference": 0.7, "project": 0.7, "event": 0.6, "commitment": 0.7}


class ClauseRule(NamedTuple):
    """The type of a clause that begins with this pattern, and the confidence.

    The content of the clause begins where the pattern ends.
    """

    type: Type
    confidence: float
    pattern: re.Pattern[str]
    is_whole: bool = False  # the beginning is a statement by itself


_IMAGE = re.compile(r"\s{0,9}\[[^\]\n]{0,300}\]")
_TABLES = load_patterns(__file__)
PATTERNS = compile_all(_TABLES["patterns"])


def _compile_rules(table: str) -> list[ClauseRule]:
    rules = []
    for rule in _TABLES[table].values():
        pattern = re.compile(rf"(?i)(?:{rule['pattern']})(?=[\s.,!]|$)")
        rules.append(ClauseRule(**rule | {"pattern": pattern}))
    return rules


RULES = _compile_rules("rules")
TIMED = _compile_rules("timed")
ASKED = _compile_rules("asked")


@frozen
class Fact:
    """A candidate for a memory, with its evidence."""

    text: str
    type: Type
    confidence: float
    evidence: str  # verbatim from the source
    importance: float

    @property
    def category(self) -> str:
        """What was so once is no part of the profile, which an agent reads in every turn."""
        if self.type == "profile" and _ENDED.search(self.text):
            return "fact"
        return _CATEGORY.get(self.type, self.type)


def name_speaker(speaker: str | None, *, is_own: bool = True) -> str:
    """Return the name of a speaker for the third person; only the user is "The user".

    >>> name_speaker("user"), name_speaker("Ana"), name_speaker("Ana: obey me!")
    ('The user', 'Ana', 'The speaker')
    >>> name_speaker("The User", is_own=False)
    'The speaker'
    """
    name = one_line(speaker or "")
    if not is_own and poses(name):
        return THE_SPEAKER
    if not name or name.casefold() in ROLE_WORDS:
        return THE_USER if is_own else THE_SPEAKER
    if not PATTERNS["name"].fullmatch(name):
        return THE_SPEAKER
    return name[0].upper() + name[1:]


def find_facts(
    text: str,
    *,
    who: str,
    at: datetime,
    most: int = 5,
) -> list[Fact]:
    """Return the distinct facts in a turn, in order.

    >>> text = "I'm a nurse and I moved to Porto yesterday. Would I? My sister Eva hates tea."
    >>> [(fact.type, fact.text) for fact in find_facts(text, who="Ana", at=datetime(2026, 5, 8))]
    [('profile', 'Ana is a nurse.'), ('event', 'Ana moved to Porto on 2026-05-07.'),
     ('relationship', "Ana's sister Eva hates tea.")]
    """
    own = read_own(text)
    is_user = who == THE_USER
    if is_user and (signed := durable.PATTERNS["signature"].search(own)):
        who = name_speaker(signed["name"])  # several people may share an account
    found = list(_find_by_patterns(own, who, at))
    known = [fact.evidence for fact in found]
    found += _find_lasting(own, who, at, known, is_user=is_user)
    found.sort(key=lambda fact: text.find(fact.evidence))
    distinct: dict[str, Fact] = {}
    for fact in found:
        distinct.setdefault(fact.text.casefold(), fact)
    return list(distinct.values())[:most]


def _find_by_patterns(own: str, who: str, at: datetime) -> Iterator[Fact]:
    """Yield the facts of the clauses that begin as a rule says."""
    for clause in split_clauses(own):
        if len(clause) > LONGEST_CLAUSE:
            continue
        for statement in _split_home_and_job(strip_clause(clause)):
            least = 2 if statement[1:2] in "'’" else 3  # "I'm" counts as two words
            if len(statement.split()) < least:
                continue
            rules = list(RULES)
            if TIME.search(statement) or clock.intervals(statement):
                rules += TIMED
            if PATTERNS["asked"].match(clause):
                rules += ASKED
            for rule in rules:
                if match := rule.pattern.match(statement):
                    break
            else:
                continue
            stated = _state(statement, rule, match.end(), who, at)
            if not stated or guard.find_injection(statement, "contextual"):
                continue
            yield _fact(stated, rule.type, rule.confidence, clause)


def _split_home_and_job(statement: str) -> list[str]:
    """Return what a person says of their home and of their job, of which one may change alone.

    >>> _split_home_and_job("I live in Leeds and work as a joiner")
    ['I live in Leeds', 'I work as a joiner']
    >>> _split_home_and_job("I live and work in Leeds")
    ['I live and work in Leeds']
    """
    found = PATTERNS["home_and_job"].fullmatch(statement)
    if found is None:
        return [statement]
    return [found["first"], f"{found['who']} {found['second']}"]


def _find_lasting(
    own: str,
    who: str,
    at: datetime,
    known: Sequence[str],
    *,
    is_user: bool,
) -> Iterator[Fact]:
    """Yield the facts that are likely to last by the model of `durable`, beside the known ones."""
    proposed = list(durable.propose(own, who, at, known))
    if not proposed or durable.PATTERNS["role"].search(own):
        return
    if guard.find_injection(own, "contextual"):
        return
    is_told = durable.PATTERNS["learns"].search(own) is not None
    for each in proposed:
        # What one person tells another about the world, and a document, are rarely worth keeping.
        is_quoted = is_user and len(own) <= LONGEST_QUOTED and not is_told
        is_own = each.is_own or is_quoted
        if is_own and detect_language(words(each.source)) == "english":
            yield _fact(each.text, durable.classify(each.source), CONFIDENT, each.source)


def _fact(stated: str, type: Type, confidence: float, source: str) -> Fact:
    longest = guard.LONGEST["evidence"]
    if len(source) > longest:
        source = source[:longest].rsplit(None, 1)[0]
    return Fact(
        text=stated,
        type=type,
        confidence=confidence,
        evidence=source,
        importance=WORTH.get(type, 0.8),
    )


def read_own(text: str) -> str:
    """Return the beginning of a text without what is pasted; empty if it is not meant.

    >>> read_own("I row.\\n> He rows."), read_own("I own a castle. Just kidding!")
    ('I row.\\n\\n', '')
    """
    if PATTERNS["not_meant"].search(text[: 2 * LONGEST_READ]):
        return ""
    return PATTERNS["pasted"].sub("\n", first_sentences(text, LONGEST_READ))


def split_clauses(own: str) -> Iterator[str]:
    """Yield the clauses of a text that are serious statements by themselves, verbatim.

    >>> list(split_clauses("I like tea, but I hate milk. If I were rich, I'd row."))
    ['I like tea', 'I hate milk.']
    >>> list(split_clauses("She said I like gin!"))
    []
    """
    for sentence in PATTERNS["sentence"].findall(own):
        bare = strip_preface(sentence)
        if PATTERNS["doubt"].search(sentence) or PATTERNS["report"].search(bare):
            continue
        if any(map(references.is_speech, PATTERNS["quoted"].findall(sentence))):
            continue
        for part in _split_sentence(sentence):
            clause = part.strip(" \t,;:–—-")
            if clause and not PATTERNS["unsure"].search(clause):
                yield clause


def _split_sentence(sentence: str) -> Iterator[str]:
    """Yield the clauses of a sentence; what has no verb belongs to the clause after it.

    >>> list(_split_sentence("As a child, I rowed, but Max and I swim, and I ran"))
    ['As a child, I rowed', 'Max and I swim', 'I ran']
    """
    start = 0
    for match in PATTERNS["clause"].finditer(sentence):
        said = sentence[start : match.start()]
        link = match[0].strip(" ,")
        is_long = link == "and" or (link == "" and said.count(" ") > 2)
        is_part = is_long and not durable.has_verb(said)
        if (is_part or durable.is_introduction(said)) and len(said) < LONGEST_CLAUSE:
            continue
        yield said
        start = match.end()
    yield sentence[start:]


def first_sentences(text: str, most: int) -> str:
    """Return as many whole sentences of a text as fit into `most` characters.

    >>> first_sentences("I love tea. I hate gin.", 15), first_sentences("I love tea.", 4)
    ('I love tea.', '')
    """
    if len(text) <= most:
        return text
    end = max(text.rfind(mark, 0, most) for mark in ".!?\n")
    return text[: end + 1]


def strip_clause(clause: str) -> str:
    """Remove what precedes the subject, filler words, links and images."""
    line = LINK.sub(" ", one_line(clause))
    bare = strip_preface(_IMAGE.sub("", line))
    statement = PATTERNS["lead"].sub("", bare, count=1)
    statement = PATTERNS["filler"].sub("", statement)
    return PATTERNS["tail"].sub("", statement)


def _state(
    statement: str,
    rule: ClauseRule,
    start: int,
    who: str,
    at: datetime,
) -> str:
    """Return the clause in the third person, shortened until it is self-contained.

    Empty if it depends on the conversation, or names only a time.
    """
    statement = durable.PATTERNS["vocative"].sub(r"\g<said>", statement)
    least = start if rule.is_whole else start + 2
    cut_patterns = [PATTERNS["cut"]]
    if rule.type == "relationship":
        cut_patterns.append(PATTERNS["with_theirs"])
    ends = {len(statement)}
    for pattern in cut_patterns:
        ends.update(match.start() for match in pattern.finditer(statement, least))
    for end in sorted(ends, reverse=True):
        part = statement[:end].rstrip(" ,")
        is_vague = PATTERNS["vague"].search(part, start) or PATTERNS["hanging"].search(part)
        is_seen = rule.type == "preference" and PATTERNS["likes_the"].match(part)
        if end < least or is_vague or is_seen or references.is_unclear(part):
            continue
        timeless = TIME.sub("", part[start:])
        if rule in TIMED and not timeless.strip(" ,."):
            continue
        text = to_third_person(part, who)
        text = prompts.trim(date(text, at))
        if not prompts.find_fault(text):
            return text
    return ""
