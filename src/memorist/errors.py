"""Every error Memorist raises: one tree, one root.

    MemoristError
    ├── InvalidInput · NotFound · Conflict · OverBudget
    ├── Refused            ConsentMissing · NotAllowed · KeyRefused
    ├── ProviderFailed     StoreUnavailable · StoreFull · StoreDamaged · EmbedderUnavailable
    │                      · IndexUnavailable · WrongDimensions · ModelUnavailable · BadModelAnswer
    └── Misconfigured · MigrationNeeded

The docstring of an error is its default message; `retry` says whether the same call may work later.
"""

from __future__ import annotations

import inspect


class MemoristError(Exception):
    """Memorist could not do this."""

    retry = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(type(self).__doc__ or ""))


class InvalidInput(MemoristError, ValueError):
    """The input cannot be used as it is."""


class NotFound(MemoristError, LookupError):
    """There is no such memory in this scope."""


class Conflict(MemoristError):
    """Somebody else changed this in the meantime: read it again and repeat the change."""

    retry = True


class OverBudget(MemoristError):
    """This would cost more than the budget allows."""


class Refused(MemoristError):
    """This is not allowed to happen."""


class ConsentMissing(Refused):
    """The person has not agreed to this change yet."""


class NotAllowed(Refused):
    """This agent may not see or change that."""


class KeyRefused(Refused):
    """Nobody is known by this key: show one that is good. `memorist keys create` makes one."""


class ProviderFailed(MemoristError):
    """A part that Memorist relies on did not do its work."""


class StoreUnavailable(ProviderFailed):
    """The store did not answer; the same call may work later."""

    retry = True


class StoreFull(StoreUnavailable):
    """There is no room left on the disk: nothing was written. Free some space and repeat the call."""


class StoreDamaged(ProviderFailed):
    """The database file is damaged: restore a backup, or export what can still be read."""


class EmbedderUnavailable(ProviderFailed):
    """The embedding model did not answer; the same call may work later."""

    retry = True


class IndexUnavailable(ProviderFailed):
    """The vector index did not answer; what it holds can be made anew with `memorist index --rebuild`."""

    retry = True


class WrongDimensions(ProviderFailed):
    """A vector has another number of dimensions than its model."""


class ModelUnavailable(ProviderFailed):
    """The language model did not answer; rules did its work, and the same call may work later."""

    retry = True
    cost: tuple[int, int] | None = (
        None  # tokens in and out that it may have cost all the same, where that is known
    )


class BadModelAnswer(ProviderFailed):
    """The model's answer could not be used."""

    cost: tuple[int, int] | None = None  # as above


class Misconfigured(MemoristError):
    """A setting is missing or wrong."""


class MigrationNeeded(MemoristError):
    """The database was made by another version of Memorist."""
