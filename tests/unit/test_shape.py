"""Imports point one way, as the drawing in STYLE.md has it: from the doors to the engine, the steps, the values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import memorist

ROOT = Path(memorist.__file__).parent
# Each layer may import the ones below it; parts of one layer do not know each other, except manage and jobs.
LAYERS = [
    {"__main__"},
    {"interfaces", "dialects", "integrations", "evals", "conformance"},
    {"", "sync"},
    {"aio"},
    {"client"},
    {"scoped"},
    {"managed"},
    {"offline"},
    {"manage", "jobs"},
    {"extraction"},
    {"ingest", "retrieve"},
    {"context"},
    {"settings"},
    {"index", "storage", "embedders", "rerankers", "llms", "vector_indexes"},
    {"ports", "providers", "telemetry", "readers"},
    {"text"},
    {"types", "errors"},
]
PROVIDERS = {"storage", "embedders", "rerankers", "llms", "vector_indexes"}
BELOW_PROVIDERS = {"ports", "providers", "telemetry", "text", "types", "errors"}
ALLOWED = {
    ("manage", "jobs"): "two halves of one layer",
    ("jobs", "manage"): "two halves of one layer",
    ("aio", "dialects"): "the profiles and policies of dialects are collected from one table",
    ("interfaces", "dialects"): "names of profiles and policies; routes and hooks of dialects",
    ("evals", "dialects"): "sweeps over the profile of a dialect",
    ("context", "retrieve"): "the type of a ranking profile, which is data",
    ("context", "ingest"): "the type of a write policy, which is data",
}


def part(module: str) -> str:
    """The layer's name of a module: `memorist.text.clock` is `text`."""
    return module.removeprefix("memorist").lstrip(".").split(".")[0]


def module_of(path: Path) -> str:
    dotted = ".".join(("memorist", *path.relative_to(ROOT).with_suffix("").parts))
    return dotted.removesuffix(".__init__")


def imports(path: Path, *, late: bool) -> Iterator[str]:
    """The modules of ours that a file imports at its top, or also inside functions and for types."""
    tree = ast.parse(path.read_text("utf-8"))
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in ast.walk(tree) if late else tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "memorist")
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            if module.split(".")[0] == "memorist":
                yield from (_module(module, name.name) for name in node.names)


def _module(package: str, name: str) -> str:
    """`from .text import clock` names a module, `from .model import Memory` does not."""
    return f"{package}.{name}" if f"{package}.{name}" in MODULES else package


FILES = sorted(ROOT.rglob("*.py"))
MODULES = {module_of(path) for path in FILES}


def level(name: str) -> int:
    found = [number for number, layer in enumerate(LAYERS) if name in layer]
    assert found, f"{name} stands in no layer: give it a place in LAYERS"
    return found[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_to_the_right(path: Path) -> None:
    here = part(module_of(path))
    for module in imports(path, late=False):
        there = part(module)
        assert here == there or (here, there) in ALLOWED or level(there) > level(here), (
            f"{here} imports {there}"
        )


@pytest.mark.parametrize(
    "path", [path for path in FILES if part(module_of(path)) in PROVIDERS], ids=lambda p: p.stem
)
def test_a_provider_knows_neither_the_engine_nor_another_provider(path: Path) -> None:
    here = part(module_of(path))
    assert {part(module) for module in imports(path, late=True)} <= BELOW_PROVIDERS | {here}


@pytest.mark.parametrize("name", ["types", "errors"])
def test_values_and_errors_need_nothing_but_the_standard_library(name: str) -> None:
    import sys

    tree = ast.parse((ROOT / f"{name}.py").read_text("utf-8"))
    found = {
        node.module or ""
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and not node.level
    }
    found |= {
        each.name for node in tree.body if isinstance(node, ast.Import) for each in node.names
    }
    assert {module.split(".")[0] for module in found} <= sys.stdlib_module_names


def test_the_parts_have_no_cycle_when_they_are_loaded() -> None:
    """A cycle at the top of files would make the order of imports matter."""
    graph = {module_of(path): set(imports(path, late=False)) for path in FILES}
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above, module))
        if module in graph and module not in done:
            for each in graph[module]:
                visit(each, (*above, module))
            done.add(module)

    for module in graph:
        visit(module, ())
