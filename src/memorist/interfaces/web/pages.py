"""The pages and their form actions.

A page asks the client and passes the result to a template. An action calls one verb of the client
and redirects to a page that shows the result.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from datetime import timedelta
from functools import partial
from typing import TypeVar

from fastapi import FastAPI, Response

from ... import dialects
from ...errors import InvalidInput, NotAllowed, NotFound
from ...readers.source import TITLE
from ...storage.accounts import RIGHTS, Key
from ...types import KINDS, STATES, Filter, Labels, Memory
from . import PAGE_SIZE, PageRequest, Sessions, markup, route, routes, templates

RECENT = 200  # memories searched for threads
DAYS = 30
TRASH_DAYS = 30
_REMEMBERED = {
    "created": "Saved.",
    "merged": "Already known. The existing memory was updated.",
}
T = TypeVar("T")


def mount(app: FastAPI) -> None:
    """Add the pages to a server."""
    app.state.sessions = Sessions()
    for name in templates.list_templates():
        templates.get_template(name)  # compile now, not for the first visitor
    for path, method, handle in routes:
        app.add_route(path, handle, methods=[method], include_in_schema=False)


@route("GET", "/", "read")
async def search(page: PageRequest) -> Response:
    """Show search results, or the latest memories."""
    question = page.value("q")
    if question:
        answer = await page.memories.recall(
            question,
            budget=page.number("budget", 100_000),
            profile=page.choose("profile", dialects.PROFILES),
            min_confidence=page.share("min_confidence"),
        )
        parts: dict[str, None] = {}  # names in the order of their first use
        for hit in answer.hits:
            for name, value in hit.parts.items():
                if round(value, 4):
                    parts[name] = None
        return await page.render("search.html", answer=answer, parts=list(parts))
    kind = page.choose("kind", KINDS)
    tag = page.value("tag")
    where = Filter(
        states=(page.choose("state", STATES) or "active",),
        kinds=(kind,) if kind else (),
        tags=(tag,) if tag else (),
        pinned=True if page.value("pinned") else None,
    )
    found = await page.list_memories(where)
    return await page.render("latest.html", found=found)


@route("POST", "/remember", "remember")
async def remember(page: PageRequest) -> Response:
    """Remember a text."""
    receipt = await page.memories.remember(
        page.value("text"), tags=page.tags(), manually_saved=page.caller.has_right("owner")
    )
    outcome = receipt.outcomes[0]
    if not outcome.ids:
        return await page.render("refused.html", reason=outcome.reason)
    reason = f"{outcome.status.capitalize()}: {outcome.reason}."
    message = _REMEMBERED.get(outcome.status, reason)
    return page.redirect(f"/m/{outcome.ids[0]}", message)


@route("GET", "/m/{id}", "read")
async def show_memory(page: PageRequest) -> Response:
    """Show one memory with its evidence, revisions, history and related memories."""
    memories = page.memories
    evidence = await memories.why(page.id)
    versions = Filter(versions_of=page.id, states=STATES)
    return await page.render(
        "memory.html",
        memory=evidence.memory,
        evidence=evidence,
        history=await memories.history(page.id),
        older=await memories.list(versions),
        related=await memories.related(page.id),
    )


@route("POST", "/m/{id}/pin", "owner")
async def pin(page: PageRequest) -> Response:
    """Pin or unpin a memory."""
    change = page.memories.unpin if page.value("off") else page.memories.pin
    memory = await change(page.id, actor=page.caller.user)
    message = "Pinned." if memory.pinned else "Unpinned."
    return page.redirect(f"/m/{memory.id}", message)


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


@route("POST", "/m/{id}/restore", "write")
async def restore(page: PageRequest) -> Response:
    """Restore a memory."""
    memory = await page.memories.restore(page.id, actor=page.caller.user)
    return page.redirect(f"/m/{memory.id}", "Restored.")


@route("GET", "/m/{id}/forget", "write")
async def confirm_forget(page: PageRequest) -> Response:
    """Show what forgetting a memory would delete."""
    memories = page.memories
    found = await memories.get(page.id)
    where = Filter(ids=(page.id,), states=STATES)
    preview = await memories.forget_where(where=where, dry_run=True)
    ids: list[str] = []
    for some in (preview.derived, preview.flagged, preview.sources, preview.copies):
        ids += some[:PAGE_SIZE]
    listed = await memories.ctx.store.get(memories.scope, ids)
    return await page.render(
        "forget.html",
        memory=found,
        preview=preview,
        texts={each.id: each for each in listed},
    )


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


@route("GET", "/threads", "read")
async def show_threads(page: PageRequest) -> Response:
    """Show recent threads, or the memories and changes of one."""
    name = page.value("thread")
    since = page.number("since", 2**31) or 0
    if not name:
        latest = await page.memories.list(limit=RECENT)
        titles = defaultdict[str, Counter[str]](Counter)  # a repeated memory has its last one
        for each in latest:
            if thread := each.labels.thread or each.labels.session:
                titles[thread][str(each.metadata.get(TITLE, ""))] += 1
        counts = Counter({thread: found.total() for thread, found in titles.items()})
        named = {thread: found.most_common(1)[0][0] for thread, found in titles.items()}
        return await page.render("threads.html", counts=counts, titles=named)
    where = Filter(labels=Labels(thread=name))
    first = await page.memories.list(where, limit=1)
    if not first.memories:
        where = Filter(labels=Labels(session=name))
    found = await page.list_memories(where)
    days = defaultdict[str, list[Memory]](list)
    for each in found:
        day = f"{each.occurred_at or each.created_at:%Y-%m-%d}"
        days[day].append(each)
    return await page.render(
        "thread.html",
        name=name,
        title=next((each.metadata[TITLE] for each in found if each.metadata.get(TITLE)), ""),
        found=found,
        changes=await page.memories.delta(since, thread=name),
        days=days,
    )


@route("GET", "/decide", "read")
async def review(page: PageRequest) -> Response:
    """Show conflicts and proposals that wait for a decision."""
    mine = page.memories
    found = await mine.conflicts(limit=PAGE_SIZE)
    about = {"proposals": await mine.consent.list(), "profile": await mine.consent.about()}
    return await page.render("decide.html", conflicts=found, **about)


def decide(page: PageRequest, **options: T) -> T:
    """Return the option chosen in the form. Raises InvalidInput."""
    decision = page.value("decision")
    if decision in options:
        return options[decision]
    raise InvalidInput(f"decision must be {' or '.join(map(repr, options))}")


@route("POST", "/conflicts/{id}", "write")
async def resolve_conflict(page: PageRequest) -> Response:
    """Keep the newer statement, restore the older one, or keep both."""
    mine = page.memories
    resolve = decide(page, confirm=mine.confirm, reject=mine.reject, both=mine.keep_both)
    memory = await resolve(page.id, actor=page.caller.user)
    kept = "Both were" if resolve == mine.keep_both else f"Memory {memory.id} was"
    return page.redirect("/decide", f"Resolved. {kept} kept.")


@route("POST", "/consent/{id}", "owner")
async def answer_proposal(page: PageRequest) -> Response:
    """Approve a proposal as it was shown, or deny it."""
    consent = page.memories.consent
    approve = partial(consent.approve, shown=page.value("shown"))
    answer = decide(page, approve=approve, deny=partial(consent.deny))
    proposal = await answer(page.id, actor=page.caller.user)
    name = proposal.field.replace("_", " ").capitalize()
    return page.redirect("/decide", f"{name}: {proposal.decided}.")


@route("GET", "/trash", "read")
async def show_trash(page: PageRequest) -> Response:
    """Show memories that can be restored."""
    where = Filter(states=("soft_deleted", "archived"))
    found = await page.list_memories(where)
    return await page.render("trash.html", found=found)


@route("GET", "/relations", "read")
async def show_relations(page: PageRequest) -> Response:
    """Show a graph of related memories, around one memory or among the latest."""
    center = page.value("id")
    found, edges = await markup.load_graph(page.memories, center)
    connected = {center}.union(*edges)
    shown = [id for id in found if id in connected]
    points: dict[str, list[float]] = {}
    if edges:
        points = await asyncio.to_thread(markup.compute_layout, shown, list(edges))
    return await page.render(
        "relations.html",
        found=found,
        edges=[(*ids, strength) for ids, strength in edges.items()],
        points=points,
        center=center,
    )


@route("GET", "/figures", "read")
async def show_statistics(page: PageRequest) -> Response:
    """Show events and LLM usage by day; for administrators also jobs and latencies."""
    today = page.engine.ctx.clock()
    days = [f"{today - timedelta(days=ago):%Y-%m-%d}" for ago in reversed(range(DAYS))]
    counts = defaultdict[str, Counter[str]](Counter)  # by event, by day
    for counted in await page.memories.event_counts(days=DAYS):
        counts[f"{counted.op} {counted.status}"][counted.day] += counted.count
    usage = await page.memories.llm_usage(days=DAYS)
    for each in usage:
        counts["input tokens"][each.day] += each.tokens_in
        counts["output tokens"][each.day] += each.tokens_out

    def count(*events: str) -> list[int]:
        totals = Counter[str]()
        for event in events:
            totals.update(counts[event])
        return [totals[day] for day in days]

    is_admin = page.caller.has_right("admin")
    return await page.render(
        "figures.html",
        days=days,
        count=count,
        usage=usage,
        jobs=await page.engine.backlog() if is_admin else None,
        latencies=page.app.state.metrics.latencies() if is_admin else {},
    )


@route("GET", "/settings", "read")
async def show_settings(page: PageRequest) -> Response:
    """Show the privacy settings of the space, and which space the page shows."""
    spaces = set(await page.caller.spaces(page.engine))
    spaces.add(page.memories.scope.space)
    return await page.render("settings.html", spaces=sorted(spaces))


@route("POST", "/settings", "write")
async def save_settings(page: PageRequest) -> Response:
    """Save the privacy settings of the space."""
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
    session = page.memories.labels.session or ""
    return page.redirect(
        "/settings",
        f"Switched to the space {space}.",
        memorist_in_space=space,
        memorist_in_session=session,
    )


@route("POST", "/incognito", "write")
async def set_incognito(page: PageRequest) -> Response:
    """Start or end incognito mode in a session."""
    privacy = page.memories.privacy
    message = "Incognito mode ended."
    if page.value("off"):
        await privacy.end_incognito()
    else:
        await privacy.start_incognito()
        message = "Incognito mode started. Nothing from this session is stored."
    session = page.memories.labels.session or ""
    return page.redirect("/settings", message, memorist_in_session=session)


async def list_keys(page: PageRequest) -> list[Key]:
    """Return the keys of this user, oldest first; for a caller bound to a space or an agent only
    those with the same bound."""
    caller = page.caller
    found = []
    for key in await page.engine.keys():
        is_own = (key.user, key.tenant) == (caller.user, caller.tenant)
        if is_own and caller.space in (None, key.space) and caller.agent in (None, key.agent):
            found.append(key)
    return found


@route("GET", "/keys", "admin")
async def show_keys(page: PageRequest, token: str = "") -> Response:
    """Show the API keys of this user, and the token of one that was just created."""
    keys = await list_keys(page)
    return await page.render(
        "keys.html",
        keys=keys[::-1],
        rights=[right for right in RIGHTS if right in page.caller.rights],
        token=token,
    )


@route("POST", "/keys", "admin")
async def create_key(page: PageRequest) -> Response:
    """Create a key for the same user, which expires no later than the key that creates it.

    Only this response contains its secret.
    """
    rights = page.fields.getlist("right")
    caller = page.caller
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
        until=caller.expires_at,
        made_by=caller.name,
    )
    return await show_keys(page, token)


@route("POST", "/keys/{id}/revoke", "admin")
async def revoke_key(page: PageRequest) -> Response:
    """Revoke a key of this user."""
    keys = await list_keys(page)
    if page.id not in [key.id for key in keys]:
        raise NotFound("You have no key with this id")
    await page.engine.revoke_key(page.id)
    return page.redirect("/keys", "Key revoked.")
