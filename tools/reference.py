"""Write `docs/reference.md` and `docs/requirements.md` from the code and the tests.

python tools/reference.py          write both
python tools/reference.py --check  say whether they are up to date, and write nothing
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from memorist import errors
from memorist.client import Client
from memorist.dialects import POLICIES, PROFILES
from memorist.interfaces.cli import app
from memorist.manage.checkpoints import Checkpoints
from memorist.scoped import ScopedClient
from memorist.settings import Settings

ROOT = Path(__file__).parents[1]
SEEDS = {"MIL": 61, "MLS": 68, "THE": 119, "IMP": 122, "CLK": 91}


def reference() -> str:
    """The reference, as Markdown."""
    parts = [
        "# Reference",
        "Generated from the code by `tools/reference.py`.",
        "## Verbs of a scope",
        "`memorist.open(db).scope(user, …)` returns a scope. `memorist.aio.open` is the async form.",
        *_verbs(ScopedClient),
        "## Verbs for checkpoints",
        "`checkpoints` of a scope keeps the state of the threads of an agent.",
        *_verbs(Checkpoints),
        "## Verbs of a memory",
        *_verbs(Client),
        "## Settings",
        "Arguments of `open`, `MEMORIST_…` in the environment, or a TOML file, in this order of"
        " precedence.",
        _settings(),
        "## Profiles",
        _profiles(),
        "## Write policies",
        _policies(),
        "## Commands",
        "`memorist COMMAND --help` shows the options and an example.",
        _commands(),
        "## Errors",
        "All errors are `memorist.MemoristError`. If the same call may work later, `retry` is True.",
        _errors(),
    ]
    return "\n\n".join(parts) + "\n"


def _verbs(owner: type) -> Iterator[str]:
    methods = [item for part in owner.__mro__ for item in vars(part).items()]
    for name, method in methods:
        if inspect.isfunction(method) and not name.startswith("_"):
            doc = inspect.cleandoc(method.__doc__ or "")
            yield f"### `{name}`\n\n```\n{name}{_signature(method)}\n```\n\n{doc}"


def _signature(method: Any) -> str:
    signature = inspect.signature(method)
    given = [*signature.parameters.values()][1:]  # without self
    if given and given[-1].kind is inspect.Parameter.VAR_KEYWORD and "Unpack" in str(given[-1]):
        (options,) = get_args(get_type_hints(method)[given.pop().name])
        for name, kind in options.__annotations__.items():
            option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...)
            given.append(option.replace(annotation=kind.__forward_arg__))
    shown = [re.sub(r"<function .*>|Ellipsis", "…", str(p)).replace("'", "") for p in given]
    if any(p.kind is p.KEYWORD_ONLY for p in given):
        shown.insert([p.kind is p.KEYWORD_ONLY for p in given].index(True), "*")
    joined = ", ".join(shown)
    result = str(signature.return_annotation).replace("builtins.", "")
    return (
        f"({joined}) -> {result}"
        if len(joined) < 90
        else "(\n    " + ",\n    ".join(shown) + f"\n) -> {result}"
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _settings() -> str:
    rows = [
        (
            f"`{name}`",
            "" if field.default_factory else f"`{field.default}`",
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]
    return _table(("setting", "default", "what it is"), rows)


def _profiles() -> str:
    rows = [
        (
            f"`{profile.name}`",
            ", ".join(f"{weight:+g} {name}" for name, weight in profile.weights.items()),
            f"{profile.limit} hits, {profile.budget or 'any number of'} tokens, {profile.render}",
        )
        for profile in PROFILES.values()
    ]
    return _table(("profile", "score", "limits and rendering"), rows)


def _policies() -> str:
    rows = [(f"`{policy.name}`", ", ".join(_differences(policy))) for policy in POLICIES.values()]
    return _table(("policy", "what it does beyond cleaning"), rows)


def _differences(policy: Any) -> Iterator[str]:
    for field in dataclasses.fields(policy):
        value = getattr(policy, field.name)
        if field.name != "name" and value != field.default:
            yield f"{field.name} = {value}"


def _commands() -> str:
    group: Any = typer.main.get_command(app)
    rows = []
    for name, command in sorted(group.commands.items()):
        rows.append((f"`{name}`", command.get_short_help_str(100)))
        for inner, each in sorted(getattr(command, "commands", {}).items()):
            rows.append((f"`{name} {inner}`", each.get_short_help_str(100)))
    return _table(("command", "what it does"), rows)


def _errors() -> str:
    found = [
        e
        for e in vars(errors).values()
        if inspect.isclass(e) and issubclass(e, errors.MemoristError)
    ]
    rows = [
        (
            f"`{e.__name__}`",
            f"`{e.__mro__[1].__name__}`",
            inspect.cleandoc(e.__doc__ or ""),
            "yes" if e.retry else "",
        )
        for e in found
    ]
    return _table(("error", "is a", "meaning", "retry"), rows)


def requirements() -> str:
    """Which requirement is shown by which test, as Markdown."""
    shown = _shown()
    total = sum(SEEDS.values())
    parts = [
        "# Requirements",
        "Generated from the marks in the tests by `tools/reference.py`."
        " A requirement that is not listed has no test yet.",
        f"{len(shown)} of {total} have a test.",
        _table(
            ("document", "requirements", "with a test"),
            [
                (seed, str(n), str(sum(id.startswith(seed) for id in shown)))
                for seed, n in SEEDS.items()
            ],
        ),
    ]
    for seed, n in SEEDS.items():
        ids = [id for i in range(1, n + 1) if (id := f"{seed}-{i}") in shown]
        rows = [(id, ", ".join(f"`{test}`" for test in shown[id])) for id in ids]
        if rows:
            parts += [f"## {seed}", _table(("requirement", "tests"), rows)]
    return "\n\n".join(parts) + "\n"


def _shown() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for test in ast.walk(tree):
            if isinstance(test, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for id in _marks(test):
                    found.setdefault(id, []).append(f"{path.stem}::{test.name}")
    return found


def _marks(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        if (
            isinstance(mark, ast.Call)
            and isinstance(mark.func, ast.Attribute)
            and mark.func.attr == "spec"
        ):
            yield from (str(each.value) for each in mark.args if isinstance(each, ast.Constant))


def main() -> int:
    pages = {"reference.md": reference(), "requirements.md": requirements()}
    stale = [name for name, text in pages.items() if _read(ROOT / "docs" / name) != text]
    if "--check" in sys.argv:
        print(
            f"out of date: {', '.join(stale)}; run python tools/reference.py"
            if stale
            else "up to date"
        )
        return int(bool(stale))
    for name, text in pages.items():
        (ROOT / "docs" / name).write_text(text, "utf-8")
    return 0


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
