"""Every adapter has an extra, a section in the documentation and an example, and names its extra."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

import memorist.integrations
from memorist.errors import MissingExtra

ROOT = Path(__file__).parents[2]
# Each module of `memorist.integrations`: the package that its framework is imported as, and the extra.
ADAPTERS = {
    "anthropic": ("anthropic", "anthropic"),
    "crewai": ("crewai", "crewai"),
    "google_adk": ("google.adk", "google-adk"),
    "langchain": ("langchain_core", "langchain"),
    "langgraph": ("langgraph.checkpoint", "langgraph"),
    "llama_index": ("llama_index.core", "llama-index"),
    "openai_agents": ("agents", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
}


def test_every_adapter_is_listed_here() -> None:
    folder = Path(memorist.integrations.__file__).parent
    found = {path.stem for path in folder.iterdir() if not path.stem.startswith("_")}
    assert found == set(ADAPTERS)


@pytest.mark.parametrize("name", ADAPTERS)
def test_without_its_framework_an_adapter_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework, extra = ADAPTERS[name]
    module = f"memorist.integrations.{name}"
    for loaded in [each for each in sys.modules if f"{each}.".startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(MissingExtra, match=rf'pip install "memorist\[{extra}\]"'):
        importlib.import_module(module)


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_has_an_extra_a_section_and_an_example(name: str) -> None:
    _, extra = ADAPTERS[name]
    example = f"{name}_example"  # a script may not have the name of a package that it imports
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert extra in project["optional-dependencies"]
    page = (ROOT / "docs/integrations.md").read_text("utf-8")
    assert f"from memorist.integrations.{name} import" in page
    assert f'pip install "memorist[{extra}]"' in page
    assert f"(../examples/integrations/{example}.py)" in page
    assert (ROOT / f"examples/integrations/{example}.py").exists()
