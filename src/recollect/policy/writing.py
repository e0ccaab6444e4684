"""Write policies: which steps a draft goes through before it is remembered, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import InvalidInput

WHOLE = (0, 2**31)  # tokens: nothing is cut, one draft is one memory


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
    embed: Literal["inline", "deferred"] = "inline"
    capacity: int | None = None  # active memories in a scope
    dated: bool = False  # a memory is as old as the time it was given, and not as its writing


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(name="default", exact=True, near=True),
        Policy(name="milton", chunk=WHOLE, score="given", route="milton", dated=True),
        Policy(name="vault", chunk=(50, 300), score="vault", gate=0.3, route="vault", keyed_preferences=True),
        Policy(name="theoria", chunk=WHOLE, score="theoria", near=True, embed="deferred", capacity=200),
        Policy(name="supervisor", score="theoria", exact=True),
        Policy(name="clanker", longest=320, score="given", route="given", exact=True, embed="deferred", capacity=80),
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
