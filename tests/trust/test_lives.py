"""Random lives of a memory that holds a word: merges, skips, outages, imports, migrations, other clients.

After everything that names the word was forgotten, no byte of any file holds it.

`LIVES=1000 FIRST=0 pytest -m slow tests/trust/test_lives.py` tries that many; a failure names the seeds.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist.dialects.milton import Milton
from memorist.dialects.vault import Vault
from memorist.errors import MemoristError
from memorist.storage import erase
from memorist.storage.database import EVERY
from memorist.types import STATES, Draft, Filter
from trust.expected import require
from trust.test_forgetting import (
    EVERYTHING,
    _file_of_version_8,
    back,
    files_with,
    settings_in,
    store_away,
)

SENTENCES = (
    "I live in Quaggaxyzville.", "I moved to Quaggaxyzburg.", "My doctor gave me Quaggaxyz for my heart.",
    "Remember that my doctor gave me Quaggaxyz for the heart.", "My favorite tea is Quaggaxyz.",
    "I have two Quaggaxyz cats.", "I have 2 Quaggaxyz cats, and they sleep a lot.",
    "The meeting with Quaggaxyz moved to Friday at ten.", "The meeting with Quaggaxyz moved to Monday at four.",
    "So my favorite tea is Quaggaxyz [1].", "I have two Quaggaxyz cats. My dog is called Quaggaxyz, too.",
    "Zoe\u0308 Quaggaxyz is my dentist in Ko\u0308ln.",
)  # fmt: skip


class Life:
    """A memory to which random things happen. Each method without an underscore is one of them."""

    def __init__(self, memory: Any, other: Any, folder: Path, chance: random.Random) -> None:
        self._memory, self._other, self._folder, self._chance = memory, other, folder, chance
        self._count = 0
        self._exported: list[Any] = []

    def _live(self, steps: int) -> None:
        names = sorted(name for name in vars(Life) if not name.startswith("_"))
        for self._count in range(steps):
            # Two clients of one store, as two processes would be.
            client = self._chance.choice((self._memory, self._memory, self._other))
            self._ana = client.scope("ana", session=self._chance.choice((None, "s1", "s2")))
            self._plain = client.scope("ana")
            with suppress(MemoristError, IndexError):  # not everything is possible at any time
                getattr(self, self._chance.choice(names))()

    def _sentence(self) -> str:
        return self._chance.choice(SENTENCES)

    def _some(self) -> str:
        """Return the id of a memory whose text holds the word. Raises IndexError if there is none."""
        found = self._ana.list(EVERYTHING, limit=500)
        return str(
            self._chance.choice([memory.id for memory in found if "Quaggaxyz" in memory.text])
        )

    def _run(self, work: Any) -> Any:
        return self._memory._loop.run(work)

    def say(self) -> None:
        self._plain.remember(self._sentence())

    def say_in_a_conversation(self) -> None:
        reply = {
            "id": f"r{self._count}",
            "content": "Good to know, thank you.",
            "role": "assistant",
        }
        said = {"id": f"m{self._count}", "content": self._sentence(), "role": "user"}
        self._ana.remember([said, reply])

    def echo(self) -> None:
        said = {"id": f"e{self._count}", "content": self._sentence(), "role": "assistant"}
        self._ana.remember([said])

    def say_in_other_words(self) -> None:
        self._plain.remember(self._sentence().replace("I have", "Actually I have"))

    def say_too_little(self) -> None:
        self._ana.remember(
            [{"id": f"v{self._count}", "content": "hm Quaggaxyz again"}], policy="vault"
        )

    def say_on_purpose(self) -> None:
        color = self._chance.choice(("green", "blue"))
        self._plain.remember(f"My favorite Quaggaxyz color is {color}.", manually_saved=True)

    def say_something_else(self) -> None:
        self._ana.remember(f"Train {self._count} leaves at {self._count * 7919}.")

    def categorize(self) -> None:
        self._plain.remember(self._sentence(), kind="semantic", category="Quaggaxyzcat")

    def edit(self) -> None:
        self._ana.edit(self._some(), self._sentence())

    def edit_away(self) -> None:
        self._ana.edit(self._some(), f"Trains are pleasant, number {self._count * 7919}.")

    def describe(self) -> None:
        self._ana.edit(self._some(), summary="about Quaggaxyz", tags=["quaggaxyztag", "other"])

    def undo(self) -> None:
        history = self._ana.history(self._some())
        done = [entry.meta["operation"] for entry in history if "operation" in entry.meta]
        self._ana.undo(self._chance.choice(done))

    def undo_a_session(self) -> None:
        self._ana.undo(session="s1")

    def forget_one(self) -> None:
        self._ana.forget(self._some(), never_again=self._chance.random() < 0.3)

    def hide_and_restore(self) -> None:
        id = self._some()
        self._ana.forget(id, keep_days=3)
        if self._chance.random() < 0.5:
            self._ana.restore(id)

    def compress(self) -> None:
        self._ana.compress(threshold=1, sessions=1)

    def roll_up(self) -> None:
        self._ana.roll_up(days=0)

    def extract(self) -> None:
        self._ana.extract(self._some())

    def run_jobs(self) -> None:
        self._memory.run_jobs()

    def take_a_snapshot(self) -> None:
        self._memory.snapshot()

    def recall(self) -> None:
        self._ana.feedback(self._ana.recall("what about Quaggaxyz?"), reply="it is Quaggaxyz")

    def read_the_context(self) -> None:
        self._ana.context("what about Quaggaxyz?")

    def command(self) -> None:
        said = ("what do you remember about Quaggaxyz?", "forget Quaggaxyz", "yes", "undo that")
        self._ana.command(self._chance.choice(said))

    def conclude(self) -> None:
        sources = (self._some(), self._some())
        harmless = Draft(text="A harmless conclusion.", evidence_ids=sources, kind="semantic",
                         evidence_text="As Quaggaxyz said.")  # fmt: skip
        named = Draft(text="So much for Quaggaxyz.", evidence_ids=sources[:1], kind="semantic")
        self._ana.remember_drafts([harmless])
        self._ana.remember_drafts([named])

    def note_in_the_profile(self) -> None:
        id = self._some()
        profile = {"stable_facts": [self._plain.get(id).text]}
        self._run(Milton(self._memory._inner.scope("ana")).upsert_user_profile(profile, [id]))

    def promote(self) -> None:
        self._run(Milton(self._memory._inner.scope("ana")).compress_short_to_long(0))

    def decide(self) -> None:
        conflict = self._ana.conflicts()[0]
        self._chance.choice((self._ana.confirm, self._ana.reject))(conflict.id)

    def propose(self) -> None:
        proposal = self._ana.consent.propose("city", "Quaggaxyz value", evidence=[self._some()])
        if self._chance.random() < 0.5:
            self._ana.consent.deny(proposal.id)

    def ingest(self) -> None:
        self._run(Vault(self._memory._inner).ingest(self._sentence(), "ana", "s1"))

    def export(self) -> None:
        self._exported = list(self._memory.export())

    def import_again(self) -> None:
        self._memory.import_(self._exported, restore=self._chance.random() < 0.5)

    def keep_a_copy(self) -> None:
        """Leave a copy beside the file, as a migration does."""
        target = self._folder / "data" / "memory.db.before-7"
        if target.parent.exists() and not target.exists():
            self._memory.backup(target)

    def use_another_process(self) -> None:
        """Store a sentence from the command line; not often, because starting it takes a second."""
        path = self._folder / "data" / "memory.db"
        if not path.exists() or self._chance.random() < 0.7:
            return
        places = {"STATE_DIR": "state", "SPOOL_DIR": "kept", "JOURNAL_DIR": "journal"}
        settings = {f"MEMORIST_{name}": str(self._folder / at) for name, at in places.items()}
        line = [sys.executable, "-m", "memorist", "--db", str(path), "--user", "ana"]
        environment = {
            **os.environ,
            **settings,
            "MEMORIST_EMBEDDER": self._memory.settings.embedder,
        }
        line += self._chance.choice((["remember", self._sentence()], ["recall", "Quaggaxyz"]))
        done = subprocess.run(line, env=environment, capture_output=True, check=False, timeout=60)
        require(done.returncode in (0, 4))  # 4: it was forgotten before

    def write_during_an_outage(self) -> None:
        if not (self._folder / "data").exists():
            return  # a server
        ana = self._memory.scope("ana", session="s1")
        ana.remember([{"id": "again", "content": "The meeting is on Monday."}])
        with store_away(self._folder):
            pending = ana.remember([{"id": f"o{self._count}", "content": self._sentence()}])
            ana.remember(
                [{"id": "again", "content": f"{self._sentence()} Quaggaxyz is set aside."}]
            )
            ana.recall("what about Quaggaxyz?")
            if self._chance.random() < 0.5 and pending.ids:
                ana.forget(pending.ids[0])
        back(self._memory)
        back(self._other)


def _forget_all_that_names(memory: Any, word: str) -> None:
    scope = memory.scope("ana")
    scope.consent.withdraw("city")
    for _ in range(4):  # a summary that is made again may hold the word once more
        everything = scope.list(EVERYTHING, limit=1000)
        named = [found.id for found in everything if word in repr(found).lower()]
        if named:
            where = Filter(ids=tuple(named), states=STATES)
            scope.forget_where(where=where, dry_run=False)
    scope.forget_where(word, dry_run=False)  # what was set aside, too


def _leave_a_life(folder: Path, seed: int) -> None:
    """Live, forget all that names the word, and look for it in every file."""
    chance = random.Random(seed)
    (folder / "data").mkdir()
    path = folder / "data" / "memory.db"
    if chance.random() < 0.2:  # migrated when it is opened
        _file_of_version_8(path, chance.choice(SENTENCES))
    extract = chance.choice(("rules", "off"))
    embedder = chance.choice(("hashing", "hashing", "hashing", "minilm"))
    settings = settings_in(folder, extract=extract, embedder=embedder)
    with memorist.open(path, **settings) as memory, memorist.open(path, **settings) as other:
        Life(memory, other, folder, chance)._live(25)
        memory.scope("ana").remember("Quaggaxyz was the last word.")
        assert files_with(folder, "Quaggaxyz") != []
        if chance.random() < 0.2:
            memory.erase_user("ana")
        else:
            _forget_all_that_names(memory, "quaggaxyz")
        assert memory.check() == []
        assert "quaggaxyz" not in str(list(memory.export())).lower()
        assert files_with(folder, "Quaggaxyz") == []
        other.scope("ana").remember("The other client goes on to write.")
        other.scope("ana").recall("what about Quaggaxyz?")
    assert files_with(folder, "Quaggaxyz") == []


@pytest.mark.parametrize("seed", range(16))
def test_a_random_life_leaves_no_byte_of_what_was_forgotten(tmp_path: Path, seed: int) -> None:
    _leave_a_life(tmp_path, seed)


@pytest.mark.slow
def test_many_random_lives_leave_no_byte_of_what_was_forgotten(tmp_path: Path) -> None:
    first = int(os.environ.get("FIRST", "0"))
    failed: dict[int, str] = {}
    for seed in range(first, first + int(os.environ.get("LIVES", "1000"))):
        (tmp_path / "life").mkdir()
        try:
            _leave_a_life(tmp_path / "life", seed)
        except Exception as error:
            failed[seed] = f"{type(error).__name__}: {error}"[:300]
        shutil.rmtree(tmp_path / "life")
    assert failed == {}


def test_a_random_life_on_postgresql_leaves_no_word_in_any_table(
    ready_database: str, tmp_path: Path
) -> None:
    for seed in range(100, 104):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        settings = settings_in(folder, extract=chance.choice(("rules", "off")))
        with (
            memorist.open(ready_database, **settings) as memory,
            memorist.open(ready_database, **settings) as other,
        ):
            Life(memory, other, folder, chance)._live(25)
            _forget_all_that_names(memory, "quaggaxyz")
            database = memory._inner.ctx.store.database
            for table in erase.TABLES:
                rows = memory._loop.run(database.rows(f"SELECT * FROM {table}", (), scope=EVERY))
                assert "quaggaxyz" not in repr(rows).lower(), table
            assert memory.check() == []
            memory.erase_user("ana")
        assert files_with(folder, "Quaggaxyz") == []
