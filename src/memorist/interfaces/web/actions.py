"""What can be done. Each act is one verb of the engine, and ends at the view that shows what came of it."""

from __future__ import annotations

from fastapi import Response

from ...errors import InvalidInput, NotAllowed, NotFound
from .pages import shown_keys
from .request import Visit, act, keep, onward

KEPT_DAYS = 30  # for which what is put in the trash can be restored


def _done(visit: Visit, to: str, note: str) -> Response:
    return onward(visit.request, to, note)


@act("/remember", "remember")
async def remember(visit: Visit) -> Response:
    """Keep what the person writes down on purpose."""
    tags = [tag for each in visit.told("tags").split(",") if (tag := each.strip())]
    made = await visit.mine.remember(visit.told("text"), tags=tags, manually_saved=True)
    said = {"created": "Remembered.", "merged": "It was known already."}
    first = made.outcomes[0]
    if first.ids:
        return _done(
            visit,
            f"/m/{first.ids[0]}",
            said.get(first.status, f"{first.status.capitalize()}: {first.reason}."),
        )
    why = f"{first.reason[:1].upper()}{first.reason[1:]}."
    return await visit.show(
        "refused.html", why=why, text=visit.told("text"), tags=visit.told("tags")
    )


@act("/m/{id}/pin")
async def pin(visit: Visit) -> Response:
    """Put a pin on a memory, or take it off."""
    change = visit.mine.unpin if visit.told("off") else visit.mine.pin
    memory = await change(visit.request.path_params["id"], actor=visit.caller.user)
    return _done(
        visit, f"/m/{memory.id}", "Pinned: it stays." if memory.pinned else "No longer pinned."
    )


@act("/m/{id}/edit")
async def edit(visit: Visit) -> Response:
    """Correct a memory, if it still is what was shown."""
    mine = visit.mine
    memory = await mine.get(visit.request.path_params["id"])
    tags = [tag for each in visit.told("tags").split(",") if (tag := each.strip())]
    changed = await mine.edit(
        memory.id,
        visit.told("text") if visit.told("text") != memory.text.strip() else None,
        tags=tags,
        category=visit.told("category") or None,
        revision=visit.number("revision", 2**31),
        actor=visit.caller.user,
    )
    return _done(visit, f"/m/{changed.id}", f"Changed. This is revision {changed.revision}.")


@act("/m/{id}/forget")
async def forget(visit: Visit) -> Response:
    """Forget a memory: for good, or into the trash."""
    is_soft = visit.told("how") != "now"
    done = await visit.mine.forget(
        visit.request.path_params["id"],
        keep_days=KEPT_DAYS if is_soft else 0,
        never_again=bool(visit.told("never_again")) and not is_soft,
        actor=visit.caller.user,
    )
    number = len(done.ids) + len(done.derived)
    what = "1 memory" if number == 1 else f"{number} memories"
    if is_soft:
        return _done(visit, "/trash", f"{what} put in the trash for {KEPT_DAYS} days.")
    return _done(visit, "/", f"{what} forgotten for good.")


@act("/m/{id}/restore")
async def restore(visit: Visit) -> Response:
    """Bring a memory back."""
    memory = await visit.mine.restore(visit.request.path_params["id"], actor=visit.caller.user)
    return _done(visit, f"/m/{memory.id}", "Restored.")


@act("/conflicts/{id}")
async def settle(visit: Visit) -> Response:
    """Let the newer statement stand, or bring the older one back."""
    decide = {"confirm": visit.mine.confirm, "reject": visit.mine.reject}.get(
        visit.told("decision")
    )
    if decide is None:
        raise InvalidInput("A conflict is confirmed or rejected")
    memory = await decide(visit.request.path_params["id"], actor=visit.caller.user)
    return _done(visit, "/decide", f"Decided: memory {memory.id} stands.")


@act("/consent/{id}")
async def consent(visit: Visit) -> Response:
    """Let a proposal come into force as it was shown, or erase it."""
    id, mine = visit.request.path_params["id"], visit.mine
    if visit.told("decision") == "approve":
        made = await mine.consent.approve(id, shown=visit.told("shown"), actor=visit.caller.user)
    elif visit.told("decision") == "deny":
        made = await mine.consent.deny(id, actor=visit.caller.user)
    else:
        raise InvalidInput("A proposal is approved or denied")
    return _done(visit, "/decide", f"{made.field.replace('_', ' ').capitalize()}: {made.decided}.")


@act("/settings")
async def choose(visit: Visit) -> Response:
    """Say whether anything is remembered in this space."""
    names = ("memory_enabled", "incognito_default", "sharing")
    await visit.mine.privacy.set(
        **{name: bool(visit.told(name)) for name in names}, actor=visit.caller.user
    )
    return _done(visit, "/settings", "Saved.")


@act("/where", "read")
async def where(visit: Visit) -> Response:
    """Look at another space, as in another session."""
    answer = _done(visit, "/settings", f"This page shows the space {visit.mine.scope.space}.")
    keep(visit.request, answer, "memorist_in_space", visit.mine.scope.space)
    keep(visit.request, answer, "memorist_in_session", visit.mine.labels.session or "")
    return answer


@act("/incognito")
async def incognito(visit: Visit) -> Response:
    """Begin or end a session that leaves no trace."""
    ends = bool(visit.told("off"))
    await (visit.mine.privacy.end_incognito if ends else visit.mine.privacy.start_incognito)()
    answer = _done(
        visit,
        "/settings",
        "Incognito is over." if ends else "Incognito: nothing of this session is kept.",
    )
    keep(visit.request, answer, "memorist_in_session", visit.mine.labels.session or "")
    return answer


@act("/keys", "admin")
async def make_key(visit: Visit) -> Response:
    """A new key for the same person; the answer is the only place where it is shown."""
    rights, caller = visit.form.get("right", []), visit.caller
    if not set(rights) <= set(caller.rights):
        raise NotAllowed("A key cannot give more rights than the one that makes it")
    _, token = await visit.engine.create_key(
        visit.told("name"),
        user=caller.user,
        tenant=caller.tenant,
        agent=caller.agent,
        space=caller.space or visit.told("for_space") or None,
        rights=rights,
        days=visit.number("days", 36_500),
    )
    return await shown_keys(visit, token)


@act("/keys/{id}/revoke", "admin")
async def revoke(visit: Visit) -> Response:
    """Let nobody in with this key any more."""
    id, caller = visit.request.path_params["id"], visit.caller
    own = [
        key.id
        for key in await visit.engine.keys()
        if (key.user, key.tenant) == (caller.user, caller.tenant)
    ]
    if id not in own:
        raise NotFound("You have no such key")
    await visit.engine.revoke_key(id)
    return _done(visit, "/keys", "Revoked: nobody comes in with it any more.")
