"""Fixtures of the tests about trust: a state folder that is not the user's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMORIST_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield
