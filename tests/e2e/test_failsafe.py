"""When the store is away: what is told is kept in files, said to be pending, and taken in once the store is back."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.testing import CliRunner

import memorist
from memorist import Draft, Filter, aio
from memorist.client import Client
from memorist.dialects.milton import Milton
from memorist.dialects.theoria import Theoria
from memorist.dialects.vault import Vault
from memorist.errors import InvalidInput, NotFound, StoreUnavailable
from memorist.interfaces.cli import app
from memorist.offline.replay import FIRST_LOOK, Replay
from memorist.offline.spool import Spool
from memorist.settings import Settings
from memorist.storage import person


class Disk:
    """A folder that holds a store, and can be taken away and brought back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder / "disk", folder / "state"
        self.db = self.folder / "memory.db"
        self.folder.mkdir(parents=True)

    def leave(self) -> None:
        self.folder.rename(self.folder.with_name("away"))

    def back(self) -> None:
        self.folder.with_name("away").rename(self.folder)

    def open(self, **settings: Any) -> Any:
        return memorist.open(self.db, **self.settings, **settings)

    @property
    def settings(self) -> dict[str, Any]:
        return {"embedder": "hashing", "spool_dir": self.state}

    def lines(self, name: str = "short_term") -> list[dict[str, Any]]:
        files = list(self.state.rglob(f"{name}.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def memory(disk: Disk) -> Iterator[Any]:
    with disk.open() as opened:
        yield opened


@pytest.fixture
async def engine(disk: Disk) -> AsyncIterator[Client]:
    async with aio.open(disk.db, **disk.settings) as opened:
        yield opened


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the replay to the test: the task in the background would compete with it."""

    async def wait(self: object, first: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Replay, "_until_back", wait)


def until(holds: Callable[[], object]) -> None:
    """Wait for something that happens by itself."""
    end = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def taken_in(memory: Any) -> None:
    """Wait until the store is back and nothing waits for it."""
    until(lambda: not memory._inner.offline.down and memory.stats()["pending"] == 0)


def texts(ana: Any) -> list[str]:
    return [memory.text for memory in reversed(ana.list(limit=1000).memories)]


@pytest.mark.spec("MIL-54", "MIL-56", "MIL-57")
def test_what_is_told_while_the_store_is_away_is_pending_and_later_there(
    disk: Disk, memory: Any
) -> None:
    ana = memory.scope("ana")
    ana.remember("My bike is red.")
    disk.leave()
    before = datetime.now(UTC)
    receipt = ana.remember("I moved to Porto.", tags=["home"])
    assert receipt.count("pending") == 1
    assert str(disk.state) in receipt.outcomes[0].reason
    (line,) = disk.lines()
    assert (line["record_type"], line["data"]["text"]) == ("memory_item", "I moved to Porto.")
    disk.back()
    taken_in(memory)
    there = ana.get(receipt.ids[0])
    assert there.source_ids == receipt.ids
    usual = memory.scope("bob").remember("I moved to Porto.", tags=["home"]).ids[0]
    for name in ("text", "kind", "category", "tags", "confidence", "state", "revision"):
        assert getattr(there, name) == getattr(memory.scope("bob").get(usual), name)
    assert (
        before <= there.created_at <= before + timedelta(seconds=2)
    )  # when it was told, not when it was taken in
    assert texts(ana) == ["My bike is red.", "I moved to Porto."]
    assert ana.remember("Now it is there.").count("created") == 1


def test_the_turns_of_a_conversation_keep_their_order(disk: Disk, memory: Any) -> None:
    ana = memory.scope("ana", session="s")
    ana.remember([{"id": "m0", "content": "Where shall we meet today?"}])
    disk.leave()
    for number in range(1, 6):
        ana.remember([{"id": f"m{number}", "content": f"Perhaps at gate number {number}?"}])
    disk.back()
    taken_in(memory)
    turns = sorted(ana.list(limit=100), key=lambda turn: turn.sequence)
    assert [turn.source_message_id for turn in turns] == [f"m{number}" for number in range(6)]


def test_while_another_process_takes_in_what_waits_new_words_wait_behind_it(
    disk: Disk, memory: Any
) -> None:
    ana = memory.scope("ana")
    disk.leave()
    ana.remember("My bike is red.")
    (waiting,) = disk.state.rglob("short_term.jsonl")
    with Spool(waiting.parent).alone() as mine:
        assert mine
        disk.back()
        time.sleep(3 * FIRST_LOOK)  # by now this process has reached the store
        assert ana.remember("I moved to Porto.").count("pending") == 1
    taken_in(memory)
    assert texts(ana) == ["My bike is red.", "I moved to Porto."]


def test_a_message_told_again_waits_once_and_gives_the_same_receipt(
    disk: Disk, memory: Any
) -> None:
    ana = memory.scope("ana")
    said = [{"id": "m1", "content": "The train leaves at nine."}]
    disk.leave()
    first = ana.remember(said)
    assert ana.remember(said) == first
    other = ana.remember([{"id": "m1", "content": "The train leaves at ten."}]).outcomes[0]
    assert (other.status, other.ids) == ("conflict", first.ids)
    assert len(disk.lines()) == 1
    disk.back()
    taken_in(memory)
    again = ana.remember(said).outcomes[0]
    assert (again.status, again.ids, len(texts(ana))) == ("created", first.ids, 1)


def test_what_waits_can_be_recalled_looked_at_and_filtered(disk: Disk, memory: Any) -> None:
    ana = memory.scope("ana")
    ana.remember("My bike is red.", tags=["things"])
    disk.leave()
    id = ana.remember("My cat is called Miso.", tags=["Pets"]).ids[0]
    found = ana.recall("what is the cat called?")
    assert [hit.memory.id for hit in found] == [id]
    assert ana.get(id).text == "My cat is called Miso."
    both = "the bike, the cat"
    assert [m.text for m in ana.recall(both, where=Filter(tags=("pets",))).memories] == [
        "My cat is called Miso."
    ]
    assert [m.text for m in ana.recall(both, where=Filter(tags=("things",))).memories] == [
        "My bike is red."
    ]
    assert not ana.recall("cat", where=Filter(created_before=datetime(2020, 1, 1, tzinfo=UTC))).hits
    assert not memory.scope("bob").recall("what is the cat called?").hits
    with pytest.raises((NotFound, StoreUnavailable)):
        memory.scope("bob").get(id)


def test_what_only_waits_can_be_forgotten_and_nothing_else(disk: Disk, memory: Any) -> None:
    ana = memory.scope("ana")
    kept = ana.remember("My bike is red.").ids[0]
    disk.leave()
    id = ana.remember("My password is swordfish.").ids[0]
    ana.remember("My cat is called Miso.")
    with pytest.raises((NotFound, StoreUnavailable)):
        memory.scope("bob").forget(id)
    ana.forget(id)
    assert not any(
        b"swordfish" in file.read_bytes() for file in disk.state.rglob("*") if file.is_file()
    )
    for change in (
        lambda: ana.forget(kept),
        lambda: ana.pin(kept),
        lambda: ana.edit(kept, "My bike is blue."),
    ):
        with pytest.raises(StoreUnavailable):
            change()
    disk.back()
    taken_in(memory)
    assert texts(ana) == ["My bike is red.", "My cat is called Miso."]


def test_a_text_that_was_forgotten_does_not_come_back_from_a_file(disk: Disk, memory: Any) -> None:
    ana = memory.scope("ana")
    secret = ana.remember("My password is swordfish.").ids[0]
    disk.leave()
    ana.remember("My password is swordfish.")
    disk.folder.with_name("away").rename(disk.folder)
    with disk.open(spool=False) as other:  # another process, before it is taken in
        other.scope("ana").forget(secret)
    taken_in(memory)
    assert texts(ana) == []


@pytest.fixture
async def by_default(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A memory that says where its state is kept, and nothing about fail-safe files."""
    monkeypatch.delenv("MEMORIST_SPOOL_DIR")
    async with aio.open(disk.db, embedder="hashing", state_dir=disk.state) as opened:
        yield opened


async def told_while_away(disk: Disk, engine: Client) -> None:
    milton = Milton(engine.scope("cole"))
    await milton.add(id="i1", content="Prefers tea.", type="preference")
    disk.leave()
    await milton.add(id="i2", content="Lives in Porto.", type="fact")
    await milton.upsert_user_profile({"stable_facts": ["Porto"]}, ["i1"])


@pytest.mark.spec("MIL-54", "MIL-55", "MIL-56")
async def test_milton_writes_into_two_files_in_data_memory_of_the_state(
    disk: Disk, by_default: Client
) -> None:
    await told_while_away(disk, by_default)
    folder = disk.state / "data" / "memory"
    for name, kind in (("short_term", "memory_item"), ("long_term", "user_profile")):
        (file,) = folder.rglob(f"{name}.jsonl")
        (line,) = file.read_text("utf-8").splitlines()
        assert json.loads(line)["record_type"] == kind
    disk.back()


@pytest.mark.spec("MIL-54", "MIL-55")
async def test_miltons_files_stand_where_milton_looks_for_them(
    disk: Disk, by_default: Client
) -> None:
    await told_while_away(disk, by_default)
    there = {file.relative_to(disk.state).as_posix() for file in disk.state.rglob("*_term.jsonl")}
    assert there == {"data/memory/short_term.jsonl", "data/memory/long_term.jsonl"}


@pytest.mark.spec("MIL-57")
async def test_an_item_of_no_known_type_is_refused_while_the_store_is_away(
    disk: Disk, engine: Client
) -> None:
    disk.leave()
    with suppress(InvalidInput):
        await Milton(engine.scope("cole")).add(content="Lives in Porto.", type="reqest")
    assert disk.lines() == []


@pytest.mark.spec("MIL-57")
@pytest.mark.parametrize(
    "wrong",
    [
        {"content": " "},
        {"importance": 7},
        {"ts": "soon"},
        {"tags": "tea"},
        {"evidence": [7]},
        {"request_id": "r\0"},
        {"id": "i\0"},
        {"source": "a\ud800"},
    ],
)
async def test_an_item_that_could_not_be_stored_is_refused_while_the_store_is_away(
    disk: Disk, engine: Client, wrong: dict[str, Any]
) -> None:
    disk.leave()
    with pytest.raises(InvalidInput):
        await Milton(engine.scope("cole")).add(**{"content": "Lives in Porto.", **wrong})
    assert disk.lines() == []


@pytest.mark.spec("MIL-57")
@pytest.mark.parametrize(
    ("name", "values", "evidence"),
    [("", ["sail"], ["i1"]), (7, ["sail"], ["i1"]), ("Boat", [7], ["i1"]), ("Boat", ["sail"], [7])],
)
async def test_a_record_that_could_not_be_stored_is_refused_while_the_store_is_away(
    disk: Disk, engine: Client, name: Any, values: list[Any], evidence: list[Any]
) -> None:
    disk.leave()
    with pytest.raises(InvalidInput):
        await Milton(engine.scope("cole")).upsert_project_memory(name, {"goals": values}, evidence)
    assert disk.lines("long_term") == []


def test_a_blank_text_is_skipped_while_the_store_is_away_as_usual(disk: Disk, memory: Any) -> None:
    ana = memory.scope("ana")
    blank = {"role": "user", "content": " ", "session": "s1"}
    usual = ana.remember([blank])
    disk.leave()
    assert ana.remember([blank]) == usual
    assert usual.outcomes[0].status == "skipped"
    assert disk.lines() == []


@pytest.mark.spec("MIL-55")
@pytest.mark.usefixtures("by_hand")
async def test_milton_keeps_items_and_long_term_records(disk: Disk, engine: Client) -> None:
    milton = Milton(engine.scope("cole"))
    await milton.add(id="i1", content="Prefers tea.", type="preference")
    await milton.upsert_user_profile({"preferences": ["tea"]}, ["i1"])
    disk.leave()
    assert await milton.add(id="i2", content="Lives in Porto.", type="fact") == "i2"
    assert await milton.add(id="i2", content="Lives in Porto.", type="fact") == "i2"
    made = await milton.upsert_user_profile({"stable_facts": ["Porto"]}, ["i2"])
    await milton.upsert_project_memory("Boat", {"goals": ["sail"]}, ["i1"])
    assert made.stable_facts == ("Porto",)
    assert [line["record_type"] for line in disk.lines("long_term")] == [
        "user_profile",
        "project_memory",
    ]
    with pytest.raises(InvalidInput):
        await milton.upsert_user_profile({"preferences": ["milk"]}, [])
    disk.back()
    assert (await engine.replay()) is not None
    profile = await milton.user_profile()
    assert (profile.preferences, profile.stable_facts, profile.evidence_ids) == (
        ("tea",),
        ("Porto",),
        ("i1", "i2"),
    )
    assert (await milton.project_memory("boat")).goals == ("sail",)
    assert [item.id for item in await milton.query_recent(1)] == ["i2", "i1"]


@pytest.mark.usefixtures("by_hand")
async def test_a_record_that_is_handed_over_twice_is_stored_once(
    disk: Disk, engine: Client
) -> None:
    milton, cole = Milton(engine.scope("cole")), engine.scope("cole").scope
    await milton.add(id="i1", content="Prefers tea.", type="preference")
    disk.leave()
    await milton.upsert_user_profile({"preferences": ["tea"]}, ["i1"])
    (file,) = disk.state.rglob("long_term.jsonl")
    waiting = file.read_bytes()
    disk.back()
    await engine.replay()
    before = await person.load_summaries(engine.ctx.store, cole, "user_profile")
    file.write_bytes(waiting)  # as if the process had died before it could empty the file
    await engine.replay()
    assert await person.load_summaries(engine.ctx.store, cole, "user_profile") == before
    assert not file.exists()


@pytest.mark.usefixtures("by_hand")
async def test_every_dialect_takes_in_while_the_store_is_away(disk: Disk, engine: Client) -> None:
    theoria, vault = Theoria(engine, soft_cap=50), Vault(engine)
    disk.leave()
    id = await theoria.persist_memory("ana", "lab", "The lab opens at nine.")
    chunks = await vault.ingest("My name is Ana and I work as a nurse in Porto.", "ana", "s1")
    assert [chunk.content for chunk in chunks] == ["My name is Ana and I work as a nurse in Porto."]
    disk.back()
    await engine.replay()
    assert (await engine.scope("ana", "lab").get(id)).text == "The lab opens at nine."
    answer = await vault.recall("where does Ana work?", "ana")
    assert [chunk.memory_id for chunk in answer.memories] == [chunks[0].memory_id]


async def test_a_draft_that_is_none_is_refused_and_not_written(disk: Disk, engine: Client) -> None:
    ana = engine.scope("ana")
    disk.leave()
    with pytest.raises(InvalidInput):
        await ana.remember_drafts([Draft(text="fine"), Draft(text="odd", importance=7)])
    assert disk.lines() == []


def test_it_can_be_switched_off(disk: Disk) -> None:
    with disk.open(spool=False) as memory:
        disk.leave()
        with pytest.raises(StoreUnavailable):
            memory.scope("ana").remember("I moved to Porto.")
    assert not disk.state.exists()


def test_a_wrong_place_is_an_error_when_it_is_opened(disk: Disk) -> None:
    disk.db.mkdir()
    with pytest.raises(StoreUnavailable, match="folder"):
        disk.open()
    assert not disk.state.exists()


def test_what_an_earlier_process_left_behind_is_taken_in_when_the_store_is_opened(
    disk: Disk,
) -> None:
    with disk.open() as memory:
        memory.scope("ana").remember("My bike is red.")
        disk.leave()
        memory.scope("ana").remember("I moved to Porto.")
    disk.back()
    with disk.open() as memory:
        assert texts(memory.scope("ana")) == ["My bike is red.", "I moved to Porto."]
        assert memory.stats()["pending"] == 0


async def test_opening_waits_until_everything_left_behind_is_stored(disk: Disk) -> None:
    async with aio.open(disk.db, **disk.settings) as engine:
        disk.leave()
        await engine.scope("ana").remember("I moved to Porto.")
    disk.back()
    assert len(disk.lines()) == 1
    async with aio.open(disk.db, **disk.settings):
        assert disk.lines() == []


@pytest.mark.usefixtures("by_hand")
def test_files_of_two_stores_do_not_mix(tmp_path: Path) -> None:
    one, two = Disk(tmp_path / "one"), Disk(tmp_path / "two")
    two.state = one.state
    with ExitStack() as stack:
        memories = [stack.enter_context(disk.open()) for disk in (one, two)]
        for disk, memory in zip((one, two), memories, strict=True):
            disk.leave()
            memory.scope("ana").remember(f"This belongs to {disk.folder.parent.name}.")
        one.back()
        assert memories[0].replay().taken_in == 1
        assert texts(memories[0].scope("ana")) == ["This belongs to one."]
        assert [line["data"]["text"] for line in two.lines()] == ["This belongs to two."]
        two.back()


def test_a_file_put_in_the_place_of_the_open_one_is_not_written_behind_its_back(disk: Disk) -> None:
    with disk.open() as memory:
        ana = memory.scope("ana")
        ana.remember("My bike is red.")
        memory.backup(disk.folder.parent / "copy.db")
        (disk.folder.parent / "copy.db").replace(disk.db)
        assert ana.remember("I moved to Porto.").count("pending") == 1
        time.sleep(1)
        assert len(disk.lines()) == 1  # taken in by the file that is gone, it would be lost
    for file in disk.folder.glob("memory.db-*"):
        file.unlink()
    with disk.open() as memory:
        assert texts(memory.scope("ana")) == ["My bike is red.", "I moved to Porto."]


def test_lines_that_cannot_be_used_are_set_aside_and_told(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    with disk.open() as memory:
        disk.leave()
        memory.scope("ana").remember("I moved to Porto.")
    (file,) = disk.state.rglob("short_term.jsonl")
    file.write_bytes(b'{"cut": ' + b"\n" + file.read_bytes() + b'{"record_type"')
    disk.back()
    with caplog.at_level(logging.WARNING, logger="memorist"), disk.open() as memory:
        assert texts(memory.scope("ana")) == ["I moved to Porto."]
        (aside,) = memory.stats()["set_aside"]
    assert "set aside" in caplog.text
    assert Path(aside).read_bytes() == b'{"cut": \n{"record_type"\n'


@pytest.mark.usefixtures("by_hand")
async def test_replaying_counts_what_was_stored_and_what_was_set_aside(
    disk: Disk, engine: Client
) -> None:
    ana = engine.scope("ana")
    await ana.remember([{"id": "m1", "content": "The train leaves at nine."}])
    disk.leave()
    await ana.remember(
        [{"id": "m1", "content": "The train leaves at ten."}]
    )  # another text under the same id
    await ana.remember("I moved to Porto.")
    await ana.remember("My bike is red.")
    disk.back()
    done = await engine.replay()
    assert done is not None
    assert (done.taken_in, done.set_aside, done.waiting) == (2, 1, 0)


def test_the_command_line_takes_in_and_tells_what_was_set_aside(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_SPOOL_DIR", str(disk.state))
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    with disk.open() as memory:
        disk.leave()
        memory.scope("ana").remember("I moved to Porto.")
    (file,) = disk.state.rglob("short_term.jsonl")
    file.write_bytes(file.read_bytes() + b"{\n")
    disk.back()
    done = CliRunner().invoke(app, ["--db", str(disk.db), "db", "replay"])
    assert (done.exit_code, ", 0 waiting" in done.stdout) == (0, True)
    told = CliRunner().invoke(app, ["--db", str(disk.db), "--json", "doctor"])
    findings = json.loads(told.stdout)["findings"]
    (found,) = [each["seen"] for each in findings if each["about"] == "spool"]
    assert "corrupt" in found


def test_an_address_stands_for_the_same_store_whoever_asks(tmp_path: Path) -> None:
    def folder(db: str) -> Path | None:
        made = Spool.of(Settings(db=db, spool_dir=tmp_path))
        return made and made.folder

    assert folder("postgresql://ana:secret@db/memories") == folder(
        "postgresql://bob@DB:5432/memories?sslmode=require"
    )
    assert folder("postgresql://db/memories") != folder("postgresql://db/others")
    assert folder("postgresql://one:1,two:2/memories") != folder("postgresql://one:1/memories")
    assert folder(str(tmp_path / "a.db")) == folder(str(tmp_path / "x" / ".." / "a.db"))
    assert folder(":memory:") is None


@pytest.mark.slow
def test_a_file_that_stays_locked_is_away_for_writing_only(disk: Disk, memory: Any) -> None:
    ana = memory.scope("ana")
    ana.remember("My bike is red.")
    other = apsw.Connection(str(disk.db))
    other.execute("BEGIN IMMEDIATE")
    assert ana.remember("My boat is red.").count("pending") == 1  # after half a minute
    begun = time.monotonic()
    assert ana.remember("My coat is red.").count("pending") == 1
    found = ana.recall("what is red?")
    assert (len(found.hits), found.degraded) == (3, False)
    assert time.monotonic() - begun < 1
    other.execute("ROLLBACK")
    other.close()
    until(lambda: not memory._inner.offline.down)
    assert len(texts(ana)) == 3
