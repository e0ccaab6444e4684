"""Ranking profiles: how recall chooses, as data over one vector of features.

`default` is ours and is tuned by measuring; the others are the formulas of the documents Memorist unites, exact to
the number. A profile is changed for one call with `dataclasses.replace`, or registered under a new name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import InvalidInput

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """How fast a memory fades: 1 for now, towards 0 with age."""

    shape: Literal["hyperbolic", "exponential"]
    scale: float  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What is too weak to be returned. Any `enough` passes alone; `strong` passes with at least `signal`."""

    importance_min: float = 0.0  # the pinned pass it
    grows: bool = False  # the best match has to stand out from chance, which grows with the scope
    floor: float | None = None  # of the score
    share_of_best: float | None = (
        None  # what scores less than this share of the best is noise beside it
    )
    enough: Mapping[str, float] = field(default_factory=dict)
    strong: float | None = None
    signal: Mapping[str, float] = field(default_factory=dict)
    strict: bool = True  # if nothing passes: nothing, rather than everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to rank, gate, select and render."""

    name: str
    weights: Mapping[str, float]
    sparse_weights: Mapping[str, float] | None = (
        None  # instead, where no candidate has a semantic score
    )
    candidates: Literal["blend", "fused", "dense", "all", "recent"] = "blend"
    rrf_k: int = 60  # of reciprocal rank fusion, whose score is the feature `fused`
    lexical: Literal["words", "compact"] = "words"
    recency: Recency | None = None
    shortest: int = 0  # characters of a question from which on it is embedded
    semantic_weight: float | None = (
        None  # both halves scaled to their best candidate, then mixed by this
    )
    only_semantic: bool = False  # rank by the semantic half alone
    gate: Gate = Gate()
    gate_without_semantic: Gate | None = None
    diversity: float | None = None  # MMR's λ: 1 relevance alone, 0 diversity alone
    rerank: bool = False
    rerank_weight: float | None = (
        None  # mixed into the score by this; None: the re-ranker's score takes its place
    )
    preferences_first: bool = False
    sources_first: bool = (
        False  # a fact that was drawn out of a turn stands last, where the turn itself answers
    )
    workflows: bool = False  # how-to memories are left out unless a profile wants them
    working_elsewhere: bool = True  # working memories of other sessions count too
    related: int = (
        0  # memories at most that come along because a hit is linked to them, within the budget
    )
    limit: int = 10
    most: int = 50  # hits at most, where only a budget is given
    budget: int | None = None  # tokens
    budget_of: Literal["rendered", "content"] = "rendered"
    render: Literal["block", "plain_block", "bullets", "grouped", "lines"] = "block"
    ties: Literal["row", "milton", "newest"] = "row"
    scores_first: bool = False  # the scores are written back before the answer returns

    @property
    def needs_meaning(self) -> bool:
        """The question has to be embedded: something compares it by meaning."""
        by_meaning = {"semantic", "relevance"} & set(
            self.weights
        ) or self.semantic_weight is not None
        return bool(by_meaning) or self.candidates in ("blend", "fused", "dense")

    @property
    def needs_text(self) -> bool:
        """A feature compares words, so the candidates have to be read before they can be ranked."""
        return "lexical" in self.weights or (
            self.sparse_weights is not None and "lexical" in self.sparse_weights
        )


DEFAULT = Profile(
    name="default",
    weights={
        "sparse": 1.0,  # BM25 as a share of what the question's terms could reach
        "semantic": 1.0,  # cosine
        "neighbours": 0.3,  # the better match of the turns before and after
        "answers": 0.2,  # the turn before asks what the question asks
        "session": 0.2,  # the best match of the session
        "summary": 0.7,  # its own match again: as much as the three above give to a turn
        "speaker": 0.2,  # said by the one person the question names
        "time": 0.2,  # said in the time the question names
        "tells_when": 0.1,  # the question asks when, and this names a time
        "question": -0.15,  # the turn only asks
        "role": -0.3,  # said by the voice that is not asked about
        "insight": -0.2,  # nobody said it: it was inferred
        "recency": 0.01,  # halved every thirty days: more than this drowns what fits
    },
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
    """Milton's ranking with the caller's weights, which are kept within 0 and 1."""
    bias, meaning = (min(1.0, max(0.0, weight)) for weight in (recency_bias, semantic_weight))
    weights = {"lexical": 1 - bias, "recency": bias, "importance": 0.15}
    made = {"name": f"milton.{mode}", "weights": weights}
    if mode == "deterministic":
        return _with(MILTON, **made)
    if mode == "hybrid":
        return _with(MILTON, **made, semantic_weight=meaning)
    if mode == "semantic":
        return _with(MILTON, **made, semantic_weight=1.0, only_semantic=True)
    raise InvalidInput(f"mode {mode!r} is not one of hybrid, deterministic, semantic")


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


def _with(profile: Profile, **changes: object) -> Profile:
    return replace(profile, **changes)  # type: ignore[arg-type]


PROFILES: dict[str, Profile] = {}


def register(profile: Profile) -> None:
    """Make a profile known by its name."""
    PROFILES[profile.name] = profile


def named(name: str) -> Profile:
    """The profile of that name. Raises InvalidInput."""
    if name not in PROFILES:
        raise InvalidInput(f"No profile {name!r}: there are {', '.join(sorted(PROFILES))}")
    return PROFILES[name]


_MILTONS = (MILTON, milton(), milton(mode="semantic"))
for _profile in (DEFAULT, *_MILTONS, VAULT, THEORIA, SUPERVISOR, CLANKER, CLANKER_STRICT):
    register(_profile)
