"""The ranking profiles and write policies of the dialects.

The data is in `catalog.toml`; `aio.py` puts the tables into the context.
"""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InvalidInput
from ..ingest import policies
from ..ingest.policies import Bands, Facts, Links, Policy
from ..retrieve.profiles import DEFAULT, Gate, Profile, Profiles, Recency

T = TypeVar("T")
_FILE = Path(__file__).with_name("catalog.toml")
_DATA = tomllib.loads(_FILE.read_text("utf-8"))
_PARTS: dict[str, dict[str, Callable[..., Any]]] = {
    "profiles": {
        "recency": Recency,
        "gate": Gate,
        "gate_without_semantic": Gate,
    },
    "policies": {
        "bands": Bands,
        "links": Links,
        "extract": Facts,
    },
}


def _load(table: str, kind: Callable[..., T]) -> dict[str, T]:
    """Return the values of a table by name."""
    rows = _DATA[table]
    parts = _PARTS[table]
    made = {}
    for name, row in rows.items():
        base = rows.get(row.get("like"), {})
        fields = {**base, **row}
        fields.pop("like", None)
        for field, value in fields.items():
            if field in parts:
                fields[field] = parts[field](**value)
            elif isinstance(value, list):
                fields[field] = tuple(value)
        made[name] = kind(name=name, **fields)
    return made


PROFILES = Profiles({DEFAULT.name: DEFAULT, **_load("profiles", Profile)})
MILTON = PROFILES["milton.deterministic"]
THEORIA = PROFILES["theoria.triscore"]
SUPERVISOR = PROFILES["imp.bullets"]
CLANKER = PROFILES["clanker.hybrid"]
CLANKER_STRICT = PROFILES["clanker.strict"]
_OURS = (policies.DEFAULT, policies.SUMMARY, policies.DOCUMENT, policies.INSIGHT)
POLICIES = {each.name: each for each in _OURS}
POLICIES |= _load("policies", Policy)


def milton_profile(
    recency_bias: float = 0.35,
    semantic_weight: float = 0.5,
    mode: str = "hybrid",
) -> Profile:
    """Return Milton's ranking with the caller's weights, clamped to 0 … 1. Raises InvalidInput."""
    if f"milton.{mode}" not in PROFILES:
        raise InvalidInput(f"mode {mode!r} is not one of hybrid, deterministic, semantic")
    profile = PROFILES[f"milton.{mode}"]
    bias = min(1.0, max(0.0, recency_bias))
    weights = {**profile.weights, "lexical": 1 - bias, "recency": bias}
    if mode == "hybrid":
        share = min(1.0, max(0.0, semantic_weight))
        profile = replace(profile, semantic_weight=share)
    return replace(profile, weights=weights)
