"""The interfaces: command line, REST, MCP and web page. Each parses, calls one verb, and renders.

This module holds what several of them share, such as the verb table: each entry of `verbs.toml`
becomes a REST route, a command, or both. A verb is listed there if the interfaces only parse its
arguments, call one method of the client and render what it returns. `rest/app.py` builds the routes
and `cli/__init__.py` the commands. How a result is printed depends only on its type. Everything else
is written by hand in those packages.

Nothing here is slow to import, because `memorist --help` reads it.
"""

from __future__ import annotations

import getpass
import inspect
import os
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import memorist

from .. import errors
from ..errors import InvalidInput, NotFound
from ..types import frozen

if TYPE_CHECKING:
    from ..sync import Blocking as Blocking
    from ..sync import BlockingScope as BlockingScope
else:  # slow to import, and commands are typed with them
    Blocking = BlockingScope = Any

OK, FAILED, USAGE, NOT_FOUND, REFUSED, UNAVAILABLE = range(6)
INTERRUPTED = 130
PIPE_CLOSED = 141  # 128 + the number of the signal, as shells expect
SERVER = ("http://", "https://")  # beginning of the address of a server, in place of a database
Json = dict[str, Any]  # a JSON object
_JOINERS = "\u200c\u200d"  # parts of emoji and of Indic scripts


def plain(text: str) -> str:
    """Return a text on one line, without control characters that a terminal would obey.

    >>> plain("tea\\n\\x1b[31mand\\u202e milk")
    'tea [31mand milk'
    """
    line = " ".join(text.split())
    return "".join(
        c for c in line if c in _JOINERS or unicodedata.category(c) not in ("Cc", "Cf", "Cs")
    )


def split_doc(function: Callable[..., object]) -> tuple[str, dict[str, str], str]:
    """Split the docstring of a command or tool.

    Return its text, what it says after `Args:` about each parameter, and its `Example:`.
    """
    text, _, example = (inspect.getdoc(function) or "").partition("\n\nExample: ")
    text, _, listed = text.partition("\n\nArgs:")
    helps = {}
    for name, help in re.findall(r"\n    (\w+): (.*(?:\n     .*)*)", listed):
        helps[name] = " ".join(help.split())
    return text, helps, example


def load(name: str) -> Any:
    """Import a module of this package on first use: slow imports would delay `memorist --help`."""
    return import_module(f"memorist.{name}")


@frozen
class Call:
    """The options that all commands share."""

    db: str | None = None
    user: str | None = None
    space: str | None = None
    tenant: str | None = None
    session: str | None = None
    json: bool = False
    creates: bool = False  # the command may create the database; others need an existing one

    @contextmanager
    def memory(self) -> Iterator[Blocking]:
        """Open the memory. Raises NotFound if the command needs an existing one."""
        settings = load("settings").load(db=self.db)
        place = settings.db
        if place.startswith(SERVER):
            yield load("interfaces.remote").Remote(settings)
            return
        # The store reports invalid paths, and URLs that cannot be reached.
        is_file = place != ":memory:" and "://" not in place and "\0" not in place
        if is_file and not self.creates and not os.path.lexists(place):
            _require_database(place, is_default="db" not in settings.model_fields_set)
        with memorist.open(self.db, run_jobs=False) as memory:
            yield memory

    @contextmanager
    def mine(self) -> Iterator[BlockingScope]:
        """Open the memory and return the scope of the command."""
        with self.memory() as memory:
            yield self.scope(memory)

    def scope(self, memory: Blocking) -> BlockingScope:
        """Return the scope of the command."""
        user = self.user if self.user is not None else memory.settings.user
        if user is None:  # a server knows the user by the key
            user = "" if memory.settings.db.startswith(SERVER) else login()
        return memory.scope(user, self.space, self.tenant, session=self.session)


def _require_database(place: str, *, is_default: bool) -> None:
    """Raise NotFound for a file that does not exist, and say how it is created."""
    folder, *above = Path(place).absolute().parents
    nearest = next(each for each in (folder, *above) if os.path.lexists(each))
    if not nearest.is_dir():  # the store says what is wrong
        return
    if nearest == folder or is_default:  # the default folder is created, too
        how = "`memorist remember` creates one; use --db for another"
    else:
        how = f"The folder {str(folder)!r} does not exist: create it, or use --db for another place"
    raise NotFound(f"No database at {place!r}. {how}")


