"""Theoria's memory through its own API, on a real file."""

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from clocks import Clock
from recollect import aio
from recollect.changes import Put
from recollect.dialects import theoria as dialect
from recollect.dialects.theoria import Theoria
from recollect.embedders.hashing import Hashing
from recollect.engine import Engine
from recollect.errors import EmbedderUnavailable, InvalidInput, Refused
from recollect.model import Filter, Memory
from recollect.policy import profiles
from recollect.ports import Vectors
from recollect.scoped import Scoped
from recollect.text import simhash

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
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as opened:
        opened.clock = Clock(NOW)
        yield opened


@pytest.fixture
def theoria(engine: Engine) -> Theoria:
    return Theoria(engine)


@pytest.fixture
def lab(engine: Engine) -> Scoped:
    return engine.scope(user=USER, space="lab")


async def persist(theoria: Theoria, *texts: str) -> list[str]:
    return [await theoria.persist_memory(USER, "lab", text) for text in texts]


async def texts(theoria: Theoria, query: str, now: datetime = NOW, **options: int) -> list[str]:
    return [memory.text for memory in await theoria.retrieve_memories(USER, "lab", query, now, **options)]


def later(engine: Engine, **step: float) -> datetime:
    assert isinstance(engine.clock, Clock)
    engine.clock.now += timedelta(**step)
    return engine.clock.now


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What the file holds, read by apsw too: two SQLite libraries in one process break each other's locks."""
    file = apsw.Connection(str(path / "memory.db"), flags=apsw.SQLITE_OPEN_READONLY)
    found = file.execute(sql).fetchall()
    file.close()
    return found


# The record


@pytest.mark.spec("THE-5", "THE-6", "THE-7", "THE-9", "THE-10", "THE-12", "THE-14", "THE-19", "THE-20")
async def test_an_entry_has_the_fields_of_the_data_model(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, "I prefer tea, see https://tea.example.")
    entry = await lab.get(id)
    assert UUID(id).version == 7
    assert (entry.scope.user, entry.scope.space) == (USER, "lab")
    assert (entry.text, entry.created_at) == ("I prefer tea, see https://tea.example.", NOW)
    assert (entry.needs_embedding, entry.repeat_count) == (True, 0)
    assert (entry.pinned, entry.manually_saved, entry.last_scores) == (False, False, None)


@pytest.mark.spec("THE-8")
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
async def test_an_entry_knows_the_role_that_spoke(lab: Scoped, role: str) -> None:
    receipt = await lab.remember({"content": "The beta ships in May.", "role": role}, policy="theoria")
    assert (await lab.get(receipt.ids[0])).labels.role == role


@pytest.mark.spec("THE-11", "THE-12")
async def test_an_embedding_may_be_missing(theoria: Theoria, engine: Engine, tmp_path: Path) -> None:
    await persist(theoria, "The beta ships in May.")
    assert rows(tmp_path, "SELECT count(*) FROM vectors") == [(0,)]
    await engine.index()
    assert rows(tmp_path, "SELECT count(*) FROM vectors") == [(1,)]


@pytest.mark.spec("THE-13")
async def test_a_fingerprint_above_half_of_its_range_survives(theoria: Theoria, tmp_path: Path) -> None:
    (id,) = await persist(theoria, "I like tea.")
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as again:
        entry = await again.scope(user=USER, space="lab").get(id)
    assert entry.simhash == simhash.simhash64("I like tea.") >= 2**63


@pytest.mark.spec("THE-15", "THE-16", "THE-17", "THE-18")
async def test_tags_sources_confidence_and_importance_come_from_the_text(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, "I promised Anna Weber from ACME the draft, see https://wiki.example/draft?v=2.")
    entry = await lab.get(id)
    assert {"anna weber", "acme"} <= {tag.lower() for tag in entry.tags}
    assert entry.source_ids == ("wiki.example/draft",)
    assert 0.6 <= entry.metadata_confidence <= 1.0
    assert entry.importance == pytest.approx(0.5)  # a commitment, and tags that are sure


@pytest.mark.spec("THE-19", "THE-20")
async def test_pinning_and_saving_are_different_wishes(theoria: Theoria, lab: Scoped) -> None:
    id = await theoria.persist_memory(USER, "lab", "The beta ships in May.", manually_saved=True)
    assert ((await lab.get(id)).manually_saved, (await lab.get(id)).pinned) == (True, False)
    await lab.pin(id)
    assert (await lab.get(id)).pinned


