"""Form actions. Each calls one verb of the client and redirects to a page that shows the result."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from fastapi import Response

from ...errors import InvalidInput, NotAllowed, NotFound
from .pages import list_keys, render_keys
from .request import PageRequest, route

TRASH_DAYS = 30
T = TypeVar("T")


@route("POST", "/remember", "remember")
async def remember(page: PageRequest) -> Response:
    text, tags = page.value("text"), page.tags()
    receipt = await page.memories.remember(text, tags=tags, manually_saved=True)
    outcome = receipt.outcomes[0]
    if not outcome.ids:
        reason = f"{outcome.reason[:1].upper()}{outcome.reason[1:]}."
        return await page.render("refused.html", reason=reason, text=text, tags=page.value("tags"))
    messages = {
        "created": "Saved.",
        "merged": "Already known. The existing memory was updated.",
    }
    other = f"{outcome.status.capitalize()}: {outcome.reason}."
    return page.redirect(f"/m/{outcome.ids[0]}", messages.get(outcome.status, other))


@route("POST", "/m/{id}/pin", "write")
async def pin(page: PageRequest) -> Response:
    """Pin or unpin a memory."""
    change = page.memories.unpin if page.value("off") else page.memories.pin
    memory = await change(page.id, actor=page.caller.user)
    return page.redirect(f"/m/{memory.id}", "Pinned." if memory.pinned else "Unpinned.")


@route("POST", "/m/{id}/edit", "write")
async def edit(page: PageRequest) -> Response:
    """Edit a memory, unless it was changed since the form was opened."""
    memory = await page.memories.get(page.id)
    text = page.value("text")
    edited = await page.memories.edit(
        memory.id,
        text if text != memory.text.strip() else None,
        tags=page.tags(),
        category=page.value("category") or None,
        revision=page.number("revision", 2**31),
        actor=page.caller.user,
    )
    return page.redirect(f"/m/{edited.id}", f"Saved as revision {edited.revision}.")


@route("POST", "/m/{id}/forget", "write")
async def forget(page: PageRequest) -> Response:
    """Move a memory to the trash, or delete it permanently."""
    is_permanent = page.value("how") == "now"
    result = await page.memories.forget(
        page.id,
        keep_days=0 if is_permanent else TRASH_DAYS,
        never_again=is_permanent and bool(page.value("never_again")),
        actor=page.caller.user,
    )
    number = len(result.ids) + len(result.derived)
    count = "1 memory" if number == 1 else f"{number} memories"
    if is_permanent:
        return page.redirect("/", f"{count} deleted permanently.")
    return page.redirect("/trash", f"{count} moved to the trash for {TRASH_DAYS} days.")


@route("POST", "/m/{id}/restore", "write")
async def restore(page: PageRequest) -> Response:
    memory = await page.memories.restore(page.id, actor=page.caller.user)
    return page.redirect(f"/m/{memory.id}", "Restored.")


def decide(page: PageRequest, **options: T) -> T:
    """Return the option that the form chose. Raises InvalidInput."""
    decision = page.value("decision")
    if decision not in options:
        raise InvalidInput(f"decision must be {' or '.join(map(repr, options))}")
    return options[decision]


@route("POST", "/conflicts/{id}", "write")
async def resolve_conflict(page: PageRequest) -> Response:
    """Keep the newer statement, or restore the older one."""
    resolve = decide(page, confirm=page.memories.confirm, reject=page.memories.reject)
    memory = await resolve(page.id, actor=page.caller.user)
    return page.redirect("/decide", f"Resolved. Memory {memory.id} was kept.")


@route("POST", "/consent/{id}", "write")
async def answer_proposal(page: PageRequest) -> Response:
    """Approve a proposal as it was shown, or deny it."""
    consent = page.memories.consent
    approve, deny = partial(consent.approve, shown=page.value("shown")), partial(consent.deny)
    answer = decide(page, approve=approve, deny=deny)
    proposal = await answer(page.id, actor=page.caller.user)
    name = proposal.field.replace("_", " ").capitalize()
    return page.redirect("/decide", f"{name}: {proposal.decided}.")


@route("POST", "/settings", "write")
async def save_settings(page: PageRequest) -> Response:
    names = ("memory_enabled", "incognito_default", "sharing")
    chosen = {name: bool(page.value(name)) for name in names}
    await page.memories.privacy.set(**chosen, actor=page.caller.user)
    return page.redirect("/settings", "Settings saved.")


@route("POST", "/where", "read")
async def switch_scope(page: PageRequest) -> Response:
    """Show another space or session."""
    space, session = page.memories.scope.space, page.memories.labels.session or ""
    return page.redirect(
        "/settings",
        f"Switched to the space {space}.",
        memorist_in_space=space,
        memorist_in_session=session,
    )


@route("POST", "/incognito", "write")
async def set_incognito(page: PageRequest) -> Response:
    """Start or end incognito mode in a session."""
    privacy, session = page.memories.privacy, page.memories.labels.session or ""
    if page.value("off"):
        await privacy.end_incognito()
        message = "Incognito mode ended."
    else:
        await privacy.start_incognito()
        message = "Incognito mode started. Nothing from this session is stored."
    return page.redirect("/settings", message, memorist_in_session=session)


@route("POST", "/keys", "admin")
async def create_key(page: PageRequest) -> Response:
    """Create a key for the same user. Only this response contains its secret."""
    rights, caller = page.fields.getlist("right"), page.caller
    if not set(rights) <= set(caller.rights):
        raise NotAllowed("A key cannot have more rights than the key that creates it")
    _, token = await page.engine.create_key(
        page.value("name"),
        user=caller.user,
        tenant=caller.tenant,
        agent=caller.agent,
        space=caller.space or page.value("for_space") or None,
        rights=rights,
        days=page.number("days", 36_500),
    )
    return await render_keys(page, token)


@route("POST", "/keys/{id}/revoke", "admin")
async def revoke_key(page: PageRequest) -> Response:
    """Revoke a key of this user."""
    if page.id not in {key.id for key in await list_keys(page)}:
        raise NotFound("You have no key with this id")
    await page.engine.revoke_key(page.id)
    return page.redirect("/keys", "Key revoked.")
