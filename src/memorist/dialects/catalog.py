"""The ranking profiles and write policies of the dialects, as values: the one static table of all
there are.

The formulas are those of the specifications, exact to the number. `aio.py` puts the tables
into the context.
"""

from dataclasses import replace
from typing import Any

from ..errors import InvalidInput
from ..ingest import policies
from ..ingest.policies import WHOLE, Bands, Facts, Links, Policy
from ..retrieve.profiles import DAY, DEFAULT, HOUR, Gate, Profile, Recency

MILTON = Profile(
    name="milton.deterministic",
    weights={"lexical": 0.65, "recency": 0.35, "importance": 0.15},
    candidates="all",
    recency=Recency(shape="hyperbolic", scale=HOUR),
    render="lines",
    ties="message_id",
)


def milton(
    recency_bias: float = 0.35,
    semantic_weight: float = 0.5,
    mode: str = "hybrid",
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
    CLANKER,
    name="clanker.strict",
    gate=_CLANKER_GATE,
    gate_without_semantic=_CLANKER_LEXICAL,
)

PROFILES = {
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

_CLANKER_FACTS = Policy(
    name="clanker.guild",
    longest=320,
    score="given",
    route="given",
    exact=True,
    embed="deferred",
    guard="strict",
)
POLICIES = {
    policy.name: policy
    for policy in (
        policies.DEFAULT,
        policies.SUMMARY,
        policies.INSIGHT,
        Policy(name="milton", chunk=WHOLE, score="given", route="item_type", dated=True),
        Policy(
            name="vault",
            chunk=(50, 300),
            score="novelty",
            gate=0.3,
            route="signals",
            keyed_preferences=True,
            compresses=True,
        ),
        Policy(
            name="theoria",
            chunk=WHOLE,
            score="heuristic",
            near=True,
            embed="deferred",
            capacity=200,
        ),
        Policy(
            name="supervisor",
            score="heuristic",
            exact=True,
            bands=Bands(),
            merge="recreate",
            conflicts=True,
            links=Links(),
            extract=Facts(policy="supervisor"),
        ),
        replace(_CLANKER_FACTS, name="clanker", capacity=80),
        _CLANKER_FACTS,
        replace(
            _CLANKER_FACTS,
            name="clanker.messages",
            exact=False,
            guard="contextual",
            extract=Facts(
                policy="clanker.guild",
                longer=3,
                found=4,
                kept=4,
                daily=None,
                longest=190,
                of_subject=True,
            ),
        ),
    )
}
