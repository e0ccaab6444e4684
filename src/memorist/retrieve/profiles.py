"""Ranking profiles: how recall selects, scores, gates and renders memories, as data.

`default` is tuned by measurements; dialects define others in `dialects/catalog.toml`. Change a
profile for one call with `dataclasses.replace(profile, …)`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal, NoReturn

from ..errors import InvalidInput
from ..types import frozen

HOUR = 3600.0
DAY = 86400.0

# Every feature that a weight or a gate may name. Most are between 0 and 1.
FEATURES = {
    "sparse": "BM25 as a share of what the question's terms could reach, or of the best candidate",
    "semantic": "cosine of the question and the memory",
    "multilingual": "cosine by the second model; doubled where one of the texts is not English",
    "unembedded": "`sparse` again, if the memory has no vector yet; in place of the two above",
    "relevance": "`semantic` where the memory has a vector, else `sparse`",
    "fused": "reciprocal rank fusion of the sparse and the dense ranking",
    "lexical": "words of the question that occur in the memory",
    "neighbors": "the better match of the turns before and after",
    "answers": "the match of the turn before, if that ends in a question",
    "session": "the best match of the session",
    "summary": "the memory's own match again, if it summarizes others",
    "speaker": "said by the one person whom the question names",
    "other": "said by another person, if the person whose memory it is asks about themselves",
    "time": "said in the time that the question names",
    "kind": "things in the text that the question asks for: a number, a time, a decision, …",
    "brief": "a few words and nothing else",
    "question": "share of the text that asks",
    "role": "said by the side of the chat that is not asked about, more so in long messages",
    "passage": "passages of the same message that match better",
    "insight": "inferred, not said",
    "estimate": "whether it has what is asked for, judged by both vectors, from 0 to 1",
    "verdict": "whether the verifier finds in it what is asked for, from 0 to 1",
    "recency": "how new it is, as `recency` of the profile says",
    "importance": "importance, from 0 to 1",
    "level": "importance as one of five levels",
    "confidence": "confidence, from 0 to 1",
    "channel": "1 in the channel of the question, a quarter in none",
    "pinned": "1 if pinned",
    "related": "strength of the strongest link to another candidate or memory",
}


def _hint(name: object, known: Iterable[str]) -> str:
    alike = difflib.get_close_matches(str(name), known, n=1)
    return f" Did you mean {alike[0]!r}?" if alike else ""


def _check_names(
    what: str,
    names: Iterable[str],
    known: Iterable[str] = FEATURES,
    kind: str = "Features",
) -> None:
    for name in names:
        if name not in known:
            hint = _hint(name, known)
            one = kind.lower().removesuffix("s")
            listed = ", ".join(known)
            raise InvalidInput(f"Unknown {one} {name!r} in {what}.{hint} {kind}: {listed}")


@frozen
class Recency:
    """How fast recency decreases with age, from 1 for now towards 0."""

    shape: Literal["hyperbolic", "exponential", "half_life"]
    # Seconds. The age for `half_life` starts when it was said, for the others when it was stored.
    scale: float


@frozen
class Gate:
    """What is strong enough to be returned: any `enough` alone, or `strong` with any `signal`."""

    importance_min: float = 0.0  # pinned memories pass
    floor: float | None = None  # of the score
    enough: Mapping[str, float] = field(default_factory=dict)
    strong: float | None = None
    signal: Mapping[str, float] = field(default_factory=dict)
    strict: bool = True  # if nothing passes, return nothing rather than everything

    def __post_init__(self) -> None:
        _check_names("gate", (*self.enough, *self.signal))


# Measures of an answer and of one hit in it, which confidence may weigh.
OF_ANSWER = {
    "always": "1",
    "shared": "words of the question that one of the three best has, at most",
    "meaning": "the mean similarity in meaning of the five best",
    "unknown_name": "1 if the question has a name that no memory has, and is not a request",
    "personal": "1 if the question is about the person, or names a speaker",
    "general": "1 if it is not, no memory has all its words, and it is a task or general knowledge",
    "size": "logarithm of the number of memories, to base 10",
    "small": "how far `size` is below 2, at most 1, times `meaning` and half of `personal`",
    "few": "how far `size` is below 1, if no word is shared",
    "few_best": "`few`, times the best similarity in meaning",
    "few_personal": "`few`, times `personal`",
    "estimate": "the best estimate of the five best, from -0.5 to 0.5",
}
OF_HIT = {
    "always": "1",
    "behind": "how far the score is below the best",
    "rank": "logarithm of the rank",
    "match": "its match by words and meaning",
    "asks": "share of the text that asks",
    "estimate": "its estimate, from -0.5 to 0.5",
}

AFTER_VERDICT = {
    "always": "1",
    "before": "log odds of the confidence before",
    "verdict": "log odds that the verifier gives the hit, or the best one",
    "request": "1 if the question asks for advice or a task, not for something said before",
}


@frozen
class Confidence:
    """How confidence is computed: log odds as a weighted sum of measures."""

    answer: Mapping[str, float]
    hit: Mapping[str, float]
    least: float  # confidence that an answer needs; more in scopes of over a hundred memories
    least_hit: float  # confidence that a hit after the first needs
    # In place of these four, if the best memory or the question is not in English and not long:
    answer_foreign: Mapping[str, float]
    hit_foreign: Mapping[str, float]
    least_foreign: float
    least_hit_foreign: float
    # An answer that has the confidence it needs, but less than `certain`, is verified, and then:
    certain: float = 0.0
    least_verified: float = 0.0  # confidence that it needs after that, unless it is to a request
    answer_verified: Mapping[str, float] = field(default_factory=dict)
    hit_verified: Mapping[str, float] = field(default_factory=dict)
    # Share of the best hit's confidence that the others need then, unless the question is a request;
    # less in scopes of over a hundred memories.
    share_verified: float = 0.0

    def __post_init__(self) -> None:
        answers, hits = (*self.answer, *self.answer_foreign), (*self.hit, *self.hit_foreign)
        _check_names("the confidence of answers", answers, OF_ANSWER, "Measures")
        _check_names("the confidence of hits", hits, OF_HIT, "Measures")
        after = (*self.answer_verified, *self.hit_verified)
        _check_names("the confidence after verification", after, AFTER_VERDICT, "Measures")
        if self.certain and not (self.answer_verified and self.hit_verified):
            raise InvalidInput("`certain` needs `answer_verified` and `hit_verified`")


@frozen
class Profile:
    """One way to rank, gate, select and render. Raises InvalidInput for an unknown feature."""

    name: str
    weights: Mapping[str, float]
    sparse_weights: Mapping[str, float] | None = None  # where no candidate has a semantic score
    candidates: Literal["blend", "fused", "dense", "all", "recent"] = "blend"
    rrf_k: int = 60  # of reciprocal rank fusion, whose score is the feature `fused`
    lexical: Literal["words", "compact"] = "words"
    recency: Recency | None = None
    shortest: int = 0  # characters; shorter questions are not embedded
    semantic_weight: float | None = None  # mixes both scores, each scaled to its best candidate
    only_semantic: bool = False  # rank by the semantic score alone
    gate: Gate = Gate()
    confidence: Confidence | None = None
    gate_without_semantic: Gate | None = None
    diversity: float | None = None  # MMR's λ: 1 relevance alone, 0 diversity alone
    rerank: bool = False  # the reranker's score replaces the score
    preferences_first: bool = False
    current_first: bool = False  # what replaces a memory comes before it
    by_period: bool = False  # a question that names only a period is answered by what it has
    sources_only: bool = False  # a fact is not searched where the turn it was extracted from is
    workflows: bool = False  # whether workflows are returned
    working_elsewhere: bool = True  # in a session, working memories of other sessions count too
    related: int = 0  # most linked memories that are added, within the budget
    limit: int = 10
    most: int = 50  # hits at most, where only a budget is given
    budget: int | None = None  # tokens
    budget_of: Literal["rendered", "content"] = "rendered"
    render: Literal["block", "plain_block", "bullets", "grouped", "lines"] = "block"
    ties: Literal["row", "message_id", "newest"] = "row"
    scores_first: bool = False  # the scores are written back before the answer returns
    # What a weight or a gate names, and the two legs.
    features: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [*self.weights, *(self.sparse_weights or ())]
        _check_names(f"profile {self.name!r}", names)
        for gate in (self.gate, self.gate_without_semantic or self.gate):
            names += (*gate.enough, *gate.signal)
        object.__setattr__(self, "features", frozenset({"sparse", "semantic", *names}))


DEFAULT = Profile(
    name="default",
    weights={
        "sparse": 0.7,  # BM25 as a share of what the question's terms could reach
        "semantic": 0.9,  # cosine
        "multilingual": 0.6,  # cosine by the second model
        "unembedded": 1.5,  # the words again, in place of both cosines until there is a vector
        "neighbors": 0.35,  # the better match of the turns before and after
        "answers": 0.2,  # the turn before asks what the question asks
        "session": 0.25,  # the best match of the session
        "summary": 0.8,  # its own match again: as much as the three above add to a turn
        "speaker": 0.3,  # said by the one person whom the question names
        "other": -0.3,  # what another person says of themselves, if "I" or "my" is asked about
        "time": 0.2,  # said in the time that the question names
        "kind": 0.15,  # it has the kind of thing that is asked for
        "brief": -0.15,  # a few words seldom tell anything
        "question": -0.25,  # what asks does not answer
        "role": -0.7,  # a long reply of the assistant
        "passage": -0.25,  # a better passage of the same message
        "insight": -0.2,  # inferred, not said
        "estimate": 0.5,  # its vector and that of the question say that it has what is asked for
        "verdict": 0.8,  # the verifier says so
        "recency": 0.01,  # a larger weight hides better matches
    },
    recency=Recency(shape="half_life", scale=30 * DAY),
    confidence=Confidence(
        answer={
            "always": -0.82,
            "shared": 0.31,
            "meaning": 4.63,
            "unknown_name": -1.13,
            "personal": 0.34,
            "general": -1.07,
            "size": -0.65,
            "small": 2.61,
            "few": -4.2,
            "few_best": 6.55,
            "few_personal": -2.41,
        },
        hit={
            "always": -1.87,
            "behind": -0.89,
            "rank": -0.9,
            "match": 1.97,
            "asks": -1.14,
        },
        least=0.21,
        least_hit=0.031,
        answer_foreign={"always": 1.13, "shared": -0.74, "meaning": -1.34, "estimate": 12.62},
        hit_foreign={
            "always": -1.3,
            "behind": -3.03,
            "rank": -1.14,
            "match": 2.87,
            "asks": -1.55,
            "estimate": 4.86,
        },
        least_foreign=0.27,
        least_hit_foreign=0.022,
        certain=0.95,
        least_verified=0.22,
        answer_verified={"always": -0.03, "before": 0.45, "verdict": 0.56},
        hit_verified={"always": 0.1, "before": 0.81, "verdict": 0.42, "request": 0.31},
        share_verified=0.11,
    ),
    current_first=True,
    by_period=True,
    sources_only=True,
    budget=2000,
)


class Profiles(dict[str, Profile]):
    """Profiles by name. Raises InvalidInput for an unknown one."""

    def __missing__(self, name: str) -> NoReturn:
        known = ", ".join(sorted(self))
        raise InvalidInput(f"Unknown profile {name!r}.{_hint(name, self)} Choose one of: {known}")
