"""Messages as providers and frameworks have them go into `remember` as they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic.types as claude
import httpx
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_to_dict,
)
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
)

from memorist import aio
from memorist.client import Client
from memorist.errors import InvalidInput
from memorist.interfaces.auth import Caller
from memorist.interfaces.rest.app import create_app
from memorist.scoped import ScopedClient

CELLO = "I play the cello in a quartet."
REPLY = "A quartet is a fine thing."
CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    options = {"state_dir": tmp_path, "embedder": "hashing", "extract": "off"}
    async with aio.open(tmp_path / "m.db", **options) as memory:
        yield memory.scope("ana", session="s1")


async def said(ana: ScopedClient) -> dict[str, str | None]:
    """Return who said what."""
    return {memory.text: memory.labels.role for memory in await ana.list()}


OPENAI_CHAT: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": CELLO}, {"type": "image_url"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
    {"role": "tool", "tool_call_id": "call_1", "content": "3 found"},
    {"role": "assistant", "content": REPLY, "annotations": [], "audio": None},
]
OPENAI_RESPONSES: list[Any] = [
    {"role": "developer", "content": "Be brief."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CELLO}]},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "3 found"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": REPLY, "annotations": []}],
    },
]
ANTHROPIC: list[Any] = [
    {"role": "user", "content": CELLO},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "…", "signature": "x"},
            {"type": "tool_use", "id": "t1", "name": "find", "input": {}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "3"}]},
    {"role": "assistant", "content": [{"type": "text", "text": REPLY}]},
]
LANGCHAIN: list[Any] = [
    SystemMessage("Be brief."),
    HumanMessage(CELLO),
    AIMessage("", tool_calls=[{"name": "find", "args": {}, "id": "call_1"}]),
    ToolMessage("3 found", tool_call_id="call_1"),
    AIMessage([{"type": "text", "text": REPLY}]),
]
SHAPES = {
    "OpenAI chat": (OPENAI_CHAT, ["skipped", "created", "skipped", "created", "created"]),
    "OpenAI responses": (
        OPENAI_RESPONSES,
        ["skipped", "created", "skipped", "skipped", "skipped", "created"],
    ),
    "Anthropic": (ANTHROPIC, ["created", "skipped", "skipped", "created"]),
    "LangChain": (LANGCHAIN, ["skipped", "created", "skipped", "created", "created"]),
    "LangChain dicts": (
        messages_to_dict(LANGCHAIN),
        ["skipped", "created", "skipped", "created", "created"],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_conversation_of_a_provider_is_stored_and_the_receipt_says_what_is_left_out(
    ana: ScopedClient, shape: str
) -> None:
    messages, wanted = SHAPES[shape]
    receipt = await ana.remember(messages)
    assert [outcome.status for outcome in receipt.outcomes] == wanted
    found = await said(ana)
    assert found.pop(CELLO) == "user"
    assert found.pop(REPLY) == "assistant"
    assert found in ({}, {"3 found": "tool"})
    reasons = {outcome.reason for outcome in receipt.outcomes if outcome.status == "skipped"}
    assert reasons <= {"a system prompt", "a tool call or its result"}


@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "LangChain"])  # not JSON
async def test_a_conversation_of_a_provider_is_stored_over_rest(
    ana: ScopedClient, shape: str
) -> None:
    messages, wanted = SHAPES[shape]
    caller = Caller(name="ana", user="ana", tenant="default")
    engine = Client(ana.ctx)
    transport = httpx.ASGITransport(create_app(engine, local=caller))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        given = {"messages": messages, "session": "s1"}
        done = await client.post("/v1/memory/messages", json=given)
        assert done.status_code == 201
        outcomes = done.json()["outcomes"]
        assert [outcome["status"] for outcome in outcomes] == wanted
        reasons = {outcome["reason"] for outcome in outcomes if outcome["status"] == "skipped"}
        assert reasons <= {"a system prompt", "a tool call or its result"}
        for wrong in ({"rol": "user", "content": "x"}, {"role": "user"}, {"role": "Ana"}):
            refused = await client.post("/v1/memory/messages", json={"messages": [wrong]})
            assert refused.status_code == 422
    found = await said(ana)
    assert (found[CELLO], found[REPLY]) == ("user", "assistant")


THOUGHT = claude.ThinkingBlock(type="thinking", thinking="A quartet …", signature="x")
TEXT = claude.TextBlock(type="text", text=REPLY)
USE = claude.ToolUseBlock(type="tool_use", id="t1", name="find", input={})
USAGE = {"input_tokens": 1, "output_tokens": 1}
ANSWER = claude.Message.model_validate(
    {"id": "m1", "type": "message", "role": "assistant", "model": "claude", "usage": USAGE}
    | {"content": [{"type": "text", "text": REPLY}], "stop_reason": None, "stop_sequence": None}
)
OUTPUT = ResponseOutputMessage.model_validate(OPENAI_RESPONSES[-1])


class Role(Enum):
    ASSISTANT = "assistant"


@dataclass
class Said:
    """A message of a framework that uses plain classes."""

    role: Role
    content: object


REPLIES: dict[str, Any] = {
    "Claude's blocks": {"role": "assistant", "content": [THOUGHT, TEXT, USE]},
    "one block": {"role": "assistant", "content": TEXT},
    "Claude's message": ANSWER,
    "blocks of a plain class": Said(Role.ASSISTANT, [SimpleNamespace(type="text", text=REPLY)]),
    "an answer of OpenAI": ChatCompletionMessage(role="assistant", content=REPLY),
    "an output item": OUTPUT,
    "parts of an output item": {"role": "assistant", "content": OUTPUT.content},
    "LangChain with blocks": AIMessage([{"type": "reasoning"}, {"type": "text", "text": REPLY}]),
    "a chunk": AIMessageChunk(REPLY[:9]) + AIMessageChunk(REPLY[9:]),
    "a chunk as a dict": message_to_dict(AIMessageChunk(REPLY)),
    "a pair": ("ai", REPLY),
}


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_is_stored_as_the_object_that_the_package_returns(
    ana: ScopedClient, name: str
) -> None:
    receipt = await ana.remember([{"role": "user", "content": CELLO}, REPLIES[name]])
    assert [outcome.status for outcome in receipt.outcomes] == ["created", "created"]
    assert await said(ana) in [{CELLO: "user", REPLY: role} for role in ("assistant", "ai")]


SKIPPED: dict[str, tuple[Any, str]] = {
    "thoughts and calls": (
        {"role": "assistant", "content": [THOUGHT, USE]},
        "a tool call or its result",
    ),
    "a call": (
        ResponseFunctionToolCall(type="function_call", call_id="c", name="f", arguments="{}"),
        "a tool call or its result",
    ),
    "reasoning": (
        ResponseReasoningItem(id="r", type="reasoning", summary=[]),
        "a tool call or its result",
    ),
    "a deletion": (RemoveMessage(id="1"), "a message whose role is 'remove'"),
    "a role of an application": (
        ChatMessage("Too long.", role="critic"),
        "a message whose role is 'critic'",
    ),
    "a reference": ({"id": "msg_2"}, "a reference to an item"),
    "a reference with a type": ({"id": "msg_2", "type": None}, "a reference to an item"),
    "an audio answer": ({"role": "assistant", "audio": {"id": "a1"}}, "no text"),
    "a refusal": (ChatCompletionMessage(role="assistant", refusal="I can't."), "no text"),
}


@pytest.mark.parametrize("name", SKIPPED)
async def test_what_says_nothing_is_skipped_and_the_rest_of_the_list_is_stored(
    ana: ScopedClient, name: str
) -> None:
    given, reason = SKIPPED[name]
    receipt = await ana.remember([HumanMessage(CELLO), given])
    (created, skipped) = receipt.outcomes
    assert (created.status, skipped.status, skipped.reason) == ("created", "skipped", reason)
    assert await said(ana) == {CELLO: "user"}


async def test_one_object_needs_no_list(ana: ScopedClient) -> None:
    await ana.remember(Said(Role.ASSISTANT, REPLY))
    assert await said(ana) == {REPLY: "assistant"}


@pytest.mark.parametrize(
    "wrong",
    [
        ("user", 5),
        ("Ana", CELLO),
        (["user"], CELLO),
        {"content": b"x"},
        {"id": None},
        {"type": "human", "text": CELLO},
    ],
)
async def test_what_is_no_message_is_still_an_error(ana: ScopedClient, wrong: object) -> None:
    with pytest.raises(InvalidInput, match="A message"):
        await ana.remember([{"role": "user", "content": CELLO}, wrong])
    assert await said(ana) == {}


def reply_without_id(text: str) -> dict[str, Any]:
    """Return an item as OpenAI Agents makes it for models that give no ids."""
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "__fake_id__", "type": "message", "role": "assistant", "content": parts}


async def test_replies_with_the_same_made_up_id_are_all_stored(
    ana: ScopedClient, tmp_path: Path
) -> None:
    replies = [reply_without_id(REPLY), reply_without_id("Bach wrote six suites.")]
    receipt = await ana.remember(replies)
    assert [outcome.status for outcome in receipt.outcomes] == ["created", "created"]
    (tmp_path / "items.json").write_text(json.dumps(replies), "utf-8")
    imported = Client(ana.ctx).scope("bo")
    for new in (2, 0):
        report = await imported.import_files(tmp_path / "items.json")
        assert report.new_memories == new
    assert await said(imported) == {REPLY: "assistant", "Bach wrote six suites.": "assistant"}


@pytest.mark.parametrize("name", ["timestamp", "created_at", "at"])
async def test_times_of_providers_are_taken(ana: ScopedClient, name: str) -> None:
    await ana.remember([{"role": "user", "content": CELLO, name: "2024-05-01T10:00:00Z"}])
    (memory,) = await ana.list()
    assert memory.occurred_at == datetime(2024, 5, 1, 10, tzinfo=UTC)


async def test_one_message_of_a_framework_needs_no_list(ana: ScopedClient) -> None:
    await ana.remember(HumanMessage(CELLO, id="lc-1"))
    (memory,) = await ana.list()
    assert (memory.text, memory.source_ids) == (CELLO, ("lc-1",))


async def test_a_system_message_alone_is_kept_as_what_it_is(ana: ScopedClient) -> None:
    await ana.remember([{"role": "system", "content": "The backup runs at noon."}])
    assert await said(ana) == {"The backup runs at noon.": "system"}


@pytest.mark.parametrize("name", ["sesion", "contnt", "rol", "nme", "Role"])
async def test_a_misspelled_field_is_still_an_error(ana: ScopedClient, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"unknown field '{name}'"):
        await ana.remember([{"content": CELLO, name: "x"}])
    assert await said(ana) == {}
