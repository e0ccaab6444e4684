"""What the tests of all adapters share.

A test file begins with a line that skips it, with the command that installs the framework, where it is missing:

    adapter = pytest.importorskip("memorist.integrations.openai_agents", exc_type=ImportError)

`pip install -e ".[test-integrations]"` installs all frameworks; `.ci/extended adapters` does so in a new environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_server import Model, running

EXAMPLES = Path(__file__).parents[2] / "examples" / "integrations"


@pytest.fixture
def model() -> Iterator[Model]:
    """Yield a server that speaks the protocols of model providers and answers as the test says."""
    with running() as server:
        yield server


@pytest.fixture
def run_example(tmp_path: Path, model: Model) -> Callable[[str], str]:
    """Return a function that runs an example with a memory in a file, and returns what it prints.

    Its requests to models go to `model`.
    """

    def run(name: str) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py"), str(tmp_path / "memory.db")],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, **model.environment},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
