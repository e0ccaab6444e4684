"""Chats with an assistant: ChatGPT, Claude, Letta, and lists of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..errors import InvalidInput
from ..types import Message
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

HIDDEN = "hidden in the conversation"
OTHER_BRANCH = "another version of an answer"
_SKIPPED_ROLES = {**NOT_KEPT, "tool": TOOL}


def read_chatgpt(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read `conversations.json`: the branch of each conversation that was shown last."""
    for source in sources:
        for chat in read_items(source, how):
            if not isinstance(chat, dict) or not isinstance(chat.get("mapping"), dict):
                yield Skipped("a conversation without messages")
                continue
            yield from _read_chatgpt_chat(chat)


def _read_chatgpt_chat(chat: dict[str, Any]) -> Items:
    nodes = chat["mapping"]
    id = chat.get("conversation_id") or chat.get("id") or digest(chat.get("title"), *nodes)
    branch: dict[str, Any] = {}
    current = chat.get("current_node")
    if not isinstance(current, str) or current not in nodes:  # the latest node
        current = next(reversed(nodes), None)
    while isinstance(current, str) and current in nodes and current not in branch:
        branch[current] = nodes[current]
        current = nodes[current].get("parent") if isinstance(nodes[current], dict) else None
    said = [each for each in nodes.values() if isinstance(each, dict) and each.get("message")]
    for _ in range(len(said) - sum(_has_message(node) for node in branch.values())):
        yield Skipped(OTHER_BRANCH)
    started = moment(chat.get("create_time")) or moment(chat.get("update_time"))
    for name, node in reversed(branch.items()):
        if _has_message(node):
            yield from _read_chatgpt_message(node["message"], f"chatgpt:{id}", name, started)


def _has_message(node: object) -> bool:
    return isinstance(node, dict) and isinstance(node.get("message"), dict)


def _read_chatgpt_message(
    said: dict[str, Any], session: str, node: str, started: datetime | None
) -> Items:
    author = as_object(said.get("author"))
    role = str(author.get("role"))
    about = as_object(said.get("metadata"))
    content = as_object(said.get("content"))
    if about.get("is_visually_hidden_from_conversation"):
        yield Skipped(HIDDEN)
    elif role in _SKIPPED_ROLES or said.get("recipient", "all") not in ("all", None):
        yield Skipped(_SKIPPED_ROLES.get(role, TOOL))
    elif role not in ("user", "assistant"):
        yield Skipped(f"a message by {role!r:.40}")
    elif content.get("content_type") not in (None, "text", "multimodal_text"):
        yield Skipped(f"content of type {content.get('content_type')!r:.40}")
    else:
        yield message(
            text_of(content.get("parts")),
            id=f"chatgpt:{said.get('id') or node}",
            session=session,
            role=role,
            at=moment(said.get("create_time")) or started,
        )


