"""The history: one line for each write, a chain that shows where it was touched, out with the person and in again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import memorist
from memorist.embedders import Hashing
from memorist.errors import EmbedderUnavailable, InvalidInput
from memorist.ports import Vectors
from memorist.sync import Blocking, BlockingScope

WORDS = ("ADD", "UPDATE", "DELETE", "MERGE", "LINK", "TTL", "RESTORE")


@pytest.fixture
def memory(place: str) -> Iterator[Blocking]:
    with memorist.open(place, embedder="hashing") as opened:
        yield opened


@pytest.fixture
def ana(memory: Blocking) -> BlockingScope:
    return memory.scope("ana", thread="t")


def tampered(place: str, sql: str) -> list[Any]:
    """What somebody does who goes past us."""
    if "://" not in place:
        connection = apsw.Connection(place)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    with psycopg.connect(place, autocommit=True) as server:
        server.execute("SET search_path TO memorist")
        done = server.execute(sql.encode())
        return done.fetchall() if done.description else []


def life(ana: BlockingScope) -> str:
    """A memory to which several things happened, beside others."""
    (id,) = ana.remember("The kettle is in the blue cupboard.").ids
    ana.remember("The bicycle needs a new chain before summer.")
    ana.edit(id, "The kettle is in the green cupboard.", actor="ana")
    ana.pin(id)
    ana.forget(id, keep_days=3)
    ana.restore(id)
    return id


@pytest.mark.spec("IMP-76", "IMP-78", "IMP-79")
def test_each_thing_that_happened_to_a_memory_is_one_line_in_order(ana: BlockingScope) -> None:
    id = life(ana)
    lines = ana.history(id)
    assert [line.event for line in lines] == ["RESTORE", "TTL", "UPDATE", "UPDATE", "ADD"]
    assert all(line.event in WORDS for line in ana.history())
    assert len(ana.history()) == 6
    assert [line.actor for line in lines] == [None, None, None, "ana", None]


@pytest.mark.spec("IMP-76", "IMP-79")
def test_every_kind_of_write_has_its_own_word(ana: BlockingScope) -> None:
    (id,) = ana.remember("My favorite tea is Earl Grey.").ids
    assert ana.remember("My favorite tea is Earl Grey!").outcomes[0].status == "merged"
    ana.edit(id, importance=0.9)
    ana.pin(id)
    ana.forget(id, keep_days=3)
    ana.restore(id)
    ana.forget(id)
    ana.consent.set("city", "Porto", actor="ana")
    words = [line.event for line in reversed(ana.history(id))]
    assert words == ["ADD", "MERGE", "UPDATE", "UPDATE", "TTL", "RESTORE", "DELETE"]
    last = ana.history(limit=1)[0]
    assert (last.event, last.actor, last.meta["field"]) == ("UPDATE", "ana", "city")


TOUCHED = {
    "who": "UPDATE history SET actor = 'somebody' WHERE event = 'RESTORE'",
    "what": "UPDATE history SET event = 'MERGE' WHERE event = 'TTL'",
    "when": "UPDATE history SET ts = '2020-01-01T00:00:00.000000Z' WHERE event = 'TTL'",
    "which": "UPDATE history SET memory_id = 'another' WHERE event = 'TTL'",
    "payload": "UPDATE history SET meta = '{\"pinned\": false}' WHERE event = 'TTL'",
    "payload emptied": "UPDATE history SET meta = '{}' WHERE event = 'TTL'",
    "first deleted": "DELETE FROM history WHERE row = (SELECT min(row) FROM history)",
    "one deleted": "DELETE FROM history WHERE event = 'TTL'",
    "last deleted": "DELETE FROM history WHERE row = (SELECT max(row) FROM history)",
    "all deleted": "DELETE FROM history",
    "two swapped": "UPDATE history SET row = (SELECT max(row) + 1 FROM history) WHERE event = 'TTL'",
    "one added": "INSERT INTO history (id, scope, memory_id, event, meta, ts) SELECT "
    "'019a3c5e-7ddf-7926-adf6-688e0fc76dd8', scope, memory_id, 'UPDATE', meta, ts FROM history WHERE event = 'TTL'",
}


@pytest.mark.parametrize("touched", TOUCHED)
def test_a_history_that_was_touched_is_noticed(
    memory: Blocking, ana: BlockingScope, place: str, touched: str
) -> None:
    life(ana)
    memory.scope("bob").remember("Bob's boat is called Maren.")
    assert memory.check() == []
    tampered(place, TOUCHED[touched])
    assert any("history" in problem for problem in memory.check())


def test_a_payload_whose_fields_the_database_orders_anew_passes_the_check(
    memory: Blocking, ana: BlockingScope
) -> None:
    (id,) = ana.remember("The kettle is in the blue cupboard.").ids
    ana.forget(id, keep_days=3, reason="asked")
    assert {"reason", "state"} <= set(ana.history(id)[0].meta), (
        "PostgreSQL puts the shorter name first"
    )
    assert memory.check() == []


def test_a_payload_that_cannot_be_read_is_noticed_and_the_rest_still_leaves(tmp_path: Path) -> None:
    place = str(tmp_path / "m.db")
    with memorist.open(place, embedder="hashing") as memory:
        ana = memory.scope("ana")
        life(ana)
        tampered(place, "UPDATE history SET meta = '{' WHERE event = 'TTL'")
        assert any("history" in problem for problem in memory.check())
        kinds = Counter(record["record_type"] for record in ana.export())
        assert (kinds["history"], kinds["damaged"], kinds["memory"]) == (5, 1, 3)


def test_forgetting_empties_payloads_and_leaves_the_chain_whole(
    memory: Blocking, ana: BlockingScope, place: str
) -> None:
    id = life(ana)
    ana.forget(id, reason="asked")
    lines = ana.history(id)
    assert [line.event for line in lines] == ["DELETE", "RESTORE", "TTL", "UPDATE", "UPDATE", "ADD"]
    assert all(not line.meta for line in lines[1:])
    assert "cupboard" not in str(tampered(place, "SELECT meta FROM history"))
    assert memory.check() == []
    ana.remember("The train to Porto leaves at nine.")
    assert memory.check() == []


def test_a_memory_that_came_back_after_it_was_forgotten_does_not_look_like_damage(
    memory: Blocking, ana: BlockingScope
) -> None:
    (id,) = ana.remember("The kettle is in the blue cupboard.", pinned=True).ids
    before = list(ana.export())
    ana.forget(id)
    with memorist.open(memory.settings.db, embedder="hashing", tombstone_hours=0) as later:
        later.scope("ana").remember("The kettle is in the blue cupboard.", manually_saved=True)
    ana.import_(before)
    assert memory.check() == []


@pytest.mark.spec("IMP-80")
def test_the_history_leaves_with_the_person_and_comes_in_again(
    memory: Blocking, ana: BlockingScope, tmp_path: Path
) -> None:
    life(ana)
    records = list(ana.export())
    assert [
        record["data"]["event"] for record in records if record["record_type"] == "history"
    ] == [line.event for line in reversed(ana.history())]
    with memorist.open(tmp_path / "other.db", embedder="hashing") as other:
        other.scope("ana").import_(records)
        taken = other.scope("ana").history(limit=1000)
        assert [replace(line, meta={}) for line in taken[-6:]] == [
            replace(line, meta={}) for line in ana.history()
        ]
        for line, before in zip(taken[-6:], ana.history(), strict=True):
            told = dict(before.meta)
            operation = told.pop("operation")
            assert line.meta == {**told, "imported_operation": operation, "imported": True}
        assert [line.meta.get("imported") for line in taken[:2]] == [True, True], (
            "that it was brought is noted too"
        )
        again = other.scope("ana").import_(records)
        assert {outcome.status for outcome in again.outcomes} == {"skipped"}
        assert other.scope("ana").history(limit=1000) == taken
        assert other.check() == []


def test_a_history_can_be_taken_into_another_scope_of_the_same_store(
    memory: Blocking, ana: BlockingScope
) -> None:
    life(ana)
    bob = memory.scope("bob")
    for _ in range(2):
        bob.import_(list(ana.export()))
    assert Counter(line.event for line in bob.history()) == {
        "ADD": 4,
        "UPDATE": 2,
        "TTL": 1,
        "RESTORE": 1,
    }
    assert memory.check() == []


def test_words_that_were_forgotten_do_not_come_back_with_a_history(
    memory: Blocking, ana: BlockingScope
) -> None:
    id = life(ana)
    records = list(ana.export())
    bob = memory.scope("bob")
    (his,) = bob.remember("The kettle is in the blue cupboard.", pinned=True).ids
    bob.forget(his)
    bob.import_([record for record in records if record["record_type"] == "history"])
    assert "blue" not in str([line.meta for line in bob.history(id)])
    assert "blue" in str([line.meta for line in ana.history(id)])


@pytest.mark.parametrize(
    "wrong", [{"id": "7"}, {"event": "GUESSED"}, {"at": "soon"}, {"memory_id": None}]
)
def test_an_entry_that_is_none_is_refused(ana: BlockingScope, wrong: dict[str, Any]) -> None:
    ana.remember("The kettle is in the blue cupboard.")
    (entry,) = (record for record in ana.export() if record["record_type"] == "history")
    with pytest.raises(InvalidInput, match="Record 1"):
        ana.import_([{"record_type": "history", "data": {**entry["data"], **wrong}}])


def test_writers_at_the_same_time_make_one_chain(place: str) -> None:
    async def together() -> list[str]:
        async with (
            memorist.aio.open(place, embedder="hashing") as one,
            memorist.aio.open(place) as two,
        ):
            scopes = [memory.scope("ana") for memory in (one, two)]
            await asyncio.gather(
                *(scopes[n % 2].remember(f"Box {n} holds number {n * 7}.") for n in range(20))
            )
            return await one.check()

    assert asyncio.run(together()) == []


@pytest.mark.spec("IMP-106", "IMP-107", "IMP-108", "IMP-109", "IMP-111")
def test_the_hot_path_tells_what_it_decided_and_how_near_the_nearest_was(
    ana: BlockingScope,
) -> None:
    (id,) = ana.remember("My favourite tea is Earl Grey.", category="preference").ids
    lines = ana.events(node="hotpath")
    assert {(line.op, line.status) for line in lines} == {
        ("classify", "ok"),
        ("search", "ok"),
        ("create", "ok"),
    }
    assert {line.sim for line in lines} == {None}, "there was nothing to compare it with"
    assert [
        (line.memory_id, line.category, line.thread) for line in lines if line.op == "create"
    ] == [(id, "preference", "t")]
    assert ana.remember("My favourite tea is Earl Grey!").outcomes[0].status == "merged"
    (near,) = (line for line in ana.events(node="hotpath", op="search") if line.sim is not None)
    assert near.sim == pytest.approx(1, abs=0.05)
    assert len(ana.events(op="merge")) == 1


@pytest.mark.spec("IMP-109", "IMP-111")
def test_a_search_tells_the_score_of_the_best_neighbor(
    memory: Blocking, ana: BlockingScope
) -> None:
    said = [
        "The shelf in the hall of the old house holds red books.",
        "The shelf in the attic of the old house holds green jars.",
        "The shelf in the hall of the old barn holds green tools.",
    ]
    for text in said:
        assert ana.remember(text, kind="semantic").count("created") == 1
    vectors = memory._loop.run(Hashing().encode_batch(said))
    first, second = (float(vectors[2] @ vectors[n]) for n in (0, 1))
    assert 0.74 < first < second < 0.75
    assert ana.events(op="search")[0].sim == pytest.approx(second, abs=1e-5)


EVERYTHING = {
    ("hotpath", "classify", "ok"): 3,
    ("hotpath", "classify", "skipped"): 1,
    ("hotpath", "search", "ok"): 4,
    ("hotpath", "create", "ok"): 2,
    ("hotpath", "merge", "ok"): 1,
    ("hotpath", "update", "ok"): 2,
    ("hotpath", "pin", "ok"): 1,
    ("hotpath", "delete", "ok"): 1,
    ("hotpath", "embed", "error"): 1,
    ("episodic", "create", "ok"): 1,
    ("context", "search", "ok"): 1,
    ("worker", "ttl", "ok"): 1,
    ("worker", "embed", "ok"): 1,
}


@pytest.mark.spec("IMP-106", "IMP-107", "IMP-108", "IMP-111", "IMP-116")
def test_each_event_names_its_part_its_operation_and_its_status(
    memory: Blocking, ana: BlockingScope
) -> None:
    id = life(ana)  # two facts; one is edited, pinned, put away and restored
    ana.remember("The bicycle needs a new chain before summer!")
    ana.forget(id)
    ana.remember("The kettle is in the green cupboard.")
    model, memory._inner.ctx.embedder = memory._inner.ctx.embedder, Broken()
    memory.scope("ana", session="s").remember(
        [{"role": "user", "content": "We walked along the river."}]
    )
    memory._inner.ctx.embedder = model
    memory.run_jobs(only=["embed"])
    ana.recall("Where is the bicycle?")
    wait(memory)
    assert (
        Counter((line.node, line.op, line.status) for line in ana.events(limit=1000)) == EVERYTHING
    )
    assert {
        (each.node, each.op, each.status): each.count for each in ana.event_counts()
    } == EVERYTHING


@pytest.mark.spec("IMP-112", "IMP-113")
def test_turns_and_questions_tell_where_they_happened(memory: Blocking) -> None:
    ana = memory.scope("ana", session="s")
    ana.remember([{"role": "user", "content": "We walked along the river at dusk.", "id": "m1"}])
    kinds = {m.kind for m in ana.list()}
    assert kinds == {"episodic"}
    assert [(line.node, line.op) for line in ana.events()] == [("episodic", "create")]
    ana.remember([{"role": "user", "content": "We walked along the river at dusk.", "id": "m2"}])
    assert [(line.node, line.op) for line in ana.events()] == [
        ("episodic", "merge"),
        ("episodic", "create"),
    ]
    answer = ana.recall("Where did we walk?")
    wait(memory)
    (asked,) = ana.events(node="context")
    assert (asked.op, asked.status, asked.thread) == ("search", "ok", "s")
    assert asked.sim is None or 0 <= asked.sim <= 1
    assert asked.sim == pytest.approx(answer.hits[0].relevance, abs=1e-6)


def test_a_question_tells_the_relevance_of_its_best_answer(
    memory: Blocking, ana: BlockingScope
) -> None:
    ana.remember("The kettle is in the green cupboard.")
    ana.remember("The bicycle stands in the green shed.")
    answer = ana.recall("Is the kettle in the green cupboard?")
    wait(memory)
    best, other = (hit.relevance for hit in answer.hits)
    assert best > other + 0.1
    assert ana.events(node="context")[0].sim == pytest.approx(best, abs=1e-6)


def wait(memory: Blocking) -> None:
    """Until what is written off the hot path is written."""
    memory._loop.run(memory._inner.ctx.access_log.flush())


@pytest.mark.spec("IMP-108", "IMP-111")
def test_what_is_not_kept_is_told_as_skipped(ana: BlockingScope) -> None:
    tea = "My favourite tea is Earl Grey."
    ana.forget(ana.remember(tea).ids[0])
    assert ana.remember(tea).count("refused") == 1
    assert [line.status for line in ana.events(op="classify")] == ["skipped", "ok"]


@pytest.mark.spec("IMP-108")
def test_what_is_refused_at_the_door_is_told_as_skipped(
    memory: Blocking, ana: BlockingScope
) -> None:
    ana.remember("My favourite tea is Earl Grey.")
    assert ana.remember("The key is AKIAIOSFODNN7EXAMPLE, use it.").count("refused") == 1
    wait(memory)
    assert [(line.status, line.thread) for line in ana.events(op="classify")] == [
        ("skipped", "t"),
        ("ok", "t"),
    ]


class Broken(Hashing):
    """A model that does not answer."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        raise EmbedderUnavailable


