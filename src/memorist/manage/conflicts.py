"""Deciding between a newer statement and the older one whose place it took."""

from __future__ import annotations

from ..context import Context
from ..errors import NotFound
from ..ingest import transitions
from ..storage.changes import Change, Relation, Save, Unrelated
from ..storage.queries import Reader
from ..types import CONTRADICTS, Conflict, Memory, Scope


async def list_open(
    reading: Reader, scope: Scope, *, limit: int, id: str | None = None
) -> list[Conflict]:
    """The conflicts that nobody has decided yet, newest first; those about what was since changed are left out."""
    found = await reading.relations(scope, CONTRADICTS, limit=limit, from_id=id)
    ids = [id for relation in found for id in (relation.from_id, relation.to_id)]
    memories = {memory.id: memory for memory in await reading.get(scope, ids)}
    return [made for relation in found if (made := _conflict(relation, memories)) is not None]


def _conflict(relation: Relation, memories: dict[str, Memory]) -> Conflict | None:
    new, old = memories.get(relation.from_id), memories.get(relation.to_id)
    if (
        new is None
        or old is None
        or not new.is_active
        or old.state != "superseded"
        or old.superseded_by != new.id
    ):
        return None
    return Conflict(new=new, old=old, at=relation.at)


async def confirm(ctx: Context, scope: Scope, id: str, actor: str | None) -> Memory:
    """Let the newer one stand. Raises NotFound."""
    async with ctx.store.transaction(scope) as tx:
        both = await _open(tx, scope, id)
        new = transitions.revise(both.new, ctx.clock())
        meta = {"decision": "confirmed", "between": [both.new.id, both.old.id]}
        await tx.apply([Save(memory=new, event="updated", actor=actor, meta=meta), _closed(both)])
    return new


async def reject(ctx: Context, scope: Scope, id: str, actor: str | None) -> Memory:
    """Bring the older one back, and keep the newer one as what was rejected: it never held. Raises NotFound."""
    async with ctx.store.transaction(scope) as tx:
        both, now = await _open(tx, scope, id), ctx.clock()
        old = transitions.restore(both.old, now)
        never = transitions.held_since(both.new)
        new = transitions.supersede(both.new, now, by=old.id, since=never)
        meta = {"decision": "rejected"}
        changes: list[Change] = [
            Save(
                memory=new,
                event="superseded",
                actor=actor,
                meta={**meta, "between": [new.id, old.id]},
            ),
            Save(memory=old, event="restored", actor=actor, meta={**meta, "supersedes": new.id}),
        ]
        await tx.apply([*changes, _closed(both)])
    return old


async def _open(reading: Reader, scope: Scope, id: str) -> Conflict:
    found = await list_open(reading, scope, limit=1, id=str(id))
    if not found:
        raise NotFound(
            f"Memory {id!r} contradicts nothing that waits for a decision: see `conflicts`"
        )
    return found[0]


def _closed(both: Conflict) -> Unrelated:
    return Unrelated(from_id=both.new.id, to_id=both.old.id, type=CONTRADICTS)
