"""How commands are declared: groups, options shared by all commands, and error reports.

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
from functools import partial
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from ... import __version__
from ...errors import InvalidInput, MemoristError, NotFound
from ...types import KINDS, STATES, Filter
from .. import CLI, INTERRUPTED, OK, PIPE_CLOSED, USAGE, Call, codes, split_doc
from . import output, variables

Work = TypeVar("Work", bound=Callable[..., object])
Words = list[str] | None  # values of an option that can be repeated
_UsageError = typer.BadParameter.__mro__[2]  # click's ClickException, wherever typer keeps it
_SHARES: set[str | None] = set()  # names of options from 0 to 1
_KEYWORD = Parameter.KEYWORD_ONLY
_SHORT = {"limit": ["-n"], "yes": ["-y"], "top-k": ["-k"]}
_SHARED: dict[str, str] = CLI["shared"]
# Parameters that are not on the command line.
_PROVIDED = {"ctx", "call", "memory", "mine", "progress"}
_USUAL: dict[str, str] = {
    **CLI["usual"],
    "kind": f"<KIND> Only this kind: {', '.join(KINDS)}.",
    "state": f"<STATE> Only this state: {', '.join(STATES)}.",
}
SIMILAR = 0.75  # of 1, from which on another name is suggested for a wrong one
SHORTEST = 6  # characters of an id that are enough if no other id begins or ends with them
MOST_NAMED = 10  # ids that an error about an ambiguous one names
PANELS: dict[str, str] = {}  # of a command or a group
for _panel, _names in CLI["panels"].items():
    PANELS |= dict.fromkeys(_names, _panel)


class CommandGroup(TyperGroup):
    """A group of commands. Its default runs if no command is named."""

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

    def main(
        self,
        args: Sequence[str] | None = None,
        *rest: Any,
        **extra: Any,
    ) -> Any:
        words = sys.argv[1:] if args is None else list(args)
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
        paths = {each: each for each in self.commands}
        for group, about in CLI["groups"].items():
            for each in about["commands"]:
                paths.setdefault(each, f"{group} {each}")
        paths |= CLI["renamed"]
        message = f"No such command {name!r}."
        matches = [name] if name in paths else get_close_matches(name, paths, cutoff=SIMILAR)
        if matches:
            quoted = [f"`memorist {paths[each]}`" for each in matches]
            message += f" Did you mean {' or '.join(quoted)}?"
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
    _fields = {"default": _default, "order": _group["commands"]}
    _class = type("Group", (CommandGroup,), _fields)
    _groups[_name] = typer.Typer(
        cls=_class,
        help=_group["help"],
        epilog=_short if _default else None,
        no_args_is_help=_default is None,
    )
    app.add_typer(_groups[_name], name=_name, rich_help_panel=PANELS[_name])


def command(path: str) -> Callable[[Work], Work]:
    """Register a function as a command, such as `pin` or `db copy`, and print what it returns.

    Its parameters become arguments, or options if they are keyword-only. Some are provided
    instead: `call` (the `Call`), `memory` (the open memory), `mine` (the scope of the command;
    with --all, the whole memory) and `progress` (see `output.progress`). Its docstring is the help:
    a text, a line for each parameter after `Args:`, and an `Example:`.
    """
    group, _, name = path.rpartition(" ")

    def add(work: Work) -> Work:
        wanted = inspect.signature(work).parameters.keys() & _PROVIDED

        def run(ctx: typer.Context, **given: Any) -> None:
            shared = {"creates": path in CLI["creating"]}
            for option in _SHARED:
                value = given.pop(option)
                if value not in (None, False):
                    shared[option] = value
            call = replace(ctx.obj, **shared)
            if path != "doctor":  # it lists them
                variables.warn()
            with quiet_end():
                opened = call.memory() if wanted & {"memory", "mine"} else nullcontext()
                with opened as memory:
                    provided = {"call": call, "memory": memory}
                    provided["progress"] = partial(output.progress, hidden=call.json)
                    if "mine" in wanted:
                        provided["mine"] = memory if given.get("all") else call.scope(memory)
                    answer = work(**given, **{each: provided[each] for each in wanted})
                    output.result(answer, json=call.json, empty=CLI["empty"].get(path))

        example = _describe(run, work) or f"memorist {path}"
        register = _groups[group].command(
            name,
            rich_help_panel=PANELS.get(path),
            epilog=f"Example: {example}",
        )
        register(run)
        return work

    return add


def _describe(run: Any, work: Callable[..., object]) -> str:
    """Give `run` the help and the parameters of a command, and return the example."""
    text, helps, example = split_doc(work)
    shared = inspect.signature(Call, eval_str=True).parameters
    parameters = [Parameter("ctx", _KEYWORD, annotation=typer.Context)]
    for name, parameter in inspect.signature(work, eval_str=True).parameters.items():
        if name not in _PROVIDED and parameter.kind != parameter.VAR_KEYWORD:
            help = helps.get(name) or _USUAL[name]
            parameters.append(declare(parameter, help))
    for name, help in _SHARED.items():
        option = declare(shared[name], help, panel="Options of all commands")
        parameters.append(option)
    run.__doc__ = text
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature(parameters)
    return example


def declare(parameter: Parameter, help: str, *, panel: str | None = None) -> Parameter:
    """Declare a parameter of a function as a parameter of a command.

    The help may begin with a metavar such as `<NAME>`, or with limits such as `<0..1>` or `<1..>`.
    A flag that can be None or is True by default also has the name --no-flag.
    """
    metavar = None
    if help.startswith("<"):
        metavar, _, help = help[1:].partition(">")
    help = help.strip()
    kind = parameter.annotation
    name = parameter.name.rstrip("_").replace("_", "-")
    if parameter.kind is not _KEYWORD:
        argument = typer.Argument(metavar=metavar, help=help, show_default=False)
        return parameter.replace(kind=_KEYWORD, annotation=Annotated[kind, argument])
    names = [f"--{name}", *_SHORT.get(name, ())]
    if kind == bool | None or parameter.default is True:
        names = [f"--{name}/--no-{name}"]
    low, has_limits, high = (metavar or "").partition("..")
    if (low, high) == ("0", "1"):
        _SHARES.add(parameter.name)
    option = typer.Option(
        *names,
        metavar="N" if has_limits else metavar,
        help=help,
        min=int(low) if has_limits else None,
        max=int(high) if high else None,
        rich_help_panel=panel,
    )
    return parameter.replace(annotation=Annotated[kind, option])


def start(ctx: typer.Context, *, version: bool = False, **shared: Any) -> None:
    """Long-term memory for AI agents: stores evidence, recalls within a budget, explains why.

    Args:
        version: Print the version.
    """
    if version:
        text = f"memorist {__version__}"
        if shared["json"]:
            text = json.dumps({"version": __version__})
        typer.echo(text)
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
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, sys.stdout.fileno())
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
        is_outside = " than or equal to " in usage.message
        if is_outside and getattr(getattr(usage, "param", None), "name", None) in _SHARES:
            usage.message = "must be between 0 and 1"
        message = usage.format_message()
    elif isinstance(error, MemoristError):
        message = str(error)
    elif isinstance(error, typer.Abort):
        message = "aborted"
    elif isinstance(error, OSError) and error.strerror:
        message = error.strerror
        if error.filename:
            message += f": {error.filename!r}"
    if as_json:
        details = {"type": name, "message": message, "exit_code": code}
        print(json.dumps({"error": details}), file=sys.stderr)
    elif usage:
        usage.show()
    else:
        print(f"memorist: {message}", file=sys.stderr)
    if os.environ.get("MEMORIST_TRACEBACK"):
        traceback.print_exception(error)
    return code


def complete_id(given: str, known: Iterable[str]) -> str:
    """Return the known id that begins or ends with `given`, or `given` itself if there is none.

    Raises InvalidInput if it is ambiguous.

    >>> complete_id("0fc76d", ["019a3c5e-688e0fc76d", "019a3c5e-7ddf000000"])
    '019a3c5e-688e0fc76d'
    """
    if len(given) < SHORTEST:
        return given
    found = sorted({each for each in known if each.startswith(given) or each.endswith(given)})
    if len(found) == 1:
        return found[0]
    if found and given not in found:
        listed = ", ".join(found[:MOST_NAMED])
        if len(found) > MOST_NAMED:
            listed += ", …"
        raise InvalidInput(f"Several ids begin or end with {given!r}: {listed}")
    return given


def memory_id(mine: Any, given: str) -> str:
    """Return the id of a memory of this scope, in any state, from its beginning or end."""
    if len(given) >= 36:
        return given
    if len(given) < SHORTEST:
        if mine.list(Filter(ids=(given,), states=STATES), limit=1).memories:
            return given
        raise NotFound(
            f"No memory with id {given!r} in this scope. Give at least {SHORTEST} characters of "
            "an id: `memorist list` shows them"
        )
    page = mine.list(Filter(id_part=given, states=STATES), limit=MOST_NAMED + 1)
    return complete_id(given, [memory.id for memory in page])


def read_metadata(given: Words) -> dict[str, Any]:
    """Return metadata, or conditions on it, from `key=value` pairs and JSON objects.

    >>> read_metadata(["topic=home", "rank=3", '{"done": false}'])
    {'topic': 'home', 'rank': 3, 'done': False}
    """
    found: dict[str, Any] = {}
    for each in given or ():
        name, is_pair, value = each.partition("=")
        try:
            parsed = json.loads(each if each.startswith("{") else value)
        except ValueError:
            parsed = value
        if each.startswith("{") and isinstance(parsed, dict):
            found |= parsed
        elif is_pair and name and not each.startswith("{"):
            found[name] = parsed
        else:
            raise InvalidInput(f"{each!r:.60} is neither KEY=VALUE nor a JSON object")
    return found


def read_text(given: str) -> str:
    """Return a text from the command line; `-` reads stdin. Raises InvalidInput."""
    if given != "-":
        return given
    return decode(sys.stdin.buffer.read(), "The input")


def decode(raw: bytes, what: str) -> str:
    """Decode UTF-8. Raises InvalidInput, which names what was decoded."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{what} is not UTF-8 text") from error
