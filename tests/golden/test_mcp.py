"""Frozen tools, resources and prompts of the MCP server: how they are listed, and an answer of each."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, MCPError

import memorist
from golden.files import Golden
from golden.normalize import Normalizer
from golden.server import ANA
from golden.stage import QUESTION, Stage
from mcp_support import Person
from memorist.interfaces.mcp import build_server
from memorist.interfaces.mcp.request import Backend

Arguments = dict[str, Any]
# How each tool is called; {name} is an id of the history.
TOOLS: dict[str, list[Arguments]] = {
    "memory_query": [
        {"query": QUESTION, "limit": 3},
        {"query": "submarines", "categories": ["nothing"]},
        {"query": QUESTION, "min_confidence": 0.99},
        {},
    ],
    "memory_context": [
        {"about": QUESTION},
        {"about": QUESTION, "session": "chat-1"},
    ],
    "memory_list": [{"limit": 2}, {"show": "hidden"}],
    "memory_remember": [
        {"text": "I collect stamps from Peru.", "said_by": "user", "tags": ["hobby"]},
        {"text": "My password is hunter2-Xy77!"},
    ],
    "memory_edit": [
        {"id": "{cello}", "text": "On Mondays I play the cello."},
        {"id": "nothing", "text": "a"},
    ],
    "memory_pin": [{"id": "{bees}"}, {"id": "{peanuts}", "pinned": False}],
    "memory_restore": [{"id": "{locker}"}, {"id": "{bees}"}],
    "memory_forget": [{"ids": ["{cello}"]}, {"about": "sister Marta"}, {}],
    "memory_history": [{"id": "{tea}"}, {"id": "{gone}"}],
    "memory_conflicts": [{}],
    "memory_decide": [
        {"id": "{blue}", "decision": "reject"},
        {"id": "{blue}", "decision": "confirm"},
        {"id": "{blue}", "decision": "both"},
    ],
    "memory_propose": [{"field": "language", "value": "Portuguese", "evidence": ["{porto}"]}],
}
RESOURCES: dict[str, list[str]] = {
    "memory://entry/{id}": ["memory://entry/{tea}", "memory://entry/nothing"],
    "memory://snapshot": ["memory://snapshot"],
}
PROMPTS: dict[str, list[Arguments]] = {
    "recall_context": [{"about": QUESTION}, {}],
    "remember_this": [{}],
}


@asynccontextmanager
async def connected(place: Path, person: Person | None = None) -> AsyncIterator[Client]:
    """A client of a server in this process; without a person there is nobody to ask."""
    async with memorist.aio.open(place) as engine:
        server = build_server(Backend(lambda _engine, _request: ANA, engine))
        async with Client(server, elicitation_callback=person.answer if person else None) as client:
            yield client


def listed(found: Any) -> str:
    """Something that the server lists, as it is sent."""
    sent = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(sent, ensure_ascii=False, indent=1, sort_keys=True)


async def answered(call: Any, normal: Normalizer) -> str:
    """An answer or an error of the server."""
    try:
        sent = (await call).model_dump(mode="json", by_alias=True, exclude_none=True)
    except MCPError as error:
        return f"error {error.error.code}: {normal.text(error.error.message)}"
    sent.pop("_meta", None)  # about the server, in every answer
    return normal.json(sent)


def with_ids(arguments: Any, stage: Stage) -> Any:
    return json.loads(
        re.sub(r"\{([a-z-]+)\}", lambda match: stage.ids[match[1]], json.dumps(arguments))
    )


@pytest.mark.parametrize("name", TOOLS)
async def test_a_tool_is_frozen(
    golden: Golden, normal: Normalizer, stage: Stage, place: Path, name: str
) -> None:
    texts = []
    for arguments in TOOLS[name]:
        stage.copy(place.parent)
        async with connected(place) as client:
            (tool,) = (each for each in (await client.list_tools()).tools if each.name == name)
            answer = await answered(client.call_tool(name, with_ids(arguments, stage)), normal)
        texts.append(f"{name} {json.dumps(arguments, ensure_ascii=False)}\n{answer}")
    golden.check(f"mcp/tool-{name}.txt", "\n\n".join([listed(tool), *texts]))


@pytest.mark.parametrize("uri", RESOURCES)
async def test_a_resource_is_frozen(
    golden: Golden, normal: Normalizer, stage: Stage, place: Path, uri: str
) -> None:
    async with connected(place) as client:
        resources = {str(each.uri): each for each in (await client.list_resources()).resources}
        templates = {
            each.uri_template: each
            for each in (await client.list_resource_templates()).resource_templates
        }
        texts = [listed({**resources, **templates}[uri])]
        for address in RESOURCES[uri]:
            call = client.read_resource(address.format(**stage.ids))
            texts.append(f"{address}\n{await answered(call, normal)}")
    golden.check(f"mcp/resource-{'-'.join(re.findall('[a-z]+', uri)[1:])}.txt", "\n\n".join(texts))


@pytest.mark.parametrize("name", PROMPTS)
async def test_a_prompt_is_frozen(
    golden: Golden, normal: Normalizer, place: Path, name: str
) -> None:
    async with connected(place) as client:
        (prompt,) = (each for each in (await client.list_prompts()).prompts if each.name == name)
        texts = [listed(prompt)]
        for arguments in PROMPTS[name]:
            answer = await answered(client.get_prompt(name, arguments), normal)
            texts.append(f"{name} {json.dumps(arguments)}\n{answer}")
    golden.check(f"mcp/prompt-{name}.txt", "\n\n".join(texts))


@pytest.mark.parametrize(
    ("name", "person"), [("memory_forget", {"forget": True}), ("memory_propose", {"agree": True})]
)
async def test_what_a_tool_asks_the_person_is_frozen(
    golden: Golden, normal: Normalizer, stage: Stage, place: Path, name: str, person: Arguments
) -> None:
    asked, arguments = Person("accept", **person), TOOLS[name][0]
    async with connected(place, asked) as client:
        answer = await answered(client.call_tool(name, with_ids(arguments, stage)), normal)
    golden.check(
        f"mcp/asked-{name}.txt",
        "\n\n".join([json.dumps(arguments), *map(normal.text, asked.asked), answer]),
    )


async def test_everything_that_the_server_offers_is_recorded(place: Path) -> None:
    async with connected(place) as client:
        assert {each.name for each in (await client.list_tools()).tools} == set(TOOLS)
        assert {each.name for each in (await client.list_prompts()).prompts} == set(PROMPTS)
        templates = {
            each.uri_template
            for each in (await client.list_resource_templates()).resource_templates
        }
        resources = {str(each.uri) for each in (await client.list_resources()).resources}
    assert resources | templates == set(RESOURCES)


async def test_how_the_server_introduces_itself_is_frozen(golden: Golden, place: Path) -> None:
    async with connected(place) as client:
        about = {"name": client.server_info.name, "title": client.server_info.title}
        about |= {"instructions": client.instructions}
        about |= {
            "capabilities": client.server_capabilities.model_dump(
                mode="json", by_alias=True, exclude_none=True
            )
        }
    golden.check("mcp/server.json", json.dumps(about, ensure_ascii=False, indent=1, sort_keys=True))
