"""Memory on and off, and sessions that leave no trace, on both databases."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memorist
from memorist import aio
from memorist.client import Client
from memorist.context import INCOGNITO, OFF
from memorist.dialects.milton import Milton
from memorist.dialects.vault import Vault
from memorist.errors import InvalidInput, Refused, StoreUnavailable
from memorist.interfaces.cli import app
from memorist.scoped import ScopedClient
from memorist.storage import SpaceSettings

TEA = "I drink green tea in the morning."
WORDS = ("Quetzalwort", "quetzalwort", "Ypsilonburg", "ypsilonburg", "chat-zq77")
SECRET = "My friend Quetzalwort moved to Ypsilonburg."


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return (
        tmp_path / "memory.db"
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )


@pytest.fixture
async def engine(where: Any, tmp_path: Path) -> AsyncIterator[Client]:
    journal = tmp_path / "journal"
    async with aio.open(
        where, embedder="hashing", state_dir=tmp_path / "state", journal_dir=journal
    ) as opened:
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope(user="ana", session="chat-1")


async def is_on(scope: ScopedClient) -> tuple[bool, bool]:
    """Whether something is taken in by itself, and whether anything is recalled."""
    receipt = await scope.remember(
        f"Today I saw {len(await scope.list(limit=1000))} herons at the river."
    )
    return receipt.count("created") == 1, bool(await scope.recall("green tea in the morning"))


@pytest.mark.spec("THE-85", "THE-86", "THE-107")
@pytest.mark.parametrize(
    ("setting", "space", "incognito"), list(itertools.product((True, False), repeat=3))
)
@pytest.mark.parametrize("environment", ["true", "False"])
async def test_any_off_wins(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: str,
    setting: bool,
    space: bool,
    incognito: bool,
) -> None:
    async with aio.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as opened:
        await opened.scope("ana").remember(TEA)
    monkeypatch.setenv("MILTON_MEMORY_ENABLED", environment)
    settings = {"embedder": "hashing", "state_dir": tmp_path, "memory_enabled": setting}
    async with aio.open(tmp_path / "memory.db", **settings) as opened:
        ana = opened.scope("ana", session="chat-1")
        await ana.privacy.set(memory_enabled=space)
        if incognito:
            await ana.privacy.start_incognito()
        expected = environment == "true" and setting and space and not incognito
        assert await is_on(ana) == (expected, expected)
        (tea,) = [memory for memory in await ana.list() if memory.text == TEA]
        await ana.pin(tea.id)
        await ana.forget(tea.id)
        assert all(memory.text != TEA for memory in await ana.list())


@pytest.mark.spec("THE-85")
async def test_settings_belong_to_one_space_and_survive(engine: Client, ana: ScopedClient) -> None:
    assert await ana.privacy.settings() == SpaceSettings()
    await ana.privacy.set(memory_enabled=False, actor="ana")
    await ana.privacy.set(incognito_default=True)
    assert await ana.privacy.settings() == SpaceSettings(
        memory_enabled=False, incognito_default=True
    )
    for other in (
        engine.scope("ana", space="work"),
        engine.scope("bo"),
        engine.scope("ana", tenant="acme"),
    ):
        assert await other.privacy.settings() == SpaceSettings()
    entries = await ana.history("settings")
    assert [(entry.actor, dict(entry.meta)) for entry in entries][-1] == (
        "ana",
        {"memory_enabled": False},
    )
    with pytest.raises(InvalidInput):
        await ana.privacy.set(memory_enabled="no")  # type: ignore[arg-type]


@pytest.mark.spec("THE-85", "THE-91")
async def test_while_memory_is_off_only_what_is_saved_on_purpose_is_kept(ana: ScopedClient) -> None:
    await ana.privacy.set(memory_enabled=False)
    refused = await ana.remember([{"id": "m1", "content": TEA}])
    assert refused.outcomes[0].status == "refused"
    assert refused.outcomes[0].reason == OFF
    assert (await ana.remember(TEA, manually_saved=True)).count("created") == 1
    answer = await ana.recall("green tea")
    assert not answer.hits
    assert answer.prompt() == ""
    assert answer.legs == {"memory": OFF}
    await ana.privacy.set(memory_enabled=True)
    assert (await ana.recall("green tea")).memories[0].text == TEA


@pytest.mark.spec("THE-86", "THE-87", "THE-107")
async def test_an_incognito_session_neither_writes_nor_reads_until_it_ends(
    engine: Client, ana: ScopedClient
) -> None:
    await engine.scope("ana").remember(TEA)
    await ana.privacy.start_incognito()
    assert (await ana.remember(SECRET, manually_saved=True)).outcomes[0].reason == INCOGNITO
    assert not (await ana.recall("green tea")).hits
    elsewhere = engine.scope("ana", session="chat-2")
    assert await is_on(elsewhere) == (True, True)
    assert (await is_on(engine.scope("bo", session="chat-1")))[0], "the same name in another scope"
    await ana.privacy.end_incognito()
    assert await is_on(ana) == (True, True)


@pytest.mark.spec("THE-107")
async def test_messages_of_an_incognito_session_are_left_out_of_a_mixed_batch(
    engine: Client,
) -> None:
    ana = engine.scope("ana")
    await ana.privacy.start_incognito("chat-zq77")
    said = [{"content": TEA, "session": "chat-2"}, {"content": SECRET, "session": "chat-zq77"}]
    receipt = await ana.remember(
        [*said, {"content": "I grow tomatoes on the balcony.", "session": "chat-3"}]
    )
    assert [outcome.status for outcome in receipt.outcomes] == ["created", "refused", "created"]
    assert not any("Quetzalwort" in memory.text for memory in await ana.list())


@pytest.mark.spec("THE-107")
async def test_a_session_named_none_is_not_the_same_as_no_session(engine: Client) -> None:
    ana = engine.scope("ana")
    await ana.remember(TEA)
    await ana.privacy.start_incognito("None")
    assert await is_on(engine.scope("ana", session="None")) == (False, False)
    assert await is_on(ana) == (True, True)


@pytest.mark.spec("THE-85", "THE-87")
async def test_sessions_can_begin_incognito_and_each_can_end_it(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.remember(TEA)
    await ana.privacy.set(incognito_default=True)
    for scope in (ana, engine.scope("ana", session="new"), engine.scope("ana")):
        assert await is_on(scope) == (False, False)
    await ana.privacy.end_incognito()
    assert await is_on(ana) == (True, True)
    assert await is_on(engine.scope("ana", session="new")) == (False, False)
    await ana.privacy.start_incognito()
    assert await is_on(ana) == (False, False)


async def test_another_process_knows_at_once(
    where: Any, engine: Client, ana: ScopedClient, tmp_path: Path
) -> None:
    async with aio.open(where, embedder="hashing", state_dir=tmp_path / "state") as other:
        await ana.remember(TEA)
        there = other.scope("ana", session="chat-1")
        assert await is_on(there) == (True, True)
        await ana.privacy.start_incognito()
        assert await is_on(there) == (False, False)
        await there.privacy.end_incognito()
        assert await is_on(ana) == (True, True)


async def test_dialects_and_other_doors_obey(engine: Client, ana: ScopedClient) -> None:
    await ana.privacy.start_incognito()
    vault, milton = Vault(engine), Milton(ana)
    assert await vault.ingest(SECRET, "ana", "chat-1") == []
    assert (await vault.recall("Quetzalwort", "ana", session_id="chat-1")).memories == []
    with pytest.raises(InvalidInput, match="incognito"):
        await milton.add(content=SECRET)
    with pytest.raises(Refused, match="incognito"):
        await ana.checkpoints.save("t", {"conversation_history": [SECRET]})
    (id,) = (await engine.scope("ana").remember(TEA)).ids
    with pytest.raises(Refused, match="incognito"):
        await ana.edit(id, SECRET)
    with pytest.raises(Refused, match="incognito"):
        await ana.why_not(SECRET, id)
    with pytest.raises(Refused, match="incognito"):
        await ana.consent.set("city", "Ypsilonburg")
    with pytest.raises(Refused, match="incognito"):
        await ana.consent.propose("city", "Ypsilonburg", evidence=[id])
    with pytest.raises(Refused, match="incognito"):
        await milton.upsert_user_profile({"stable_facts": [SECRET]}, [id])
    receipt = await ana.import_([{"content": SECRET, "role": "user"}])
    assert receipt.count("refused") == 1


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def traces(folder: Path) -> dict[str, list[str]]:
    return {
        path: there
        for path, data in files(folder).items()
        if (there := [w for w in WORDS if w.encode() in data])
    }


def rows(url: str) -> str:
    import psycopg

    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'memorist'"
        ).fetchall()
        return "\n".join(
            str(connection.execute(f"SELECT t::text FROM memorist.{name} t".encode()).fetchall())
            for (name,) in tables
        )


@pytest.mark.spec("THE-86", "THE-107")
async def test_an_incognito_session_leaves_no_byte_anywhere(
    where: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kept = {
        "state_dir": tmp_path / "state",
        "journal_dir": tmp_path / "journal",
        "spool_dir": tmp_path / "safe",
    }
    async with aio.open(where, embedder="minilm", **kept) as engine:
        ana = engine.scope("ana", session="chat-zq77", thread="chat-zq77")
        await engine.scope("ana").remember(TEA)
        await ana.privacy.start_incognito()
        before, cached = await engine.stats(), files(tmp_path / "state")
        await ana.remember(SECRET)
        await ana.remember(
            [{"id": "Quetzalwort-1", "content": SECRET, "name": "Quetzalwort"}], manually_saved=True
        )
        await ana.recall("Where does Quetzalwort live? In Ypsilonburg?")
        await ana.command("what do you remember about Quetzalwort?")
        await ana.command("forget everything about Quetzalwort from Ypsilonburg")
        await ana.query("Quetzalwort", agent="supervisor")
        await ana.forget_where("Quetzalwort in Ypsilonburg")
        await ana.delta()
        await ana.pin((await ana.list()).memories[0].id)
        with pytest.raises(Refused):
            await ana.checkpoints.save("chat-zq77", {"memory_context": {"text": SECRET}})
        assert {**await engine.stats(), "bytes": 0} == {**before, "bytes": 0}
        assert files(tmp_path / "state") == cached, "nor a vector of it"
        assert traces(tmp_path) == {}, "while it runs"
        await ana.privacy.end_incognito()
    assert traces(tmp_path) == {}, "when it is over"
    assert not any(word in caplog.text for word in WORDS)
    if isinstance(where, str):
        assert not any(word in rows(where) for word in WORDS)


@pytest.mark.spec("THE-107")
def test_an_incognito_session_stays_so_while_the_store_is_away(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with memorist.open(
        folder / "memory.db", embedder="hashing", spool_dir=tmp_path / "safe"
    ) as memory:
        ana = memory.scope("ana", session="chat-zq77")
        memory.scope("ana").remember(TEA)
        ana.privacy.start_incognito()
        folder.rename(tmp_path / "away")
        assert memory.scope("ana").remember("I grow tomatoes.").count("pending") == 1
        assert ana.remember(SECRET).outcomes[0].reason == INCOGNITO
        assert not ana.recall("green tea").hits
        assert traces(tmp_path) == {}
        (tmp_path / "away").rename(folder)


@pytest.mark.spec("THE-107")
def test_a_session_that_goes_incognito_while_the_server_is_away_is_so_at_once(
    postgres: str, database: str, tmp_path: Path
) -> None:
    import psycopg

    name = database.partition("?")[0].rpartition("/")[2]
    with (
        memorist.open(database, embedder="hashing", spool_dir=tmp_path / "safe") as memory,
        psycopg.connect(postgres, autocommit=True) as server,
    ):
        memory.scope("ana").remember(TEA)
        ana = memory.scope("ana", session="chat-zq77")
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        with pytest.raises(StoreUnavailable):
            ana.privacy.start_incognito()
        assert ana.remember(SECRET).outcomes[0].reason == INCOGNITO
        assert traces(tmp_path) == {}
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_command_line_turns_memory_off_and_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DB": tmp_path / "m.db",
        "EMBEDDER": "hashing",
        "USER": "ana",
        "STATE_DIR": tmp_path,
    }.items():
        monkeypatch.setenv(f"MEMORIST_{name}", str(value))
    assert "off" in run("privacy", "set", "off").stdout
    assert run("remember", TEA).exit_code == 4
    assert json.loads(run("privacy", "set", "on", "--json").stdout)["on"] is True
    assert run("remember", TEA).exit_code == 0
    assert json.loads(run("recall", "green tea", "--json").stdout)["hits"]
    assert run("privacy", "incognito", "start", "--session", "chat-1").exit_code == 0
    assert (
        json.loads(run("recall", "green tea", "--session", "chat-1", "--json").stdout)["hits"] == []
    )
    assert "incognito" in run("privacy", "status", "--session", "chat-1").stdout
    assert (
        run("privacy", "incognito", "end", "--session", "chat-1").stdout.strip() == "memory is on"
    )
    assert run("privacy", "incognito", "start").exit_code == 2
