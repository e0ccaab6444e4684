"""Clanker's way in: messages of a channel, each once and in order, with facts about who wrote them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import LoopTime
from memorist import aio
from memorist.client import Client
from memorist.dialects.clanker import GUILD, Clanker, embedding_model
from memorist.dialects.clanker.intake import Intake
from memorist.embedders import Hashing
from memorist.errors import EmbedderUnavailable, InvalidInput, Misconfigured, ModelUnavailable
from memorist.manage.journal import SNAPSHOT
from memorist.ports import Vectors
from memorist.text.prompts import Prompt
from memorist.text.tokens import meaning_of
from memorist.types import Filter, Memory, Message, Scope

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


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
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    settings = {"embedder": "hashing", "extract": "rules", "journal_dir": tmp_path / "memory"}
    async with aio.open(place, state_dir=tmp_path, **settings) as opened:
        yield opened


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[Client]:
    """The same on a file alone, for what does not depend on the database."""
    settings = {"embedder": "hashing", "extract": "rules", "journal_dir": tmp_path / "memory"}
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, **settings) as opened:
        yield opened


class Snapshot:
    """The file that people read, as it stands now."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def delete(self) -> None:
        self.path.unlink()

    def is_there(self) -> bool:
        return self.path.exists()

    def names_the_nurse(self) -> bool:
        return "Ana is a nurse." in self.path.read_text("utf-8")


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return Snapshot(tmp_path / "memory" / "MEMORY.md")


