"""Write policies: which steps a draft goes through before it is remembered, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..errors import InvalidInput

WHOLE = (0, 2**31)  # tokens: nothing is cut, one draft is one memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """How near two texts have to be, by cosine, before their words are compared: see
    `bench/merge.py`.
    """

    auto_update: float = 0.85  # the newer text may say a little more
    check_low: float = 0.70  # both have to say the same; below, everything is new
    # Consolidation takes other words for the same, if no value and no rare word differs.
    reworded: float = 0.88
    # From here on consolidation compares what both say, with a language model if there is one.
    fallback_low: float = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Which memories a new fact is related to: the few nearest, if they are near enough by
    cosine.
    """

    least: float = 0.60
    most: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Which facts are drawn out of what people say, after it was taken in, where the setting
    `extract` asks for it.
    """

    policy: str  # under which they are kept
    longer: int = 240  # characters of a turn; a shorter one is read only if it surely holds a fact
    found: int = 5  # of one turn
    kept: int = 3  # of those
    daily: int | None = 30  # of a user in a space
    longest: int = 280  # characters of one
    of_subject: bool = False  # they belong to the one they are about, not to the one who said it


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to take things in. The order of the steps is that of `ingest.pipeline`."""

    name: str
    chunk: tuple[int, int] | None = (
        None  # tokens at least and at most; None: only what the model cannot read at once
    )
    longest: int | None = None  # characters; what is longer is cut there
    score: Literal["unified", "vault", "theoria", "given"] = "unified"
    usual_importance: float = 0.5  # of what comes without one, where the score is given
    gate: float = 0.0  # less important drafts are skipped, unless they were saved on purpose
    route: Literal["default", "vault", "milton", "given"] = "default"
    keyed_preferences: bool = (
        False  # a preference is kept under a key, and replaces the one under it
    )
    exact: bool = False
    near: bool = False  # SimHash within three bits, with the value guard
    bands: Bands | None = None  # the same said in other words
    merge: Literal["update", "recreate"] = (
        "update"  # it keeps its id, or a new memory takes the place of the old
    )
    conflicts: bool = False  # another value of the same attribute supersedes the older one
    links: Links | None = None  # relations to the nearest facts and episodes
    embed: Literal["inline", "deferred"] = "inline"
    capacity: int | None = None  # active memories in a scope
    dated: bool = False  # a memory is as old as the time it was given, and not as its writing
    guard: Literal["none", "contextual", "strict"] = "contextual"  # of what nobody saved on purpose
    extract: Facts | None = None  # out of turns of a conversation


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            name="default",
            exact=True,
            near=True,
            bands=Bands(),
            conflicts=True,
            links=Links(),
            extract=Facts(policy="default"),
        ),
        Policy(name="milton", chunk=WHOLE, score="given", route="milton", dated=True),
        Policy(
            name="vault",
            chunk=(50, 300),
            score="vault",
            gate=0.3,
            route="vault",
            keyed_preferences=True,
        ),
        Policy(
            name="theoria", chunk=WHOLE, score="theoria", near=True, embed="deferred", capacity=200
        ),
        Policy(
            name="supervisor",
            score="theoria",
            exact=True,
            bands=Bands(),
            merge="recreate",
            conflicts=True,
            links=Links(),
            extract=Facts(policy="supervisor"),
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
        Policy(
            name="summary", chunk=WHOLE, score="given", route="given"
        ),  # of what was remembered before
        Policy(name="insight", score="given", route="given", exact=True, near=True, guard="strict"),
        Policy(
            name="clanker.messages",
            longest=320,
            score="given",
            route="given",
            embed="deferred",
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

_SHIPPED = frozenset(POLICIES)


def register(policy: Policy) -> None:
    """Make a policy known by its name."""
    POLICIES[policy.name] = policy


def named(name: str, capacity: int | None = None) -> Policy:
    """Return the policy of that name, with another capacity if it is a shipped one (0: none).
    Raises InvalidInput.
    """
    if name not in POLICIES:
        raise InvalidInput(f"No write policy {name!r}: there are {', '.join(sorted(POLICIES))}")
    found = POLICIES[name]
    return (
        found
        if capacity is None or name not in _SHIPPED
        else replace(found, capacity=capacity or None)
    )