@pytest.mark.spec("THE-21", "THE-44")
async def test_last_scores_hold_four_numbers_and_a_time(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, "The beta ships in May.")
    await theoria.retrieve_memories(USER, "lab", "When does the beta ship?", NOW)
    scores = (await lab.get(id)).last_scores
    assert scores is not None
    assert set(scores) == {"relevance", "recency", "importance", "total", "computed_at"}
    assert all(isinstance(scores[name], float) for name in ("relevance", "recency", "importance", "total"))
    assert datetime.fromisoformat(scores["computed_at"]) == NOW


# Writing


@pytest.mark.spec("THE-30")
async def test_three_bits_apart_is_a_repetition_and_four_is_not(theoria: Theoria) -> None:
    print_of = simhash.simhash64
    assert [simhash.distance(print_of(NOTES), print_of(text)) for text in (THREE_BITS, FOUR_BITS)] == [3, 4]
    first, three, four = await persist(theoria, NOTES, THREE_BITS, FOUR_BITS)
    assert three == first
    assert four != first


@pytest.mark.spec("THE-31")
async def test_another_space_or_person_has_its_own_entry(theoria: Theoria) -> None:
    ids = {await theoria.persist_memory(*whose, NOTES) for whose in ((USER, "lab"), (USER, "home"), ("bob", "lab"))}
    assert len(ids) == 3


@pytest.mark.spec("THE-32", "THE-37", "THE-113")
async def test_a_repetition_is_counted_and_makes_no_new_row(theoria: Theoria, lab: Scoped) -> None:
    ids = await persist(theoria, *["I prefer green tea."] * 3, "i PREFER green tea!!  https://tea.example")
    assert len(set(ids)) == len(await lab.list()) == 1
    assert (await lab.get(ids[0])).repeat_count == 3


@pytest.mark.spec("THE-33", "THE-113")
async def test_importance_rises_from_its_base_with_each_repetition(theoria: Theoria, lab: Scoped) -> None:
    seen = []
    for _ in range(9):
        (id,) = await persist(theoria, "I prefer green tea.")
        seen.append((await lab.get(id)).importance)
    base = seen[0]
    assert seen == pytest.approx([min(1.0, base + min(0.3, 0.1 * math.log2(1 + n))) for n in range(9)])
    assert (await lab.get(id)).base_importance == base


@pytest.mark.spec("THE-33")
async def test_importance_never_passes_one(theoria: Theoria, lab: Scoped) -> None:
    text = "I prefer green tea with Anna Weber."
    for _ in range(9):
        id = await theoria.persist_memory(USER, "lab", text, manually_saved=True)
    assert (await lab.get(id)).importance == 1.0


@pytest.mark.spec("THE-34")
async def test_saving_a_repetition_on_purpose_marks_the_entry(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, NOTES)
    assert await theoria.persist_memory(USER, "lab", NOTES, manually_saved=True) == id
    await persist(theoria, NOTES)
    assert (await lab.get(id)).manually_saved


@pytest.mark.spec("THE-35")
async def test_pinning_a_repetition_pins_the_entry(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, NOTES)
    assert (await lab.remember(NOTES, policy="theoria", pinned=True)).ids == (id,)
    await persist(theoria, NOTES)
    assert (await lab.get(id)).pinned


@pytest.mark.spec("THE-36")
async def test_tags_and_sources_of_a_repetition_are_added(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, "I prefer green tea. https://a.example/1")
    before = (await lab.get(id)).tags
    await lab.remember("I prefer green tea.", policy="theoria", tags=["morning"], source_ids=["doc-2", "a.example/1"])
    entry = await lab.get(id)
    assert set(entry.tags) == {*before, "morning"}
    assert entry.source_ids == ("a.example/1", "doc-2")


async def test_a_moved_meeting_is_no_repetition(theoria: Theoria) -> None:
    moved = (
        NOTES.replace("weekly meeting", "weekly meeting on Tuesday"),
        NOTES.replace("weekly meeting", "weekly meeting on Friday"),
    )
    ids = await persist(theoria, *moved)
    assert len(set(ids)) == 2


