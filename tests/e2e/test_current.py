"""What is current in a conversation: a newer value comes first, and what only seems newer changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.errors import NotFound
from memorist.scoped import ScopedClient
from memorist.types import Memory

HOME = "We're in Ghent, second floor, no lift"
MOVED = "the new flat in Bruges is finally unpacked!"
ASKED = "Which city do I live in?"


@pytest.fixture(params=["sqlite", "postgres"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[aio.Client]:
    where = tmp_path / "m.db"
    if request.param == "postgres":
        where = request.getfixturevalue("ready_database")
    async with aio.open(where, state_dir=tmp_path) as client:
        yield client


@pytest.fixture
def ana(client: aio.Client) -> ScopedClient:
    return client.scope("ana")


def chat(*turns: str) -> list[dict[str, Any]]:
    """Return turns of a person and, after "A:", of the assistant, each of a session and a day of its own."""
    said = []
    for day, turn in enumerate(turns, 1):
        role = "assistant" if turn.startswith("A:") else "user"
        at = datetime(2026, 3, day, 9, tzinfo=UTC)
        session = f"s{day - (role == 'assistant')}"
        said.append(
            {"role": role, "content": turn.removeprefix("A:"), "session": session, "at": at}
        )
    return said


async def texts(ana: ScopedClient, question: str, **options: Any) -> list[str]:
    return [hit.memory.text for hit in await ana.recall(question, **options)]


async def stored(ana: ScopedClient, text: str) -> Memory:
    (memory,) = [each for each in await ana.list() if each.text == text]
    return memory


@pytest.mark.parametrize("at_once", [True, False], ids=["in one call", "one after the other"])
async def test_a_change_that_is_only_implied_comes_first_at_once(
    ana: ScopedClient, at_once: bool
) -> None:
    turns = chat(HOME, "what's a good recipe for leeks", MOVED)
    for batch in [turns] if at_once else [[turn] for turn in turns]:
        receipt = await ana.remember(batch)
    home = await stored(ana, HOME)
    assert (
        receipt.outcomes[-1].reason
        == f"it may replace {home.id}: confirm it, reject it, or keep both"
    )
    found = await ana.recall(ASKED)
    assert [hit.memory.text for hit in found][:2] == [MOVED, HOME]
    first, second = found.hits[:2]
    assert first.parts["current"] > 0
    assert sum(first.parts.values()) == pytest.approx(first.score)
    assert first.score == pytest.approx(second.score)


@pytest.mark.parametrize("at_once", [True, False], ids=["in one call", "one after the other"])
async def test_what_was_certainly_replaced_is_left_out(ana: ScopedClient, at_once: bool) -> None:
    old, new = "I live in Ghent", "I live in Bruges now"
    turns = chat(old, "what's a good recipe for leeks", new)
    for batch in [turns] if at_once else [[turn] for turn in turns]:
        receipt = await ana.remember(batch)
    home = await stored(ana, old)
    assert receipt.outcomes[-1].supersedes == home.id
    assert home.valid_to == datetime(2026, 3, 3, 9, tzinfo=UTC)
    found = await ana.recall(ASKED)
    assert [hit.memory.text for hit in found] == [new]
    (cut,) = [each for each in found.cut if each.id == home.id]
    assert cut.reason == f"it was replaced by {found.hits[0].memory.id}"
    reason = await ana.why_not(ASKED, cut.id)
    assert reason.reason == f'it was replaced by "{new}" ({found.hits[0].memory.id})'
    then = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert (await texts(ana, ASKED, as_of=then))[0] == old


async def test_what_was_true_then_is_still_readable(ana: ScopedClient) -> None:
    await ana.remember(chat(HOME, MOVED))
    then = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert (await texts(ana, ASKED, as_of=then))[0] == HOME
    assert (await stored(ana, HOME)).is_active


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("rehearsal is 18:30 on mondays", "rehearsal now 19:00", "When is the rehearsal?"),
        ("sign the card Anna Meyer", "no wait, it's Maier with ai", "How is my surname spelled?"),
        ("I take the 12 tram to work", "sold my tram pass, I cycle every day now", "How do I commute?"),
        ("Chorprobe ist montags 19 Uhr", "ab jetzt dienstags, Chorprobe wurde verschoben", "Wann ist die Chorprobe?"),
        ("I play the oboe", "I don't play the oboe anymore", "Do I still play the oboe?"),
    ],
)  # fmt: skip
async def test_the_newer_value_comes_first(
    ana: ScopedClient, old: str, new: str, question: str
) -> None:
    await ana.remember(chat(old, new))
    assert (await texts(ana, question))[0] == new


@pytest.mark.parametrize(
    "said",
    [
        "if we moved to Bruges, would the rent be lower?",
        "my colleague Femke just moved to Bruges",
        "back in 2015 I lived in Bruges above a bakery",
        "we also have a tiny holiday flat in Bruges",
        "Bruges looked lovely in the rain today",
    ],
    ids=["hypothetical", "another person", "past", "one more", "a visit"],
)
async def test_what_only_seems_newer_replaces_nothing(ana: ScopedClient, said: str) -> None:
    await ana.remember(chat(HOME, said))
    assert (await stored(ana, HOME)).valid_to is None
    assert HOME in await texts(ana, ASKED)


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        (
            "Long day. I work as a baker in Cork, nights this week.",
            "First week done! I work as a tutor at the college in Galway now.",
            "What is my job?",
        ),
        (
            "The budget for the garden party is 900 euros.",
            "Anna was here: the budget for the garden party is 750 euros.",
            "How much may the garden party cost?",
        ),
        (
            "I have a vet appointment on 12 May at 8:00.",
            "They called: my vet appointment is now on 19 May at 16:20.",
            "When do I have to be at the vet?",
        ),
    ],
    ids=["job", "amount", "date"],
)
async def test_a_clause_among_others_replaces_the_older_value(
    ana: ScopedClient, old: str, new: str, question: str
) -> None:
    await ana.remember(chat(old, "what rhymes with orange", new, "ok thanks, that is all"))
    found = await texts(ana, question)
    assert found[0] == new
    assert old not in found


async def test_a_question_about_another_part_is_answered_by_that_part(ana: ScopedClient) -> None:
    both = "Clara lives in Bonn and I'm allergic to shellfish, keep that in mind for restaurants"
    moved = "Clara moved too by the way, she's in Leipzig now"
    receipt = await ana.remember(chat("We plan a trip to Kyoto", both, "I got the job!", moved))
    assert "replace" in (receipt.outcomes[-1].reason or "")
    assert (await texts(ana, "What am I allergic to?"))[0] == both
    assert (await texts(ana, "How is Clara?"))[0] == moved


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "We're moving to Bristol next Saturday, Marcus and me.",
            "Marcus and I broke up two weeks ago. He moved out.",
        ),
        (
            "The interviews are 45 minutes each and I'm doing eight of them. Keep the tone informal.",
            "Shorter please, I like bullet points and no more than five questions.",
        ),
        ("I live at 12 Elm Street in Leeds.", "update my rent to £1,350"),
    ],
    ids=["a plan whose time has come", "a request", "another attribute"],
)
async def test_what_is_only_similar_to_a_statement_does_not_end_it(
    ana: ScopedClient, old: str, new: str
) -> None:
    first, second = chat(old, new)
    await ana.remember([first])
    (outcome,) = (await ana.remember([{**second, "at": datetime(2026, 6, 1, tzinfo=UTC)}])).outcomes
    assert outcome.supersedes is None
    assert (await stored(ana, old)).valid_to is None
    assert "it may replace" in (outcome.reason or "")


async def test_a_sentence_that_continues_another_is_no_other_part(ana: ScopedClient) -> None:
    old = "There's a green line on my phone screen. It's a Pixel 6."
    new = "I have an iPhone 15 now, the Pixel finally died."
    await ana.remember(chat(old, "I play viola.", new))
    assert (await stored(ana, old)).valid_to is not None
    assert await texts(ana, "What phone do I have?") == [new, old]


async def test_the_assistant_repeating_the_old_value_is_outdated_too(ana: ScopedClient) -> None:
    await ana.remember(
        chat("call me Alexandra", "A:Of course, Alexandra.", "Alex is fine actually, no need for Alexandra")
    )  # fmt: skip
    found = await texts(ana, "What should you call me?")
    assert found[0].startswith("Alex is fine")
    assert "Of course, Alexandra." not in found


async def test_a_person_confirms_a_change_or_rejects_it(ana: ScopedClient) -> None:
    await ana.remember(chat(HOME, MOVED))
    (conflict,) = await ana.conflicts()
    assert (conflict.new.text, conflict.old.text) == (MOVED, HOME)
    kept = await ana.confirm(conflict.id)
    assert kept.text == MOVED
    assert await ana.conflicts() == []
    assert (await texts(ana, ASKED))[0] == MOVED
    assert HOME not in await texts(ana, ASKED)


async def test_after_a_rejection_the_older_one_is_current(ana: ScopedClient) -> None:
    await ana.remember(chat(HOME, MOVED))
    (conflict,) = await ana.conflicts()
    kept = await ana.reject(conflict.id)
    assert (kept.text, kept.valid_to) == (HOME, None)
    assert await ana.conflicts() == []
    found = await texts(ana, ASKED)
    assert found[0] == HOME
    assert MOVED not in found
    with pytest.raises(NotFound):
        await ana.reject(conflict.id)


async def test_a_pair_that_is_none_is_repaired_by_keeping_both(ana: ScopedClient) -> None:
    old, new = "I live in Ghent", "I live in Bruges now"
    await ana.remember(chat(old, new))
    (conflict,) = await ana.conflicts()
    assert conflict.old.valid_to is not None
    kept = await ana.keep_both(conflict.id)
    assert kept.text == new
    assert await ana.conflicts() == []
    assert [(await stored(ana, text)).valid_to for text in (old, new)] == [None, None]
    assert {old, new} <= set(await texts(ana, ASKED))
    with pytest.raises(NotFound):
        await ana.keep_both(conflict.id)


async def test_a_turn_and_the_pinned_one_that_it_contradicts_are_both_recalled(
    ana: ScopedClient,
) -> None:
    old, new = "I live in Ghent", "I live in Bruges now"
    first, second = chat(old, new)
    (pinned,) = (await ana.remember([first])).ids
    await ana.pin(pinned)
    (outcome,) = (await ana.remember([second])).outcomes
    assert (outcome.supersedes, (await ana.get(pinned)).valid_to) == (None, None)
    assert await texts(ana, ASKED) == [new, old]
    (conflict,) = await ana.conflicts()
    assert (conflict.new.text, conflict.old.text) == (new, old)


@pytest.mark.parametrize(("name", "replaces"), [(None, True), ("Bob", False)])
async def test_what_was_saved_on_purpose_is_replaced_by_the_person_alone(
    ana: ScopedClient, name: str | None, replaces: bool
) -> None:
    first, second = chat("I live in Ghent", "I live in Bruges now")
    (saved,) = (await ana.remember([{**first, "name": name}], manually_saved=True)).ids
    (outcome,) = (await ana.remember([{**second, "name": name}])).outcomes
    assert (outcome.supersedes == saved) is replaces


async def test_what_was_pinned_is_not_replaced(ana: ScopedClient) -> None:
    await ana.remember(chat(HOME))
    await ana.pin((await stored(ana, HOME)).id)
    await ana.remember(chat(MOVED))
    assert (await stored(ana, HOME)).valid_to is None


async def test_what_replaced_it_is_forgotten_and_the_older_one_is_found_again(
    ana: ScopedClient,
) -> None:
    await ana.remember(chat(HOME, MOVED))
    await ana.forget((await stored(ana, MOVED)).id)
    assert await texts(ana, ASKED) == [HOME]


async def test_what_says_more_than_what_changed_is_still_returned(ana: ScopedClient) -> None:
    both = "I live in Ghent and work as a nurse"
    await ana.remember(chat(both, "we moved to Bruges last week, new flat near the canal"))
    assert (await stored(ana, both)).valid_to == datetime(2026, 3, 2, 9, tzinfo=UTC)
    found = await ana.recall("What do I do for work?")
    assert both in [hit.memory.text for hit in found]
    assert f"2026-03-01 until 2026-03-02 user: {both}" in found.text
    assert (await texts(ana, ASKED))[0].startswith("we moved to Bruges")


async def test_what_replaces_what_is_exported_and_imported(
    ana: ScopedClient, tmp_path: Path
) -> None:
    await ana.remember(chat(HOME, "what's a good recipe for leeks", MOVED))
    before = await texts(ana, ASKED)
    assert before[0] == MOVED
    records = [record async for record in ana.export()]
    async with aio.open(tmp_path / "other.db", state_dir=tmp_path / "other") as other:
        there = other.scope("ana")
        await there.import_(records)
        assert await texts(there, ASKED) == before
        assert [each.old.text for each in await there.conflicts()] == [HOME]


@pytest.mark.parametrize("session", [None, "own"], ids=["without a session", "in sessions"])
async def test_a_note_replaces_an_earlier_note_as_a_turn_does(
    client: aio.Client, ana: ScopedClient, session: str | None
) -> None:
    notes = ["The standup is at 9:30", "I like leeks", "Standup moved to 10:00"]
    for number, text in enumerate(notes):
        where = client.scope("ana", session=session and f"{session}{number}")
        await where.remember(text)
    assert (await texts(ana, "When is the standup?"))[0] == "Standup moved to 10:00"
    assert "The standup is at 9:30" not in await texts(ana, "When is the standup?")
    assert (await stored(ana, "The standup is at 9:30")).valid_to is not None
    assert (await stored(ana, "I like leeks")).valid_to is None


async def test_an_outdated_note_is_marked_where_it_says_more(ana: ScopedClient) -> None:
    await ana.remember("I'm a nurse and I live in Ghent.")
    await ana.remember("I moved to Bruges last week, all boxes unpacked.")
    assert (await texts(ana, ASKED))[0] == "I moved to Bruges last week, all boxes unpacked."
    prompt = (await ana.recall(ASKED)).text
    today = datetime.now(UTC).date().isoformat()
    assert f"until {today}: I'm a nurse and I live in Ghent." in prompt


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("My partner is from Scandinavia", "She is from Denmark, Aarhus to be exact"),
        ("I'm a freelance translator", "I teach an evening class every Monday now"),
        ("My Toyota needs a new clutch", "Next door bought a Tesla, it blocks my kitchen window"),
    ],
)
async def test_a_note_that_adds_something_replaces_nothing(
    ana: ScopedClient, first: str, second: str
) -> None:
    await ana.remember(first)
    await ana.remember(second)
    assert (await stored(ana, first)).valid_to is None


async def test_a_fact_stays_found_when_its_turn_is_outdated(
    client: aio.Client, ana: ScopedClient
) -> None:
    turns = chat("I'm a nurse and I live in Ghent.", "I moved to Bruges last week, boxes unpacked.")
    for turn in turns:
        await ana.remember([turn])
        await client.run_jobs()
    found = await texts(ana, "Am I a nurse?")
    assert "The user is a nurse." in found
    assert "I'm a nurse and I live in Ghent." not in found
    known = [each.text for each in await ana.list() if each.valid_to is None]
    assert "The user lives in Ghent." not in known


@pytest.mark.parametrize("at_once", [True, False], ids=["in one call", "one after the other"])
@pytest.mark.parametrize("order", ["021", "102", "120", "201", "210"])
async def test_when_it_was_said_decides_and_not_when_it_was_stored(
    ana: ScopedClient, order: str, at_once: bool
) -> None:
    ghent, york, bruges = "I live in Ghent.", "I moved to York last week.", "I live in Bruges now."
    turns = chat(ghent, york, bruges)
    said = [turns[int(place)] for place in order]
    for batch in [said] if at_once else [[turn] for turn in said]:
        await ana.remember(batch)
    pairs = {(each.old.text, each.new.text) for each in await ana.conflicts()}
    assert pairs == {(ghent, york), (york, bruges)}
    assert (await stored(ana, ghent)).valid_to == turns[1]["at"]
    assert (await stored(ana, york)).valid_to == turns[2]["at"]
    assert await texts(ana, ASKED) == [bruges]


async def test_a_statement_that_is_stored_late_respects_a_decision(ana: ScopedClient) -> None:
    ghent, york, bruges = "I live in Ghent.", "I moved to York last week.", "I live in Bruges now."
    turns = chat(ghent, york, bruges)
    await ana.remember([turns[0], turns[2]])
    await ana.reject((await stored(ana, bruges)).id)
    await ana.remember([turns[1]])
    assert (await stored(ana, york)).valid_to is None
    assert (await texts(ana, ASKED))[0] == york


async def test_a_note_that_is_stored_late_is_outdated_by_the_later_one(ana: ScopedClient) -> None:
    first, second = "The standup is at 9:30", "Standup moved to 10:00"
    later = datetime(2026, 3, 3, 9, tzinfo=UTC)
    await ana.remember(second, at=later)
    await ana.remember(first, at=datetime(2026, 3, 1, 9, tzinfo=UTC))
    assert (await stored(ana, first)).valid_to == later
    assert (await stored(ana, second)).valid_to is None
