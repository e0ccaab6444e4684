"""Theoria's memory through its own API, on a real file."""

import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.dialects import THEORIA
from memorist.dialects import theoria as dialect
from memorist.dialects.theoria import Theoria
from memorist.embedders import Hashing
from memorist.errors import EmbedderUnavailable, InvalidInput, Refused
from memorist.ports import Vectors
from memorist.scoped import ScopedClient
from memorist.storage import Save
from memorist.text import normalize
from memorist.types import Filter, Memory

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
USER = "6f1c1f0e-6a53-4a3e-9a43-0d7a0f5b8c11"
NOTES = (
    "Theo keeps the notes of the research group in the shared folder and everybody reads them before the weekly "
    "meeting, where we talk about open questions, new results and the plans for the next experiments in the small "
    "laboratory behind the library"
)
THREE_BITS, FOUR_BITS = (NOTES.replace("Theo ", f"Theo {word} ") for word in ("gladly", "indeed"))


class Away(Hashing):
    """An embedder that never answers."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        raise EmbedderUnavailable


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as opened:
        opened.ctx.clock = Clock(NOW)
        yield opened


@pytest.fixture
def theoria(engine: Client) -> Theoria:
    return Theoria(engine)


@pytest.fixture
def lab(engine: Client) -> ScopedClient:
    return engine.scope(user=USER, space="lab")


async def persist(theoria: Theoria, *texts: str) -> list[str]:
    return [await theoria.persist_memory(USER, "lab", text) for text in texts]


async def texts(theoria: Theoria, query: str, now: datetime = NOW, **options: int) -> list[str]:
    return [
        memory.text
        for memory in await theoria.retrieve_memories(USER, "lab", query, now, **options)
    ]


def later(engine: Client, **step: float) -> datetime:
    assert isinstance(engine.ctx.clock, Clock)
    engine.ctx.clock.now += timedelta(**step)
    return engine.ctx.clock.now


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What the file holds, read by apsw too: two SQLite libraries in one process break each other's locks."""
    file = apsw.Connection(str(path / "memory.db"), flags=apsw.SQLITE_OPEN_READONLY)
    found = file.execute(sql).fetchall()
    file.close()
    return found


# The record


@pytest.mark.spec(
    "THE-5", "THE-6", "THE-7", "THE-9", "THE-10", "THE-12", "THE-14", "THE-19", "THE-20"
)
async def test_an_entry_has_the_fields_of_the_data_model(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "I prefer tea, see https://tea.example.")
    entry = await lab.get(id)
    assert UUID(id).version == 7
    assert str(UUID(id)) == id
    assert (entry.scope.user, entry.scope.space) == (USER, "lab")
    assert (entry.text, entry.created_at) == ("I prefer tea, see https://tea.example.", NOW)
    assert (entry.needs_embedding, entry.repeat_count) == (True, 0)
    assert (entry.pinned, entry.manually_saved, entry.last_scores) == (False, False, None)


@pytest.mark.spec("THE-9")
async def test_a_text_is_kept_as_it_was_written(theoria: Theoria, lab: ScopedClient) -> None:
    text = (
        "# Porridge\n\n  two  cups of OATS [1]\n  see https://Oats.example/A"
        + "\n\nStir it slowly." * 100
    )
    (id,) = await persist(theoria, text)
    assert (await lab.get(id)).text == text


@pytest.mark.spec("THE-10")
async def test_an_entry_is_as_old_as_its_writing_whatever_time_it_tells_of(
    lab: ScopedClient,
) -> None:
    (id,) = (
        await lab.remember("The beta was shipped.", policy="theoria", at="2025-01-05T08:00:00Z")
    ).ids
    assert (await lab.get(id)).created_at == NOW


@pytest.mark.spec("THE-8")
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
async def test_an_entry_knows_the_role_that_spoke(lab: ScopedClient, role: str) -> None:
    receipt = await lab.remember(
        {"content": "The beta ships in May.", "role": role}, policy="theoria"
    )
    assert (await lab.get(receipt.ids[0])).labels.role == role


@pytest.mark.spec("THE-8")
async def test_a_role_that_does_not_exist_is_refused(lab: ScopedClient) -> None:
    with suppress(InvalidInput):
        await lab.remember(
            {"content": "The beta ships in May.", "role": "narrator"}, policy="theoria"
        )
    assert len(await lab.list()) == 0


@pytest.mark.spec("THE-11", "THE-12")
async def test_an_embedding_may_be_missing(
    theoria: Theoria, engine: Client, tmp_path: Path
) -> None:
    await persist(theoria, "The beta ships in May.")
    assert rows(tmp_path, "SELECT count(*) FROM vectors") == [(0,)]
    await engine.index()
    assert rows(tmp_path, "SELECT count(*) FROM vectors") == [(1,)]


@pytest.mark.spec("THE-13")
async def test_a_fingerprint_above_half_of_its_range_survives(
    theoria: Theoria, tmp_path: Path
) -> None:
    (id,) = await persist(theoria, "I like tea.")
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as again:
        entry = await again.scope(user=USER, space="lab").get(id)
    assert entry.simhash == normalize.simhash64("I like tea.") >= 2**63


