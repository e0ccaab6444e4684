"""Golden files that no test compares any more are reported, and removed when all are written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden.files import COMMAND, HERE, Golden


def test_every_golden_file_is_compared_by_a_test(
    golden: Golden, request: pytest.FixtureRequest
) -> None:
    ran = {item.path for item in request.session.items}
    is_whole = ran >= set(Path(__file__).parent.glob("test_*.py")) and not request.config.getoption(
        "keyword"
    )
    if not is_whole or request.session.testsfailed:
        pytest.skip("only when all tests of this folder have run and passed")
    unused = golden.unused()
    if golden.write:
        for name in unused:
            (HERE / name).unlink()
    else:
        assert not unused, f"No test compares these any more. To remove them: {COMMAND}"
