"""The one table from error to HTTP status and exit code."""

from __future__ import annotations

from typing import NamedTuple

from .. import errors

OK, FAILED, USAGE, NOT_FOUND, REFUSED, UNAVAILABLE = range(6)
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 + the number of the signal, as shells expect


class Codes(NamedTuple):
    """Exit code and HTTP status of an error."""

    exit_code: int
    status: int


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
