"""Import what people have: each format, twice, damaged, in part, and from the command line."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.errors import InvalidInput, NotFound
from memorist.scoped import ScopedClient

from . import formats

CELLO = "I play the cello in a quartet."
# For each format: what the person said or noted, what others said, and how much is left out.
CASES: dict[str, tuple[list[str], list[str], int]] = {
    "chatgpt": ([CELLO], ["A quartet is a fine thing."], 6),
    "claude": ([CELLO, "Ana rehearses on Tuesdays."], ["A quartet is a fine thing."], 2),
    "claude_code": ([CELLO], ["A quartet is a fine thing."], 6),
    "codex": ([CELLO], ["A quartet is a fine thing."], 3),
    "openai": ([CELLO], ["A quartet is a fine thing."], 3),
    "sharegpt": ([CELLO], ["A quartet is a fine thing."], 2),
    "mem0": (["Plays the cello in a quartet.", "Rehearses on Tuesdays."], [], 1),
    "letta": ([CELLO, "Ana rehearses on Tuesdays."], [], 2),
    "server_memory": (["Ana: Plays the cello in a quartet.", "Ana sister of Eva"], [], 1),
    "markdown": (
        [
            f"About me: {CELLO}",
            "About me: Done: I rehearse on Tuesdays.",
            "About me › Work: The deploy runs from `main`\nat noon.",
        ],
        [],
        1,
    ),
    "basic_memory": (
        [f"Observations: {CELLO}  (since school)", "Quartet rehearses at Town Hall"],
        [],
        1,
    ),
    "obsidian": ([CELLO, "Quartet: With Eva."], [], 1),
    "slack": (["I play the cello."], ["Nice, Ana!"], 2),
    "discord": (["I play the cello."], ["Nice!"], 2),
    "whatsapp": (["I play the cello.\nIn a quartet."], ["Nice: a quartet!"], 2),
    "telegram": (["I play the cello."], ["Nice!"], 1),
    "langgraph": (["Plays the cello in a quartet."], [], 1),
}


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path / "state", extract="off") as memory:
        yield memory.scope("ana")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def write(name: str, folder: Path) -> Path:
    make: Callable[[Path], Path] = getattr(formats, f"write_{name}")
    return make(folder)


async def stored(ana: ScopedClient) -> dict[str, Any]:
    return {memory.text: memory for memory in await ana.list(limit=100)}


@pytest.mark.parametrize("name", CASES)
async def test_a_format_is_recognized_and_imported_once(
    ana: ScopedClient, files: Path, name: str
) -> None:
    own, others, left_out = CASES[name]
    path = write(name, files)
    report = await ana.import_files(path)
    found = await stored(ana)
    assert sorted(found) == sorted([*own, *others])
    assert sum(report.skipped.values()) == left_out, report.skipped
    for text in own:
        assert found[text].labels.role in ("user", None)
        assert found[text].speaker in ("user", None)
    for text in others:
        assert found[text].speaker not in ("user", None)
    again = await ana.import_files(path)
    assert again.formats == report.formats
    assert {text: memory.id for text, memory in (await stored(ana)).items()} == {
        text: memory.id for text, memory in found.items()
    }


@pytest.mark.parametrize("name", CASES)
async def test_a_format_can_be_named(ana: ScopedClient, files: Path, name: str) -> None:
    named = {"sharegpt": "openai"}.get(name, name).replace("_", "-")
    report = await ana.import_files(write(name, files), from_=named, dry_run=True)
    assert list(report.formats) == [named]
    assert await stored(ana) == {}


async def test_times_sessions_tags_and_branches_are_kept(ana: ScopedClient, files: Path) -> None:
    await ana.import_files(write("chatgpt", files))
    await ana.import_files(write("mem0", files))
    found = await stored(ana)
    said = found[CELLO]
    assert said.occurred_at == datetime(2023, 11, 14, 22, 13, 20, 500000, tzinfo=UTC)
    assert said.labels.session == found["A quartet is a fine thing."].labels.session != None  # noqa: E711
    assert found["A quartet is a fine thing."].occurred_at == datetime.fromtimestamp(
        1_690_000_000, UTC
    )
    noted = found["Plays the cello in a quartet."]
    assert "music" in noted.tags
    assert noted.labels.session is None
    assert noted.occurred_at == datetime(2024, 5, 1, 17, tzinfo=UTC)


async def test_what_was_imported_answers_a_question(ana: ScopedClient, files: Path) -> None:
    await ana.import_files(write("chatgpt", files))
    (first, *_) = await ana.recall("Which instrument do I play?")
    assert first.memory.text == CELLO
    assert first.memory.source_ids == ("chatgpt:m1",)


@pytest.mark.parametrize("cut", [0.55, 0.9])
async def test_a_damaged_export_loses_nothing_before_the_damage(
    ana: ScopedClient, files: Path, cut: float
) -> None:
    chats = []
    for number in range(20):
        said = formats.chatgpt_message(f"m{number}", "user", f"Note {number} about the garden.")
        chats.append(formats.chatgpt_chat(f"c{number}", said))
    whole = json.dumps(chats)
    path = files / "conversations.json"
    path.write_text(whole[: int(len(whole) * cut)], "utf-8")
    report = await ana.import_files(path)
    (reason,) = report.skipped
    assert reason.startswith("damaged from there on: conversations.json")
    found = await stored(ana)
    assert len(found) >= int(20 * cut) - 1
    assert "Note 0 about the garden." in found


@pytest.mark.parametrize("name", ["conversations.json", "chat.txt", "messages.jsonl", "notes.md"])
async def test_a_flipped_byte_in_an_archive_loses_nothing_before_it(
    ana: ScopedClient, files: Path, name: str
) -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnop", k=9)) for _ in range(4000)]
    texts = [f"Note {number} is {' '.join(words[number::100])}." for number in range(100)]
    chats = [
        formats.chatgpt_chat(f"c{number}", formats.chatgpt_message(f"m{number}", "user", text))
        for number, text in enumerate(texts)
    ]
    content = {
        "conversations.json": json.dumps(chats),
        "chat.txt": "".join(f"13.02.24, 21:15 - Ana: {text}\n" for text in texts),
        "messages.jsonl": "".join(
            json.dumps({"role": "user", "content": text}) + "\n" for text in texts
        ),
        "notes.md": "".join(f"- {text}\n" for text in texts),
    }[name]
    path = files / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    data = bytearray(path.read_bytes())
    middle = len(data) * 6 // 10
    data[middle : middle + 8] = bytes(byte ^ 0xFF for byte in data[middle : middle + 8])
    path.write_bytes(data)
    report = await ana.import_files(path, dry_run=True)
    assert any(each.startswith(f"damaged from there on: {name}") for each in report.skipped)
    assert 30 <= sum(report.formats.values()) < 100


async def test_an_archive_that_cannot_be_read_at_all_is_an_error(
    ana: ScopedClient, files: Path
) -> None:
    path = files / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([formats.chatgpt_chat("c")]))
    data = bytearray(path.read_bytes())
    data[60:70] = b"\xff" * 10
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=r"'export\.zip' is damaged: conversations\.json: "):
        await ana.import_files(path)


async def test_a_damaged_line_of_a_transcript_is_named_and_the_rest_read(
    ana: ScopedClient, files: Path
) -> None:
    path = write("claude_code", files)
    (file,) = path.rglob("*.jsonl")
    file.write_text(file.read_text("utf-8") + '{"type": "user", "uu\n', "utf-8")
    report = await ana.import_files(path)
    assert report.skipped["a line that is not JSON"] == 1
    assert CELLO in await stored(ana)


async def test_a_damaged_day_of_slack_leaves_the_days_after_it(
    ana: ScopedClient, files: Path
) -> None:
    path = write("slack", files)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("general/2023-11-13.json", '[{"type": "message", "ts": "1699900000", "t')
    report = await ana.import_files(path)
    assert report.skipped.pop(next(each for each in report.skipped if "damaged" in each)) == 1
    assert {"I play the cello.", "Nice, Ana!"} <= set(await stored(ana))


async def test_an_agent_file_without_a_list_of_agents_is_counted_once(
    ana: ScopedClient, files: Path
) -> None:
    path = files / "agent.af"
    said = {"id": "m1", "role": "user", "content": CELLO}
    memory = [{"label": "human", "value": "Ana rehearses on Tuesdays."}]
    path.write_text(json.dumps({"core_memory": memory, "messages": [said]}), "utf-8")
    report = await ana.import_files(path)
    assert report.formats == {"letta": 2}
    assert set(await stored(ana)) == {CELLO, "Ana rehearses on Tuesdays."}


async def test_only_what_is_new_since_a_date_is_imported(ana: ScopedClient, files: Path) -> None:
    report = await ana.import_files(write("chatgpt", files), since="2023-11-01")
    assert list(await stored(ana)) == [CELLO]
    assert report.skipped["before the given date"] == 1


@pytest.mark.parametrize("name", ["slack", "discord", "whatsapp", "telegram"])
async def test_a_chat_between_people_needs_a_name(
    ana: ScopedClient, files: Path, name: str
) -> None:
    path = write(name, files)
    async with aio.open(files / "o.db", state_dir=files / "s", extract="off") as memory:
        other = memory.scope("u-17")
        with pytest.raises(InvalidInput, match=r"--me NAME\. The names are (Ana, Bo|Bo, Ana)"):
            await other.import_files(path)
        assert await stored(other) == {}
        with pytest.raises(InvalidInput, match=r"No message is by 'Cid': .* (Ana, Bo|Bo, Ana)$"):
            await other.import_files(path, me="Cid")
        assert await stored(other) == {}
        await other.import_files(path, me="bo")
        found = await stored(other)
        assert [text for text, memory in found.items() if memory.speaker == "user"] == CASES[name][
            1
        ]


async def test_a_name_may_come_late_in_a_chat_between_people(
    ana: ScopedClient, files: Path
) -> None:
    path = files / "chat.txt"
    others = "".join(f"13.02.24, 21:15 - Bo: Hello {number}.\n" for number in range(1100))
    path.write_text(f"{others}13.02.24, 21:16 - Ana: I play the cello.\n", "utf-8")
    report = await ana.import_files(path, dry_run=True)
    assert report.formats == {"whatsapp": 1101}


@pytest.mark.parametrize(
    ("stamps", "wanted"),
    [
        (["2/13/24, 9:15 PM - ", "2/14/24, 9:15 AM - "], datetime(2024, 2, 13, 21, 15, tzinfo=UTC)),
        (
            ["[13.02.24, 21:15:30] ", "[14.02.24, 09:15:00] "],
            datetime(2024, 2, 13, 21, 15, 30, tzinfo=UTC),
        ),
        (["2024-02-13 21:15 - ", "2024-02-14 09:15 - "], datetime(2024, 2, 13, 21, 15, tzinfo=UTC)),
        (
            ["3/2/2024, 9:15\u202fpm - ", "13/2/2024, 9:15\u202fam - "],
            datetime(2024, 2, 3, 21, 15, tzinfo=UTC),
        ),
        (
            ["13.2.2024 klo 21.15 - ", "14.2.2024 klo 9.15 - "],
            datetime(2024, 2, 13, 21, 15, tzinfo=UTC),
        ),
    ],
)
async def test_dates_of_whatsapp_are_read_in_the_order_of_the_file(
    ana: ScopedClient, files: Path, stamps: list[str], wanted: datetime
) -> None:
    path = files / "chat.txt"
    path.write_text(f"{stamps[0]}Ana: I play the cello.\n{stamps[1]}Bo: Nice!\n", "utf-8")
    await ana.import_files(path)
    assert (await stored(ana))["I play the cello."].occurred_at == wanted


@pytest.mark.parametrize(
    "said",
    [
        "This message was deleted",
        "You deleted this message",
        "\u200eDiese Nachricht wurde gelöscht.",
        "Se eliminó este mensaje.",
        "Ce message a été supprimé",
        "Questo messaggio è stato eliminato",
        "Você apagou esta mensagem",
        "<Media omitted>",
        "<Medien ausgeschlossen>",
        "<Multimedia omitido>",
        "\u200eBild weggelassen",
        "\u200eimage omitted",
        "imagen omitida",
        "image absente",
        "immagine omessa",
        "imagem ocultada",
        "GIF omitted",
        "Contact card omitted",
        "\u200e<attached: 00000012-PHOTO-2026-01-12.jpg>",
        "IMG-20260112-WA0001.jpg (file attached)",
    ],
)
async def test_what_whatsapp_writes_in_place_of_a_message_is_no_memory(
    ana: ScopedClient, files: Path, said: str
) -> None:
    path = files / "chat.txt"
    path.write_text(f"[13.02.24, 21:15:00] Ana: {said}\n[13.02.24, 21:16:00] Ana: Yes.\n", "utf-8")
    report = await ana.import_files(path, dry_run=True)
    assert report.samples == {"whatsapp": ["user: Yes."]}
    assert sum(report.skipped.values()) == 1


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Bring hummus. \u200e<This message was edited>", "Bring hummus."),
        ("Bring hummus. This message was edited", "Bring hummus."),
        ("Hummus bitte <Diese Nachricht wurde bearbeitet.>", "Hummus bitte"),
        ("I saw that this message was edited", "I saw that this message was edited"),
        ("I have the butter omitted", "I have the butter omitted"),
        ("This message was deleted, why?", "This message was deleted, why?"),
    ],
)
async def test_a_message_of_whatsapp_stays_without_the_mark_of_an_edit(
    ana: ScopedClient, files: Path, said: str, kept: str
) -> None:
    path = files / "chat.txt"
    path.write_text(f"[13.02.24, 21:15:00] Ana: {said}\n", "utf-8")
    report = await ana.import_files(path, dry_run=True)
    assert report.samples == {"whatsapp": [f"user: {kept}"]}


BEACH_HOUSE = """# Beach house

