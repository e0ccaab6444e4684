"""Which statements of a chat a newer one ends or may replace, beside look-alikes that change nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memorist import aio
from memorist.client import Client

START = datetime(2026, 3, 2, 10, tzinfo=UTC)


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a memory with all default settings."""
    async with aio.open(place, state_dir=tmp_path) as opened:
        yield opened


async def tell(engine: Client, texts: Sequence[str], *, as_role: str = "user") -> None:
    """Store each text on a day and in a session of its own."""
    for day, text in enumerate(texts):
        session = engine.scope("ana", session=f"day {day}")
        at = START + timedelta(days=day)
        await session.remember([{"role": as_role, "content": text, "at": at.isoformat()}])


async def ended(engine: Client) -> set[str]:
    memories = (await engine.scope("ana").list(limit=100)).memories
    return {each.text for each in memories if each.valid_to is not None}


async def listed(engine: Client) -> list[str]:
    return [pair.old.text for pair in await engine.scope("ana").conflicts()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I eat meat every day.", "Hi I'm a vegetarian now"),
        ("I live in Basel.", "hey I live in Bern now"),
        ("Ich esse jeden Tag Fleisch.", "Hallo, ich bin jetzt Vegetarier"),
        ("Como carne todos los días.", "Hola, soy vegetariana ahora"),
        ("I live in Lisbon.", "What do you know about Callum? I moved to Porto last week."),
        ("The standup is at 9:30.", "Did you hear? The standup moved to 10:00"),
        ("I take 5 mg of ramipril.", "They put me up to 10 mg ramipril, the 5 did too little"),
        ("I take 50 mg of losartan.", "I'm down to 25 mg of losartan"),
        ("Ich nehme 5 mg Ramipril.", "10 mg Ramipril statt 5 mg"),
        ("We use Celery for background jobs.", "Done: replaced Celery with procrastinate"),
        ("Wir nutzen Celery für Jobs.", "Celery durch Procrastinate ersetzt"),
        ("Usamos Celery para los trabajos.", "Hemos sustituido Celery por Dramatiq"),
        ("The public site uses Django.", "The public site moved from Django to Next.js"),
        ("I love jazz.", "I don't like jazz anymore"),
        ("Ana is our coach.", "Bea is our coach now"),
        ("Je travaille à la Poste.", "Je ne travaille plus à la Poste"),
        ("I row on Mondays.", "I no longer row on Mondays"),
        ("I drink coffee every morning.", "No more coffee for me"),
        ("Je bois du café le matin.", "Plus de café pour moi"),
        ("I drive to work.", "I cycle to work now"),
        ("Je vais au travail en voiture.", "Je vais au travail à vélo maintenant"),
        ("I drink wine every evening.", "I stopped drinking"),
        ("My number is 07700 900123.", "new number: 07700 900456, the old one is off"),
    ],
)
async def test_a_change_ends_what_it_changes(engine: Client, old: str, new: str) -> None:
    await tell(engine, [old, new])
    assert await ended(engine) == {old}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I eat meat every day.", "Hello again my friend"),
        ("I live in Basel.", "Thanks for the help with the move in Bern"),
        ("Callum is my brother.", "What do you know about Callum? I moved to Porto last week."),
        ("Callum is my brother.", "Is Callum still in your memory? I moved to Porto."),
        ("Ma soeur s'appelle Julie.", "Que sais-tu de Julie ? J'ai déménagé à Lyon."),
        ("Mein Bruder heißt Callum.", "Weißt du noch wer Callum ist? Ich bin nach Bonn gezogen."),
        ("Mi hermano se llama Pablo.", "¿Qué sabes de Pablo? Me mudé a Cali."),
        ("Ben is allergic to nuts.", "Ben got a new bike today"),
        ("Aoife is 9, Finn is 6 and they both row.", "Aoife started swimming lessons"),
        ("My son Finn plays the trumpet.", "Finn started at the new school"),
        ("Balu ist ein Labrador.", "Balu hatte eine Ohrenentzündung"),
        ("Luna is a tabby.", "Luna started on new drops"),
        ("I have yoga on Tuesday.", "The plumber comes on Tuesday now"),
        ("Rule: tests first.", "Rule: no default exports."),
        ("Entscheidung: Wir nutzen Postgres.", "Entscheidung: Geld wird in Cent gespeichert."),
        ("Je travaille à la Poste.", "Je ne travaille plus le samedi"),
        ("Ich arbeite bei Bosch.", "Ich arbeite freitags nicht mehr"),
        ("Trabajo en Correos.", "Ya no trabajo los sábados"),
        ("I work at Bosch.", "I no longer work on Saturdays"),
        ("I love jazz.", "I don't like the new jazz bar"),
        ("J'aime le café.", "Je n'aime pas le nouveau café du coin"),
        ("Me gusta el cine.", "No me gusta el nuevo cine del barrio"),
        ("I take 50 mg of losartan.", "I take 20 mg of atorvastatin too"),
    ],
)
async def test_a_look_alike_is_no_conflict(engine: Client, old: str, new: str) -> None:
    await tell(engine, [old, new])
    assert (await ended(engine), await listed(engine)) == (set(), [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The admin app uses Django.", "The public site moved from Django to Next.js"),
        ("I drive to work.", "I cycle to the gym now"),
        ("My sister drives to work.", "I cycle to work now"),
        ("I drink two litres of water a day.", "I stopped drinking"),
        ("I drink tea every morning.", "I stopped drinking coffee"),
        ("My sister's number is 07700 900123.", "my new number: 07700 900456"),
        ("I take 50 mg of losartan.", "The dog is up to 10 mg of losartan"),
        ("My number is 07700 900123.", "I have a new number for the plumber: 07700 900456"),
        ("Anna uses Jira at her job.", "We switched from Jira to Linear"),
        ("Anna takes ramipril 5 mg.", "I'm down to 2 mg of ramipril"),
    ],
)
async def test_a_change_of_something_else_ends_nothing(engine: Client, old: str, new: str) -> None:
    await tell(engine, [old, new])
    assert await ended(engine) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Decision: ids are ULIDs.", "Decision: money is stored as integer cents."),
        ("Decision: the API is in Rust.", "Decision: logs go to stdout."),
    ],
)
async def test_decisions_about_different_things_are_no_conflict(
    engine: Client, old: str, new: str
) -> None:
    await tell(engine, [old, new], as_role="assistant")
    assert await listed(engine) == []


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        (
            ["I live in Leeds.", "We have a flat in Hull, I live in Hull", "I live in Otley now"],
            {"I live in Leeds.", "We have a flat in Hull, I live in Hull"},
        ),
        (
            ["I live in Spain.", "I live in Madrid", "We live in Toledo now"],
            {"I live in Madrid"},
        ),
        (
            ["My sister lives in Leeds.", "I live in Hull", "I live in Otley now"],
            {"I live in Hull"},
        ),
    ],
)
async def test_a_new_home_ends_all_earlier_homes_of_the_person(
    engine: Client, said: list[str], gone: set[str]
) -> None:
    await tell(engine, said)
    assert await ended(engine) == gone


