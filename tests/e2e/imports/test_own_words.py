"""Only what people wrote is imported: not what a program wrote in their place, or marked."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.interfaces.hooks import read_line
from memorist.readers.source import Skipped
from memorist.scoped import ScopedClient

from . import formats

CELLO = "I play the cello in a quartet."
SUMMARY = "This session is being continued from a previous conversation that ran out of context."


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    options = {"state_dir": tmp_path / "state", "embedder": "hashing", "extract": "off"}
    async with aio.open(tmp_path / "m.db", **options) as memory:
        yield memory.scope("ana")


async def texts(ana: ScopedClient) -> set[str]:
    return {memory.text for memory in await ana.list(limit=100)}


def claude_code_line(content: Any, **more: Any) -> dict[str, Any]:
    said = {"message": {"role": "user", "content": content}, "sessionId": "s1", "parentUuid": None}
    return {"type": "user", "uuid": str(content)[:20], **said, **more}


@pytest.mark.parametrize(
    "line",
    [
        claude_code_line("Analysis: the user wants tests.", isCompactSummary=True),
        claude_code_line(f"{SUMMARY} The conversation is summarized below:"),
        claude_code_line("<ide_opened_file>The user opened app.py</ide_opened_file>"),
        claude_code_line([{"type": "text", "text": "<command-name>/clear</command-name>"}]),
    ],
)
async def test_what_claude_code_writes_for_the_person_is_left_out(
    ana: ScopedClient, tmp_path: Path, line: dict[str, Any]
) -> None:
    assert isinstance(read_line(line), Skipped)
    path = formats.write_lines(tmp_path / "s1.jsonl", line, claude_code_line(CELLO))
    await ana.import_files(path)
    assert await texts(ana) == {CELLO}


async def test_a_prompt_is_kept_without_the_parts_that_an_editor_adds(
    ana: ScopedClient, tmp_path: Path
) -> None:
    parts = ["<ide_selection>def play():\n    pass</ide_selection>", CELLO]
    content = [{"type": "text", "text": part} for part in parts]
    path = formats.write_lines(
        tmp_path / "s1.jsonl", claude_code_line(content), claude_code_line("<div>Hi</div>")
    )
    await ana.import_files(path)
    assert await texts(ana) == {CELLO, "<div>Hi</div>"}


async def test_instructions_and_surroundings_are_left_out_of_codex_without_events(
    ana: ScopedClient, tmp_path: Path
) -> None:
    agents = "# AGENTS.md instructions for /home/ana\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"
    surroundings = "<environment_context>\n  <cwd>/home/ana</cwd>\n</environment_context>"
    ide = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nAdd it.\n"
    prompts = [[agents], [surroundings], [agents, surroundings], [surroundings, CELLO], [ide]]
    path = formats.write_lines(
        tmp_path / "rollout-1.jsonl",
        *(
            {
                "timestamp": "2025-02-03T04:05:06.000Z",
                "type": "response_item",
                "payload": {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": part} for part in parts],
                },
            }
            for parts in prompts
        ),
    )
    report = await ana.import_files(path)
    assert await texts(ana) == {CELLO, "Add it."}
    assert report.skipped == {"a command of the program": 3}


async def test_messages_that_letta_packs_are_unpacked_and_its_own_left_out(
    ana: ScopedClient, tmp_path: Path
) -> None:
    packed = [
        {"type": "user_message", "message": CELLO, "time": "2025-06-01 10:00 AM"},
        {"type": "heartbeat", "reason": "Automated", "time": "2025-06-01 10:01 AM"},
        {"type": "login", "last_login": "Never", "time": "2025-06-01 10:01 AM"},
        {"type": "system_alert", "message": "The memory is full", "time": "x"},
    ]
    contents = [*map(json.dumps, packed), '{"key": "F sharp"}']
    said = [{"role": "user", "content": [{"type": "text", "text": each}]} for each in contents]
    path = tmp_path / "agent.af"
    path.write_text(json.dumps({"agents": [{"id": "a", "messages": said}], "blocks": []}), "utf-8")
    report = await ana.import_files(path)
    assert await texts(ana) == {CELLO, '{"key": "F sharp"}'}
    assert report.skipped == {"a system prompt": 3}


KEYS = "session_id sessionId idx uid cid mid context raw_content sesion namee custom".split()


@pytest.mark.parametrize("name", KEYS)
async def test_another_key_in_a_message_is_ignored(
    ana: ScopedClient, tmp_path: Path, name: str
) -> None:
    said = {"role": "user", "content": CELLO, name: "x"}
    await ana.remember([said])
    assert await texts(ana) == {CELLO}
    path = tmp_path / "messages.json"
    path.write_text(json.dumps([{**said, "content": "I own a boat."}]), "utf-8")
    report = await ana.import_files(path)
    assert (report.formats, report.skipped) == ({"openai": 1}, {})


# WhatsApp


async def import_chat(ana: ScopedClient, tmp_path: Path, *lines: str, **options: Any) -> set[str]:
    path = tmp_path / "WhatsApp Chat with Bo.txt"
    path.write_text("\n".join(lines), options.pop("encoding", "utf-8"))
    await ana.import_files(path, **options)
    return await texts(ana)


@pytest.mark.parametrize(
    "line",
    [
        "[13.02.24, 21:15:00] Boat: \u200eMessages and calls are end-to-end encrypted. Nobody else…",
        "[13.02.24, 21:15:00] Boat: \u200eWiadomości są w pełni szyfrowane.",
        "13.02.24, 21:15 - Boat: Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt.",
        "13.02.24, 21:15 - Bo: null",
        "13.02.24, 21:15 - Bo: Missed voice call",
        "13.02.24, 21:15 - Bo: Missed group video call, Tap to call back",
        "13.02.24, 21:15 - Bo: Verpasster Sprachanruf",
        '13.02.24, 21:15 - Bo changed the subject from "Boat" to "Boat: summer"',
        '13.02.24, 21:15 - Bo changed the subject to "Boat: summer"',
        "13.02.24, 21:15 - Bo hat den Betreff zu „Boot: Sommer“ geändert",
        "13.02.24, 21:15 - Bo: IMG-2.jpg (file attached)",
    ],
)
async def test_what_whatsapp_writes_with_a_name_is_no_memory(
    ana: ScopedClient, tmp_path: Path, line: str
) -> None:
    stamp = line.partition("0] " if line.startswith("[") else " - ")[0]
    own = f"{stamp}0] Ana: {CELLO}" if line.startswith("[") else f"{stamp} - Ana: {CELLO}"
    assert await import_chat(ana, tmp_path, line, own) == {CELLO}


@pytest.mark.parametrize("said", ["The result is null", "Missed voice call from Bo, sorry"])
async def test_what_people_say_about_calls_is_kept(
    ana: ScopedClient, tmp_path: Path, said: str
) -> None:
    assert await import_chat(ana, tmp_path, f"13.02.24, 21:15 - Ana: {said}") == {said}


async def test_a_caption_is_kept_without_the_name_of_the_file(
    ana: ScopedClient, tmp_path: Path
) -> None:
    said = "13.02.24, 21:15 - Ana: IMG-1.jpg (file attached)"
    assert await import_chat(ana, tmp_path, said, "Our cello") == {"Our cello"}


async def test_a_name_that_is_not_in_the_contacts_can_be_given(
    ana: ScopedClient, tmp_path: Path
) -> None:
    line = f"[13.02.24, 21:15:00] ~\u202fCarla Díaz: {CELLO}"
    await import_chat(ana, tmp_path, line, me="Carla Díaz")
    (memory,) = await ana.list()
    assert memory.speaker == "user"


async def test_a_chat_in_utf_16_is_read(ana: ScopedClient, tmp_path: Path) -> None:
    line = "13.02.24, 21:15 - Ana: Grüße vom Cello"
    assert await import_chat(ana, tmp_path, line, encoding="utf-16") == {"Grüße vom Cello"}


async def test_a_chat_that_was_saved_again_adds_only_what_is_new(
    ana: ScopedClient, tmp_path: Path
) -> None:
    line = f"13.02.24, 21:15 - Ana: {CELLO}\n"
    (tmp_path / "WhatsApp Chat with Bo.txt").write_text(line * 2, "utf-8")
    await ana.import_files(tmp_path / "WhatsApp Chat with Bo.txt")
    again = tmp_path / "WhatsApp Chat with Bo (1).txt"
    again.write_text(line * 2 + "13.02.24, 21:16 - Ana: In Graz.\n", "utf-8")
    report = await ana.import_files(again)
    assert report.new_memories == 1
    sessions = {memory.labels.session for memory in await ana.list()}
    assert sessions == {"whatsapp:WhatsApp Chat with Bo:2024-02-13"}


async def test_chats_of_an_iphone_have_the_names_of_their_archives(
    ana: ScopedClient, tmp_path: Path
) -> None:
    for name, text in (("Boat", "I own a boat."), ("Cello", CELLO)):
        with zipfile.ZipFile(tmp_path / f"WhatsApp Chat - {name}.zip", "w") as archive:
            archive.writestr("_chat.txt", f"[13.02.24, 21:15:00] Ana: {text}\n")
        await ana.import_files(tmp_path / f"WhatsApp Chat - {name}.zip")
    sessions = {memory.labels.session for memory in await ana.list()}
    assert sessions == {
        "whatsapp:WhatsApp Chat - Boat:2024-02-13",
        "whatsapp:WhatsApp Chat - Cello:2024-02-13",
    }


@pytest.mark.parametrize("is_packed", [True, False])
async def test_chats_of_an_iphone_in_folders_have_the_names_of_these(
    ana: ScopedClient, tmp_path: Path, is_packed: bool
) -> None:
    for name, text in (("Boat", "I own a boat."), ("Cello", CELLO)):
        (tmp_path / "chats" / name).mkdir(parents=True)
        path = tmp_path / "chats" / name / "_chat.txt"
        path.write_text(f"[13.02.24, 21:15:00] Ana: {text}\n", "utf-8")
    if is_packed:
        shutil.make_archive(str(tmp_path / "backup"), "zip", tmp_path / "chats")
    await ana.import_files(tmp_path / ("backup.zip" if is_packed else "chats"))
    sessions = {memory.labels.session for memory in await ana.list()}
    assert sessions == {"whatsapp:Boat:2024-02-13", "whatsapp:Cello:2024-02-13"}


async def test_chats_that_were_unpacked_one_after_another_stay_apart(
    ana: ScopedClient, tmp_path: Path
) -> None:
    for text in (CELLO, "I own a boat."):
        (tmp_path / "_chat.txt").write_text(f"[13.02.24, 21:15:00] Ana: {text}\n", "utf-8")
        await ana.import_files(tmp_path / "_chat.txt")
    assert len({memory.labels.session for memory in await ana.list()}) == 2


# Slack, Obsidian and Mem0


async def test_links_people_and_signs_of_slack_are_read_as_they_are_shown(
    ana: ScopedClient, tmp_path: Path
) -> None:
    shown = {
        "see <https://x.org/a|the plan> &amp; reply": "see the plan (https://x.org/a) & reply",
        "<http://x.org|x.org> is up": "http://x.org is up",
        "<mailto:bo@x.org|bo@x.org> asked": "bo@x.org asked",
        "<@U2> and <@U9|carla>, go to <#C1|general>": "Bo and carla, go to #general",
        "<!here> and <!subteam^S1|@strings>": "@here and @strings",
        "<!date^1714990000^{date}|May 6th> it is": "May 6th it is",
        "x &lt; y &amp;lt; z": "x < y &lt; z",
    }
    people = [{"id": "U1", "name": "ana"}, {"id": "U2", "name": "Bo"}]
    day = [
        {"type": "message", "user": "U1", "text": text, "ts": f"17000000{number:02}.000100"}
        for number, text in enumerate(shown)
    ]
    with zipfile.ZipFile(tmp_path / "slack.zip", "w") as archive:
        archive.writestr("users.json", json.dumps(people))
        archive.writestr("general/2023-11-14.json", json.dumps(day))
    await ana.import_files(tmp_path / "slack.zip")
    assert await texts(ana) == set(shown.values())


async def test_comments_queries_embeds_and_anchors_of_obsidian_are_no_memories(
    ana: ScopedClient, tmp_path: Path
) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "Quartet.md").write_text(
        f"{CELLO} ^cello\n\n%% not now %%\n\n![[photo.png]]\n\n- With [[Eva]]. ![[eva.png|100]]\n\n"
        "```dataview\nTABLE file.mtime\n```\n\n%%\nA draft\n\nof a plan\n%%\n\n"
        "Strings cost 20 %% of it.\n\nIt is 2 ^2\n\n```sh\necho %%now%%\n```\n\nRosin. %%check%%\n",
        "utf-8",
    )
    report = await ana.import_files(vault)
    assert await texts(ana) == {
        CELLO,
        "Quartet: With Eva.",
        "Quartet: Strings cost 20 %% of it.",
        "Quartet: It is 2 ^2",
        "Quartet: Rosin.",
        "Quartet:\n```sh\necho %%now%%\n```",
    }
    assert report.skipped["comments and queries of Obsidian"] == 1


async def test_memories_of_mem0_as_its_store_has_them_are_recognized(
    ana: ScopedClient, tmp_path: Path
) -> None:
    path = tmp_path / "points.json"
    path.write_text(json.dumps([{"id": "d1", "data": CELLO, "user_id": "ana", "hash": "x"}]))
    report = await ana.import_files(path)
    assert report.formats == {"mem0": 1}
