"""Every route in every state of its caller: made from the table of routes, so that a new one cannot be forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

import memorist
from memorist.client import Client
from memorist.interfaces.rest import AuthenticatedRoute, rights
from memorist.interfaces.rest.app import ROUTERS, create_app
from rest_server import route_table

from .conftest import asking

TABLE = route_table()
CLOSED = [(path, method, right) for path, method, right in TABLE if right]
SAMPLES: dict[str, Any] = {
    "text": "I love tea.", "query": "tea", "messages": [{"role": "user", "content": "I love tea."}], "session": "s1",
    "records": [], "operation": "o1", "thread": "t1", "value": "Ana", "id": "m1", "field": "tone", "name": "other",
    "message": "tea?", "memories": [{"memory_id": "m1", "text": "Tea."}],
}  # fmt: skip
SPACES = ("space", "user_id", "guildId")  # what a space is called, here and there
WITHOUT = {
    "read": ("write",),
    "ask": ("write",),
    "write": ("read",),
    "remember": ("read",),
    "owner": ("read", "write", "admin"),
    "admin": ("read", "write", "owner"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def memory(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    folder: Path = tmp_path_factory.mktemp("journal")
    async with memorist.aio.open(
        ":memory:", embedder="hashing", rate_limit=0, journal_dir=folder
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def app(memory: Client) -> FastAPI:
    return create_app(memory)


@pytest.fixture(scope="module")
def described(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def request_of(described: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    """A request that the schema allows, with as little as it needs."""
    operation = described["paths"][path][method]
    schema = (
        operation.get("requestBody", {})
        .get("content", {})
        .get("application/json", {})
        .get("schema", {})
    )
    while "$ref" in schema or "anyOf" in schema:
        schema = (
            schema["anyOf"][0]
            if "anyOf" in schema
            else described["components"]["schemas"][name_of(schema)]
        )
    given = operation.get("parameters", [])
    query = {
        each["name"]: SAMPLES[each["name"]]
        for each in given
        if each["in"] == "query" and each["required"]
    }
    body = {
        name: SAMPLES[name]
        for name in schema.get("required", ("text",) if schema.get("minProperties") else ())
    }
    for name in SPACES:
        if name in schema.get("properties", ()):
            body[name] = "other"
        if any(each["name"] == name and each["in"] == "query" for each in given):
            query[name] = "other"
    request: dict[str, Any] = {
        "method": method.upper(),
        "url": path.format(**SAMPLES),
        "params": query,
    }
    return {**request, "json": body} if "requestBody" in operation else request


def name_of(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def is_told(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_all_routes_but_two_need_a_right() -> None:
    assert {path for path, _, right in TABLE if not right} == {"/healthz", "/readyz"}
    assert {right for _, _, right in CLOSED} == set(WITHOUT)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "method", "right"), CLOSED)
async def test_nobody_comes_in_without_a_good_key(
    memory: Client, app: FastAPI, described: dict[str, Any], path: str, method: str, right: str
) -> None:
    everything = ("read", "write", "owner", "admin")
    _, expired = await memory.create_key("expired", user="ana", rights=everything, days=0)
    revoked, over = await memory.create_key("revoked", user="ana", rights=everything)
    await memory.revoke_key(revoked.id)
    _, good = await memory.create_key("good", user="ana", rights=everything)
    request = request_of(described, path, method)
    for token in (None, "nonsense", "rk_0000_wrong", good[:-1], expired, over):
        async with asking(app, token) as client:
            answer = await client.request(**request)
        is_told(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "method", "right"), CLOSED)
async def test_a_key_does_what_it_has_the_right_to(
    memory: Client, app: FastAPI, described: dict[str, Any], path: str, method: str, right: str
) -> None:
    _, token = await memory.create_key("narrow", user="ana", rights=WITHOUT[right])
    async with asking(app, token) as client:
        is_told(await client.request(**request_of(described, path, method)), 403)


NAMES_NO_SPACE = {  # they are about one memory by its id, about the key itself, or about the whole server
    "/v1/ping/", "/v1/memories/{id}/", "/v1/memories/{id}/history/", "/v1/entities/", "/api/memory",
    "/api/memory/refresh", "/v1/memory/backlog", "/metrics", "/v1/batch/",
}  # fmt: skip


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "method", "right"), [each for each in CLOSED if each[0] not in NAMES_NO_SPACE]
)
async def test_a_key_for_one_space_reaches_no_other(
    memory: Client, app: FastAPI, described: dict[str, Any], path: str, method: str, right: str
) -> None:
    request = request_of(described, path, method)
    names = {**request["params"], **request.get("json", {})}
    is_about_all = path.startswith("/v1/user")
    if not names.keys() & set(SPACES) and "{name}" not in path and not is_about_all:
        assert path.startswith("/v3/"), "a route that is about a space has to say which"
        request["json"]["filters"] = {"user_id": "other"}
    _, token = await memory.create_key(
        "bound", user="ana", space="work", rights=("read", "write", "owner", "admin")
    )
    async with asking(app, token) as client:
        is_told(await client.request(**request), 403)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "method", "right"), [each for each in CLOSED if "{id}" in each[0]]
)
async def test_what_belongs_to_somebody_else_is_not_there(
    memory: Client, app: FastAPI, described: dict[str, Any], path: str, method: str, right: str
) -> None:
    bobs = memory.scope(user="bob")
    id = (await bobs.remember(f"Bob's secret is {path} {method}.")).ids[0]
    _, token = await memory.create_key(
        "ana", user="ana", rights=("read", "write", "owner", "admin")
    )
    request = request_of(described, path, method)
    request["url"] = path.format(**{**SAMPLES, "id": id})
    request["params"].pop("space", None)
    async with asking(app, token) as client:
        answer = await client.request(**request)
    if path == "/v1/memories/{id}/history/":  # as Mem0 answers
        assert (answer.status_code, answer.json()) == (200, [])
    else:
        is_told(answer, 404)
    assert "secret" not in answer.text
    assert (await bobs.get(id)).revision == 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "method", "right"), CLOSED)
async def test_an_agent_with_an_allowlist_asks_and_remembers_and_sees_nothing_else(
    memory: Client, app: FastAPI, described: dict[str, Any], path: str, method: str, right: str
) -> None:
    agent = min(memory.ctx.allowlists.allowlists)
    _, token = await memory.create_key(
        "agent", user="ana", agent=agent, rights=("read", "write", "admin")
    )
    async with asking(app, token) as client:
        answer = await client.request(**request_of(described, path, method))
    assert (answer.status_code != 403) == (right in ("ask", "remember")), answer.text


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "method", "right"), [each for each in CLOSED if each[2] in ("write", "remember")]
)
async def test_a_request_that_is_repeated_gets_the_same_answer(
    memory: Client, app: FastAPI, described: dict[str, Any], path: str, method: str, right: str
) -> None:
    mine = memory.scope("ana", "other")
    id = (await mine.remember(f"My way to {path} is {method}.", manually_saved=True)).ids[0]
    await mine.checkpoints.save("t1", {})
    _, token = await memory.create_key(
        "ana", user="ana", rights=("read", "write", "owner", "admin")
    )
    request = request_of(described, path, method)
    request["url"] = path.format(
        **{**SAMPLES, "id": id if path.startswith("/v1/memory/") else f"{id}~b3RoZXI"}
    )
    async with asking(app, token) as client:
        first, again = [
            await client.request(**request, headers={"Idempotency-Key": "k"}) for _ in range(2)
        ]
    assert first.status_code < 500
    assert (again.status_code, again.headers.get("etag")) == (
        first.status_code,
        first.headers.get("etag"),
    )
    if first.status_code < 300:
        assert again.headers["idempotency-replayed"] == "true"
        assert (
            again.content == first.content or again.json() == first.json() or path.endswith("/say")
        )


def test_what_a_changing_route_answers_can_be_kept_without_words() -> None:
    wordless = {
        "Receipt",
        "Forgotten",
        "UndoResult",
        "PrivacyStatus",
        "Decision",
        "Withdrawal",
        "SavedCheckpoint",
        "NoneType",
        "dict",
    }
    wordless |= {"Purged", "SummaryReport", "Extracted"}
    by_id_or_blanked = {"Memory", "CommandResult"}
    answers = {
        getattr(route.response_model, "__name__", "NoneType")
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, AuthenticatedRoute)
        and set(rights(route.dependant)) & {"write", "remember"}
    }
    assert answers <= wordless | by_id_or_blanked


@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_that_expires_is_good_until_then(memory: Client) -> None:
    key, token = await memory.create_key("day", user="ana", days=1)
    assert (await memory.authenticate(token)).id == key.id
    assert key.expires_at == key.created_at + timedelta(days=1)
