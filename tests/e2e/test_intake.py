"""Clanker's way in: messages of a channel, each once and in order, with facts about who wrote them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from recollect import aio
from recollect.dialects.clanker import GUILD, Clanker
from recollect.dialects.clanker_intake import Intake
from recollect.dialects.clanker_models import embedding_model
from recollect.embedders.hashing import Hashing
from recollect.engine import Engine
from recollect.errors import EmbedderUnavailable, InvalidInput, Misconfigured
from recollect.lifecycle.journal import SNAPSHOT
from recollect.model import Filter, Memory, Message
from recollect.ports import Vectors
from recollect.text.index import meaning_of


class Counting(Hashing):
    """An embedder that notes what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        return await super().encode_batch(texts)


class Away(Hashing):
    """An embedder that never answers."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        raise EmbedderUnavailable


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Engine]:
    settings = {"embedder": "hashing", "extract": "rules", "journal_dir": tmp_path / "memory"}
    async with aio.open(place, state_dir=tmp_path, **settings) as opened:
        yield opened


def said(text: str, id: str = "m1") -> Message:
    return Message(id=id, content=text, name="Ana")


async def facts(engine: Engine, guild: str = "g1") -> list[Memory]:
    where = Filter(kinds=("semantic", "procedural"))
    return list(await engine.scope(user=GUILD, space=guild).list(where))


async def messages(engine: Engine, guild: str = "g1") -> list[Memory]:
    return list(await engine.scope(user=GUILD, space=guild).list(Filter(kinds=("episodic",)), limit=1000))


@pytest.mark.spec("CLK-15", "CLK-17", "CLK-19", "CLK-25", "CLK-26", "CLK-28", "CLK-31")
async def test_a_message_becomes_a_journal_line_facts_and_a_snapshot(engine: Engine, tmp_path: Path) -> None:
    async with Intake(engine) as intake:
        assert (tmp_path / "memory" / SNAPSHOT).exists(), "the snapshot is written at the start"
        assert await intake.ingest_message("g1", "c1", said("I'm a nurse and I love hiking."), author_id="u1")
    texts = {memory.text: memory for memory in await facts(engine)}
    assert "Ana is a nurse." in texts
    nurse = texts["Ana is a nurse."]
    assert (nurse.labels.subject, nurse.labels.channel, nurse.fact_type) == ("u1", "c1", "profile")
    assert "nurse" in (nurse.evidence_text or "")
    assert "Ana is a nurse." in (tmp_path / "memory" / SNAPSHOT).read_text(), "and again when it closes"
    (day,) = [path for path in (tmp_path / "memory").iterdir() if path.name != SNAPSHOT]
    assert day.read_text().count("I'm a nurse and I love hiking.") == 1


@pytest.mark.spec("CLK-20", "CLK-22")
async def test_the_same_message_at_the_same_time_is_one_piece_of_work(engine: Engine) -> None:
    async with Intake(engine) as intake:
        take = [intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1") for _ in range(8)]
        assert await asyncio.gather(*take) == [True] * 8
        assert await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    assert len(await messages(engine)) == 1
    (nurse,) = await facts(engine)
    assert nurse.repeat_count == 0, "facts are drawn once"


@pytest.mark.spec("CLK-21")
async def test_beyond_the_longest_line_nobody_waits_and_nothing_is_lost(engine: Engine) -> None:
    async with Intake(engine, most=2) as intake:
        take = [
            intake.ingest_message("g1", "c1", said(f"I'm a nurse in ward {n}.", f"m{n}"), author_id="u1")
            for n in range(12)
        ]
        assert await asyncio.gather(*take) == [True] * 12
    assert len(await messages(engine)) == 12
    await engine.tend(only=["extract"])
    assert {log.waiting for log in await engine.backlog() if log.name == "extract"} <= {0}


@pytest.mark.spec("CLK-21")
async def test_as_in_the_original_the_oldest_can_be_dropped(engine: Engine) -> None:
    async with Intake(engine, most=2, drop_oldest=True) as intake:
        take = [
            intake.ingest_message("g1", "c1", said(f"Hello number {n}.", f"m{n}"), author_id="u1") for n in range(9)
        ]
        taken = await asyncio.gather(*take)
    assert 0 < taken.count(False) < 9
    assert taken[-1], "the newest stays"
    assert len(await messages(engine)) == taken.count(True)


@pytest.mark.spec("CLK-18", "CLK-23", "CLK-24")
async def test_what_is_not_to_be_taken_in_is_not(engine: Engine) -> None:
    async with Intake(engine) as intake:
        assert not await intake.ingest_message("g1", "c1", said("   "), author_id="u1")
        assert not await intake.ingest_message("g1", "c1", said("x"), author_id="u1")
        with pytest.raises(InvalidInput, match="id"):
            await intake.ingest_message("g1", "c1", Message(content="no id"), author_id="u1")
        assert await intake.ingest_message("g1", "c1", said("I  am \n here " + "x" * 400, "m2"), author_id="u1")
        await engine.scope(user=GUILD, space="g1").privacy.set(memory_enabled=False)
        assert not await intake.ingest_message("g1", "c1", said("I'm a nurse.", "m3"), author_id="u1")
    (kept,) = await messages(engine)
    assert kept.text.startswith("I am here x")
    assert len(kept.text) <= 320


@pytest.mark.spec("CLK-32", "CLK-33", "CLK-34")
async def test_what_is_said_aloud_comes_in_under_an_id_of_its_own(engine: Engine) -> None:
    async with Intake(engine) as intake:
        for pipeline in ("stt", "realtime"):
            assert await intake.ingest_voice(
                "g1", "c1", "I'm a nurse.", author_id="u1", author_name="Ana", pipeline=pipeline
            )
        with pytest.raises(InvalidInput, match="stt"):
            await intake.ingest_voice("g1", "c1", "hello", author_id="u1", pipeline="radio")
    assert {memory.labels.run for memory in await messages(engine)} == {"voice_stt", "voice_realtime"}
    assert all((memory.source_message_id or "").startswith("voice_") for memory in await messages(engine))


async def test_what_was_taken_in_before_a_crash_is_worked_off_later(place: str, tmp_path: Path) -> None:
    settings = {"state_dir": tmp_path, "embedder": "hashing", "extract": "rules"}
    async with aio.open(place, **settings) as engine:
        await Clanker(engine).add_message("g1", "c1", said("I'm a nurse."), author_id="u1")  # and then it dies
    async with aio.open(place, **settings) as engine:
        assert await facts(engine) == []
        await engine.tend(only=["extract"])
        (nurse,) = await facts(engine)
        assert nurse.labels.subject == "u1"


async def test_without_extraction_it_says_what_to_do(tmp_path: Path) -> None:
    async with aio.open(":memory:", state_dir=tmp_path, embedder="hashing") as engine:
        with pytest.raises(Misconfigured, match="extract"):
            Intake(engine)


@pytest.mark.spec("CLK-84", "CLK-85", "CLK-86", "CLK-87")
async def test_what_was_done_is_logged_in_clankers_words(engine: Engine) -> None:
    bot = Clanker(engine)
    async with Intake(engine) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    await engine.tend()
    for source in ("text", "voice_stt"):
        bot.failed("g1", source)
    await engine.usage.flush()
    kinds = {action["kind"] for action in await bot.actions("g1")}
    assert kinds >= {"memory_extract_call", "memory_embedding_call", "bot_error", "voice_error"}
    assert (await bot.add_memory_fact("g1", "u1", "Ana owns a boat")).status == "created"
    assert (await bot.actions("g1"))[0]["kind"] == "memory_fact"


@pytest.mark.spec("CLK-29", "CLK-40")
async def test_facts_and_lore_get_their_vectors_and_the_snapshot_by_themselves(engine: Engine, tmp_path: Path) -> None:
    async with Intake(engine) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
        kept = await intake.remember_line("g1", "the bot owes Ana a coffee")
        assert kept.status == "created"
        assert await intake.drain_ingest_queue()
        assert {memory.needs_embedding for memory in await facts(engine)} == {False}
    assert "the bot owes Ana a coffee" in (tmp_path / "memory" / SNAPSHOT).read_text()


@pytest.mark.spec("CLK-40", "CLK-41")
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="issue 16 (trust), §5 CLK: lore of handle_reply is embedded and refreshes",
)
async def test_lore_in_a_reply_gets_its_vector_and_the_snapshot_by_itself(engine: Engine, tmp_path: Path) -> None:
    async with Intake(engine) as intake:
        await Clanker(engine).handle_reply("g1", {"memoryLine": "the bot owes Ana a coffee"})
        assert await intake.drain_ingest_queue()
    assert [memory.needs_embedding for memory in await facts(engine)] == [False]
    assert "the bot owes Ana a coffee" in (tmp_path / "memory" / SNAPSHOT).read_text()


@pytest.mark.spec("CLK-49")
async def test_an_embedder_that_fails_is_logged_and_the_next_message_comes_in(engine: Engine) -> None:
    engine.embedder = Away()
    async with Intake(engine) as intake:
        for n, text in enumerate(("I'm a nurse.", "I love hiking.")):
            assert await intake.ingest_message("g1", "c1", said(text, f"m{n}"), author_id="u1")
    assert {memory.text for memory in await facts(engine)} == {"Ana is a nurse.", "Ana loves hiking."}
    assert len(await messages(engine)) == 2
    assert "memory_embedding_error" in [action["kind"] for action in await Clanker(engine).actions("g1")]


@pytest.mark.spec("CLK-49")
async def test_a_model_that_fails_is_logged_and_the_next_message_comes_in(place: str, tmp_path: Path) -> None:
    unreachable = {"llm": "openai:m", "llm_url": "http://127.0.0.1:9/v1", "llm_key": "k", "extract": "model"}
    async with aio.open(place, state_dir=tmp_path, embedder="hashing", **unreachable) as engine:
        async with Intake(engine) as intake:
            for n, text in enumerate(("I'm a nurse.", "I love hiking.")):
                assert await intake.ingest_message("g1", "c1", said(text, f"m{n}"), author_id="u1")
        assert {memory.text for memory in await facts(engine)} == {"Ana is a nurse.", "Ana loves hiking."}
        kinds = [action["kind"] for action in await Clanker(engine).actions("g1")]
        assert kinds.count("memory_extract_error") == 2


@pytest.mark.spec("CLK-52", "CLK-54")
@pytest.mark.parametrize("asked_by", ["slice", "search"])
async def test_a_question_gives_vectors_to_eight_facts_that_have_none(engine: Engine, asked_by: str) -> None:
    bot = Clanker(engine)
    for n in range(12):
        await bot.add_memory_fact("g1", "u1", f"Ana owns boat number {n}", evidence_text=f"my boat {n}")
    if asked_by == "slice":
        await bot.build_prompt_memory_slice("g1", "u1", "which boats?")
    else:
        await bot.search_durable_facts("g1", "which boats?")
    with_vectors = [memory for memory in await facts(engine) if not memory.needs_embedding]
    assert len(with_vectors) == 8
    assert meaning_of(with_vectors[0]).splitlines()[0] == "type: other"
    assert [line.split(":")[0] for line in meaning_of(with_vectors[0]).splitlines()] == ["type", "fact", "evidence"]
    expected = (await engine.embedder.encode_batch([meaning_of(with_vectors[0])]))[0]
    (row,) = await engine.store.rows_where(with_vectors[0].scope, Filter(ids=(with_vectors[0].id,)))
    kept = await engine.store.vectors(with_vectors[0].scope, [row], model=engine.embedder.model)
    assert np.allclose(np.frombuffer(kept[row], "<f4"), expected, atol=1e-6)


@pytest.mark.spec("CLK-52")
async def test_a_fact_is_embedded_with_its_type_and_its_evidence(engine: Engine) -> None:
    engine.embedder = counting = Counting()
    bot = Clanker(engine)
    await bot.add_memory_fact("g1", "u1", "Ana owns a boat", fact_type="profile", evidence_text="my boat")
    await bot.add_memory_fact("g1", "u1", "Ana likes tea", fact_type="preference")
    await bot.build_prompt_memory_slice("g1", "u1", "which boats?")
    assert set(counting.asked) == {
        "type: profile\nfact: Ana owns a boat.\nevidence: my boat",
        "type: preference\nfact: Ana likes tea.",
        "which boats?",
    }


@pytest.mark.spec("CLK-51")
@pytest.mark.parametrize(("text", "is_embedded"), [("bo", False), (" bo  ", False), ("boa", True)])
async def test_a_question_of_fewer_than_three_characters_is_not_embedded(
    engine: Engine, text: str, is_embedded: bool
) -> None:
    bot = Clanker(engine)
    await bot.add_memory_fact("g1", "u1", "Ana owns a boat")
    await engine.tend(only=["embed"])
    engine.embedder = counting = Counting()
    await bot.build_prompt_memory_slice("g1", "u1", text, channel_id="c1")
    await bot.search_durable_facts("g1", text)
    assert bool(counting.asked) is is_embedded


@pytest.mark.spec("CLK-50", "CLK-51")
async def test_vectors_rank_facts_alone_and_not_for_a_question_of_two_letters(engine: Engine) -> None:
    bot = Clanker(engine)
    await bot.add_memory_fact("g1", "u1", "Ana owns a boat")
    await bot.add_message("g1", "c1", said("the boat leaks"), author_id="u1")
    await engine.tend()
    guild = engine.scope(user=GUILD, space="g1")
    long, short = [await guild.recall(text, profile="clanker.hybrid") for text in ("boat", "bo")]
    assert "dense" in long.legs
    assert "dense" not in short.legs
    found = await bot.build_prompt_memory_slice("g1", "u1", "vessel", channel_id="c1")
    assert found.relevant_messages == (), "messages are found by their words"
    found = await bot.build_prompt_memory_slice("g1", "u1", "the boat leaks", channel_id="c1")
    assert [memory.text for memory in found.relevant_facts] == ["Ana owns a boat."], "a message is no fact"


@pytest.mark.spec("CLK-77", "CLK-78", "CLK-79")
async def test_the_defaults_are_clankers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEFAULT_MEMORY_EMBEDDING_MODEL", raising=False)
    assert engine.settings.memory_enabled
    assert embedding_model({}) == "text-embedding-3-small"
    bot = Clanker(engine)
    for n in range(125):
        await bot.add_message("g1", "c1", said(f"message {n}", f"m{n}"), author_id="u1")
    window = await bot.recent_messages("g1", "c1")
    assert [window[0].text, window[-1].text, len(window)] == ["message 90", "message 124", 35]
    assert [len(await bot.recent_messages("g1", "c1", limit=n)) for n in (1, 50, 500)] == [10, 50, 120]
