"""Expected failures of the issue on trust, and preconditions that must not look like one."""

from __future__ import annotations

import pytest


def mended_by(line: str, *, raises: type[BaseException] = AssertionError) -> pytest.MarkDecorator:
    """Expect a failure until the named line of the issue on trust is done."""
    return pytest.mark.xfail(
        strict=True, raises=raises, reason=f"issue 16, the issue on trust, {line}"
    )


def require(holds: bool) -> None:
    """Raise an error that no expected failure hides if a test has not reached the situation it is about."""
    if not holds:
        raise RuntimeError("the situation that this test needs was not reached")