@pytest.mark.spec("IMP-108", "CLK-86")
def test_a_model_that_fails_leaves_an_error(memory: Blocking, ana: BlockingScope) -> None:
    memory._inner.ctx.embedder = Broken()
    ana.remember("My favourite tea is Earl Grey.")
    ana.remember([{"role": "user", "content": "We walked along the river.", "session": "s"}])
    assert [line.op for line in ana.events() if line.status == "error"] == ["embed", "embed"]
    memory._inner.ctx.embedder = None
    ana.remember("The bicycle needs a new chain before summer.")
    assert len([line for line in ana.events() if line.status == "error"]) == 2, (
        "no model is no failure"
    )


@pytest.mark.spec("IMP-114", "IMP-116")
def test_what_changed_and_when_can_be_counted(ana: BlockingScope) -> None:
    id = life(ana)
    ana.forget(id)
    counts = Counter({(tally.node, tally.op): tally.count for tally in ana.event_counts()})
    assert counts["worker", "ttl"] == 1
    assert sum(count for (_, op), count in counts.items() if op == "create") == 2
    assert sum(count for (_, op), count in counts.items() if op == "delete") == 1
    assert {tally.day for tally in ana.event_counts()} <= {
        f"{datetime.now(UTC) - timedelta(days=back):%Y-%m-%d}" for back in (0, 1)
    }
    assert ana.event_counts(days=0) == []


