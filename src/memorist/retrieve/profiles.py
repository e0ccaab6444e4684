"""Ranking profiles: how recall finds, scores, gates, selects and renders, as data.

`default` is ours and is tuned by measuring; the others are the formulas of the specifications that
Memorist unites, exact to the number. Change a profile for one call with `dataclasses.replace`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..errors import InvalidInput

HOUR, DAY = 3600.0, 86400.0

# Every feature that a weight or a gate may name. Most are between 0 and 1.
FEATURES = {
    "sparse": "BM25 as a share of what the question's terms could reach, or of the best candidate",
    "semantic": "cosine of the question and the memory",
    "relevance": "`semantic` where the memory has a vector, else `sparse`",
    "fused": "reciprocal rank fusion of the sparse and the dense ranking",
    "lexical": "words of the question that occur in the memory",
    "neighbours": "the better match of the turns before and after",
    "answers": "the match of the turn before, if that ends in a question",
    "session": "the best match of the session",
    "summary": "the memory's own match again, if it summarizes others",
    "speaker": "said by the one person whom the question names",
    "time": "said in the time that the question names",
    "tells_when": "the question asks when, and the memory names a time",
    "question": "the turn only asks",
    "role": "said by the side of the chat that is not asked about",
    "insight": "inferred, not said",
    "recency": "how new it is, as `recency` of the profile says",
    "importance": "importance, from 0 to 1",
    "level": "importance as one of five levels",
    "confidence": "confidence, from 0 to 1",
    "channel": "1 in the channel of the question, a quarter in none",
    "pinned": "1 if pinned",
    "related": "strength of the strongest link to another candidate or memory",
}


def _check_features(what: str, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in FEATURES:
            alike = difflib.get_close_matches(str(name), FEATURES, n=1)
            hint = f" Did you mean {alike[0]!r}?" if alike else ""
            raise InvalidInput(
                f"No feature {name!r} in {what}.{hint} Features: {', '.join(FEATURES)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """How fast a memory fades: 1 for now, towards 0 with age."""

    shape: Literal["hyperbolic", "exponential", "half_life"]
    # Seconds. `half_life` counts from when it was said, the others from when it was stored.
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What is too weak to be returned. Any `enough` passes alone, `strong` with any `signal`."""

    importance_min: float = 0.0  # pinned memories pass
    grows: bool = False  # the best match has to stand out from chance, which grows with the scope
    floor: float | None = None  # of the score
    share_of_best: float | None = None  # of the best score, below which a candidate is noise
    enough: Mapping[str, float] = field(default_factory=dict)
    strong: float | None = None
    signal: Mapping[str, float] = field(default_factory=dict)
    strict: bool = True  # if nothing passes, return nothing rather than everything

    def __post_init__(self) -> None:
        _check_features("gate", (*self.enough, *self.signal))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to rank, gate, select and render. Raises InvalidInput for an unknown feature."""

    name: str
    weights: Mapping[str, float]
    sparse_weights: Mapping[str, float] | None = None  # where no candidate has a semantic score
    candidates: Literal["blend", "fused", "dense", "all", "recent"] = "blend"
    rrf_k: int = 60  # of reciprocal rank fusion, whose score is the feature `fused`
    lexical: Literal["words", "compact"] = "words"
    recency: Recency | None = None
    shortest: int = 0  # characters of a question from which on it is embedded
    semantic_weight: float | None = None  # mixes both halves, each scaled to its best candidate
    only_semantic: bool = False  # rank by the semantic half alone
    gate: Gate = Gate()
    gate_without_semantic: Gate | None = None
    diversity: float | None = None  # MMR's λ: 1 relevance alone, 0 diversity alone
    rerank: bool = False
    rerank_weight: float | None = None  # of the reranker's score; None: it replaces the score
    preferences_first: bool = False
    sources_first: bool = False  # a fact comes last if the turn it was extracted from answers
    workflows: bool = False  # how-to memories are left out unless a profile wants them
    working_elsewhere: bool = True  # working memories of other sessions count too
    related: int = 0  # at most so many linked memories come along, within the budget
    limit: int = 10
    most: int = 50  # hits at most, where only a budget is given
    budget: int | None = None  # tokens
    budget_of: Literal["rendered", "content"] = "rendered"
    render: Literal["block", "plain_block", "bullets", "grouped", "lines"] = "block"
    ties: Literal["row", "milton", "newest"] = "row"
    scores_first: bool = False  # the scores are written back before the answer returns

    def __post_init__(self) -> None:
        _check_features(f"profile {self.name!r}", (*self.weights, *(self.sparse_weights or ())))

    @property
    def needs_vector(self) -> bool:
        """Whether the question has to be embedded."""
        if self.candidates in ("blend", "fused", "dense") or self.semantic_weight is not None:
            return True
        return "semantic" in self.weights or "relevance" in self.weights


DEFAULT = Profile(
    name="default",
    weights={
        "sparse": 1.0,  # BM25 as a share of what the question's terms could reach
        "semantic": 1.0,  # cosine
        "neighbours": 0.3,  # the better match of the turns before and after
        "answers": 0.2,  # the turn before asks what the question asks
        "session": 0.2,  # the best match of the session
        "summary": 0.7,  # its own match again: as much as the three above give to a turn
        "speaker": 0.2,  # said by the one person whom the question names
        "time": 0.2,  # said in the time that the question names
        "tells_when": 0.1,  # the question asks when, and this names a time
        "question": -0.15,  # the turn only asks
        "role": -0.3,  # said by the side that is not asked about
        "insight": -0.2,  # inferred, not said
        "recency": 0.01,  # a larger weight drowns what fits
    },
    recency=Recency(shape="half_life", scale=30 * DAY),
    gate=Gate(grows=True, floor=0.0, share_of_best=0.25),
    sources_first=True,
    budget=2000,
)

MILTON = Profile(
    name="milton.deterministic",
    weights={"lexical": 0.65, "recency": 0.35, "importance": 0.15},
    candidates="all",
    recency=Recency(shape="hyperbolic", scale=HOUR),
    render="lines",
    ties="milton",
)


def milton(
    recency_bias: float = 0.35, semantic_weight: float = 0.5, mode: str = "hybrid"
) -> Profile:
    """Return Milton's ranking with the caller's weights, clamped to 0 … 1. Raises InvalidInput."""
    bias = min(1.0, max(0.0, recency_bias))
    changes: dict[str, Any] = {}
    if mode == "hybrid":
        changes["semantic_weight"] = min(1.0, max(0.0, semantic_weight))
    elif mode == "semantic":
        changes = {"semantic_weight": 1.0, "only_semantic": True}
    elif mode != "deterministic":
        raise InvalidInput(f"mode {mode!r} is not one of hybrid, deterministic, semantic")
    weights = {"lexical": 1 - bias, "recency": bias, "importance": 0.15}
    return replace(MILTON, name=f"milton.{mode}", weights=weights, **changes)


VAULT = Profile(
    name="mls.recall",
    weights={"semantic": 1.0},
    sparse_weights={"sparse": 1.0},
    candidates="dense",
    gate=Gate(importance_min=0.2),
    preferences_first=True,
    working_elsewhere=False,
    limit=5,
    most=5,
    budget=2000,
    budget_of="content",
    render="plain_block",
)

THEORIA = Profile(
    name="theoria.triscore",
    weights={"relevance": 1.0, "recency": 1.0, "importance": 1.0},
    candidates="fused",
    recency=Recency(shape="exponential", scale=7 * DAY),
    diversity=0.7,
    limit=12,
    most=16,
    budget=2000,
    render="grouped",
    scores_first=True,
)

SUPERVISOR = Profile(
    name="imp.bullets",
    weights={"semantic": 0.55, "level": 0.20, "recency": 0.15, "pinned": 0.10, "related": 0.05},
    candidates="fused",
    recency=Recency(shape="hyperbolic", scale=DAY),
    related=2,
    limit=3,
    most=24,
    budget=512,
    render="bullets",
)

_CLANKER_GATE = Gate(
    enough={"semantic": 0.20, "lexical": 0.22},
    strong=0.52,
    signal={"semantic": 0.08, "lexical": 0.10},
)
_CLANKER_LEXICAL = Gate(enough={"lexical": 0.24}, strong=0.62)
CLANKER = Profile(
    name="clanker.hybrid",
    weights={
        "semantic": 0.50,
        "lexical": 0.28,
        "confidence": 0.10,
        "recency": 0.07,
        "channel": 0.05,
    },
    sparse_weights={"lexical": 0.75, "confidence": 0.10, "recency": 0.10, "channel": 0.05},
    candidates="recent",
    lexical="compact",
    recency=Recency(shape="hyperbolic", scale=45 * DAY),
    shortest=3,
    gate=replace(_CLANKER_GATE, strict=False),
    gate_without_semantic=replace(_CLANKER_LEXICAL, strict=False),
    limit=10,
    most=24,
    render="lines",
    ties="newest",
)
CLANKER_STRICT = replace(
    CLANKER, name="clanker.strict", gate=_CLANKER_GATE, gate_without_semantic=_CLANKER_LEXICAL
)


PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        DEFAULT,
        MILTON,
        milton(),
        milton(mode="semantic"),
        VAULT,
        THEORIA,
        SUPERVISOR,
        CLANKER,
        CLANKER_STRICT,
    )
}


def find(name: str) -> Profile:
    """Return the profile of that name. Raises InvalidInput."""
    if name not in PROFILES:
        alike = difflib.get_close_matches(name, PROFILES, n=1)
        hint = f" Did you mean {alike[0]!r}?" if alike else ""
        raise InvalidInput(f"No profile {name!r}: there are {', '.join(sorted(PROFILES))}.{hint}")
    return PROFILES[name]
