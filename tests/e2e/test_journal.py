"""The files for people who run it: a journal for each day and a snapshot of what is known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

import memorist
from memorist import aio
from memorist.manage.journal import Journal, append, find_erased
from memorist.types import Draft, Labels, Scope

NOW = datetime(2026, 5, 31, 12, 0, tzinfo=UTC)


def test_a_snapshot_without_a_folder_is_only_returned(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as memory:
        memory.scope("ana").remember("Ana is a doctor in Lisbon", kind="semantic")
        assert "- Ana is a doctor in Lisbon" in memory.snapshot()
    assert not list(tmp_path.rglob("MEMORY.md"))


@pytest.mark.spec("CLK-1", "CLK-73", "CLK-74", "CLK-75")
def test_memory_has_a_layer_for_answers_and_one_for_people(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with memorist.open(
        tmp_path / "m.db", embedder="hashing", state_dir=tmp_path, journal_dir=folder
    ) as memory:
        ana = memory.scope("ana", "harbour", session="s", channel="quay")
        ana.remember(
            [{"content": "I prefer tea\n## People | forged", "name": "Ana | [x]", "id": "1"}]
        )
        ana.remember(
            [{"content": "I prefer tea\n## People | forged", "name": "Ana | [x]", "id": "1"}]
        )
        ana.remember("Ana is a doctor in Lisbon")
        text = memory.snapshot()
        assert [hit.memory.text for hit in ana.recall("who is a doctor?", limit=1)] == [
            "Ana is a doctor in Lisbon"
        ]
    (day,) = [path for path in folder.iterdir() if path.name != "MEMORY.md"]
    header, blank, *lines = day.read_text("utf-8").splitlines()
    assert (header, blank, len(lines)) == (f"# {day.stem}", "", 2)
    assert lines[0].endswith(
        "| Ana / (x) (ana) | [guild:harbour channel:quay] I prefer tea ## People / forged"
    )
    assert (folder / "MEMORY.md").read_text("utf-8") == text
    sections = [line for line in text.splitlines() if line.startswith("## ")]
    assert sections == [
        "## People",
        "## Ongoing lore",
        "## Recent journal highlights",
        "## Source daily logs",
    ]
    assert "- Ana is a doctor in Lisbon" in text
    assert f"- {day.name}" in text


@pytest.mark.spec("CLK-73", "CLK-74")
def test_a_journal_line_names_the_time_the_author_and_the_place(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    said = [("Bo", "The boat leaks.", "14:00:07"), (None, "I will mend it.", "14:05:00")]
    with memorist.open(
        tmp_path / "m.db", embedder="none", state_dir=tmp_path, journal_dir=folder
    ) as memory:
        ana = memory.scope("ana", "harbour", session="s", channel="quay")
        memory._inner.ctx.clock = lambda: NOW
        for id, (name, text, at) in enumerate(said):
            ana.remember(
                [{"content": text, "name": name, "id": str(id), "at": f"2026-05-31T{at}Z"}]
            )
    (day,) = folder.iterdir()
    assert day.name == f"{NOW.astimezone():%Y-%m-%d}.md"
    assert day.read_text("utf-8").splitlines() == [
        f"# {NOW.astimezone():%Y-%m-%d}",
        "",
        "- 2026-05-31T14:00:07+00:00 | Bo (ana) | [guild:harbour channel:quay] The boat leaks.",
        "- 2026-05-31T14:05:00+00:00 | user (ana) | [guild:harbour channel:quay] I will mend it.",
    ]


def snapshot(tmp_path: Path, days: dict[str, list[tuple[str, str]]]) -> dict[str, list[str]]:
    """The lines of each section of a snapshot over daily files with these authors and texts, oldest first."""
    folder = tmp_path / "memory"
    folder.mkdir()
    for day, said in days.items():
        lines = [
            f"- {day}T12:00:00+00:00 | {who} | [guild:g1 channel:c1] {text}\n" for who, text in said
        ]
        (folder / f"{day}.md").write_text(f"# {day}\n\n{''.join(lines)}", "utf-8")
    with memorist.open(
        ":memory:", embedder="none", state_dir=tmp_path, journal_dir=folder
    ) as memory:
        sections = memory.snapshot().split("\n## ")[1:]
    return {
        title.strip(): lines
        for title, *lines in (section.strip().split("\n- ") for section in sections)
    }


@pytest.mark.spec("CLK-75")
def test_highlights_are_the_newest_24_lines_of_the_newest_3_days(tmp_path: Path) -> None:
    days = {
        f"2026-05-{day}": [(f"A{day}{n}", f"Words {day} {n}") for n in range(9)]
        for day in range(26, 32)
    }
    found = snapshot(tmp_path, days)
    read = [f"A{day}{n}: Words {day} {n}" for day in (31, 30, 29) for n in range(8, -1, -1)]
    assert found["Recent journal highlights"] == read[:24]
    assert found["Source daily logs"] == [f"2026-05-{day}.md" for day in (31, 30, 29, 28, 27)]


@pytest.mark.spec("CLK-75")
def test_an_older_file_gives_no_highlights_and_of_a_long_one_the_last_120_entries_do(
    tmp_path: Path,
) -> None:
    long = [("Ana", "An early remark"), ("Ana", "A late remark"), *[("Bo", "The same again")] * 119]
    days = {f"2026-05-{day}": [("Cy", f"Remark of day {day}")] for day in (28, 29, 30)}
    found = snapshot(tmp_path, {**days, "2026-05-31": long})
    assert found["Recent journal highlights"] == [
        "Bo: The same again", "Ana: A late remark", "Cy: Remark of day 30", "Cy: Remark of day 29",
    ]  # fmt: skip


@pytest.mark.spec("CLK-75")
def test_a_highlight_has_8_to_220_characters_and_is_no_link_and_no_repetition(
    tmp_path: Path,
) -> None:
    texts = [
        "x" * 7,
        "y" * 8,
        "z" * 220,
        "w" * 221,
        "https://boat.example/1",
        "See https://boat.example",
        "Twice said",
    ]
    found = snapshot(
        tmp_path, {"2026-05-31": [("Ana", text) for text in texts] + [("Bo", "TWICE SAID")]}
    )
    kept = [
        "Bo: TWICE SAID",
        "Ana: See https://boat.example",
        f"Ana: {'z' * 220}",
        f"Ana: {'y' * 8}",
    ]
    assert found["Recent journal highlights"] == kept


@pytest.mark.spec("CLK-75")
def test_nobody_has_more_than_8_highlights(tmp_path: Path) -> None:
    said = [("Bo", "The boat leaks"), *[("Ana", f"Remark number {n}") for n in range(9)]]
    found = snapshot(tmp_path, {"2026-05-31": said})["Recent journal highlights"]
    assert found == [*[f"Ana: Remark number {n}" for n in range(8, 0, -1)], "Bo: The boat leaks"]


@pytest.mark.spec("CLK-75")
def test_other_files_in_the_folder_are_not_daily_logs(tmp_path: Path) -> None:
    line = "- 2026-05-31T12:00:00+00:00 | Ana | [guild:g1 channel:c1] Written in"
    for name in ("2026-05-31.md", "2026-05-31.md.bak", "notes.md"):
        (tmp_path / name).write_text(f"{line} {name}\n", "utf-8")
    with memorist.open(":memory:", embedder="none", journal_dir=tmp_path) as memory:
        _, _, _, highlights, files = memory.snapshot().split("\n## ")
        assert memory.snapshot().endswith(files), "the snapshot itself is not listed either"
    assert highlights == "Recent journal highlights\n\n- Ana: Written in 2026-05-31.md\n"
    assert files == "Source daily logs\n\n- 2026-05-31.md\n"


@pytest.mark.spec("CLK-75")
async def test_the_snapshot_holds_6_facts_of_each_of_80_people_and_6_lines_of_lore(
    tmp_path: Path,
) -> None:
    people = [(f"u{n}", f"Fact {n} is so.") for n in range(80)] + [
        ("ana", f"Ana owns boat {n}.") for n in range(7)
    ]
    facts = [*people, *(("__lore__", f"The cat number {n} is haunted.") for n in range(7))]
    drafts = [
        Draft(text=text, kind="semantic", fact_type="other", labels=Labels(subject=who))
        for who, text in facts
    ]
    settings = {"state_dir": tmp_path, "journal_dir": tmp_path / "memory", "embedder": "none"}
    async with aio.open(tmp_path / "m.db", **settings) as memory:
        await memory.scope("__guild__", "g1").remember_drafts(drafts, policy="clanker.guild")
        text = await memory.snapshot()
    about, lore, *_ = (
        [line for line in section.splitlines() if line] for section in text.split("\n## ")[1:]
    )
    assert about[:8] == ["People", "### ana", *(f"- Ana owns boat {n}." for n in range(6, 0, -1))]
    assert about[8:] == [
        line for n in range(79, 0, -1) for line in (f"### u{n}", f"- Fact {n} is so.")
    ]
    assert lore == ["Ongoing lore", *(f"- The cat number {n} is haunted." for n in range(6, 0, -1))]


def test_what_is_forgotten_is_gone_from_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with memorist.open(
        tmp_path / "m.db", embedder="hashing", state_dir=tmp_path, journal_dir=folder
    ) as memory:
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
        [Draft(text="Tea"), Draft(text="Teamwork and steak"), Draft(text="Bring: tea, milk")],
        Scope(user="ana"),
        NOW,
    )
    journal.redact(["tea", "Tea", ""])
    (day,) = journal.days()
    assert [line.rpartition("] ")[2] for line in day.read_text("utf-8").splitlines()[2:]] == [
        "Teamwork and steak"
    ]


def test_nothing_that_is_noted_meanwhile_is_lost_when_lines_are_taken_out(tmp_path: Path) -> None:
    journal, said = Journal(tmp_path), [f"line {number} of many" for number in range(200)]
    with ThreadPoolExecutor(4) as pool:
        for number, text in enumerate(said):
            pool.submit(journal.note, [Draft(text=text)], Scope(user="ana"), NOW)
            pool.submit(journal.redact, [said[number // 2]])
    left = {
        line.rpartition("] ")[2] for line in journal.days()[0].read_text("utf-8").splitlines()[2:]
    }
    assert left >= set(said[100:])


async def test_what_is_forgotten_before_it_is_noted_is_not_noted(tmp_path: Path) -> None:
    async with aio.open(
        tmp_path / "m.db", embedder="hashing", journal_dir=tmp_path / "memory"
    ) as memory:
        ana = memory.scope("ana")
        (kept,) = (await ana.remember("Ana is a doctor in Lisbon")).ids
        drafts = [
            Draft(id="gone", text="Ana is in debt"),
            Draft(id=kept, text="Ana is a doctor in Lisbon"),
        ]
        await append(tmp_path / "memory", memory.ctx.store, ana.scope, drafts, NOW)
        told = {ana.scope: {draft.id or "": draft.text for draft in drafts}}
        assert await find_erased(memory.ctx.store, told) == ["Ana is in debt"]
    assert "debt" not in "".join(
        path.read_text("utf-8") for path in (tmp_path / "memory").iterdir()
    )


def test_no_name_leaves_the_folder_or_its_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "memory")
    said = [
        Draft(
            text=f"see https://x.example/{i}\r\n- 2026 | Eve (eve) | [guild:g channel:c] owned",
            speaker="../../Eve\n",
        )
        for i in range(3)
    ]
    journal.note(said, Scope(user="../eve", space="..\n/etc"), NOW)
    (day,) = journal.days()
    assert day.parent == tmp_path / "memory"
    assert len(day.read_text("utf-8").splitlines()) == 5
    assert journal.write({"../eve\n## Lore": []}, [], NOW).count("\n## ") == 4


def test_without_a_folder_the_snapshot_is_told_and_not_written(tmp_path: Path) -> None:
    with memorist.open(":memory:", embedder="none", state_dir=tmp_path) as memory:
        memory.scope("ana").remember("Ana is a doctor")
        assert "\n### ana\n- Ana is a doctor\n" in memory.snapshot()
    assert list(tmp_path.rglob("*.md")) == []
