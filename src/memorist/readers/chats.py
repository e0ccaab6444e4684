"""Chats with an assistant: ChatGPT, Claude, Letta, and lists of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from ..errors import InvalidInput
from ..types import Draft
from .markdown import add_headings, read_entries
from .provider_messages import NOT_KEPT, ROLES, SYSTEM, TOOL, read_message, text_of
from .source import (
    Damaged,
    ImportRun,
    Items,
    Skipped,
    Source,
    as_list,
    as_object,
    digest,
    message,
    moment,
    note,
    read_items,
    read_json_lines,
)

HIDDEN = "a hidden system message"
OTHER_BRANCH = "an alternative answer"
SPEAKERS = ("user", "assistant")
_SKIPPED_ROLES = {**NOT_KEPT, "tool": TOOL}


def skip_role(role: object) -> Skipped:
    """Return why a message of this role is left out."""
    return Skipped(_SKIPPED_ROLES.get(str(role), f"a message by {role!r:.40}"))


def read_chatgpt(source: Source, how: ImportRun) -> Items:
    """Read `conversations.json`: the branch of each conversation that was shown last."""
    for chat in map(as_object, read_items(source, how)):
        nodes = {name: as_object(node) for name, node in as_object(chat.get("mapping")).items()}
        if not nodes:
            yield Skipped("a conversation without messages")
            continue
        id = chat.get("conversation_id") or chat.get("id") or digest(chat.get("title"), *nodes)
        said = {name: as_object(node.get("message")) for name, node in nodes.items()}
        branch: dict[str, object] = {}  # nodes and their parents
        current = chat.get("current_node")
        if not isinstance(current, str) or current not in nodes:
            current = next(reversed(nodes))  # the latest
        while isinstance(current, str) and current in nodes and current not in branch:
            branch[current] = nodes[current].get("parent")
            current = branch[current]
        for name in said:
            if said[name] and name not in branch:
                yield Skipped(OTHER_BRANCH)
        started = moment(chat.get("create_time")) or moment(chat.get("update_time"))
        for name in reversed(branch):
            if said[name]:
                session = f"chatgpt:{id}"
                title = chat.get("title")
                yield _read_chatgpt_message(said[name], session, name, started, title)


def _read_chatgpt_message(
    said: dict[str, Any], session: str, node: str, started: datetime | None, title: object
) -> Draft | Skipped:
    role = str(as_object(said.get("author")).get("role"))
    content = as_object(said.get("content"))
    kind = content.get("content_type")
    if as_object(said.get("metadata")).get("is_visually_hidden_from_conversation"):
        return Skipped(HIDDEN)
    if said.get("recipient", "all") not in ("all", None):
        return Skipped(_SKIPPED_ROLES.get(role, TOOL))
    if role not in SPEAKERS:
        return skip_role(role)
    if kind not in (None, "text", "multimodal_text"):
        return Skipped(f"content of type {kind!r:.40}")
    return message(
        text_of(content.get("parts")),
        id=f"chatgpt:{said.get('id') or node}",
        session=session,
        role=role,
        at=moment(said.get("create_time")) or started,
        title=title,
    )


def read_claude(source: Source, how: ImportRun) -> Items:
    """Read `conversations.json`, `memories.json` and `projects.json` of an export from Claude."""
    prefix = "item" if source.shape[0] == "array" else ""
    for each in read_items(source, how, prefix):
        if not isinstance(each, dict):
            yield Skipped("not an object")
        elif "chat_messages" in each:
            yield from _read_claude_chat(each)
        else:
            yield from _read_claude_notes(each)


def _read_claude_chat(chat: dict[str, Any]) -> Items:
    session = f"claude:{chat.get('uuid') or digest(chat.get('name'), chat.get('created_at'))}"
    started = moment(chat.get("created_at")) or moment(chat.get("updated_at"))
    for number, said in enumerate(map(as_object, as_list(chat["chat_messages"]))):
        sender = said.get("sender")
        role = ROLES.get(str(sender), sender)
        if role not in SPEAKERS:
            yield skip_role(role)
            continue
        for block in map(as_object, as_list(said.get("content"))):
            if block.get("type") not in (None, "text"):
                yield Skipped(TOOL)
        for _ in [*as_list(said.get("attachments")), *as_list(said.get("files"))]:
            yield Skipped("an attached file")
        yield message(
            text_of(said.get("content")) or str(said.get("text") or ""),
            id=f"claude:{said.get('uuid') or digest(session, number)}",
            session=session,
            role=role,
            at=moment(said.get("created_at")) or started,
            title=chat.get("name"),
        )


def _read_claude_notes(each: dict[str, Any]) -> Items:
    owner = each.get("account_uuid") or each.get("uuid") or ""
    texts = {"memory": each.get("conversations_memory")}
    texts |= as_object(each.get("project_memories"))
    for number, file in enumerate(as_list(each.get("memory_files"))):
        texts[f"file{number}"] = file.get("content") if isinstance(file, dict) else file
    for _ in filter(as_object, as_list(each.get("docs"))):
        yield Skipped("a document of a project")
    for name, text in texts.items():
        for headings, entry in read_entries(text) if isinstance(text, str) else ():
            id = f"claude:{owner}:{digest(name, entry)}"
            yield note(add_headings(headings, entry), id=id, tags=headings)
    if "docs" not in each and not any(texts.values()):
        yield Skipped("an unknown record")


def read_messages(source: Source, how: ImportRun) -> Items:
    """Read messages of the OpenAI API: a list, lists in lines, or ShareGPT's conversations."""
    kind, _ = source.shape
    session = f"openai:{source.stem}"
    if kind == "lines":
        found = read_json_lines(source, how)
    else:
        found = enumerate(read_items(source, how, "item" if kind == "array" else ""))
    for number, each in found:
        if each is None and kind == "lines":
            raise Damaged(f"{source.name}: line {number} is not a JSON object")
        given = as_object(each)
        chat = given.get("messages") or given.get("conversations") or given.get("input")
        if isinstance(chat, list):
            name = given.get("id") or given.get("conversation_id") or f"{source.stem}:{number}"
            for place, said in enumerate(chat):
                yield _read_message(said, f"openai:{name}", place)
        elif kind == "object" or {"messages", "conversations"} & given.keys():
            yield Skipped("a conversation without messages")
        else:
            yield _read_message(each, session, number)


