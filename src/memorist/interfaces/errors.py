"""The one table from error to what a caller outside Python sees: an exit code, an HTTP status."""

from __future__ import annotations

from dataclasses import dataclass

from .. import errors

OK, FAILED, USAGE, NOT_FOUND, REFUSED, AWAY = range(6)
INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 + the number of the signal, as shells expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How an error is told."""

    exit_code: int
    status: int  # of HTTP


_ANSWERS: dict[type[BaseException], Answer] = {
    errors.InvalidInput: Answer(exit_code=USAGE, status=422),
    errors.NotFound: Answer(exit_code=NOT_FOUND, status=404),
    errors.Conflict: Answer(exit_code=FAILED, status=409),
    errors.OverBudget: Answer(exit_code=REFUSED, status=429),
    errors.Refused: Answer(exit_code=REFUSED, status=403),
    errors.KeyRefused: Answer(exit_code=REFUSED, status=401),
    errors.ProviderFailed: Answer(exit_code=AWAY, status=502),
    errors.StoreUnavailable: Answer(exit_code=AWAY, status=503),
    errors.StoreFull: Answer(exit_code=AWAY, status=507),
    errors.StoreDamaged: Answer(exit_code=FAILED, status=500),  # waiting does not mend a file
    errors.EmbedderUnavailable: Answer(exit_code=AWAY, status=503),
    errors.WrongDimensions: Answer(exit_code=FAILED, status=500),
    errors.Misconfigured: Answer(exit_code=USAGE, status=500),
    errors.MigrationNeeded: Answer(exit_code=FAILED, status=500),
    BaseException: Answer(exit_code=FAILED, status=500),
}


def answer(error: BaseException) -> Answer:
    """How an error is told: as its class says, or the nearest class above it.

    >>> answer(errors.ConsentMissing()).exit_code
    4
    >>> answer(KeyError("x")).status
    500
    """
    return next(_ANSWERS[kind] for kind in type(error).__mro__ if kind in _ANSWERS)
