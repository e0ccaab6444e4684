"""A damaged file loses nothing that stood before the damage, whatever its format."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.readers import find, read
from memorist.readers.source import ImportRun
from memorist.scoped import ScopedClient
from memorist.types import Draft

from . import formats

CELLO = "I play the cello in a quartet."
COUNT = 40
TEXTS = [f"Note {number} is about the garden." for number in range(COUNT)]


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    options = {"state_dir": tmp_path / "state", "embedder": "hashing", "extract": "off"}
    async with aio.open(tmp_path / "m.db", **options) as memory:
        yield memory.scope("ana")


def chatgpt() -> Any:
    said = [formats.chatgpt_message(f"m{n}", "user", text) for n, text in enumerate(TEXTS)]
    return [formats.chatgpt_chat("c", *said)]


def claude() -> Any:
    said = [
        {"uuid": f"m{n}", "sender": "human", "text": text, "content": []}
        for n, text in enumerate(TEXTS)
    ]
    return [{"uuid": "c", "name": "Garden", "account": {"uuid": "a"}, "chat_messages": said}]


def telegram() -> Any:
    said = [
        {"id": n, "type": "message", "date_unixtime": "1707815700", "from": "Ana", "text": text}
        for n, text in enumerate(TEXTS)
    ]
    return {"name": "Bo", "type": "personal_chat", "id": 7, "messages": said}


def telegram_account() -> Any:
    return {"about": "…", "contacts": {"list": [{"id": 1}]}, "chats": {"list": [telegram()]}}


def messages() -> Any:
    return {"id": "c", "messages": [{"role": "user", "content": text} for text in TEXTS]}


def conversations() -> Any:
    return [messages()]


def letta() -> Any:
    said = [{"id": f"m{n}", "role": "user", "content": text} for n, text in enumerate(TEXTS)]
    return {"agents": [{"id": "a", "name": "Sam", "messages": said}], "blocks": [], "tools": []}


MAKERS = (chatgpt, claude, telegram, telegram_account, messages, conversations, letta)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("indent", [None, 2])
async def test_one_long_conversation_is_imported_up_to_the_damage_and_then_completed(
    ana: ScopedClient, tmp_path: Path, make: Callable[[], Any], indent: int | None
) -> None:
    whole = json.dumps(make(), indent=indent)
    path = tmp_path / "export.json"
    path.write_text(whole[: whole.index(TEXTS[30]) + 5], "utf-8")
    report = await ana.import_files(path)
    assert {memory.text for memory in await ana.list(limit=100)} == set(TEXTS[:30])
    (reason,) = (each for each in report.skipped if "damaged" in each)
    assert reason.startswith("damaged from there on: export.json: ")
    path.write_text(whole, "utf-8")
    again = await ana.import_files(path)
    assert (again.new_memories, again.skipped, again.refused) == (COUNT - 30, {}, {})


async def test_a_conversation_that_lacks_nodes_in_between_has_its_messages(
    ana: ScopedClient, tmp_path: Path
) -> None:
    (chat,) = chatgpt()
    chat["mapping"] = dict(reversed(chat["mapping"].items()))  # the answers come first
    whole = json.dumps([chat])
    path = tmp_path / "conversations.json"
    path.write_text(whole[: whole.index(TEXTS[10])], "utf-8")
    report = await ana.import_files(path)
    assert {memory.text for memory in await ana.list(limit=100)} == set(TEXTS[11:])
    (reason,) = report.skipped
    assert reason.startswith("damaged from there on: conversations.json: ")
    path.write_text(whole, "utf-8")
    assert (await ana.import_files(path)).new_memories == 11


async def test_a_line_that_is_cut_off_has_the_messages_before_the_damage(
    ana: ScopedClient, tmp_path: Path
) -> None:
    first = {"messages": [{"role": "user", "content": CELLO}]}
    path = formats.write_lines(tmp_path / "chats.jsonl", first, messages())
    whole = path.read_text("utf-8")
    path.write_text(whole[: whole.index(TEXTS[30]) + 5], "utf-8")
    report = await ana.import_files(path)
    assert {memory.text for memory in await ana.list(limit=100)} == {CELLO, *TEXTS[:30]}
    assert any(reason.startswith("damaged from there on") for reason in report.skipped)
    path.write_text(whole, "utf-8")
    assert (await ana.import_files(path)).new_memories == COUNT - 30


async def test_a_wrong_place_in_the_list_of_an_archive_costs_one_file(
    ana: ScopedClient, tmp_path: Path
) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", json.dumps(messages()))
        archive.writestr("b.json", json.dumps([{"role": "user", "content": CELLO}]))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 42 : entry + 46] = b"\xff\xff\xff\xfe"  # where a.json begins
    path.write_bytes(data)
    report = await ana.import_files(path)
    assert {memory.text for memory in await ana.list(limit=100)} == {CELLO}
    assert any(reason.startswith("damaged: a.json: ") for reason in report.skipped)


async def test_a_note_that_is_encrypted_costs_one_file(ana: ScopedClient, tmp_path: Path) -> None:
    path = tmp_path / "notes.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.md", "I own a boat.")
        archive.writestr("B.md", CELLO)
    data = bytearray(path.read_bytes())
    for flags in (6, data.index(b"PK\x01\x02") + 8):  # of A.md, before it and in the list
        data[flags] |= 1
    path.write_bytes(data)
    report = await ana.import_files(path)
    assert [memory.text for memory in await ana.list()] == [CELLO]
    (reason,) = report.skipped
    assert reason.startswith("damaged from there on: A.md: ")
    assert "is encrypted" in reason


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails to read")
async def test_what_cannot_be_read_in_a_folder_costs_one_file(
    ana: ScopedClient, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.zip").write_bytes(b"PK\x03\x04")  # of a download that was broken off
    (folder / "B.md").symlink_to("/proc/self/mem")  # reading it fails
    (folder / "C.md").write_text(CELLO, "utf-8")
    report = await ana.import_files(folder)
    assert [memory.text for memory in await ana.list()] == [CELLO]
    assert sorted(reason[:27] for reason in report.skipped) == [
        "damaged from there on: B.md",
        "damaged: a.zip: incomplete ",
    ]


async def test_a_store_that_is_cut_off_has_the_items_before_the_damage(
    ana: ScopedClient, tmp_path: Path
) -> None:
    path = formats.write_langgraph(tmp_path)
    items = [
        ("users.ana", f"n{n}", json.dumps({"text": text * 20})) for n, text in enumerate(TEXTS)
    ]
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO store VALUES (?, ?, ?, NULL, NULL)", items)
        database.commit()
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(TEXTS[35].encode())])
    report = await ana.import_files(path)
    found = {memory.text for memory in await ana.list(limit=100)}
    assert {text * 20 for text in TEXTS[:20]} < found
    assert any(reason.startswith("damaged from there on") for reason in report.skipped)
    path.write_bytes(whole)
    assert (await ana.import_files(path)).new_memories == COUNT + 1 - len(found)


async def test_a_line_that_is_whole_again_changes_no_other(
    ana: ScopedClient, tmp_path: Path
) -> None:
    lines = [
        {"timestamp": "2025-02-03", "type": "event_msg", "payload": {"type": "user_message", "message": text}}
        for text in TEXTS
    ]  # fmt: skip
    path = formats.write_lines(tmp_path / "rollout.jsonl", *lines)
    whole = path.read_text("utf-8")
    path.write_text(whole.replace(f'{TEXTS[3]}"', TEXTS[3]), "utf-8")
    assert (await ana.import_files(path)).new_memories == COUNT - 1
    path.write_text(whole, "utf-8")
    again = await ana.import_files(path)
    assert (again.new_memories, again.outcomes, again.refused) == (1, {"created": COUNT}, {})


async def test_a_long_chat_of_telegram_is_read_in_little_memory(tmp_path: Path) -> None:
    chat = telegram()
    chat["messages"] = [{**chat["messages"][0], "id": n, "text": "x" * 500} for n in range(20_000)]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(chat), "utf-8")
    del chat
    items = read(find(path), ImportRun())
    next(items)
    tracemalloc.start()
    count = sum(isinstance(item, Draft) for _, item in items)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 19_999
    assert path.stat().st_size > 10_000_000
    assert peak < 3_000_000


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_file_in_an_archive_that_is_cut_off_after_it_is_imported(
    ana: ScopedClient, tmp_path: Path, method: int, is_streamed: bool
) -> None:
    path = tmp_path / "export.zip"
    write_archive(path, method, is_streamed=is_streamed)
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"PK\x03\x04") + 60])  # in the second file
    if is_streamed and method == zipfile.ZIP_STORED:
        return  # where the first file ends is only written at the end of the archive
    report = await ana.import_files(path)
    assert {memory.text for memory in await ana.list(limit=100)} == set(TEXTS)
    reasons = " ".join(report.skipped)
    assert "damaged: " in reasons
    assert "export.zip: incomplete ZIP archive" in reasons


async def test_a_file_that_is_cut_off_with_its_archive_is_imported_up_to_there(
    ana: ScopedClient, tmp_path: Path
) -> None:
    path = tmp_path / "export.zip"
    write_archive(path, zipfile.ZIP_STORED, is_streamed=False)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(TEXTS[30].encode())])
    report = await ana.import_files(path)
    assert {memory.text for memory in await ana.list(limit=100)} == set(TEXTS[:30])
    (reason,) = (each for each in report.skipped if "from there on" in each)
    assert reason == "damaged from there on: conversations.json: the archive ends in this file"


def write_archive(path: Path, method: int, *, is_streamed: bool) -> None:
    """Write an archive whose largest file comes first; streamed, sizes come after each file."""

    class Stream:
        def __init__(self) -> None:
            self.file = path.open("wb")
            self.write, self.flush = self.file.write, self.file.flush

    target: Any = Stream() if is_streamed else path
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.writestr("conversations.json", json.dumps(claude()))
        archive.writestr("users.json", json.dumps([{"uuid": "a", "full_name": "Ana"}] * 50))
    if is_streamed:
        target.file.close()


LONG = "We deploy on Fridays only. " + "log line\n" * 20_000
CLAUDE_CODE = {"parentUuid": None, "isSidechain": False, "sessionId": "s1"}
LONG_LINES: dict[str, list[dict[str, Any]]] = {
    "claude-code": [
        {"type": "file-history-snapshot", "snapshot": {"backup": LONG}},
        {**CLAUDE_CODE, "type": "user", "uuid": "u1", "message": {"role": "user", "content": LONG}},
    ],
    "codex": [
        {"payload": {"instructions": LONG}, "timestamp": "2025-02-03", "type": "session_meta"},
        {
            "payload": {"type": "user_message", "message": LONG},
            "timestamp": "2025-02-03",
            "type": "event_msg",
        },
    ],
    "server-memory": [
        {"name": "Ana", "entityType": "person", "observations": [LONG], "type": "entity"}
    ],
    "openai": [{"content": LONG, "role": "user"}],
    "mem0": [{"memory": LONG, "id": "e1"}],
}


@pytest.mark.parametrize("name", LONG_LINES)
@pytest.mark.parametrize("end", ["\n", ""])
async def test_a_format_is_recognized_by_what_comes_after_a_long_text(
    ana: ScopedClient, tmp_path: Path, name: str, end: str
) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(map(json.dumps, LONG_LINES[name])) + end, "utf-8")
    report = await ana.import_files(path, dry_run=True)
    assert report.formats == {name: 1}
