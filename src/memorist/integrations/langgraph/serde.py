"""Which types may be restored from a checkpoint.

A row names the types of its values, and by default LangGraph's serializer imports and calls
whatever it names: anyone who can write a row or pass on an archive could run code. Only known types
are restored here: plain data, those of LangGraph and LangChain, and those that the application
lists.
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
    names another one: it is neither imported nor called, and the checkpoint stays as it is.
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
            raise NotAllowed(
                f"A checkpoint holds a value of type {', '.join(blocked)}, which is not on the"
                " allowlist. If you trust its source, add the type: MemoristSaver(scope, allowed_types=[…])"
            )
        return value


def _listen(event: SerdeEvent) -> None:
    """Collect what LangGraph left out of the value that is being restored."""
    blocked = _blocked.get()
    if blocked is not None and event["kind"] in ("msgpack_blocked", "msgpack_method_blocked"):
        blocked.append(f"{event['module']}.{event['name']}"[:100])


register_serde_event_listener(_listen)
