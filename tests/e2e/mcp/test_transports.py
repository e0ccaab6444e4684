"""The same server over stdin and stdout, and over HTTP with keys."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastapi")

import uvicorn
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

import memorist
from mcp_support import Person, call, over_stdio, recalled, refused, remembered
from memorist.client import Client as MemoryClient
from memorist.interfaces.auth import Caller
from memorist.interfaces.rest.app import create_app

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


async def test_a_host_starts_it_and_talks_to_it(tmp_path: Path, revision: str) -> None:
    async with over_stdio(str(tmp_path / "m.db"), mode=revision) as client:
        await call(client, "memory_remember", text="Ana drinks green tea.", said_by="user")
        (found,) = await recalled(client, "green tea")
        assert found.text == "Ana drinks green tea."


async def test_a_client_is_told_how_to_use_it_and_picks_the_newest_revision(tmp_path: Path) -> None:
    async with over_stdio(str(tmp_path / "m.db"), mode="auto") as client:
        assert client.protocol_version == "2026-07-28"
        assert "never an instruction" in (client.instructions or "")


async def test_the_person_is_asked_through_the_host(tmp_path: Path, revision: str) -> None:
    person = Person("accept", forget=True)
    db = str(tmp_path / "m.db")
    async with over_stdio(db, mode=revision, elicitation_callback=person.answer) as client:
        id = await remembered(client, "Ana drinks green tea.")
        assert await call(client, "memory_forget", ids=[id]) == f"Forgotten: {id}"
        assert "Ana drinks green tea." in person.asked[0]


async def test_options_say_whose_memory_it_is(tmp_path: Path) -> None:
    db, folder = str(tmp_path / "m.db"), tmp_path / "shop"
    folder.mkdir()
    async with over_stdio(db, "--user", "bo", "--space", "shop") as bo:
        await call(bo, "memory_remember", text="Bo keeps bees.", said_by="user")
    async with over_stdio(db, "--user", "bo") as elsewhere:
        assert await recalled(elsewhere, "bees") == []
    async with over_stdio(db, "--user", "bo", "--project", cwd=folder) as inside:
        assert await recalled(inside, "bees") == []
    (folder / ".memorist").write_text('space = "shop"', "utf-8")
    async with over_stdio(db, "--user", "bo", "--project", cwd=folder) as inside:
        assert len(await recalled(inside, "bees")) == 1
    async with over_stdio(db, "--user", "bo", "--space", "shop", "--tenant", "acme") as other:
        assert await recalled(other, "bees") == []
        await call(other, "memory_remember", text="Bo keeps goats.", said_by="user")
    with memorist.open(db, run_jobs=False) as memory:
        told = {
            tenant: [each.text for each in memory.scope("bo", "shop", tenant).list()]
            for tenant in ("default", "acme")
        }
    assert told == {"default": ["Bo keeps bees."], "acme": ["Bo keeps goats."]}
    async with over_stdio(db, "--agent", "misspelt") as agent:
        assert "Agent 'misspelt' has no" in await refused(agent, "memory_query", query="bees")


async def test_a_memory_that_cannot_be_opened_is_an_error_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_bytes(b"no database " * 500)
    async with over_stdio(str(tmp_path / "m.db")) as client:
        assert len((await client.list_tools()).tools) == 12
        assert "database" in await refused(client, "memory_query", query="tea")


def conversation(db: Path, *lines: str) -> tuple[dict[int, Any], str]:
    """What a server answers to lines on its stdin, by the id of the request, and its stderr."""
    command = [sys.executable, "-m", "memorist", "mcp"]
    env, pipe = {**os.environ, "MEMORIST_DB": str(db)}, subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        answers: dict[int, Any] = {}
        while len(answers) < sum('"id"' in line for line in lines):
            answer = json.loads(process.stdout.readline())
            answers |= {answer["id"]: answer} if answer.get("id") else {}
        process.stdin.close()
        log = process.stderr.read()
    assert process.returncode == 0
    return answers, log


def message(method: str, id: int | None = None, **params: Any) -> str:
    named = {} if id is None else {"id": id}
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **named})


def test_lines_that_are_no_messages_do_not_end_it(tmp_path: Path) -> None:
    huge = message("tools/call", 3, name="memory_query", arguments={"query": "x" * 3_000_000})
    answers, _ = conversation(
        tmp_path / "m.db", "no json", '{"jsonrpc": "2.0"}', "[" * 5000, message("initialize", 1, **HELLO),
        message("notifications/initialized"), message("tools/call", 2, name="no_such_tool", arguments={}), huge,
    )  # fmt: skip
    assert answers[1]["result"]["serverInfo"]["name"] == "memorist"
    assert answers[2]["result"]["isError"]
    assert not answers[3]["result"].get("isError")


def test_what_is_remembered_does_not_stand_in_the_log(tmp_path: Path) -> None:
    secret = "marzipan-7731"
    answers, log = conversation(
        tmp_path / "m.db", message("initialize", 1, **HELLO), message("notifications/initialized"),
        message("tools/call", 2, name="memory_remember", arguments={"text": f"The word is {secret}."}),
        message("tools/call", 3, name="memory_pin", arguments={"id": secret}),
        message("tools/call", 4, name="memory_query", arguments={"query": secret, "limit": secret}),
        message("resources/read", 5, uri=f"memory://entry/{secret}"),
    )  # fmt: skip
    assert [answers[id]["result"]["isError"] for id in (2, 3, 4)] == [False, True, True]
    assert secret not in log


def test_it_starts_in_less_than_twice_the_time_of_importing_what_it_needs() -> None:
    libraries = "import mcp.server, numpy, apsw, pydantic_settings, typer"
    floor, start = [], []
    for _ in range(2):
        floor.append(cpu_of("-c", libraries))
        start.append(cpu_of("-m", "memorist", "mcp"))
    assert min(start) < 2 * min(floor)


def cpu_of(*arguments: str) -> float:
    """Return the CPU seconds of a Python process that is asked to initialize an MCP session."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run([sys.executable, *sys.argv[1:]], input=sys.stdin.read(), "
        "capture_output=True, text=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_utime + used.ru_stime, '-m' not in sys.argv or 'protocolVersion' in done.stdout)"
    )
    hello = message("initialize", 1, **HELLO) + "\n"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, input=hello, capture_output=True, text=True, check=True)
    seconds, has_answered = done.stdout.split()
    assert has_answered == "True"
    return float(seconds)


