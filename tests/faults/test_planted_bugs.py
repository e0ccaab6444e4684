"""Tests that are tested: a bug is planted in a copy of the package, and the test that is there to catch it must fail.

A bug replaces text that stands in the package exactly once. Code that was moved or laid out anew is found where it
stands now (tools/locate.py); where that fails, so does a test of its own, which is not a slow one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import memorist

PACKAGE = Path(memorist.__file__).parent
ROOT = Path(__file__).parents[2]
POWER = "tests/faults/test_power_loss.py::test_what_was_acknowledged_survives_a_power_cut"
STORE = "tests/contract/test_store.py::{}[sqlite]"
RESIDUE = "tests/faults/test_residue.py::{}"
MODEL = "tests/faults/test_model_changes.py::{}"
NOTICED = r"AssertionError|E +assert |DID NOT RAISE|E +RuntimeWarning"  # and no error of the planting itself


@dataclass(frozen=True)
class Bug:
    """A change for the worse, and the test that notices it."""

    file: str
    edits: dict[str, str]
    test: str


BUGS = {
    "acknowledged before it is committed": Bug(
        "storage/sqlite/__init__.py",
        {
            "await asyncio.shield(self._writer.call(_commit))": "self._late = self._writer.call(_commit)",
            # so that it still reads what it wrote
            'self._reader = SqliteConnection(path, "reader", threads=READERS)': "self._reader = self._writer",
        },
        POWER,
    ),
    "no transaction": Bug(
        "storage/sqlite/__init__.py",
        {
            'connection.execute("BEGIN IMMEDIATE")\n        return True': "return True",
            "await asyncio.shield(self._writer.call(_commit))": "pass",
        },
        STORE.format("test_apply_makes_all_the_changes_or_none"),
    ),
    "a transaction that others can overtake": Bug(
        "storage/sqlite/__init__.py",
        {'"BEGIN IMMEDIATE")\n        return True': '"BEGIN")\n        return True'},
        "tests/faults/test_many_processes.py::test_eight_processes_lose_no_update",
    ),
    "a commit that is not synced": Bug(
        "storage/sqlite/connection.py", {"synchronous = FULL": "synchronous = NORMAL"}, POWER
    ),
    "history outside of the transaction": Bug(
        "storage/transaction.py",
        {
            "        await self._write_log(\n            log,\n": "        late, log = log, []\n"
            "        await self._write_log(\n            log,\n",
            '            ("DELETE FROM tombstones WHERE scope = ? AND digest = ?", wanted),\n        )\n': (
                '            ("DELETE FROM tombstones WHERE scope = ? AND digest = ?", wanted),\n        )\n'
                '        await self.connection.rows("COMMIT")\n'
                '        await self.connection.rows("BEGIN IMMEDIATE")\n'
                "        await self._write_log(late)\n"
            ),
        },
        POWER,
    ),
    "a filter without its scope": Bug(
        "storage/queries.py",
        {'WHERE scope = ? AND {clause} ORDER BY row"': 'WHERE ? > 0 AND {clause} ORDER BY row"'},
        "tests/contract/test_store.py::test_nothing_is_seen_from_another_scope[sqlite-default-bob-default]",
    ),
    "erased words stay in the file": Bug(
        "storage/sqlite/connection.py",
        {"secure_delete = ON": "secure_delete = OFF"},
        RESIDUE.format("test_a_forgotten_text_is_nowhere_on_disk"),
    ),
    "erased words stay in the log": Bug(
        "storage/sqlite/__init__.py",
        {"self.must_clean = True": "pass"},
        RESIDUE.format("test_a_forgotten_text_is_nowhere_on_disk"),
    ),
    "altered rows are believed": Bug(
        "storage/rows.py",
        {
            'if row_hash(_drop_absent(row[: len(HASHED)]), scope) != made.pop("row_hash"):': (
                'if not made.pop("row_hash"):'
            )
        },
        "tests/faults/test_damage.py::test_no_altered_word_is_returned_from_a_damaged_file[flip in words]",
    ),
    "altered vectors are believed": Bug(
        "index/arrays.py",
        {"made if is_unit.all() else": "made if True else"},
        "tests/faults/test_damage.py::test_an_altered_vector_is_left_out_and_told[nan]",
    ),
    "forgotten texts come back": Bug(
        "ingest/decide.py",
        {"chunk.text in batch.forgotten": "False"},
        RESIDUE.format("test_a_forgotten_text_does_not_come_back_by_itself_in_any_form"),
    ),
    "the same message is taken in twice": Bug(
        "ingest/pipeline.py",
        {'seen[id] = (digests[id] if message.same else "", outcome)': "pass"},
        "tests/faults/test_kill.py::test_what_was_acknowledged_survives_being_killed",
    ),
    "vectors of different models meet": Bug(
        "storage/queries.py",
        {"{0}.memory = m.row AND {0}.model = ?": "{0}.memory = m.row AND ? <> ''"},
        MODEL.format("test_another_model_answers_by_words_and_says_so_until_it_has_embedded[another name]"),
    ),
    "vectors that are none are kept": Bug(
        "embedders/__init__.py",
        {"if not np.isfinite(rows).all():": "if False:"},
        MODEL.format("test_a_model_that_gives_nonsense_costs_the_meaning_and_not_the_answer[nan]"),
    ),
    "a memory of tomorrow is younger than one of today": Bug(
        "retrieve/features.py",
        {"micros = np.maximum(now - search.snapshot.created[at], 0)": "micros = now - search.snapshot.created[at]"},
        "tests/faults/test_clock.py::test_nothing_is_younger_than_now",
    ),
    "a failed write goes unnoticed": Bug(
        "storage/sqlite/__init__.py",
        {"await asyncio.shield(self._writer.call(_commit))": "with suppress(MemoristError):\n"
         "                    await self._writer.call(_commit)"},
        "tests/faults/test_failing_writes.py::test_a_failing_write_is_told_and_nothing_is_lost",
    ),
    "a commit that the server may still lose": Bug(
        "storage/postgres/__init__.py",
        {"'on', true)\nWHERE current_setting('synchronous_commit') = 'off'": "'off', true)"},
        "tests/faults/test_server.py::test_a_server_that_is_stopped_and_killed_under_load_loses_nothing",
    ),
    "a lost answer taken for a success": Bug(
        "storage/postgres/__init__.py",
        {"                await asyncio.shield(committing)": "                with suppress(Exception):\n"
         "                    await asyncio.shield(committing)"},
        "tests/faults/test_server.py::test_a_commit_whose_answer_is_lost_is_no_success_and_happens_once",
    ),
    "two writers in one scope": Bug(
        "storage/postgres/__init__.py",
        {"lock = lock_number(scope.tenant, scope.user, scope.space)": "lock = None"},
        "tests/contract/test_postgres.py::test_two_servers_never_lose_an_update",
    ),
}  # fmt: skip
QUICK = (
    "acknowledged before it is committed",
    "no transaction",
    "a commit that is not synced",
    "a filter without its scope",
    "erased words stay in the file",
    "altered rows are believed",
    "forgotten texts come back",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package; its models are not needed to find a bug with."""
    ignored = shutil.ignore_patterns("minilm_model", "use_model")
    shutil.copytree(PACKAGE, tmp_path / "memorist", ignore=ignored)
    return tmp_path


