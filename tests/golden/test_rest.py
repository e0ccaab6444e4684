"""Frozen OpenAPI document, answers of every REST route, refusals, and names of metrics."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from golden.files import Golden
from golden.normalize import Normalizer
from golden.server import app_of, serving
from golden.stage import QUESTION, Stage

Content = dict[str, Any]
UNRECORDED = ("content-length", "date")
_SECONDS = re.compile(r"(?<=;t=)\d+|^\d+$")  # until a limit is over


@dataclass(frozen=True)
class Exchange:
    """A request: what stands in the address, what is sent, and what has to be done before."""

    at: Content = field(
        default_factory=dict
    )  # what the address names; {name} is an id of the history
    query: Content = field(default_factory=dict)
    body: Any = None


def ask(**query: Any) -> Exchange:
    return Exchange(query=query)


def send(**body: Any) -> Exchange:
    return Exchange(body=body)


def of(name: str, **query: Any) -> Exchange:
    return Exchange({"id": f"{{{name}}}"}, query)


# At least one request for each route. The name of a route is that of its golden file.
EXCHANGES: dict[str, list[Exchange]] = {
    "GET /healthz": [ask()],
    "GET /readyz": [ask()],
    "GET /v1/memory/summary": [ask()],
    "GET /v1/memory/entries": [ask(limit=2), ask(pinned=True), ask(state="soft_deleted")],
    "POST /v1/memory/entries": [
        send(text="I collect stamps from Peru.", tags=["hobby"]),
        send(text="My password is hunter2-Xy77!"),
        send(text="I live in Lisbon.", session="chat-3"),
    ],
    "POST /v1/memory/messages": [
        send(messages=[{"id": "x1", "content": "I sold my bicycle.", "name": "Ana", "at": "2024-03-19T10:00:00Z"}])
    ],
    "GET /v1/memory/entries/{id}": [of("tea")],
    "PATCH /v1/memory/entries/{id}": [Exchange({"id": "{cello}"}, body={"text": "On Mondays I play the cello."})],
    "DELETE /v1/memory/entries/{id}": [of("cello"), of("bees", keep_days=7)],
    "POST /v1/memory/entries/{id}/pin": [of("bees")],
    "DELETE /v1/memory/entries/{id}/pin": [of("peanuts")],
    "POST /v1/memory/entries/{id}/restore": [of("locker")],
    "GET /v1/memory/entries/{id}/why": [of("tea")],
    "GET /v1/memory/entries/{id}/why_not": [of("cello", query=QUESTION)],
    "GET /v1/memory/entries/{id}/related": [of("honey", limit=1)],
    "GET /v1/memory/entries/{id}/history": [of("tea")],
    "GET /v1/memory/history": [ask(limit=3)],
    "GET /v1/memory/delta": [ask(thread="chat-1", since=2)],
    "POST /v1/memory/delta": [send(thread="chat-1"), send(thread="chat-1", since=2)],
    "POST /v1/memory/list": [send(where={"tags": ["drinks"]}, limit=1)],
    "POST /v1/memory/forget-all": [send(dry_run=True), send(space="trip", dry_run=False)],
    "POST /v1/memory/forget": [send(query="sister Marta"), send(where={"tags": ["drinks"]}, dry_run=False)],
    "POST /v1/memory/undo": [send(session="chat-2", dry_run=True), send(session="chat-2")],
    "GET /v1/memory/conflicts": [ask()],
    "POST /v1/memory/conflicts/{id}/confirm": [of("blue")],
    "POST /v1/memory/conflicts/{id}/reject": [of("blue")],
    "POST /v1/memory/conflicts/{id}/both": [of("blue")],
    "POST /v1/memory/recall": [
        send(query=QUESTION, limit=2), send(query="Submarines?", where={"tags": ["x"]}),
        send(query=QUESTION, min_confidence=0.99),
    ],
    "POST /v1/memory/feedback": [send(recalled=["{tea}", "{bees}"], used=["{bees}"])],
    "POST /v1/memory/context": [
        send(message=QUESTION, session="chat-1", since=2, budget=200), send(message="bees", agent="planner"),
    ],
    "POST /v1/memory/query": [send(query=QUESTION, agent="supervisor"), send(query="bees", agent="planner")],
    "POST /v1/memory/say": [send(text="What do you remember about bees?"), send(text="I had soup.")],
    "GET /v1/memory/settings": [ask()],
    "POST /v1/memory/settings": [send(memory_enabled=False)],
    "POST /v1/memory/incognito/start": [send(session="chat-1")],
    "POST /v1/memory/incognito/end": [send(session="chat-1")],
    "GET /v1/memory/consent": [ask()],
    "POST /v1/memory/consent/{id}/approve": [of("proposal")],
    "POST /v1/memory/consent/{id}/deny": [of("proposal")],
    "GET /v1/memory/about": [ask()],
    "PUT /v1/memory/about/{field}": [Exchange({"field": "language"}, body={"value": "Portuguese"})],
    "DELETE /v1/memory/about/{field}": [Exchange({"field": "tone"})],
    "GET /v1/memory/checkpoints": [ask()],
    "GET /v1/memory/checkpoints/{thread}": [Exchange({"thread": "chat-1"})],
    "PUT /v1/memory/checkpoints/{thread}": [Exchange({"thread": "chat-9"}, body={"graph_state": {"step": 1}})],
    "DELETE /v1/memory/checkpoints/{thread}": [Exchange({"thread": "chat-1"})],
    "GET /v1/memory/export": [ask(space="work")],
    "GET /v1/user/export": [ask()],
    "DELETE /v1/user": [ask()],
    "POST /v1/memory/import/file": [
        Exchange(query={"name": "chat.json"}, body=[{"role": "user", "content": "I sold my bicycle."}, {"role": "x"}]),
    ],
    "POST /v1/memory/import": [send(records=[{"id": "x1", "content": "I sold my bicycle.", "session": "chat-9"}])],
    "GET /v1/memory/stats": [ask()],
    "GET /v1/memory/costs": [ask()],
    "GET /v1/memory/backlog": [ask()],
    "POST /v1/memory/shared": [send(query="When is the standup?")],
    "GET /v1/memory/events": [ask(limit=3)],
    "GET /v1/memory/event_counts": [ask()],
    "POST /v1/memory/purge": [send(dry_run=True)],
    "POST /v1/memory/compress": [send(threshold=1)],
    "POST /v1/memory/roll_up": [send(days=1, dry_run=True)],
    "POST /v1/memory/entries/{id}/extract": [of("porto")],
    "GET /memory/{id}/history": [of("tea")],
    "GET /api/memory": [ask()],
    "POST /api/memory/refresh": [ask()],
    "GET /api/memory/search": [ask(q="old maps", guildId="guild-1"), ask()],
    "GET /v1/ping/": [ask()],
    "POST /v3/memories/add/": [
        send(messages=[{"role": "user", "content": "I sold my bicycle."}], user_id="home", metadata={"Mood": "Sad"})
    ],
    "POST /v3/memories/search/": [send(query=QUESTION, top_k=2, filters={"user_id": "default"})],
    "POST /v3/memories/": [Exchange(query={"page_size": 2}, body={"filters": {"AND": [{"user_id": "default"}]}})],
    "GET /v1/memories/{id}/": [of("tea")],
    "PUT /v1/memories/{id}/": [Exchange({"id": "{cello}"}, body={"text": "On Mondays I play the cello."})],
    "DELETE /v1/memories/{id}/": [of("cello")],
    "DELETE /v1/memories/": [ask(user_id="work"), ask()],
    "GET /v1/memories/{id}/history/": [of("tea")],
    "PUT /v1/batch/": [send(memories=[{"memory_id": "{cello}", "metadata": {"a": 1}}])],
    "DELETE /v1/batch/": [send(memories=[{"memory_id": "{cello}"}])],
    "GET /v1/entities/": [ask()],
    "DELETE /v2/entities/user/{name}/": [Exchange({"name": "work"})],
}  # fmt: skip
NEVER = "00000000-0000-7000-8000-000000000000"
# Requests that are refused: method, address, what is sent, and with which key, if not by the local person.
REFUSALS: dict[str, tuple[str, str, Content, str | None]] = {
    "without a key": ("GET", "/v1/memory/stats", {}, ""),
    "with an unknown key": ("GET", "/v1/memory/stats", {}, "rk_0_0"),
    "without the right": ("POST", "/v1/memory/entries", {"json": {"text": "I like tea."}}, "read"),
    "an unknown id": ("GET", f"/v1/memory/entries/{NEVER}", {}, None),
    "an unknown id of mem0": ("GET", f"/v1/memories/{NEVER}/", {}, None),
    "an unknown address": ("GET", "/v1/nothing", {}, None),
    "an unknown method": ("PUT", "/v1/memory/stats", {}, None),
    "a missing field": ("POST", "/v1/memory/recall", {"json": {}}, None),
    "an unknown field": ("POST", "/v1/memory/recall", {"json": {"query": "tea", "colour": 1}}, None),
    "a value out of range": ("GET", "/v1/memory/entries", {"params": {"limit": 0}}, None),
    "a filter of mem0": ("POST", "/v3/memories/search/", {"json": {"query": "a", "filters": {"OR": []}}}, None),
    "no JSON": ("POST", "/v1/memory/recall", {"content": "{", "headers": {"Content-Type": "application/json"}}, None),
    "another media type": ("POST", "/v1/memory/recall", {"content": "a", "headers": {"Content-Type": "a/b"}}, None),
    "an active memory restored": ("POST", "/v1/memory/entries/{tea}/restore", {}, None),
    "an old version edited": (
        "PATCH", "/v1/memory/entries/{tea}", {"json": {"text": "x"}, "headers": {"If-Match": '"1"'}}, None,
    ),
    "another site": ("POST", "/v1/memory/recall", {"json": {}, "headers": {"Origin": "https://a.example"}}, None),
    "another host": ("GET", "/v1/memory/stats", {"headers": {"Host": "a.example"}}, None),
    "an agent without an allowlist": ("POST", "/v1/memory/query", {"json": {"query": "a", "agent": "nobody"}}, None),
    "too large": ("POST", "/v1/memory/recall", {"content": "", "headers": {"Content-Length": "99999999"}}, None),
}  # fmt: skip


def with_ids(value: Any, ids: dict[str, str]) -> Any:
    """The same value with ids in the place of their names in braces."""
    return json.loads(re.sub(r"\{([a-z-]+)\}", lambda match: ids[match[1]], json.dumps(value)))


def answer_of(answer: httpx.Response, normal: Normalizer) -> str:
    """The status, headers and body of an answer."""
    kept = sorted(
        (name, value) for name, value in answer.headers.multi_items() if name not in UNRECORDED
    )
    headers = "".join(
        f"{name}: {_SECONDS.sub('<n>', normal.text(value))}\n" for name, value in kept
    )
    return f"{answer.status_code} {answer.reason_phrase}\n{headers}\n{normal.printed(answer.text)}"


async def recorded(
    route: str, exchange: Exchange, stage: Stage, place: Path, normal: Normalizer
) -> str:
    """One request to a server over a fresh copy of the history, and its answer."""
    method, _, path = route.partition(" ")
    address = str(httpx.URL(path.format(**exchange.at), params=exchange.query or None))
    sent = (
        ""
        if exchange.body is None
        else json.dumps(exchange.body, ensure_ascii=False, indent=1) + "\n"
    )
    stage.copy(place.parent)
    async with serving(place) as (_, client):
        url, body = with_ids([path.format(**exchange.at), exchange.body], stage.ids)
        request = client.build_request(method, url, params=exchange.query, json=body)
        answer = await client.send(request)
    return f"{method} {address}\n{sent}\n{answer_of(answer, normal)}\n\n"


@pytest.mark.parametrize("route", EXCHANGES)
async def test_the_answer_of_a_route_is_frozen(
    golden: Golden, normal: Normalizer, stage: Stage, place: Path, route: str
) -> None:
    texts = [await recorded(route, each, stage, place, normal) for each in EXCHANGES[route]]
    name = "-".join(re.findall(r"[\w{}]+", route)).replace("{", "").replace("}", "")
    golden.check(f"rest/{name}.txt", "-----\n\n".join(texts))


async def test_every_route_has_a_recorded_exchange(place: Path) -> None:
    async with serving(place) as (engine, _):
        paths = app_of(engine).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert routes == {*EXCHANGES, "GET /metrics"}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_is_frozen(
    golden: Golden, normal: Normalizer, stage: Stage, place: Path, name: str
) -> None:
    method, path, sent, right = REFUSALS[name]
    async with serving(place, **({} if right is None else {"local": None})) as (engine, client):
        if right == "read":
            client.headers["Authorization"] = (
                f"Bearer {(await engine.create_key('k', user='ana', rights=['read']))[1]}"
            )
        elif right:
            client.headers["Authorization"] = f"Bearer {right}"
        answer = await client.request(method, path.format(**stage.ids), **sent)
    assert answer.status_code >= 400
    golden.check(
        f"rest/refused-{name.replace(' ', '-')}.txt",
        f"{method} {path}\n{json.dumps(sent) if sent else ''}\n{answer_of(answer, normal)}",
    )


async def test_too_many_requests_are_refused(
    golden: Golden, normal: Normalizer, place: Path
) -> None:
    async with serving(place, rate_limit=1) as (_, client):
        answers = [await client.get("/v1/memory/stats") for _ in range(2)]
    golden.check("rest/refused-too-often.txt", answer_of(answers[1], normal))


async def test_names_types_and_labels_of_metrics_are_frozen(
    golden: Golden, stage: Stage, place: Path
) -> None:
    async with serving(place) as (_, client):
        await client.post("/v1/memory/recall", json={"query": QUESTION})
        await client.delete(f"/v1/memory/entries/{stage.ids['cello']}")
        text = (await client.get("/metrics")).text
    lines = []
    for family in sorted(text_string_to_metric_families(text), key=lambda each: each.name):
        lines.append(f"{family.name} {family.type}: {family.documentation}")
        lines += sorted({f"  {sample.name}{_labels(sample.labels)}" for sample in family.samples})
    golden.check("metrics.txt", "\n".join(lines))


def _labels(labels: dict[str, str]) -> str:
    return (
        " " + ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
        if labels
        else ""
    )
