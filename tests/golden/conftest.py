"""The fixed history and the golden files, made once for the whole folder."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden.files import Golden
from golden.normalize import Normalizer
from golden.stage import Source, Stage, build, fixed

LAST = Path(__file__).parent / "test_unused.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Look for unused files after all other tests."""
    items.sort(key=lambda item: item.path == LAST)


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden files."""
    return Golden(write=request.config.getoption("--write-golden"))


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The fixed history in a file; only `stage` is for use, which also fixes the clock."""
    folder = tmp_path_factory.mktemp("history")
    with fixed(folder) as source:
        return build(folder, source)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """A fixed clock and fixed ids."""
    with fixed(tmp_path) as made:
        made.reset()
        yield made


@pytest.fixture
def stage(history: Stage, source: Source) -> Stage:
    """The fixed history, at a fixed moment."""
    return Stage(history.file, source, history.ids)


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Path:
    """A copy of the fixed history."""
    return stage.copy(tmp_path)


@pytest.fixture
def normal(stage: Stage, tmp_path: Path) -> Normalizer:
    """A normalizer that knows the ids of the history and the folder of this test."""
    machine = f"{platform.system()} {platform.machine()}"
    return Normalizer(stage.names, {str(tmp_path): "<tmp>", machine: "<platform>"})