@pytest.mark.parametrize(
    ("said", "reply", "new", "is_ended"),
    [
        (
            "I take 50 mg of sertraline.",
            "Got it, 50 mg. Anything else?",
            "gp bumped my sertraline to 75 mg",
            True,
        ),
        (
            "The standup is at 9:45 with Ana.",
            "Noted. Is Ana your manager?",
            "The standup moved to 10:15",
            False,
        ),
        ("I live in Leeds with Ana.", "Ana sounds lovely.", "I moved to Hull with Ana", False),
        (
            "I study on Tuesdays and Thursdays.",
            "A packed Friday. Do you study on Tuesdays?",
            "I study on Mondays now, not on Tuesdays",
            False,
        ),
    ],
)
async def test_a_reply_ends_only_if_it_repeats_what_changed(
    engine: Client, said: str, reply: str, new: str, is_ended: bool
) -> None:
    chat = engine.scope("ana", session="chat")
    for role, text in (("user", said), ("assistant", reply), ("user", new)):
        await chat.remember([{"role": role, "content": text}])
    assert said in await ended(engine)
    assert (reply in await ended(engine)) == is_ended


@pytest.mark.parametrize(
    ("old", "new", "question", "is_found"),
    [
        (
            "Helen is moving to Calgary with her two boys, Max and Theo.",
            "Helen is moving to Toronto instead",
            "Who is Theo?",
            True,
        ),
        (
            "Helen is moving to Calgary with her two boys, Max and Theo.",
            "Helen is moving to Toronto instead",
            "Where is Helen moving?",
            False,
        ),
        (
            "Ich wohne in Kiel mit meiner Frau Ute.",
            "Ich wohne jetzt in Bonn",
            "Wie heißt meine Frau?",
            True,
        ),
        (
            "Ich wohne in Kiel mit meiner Frau Ute.",
            "Ich wohne jetzt in Bonn",
            "Wo wohne ich?",
            False,
        ),
    ],
)
async def test_an_outdated_turn_still_answers_about_its_other_parts(
    engine: Client, old: str, new: str, question: str, is_found: bool
) -> None:
    await tell(engine, [old, new])
    found = await engine.scope("ana").recall(question)
    assert (old in [hit.memory.text for hit in found.hits]) == is_found


async def test_a_move_ends_the_fact_of_the_home_and_not_that_of_the_job(engine: Client) -> None:
    await tell(
        engine,
        [
            "I'm Jo, I live in Leeds and work as a joiner.",
            "We got the flat in Otley!",
            "We live in Otley now",
        ],
    )
    await engine.run_jobs(only=["extract"])
    facts = [each for each in (await engine.scope("ana").list()).memories if each.evidence_ids]
    assert {each.text for each in facts if each.valid_to is not None} == {
        "The user lives in Leeds."
    }
    assert "The user works as a joiner." in {each.text for each in facts if each.valid_to is None}
