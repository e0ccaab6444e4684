"""Make an output comparable: ids, times, secrets, paths, sizes and durations become placeholders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

FIXED_YEAR = "2024"  # of the fixed clock: these times are stable and stay readable, all others come from a real clock
DIGITS = 6  # of numbers with a fraction

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_SHORT = re.compile(r"(?<![\w.\-/])[0-9a-f]{8}(?![\w.\-/])")
_TIME = re.compile(r"\b(\d{4})-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"\b(20\d\d)-\d\d-\d\d\b(?![T ]\d\d:)")
_PLAIN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\brk_[0-9a-f]+_[\w-]+"), "<token>"),
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "<hash>"),
    (re.compile(r"\b[\d,]+ bytes\b"), "<n> bytes"),
    (re.compile(r"\b\d+(?:\.\d+)? (ms|s)\b"), r"<n> \1"),
    (re.compile(r"(?<=<n> bytes before, )[\d,]+(?= after)"), "<n>"),
    (re.compile(r"\b\d+ days?, \d+:\d\d:\d\d\b"), "<duration>"),
    (
        re.compile(r"(?<![\d.])(?!127\.0\.0\.1|0\.0\.0\.0)\d+\.\d+\.\d+(?:\.\d+)?(?![\d.])"),
        "<version>",
    ),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "<port>"),
    (re.compile(r"(?<=localhost:)\d+"), "<port>"),
)
# Values that are no use to compare, by the name they stand under in JSON.
_VOLATILE = re.compile(r"(.*_)?(bytes|seconds|ms)|taking_in|asking|bytes_before|bytes_after")


class Normalizer:
    """Replaces what differs from run to run; the same id gets the same placeholder in one file."""

    def __init__(
        self, names: Mapping[str, str] | None = None, paths: Mapping[str, str] | None = None
    ) -> None:
        self._names = dict(names or {})  # ids that have a name of their own
        self._paths = dict(sorted((paths or {}).items(), key=lambda pair: -len(pair[0])))
        self._ends: dict[str, str] = {}  # of ids that were only seen in short
        self._unnamed = 0

    def text(self, text: str) -> str:
        """Normalize any text."""
        for path, placeholder in self._paths.items():
            text = text.replace(path, placeholder)
        for id, name in self._names.items():
            if id in text and not _UUID.fullmatch(id):
                text = text.replace(id, f"<{name}>")
        text = _UUID.sub(self._id, text)
        text = _SHORT.sub(self._short, text)
        text = _TIME.sub(_unless_fixed("<time>"), text)
        text = _DATE.sub(_unless_fixed("<date>"), text)
        for pattern, placeholder in _PLAIN:
            text = pattern.sub(placeholder, text)
        return text

    def json(self, value: Any) -> str:
        """Normalize a JSON value: keys sorted, numbers rounded."""
        return self.text(json.dumps(stable(value), ensure_ascii=False, indent=1, sort_keys=True))

    def printed(self, text: str) -> str:
        """Normalize what a program printed: JSON, JSON Lines or plain text."""
        try:
            return self.json(json.loads(text)) + "\n"
        except ValueError:
            pass
        try:
            return "".join(self.json(json.loads(line)) + "\n" for line in text.splitlines())
        except ValueError:
            return self.text(text)

    def _short(self, match: re.Match[str]) -> str:
        """The end of an id, as the command line shows it."""
        end = match[0]
        for id, name in self._names.items():
            if id.endswith(end):
                return f"<{name}>"
        if end.isdecimal():
            return end
        if end not in self._ends:
            self._ends[end] = self._next()
        return f"<{self._ends[end]}>"

    def _next(self) -> str:
        self._unnamed += 1
        return f"id-{self._unnamed}"

    def _id(self, match: re.Match[str]) -> str:
        id = match[0]
        if id not in self._names:
            self._names[id] = self._ends.get(id[-8:]) or self._next()
        return f"<{self._names[id]}>"


def _unless_fixed(placeholder: str) -> Callable[[re.Match[str]], str]:
    return lambda match: match[0] if match[1] == FIXED_YEAR else placeholder


def stable(value: Any, name: str = "") -> Any:
    """Round numbers and hide measured values.

    >>> stable({"score": 0.12345678, "bytes": 4096})
    {'score': 0.123457, 'bytes': '<n>'}
    """
    if isinstance(value, Mapping):
        return {key: stable(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [stable(inner, name) for inner in value]
    if isinstance(value, bool) or value is None:
        return value
    if _VOLATILE.fullmatch(name) and isinstance(value, int | float | str):
        return "<n>"
    if name == "cursor":
        return "<cursor>"
    if name == "simhash" and isinstance(value, int):
        return hex(
            value
        )  # in decimal digits it would look like a hash that differs from run to run
    return round(value, DIGITS) + 0.0 if isinstance(value, float) else value
