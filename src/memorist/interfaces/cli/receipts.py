"""How a receipt says that a new statement replaces, or may replace, an older one."""

from __future__ import annotations

from collections.abc import Callable

from ...types import Outcome

_ASKS = ": confirm or reject it"  # ends the reason of an outcome that can be decided
_MAY_REPLACE = "it may replace"
_UNDECIDED = (
    "`memorist conflicts confirm {id}` replaces it, `both` keeps both, `reject` drops this one"
)
_REPLACED = "`memorist conflicts reject {id}` undoes that, `both` keeps both, `confirm` agrees"


def describe(outcome: Outcome, short: Callable[[str], str]) -> str:
    """Return the reason of an outcome, with the commands that decide it, if it can be decided.

    >>> made = Outcome(status="created", ids=("n1",), reason=f"it replaces o1{_ASKS}")
    >>> print(describe(made, str))
    it replaced o1; `memorist conflicts reject n1` undoes that, `both` keeps both, `confirm` agrees
    """
    before, marker, _ = outcome.reason.partition(_ASKS)
    if not marker or not outcome.ids:
        return outcome.reason
    *words, older = before.split()
    verb = " ".join(words).replace("replaces", "replaced")
    how = _UNDECIDED if verb == _MAY_REPLACE else _REPLACED
    return f"{verb} {short(older)}; {how.format(id=short(outcome.ids[0]))}"
