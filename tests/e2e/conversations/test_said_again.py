"""Turns of several sessions under the Theoria policy: what is said again, and what it is worth."""

from __future__ import annotations

import pytest

from memorist.client import Client
from memorist.scoped import ScopedClient
from memorist.text.normalize import simhash64

from .conftest import Say

ROTA = (
    "Vera keeps the rota of the kitchen in the blue binder and the whole crew reads it before the "
    "Monday shift, where we talk about late deliveries, new dishes and the plans for the next "
    "banquets in the large hall beside the harbor"
)
SEAT = "I prefer the window seat on long flights."


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


@pytest.mark.spec("THE-30", "THE-37")
async def test_a_turn_three_bits_from_one_of_another_session_repeats_it_and_four_bits_do_not(
    say: Say, ana: ScopedClient
) -> None:
    three, four = (ROTA.replace("keeps", f"{word} keeps") for word in ("neatly", "happily"))
    assert [(simhash64(ROTA) ^ simhash64(text)).bit_count() for text in (three, four)] == [3, 4]
    first = await say("monday", ROTA, policy="theoria")
    again = await say("tuesday", three, policy="theoria")
    other = await say("friday", four, policy="theoria")
    assert again.ids == first.ids
    assert other.ids != first.ids
    entries = await ana.list()
    assert sorted((entry.labels.session, entry.repeat_count) for entry in entries) == [
        ("friday", 0),
        ("monday", 1),
    ]


@pytest.mark.spec("THE-30", "THE-32", "THE-37")
@pytest.mark.parametrize(
    ("filled", "bits"),
    [
        ("Well, {}", 1),
        ("Honestly, {}", 1),
        ("{}, obviously", 1),
        ("{} haha", 2),
        ("{}, you know", 3),
    ],
)
async def test_a_filler_word_does_not_make_a_turn_of_another_session_a_new_entry(
    say: Say, ana: ScopedClient, filled: str, bits: int
) -> None:
    again = filled.format(ROTA)
    assert (simhash64(ROTA) ^ simhash64(again)).bit_count() == bits
    first = await say("monday", ROTA, policy="theoria")
    assert (await say("friday", again, policy="theoria")).ids == first.ids
    (entry,) = await ana.list()
    assert (entry.text, entry.repeat_count) == (ROTA, 1)


@pytest.mark.spec("THE-31")
async def test_the_same_turn_in_another_space_or_of_another_person_is_an_entry_of_its_own(
    engine: Client, say: Say
) -> None:
    places = [("ana", "home"), ("ana", "work"), ("ben", "home")]
    ids = set()
    for user, space in places:
        for session in ("monday", "friday"):
            ids.update((await say(session, SEAT, user=user, space=space, policy="theoria")).ids)
    assert len(ids) == 3
    for user, space in places:
        (entry,) = await engine.scope(user, space).list()
        assert entry.repeat_count == 1


@pytest.mark.spec("THE-32", "THE-33", "THE-37")
async def test_each_session_that_says_it_again_is_counted_and_raises_the_importance(
    say: Say, ana: ScopedClient
) -> None:
    seen = []
    for week in range(9):
        (outcome,) = (await say(f"week {week}", SEAT, policy="theoria")).outcomes
        assert outcome.status == ("merged" if week else "created")
        (entry,) = await ana.list()
        assert outcome.ids == (entry.id,)
        seen.append((entry.repeat_count, round(entry.importance, 3)))
    assert seen == [
        (0, 0.3),
        (1, 0.4),
        (2, 0.458),
        (3, 0.5),
        (4, 0.532),
        (5, 0.558),
        (6, 0.581),
        (7, 0.6),
        (8, 0.6),
    ]
    assert entry.base_importance == 0.3


@pytest.mark.spec("THE-33")
async def test_however_often_it_is_said_the_importance_is_at_most_1(
    say: Say, ana: ScopedClient
) -> None:
    for week in range(9):
        await say(
            f"week {week}",
            "I prefer to fly with Anna Weber.",
            policy="theoria",
            manually_saved=True,
        )
    (entry,) = await ana.list()
    assert (entry.repeat_count, entry.base_importance, entry.importance) == (8, 1.0, 1.0)


@pytest.mark.spec("THE-34", "THE-35")
async def test_what_a_later_session_saves_or_pins_is_saved_and_pinned_and_stays_so(
    say: Say, ana: ScopedClient
) -> None:
    given: list[dict[str, bool]] = [{}, {"manually_saved": True}, {}, {"pinned": True}, {}]
    seen = []
    for day, flags in enumerate(given):
        (id,) = (await say(f"day {day}", SEAT, policy="theoria", **flags)).ids
        entry = await ana.get(id)
        seen.append((entry.manually_saved, entry.pinned))
    assert seen == [(False, False), (True, False), (True, False), (True, True), (True, True)]
    assert len(await ana.list()) == 1


@pytest.mark.spec("THE-36")
async def test_tags_and_message_ids_of_all_sessions_are_joined(
    engine: Client, ana: ScopedClient
) -> None:
    for session, id, tags, sources in (
        ("monday", "m-1", ["Travel"], ["doc-1"]),
        ("tuesday", "m-2", ["comfort", "travel"], ["doc-2"]),
        ("friday", "m-3", [], ["doc-1"]),
    ):
        await engine.scope("ana", session=session).remember(
            [{"role": "user", "content": SEAT, "id": id}],
            policy="theoria",
            tags=tags,
            source_ids=sources,
        )
    (entry,) = await ana.list()
    assert set(entry.tags) >= {"travel", "comfort"}
    assert len(entry.tags) == len(set(entry.tags))
    assert set(entry.source_ids) == {"m-1", "m-2", "m-3", "doc-1", "doc-2"}


@pytest.mark.spec("THE-39", "THE-40", "THE-41")
@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("I prefer tea in the morning.", {}, 0.3),
        ("I will send Monday's slides.", {}, 0.3),
        ("My goal is a marathon in May.", {}, 0.3),
        ("We met Anna Weber.", {}, 0.2),  # a name with a confidence of 0.9
        ("The observatory was closed.", {}, 0.0),  # a topic with a confidence of 0.4
        ("I prefer tea with Anna Weber.", {}, 0.5),
        ("ok thanks", {}, 0.0),
        ("ok thanks", {"manually_saved": True}, 0.4),
        ("The sky was red.", {"manually_saved": True}, 0.5),
    ],
)
async def test_the_importance_of_a_turn_adds_up_from_what_it_says(
    say: Say, ana: ScopedClient, text: str, given: dict[str, bool], expected: float
) -> None:
    await say("monday", "What a long week that was.", policy="theoria")
    (id,) = (await say("friday", text, policy="theoria", **given)).ids
    assert (await ana.get(id)).importance == pytest.approx(expected)


@pytest.mark.spec("THE-40")
@pytest.mark.parametrize(
    ("text", "confidence", "expected"),
    [
        ("Anna Weber and Bob Stone from ACME looked at the cathedral.", 0.725, 0.2),
        ("Anna Weber looked at the cathedral and the observatory.", 0.567, 0.0),
    ],
)
async def test_the_tags_of_a_turn_count_from_a_confidence_of_0_6_on(
    say: Say, ana: ScopedClient, text: str, confidence: float, expected: float
) -> None:
    (id,) = (await say("friday", text, policy="theoria")).ids
    entry = await ana.get(id)
    assert entry.metadata_confidence == pytest.approx(confidence, abs=0.001)
    assert entry.importance == pytest.approx(expected)
