"""The command `import`, on files with one JSON object per line."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from memorist.interfaces.cli import app

from . import formats

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in [name for name in os.environ if name.startswith("MEMORIST_")]:
        monkeypatch.delenv(name)
    settings = {
        "EMBEDDER": "hashing",
        "EXTRACT": "off",
        "USER": "ana",
        "DB": str(tmp_path / "m.db"),
    }
    for name, value in {**settings, "STATE_DIR": str(tmp_path / "state")}.items():
        monkeypatch.setenv(f"MEMORIST_{name}", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def texts(run: Run) -> set[str]:
    shown = run("list", "--json").stdout.splitlines()
    return {json.loads(line)["text"] for line in shown}


def test_a_transcript_of_claude_code_is_imported_by_its_own_name(run: Run, tmp_path: Path) -> None:
    (file,) = formats.write_claude_code(tmp_path).rglob("*.jsonl")
    session = {"sessionId": "s1", "timestamp": "2025-02-03T04:05:00.000Z"}
    queued = {"type": "queue-operation", "operation": "enqueue", "content": "Queued.", **session}
    system = {"type": "system", "subtype": "local_command", "content": "Set model", **session}
    before = "".join(json.dumps(line) + "\n" for line in (queued, system))
    file.write_text(before + file.read_text("utf-8"), "utf-8")
    done = run("import", file)
    assert done.exit_code == 0, done.output
    assert texts(run) == {"I play the cello in a quartet.", "A quartet is a fine thing."}


MESSAGES = [
    {"role": "user", "content": "I play the cello.", "timestamp": "2024-05-01T10:00:00Z"},
    {"role": "user", "content": "I own a boat.", "timestamp": "2025-05-01T10:00:00Z"},
    {"role": "user", "content": "I bake bread."},
]


def test_a_dry_run_over_messages_in_lines_shows_them_and_stores_nothing(
    run: Run, tmp_path: Path
) -> None:
    path = formats.write_lines(tmp_path / "messages.jsonl", *MESSAGES)
    done = run("import", path, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "Read openai: 3; nothing stored" in done.output
    assert "user: I play the cello." in done.output
    assert texts(run) == set()


def test_messages_in_lines_can_be_imported_since_a_date_and_then_completed(
    run: Run, tmp_path: Path
) -> None:
    path = formats.write_lines(tmp_path / "messages.jsonl", *MESSAGES)
    done = run("import", path, "--since", "2025-01-01", "--me", "Ana")
    assert done.exit_code == 0, done.output
    assert texts(run) == {"I own a boat."}
    assert "3 records read, 2 new memories" in run("import", path).output


def test_other_keys_of_messages_in_lines_are_ignored(run: Run, tmp_path: Path) -> None:
    path = formats.write_lines(
        tmp_path / "messages.jsonl", *({**each, "idx": 1, "session_id": "x"} for each in MESSAGES)
    )
    done = run("import", path)
    assert done.exit_code == 0, done.output
    assert "3 records read, 3 new memories" in done.output


def test_exported_records_cannot_be_imported_in_part(run: Run, tmp_path: Path) -> None:
    run("remember", "I drink green tea.")
    run("export", "memories.jsonl")
    done = run("import", tmp_path / "memories.jsonl", "--dry-run")
    assert done.exit_code == 2
    assert "only apply to files of other programs" in done.output


@pytest.mark.parametrize(
    "content", [[{"role": "user", "content": 5}], [{"role": "system", "content": "Be brief."}]]
)
def test_a_file_of_which_nothing_could_be_read_is_a_failure(
    run: Run, tmp_path: Path, content: Any
) -> None:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(content), "utf-8")
    done = run("import", path)
    assert "Read nothing" in done.output
    assert done.exit_code == 1


def test_lines_in_an_archive_are_imported_like_the_file_itself(run: Run, tmp_path: Path) -> None:
    path = formats.write_lines(tmp_path / "messages.jsonl", *MESSAGES)
    assert run("import", pack(path)).stdout.startswith("3 records read, 3 new memories")
    assert run("import", path).stdout.startswith("3 records read, 0 new memories")
    assert run("export", "export.jsonl").exit_code == 0
    done = run("import", pack(tmp_path / "export.jsonl"), "--db", "other.db")
    assert done.exit_code == 0
    assert "3 new memories" in done.stdout


def test_lines_in_a_damaged_archive_are_not_taken_for_all_of_it(run: Run, tmp_path: Path) -> None:
    archive = pack(formats.write_lines(tmp_path / "messages.jsonl", *MESSAGES))
    data = bytearray(archive.read_bytes())
    data[data.index(b"PK\x01\x02") + 16] ^= 1  # its checksum
    archive.write_bytes(data)
    done = run("import", archive)
    assert done.exit_code == 2
    assert "messages.jsonl: Bad CRC-32" in done.stderr
    assert done.stderr.startswith("memorist: Only lines before the damage are stored: ")


def pack(path: Path) -> Path:
    archive = path.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as made:
        made.write(path, path.name)
    return archive
