"""What every store promises: one test, or a few, for each line of `ports.Reading`, `Transaction` and `Store`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stores
from memorist.embedders import Hashing
from memorist.errors import (
    EmbedderUnavailable,
    InvalidInput,
    MemoristError,
    RevisionConflict,
    StoreDamaged,
)
from memorist.jobs.vectors import backfill
from memorist.ports import Delta
from memorist.storage import (
    Forget,
    Relation,
    Save,
    SeenMessage,
    SpaceSettings,
    Unrelated,
    person,
)
from memorist.storage.fingerprints import Fingerprints, load_fingerprints
from memorist.storage.person import Proposal, Summary
from memorist.storage.scan import check, export, read_messages
from memorist.storage.store import MemoryAccess, Store
from memorist.storage.tasks import Embedding
from memorist.text import clock, normalize, tokens
from memorist.text.clock import new_id
from memorist.types import Filter, Labels, Memory, Message, Outcome, Scope
from stores import Call, decided, incognito, open_sqlite, tombstones, write, write_in

NOW = datetime(2026, 5, 31, 14, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
ANA, BOB = Scope(user="ana"), Scope(user="bob")
MODEL = "hashing-4"


def memory(text: str = "I drink tea", **given: Any) -> Memory:
    """A memory as the engine would make it, with only the fields a test speaks of."""
    usual = {"id": new_id(), "scope": ANA, "kind": "episodic", "created_at": NOW, "updated_at": NOW}
    return Memory(**{**usual, "content_hash": f"hash of {text}", **given}, text=text)


def put(kept: Memory, event: Any = "created", **given: Any) -> Save:
    return Save(memory=kept, event=event, **given)


async def apply(store: Store, *changes: Any, scope: Scope = ANA) -> None:
    await write(store, scope, *changes)


async def keep(store: Store, *texts: str, **given: Any) -> list[Memory]:
    made = [memory(text, **given) for text in texts]
    await apply(store, *map(put, made), scope=made[0].scope)
    return made


def forget(gone: Memory, **given: Any) -> Forget:
    return Forget(**{"memory_id": gone.id, "at": NOW, "until": NOW + 24 * HOUR, **given})


def said(id: str, content: str, *, keep_text: bool = True, **given: Any) -> SeenMessage:
    outcome = given.pop(
        "outcome", Outcome(status="created", ids=("m1",), reason="why", message_id=id)
    )
    message = Message(id=id, content=content, **given)
    return SeenMessage(
        id=id, message=message, outcome=outcome, digest=f"digest of {content}", keep_text=keep_text
    )


async def space_settings(
    store: Store, scope: Scope, sessions: Iterable[str | None]
) -> tuple[SpaceSettings, frozenset[str | None]]:
    checks = await store.checks(scope, sessions=sessions)
    return checks.settings, checks.incognito


async def exported(store: Store, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
    """The records after the one that names the format."""
    records = export(store, None if scope is None else [scope])
    assert (await anext(records))["record_type"] == "memorist"
    async for record in records:
        yield record


async def delta(store: Store, since: int = 0, scope: Scope = ANA, **given: Any) -> Delta:
    return await store.changed_since(scope, since, **{"model": MODEL, "limit": 1000, **given})


WHOLE = Memory(
    id="01890000-0000-7000-8000-000000000001",
    scope=ANA,
    text="Tea — 茶 — चाय 🍵\n```\n  x = 1\n```\x0b",
    kind="procedural",
    created_at=NOW - HOUR,
    updated_at=NOW,
    labels=Labels(
        session="s",
        thread="t",
        run="r",
        channel="c",
        agent="a",
        actor="ac",
        subject="su",
        role="assistant",
    ),
    summary="Tea",
    steps_text="1. boil",
    item_type="preference",
    fact_type="taste",
    category="Drinks",
    procedural_form="workflow",
    tier="long",
    key="preference_tea",
    importance=1 / 3,
    base_importance=0.1,
    importance_parts={"novelty": 0.7, "salience": 0.25},
    confidence=1,
    metadata_confidence=0.123456789012345,
    tags=("Tea", "drinks 🍵"),
    source_ids=("msg-1", "https://tea.example"),
    evidence=("/tmp/tea.md",),
    evidence_ids=("m0",),
    evidence_text="she said: tea",
    source_message_id="msg-1",
    source_session_id="s0",
    pinned=True,
    manually_saved=True,
    repeat_count=7,
    simhash=2**64 - 2**63 + 5,
    content_hash="abc",
    sequence=2**40,
    speaker="Ana",
    occurred_at=datetime(1, 1, 1, tzinfo=UTC),
    valid_from=datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    valid_to=datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    last_accessed=NOW,
    access_count=3,
    state="archived",
    compression_source=True,
    superseded_by="m2",
    purge_at=NOW + HOUR,
    needs_embedding=False,
    last_scores={"total": 0.5, "computed_at": "2026-05-31T14:00:00.000000Z"},
    revision=9,
    metadata={"ä": [1, 2.0, None, True, {"b": "🍵\n"}], "A": "x"},
    expires_at=NOW + HOUR,
)


# Reading memories


@pytest.mark.spec(
    "THE-7", "THE-9", "THE-10", "THE-15", "THE-16", "THE-17", "THE-18", "THE-19", "THE-20", "THE-21"
)
async def test_a_memory_comes_back_with_every_field(store: Store) -> None:
    assert all(
        getattr(WHOLE, f.name) not in (None, (), {}, 0) or f.name == "needs_embedding"
        for f in fields(Memory)
    )
    await apply(store, put(WHOLE))
    assert await store.get(ANA, [WHOLE.id]) == [WHOLE]


@pytest.mark.spec("THE-11", "THE-12", "THE-14")
async def test_a_new_memory_waits_for_its_vector_and_was_said_once(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    (now,) = await store.get(ANA, [kept.id])
    assert (now.needs_embedding, now.repeat_count) == (True, 0)
    assert (await delta(store)).rows[0].vector is None


@pytest.mark.spec("THE-13")
@pytest.mark.parametrize("simhash", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
async def test_a_fingerprint_keeps_all_its_64_bits(store: Store, simhash: int) -> None:
    kept = memory(simhash=simhash)
    await apply(store, put(kept))
    assert (await store.get(ANA, [kept.id]))[0].simhash == simhash
    assert (await delta(store)).rows[0].simhash == simhash


async def test_a_time_of_another_zone_is_the_same_moment(store: Store) -> None:
    kept = memory(occurred_at=datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=5))))
    await apply(store, put(kept))
    assert (await store.get(ANA, [kept.id]))[0].occurred_at == kept.occurred_at


@pytest.mark.parametrize(
    ("field", "value"), [("confidence", 1), ("importance", -0.0), ("importance", np.float32(0.5))]
)
async def test_any_finite_number_can_be_read_again(store: Store, field: str, value: Any) -> None:
    kept = memory(**{field: value})
    await apply(store, put(kept))
    assert getattr((await store.get(ANA, [kept.id]))[0], field) == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("category", 5),
        ("importance", float("nan")),
        ("importance", "high"),
        ("sequence", 1.5),
        ("text", b"tea"),
    ],
)
async def test_a_value_that_would_not_come_back_is_refused(
    store: Store, field: str, value: Any
) -> None:
    with pytest.raises(InvalidInput, match=field):
        await apply(store, put(replace(memory(), **{field: value})))
    assert len(await store.page(ANA, Filter(), limit=10)) == 0


@pytest.mark.parametrize("id", ["half a pair \ud83d", "\udcff"])
async def test_an_id_that_is_no_text_is_refused(store: Store, id: str) -> None:
    await keep(store, "tea")
    with pytest.raises(InvalidInput):
        await store.get(ANA, [id])


async def test_get_keeps_the_order_of_the_ids_and_leaves_the_missing_out(store: Store) -> None:
    one, two, three = await keep(store, "one", "two", "three")
    found = await store.get(ANA, [three.id, "nobody", one.id, three.id, two.id])
    assert [each.text for each in found] == ["three", "one", "two"]


async def test_get_finds_a_memory_in_any_state(store: Store) -> None:
    for state in ("active", "compressed", "archived", "superseded", "soft_deleted"):
        (kept,) = await keep(store, state, state=state)
        assert (await store.get(ANA, [kept.id]))[0].state == state


async def test_get_takes_more_ids_than_a_statement_does(store: Store) -> None:
    made = await keep(store, "tea")
    assert await store.get(ANA, [*(f"m{i}" for i in range(40_000)), made[0].id]) == made


async def test_at_rows_gives_memories_by_their_row(store: Store) -> None:
    tea, milk = await keep(store, "tea", "milk")
    rows = [row.row for row in (await delta(store)).rows]
    assert await store.at_rows(ANA, [*rows, 999]) == {rows[0]: tea, rows[1]: milk}


async def test_same_text_finds_active_memories_by_their_hash(store: Store) -> None:
    tea, again, old = memory("tea"), memory("tea"), memory("tea", state="superseded")
    await apply(store, put(tea), put(again), put(old), put(memory("milk")))
    found = await store.same_text(ANA, [tea.content_hash, "nothing"])
    assert {(each.content_hash, each.id) for each in found} == {
        (tea.content_hash, tea.id),
        (tea.content_hash, again.id),
    }
    assert len(found) == 2


async def test_by_key_finds_the_active_memory_under_a_key(store: Store) -> None:
    old, new = memory("green", key="colour", state="superseded"), memory("blue", key="colour")
    await apply(store, put(old), put(new))
    assert await store.by_key(ANA, ["colour", "shape"]) == {"colour": new}


async def test_two_active_memories_under_one_key_conflict(store: Store) -> None:
    await keep(store, "blue", key="colour")
    with pytest.raises(RevisionConflict):
        await keep(store, "green", key="colour")
    assert [each.text for each in await store.page(ANA, Filter(), limit=10)] == ["blue"]


async def test_last_sequence_is_the_highest_place_in_the_session(store: Store) -> None:
    await keep(store, "a", sequence=4, labels=Labels(session="s"))
    await keep(store, "b", sequence=9, labels=Labels(session="other"))
    assert await store.last_sequence(ANA, "s") == 4
    assert await store.last_sequence(ANA, "nowhere") == -1


# Pages and filters


async def test_pages_go_from_the_newest_to_the_oldest(store: Store) -> None:
    await keep(store, *(f"memory {i}" for i in range(7)))
    first = await store.page(ANA, Filter(), limit=3)
    second = await store.page(ANA, Filter(), limit=3, cursor=first.cursor)
    third = await store.page(ANA, Filter(), limit=3, cursor=second.cursor)
    assert [each.text[-1] for page in (first, second, third) for each in page] == list("6543210")
    assert third.cursor is None


async def test_a_full_last_page_has_no_cursor(store: Store) -> None:
    await keep(store, "one", "two")
    assert (await store.page(ANA, Filter(), limit=2)).cursor is None


async def test_pages_neither_repeat_nor_skip_while_others_write(store: Store) -> None:
    made = await keep(store, *(f"memory {i}" for i in range(9)))
    seen, cursor = [], None
    while True:
        page = await store.page(ANA, Filter(), limit=2, cursor=cursor)
        seen += [each.id for each in page]
        await keep(store, "written meanwhile")
        await apply(store, put(replace(made[0], pinned=True, revision=2), "updated"))
        await apply(store, forget(made[-1]))
        if (cursor := page.cursor) is None:
            break
    assert seen == [each.id for each in reversed(made)]


@pytest.mark.parametrize(
    "cursor", ["", "x1", "r", "r-1", "r1.5", "r" + "9" * 40, "r1; DROP TABLE memories", 7]
)
async def test_a_wrong_cursor_is_refused(store: Store, cursor: Any) -> None:
    await keep(store, "tea")
    if cursor == "":
        assert len(await store.page(ANA, Filter(), limit=5, cursor=cursor)) == 1
        return
    with pytest.raises(InvalidInput, match="cursor"):
        await store.page(ANA, Filter(), limit=5, cursor=cursor)


YES = {
    "kinds": {"kind": "semantic"},
    "states": {"state": "archived"},
    "categories": {"category": "Goals"},
    "item_types": {"item_type": "fact"},
    "tags": {"tags": ("Äpfel", "b")},
    "pinned": {"pinned": True},
    "manually_saved": {"manually_saved": True},
    "needs_embedding": {"needs_embedding": False},
    "importance_min": {"importance": 0.75},
    "importance_max": {"importance": 0.125},
    "created_after": {"created_at": NOW},
    "created_before": {"created_at": NOW - 2 * HOUR},
    "updated_after": {"updated_at": NOW},
    "updated_before": {"updated_at": NOW - 2 * HOUR},
    "occurred_after": {"occurred_at": NOW},
    "occurred_before": {"occurred_at": NOW - 2 * HOUR},
    "speaker": {"speaker": "Ana"},
    "source_id": {"source_ids": ("x", "Msg-1")},
    "subjects": {"labels": Labels(subject="ana")},
    "procedural_form": {"procedural_form": "workflow"},
    "content_hash": {"content_hash": "0f"},
    "versions_of": {"superseded_by": "m9"},
    "used_before": {"updated_at": NOW - 3 * HOUR, "last_accessed": NOW - 2 * HOUR},
    "purge_before": {"purge_at": NOW - HOUR},
    "compression_source": {"compression_source": True},
    "derived_from": {"evidence_ids": ("m8", "m9")},
    "labels": {"labels": Labels(session="s", thread="t", agent="a", role="e")},
    "metadata": {"metadata": {"a": {"b": [1, "Ä"]}}},
    "expired_by": {"expires_at": NOW - HOUR},
    "unexpired_at": {"expires_at": NOW + 3 * HOUR},
    "all_of": {"speaker": "Ana", "pinned": True},
    "any_of": {"speaker": "Ana"},
    "none_of": {"importance": 0.25},
}
ASK = {
    "kinds": ("semantic", "insight"),
    "states": ("archived",),
    "categories": ("gOALS",),
    "item_types": ("fact", "result"),
    "tags": ("äPFEL", "nothing"),
    "pinned": True,
    "manually_saved": True,
    "needs_embedding": False,
    "importance_min": 0.75,
    "importance_max": 0.125,
    "created_after": NOW,
    "created_before": NOW - HOUR,
    "updated_after": NOW,
    "updated_before": NOW - HOUR,
    "occurred_after": NOW,
    "occurred_before": NOW - HOUR,
    "speaker": "Ana",
    "source_id": "Msg-1",
    "subjects": ("bo", "ana"),
    "procedural_form": "workflow",
    "content_hash": "0f",
    "versions_of": "m9",
    "used_before": NOW - HOUR,
    "purge_before": NOW,
    "compression_source": True,
    "derived_from": ("m9", "m10"),
    "labels": YES["labels"]["labels"],
    "metadata": {"a.b": "Ä", "a": {"b": {"lt": 2}}},
    "expired_by": NOW - HOUR,
    "unexpired_at": NOW + 2 * HOUR,
    "all_of": (Filter(pinned=True), Filter(speaker="Ana")),
    "any_of": (Filter(pinned=True), Filter(speaker="Ana")),
    "none_of": (Filter(pinned=True), Filter(importance_min=0.5)),
}
PLAIN = {
    "importance": 0.5,
    "created_at": NOW - HOUR,
    "updated_at": NOW - HOUR,
    "occurred_at": NOW - HOUR,
    "source_ids": ("msg-1",),
    "expires_at": NOW + 2 * HOUR,
}


@pytest.mark.spec("IMP-67", "IMP-68")
@pytest.mark.parametrize("field", [f.name for f in fields(Filter) if "id" not in f.name[:2]])
async def test_a_filter_lets_through_what_it_names_and_nothing_else(
    store: Store, field: str
) -> None:
    wanted, other = memory("wanted", **{**PLAIN, **YES[field]}), memory("other", **PLAIN)
    await apply(store, put(wanted), put(other))
    where = Filter(**{field: ASK[field]})
    assert [each.text for each in await store.page(ANA, where, limit=10)] == ["wanted"]
    assert await store.rows_where(ANA, where) == [row.row for row in (await delta(store)).rows][:1]


@pytest.mark.spec("IMP-67", "IMP-68")
@pytest.mark.parametrize("label", [f.name for f in fields(Labels)])
async def test_each_label_can_be_filtered_by(store: Store, label: str) -> None:
    await keep(store, "wanted", labels=Labels(**{label: "x"}))
    await keep(store, "other", labels=Labels(**{label: "y"}))
    page = await store.page(ANA, Filter(labels=Labels(**{label: "x"})), limit=10)
    assert [each.text for each in page] == ["wanted"]


async def test_a_filter_by_ids_takes_any_number_of_them(store: Store) -> None:
    tea, _ = await keep(store, "tea", "milk")
    for ids in ((tea.id,), (tea.id, *(f"m{i}" for i in range(40_000)))):
        assert [each.text for each in await store.page(ANA, Filter(ids=ids), limit=10)] == ["tea"]


async def test_a_filter_takes_the_beginning_or_the_end_of_an_id(store: Store) -> None:
    tea, milk = await keep(store, "tea", "milk")
    for part, text in ((tea.id[:-1], "tea"), (tea.id[-8:], "tea"), (milk.id[-30:], "milk")):
        assert [each.text for each in await store.page(ANA, Filter(id_part=part), limit=5)] == [
            text
        ]
    for part in (tea.id[4:-4], f"x{tea.id}", f"{tea.id}x", "%", "_" * 8):
        assert len(await store.page(ANA, Filter(id_part=part), limit=5)) == 0


async def test_parts_of_a_filter_hold_together(store: Store) -> None:
    await keep(store, "both", pinned=True, kind="semantic")
    await keep(store, "pinned", pinned=True)
    await keep(store, "semantic", kind="semantic")
    page = await store.page(ANA, Filter(pinned=True, kinds=("semantic",)), limit=10)
    assert [each.text for each in page] == ["both"]


async def test_a_filter_without_states_takes_all_states(store: Store) -> None:
    await keep(store, "old", state="superseded")
    await keep(store, "new")
    assert len(await store.rows_where(ANA, Filter(states=()))) == 2


@pytest.mark.parametrize("text", ["' OR 1=1 --", '"; DROP TABLE memories', "%", "_", "*"])
async def test_a_filter_is_never_read_as_sql(store: Store, text: str) -> None:
    await keep(store, "tea", speaker="Ana", tags=("a",), category="fact", source_ids=("s",))
    for where in (
        Filter(speaker=text),
        Filter(tags=(text,)),
        Filter(categories=(text,)),
        Filter(source_id=text),
    ):
        assert len(await store.page(ANA, where, limit=5)) == 0
    assert len(await store.page(ANA, Filter(), limit=5)) == 1


# Transactions


async def test_a_transaction_commits_when_the_block_ends(store: Store) -> None:
    kept = memory()
    async with store.transaction(ANA) as tx:
        await tx.apply([put(kept)])
        assert await tx.get(ANA, [kept.id]) == [kept]  # it reads what it wrote
    assert await store.get(ANA, [kept.id]) == [kept]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError])
async def test_a_transaction_rolls_everything_back_if_the_block_raises(
    store: Store, error: type
) -> None:
    kept = memory(labels=Labels(session="s"))

    async def interrupted() -> None:
        async with store.transaction(ANA) as tx:
            await write_in(tx, put(kept), said("msg-1", "hello"))
            raise error

    with pytest.raises(error):
        await interrupted()
    assert await store.get(ANA, [kept.id]) == []
    assert await store.history.entries(ANA) == []
    assert (await store.checks(ANA, messages={"msg-1": ""})).seen == {}
    assert (await store.checks(ANA)).revision == 0


async def test_apply_makes_all_the_changes_or_none(store: Store) -> None:
    (blue,) = await keep(store, "blue", key="colour")
    with pytest.raises(RevisionConflict):
        await apply(store, put(memory("fine")), put(memory("green", key="colour")))
    assert list(await store.page(ANA, Filter(), limit=10)) == [blue]


async def test_a_failed_apply_cannot_be_committed_by_going_on(store: Store) -> None:
    (blue,) = await keep(store, "blue", key="colour")

    async def stubborn() -> None:
        async with store.transaction(ANA) as tx:
            with suppress(MemoristError):
                await tx.apply([put(memory("fine")), put(memory("green", key="colour"))])
            await tx.apply([put(memory("more"))])

    with pytest.raises(RevisionConflict):
        await stubborn()
    assert list(await store.page(ANA, Filter(), limit=10)) == [blue]


async def test_a_store_works_on_after_a_failed_transaction(store: Store) -> None:
    with pytest.raises(InvalidInput):
        await apply(store, put(memory(importance=float("inf"))))
    await keep(store, "tea")
    assert len(await store.page(ANA, Filter(), limit=10)) == 1


async def test_a_transaction_cancelled_at_any_moment_leaves_no_lock(store: Store) -> None:
    async def write(text: str) -> None:
        await keep(store, text)

    for moment in range(40):
        task = asyncio.create_task(write(f"memory {moment}"))
        for _ in range(moment % 20):
            await asyncio.sleep(0.0002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(keep(store, "afterwards"), timeout=5)
    assert (await store.page(ANA, Filter(), limit=1)).memories[0].text == "afterwards"
    assert await check(store) == []


async def test_cancelling_one_that_waits_for_its_turn_leaves_the_other_alone(store: Store) -> None:
    async with store.transaction(ANA) as tx:
        waiting = asyncio.create_task(keep(store, "waiting"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await tx.apply([put(memory("mine"))])
    assert [each.text for each in await store.page(ANA, Filter(), limit=10)] == ["mine"]


async def test_what_a_transaction_read_cannot_change_before_it_commits(store: Store) -> None:
    (kept,) = await keep(store, "tea")

    async def once_more() -> None:
        async with store.transaction(ANA) as tx:
            (now,) = await tx.get(ANA, [kept.id])
            await asyncio.sleep(0)
            await tx.apply([put(replace(now, repeat_count=now.repeat_count + 1), "merged")])

    await asyncio.gather(*(once_more() for _ in range(30)))
    assert (await store.get(ANA, [kept.id]))[0].repeat_count == 30


async def test_others_do_not_see_a_transaction_before_it_commits(store: Store) -> None:
    await keep(store, "before")
    async with store.transaction(ANA) as tx:
        await tx.apply([put(memory("after"))])
        looking = asyncio.create_task(store.page(ANA, Filter(), limit=10))
        await asyncio.sleep(0.05)
        if looking.done():  # an engine may also let the reader wait
            assert [each.text for each in looking.result()] == ["before"]
    assert len(await looking) in (1, 2)


async def test_each_public_write_has_one_line_of_history(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    await apply(
        store,
        put(replace(kept, pinned=True, revision=2), "updated", actor="me", meta={"pinned": True}),
    )
    await apply(store, forget(kept, reason="asked", actor="me"))
    lines = await store.history.entries(ANA, kept.id)
    assert [line.event for line in lines] == ["DELETE", "UPDATE", "ADD"]
    assert (lines[0].actor, lines[0].meta) == ("me", {"reason": "asked"})
    assert (lines[2].new_ref, lines[1].new_ref) == (f"{kept.id}#1", f"{kept.id}#2")


EVENTS = {"created": "ADD", "updated": "UPDATE", "superseded": "UPDATE", "merged": "MERGE", "deleted": "DELETE",
          "soft_deleted": "TTL", "restored": "RESTORE", "linked": "LINK"}  # fmt: skip


async def test_each_event_has_its_word_in_the_history(store: Store) -> None:
    for event, word in EVENTS.items():
        kept = memory(event)
        await apply(store, put(kept, event))
        assert [line.event for line in await store.history.entries(ANA, kept.id)] == [word]


@pytest.mark.spec("IMP-14")
async def test_writers_on_one_thread_never_share_or_skip_a_revision(
    store: Store, tamper: Any
) -> None:
    await asyncio.gather(
        *(keep(store, f"memory {i}", labels=Labels(thread="t")) for i in range(25))
    )
    revs = await tamper("SELECT rev FROM change_log WHERE thread_id = 't' ORDER BY rev")
    assert [row[0] for row in revs] == list(range(1, 26))
    assert await tamper("SELECT rev FROM thread_revision WHERE thread_id = 't'") == [(25,)]


async def test_an_earlier_version_has_no_history_of_its_own(store: Store) -> None:
    version = memory(state="superseded")
    await apply(store, put(version, None))
    assert await store.get(ANA, [version.id]) == [version]
    assert await store.history.entries(ANA) == []


async def test_history_is_newest_first_even_within_a_moment(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    for revision in range(2, 30):
        await apply(store, put(replace(kept, revision=revision), "updated"))
    assert [line.new_ref for line in await store.history.entries(ANA, limit=5)] == [
        f"{kept.id}#{n}" for n in range(29, 24, -1)
    ]


async def test_putting_a_memory_twice_leaves_the_same_state(store: Store) -> None:
    kept = replace(WHOLE, needs_embedding=True)
    await apply(store, put(kept))
    before = await delta(store)
    await apply(store, put(kept))
    assert await store.get(ANA, [kept.id]) == [kept]
    assert [row.row for row in (await delta(store)).rows] == [row.row for row in before.rows]


async def test_a_memory_is_only_written_to_its_own_scope(store: Store) -> None:
    with pytest.raises(InvalidInput):
        await apply(store, put(memory(scope=BOB)), scope=ANA)


async def test_being_used_makes_no_revision_and_no_history(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    before = (await store.checks(ANA)).revision
    await apply(store, MemoryAccess(memory_id=kept.id, at=NOW, scores={"total": 1.0}))
    await apply(
        store, MemoryAccess(memory_id=kept.id, at=NOW + HOUR, scores={"total": 2.0}, accessed=False)
    )
    (now,) = await store.get(ANA, [kept.id])
    assert (now.access_count, now.last_accessed) == (1, NOW)
    assert now.last_scores == {"total": 2.0, "computed_at": clock.iso(NOW + HOUR)}
    assert (await store.checks(ANA)).revision == before
    assert len(await store.history.entries(ANA)) == 1


# What changed


async def test_a_revision_grows_with_each_committed_change(store: Store) -> None:
    assert (await store.checks(ANA)).revision == 0
    seen = [0]
    (kept,) = await keep(store, "tea")
    for change in (put(replace(kept, revision=2), "updated"), Embedding(memory_id=kept.id, model=MODEL, vector=[1, 0]),
                   said("msg", "hello"), forget(kept)):  # fmt: skip
        seen.append((await store.checks(ANA)).revision)
        await apply(store, change)
    seen.append((await store.checks(ANA)).revision)
    assert seen == sorted(set(seen))
    assert (await store.checks(BOB)).revision == 0


async def test_changed_since_tells_what_is_new_and_what_is_gone(store: Store) -> None:
    tea, milk, water = await keep(store, "tea", "milk", "water")
    start = await delta(store)
    rows = dict(zip(("tea", "milk", "water"), (row.row for row in start.rows), strict=True))
    await apply(store, put(replace(tea, pinned=True), "updated"), forget(milk))
    await apply(store, put(replace(water, state="soft_deleted"), "soft_deleted"))
    since = await delta(store, start.revision)
    assert [(row.row, row.pinned) for row in since.rows] == [(rows["tea"], True)]
    assert set(since.gone) == {rows["milk"], rows["water"]}
    assert (await delta(store, since.revision)).rows == []


async def test_changed_since_comes_in_pages_by_row(store: Store) -> None:
    await keep(store, *(f"memory {i}" for i in range(5)))
    first = await delta(store, limit=2)
    second = await delta(store, limit=2, after=first.next)
    third = await delta(store, limit=2, after=second.next)
    rows = [row.row for page in (first, second, third) for row in page.rows]
    assert rows == sorted(set(rows))
    assert (len(rows), third.next) == (5, None)


async def test_fingerprints_of_active_memories_are_found_and_kept_up_to_date(store: Store) -> None:
    tea, milk, water = await keep(store, "tea", "milk", "water", simhash=0xFFFF_0000_0000_0000)
    fingerprints = await load_fingerprints(store, ANA, Fingerprints())
    start = fingerprints.find_near([0xFFFF_0000_0000_0007])
    assert start == [row.row for row in (await delta(store)).rows]
    await apply(store, put(replace(tea, simhash=0), "updated"), forget(milk))
    await apply(store, put(replace(water, state="soft_deleted"), "soft_deleted"))
    await keep(store, "juice", simhash=0xFFFF_0000_0000_0001)
    fingerprints = await load_fingerprints(store, ANA, fingerprints)
    assert fingerprints.find_near([0b111]) == start[:1]
    (juice,) = fingerprints.find_near([0xFFFF_0000_0000_0007])
    assert juice > start[-1]
    assert (await load_fingerprints(store, BOB, Fingerprints())).find_near([0]) == []


async def test_what_changes_while_pages_are_read_is_read_now_or_next_time(store: Store) -> None:
    made = await keep(store, *(f"memory {i}" for i in range(6)))
    first = await delta(store, limit=3)
    await apply(store, put(replace(made[0], pinned=True), "updated"))  # its page has been read
    await apply(store, put(replace(made[5], pinned=True), "updated"))  # its page is still to come
    await apply(store, forget(made[1]), forget(made[4]))
    await keep(store, "new")
    later = await delta(store, limit=100, after=first.next)
    caught_up = {row.row: row for row in (*first.rows, *later.rows)}
    again = await delta(store, first.revision)
    caught_up |= {row.row: row for row in again.rows}
    for row in again.gone:
        caught_up.pop(row, None)
    fresh = {row.row: row for row in (await delta(store)).rows}
    assert caught_up == fresh


async def test_a_row_number_is_never_used_again(store: Store) -> None:
    (tea,) = await keep(store, "tea")
    (first,) = (await delta(store)).rows
    await apply(store, forget(tea))
    await keep(store, "milk")
    assert (await delta(store)).rows[0].row > first.row


async def test_an_index_row_holds_what_the_legs_need(store: Store) -> None:
    vector = np.array([0.6, 0.8, 0, 0], np.float32)
    await apply(store, put(WHOLE, vector=vector, model=MODEL))
    (row,) = (await delta(store)).rows
    for name in ("state", "sequence", "speaker", "kind", "importance", "confidence", "pinned"):
        assert getattr(row, name) == getattr(WHOLE, name)
    times = (
        WHOLE.occurred_at,
        WHOLE.created_at,
        WHOLE.updated_at,
        WHOLE.valid_from,
        WHOLE.valid_to,
    )
    assert (row.occurred, row.created, row.updated, row.valid_from, row.valid_to) == tuple(
        map(clock.micros, times)
    )
    assert (row.session, row.channel) == ("s", "c")
    assert row.vector is not None
    assert np.array_equal(np.frombuffer(row.vector, "<f4"), vector)
    assert len(tokens.unpack(row.terms)[0]) > 0


# Vectors


@pytest.mark.spec("CLK-12", "CLK-13")
async def test_vectors_are_kept_for_each_memory_and_model(store: Store) -> None:
    kept = memory()
    await apply(store, put(kept, vector=[1, 0], model="two"))
    await apply(store, Embedding(memory_id=kept.id, model="three", vector=[0, 0, 1]))
    sizes = {
        model: len((await delta(store, model=model)).rows[0].vector or b"")
        for model in ("two", "three", "none")
    }
    assert sizes == {"two": 8, "three": 12, "none": 0}
    assert not (await store.get(ANA, [kept.id]))[0].needs_embedding


async def test_a_new_text_takes_the_vectors_of_the_old_one_away(store: Store) -> None:
    kept = memory("tea", needs_embedding=False)
    await apply(store, put(kept, vector=[1, 0], model="two"))
    await apply(store, put(replace(kept, text="milk", needs_embedding=True), "updated"))
    assert (await delta(store, model="two")).rows[0].vector is None
    assert await claim(store, "w") == ["milk"]


async def test_a_vector_stays_as_long_as_the_text_does(store: Store) -> None:
    kept = memory("tea", needs_embedding=False)
    await apply(store, put(kept, vector=[1, 0], model="two"))
    await apply(store, put(replace(kept, pinned=True), "updated"))
    assert (await delta(store, model="two")).rows[0].vector is not None


async def test_unembedded_lists_what_a_model_has_not_seen_by_row_in_all_scopes(
    store: Store,
) -> None:
    done = memory("done")
    await apply(store, put(done, vector=[1, 0], model="two"))
    await keep(store, "one")
    await keep(store, "two", scope=BOB)
    await keep(store, "gone", state="soft_deleted")
    lease: dict[str, Any] = {"worker": "w", "lease_seconds": 60.0}
    first = await store.embeddings.claim("two", limit=1, **lease)
    rest = await store.embeddings.claim("two", limit=5, after=first[0][0], **lease)
    assert [(each.text, each.scope) for _, each in (*first, *rest)] == [("one", ANA), ("two", BOB)]
    assert await claim(store, "w", limit=9, everything=True) == ["done", "one", "two"]
    assert await store.embeddings.count("two") == 2
    assert await store.embeddings.count("two", everything=True) == 3


# Sharing the work


async def claim(store: Store, worker: str, **given: Any) -> list[str]:
    usual = {"worker": worker, "limit": 2, "lease_seconds": 60.0}
    return [each.text for _, each in await store.embeddings.claim("two", **{**usual, **given})]


async def embedded(store: Store, embedder: Hashing, **given: Any) -> int:
    ctx: Any = SimpleNamespace(store=store, embedder=embedder, clock=clock.utcnow)
    return (await backfill(ctx, **given)).embedded


async def test_two_workers_never_get_the_same_row_while_the_lease_holds(store: Store) -> None:
    await keep(store, "a", "b", "c")
    await keep(store, "d", scope=BOB)
    assert await claim(store, "one") == ["a", "b"]
    assert await claim(store, "two") == ["c", "d"]
    assert await claim(store, "three") == []


async def test_many_workers_share_what_there_is(store: Store) -> None:
    await keep(store, *(f"memory {i}" for i in range(60)))
    claimed = await asyncio.gather(*(claim(store, f"w{i}", limit=7) for i in range(12)))
    given = [text for each in claimed for text in each]
    assert len(given) == len(set(given))
    while more := await claim(store, new_id(), limit=9):
        given += more
    assert sorted(given) == sorted(f"memory {i}" for i in range(60))


async def test_a_lease_that_ended_can_be_claimed_again(store: Store) -> None:
    await keep(store, "a")
    assert await claim(store, "killed", lease_seconds=0.05) == ["a"]
    await asyncio.sleep(0.1)
    assert await claim(store, "next") == ["a"]


async def test_a_lease_from_before_the_clock_was_set_back_counts_for_nothing(
    store: Store, tamper: Any
) -> None:
    await keep(store, "a")
    await claim(store, "one")
    await tamper("UPDATE claims SET until = until + 86400 * 400")
    assert await claim(store, "two") == ["a"]


async def test_what_a_worker_gives_back_is_free_at_once(store: Store) -> None:
    await keep(store, "a", "b", "c")
    await claim(store, "one")
    await claim(store, "two")
    await store.embeddings.release("one")
    assert await claim(store, "three", limit=9) == ["a", "b"]


async def test_a_claim_is_of_what_the_model_has_not_embedded(store: Store) -> None:
    done = memory("done", needs_embedding=False)
    await apply(store, put(done, vector=[1, 0], model="two"), put(memory("new")))
    other = memory("by another model", needs_embedding=False)
    await apply(store, put(other, vector=[1, 0], model="one"))
    await keep(store, "gone", state="soft_deleted")
    assert await claim(store, "a", waiting=True) == ["new"]
    assert await claim(store, "a", limit=9) == ["new", "by another model"]
    assert await claim(store, "a", limit=9, everything=True) == ["done", "new", "by another model"]


async def test_a_claimed_memory_can_be_changed_and_forgotten(store: Store) -> None:
    one, two = await keep(store, "one", "two")
    await claim(store, "w")
    await apply(store, put(replace(one, pinned=True), "updated"))
    await apply(store, forget(two))
    assert await check(store) == []


@pytest.mark.spec("THE-115")
async def test_workers_drain_the_queue_and_no_row_is_embedded_twice(store: Store) -> None:
    await keep(store, *(f"memory {i}" for i in range(40)))
    await keep(store, *(f"theirs {i}" for i in range(20)), scope=BOB)
    done = await asyncio.gather(*(embedded(store, Hashing(), batch_size=4) for _ in range(4)))
    assert sum(done) == 60
    for scope in (ANA, BOB):
        assert await store.rows_where(scope, Filter(needs_embedding=True)) == []
    assert await check(store) == []


async def test_a_worker_whose_model_fails_gives_its_rows_back(store: Store) -> None:
    class Failing(Hashing):
        async def encode_batch(self, texts: Any) -> Any:
            raise EmbedderUnavailable

    await keep(store, "a", "b")
    with pytest.raises(EmbedderUnavailable):
        await embedded(store, Failing())
    assert await embedded(store, Hashing()) == 2


async def test_one_at_a_time_is_alone(store: Store) -> None:
    async def is_free(name: str) -> bool:
        async with store.database.try_lock(name) as is_mine:
            return is_mine

    async with store.database.try_lock("tending") as first:
        assert first
        assert await asyncio.gather(is_free("tending"), is_free("trimming")) == [False, True]
    assert await is_free("tending")


async def test_waiting_for_changes_ends_in_time(store: Store) -> None:
    await asyncio.wait_for(store.database.wait_for_change(0.05), timeout=5)


async def test_a_vector_of_a_memory_that_is_gone_is_not_kept(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    await apply(store, forget(kept))
    await apply(store, Embedding(memory_id=kept.id, model=MODEL, vector=[1, 0]))
    assert await check(store) == []


# Messages, long-term records


async def test_a_message_is_answered_as_it_was_the_first_time(store: Store) -> None:
    outcome = Outcome(
        status="merged", ids=("m1", "m2"), reason="said before — 茶", message_id="msg-1"
    )
    await apply(store, said("msg-1", "hello", outcome=outcome))
    await apply(store, said("msg-1", "something else"))
    before = (await store.checks(ANA, messages={"msg-1": "digest of hello", "msg-2": ""})).seen[
        "msg-1"
    ]
    assert (before.same, before.outcome) == (True, outcome)
    assert not (await store.checks(ANA, messages={"msg-1": "digest of goodbye"})).seen["msg-1"].same


async def test_the_words_of_a_message_are_kept_where_no_memory_holds_them(store: Store) -> None:
    await apply(
        store,
        said("msg-1", "hello", role="assistant", name="Bo", at=NOW, session="s"),
        said("msg-2", "verbatim", keep_text=False),
    )
    kept = await read_messages(store, ANA, ["msg-1", "msg-2", "msg-3"])
    assert kept == {
        "msg-1": Message(
            id="msg-1", content="hello", role="assistant", name="Bo", at=NOW, session="s"
        )
    }


async def test_long_term_records_are_newest_first_and_kept_once(store: Store) -> None:
    old = Summary(
        id="p1",
        record_type="user_profile",
        name="ana",
        data={"tea": "yes"},
        evidence_ids=("m1",),
        at=NOW,
    )
    new = replace(old, id="p2", data={"tea": "no"}, at=NOW + HOUR)
    await apply(store, old, new)
    await apply(store, old)
    assert await person.load_summaries(store, ANA, "user_profile") == [new, old]
    assert await person.load_summaries(store, ANA, "project_memory") == []


# Forgetting


async def test_a_forgotten_memory_is_not_found(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    await apply(store, forget(kept))
    assert await store.get(ANA, [kept.id]) == []
    assert await store.same_text(ANA, [kept.content_hash]) == []
    assert (await delta(store)).rows == []
    assert len(await store.page(ANA, Filter(states=()), limit=10)) == 0


async def test_forgetting_takes_earlier_versions_along(store: Store) -> None:
    new = memory("I live in Porto")
    old = memory("I live in Lisbon", state="superseded", superseded_by=new.id)
    await apply(store, put(old, None), put(new))
    await apply(store, forget(new))
    assert len(await store.page(ANA, Filter(states=()), limit=10)) == 0
    texts = [normalize.for_hash(each.text) for each in (old, new)]
    assert await store.tombstones(ANA, texts, NOW) == set(texts)


async def test_forgetting_blanks_messages_and_what_the_history_said(store: Store) -> None:
    kept = memory("secret", source_ids=("msg-1",), labels=Labels(session="s"))
    await apply(
        store,
        put(kept, meta={"quote": "secret"}),
        said("msg-1", "a secret"),
        said("msg-2", "other"),
    )
    await apply(store, forget(kept))
    assert set(await read_messages(store, ANA, ["msg-1", "msg-2"])) == {"msg-2"}
    assert all(not line.meta for line in await store.history.entries(ANA))


async def test_forgetting_twice_is_told_once(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    await apply(store, forget(kept))
    await apply(store, forget(kept))
    assert [line.event for line in await store.history.entries(ANA)] == ["DELETE", "ADD"]


@pytest.mark.spec("THE-84")
async def test_a_tombstone_stands_until_its_time_is_over(store: Store) -> None:
    (kept,) = await keep(store, "I like  Tea")
    text = normalize.for_hash(kept.text)
    assert await store.tombstones(ANA, [text], NOW) == set()
    await apply(store, forget(kept))
    assert await store.tombstones(ANA, [text, "other"], NOW + 23 * HOUR) == {text}
    assert await store.tombstones(ANA, [text], NOW + 25 * HOUR) == set()


async def test_a_text_can_be_buried_without_being_erased_and_the_longer_time_counts(
    store: Store,
) -> None:
    (kept,) = await keep(store, "tea")
    await apply(store, tombstones("tea", until=NOW + 9 * HOUR))
    await apply(store, tombstones("tea", until=NOW + 2 * HOUR))
    assert await store.tombstones(ANA, ["tea"], NOW + 8 * HOUR) == {"tea"}
    assert await store.get(ANA, [kept.id]) == [kept]
    await apply(store, put(replace(kept, revision=2), "restored"))
    assert await store.tombstones(ANA, ["tea"], NOW) == set()


async def test_the_history_keeps_what_a_change_took_the_place_of_under_the_name_of_its_transaction(
    store: Store,
) -> None:
    tea, milk = await keep(store, "tea", "milk")
    await apply(
        store,
        put(replace(tea, pinned=True, tags=("hot",)), "updated"),
        put(replace(milk, tags=("x",)), "updated"),
    )
    await apply(store, put(replace(tea, pinned=False), "updated"))
    both = (await store.history.entries(ANA, milk.id))[0].meta["operation"]
    since = await store.history.since(ANA, "operation", both)
    assert [entry.meta["before"] for entry in since] == [
        {"pinned": False, "tags": []}, {"tags": []}, {"pinned": True, "tags": ["hot"]},
    ]  # fmt: skip
    assert [entry.meta["operation"] == both for entry in since] == [True, True, False]
    assert await store.history.since(BOB, "operation", both) == []


async def test_what_happened_since_a_session_is_asked_of_its_own_scope(store: Store) -> None:
    talk = Labels(session="talk")
    await keep(store, "theirs", scope=BOB, labels=talk)
    await keep(store, "before")
    (kept,) = await keep(store, "tea", labels=talk)
    assert [entry.memory_id for entry in await store.history.since(ANA, "session", "talk")] == [
        kept.id
    ]


async def test_the_history_is_checked_in_its_own_scope(store: Store) -> None:
    await keep(store, "tea")
    await keep(store, "theirs", scope=BOB)
    await keep(store, "milk")
    assert await check(store) == []


async def test_a_tombstone_without_an_end_stands_for_ever(store: Store) -> None:
    (kept,) = await keep(store, "tea")
    await apply(store, forget(kept, until=None))
    assert await store.tombstones(ANA, ["tea"], NOW.replace(year=9999)) == {"tea"}


async def test_a_tombstone_whose_time_is_long_over_goes_with_the_old_events(store: Store) -> None:
    await apply(
        store,
        tombstones("tea", until=NOW + HOUR),
        tombstones("milk", until=None),
    )
    async with store.transaction(ANA) as tx:
        await tx.delete_old(NOW)
    assert await store.tombstones(ANA, ["tea", "milk"], NOW) == {"tea", "milk"}
    async with store.transaction(ANA) as tx:
        await tx.delete_old(NOW + 2 * HOUR)
    assert await store.tombstones(ANA, ["tea", "milk"], NOW) == {"milk"}


# The wall


SCOPES = [
    Scope(user="bob"),
    Scope(user="ana", space="work"),
    Scope(user="ana", tenant="acme"),
    Scope(user="default", space="ana"),
    Scope(user="Ana"),
    Scope(user="ana "),
    Scope(user="ana%"),
    Scope(user="ana\u0301"),
    Scope(user="1"),
    Scope(user="' OR '1'='1"),
]


@pytest.mark.spec("THE-109")
@pytest.mark.parametrize(
    "other", SCOPES, ids=lambda scope: f"{scope.tenant}-{scope.user}-{scope.space}"
)
async def test_nothing_is_seen_from_another_scope(store: Store, other: Scope) -> None:
    kept = replace(WHOLE, state="active")
    record = Summary(
        id="p1", record_type="user_profile", name="ana", data={"a": 1}, evidence_ids=(), at=NOW
    )
    gone = memory("milk")
    await apply(
        store,
        put(kept, vector=[1, 0, 0, 0], model=MODEL),
        said("msg-1", "hello"),
        record,
        put(gone),
    )
    await apply(store, forget(gone))
    assert list(await store.derived_from(ANA, kept.evidence_ids)) == [kept.id]
    assert await store.earlier_versions(ANA, [kept.superseded_by or ""]) == [kept.id]
    for written in (False, True):  # before and after something is remembered there
        rows = [row.row for row in (await delta(store)).rows]
        assert await store.get(other, [kept.id]) == []
        assert await store.at_rows(other, rows) == {}
        assert await store.rows_where(other, Filter(ids=(kept.id,), states=())) == []
        assert kept.id not in [
            each.id for each in await store.page(other, Filter(states=()), limit=10)
        ]
        assert not set(rows) & {row.row for row in (await delta(store, scope=other)).rows}
        assert (await delta(store, scope=other)).gone == []
        assert await store.same_text(other, [kept.content_hash]) == []
        assert await store.by_key(other, [kept.key or ""]) == {}
        assert await store.derived_from(other, [*kept.evidence_ids, *kept.source_ids]) == {}
        assert await store.earlier_versions(other, [kept.superseded_by or ""]) == []
        assert (await store.checks(other, messages={"msg-1": ""})).seen == {}
        assert await read_messages(store, other, ["msg-1"]) == {}
        assert await store.last_sequence(other, "s") == -1
        assert await store.tombstones(other, ["milk"], NOW) == set()
        assert await store.history.entries(other, kept.id) == []
        assert await person.load_summaries(store, other, "user_profile") == []
        assert (await store.stats(other, MODEL))["memories"] == written
        assert kept.id not in str([record async for record in exported(store, other)])
        await keep(store, "their own", scope=other)


@pytest.mark.spec("THE-109")
async def test_nothing_is_changed_from_another_scope(store: Store) -> None:
    kept = memory(source_ids=("msg-1",))
    record = Summary(
        id="p1", record_type="user_profile", name="ana", data={"a": 1}, evidence_ids=(), at=NOW
    )
    await apply(store, put(kept, vector=[1, 0], model=MODEL), said("msg-1", "hello"), record)
    before = [each async for each in exported(store, ANA)]
    for theirs in (
        forget(kept),
        Embedding(memory_id=kept.id, model=MODEL, vector=[0, 1]),
        MemoryAccess(memory_id=kept.id, at=NOW, scores={}),
        said("msg-1", "theirs"),
    ):
        await apply(store, theirs, scope=BOB)
    await apply(
        store,
        put(replace(kept, scope=BOB, text="theirs")),
        replace(record, name="theirs"),
        scope=BOB,
    )
    assert [each.text for each in await store.get(BOB, [kept.id])] == [
        "theirs"
    ]  # the same id, and another memory
    assert [each async for each in exported(store, ANA)] == before
    assert np.frombuffer((await delta(store)).rows[0].vector or b"", "<f4").tolist() == [1, 0]
    assert [line.event for line in await store.history.entries(ANA)] == ["ADD"]


# The store as a whole


async def test_scopes_lists_everybody_in_the_order_they_came(store: Store) -> None:
    for scope in (BOB, ANA, replace(ANA, space="work")):
        await keep(store, "tea", scope=scope)
    assert await store.scopes() == [BOB, ANA, replace(ANA, space="work")]


async def test_stats_count_one_scope_or_all(store: Store) -> None:
    await apply(store, put(memory("tea", needs_embedding=False), vector=[1, 0, 0, 0], model=MODEL))
    await keep(store, "milk", kind="semantic", state="archived")
    await keep(store, "water", scope=BOB)
    ana, all_of_it = await store.stats(ANA, MODEL), await store.stats(None, MODEL)
    assert (ana["memories"], ana["with_embeddings"], ana["without_embeddings"], ana["waiting"]) == (
        2,
        1,
        1,
        1,
    )
    assert (ana["states"], ana["kinds"]) == (
        {"active": 1, "archived": 1},
        {"episodic": 1, "semantic": 1},
    )
    assert (all_of_it["memories"], all_of_it["scopes"]) == (3, 2)


async def test_an_export_gives_history_then_memories_then_messages_then_long_term_records(
    store: Store,
) -> None:
    record = Summary(
        id="p1", record_type="project_memory", name="x", data={"a": 1}, evidence_ids=("m1",), at=NOW
    )
    await apply(store, record, said("msg-1", "hello"), put(memory("tea")), put(memory("milk")))
    await keep(store, "theirs", scope=BOB)
    mine = [each async for each in exported(store, ANA)]
    kinds = ["history", "history", "memory", "memory", "message", "project_memory"]
    assert [each["record_type"] for each in mine] == kinds
    assert [each["data"]["text"] for each in mine[2:4]] == ["tea", "milk"]
    assert len([each async for each in exported(store, None)]) == 8


async def test_a_backup_is_complete_and_can_be_opened(store: Store, tmp_path: Path) -> None:

    made = await keep(store, "tea", "milk")
    await store.database.backup(tmp_path / "copy.db")
    with pytest.raises(InvalidInput, match="exists"):
        await store.database.backup(tmp_path / "copy.db")
    copy = await open_sqlite(tmp_path / "copy.db")
    try:
        assert await copy.get(ANA, [each.id for each in made]) == made
        assert await check(copy) == []
    finally:
        await copy.close()


async def test_a_vacuum_changes_nothing_that_can_be_read(store: Store) -> None:
    made = await keep(store, *(f"memory {i}" for i in range(50)))
    await apply(store, *map(forget, made[::2]))
    before = [each async for each in exported(store, ANA)]
    rows = (await delta(store)).rows
    await store.database.vacuum()
    assert [each async for each in exported(store, ANA)] == before
    assert (await delta(store)).rows == rows
    assert await check(store) == []


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    with pytest.raises(MemoristError, match="closed"):
        await store.get(ANA, ["m1"])
    with pytest.raises(MemoristError, match="closed"):
        await keep(store, "tea")


# Damage


@pytest.mark.parametrize(
    "change",
    [
        "text = 'I drink tee'",
        "text = CAST(X'ff2041' AS TEXT)",
        "importance = importance + 0.0000001",
        "pinned = 1",
        "simhash = simhash + 1",
        "tags = '[\"x\"]'",
        "session = 's'",
        "created_at = '2026-05-31T14:00:00.000001Z'",
        "row_hash = X'00'",
        "superseded_by = id",
    ],
)
async def test_altered_words_are_never_returned(store: Store, tamper: Any, change: str) -> None:
    (kept,) = await keep(store, "I drink tea")
    await tamper(f"UPDATE memories SET {change} WHERE id = ?", [kept.id])
    with pytest.raises(StoreDamaged):
        await store.get(ANA, [kept.id])
    assert await check(store) != []


async def test_a_memory_that_wandered_into_another_scope_is_not_shown(
    store: Store, tamper: Any
) -> None:
    (kept,) = await keep(store, "I drink tea")
    await keep(store, "theirs", scope=BOB)
    await tamper(
        "UPDATE memories SET scope = (SELECT id FROM scopes WHERE user_id = 'bob') WHERE id = ?",
        [kept.id],
    )
    with pytest.raises(StoreDamaged):
        await store.get(BOB, [kept.id])


async def test_relations_of_a_type_are_listed_until_they_end(store: Store) -> None:
    tea, milk, rum = await keep(store, "tea", "milk", "rum")
    first = Relation(from_id=milk.id, to_id=tea.id, type="contradicts", at=NOW)
    later = Relation(from_id=rum.id, to_id=milk.id, type="contradicts", at=NOW + HOUR, strength=0.5)
    await apply(store, first, first, later, replace(later, type="related_to"))
    assert await store.relations(ANA, "contradicts", limit=9) == [later, first]
    assert await store.relations(ANA, "contradicts", limit=1) == [later]
    assert await store.relations(ANA, "contradicts", limit=9, from_id=milk.id) == [first]
    assert await store.relations(BOB, "contradicts", limit=9) == []
    await apply(store, Unrelated(from_id=milk.id, to_id=tea.id, type="contradicts"))
    assert await store.relations(ANA, "contradicts", limit=9) == [later]


async def test_links_are_found_from_both_ends_if_the_other_is_active(store: Store) -> None:
    tea, milk, rum = await keep(store, "tea", "milk", "rum")
    near, far = (
        Relation(from_id=a.id, to_id=b.id, type="related_to", at=NOW, strength=s)
        for a, b, s in ((milk, tea, 0.875), (rum, tea, 0.75))
    )
    other = Relation(from_id=rum.id, to_id=milk.id, type="contradicts", at=NOW)
    await apply(store, far, near, other)
    assert await store.links(ANA, [tea.id, milk.id]) == [near, far]
    assert await store.links(ANA, [rum.id]) == [far]
    assert await store.links(BOB, [tea.id, milk.id, rum.id]) == []
    await apply(store, put(replace(milk, state="soft_deleted"), "soft_deleted"))
    assert await store.links(ANA, [tea.id]) == [far]


async def test_the_relations_of_a_forgotten_memory_go_with_it(store: Store) -> None:
    tea, milk, rum = await keep(store, "tea", "milk", "rum")
    ends = [(tea, milk), (rum, tea), (rum, milk)]
    made = [Relation(from_id=a.id, to_id=b.id, type="contradicts", at=NOW) for a, b in ends]
    await apply(store, *made)
    await apply(store, Forget(memory_id=tea.id, at=NOW, until=None))
    assert await store.relations(ANA, "contradicts", limit=9) == [made[2]]


# What the person decides


def setting(name: str, value: bool) -> Call:
    return stores.setting(name, value, at=NOW, actor="ana")


async def test_settings_are_of_their_own_scope_and_the_last_word_counts(store: Store) -> None:
    assert await space_settings(store, ANA, ["s"]) == (SpaceSettings(), set())
    await apply(store, setting("memory_enabled", False), setting("incognito_default", True))
    assert await space_settings(store, ANA, ()) == (
        SpaceSettings(memory_enabled=False, incognito_default=True),
        set(),
    )
    await apply(store, setting("memory_enabled", True))
    assert (await space_settings(store, ANA, ()))[0] == SpaceSettings(incognito_default=True)
    await keep(store, "tea", scope=BOB)
    assert await space_settings(store, BOB, ["s"]) == (SpaceSettings(), set())
    assert [(line.event, line.actor) for line in await store.history.entries(ANA)] == [
        ("UPDATE", "ana")
    ] * 3


async def test_incognito_sessions_are_of_their_own_scope_and_leave_no_name(
    store: Store, tamper: Any
) -> None:
    hidden = incognito("the party", True, at=NOW)
    await apply(store, hidden, hidden)
    await keep(store, "tea", scope=BOB)
    assert await space_settings(store, ANA, ["the party", "work", None]) == (
        SpaceSettings(),
        {"the party"},
    )
    assert await space_settings(store, BOB, ["the party"]) == (SpaceSettings(), set())
    assert await store.history.entries(ANA) == [], "not even that there was one"
    assert "party" not in str(await tamper("SELECT * FROM incognito_sessions"))
    await apply(store, incognito("the party", False, at=NOW), setting("incognito_default", True))
    asked = ["the party", "work", None]
    assert (await space_settings(store, ANA, asked))[1] == {"work", None}, (
        "all but the one that was ended"
    )


def proposal(field: str, value: str, **given: Any) -> Proposal:
    usual = {"id": new_id(), "at": NOW, "lapses_at": NOW + 7 * 24 * HOUR}
    return Proposal(**{**usual, **given}, field=field, value=value)


async def test_proposals_are_of_their_own_scope_and_as_they_were_made(store: Store) -> None:
    name = proposal("preferred_name", "Änne", evidence=("m1", "m2"))
    city = proposal("city", "Porto", at=NOW + HOUR)
    await apply(store, *(decided(each, "proposed", at=NOW) for each in (city, name)))
    await keep(store, "tea", scope=BOB)
    assert await person.load_proposals(store, ANA) == [name, city]
    assert await person.load_proposals(store, BOB) == []
    agreed = replace(name, decided="approved", decided_at=NOW + HOUR)
    await apply(store, decided(agreed, "approved", at=NOW + HOUR, actor="ana"))
    assert await person.load_proposals(store, ANA) == [agreed, city]
    newest = (await store.history.entries(ANA, name.id))[0]
    assert (newest.event, newest.actor, newest.meta["decision"]) == ("UPDATE", "ana", "approved")


@pytest.mark.parametrize("decision", ["denied", "withdrawn", "lapsed"])
async def test_a_proposal_that_is_gone_leaves_no_word(
    store: Store, tamper: Any, decision: str
) -> None:
    city = proposal("city", "Quillback")
    await apply(store, decided(city, "proposed", at=NOW))
    await apply(store, decided(city, decision, at=NOW))
    assert await person.load_proposals(store, ANA) == []
    assert [line.event for line in await store.history.entries(ANA, city.id)] == ["DELETE", "ADD"]
    said_no = normalize.wording("city: Quillback")
    assert await store.tombstones(ANA, [said_no], NOW) == (
        {said_no} if decision == "denied" else set()
    )
    left = [
        await tamper(f"SELECT * FROM {table}")
        for table in ("consent_queue", "history", "tombstones")
    ]
    assert "Quillback" not in str(left)


async def test_a_forget_withdraws_what_was_inferred_from_it_alone_unless_it_was_agreed_to(
    store: Store,
) -> None:
    tea, milk = await keep(store, "tea", "milk")
    alone, both = (
        proposal("city", "Porto", evidence=(tea.id,)),
        proposal("tone", "dry", evidence=(tea.id, milk.id)),
    )
    agreed = proposal("language", "pt", evidence=(tea.id,), decided="approved", decided_at=NOW)
    await apply(
        store,
        *(decided(each, "proposed", at=NOW) for each in (alone, both, agreed)),
    )
    await apply(store, forget(tea))
    assert {each.field for each in await person.load_proposals(store, ANA)} == {"tone", "language"}


PLANTED = {
    "terms": "UPDATE memories SET terms = X'0100000001'",
    "marks": "UPDATE memories SET flags = flags + 1",
    "no memory": "INSERT INTO vectors VALUES (1, 99, 'm', 1, X'00000000')",
    "wrong size": "UPDATE vectors SET dims = 7",
    "no vector": "DELETE FROM vectors",
    "no history": "DELETE FROM history",
    "newer": "UPDATE scopes SET revision = 0",
    "other scope": "UPDATE vectors SET scope = scope + 1",
}


@pytest.mark.parametrize("planted", PLANTED)
async def test_a_check_finds_planted_damage(store: Store, tamper: Any, planted: str) -> None:
    await apply(store, put(memory("tea", needs_embedding=False), vector=[1, 0, 0, 0], model=MODEL))
    await keep(store, "milk")
    assert await check(store) == []
    await tamper(PLANTED[planted])
    assert await check(store) != []
