"""Settings as callers of `memorist.open` meet them."""

from __future__ import annotations

import pytest

import memorist
from memorist.errors import Misconfigured
from memorist.settings import Options, Settings


def test_the_keyword_arguments_of_open_are_the_settings() -> None:
    assert {*Options.__annotations__, "db"} == set(Settings.model_fields)


def test_a_misspelt_setting_names_the_one_that_was_meant() -> None:
    with pytest.raises(Misconfigured, match=r"no setting 'embeder'\. Did you mean 'embedder'"):
        memorist.open(":memory:", embeder="hashing")  # type: ignore[call-arg]