@pytest.mark.spec("THE-42")
async def test_a_new_entry_waits_for_its_embedding_and_gets_it(theoria: Theoria, engine: Engine, lab: Scoped) -> None:
    (id,) = await persist(theoria, "The beta ships in May.")
    assert (await engine.index(dry_run=True)).found == 1
    await engine.index()
    assert not (await lab.get(id)).needs_embedding
    assert (await engine.index(dry_run=True)).found == 0


@pytest.mark.spec("THE-52")
async def test_persisting_applies_every_step_and_returns_the_id(engine: Engine, lab: Scoped) -> None:
    theoria = Theoria(engine, soft_cap=2)
    ids = await persist(theoria, "It rained.", "I prefer tea.", "Anna Weber promised the draft, https://a.example/1")
    entry = await lab.get(ids[-1])
    assert (entry.repeat_count, entry.needs_embedding, entry.source_ids) == (0, True, ("a.example/1",))
    assert entry.tags != ()
    assert len(await lab.list()) == 2  # the cap was enforced


@pytest.mark.spec("THE-53")
async def test_the_original_is_stored_and_the_links_leave_no_mark_on_tags_and_fingerprint(
    theoria: Theoria, lab: Scoped
) -> None:
    text = "Anna Weber   likes Porto [3], see https://Example.com/SomePage."
    (id,) = await persist(theoria, text)
    entry = await lab.get(id)
    assert entry.text == text
    assert entry.simhash == simhash.simhash64("anna weber likes porto, see")
    assert not any("example" in tag or "somepage" in tag for tag in entry.tags)


@pytest.mark.spec("THE-53")
async def test_a_long_text_is_one_entry(theoria: Theoria, lab: Scoped) -> None:
    long = "\n\n".join(f"Chapter {i} is about the harbour and its ships." for i in range(200))
    (id,) = await persist(theoria, long)
    assert (await lab.get(id)).text == long
    assert len(await lab.list()) == 1


@pytest.mark.spec("THE-54")
async def test_a_repetition_trims_nothing_and_waits_for_no_embedding(engine: Engine, lab: Scoped) -> None:
    await persist(Theoria(engine), "It rained.", "I prefer green tea.", "The beta ships in May.")
    await engine.index()
    await persist(Theoria(engine, soft_cap=1), "I prefer green tea.")
    assert len(await lab.list()) == 3
    assert (await engine.index(dry_run=True)).found == 0


async def test_what_was_forgotten_is_refused_unless_it_is_saved_on_purpose(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, "I prefer green tea.")
    await lab.forget(id)
    with pytest.raises(Refused, match="it was forgotten on request"):
        await persist(theoria, "I prefer green tea.")
    assert await theoria.persist_memory(USER, "lab", "I prefer green tea.", manually_saved=True) != id


# Capacity


@pytest.mark.spec("THE-24")
def test_the_soft_cap_is_two_hundred_and_can_be_chosen(engine: Engine) -> None:
    assert Theoria(engine).soft_cap == 200
    assert Theoria(engine, soft_cap=50).soft_cap == 50
    assert Theoria(engine).soft_cap == 200
    with pytest.raises(InvalidInput, match="at least 1"):
        Theoria(engine, soft_cap=0)


@pytest.mark.spec("THE-43", "THE-46", "THE-47", "THE-50", "THE-55")
async def test_trimming_scores_what_has_no_scores(engine: Engine, lab: Scoped) -> None:
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


@pytest.mark.spec("THE-46")
@pytest.mark.parametrize(("hours", "is_fresh"), [(24, True), (24.01, False)])
async def test_scores_are_used_for_a_day_and_then_made_anew(
    engine: Engine, lab: Scoped, hours: float, is_fresh: bool
) -> None:
    first, _ = await persist(Theoria(engine), "I prefer green tea.", "The beta ships in May.")
    await texts(Theoria(engine), "green tea")
    before = (await lab.get(first)).last_scores
    later(engine, hours=hours)
    await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab")
    assert ((await lab.get(first)).last_scores == before) is is_fresh


@pytest.mark.spec("THE-47")
async def test_scoring_anew_gives_the_same_scores(engine: Engine, lab: Scoped) -> None:
    ids = await persist(Theoria(engine), "I prefer green tea.", "The beta ships in May.", "It rained in Porto.")
    seen = []
    for _ in range(2):
        await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab")
        seen.append([(await lab.get(id)).last_scores for id in ids])
        for entry in (await lab.list(Filter(states=("soft_deleted",)))).memories:
            await lab.restore(entry.id)
    assert seen[0] == seen[1]


@pytest.mark.spec("THE-48", "THE-50", "THE-51")
async def test_the_entries_with_the_smallest_totals_go_first(engine: Engine, lab: Scoped) -> None:
    theoria = Theoria(engine)
    worthless, old = await persist(theoria, "ok thanks", "We saw a heron at the lake.")
    later(engine, days=3)
    fresh, prized = await persist(theoria, "We saw a stork at the river.", "I prefer Porto.")
    gone = await Theoria(engine, soft_cap=2).enforce_capacity(USER, "lab")
    assert gone == [worthless, old]
    assert {memory.id for memory in await lab.list()} == {fresh, prized}


@pytest.mark.spec("THE-48", "THE-50")
async def test_what_answered_a_question_outlives_what_did_not(engine: Engine, lab: Scoped) -> None:
    theoria = Theoria(engine)
    asked, other = await persist(theoria, "We saw a heron at the lake.", "We saw a stork at the river.")
    await theoria.retrieve_memories(USER, "lab", "heron lake", NOW, top_n=8)
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == [other]
    assert (await lab.get(asked)).is_active


@pytest.mark.spec("THE-49", "THE-51")
async def test_pinned_and_saved_entries_are_never_trimmed(engine: Engine, lab: Scoped) -> None:
    theoria = Theoria(engine)
    pinned, plain = await persist(theoria, "ok thanks", "I prefer Porto and green tea.")
    saved = await theoria.persist_memory(USER, "lab", "It rained.", manually_saved=True)
    await lab.pin(pinned)
    later(engine, days=300)
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == [plain]
    assert {memory.id for memory in await lab.list()} == {pinned, saved}
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == []


@pytest.mark.spec("THE-51")
async def test_at_the_cap_nothing_happens(engine: Engine, lab: Scoped) -> None:
    (id,) = await persist(Theoria(engine), "It rained.")
    assert await Theoria(engine, soft_cap=1).enforce_capacity(USER, "lab") == []
    assert (await lab.get(id)).last_scores is None


@pytest.mark.spec("THE-51")
async def test_writing_keeps_a_space_within_its_cap(engine: Engine, lab: Scoped) -> None:
    theoria = Theoria(engine, soft_cap=5)
    await persist(theoria, *(f"We saw {animal} at the lake." for animal in "heron stork swan duck owl crow".split()))
    assert len(await lab.list()) == 5


# Retrieving


@pytest.mark.spec("THE-45")
async def test_the_scores_are_on_disk_when_the_answer_is_there(theoria: Theoria, tmp_path: Path) -> None:
    await persist(theoria, "The beta ships in May.")
    await texts(theoria, "when does the beta ship?", NOW + timedelta(days=7))
    ((scores,),) = rows(tmp_path, "SELECT last_scores FROM memories")
    assert '"computed_at": "2026-03-08T12:00:00.000000Z"' in str(scores)


@pytest.mark.spec("THE-56")
async def test_words_are_searched_in_texts_and_tags_of_one_space(theoria: Theoria, lab: Scoped) -> None:
    await persist(theoria, "The heron stands in the lake.")
    await lab.remember("It stands very still.", policy="theoria", tags=["heron"])
    await theoria.persist_memory(USER, "home", "A heron in another space.")
    await theoria.persist_memory("bob", "lab", "A heron of another person.")
    assert set(await texts(theoria, "heron")) == {"The heron stands in the lake.", "It stands very still."}


