"""The log of a server or worker: what ran, how long and how it ended, never stored text."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from .instrumentation import Observer, ReportCount

request: ContextVar[str | None] = ContextVar("request", default=None)  # id of the current request
log = logging.getLogger("memorist.verbs")


class LineFormatter(logging.Formatter):
    """Writes one line per record, as JSON or as text.

    Of an error only its class: its message may hold stored text.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level, message = record.levelname.lower(), record.getMessage()
        error = record.exc_info[0] if record.exc_info else None
        fields = {"request": request.get(), "error": error and error.__name__}
        fields |= getattr(record, "about", {})
        fields = {name: value for name, value in fields.items() if value is not None}
        if self._as_json:
            line = {"at": at, "level": level, "logger": record.name, "message": message}
            return json.dumps(line | fields)
        pairs = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{at} {level} {message!r} {pairs}".rstrip()


def configure(kind: str, observers: list[Observer]) -> None:
    """Log to stderr as `json` or `text`; `off` leaves logging as it is."""
    if kind == "off":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=kind == "json"))
    ours = logging.getLogger("memorist")
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(logging.INFO)
    observers.append(observe)


@contextmanager
def observe(what: str) -> Iterator[ReportCount]:
    """Log one line for a verb or job."""
    begun, about = perf_counter(), dict[str, Any]()
    try:
        yield lambda count: about.update(memories=count)
    except BaseException as error:
        about["error"] = type(error).__name__
        raise
    finally:
        about["ms"] = round(1000 * (perf_counter() - begun), 1)
        log.info(what, extra={"about": about})
