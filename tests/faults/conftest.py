"""What the fault tests share: a place for state, and a PostgreSQL that may be harmed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from faults.server import Server, asked


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is left in the folders of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMORIST_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL that is stopped and killed; each test that does so leaves it running."""
    with tempfile.TemporaryDirectory(
        prefix="pg"
    ) as folder:  # one that the server's own user may enter
        made = Server(Path(folder))
        yield made
        made.end()


@pytest.fixture
def own_database(server: Server) -> str:
    """The address of a new and empty database on it."""
    name = f"t{uuid4().hex}"
    asked(server.url, f"CREATE DATABASE {name}")
    before, _, query = server.url.partition("?")
    return f"{before.rpartition('/')[0]}/{name}?{query}"
