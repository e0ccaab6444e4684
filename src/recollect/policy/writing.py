"""Write policies: which steps a draft goes through before it is remembered, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import InvalidInput

WHOLE = (0, 2**31)  # tokens: nothing is cut, one draft is one memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """How near two texts have to be, by cosine, before their words are compared: see `bench/merge.py`."""

    auto_update: float = 0.85  # the newer text may say a little more
    check_low: float = 0.70  # both have to say the same; below, everything is new


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Which memories a new fact is related to: the few nearest, if they are near enough by cosine."""

    least: float = 0.60
    most: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to take things in. The order of the steps is that of `ingest.pipeline`."""

    name: str
    chunk: tuple[int, int] | None = None  # tokens at least and at most; None: only what the model cannot read at once
    longest: int | None = None  # characters; what is longer is cut there
    score: Literal["unified", "vault", "theoria", "given"] = "unified"
    usual_importance: float = 0.5  # of what comes without one, where the score is given
    gate: float = 0.0  # less important drafts are skipped, unless they were saved on purpose
    route: Literal["default", "vault", "milton", "given"] = "default"
    keyed_preferences: bool = False  # a preference is kept under a key, and replaces the one under it
    exact: bool = False
    near: bool = False  # SimHash within three bits, with the value guard
    bands: Bands | None = None  # the same said in other words
    merge: Literal["update", "recreate"] = "update"  # it keeps its id, or a new memory takes the place of the old
    conflicts: bool = False  # another value of the same attribute supersedes the older one
    links: Links | None = None  # relations to the nearest facts and episodes
    embed: Literal["inline", "deferred"] = "inline"
    capacity: int | None = None  # active memories in a scope
    dated: bool = False  # a memory is as old as the time it was given, and not as its writing
    guard: Literal["none", "contextual", "strict"] = "contextual"  # of what nobody saved on purpose


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(name="default", exact=True, near=True, bands=Bands(), conflicts=True, links=Links()),
        Policy(name="milton", chunk=WHOLE, score="given", route="milton", dated=True),
        Policy(name="vault", chunk=(50, 300), score="vault", gate=0.3, route="vault", keyed_preferences=True),
        Policy(name="theoria", chunk=WHOLE, score="theoria", near=True, embed="deferred", capacity=200),
        Policy(
            name="supervisor",
            score="theoria",
            exact=True,
            bands=Bands(),
            merge="recreate",
            conflicts=True,
            links=Links(),
        ),
        Policy(
            name="clanker",
            longest=320,
            score="given",
            route="given",
            exact=True,
            embed="deferred",
            capacity=80,
            guard="strict",
        ),
        Policy(
            name="clanker.guild",
            longest=320,
            score="given",
            route="given",
            exact=True,
            embed="deferred",
            guard="strict",
        ),
        Policy(name="clanker.messages", longest=320, score="given", route="given", embed="deferred"),
    )
}


def register(policy: Policy) -> None:
    """Make a policy known by its name."""
    POLICIES[policy.name] = policy


def named(name: str) -> Policy:
    """The policy of that name. Raises InvalidInput."""
    if name not in POLICIES:
        raise InvalidInput(f"No write policy {name!r}: there are {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
