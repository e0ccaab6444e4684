"""Every error Memorist raises: one tree, one root.

    MemoristError
    ├── InvalidInput · NotFound · RevisionConflict · OverBudget
    ├── Refused            KeyRefused · ConsentMissing · NotAllowed
    ├── ProviderFailed     StoreUnavailable · StoreFull · Busy · StoreDamaged · EmbedderUnavailable
    │                      · IndexUnavailable · WrongDimensions · ModelUnavailable · BadModelAnswer
    └── Misconfigured · MissingExtra · MigrationNeeded

The docstring of an error is its default message. `retry`: the same call may work later.
"""

from __future__ import annotations

import inspect


class MemoristError(Exception):
    """Memorist could not complete this operation."""

    retry = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or ""))


class InvalidInput(MemoristError, ValueError):
    """The input is not valid."""


class NotFound(MemoristError, LookupError):
    """No such memory in this scope."""


class RevisionConflict(MemoristError):
    """This was changed in the meantime. Read it again and repeat the change."""

    retry = True


class OverBudget(MemoristError):
    """This would exceed the budget."""


class Refused(MemoristError):
    """This operation was refused."""


class KeyRefused(Refused):
    """Invalid, expired or revoked API key. Create one with `memorist keys create`."""


class ConsentMissing(Refused):
    """The person has not consented to this change yet."""


class NotAllowed(Refused):
    """This caller is not allowed to read or change that."""


class ProviderFailed(MemoristError):
    """A component that Memorist depends on failed."""


class StoreUnavailable(ProviderFailed):
    """The store did not answer; the same call may work later."""

    retry = True


class StoreFull(StoreUnavailable):
    """The disk is full, so nothing was written. Free some space and repeat the call."""


class Busy(StoreUnavailable):
    """Others are using this scope or all connections. The store works: repeat the call."""


class StoreDamaged(ProviderFailed):
    """The database file is damaged. Restore a backup, or export what can still be read."""


class EmbedderUnavailable(ProviderFailed):
    """The embedding model did not answer; the same call may work later."""

    retry = True


class IndexUnavailable(ProviderFailed):
    """The vector index did not answer. `memorist index rebuild` recreates its contents."""

    retry = True


class WrongDimensions(ProviderFailed):
    """The vector has a different number of dimensions than its model."""


class ModelUnavailable(ProviderFailed):
    """The language model did not answer, so rules were used. The same call may work later."""

    retry = True
    cost: tuple[int, int] | None = None  # input and output tokens billed anyway, if known


class BadModelAnswer(ProviderFailed):
    """The answer of the language model cannot be used."""

    cost: tuple[int, int] | None = None  # as above


class Misconfigured(MemoristError):
    """A setting is missing or wrong."""


class MissingExtra(Misconfigured, ImportError):
    """An optional package is not installed."""


class MigrationNeeded(MemoristError):
    """The database was created by another version of Memorist."""
