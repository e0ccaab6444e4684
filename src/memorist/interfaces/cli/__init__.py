"""The command line: `memorist …`.

Commands that only call a method of the client are built here, from the verb table. The others are
in the modules of this package.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused, 5 unavailable, 130 interrupted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from operator import attrgetter
from typing import Any

import typer

from ...types import Kind
from .. import CLI, REFUSED, VERBS, Verb

# Importing a module registers its commands.
from . import database, doctor, evals, files, forgetting, memories, server  # noqa: F401
from .app import app, command, complete_id, memory_id, read_metadata, read_text

__all__ = ["app", "main"]

TYPES: dict[str, Any] = {
    "count": int,
    "tokens": int,
    "revision": int,
    "days": float,
    "share": float,
    "flag": bool,
    "kind": Kind,
    "ids": list[str],
    "tags": list[str],
    "metadata": list[str],
    "urls": list[str],
}  # of arguments by their kind; others are str
_id = attrgetter("id")
# Parsers of arguments by their kind. They get the scope or client that the verb is called on.
READERS: dict[str, Callable[[Any, Any], object]] = {
    "content": lambda target, given: read_text(given),
    "new_text": lambda target, given: read_text(given),
    "id": memory_id,
    "metadata": lambda target, given: read_metadata(given),
    "ids": lambda target, given: [memory_id(target, id) for id in given],
    "key": lambda target, given: complete_id(given, map(_id, target.keys())),
    "proposal": lambda target, given: complete_id(given, map(_id, target.consent.list())),
}


def main() -> None:
    """Run the command line."""
    app()


def _add_verb(verb: Verb) -> None:
    """Add the command of a verb."""

    def work(**given: Any) -> object:
        target = given.pop(source)
        values = {}
        for argument in verb.arguments:
            value = given[argument.option]
            if value and argument.kind in READERS:
                value = READERS[argument.kind](target, value)
            if value is not None and argument.name != "all":
                values[argument.name] = value
        if verb.needs and not values.keys() & optional:
            raise typer.BadParameter(verb.needs)
        method = attrgetter(verb.method)(target)
        if "actor" in inspect.signature(method).parameters:
            values["actor"] = target.scope.user
        answer = method(**values)
        if verb.text:
            values["answer"] = answer
            shown = {name: values[each] for name, each in verb.value.items()}
            return shown, verb.text.format(**values)
        if verb.refusal_fails and all(each.status == "refused" for each in answer.outcomes):
            return answer, answer, (), REFUSED
        return (answer, answer) if verb.one_document else answer

    optional = set()
    source = "memory" if verb.whole_client else "mine"
    parameters = [Parameter(source, Parameter.POSITIONAL_OR_KEYWORD)]
    doc = f"{verb.help}\n\nArgs:"
    for argument in verb.arguments:
        kind = TYPES.get(argument.kind, str)
        metavar = CLI["values"].get(argument.kind, f"<{argument.kind.upper()}>")
        default = Parameter.empty
        is_positional = argument.required or argument.positional
        place = Parameter.POSITIONAL_OR_KEYWORD if is_positional else Parameter.KEYWORD_ONLY
        if not argument.required:
            optional.add(argument.name)
            default = argument.default
        if default is None:
            kind = kind | None
        parameter = Parameter(
            argument.option,
            place,
            default=default,
            annotation=kind,
        )
        parameters.append(parameter)
        doc += f"\n    {argument.option}: {metavar} {argument.help}"
    work.__doc__ = f"{doc}\n\nExample: memorist {verb.command} {verb.example}"
    work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command(verb.command)(work)


for _verb in VERBS:
    if _verb.command:
        _add_verb(_verb)