## Wifi

- Network: `SeagullNest`, router in the hall
- Bring: nothing

**Cellar**

Turn the valve clockwise before you light the boiler.

Boat
----

- Bring: nothing
- Beach house and boat share one key.

```sh
# not a heading
make all
```
"""


async def test_what_is_noted_below_a_heading_is_found_and_shown_with_it(
    ana: ScopedClient, files: Path
) -> None:
    (files / "beach-house.md").write_text(BEACH_HOUSE, "utf-8")
    await ana.import_files(files)
    found = await stored(ana)
    assert set(found) == {
        "Beach house › Wifi: Network: `SeagullNest`, router in the hall",
        "Beach house › Wifi: Bring: nothing",
        "Beach house › Wifi › Cellar: Turn the valve clockwise before you light the boiler.",
        "Beach house › Boat: Bring: nothing",
        "Beach house and boat share one key.",
        "Beach house › Boat:\n```sh\n# not a heading\nmake all\n```",
    }
    answer = await ana.recall("What is the wifi network called?")
    assert "Beach house › Wifi: Network: `SeagullNest`" in answer.prompt()
    again = await ana.import_files(files)
    assert (again.new_memories, again.refused) == (0, {})
    kept = {text: memory.id for text, memory in (await stored(ana)).items()}
    assert kept == {text: memory.id for text, memory in found.items()}


async def test_notes_that_were_forgotten_or_put_below_another_heading_are_not_added_again(
    ana: ScopedClient, files: Path
) -> None:
    note = files / "recipes.md"
    note.write_text("# Pancakes\n\n- Two eggs\n- A banana\n", "utf-8")
    await ana.import_files(note)
    found = await stored(ana)
    await ana.forget(found["recipes › Pancakes: A banana"].id)
    note.write_text("# Crêpes\n\n- Two eggs\n- A banana\n", "utf-8")
    report = await ana.import_files(note)
    assert set(await stored(ana)) == {"recipes › Pancakes: Two eggs"}
    assert report.refused["stored before, with another text or other headings"] == 1


async def test_a_heading_in_claudes_memory_is_no_memory(ana: ScopedClient, files: Path) -> None:
    text = "**Work context**\n\nAna is a nurse.\n\n# Home\nAna lives in Ghent.\n\n**Nothing yet**"
    memories = [{"conversations_memory": text, "account_uuid": "a1"}]
    (files / "memories.json").write_text(json.dumps(memories), "utf-8")
    await ana.import_files(files)
    expected = {"Work context: Ana is a nurse.", "Home: Ana lives in Ghent."}
    assert set(await stored(ana)) == expected


async def test_a_task_in_notes_says_whether_it_is_done(ana: ScopedClient, files: Path) -> None:
    (files / "tasks.md").write_text(
        "- [x] Book the hall\n- [ ] Tune the cello\n1. [X] Pay\n", "utf-8"
    )
    await ana.import_files(files)
    done = {"tasks: Done: Book the hall", "tasks: To do: Tune the cello", "tasks: Done: Pay"}
    assert set(await stored(ana)) == done


@pytest.mark.parametrize(
    ("name", "day"), [("2026-03-02", 2), ("2026_03_03", 3), ("2026-03-04 Rehearsal", 4)]
)
async def test_a_daily_note_has_the_date_of_its_name(
    ana: ScopedClient, files: Path, name: str, day: int
) -> None:
    (files / f"{name}.md").write_text("The quartet met in the hall.\n", "utf-8")
    (files / "2026-99-99.md").write_text("Nobody came.\n", "utf-8")
    await ana.import_files(files)
    found = await stored(ana)
    assert found["The quartet met in the hall."].occurred_at == datetime(2026, 3, day, tzinfo=UTC)
    assert found["Nobody came."].occurred_at is None


async def test_archives_in_archives_are_read(ana: ScopedClient, files: Path) -> None:
    inner = write("chatgpt", files)
    outer = files / "all.zip"
    with zipfile.ZipFile(outer, "w") as archive:
        archive.write(inner, "data/conversations-000.zip")
    await ana.import_files(outer)
    assert CELLO in await stored(ana)


async def test_a_file_of_an_unknown_format_is_an_error_that_names_the_formats(
    ana: ScopedClient, files: Path
) -> None:
    (files / "table.csv").write_text("a,b\n1,2\n", "utf-8")
    with pytest.raises(
        InvalidInput,
        match=r"Cannot tell the format of 'table.csv'. If it is one of these, pass --from: chatgpt",
    ):
        await ana.import_files(files / "table.csv")
    with pytest.raises(InvalidInput, match="Unknown format 'icq'"):
        await ana.import_files(files / "table.csv", from_="icq")
    with pytest.raises(NotFound, match="No such file or folder"):
        await ana.import_files(files / "missing.zip")
    (files / "broken.zip").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(
        InvalidInput, match=r"'broken\.zip' is damaged: broken\.zip: incomplete ZIP archive"
    ):
        await ana.import_files(files / "broken.zip")
    with pytest.raises(InvalidInput, match="is not a time"):
        await ana.import_files(write("mem0", files), since="last week")


async def test_an_empty_file_and_a_wrong_format_say_so(ana: ScopedClient, files: Path) -> None:
    (files / "empty.json").touch()
    with pytest.raises(InvalidInput, match=r"^'empty\.json' is empty$"):
        await ana.import_files(files / "empty.json")
    (files / "folder").mkdir()
    with pytest.raises(InvalidInput, match=r"^'folder' is empty$"):
        await ana.import_files(files / "folder")
    with pytest.raises(InvalidInput, match="has the format slack: leave out --from"):
        await ana.import_files(write("chatgpt", files), from_="slack")


JUNK = (None, 0, -1, 3.5, 10**400, True, "", "x", [], {}, [None], [1], {"a": None}, [[]])


def spoil(value: Any, chance: random.Random) -> Any:
    """Return a value in which some parts are of another type, or missing."""
    if chance.random() < 0.08:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if chance.random() > 0.03}
        return {name: spoil(each, chance) for name, each in kept.items()}
    return [spoil(each, chance) for each in value] if isinstance(value, list) else value


def spoil_text(text: str, chance: random.Random) -> str:
    """Return a text of JSON, or of JSON lines, that is spoiled; anything else as it is."""
    try:
        return json.dumps(spoil(json.loads(text), chance))
    except ValueError:
        if not text.startswith("{"):
            return text
        return "\n".join(json.dumps(spoil(json.loads(line), chance)) for line in text.splitlines())


@pytest.mark.parametrize("name", CASES)
async def test_values_of_the_wrong_type_are_left_out_or_refused(
    ana: ScopedClient, files: Path, name: str
) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        folder = files / str(seed)
        folder.mkdir()
        path = write(name, folder)
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                members = {each: archive.read(each).decode() for each in archive.namelist()}
            with zipfile.ZipFile(path, "w") as archive:
                for member, text in members.items():
                    archive.writestr(member, spoil_text(text, chance))
        elif path.suffix != ".sqlite":
            for file in [path] if path.is_file() else filter(Path.is_file, path.rglob("*")):
                file.write_text(spoil_text(file.read_text("utf-8"), chance), "utf-8")
        named = {"sharegpt": "openai"}.get(name, name).replace("_", "-")
        with suppress(InvalidInput):
            await ana.import_files(path, from_=named, dry_run=True)


async def test_a_text_that_is_too_long_is_left_out_and_named(tmp_path: Path, files: Path) -> None:
    path = files / "messages.json"
    path.write_text(
        json.dumps(
            [{"role": "user", "content": "x" * 101}, {"role": "user", "content": "I own a boat"}]
        ),
        "utf-8",
    )
    options = {"state_dir": tmp_path / "s", "extract": "off", "max_text_chars": 100}
    async with aio.open(tmp_path / "l.db", **options) as memory:
        report = await memory.scope("ana").import_files(path)
        assert report.skipped == {"longer than 100 characters": 1}
        assert list(await stored(memory.scope("ana"))) == ["I own a boat"]


async def test_progress_is_reported_in_bytes(ana: ScopedClient, files: Path) -> None:
    path = write("claude_code", files)
    (file,) = path.rglob("*.jsonl")
    steps: list[tuple[int, int]] = []
    await ana.import_files(path, on_progress=lambda done, of: steps.append((done, of)))
    size = file.stat().st_size
    assert steps[-1] == (size, size)


async def test_progress_of_a_channel_of_discord_never_goes_back(
    ana: ScopedClient, files: Path
) -> None:
    path = write("discord", files)
    channel = json.loads(path.read_text("utf-8"))
    channel["messages"] *= 500
    path.write_text(json.dumps(channel), "utf-8")
    steps: list[int] = []
    await ana.import_files(path, dry_run=True, on_progress=lambda done, of: steps.append(done))
    assert min(steps) > 0
    assert steps == sorted(steps)
    assert steps[-1] == path.stat().st_size


async def test_a_large_export_is_found_by_words_before_it_has_vectors(
    ana: ScopedClient, files: Path, tmp_path: Path
) -> None:
    said = formats.chatgpt_message("m1", "user", CELLO, padding="x" * 6_000_000)
    (files / "conversations.json").write_text(
        json.dumps([formats.chatgpt_chat("c", said)]), "utf-8"
    )
    await ana.import_files(files / "conversations.json")
    (hit,) = await ana.recall("cello")
    assert hit.memory.needs_embedding
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path / "state", extract="off") as memory:
        await memory.index()
        (hit,) = await memory.scope("ana").recall("Which instrument do I play?")
    assert not hit.memory.needs_embedding


OLD_HOME, NEW_HOME = "I live in Leeds.", "I live in Bristol now."


def write_newest_first(path: Path) -> Path:
    """Write an export of ChatGPT as the program does, with the newest conversation first."""
    homes = {"new": (NEW_HOME, 1_736_000_000.0), "old": (OLD_HOME, 1_704_000_000.0)}
    chats = []
    for id, (text, at) in homes.items():
        said = formats.chatgpt_message(f"m-{id}", "user", text, at=at)
        chats.append({**formats.chatgpt_chat(id, said), "create_time": at})
    path.write_text(json.dumps(chats), "utf-8")
    return path


async def test_what_changed_is_found_in_an_export_with_the_newest_first(
    ana: ScopedClient, files: Path
) -> None:
    await ana.import_files(write_newest_first(files / "conversations.json"))
    (pair,) = await ana.conflicts()
    assert (pair.old.text, pair.new.text) == (OLD_HOME, NEW_HOME)
    assert list(await stored(ana)) == [NEW_HOME, OLD_HOME]  # the last that was stored first
    (hit,) = await ana.recall("Where do I live?")
    assert hit.memory.text == NEW_HOME
