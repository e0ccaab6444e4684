"""Golden files: text under this folder that an output is compared with, or that is written anew."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "frozen"
COMMAND = "pytest tests/golden --write-golden"
TOLERANCE = (
    2e-6  # of numbers with a fraction: the last digit may differ from one processor to another
)
_FRACTION = re.compile(r"(?<![\w.])[+-]?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")


class Golden:
    """The golden files, and which of them were used in this run."""

    def __init__(self, *, write: bool) -> None:
        self.write, self.used = write, set[str]()

    def check(self, name: str, text: str) -> None:
        """Compare a text with the file of that name; with --write-golden, write it instead."""
        assert name not in self.used, f"Two outputs are called {name}"
        self.used.add(name)
        text = "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"
        path = HERE / name
        if self.write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            return
        if not path.exists():
            pytest.fail(f"There is no golden file {name}. To write it: {COMMAND}", pytrace=False)
        expected = path.read_text("utf-8")
        if not is_same(expected, text):
            pytest.fail(_difference(name, expected, text), pytrace=False)

    def unused(self) -> list[str]:
        """Files that no test has compared or written in this run."""
        return sorted(each for each in existing() if each not in self.used)


def existing() -> set[str]:
    """The names of all golden files."""
    return {path.relative_to(HERE).as_posix() for path in HERE.rglob("*") if path.is_file()}


def is_same(expected: str, text: str) -> bool:
    """Compare two texts; numbers with a fraction may differ in their last digit.

    >>> is_same("score 0.123456", "score 0.123457"), is_same("score 0.12", "score 0.13")
    (True, False)
    """
    if expected == text:
        return True
    if _FRACTION.sub("#", expected) != _FRACTION.sub("#", text):
        return False
    pairs = zip(_FRACTION.findall(expected), _FRACTION.findall(text), strict=True)
    return all(abs(float(one) - float(other)) <= TOLERANCE for one, other in pairs)


def _difference(name: str, expected: str, text: str) -> str:
    lines = difflib.unified_diff(
        expected.splitlines(),
        text.splitlines(),
        f"golden/frozen/{name}",
        "what came out",
        lineterm="",
    )
    return "\n".join((*lines, "", f"If this change is intended: {COMMAND}, and review the diff."))