def plant(copy: Path, planted: Bug) -> None:
    """Change the copy. Fails if one of the texts does not stand in exactly one place."""
    package = copy / "memorist"
    for sound, wrong in planted.edits.items():
        path = package / planted.file
        text = path.read_text("utf-8") if path.exists() else ""
        if text.count(sound) == 1:
            path.write_text(text.replace(sound, wrong), "utf-8")
            continue
        place = find_anywhere(package, planted.file, sound, wrong)
        assert place is not None, f"{sound!r} of {planted.file} is not found: plant it again"
        (package / place.path).write_text(place.text, "utf-8")


def find_anywhere(package: Path, file: str, old: str, new: str) -> Any:
    """Return where a change applies in a tree that was rearranged."""
    spec = importlib.util.spec_from_file_location("locate", ROOT / "tools" / "locate.py")
    assert spec is not None
    assert spec.loader is not None
    locate = importlib.util.module_from_spec(spec)
    sys.modules["locate"] = locate
    spec.loader.exec_module(locate)
    return locate.Tree.read(package, {}).find(file, old, new)


def run(copy: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests against a copy of the package, in a process of their own."""
    options = [
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_asyncio.plugin",
        f"--rootdir={ROOT}",
    ]
    options += ["-o", "addopts=--import-mode=importlib"]  # one process: its own is enough
    command = [sys.executable, "-B", "-m", "pytest", *options, *tests]
    alone = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
    }  # the other plugins take longer to import than the tests to run
    environment = {**os.environ, **alone, "PYTHONPATH": str(copy)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def assert_caught(copy: Path, planted: Bug) -> None:
    plant(copy, planted)
    found = run(copy, planted.test)
    assert found.returncode == 1, found.stdout[-3000:] + found.stderr[-3000:]
    assert re.search(NOTICED, found.stdout), found.stdout[-3000:]


def assert_sound(copy: Path, names: Iterable[str]) -> None:
    found = run(copy, *sorted({BUGS[name].test for name in names}))
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


@pytest.mark.parametrize("name", [name for name in BUGS if name not in QUICK])
def test_a_bug_that_only_slow_tests_look_for_can_still_be_planted(copy: Path, name: str) -> None:
    plant(copy, BUGS[name])


def test_the_tests_pass_where_no_bug_is_planted(copy: Path) -> None:
    assert_sound(copy, QUICK)


@pytest.mark.slow
def test_all_the_tests_pass_where_no_bug_is_planted(copy: Path) -> None:
    assert_sound(copy, BUGS)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught(copy: Path, name: str) -> None:
    assert_caught(copy, BUGS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BUGS if name not in QUICK])
def test_another_planted_bug_is_caught(copy: Path, name: str) -> None:
    assert_caught(copy, BUGS[name])


SCOPED = re.compile(
    r"WHERE (\w\.)?scope = \?(?! LIMIT 1)"
)  # whether there is any row at all only saves a question
FILTERS = [
    (file, number)
    for file in ("storage/queries.py", "storage/store.py")
    for number in range(len(SCOPED.findall((PACKAGE / file).read_text("utf-8"))))
]


def test_the_scope_filters_are_found() -> None:
    assert len(FILTERS) >= 15, "they have moved: name the files where they are now"


@pytest.mark.slow
@pytest.mark.parametrize(("file", "number"), FILTERS)
def test_each_scope_filter_is_missed_where_it_is_taken_away(
    copy: Path, file: str, number: int
) -> None:
    path = copy / "memorist" / file
    text = path.read_text("utf-8")
    place = [*SCOPED.finditer(text)][number]
    path.write_text(f"{text[: place.start()]}WHERE ? <> -2{text[place.end() :]}", "utf-8")
    tests = ("tests/contract/test_store.py", "tests/faults/test_wall.py")
    found = run(copy, *tests, "-k", "sqlite and not memory and (another_scope or own_scope)")
    assert found.returncode == 1, (
        f"{text[place.start() - 60 : place.end() + 60]}\n{found.stdout[-2000:]}"
    )
