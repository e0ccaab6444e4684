"""Random lives of a memory, lived twice: by the real thing and by a plain model of what it promises."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import memorist
from memorist.errors import InvalidInput, NotFound, RevisionConflict
from memorist.types import Filter

START = datetime(2026, 1, 1, tzinfo=UTC)
UNUSED, KEPT, TOMBSTONE = timedelta(days=60), timedelta(days=30), timedelta(hours=24)
TEXTS = (
    "zorbel quintam mavrik plunth", "drenvol hustic apalme yorrin", "cranto bivelle simmuk oastri",
    "wexley fandrop ulminto keshar", "jostram pellive gornath ibbesk",
)  # fmt: skip
TRACKED = ("text", "valid_from", "pinned", "manually_saved", "repeats", "state", "purge_at")


@dataclass
class Row:
    """What the model knows of one memory."""

    text: str
    base: float
    valid_from: datetime
    changed: datetime
    pinned: bool = False
    manually_saved: bool = False
    repeats: int = 0
    state: str = "active"
    purge_at: datetime | None = None
    texts: set[str] = field(default_factory=set)  # all that it ever said

    @property
    def importance(self) -> float:
        return min(
            1.0, self.base + (min(0.3, 0.1 * math.log2(1 + self.repeats)) if self.repeats else 0.0)
        )

    @property
    def is_kept(self) -> bool:
        return self.pinned or self.manually_saved


Changed = dict[str, tuple[Any, Any]]  # the fields of one memory: before and after


class Life(RuleBasedStateMachine):
    """The same things happen to both."""

    place: ClassVar[str | None] = None  # the address of a database; otherwise a file of its own

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.user, self.now = uuid4().hex, START
        self.rows: dict[str, Row] = {}
        self.buried: dict[str, datetime | None] = {}
        self.operations: dict[str, dict[str, Changed]] = {}
        self.open()

    def open(self) -> None:
        where = self.place or self.folder / "memory.db"
        self.memory = memorist.open(where, embedder="hashing", ttl_level=6, state_dir=self.folder)
        self.memory._inner.ctx.clock = lambda: self.now
        self.mine = self.memory.scope(self.user)

    def teardown(self) -> None:
        try:
            self.recall_knows_the_same()
            assert self.memory.check() == []
        finally:
            self.memory.close()
            shutil.rmtree(self.folder)

    def recall_knows_the_same(self) -> None:
        active = {id: row.text for id, row in self.rows.items() if row.state == "active"}
        for text in TEXTS:
            found = {hit.memory.id: hit.memory.text for hit in self.mine.recall(text, limit=50)}
            assert found.items() <= active.items()
            assert (text in found.values()) == (text in active.values())

    # What the model does

    def put(self, id: str, *, restores: bool = False, **fields: Any) -> Changed:
        """Change a memory; the text of one that is wanted is no longer forbidden."""
        row = self.rows[id]
        changed = {
            name: (getattr(row, name), value)
            for name, value in fields.items()
            if getattr(row, name) != value
        }
        importance = row.importance
        for name, value in fields.items():
            setattr(row, name, value)
        if row.importance != importance:
            changed["importance"] = (importance, row.importance)
        row.changed = self.now
        row.texts.add(row.text)
        if row.state == "active" and (row.is_kept or restores):
            self.buried.pop(row.text, None)
        return changed

    def bury(self, texts: set[str], until: datetime | None) -> None:
        for text in texts:
            old = self.buried.get(text, self.now)
            self.buried[text] = None if old is None or until is None else max(old, until)

    def is_buried(self, text: str) -> bool:
        until = self.buried.get(text, self.now)
        return until is None or until > self.now

    def note(self, changed: dict[str, Changed]) -> None:
        """Remember what the last operation did, under the name that the history gives it."""
        names = {self.mine.history(id, limit=1)[0].meta["operation"] for id in changed}
        assert len(names) == 1
        self.operations[names.pop()] = changed

    def erase(self, id: str) -> None:
        del self.rows[id]
        for changed in self.operations.values():
            changed.pop(id, None)

    def one(self, number: int) -> str:
        return sorted(self.rows)[number % len(self.rows)]

    # What happens

    @rule(seconds=st.sampled_from([1, 3600, 90_000]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(days=st.sampled_from([0, 29, 31, 61]))
    def purge(self, days: int) -> None:
        self.now += timedelta(days=days, seconds=1)
        done = self.mine.purge()
        due = {
            id
            for id, row in self.rows.items()
            if row.purge_at is not None and row.purge_at < self.now
        }
        unused = {
            id for id, row in self.rows.items()
            if row.state == "active" and not row.is_kept and row.changed < self.now - UNUSED
        }  # fmt: skip
        assert (set(done.purged) & set(self.rows), set(done.expired)) == (due, unused)
        gone = {id: self.put(id, state="soft_deleted", purge_at=self.now + KEPT) for id in unused}
        if gone:
            self.note(gone)
        for id in due:
            self.erase(id)

    @rule()
    def restart(self) -> None:
        self.memory.close()
        self.open()

    @rule(text=st.sampled_from(TEXTS), how=st.sampled_from(["", "", "manually_saved", "pinned"]))
    def remember(self, text: str, how: str) -> None:
        self.now += timedelta(seconds=1)
        (outcome,) = self.mine.remember(text, **({how: True} if how else {})).outcomes
        marks: dict[str, Any] = {}
        if how:  # who pins, saves on purpose
            marks = {how: True, "manually_saved": True}
        if not how and self.is_buried(text):
            assert outcome.status == "refused"
            return
        (id,) = outcome.ids
        same = {
            each for each, row in self.rows.items() if row.text == text and row.state == "active"
        }
        if same:
            assert (outcome.status, id in same) == ("merged", True)
            row = self.rows[id]
            if how and not row.is_kept:  # saved, it becomes more important
                marks["base"] = min(1.0, row.base + 0.5)
            self.note({id: self.put(id, repeats=row.repeats + 1, **marks)})
            return
        assert outcome.status == "created"
        made = self.mine.get(id)
        self.rows[id] = Row(text, made.base_importance, self.now, self.now)
        self.put(id, **marks)
        self.note({id: {"state": ("soft_deleted", "active"), "purge_at": ("later", None)}})

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 99), text=st.sampled_from(TEXTS))
    def edit(self, number: int, text: str) -> None:
        id = self.one(number)
        self.now += timedelta(seconds=1)
        if self.rows[id].state == "soft_deleted":
            with pytest.raises(InvalidInput):
                self.mine.edit(id, text)
            return
        self.mine.edit(id, text)
        self.note({id: self.put(id, text=text, valid_from=self.now)})

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 99), pinned=st.booleans())
    def pin(self, number: int, pinned: bool) -> None:
        id = self.one(number)
        self.now += timedelta(seconds=1)
        (self.mine.pin if pinned else self.mine.unpin)(id)
        row = self.rows[id]
        marks: dict[str, Any] = {"manually_saved": True} if pinned else {}
        if pinned and not row.is_kept:
            marks["base"] = min(1.0, row.importance + 0.5)
        self.note({id: self.put(id, pinned=pinned, **marks)})

    @precondition(lambda self: self.rows)
    @rule(
        number=st.integers(0, 99), keep_days=st.sampled_from([0, 0, 2]), never_again=st.booleans()
    )
    def forget(self, number: int, keep_days: int, never_again: bool) -> None:
        id = self.one(number)
        self.now += timedelta(seconds=1)
        self.mine.forget(id, keep_days=keep_days, never_again=never_again)
        texts = set(self.rows[id].texts)
        until = None if never_again else self.now + max(TOMBSTONE, timedelta(days=keep_days))
        if keep_days:
            self.note(
                {
                    id: self.put(
                        id, state="soft_deleted", purge_at=self.now + timedelta(days=keep_days)
                    )
                }
            )
        else:
            self.erase(id)
        self.bury(texts, until)

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 99))
    def restore(self, number: int) -> None:
        id = self.one(number)
        self.now += timedelta(seconds=1)
        if self.rows[id].state == "active":
            with pytest.raises(InvalidInput):
                self.mine.restore(id)
            return
        self.mine.restore(id)
        self.note({id: self.put(id, restores=True, state="active", purge_at=None)})

    @precondition(lambda self: self.operations)
    @rule(number=st.integers(0, 99), back=st.booleans())
    def undo(self, number: int, back: bool) -> None:
        names = list(self.operations)
        name = names[-1 - number % min(3, len(names))] if back else names[number % len(names)]
        changed = self.operations[name]
        self.now += timedelta(seconds=1)
        if not changed:
            with pytest.raises(NotFound):
                self.mine.undo(name)
            return
        current = {
            (id, n): getattr(self.rows[id], n) for id, fields in changed.items() for n in fields
        }
        if any(
            current[id, n] != after
            for id, fields in changed.items()
            for n, (_, after) in fields.items()
        ):
            with pytest.raises(RevisionConflict):
                self.mine.undo(name)
            return
        self.mine.undo(name)
        self.note({id: self.taken_back(id, fields) for id, fields in changed.items()})

    def taken_back(self, id: str, fields: Changed) -> Changed:
        before = {
            name: self.now + KEPT if value == "later" else value
            for name, (value, _) in fields.items()
            if name != "importance"  # it follows from the others
        }
        hidden = self.rows[id].state != "active"
        return self.put(id, restores=hidden and before.get("state") == "active", **before)

    @invariant()
    def both_know_the_same(self) -> None:
        states = ("active", "compressed", "archived", "soft_deleted")
        found = {
            m.id: m
            for m in self.mine.list(Filter(states=states), limit=1000)
            if m.superseded_by is None
        }
        real = {
            id: (
                m.text,
                m.valid_from,
                m.pinned,
                m.manually_saved,
                m.repeat_count,
                m.state,
                m.purge_at,
            )
            for id, m in found.items()
        }
        assert real == {
            id: tuple(getattr(row, name) for name in TRACKED) for id, row in self.rows.items()
        }
        assert {id: m.importance for id, m in found.items()} == pytest.approx(
            {id: row.importance for id, row in self.rows.items()}
        )


def lives(machine: type[Life], sequences: int, steps: int, *, repeatable: bool = True) -> None:
    """Live random lives: the same ones in each run of the suite, new ones in the slow test."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(
        max_examples=sequences,
        stateful_step_count=steps,
        deadline=None,
        derandomize=repeatable,
        suppress_health_check=quiet,
    )
    run_state_machine_as_test(machine, settings=chosen)


def test_random_lives_in_a_file_hold_what_is_promised() -> None:
    lives(Life, 25, 25)


def test_random_lives_in_postgresql_hold_what_is_promised(ready_database: str) -> None:
    lives(type("There", (Life,), {"place": ready_database}), 10, 20)


@pytest.mark.slow
def test_two_thousand_random_lives_hold_what_is_promised() -> None:
    lives(Life, 2000, 20, repeatable=False)
