"""Small exports of other programs, written to their documented shapes.

Each has two memories at least: what the person said or noted, and something that is left out.
"""

from __future__ import annotations

import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any


def chatgpt_message(id: str, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": more.pop("at", 1_700_000_000.5),
        "content": {"content_type": more.pop("type", "text"), "parts": list(parts)},
        "recipient": more.pop("recipient", "all"),
        "metadata": more,
    }


def chatgpt_chat(id: str, *messages: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation: each message answers the one before; the last is the current one."""
    mapping: dict[str, Any] = {f"{id}-root": {"id": f"{id}-root", "parent": None, "message": None}}
    last = f"{id}-root"
    for number, said in enumerate(messages):
        node = f"{id}-{number}"
        mapping[node] = {"id": node, "parent": last, "children": [], "message": said}
        last = node
    return {
        "title": "A chat",
        "create_time": 1_690_000_000.0,
        "update_time": 1_690_000_100.0,
        "mapping": mapping,
        "current_node": last,
        "conversation_id": id,
    }


def write_chatgpt(folder: Path) -> Path:
    chat = chatgpt_chat(
        "c1",
        chatgpt_message("m0", "system", "You are ChatGPT."),
        chatgpt_message("m1", "user", "I play the cello in a quartet.", {"asset_pointer": "file"}),
        chatgpt_message("m2", "assistant", "search(cello)", recipient="browser"),
        chatgpt_message("m3", "tool", "results"),
        chatgpt_message("m4", "assistant", "A quartet is a fine thing.", at=None),
        chatgpt_message("m5", "user", "secret", is_visually_hidden_from_conversation=True),
    )
    chat["mapping"]["other"] = {
        "id": "other",
        "parent": "c1-1",
        "children": [],
        "message": chatgpt_message("m9", "assistant", "An answer that was made again."),
    }
    path = folder / "chatgpt.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([chat]))
        archive.writestr("chat.html", "<html></html>")
    return path


def write_claude(folder: Path) -> Path:
    chats = [
        {
            "uuid": "k1",
            "name": "Cello",
            "created_at": "2024-05-01T10:00:00.000000Z",
            "updated_at": "2024-05-01T10:05:00.000000Z",
            "account": {"uuid": "a1"},
            "chat_messages": [
                {
                    "uuid": "k1-1",
                    "sender": "human",
                    "text": "shorter",
                    "content": [{"type": "text", "text": "I play the cello in a quartet."}],
                    "created_at": "2024-05-01T10:00:00.000000Z",
                    "attachments": [{"file_name": "score.pdf", "extracted_content": "x"}],
                    "files": [],
                },
                {
                    "uuid": "k1-2",
                    "sender": "assistant",
                    "text": "A quartet is a fine thing.",
                    "content": [{"type": "tool_use", "name": "search"}],
                    "created_at": "2024-05-01T10:01:00.000000Z",
                },
            ],
        }
    ]
    memories = [{"conversations_memory": "Ana rehearses on Tuesdays.", "account_uuid": "a1"}]
    (folder / "claude").mkdir()
    (folder / "claude/conversations.json").write_text(json.dumps(chats), "utf-8")
    (folder / "claude/memories.json").write_text(json.dumps(memories), "utf-8")
    return folder / "claude"


def write_lines(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")
    return path


def write_claude_code(folder: Path) -> Path:
    def line(uuid: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
        return {
            "type": kind,
            "uuid": uuid,
            "parentUuid": None,
            "sessionId": "s1",
            "timestamp": "2025-02-03T04:05:06.000Z",
            "cwd": "/home/ana/app",
            "isSidechain": False,
            "message": {"role": kind, "content": content},
            **more,
        }

    project = folder / "projects/-home-ana-app"
    write_lines(
        project / "s1.jsonl",
        {"type": "summary", "summary": "Tests", "leafUuid": "u3"},
        line("u1", "user", "I play the cello in a quartet."),
        line("u2", "assistant", [{"type": "tool_use", "name": "Bash", "input": {}}]),
        line("u3", "user", [{"type": "tool_result", "content": "ok"}]),
        line("u4", "assistant", [{"type": "text", "text": "A quartet is a fine thing."}]),
        line("u5", "user", "<command-name>/clear</command-name>"),
        line("u6", "user", "caveat", isMeta=True),
        line("u7", "user", "task of a subagent", isSidechain=True),
    )
    return folder / "projects"


def write_codex(folder: Path) -> Path:
    def line(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2025-02-03T04:05:06.000Z", "type": kind, "payload": payload}

    return write_lines(
        folder / "rollout-2025-02-03-abc.jsonl",
        line("session_meta", id="abc", cwd="/home/ana/app"),
        line(
            "response_item",
            type="message",
            role="user",
            content=[{"type": "input_text", "text": "<environment_context>…"}],
        ),
        line("event_msg", type="user_message", message="I play the cello in a quartet."),
        line("event_msg", type="agent_message", message="A quartet is a fine thing."),
        line("event_msg", type="token_count", info={}),
    )


def write_openai(folder: Path) -> Path:
    path = folder / "messages.json"
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "I play the cello in a quartet."}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t1"}]},
        {"role": "tool", "tool_call_id": "t1", "content": "found"},
        {"role": "assistant", "content": "A quartet is a fine thing."},
    ]
    path.write_text(json.dumps(messages), "utf-8")
    return path


def write_sharegpt(folder: Path) -> Path:
    return write_lines(
        folder / "share.jsonl",
        {
            "conversations": [
                {"from": "system", "value": "Be brief."},
                {"from": "human", "value": "I play the cello in a quartet."},
                {"from": "gpt", "value": "A quartet is a fine thing."},
            ]
        },
        {"conversations": [{"from": "human", "value": ""}]},
    )


def write_mem0(folder: Path) -> Path:
    path = folder / "mem0.json"
    items = [
        {
            "id": "e1",
            "memory": "Plays the cello in a quartet.",
            "user_id": "ana",
            "categories": ["music"],
            "created_at": "2024-05-01T10:00:00-07:00",
        },
        {"id": "e2", "memory": "Rehearses on Tuesdays.", "user_id": "ana", "categories": "music"},
        {"id": "e3", "memory": "", "user_id": "ana"},
    ]
    path.write_text(json.dumps({"results": items}), "utf-8")
    return path


def write_letta(folder: Path) -> Path:
    path = folder / "agent.af"
    agent = {
        "id": "agent-1",
        "name": "Helper",
        "block_ids": ["b1", "b2"],
        "messages": [
            {"id": "l1", "role": "system", "content": "You are Helper."},
            {
                "id": "l2",
                "role": "user",
                "content": [{"type": "text", "text": "I play the cello in a quartet."}],
                "created_at": "2024-05-01T10:00:00Z",
            },
        ],
    }
    blocks = [
        {"id": "b1", "label": "human", "value": "Ana rehearses on Tuesdays."},
        {"id": "b2", "label": "persona", "value": "I am a helper."},
    ]
    path.write_text(json.dumps({"agents": [agent], "blocks": blocks, "tools": []}), "utf-8")
    return path


def write_server_memory(folder: Path) -> Path:
    return write_lines(
        folder / "memory.jsonl",
        {
            "type": "entity",
            "name": "Ana",
            "entityType": "person",
            "observations": ["Plays the cello in a quartet."],
        },
        {"type": "relation", "from": "Ana", "to": "Eva", "relationType": "sister_of"},
        {"type": "entity", "name": "Graz", "entityType": "city", "observations": []},
    )


def write_markdown(folder: Path) -> Path:
    path = folder / "MEMORY.md"
    path.write_text(
        "# About me\n\n- I play the cello in a quartet.\n- [x] I rehearse on Tuesdays.\n\n"
        "@docs/other.md\n\n## Work\n\nThe deploy runs from `main`\nat noon.\n",
        "utf-8",
    )
    return path


def write_basic_memory(folder: Path) -> Path:
    path = folder / "notes/quartet.md"
    path.parent.mkdir()
    path.write_text(
        "---\ntitle: Quartet\ntype: note\npermalink: music/quartet\ntags: [music, cello]\n"
        "created: 2024-05-01T10:00:00Z\n---\n\n## Observations\n"
        "- [fact] I play the cello in a quartet. #strings (since school)\n\n## Relations\n"
        "- rehearses_at [[Town Hall]]\n\n---\n",
        "utf-8",
    )
    return path.parent


def write_obsidian(folder: Path) -> Path:
    vault = folder / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / ".obsidian/app.json").write_text("{}", "utf-8")
    (vault / "Quartet.md").write_text(
        "I play the cello in a [[String Quartet|quartet]]. #music\n\n---\n\n- With [[Eva]].\n",
        "utf-8",
    )
    return vault


def write_slack(folder: Path) -> Path:
    people = [
        {"id": "U1", "name": "ana", "profile": {"real_name": "Ana Ruiz", "display_name": "Ana"}},
        {"id": "U2", "name": "bo", "profile": {"real_name": "Bo", "display_name": ""}},
    ]
    day = [
        {"type": "message", "user": "U1", "text": "I play the cello.", "ts": "1700000000.000100"},
        {"type": "message", "user": "U2", "text": "Nice, <@U1>!", "ts": "1700000001.000100"},
        {"type": "message", "bot_id": "B1", "text": "Reminder", "ts": "1700000002.000100"},
        {
            "type": "message",
            "subtype": "channel_join",
            "user": "U2",
            "text": "",
            "ts": "1700000003",
        },
    ]
    path = folder / "slack.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("users.json", json.dumps(people))
        archive.writestr("channels.json", json.dumps([{"id": "C1", "name": "general"}]))
        archive.writestr("general/2023-11-14.json", json.dumps(day))
    return path


def write_discord(folder: Path) -> Path:
    def said(id: str, name: str, text: str, **more: Any) -> dict[str, Any]:
        author = {"id": name, "name": name, "nickname": name, "isBot": more.pop("bot", False)}
        return {
            "id": id,
            "type": "Default",
            "timestamp": "2023-11-14T22:13:20.000+00:00",
            "content": text,
            "author": author,
            "attachments": [],
            **more,
        }

    path = folder / "channel.json"
    data = {
        "guild": {"id": "1", "name": "Music"},
        "channel": {"id": "2", "type": "GuildTextChat", "name": "general"},
        "dateRange": {},
        "messages": [
            said("10", "Ana", "I play the cello."),
            said("11", "Bo", "Nice!"),
            said("12", "Helper", "Hello", bot=True),
            said("13", "Bo", "", type="GuildMemberJoin"),
        ],
    }
    path.write_text(json.dumps(data), "utf-8")
    return path


def write_whatsapp(folder: Path) -> Path:
    path = folder / "WhatsApp Chat with Bo.txt"
    path.write_text(
        "13/02/2024, 09:15 - Messages and calls are end-to-end encrypted.\n"
        "13/02/2024, 09:15 - Ana: I play the cello.\n"
        "In a quartet.\n"
        "13/02/2024, 09:16 - Bo: Nice: a quartet!\n"
        "13/02/2024, 09:16 - Bo: <Media omitted>\n",
        "utf-8",
    )
    return path


def write_telegram(folder: Path) -> Path:
    path = folder / "result.json"
    messages = [
        {"id": 1, "type": "service", "action": "create_group", "date": "2024-02-13T09:00:00"},
        {
            "id": 2,
            "type": "message",
            "date": "2024-02-13T09:15:00",
            "date_unixtime": "1707815700",
            "from": "Ana",
            "from_id": "user1",
            "text": ["I play the ", {"type": "bold", "text": "cello"}, "."],
        },
        {
            "id": 3,
            "type": "message",
            "date": "2024-02-13T09:16:00",
            "date_unixtime": "1707815760",
            "from": "Bo",
            "from_id": "user2",
            "text": "Nice!",
        },
    ]
    chat = {"name": "Bo", "type": "personal_chat", "id": 7, "messages": messages}
    path.write_text(json.dumps(chat), "utf-8")
    return path


def write_langgraph(folder: Path) -> Path:
    path = folder / "store.sqlite"
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL,"
        " created_at TIMESTAMP, updated_at TIMESTAMP, PRIMARY KEY (prefix, key))"
    )
    rows = [
        (
            "users.ana",
            "k1",
            json.dumps({"text": "Plays the cello in a quartet."}),
            "2024-05-01",
            None,
        ),
        ("users.ana", "k2", json.dumps({"number": 3}), "2024-05-01", None),
    ]
    database.executemany("INSERT INTO store VALUES (?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    return path
