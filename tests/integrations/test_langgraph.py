"""The example for LangGraph. Its checkpointer and store are tested in `tests/e2e/test_langgraph.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("memorist.integrations.langgraph", exc_type=ImportError)
pytest.importorskip("langgraph.graph", exc_type=ImportError)


def test_the_example_remembers_between_threads_and_runs(run_example: Callable[[str], str]) -> None:
    assert run_example("langgraph_example").splitlines() == [
        "monday: Noted.",
        "friday: My sister Mira lives in Ghent.",
        "Messages on Monday: 2",
        "Noted: 2",
    ]
    again = run_example("langgraph_example").splitlines()
    assert again[2:] == ["Messages on Monday: 4", "Noted: 4"]
