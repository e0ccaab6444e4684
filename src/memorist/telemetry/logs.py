"""A log for whoever runs a server or a worker: what was done, for how long and how it ended, never what was said."""

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

from .instrumentation import Observer, Tell

request: ContextVar[str | None] = ContextVar(
    "request", default=None
)  # what the request is called that is answered
log = logging.getLogger("memorist.verbs")


class Lines(logging.Formatter):
    """One JSON object a line, or the same as words. Of an error only its class: its message may hold words."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        about = {"request": request.get(), "error": _error(record), **getattr(record, "about", {})}
        told = {name: value for name, value in about.items() if value is not None}
        if self._as_json:
            given = {
                "at": at,
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
            }
            return json.dumps(given | told)
        said = " ".join(f"{name}={value}" for name, value in told.items())
        return f"{at} {record.levelname.lower()} {record.getMessage()!r} {said}".rstrip()


def _error(record: logging.LogRecord) -> str | None:
    return record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None


def begin(kind: str, observers: list[Observer]) -> None:
    """Log to stderr as `kind` says: `json`, `text`, or `off`, which leaves logging as it is."""
    if kind == "off":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(as_json=kind == "json"))
    ours = logging.getLogger("memorist")
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(logging.INFO)
    observers.append(watch)


@contextmanager
def watch(what: str) -> Iterator[Tell]:
    """A line for each verb and duty."""
    begun, about = perf_counter(), dict[str, Any]()
    try:
        yield lambda count: about.update(memories=count)
    except BaseException as error:
        about["error"] = type(error).__name__
        raise
    finally:
        about["ms"] = round(1000 * (perf_counter() - begun), 1)
        log.info(what, extra={"about": about})
