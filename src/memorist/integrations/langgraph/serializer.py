"""A serializer that restores only known types.

A checkpoint names the types of its values, and by default LangGraph's serializer imports and calls
whatever it names, so anyone who can write a row or provide an archive could run code. Known types
are plain data, those of LangGraph and LangChain, and those that the application lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ...errors import NotAllowed, StoreDamaged

_blocked: ContextVar[list[str] | None] = ContextVar("blocked", default=None)


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer with a strict allowlist.

    `allowed_types` are classes, or pairs of a module and a name. Raises NotAllowed if a checkpoint
    names another type, which is neither imported nor called. The checkpoint is not changed.
    """

    def __init__(self, allowed_types: Iterable[type | tuple[str, ...]] = ()) -> None:
        super().__init__(allowed_msgpack_modules=tuple(allowed_types) or None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Restore a value. Raises NotAllowed, StoreDamaged."""
        blocked: list[str] = []
        token = _blocked.set(blocked)
        try:
            value = super().loads_typed(data)
        except NotImplementedError as error:
            raise StoreDamaged(f"A checkpoint has the unknown type {data[0]!r:.60}") from error
        finally:
            _blocked.reset(token)
        if blocked:
            names = ", ".join(blocked)
            raise NotAllowed(
                f"A checkpoint contains a value of type {names}, which is not on the"
                " allowlist. If you trust its source, add the type:"
                " MemoristSaver(scope, allowed_types=[…])"
            )
        return value


def _collect_blocked_types(event: SerdeEvent) -> None:
    """Collect the types that LangGraph refused while a value is restored."""
    blocked = _blocked.get()
    if blocked is not None and event["kind"] in ("msgpack_blocked", "msgpack_method_blocked"):
        blocked.append(f"{event['module']}.{event['name']}"[:100])


register_serde_event_listener(_collect_blocked_types)
