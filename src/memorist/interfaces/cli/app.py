"""The program: how commands are declared, options of all commands, groups, and exit codes.

Commands that only call a method of the client are built from the verb table, at the end.

Nothing here is slow to import, so that `memorist --help` answers at once.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from difflib import get_close_matches
from inspect import Parameter
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from ... import __version__
from ...errors import InvalidInput, MemoristError
from ...types import KINDS, STATES, Filter, Kind
from .. import (
    CLI,
    INTERRUPTED,
    OK,
    PIPE_CLOSED,
    REFUSED,
    USAGE,
    VERBS,
    Call,
    Verb,
    codes,
    split_doc,
)
from . import output

Work = TypeVar("Work", bound=Callable[..., object])
Words = list[str] | None  # of an option that can be repeated
_UsageError = typer.BadParameter.__mro__[2]  # click's ClickException, wherever typer keeps it
_POSITIONAL = Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD = Parameter.KEYWORD_ONLY
_SHORT = {"limit": ["-n"], "yes": ["-y"], "top-k": ["-k"]}
_SHARED: dict[str, str] = CLI["shared"]
_PROVIDED = {"ctx", "call", "memory", "mine"}  # parameters that are not on the command line
_USUAL: dict[str, str] = {
    **CLI["usual"],
    "kind": f"<KIND> Only this kind: {', '.join(KINDS)}.",
    "state": f"<STATE> Only this state: {', '.join(STATES)}.",
}
SHORTEST = 6  # characters of an id that are enough if no other id begins with them
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
    "urls": list[str],
}  # for others, str
PANELS = {name: panel for panel, names in CLI["panels"].items() for name in names}


class CommandGroup(TyperGroup):
    """A group of commands that may have a default."""

    default: str | None = None
    order: Sequence[str] = tuple(PANELS)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.order)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else "-"
        if self.default and first.startswith("-") and first not in ("-h", "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class Program(CommandGroup):
    """All commands. Every error ends here."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        # Print \\u2026 where the terminal lacks a character, instead of failing.
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        extra |= {"standalone_mode": False, "prog_name": "memorist"}
        try:
            code = super().main(words, *rest, **extra)
        except Exception as error:
            code = report(error, as_json="--json" in words)
        sys.exit(code if isinstance(code, int) else OK)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command. For an unknown name, suggest similar ones, in groups too."""
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        places = {each: each for each in self.commands}
        for group, about in CLI["groups"].items():
            for each in about["commands"]:
                places.setdefault(each, f"{group} {each}")
        places |= CLI["renamed"]
        message = f"No such command {name!r}."
        matches = [name] if name in places else get_close_matches(name, places)
        if matches:
            quoted = " or ".join(f"`memorist {places[each]}`" for each in matches)
            message += f" Did you mean {quoted}?"
        return ctx.fail(message)


app = typer.Typer(
    name="memorist",
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: memorist demo",
)
_groups = {"": app}
for _name, _group in CLI["groups"].items():
    _default = _group.get("default")
    _short = f"`memorist {_name}` is short for `memorist {_name} {_default}`."
    _groups[_name] = typer.Typer(
        cls=type("Group", (CommandGroup,), {"default": _default, "order": _group["commands"]}),
        help=_group["help"],
        epilog=_short if _default else None,
        no_args_is_help=_default is None,
    )
    app.add_typer(_groups[_name], name=_name, rich_help_panel=PANELS[_name])


def command(path: str) -> Callable[[Work], Work]:
    """Register a function as a command, such as `pin` or `db copy`, and print what it returns.

    Its parameters are arguments, and options if they are keyword-only, except for those named
    `call` (the `Call`), `memory` (the open memory) and `mine` (the part of it that the command is
    about; the whole with --all). Its docstring is the help: a text, a line for each parameter after
    `Args:`, and an `Example:`.
    """
    group, _, name = path.rpartition(" ")

    def add(work: Work) -> Work:
        wanted = inspect.signature(work).parameters.keys() & _PROVIDED

        def run(ctx: typer.Context, **given: Any) -> None:
            shared = {option: given.pop(option) for option in _SHARED}
            is_given = {name: value for name, value in shared.items() if value not in (None, False)}
            call = replace(ctx.obj, **is_given, creates=path in CLI["creating"])
            with quiet_end():
                with call.memory() if wanted - {"call"} else nullcontext() as memory:
                    provided: dict[str, Any] = {"call": call, "memory": memory}
                    if "mine" in wanted:
                        provided["mine"] = memory if given.get("all") else call.scope(memory)
                    answer = work(**{name: provided[name] for name in wanted}, **given)
                output.result(answer, json=call.json, empty=CLI["empty"].get(path))

        example = _describe(run, work) or f"memorist {path}"
        panel = PANELS.get(path)
        _groups[group].command(name, rich_help_panel=panel, epilog=f"Example: {example}")(run)
        return work

    return add


def _describe(run: Any, work: Callable[..., object]) -> str:
    """Give a function the help and the parameters of a command, and return the example."""
    text, given, example = split_doc(work)
    helps = {**_USUAL, **given}
    shared = inspect.signature(Call, eval_str=True).parameters
    parameters = [Parameter("ctx", _KEYWORD, annotation=typer.Context)]
    for name, parameter in inspect.signature(work, eval_str=True).parameters.items():
        if name not in _PROVIDED and parameter.kind != parameter.VAR_KEYWORD:
            parameters.append(declare(parameter, helps[name]))
    for name, help in _SHARED.items():
        parameters.append(declare(shared[name], help, panel="Options of all commands"))
    run.__doc__ = text
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature(parameters)
    return example


def declare(parameter: Parameter, help: str, *, panel: str | None = None) -> Parameter:
    """Return a parameter of a function as a parameter of a command.

    The help may begin with what the value is called, such as `<NAME>`, or with its limits, such as
    `<0..1>` or `<1..>`. A flag that can be None or is True by default also has the name --no-flag.
    """
    metavar = None
    if help.startswith("<"):
        metavar, _, help = help[1:].partition(">")
    help = help.strip()
    kind = parameter.annotation
    name = parameter.name.replace("_", "-")
    if parameter.kind is not _KEYWORD:
        declared: Any = typer.Argument(metavar=metavar, help=help, show_default=False)
        return parameter.replace(kind=_KEYWORD, annotation=Annotated[kind, declared])
    names = [f"--{name}", *_SHORT.get(name, ())]
    if kind == bool | None or parameter.default is True:
        names = [f"--{name}/--no-{name}"]
    low, has_limits, high = (metavar or "").partition("..")
    declared = typer.Option(
        *names,
        metavar="N" if has_limits else metavar,
        help=help,
        min=int(low) if has_limits else None,
        max=int(high) if high else None,
        rich_help_panel=panel,
    )
    return parameter.replace(annotation=Annotated[kind, declared])


def start(ctx: typer.Context, *, version: bool = False, **shared: Any) -> None:
    """Long-term memory for AI agents: stores evidence, recalls within a budget, explains why.

    Args:
        version: Print the version.
    """
    if version:
        number = json.dumps({"version": __version__})
        typer.echo(number if shared["json"] else f"memorist {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command. `memorist --help` lists all commands.")
    ctx.obj = Call(**shared)


_describe(start, start)
app.callback(invoke_without_command=True)(start)


@contextmanager
def quiet_end() -> Iterator[None]:
    """End without a message at Ctrl-C, or when a pipe is closed (`memorist list | head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # discard the buffer, or Python complains at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from None
    except KeyboardInterrupt:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        # Everything is durable; a regular exit would complain about the cancelled event loop.
        os._exit(INTERRUPTED)


def report(error: Exception, *, as_json: bool) -> int:
    """Print an error to stderr and return its exit code."""
    name = type(error).__name__
    code = codes(error).exit_code
    message = f"unexpected error: {name}: {error} (MEMORIST_TRACEBACK=1 prints the traceback)"
    usage: Any = error if isinstance(error, _UsageError) else None
    if usage:
        if close := getattr(usage, "possibilities", None):  # of a wrong option
            usage.message += f". Did you mean {' or '.join(close)}?"
            usage.possibilities = None
        code = USAGE
        message = usage.format_message()
    elif isinstance(error, MemoristError):
        message = str(error)
    elif isinstance(error, typer.Abort):
        message = "aborted"
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.strerror}: {error.filename!r}" if error.filename else error.strerror
    if as_json:
        about = {"type": name, "message": message, "exit_code": code}
        print(json.dumps({"error": about}), file=sys.stderr)
    elif usage:
        usage.show()
    else:
        print(f"memorist: {message}", file=sys.stderr)
    if os.environ.get("MEMORIST_TRACEBACK"):
        traceback.print_exception(error)
    return code


def complete_id(given: str, known: Iterable[str]) -> str:
    """Return the id that begins with what was given, or the same if there is none.

    Raises InvalidInput if several ids do.

    >>> complete_id("019a3c", ["019a3c5e-7ddf", "019b0000-7ddf"])
    '019a3c5e-7ddf'
    """
    if len(given) < SHORTEST:
        return given
    found = sorted({id for id in known if id.startswith(given)})
    if len(found) == 1:
        return found[0]
    if found and given not in found:
        listed = ", ".join(found[:10]) + ", …" * (len(found) > 10)
        raise InvalidInput(f"{len(found)} ids begin with {given!r}: {listed}")
    return given


def memory_id(mine: Any, given: str) -> str:
    """Return the id of a memory of this scope, in any state, from its first characters."""
    if len(given) < SHORTEST or len(given) >= 36:
        return given
    page = None
    known = []
    while page is None or page.cursor:
        page = mine.list(Filter(states=STATES), limit=1000, cursor=page and page.cursor)
        known += [memory.id for memory in page]
    return complete_id(given, known)


def read_text(given: str) -> str:
    """Return a text of the command line; `-` reads stdin. Raises InvalidInput."""
    return decode(sys.stdin.buffer.read(), "The input") if given == "-" else given


def decode(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{what} is not UTF-8 text") from error


_id = attrgetter("id")
# How arguments of some kinds are read, with the memory that they are about.
READERS: dict[str, Callable[[Any, Any], object]] = {
    "content": lambda target, given: read_text(given),
    "new_text": lambda target, given: read_text(given),
    "id": memory_id,
    "ids": lambda target, given: [memory_id(target, id) for id in given],
    "key": lambda target, given: complete_id(given, map(_id, target.keys())),
    "proposal": lambda target, given: complete_id(given, map(_id, target.consent.list())),
}


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

    optional = {each.name for each in verb.arguments if not each.required}
    source = "memory" if verb.whole_client else "mine"
    parameters = [Parameter(source, _POSITIONAL)]
    doc = f"{verb.help}\n\nArgs:"
    for argument in verb.arguments:
        kind = TYPES.get(argument.kind, str)
        metavar = CLI["values"].get(argument.kind, f"<{argument.kind.upper()}>")
        default = Parameter.empty if argument.required else argument.default
        place = _POSITIONAL if argument.required or argument.positional else _KEYWORD
        if default is None:
            kind = kind | None
        parameters.append(Parameter(argument.option, place, default=default, annotation=kind))
        doc += f"\n    {argument.option}: {metavar} {argument.help}"
    work.__doc__ = f"{doc}\n\nExample: memorist {verb.command} {verb.example}"
    work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command(verb.command)(work)


for _verb in VERBS:
    if _verb.command:
        _add_verb(_verb)