@pytest.mark.spec("THE-15", "THE-16", "THE-17", "THE-18")
async def test_tags_sources_confidence_and_importance_come_from_the_text(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(
        theoria, "I promised Anna Weber from ACME the draft, see https://wiki.example/draft?v=2."
    )
    entry = await lab.get(id)
    assert {"anna weber", "acme"} <= {tag.lower() for tag in entry.tags}
    assert entry.source_ids == ("wiki.example/draft",)
    assert 0.6 <= entry.metadata_confidence <= 1.0
    assert entry.importance == pytest.approx(0.5)  # a commitment, and tags that are sure


@pytest.mark.spec("THE-15", "THE-16", "THE-17")
async def test_tags_and_sources_that_are_given_stand_before_those_that_are_found(
    lab: ScopedClient,
) -> None:
    text = "Anna Weber from ACME showed us the observatory."
    given = {"tags": ["Trip"], "source_ids": ["doc-1", "doc-2"]}
    (id,) = (await lab.remember(text, policy="theoria", **given)).ids
    entry = await lab.get(id)
    assert entry.tags == ("trip", "anna weber", "acme", "observatory")
    assert entry.source_ids == ("doc-1", "doc-2")
    assert entry.metadata_confidence == pytest.approx((0.9 + 0.7 + 0.4) / 3)


@pytest.mark.spec("THE-18", "THE-38", "THE-39", "THE-40", "THE-41")
@pytest.mark.parametrize(
    ("text", "wish", "expected"),
    [
        ("The sky was red.", {}, 0.0),
        ("The sky was red.", {"manually_saved": True}, 0.5),
        ("The sky was red.", {"pinned": True}, 0.5),
        ("The sky was red.", {"manually_saved": True, "pinned": True}, 0.5),
        ("I prefer tea.", {}, 0.3),
        ("I will send it.", {}, 0.3),
        ("My goal is a marathon.", {}, 0.3),
        ("My\n goal is a marathon.", {}, 0.3),
        ("We met Anna Weber.", {}, 0.2),  # a name that is sure: 0.9
        ("The observatory was closed.", {}, 0.0),  # a topic that is not: 0.4
        ("ok thanks", {"manually_saved": True}, 0.4),
        ("ok thanks", {}, 0.0),
        ("ok, thanks to the red sky", {"manually_saved": True}, 0.5),  # it says something
        ("I prefer tea with Anna Weber.", {"manually_saved": True}, 1.0),
    ],
)
async def test_importance_adds_up_from_wishes_and_words(
    lab: ScopedClient, text: str, wish: dict[str, bool], expected: float
) -> None:
    (id,) = (await lab.remember(text, policy="theoria", **wish)).ids
    assert (await lab.get(id)).importance == pytest.approx(expected)


@pytest.mark.spec("THE-38")
@pytest.mark.parametrize("when", ["while it is written", "later"])
async def test_a_pin_counts_as_an_explicit_save(lab: ScopedClient, when: str) -> None:
    (id,) = (await lab.remember("The sky was red.", policy="theoria", pinned=when != "later")).ids
    await lab.pin(id)
    entry = await lab.get(id)
    assert (entry.importance, entry.manually_saved) == (0.5, True)


@pytest.mark.spec("THE-38")
async def test_asking_to_remember_something_is_an_explicit_save(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "Remember this: the sky was red.")
    entry = await lab.get(id)
    assert (entry.importance, entry.manually_saved) == (0.5, True)


@pytest.mark.spec("THE-41")
async def test_small_talk_is_trimmed_before_an_older_statement(engine: Client) -> None:
    await persist(Theoria(engine), "The sky was red.")
    later(engine, minutes=1)
    (talk,) = await persist(Theoria(engine), "ok thanks")
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == [talk]


@pytest.mark.spec("THE-19", "THE-20")
async def test_pinning_and_saving_are_different_wishes(theoria: Theoria, lab: ScopedClient) -> None:
    id = await theoria.persist_memory(USER, "lab", "The beta ships in May.", manually_saved=True)
    assert ((await lab.get(id)).manually_saved, (await lab.get(id)).pinned) == (True, False)
    await lab.pin(id)
    assert (await lab.get(id)).pinned


@pytest.mark.spec("THE-19")
async def test_an_entry_can_be_pinned_while_it_is_written(lab: ScopedClient) -> None:
    (id,) = (await lab.remember("The beta ships in May.", policy="theoria", pinned=True)).ids
    assert (await lab.get(id)).pinned


@pytest.mark.spec("THE-21", "THE-44")
async def test_last_scores_hold_four_numbers_and_a_time(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "The beta ships in May.")
    await theoria.retrieve_memories(USER, "lab", "When does the beta ship?", NOW)
    scores = (await lab.get(id)).last_scores
    assert scores is not None
    assert set(scores) == {"relevance", "recency", "importance", "total", "computed_at"}
    assert all(
        isinstance(scores[name], float) for name in ("relevance", "recency", "importance", "total")
    )
    assert datetime.fromisoformat(scores["computed_at"]) == NOW


# Writing


@pytest.mark.spec("THE-30")
async def test_three_bits_apart_is_a_repetition_and_four_is_not(theoria: Theoria) -> None:
    print_of = normalize.simhash64
    assert [(print_of(NOTES) ^ print_of(text)).bit_count() for text in (THREE_BITS, FOUR_BITS)] == [
        3,
        4,
    ]
    first, three, four = await persist(theoria, NOTES, THREE_BITS, FOUR_BITS)
    assert three == first
    assert four != first


@pytest.mark.spec("THE-30", "THE-32", "THE-37")
async def test_what_is_said_again_in_another_session_is_one_entry(
    engine: Client, lab: ScopedClient
) -> None:
    for session in ("monday", "friday"):
        chat = engine.scope(user=USER, space="lab", session=session)
        await chat.remember(
            [{"content": "I prefer the window seat on long flights."}], policy="theoria"
        )
    assert [entry.repeat_count for entry in await lab.list()] == [1]


@pytest.mark.spec("THE-30")
async def test_a_filler_word_makes_no_new_entry(theoria: Theoria) -> None:
    said = f"Basically, {NOTES}"
    assert (normalize.simhash64(NOTES) ^ normalize.simhash64(said)).bit_count() == 1
    assert len(set(await persist(theoria, NOTES, said))) == 1


@pytest.mark.spec("THE-31")
async def test_another_space_or_person_has_its_own_entry(theoria: Theoria) -> None:
    ids = {
        await theoria.persist_memory(*whose, NOTES)
        for whose in ((USER, "lab"), (USER, "home"), ("bob", "lab"))
    }
    assert len(ids) == 3


@pytest.mark.spec("THE-32", "THE-37", "THE-113")
async def test_a_repetition_is_counted_and_makes_no_new_row(
    theoria: Theoria, lab: ScopedClient
) -> None:
    ids = await persist(
        theoria, *["I prefer green tea."] * 3, "i PREFER green tea!!  https://tea.example"
    )
    assert len(set(ids)) == len(await lab.list()) == 1
    assert (await lab.get(ids[0])).repeat_count == 3


@pytest.mark.spec("THE-32", "THE-37")
async def test_repetitions_within_one_call_are_counted(lab: ScopedClient) -> None:
    receipt = await lab.remember([{"content": "I keep bees in May."}] * 3, policy="theoria")
    assert [outcome.status for outcome in receipt.outcomes] == ["created", "merged", "merged"]
    assert [entry.repeat_count for entry in await lab.list()] == [2]


@pytest.mark.spec("THE-33", "THE-113")
async def test_importance_rises_from_its_base_with_each_repetition(
    theoria: Theoria, lab: ScopedClient
) -> None:
    seen = []
    for _ in range(9):
        (id,) = await persist(theoria, "I prefer green tea.")
        seen.append((await lab.get(id)).importance)
    base = seen[0]
    assert seen == pytest.approx(
        [min(1.0, base + min(0.3, 0.1 * math.log2(1 + n))) for n in range(9)]
    )
    assert (await lab.get(id)).base_importance == base


@pytest.mark.spec("THE-18", "THE-33")
async def test_importance_never_passes_one(theoria: Theoria, lab: ScopedClient) -> None:
    text = "I prefer green tea with Anna Weber."
    for _ in range(9):
        id = await theoria.persist_memory(USER, "lab", text, manually_saved=True)
    assert (await lab.get(id)).importance == 1.0


@pytest.mark.spec("THE-34")
async def test_saving_a_repetition_on_purpose_marks_the_entry(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, NOTES)
    assert await theoria.persist_memory(USER, "lab", NOTES, manually_saved=True) == id
    await persist(theoria, NOTES)
    assert (await lab.get(id)).manually_saved


@pytest.mark.spec("THE-35")
async def test_pinning_a_repetition_pins_the_entry(theoria: Theoria, lab: ScopedClient) -> None:
    (id,) = await persist(theoria, NOTES)
    assert (await lab.remember(NOTES, policy="theoria", pinned=True)).ids == (id,)
    await persist(theoria, NOTES)
    assert (await lab.get(id)).pinned


@pytest.mark.spec("THE-36")
async def test_tags_and_sources_of_a_repetition_are_added(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "I prefer green tea. https://a.example/1")
    before = (await lab.get(id)).tags
    await lab.remember(
        "I prefer green tea.",
        policy="theoria",
        tags=["Morning"],
        source_ids=["doc-2", "a.example/1"],
    )
    entry = await lab.get(id)
    assert set(entry.tags) == {*before, "morning"}
    assert entry.source_ids == ("a.example/1", "doc-2")


@pytest.mark.spec("THE-36")
async def test_tags_found_in_a_repetition_are_added(theoria: Theoria, lab: ScopedClient) -> None:
    first, again = await persist(theoria, NOTES, NOTES.replace("Theo ", "Theo simply "))
    assert again == first
    assert (await lab.get(first)).tags[-1] == "theo simply"


async def test_a_moved_meeting_is_no_repetition(theoria: Theoria) -> None:
    moved = (
        NOTES.replace("weekly meeting", "weekly meeting on Tuesday"),
        NOTES.replace("weekly meeting", "weekly meeting on Friday"),
    )
    ids = await persist(theoria, *moved)
    assert len(set(ids)) == 2


@pytest.mark.spec("THE-42")
async def test_a_new_entry_waits_for_its_embedding_and_gets_it(
    theoria: Theoria, engine: Client, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "The beta ships in May.")
    assert (await engine.index(dry_run=True)).found == 1
    await engine.index()
    assert not (await lab.get(id)).needs_embedding
    assert (await engine.index(dry_run=True)).found == 0


@pytest.mark.spec("THE-42")
async def test_a_new_entry_is_a_job_for_the_worker(
    theoria: Theoria, engine: Client, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "The beta ships in May.")
    assert (await lab.get(id)).needs_embedding
    assert [(job.name, job.waiting) for job in await engine.backlog()] == [("embed", 1)]
    assert (await engine.run_jobs(only=["embed"]))["embed"].changed == 1
    assert not (await lab.get(id)).needs_embedding


@pytest.mark.spec("THE-52")
async def test_persisting_applies_every_step_and_returns_the_id(
    engine: Client, lab: ScopedClient
) -> None:
    theoria = Theoria(engine, soft_cap=2)
    ids = await persist(
        theoria, "It rained.", "I prefer tea.", "Anna Weber promised the draft, https://a.example/1"
    )
    entry = await lab.get(ids[-1])
    assert (entry.repeat_count, entry.needs_embedding, entry.source_ids) == (
        0,
        True,
        ("a.example/1",),
    )
    assert entry.tags != ()
    assert not entry.manually_saved
    assert len(await lab.list()) == 2  # the cap was enforced


@pytest.mark.spec("THE-53")
async def test_the_original_is_stored_and_the_links_leave_no_mark_on_tags_and_fingerprint(
    theoria: Theoria, lab: ScopedClient
) -> None:
    text = "Anna Weber   likes Porto [3], see https://Example.com/SomePage."
    (id,) = await persist(theoria, text)
    entry = await lab.get(id)
    assert entry.text == text
    assert entry.simhash == normalize.simhash64("anna weber likes porto, see")
    assert not any("example" in tag or "somepage" in tag for tag in entry.tags)


@pytest.mark.spec("THE-53")
async def test_importance_is_that_of_the_original_text(theoria: Theoria, lab: ScopedClient) -> None:
    (id,) = await persist(
        theoria, "【I prefer tea】 was quoted."
    )  # the form for hashing leaves the quotation out
    assert (await lab.get(id)).importance == pytest.approx(0.3)


@pytest.mark.spec("THE-53")
async def test_a_long_text_is_one_entry(theoria: Theoria, lab: ScopedClient) -> None:
    long = "\n\n".join(f"Chapter {i} is about the harbour and its ships." for i in range(200))
    (id,) = await persist(theoria, long)
    assert (await lab.get(id)).text == long
    assert len(await lab.list()) == 1


@pytest.mark.spec("THE-54")
async def test_a_repetition_trims_nothing_and_waits_for_no_embedding(
    engine: Client, lab: ScopedClient
) -> None:
    await persist(Theoria(engine), "It rained.", "I prefer green tea.", "The beta ships in May.")
    await engine.index()
    await persist(Theoria(engine, soft_cap=1), "I prefer green tea.")
    assert len(await lab.list()) == 3
    assert (await engine.index(dry_run=True)).found == 0
    assert not any(entry.needs_embedding for entry in await lab.list())


async def test_what_was_forgotten_is_refused_unless_it_is_saved_on_purpose(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "I prefer green tea.")
    await lab.forget(id)
    with pytest.raises(Refused, match="it was forgotten on request"):
        await persist(theoria, "I prefer green tea.")
    assert (
        await theoria.persist_memory(USER, "lab", "I prefer green tea.", manually_saved=True) != id
    )


@pytest.mark.spec("THE-84")
async def test_what_was_forgotten_stays_away_for_exactly_a_day(
    engine: Client, theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "I prefer green tea.")
    await lab.forget(id)
    later(engine, hours=24, seconds=-1)
    with pytest.raises(Refused):
        await persist(theoria, "I prefer green tea.")
    later(engine, seconds=2)
    assert await persist(theoria, "I prefer green tea.") != [id]


@pytest.mark.spec("THE-84")
@pytest.mark.parametrize("variant", ["I prefer green tea [1].", "So I prefer green tea."])
async def test_a_variant_of_what_was_forgotten_stays_away_too(
    theoria: Theoria, lab: ScopedClient, variant: str
) -> None:
    (id,) = await persist(theoria, "I prefer green tea.")
    await lab.forget(id)
    assert (await lab.remember(variant, policy="theoria")).count("refused") == 1


# Capacity


@pytest.mark.spec("THE-24")
def test_the_soft_cap_is_two_hundred_and_can_be_chosen(engine: Client) -> None:
    assert Theoria(engine).soft_cap == 200
    assert Theoria(engine, soft_cap=50).soft_cap == 50
    assert Theoria(engine).soft_cap == 200
    with pytest.raises(InvalidInput, match="at least 1"):
        Theoria(engine, soft_cap=0)


@pytest.mark.spec("THE-24")
async def test_the_soft_cap_is_the_capacity_of_the_settings_where_there_is_one(
    tmp_path: Path,
) -> None:
    async with aio.open(
        tmp_path / "m.db", embedder="none", state_dir=tmp_path, capacity=3
    ) as engine:
        assert Theoria(engine).soft_cap == 3


@pytest.mark.spec("THE-43", "THE-46", "THE-47", "THE-50", "THE-55")
async def test_trimming_scores_what_has_no_scores(engine: Client, lab: ScopedClient) -> None:
    old, _ = await persist(Theoria(engine), "I prefer green tea.", "The beta ships in May.")
    later(engine, days=7)
    await persist(Theoria(engine), "It rained in Porto.")
    await Theoria(engine, soft_cap=2).enforce_capacity(USER, "lab")
    entry = await lab.get(old)
    recency = math.exp(-1)
    assert entry.last_scores == {
        "relevance": 0.0,
        "recency": pytest.approx(recency),
        "importance": entry.importance,
        "total": pytest.approx(recency + entry.importance),
        "computed_at": "2026-03-08T12:00:00.000000Z",
    }
    assert (entry.access_count, entry.last_accessed) == (0, None)  # nobody recalled it


@pytest.mark.spec("THE-46", "THE-47", "THE-55")
async def test_scores_made_anew_know_no_question_and_the_importance_of_now(
    engine: Client, lab: ScopedClient
) -> None:
    first, _ = await persist(Theoria(engine), "I prefer green tea.", "The beta ships in May.")
    await texts(Theoria(engine), "green tea")
    later(engine, days=3)
    await persist(Theoria(engine), "I prefer green tea.")  # said again: 0.3 + 0.1
    later(engine, days=4)
    await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab")
    scores = (await lab.get(first)).last_scores
    assert scores == {
        "relevance": 0.0,
        "recency": pytest.approx(math.exp(-1)),  # a week after it was created
        "importance": pytest.approx(0.4),
        "total": pytest.approx(math.exp(-1) + 0.4),
        "computed_at": "2026-03-08T12:00:00.000000Z",
    }


@pytest.mark.spec("THE-46")
@pytest.mark.parametrize(("hours", "is_fresh"), [(24, True), (24.01, False)])
async def test_scores_are_used_for_a_day_and_then_made_anew(
    engine: Client, lab: ScopedClient, hours: float, is_fresh: bool
) -> None:
    first, _ = await persist(Theoria(engine), "I prefer green tea.", "The beta ships in May.")
    await texts(Theoria(engine), "green tea")
    before = (await lab.get(first)).last_scores
    later(engine, hours=hours)
    await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab")
    assert ((await lab.get(first)).last_scores == before) is is_fresh


@pytest.mark.spec("THE-47")
async def test_scoring_anew_gives_the_same_scores(engine: Client, lab: ScopedClient) -> None:
    ids = await persist(
        Theoria(engine), "I prefer green tea.", "The beta ships in May.", "It rained in Porto."
    )
    seen = []
    for _ in range(2):
        await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab")
        seen.append([(await lab.get(id)).last_scores for id in ids])
        for entry in (await lab.list(Filter(states=("soft_deleted",)))).memories:
            await lab.restore(entry.id)
    assert seen[0] == seen[1]


@pytest.mark.spec("THE-48", "THE-50", "THE-51")
async def test_the_entries_with_the_smallest_totals_go_first(
    engine: Client, lab: ScopedClient
) -> None:
    theoria = Theoria(engine)
    worthless, old = await persist(theoria, "ok thanks", "We saw a heron at the lake.")
    later(engine, days=3)
    fresh, prized = await persist(theoria, "We saw a stork at the river.", "I prefer Porto.")
    gone = await Theoria(engine, soft_cap=2).enforce_capacity(USER, "lab")
    assert gone == [worthless, old]
    assert {memory.id for memory in await lab.list()} == {fresh, prized}


@pytest.mark.spec("THE-1", "THE-48", "THE-50")
async def test_an_older_entry_that_counts_for_more_outlives_newer_ones(
    engine: Client, lab: ScopedClient
) -> None:
    (prized,) = await persist(Theoria(engine), "I prefer Porto.")
    later(engine, days=1)
    plain = await persist(
        Theoria(engine), *(f"We saw {n} herons at the lake." for n in range(2, 13))
    )
    assert len(await lab.list()) == 12
    assert await Theoria(engine, soft_cap=11).enforce_capacity(USER, "lab") == plain[:1]
    assert (await lab.get(prized)).is_active


@pytest.mark.spec("THE-50")
async def test_recency_counts_as_much_as_importance(engine: Client) -> None:
    (prized,) = await persist(Theoria(engine), "I prefer tea.")  # importance 0.3
    later(engine, days=3)  # recency 0.65
    await persist(Theoria(engine), "We saw a heron at the lake.")  # importance 0, recency 1
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == [prized]


@pytest.mark.spec("THE-48", "THE-50")
async def test_what_answered_a_question_outlives_what_did_not(
    engine: Client, lab: ScopedClient
) -> None:
    theoria = Theoria(engine)
    asked, other = await persist(
        theoria, "We saw a heron at the lake.", "We saw a stork at the river."
    )
    await theoria.retrieve_memories(USER, "lab", "heron lake", NOW, top_n=8)
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == [other]
    assert (await lab.get(asked)).is_active


@pytest.mark.spec("THE-49", "THE-51")
async def test_pinned_and_saved_entries_are_never_trimmed(
    engine: Client, lab: ScopedClient
) -> None:
    theoria = Theoria(engine)
    pinned, plain = await persist(theoria, "ok thanks", "I prefer Porto and green tea.")
    saved = await theoria.persist_memory(USER, "lab", "It rained.", manually_saved=True)
    await lab.pin(pinned)
    later(engine, days=300)
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == [plain]
    assert {memory.id for memory in await lab.list()} == {pinned, saved}
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == []


@pytest.mark.spec("THE-51")
async def test_at_the_cap_nothing_happens(engine: Client, lab: ScopedClient) -> None:
    (id,) = await persist(Theoria(engine), "It rained.")
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == []
    assert (await lab.get(id)).last_scores is None


@pytest.mark.spec("THE-51")
async def test_writing_keeps_a_space_within_its_cap(engine: Client, lab: ScopedClient) -> None:
    theoria = Theoria(engine, soft_cap=5)
    await persist(
        theoria,
        *(f"We saw {animal} at the lake." for animal in "heron stork swan duck owl crow".split()),
    )
    assert len(await lab.list()) == 5


# Retrieving


@pytest.mark.spec("THE-45")
async def test_the_scores_are_on_disk_when_the_answer_is_there(
    theoria: Theoria, tmp_path: Path
) -> None:
    await persist(theoria, "The beta ships in May.")
    await texts(theoria, "when does the beta ship?", NOW + timedelta(days=7))
    ((scores,),) = rows(tmp_path, "SELECT last_scores FROM memories")
    assert '"computed_at": "2026-03-08T12:00:00.000000Z"' in str(scores)


@pytest.mark.spec("THE-21", "THE-43", "THE-44", "THE-45")
async def test_every_entry_that_answers_keeps_its_scores(theoria: Theoria, tmp_path: Path) -> None:
    await persist(theoria, "I prefer green tea.", "I prefer green tea.", "The tea is sold out.")
    await texts(theoria, "green tea", NOW + timedelta(days=7))
    first, second = (
        json.loads(str(scores)) for (scores,) in rows(tmp_path, "SELECT last_scores FROM memories")
    )
    week = pytest.approx(math.exp(-1))
    assert (first["relevance"], first["recency"], first["importance"]) == (
        1.0,
        week,
        pytest.approx(0.4),
    )
    assert first["total"] == pytest.approx(1.4 + math.exp(-1))
    assert 0 < second["relevance"] < 1
    assert second["total"] == pytest.approx(second["relevance"] + math.exp(-1))
    assert {first["computed_at"], second["computed_at"]} == {"2026-03-08T12:00:00.000000Z"}


@pytest.mark.spec("THE-43")
async def test_the_default_ranking_keeps_its_scores_too(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as engine:
        engine.ctx.clock = Clock(NOW)
        await persist(Theoria(engine), "The beta ships in May.")
        await engine.scope(user=USER, space="lab").recall("When does the beta ship?")
    ((scores,),) = rows(tmp_path, "SELECT last_scores FROM memories")
    assert json.loads(str(scores))["computed_at"] == "2026-03-01T12:00:00.000000Z"


@pytest.mark.spec("THE-56")
async def test_words_are_searched_in_texts_and_tags_of_one_space(
    theoria: Theoria, lab: ScopedClient
) -> None:
    await persist(theoria, "The heron stands in the lake.")
    await lab.remember("It stands very still.", policy="theoria", tags=["heron"])
    await theoria.persist_memory(USER, "home", "A heron in another space.")
    await theoria.persist_memory("bob", "lab", "A heron of another person.")
    assert set(await texts(theoria, "heron")) == {
        "The heron stands in the lake.",
        "It stands very still.",
    }


@pytest.mark.spec("THE-57", "THE-58")
async def test_both_legs_find_entries_and_those_without_a_vector_are_found_by_words(
    tmp_path: Path,
) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as engine:
        theoria = Theoria(engine)
        await persist(
            theoria, "She takes her espresso without sugar.", "The train to Porto leaves at noon."
        )
        await engine.index()
        await persist(theoria, "Coffee is sold out.")  # not embedded yet
        found = await texts(theoria, "How does she drink coffee?", datetime.now(UTC))
    assert set(found[:2]) == {"She takes her espresso without sugar.", "Coffee is sold out."}


@pytest.mark.spec("THE-57", "THE-58")
async def test_an_entry_without_a_vector_has_a_rank_among_the_words_alone(
    engine: Client, theoria: Theoria, lab: ScopedClient
) -> None:
    (embedded,) = await persist(theoria, "Coffee is sold out here.")
    await engine.index()
    (waiting,) = await persist(theoria, "Coffee.")
    fused = replace(THEORIA, weights={"fused": 1.0})
    scores = {hit.memory.id: hit.score for hit in (await lab.recall("coffee", profile=fused)).hits}
    assert scores == {waiting: pytest.approx(1 / 61), embedded: pytest.approx(1 / 62 + 1 / 61)}


@pytest.mark.spec("THE-59")
async def test_without_vectors_relevance_is_a_share_of_the_best_match(
    theoria: Theoria, lab: ScopedClient
) -> None:
    best, other = await persist(theoria, "Green tea.", "The tea is sold out.")
    hits = (await lab.recall("green tea", profile="theoria.triscore")).hits
    found = {hit.memory.id: hit.parts["relevance"] for hit in hits}
    assert found[best] == 1.0
    assert found[other] == pytest.approx(0.18, abs=0.05)


@pytest.mark.spec("THE-59", "THE-60", "THE-61", "THE-62")
async def test_a_score_is_relevance_and_recency_and_importance(
    engine: Client, theoria: Theoria, lab: ScopedClient
) -> None:
    (embedded,) = await persist(theoria, "I prefer green tea.")
    await engine.index()
    later(engine, days=7)
    (waiting,) = await persist(theoria, "I prefer green apples.")
    hits = {
        hit.memory.id: hit
        for hit in (await lab.recall("green tea", profile="theoria.triscore")).hits
    }
    asked, said = await engine.ctx.embedder.encode_batch(["green tea", "I prefer green tea."])
    parts = hits[embedded].parts
    assert parts["relevance"] == pytest.approx(float(asked @ said), abs=1e-6)
    assert parts["recency"] == pytest.approx(math.exp(-1))
    assert parts["importance"] == pytest.approx((await lab.get(embedded)).importance)
    assert hits[embedded].score == pytest.approx(sum(parts.values()))
    assert 0 < hits[waiting].parts["relevance"] < 1  # a share of the best sparse score


@pytest.mark.spec("THE-62")
async def test_as_shipped_relevance_recency_and_importance_count_alike(
    engine: Client, theoria: Theoria
) -> None:
    await persist(theoria, "The heron stands in the lake.")  # the best match, a fortnight old
    later(engine, days=14)
    await persist(theoria, "A heron chick flew by.", "I prefer the heron.")
    found = await texts(theoria, "Where in the lake does the heron stand?", engine.ctx.clock())
    assert found == [
        "I prefer the heron.",
        "A heron chick flew by.",
        "The heron stands in the lake.",
    ]


@pytest.mark.spec("THE-62", "THE-112")
async def test_the_weights_decide_what_is_selected(engine: Client) -> None:
    await persist(Theoria(engine), "I prefer the heron by the lake.")
    later(engine, days=60)
    await persist(Theoria(engine), "A heron came by, it was a lake heron.")
    first = {}
    for name in ("relevance", "recency", "importance"):
        tuned = replace(THEORIA, weights={name: 1.0}, diversity=None)
        first[name] = (
            await texts(Theoria(engine, profile=tuned), "lake heron", engine.ctx.clock())
        )[0]
    assert first["recency"] == "A heron came by, it was a lake heron."
    assert first["importance"] == "I prefer the heron by the lake."
    assert first["relevance"] == "A heron came by, it was a lake heron."


@pytest.mark.spec("THE-63", "THE-70", "THE-72")
async def test_of_two_that_say_the_same_the_second_gives_way(engine: Client) -> None:
    said = (
        "The heron stands in the lake.",
        "A heron is standing in the lake.",
        "Lake water is cold.",
    )
    await persist(Theoria(engine), *said)
    await engine.index()
    order = {}
    for trade in (1.0, 0.3):
        tuned = replace(THEORIA, weights={"relevance": 1.0}, diversity=trade)
        order[trade] = await texts(Theoria(engine, profile=tuned), "The heron stands in the lake")
    assert order[1.0][1] == "A heron is standing in the lake."
    assert order[0.3][1] == "Lake water is cold."


HERONS = "The heron stands in the cold lake.", "The heron stands in the cold lake today."


@pytest.mark.spec("THE-63", "THE-70", "THE-71", "THE-72")
@pytest.mark.parametrize(
    ("other", "place"),
    [("A heron walks to the cold lake.", 1), ("We saw a heron near a cold lake.", 2)],
)
async def test_as_shipped_a_repetition_gives_way_to_what_answers_nearly_as_well(
    engine: Client, theoria: Theoria, other: str, place: int
) -> None:
    await persist(theoria, "A bird sat in the lake.")
    later(engine, days=30)
    await persist(theoria, *HERONS, other)
    await engine.index()
    found = await texts(theoria, "heron in the cold lake", engine.ctx.clock())
    assert (found[0], found.index(other)) == (HERONS[0], place)


@pytest.mark.spec("THE-70")
async def test_diversity_weighs_the_whole_score_and_not_the_likeness_alone(
    engine: Client, theoria: Theoria
) -> None:
    await persist(theoria, "heron in the cold lake")  # the words of the question, a month old
    later(engine, days=30)
    await persist(theoria, *HERONS, "A heron flew over the lake.")
    await engine.index()
    found = await texts(theoria, "heron in the cold lake", engine.ctx.clock())
    assert found == [*HERONS, "A heron flew over the lake.", "heron in the cold lake"]


@pytest.mark.spec("THE-63", "THE-64", "THE-71")
async def test_as_shipped_entries_with_other_tags_are_preferred_where_there_are_no_vectors(
    engine: Client, theoria: Theoria, lab: ScopedClient
) -> None:
    await lab.remember("Old heron.", policy="theoria", tags=["rest"])
    later(engine, days=30)
    for text, tag in (
        ("heron one", "birds"),
        ("heron two", "birds"),
        ("heron three of the lake and river", "water"),
    ):
        await lab.remember(text, policy="theoria", tags=[tag])
    found = await texts(theoria, "heron", engine.ctx.clock())
    assert found == ["heron one", "heron three of the lake and river", "heron two", "Old heron."]


@pytest.mark.spec("THE-64", "THE-71")
async def test_without_vectors_entries_with_other_tags_are_preferred(
    engine: Client, lab: ScopedClient
) -> None:
    for text, tag in (
        ("heron one", "birds"),
        ("heron two", "birds"),
        ("heron three of the lake", "water"),
    ):
        await lab.remember(text, policy="theoria", tags=[tag])
        memory = (await lab.list(limit=1)).memories[0]
        async with engine.ctx.store.transaction(lab.scope) as tx:
            await tx.apply([Save(memory=replace(memory, tags=(tag,)), event="updated")])
    tuned = Theoria(engine, profile=replace(THEORIA, diversity=0.3))
    found = await texts(tuned, "heron")
    assert found.index("heron three of the lake") == 1


@pytest.mark.spec("THE-65", "THE-66")
async def test_as_many_entries_come_back_as_asked_for_sixteen_at_most_and_twelve_by_default(
    theoria: Theoria,
) -> None:
    await persist(theoria, *(f"The heron number {i} stands in lake {i}." for i in range(30)))
    found = [
        len(await texts(theoria, "heron")),
        *[len(await texts(theoria, "heron", top_n=n)) for n in (1, 10, 99)],
    ]
    assert found == [12, 1, 10, 16]


@pytest.mark.spec("THE-66", "THE-67")
async def test_by_name_the_ranking_gives_twelve_grouped_by_topic(
    theoria: Theoria, lab: ScopedClient
) -> None:
    await persist(theoria, *(f"The heron number {i} stands in lake {i}." for i in range(20)))
    answer = await lab.recall("heron", profile="theoria.triscore")
    assert len(answer.hits) == 12
    assert answer.text.startswith("## heron\n- The heron number ")


@pytest.mark.spec("THE-66")
async def test_no_more_entries_come_back_than_were_asked_for(theoria: Theoria) -> None:
    await persist(theoria, *(f"The heron number {i} stands in lake {i}." for i in range(5)))
    assert len(await texts(theoria, "heron", top_n=3)) == 3


@pytest.mark.spec("THE-65")
async def test_fewer_come_back_where_more_would_not_fit(theoria: Theoria) -> None:
    await persist(
        theoria, *(f"Heron {i}: " + f"It stands in lake {i} all day long. " * 60 for i in range(12))
    )
    found = await theoria.retrieve_memories(USER, "lab", "heron", NOW)
    assert 1 <= len(found) < 8


@pytest.mark.spec("THE-67", "THE-68", "THE-76")
async def test_context_is_grouped_by_topic_and_names_its_sources(
    theoria: Theoria, lab: ScopedClient
) -> None:
    for text, source in (("Anna Weber likes tea.", "doc-1"), ("Bob Stone likes tea.", "doc-2")):
        await lab.remember(
            text, policy="theoria", source_ids=[source, "https://big.example/" + "x" * 999]
        )
    found = await theoria.retrieve_memories(USER, "lab", "who likes tea?", NOW)
    text = dialect.context(found)
    assert sorted(memory.source_ids[0] for memory in found) == ["doc-1", "doc-2"]
    assert "- Anna Weber likes tea. (sources: doc-1, " in text
    assert text.startswith("## ")
    assert len(text) < 500


@pytest.mark.spec("THE-69")
async def test_context_shows_long_entries_by_their_summary(
    theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "The heron stands in the lake. " * 20)
    await lab.edit(id, summary="A heron at the lake.")
    text = dialect.context(await theoria.retrieve_memories(USER, "lab", "heron", NOW))
    assert "A heron at the lake." in text
    assert "stands" not in text


@pytest.mark.spec("THE-69")
async def test_a_long_entry_gets_a_summary_by_itself(engine: Client, theoria: Theoria) -> None:
    sentences = (
        f"The heron of lake {i} stands there all day and waits for fish number {i}."
        for i in range(20)
    )
    await persist(theoria, " ".join(sentences))
    await engine.run_jobs()
    found = await theoria.retrieve_memories(USER, "lab", "heron", NOW)
    assert len(dialect.context(found)) < 400


@pytest.mark.spec("THE-73")
async def test_while_the_model_is_away_what_has_vectors_is_ranked_by_words(
    engine: Client, lab: ScopedClient
) -> None:
    leads, _ = await persist(
        Theoria(engine), "Anna Weber leads the lab.", "The lab has a new lamp."
    )
    await engine.index()
    engine.ctx.embedder = Away()
    hit, other = (await lab.recall("who leads the lab?", profile="theoria.triscore")).hits
    assert (hit.memory.id, hit.parts["relevance"]) == (leads, 1.0)
    assert 0 < other.parts["relevance"] < 1


@pytest.mark.spec("THE-73", "THE-111")
async def test_without_any_embedding_words_still_answer(
    engine: Client, theoria: Theoria, lab: ScopedClient
) -> None:
    await persist(
        theoria, "The beta ships in May.", "I prefer green tea.", "Anna Weber leads the lab."
    )
    engine.ctx.embedder = Away()
    answer = await lab.recall("who leads the lab?", profile="theoria.triscore")
    assert answer.hits[0].memory.text == "Anna Weber leads the lab."
    assert (answer.legs["sparse"], answer.degraded) == ("ok", True)
    assert (await texts(theoria, "green tea"))[0] == "I prefer green tea."


@pytest.mark.spec("THE-111")
async def test_without_any_embedding_the_better_match_stands_before_the_newer_one(
    engine: Client, theoria: Theoria
) -> None:
    await persist(theoria, "The beta of the boat ships in May.")
    later(engine, days=1)
    await persist(theoria, "The crew of the gamma wears blue ships on its hats.")
    engine.ctx.embedder = Away()
    found = await texts(theoria, "When does the beta of the boat ship?", engine.ctx.clock())
    assert found[0] == "The beta of the boat ships in May."
    assert len(found) == 2


@pytest.mark.spec("THE-73", "THE-111")
async def test_with_no_embedder_configured_words_answer_too(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", embedder="none", state_dir=tmp_path) as engine:
        await persist(Theoria(engine), "The beta ships in May.", "I prefer green tea.")
        assert await texts(Theoria(engine), "When does the beta ship?", datetime.now(UTC)) == [
            "The beta ships in May."
        ]


@pytest.mark.spec("THE-76")
async def test_every_entry_brings_its_sources_along(theoria: Theoria) -> None:
    await persist(
        theoria, "The beta ships in May, see https://wiki.example/beta and www.b.example."
    )
    (found,) = await theoria.retrieve_memories(USER, "lab", "beta", NOW)
    assert isinstance(found, Memory)
    assert found.source_ids == ("wiki.example/beta", "b.example")


@pytest.mark.spec("THE-60", "THE-66")
async def test_retrieval_happens_at_the_time_it_is_given(
    engine: Client, theoria: Theoria, lab: ScopedClient
) -> None:
    (id,) = await persist(theoria, "The beta ships in May.")
    await texts(theoria, "beta", datetime(2026, 3, 15, 12))  # no zone: UTC
    scores = (await lab.get(id)).last_scores
    assert scores is not None
    assert scores["recency"] == pytest.approx(math.exp(-2))
    assert engine.ctx.clock() == NOW


@pytest.mark.spec("THE-1", "THE-2")
async def test_what_it_is_made_of_works_together(engine: Client, lab: ScopedClient) -> None:
    """Retention by score, deduplication, metadata, vectors that follow, fused recall, pin, forget and incognito."""
    theoria = Theoria(engine, soft_cap=12)
    boat = await theoria.persist_memory(USER, "lab", "I prefer the blue boat of Marta Silva.")
    assert (
        await theoria.persist_memory(USER, "lab", "I prefer the blue boat of Marta Silva!") == boat
    )
    assert (await lab.get(boat)).tags
    await lab.pin(boat)
    for n in range(30):
        await theoria.persist_memory(
            USER, "lab", f"Note {n}: tray {n} holds {n} slides of moss from site {n}."
        )
    kept = {memory.id: memory for memory in await lab.list(limit=100)}
    assert len(kept) == 12, "more than the ten of a flat list, and no more than the cap"
    assert boat in kept
    assert all(memory.needs_embedding for memory in kept.values())
    await engine.run_jobs(only=["embed"])
    assert not any(memory.needs_embedding for memory in await lab.list(limit=100))
    assert (await lab.recall("Whose boat?", profile="theoria.triscore")).memories[0].id == boat
    canoe = await theoria.persist_memory(
        USER, "lab", "I prefer the red canoe of Tom Reed."
    )  # not embedded yet
    answer = await lab.recall("Whose boat, and whose canoe?", profile="theoria.triscore")
    assert {memory.id for memory in answer.memories[:2]} == {boat, canoe}
    hidden = engine.scope(USER, "lab", session="hidden")
    await hidden.privacy.start_incognito()
    assert not (await hidden.recall("Whose boat?", profile="theoria.triscore")).hits
    await lab.forget(boat)
    assert boat not in {memory.id for memory in await lab.list(limit=100)}