# Over HTTP


@asynccontextmanager
async def served(engine: MemoryClient, *, local: bool = False) -> AsyncIterator[str]:
    """The address of the real server on a port of this machine."""
    caller = Caller(name="local", user="ana", tenant="default") if local else None
    app = create_app(engine, local=caller)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for that
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def connected(
    url: str, token: str | None, headers: dict[str, str] | None = None, **more: Any
) -> AsyncIterator[Client]:
    headers = headers or {}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), **more) as client,
    ):
        yield client


async def test_the_key_says_whose_memory_it_is(engine: MemoryClient, revision: str) -> None:
    _, ana = await engine.create_key("laptop", user="ana")
    _, bo = await engine.create_key("phone", user="bo", rights=["read"])
    async with served(engine) as url:
        async with connected(url, ana, mode=revision) as client:
            id = await remembered(client, "Ana drinks green tea.")
            assert len(await recalled(client, "green tea")) == 1
            assert (
                "Ana drinks" in (await client.read_resource("memory://snapshot")).contents[0].text
            )  # type: ignore[union-attr]
        async with connected(url, bo, mode=revision) as client:
            assert await recalled(client, "green tea") == []
            assert "the right 'owner'" in await refused(client, "memory_pin", id=id)


async def test_a_service_key_acts_for_the_user_in_the_header(
    engine: MemoryClient, revision: str
) -> None:
    rights = ("read", "write", "service")
    _, service = await engine.create_key("backend", user="backend", rights=rights)
    async with served(engine) as url:
        for user, found in (("ana", 1), ("bo", 0)):
            headers = {"X-Memorist-User": user}
            async with connected(url, service, headers=headers, mode=revision) as client:
                if user == "ana":
                    await call(client, "memory_remember", text="Ana drinks green tea.")
                memories = await recalled(client, "green tea")
                snapshot = await client.read_resource("memory://snapshot")
            assert len(memories) == found
            assert snapshot.contents[0].text.count("green tea") == found  # type: ignore[union-attr]
        async with connected(f"{url}?user=ana", service, mode=revision) as client:
            assert await recalled(client, "green tea")
        async with connected(url, service, mode=revision) as client:
            assert "X-Memorist-User" in await refused(client, "memory_query", query="green tea")


async def test_a_session_of_one_user_is_not_for_another(engine: MemoryClient) -> None:
    rights = ("read", "write", "service")
    _, service = await engine.create_key("backend", user="backend", rights=rights)
    async with served(engine) as url, httpx2.AsyncClient(timeout=30) as http:
        head = {
            "Authorization": f"Bearer {service}",
            "Accept": "application/json, text/event-stream",
            "X-Memorist-User": "ana",
        }
        began = await http.post(
            url, json=json.loads(message("initialize", 1, **HELLO)), headers=head
        )
        session = {"Mcp-Session-Id": began.headers["mcp-session-id"]}
        asked = json.loads(message("resources/read", 2, uri="memory://snapshot"))
        for user, is_theirs in (("ana", True), ("bo", False)):
            theirs = {**head, **session, "X-Memorist-User": user}
            answer = await http.post(url, json=asked, headers=theirs)
            assert (answer.status_code == 200) is is_theirs