def read_claude(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read `conversations.json`, `memories.json` and `projects.json` of an export from Claude."""
    for source in sources:
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
    for number, said in enumerate(as_list(chat["chat_messages"])):
        if not isinstance(said, dict):
            yield Skipped("not a message")
            continue
        sender = said.get("sender")
        role = ROLES.get(str(sender), sender)
        if role not in ("user", "assistant"):
            yield Skipped(f"a message by {sender!r:.40}")
            continue
        for block in as_list(said.get("content")):
            if isinstance(block, dict) and block.get("type") not in (None, "text"):
                yield Skipped(TOOL)
        for _ in [*as_list(said.get("attachments")), *as_list(said.get("files"))]:
            yield Skipped("an attached file")
        yield message(
            text_of(said.get("content")) or str(said.get("text") or ""),
            id=f"claude:{said.get('uuid') or digest(session, number)}",
            session=session,
            role=role,
            at=moment(said.get("created_at")) or started,
        )


def _read_claude_notes(each: dict[str, Any]) -> Items:
    owner = each.get("account_uuid") or each.get("uuid") or ""
    texts: dict[str, Any] = {"memory": each.get("conversations_memory")}
    projects = each.get("project_memories")
    texts |= projects if isinstance(projects, dict) else {}
    files = each.get("memory_files")
    for number, file in enumerate(files if isinstance(files, list) else ()):
        texts[f"file{number}"] = file.get("content") if isinstance(file, dict) else file
    for doc in as_list(each.get("docs")):
        if isinstance(doc, dict):
            yield Skipped("a document of a project")
    for name, text in texts.items():
        for paragraph in _paragraphs(text):
            yield note(paragraph, id=f"claude:{owner}:{digest(name, paragraph)}")
    if "docs" not in each and not any(texts.values()):
        yield Skipped("an unknown record")


def _paragraphs(text: object) -> Iterator[str]:
    if isinstance(text, str):
        for part in text.split("\n\n"):
            if part.strip() and not part.lstrip().startswith("#"):
                yield part.strip()


def read_messages(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read messages of the OpenAI API: a list, lists in lines, or ShareGPT's conversations."""
    for source in sources:
        kind, keys = source.shape
        if kind == "lines":
            yield from _read_message_lines(source, how)
        elif kind == "array" and not keys & {"messages", "conversations"}:
            session = f"openai:{source.stem}"
            for number, each in enumerate(read_items(source, how)):
                yield from _read_message(each, session, number)
        else:
            for number, each in enumerate(
                read_items(source, how, "item" if kind == "array" else "")
            ):
                yield from _read_messages_of(each, f"openai:{source.stem}:{number}")


def _read_message_lines(source: Source, how: ImportRun) -> Items:
    for number, line in read_json_lines(source, how):
        if line is None:
            raise Damaged(f"{source.name}: line {number} is not a JSON object")
        if "role" in line:
            yield from _read_message(line, f"openai:{source.stem}", number)
        else:
            yield from _read_messages_of(line, f"openai:{source.stem}:{number}")


def _read_messages_of(chat: object, session: str) -> Items:
    given = chat if isinstance(chat, Mapping) else {}
    said = given.get("messages") or given.get("conversations") or given.get("input")
    if not isinstance(said, list):
        yield Skipped("a conversation without messages")
        return
    name = given.get("id") or given.get("conversation_id")
    for number, each in enumerate(said):
        yield from _read_message(each, f"openai:{name}" if name else session, number)


def _read_message(said: object, session: str, number: int) -> Items:
    try:
        found = read_message(said)
    except InvalidInput as error:
        found = Skipped(str(error))
    if isinstance(found, Message) and not isinstance(found.role, str):
        found = Skipped("a message without a role")
    elif isinstance(found, Message) and found.role in _SKIPPED_ROLES:
        found = Skipped(_SKIPPED_ROLES[found.role])
    if isinstance(found, Skipped):
        yield found
        return
    yield message(
        found.content,
        id=f"openai:{found.id or digest(session, number, found.role, found.content)}",
        session=session,
        role=found.role,
        name=found.name if isinstance(found.name, str) else None,
        at=moment(found.at) if isinstance(found.at, str) else found.at,
    )


def read_letta(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read an agent file: blocks and passages as notes, messages as a conversation."""
    for source in sources:
        for file in read_items(source, how, ""):
            if not isinstance(file, dict):
                yield Skipped("not an agent file")
                continue
            yield from _read_letta_notes(file)
            agents = file.get("agents")
            for agent in agents if isinstance(agents, list) else [file]:
                if isinstance(agent, dict):
                    yield from _read_letta_agent(agent)


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


def _read_letta_agent(agent: dict[str, Any]) -> Items:
    yield from _read_letta_notes({name: agent[name] for name in agent if name != "blocks"})
    session = f"letta:{agent.get('id') or digest(agent.get('name'))}"
    for number, said in enumerate(_list(agent, "messages")):
        role = said.get("role")
        if role not in ("user", "assistant"):
            yield Skipped(_SKIPPED_ROLES.get(str(role), f"a message by {role!r:.40}"))
            continue
        yield message(
            text_of(said.get("content")),
            id=f"letta:{said.get('id') or digest(session, number)}",
            session=session,
            role=role,
            at=moment(said.get("created_at")),
        )


def _list(of: Mapping[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of the first of these lists that is not empty."""
    for name in names:
        found = of.get(name)
        if isinstance(found, list) and found:
            yield from (each for each in found if isinstance(each, dict))
            return
