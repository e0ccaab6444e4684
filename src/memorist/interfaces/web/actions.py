"""Form actions. Each calls one verb of the client and redirects to a page that shows the result."""

from __future__ import annotations

from fastapi import Response

from ...errors import InvalidInput, NotAllowed, NotFound
from .pages import list_keys, render_keys
from .request import PageRequest, route, set_cookie

TRASH_DAYS = 30


@route("POST", "/remember", "remember")
async def remember(page: PageRequest) -> Response:
    receipt = await page.memories.remember(
        page.value("text"), tags=_parse_tags(page), manually_saved=True
    )
    outcome = receipt.outcomes[0]
    reason = f"{outcome.reason[:1].upper()}{outcome.reason[1:]}."
    if not outcome.ids:
        text, tags = page.value("text"), page.value("tags")
        return await page.render("refused.html", reason=reason, text=text, tags=tags)
    if outcome.status == "created":
        message = "Saved."
    elif outcome.status == "merged":
        message = "Already known. The existing memory was updated."
    else:
        message = f"{outcome.status.capitalize()}: {outcome.reason}."
    return page.redirect(f"/m/{outcome.ids[0]}", message)


def _parse_tags(page: PageRequest) -> list[str]:
    tags = [tag.strip() for tag in page.value("tags").split(",")]
    return list(filter(None, tags))


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
        tags=_parse_tags(page),
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


@route("POST", "/conflicts/{id}", "write")
async def resolve_conflict(page: PageRequest) -> Response:
    """Keep the newer statement, or restore the older one."""
    decision = page.value("decision")
    if decision == "confirm":
        memory = await page.memories.confirm(page.id, actor=page.caller.user)
    elif decision == "reject":
        memory = await page.memories.reject(page.id, actor=page.caller.user)
    else:
        raise InvalidInput("decision must be 'confirm' or 'reject'")
    return page.redirect("/decide", f"Resolved. Memory {memory.id} was kept.")


@route("POST", "/consent/{id}", "write")
async def answer_proposal(page: PageRequest) -> Response:
    """Approve a proposal as it was shown, or deny it."""
    consent, decision = page.memories.consent, page.value("decision")
    if decision == "approve":
        proposal = await consent.approve(page.id, shown=page.value("shown"), actor=page.caller.user)
    elif decision == "deny":
        proposal = await consent.deny(page.id, actor=page.caller.user)
    else:
        raise InvalidInput("decision must be 'approve' or 'deny'")
    name = proposal.field.replace("_", " ").capitalize()
    return page.redirect("/decide", f"{name}: {proposal.decided}.")


@route("POST", "/settings", "write")
async def save_settings(page: PageRequest) -> Response:
    await page.memories.privacy.set(
        memory_enabled=bool(page.value("memory_enabled")),
        incognito_default=bool(page.value("incognito_default")),
        sharing=bool(page.value("sharing")),
        actor=page.caller.user,
    )
    return page.redirect("/settings", "Settings saved.")


@route("POST", "/where", "read")
async def switch_scope(page: PageRequest) -> Response:
    """Show another space or session."""
    space = page.memories.scope.space
    response = page.redirect("/settings", f"Switched to the space {space}.")
    set_cookie(page.request, response, "memorist_in_space", space)
    _remember_session(page, response)
    return response


@route("POST", "/incognito", "write")
async def set_incognito(page: PageRequest) -> Response:
    """Start or end incognito mode in a session."""
    privacy = page.memories.privacy
    if page.value("off"):
        await privacy.end_incognito()
        message = "Incognito mode ended."
    else:
        await privacy.start_incognito()
        message = "Incognito mode started. Nothing from this session is stored."
    response = page.redirect("/settings", message)
    _remember_session(page, response)
    return response


def _remember_session(page: PageRequest, response: Response) -> None:
    session = page.memories.labels.session or ""
    set_cookie(page.request, response, "memorist_in_session", session)


@route("POST", "/keys", "admin")
async def create_key(page: PageRequest) -> Response:
    """Create a key for the same user. Only this response contains its secret."""
    rights, caller = page.form.getlist("right"), page.caller
    if not set(rights) <= set(caller.rights):
        raise NotAllowed("A key cannot have more rights than the key that creates it")
    _, token = await page.client.create_key(
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
    await page.client.revoke_key(page.id)
    return page.redirect("/keys", "Key revoked.")