@pytest.mark.spec("IMP-114")
def test_a_worker_tells_what_it_merged_and_what_it_put_away(place: str) -> None:
    with memorist.open(place, embedder="hashing", ttl_days={"*": 7}) as memory:
        for number in range(2):
            said = {
                "role": "user",
                "content": f"I saw {number + 2} herons in Porto on {number + 3} May.",
            }
            memory.scope("ana", session=f"s{number}").remember([said])
        ana = memory.scope("ana")
        for text in ("I get up at 5 every morning.", "I get up at 5 every morning!"):
            ana.remember(text, policy="milton", importance=0.1)  # which keeps both
        assert ana.compress(threshold=1, sessions=1).groups == 1
        memory.run_jobs(only=["consolidate"])
        memory._inner.ctx.clock = lambda: datetime.now(UTC) + timedelta(days=8)
        assert ana.purge().expired
        told = Counter((line.op, line.status) for line in ana.events(node="worker", limit=1000))
    assert told["merge", "ok"] == 2, "the sessions, and what was told twice"
    assert told["ttl", "ok"] >= 1


@pytest.mark.spec("IMP-115")
def test_events_hold_no_words_and_are_of_one_person(
    memory: Blocking, ana: BlockingScope, place: str
) -> None:
    ana.remember("My favourite tea is Earl Grey.")
    assert memory.scope("bob").events() == []
    assert "Grey" not in str(tampered(place, "SELECT * FROM events"))


