"""What operators ask a server: whether it works, and its metrics for Prometheus at `/metrics`, which are
latencies of this process and counts from the shared store.

Nothing is pushed anywhere. No label contains a user, a session or the text of a memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from time import perf_counter

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client import generate_latest as render_registry

from ..client import Client
from ..errors import MemoristError, ProviderFailed, StoreUnavailable
from ..storage.tasks import Backlog
from ..telemetry import JOB, ReportCount
from ..types import frozen
from .rest import Admin, AuthenticatedRoute

READY_SECONDS = 5  # for the store to answer whether it can be reached
MAX_AGE_SECONDS = 10.0  # the store is not queried more often than this
WINDOW = timedelta(hours=1)  # of events that are counted again at each scrape
OVERLAP = timedelta(minutes=1)  # for events that are written with a delay
INSTANT = timedelta(microseconds=1)
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_OPERATION = ("operation", "job_name")  # `job` is what Prometheus calls the scrape target
_GAUGES = {  # labels and help
    "store_up": ("", "1 if the store answered, else 0"),
    "jobs_waiting": ("job_name", "Jobs that are due"),
    "jobs_running": ("job_name", "Jobs that are running"),
    "jobs_failing": ("job_name", "Jobs whose last run failed"),
    "jobs_dead": ("job_name", "Jobs that failed too often and are not retried"),
    "jobs_oldest_waiting_seconds": ("job_name", "Age of the oldest job that is due"),
    "embed_p95_seconds": (
        "",
        "95th percentile of the time until a memory has its vector, over the last 1,000",
    ),
    "embed_failure_ratio": ("", "Share of the last 1,000 embedding batches that failed"),
    "llm_tokens_today": (
        "task model direction",
        "Tokens used by the language model today (UTC)",
    ),
}
# Exported as 0 from the start: Prometheus does not see an increase in a series that just appeared.
_OPERATIONS = ("remember", "recall", "edit", "forget")
_EVENTS = """
    hotpath create ok, hotpath merge ok, hotpath ttl ok, hotpath pin ok, hotpath unpin ok,
    hotpath delete ok, hotpath disable ok, hotpath incognito ok, hotpath ttl error,
    episodic create ok, episodic merge ok, episodic ttl ok, episodic pin ok, episodic unpin ok,
    episodic delete ok, worker embed error, context search ok, context use ok, context use skipped
"""
routes = APIRouter(route_class=AuthenticatedRoute)


@routes.get("/healthz")
async def healthz() -> dict[str, str]:
    """Report that the server is running."""
    return {"status": "ok"}


@routes.get("/readyz")
async def readyz(request: Request) -> dict[str, str]:
    """Report that the store answers."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await request.app.state.engine.ctx.store.database.ping()
    except TimeoutError as error:
        raise StoreUnavailable(f"The store did not answer in {READY_SECONDS} s") from error
    return {"status": "ready"}


@routes.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, access: Admin) -> Response:
    """Metrics for Prometheus."""
    text = await request.app.state.metrics.text()
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


@frozen
class Latency:
    """The latency of one operation in this process."""

    calls: int
    mean_ms: float
    p95_ms: float  # upper bound of the histogram bucket; infinite if above the largest


