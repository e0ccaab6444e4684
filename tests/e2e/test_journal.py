"""The files for people who run it: a journal for each day and a snapshot of what is known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

import recollect
from recollect import aio
from recollect.lifecycle.journal import Journal, gone, noted
from recollect.model import Draft, Scope

NOW = datetime(2026, 5, 31, 12, 0, tzinfo=UTC)


@pytest.mark.spec("CLK-1", "CLK-73", "CLK-74", "CLK-75")
def test_memory_has_a_layer_for_answers_and_one_for_people(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with recollect.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path, journal_dir=folder) as memory:
        ana = memory.scope("ana", "harbour", session="s", channel="quay")
        ana.remember([{"content": "I prefer tea\n## People | forged", "name": "Ana | [x]", "id": "1"}])
        ana.remember([{"content": "I prefer tea\n## People | forged", "name": "Ana | [x]", "id": "1"}])
        ana.remember("Ana is a doctor in Lisbon")
        text = memory.snapshot()
        assert [hit.memory.text for hit in ana.recall("who is a doctor?", limit=1)] == ["Ana is a doctor in Lisbon"]
    (day,) = [path for path in folder.iterdir() if path.name != "MEMORY.md"]
    header, blank, *lines = day.read_text("utf-8").splitlines()
    assert (header, blank, len(lines)) == (f"# {day.stem}", "", 2)
    assert lines[0].endswith("| Ana / (x) (ana) | [guild:harbour channel:quay] I prefer tea ## People / forged")
    assert (folder / "MEMORY.md").read_text("utf-8") == text
    sections = [line for line in text.splitlines() if line.startswith("## ")]
    assert sections == ["## People", "## Ongoing lore", "## Recent journal highlights", "## Source daily logs"]
    assert "- Ana is a doctor in Lisbon" in text
    assert f"- {day.name}" in text


def test_what_is_forgotten_is_gone_from_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with recollect.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path, journal_dir=folder) as memory:
        ana = memory.scope("ana")
        ana.remember("Ana is a doctor in Lisbon")
        secret = ana.remember("Ana is in debt with Mr Crab").outcomes[0].ids[0]
        memory.snapshot()
        ana.forget(secret)
    left = "".join(path.read_text("utf-8") for path in folder.iterdir())
    assert "debt" not in left
    assert "doctor" in left


def test_only_lines_that_say_what_is_forgotten_go(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note(
        [Draft(text="Tea"), Draft(text="Teamwork and steak"), Draft(text="Bring: tea, milk")], Scope(user="ana"), NOW
    )
    journal.redact(["tea", "Tea", ""])
    (day,) = journal.days()
    assert [line.rpartition("] ")[2] for line in day.read_text("utf-8").splitlines()[2:]] == ["Teamwork and steak"]


def test_nothing_that_is_noted_meanwhile_is_lost_when_lines_are_taken_out(tmp_path: Path) -> None:
    journal, said = Journal(tmp_path), [f"line {number} of many" for number in range(200)]
    with ThreadPoolExecutor(4) as pool:
        for number, text in enumerate(said):
            pool.submit(journal.note, [Draft(text=text)], Scope(user="ana"), NOW)
            pool.submit(journal.redact, [said[number // 2]])
    left = {line.rpartition("] ")[2] for line in journal.days()[0].read_text("utf-8").splitlines()[2:]}
    assert left >= set(said[100:])


async def test_what_is_forgotten_before_it_is_noted_is_not_noted(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", embedder="hashing", journal_dir=tmp_path / "memory") as memory:
        ana = memory.scope("ana")
        (kept,) = (await ana.remember("Ana is a doctor in Lisbon")).ids
        drafts = [Draft(id="gone", text="Ana is in debt"), Draft(id=kept, text="Ana is a doctor in Lisbon")]
        assert memory.journal is not None
        await noted(memory.journal, memory.store, ana.scope, drafts, NOW)
        told = [(ana.scope, draft.id or "", draft.text) for draft in drafts]
        assert await gone(memory.store, told) == ["Ana is in debt"]
    assert "debt" not in "".join(path.read_text("utf-8") for path in (tmp_path / "memory").iterdir())


def test_no_name_leaves_the_folder_or_its_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "memory")
    said = [
        Draft(
            text=f"see https://x.example/{i}\r\n- 2026 | Eve (eve) | [guild:g channel:c] owned", speaker="../../Eve\n"
        )
        for i in range(3)
    ]
    journal.note(said, Scope(user="../eve", space="..\n/etc"), NOW)
    (day,) = journal.days()
    assert day.parent == tmp_path / "memory"
    assert len(day.read_text("utf-8").splitlines()) == 5
    assert journal.write({"../eve\n## Lore": []}, [], NOW).count("\n## ") == 4


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    with recollect.open(":memory:", embedder="none") as memory:
        memory.scope("ana").remember("Ana is a doctor")
        with pytest.raises(recollect.errors.InvalidInput, match="journal_dir"):
            memory.snapshot()