def _read_message(given: object, session: str, number: int) -> Draft | Skipped:
    try:
        found = read_message(given)
    except InvalidInput as error:
        return Skipped(str(error))
    if isinstance(found, Skipped):
        return found
    if not isinstance(found.role, str):
        return Skipped("a message without a role")
    if found.role in _SKIPPED_ROLES:
        return Skipped(_SKIPPED_ROLES[found.role])
    return message(
        found.content,
        id=f"openai:{found.id or digest(session, number, found.role, found.content)}",
        session=session,
        role=found.role,
        name=found.name if isinstance(found.name, str) else None,
        at=found.at if isinstance(found.at, datetime) else moment(found.at),
    )


def read_letta(source: Source, how: ImportRun) -> Items:
    """Read an agent file: blocks and passages as notes, messages as a conversation."""
    for file in read_items(source, how, ""):
        if not isinstance(file, dict):
            yield Skipped("not an agent file")
            continue
        agents = list(map(as_object, as_list(file.get("agents"))))
        yield from _read_letta_notes(file)
        for agent in agents:
            yield from _read_letta_notes({**agent, "blocks": None})  # the file has them
        for agent in agents or [file]:
            session = f"letta:{agent.get('id') or digest(agent.get('name'))}"
            for number, said in enumerate(_list(agent, "messages")):
                role = said.get("role")
                if role not in SPEAKERS:
                    yield skip_role(role)
                    continue
                yield message(
                    text_of(said.get("content")),
                    id=f"letta:{said.get('id') or digest(session, number)}",
                    session=session,
                    role=role,
                    at=moment(said.get("created_at")),
                )


def _read_letta_notes(file: dict[str, Any]) -> Items:
    for block in _list(file, "blocks", "core_memory", "memory_blocks"):
        label = str(block.get("label") or "")
        if label == "persona":
            yield Skipped(SYSTEM)
        else:
            id = block.get("id") or digest(label, block.get("value"))
            yield note(str(block.get("value") or ""), id=f"letta:{id}", tags=[label])
    for passage in _list(file, "archival_memory", "passages", "archival_passages"):
        text = str(passage.get("text") or "")
        id = passage.get("id") or digest(text)
        yield note(text, id=f"letta:{id}", at=moment(passage.get("created_at")))


def _list(of: Mapping[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of the first of these lists that is not empty."""
    for name in names:
        found = of.get(name)
        if isinstance(found, list) and found:
            yield from (each for each in found if isinstance(each, dict))
            return
