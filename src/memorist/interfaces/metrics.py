"""Figures for Prometheus at `/metrics`: of the verbs in this process, and of the store that all processes share.

Nothing is sent anywhere: it is there for whoever asks with the right to. No label names a person, a session or a word.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from time import perf_counter
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from ..client import Client
from ..errors import MemoristError, ProviderFailed
from ..results import Backlog, Spending, Tally
from ..telemetry.instrumentation import JOB, ReportCount
from .rest.auth import Caller, caller
from .rest.route import Door

FRESH_SECONDS = 10.0  # for so long the store is not asked again
WINDOW, OVERLAP = (
    timedelta(hours=1),
    timedelta(minutes=1),
)  # of events that are counted anew each time
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
# There from the beginning: a first increase from nothing is none that Prometheus could see.
_EXPECTED = (
    *product(
        ("hotpath", "episodic"), ("create", "merge", "ttl", "pin", "unpin", "delete"), ("ok",)
    ),
    ("hotpath", "ttl", "error"),
    ("hotpath", "disable", "ok"),
    ("worker", "embed", "error"),
    ("context", "search", "ok"),
    ("context", "use", "ok"),
    ("context", "use", "skipped"),
)
_VERB, _EVENT, _COST = ("verb", "duty"), ("node", "op", "status"), ("task", "model", "way")
_WORK = {
    "waiting": "Pieces of work that are due",
    "running": "Pieces of work that somebody is at",
    "failing": "Pieces of work that did not come to their end when they were begun",
    "set_aside": "Pieces of work that failed too often and wait for `memorist tend --retry`",
}
routes = APIRouter(route_class=Door)


@routes.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, who: Annotated[Caller, Depends(caller("admin"))]) -> Response:
    """Figures for Prometheus."""
    return Response(
        await request.app.state.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST}
    )


class Figures:
    """What there is to read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, namespace="memorist", registry=registry)
        counter = partial(Counter, namespace="memorist", registry=registry)
        self.seconds = Histogram(
            "verb_seconds",
            "How long a verb took in this process",
            _VERB,
            buckets=_BUCKETS,
            namespace="memorist",
            registry=registry,
        )
        self.failures = counter(
            "verb_failures", "How often a verb failed here, other than by what it was given", _VERB
        )
        self.up = gauge("store_up", "Whether the store answered")
        self.work = {
            name: gauge(f"backlog_{name}", about, ("duty",)) for name, about in _WORK.items()
        }
        self.oldest = gauge(
            "backlog_oldest_seconds", "For how long the oldest piece of work is due", ("duty",)
        )
        self.took = gauge(
            "embed_p95_seconds", "Within how long 95 % of the last thousand had a vector"
        )
        self.failed = gauge("embed_failure_ratio", "Which share of the same batches failed")
        self.events = counter(
            "events", "What the parts of all processes did since this one began", _EVENT
        )
        self.tokens = gauge(
            "model_tokens_today", "What the language model cost on this day (UTC)", _COST
        )
        for expected in _EXPECTED:
            self.events.labels(*expected)
        for verb in ("remember", "recall", "edit", "forget"):
            self.seconds.labels(verb, "")
            self.failures.labels(verb, "")


class Metrics:
    """Watches an engine, and looks into its store when somebody asks."""

    def __init__(self, engine: Client, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._engine, self.registry = engine, CollectorRegistry()
        self._figures = Figures(self.registry)
        self._asking, self._fresh, self._until = asyncio.Lock(), fresh_seconds, 0.0
        self._since, self._counted = engine.ctx.clock(), Counts[tuple[str, ...]]()
        engine.ctx.observers.append(self._watch)

    async def text(self) -> bytes:
        """The figures as Prometheus reads them; while the store is away, with what it said last."""
        async with self._asking:
            if perf_counter() >= self._until:
                await self._look()
                self._until = perf_counter() + self._fresh
        return generate_latest(self.registry)

    @contextmanager
    def _watch(self, what: str) -> Iterator[ReportCount]:
        labels = ("tend", what.removeprefix(JOB)) if what.startswith(JOB) else (what, "")
        begun = perf_counter()
        try:
            yield lambda count: None
        except Exception as error:
            if isinstance(error, ProviderFailed) or not isinstance(error, MemoristError):
                self._figures.failures.labels(*labels).inc()
            raise
        finally:
            self._figures.seconds.labels(*labels).observe(perf_counter() - begun)

    async def _look(self) -> None:
        engine, now = self._engine, self._engine.ctx.clock()
        try:
            self._show_work(await engine.backlog(), now)
            self._show_cost(await engine.llm_usage(days=0))
            await self._count(now)
        except ProviderFailed:
            self._figures.up.set(0)
        else:
            self._figures.up.set(1)

    def _show_work(self, found: Sequence[Backlog], now: datetime) -> None:
        for gauge in (*self._figures.work.values(), self._figures.oldest):
            gauge.clear()
        for each in (Backlog(name="embed", waiting=0, running=0, failing=0, oldest=None), *found):
            for name, gauge in self._figures.work.items():
                gauge.labels(each.name).set(getattr(each, name))
            self._figures.oldest.labels(each.name).set(
                (now - each.oldest).total_seconds() if each.oldest else 0
            )
            if each.name == "embed":
                self._figures.took.set(each.p95_seconds or 0)
                self._figures.failed.set(each.failure_rate or 0)

    def _show_cost(self, found: Iterable[Spending]) -> None:
        self._figures.tokens.clear()
        for each in found:
            self._figures.tokens.labels(each.task, each.model, "in").inc(each.tokens_in)
            self._figures.tokens.labels(each.task, each.model, "out").inc(each.tokens_out)

    async def _count(self, now: datetime) -> None:
        """Add what is new. Only the last hour is looked at, so that it costs the same in a store of any age."""
        tallies, since, past = self._engine.ctx.store.tallies, self._since, _counts(())
        if now - since > WINDOW:
            since = now - OVERLAP  # what is written a moment late is still counted
            past = _counts(await tallies(None, self._since, since))
        recent = _counts(await tallies(None, since))
        for labels, count in (past + recent).items():
            self._figures.events.labels(*labels).inc(max(0, count - self._counted[labels]))
        self._since, self._counted = since, recent


def _counts(found: Iterable[Tally]) -> Counts[tuple[str, ...]]:
    made = Counts[tuple[str, ...]]()
    for each in found:
        made[each.node, each.op, each.status] += each.count
    return made
