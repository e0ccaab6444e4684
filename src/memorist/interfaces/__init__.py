"""The interfaces: command line, REST, MCP and web page. Each parses, calls one verb, and renders.

Here is what several of them share.
"""

from __future__ import annotations

import getpass
import inspect
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import memorist

from .. import errors
from ..errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from ..sync import Blocking as Blocking
    from ..sync import BlockingScope as BlockingScope
else:  # slow to import, and commands are typed with them
    Blocking = BlockingScope = Any

OK, FAILED, USAGE, NOT_FOUND, REFUSED, UNAVAILABLE = range(6)
INTERRUPTED = 130
PIPE_CLOSED = 141  # 128 + the number of the signal, as shells expect
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The options that all commands share."""

    db: str | None = None
    user: str | None = None
    space: str | None = None
    tenant: str | None = None
    session: str | None = None
    json: bool = False
    creates: bool = False  # the command may create the database; others need an existing one

    @property
    def names_a_scope(self) -> bool:
        """Whether the command line says whose memory is meant."""
        return any((self.user, self.space, self.tenant))

    @contextmanager
    def memory(self) -> Iterator[Blocking]:
        """Open the memory. Raises NotFound if the command needs an existing one."""
        place = load("settings").load(db=self.db).db
        # Other places than files, and paths that cannot exist, are left to the store.
        is_file = place != ":memory:" and "://" not in place and "\0" not in place
        if is_file and not self.creates and not os.path.lexists(place):
            folder = os.path.dirname(os.path.abspath(place))
            while not os.path.lexists(folder):
                folder = os.path.dirname(folder)
            if os.path.isdir(folder):
                raise NotFound(
                    f"No memory at {place!r}. `memorist remember` creates one; --db names another"
                )
        with memorist.open(self.db, run_jobs=False) as memory:
            yield memory

    @contextmanager
    def mine(self) -> Iterator[BlockingScope]:
        """Open the part of the memory that the command is about."""
        with self.memory() as memory:
            yield self.scope(memory)

    def scope(self, memory: Blocking) -> BlockingScope:
        user = self.user if self.user is not None else memory.settings.user
        if user is None:
            user = login()
        return memory.scope(user, self.space, self.tenant, session=self.session)


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


# The one table from error to exit code and HTTP status.
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
