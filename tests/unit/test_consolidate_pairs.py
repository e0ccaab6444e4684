"""Pairs of memories that may state the same fact."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memorist.ingest.policies import Bands
from memorist.jobs import consolidate_pairs as pairs
from memorist.types import Labels, Memory, Scope

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD = Memory(
    id="m2",
    scope=Scope(user="ana"),
    text="The kettle is blue.",
    kind="semantic",
    created_at=NOW,
    updated_at=NOW,
    content_hash="h1",
)
NEW = replace(OLD, id="m1", created_at=NOW + timedelta(hours=1))


def test_a_pair_has_the_same_fingerprint_whichever_memory_is_older() -> None:
    one = pairs.Pair(old=OLD, new=NEW, cosine=0.876)
    other = pairs.Pair(old=NEW, new=OLD, cosine=0.876)
    assert one.fingerprint == other.fingerprint == ("m1", "m2", 0.88)


def test_texts_without_words_are_the_same_if_they_are_equal() -> None:
    tea = replace(OLD, text="🫖"), replace(NEW, text="🫖")
    pair = pairs.make_pair(*tea, cosine=0.1)
    assert pair is not None
    assert pairs.is_same(pair, Bands())


def test_pairs_that_are_equally_near_come_in_the_order_of_their_rows() -> None:
    vectors = np.asarray([[1, 0], [1, 0], [1, 0]], np.float32)
    snapshot: Any = SimpleNamespace(
        row=np.asarray([30, 10, 20]), speaker=np.zeros(3, np.int32), vectors=lambda at: vectors[at]
    )
    every = np.arange(3)
    found = pairs.compare_vectors(snapshot, every, every, Bands(fallback_low=0.5))
    assert found == [(10, 20, 1.0), (10, 30, 1.0), (20, 30, 1.0)]


@pytest.mark.parametrize(
    "other",
    [
        {"state": "archived"},
        {"procedural_form": "workflow"},
        {"kind": "insight"},
        {"speaker": "Bo"},
        {"labels": Labels(role="assistant")},
        {"labels": Labels(subject="Bo")},
        {"text": "I paint the kettle tomorrow.", "created_at": NOW + timedelta(days=1)},
    ],
)
def test_what_cannot_be_about_the_same_is_no_pair(other: dict[str, Any]) -> None:
    assert pairs.make_pair(OLD, NEW, 0.9) == pairs.Pair(old=OLD, new=NEW, cosine=0.9)
    assert pairs.make_pair(OLD, replace(NEW, **other), 0.9) is None
    assert pairs.make_pair(replace(NEW, **other), OLD, 0.9) is None