def login() -> str:
    """Return the login name. Raises InvalidInput if the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:
        raise InvalidInput("Unknown user: pass --user NAME, or set MEMORIST_USER") from error


class Codes(NamedTuple):
    """Exit code and HTTP status of an error."""

    exit_code: int
    status: int


# Exit code and HTTP status by error; the only such table.
_CODES = {
    errors.InvalidInput: (USAGE, 422),
    errors.NotFound: (NOT_FOUND, 404),
    errors.RevisionConflict: (FAILED, 409),
    errors.OverBudget: (REFUSED, 429),
    errors.Refused: (REFUSED, 403),
    errors.KeyRefused: (REFUSED, 401),
    errors.ProviderFailed: (UNAVAILABLE, 502),
    errors.StoreUnavailable: (UNAVAILABLE, 503),
    errors.StoreFull: (UNAVAILABLE, 507),
    errors.StoreDamaged: (FAILED, 500),  # retrying does not repair a file
    errors.EmbedderUnavailable: (UNAVAILABLE, 503),
    errors.WrongDimensions: (FAILED, 500),
    errors.Misconfigured: (USAGE, 500),
}


def codes(error: BaseException) -> Codes:
    """Return the codes of an error: those of its class, or of the nearest base class.

    >>> codes(errors.ConsentMissing()).exit_code
    4
    >>> codes(KeyError("x")).status
    500
    """
    for kind in type(error).__mro__:
        if kind in _CODES:
            return Codes(*_CODES[kind])
    return Codes(FAILED, 500)


@frozen
class Argument:
    """One argument of a verb. Required arguments are positional on the command line."""

    name: str  # as the method calls it
    option: str  # as the command line calls it; equals `name` unless given
    kind: str  # `rest/app.py` and `cli/__init__.py` map it to a type
    help: str = ""  # for the command line
    required: bool = False
    positional: bool = False  # even if it is not required
    default: Any = None
    route_default: Any  # of the route; equals `default` unless given
    cli_only: bool = False


@frozen
class Verb:
    """A method of the client with its route and its command."""

    method: str  # of a ScopedClient, such as `pin` or `consent.approve`, or of `rest/verbs.py`
    route: str = ""  # such as `GET /v1/memory/stats`; empty: no route
    command: str = ""  # such as `pin` or `jobs purge`; empty: no command
    help: str = ""  # empty: the docstring of the method
    arguments: tuple[Argument, ...]
    name: str = ""  # of the route in OpenAPI, if it differs from the last word of the method
    right: str = ""  # by default `read` for GET, else `write`
    may_be_missing: bool = False  # the route answers 404 if nothing has this id
    status: int = 200
    by_hand: bool = False  # `rest/app.py` has the route; the table only tells its path
    body: str = ""  # of the route in OpenAPI or `rest/bodies.py`, if its name differs from `name`
    body_help: str = ""  # if it differs from `help`
    has_labels: bool = False  # the body names thread, channel, agent, … besides the space
    example: str = ""  # what follows the command
    whole_client: bool = False  # a method of the client itself: not about one scope
    one_document: bool = False  # --json prints a list as one document instead of one item per line
    needs: str = ""  # the error of the command if no optional argument is given
    refusal_fails: bool = False  # the command fails if every outcome is `refused`
    # What the command prints instead of the result, as JSON and as text. Both refer to arguments by
    # name, and to the result as `answer`.
    value: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


def list_routes() -> list[Verb]:
    """Return the verbs that have a REST route, in the order of the API documentation."""
    verbs = [*VERBS, *_read_verbs(_read_table("rest/routes.toml"))]
    return [verb for verb in verbs if verb.route]


def _read_table(name: str) -> Json:
    return tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))


def _read_verbs(table: Mapping[str, Any]) -> list[Verb]:
    """Return the verbs of a table, with their arguments."""
    arguments: dict[str, Argument] = {}
    for name, fields in table["argument"].items():
        usual = {"name": name, "route_default": fields.get("default")}
        usual["option"] = fields.get("name", name)
        arguments[name] = Argument(**{**usual, **fields})
    verbs = []
    for fields in table["verb"]:
        named = [arguments[name] for name in fields.pop("arguments", ())]
        verbs.append(Verb(arguments=tuple(named), **fields))
    return verbs


_table = _read_table("verbs.toml")
CLI: Json = _table["cli"]  # tables of the command line
VERBS = _read_verbs(_table)
