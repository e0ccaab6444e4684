"""Write policies: which steps a draft passes before it is stored, as data."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ..types import frozen

WHOLE = (0, 2**31)  # tokens: nothing is cut, one draft is one memory


@frozen
class Bands:
    """Cosines from which on the words of two texts are compared: see `bench/merge.py`."""

    auto_update: float = 0.85  # the newer text may say a little more
    check_low: float = 0.70  # both have to say the same; below, everything is new
    # Consolidation accepts a rewording if no value and no rare word differs.
    reworded: float = 0.88
    # Consolidation compares the statements from here on, with a language model if configured.
    fallback_low: float = 0.45
    ask_below: float = 2.0  # the language model is asked only about pairs below this


@frozen
class Links:
    """How many memories a new fact is linked to at most, and their least cosine."""

    least: float = 0.60
    most: int = 5


@frozen
class Facts:
    """Limits for the facts that are extracted from turns, if the setting `extract` is on."""

    policy: str  # with which they are stored
    longer: int = 240  # characters; shorter turns are used only if they clearly contain a fact
    found: int = 5  # most facts found in one turn
    kept: int = 3  # most facts stored of one turn
    daily: int = 30  # per user; 0 means no limit
    caps_rules: bool = True  # these limits hold for rules too, and not only for a language model
    longest: int = 280  # characters of one fact
    of_subject: bool = False  # they belong to their subject instead of the speaker
    # A model's facts need only nearly half of their words from the turn, and replace the rules'.
    trusts_model: bool = False


@frozen
class Policy:
    """One way to store drafts. `ingest.pipeline` defines the order of the steps."""

    name: str
    chunk: tuple[int, int] | None = (
        None  # least and most tokens; None: split only what exceeds the window of the model
    )
    longest: int | None = None  # characters; longer texts are truncated
    score: Literal["unified", "novelty", "heuristic", "given"] = "unified"
    usual_importance: float = 0.5  # default, if the score is given
    gate: float = 0.0  # less important drafts are skipped, unless they were saved on purpose
    route: Literal["default", "signals", "item_type", "given"] = "default"  # how the kind is chosen
    keyed_preferences: bool = (
        False  # a preference has a key, and replaces the one with the same key
    )
    exact: bool = False
    near: bool = False  # SimHash within three bits, with the value guard
    bands: Bands | None = None  # rewordings
    merge: Literal["update", "recreate"] = (
        "update"  # a memory keeps its id, or a new memory replaces it
    )
    conflicts: bool = False  # another value of the same attribute supersedes the older one
    links: Links | None = None  # relations to the nearest facts and episodes
    embed: Literal["inline", "deferred"] = "inline"
    capacity: int | None = None  # active memories in a scope
    # The daily job of each scope it writes to: `compress` summarizes the oldest sessions, `promote`
    # moves items older than two days into records.
    job: Literal["compress", "promote"] | None = None
    shared_spool: bool = (
        False  # while the store is down, its drafts wait in one place for all stores
    )
    episodes: bool = False  # a model tells a session as an episode instead of summarizing it
    has_own_capacity: bool = False  # the setting `capacity` does not change it
    dated: bool = False  # the age of a memory starts at the time given, not at its creation
    saves_on_request: bool = False  # "remember this: …" by the user counts as saved on purpose
    guard: Literal["none", "contextual", "strict"] = "contextual"  # for drafts not saved on purpose
    extract: Facts | None = None  # from turns of a conversation


DEFAULT = Policy(
    name="default",
    exact=True,
    near=True,
    bands=Bands(),
    conflicts=True,
    links=Links(),
    extract=Facts(policy="default", caps_rules=False),
)
SUMMARY = Policy(
    name="summary",
    chunk=WHOLE,
    score="given",
    route="given",
)  # of stored memories
DOCUMENT = replace(SUMMARY, name="document")  # nothing is cut, merged or superseded
INSIGHT = Policy(
    name="insight",
    score="given",
    route="given",
    exact=True,
    near=True,
    guard="strict",
)
