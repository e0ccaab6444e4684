"""Chats with an assistant: ChatGPT, Claude, Letta, and lists of messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..errors import InvalidInput
from ..types import Draft
from .markdown import add_headings, read_entries
from .members import MAP, read_members, read_objects
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
    read_json_lines,
)

HIDDEN = "a hidden system message"
EMPTY = "a conversation without messages"
OTHER_BRANCH = "an alternative answer"
SPEAKERS = ("user", "assistant")
_CLAUDE_PARTS = ("chat_messages", "memory_files", "conversations_memory", "docs")
_LETTA_PARTS = (
    "blocks",
    "core_memory",
    "memory_blocks",
    "archival_memory",
    "passages",
    "archival_passages",
    "messages",
)
_EVENT_TEXTS = ("message", "reason", "last_login", "time")  # of Letta
_CONVERSATIONS = ("messages", "conversations", "input")
_SKIPPED_ROLES = {**NOT_KEPT, "tool": TOOL}


def skip_role(role: object) -> Skipped:
    """Return why a message of this role is left out."""
    return Skipped(_SKIPPED_ROLES.get(str(role), f"a message by {role!r:.40}"))


def read_chatgpt(source: Source, how: ImportRun) -> Items:
    """Read `conversations.json`: the branch of each conversation that was shown last."""
    for chat in read_objects(source, how, "item", "mapping", kind=MAP):
        nodes = {name: as_object(node) for name, node in as_object(chat.get("mapping")).items()}
        if not nodes:
            yield Skipped(EMPTY)
            continue
        id = chat.get("conversation_id") or chat.get("id") or digest(chat.get("title"), *nodes)
        said = {name: as_object(node.get("message")) for name, node in nodes.items()}
        branch = _find_branch(nodes, chat.get("current_node"))
        for name in said.keys() - set(branch):
            if said[name]:
                yield Skipped(OTHER_BRANCH)
        started = moment(chat.get("create_time")) or moment(chat.get("update_time"))
        for name in branch:
            if said[name]:
                session = f"chatgpt:{id}"
                title = chat.get("title")
                yield _read_chatgpt_message(said[name], session, name, started, title)


def _find_branch(nodes: Mapping[str, dict[str, Any]], current: object) -> list[str]:
    """Return the nodes from the first one to the current one; if that is unknown, to the latest.

    A conversation that is cut off may lack nodes in between: then each part has a branch.

    >>> nodes = {"a": {}, "b": {"parent": "a"}, "c": {"parent": "a"}, "e": {"parent": "d"}}
    >>> _find_branch(nodes, "b"), _find_branch(nodes, None)
    (['a', 'b'], ['a', 'c', 'e'])
    """
    parents = {str(node.get("parent")) for node in nodes.values()}
    ends = [name for name in nodes if name not in parents] or [*nodes]
    if isinstance(current, str) and current in nodes:
        ends = [current]
    seen: set[str] = set()
    branch: list[str] = []
    for name in reversed(ends):
        path = []
        while name in nodes and name not in seen:
            seen.add(name)
            path.append(name)
            name = str(nodes[name].get("parent"))
        if name not in nodes or name in path:  # else it leads to an answer that was replaced
            branch += path
    return branch[::-1]


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
    for each in read_objects(source, how, prefix, *_CLAUDE_PARTS):
        if "chat_messages" in each:
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
    kind, keys = source.shape
    if kind == "object" and not keys.isdisjoint(_CONVERSATIONS):
        yield from _read_conversation(source, how)
        return
    found: Iterator[tuple[int, Any]] = read_json_lines(source, how)
    if kind == "array":
        found = enumerate(read_objects(source, how, "item", *_CONVERSATIONS))
    elif not keys.isdisjoint(_CONVERSATIONS):
        found = enumerate(read_objects(source, how, "", *_CONVERSATIONS), 1)
    for number, given in found:
        if given is None:
            raise Damaged(f"{source.name}: line {number} is not a JSON object")
        chats = [given[name] for name in _CONVERSATIONS if isinstance(given.get(name), list)]
        if chat := next(filter(None, chats), None):
            name = _name_conversation(given) or f"{source.stem}:{number}"
            for place, said in enumerate(chat):
                yield _read_message(said, f"openai:{name}", place)
        elif chats:
            yield Skipped(EMPTY)
        else:
            yield _read_message(given, f"openai:{source.stem}", number)


def _read_conversation(source: Source, how: ImportRun) -> Items:
    """Read the messages of a single object, one at a time: it may be large."""
    count = 0
    for owner, name, _, said in read_members(source, how, "", *_CONVERSATIONS):
        if name:
            session = _name_conversation(owner) or f"{source.stem}:0"
            yield _read_message(said, f"openai:{session}", count)
            count += 1
    if not count:
        yield Skipped(EMPTY)


def _name_conversation(given: Mapping[str, Any]) -> object:
    return given.get("id") or given.get("conversation_id")


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
    damage: Damaged | None = None
    # The file has the blocks of its agents.
    for place, fields in (("agents.item", _LETTA_PARTS[1:]), ("", (*_LETTA_PARTS, "agents"))):
        try:
            for owner in read_objects(source, how if place else ImportRun(), place, *fields):
                notes = {name: owner.get(name) for name in fields}
                yield from _read_letta_notes(notes)
                yield from _read_letta_chat(owner)
        except Damaged as error:
            damage = error
    if damage is not None:
        raise damage


def _read_letta_chat(agent: dict[str, Any]) -> Items:
    session = f"letta:{agent.get('id') or digest(agent.get('name'))}"
    for number, said in enumerate(_list(agent, "messages")):
        role = said.get("role")
        text = text_of(said.get("content"))
        if role not in SPEAKERS:
            yield skip_role(role)
            continue
        if role == "user" and (event := _read_event(text)):
            if event.get("type") != "user_message":
                yield Skipped(SYSTEM)
                continue
            text = str(event.get("message") or "")
        yield message(
            text,
            id=f"letta:{said.get('id') or digest(session, number)}",
            session=session,
            role=role,
            at=moment(said.get("created_at")),
        )


def _read_event(text: str) -> dict[str, Any]:
    """Return what the program packed as JSON: a message of the person, or one of its own.

    >>> _read_event('{"type": "user_message", "message": "Hello"}')
    {'type': 'user_message', 'message': 'Hello'}
    """
    with suppress(ValueError, RecursionError):
        event = as_object(json.loads(text))
        if isinstance(event.get("type"), str) and not event.keys().isdisjoint(_EVENT_TEXTS):
            return event
    return {}


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
