"""The scope held in the process: however it got there, it equals the store."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from memorist import index
from memorist.errors import StoreDamaged
from memorist.index import Snapshot, SnapshotCache
from memorist.index.arrays import DTYPES, Columns, Matrix, _element_type, products
from memorist.storage import Forget, Save
from memorist.storage.store import Store
from memorist.storage.tasks import Embedding
from memorist.text import tokens
from memorist.text.clock import new_id
from memorist.types import Labels, Memory, Scope
from stores import open_sqlite, write

NOW = datetime(2026, 5, 31, 14, 0, tzinfo=UTC)
DAY = timedelta(days=1)
ANA, BOB = Scope(user="ana"), Scope(user="bob")
MODEL, WORDS = "four", "tea milk water blue green ship train lisbon porto october".split()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = await open_sqlite(":memory:")
    yield opened
    await opened.close()


def memory(text: str, **given: Any) -> Memory:
    usual = {
        "id": new_id(),
        "scope": ANA,
        "kind": "episodic",
        "created_at": NOW,
        "updated_at": NOW,
        "valid_from": NOW,
    }
    return Memory(**{**usual, **given}, text=text)


async def apply(store: Store, *changes: Any, scope: Scope = ANA) -> None:
    await write(store, scope, *changes)


def held(limit_bytes: int = 1 << 30) -> SnapshotCache:
    return SnapshotCache(model=MODEL, dimensions=4, limit_bytes=limit_bytes)


async def fresh(store: Store, scope: Scope = ANA) -> Snapshot:
    return await held().current(scope, store)


def seen(snapshot: Snapshot) -> dict[int, tuple[Any, ...]]:
    """What a snapshot says of each row that is present, whatever its position or code."""
    names = {
        column: {code: name for name, code in codes.items()}
        for column, codes in snapshot.codes.items()
    }
    columns = [f.name for f in fields(Columns) if f.name not in names]
    vectors = snapshot.vectors(np.arange(snapshot.n))
    return {
        int(snapshot.row[i]): (
            *(getattr(snapshot, column)[i].item() for column in columns),
            *(names[column].get(int(getattr(snapshot, column)[i])) for column in names),
            vectors[i].tobytes(),
            bool(snapshot.alive[i]),
        )
        for i in np.flatnonzero(snapshot.present)
    }


def postings(snapshot: Snapshot, word: str) -> dict[int, float]:
    term = tokens.term_id(tokens.analyze(word, "english")[0])
    ((positions, counts),) = snapshot.postings([term])
    return {int(snapshot.row[p]): float(c) for p, c in zip(positions, counts, strict=True)}


class Life:
    """Random writes to a scope, repeatable by their seed."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.alive: dict[str, Memory] = {}

    def text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 9)))

    async def step(self) -> None:
        kind = self.random.choice("put put put edit forget trim embed many".split())
        some = self.random.choice(list(self.alive.values())) if self.alive else None
        if some is None or kind in ("put", "many"):
            made = [self.made() for _ in range(40 if kind == "many" else 1)]
            self.alive |= {each.id: each for each in made}
            vector = self.random.choice([None, [1, 0, 0, 0]])
            await apply(
                self.store,
                *(Save(memory=m, event="created", vector=vector, model=MODEL) for m in made),
            )
        elif kind in ("edit", "trim"):
            state = self.random.choice(["soft_deleted", "active"])
            change = {"text": self.text()} if kind == "edit" else {"state": state}
            self.alive[some.id] = replace(
                some, **change, labels=Labels(session=self.random.choice("xyz"))
            )
            await apply(self.store, Save(memory=self.alive[some.id], event="updated"))
        elif kind == "embed":
            await apply(self.store, Embedding(memory_id=some.id, model=MODEL, vector=[0, 1, 0, 0]))
        else:
            del self.alive[some.id]
            await apply(self.store, Forget(memory_id=some.id, at=NOW, until=None))

    def made(self) -> Memory:
        labels = Labels(
            session=self.random.choice([None, "a", "b"]), channel=self.random.choice([None, "c"])
        )
        speaker = self.random.choice([None, "Ana", f"guest {self.random.randint(1, 9)}"])
        simhash = self.random.getrandbits(64)
        return memory(
            self.text(),
            labels=labels,
            speaker=speaker,
            simhash=simhash,
            importance=self.random.random(),
        )


@pytest.mark.parametrize("seed", range(6))
async def test_a_snapshot_kept_up_to_date_equals_one_read_anew(store: Store, seed: int) -> None:
    life, kept = Life(store, seed), held()
    for _ in range(25):
        for _ in range(life.random.randint(1, 4)):
            await life.step()
        now, anew = await kept.current(ANA, store), await fresh(store)
        assert seen(now) == seen(anew)
        assert now.count == anew.count
        assert now.mean_length == pytest.approx(anew.mean_length)
        assert postings(now, "tea") == postings(anew, "tea")