@pytest.mark.spec("THE-57", "THE-58")
async def test_both_legs_find_entries_and_those_without_a_vector_are_found_by_words(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as engine:
        theoria = Theoria(engine)
        await persist(theoria, "She takes her espresso without sugar.", "The train to Porto leaves at noon.")
        await engine.index()
        await persist(theoria, "Coffee is sold out.")  # not embedded yet
        found = await texts(theoria, "How does she drink coffee?", datetime.now(UTC))
    assert set(found[:2]) == {"She takes her espresso without sugar.", "Coffee is sold out."}


@pytest.mark.spec("THE-59", "THE-60", "THE-61", "THE-62")
async def test_a_score_is_relevance_and_recency_and_importance(engine: Engine, theoria: Theoria, lab: Scoped) -> None:
    (embedded,) = await persist(theoria, "I prefer green tea.")
    await engine.index()
    later(engine, days=7)
    (waiting,) = await persist(theoria, "I prefer green apples.")
    hits = {hit.memory.id: hit for hit in (await lab.recall("green tea", profile="theoria.triscore")).hits}
    asked, said = await engine.embedder.encode_batch(["green tea", "I prefer green tea."])
    parts = hits[embedded].parts
    assert parts["relevance"] == pytest.approx(float(asked @ said), abs=1e-6)
    assert parts["recency"] == pytest.approx(math.exp(-1))
    assert parts["importance"] == pytest.approx((await lab.get(embedded)).importance)
    assert hits[embedded].score == pytest.approx(sum(parts.values()))
    assert 0 < hits[waiting].parts["relevance"] < 1  # a share of the best sparse score


@pytest.mark.spec("THE-62", "THE-112")
async def test_the_weights_decide_what_is_selected(engine: Engine) -> None:
    await persist(Theoria(engine), "I prefer the heron by the lake.")
    later(engine, days=60)
    await persist(Theoria(engine), "A heron came by, it was a lake heron.")
    first = {}
    for name in ("relevance", "recency", "importance"):
        tuned = replace(profiles.THEORIA, weights={name: 1.0}, diversity=None)
        first[name] = (await texts(Theoria(engine, profile=tuned), "lake heron", engine.clock()))[0]
    assert first["recency"] == "A heron came by, it was a lake heron."
    assert first["importance"] == "I prefer the heron by the lake."
    assert first["relevance"] == "A heron came by, it was a lake heron."


@pytest.mark.spec("THE-63", "THE-70", "THE-72")
async def test_of_two_that_say_the_same_the_second_gives_way(engine: Engine) -> None:
    said = "The heron stands in the lake.", "A heron is standing in the lake.", "Lake water is cold."
    await persist(Theoria(engine), *said)
    await engine.index()
    order = {}
    for trade in (1.0, 0.3):
        tuned = replace(profiles.THEORIA, weights={"relevance": 1.0}, diversity=trade)
        order[trade] = await texts(Theoria(engine, profile=tuned), "The heron stands in the lake")
    assert order[1.0][1] == "A heron is standing in the lake."
    assert order[0.3][1] == "Lake water is cold."


@pytest.mark.spec("THE-64", "THE-71")
async def test_without_vectors_entries_with_other_tags_are_preferred(engine: Engine, lab: Scoped) -> None:
    for text, tag in (("heron one", "birds"), ("heron two", "birds"), ("heron three of the lake", "water")):
        await lab.remember(text, policy="theoria", tags=[tag])
        memory = (await lab.list(limit=1)).memories[0]
        async with engine.store.transaction(lab.scope) as tx:
            await tx.apply([Put(memory=replace(memory, tags=(tag,)), event="updated")])
    tuned = Theoria(engine, profile=replace(profiles.THEORIA, diversity=0.3))
    found = await texts(tuned, "heron")
    assert found.index("heron three of the lake") == 1


@pytest.mark.spec("THE-65", "THE-66")
async def test_eight_to_sixteen_entries_come_back_and_twelve_by_default(theoria: Theoria) -> None:
    await persist(theoria, *(f"The heron number {i} stands in lake {i}." for i in range(30)))
    found = [len(await texts(theoria, "heron")), *[len(await texts(theoria, "heron", top_n=n)) for n in (1, 10, 99)]]
    assert found == [12, 8, 10, 16]


@pytest.mark.spec("THE-65")
async def test_fewer_come_back_where_more_would_not_fit(theoria: Theoria) -> None:
    await persist(theoria, *(f"Heron {i}: " + f"It stands in lake {i} all day long. " * 60 for i in range(12)))
    found = await theoria.retrieve_memories(USER, "lab", "heron", NOW)
    assert 1 <= len(found) < 8


@pytest.mark.spec("THE-67", "THE-68", "THE-76")
async def test_context_is_grouped_by_topic_and_names_its_sources(theoria: Theoria, lab: Scoped) -> None:
    for text, source in (("Anna Weber likes tea.", "doc-1"), ("Bob Stone likes tea.", "doc-2")):
        await lab.remember(text, policy="theoria", source_ids=[source, "https://big.example/" + "x" * 999])
    found = await theoria.retrieve_memories(USER, "lab", "who likes tea?", NOW)
    text = dialect.context(found)
    assert sorted(memory.source_ids[0] for memory in found) == ["doc-1", "doc-2"]
    assert "- Anna Weber likes tea. (sources: doc-1, " in text
    assert text.startswith("## ")
    assert len(text) < 500


@pytest.mark.spec("THE-69")
async def test_context_shows_long_entries_by_their_summary(theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, "The heron stands in the lake. " * 20)
    await lab.edit(id, summary="A heron at the lake.")
    text = dialect.context(await theoria.retrieve_memories(USER, "lab", "heron", NOW))
    assert "A heron at the lake." in text
    assert "stands" not in text


@pytest.mark.spec("THE-73", "THE-111")
async def test_without_any_embedding_words_still_answer(engine: Engine, theoria: Theoria, lab: Scoped) -> None:
    await persist(theoria, "The beta ships in May.", "I prefer green tea.", "Anna Weber leads the lab.")
    engine.embedder = Away()
    answer = await lab.recall("who leads the lab?", profile="theoria.triscore")
    assert answer.hits[0].memory.text == "Anna Weber leads the lab."
    assert (answer.legs["sparse"], answer.degraded) == ("ok", True)
    assert (await texts(theoria, "green tea"))[0] == "I prefer green tea."


@pytest.mark.spec("THE-111")
async def test_without_any_embedding_the_better_match_stands_before_the_newer_one(
    engine: Engine, theoria: Theoria
) -> None:
    await persist(theoria, "The beta of the boat ships in May.")
    later(engine, days=1)
    await persist(theoria, "The crew of the gamma wears blue ships on its hats.")
    engine.embedder = Away()
    found = await texts(theoria, "When does the beta of the boat ship?", engine.clock())
    assert found[0] == "The beta of the boat ships in May."
    assert len(found) == 2


@pytest.mark.spec("THE-73", "THE-111")
async def test_with_no_embedder_configured_words_answer_too(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", embedder="none", state_dir=tmp_path) as engine:
        await persist(Theoria(engine), "The beta ships in May.", "I prefer green tea.")
        assert await texts(Theoria(engine), "When does the beta ship?", datetime.now(UTC)) == ["The beta ships in May."]


@pytest.mark.spec("THE-76")
async def test_every_entry_brings_its_sources_along(theoria: Theoria) -> None:
    await persist(theoria, "The beta ships in May, see https://wiki.example/beta and www.b.example.")
    (found,) = await theoria.retrieve_memories(USER, "lab", "beta", NOW)
    assert isinstance(found, Memory)
    assert found.source_ids == ("wiki.example/beta", "b.example")


async def test_retrieval_happens_at_the_time_it_is_given(engine: Engine, theoria: Theoria, lab: Scoped) -> None:
    (id,) = await persist(theoria, "The beta ships in May.")
    await texts(theoria, "beta", datetime(2026, 3, 15, 12))  # no zone: UTC
    scores = (await lab.get(id)).last_scores
    assert scores is not None
    assert scores["recency"] == pytest.approx(math.exp(-2))
    assert engine.clock() == NOW


@pytest.mark.spec("THE-1", "THE-2")
async def test_what_it_is_made_of_works_together(engine: Engine, lab: Scoped) -> None:
    """Retention by score, deduplication, metadata, vectors that follow, fused recall, pin, forget and incognito."""
    theoria = Theoria(engine, soft_cap=12)
    boat = await theoria.persist_memory(USER, "lab", "I prefer the blue boat of Marta Silva.")
    assert await theoria.persist_memory(USER, "lab", "I prefer the blue boat of Marta Silva!") == boat
    assert (await lab.get(boat)).tags
    await lab.pin(boat)
    for n in range(30):
        await theoria.persist_memory(USER, "lab", f"Note {n}: tray {n} holds {n} slides of moss from site {n}.")
    kept = {memory.id: memory for memory in await lab.list(limit=100)}
    assert len(kept) == 12, "more than the ten of a flat list, and no more than the cap"
    assert boat in kept
    assert all(memory.needs_embedding for memory in kept.values())
    await engine.tend(only=["embed"])
    assert not any(memory.needs_embedding for memory in await lab.list(limit=100))
    assert (await lab.recall("Whose boat?", profile="theoria.triscore")).memories[0].id == boat
    hidden = engine.scope(USER, "lab", session="hidden")
    await hidden.privacy.start_incognito()
    assert not (await hidden.recall("Whose boat?", profile="theoria.triscore")).hits
    await lab.forget(boat)
    assert boat not in {memory.id for memory in await lab.list(limit=100)}
