"""Dialects in blocking form, over a memory that was opened with `memorist.open`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from ..sync import Blocking, BlockingScope, verb


def blocking(dialect: Callable[..., Any], memory: Blocking | BlockingScope, **options: Any) -> Any:
    """Return a dialect whose async methods block, over a memory or a scope.

    `blocking(Milton, scope).add(content="…")` waits for `Milton(scope).add(content="…")`.
    """
    inner = dialect(memory._inner, **options)
    members: dict[str, Any] = {"_inner": inner, "_loop": memory._loop}
    for name, method in vars(type(inner)).items():
        if not name.startswith("_") and iscoroutinefunction(method):
            members[name] = verb(method)
    return type(f"Blocking{type(inner).__name__}", (), members)()
