"""What a person says in a chat to the memory itself, on both databases."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memorist import aio
from memorist.client import Client
from memorist.errors import InvalidInput, NotFound
from memorist.interfaces.cli import app
from memorist.scoped import ScopedClient

TEA, CAT = "I drink green tea in the morning.", "My cat is called Bo."
ORDERS = [
    "What do you remember about tea?",
    "forget that",
    "Forget everything you know about me.",
    "remember this: I like tea",
    "undo that",
    "pin this",
    "turn memory off",
    "start incognito for this chat",
    "no, my name is spelled Ana with one n",
]


@pytest.fixture(params=["sqlite", "postgresql"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    where = (
        tmp_path / "memory.db"
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )
    async with aio.open(where, embedder="hashing", extract="off", state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana", session="chat-1")


async def test_the_old_address_is_what_was_replaced(engine: Client, ana: ScopedClient) -> None:
    old, older = "My address is 12 Rua Augusta, Lisbon", "My address is 9 Rua Nova, Faro"
    now = "I moved, my address is now 5 Rua do Carmo, Porto"
    for day, text in enumerate((older, old, now), 1):
        chat = engine.scope("ana", session=f"chat-{day}")
        await chat.remember([{"role": "user", "content": text, "at": f"2026-03-0{day}T09:00:00Z"}])
    asked = await ana.command("forget my old address")
    assert asked is not None
    assert asked.say.splitlines()[1:3] == [
        f"1. {old} (outdated)",
        f"2. {older} (outdated)",
    ]
    done = await ana.command("all of them")
    assert done is not None
    assert done.say == 'Forgotten: 2 memories. Say "undo" within a day to bring them back.'
    assert [each.text for each in await ana.list()] == [now]


async def test_a_forget_of_an_incognito_chat_is_undone_from_the_trash(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.remember([{"role": "user", "content": TEA}])
    await ana.remember([{"role": "user", "content": CAT}])
    await ana.command("forget what you know about my cat")
    await ana.command("start incognito for this chat")
    done = await ana.command("yes")
    assert done is not None
    assert done.say == "Forgotten. It stays in the trash for a day."
    undone = await ana.command("undo that")
    assert undone is not None
    assert (undone.done, "trash" in undone.say) == (False, True)
    assert [each.text for each in await ana.list()] == [TEA]
    (hidden,) = await ana.list({"states": ["soft_deleted"]})
    await engine.scope("ana").restore(hidden.id)
    assert {each.text for each in await ana.list()} == {TEA, CAT}


@pytest.mark.spec("THE-88")
async def test_what_is_remembered_about_something_is_shown(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.remember(
        [
            {"content": TEA},
            {"content": "Ana likes tea, the shop says.", "role": "tool", "name": "shop"},
        ]
    )
    await engine.scope("bo").remember("I drink green tea with Ana.")
    reply = await ana.command("What do you remember about green tea?")
    assert reply is not None
    assert reply.done
    assert TEA in reply.say
    assert "shop" in reply.say, "who said it, where that was not the person"
    assert "with Ana" not in reply.say
    assert {memory.id for memory in await ana.list()} == set(reply.ids)
    nothing = await engine.scope("eve").command("what do you remember about tea?")
    assert nothing is not None
    assert nothing.say == "I remember nothing about tea."


@pytest.mark.spec("THE-88")
async def test_nothing_is_shown_about_what_was_never_mentioned(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="chat-1")
        said = ("I keep bees in Lyon.", "My boat is called Freya.", "I like tea.")
        await chat.remember([{"role": "user", "content": text} for text in said])
        for topic in ("penicillin", "my uncle", "my blood type", "my salary"):
            reply = await chat.command(f"What do you remember about {topic}?")
            assert reply is not None
            assert "I remember nothing about" in reply.say


async def test_a_topic_includes_what_was_replaced_and_what_replaced_it(engine: Client) -> None:
    said = ("My sister Margit lives in Ghent.", "Margit moved to Bruges.", "I like tea.")
    for day, text in enumerate(said, 1):
        chat = engine.scope("ana", session=f"chat-{day}")
        await chat.remember([{"role": "user", "content": text, "at": f"2026-03-0{day}T09:00:00Z"}])
    chat = engine.scope("ana", session="chat-9")
    shown = await chat.command("What do you know about my sister?")
    assert shown is not None
    assert shown.say.splitlines()[1:] == [
        "1. Margit moved to Bruges.",
        "2. My sister Margit lives in Ghent. (outdated)",
    ]
    asked = await chat.command("Forget everything about Margit")
    assert asked is not None
    assert len(asked.ids) == 2
    await chat.command("all of them")
    assert [each.text for each in await chat.list()] == ["I like tea."]


@pytest.mark.parametrize("order", ["pin that", "forget that"])
async def test_a_question_is_not_what_that_means(ana: ScopedClient, order: str) -> None:
    await ana.remember([{"role": "user", "content": "I'm allergic to nuts."}])
    await ana.remember([{"role": "user", "content": "What can I eat at Luigi's?"}])
    reply = await ana.command(order)
    assert reply is not None
    assert "allergic to nuts" in reply.say
    assert "Luigi" not in reply.say


async def test_only_what_is_about_it_is_shown(engine: Client, ana: ScopedClient) -> None:
    await ana.remember(TEA)
    await engine.scope("ana", session="chat-2").remember(CAT)
    reply = await ana.command("What do you remember about green tea?")
    assert reply is not None
    assert TEA in reply.say
    assert CAT not in reply.say


@pytest.mark.spec("THE-89")
async def test_forget_that_forgets_what_was_last_spoken_of(
    engine: Client, ana: ScopedClient
) -> None:
    (tea,), (cat,) = (await ana.remember(TEA)).ids, (await ana.remember(CAT)).ids
    reply = await ana.command("Forget that.", about=[cat])
    assert reply is not None
    assert (reply.done, reply.ids) == (True, (cat,))
    assert reply.say == 'Forgotten. Say "undo" within a day to bring it back.'
    assert [memory.id for memory in await ana.list()] == [tea]
    assert not (await ana.recall("What is my cat called?", min_confidence=0)).memories[1:]
    assert (await ana.remember(CAT)).count("refused") == 1, "it does not come back by itself"
    now = engine.ctx.clock()
    engine.ctx.clock = lambda: now + timedelta(days=1, minutes=1)
    assert (await ana.purge()).purged == (cat,)
    with pytest.raises(NotFound):
        await ana.get(cat)
    assert (await ana.get(tea)).text == TEA


@pytest.mark.spec("THE-89")
async def test_forget_that_for_good_erases_it_at_once(ana: ScopedClient) -> None:
    (tea,) = (await ana.remember(TEA)).ids
    reply = await ana.command("Forget that for good.", about=[tea])
    assert reply is not None
    assert reply.say == "Forgotten."
    with pytest.raises(NotFound):
        await ana.get(tea)
    undone = await ana.command("undo that")
    assert undone is not None
    assert not undone.done


@pytest.mark.spec("THE-89")
async def test_where_that_is_ambiguous_it_asks_back_and_changes_nothing(
    engine: Client, ana: ScopedClient
) -> None:
    ids = {(await ana.remember(text)).ids[0] for text in (TEA, CAT)}
    for about in ((), tuple(ids)):
        reply = await ana.command("forget that", about=about)
        assert reply is not None
        assert not reply.done
        assert set(reply.ids) == ids
        assert TEA in reply.say
        assert CAT in reply.say
    assert len(await ana.list()) == 2
    second = await ana.command("forget the second one", about=reply.ids)
    assert second is not None
    assert second.ids == reply.ids[1:]
    assert [memory.id for memory in await ana.list()] == [reply.ids[0]]
    lost = await engine.scope("ana").command("forget that")
    assert lost is not None
    assert (lost.done, lost.ids) == (False, ()), "without a session nobody can tell"


@pytest.mark.spec("THE-89")
async def test_the_only_memory_of_a_chat_or_the_last_thing_said_is_not_ambiguous(
    engine: Client, ana: ScopedClient
) -> None:
    await engine.scope("ana", session="chat-2").remember(TEA)
    await ana.remember(CAT)
    reply = await ana.command("forget that")
    assert reply is not None
    assert reply.done
    await ana.remember([{"content": "I grow tomatoes."}, {"content": "I play the oboe."}])
    await ana.remember([{"content": "The oboe suits you.", "role": "assistant"}])
    await ana.command("forget what I just said")
    assert {memory.text for memory in await ana.list()} == {
        TEA,
        "I grow tomatoes.",
        "The oboe suits you.",
    }


@pytest.mark.spec("THE-89")
async def test_forgetting_by_topic_shows_first_what_would_go(ana: ScopedClient) -> None:
    await ana.remember(TEA)
    one = await ana.command("forget everything about green tea")
    assert one is not None
    assert (one.done, len(one.ids)) == (False, 1), "a search may find what is about something else"
    await ana.remember("Green tea keeps me awake at night.")
    reply = await ana.command("forget everything about green tea")
    assert reply is not None
    assert not reply.done
    all_of_them = await ana.command("forget all of them", about=reply.ids)
    assert all_of_them is not None
    assert all_of_them.say.startswith("Forgotten: 2 memories.")
    assert len(await ana.list()) == 0


@pytest.mark.spec("THE-90")
async def test_pin_this_pins_what_was_last_spoken_of(ana: ScopedClient) -> None:
    (tea,) = (await ana.remember(TEA)).ids
    await ana.command("pin this", about=[tea])
    assert (await ana.get(tea)).pinned
    await ana.command("unpin this")
    assert not (await ana.get(tea)).pinned


@pytest.mark.spec("THE-91")
async def test_turn_memory_off_turns_it_off_in_the_space_and_on_again(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.remember(TEA)
    await ana.command("turn memory off")
    assert (await engine.scope("ana", session="other").remember(CAT)).count("refused") == 1
    assert not (await ana.recall("green tea")).hits
    shown = await ana.command("what do you remember about green tea?")
    assert shown is not None
    assert TEA in shown.say, "the person may still look"
    await ana.command("turn memory on")
    assert (await ana.recall("green tea")).hits


@pytest.mark.spec("THE-92")
async def test_start_incognito_makes_this_chat_leave_no_trace(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.remember(TEA)
    await ana.command("start incognito for this chat")
    assert (await ana.remember(CAT)).count("refused") == 1
    shown = await ana.command("what do you remember about green tea?")
    assert shown is not None
    assert TEA not in shown.say
    await ana.command("stop incognito")
    assert (await ana.remember(CAT)).count("created") == 1
    lost = await engine.scope("ana").command("go incognito")
    assert lost is not None
    assert not lost.done


@pytest.mark.parametrize(
    "who", [{"role": "assistant"}, {"role": "tool"}, {"role": "user", "name": "Mallory"}]
)
async def test_what_others_say_does_nothing(ana: ScopedClient, who: dict[str, str]) -> None:
    (tea,) = (await ana.remember(TEA)).ids
    for text in ORDERS:
        assert await ana.command(text, about=[tea], **who) is None
    assert (await ana.get(tea)).revision == 1
    assert (await ana.remember(CAT)).count("created") == 1


@pytest.mark.spec("IMP-85")
async def test_a_person_agrees_in_the_chat_to_what_they_were_shown(ana: ScopedClient) -> None:
    assert await ana.command("remember my city") is None, "there is nothing to agree to"
    (evidence,) = (await ana.remember("The tram to the castle stops at my door.")).ids
    made = await ana.consent.propose("city", "Porto", evidence=[evidence])
    first = await ana.command("yes, you may keep my city")
    assert first is not None
    assert (first.done, first.ids) == (False, (made.id,))
    assert "city: Porto" in first.say
    assert await ana.consent.about() == {}
    await ana.command("Yes, keep my city.", about=first.ids)
    assert await ana.consent.about() == {"city": "Porto"}
    name = await ana.consent.propose("preferred_name", "Root", evidence=[evidence])
    await ana.command("don't use my name", about=[name.id])
    assert await ana.consent.list() == []
    assert await ana.consent.about() == {"city": "Porto"}


@pytest.mark.spec("IMP-85")
async def test_a_person_who_agrees_to_one_field_is_shown_no_other(ana: ScopedClient) -> None:
    (evidence,) = (await ana.remember("The tram to the castle stops at my door.")).ids
    city = await ana.consent.propose("city", "Porto", evidence=[evidence])
    language = await ana.consent.propose("language", "Portuguese", evidence=[evidence])
    shown = await ana.command("yes, you may keep my city", about=[language.id])
    assert shown is not None
    assert (shown.done, shown.ids) == (False, (city.id,))
    assert await ana.consent.about() == {}


async def test_a_command_that_is_no_text_is_an_error(ana: ScopedClient) -> None:
    for given in ({"text": 7}, {"text": "forget that", "about": "id"}):
        with pytest.raises(InvalidInput):
            await ana.command(**given)  # type: ignore[arg-type]


def test_the_command_line_listens_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "DB": tmp_path / "m.db",
        "EMBEDDER": "hashing",
        "USER": "ana",
        "STATE_DIR": tmp_path,
    }.items():
        monkeypatch.setenv(f"MEMORIST_{name}", str(value))

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, list(words))

    run("remember", TEA, "--session", "chat-1")
    assert (
        f"1. {TEA}"
        in run("agent", "say", "what do you remember about green tea?").stdout.splitlines()
    )
    reply = json.loads(run("agent", "say", "forget that", "--session", "chat-1", "--json").stdout)
    assert (reply["command"], reply["done"]) == ("forget", True)
    assert run("list", "--json").stdout.strip() == ""
    assert "Not a command" in run("agent", "say", "hello").stderr


@pytest.mark.parametrize("text", ["Is memory on?", "Are you saving what I say?"])
async def test_whether_memory_is_on_is_answered_and_not_stored(
    ana: ScopedClient, text: str
) -> None:
    for order, words in (
        (
            "turn memory off",
            "Memory is off here: nothing is stored or recalled automatically until you say "
            '"turn memory on".',
        ),
        ("turn memory on", "Memory is on."),
        (
            "go incognito",
            "This chat is incognito: nothing of it is stored and nothing is recalled in it.",
        ),
    ):
        await ana.command(order)
        reply = await ana.command(text)
        assert reply is not None
        assert (reply.command, reply.intent) == ("memory", "memory_state")
        assert reply.say == words
    assert (await ana.remember([{"content": text}])).ids == ()


@pytest.mark.parametrize(
    "text", ["Stop remembering things about my tea", "Don't keep any info about my tea"]
)
async def test_a_topic_that_is_not_to_be_remembered_is_told_what_is_possible(
    ana: ScopedClient, text: str
) -> None:
    nothing = await ana.command(text)
    assert nothing is not None
    assert "from now on" in nothing.say
    assert "turn memory off" in nothing.say
    await ana.remember([{"content": TEA}])
    asked = await ana.command(text)
    assert asked is not None
    assert (asked.done, len(asked.ids)) == (False, 1)
    assert "from now on" in asked.say
    assert f"1. {TEA}" in asked.say
    assert [each.text for each in await ana.list()] == [TEA]
    await ana.command("yes")
    assert not await ana.list()
    assert (await ana.remember([{"content": text}])).count("skipped") == 1
