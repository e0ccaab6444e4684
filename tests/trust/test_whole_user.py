"""Everything of one person, erased or exported: every space, key, session, checkpoint, spool line and journal line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memorist
from memorist.errors import KeyRefused
from memorist.interfaces.cli import app
from memorist.storage import erase
from memorist.storage.database import EVERY
from memorist.types import Filter
from rest_server import serving
from trust.expected import require
from trust.test_forgetting import back, files_with, store_away

WORD = "Quaggaxyz"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("ready_database"))
    (tmp_path / "data").mkdir()
    return str(tmp_path / "data" / "memory.db")


@contextmanager
def opened(place: str, folder: Path, **more: Any) -> Iterator[Any]:
    places = {"state_dir": folder / "state", "journal_dir": folder / "journal"}
    with memorist.open(place, embedder="hashing", **places, **more) as memory:
        yield memory


def live(memory: Any, user: str, word: str) -> str:
    """Store something of every kind for a user; return the token of a key."""
    for space in ("home", "work"):
        scope = memory.scope(user, space, session=f"{word}-session")
        scope.remember(
            [{"id": f"{space}1", "content": f"My doctor is {word} in the {space} street."}]
        )
        scope.remember(f"I have two {word} cats at {space}.")
        scope.edit(
            memory.scope(user, space).list(Filter(kinds=("semantic",))).memories[0].id,
            tags=[f"{word}-tag"],
        )
        scope.checkpoints.save("thread", {"graph_state": {"said": word}})
        scope.consent.set("city", f"{word}ville")
        scope.privacy.set(sharing=True)
    memory.snapshot()
    return str(memory.create_key(f"{word} key", user=user)[1])


def spaces_in(records: list[dict[str, Any]]) -> set[str]:
    memories = [each["data"] for each in records if each["record_type"] == "memory"]
    return {each["scope"]["space"] for each in memories}


def rows_of(memory: Any) -> str:
    """Return everything in the tables that belong to scopes, to users, or to nobody."""
    store = memory._inner.ctx.store
    found = []
    for table in (*erase.TABLES, "scopes", "api_keys", "answered"):
        found += memory._loop.run(store.database.rows(f"SELECT * FROM {table}", (), scope=EVERY))
    return repr(found)


def test_erasing_a_user_leaves_nothing_in_any_file_or_table(place: str, tmp_path: Path) -> None:
    with opened(place, tmp_path) as memory:
        token = live(memory, "ana", WORD)
        other = live(memory, "bob", "Zebulon")
        require(WORD in rows_of(memory) and "'ana'" in rows_of(memory))
        done = memory.erase_user("ana")
        assert (set(done.spaces), done.keys, done.journal_lines > 0) == ({"home", "work"}, 1, True)
        assert done.memories >= 4
        for trace in (WORD, "'ana'"):
            assert trace not in rows_of(memory)
        assert [scope.user for scope in memory.scopes()] == ["bob", "bob"]
        assert memory.authenticate(other).user == "bob"
        with pytest.raises(KeyRefused):
            memory.authenticate(token)
        assert len(memory.scope("bob", "home").list().memories) >= 2
        assert memory.check() == []
        assert memory.erase_user("ana").spaces == ()
    assert files_with(tmp_path, WORD) == []
    assert files_with(tmp_path / "journal", "Zebulon") != []


@pytest.mark.parametrize(
    ("user", "tenant"),
    [("ana", "other"), ("ana ", None), ("bob) (ana", None), ("a(na", None), ("an%61", None)],
)
def test_a_user_who_is_called_alike_is_somebody_else(
    tmp_path: Path, user: str, tenant: str | None
) -> None:
    (tmp_path / "data").mkdir()
    with opened(str(tmp_path / "data" / "memory.db"), tmp_path) as memory:
        memory.scope("ana").remember(f"My doctor is {WORD}.")
        memory.scope(user, None, tenant).remember("My doctor is Zebulon.")
        for who, own, other in (
            (("ana", None), WORD, "Zebulon"),
            ((user, tenant), "Zebulon", WORD),
        ):
            records = list(memory.export_user(who[0], tenant=who[1]))
            exported = json.dumps(records)
            assert (own in exported, other in exported) == (True, False)
            assert [each["record_type"] for each in records].count("journal") == 1
        assert memory.erase_user(user, tenant=tenant).journal_lines == 1
        assert "journal" in [each["record_type"] for each in memory.export_user("ana")]


def test_the_tables_of_a_scope_are_all_erased(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as memory:
        run, store = memory._loop.run, memory._inner.ctx.store
        names = run(store.database.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"))
        with_scope = set()
        for (name,) in names:
            columns = run(store.database.rows(store.database.dialect.columns, (name,)))
            if ("scope",) in columns:
                with_scope.add(name)
        assert with_scope == set(erase.TABLES)


def test_spooled_writes_of_the_user_are_erased_and_exported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with opened(str(tmp_path / "data" / "memory.db"), tmp_path) as memory:
        offline = memory._inner.offline
        memory.scope("bob").remember("I like tea.")
        with store_away(tmp_path):
            require(
                memory.scope("ana").remember(f"My safe opens with {WORD}.").count("pending") == 1
            )
            memory.scope("bob").remember("I like milk.")
            (exported,) = memory._loop.run(offline.export_user("default", "ana"))
            assert (exported["record_type"], WORD in str(exported)) == ("pending", True)
            assert memory._loop.run(offline.erase_user("default", "ana")) == 1
            assert files_with(tmp_path, WORD) == []
        back(memory)
        assert {each.text for each in memory.scope("bob").list()} == {"I like tea.", "I like milk."}


def test_a_user_who_was_erased_can_begin_again(place: str, tmp_path: Path) -> None:
    with opened(place, tmp_path) as one, opened(place, tmp_path) as two:
        one.scope("ana").remember("I like tea.")
        assert len(two.scope("ana").recall("tea")) == 1
        one.erase_user("ana")
        assert len(two.scope("ana").recall("tea")) == 0
        assert two.scope("ana").remember("I like milk.").count("created") == 1
        assert [memory.text for memory in one.scope("ana").list()] == ["I like milk."]
        assert two.check() == []


def test_an_export_of_a_user_has_every_space_and_can_be_imported(
    place: str, tmp_path: Path
) -> None:
    with opened(place, tmp_path) as memory:
        live(memory, "ana", WORD)
        live(memory, "bob", "Zebulon")
        records = list(memory.export_user("ana"))
        kinds = {record["record_type"] for record in records}
        assert {
            "memorist",
            "memory",
            "message",
            "history",
            "proposal",
            "row",
            "key",
            "journal",
        } <= kinds
        assert spaces_in(records) == {"home", "work"}
        assert "Zebulon" not in json.dumps(records)
        count = memory.stats()["memories"]
        memory.erase_user("ana")
        memory.import_(records, restore=True)
        assert memory.stats()["memories"] == count


def test_the_command_line_exports_all_spaces_and_erases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    db = tmp_path / "m.db"
    with memorist.open(db, embedder="hashing", state_dir=tmp_path) as memory:
        for space in ("home", "work"):
            memory.scope("ana", space).remember(f"My doctor in {space} is {WORD}.")

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["--db", str(db), "--user", "ana", *words])

    everything = [json.loads(line) for line in run("export").output.splitlines()]
    assert spaces_in(everything) == {"home", "work"}
    assert "home" not in run("--space", "work", "export").output
    refused = run("privacy", "erase")
    assert (refused.exit_code, "--yes" in refused.output) == (2, True)
    done = run("privacy", "erase", "--yes")
    assert (done.exit_code, "memories: 2, spaces: 2" in done.output) == (0, True)
    assert files_with(tmp_path, WORD) == []


def test_the_server_exports_and_erases_the_user_of_the_key(tmp_path: Path) -> None:
    keys = {
        "owner": {"rights": ["read", "write", "owner"]},
        "reader": {},
        "bound": {"rights": ["read", "write", "owner"], "space": "home"},
    }
    with (
        serving(str(tmp_path / "m.db"), state_dir=tmp_path, keys=keys) as server,
        server.client("owner") as client,
    ):
        for space in ("home", "work"):
            client.post(
                "/v1/memory/entries", json={"text": f"My {space} is {WORD}.", "space": space}
            )
        exported = client.get("/v1/user/export")
        assert (exported.status_code, exported.text.count('"record_type": "memory"')) == (200, 2)
        for name in ("reader", "bound"):
            with server.client(name) as other:
                assert other.delete("/v1/user").status_code == 403
                assert other.get("/v1/user/export").status_code == 403
        done = client.delete("/v1/user")
        assert (done.status_code, done.json()["spaces"]) == (200, ["home", "work"])
        assert client.get("/v1/memory/stats").status_code == 401
    assert files_with(tmp_path, WORD) == []
