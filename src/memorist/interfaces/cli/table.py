"""The commands of the verb table: parse the arguments, call the client, return the result."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from inspect import Parameter
from operator import attrgetter
from typing import Any

from ...errors import InvalidInput
from ...types import STATES, Filter
from .. import Call
from ..verbs import REQUIRED, VERBS, Verb
from . import output
from .app import command

SHORTEST = 6  # characters of an id that are enough if no other id begins with them
TYPES: dict[str, Any] = {"count": int, "tokens": int, "revision": int, "days": float, "flag": bool}
METAVARS = {"count": "<N>", "word": "<NAME>", "flag": ""}  # for others, the kind in capitals


def complete_id(given: str, known: Iterable[str]) -> str:
    """Return the id that begins with what was given, or the same if there is none.

    Raises InvalidInput if several ids do.

    >>> complete_id("019a3c", ["019a3c5e-7ddf", "019b0000-7ddf"])
    '019a3c5e-7ddf'
    """
    if len(given) < SHORTEST:
        return given
    found = sorted({id for id in known if id.startswith(given)})
    if len(found) > 1 and given not in found:
        listed = ", ".join(found[:10]) + (", …" if len(found) > 10 else "")
        raise InvalidInput(f"{len(found)} ids begin with {given!r}: {listed}")
    return found[0] if len(found) == 1 else given


def memory_id(mine: Any, given: str) -> str:
    """Return the id of a memory of this scope, in any state, from its first characters."""
    if len(given) < SHORTEST or len(given) >= 36:
        return given
    known: list[str] = []
    cursor, is_last = None, False
    while not is_last:
        page = mine.list(Filter(states=STATES), limit=1000, cursor=cursor)
        known += [memory.id for memory in page]
        cursor, is_last = page.cursor, page.cursor is None
    return complete_id(given, known)


def add(verb: Verb) -> None:
    """Add the command of a verb."""

    def work(call: Call, all: bool = False, **given: Any) -> object:
        with call.memory() as memory:
            target: Any = memory if verb.whole_client or all else call.scope(memory)
            if verb.method.startswith("consent.") and "id" in given:
                proposals = [each.id for each in target.consent.list()]
                given["id"] = complete_id(given["id"], proposals)
            elif "id" in given:
                given["id"] = memory_id(target, given["id"])
            method = attrgetter(verb.method)(target)
            if "actor" in inspect.signature(method).parameters:
                given["actor"] = target.scope.user
            answer = method(**given)
        if verb.empty and not answer and not call.json:
            output.note(verb.empty)
        return (answer, answer) if verb.one_document else answer

    parameters = [Parameter("call", Parameter.POSITIONAL_OR_KEYWORD)]
    doc = f"{verb.help}\n\nArgs:"
    for argument in verb.arguments:
        kind = TYPES.get(argument.kind, str)
        metavar = METAVARS.get(argument.kind, f"<{argument.kind.upper()}>")
        place: Any = Parameter.KEYWORD_ONLY
        default = argument.default if argument.cli_default is REQUIRED else argument.cli_default
        if default is REQUIRED:
            place = Parameter.POSITIONAL_OR_KEYWORD
        elif default is None:
            kind = kind | None
        parameters.append(Parameter(argument.name, place, default=default, annotation=kind))
        doc += f"\n    {argument.name}: {metavar} {argument.help}"
    if verb.all_users:
        everyone = Parameter("all", Parameter.KEYWORD_ONLY, default=False, annotation=bool)
        parameters.append(everyone)
    work.__doc__ = f"{doc}\n\nExample: memorist {verb.command} {verb.example}"
    work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command(verb.command, verb.panel or None, creates=verb.creates)(work)


for _verb in VERBS:
    if _verb.command:
        add(_verb)
