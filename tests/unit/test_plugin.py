"""The plugin for Claude Code and the entry for the MCP registry have the documented shapes, and fit the package."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints
from pydantic.alias_generators import to_camel

from memorist.interfaces.hooks import HOOKS
from memorist.interfaces.hosts import TIMEOUT

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
KEBAB = r"^[a-z0-9]+(-[a-z0-9]+)*$"


def read(name: str) -> Any:
    return json.loads((ROOT / name).read_text("utf-8"))


class Shape(BaseModel, extra="forbid", strict=True, alias_generator=to_camel):
    pass


class Manifest(Shape):
    """`.claude-plugin/plugin.json`, as far as it is used."""

    name: Annotated[str, StringConstraints(pattern=KEBAB)]
    version: str
    description: str
    license: str
    keywords: list[str]


class Command(Shape):
    type: Literal["command"]
    command: str
    timeout: int


class Group(Shape):
    hooks: Annotated[list[Command], Field(min_length=1)]


class Hooks(Shape):
    description: str
    hooks: dict[Literal["SessionStart", "UserPromptSubmit", "Stop", "PreCompact"], list[Group]]


class Argument(Shape):
    type: Literal["positional", "named"]
    value: str
    name: str | None = None


class Variable(Shape):
    name: Annotated[str, StringConstraints(pattern="^MEMORIST_[A-Z]+$")]
    description: str


class Package(Shape):
    registry_type: Literal["pypi"]
    identifier: str
    version: str
    runtime_hint: Literal["uvx"]
    transport: dict[Literal["type"], Literal["stdio"]]
    runtime_arguments: list[Argument]
    package_arguments: list[Argument]
    environment_variables: list[Variable]


class Server(Shape):
    """`server.json` of the MCP registry, revision 2025-12-11."""

    schema_: Annotated[str, Field(alias="$schema")]
    name: Annotated[
        str, StringConstraints(pattern=r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", max_length=200)
    ]
    title: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    description: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    version: Annotated[str, StringConstraints(max_length=255)]
    packages: list[Package]


def test_the_plugin_has_a_manifest_of_this_version() -> None:
    manifest = Manifest.model_validate(read("plugin/.claude-plugin/plugin.json"))
    assert (manifest.name, manifest.version) == (PROJECT["name"], PROJECT["version"])
    assert manifest.license == PROJECT["license"]
    (listed,) = read(".claude-plugin/marketplace.json")["plugins"]
    assert listed["name"] == manifest.name
    assert (ROOT / listed["source"] / ".claude-plugin/plugin.json").is_file()


def test_the_plugin_calls_each_hook_and_its_tools_use_the_same_space() -> None:
    found = Hooks.model_validate(read("plugin/hooks/hooks.json")).hooks
    commands = {
        event: [hook for group in groups for hook in group.hooks] for event, groups in found.items()
    }
    for argument, event in HOOKS.items():
        (hook,) = commands[event]  # type: ignore[index]
        assert (hook.command, hook.timeout) == (f"memorist hook {argument}", TIMEOUT)
    assert len(commands) == len(HOOKS)
    servers = read("plugin/.mcp.json")["mcpServers"]
    assert servers == {"memorist": {"command": "memorist", "args": ["mcp", "--project"]}}


def test_the_registry_entry_names_the_package_of_this_version() -> None:
    server = Server.model_validate(read("server.json"))
    (package,) = server.packages
    version = PROJECT["version"]
    assert server.schema_.endswith("/2025-12-11/server.schema.json")
    assert (server.version, package.version) == (version, version)
    assert package.identifier == PROJECT["name"]
    assert [each.value for each in package.runtime_arguments] == [f"memorist[mcp]=={version}"]
    assert [each.value for each in package.package_arguments] == ["mcp"]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"<!-- mcp-name: {server.name} -->" in readme, (
        "the registry looks for this in the package"
    )