class Model:
    """A language model that finds nothing, and notes what it was asked for and how many asked it at once."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.asked, self.users, self.running, self.at_once = asyncio.Event(), list[str](), 0, 0
        self._hangs = hangs

    async def answer(self, scope: Scope, ask: Prompt) -> Mapping[str, Any]:
        self.asked.set()
        self.users.append(ask.user)
        self.running += 1
        self.at_once = max(self.at_once, self.running)
        await asyncio.sleep(3600 if self._hangs else 0.02)
        self.running -= 1
        return {"facts": []}

    async def close(self) -> None: ...


def with_model(engine: Client, *, hangs: bool = False) -> Model:
    engine.ctx.llm = model = Model(hangs=hangs)
    engine.ctx.settings = engine.settings.model_copy(update={"extract": "model"})
    return model


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what a thread does, also while the time of the loop stands still."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0)


def said(text: str, id: str = "m1") -> Message:
    return Message(id=id, content=text, name="Ana")


async def facts(engine: Client, guild: str = "g1") -> list[Memory]:
    where = Filter(kinds=("semantic", "procedural"))
    return list(await engine.scope(user=GUILD, space=guild).list(where))


async def messages(engine: Client, guild: str = "g1") -> list[Memory]:
    return list(
        await engine.scope(user=GUILD, space=guild).list(Filter(kinds=("episodic",)), limit=1000)
    )


@pytest.mark.spec("CLK-15", "CLK-17", "CLK-19", "CLK-25", "CLK-26", "CLK-28", "CLK-31")
async def test_a_message_becomes_a_journal_line_facts_and_a_snapshot(
    engine: Client, tmp_path: Path
) -> None:
    async with Intake(engine) as intake:
        assert (tmp_path / "memory" / SNAPSHOT).exists(), "the snapshot is written at the start"
        assert await intake.ingest_message(
            "g1", "c1", said("I'm a nurse and I love hiking."), author_id="u1"
        )
    texts = {memory.text: memory for memory in await facts(engine)}
    assert "Ana is a nurse." in texts
    nurse = texts["Ana is a nurse."]
    assert (nurse.labels.subject, nurse.labels.channel, nurse.fact_type) == ("u1", "c1", "profile")
    assert "nurse" in (nurse.evidence_text or "")
    assert "Ana is a nurse." in (tmp_path / "memory" / SNAPSHOT).read_text(), (
        "and again when it closes"
    )
    (day,) = [path for path in (tmp_path / "memory").iterdir() if path.name != SNAPSHOT]
    assert day.read_text().count("I'm a nurse and I love hiking.") == 1


@pytest.mark.spec("CLK-25")
async def test_each_message_is_one_line_in_the_file_of_its_day(
    file: Client, tmp_path: Path
) -> None:
    file.ctx.clock = lambda: NOW
    async with Intake(file) as intake:
        for id, text in (("m1", "I'm a nurse."), ("m2", "It rains."), ("m1", "I'm a nurse.")):
            await intake.ingest_message("g1", "c1", said(text, id), author_id="u1")
    lines = (
        (tmp_path / "memory" / f"{NOW.astimezone():%Y-%m-%d}.md")
        .read_text("utf-8")
        .splitlines()[2:]
    )
    assert [line.rpartition("] ")[2] for line in lines] == ["I'm a nurse.", "It rains."]


@pytest.mark.spec("CLK-16")
async def test_the_snapshot_is_written_again_every_five_minutes(
    file: Client, snapshot: Snapshot
) -> None:
    with LoopTime() as loop:
        async with Intake(file):
            snapshot.delete()
            await loop.forward(299)
            await file.stats()  # what had begun by now would have been done before this
            assert not snapshot.is_there()
            await loop.forward(2)
            await until(snapshot.is_there)


@pytest.mark.spec("CLK-31")
async def test_a_second_after_a_message_the_snapshot_has_its_facts(
    file: Client, snapshot: Snapshot
) -> None:
    with LoopTime() as loop:
        async with Intake(file) as intake:
            await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
            await loop.forward(0.9)
            await file.stats()
            assert not snapshot.names_the_nurse()
            await loop.forward(0.2)
            await until(snapshot.names_the_nurse)


@pytest.mark.spec("CLK-17")
async def test_what_waits_when_it_closes_is_worked_off_first(engine: Client) -> None:
    async with Intake(engine) as intake:
        take = [
            asyncio.create_task(
                intake.ingest_message(
                    "g1", "c1", said(f"I own {n} boats.", f"m{n}"), author_id=f"u{n}"
                )
            )
            for n in range(2, 7)
        ]
        await asyncio.sleep(0)  # each has been handed in
    assert [await each for each in take] == [True] * 5
    assert {fact.labels.subject for fact in await facts(engine)} == {"u2", "u3", "u4", "u5", "u6"}


@pytest.mark.spec("CLK-17")
async def test_closing_waits_no_longer_than_four_seconds(file: Client) -> None:
    model, stack = with_model(file, hangs=True), AsyncExitStack()
    with LoopTime() as loop:
        intake = await stack.enter_async_context(Intake(file))
        take = asyncio.create_task(
            intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
        )
        await model.asked.wait()
        closing = asyncio.create_task(stack.aclose())
        await loop.forward(3.9)
        assert not closing.done()
        await loop.forward(0.2)
        await closing
    await asyncio.gather(take, return_exceptions=True)
    assert [each.text for each in await messages(file)] == ["I'm a nurse."], (
        "the message itself is not lost"
    )


@pytest.mark.spec("CLK-17")
async def test_draining_gives_up_after_five_seconds(file: Client) -> None:
    model, stack = with_model(file, hangs=True), AsyncExitStack()
    with LoopTime() as loop:
        intake = await stack.enter_async_context(Intake(file))
        take = asyncio.create_task(
            intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
        )
        await model.asked.wait()
        draining = asyncio.create_task(intake.drain_ingest_queue())
        await loop.forward(4.9)
        assert not draining.done()
        await loop.forward(0.2)
        assert not await draining
        closing = asyncio.create_task(stack.aclose())
        await loop.forward(5)
        await closing
    await asyncio.gather(take, return_exceptions=True)


@pytest.mark.spec("CLK-22")
@pytest.mark.parametrize("drops", [False, True])
async def test_messages_are_worked_off_one_after_the_other_in_their_order(
    file: Client, drops: bool
) -> None:
    model, texts = with_model(file), [f"I own {n} boats." for n in range(2, 7)]
    async with Intake(file, drop_oldest=drops) as intake:
        take = [
            intake.ingest_message("g1", "c1", said(text, text), author_id="u1") for text in texts
        ]
        assert await asyncio.gather(*take) == [True] * 5
    assert [asked.rpartition("\n")[2] for asked in model.users] == texts
    assert model.at_once == 1


@pytest.mark.spec("CLK-20")
async def test_a_message_that_two_ask_for_takes_one_place_in_the_line(file: Client) -> None:
    async with Intake(file, most=2, drop_oldest=True) as intake:
        take = [
            intake.ingest_message("g1", "c1", said("I'm a nurse.", id), author_id="u1")
            for id in ("m1", "m2", "m2")
        ]
        assert await asyncio.gather(*take) == [True] * 3, (
            "a third place would have cost the first one"
        )


@pytest.mark.spec("CLK-19", "CLK-20")
async def test_messages_of_two_guilds_or_with_two_ids_are_not_the_same(file: Client) -> None:
    told = [
        ("g1", "m1", "I'm a nurse."),
        ("g2", "m1", "I'm a baker."),
        ("g1", "m2", "I own a boat."),
    ]
    async with Intake(file) as intake:
        take = [
            intake.ingest_message(guild, "c1", said(text, id), author_id="u1")
            for guild, id, text in told
        ]
        assert await asyncio.gather(*take) == [True] * 3
    assert {each.text for each in await messages(file, "g1")} == {"I'm a nurse.", "I own a boat."}
    assert [each.text for each in await messages(file, "g2")] == ["I'm a baker."]


@pytest.mark.spec("CLK-20", "CLK-22")
async def test_the_same_message_at_the_same_time_is_one_piece_of_work(engine: Client) -> None:
    async with Intake(engine) as intake:
        take = [
            intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
            for _ in range(8)
        ]
        assert await asyncio.gather(*take) == [True] * 8
        assert await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    assert len(await messages(engine)) == 1
    (nurse,) = await facts(engine)
    assert nurse.repeat_count == 0, "facts are drawn once"


@pytest.mark.spec("CLK-21")
async def test_beyond_the_longest_line_nobody_waits_and_nothing_is_lost(engine: Client) -> None:
    async with Intake(engine, most=2) as intake:
        take = [
            intake.ingest_message(
                "g1", "c1", said(f"I'm a nurse in ward {n}.", f"m{n}"), author_id="u1"
            )
            for n in range(12)
        ]
        assert await asyncio.gather(*take) == [True] * 12
    assert len(await messages(engine)) == 12
    await engine.run_jobs(only=["extract"])
    assert {log.waiting for log in await engine.backlog() if log.name == "extract"} <= {0}


@pytest.mark.spec("CLK-21")
async def test_as_in_the_original_the_oldest_can_be_dropped(engine: Client) -> None:
    async with Intake(engine, most=2, drop_oldest=True) as intake:
        take = [
            intake.ingest_message("g1", "c1", said(f"Hello number {n}.", f"m{n}"), author_id="u1")
            for n in range(9)
        ]
        taken = await asyncio.gather(*take)
    assert 0 < taken.count(False) < 9
    assert taken[-1], "the newest stays"
    assert len(await messages(engine)) == taken.count(True)


@pytest.mark.spec("CLK-21")
async def test_when_400_wait_the_next_one_drops_the_oldest(file: Client) -> None:
    stack = AsyncExitStack()
    with LoopTime() as loop:
        intake = await stack.enter_async_context(Intake(file, drop_oldest=True))
        take = [
            asyncio.create_task(
                intake.ingest_message(
                    "g1", "c1", said(f"Hello number {n}.", f"m{n}"), author_id="u1"
                )
            )
            for n in range(401)
        ]
        await asyncio.wait(take, return_when=asyncio.FIRST_COMPLETED)
        assert {n: each.result() for n, each in enumerate(take) if each.done()} == {0: False}
        closing = asyncio.create_task(stack.aclose())
        await loop.forward(5)  # without waiting for the others
        await closing
    await asyncio.gather(*take, return_exceptions=True)


@pytest.mark.spec("CLK-18")
async def test_where_the_settings_turn_memory_off_nothing_is_taken_in(tmp_path: Path) -> None:
    settings = {"embedder": "hashing", "extract": "rules", "memory_enabled": False}
    async with (
        aio.open(tmp_path / "m.db", state_dir=tmp_path, **settings) as engine,
        Intake(engine) as intake,
    ):
        assert not await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
        assert await messages(engine) == []


@pytest.mark.spec("CLK-18", "CLK-19", "CLK-23", "CLK-24")
async def test_what_is_not_to_be_taken_in_is_not(engine: Client) -> None:
    async with Intake(engine) as intake:
        assert not await intake.ingest_message("g1", "c1", said("   "), author_id="u1")
        assert not await intake.ingest_message("g1", "c1", said("x"), author_id="u1")
        assert not await intake.ingest_message("g1", "c1", said(" x \n", "m0"), author_id="u1")
        assert await intake.ingest_message("g2", "c1", said(" hi "), author_id="u1"), (
            "two characters are enough"
        )
        with pytest.raises(InvalidInput, match="id"):
            await intake.ingest_message("g1", "c1", Message(content="no id"), author_id="u1")
        assert await intake.ingest_message(
            "g1", "c1", said("I  am \n here " + "x" * 400, "m2"), author_id="u1"
        )
        await engine.scope(user=GUILD, space="g1").privacy.set(memory_enabled=False)
        assert not await intake.ingest_message(
            "g1", "c1", said("I'm a nurse.", "m3"), author_id="u1"
        )
    (kept,) = await messages(engine)
    assert kept.text == "I am here " + "x" * 310
    assert [each.text for each in await messages(engine, "g2")] == ["hi"]


@pytest.mark.spec("CLK-32", "CLK-33", "CLK-34")
async def test_what_is_said_aloud_comes_in_under_an_id_of_its_own(engine: Client) -> None:
    async with Intake(engine) as intake:
        for pipeline in ("stt", "realtime"):
            for text in ("I'm a nurse.", "I own a boat."):
                assert await intake.ingest_voice(
                    "g1", "c1", text, author_id="u1", author_name="Ana", pipeline=pipeline
                )
        with pytest.raises(InvalidInput, match="stt"):
            await intake.ingest_voice("g1", "c1", "hello", author_id="u1", pipeline="radio")
    came = sorted((memory.labels.run or "", memory.text) for memory in await messages(engine))
    assert came == [
        ("voice_realtime", "I own a boat."), ("voice_realtime", "I'm a nurse."),
        ("voice_stt", "I own a boat."), ("voice_stt", "I'm a nurse."),
    ]  # fmt: skip
    assert all(
        (memory.source_message_id or "").startswith("voice_") for memory in await messages(engine)
    )


async def test_what_was_taken_in_before_a_crash_is_worked_off_later(
    place: str, tmp_path: Path
) -> None:
    settings = {"state_dir": tmp_path, "embedder": "hashing", "extract": "rules"}
    killed = await aio.open_client(place, **settings)
    await Clanker(killed).add_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    await killed.ctx.store.close()  # nothing else is closed
    async with aio.open(place, **settings) as engine:
        assert await facts(engine) == []
        await engine.run_jobs(only=["extract"])
        (nurse,) = await facts(engine)
        assert nurse.labels.subject == "u1"


async def test_without_extraction_it_says_what_to_do(tmp_path: Path) -> None:
    settings = {"state_dir": tmp_path, "embedder": "hashing", "extract": "off"}
    async with aio.open(":memory:", **settings) as engine:
        with pytest.raises(Misconfigured, match="extract"):
            Intake(engine)


@pytest.mark.spec("CLK-84", "CLK-85", "CLK-86", "CLK-87")
async def test_what_was_done_is_logged_in_clankers_words(engine: Client) -> None:
    bot = Clanker(engine)
    async with Intake(engine) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    await engine.run_jobs()
    for source in ("text", "voice_stt"):
        bot.note_failure("g1", source)
    await engine.ctx.access_log.flush()
    kinds = {action["kind"] for action in await bot.actions("g1")}
    assert kinds >= {"memory_extract_call", "memory_embedding_call", "bot_error", "voice_error"}
    assert (await bot.add_memory_fact("g1", "u1", "Ana owns a boat")).status == "created"
    assert (await bot.actions("g1"))[0]["kind"] == "memory_fact"


@pytest.mark.spec("CLK-27")
async def test_of_one_message_four_facts_are_taken(file: Client) -> None:
    told = (
        "I hate figs. I love tea. I own a boat. I have two kids. I'm a nurse. I'm allergic to dust."
    )
    async with Intake(file) as intake:
        await intake.ingest_message("g1", "c1", said(told), author_id="u1")
    assert len(await facts(file)) == 4


@pytest.mark.spec("CLK-27")
async def test_a_model_is_asked_for_four_facts(file: Client) -> None:
    model = with_model(file)
    async with Intake(file) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    assert [asked.splitlines()[1] for asked in model.users] == ["Note at most 4 facts."]


@pytest.mark.spec("CLK-28")
async def test_a_fact_that_is_not_harmless_or_too_long_is_not_taken_from_a_message(
    file: Client,
) -> None:
    long = "I love tea" + " from the hills" * 12 + "."  # 194 characters as a fact
    async with Intake(file) as intake:
        for n, text in enumerate(("I'm a developer and I love  hiking!", long)):
            await intake.ingest_message("g1", "c1", said(text, f"m{n}"), author_id="u1")
    assert [fact.text for fact in await facts(file)] == ["Ana loves hiking."]


@pytest.mark.spec("CLK-30")
async def test_facts_drawn_from_messages_archive_the_oldest_of_more_than_80(file: Client) -> None:
    bot = Clanker(file)
    for n in range(80):
        await bot.add_memory_fact("g1", "u1", f"Ana owns boat number {n}")
    async with Intake(file) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    guild = file.scope(user=GUILD, space="g1")
    active = await guild.list(
        Filter(subjects=("u1",), kinds=("semantic", "procedural")), limit=1000
    )
    assert (len(active.memories), "Ana is a nurse." in {each.text for each in active.memories}) == (
        80,
        True,
    )
    assert [each.text for each in await guild.list(Filter(states=("archived",)))] == [
        "Ana owns boat number 0."
    ]


@pytest.mark.spec("CLK-29")
async def test_a_fact_is_kept_before_it_has_a_vector(file: Client) -> None:
    assert (await Clanker(file).add_memory_fact("g1", "u1", "Ana owns a boat")).status == "created"
    assert [fact.needs_embedding for fact in await facts(file)] == [True]


async def kinds(bot: Clanker) -> Counter[str]:
    """How often each kind of action was logged."""
    return Counter(action["kind"] for action in await bot.actions("g1"))


class ModelAway:
    """A language model that is not there."""

    async def answer(self, scope: Scope, ask: Prompt) -> Mapping[str, Any]:
        raise ModelUnavailable

    async def close(self) -> None: ...


@pytest.mark.spec("CLK-85")
async def test_an_extraction_is_logged_as_a_call_and_one_whose_model_fails_as_an_error(
    engine: Client, place: str, tmp_path: Path
) -> None:
    async with Intake(engine) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    logged = await kinds(Clanker(engine))
    assert (logged["memory_extract_call"], logged["memory_extract_error"]) == (1, 0)
    async with aio.open(place, state_dir=tmp_path, embedder="hashing", extract="model") as other:
        other.ctx.llm = ModelAway()
        async with Intake(other) as intake:
            await intake.ingest_message("g1", "c1", said("I own a boat.", "m2"), author_id="u1")
        logged = await kinds(Clanker(other))
    assert (logged["memory_extract_call"], logged["memory_extract_error"]) == (1, 1)


@pytest.mark.spec("CLK-86")
async def test_an_embedding_is_logged_as_a_call_and_one_whose_model_fails_as_an_error(
    engine: Client,
) -> None:
    bot, model = Clanker(engine), engine.ctx.embedder
    engine.ctx.embedder = Away()
    await bot.add_memory_fact("g1", "u1", "Ana owns a boat")
    await engine.run_jobs(only=["embed"])
    failed = await kinds(bot)
    engine.ctx.embedder = model
    await engine.run_jobs(only=["embed"])
    done = await kinds(bot)
    assert failed["memory_embedding_error"] == done["memory_embedding_error"] > 0
    assert (failed["memory_embedding_call"], done["memory_embedding_call"]) == (0, 1)


@pytest.mark.spec("CLK-87")
async def test_a_message_that_the_store_cannot_take_in_is_logged_as_an_error_of_its_pipeline(
    tmp_path: Path,
) -> None:
    disk, away = tmp_path / "disk", tmp_path / "away"
    disk.mkdir()
    settings = {"state_dir": tmp_path, "embedder": "hashing", "extract": "rules", "spool": False}
    async with aio.open(disk / "m.db", **settings) as engine, Intake(engine) as intake:
        assert await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
        disk.rename(away)
        assert not await intake.ingest_message(
            "g1", "c1", said("I own a boat.", "m2"), author_id="u1"
        )
        for pipeline in ("stt", "realtime"):
            assert not await intake.ingest_voice(
                "g1", "c1", "I own a boat.", author_id="u1", pipeline=pipeline
            )
        away.rename(disk)
        await engine.ctx.access_log.flush()
        logged = await kinds(Clanker(engine))
    assert (logged["bot_error"], logged["voice_error"]) == (1, 2)


@pytest.mark.spec("CLK-73")
async def test_a_journal_line_of_a_guild_names_its_author_by_name_and_id(
    engine: Client, tmp_path: Path
) -> None:
    async with Intake(engine) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
    (day,) = [path for path in (tmp_path / "memory").iterdir() if path.name != SNAPSHOT]
    (line,) = day.read_text("utf-8").splitlines()[2:]
    assert line.endswith(" | Ana (u1) | [guild:g1 channel:c1] I'm a nurse.")


@pytest.mark.spec("CLK-73")
async def test_a_journal_line_of_a_guild_holds_as_much_as_is_kept_of_its_message(
    engine: Client, tmp_path: Path
) -> None:
    async with Intake(engine) as intake:
        await intake.ingest_message("g1", "c1", said("I am here " + "x" * 400), author_id="u1")
    (day,) = [path for path in (tmp_path / "memory").iterdir() if path.name != SNAPSHOT]
    (kept,) = await messages(engine)
    (line,) = day.read_text("utf-8").splitlines()[2:]
    assert len(kept.text) == 320
    assert line.partition("] ")[2] == kept.text


@pytest.mark.spec("CLK-29", "CLK-40")
async def test_facts_and_lore_get_their_vectors_and_the_snapshot_by_themselves(
    engine: Client, tmp_path: Path
) -> None:
    async with Intake(engine) as intake:
        await intake.ingest_message("g1", "c1", said("I'm a nurse."), author_id="u1")
        kept = await intake.remember_line("g1", "the bot owes Ana a coffee")
        assert kept.status == "created"
        assert await intake.drain_ingest_queue()
        assert {memory.needs_embedding for memory in await facts(engine)} == {False}
    assert "the bot owes Ana a coffee" in (tmp_path / "memory" / SNAPSHOT).read_text()


@pytest.mark.spec("CLK-35")
async def test_a_line_is_kept_with_its_source_and_only_if_that_says_so(engine: Client) -> None:
    about = {"source_text": "the bot owes me a coffee", "source_message_id": "m1"}
    async with Intake(engine) as intake:
        for line, status in (
            ("the bot owes Ana a coffee", "created"),
            ("Ana is a tax adviser", "refused"),
        ):
            kept = await intake.remember_line("g1", line, **about, channel_id="c1")
            assert kept.status == status
    (lore,) = await facts(engine)
    assert (lore.source_message_id, lore.labels.channel) == ("m1", "c1")


@pytest.mark.spec("CLK-40", "CLK-41")
async def test_lore_in_a_reply_gets_its_vector_and_the_snapshot_by_itself(
    engine: Client, tmp_path: Path
) -> None:
    async with Intake(engine) as intake:
        await Clanker(engine).handle_reply("g1", {"memoryLine": "the bot owes Ana a coffee"})
        assert await intake.drain_ingest_queue()
    assert [memory.needs_embedding for memory in await facts(engine)] == [False]
    assert "the bot owes Ana a coffee" in (tmp_path / "memory" / SNAPSHOT).read_text()


@pytest.mark.spec("CLK-49")
async def test_an_embedder_that_fails_is_logged_and_the_next_message_comes_in(
    engine: Client,
) -> None:
    engine.ctx.embedder = Away()
    async with Intake(engine) as intake:
        for n, text in enumerate(("I'm a nurse.", "I love hiking.")):
            assert await intake.ingest_message("g1", "c1", said(text, f"m{n}"), author_id="u1")
    assert {memory.text for memory in await facts(engine)} == {
        "Ana is a nurse.",
        "Ana loves hiking.",
    }
    assert len(await messages(engine)) == 2
    assert "memory_embedding_error" in [
        action["kind"] for action in await Clanker(engine).actions("g1")
    ]


@pytest.mark.spec("CLK-49")
async def test_a_model_that_fails_is_logged_and_the_next_message_comes_in(
    place: str, tmp_path: Path
) -> None:
    unreachable = {
        "llm": "openai:m",
        "llm_url": "http://127.0.0.1:9/v1",
        "llm_key": "k",
        "extract": "model",
    }
    async with aio.open(place, state_dir=tmp_path, embedder="hashing", **unreachable) as engine:
        async with Intake(engine) as intake:
            for n, text in enumerate(("I'm a nurse.", "I love hiking.")):
                assert await intake.ingest_message("g1", "c1", said(text, f"m{n}"), author_id="u1")
        assert {memory.text for memory in await facts(engine)} == {
            "Ana is a nurse.",
            "Ana loves hiking.",
        }
        kinds = [action["kind"] for action in await Clanker(engine).actions("g1")]
        assert kinds.count("memory_extract_error") == 2


@pytest.mark.spec("CLK-52", "CLK-54")
@pytest.mark.parametrize("asked_by", ["slice", "search"])
async def test_a_question_gives_vectors_to_eight_facts_that_have_none(
    engine: Client, asked_by: str
) -> None:
    bot = Clanker(engine)
    for n in range(12):
        await bot.add_memory_fact(
            "g1", "u1", f"Ana owns boat number {n}", evidence_text=f"my boat {n}"
        )
    if asked_by == "slice":
        await bot.build_prompt_memory_slice("g1", "u1", "which boats?")
    else:
        await bot.search_durable_facts("g1", "which boats?")
    with_vectors = [memory for memory in await facts(engine) if not memory.needs_embedding]
    assert len(with_vectors) == 8
    assert meaning_of(with_vectors[0]).splitlines()[0] == "type: other"
    assert [line.split(":")[0] for line in meaning_of(with_vectors[0]).splitlines()] == [
        "type",
        "fact",
        "evidence",
    ]
    expected = (await engine.ctx.embedder.encode_batch([meaning_of(with_vectors[0])]))[0]
    (row,) = await engine.ctx.store.rows_where(
        with_vectors[0].scope, Filter(ids=(with_vectors[0].id,))
    )
    kept = await engine.ctx.store.vectors(
        with_vectors[0].scope, [row], model=engine.ctx.embedder.model
    )
    assert np.allclose(np.frombuffer(kept[row], "<f4"), expected, atol=1e-6)


@pytest.mark.spec("CLK-52")
async def test_a_fact_is_embedded_with_its_type_and_its_evidence(engine: Client) -> None:
    engine.ctx.embedder = counting = Counting()
    bot = Clanker(engine)
    await bot.add_memory_fact(
        "g1", "u1", "Ana owns a boat", fact_type="profile", evidence_text="my boat"
    )
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
    engine: Client, text: str, is_embedded: bool
) -> None:
    bot = Clanker(engine)
    await bot.add_memory_fact("g1", "u1", "Ana owns a boat")
    await engine.run_jobs(only=["embed"])
    engine.ctx.embedder = counting = Counting()
    await bot.build_prompt_memory_slice("g1", "u1", text, channel_id="c1")
    await bot.search_durable_facts("g1", text)
    assert bool(counting.asked) is is_embedded


@pytest.mark.spec("CLK-51")
async def test_without_an_embedder_facts_that_have_no_vector_are_found_by_words(
    engine: Client,
) -> None:
    bot = Clanker(engine)
    await bot.add_memory_fact("g1", "u1", "Ana owns a boat")  # its vector would be computed later
    engine.ctx.embedder = None
    found = await bot.build_prompt_memory_slice("g1", "u1", "whose boat?", channel_id="c1")
    assert [memory.text for memory in found.user_facts] == ["Ana owns a boat."]
    assert [memory.text for memory in await bot.search_durable_facts("g1", "whose boat?")] == [
        "Ana owns a boat."
    ]


@pytest.mark.spec("CLK-50", "CLK-51")
async def test_vectors_rank_facts_alone_and_not_for_a_question_of_two_letters(
    engine: Client,
) -> None:
    bot = Clanker(engine)
    await bot.add_memory_fact("g1", "u1", "Ana owns a boat")
    await bot.add_message("g1", "c1", said("the boat leaks"), author_id="u1")
    await engine.run_jobs()
    guild = engine.scope(user=GUILD, space="g1")
    long, short = [await guild.recall(text, profile="clanker.hybrid") for text in ("boat", "bo")]
    assert "dense" in long.legs
    assert "dense" not in short.legs
    found = await bot.build_prompt_memory_slice("g1", "u1", "vessel", channel_id="c1")
    assert found.relevant_messages == (), "messages are found by their words"
    found = await bot.build_prompt_memory_slice("g1", "u1", "the boat leaks", channel_id="c1")
    assert [memory.text for memory in found.relevant_facts] == ["Ana owns a boat."], (
        "a message is no fact"
    )


@pytest.mark.spec("CLK-77", "CLK-78", "CLK-79")
async def test_the_defaults_are_clankers(engine: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEFAULT_MEMORY_EMBEDDING_MODEL", raising=False)
    assert engine.settings.memory_enabled
    assert embedding_model({}) == "text-embedding-3-small"
    bot = Clanker(engine)
    for n in range(125):
        await bot.add_message("g1", "c1", said(f"message {n}", f"m{n}"), author_id="u1")
    window = await bot.recent_messages("g1", "c1")
    assert [window[0].text, window[-1].text, len(window)] == ["message 90", "message 124", 35]
    assert [len(await bot.recent_messages("g1", "c1", limit=n)) for n in (1, 50, 500)] == [
        10,
        50,
        120,
    ]
