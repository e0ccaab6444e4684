"""The program: options of all commands, groups, suggestions, and exit codes.

Nothing here is slow to import, so that `memorist --help` answers at once.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ... import __version__
from ...errors import MemoristError
from .. import errors
from ..call import Call

_UsageError = typer.BadParameter.__mro__[2]  # click's ClickException, wherever typer keeps it


_EITHER, _KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
_SHORT = {"limit": ["-n"], "yes": ["-y"], "top-k": ["-k"]}
# Options of all commands; they are accepted before and after the name of a command.
_OPTIONS = {
    "db": ("PLACE", "Database: a file, or postgresql://… [MEMORIST_DB]"),
    "user": ("NAME", "Whose memory; default: your login name. [MEMORIST_USER]"),
    "space": ("NAME", "Project or group. [MEMORIST_SPACE]"),
    "tenant": ("NAME", "Organization. [MEMORIST_TENANT]"),
    "session": ("NAME", "Conversation."),
    "json": (None, "Print JSON; errors too, on stderr."),
}
PANELS = (
    "Remember and recall",
    "Browse",
    "Change",
    "Privacy",
    "Files",
    "Agents",
    "Server",
    "Administration",
)
# Groups: the help, the panel, and the command that runs if none is named.
GROUPS = {
    "conflicts": ("Decide between contradicting statements.", "Change", "list"),
    "privacy": ("Turn memory on and off, and start incognito sessions.", "Privacy", "status"),
    "consent": ("Decide what may be known about you.", "Privacy", "list"),
    "agent": ("Commands for programs that act for a person.", "Agents", None),
    "keys": ("Create, list and revoke API keys for the server.", "Server", "list"),
    "stats": ("Counts, events and token usage.", "Administration", "summary"),
    "index": ("Embed memories and rebuild the vector index.", "Administration", "update"),
    "jobs": ("Run background jobs and show what is waiting.", "Administration", None),
    "db": ("Migrate, copy, back up and compact the database.", "Administration", None),
}
RENAMED = {"tend": "jobs run", "memory": "privacy set", "costs": "stats llm-usage"}


class CommandGroup(TyperGroup):
    """A group of commands that may have a default."""

    default: str | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ("-h", "--help")
        if self.default and (not args or is_option):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class Program(CommandGroup):
    """All commands. Every error ends here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *rest: Any,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        # Print \\u2026 where the terminal lacks a character, instead of failing.
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        extra["standalone_mode"] = False
        try:
            code = super().main(words, prog_name or "memorist", *rest, **extra)
        except Exception as error:
            code = report(error, as_json="--json" in words)
        sys.exit(code if isinstance(code, int) else errors.OK)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command. For an unknown name, suggest similar ones, in groups too."""
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        places = {each: each for each in self.commands}
        for group, inner in self.commands.items():
            for each in getattr(inner, "commands", {}):
                places.setdefault(each, f"{group} {each}")
        places |= RENAMED
        matches = [places[each] for each in get_close_matches(name, places)]
        message = f"No such command {name!r}."
        if name in places:
            matches = [places[name]]
        if matches:
            quoted = " or ".join(f"`memorist {each}`" for each in matches)
            message += f" Did you mean {quoted}?"
        return ctx.fail(message)

    def list_commands(self, ctx: Any) -> list[str]:
        panels = {
            name: getattr(each, "rich_help_panel", "") for name, each in self.commands.items()
        }
        return sorted(panels, key=lambda name: PANELS.index(panels[name]))


app = typer.Typer(
    name="memorist",
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: memorist demo",
)
_groups: dict[str, typer.Typer] = {"": app}


def _group(name: str) -> typer.Typer:
    if name not in _groups:
        help, panel, default = GROUPS[name]
        kind = type("Group", (CommandGroup,), {"default": default})
        epilog = f"`memorist {name}` is short for `memorist {name} {default}`." if default else None
        _groups[name] = typer.Typer(
            cls=kind, help=help, epilog=epilog, no_args_is_help=default is None
        )
        app.add_typer(_groups[name], name=name, rich_help_panel=panel)
    return _groups[name]


def command(
    path: str, panel: str = "", *, example: str = "", creates: bool = False, **helps: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command, such as `pin` or `db copy`.

    The function takes a `Call` first. The options of the call are accepted before and after the
    name of the command. `helps` describes its other parameters, see `declare`.
    """
    group, _, name = path.rpartition(" ")

    def add(work: Callable[..., None]) -> Callable[..., None]:
        def run(ctx: typer.Context, **given: Any) -> None:
            shared = {option: given.pop(option) for option in _OPTIONS}
            is_given = {name: value for name, value in shared.items() if value not in (None, False)}
            with quiet_end():
                work(replace(ctx.obj, **is_given, creates=creates), **given)

        run.__name__, run.__doc__, run.__annotations__ = work.__name__, work.__doc__, {}
        _, *own = inspect.signature(work, eval_str=True).parameters.values()
        parameters = [inspect.Parameter("ctx", _EITHER, annotation=typer.Context)]
        parameters += [declare(each, helps.get(each.name)) for each in own]
        run.__signature__ = inspect.Signature(parameters + _shared())  # type: ignore[attr-defined]
        words = f"Example: memorist {path} {example}".rstrip()
        _group(group).command(name, rich_help_panel=panel or None, epilog=words)(run)
        return work

    return add


