"""Spans for OpenTelemetry, with the names of its conventions for memory; whoever runs the process says where they go.

They hold no text, no question, no user and no session, and of an error only its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Misconfigured
from .instrumentation import DUTY, Observer, Tell

OPERATIONS = {
    "remember": "upsert_memory",
    "recall": "search_memory",
    "edit": "update_memory",
    "forget": "delete_memory",
}


def watcher() -> Observer:
    """Makes a span of each verb, and of each duty. Raises Misconfigured if OpenTelemetry is not installed."""
    try:
        from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer
    except ImportError as error:
        raise Misconfigured(
            "Setting 'otel' needs another package: pip install \"memorist[otel]\""
        ) from error
    tracer = get_tracer("memorist")

    @contextmanager
    def watch(what: str) -> Iterator[Tell]:
        is_duty = what.startswith(DUTY)
        name = OPERATIONS.get(what, what)
        about = (
            {"memorist.duty": what.removeprefix(DUTY)}
            if is_duty
            else {"gen_ai.operation.name": name}
        )
        with tracer.start_as_current_span(
            name,
            kind=SpanKind.INTERNAL if is_duty else SpanKind.CLIENT,
            attributes={**about, "gen_ai.provider.name": "memorist"},
            record_exception=False,  # its message may hold words
            set_status_on_exception=False,
        ) as span:
            try:
                yield lambda count: span.set_attribute("gen_ai.memory.record.count", count)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise

    return watch