class Metrics:
    """Observes the operations of a client, and reads its store when Prometheus scrapes."""

    def __init__(self, client: Client, *, max_age_seconds: float = MAX_AGE_SECONDS) -> None:
        self._client = client
        self._max_age = max_age_seconds
        self._lock = asyncio.Lock()
        self._fresh_until = 0.0
        self._events_since = client.ctx.clock()
        self._counted = Counts[tuple[str, ...]]()
        self._first_day = find_midnight(self._events_since)
        self._incognito = Counts[datetime]()  # sessions that were counted, by day
        self._registry = registry = CollectorRegistry()
        self._seconds = Histogram(
            "memorist_operation_duration_seconds",
            "Duration of operations in this process",
            _OPERATION,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._failures = Counter(
            "memorist_operation_failures",
            "Operations that failed in this process, invalid input excluded",
            _OPERATION,
            registry=registry,
        )
        self._events = Counter(
            "memorist_events",
            "Events of all processes since this process started",
            ("node", "op", "status"),
            registry=registry,
        )
        self._gauges: dict[str, Gauge] = {}
        for name, (labels, help) in _GAUGES.items():
            self._gauges[name] = Gauge(f"memorist_{name}", help, labels.split(), registry=registry)
        for operation in _OPERATIONS:
            self._seconds.labels(operation, "")
            self._failures.labels(operation, "")
        for event in _EVENTS.split(","):
            self._events.labels(*event.split())
        client.ctx.observers.append(self.observe)

    async def text(self) -> bytes:
        """Render all metrics. While the store is down, its metrics keep their last values."""
        async with self._lock:
            if perf_counter() >= self._fresh_until:
                is_up = True
                try:
                    await self._read_store()
                except ProviderFailed:
                    is_up = False
                self._gauges["store_up"].set(is_up)
                self._fresh_until = perf_counter() + self._max_age
        return render_registry(self._registry)

    def latencies(self) -> dict[str, Latency]:
        """Return the latency of each operation that was called in this process."""
        (family,) = self._seconds.collect()
        samples: dict[str, dict[str, float]] = {}
        for sample in family.samples:
            if not sample.labels["job_name"]:
                values = samples.setdefault(sample.labels["operation"], {})
                values[sample.labels.get("le", sample.name)] = sample.value
        found: dict[str, Latency] = {}
        for operation, values in sorted(samples.items()):
            calls = values[f"{family.name}_count"]
            if calls:
                # The buckets come first, in ascending order.
                p95 = next(bound for bound, count in values.items() if count >= 0.95 * calls)
                mean = values[f"{family.name}_sum"] / calls
                found[operation] = Latency(
                    calls=int(calls), mean_ms=1000 * mean, p95_ms=1000 * float(p95)
                )
        return found

    @contextmanager
    def observe(self, what: str) -> Iterator[ReportCount]:
        """Measure one operation or job."""
        labels = (what, "")
        if what.startswith(JOB):
            labels = ("run_job", what.removeprefix(JOB))
        started = perf_counter()
        try:
            yield lambda count: None
        except Exception as error:
            if isinstance(error, ProviderFailed) or not isinstance(error, MemoristError):
                self._failures.labels(*labels).inc()
            raise
        finally:
            seconds = perf_counter() - started
            self._seconds.labels(*labels).observe(seconds)

    async def _read_store(self) -> None:
        """Set the metrics of jobs, events and the language model. Raises ProviderFailed."""
        gauges = self._gauges
        now = self._client.ctx.clock()
        jobs = await self._client.backlog()
        usage = await self._client.llm_usage(days=0)
        await self._count_events(now)
        await self._count_incognito(now)
        for name, (labels, _) in _GAUGES.items():
            if labels:
                gauges[name].clear()
        empty = Backlog(name="embed", waiting=0, running=0, failing=0, oldest=None)
        for job in (empty, *jobs):
            age = (now - job.oldest).total_seconds() if job.oldest else 0
            figures = {
                "waiting": job.waiting,
                "running": job.running,
                "failing": job.failing,
                "dead": job.set_aside,
                "oldest_waiting_seconds": age,
            }
            for name, value in figures.items():
                gauges[f"jobs_{name}"].labels(job.name).set(value)
            if job.name == "embed":
                gauges["embed_p95_seconds"].set(job.p95_seconds or 0)
                gauges["embed_failure_ratio"].set(job.failure_rate or 0)
        tokens = gauges["llm_tokens_today"]
        for each in usage:
            tokens.labels(each.task, each.model, "input").inc(each.tokens_in)
            tokens.labels(each.task, each.model, "output").inc(each.tokens_out)

    async def _count_events(self, now: datetime) -> None:
        """Add new events. Only the last hour is read, so the cost does not grow with the store."""

        async def count(*period: datetime) -> Counts[tuple[str, ...]]:
            counts = Counts[tuple[str, ...]]()
            for each in await self._client.ctx.store.history.event_counts(None, *period):
                if each.op != "incognito":
                    counts[each.node, each.op, each.status] += each.count
            return counts

        since = self._events_since
        before = Counts[tuple[str, ...]]()
        if now - since > WINDOW:
            since = now - OVERLAP
            before = await count(self._events_since, since)
        recent = await count(since)
        for labels, number in (before + recent).items():
            self._events.labels(*labels).inc(max(0, number - self._counted[labels]))
        self._events_since = since
        self._counted = recent

    async def _count_incognito(self, now: datetime) -> None:
        """Add incognito sessions. Their events tell the day, but not the time: all those of the day
        on which this process started count.
        """
        counter = self._events.labels("hotpath", "incognito", "ok")
        today = find_midnight(now)
        for day in (today - timedelta(days=1), today):
            if day < self._first_day:
                continue
            found = await self._client.ctx.store.history.event_counts(None, day, day + INSTANT)
            number = sum(each.count for each in found if each.op == "incognito")
            counter.inc(max(0, number - self._incognito[day]))
            self._incognito[day] = number


def find_midnight(at: datetime) -> datetime:
    """Return when the day of a time began."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