def _shared() -> list[inspect.Parameter]:
    parameters = []
    for name, (metavar, help) in _OPTIONS.items():
        panel = "Options of all commands"
        option = typer.Option(f"--{name}", metavar=metavar, help=help, rich_help_panel=panel)
        kind: Any = bool if metavar is None else str | None
        default = False if metavar is None else None
        annotation = Annotated[kind, option]
        parameters.append(inspect.Parameter(name, _KEYWORD, annotation=annotation, default=default))
    return parameters


def declare(parameter: inspect.Parameter, help: str | None) -> inspect.Parameter:
    """Return a parameter of a function as a parameter of a command.

    The help may begin with what the value is called, such as `<NAME>`, or with its limits, such as
    `<0..1>` or `<1..>`. Parameters without a default are positional, and so are those called
    `<[NAME]>`. A flag that can be None or is True by default also has the name --no-flag.
    """
    if help is None:  # annotated with an option of its own
        return parameter.replace(kind=_KEYWORD)
    metavar = None
    if help.startswith("<"):
        metavar, _, help = help[1:].partition(">")
    kind, name = parameter.annotation, parameter.name.replace("_", "-")
    if parameter.default is parameter.empty or (metavar and metavar.startswith("[")):
        declared: Any = typer.Argument(metavar=metavar, help=help.strip(), show_default=False)
        return parameter.replace(kind=_KEYWORD, annotation=Annotated[kind, declared])
    names = [f"--{name}", *_SHORT.get(name, ())]
    if kind == bool | None or parameter.default is True:
        names = [f"--{name}/--no-{name}"]
    low, has_limits, high = (metavar or "").partition("..")
    declared = typer.Option(
        *names,
        metavar="N" if has_limits else metavar,
        help=help.strip(),
        min=int(low) if has_limits else None,
        max=int(high) if high else None,
    )
    return parameter.replace(kind=_KEYWORD, annotation=Annotated[kind, declared])


def start(ctx: typer.Context, version: bool = False, **shared: Any) -> None:
    """Long-term memory for AI agents: stores evidence, recalls within a budget, explains why."""
    if version:
        number = json.dumps({"version": __version__})
        typer.echo(number if shared["json"] else f"memorist {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command. `memorist --help` lists all commands.")
    ctx.obj = Call(**shared)


_start = [*inspect.signature(start, eval_str=True).parameters.values()]
start.__annotations__ = {}
start.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_start[0], declare(_start[1], "Print the version."), *_shared()]
)
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
        raise typer.Exit(errors.PIPE_CLOSED) from None
    except KeyboardInterrupt:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        # Everything is durable; a regular exit would complain about the cancelled event loop.
        os._exit(errors.INTERRUPTED)


def report(error: Exception, *, as_json: bool) -> int:
    """Print an error to stderr and return its exit code."""
    is_usage = isinstance(error, _UsageError)
    if close := getattr(error, "possibilities", None):  # of a wrong option
        error.message += f". Did you mean {' or '.join(close)}?"  # type: ignore[attr-defined]
        error.possibilities = None  # type: ignore[attr-defined]
    code = errors.USAGE if is_usage else errors.codes(error).exit_code
    if as_json:
        about = {"type": type(error).__name__, "message": _message(error), "exit_code": code}
        print(json.dumps({"error": about}), file=sys.stderr)
    elif is_usage:
        error.show()  # type: ignore[attr-defined]
    else:
        print(f"memorist: {_message(error)}", file=sys.stderr)
    if os.environ.get("MEMORIST_TRACEBACK"):
        traceback.print_exception(error)
    return code


def _message(error: Exception) -> str:
    if isinstance(error, _UsageError):
        return str(error.format_message())  # type: ignore[attr-defined]
    if isinstance(error, MemoristError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename!r}" if error.filename else error.strerror
    if isinstance(error, typer.Abort):
        return "aborted"
    name = type(error).__name__
    return f"unexpected error: {name}: {error} (MEMORIST_TRACEBACK=1 prints the traceback)"
