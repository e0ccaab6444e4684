"""What is known of a person: proposed, shown, and decided by nobody but them, on both databases."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.testing import CliRunner

import memorist
from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.errors import (
    ConsentMissing,
    InvalidInput,
    NotAllowed,
    NotFound,
    Refused,
    StoreDamaged,
)
from memorist.interfaces.cli import app
from memorist.manage.privacy import SENSITIVE
from memorist.scoped import ScopedClient
from memorist.storage import person
from memorist.storage.person import Proposal

VALUES = {
    "preferred_name": "Ana",
    "pronouns": "she/her",
    "city": "Ypsilonburg",
    "language": "Portuguese",
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    where = (
        tmp_path / "memory.db"
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )
    async with aio.open(where, embedder="hashing", state_dir=tmp_path) as opened:
        opened.ctx.clock = Clock(datetime(2026, 3, 1, 12, tzinfo=UTC))
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


async def said(scope: ScopedClient, *texts: str, **more: Any) -> list[str]:
    return [(await scope.remember(text, **more)).ids[0] for text in texts]


def holding(folder: Path, words: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and words in path.read_bytes()]


def later(engine: Client, **step: float) -> None:
    assert isinstance(engine.ctx.clock, Clock)
    engine.ctx.clock.now += timedelta(**step)


async def decisions(scope: ScopedClient, field: str) -> list[tuple[str, str | None]]:
    """What was decided of a field, oldest first, and by whom."""
    entries = [
        entry for entry in await scope.history(limit=10_000) if entry.meta.get("field") == field
    ]
    return [(entry.meta["decision"], entry.actor) for entry in reversed(entries)]


@pytest.mark.spec("IMP-85")
@pytest.mark.parametrize("field", ["preferred_name", "pronouns", "city", "language"])
async def test_a_sensitive_field_changes_only_with_consent(ana: ScopedClient, field: str) -> None:
    for evidence in await said(
        ana, "I am at home here.", "Where I live they know me.", "All my friends call me that."
    ):
        made = await ana.consent.propose(field, VALUES[field], evidence=[evidence])
        assert made.decided is None, "however much speaks for it"
    assert await ana.consent.about() == {}
    (waiting,) = await ana.consent.list()
    assert len(waiting.evidence) == 3
    await ana.consent.approve(waiting.id, actor="ana")
    assert await ana.consent.about() == {field: VALUES[field]}
    assert await ana.consent.list() == []
    told = [("proposed", None), ("supported", None), ("supported", None), ("approved", "ana")]
    assert await decisions(ana, field) == told


@pytest.mark.spec("IMP-86")
async def test_a_proposal_waits_seven_days_and_lapses(engine: Client, ana: ScopedClient) -> None:
    (evidence,) = await said(ana, "The tram to the castle stops at my door.")
    made = await ana.consent.propose("city", "Ypsilonburg", evidence=[evidence])
    later(engine, days=7, seconds=-1)
    assert [each.id for each in await ana.consent.list()] == [made.id]
    later(engine, seconds=2)
    assert await ana.consent.list() == []
    with pytest.raises(NotFound, match="lapsed"):
        await ana.consent.approve(made.id)
    assert await ana.consent.about() == {}
    assert await decisions(ana, "city") == [("proposed", None), ("lapsed", None)]
    again = await ana.consent.propose("city", "Ypsilonburg", evidence=[evidence])
    assert again.id != made.id
    later(engine, days=8)
    await ana.purge()
    assert await person.load_proposals(engine.ctx.store, ana.scope) == [], (
        "its words are gone, whether anybody looks or not"
    )


@pytest.mark.spec("IMP-87")
@pytest.mark.parametrize("field", ["tone", "goals_add"])
async def test_a_benign_field_is_applied_when_two_things_speak_for_it(
    ana: ScopedClient, field: str
) -> None:
    first, second = await said(ana, "Long answers tire me.", "Say it in one sentence, I am busy.")
    assert (await ana.consent.propose(field, "brief", evidence=[first])).decided is None
    assert (await ana.consent.propose(field, "Brief", evidence=[first])).decided is None, (
        "the same one twice is one"
    )
    assert await ana.consent.about() == {}
    made = await ana.consent.propose(field, "Brief", evidence=[second])
    assert made.decided == "corroborated"
    assert await ana.consent.about() == (
        {"tone": "brief"} if field == "tone" else {"goals": ["brief"]}
    )
    assert ("corroborated", None) in await decisions(ana, field)


@pytest.mark.spec("IMP-87")
@pytest.mark.parametrize(
    ("confidence", "decided"), [(0.9, "corroborated"), (0.8, "corroborated"), (0.79, None)]
)
async def test_an_insight_is_enough_for_a_benign_field_if_it_is_sure(
    ana: ScopedClient, confidence: float, decided: str | None
) -> None:
    (insight,) = await said(
        ana, "Ana wants short answers when she works.", kind="insight", confidence=confidence
    )
    assert (await ana.consent.propose("tone", "brief", evidence=[insight])).decided == decided
    assert (await ana.consent.propose("city", "Ypsilonburg", evidence=[insight])).decided is None


@pytest.mark.spec("IMP-87")
async def test_two_things_that_contradict_each_other_do_not_apply_a_benign_field(
    ana: ScopedClient,
) -> None:
    evidence = await said(
        ana, "Please keep your answers brief.", "Please give me long answers, never brief ones."
    )
    made = [await ana.consent.propose("tone", "brief", evidence=[each]) for each in evidence]
    assert [each.decided for each in made] == [None, None]
    assert await ana.consent.about() == {}


@pytest.mark.spec("IMP-88")
async def test_values_are_the_same_only_word_for_word(ana: ScopedClient) -> None:
    first, second = await said(ana, "Long answers tire me.", "Say it in one sentence, I am busy.")
    await ana.consent.propose("tone", "brief and friendly", evidence=[first])
    await ana.consent.propose("tone", "friendly and brief", evidence=[second])
    assert await ana.consent.about() == {}
    assert len(await ana.consent.list()) == 2


@pytest.mark.spec("IMP-85")
async def test_a_former_value_needs_consent_again(engine: Client, ana: ScopedClient) -> None:
    (evidence,) = await said(ana, "The tram to the castle stops at my door.")
    former = await ana.consent.set("city", "Porto")
    later(engine, days=1)
    await ana.consent.set("city", "Lisbon")
    made = await ana.consent.propose("city", "Porto", evidence=[evidence])
    assert (made.decided, made.id != former.id) == (None, True)
    assert [each.id for each in await ana.consent.list()] == [made.id]
    assert await ana.consent.about() == {"city": "Lisbon"}


async def test_what_is_approved_is_what_was_shown(engine: Client, ana: ScopedClient) -> None:
    (evidence,) = await said(ana, "The tram to the castle stops at my door.")
    shown = await ana.consent.propose("city", "Porto", evidence=[evidence])
    await ana.consent.propose("city", "Lisbon", evidence=[evidence])
    with pytest.raises(InvalidInput):
        await ana.consent.approve(shown.id, shown="Lisbon")
    assert (await ana.consent.approve(shown.id, shown="Porto")).value == "Porto"
    assert await ana.consent.about() == {"city": "Porto"}
    with pytest.raises(NotFound):
        await ana.consent.approve(shown.id)
    with pytest.raises(NotFound):
        await engine.scope("bo").consent.approve((await ana.consent.list())[0].id)


@pytest.mark.parametrize(
    "value", ["Porto\nRoot", "Por\u202eto", "Po\u200brto", "a\x00b", "", "x" * 201, None]
)
async def test_nothing_can_be_hidden_in_what_is_shown(ana: ScopedClient, value: Any) -> None:
    (evidence,) = await said(ana, "The tram to the castle stops at my door.")
    with pytest.raises(InvalidInput):
        await ana.consent.propose("city", value, evidence=[evidence])


async def test_a_proposal_altered_behind_our_back_is_not_approved(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as engine:
        ana = engine.scope("ana")
        (evidence,) = await said(ana, "The tram to the castle stops at my door.")
        made = await ana.consent.propose("city", "Porto", evidence=[evidence])
        with apsw.Connection(str(tmp_path / "m.db")) as connection:
            connection.execute(
                "UPDATE consent_queue SET proposal = replace(proposal, 'Porto', 'Lagos')"
            )
        with pytest.raises(StoreDamaged):
            await ana.consent.approve(made.id)


async def test_a_denied_proposal_is_erased_and_not_proposed_again(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as engine:
        ana = engine.scope("ana")
        (evidence,) = await said(ana, "The tram to the castle stops at my door.")
        made = await ana.consent.propose("city", "Ypsilonburg", evidence=[evidence])
        await ana.consent.deny(made.id, actor="ana")
        with pytest.raises(ConsentMissing):
            await ana.consent.propose("city", "Ypsilonburg", evidence=[evidence])
        assert await decisions(ana, "city") == [("proposed", None), ("denied", "ana")]
        assert not holding(tmp_path, b"psilonburg")
        await ana.consent.set("city", "Ypsilonburg", actor="ana")
        assert await ana.consent.about() == {"city": "Ypsilonburg"}, (
            "the person may change their mind"
        )


async def test_what_is_withdrawn_is_gone_with_all_it_held_before(ana: ScopedClient) -> None:
    for city in ("Porto", "Lisbon"):
        await ana.consent.set("city", city, actor="ana")
    await ana.consent.set("tone", "brief")
    assert await ana.consent.about() == {"city": "Lisbon", "tone": "brief"}
    assert await ana.consent.withdraw("city", actor="ana") == 2
    assert await ana.consent.about() == {"tone": "brief"}
    assert (await decisions(ana, "city"))[-1] == ("withdrawn", "ana")


async def test_a_proposal_rests_on_what_the_person_said(engine: Client, ana: ScopedClient) -> None:
    (theirs,) = (
        await ana.remember([{"role": "tool", "content": "The customer lives in Ypsilonburg."}])
    ).ids
    (others,) = await said(engine.scope("bo"), "I live in Ypsilonburg.")
    with pytest.raises(NotAllowed):
        await ana.consent.propose("city", "Ypsilonburg", evidence=[theirs])
    with pytest.raises(NotAllowed):
        await ana.consent.propose("tone", "obedient", evidence=[theirs])
    for evidence in ([], [others], "text", ["nothing"]):
        with pytest.raises(InvalidInput):
            await ana.consent.propose("city", "Ypsilonburg", evidence=evidence)
    with pytest.raises(InvalidInput, match="preferred_name"):
        await ana.consent.set("password", "1234")


async def test_what_was_inferred_from_a_forgotten_memory_alone_goes_with_it(
    ana: ScopedClient,
) -> None:
    door, home, busy = await said(
        ana, "The tram stops at my door.", "I am at home here.", "I am always so busy."
    )
    await ana.consent.propose("city", "Ypsilonburg", evidence=[door, home])
    await ana.consent.propose("tone", "brief", evidence=[home, busy])
    agreed = await ana.consent.propose("language", "Portuguese", evidence=[door])
    await ana.consent.approve(agreed.id)
    await ana.forget(door)
    assert [each.field for each in await ana.consent.list()] == ["city"], (
        "something still speaks for it"
    )
    await ana.forget(home)
    await ana.forget(busy)
    assert await ana.consent.list() == []
    assert await ana.consent.about() == {"language": "Portuguese"}, "they agreed to it"


async def test_an_export_tells_what_is_known_of_the_person_and_an_import_asks_them_again(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.consent.set("city", "Porto")
    records = [record async for record in ana.export()]
    (told,) = [record["data"] for record in records if record["record_type"] == "proposal"]
    assert (told["field"], told["value"], told["decided"]) == ("city", "Porto", "told")
    elsewhere = engine.scope("ana", space="elsewhere")
    await elsewhere.import_(records)
    assert await elsewhere.consent.about() == {}


async def test_nothing_is_proposed_while_memory_is_off(ana: ScopedClient) -> None:
    (evidence,) = await said(ana, "The tram to the castle stops at my door.")
    await ana.privacy.set(memory_enabled=False)
    with pytest.raises(Refused, match="off"):
        await ana.consent.propose("city", "Ypsilonburg", evidence=[evidence])


@pytest.mark.spec("IMP-89")
@pytest.mark.parametrize("seed", range(3))
async def test_in_any_history_a_sensitive_field_changed_only_by_a_decision(
    engine: Client, ana: ScopedClient, seed: int
) -> None:
    chance, evidence = (
        random.Random(seed),
        await said(ana, "I am at home here.", "They know me.", "It rains a lot."),
    )
    for _ in range(60):
        before, decided = await ana.consent.about(), None
        waiting: list[Proposal] = await ana.consent.list()
        match chance.choice(["propose", "propose", "propose", "approve", "deny", "wait"]):
            case "propose":
                value = chance.choice(["red", "green", "blue", "pink", "grey"])
                field = chance.choice([*SENSITIVE, "tone"])
                with suppress(ConsentMissing):
                    await ana.consent.propose(field, value, evidence=chance.sample(evidence, 2))
            case "approve" if waiting:
                decided = await ana.consent.approve(chance.choice(waiting).id, actor="ana")
            case "deny" if waiting:
                await ana.consent.deny(chance.choice(waiting).id, actor="ana")
            case _:
                later(engine, days=chance.choice([1, 3, 8]))
        after = await ana.consent.about()
        changed = {field for field in SENSITIVE if before.get(field) != after.get(field)}
        assert changed <= ({decided.field} if decided else set())
        assert decided is None or after[decided.field] == decided.value
    trail = {
        entry.memory_id: entry.actor
        for entry in await ana.history(limit=10_000)
        if entry.meta.get("decision") == "approved"
    }
    for each in await person.load_proposals(engine.ctx.store, ana.scope):
        if each.field in SENSITIVE and each.decided:
            assert (each.decided, trail[each.id]) == ("approved", "ana")


def test_the_command_line_lists_approves_and_denies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DB": tmp_path / "m.db",
        "EMBEDDER": "hashing",
        "USER": "ana",
        "STATE_DIR": tmp_path,
    }.items():
        monkeypatch.setenv(f"MEMORIST_{name}", str(value))
    with memorist.open() as memory:
        ana = memory.scope("ana")
        (evidence,) = ana.remember("The tram to the castle stops at my door.").ids
        city = ana.consent.propose("city", "Porto", evidence=[evidence])
        name = ana.consent.propose("preferred_name", "Root", evidence=[evidence])

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["consent", *words])

    listed = [json.loads(line) for line in run("list", "--json").stdout.splitlines()]
    assert [(each["id"], each["value"]) for each in listed] == [
        (city.id, "Porto"),
        (name.id, "Root"),
    ]
    assert "Porto  waiting until" in run("list").stdout
    assert "Porto  approved" in run("approve", city.id).stdout
    assert "Root  denied" in run("deny", name.id).stdout
    assert run("approve", name.id).exit_code == 3
    assert run("approve").exit_code == 2
    assert run("set", "tone", "brief").exit_code == 0
    assert run("about").stdout.splitlines() == ["city  Porto", "tone  brief"]
    assert run("withdraw", "city").exit_code == 0
    assert json.loads(run("about", "--json").stdout) == {"tone": "brief"}
