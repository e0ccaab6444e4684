"""Cues that something changed, or that it did not, in several languages."""

from __future__ import annotations

import pytest

from memorist.text.cues import read_cues


@pytest.mark.parametrize(
    ("text", "cues"),
    [
        ("I no longer row on Sundays", {"ended"}),
        ("we switched to the other supplier", {"moved"}),
        ("first day at the bakery!", {"new"}),
        ("rehearsal is at eight now", {"now"}),
        ("No, wait: make it nine", {"corrected"}),
        ("we also have a second boat", {"added"}),
        ("I used to row every Sunday", {"past"}),
        ("what if we sold the boat", {"hypothetical", "ended"}),
        ("I don’t row anymore", {"ended"}),
        ("Wir sind umgezogen", {"moved"}),
        ("ab sofort dienstags", {"now"}),
        ("désormais le mardi", {"now"}),
        ("ya no vivo allí", {"ended"}),
        ("mudei de emprego", {"moved"}),
        ("d'ora in poi il martedì", {"now"}),
        ("мы переехали", {"moved"}),
        ("会议改到周四", {"moved"}),
        ("I like rye bread", set()),
        ("On 12 May we meet Nowak", set()),
        ("", set()),
    ],
)
def test_phrases_give_their_cues(text: str, cues: set[str]) -> None:
    assert read_cues(text) == cues


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert read_cues("tea " * 300_000 + "no longer") == set()
