"""Eight processes read and write one file, or one server: no lock errors, nothing lost, no news told twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

import memorist
from faults.server import asked
from memorist.sync import BlockingScope
from memorist.types import STATES, Filter

CHILD = Path(__file__).with_name("children.py")


def together(path: Path | str, *, processes: int, times: int) -> list[dict[str, Any]]:
    """Let many processes merge the same text into one memory; gives what each of them was told."""
    commands = [
        [sys.executable, str(CHILD), "merge", str(path), f"process{n}", str(times)]
        for n in range(processes)
    ]
    running = [
        subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    answers = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * processes, [
        err[-500:] for _, err in answers
    ]
    return [json.loads(out)[0] for out, _ in answers]


def held(path: Path | str, told: list[dict[str, Any]]) -> dict[str, int]:
    """What the file says, against what was acknowledged."""
    with memorist.open(path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        (kettle,) = (each for each in ana.list(limit=1000) if "kettle" in each.text)
        merges = [line.event for line in ana.history(kettle.id, limit=100_000)].count("MERGE")
        acked = sum(each["merged"] for each in told)
        return {
            "acked": acked,
            "lost": acked - kettle.repeat_count,
            "without history": kettle.repeat_count - merges,
            "lost revisions": 1 + acked - kettle.revision,
            "lost thread revisions": _lost_revisions(path),
            "changes told twice or never": _told_wrong(memory.scope("ana", thread="t"), told),
            "made twice": sum(each["created"] for each in told) - 1,
            "lost pins and edits": sum(
                1 + each["pins"] + each["edits"] - each["own"][0] for each in told
            ),
            **_shared(ana, sum(each["shared"] for each in told)),
            "errors": sum(each["errors"] for each in told),
            "unread": sum(each["unread"] for each in told),
            "problems": len(memory.check()),
        }


def _shared(ana: BlockingScope, acked: int) -> dict[str, int]:
    """What became of the memory that all of them edited, undid, hid and restored."""
    (shared,) = ana.remember([{"id": "shared", "content": "The lighthouse of Foz is white."}]).ids
    history = ana.history(shared, limit=10_000)
    edits = [
        line
        for line in history
        if line.event == "UPDATE" and line.old_ref and "undoes" not in line.meta
    ]
    versions = ana.list(Filter(versions_of=shared, states=STATES), limit=1000)
    texts = [line.old_ref for line in history if line.old_ref]
    return {
        "lost shared edits": acked - len(edits),
        "shared revisions without history": ana.get(shared).revision - len(history),
        "shared edits without a version": len(set(texts) - {each.id for each in versions}),
    }


def _told_wrong(ana: BlockingScope, told: list[dict[str, Any]]) -> int:
    """Places where what the processes heard of the thread, and what is left to hear, overlaps or has a gap."""
    heard = [tuple(each) for process in told for each in process["news"]]
    while (news := ana.delta()).changes:
        heard.append((news.since, news.revision))
    spans = sorted(span for span in heard if span[0] != span[1])
    ends = [0, *(end for _, end in spans)]
    last = ana.delta().revision
    return sum(begin != end for (begin, _), end in zip(spans, ends, strict=False)) + (
        ends[-1] != last
    )


def _lost_revisions(path: Path | str) -> int:
    """Revisions of the thread that were counted and not logged, or logged twice."""
    sql = "SELECT max(rev) - (SELECT rev FROM {0}thread_revision), max(rev) - count(*) FROM {0}change_log"
    if "://" in str(path):
        ((ahead, repeated),) = asked(str(path), sql.format("memorist."))
    else:
        connection = apsw.Connection(str(path))
        ((ahead, repeated),) = connection.execute(sql.format("")).fetchall()
        connection.close()
    return abs(int(ahead or 0)) + abs(int(repeated or 0))


@pytest.mark.spec("IMP-1", "IMP-14", "IMP-72")
def test_eight_processes_lose_no_update(tmp_path: Path) -> None:
    found = held(tmp_path / "m.db", together(tmp_path / "m.db", processes=8, times=20))
    assert found == {**dict.fromkeys(found, 0), "acked": 8 * 20 - 1}


@pytest.mark.spec("IMP-1", "IMP-14", "IMP-72")
def test_eight_processes_lose_no_update_on_a_server(own_database: str) -> None:
    found = held(own_database, together(own_database, processes=8, times=20))
    assert found == {**dict.fromkeys(found, 0), "acked": 8 * 20 - 1}


@pytest.mark.slow
def test_eight_processes_lose_no_update_in_2000(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    found = held(tmp_path / "m.db", together(tmp_path / "m.db", processes=8, times=250))
    with capsys.disabled():
        print(f"\n8 processes × 250: {found}, {time.monotonic() - start:.0f} s")
    assert found == {**dict.fromkeys(found, 0), "acked": 8 * 250 - 1}
