"""Which memories expire, judged once more in the transaction that hides them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memorist.jobs import expire
from memorist.settings import Settings
from memorist.storage.person import Proposal
from memorist.types import Memory, Scope

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
THEN = NOW - timedelta(days=61)
TEA = Memory(
    id="m1",
    scope=Scope(user="ana"),
    text="The tea is green.",
    kind="semantic",
    created_at=THEN,
    updated_at=THEN,
    importance=0.4,
)


def test_what_was_not_used_for_sixty_days_expires() -> None:
    assert expire.is_unused(TEA, Settings(), NOW)
    assert not expire.is_unused(TEA, Settings(), NOW - timedelta(days=2))


@pytest.mark.parametrize(
    "fields",
    [
        {"pinned": True},
        {"manually_saved": True},
        {"importance": 0.6},
        {"state": "archived"},
        {"updated_at": NOW},
        {"last_accessed": NOW},
    ],
)
def test_what_was_pinned_used_or_found_important_in_the_meantime_stays(
    fields: dict[str, Any],
) -> None:
    assert not expire.is_unused(replace(TEA, **fields), Settings(), NOW)


def test_a_proposal_lapses_at_its_time_unless_it_was_decided() -> None:
    asked = Proposal(id="p1", field="diet", value="vegan", at=THEN, lapses_at=NOW)
    assert asked.is_lapsed(NOW)
    assert not asked.is_lapsed(NOW - timedelta(seconds=1))
    assert not replace(asked, decided="told").is_lapsed(NOW)
