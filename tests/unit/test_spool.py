"""The fail-safe files: what stands in them, and that nothing is lost, doubled or mixed up in them."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memorist.errors import InvalidInput
from memorist.offline.spool import Pending, Spool
from memorist.storage.person import Summary
from memorist.types import Draft, Labels, Scope

NOW = datetime(2026, 5, 31, 14, 0, tzinfo=UTC)
ANA = Scope(user="ana")


def item(id: str, text: str = "Tea, not coffee.", **fields: Any) -> Pending:
    return Pending(scope=ANA, what=Draft(id=id, text=text, told_at=NOW, **fields))


def record(id: str) -> Pending:
    lists = {"preferences": ["tea"], "stable_facts": [], "do_not_assume": []}
    patch = Summary(
        id=id, record_type="user_profile", name="user", data=lists, evidence_ids=("a",), at=NOW
    )
    return Pending(scope=ANA, what=patch)


def ids(files: Spool) -> list[str]:
    return [each.id for each in files.waiting()]


@pytest.mark.spec("MIL-54", "MIL-55", "MIL-56")
def test_items_and_records_stand_in_their_own_files_one_sorted_object_a_line(
    tmp_path: Path,
) -> None:
    Spool(tmp_path).add([item("a"), record("r"), item("b")])
    short, long = (tmp_path / name for name in ("short_term.jsonl", "long_term.jsonl"))
    lines = [json.loads(line) for line in short.read_text("utf-8").splitlines()]
    assert [(line["record_type"], line["data"]["id"]) for line in lines] == [
        ("memory_item", "a"),
        ("memory_item", "b"),
    ]
    assert json.loads(long.read_text("utf-8"))["record_type"] == "user_profile"
    assert list(lines[0]["data"]) == sorted(lines[0]["data"])


@pytest.mark.spec("MIL-54", "MIL-55")
def test_stores_share_the_files_above_and_each_touches_its_own_lines(tmp_path: Path) -> None:
    ours, theirs = Spool(tmp_path / "0a"), Spool(tmp_path / "0b")
    foreign = '{"record_type": "memory_item", "data": {"content": "of another program"}}\n'
    (tmp_path / "short_term.jsonl").write_text(foreign)
    ours.add([replace(item("a", 'say "_store": "0b"'), shared=True), item("b")])
    theirs.add([replace(item("c"), shared=True), replace(record("r"), shared=True)])
    assert ids(ours) == ["b", "a"]
    assert ids(theirs) == ["c", "r"]
    assert [file.name for file in sorted(tmp_path.glob("*.jsonl"))] == [
        "long_term.jsonl",
        "short_term.jsonl",
    ]
    assert theirs.remove(["a", "c"]) == ["c"]
    assert ids(ours) == ["b", "a"]
    assert ours.remove(["a", "b"], problems=["a"]) == ["b"]
    assert ours.is_empty
    assert len(ours.set_aside()) == 1
    assert theirs.set_aside() == []
    assert theirs.remove(["r"]) == ["r"]
    assert theirs.is_empty
    assert (tmp_path / "short_term.jsonl").read_text() == foreign


def test_a_line_that_was_cut_is_set_aside_by_the_store_that_wrote_it(tmp_path: Path) -> None:
    ours, theirs = Spool(tmp_path / "0a"), Spool(tmp_path / "0b")
    ours.add([replace(item("a"), shared=True)])
    file = tmp_path / "short_term.jsonl"
    file.write_bytes(file.read_bytes()[:80])
    theirs.remove([])
    assert theirs.set_aside() == []
    assert not ours.is_empty
    ours.remove([])
    assert len(ours.set_aside()) == 1
    assert not file.exists()


def test_what_was_added_comes_back_as_it_was(tmp_path: Path) -> None:
    told = item(
        "a",
        "Grüße, 世界\u2028\n!",
        labels=Labels(session="s"),
        tags=("x",),
        at=NOW,
        importance=0.25,
        pinned=True,
    )
    Spool(tmp_path).add([told])
    assert Spool(tmp_path).waiting() == [told]
    assert "Grüße, 世界" in (tmp_path / "short_term.jsonl").read_text("utf-8"), (
        "people can read it in the file"
    )


@pytest.mark.spec("MIL-57")
@pytest.mark.parametrize(
    "wrong",
    [
        item("a", text=7),  # type: ignore[arg-type]
        item("a", importance=7.0),
        item("a", importance=float("nan")),
        item("a", kind="nonsense"),
        item("a", tags="tea"),
        item("a", text="\ud800"),
        item(""),
        replace(item("a"), scope=Scope(user=None)),  # type: ignore[arg-type]
    ],
    ids=lambda wrong: repr(wrong.what)[:40],
)
def test_an_invalid_payload_is_never_written_nor_what_came_with_it(
    tmp_path: Path, wrong: Pending
) -> None:
    with pytest.raises(InvalidInput):
        Spool(tmp_path).add([item("fine"), wrong])
    assert not list(tmp_path.glob("*.jsonl"))


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    files = Spool(tmp_path / "data" / "memory")
    files.add([item("a")])
    assert stat.S_IMODE((tmp_path / "data" / "memory").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / "memory" / "short_term.jsonl").stat().st_mode) == 0o600


def test_a_message_waits_once(tmp_path: Path) -> None:
    files, other = Spool(tmp_path), Spool(tmp_path)
    (first,) = files.add([item("a", message_id="m1")])
    again, elsewhere = other.add(
        [item("b", message_id="m1"), replace(item("c", message_id="m1"), scope=Scope(user="b"))]
    )
    assert (again, elsewhere.id) == (first, "c")
    assert ids(files) == ["a", "c"]


@pytest.mark.parametrize(
    "cut", [b'{"data": {"id": "b', b"\xff\xfe", b"[]", b'{"record_type": "x", "data": {}}']
)
def test_a_line_that_was_cut_is_set_aside_and_the_next_one_is_whole(
    tmp_path: Path, cut: bytes
) -> None:
    files = Spool(tmp_path)
    files.add([item("a")])
    with (tmp_path / "short_term.jsonl").open("ab") as file:
        file.write(cut)  # a write that power loss ended
    assert ids(files) == ["a"]
    files.add([item("c")])
    assert ids(files) == ids(Spool(tmp_path)) == ["a", "c"]
    assert files.remove(["a"]) == ["a"]
    (aside,) = files.set_aside()
    assert aside.read_bytes() == cut + b"\n"
    assert ids(files) == ["c"]


def test_what_is_taken_out_is_gone_from_the_disk_and_a_problem_is_set_aside(tmp_path: Path) -> None:
    files = Spool(tmp_path)
    files.add([item("a", "secret"), item("b"), item("c", "odd")])
    assert files.remove(["a"], ["c"]) == ["a"]
    assert ids(files) == ["b"]
    assert b"odd" in files.set_aside()[0].read_bytes()
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
    files.remove(["b"])
    assert files.is_empty


def test_a_reader_follows_what_others_add_and_take_out(tmp_path: Path) -> None:
    files, other = Spool(tmp_path), Spool(tmp_path)
    for round in range(6):  # numbers of files are used again by the system
        other.add([item(f"{round}-{number}") for number in range(round + 2)])
        assert ids(files) == ids(Spool(tmp_path))
        other.remove([f"{round}-0"])
        assert ids(files) == ids(Spool(tmp_path))


def test_only_one_hands_over_at_a_time(tmp_path: Path) -> None:
    with Spool(tmp_path).alone() as first, Spool(tmp_path).alone() as second:
        assert (first, second) == (True, False)
    with Spool(tmp_path).alone() as third:
        assert third


ADD_AND_REMOVE = """
import sys
from pathlib import Path
from memorist.types import Draft, Scope
from memorist.offline.spool import Pending
from memorist.offline.spool import Spool

folder, name = sys.argv[1:]
files = Spool(Path(folder))
for number in range(40):
    files.add([Pending(scope=Scope(user="ana"), what=Draft(id=f"{name}-{number}", text="Tea, not coffee."))])
    if number % 3 == 0:
        files.remove([f"{name}-{number}"])
"""


def test_processes_that_add_and_take_out_at_once_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ADD_AND_REMOVE, str(tmp_path)]
    children = [subprocess.Popen([*command, name]) for name in "abcd"]
    assert [child.wait() for child in children] == [0] * 4
    wanted = {f"{name}-{number}" for name in "abcd" for number in range(40) if number % 3}
    found = ids(Spool(tmp_path))
    assert (len(found), set(found)) == (len(wanted), wanted)
    assert not Spool(tmp_path).set_aside()


def test_a_disk_without_room_is_told_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    import signal

    files = Spool(tmp_path)
    files.add([item("a")])
    size = (tmp_path / "short_term.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))  # as if the disk ended there
    try:
        with pytest.raises(OSError):
            files.add([item("b", "x" * 500)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "short_term.jsonl").stat().st_size == size
    files.add([item("c")])
    assert ids(Spool(tmp_path)) == ["a", "c"]
