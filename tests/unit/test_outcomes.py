"""How the outcome of a message is stored, and how one that version 0.1 stored is read."""

from __future__ import annotations

import pytest

from memorist.errors import StoreDamaged
from memorist.storage import rows
from memorist.types import Outcome


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(status="created", ids=("m1",), message_id="x"),
        Outcome(status="created", ids=("m2",), reason="why", message_id="x", supersedes="m1"),
        Outcome(status="refused", reason="it was forgotten on request", message_id="x"),
    ],
)
def test_a_stored_outcome_is_read_as_it_was(outcome: Outcome) -> None:
    assert rows.load_outcome(rows.dump_outcome(outcome), "x") == outcome


@pytest.mark.parametrize(
    "reason", ["it takes the place of m1", "it contradicts m1: confirm it, reject it, or keep both"]
)
def test_superseded_of_version_0_1_is_read_as_created_with_the_memory_it_replaced(
    reason: str,
) -> None:
    stored = f'["superseded", ["m2"], "{reason}"]'
    expected = Outcome(
        status="created", ids=("m2",), reason=reason, message_id="x", supersedes="m1"
    )
    assert rows.load_outcome(stored, "x") == expected


def test_conflicting_of_version_0_1_is_read_as_a_conflict() -> None:
    assert rows.load_outcome('["conflicting", ["m1"], "why"]', "x").status == "conflict"


@pytest.mark.parametrize("stored", ["[]", "{}", '["created"]', "no json"])
def test_an_altered_outcome_is_damage(stored: str) -> None:
    with pytest.raises(StoreDamaged):
        rows.load_outcome(stored, "x")