@pytest.mark.parametrize("block", [1, 3, 7])
async def test_many_pages_give_the_same_snapshot(
    store: Store, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    life = Life(store, block)
    for _ in range(30):
        await life.step()
    whole = await fresh(store)
    monkeypatch.setattr(index, "PAGE", block)
    assert seen(await fresh(store)) == seen(whole)


async def test_writes_between_two_pages_are_not_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [memory(f"tea {i}") for i in range(9)]
    await apply(store, *(Save(memory=each, event="created") for each in made))
    monkeypatch.setattr(index, "PAGE", 4)

    class Busy:
        """The store, with somebody writing before each page but the first."""

        pages = 0

        async def changed_since(self, *args: Any, **given: Any) -> Any:
            if self.pages:
                late = Save(memory=replace(made[8], pinned=True), event="updated")
                early = Save(memory=replace(made[0], text="milk"), event="updated")
                await apply(
                    store, early, late, Forget(memory_id=made[self.pages].id, at=NOW, until=None)
                )
            self.pages += 1
            return await store.changed_since(*args, **given)

    kept = held()
    await kept.current(ANA, Busy())  # type: ignore[arg-type]
    assert seen(await kept.current(ANA, store)) == seen(await fresh(store))


async def test_a_snapshot_in_use_does_not_change(store: Store) -> None:
    kept, first = held(), memory("tea", speaker="Ana")
    await apply(store, Save(memory=first, event="created"))
    before = await kept.current(ANA, store)
    told = seen(before), dict(before.codes["speaker"])
    await apply(store, Save(memory=memory("milk", speaker="Bo"), event="created"))
    await apply(store, Forget(memory_id=first.id, at=NOW, until=None))
    after = await kept.current(ANA, store)
    assert (seen(before), dict(before.codes["speaker"])) == told
    assert (before.code("speaker", "Bo"), after.code("speaker", "Bo")) == (-2, 1)


@pytest.mark.parametrize("seed", range(5))
async def test_postings_equal_a_plain_count(store: Store, seed: int) -> None:
    life = Life(store, seed)
    for _ in range(60):
        await life.step()
    now = await fresh(store)
    rows = (await store.changed_since(ANA, 0, model=MODEL, limit=10_000)).rows
    for word in WORDS:
        term = tokens.term_id(tokens.analyze(word, "english")[0])
        plain = {row.row: Counter(dict(zip(*map(np.ndarray.tolist, tokens.unpack(row.terms)), strict=True)))[term]
                 for row in rows if row.state == "active"}  # fmt: skip
        assert postings(now, word) == {row: count for row, count in plain.items() if count}


async def test_the_length_of_a_text_is_the_number_of_its_terms(store: Store) -> None:
    await apply(store, Save(memory=memory("tea tea blue ship"), event="created"))
    assert (await fresh(store)).length.tolist() == [4]


async def test_similarity_is_the_cosine_and_nothing_without_a_vector(store: Store) -> None:
    await apply(
        store,
        Save(memory=memory("a"), event="created", vector=[1, 0, 0, 0], model=MODEL),
        Save(memory=memory("b"), event="created", vector=[0.6, 0.8, 0, 0], model=MODEL),
        Save(memory=memory("c"), event="created", vector=[1, 0], model="other"),
    )
    now = await fresh(store)
    assert now.similarity(np.array([1, 0, 0, 0], np.float32)).tolist() == pytest.approx([1, 0.6, 0])
    assert now.embedded.tolist() == [True, True, False]
    assert now.centroid == pytest.approx([0.8, 0.4, 0, 0])


async def test_as_of_shows_what_held_then(store: Store) -> None:
    old = memory("lisbon", state="superseded", valid_from=NOW - 9 * DAY, valid_to=NOW - DAY)
    new = memory("porto", valid_from=NOW - DAY)
    trimmed = memory("milk", valid_from=NOW - 9 * DAY, state="archived")
    await apply(store, *(Save(memory=each, event="created") for each in (old, new, trimmed)))
    now = await fresh(store)
    views = {days: list(postings(now.view(("active",), NOW - days * DAY), word)) != []
             for days, word in ((0, "porto"), (1, "porto"), (2, "lisbon"), (10, "lisbon"))}  # fmt: skip
    assert views == {0: True, 1: True, 2: True, 10: False}
    assert now.view(("active",), NOW - 2 * DAY).count == 1
    assert now.view(("archived",)).count == 1
    assert now.count == 1


async def test_the_longest_unused_scope_goes_when_there_are_too_many(store: Store) -> None:
    scopes = [Scope(user=f"user {i}") for i in range(5)]
    for scope in scopes:
        many = [replace(memory(f"tea {i}"), scope=scope) for i in range(50)]
        await apply(store, *(Save(memory=each, event="created") for each in many), scope=scope)
    size = (await fresh(store, scopes[0])).size
    kept = held(limit_bytes=3 * size + size // 2)
    for scope in (*scopes, scopes[2]):
        await kept.current(scope, store)
    assert list(kept._held) == [scopes[3], scopes[4], scopes[2]]
    assert kept._size == sum(snapshot.size for snapshot in kept._held.values())


async def test_the_bytes_held_are_counted_as_scopes_grow_and_go(store: Store) -> None:
    kept = held()
    for number in range(30):
        await apply(
            store,
            Save(memory=memory(f"tea {number}"), event="created", vector=[1, 0, 0, 0], model=MODEL),
        )
        await kept.current(ANA, store)
        assert kept._size == sum(snapshot.size for snapshot in kept._held.values())
    kept.drop(ANA)
    assert kept._size == 0


async def test_one_scope_is_kept_however_large_it_is(store: Store) -> None:
    await apply(store, Save(memory=memory("tea"), event="created"))
    kept = held(limit_bytes=1)
    await kept.current(ANA, store)
    assert await kept.current(ANA, store) is kept._held[ANA]


async def test_a_snapshot_of_mostly_replaced_rows_begins_anew(store: Store) -> None:
    kept, one = held(), memory("tea")
    for number in range(4):
        many = [
            Save(memory=replace(one, id=f"m{i}", text=f"tea {number}"), event="created")
            for i in range(500)
        ]
        await apply(store, *many)
        await kept.current(ANA, store)
    await apply(store, Save(memory=memory("milk"), event="created"))
    assert (await kept.current(ANA, store)).n == 501


async def test_a_place_in_a_session_may_be_any_number(store: Store) -> None:
    made = [memory(f"tea {n}", sequence=n) for n in (-(2**40), 0, 2**31, 2**40)]
    await apply(store, *(Save(memory=each, event="created") for each in made))
    assert (await fresh(store)).sequence.tolist() == [-1, 0, 2**31 - 1, 2**31 - 1]


async def test_an_altered_state_is_told(store: Store) -> None:
    await apply(store, Save(memory=memory("tea"), event="created"))
    async with store.database.transaction() as connection:
        await connection.rows("UPDATE memories SET state = 'actiwe'")
    with pytest.raises(StoreDamaged, match="actiwe"):
        await fresh(store)


@pytest.mark.parametrize("columns", [1, 4, 5])
def test_few_and_many_vectors_have_the_same_products(columns: int) -> None:
    chance = np.random.default_rng(columns)
    rows, asked = chance.random((7, 3), np.float32), chance.random((3, columns), np.float32)
    first = Matrix(3, 9).add(0, rows).rows[:5]

    assert np.allclose(products(first, asked), rows[:5] @ asked)
    assert np.allclose(products(first, asked[:, 0]), rows[:5] @ asked[:, 0])


def test_the_element_type_of_a_column_is_found_however_deeply_numpy_nests_it() -> None:
    of_2_4 = np.ndarray[tuple[int, ...], np.dtype[np.uint32]]
    of_2_5 = list[np.uint32]  # an alias with the element type as its only argument
    assert [_element_type(each) for each in (of_2_4, of_2_5)] == [np.uint32, np.uint32]
    assert (DTYPES["row"], DTYPES["pinned"], DTYPES["simhash"]) == (np.int64, np.bool_, np.uint64)


def test_rows_of_zeros_take_no_memory_and_vectors_after_them_are_kept() -> None:
    matrix = Matrix(2).add(0, np.zeros((3, 2), np.float32), expected=10)
    filled = matrix.add(3, np.array([[0.6, 0.8]], np.float32))
    assert filled is matrix
    later = filled.add(4, np.zeros((2, 2), np.float32)).add(6, np.ones((9, 2), np.float32))
    assert later is not matrix
    assert (
        later.rows[:6].tolist()
        == [[0, 0]] * 3 + [[np.float32(0.6), np.float32(0.8)]] + [[0, 0]] * 2
    )
    assert later.rows[6:15].tolist() == [[1, 1]] * 9
    branch = matrix.add(4, np.ones((1, 2), np.float32))  # others have used the room since
    assert branch is not matrix
    assert (branch.rows[3:5].tolist(), matrix.rows[4].tolist()) == (
        [[np.float32(0.6), np.float32(0.8)], [1, 1]],
        [0, 0],
    )


GROWS = """
import resource
import numpy as np
from memorist.index.arrays import Matrix
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
matrix = Matrix(384)
for n in range(0, 300_000, 1000):
    matrix = matrix.add(n, np.zeros((1000, 384), np.float32))
print(matrix.rows.nbytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts kilobytes")
def test_a_large_scope_without_vectors_stays_small() -> None:
    command = [sys.executable, "-c", GROWS]  # in a process of its own: memory of others is reused
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    size, grown = map(int, done.stdout.split())
    assert size > 460_000_000
    assert grown < 50_000  # kilobytes
