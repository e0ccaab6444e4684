"""Facts from conversations without any setting: extracted soon after the turns, once, and shown once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist import aio, context
from memorist.errors import InvalidInput
from memorist.scoped import ScopedClient
from memorist.storage import Save
from memorist.types import Filter, Memory

FACTS = Filter(tags=("extracted",))
SAID = "Good morning! I'm allergic to peanuts, please keep that in mind for all our recipes."
FACT = "The user is allergic to peanuts."


def turn(text: str, id: str, session: str = "s1", role: str = "user") -> dict[str, Any]:
    return {"content": text, "id": id, "session": session, "role": role}


async def facts(scope: ScopedClient, where: Filter = FACTS) -> list[Memory]:
    return list(await scope.list(where, limit=1000))


async def test_closing_extracts_what_was_just_stored(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await ana.remember([turn(SAID, "m1"), turn("Noted!", "m2", role="assistant")])
        assert await facts(ana) == []
    async with aio.open(place, state_dir=tmp_path) as memory:
        (fact,) = await facts(memory.scope("ana"))
        assert (fact.text, fact.category) == (FACT, "profile")
        assert "I'm allergic to peanuts" in (fact.evidence_text or "")
        assert [each.name for each in await memory.backlog() if each.name == "extract"] == []


async def test_an_idle_client_extracts_by_itself(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await ana.remember([turn(SAID, "m1")])
        for _ in range(200):
            await asyncio.sleep(0.1)
            if found := await facts(ana):
                break
        assert [fact.text for fact in found] == [FACT]


async def test_extraction_waits_until_a_long_call_has_stored_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "IDLE_SECONDS", 0.01)  # far less than the call takes
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        await ana.remember([turn("I own a boat.", "m1")])
        await ana.remember([turn(f"I collect stamp number {n}.", str(n)) for n in range(600)])
        assert len(await facts(ana)) <= 1, "of the first call at most"
        for _ in range(300):
            await asyncio.sleep(0.1)
            if len(await facts(ana)) == 601:
                break
        else:
            pytest.fail("the rest was not extracted")


async def test_a_blocking_client_extracts_when_it_is_closed(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", state_dir=tmp_path) as memory:
        memory.scope("ana", session="s1").remember([{"role": "user", "content": SAID}])
    with memorist.open(tmp_path / "m.db", state_dir=tmp_path) as memory:
        assert [fact.text for fact in memory.scope("ana").list(FACTS)] == [FACT]


def test_the_command_line_extracts_after_it_printed(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "memorist", *words, "--db", str(tmp_path / "m.db")]
        command += ["--user", "ana"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "created" in run("remember", SAID, "--session", "s1")
    assert FACT in run("list")


def test_a_large_import_says_how_to_extract_all_facts_now(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    said = [{"content": f"I collect stamp number {n}.", "role": "user"} for n in range(600)]
    chat.write_text("\n".join(map(json.dumps, said)), "utf-8")
    env = {**os.environ, "MEMORIST_EMBEDDER": "hashing", "MEMORIST_STATE_DIR": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "memorist", *words, "--db", str(tmp_path / "m.db")]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env)

    done = run("import", str(chat), "--user", "ana")
    assert done.stdout == "600 records read, 600 new memories\n"
    assert "memorist jobs run --only extract" in done.stderr
    run("jobs", "run", "--only", "extract")
    again = run("import", str(chat), "--user", "ana")
    assert (again.stdout, again.stderr) == ("600 records read, 0 new memories\n", "")
    assert run("list", "--user", "ana", "--tag", "extracted", "--json").stdout.count('"id"') > 0


async def test_extraction_can_be_turned_off(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, extract="off") as memory:
        await memory.scope("ana").remember([turn(SAID, "m1")])
        assert await memory.backlog() == []
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as memory:
        assert await facts(memory.scope("ana")) == []


async def test_notes_and_what_the_assistant_says_give_no_facts(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await ana.remember("I'm allergic to peanuts.")
        await ana.remember([turn("I'm allergic to nonsense.", "m1", role="assistant")])
        await memory.run_jobs()
        assert await facts(ana) == []


async def test_one_call_of_many_turns_is_one_task_per_32(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        colors = [f"{a}{b}" for a in "bcdfg" for b in "lmnprst"]
        await ana.remember(
            [turn(f"I collect {each} stamps.", each) for each in colors], policy="default"
        )
        assert [each.waiting for each in await memory.backlog() if each.name == "extract"] == [2]
        await memory.run_jobs(only=["extract"])
        assert len(await facts(ana)) == 35, "rules have no cap by the day"


async def test_the_same_turn_again_changes_no_fact(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        (id,) = (await ana.remember([turn(SAID, "m1")])).ids
        await ana.extract(id)
        done = await ana.extract(id)
        assert [each.status for each in done.outcomes] == ["skipped"]
        (fact,) = await facts(ana)
        assert (fact.text, fact.repeat_count, fact.evidence_ids) == (FACT, 0, (id,))


async def test_said_again_in_another_session_is_one_fact_with_both_turns(
    place: str, tmp_path: Path
) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        first = (await ana.remember([turn(SAID, "m1")])).ids
        again = "Remember, I'm allergic to peanuts! So what can I cook with satay?"
        second = (await ana.remember([turn(again, "m9", "s2")])).ids
        await memory.run_jobs(only=["extract"])
        (fact,) = await facts(ana)
        assert (fact.text, fact.repeat_count) == (FACT, 1)
        assert set(fact.evidence_ids) == {*first, *second}


async def test_a_fact_and_its_turn_are_shown_once(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await ana.remember([turn(SAID, "m1"), turn("What shall I cook on Sunday?", "m2")])
        before = await ana.recall("What am I allergic to?")
        await memory.run_jobs(only=["extract"])
        answer = await ana.recall("What am I allergic to?")
        assert len([hit for hit in answer if "peanuts" in hit.memory.text]) == 1
        assert answer.text == before.text
        assert answer.confidence == before.confidence
        (fact,) = await facts(ana)
        (turn_id,) = fact.evidence_ids
        why = await ana.why_not("What am I allergic to?", fact.id)
        assert why.reason == f"it was extracted from {turn_id}, which is searched in its place"


async def test_a_fact_is_found_by_itself_where_its_turn_is_not_wanted(
    place: str, tmp_path: Path
) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        (id,) = (await ana.remember([turn(SAID, "m1")])).ids
        await memory.run_jobs(only=["extract"])
        only = await ana.recall("What am I allergic to?", where=Filter(kinds=("semantic",)))
        assert [hit.memory.text for hit in only] == [FACT]
        both = Filter(kinds=("semantic", "episodic"))
        assert [hit.memory.text for hit in await ana.recall("Allergies?", where=both)] == [SAID]
        await ana.forget(id, keep_days=30)
        kept = await ana.list(Filter(states=("active",)))
        assert [memory.text for memory in kept] == [], "a fact is hidden with its only turn"


async def test_a_fact_outlives_its_archived_turn(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path, compression_threshold=1) as memory:
        ana = memory.scope("ana")
        said = ["I own a boat called Linnet.", "I speak Dutch.", "I play chess.", "I hate cumin."]
        for n, text in enumerate(said):
            await ana.remember([turn(text, f"m{n}", f"s{n}")])
        await memory.run_jobs(only=["extract"])
        (done,) = (await ana.compress(threshold=1)).memories
        assert (await ana.get(done)).text == said[0]
        answer = await ana.recall("What is the boat called?", min_confidence=0)
        assert "The user owns a boat called Linnet." in [hit.memory.text for hit in answer]


async def test_a_fact_ends_with_the_turn_that_it_was_extracted_from(
    place: str, tmp_path: Path
) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await ana.remember([turn("I live in Ghent.", "m1")])
        await memory.run_jobs(only=["extract"])
        await ana.remember([turn("I moved to Bruges last week, I live there now.", "m2", "s2")])
        (old,) = [fact for fact in await facts(ana) if fact.text == "The user lives in Ghent."]
        assert old.valid_to is not None, "at once, before any job"
        await memory.run_jobs(only=["extract"])
        (conflict, *_) = await ana.conflicts()
        await ana.reject(conflict.id)
        (back,) = [fact for fact in await facts(ana) if fact.text == "The user lives in Ghent."]
        assert (back.valid_to, back.state) == (None, "active")


async def test_a_fact_of_a_turn_that_was_replaced_before_has_ended_with_it(
    place: str, tmp_path: Path
) -> None:
    old = (
        "The doctor gave me new pills: perindopril 4 mg in the morning for the blood pressure. "
        "Before that I had amlodipine but it gave swollen ankles. I live in Ghent."
    )
    new = "the pills changed again, no more perindopril because of the cough, now losartan 50"
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await ana.remember([turn(old, "m1") | {"at": "2025-06-11"}])
        await ana.remember([turn(new, "m2", "s2") | {"at": "2026-01-19"}])
        await memory.run_jobs(only=["extract"])
        ended = {fact.text: fact.valid_to is not None for fact in await facts(ana)}
        pills = next(text for text in ended if "perindopril" in text)
        assert ended[pills]
        assert ended["The user lives in Ghent."] is False
        (conflict,) = await ana.conflicts()
        await ana.reject(conflict.id)
        assert not any(fact.valid_to for fact in await facts(ana) if fact.text == pills)


async def test_backfill_reads_earlier_turns_once_and_continues(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path, embedder="hashing", extract="off") as memory:
        for user in ("ana", "ben"):
            said = [turn(f"I collect {user}{n} stamps.", f"m{n}") for n in range(250)]
            await memory.scope(user).remember([*said, turn("Nice!", "a1", role="assistant")])
        with pytest.raises(InvalidInput, match="Extraction is off"):
            await memory.backfill()
    async with aio.open(place, state_dir=tmp_path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        stored = await ana.list(limit=1000)
        await ana.extract(stored.memories[-1].id)
        done = await memory.backfill()
        assert (done.facts, done.conflicts) == (499, ())
        assert len(await facts(ana)) == len(await facts(memory.scope("ben"))) == 250
        assert (await memory.backfill()).facts == 0


async def test_a_turn_that_is_corrected_gives_its_facts_again(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        (id,) = (await ana.remember([turn("I'm allergic to peanuts.", "m1")])).ids
        await memory.run_jobs(only=["extract"])
        await ana.edit(id, "I'm allergic to walnuts.")
        assert await facts(ana) == []
        await memory.run_jobs(only=["extract"])
        assert [fact.text for fact in await facts(ana)] == ["The user is allergic to walnuts."]


async def test_forgetting_a_fact_forgets_the_turn_that_says_just_that(
    place: str, tmp_path: Path
) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        (alone,) = (await ana.remember([turn("I'm allergic to peanuts.", "m1")])).ids
        more = "I own a boat. What do you think about the weather for the weekend in Ostend?"
        (among,) = (await ana.remember([turn(more, "m2")])).ids
        await memory.run_jobs(only=["extract"])
        boat, nuts = sorted(await facts(ana), key=lambda fact: fact.text, reverse=True)
        done = await ana.forget(nuts.id)
        assert (done.ids, done.derived, done.sources) == ((nuts.id,), (alone,), ())
        done = await ana.forget(boat.id)
        assert (done.ids, done.derived, done.sources) == ((boat.id,), (), (among,))
        assert [each.text for each in await ana.list()] == [more]
        assert not [
            hit
            for hit in await ana.recall("allergies", min_confidence=0)
            if hit.memory.text != more
        ]


async def test_what_is_known_is_told_once_without_small_talk(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana", session="s1")
        said = [
            turn("I'm allergic to peanuts.", "m1"),
            turn("Noted.", "m2", role="assistant"),
            turn("What's the weather like?", "m3"),
        ]
        await ana.remember(said)
        await memory.run_jobs(only=["extract"])
        reply = await ana.command("what do you know about me?")
        assert reply is not None
        assert reply.say == "This is what I remember:\n1. The user is allergic to peanuts."


async def test_backfill_relates_earlier_turns_and_lists_what_they_replace(
    place: str, tmp_path: Path
) -> None:
    lyon = "We live in Lyon, third floor, no lift."
    said = [
        turn(lyon, "m1", session="a"),
        turn("Leeks are in season, any recipe?", "m2", session="b"),
        turn("We moved to Porto and live in Porto now.", "m3", session="c"),
    ]
    async with aio.open(place, state_dir=tmp_path, embedder="none", extract="off") as memory:
        await memory.scope("ana").remember(said)  # without vectors nothing is compared
    async with aio.open(place, state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await memory.run_jobs(only=["embed"])
        assert not await ana.conflicts()
        done = await memory.backfill()
        pairs = [(each.old.text, each.new.text) for each in done.conflicts]
        assert pairs == [(lyon, said[2]["content"])]
        assert done.conflicts[0].old.valid_to is not None
        hits = await ana.recall("Where do we live?")
        assert hits.memories[0].text != lyon
        await ana.keep_both(done.conflicts[0].id)
        assert (await memory.backfill()).conflicts == ()


@pytest.mark.parametrize("text", ["I'm allergic to nuts.", "My sister is called Mira."])
async def test_a_note_of_a_session_is_not_its_own_evidence(
    place: str, tmp_path: Path, text: str
) -> None:
    async with aio.open(place, state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="s1")
        (id,) = (await chat.remember(text)).ids
        await memory.run_jobs(only=["extract"])
        note = await chat.get(id)
        assert (note.evidence_ids, note.repeat_count) == ((), 0)
        shown = await chat.command("What do you know about me?")
        assert shown is not None
        assert text.split()[-1] in shown.say


async def test_a_note_that_was_its_own_evidence_is_shown_again(place: str, tmp_path: Path) -> None:
    async with aio.open(place, state_dir=tmp_path, extract="off") as memory:
        chat = memory.scope("ana", session="s1")
        (id,) = (await chat.remember("I'm allergic to nuts.")).ids
        old = replace(await chat.get(id), evidence_ids=(id, "other"))
        async with memory.ctx.store.transaction(chat.scope) as tx:
            await tx.apply([Save(memory=old, event="updated")])
        assert (await chat.get(id)).evidence_ids == ("other",)
        shown = await chat.command("What do you know about me?")
        assert shown is not None
        assert "allergic to nuts" in shown.say


async def test_a_context_does_not_show_a_turn_and_its_fact(tmp_path: Path) -> None:
    plan = "I'm thinking of applying for the summer internship at Halden, the deadline is April 30."
    offer = "I got the internship at Halden!!! Starts June 22 in Royston, ten weeks."
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        await ana.remember([turn(plan, "m1")])
        await ana.remember([turn(offer, "m2", session="s2")])
        await memory.run_jobs()
        assert [fact.text.split(";")[0] for fact in await facts(ana)] == [
            "The user got the internship at Halden"
        ]
        found = await ana.context("When does my internship start?")
        assert [line.source for line in found.lines] == ["recalled", "recalled"]
