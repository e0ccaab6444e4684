"""The verb table: each entry becomes a REST route, a command, or both.

A verb is listed in `verbs.toml` if the interfaces only parse its arguments, call one method of the
client and render what it returns. `rest/routes.py` builds the routes and `cli/app.py` the commands.
How a result is printed depends on its type alone. Everything else is written by hand in those
packages.

This module imports nothing heavy, because `memorist --help` reads it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a verb. Required arguments are positional on the command line."""

    name: str
    kind: str  # `rest/routes.py` and `cli/app.py` map it to a type
    help: str
    required: bool = False
    default: Any = None
    route_default: Any  # of the route; equals `default` unless given
    cli_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A method of the client with its route and its command."""

    method: str  # of a ScopedClient, such as `pin` or `consent.approve`
    route: str = ""  # such as `GET /stats`, below /v1/memory; empty: no route
    command: str = ""  # such as `pin` or `jobs purge`; empty: no command
    help: str
    arguments: tuple[Argument, ...]
    name: str = ""  # of the route in OpenAPI, if it differs from the last word of the method
    right: str = ""  # by default `read` for GET, else `write`
    may_be_missing: bool = False  # the route answers 404 if there is no such thing
    status: int = 200
    model: str = ""  # of the body or query in `rest/bodies.py`, if it has more than the arguments
    panel: str | None = None  # of the help, for commands outside a group
    example: str = ""  # what follows the command
    whole_client: bool = False  # a method of the client itself: not about one scope
    creates: bool = False  # the command may create the database
    one_document: bool = False  # --json prints a list as one document instead of one item per line
    empty: str = ""  # what the command notes if the result is empty


_table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CLI: dict[str, Any] = _table["cli"]  # tables of the command line
_arguments = {}
for _name, _fields in _table["argument"].items():
    _usual = {"name": _name, "route_default": _fields.get("default")}
    _arguments[_name] = Argument(**{**_usual, **_fields})
VERBS: list[Verb] = []
for _fields in _table["verb"]:
    _named = [_arguments[name] for name in _fields.pop("arguments", ())]
    VERBS.append(Verb(arguments=tuple(_named), **_fields))
