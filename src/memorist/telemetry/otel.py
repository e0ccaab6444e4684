"""OpenTelemetry spans, named after its conventions for memory. The process configures where they
are exported.

Spans hold no text, no question, no user and no session, and of an error only its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Misconfigured
from .instrumentation import JOB, Observer, ReportCount

OPERATIONS = {
    "remember": "upsert_memory",
    "recall": "search_memory",
    "edit": "update_memory",
    "forget": "delete_memory",
}


def observer() -> Observer:
    """Return an observer that makes a span of each verb and job.

    Raises Misconfigured without OpenTelemetry.
    """
    try:
        from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer
    except ImportError as error:
        raise Misconfigured(
            "Setting 'otel' needs another package: pip install \"memorist[otel]\""
        ) from error
    tracer = get_tracer("memorist")

    @contextmanager
    def observe(what: str) -> Iterator[ReportCount]:
        name, kind = OPERATIONS.get(what, what), SpanKind.CLIENT
        attributes = {"gen_ai.provider.name": "memorist"}
        if what.startswith(JOB):
            kind = SpanKind.INTERNAL
            attributes["memorist.job"] = what.removeprefix(JOB)
        else:
            attributes["gen_ai.operation.name"] = name
        with tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            record_exception=False,  # the message of an error may hold stored text
            set_status_on_exception=False,
        ) as span:
            try:
                yield lambda count: span.set_attribute("gen_ai.memory.record.count", count)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise

    return observe