def test_a_write_that_fails_leaves_neither_history_nor_events(
    memory: Blocking, ana: BlockingScope
) -> None:
    id = life(ana)
    before = ana.history(), ana.events(), ana.delta(0)
    with pytest.raises(memorist.MemoristError):
        ana.edit(id, importance=7.0)
    with pytest.raises(memorist.MemoristError):
        ana.restore(id)
    assert (ana.history(), ana.events(), ana.delta(0)) == before


def test_earlier_versions_are_hidden_and_restored_with_their_memory(ana: BlockingScope) -> None:
    (id,) = ana.remember("The kettle is in the blue cupboard.").ids
    ana.edit(id, "The kettle is in the green cupboard.")
    ana.forget(id, keep_days=3)
    assert [each.id for each in ana.list({"states": ("soft_deleted",)})] == [id]
    (version,) = [entry.old_ref for entry in ana.history(id) if entry.old_ref]
    with pytest.raises(InvalidInput, match="an earlier version of"):
        ana.restore(version)
    ana.restore(id)
    assert [each.text for each in ana.list()] == ["The kettle is in the green cupboard."]
    assert ana.get(version).state == "superseded"


def test_a_replaced_memory_that_was_hidden_by_itself_comes_back_as_replaced(
    ana: BlockingScope,
) -> None:
    (id,) = ana.remember("The kettle is in the blue cupboard.").ids
    ana.edit(id, "The kettle is in the green cupboard.")
    (version,) = [entry.old_ref for entry in ana.history(id) if entry.old_ref]
    ana.forget(version, keep_days=3)
    assert [each.id for each in ana.list({"states": ("soft_deleted",)})] == [version]
    assert ana.restore(version).state == "superseded"
