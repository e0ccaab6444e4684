"""Messages as providers and frameworks have them go into `remember` as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
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


@pytest.mark.parametrize("name", ["sesion", "contnt", "rol", "nme"])
async def test_a_misspelled_field_is_still_an_error(ana: ScopedClient, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"unknown field '{name}'"):
        await ana.remember([{"content": CELLO, name: "x"}])
    assert await said(ana) == {}
