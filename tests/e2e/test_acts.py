"""What is counted, and what a person does: every act has its line, and no line has a word of what was said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memorist
from memorist.interfaces.cli import app
from memorist.sync import Blocking, BlockingScope
from memorist.types import Filter

TEA = "I prefer green tea in the morning."


@pytest.fixture
def memory(place: str, tmp_path: Path) -> Iterator[Blocking]:
    with memorist.open(place, embedder="hashing", state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(memory: Blocking) -> BlockingScope:
    return memory.scope("ana", session="chat-1")


def counted(scope: BlockingScope) -> Counter[tuple[str, str]]:
    """How often each thing was done, by operation and status."""
    counts: Counter[tuple[str, str]] = Counter()
    for tally in scope.event_counts():
        counts[tally.op, tally.status] += tally.count
    return counts


@pytest.mark.spec("THE-99")
@pytest.mark.parametrize("policy", ["default", "theoria"])
def test_what_was_said_before_is_counted_also_within_one_call(
    memory: Blocking, policy: str
) -> None:
    ana = memory.scope("ana")
    for said in ([TEA], ["i PREFER green tea in the  morning!"], ["I keep bees in May."] * 3):
        ana.remember([{"content": text} for text in said], policy=policy)
    saved = sum(m.repeat_count for m in ana.list())
    assert counted(ana)["merge", "ok"] == saved == 3, "one, and two in one call"
    assert counted(ana)["create", "ok"] == len(ana.list()) == 2
    assert counted(memory.scope("bo")) == Counter()


@pytest.mark.spec("THE-24", "THE-100")
def test_the_soft_cap_is_a_setting_and_what_goes_is_counted_and_can_be_restored(
    place: str, tmp_path: Path
) -> None:
    with memorist.open(place, embedder="hashing", state_dir=tmp_path, capacity=3) as memory:
        ana, work = memory.scope("ana"), memory.scope("ana", space="work")
        for number in range(5):
            ana.remember(f"Heron {number} stands in the river.")
            work.remember(f"Invoice {number} is paid.", policy="theoria")
        assert (len(ana.list()), len(work.list())) == (3, 3)
        trims = [(tally.node, tally.count) for tally in ana.event_counts() if tally.op == "ttl"]
        assert sum(count for _, count in trims) == 2
        assert {node for node, _ in trims} <= {"hotpath", "episodic"}, (
            "not those of the worker, which are expiries"
        )
        (gone, _) = ana.list(Filter(states=("soft_deleted",)))
        assert gone.purge_at is not None
        assert ana.history(gone.id)[0].meta["reason"] == "capacity"
        assert ana.restore(gone.id).is_active


@pytest.mark.spec("THE-49", "THE-100")
def test_the_protected_are_never_trimmed_and_an_alert_says_that_there_are_too_many(
    place: str, tmp_path: Path
) -> None:
    with memorist.open(place, embedder="hashing", state_dir=tmp_path, capacity=2) as memory:
        ana = memory.scope("ana")
        for number in range(2):
            ana.remember(f"Heron {number} stands in the river.", pinned=True)
        assert counted(ana)["ttl", "error"] == 0
        ana.remember("Storks stand on roofs.", manually_saved=True)
        assert counted(ana) & Counter({("ttl", "error"): 9, ("ttl", "ok"): 9}) == {
            ("ttl", "error"): 1
        }
        assert len(ana.list()) == 3
        (alert,) = (line for line in ana.events(op="ttl") if line.status == "error")
        assert (alert.memory_id, alert.category) == (None, None)


@pytest.mark.spec("THE-49")
def test_a_pin_alone_protects_from_trimming(place: str, tmp_path: Path) -> None:
    with memorist.open(place, embedder="hashing", state_dir=tmp_path, capacity=1) as memory:
        ana, other = memory.scope("ana"), memory.scope("ana", space="other")
        other.remember("Herons stand in the river.", pinned=True)
        records = list(other.export())
        for record in records:  # version 0.1 exported pins so
            if record["record_type"] == "memory":
                record["data"] |= {"manually_saved": False, "importance": 0.0}
        (pinned,) = ana.import_(records, restore=True).ids
        assert not ana.get(pinned).manually_saved
        ana.remember("Storks stand on roofs.")
        assert [each.id for each in ana.list()] == [pinned]


@pytest.mark.spec("THE-24")
def test_no_capacity_is_without_end(place: str, tmp_path: Path) -> None:
    with memorist.open(place, embedder="none", state_dir=tmp_path, capacity=0) as memory:
        ana = memory.scope("ana")
        ana.remember(
            [{"content": f"Heron {number} stands in the river."} for number in range(220)],
            policy="theoria",
        )
        assert ana.stats()["memories"] == 220
        assert ana.stats()["states"] == {"active": 220}


@pytest.mark.spec("THE-102")
def test_what_a_person_does_is_counted_without_a_word_of_it(
    memory: Blocking, ana: BlockingScope
) -> None:
    tea, bees = ana.remember([{"content": TEA}, {"content": "I keep bees on the balcony."}]).ids
    ana.pin(tea)
    ana.unpin(tea)
    ana.pin(tea)
    for is_on in (False, True, False):
        ana.privacy.set(memory_enabled=is_on)
    memory.scope("ana", session="chat-zq77").privacy.start_incognito()
    ana.forget(bees)
    ana.forget(tea)
    counts = counted(ana)
    acts = ("pin", "unpin", "delete", "enable", "disable", "incognito")
    assert {op: counts[op, "ok"] for op in acts} == dict(zip(acts, (2, 1, 2, 1, 2, 1), strict=True))
    (started,) = ana.events(op="incognito")
    assert (started.thread, started.memory_id, started.category) == (None, None, None)
    assert f"{started.at:%H:%M:%S.%f}" == "00:00:00.000000", (
        "the day is counted, and not the moment"
    )
    assert "zq77" not in str(ana.events(limit=1000))


@pytest.mark.spec("THE-114")
def test_a_person_can_do_everything_from_python_and_each_act_can_be_audited(
    ana: BlockingScope,
) -> None:
    (id,) = ana.remember(TEA).ids
    assert [memory.text for memory in ana.list()] == [TEA]
    ana.pin(id, actor="ana")
    ana.privacy.set(memory_enabled=False, actor="ana")
    ana.forget(id, actor="ana", reason="old")
    pinned = [(e.event, e.actor) for e in ana.history(id)]
    assert pinned == [("DELETE", "ana"), ("UPDATE", "ana"), ("ADD", None)]
    (off,) = ana.history("settings")
    assert (off.actor, dict(off.meta)) == ("ana", {"memory_enabled": False})
    ana.privacy.start_incognito()
    assert len(ana.history()) == 4, "of an incognito session nothing is kept but that there was one"
    assert len(ana.events(op="incognito")) == 1


@pytest.fixture
def run(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in {
        "DB": place,
        "EMBEDDER": "hashing",
        "USER": "ana",
        "STATE_DIR": tmp_path,
    }.items():
        monkeypatch.setenv(f"MEMORIST_{name}", str(value))

    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.stderr
        lines = (
            [json.loads(line) for line in done.stdout.splitlines()]
            if "\n{" in done.stdout
            else None
        )
        return lines or (json.loads(done.stdout) if done.stdout.strip() else [])

    return run


@pytest.mark.spec("THE-114")
def test_a_person_can_do_everything_from_the_command_line_and_each_act_can_be_audited(
    run: Any,
) -> None:
    (id,) = run("remember", TEA)["outcomes"][0]["ids"]
    run("pin", id)
    run("privacy", "set", "off")
    run("forget", id, "--yes")
    run("privacy", "incognito", "start", "--session", "chat-1")
    told = [(entry["event"], entry["actor"]) for entry in run("history")]
    assert told == [("DELETE", "ana"), ("UPDATE", "ana"), ("UPDATE", "ana"), ("ADD", None)]
    assert {"pin", "disable", "delete", "incognito"} <= {
        tally["op"] for tally in run("stats", "event-counts")
    }


@pytest.mark.spec("THE-117")
def test_a_moved_meeting_is_noticed_asks_for_a_decision_and_supersedes_the_old_time(
    run: Any, place: str
) -> None:
    run("remember", "The budget meeting is on Tuesday at ten.")
    outcome = run("remember", "The budget meeting is on Friday at four.")["outcomes"][0]
    assert outcome["status"] == "created"
    assert outcome["supersedes"] is not None
    assert "confirm it, reject it, or keep both" in outcome["reason"]
    asked = run("conflicts")
    assert (asked["old"], asked["new"]) == (
        "The budget meeting is on Tuesday at ten.",
        "The budget meeting is on Friday at four.",
    )
    run("conflicts", "confirm", outcome["ids"][0])
    assert run("conflicts") == []
    with memorist.open(place, embedder="hashing") as memory:
        ana = memory.scope("ana")
        assert [hit.memory.text for hit in ana.recall("When is the budget meeting?")] == [
            asked["new"]
        ]
        old = ana.get(asked["old_id"])
        assert (old.state, old.superseded_by) == ("superseded", outcome["ids"][0])
