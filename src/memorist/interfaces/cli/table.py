"""The commands of the verb table: parse the arguments, call the client, print the result."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from operator import attrgetter
from typing import Annotated, Any

import typer

from ...errors import InvalidInput
from ...types import STATES, Filter
from ..call import Call
from ..verbs import REQUIRED, VERBS, Verb
from . import output
from .app import command

SHORTEST = 6  # characters of an id that are enough if no other id begins with them
TYPES: dict[str, tuple[Any, str]] = {
    "id": (str, "<ID>"),
    "name": (str, "<NAME>"),
    "word": (str, "<NAME>"),
    "text": (str, "<TEXT>"),
    "value": (str, "<VALUE>"),
    "count": (int, "<N>"),
    "tokens": (int, "<TOKENS>"),
    "days": (float, "<DAYS>"),
    "revision": (int, "<REVISION>"),
    "flag": (bool, ""),
    "time": (str, "<TIME>"),
    "node": (str, "<NODE>"),
    "field": (str, "<FIELD>"),
}
All = Annotated[bool, typer.Option("--all", help="For all users, not only for --user.")]


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
    page = mine.list(Filter(states=STATES), limit=1000)
    known = [memory.id for memory in page]
    while page.cursor is not None:
        page = mine.list(Filter(states=STATES), limit=1000, cursor=page.cursor)
        known += [memory.id for memory in page]
    return complete_id(given, known)


def add(verb: Verb) -> None:
    """Add the command of a verb."""
    arguments = [each for each in verb.arguments if each.only != "rest"]

    def work(call: Call, everyone: bool = False, **given: Any) -> None:
        with call.memory() as memory:
            is_whole = verb.whole_client or everyone
            target: Any = memory if is_whole else call.scope(memory)
            if any(each.kind == "id" for each in arguments):
                if verb.method.startswith("consent."):
                    proposals = [each.id for each in target.consent.list()]
                    given["id"] = complete_id(given["id"], proposals)
                else:
                    given["id"] = memory_id(target, given["id"])
            method = attrgetter(verb.method)(target)
            if "actor" in inspect.signature(method).parameters:
                given["actor"] = target.scope.user
            answer = method(**given)
            output.result(answer, json=call.json, one_document=verb.one_document, empty=verb.empty)

    parameters = [inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    if verb.all_users:
        parameters.append(_parameter("everyone", All, False))
    helps = {}
    for argument in arguments:
        kind, metavar = TYPES[argument.kind]
        default = argument.default if argument.cli_default is REQUIRED else argument.cli_default
        if default is REQUIRED:
            default = inspect.Parameter.empty
        parameters.append(
            _parameter(argument.name, kind | None if default is None else kind, default)
        )
        helps[argument.name] = metavar + argument.help
    work.__doc__ = verb.help
    work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command(verb.command, verb.panel, example=verb.example, creates=verb.creates, **helps)(work)


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=kind, default=default)


for _verb in VERBS:
    if _verb.command:
        add(_verb)
