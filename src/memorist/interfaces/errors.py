"""The one table from error to HTTP status and exit code."""

from __future__ import annotations

from dataclasses import dataclass

from .. import errors

OK, FAILED, USAGE, NOT_FOUND, REFUSED, UNAVAILABLE = range(6)
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 + the number of the signal, as shells expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Exit code and HTTP status of an error."""

    exit_code: int
    status: int


_CODES: dict[type[BaseException], Codes] = {
    errors.InvalidInput: Codes(exit_code=USAGE, status=422),
    errors.NotFound: Codes(exit_code=NOT_FOUND, status=404),
    errors.RevisionConflict: Codes(exit_code=FAILED, status=409),
    errors.OverBudget: Codes(exit_code=REFUSED, status=429),
    errors.Refused: Codes(exit_code=REFUSED, status=403),
    errors.KeyRefused: Codes(exit_code=REFUSED, status=401),
    errors.ProviderFailed: Codes(exit_code=UNAVAILABLE, status=502),
    errors.StoreUnavailable: Codes(exit_code=UNAVAILABLE, status=503),
    errors.StoreFull: Codes(exit_code=UNAVAILABLE, status=507),
    errors.StoreDamaged: Codes(exit_code=FAILED, status=500),  # retrying does not repair a file
    errors.EmbedderUnavailable: Codes(exit_code=UNAVAILABLE, status=503),
    errors.WrongDimensions: Codes(exit_code=FAILED, status=500),
    errors.Misconfigured: Codes(exit_code=USAGE, status=500),
    errors.MigrationNeeded: Codes(exit_code=FAILED, status=500),
    BaseException: Codes(exit_code=FAILED, status=500),
}


def codes(error: BaseException) -> Codes:
    """Return the codes of an error: those of its class, or of the nearest base class.

    >>> codes(errors.ConsentMissing()).exit_code
    4
    >>> codes(KeyError("x")).status
    500
    """
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