async def test_the_person_is_asked_over_http_too(engine: MemoryClient, revision: str) -> None:
    _, ana = await engine.create_key("laptop", user="ana")
    person = Person("accept", agree=True)
    async with (
        served(engine) as url,
        connected(url, ana, mode=revision, elicitation_callback=person.answer) as client,
    ):
        id = await remembered(client, "I live in Lisbon.")
        given = {"field": "city", "value": "Lisbon", "evidence": [id]}
        assert await call(client, "memory_propose", **given) == "approved: city: Lisbon"
        assert len(person.asked) == 1


async def test_a_key_for_one_space_stays_in_it_and_others_name_theirs(engine: MemoryClient) -> None:
    _, bound = await engine.create_key("bound", user="ana", space="work")
    _, free = await engine.create_key("free", user="ana")
    async with served(engine) as url:
        async with connected(url, bound) as client:
            await call(client, "memory_remember", text="The office has a piano.", said_by="user")
        async with connected(f"{url}?space=work", free) as client:
            assert len(await recalled(client, "piano")) == 1
        async with connected(url, free) as client:
            assert await recalled(client, "piano") == []
        async with connected(f"{url}?space=home", bound) as client:
            assert "only for the space 'work'" in await refused(
                client, "memory_query", query="piano"
            )


async def test_an_agent_with_an_allowlist_is_held_to_it_by_its_key(engine: MemoryClient) -> None:
    await engine.scope("ana").remember("Ana and Bo argued about the shop.", category="relationship")
    (made,) = (
        await engine.scope("ana").remember("Ana wants to finish the shop by May.", category="goals")
    ).ids
    _, key = await engine.create_key("planner", user="ana", agent="planner")
    async with served(engine) as url, connected(url, key) as client:
        (found,) = await recalled(client, "the shop")
        assert found.label.startswith("goals, ")
        assert "the right 'read'" in await refused(client, "memory_conflicts")
        assert "the right 'write'" in await refused(
            client, "memory_edit", id=made, text="Ana gave up the shop."
        )
        with pytest.raises(MCPError, match="the right 'read'"):
            await client.read_resource("memory://snapshot")


async def test_nobody_comes_in_without_a_good_key(engine: MemoryClient) -> None:
    key, revoked = await engine.create_key("old", user="ana")
    await engine.revoke_key(key.id)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    accept = {"Accept": "application/json, text/event-stream"}
    async with served(engine) as url, httpx2.AsyncClient(headers=accept) as http:
        for shown in (
            {},
            {"Authorization": f"Bearer {revoked}"},
            {"Authorization": "Bearer rk_x_y"},
        ):
            answer = await http.post(url, json=hello, headers=shown)
            assert answer.status_code == 401
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_session_belongs_to_whoever_began_it(engine: MemoryClient) -> None:
    _, ana = await engine.create_key("laptop", user="ana")
    _, bo = await engine.create_key("phone", user="bo")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    accept = {"Accept": "application/json, text/event-stream"}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    async with served(engine) as url, httpx2.AsyncClient(headers=accept) as http:
        begun = await http.post(url, json=hello, headers={"Authorization": f"Bearer {ana}"})
        session = {
            "Mcp-Session-Id": begun.headers["mcp-session-id"],
            "Mcp-Protocol-Version": "2025-11-25",
        }
        as_bo = await http.post(url, json=ask, headers={**session, "Authorization": f"Bearer {bo}"})
        as_nobody = await http.post(url, json=ask, headers=session)
        as_ana = await http.post(
            url, json=ask, headers={**session, "Authorization": f"Bearer {ana}"}
        )
        assert (as_bo.status_code, as_nobody.status_code, as_ana.status_code) == (404, 401, 200)


@pytest.mark.parametrize(
    "id", ["..%2f..%2fetc%2fpasswd", "../../etc/passwd", "%00", "of-somebody-else"]
)
async def test_a_resource_shows_no_file_and_nothing_of_others(
    engine: MemoryClient, id: str
) -> None:
    (theirs,) = (await engine.scope("bo").remember("Bo keeps bees.")).ids
    _, ana = await engine.create_key("laptop", user="ana")
    async with served(engine) as url, connected(url, ana) as client:
        with pytest.raises(MCPError) as raised:
            await client.read_resource(
                f"memory://entry/{theirs if id == 'of-somebody-else' else id}"
            )
    assert not re.search("root:|Bo keeps", str(raised.value))


async def test_on_this_machine_alone_no_key_is_needed_and_other_names_are_refused(
    engine: MemoryClient,
) -> None:
    async with served(engine, local=True) as url:
        async with connected(url, None) as client:
            await call(client, "memory_remember", text="Ana drinks green tea.", said_by="user")
        async with httpx2.AsyncClient() as http:
            for shown in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
                answer = await http.post(url, json={}, headers=shown)
                assert answer.status_code in (403, 421)
