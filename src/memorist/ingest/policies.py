"""Write policies: which steps a draft goes through before it is remembered, as data."""

from __future__ import annotations

from typing import Literal

from ..types import frozen

WHOLE = (0, 2**31)  # tokens: nothing is cut, one draft is one memory


@frozen
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


@frozen
class Links:
    """Which memories a new fact is related to: the few nearest, if they are near enough by
    cosine.
    """

    least: float = 0.60
    most: int = 5


@frozen
class Facts:
    """Which facts are extracted from what people say, after it is stored, where the setting
    `extract` asks for it.
    """

    policy: str  # under which they are kept
    longer: int = 240  # characters of a turn; a shorter one is read only if it surely holds a fact
    found: int = 5  # of one turn
    kept: int = 3  # of those
    daily: int = 30  # of a user in a space; 0: no limit
    longest: int = 280  # characters of one
    of_subject: bool = False  # they belong to the one they are about, not to the one who said it


@frozen
class Policy:
    """One way to store drafts. The order of the steps is that of `ingest.pipeline`."""

    name: str
    chunk: tuple[int, int] | None = (
        None  # tokens at least and at most; None: only what the model cannot read at once
    )
    longest: int | None = None  # characters; what is longer is cut there
    score: Literal["unified", "novelty", "heuristic", "given"] = "unified"
    usual_importance: float = 0.5  # of what comes without one, where the score is given
    gate: float = 0.0  # less important drafts are skipped, unless they were saved on purpose
    route: Literal["default", "signals", "item_type", "given"] = "default"  # how the kind is found
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
    compresses: bool = False  # old sessions are summarized without a setting for it
    has_own_capacity: bool = False  # the setting `capacity` does not change it
    dated: bool = False  # a memory is as old as the time it was given, and not as its writing
    guard: Literal["none", "contextual", "strict"] = "contextual"  # of what nobody saved on purpose
    extract: Facts | None = None  # out of turns of a conversation


DEFAULT = Policy(
    name="default",
    exact=True,
    near=True,
    bands=Bands(),
    conflicts=True,
    links=Links(),
    extract=Facts(policy="default"),
)
SUMMARY = Policy(
    name="summary",
    chunk=WHOLE,
    score="given",
    route="given",
)  # of stored memories
INSIGHT = Policy(
    name="insight",
    score="given",
    route="given",
    exact=True,
    near=True,
    guard="strict",
)
