"""Observing verbs and jobs from outside: what runs, how long, how it ends and how many memories it
concerns, never their text.

Observers are a list of the client; while it is empty, a verb costs hardly more. Two are here: the
log of a server or worker, and OpenTelemetry spans, which the process may export. The metrics of the
server are a third.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from ..errors import Misconfigured

ReportCount = Callable[[int], None]  # of the memories concerned
Observer = Callable[[str], AbstractContextManager[ReportCount]]  # takes the name of what runs
JOB = "job "  # before the name of a job
SPANS = {  # names of the OpenTelemetry conventions for memory
    "remember": "upsert_memory",
    "recall": "search_memory",
    "edit": "update_memory",
    "forget": "delete_memory",
}
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
log = logging.getLogger("memorist.verbs")


@contextmanager
def observe(observers: Sequence[Observer], what: str) -> Iterator[ReportCount]:
    """Run a block under all observers."""
    with ExitStack() as stack:
        reports = [stack.enter_context(observer(what)) for observer in observers]

        def report_count(count: int) -> None:
            for report in reports:
                report(count)

        yield report_count


class LineFormatter(logging.Formatter):
    """Writes one line per record, as JSON or as text.

    Of an error only its class: its message may hold stored text.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = record.levelname.lower()
        message = record.getMessage()
        error = record.exc_info[0] if record.exc_info else None
        fields = {"request": request_id.get(), "error": error and error.__name__}
        fields |= getattr(record, "about", {})
        fields = {name: value for name, value in fields.items() if value is not None}
        if self._as_json:
            line = {"at": at, "level": level, "logger": record.name, "message": message}
            return json.dumps(line | fields)
        pairs = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{at} {level} {message!r} {pairs}".rstrip()


def configure_log(kind: str, observers: list[Observer]) -> None:
    """Log to stderr as `json` or `text`; `off` leaves logging as it is."""
    if kind == "off":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=kind == "json"))
    ours = logging.getLogger("memorist")
    ours.handlers = [handler]
    ours.propagate = False
    ours.setLevel(logging.INFO)
    observers.append(log_line)


@contextmanager
def log_line(what: str) -> Iterator[ReportCount]:
    """Log one line for a verb or job."""
    started = perf_counter()
    about = dict[str, Any]()
    try:
        yield lambda count: about.update(memories=count)
    except BaseException as error:
        about["error"] = type(error).__name__
        raise
    finally:
        about["ms"] = round(1000 * (perf_counter() - started), 1)
        log.info(what, extra={"about": about})


def span_observer() -> Observer:
    """Return an observer that makes an OpenTelemetry span of each verb and job.

    Spans hold no text, no question, no user and no session, and of an error only its class. Raises
    Misconfigured without OpenTelemetry.
    """
    try:
        from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer
    except ImportError as error:
        raise Misconfigured(
            "Setting 'otel' needs another package: pip install \"memorist[otel]\""
        ) from error
    tracer = get_tracer("memorist")

    @contextmanager
    def observe_span(what: str) -> Iterator[ReportCount]:
        name = SPANS.get(what, what)
        kind = SpanKind.CLIENT
        attributes = {"gen_ai.provider.name": "memorist", "gen_ai.operation.name": name}
        if what.startswith(JOB):
            kind = SpanKind.INTERNAL
            attributes["memorist.job"] = what.removeprefix(JOB)
            del attributes["gen_ai.operation.name"]
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

    return observe_span
