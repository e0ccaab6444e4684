"""What an operator sees: figures that are true, alerts that fire, spans and logs, and never a word of what was said."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import memorist
from memorist.client import Client
from memorist.embedders import Hashing
from memorist.errors import EmbedderUnavailable, InvalidInput
from memorist.interfaces.metrics import Metrics
from memorist.interfaces.rest.app import create_app
from memorist.ports import LlmUsage, Vectors
from memorist.storage import Event

DEPLOY = Path(__file__).parents[2] / "deploy"
WORDS = "The zanzibar heron stands in the river."


class Broken(Hashing):
    """A model that is away."""

    async def encode_batch(self, texts: object) -> Vectors:
        raise EmbedderUnavailable


@pytest.fixture
async def memory(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    """Vectors are left to whoever tends, and there is room for two."""
    async with memorist.aio.open(
        place, embedder="hashing", policy="theoria", capacity=2, state_dir=tmp_path
    ) as made:
        yield made


@pytest.fixture
def metrics(memory: Client) -> Metrics:
    return Metrics(memory, max_age_seconds=0)


async def read(memory: Client, metrics: Metrics) -> dict[str, float]:
    """The figures: name and labels, without those that are empty."""
    await memory.ctx.access_log.flush()
    found = text_string_to_metric_families((await metrics.text()).decode())
    return {
        f"{sample.name} {' '.join(value for _, value in sorted(sample.labels.items()) if value)}".strip(): sample.value
        for family in found
        for sample in family.samples
    }


@pytest.mark.spec("THE-95", "THE-101")
async def test_what_waits_for_a_vector_is_told_with_its_age_and_how_long_others_took(
    memory: Client, metrics: Metrics
) -> None:
    await memory.scope("ana").remember(WORDS)
    waiting = await read(memory, metrics)
    assert waiting["memorist_jobs_waiting embed"] == 1
    assert 0 < waiting["memorist_jobs_oldest_waiting_seconds embed"] < 60
    await memory.run_jobs(only=["embed"])
    done = await read(memory, metrics)
    assert (
        done["memorist_jobs_waiting embed"],
        done["memorist_jobs_oldest_waiting_seconds embed"],
    ) == (0, 0)
    assert 0 < done["memorist_embed_p95_seconds"] < 60
    assert done["memorist_embed_failure_ratio"] == 0


@pytest.mark.spec("THE-95")
async def test_batches_that_fail_are_told(memory: Client, metrics: Metrics) -> None:
    await memory.scope("ana").remember(WORDS)
    memory.ctx.embedder = Broken()
    await memory.run_jobs(only=["embed"])
    assert (await read(memory, metrics))["memorist_embed_failure_ratio"] == 1


@pytest.mark.spec("THE-99", "THE-100")
async def test_savings_trims_recalls_and_what_people_do_are_counted_once(
    memory: Client, metrics: Metrics
) -> None:
    ana = memory.scope("ana", session="chat")
    await ana.remember(WORDS)
    await ana.remember(WORDS)
    (bees,) = (await ana.remember("Bees sleep in winter.")).ids
    await ana.pin(bees)
    await ana.remember("Porto lies on the Douro.", pinned=True)
    await ana.recall("Where is the heron?")
    await memory.scope("bo", tenant="acme").remember("Bees sleep in winter.")
    await memory.scope("bo", tenant="acme").recall("What do bees do?")
    for _ in range(2):
        found = await read(memory, metrics)
    counted: Counter[str] = Counter()
    for name, count in found.items():
        if name.startswith("memorist_events_total"):
            counted[name.split(maxsplit=2)[2]] += int(count)
    assert (counted["merge ok"], counted["pin ok"], counted["ttl ok"], counted["ttl error"]) == (
        1,
        1,
        1,
        0,
    )
    assert found["memorist_events_total context search ok"] == 2, "of everybody"
    await ana.remember("Lisbon has seven hills.", pinned=True)
    assert (await read(memory, metrics))["memorist_events_total hotpath ttl error"] == 1, (
        "only the protected are left"
    )


@pytest.mark.spec("THE-102", "THE-116")
async def test_incognito_sessions_are_counted(memory: Client, metrics: Metrics) -> None:
    for session in ("chat-1", "chat-2"):
        await memory.scope("ana", session=session).privacy.start_incognito()
    assert (await read(memory, metrics)).get("memorist_events_total hotpath incognito ok") == 2


async def test_events_are_counted_once_also_when_hours_pass(
    memory: Client, metrics: Metrics
) -> None:
    ana, now = memory.scope("ana"), datetime.now(UTC)
    await ana.remember(WORDS)
    for hour in range(4):
        memory.ctx.clock = lambda at=now + timedelta(minutes=50 * hour): at  # type: ignore[misc]
        await ana.recall("Where is the heron?")
        assert (await read(memory, metrics))["memorist_events_total context search ok"] == hour + 1


async def test_events_are_counted_that_happen_while_the_hour_moves(
    memory: Client, metrics: Metrics
) -> None:
    ana, now, used = memory.scope("ana"), datetime.now(UTC), 0
    await ana.remember(WORDS)
    for hour in range(1, 9):
        at = now + timedelta(minutes=65 * hour)
        memory.ctx.clock = lambda at=at: at  # type: ignore[misc]
        looking = asyncio.create_task(metrics.text())
        while not looking.done():
            async with memory.ctx.store.transaction(ana.scope) as transaction:
                await transaction.apply([Event(node="context", op="use", at=at)])
            used += 1
        await looking
    assert (await read(memory, metrics))["memorist_events_total context use ok"] == used


async def test_how_long_verbs_and_duties_take_and_which_fail_is_told(
    memory: Client, metrics: Metrics
) -> None:
    ana = memory.scope("ana")
    await ana.remember(WORDS)
    for wrong in ("", None):
        with pytest.raises(InvalidInput):
            await ana.recall(wrong, limit=0)  # type: ignore[arg-type]
    await memory.run_jobs(only=["purge"])
    found = await read(memory, metrics)
    assert found["memorist_operation_duration_seconds_count remember"] == 1
    assert found["memorist_operation_duration_seconds_sum remember"] > 0
    assert found["memorist_operation_duration_seconds_count purge run_job"] == 1
    assert found["memorist_operation_failures_total recall"] == 0, (
        "what was asked wrongly is no failure of ours"
    )


async def test_no_figure_names_a_person_a_session_or_a_word(
    memory: Client, metrics: Metrics
) -> None:
    scope = memory.scope("zuleika", "attic", session="whisper", agent="butler")
    (id,) = (await scope.remember(WORDS)).ids
    await scope.recall("zanzibar")
    await scope.forget(id, reason="quarrel")
    await memory.ctx.access_log.flush()
    told = (await metrics.text()).decode().lower()
    for word in ("zuleika", "attic", "whisper", "butler", "zanzibar", "heron", "quarrel", id):
        assert word not in told
    assert len(told.splitlines()) < 400


async def test_the_store_is_asked_again_only_after_a_while(memory: Client) -> None:
    metrics = Metrics(memory)
    assert (await read(memory, metrics))["memorist_jobs_waiting embed"] == 0
    await memory.scope("ana").remember(WORDS)
    assert (await read(memory, metrics))["memorist_jobs_waiting embed"] == 0


async def test_a_store_that_is_away_is_told(postgres: str, database: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    name = database.partition("?")[0].rpartition("/")[2]
    async with memorist.aio.open(database, embedder="none", spool=False) as memory:
        metrics = Metrics(memory, max_age_seconds=0)
        assert (await read(memory, metrics))["memorist_store_up"] == 1
        with psycopg.connect(postgres, autocommit=True) as server:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
        assert (await read(memory, metrics))["memorist_store_up"] == 0


async def test_only_who_may_administer_can_read_them(tmp_path: Path) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="none") as memory:
        app = create_app(memory)
        _, reader = await memory.create_key("reader", user="ana")
        _, admin = await memory.create_key("prometheus", user="ana", rights=("admin",))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://memory"
        ) as client:
            answers = [
                await client.get(
                    "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {}
                )
                for token in (None, reader, admin)
            ]
    assert [answer.status_code for answer in answers] == [401, 403, 200]
    assert answers[2].headers["content-type"].startswith("text/plain")
    assert "memorist_store_up 1.0" in answers[2].text


def names(text: str) -> set[str]:
    return set(re.findall(r"\bmemorist_\w+", text))


@pytest.mark.spec("THE-101")
async def test_alerts_and_dashboard_look_at_figures_that_exist(
    memory: Client, metrics: Metrics
) -> None:
    await memory.scope("ana").remember(WORDS)
    usage = LlmUsage(
        scope=memory.scope("ana").scope,
        day=memory.ctx.clock().date().isoformat(),
        task="extract",
        model="m",
        calls=1,
        tokens_in=0,
        tokens_out=0,
        reserved=9,
    )
    await memory.ctx.store.llm_usage.reserve(usage, user_cap=0, tenant_cap=0)
    there = {sample.partition(" ")[0] for sample in await read(memory, metrics)}
    board = json.loads((DEPLOY / "grafana" / "memorist.json").read_text("utf-8"))
    asked = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 9
    for text in (*asked, (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")):
        assert names(text)
        assert names(text) <= there, names(text) - there


@pytest.mark.spec("THE-100", "THE-101")
def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it comes with Prometheus")
    done = subprocess.run(
        [promtool, "test", "rules", "alerts_test.yml"],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")
    tested = (DEPLOY / "prometheus" / "alerts_test.yml").read_text("utf-8")
    for alert in re.findall(r"alert: (\w+)", rules):
        assert re.search(rf"alertname: {alert}\n\s+exp_alerts:\n", tested), (
            f"{alert} is never seen to fire"
        )


QUIET = """
import asyncio, sys
calls = []
sys.addaudithook(lambda event, args: calls.append(event) if event in
    ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto") else None)
import memorist, memorist.telemetry
from memorist.interfaces.metrics import Metrics
from memorist.interfaces.rest.app import create_app

async def main():
    async with memorist.aio.open(sys.argv[1], embedder="hashing", otel=True) as memory:
        app = create_app(memory)
        await memory.scope("ana").remember("Bees sleep in winter.")
        await memory.scope("ana").recall("bees")
        await memory.run_jobs()
        assert b"memorist_store_up 1.0" in await app.state.metrics.text()

asyncio.run(main())
print(calls)
"""


def test_nothing_is_sent_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUIET, str(tmp_path / "m.db")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


SPANS = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import memorist, memorist.errors

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)

async def main():
    async with memorist.aio.open(":memory:", embedder="hashing") as without_spans:  # they are off by default
        await without_spans.scope("zuleika").remember("Zanzibar lies in the sea.")
    async with memorist.aio.open(sys.argv[1], embedder="hashing", otel=True) as memory:
        ana = memory.scope("zuleika", session="whisper")
        (id,) = (await ana.remember("Zanzibar lies in the sea.")).ids
        await ana.recall("zanzibar")
        await ana.edit(id, "Zanzibar lies in the ocean.")
        await ana.forget(id, reason="quarrel")
        try:
            await ana.forget("zanzibar")
        except memorist.errors.NotFound:
            pass
        await memory.run_jobs(only=["purge"])

asyncio.run(main())
for span in kept.get_finished_spans():
    print(span.to_json(indent=None))
"""


def test_verbs_and_duties_are_spans_without_a_word(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPANS, str(tmp_path / "m.db")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    spans = [json.loads(line) for line in done.stdout.splitlines()]
    assert [span["name"] for span in spans] == [
        "upsert_memory", "search_memory", "update_memory", "delete_memory", "delete_memory", "job purge",
        "job extract",
    ]  # fmt: skip
    about = [span["attributes"] for span in spans]
    assert about[1] == {
        "gen_ai.operation.name": "search_memory", "gen_ai.provider.name": "memorist", "gen_ai.memory.record.count": 1,
    }  # fmt: skip
    assert about[4]["error.type"] == "NotFound"
    assert spans[4]["status"] == {"status_code": "ERROR"}
    assert about[5]["memorist.job"] == "purge"
    for word in ("zuleika", "whisper", "zanzibar", "quarrel"):
        assert word not in done.stdout.lower()


def test_spans_without_opentelemetry_say_what_to_install(tmp_path: Path) -> None:
    code = "import sys, memorist; sys.modules['opentelemetry.trace'] = None; memorist.open(sys.argv[1], otel=True)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.db")], capture_output=True, text=True
    )
    assert 'pip install "memorist[otel]"' in done.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent")
def test_the_log_of_a_server_is_json_names_the_request_and_holds_no_word(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "memorist",
        "serve",
        "--port",
        str(port),
        "--db",
        str(tmp_path / "m.db"),
    ]
    given = {
        **os.environ,
        "MEMORIST_LOG": "json",
        "MEMORIST_EMBEDDER": "hashing",
        "MEMORIST_USER": "ana",
    }
    server = subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"X-Request-Id": "r-17"}
        ) as client:
            _until_ready(client)
            answer = client.post("/v1/memory/entries", json={"text": WORDS})
            assert answer.status_code == 201, answer.text
    finally:
        server.send_signal(signal.SIGTERM)
        _, told = server.communicate(timeout=60)
    lines = [json.loads(line) for line in told.splitlines()]
    asked = next(line for line in lines if line["message"] == "POST /v1/memory/entries 201")
    done = next(line for line in lines if line["message"] == "remember")
    assert asked["request"] == done["request"] == "r-17"
    assert (done["memories"], asked["level"], asked["caller"]) == (1, "info", "local")
    assert done["ms"] > 0
    assert "zanzibar" not in told.lower()


def _until_ready(client: httpx.Client) -> None:
    for _ in range(300):
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail("the server did not start")
