"""What all commands share: the options, the way to the memory, and how an error becomes a message and an exit code.

Nothing here is slow to import, so that `memorist --help` answers at once: a command loads what it needs when it runs.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ...errors import InvalidInput, MemoristError, NotFound
from .. import errors

if TYPE_CHECKING:
    from ...sync import Blocking, BlockingScope

_EVERYWHERE = "Options of every command"
_UsageError = typer.BadParameter.__mro__[
    2
]  # click's ClickException, wherever this version of typer keeps it

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PLACE",
        rich_help_panel=_EVERYWHERE,
        help="Where memories are kept: a file, or postgresql://… [MEMORIST_DB]",
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        rich_help_panel=_EVERYWHERE,
        help="Whose memory it is; your login name if nothing else is said. [MEMORIST_USER]",
    ),
]
Space = Annotated[
    str | None,
    typer.Option(
        "--space",
        metavar="NAME",
        help="A project or group. [MEMORIST_SPACE]",
        rich_help_panel=_EVERYWHERE,
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="An organisation. [MEMORIST_TENANT]",
        rich_help_panel=_EVERYWHERE,
    ),
]
Session = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="NAME",
        help="The conversation this belongs to.",
        rich_help_panel=_EVERYWHERE,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Answer in JSON; errors too, on stderr.", rich_help_panel=_EVERYWHERE
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What every command is told: where the memory is, whose it is, and how to answer."""

    db: str | None = None
    user: str | None = None
    space: str | None = None
    tenant: str | None = None
    session: str | None = None
    json: bool = False

    @property
    def names_a_scope(self) -> bool:
        """The command line itself says whose memory is meant."""
        return any((self.user, self.space, self.tenant))

    writes: bool = False  # the command may make a new memory; the others need one that is there

    @contextmanager
    def memory(self) -> Iterator[Blocking]:
        """The memory, open for the length of a block. Raises NotFound if there is none to read."""
        import memorist
        from memorist.settings import load

        place = load(db=self.db).db
        if not self.writes and _is_missing(place):
            raise NotFound(
                f"There is no memory at {place!r}: `memorist remember` makes one, --db names another"
            )
        with memorist.open(self.db, tend=False) as memory:
            yield memory

    @contextmanager
    def mine(self) -> Iterator[BlockingScope]:
        """The part of the memory that the command is about."""
        with self.memory() as memory:
            yield self.scope(memory)

    def scope(self, memory: Blocking) -> BlockingScope:
        user = self.user if self.user is not None else memory.settings.user
        return memory.scope(
            login() if user is None else user, self.space, self.tenant, session=self.session
        )


def _is_missing(place: str) -> bool:
    """A file that could be there and is not; what cannot be a file is left to the store to tell."""
    if place == ":memory:" or "://" in place or "\0" in place or os.path.lexists(place):
        return False
    folder = os.path.dirname(os.path.abspath(place))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder)


def login() -> str:
    """The name of whoever runs this. Raises InvalidInput where the system knows none."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:
        raise InvalidInput("Say whose memory it is: --user NAME, or set MEMORIST_USER") from error


_SHARED: dict[str, Any] = {
    "db": Db,
    "user": User,
    "space": Space,
    "tenant": Tenant,
    "session": Session,
    "json": Json,
}


class Commands(TyperGroup):
    """The commands as a whole. Whatever happens in one of them ends here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *rest: Any,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        never_fail_to_print()
        try:
            code = super().main(
                words, prog_name or "memorist", *rest, **{**extra, "standalone_mode": False}
            )
        except Exception as error:
            code = told(error, as_json="--json" in words)
        sys.exit(code if isinstance(code, int) else errors.OK)


app = typer.Typer(
    name="memorist",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: memorist demo",
)


def command(
    panel: str, *, name: str | None = None, example: str, writes: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command. It takes a `Call` first; the options behind it work before and after its name."""

    def add(work: Callable[..., None]) -> Callable[..., None]:
        def run(ctx: typer.Context, **given: Any) -> None:
            call = _narrowed(ctx.obj, {name: given.pop(name) for name in _SHARED})
            with quiet_end():
                work(replace(call, writes=writes), **given)

        run.__name__, run.__doc__, run.__annotations__ = work.__name__, work.__doc__, {}
        run.__signature__ = _signature(work)  # type: ignore[attr-defined]
        app.command(name, rich_help_panel=panel, epilog=f"Example: {example}")(run)
        return work

    return add


def _signature(work: Callable[..., None]) -> inspect.Signature:
    """The parameters of a command with those that all commands have."""

    def named(name: str, kind: Any, default: Any) -> inspect.Parameter:
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
        )

    own = list(inspect.signature(work, eval_str=True).parameters.values())[1:]
    return inspect.Signature(
        [
            inspect.Parameter(
                "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
            ),
            *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own),
            *(
                named(name, kind, False if name == "json" else None)
                for name, kind in _SHARED.items()
            ),
        ]
    )


def _narrowed(before: Call, after: dict[str, Any]) -> Call:
    """What was said before the command's name, and what was said after it, which counts more."""
    return replace(
        before, **{name: value for name, value in after.items() if value not in (None, False)}
    )


@app.callback(invoke_without_command=True)
def everywhere(
    ctx: typer.Context,
    db: Db = None,
    user: User = None,
    space: Space = None,
    tenant: Tenant = None,
    session: Session = None,
    json: Json = False,
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    """Long-term memory: remembers with evidence, recalls within a budget, says why."""
    if version:
        from ... import __version__

        typer.echo(f'{{"version": "{__version__}"}}' if json else f"memorist {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Name a command; `memorist --help` lists them.")
    ctx.obj = Call(db=db, user=user, space=space, tenant=tenant, session=session, json=json)


def never_fail_to_print() -> None:
    """Write \\u2026 where the terminal has no such character, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


@contextmanager
def quiet_end() -> Iterator[None]:
    """End without a word when whoever reads our output has seen enough (`memorist list | head`), or at Ctrl-C."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with suppress(
            OSError, ValueError
        ):  # what is still buffered goes nowhere, or Python complains at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(errors.PIPE_CLOSED) from None
    except KeyboardInterrupt:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(
            errors.INTERRUPTED
        )  # all is closed or safe on disk; the event loop would complain about its last task


def told(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong on stderr, and give the exit code."""
    code = errors.USAGE if isinstance(error, _UsageError) else errors.codes(error).exit_code
    if as_json:
        about = {"type": type(error).__name__, "message": _message(error), "exit_code": code}
        print(json.dumps({"error": about}), file=sys.stderr)
    elif isinstance(error, _UsageError):
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
        return "stopped"
    return f"something unexpected went wrong: {type(error).__name__}: {error} (MEMORIST_TRACEBACK=1 shows where)"
