"""Settings as callers of `memorist.open` meet them."""

from __future__ import annotations

import pytest

import memorist
from memorist.errors import Misconfigured
from memorist.settings import Options, Settings, load


def test_the_keyword_arguments_of_open_are_the_settings() -> None:
    assert {*Options.__annotations__, "db"} == set(Settings.model_fields)


def test_a_misspelt_setting_names_the_one_that_was_meant() -> None:
    with pytest.raises(Misconfigured, match=r"no setting 'embeder'\. Did you mean 'embedder'"):
        memorist.open(":memory:", embeder="hashing")  # type: ignore[call-arg]


@pytest.mark.spec("MIL-23")
@pytest.mark.parametrize(
    ("backend", "url", "index"),
    [
        ("weaviate", "http://10.0.0.7:8080", "weaviate:http://10.0.0.7:8080"),
        ("Weaviate", "", "weaviate:http://localhost:8080"),
        ("jsonl", "http://10.0.0.7:8080", None),
        ("", "http://10.0.0.7:8080", None),
    ],
)
def test_miltons_variables_name_the_vector_index(
    monkeypatch: pytest.MonkeyPatch, backend: str, url: str, index: str | None
) -> None:
    monkeypatch.setenv("MILTON_MEMORY_BACKEND", backend)
    monkeypatch.setenv("WEAVIATE_URL", url)
    assert load().vector_index == index
    monkeypatch.setenv("MEMORIST_VECTOR_INDEX", "chroma:index")
    assert load().vector_index == "chroma:index", "the project's own variable comes first"


def test_an_unknown_backend_of_milton_names_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILTON_MEMORY_BACKEND", "redis")
    with pytest.raises(Misconfigured, match=r"'redis': use weaviate .* or jsonl"):
        load()


@pytest.mark.parametrize("name", ["MULTILINGUAL", "RUN_JOBS", "CACHE_MB", "DB"])
def test_an_empty_variable_is_one_that_is_not_set(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(f"MEMORIST_{name}", raising=False)
    usual = load()
    monkeypatch.setenv(f"MEMORIST_{name}", "")
    assert load() == usual
