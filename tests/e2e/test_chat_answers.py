"""What a chat command asks back, what an answer refers to, and what a command changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memorist import aio
from memorist.client import Client
from memorist.errors import StoreUnavailable
from memorist.interfaces.cli import app
from memorist.manage.chat_list import Reply
from memorist.scoped import ScopedClient
from memorist.types import Filter

TEA = "I drink green tea in the morning."
NIGHT = "Green tea keeps me awake at night."
CAT = "My cat is called Bo."
DATA = Path(__file__).parents[1] / "data" / "commands.jsonl"
LINES = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]


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


async def say(scope: ScopedClient, text: str) -> Reply:
    reply = await scope.command(text)
    assert reply is not None, text
    return reply


async def texts(scope: ScopedClient) -> set[str]:
    return {memory.text for memory in await scope.list()}


@pytest.mark.spec("THE-89")
@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("yes", {TEA, NIGHT, CAT}),
        ("yes, all of them", {CAT}),
        ("all of them", {CAT}),
        ("all 2", {CAT}),
        ("ja, alle", {CAT}),
        ("no", {TEA, NIGHT, CAT}),
        ("none of them", {TEA, NIGHT, CAT}),
    ],
)
async def test_the_answer_refers_to_what_was_shown(
    ana: ScopedClient, answer: str, left: set[str]
) -> None:
    await ana.remember([{"content": text} for text in (TEA, NIGHT, CAT)])
    asked = await say(ana, "Forget everything about green tea.")
    assert (asked.done, len(asked.ids)) == (False, 2)
    assert asked.intent == "forget_topic"
    assert TEA in asked.say
    assert len(await ana.list()) == 3
    await say(ana, answer)
    assert await texts(ana) == left


async def test_yes_does_not_tell_which_one_is_meant(ana: ScopedClient) -> None:
    await ana.remember([{"content": text} for text in (TEA, NIGHT)])
    asked = await say(ana, "Forget everything about green tea.")
    assert asked.say.endswith('Reply with a number, "all" or "no".')
    again = await say(ana, "yes")
    assert (again.done, again.ids) == (False, asked.ids)
    await say(ana, "all")
    assert await texts(ana) == set()


@pytest.mark.parametrize(
    "order",
    [
        "forget my shoe size",
        "vergiss bitte dass ich Koriander hasse",
        "forget that I hate cilantro",
        "forget everything about Leila",
    ],
)
async def test_nothing_is_offered_that_is_about_something_else(
    ana: ScopedClient, order: str
) -> None:
    facts = ["My mum lives in Nagpur.", "I have 2 cats.", "I hate mornings.", "Ich mag Tee."]
    await ana.remember([{"content": text} for text in facts])
    reply = await say(ana, order)
    assert (reply.done, reply.ids) == (False, ())
    said = "your shoe size" if "shoe" in order else "Leila" if "Leila" in order else "that"
    assert reply.say == f"I remember nothing about {said}."
    assert await ana.command("yes") is None


async def test_a_pinned_memory_is_marked_in_what_may_be_forgotten(ana: ScopedClient) -> None:
    ids = (await ana.remember([{"content": text} for text in (TEA, NIGHT)])).ids
    await ana.pin(ids[0])
    asked = await say(ana, "forget everything about green tea")
    assert f"{TEA} (pinned)" in asked.say
    assert f"{NIGHT} (pinned)" not in asked.say
    assert "2 memories (1 pinned)" in (await say(ana, "forget everything about me")).say


async def test_everything_that_mentions_a_name_is_forgotten(ana: ScopedClient) -> None:
    deeds = "eats tuna,is a tabby,is nine,naps,purrs,bites,is at the vet,hides,snores,is fat,swims"
    await ana.remember([{"content": f"Pickle {deed}."} for deed in deeds.split(",")])
    await ana.remember(CAT)
    asked = await say(ana, "forget everything about Pickle")
    assert len(asked.ids) == 11
    assert "… and 1 more." in asked.say
    done = await say(ana, "all 11")
    assert len(done.ids) == 11
    assert await texts(ana) == {CAT}


@pytest.mark.spec("THE-89")
@pytest.mark.parametrize("answer", ["the second one", "2", "number two", "forget the second one"])
async def test_a_number_refers_to_the_list_last_shown(ana: ScopedClient, answer: str) -> None:
    await ana.remember([{"content": text} for text in (TEA, NIGHT, CAT)])
    asked = await say(ana, "forget everything about green tea")
    done = await say(ana, answer)
    assert done.ids == asked.ids[1:]
    assert len(await ana.list()) == 2


async def test_what_is_known_says_how_much_more_there_is(ana: ScopedClient) -> None:
    rooms = [f"In room {number} of my hotel hangs painting {number}." for number in range(100, 125)]
    await ana.remember([{"content": text} for text in rooms])
    shown = await say(ana, "What do you know about me?")
    assert len(shown.ids) == 10
    assert "… and 15 more. Ask about one thing" in shown.say
    shown = await say(ana, "What do you remember about my hotel?")
    assert len(shown.ids) == 10
    assert "… and 15 more." in shown.say


async def test_what_is_known_has_only_the_newer_value(ana: ScopedClient) -> None:
    await ana.remember("I live in Lisbon.")
    await ana.remember("I live in Porto.")
    assert len(await ana.conflicts()) == 1
    shown = await say(ana, "What do you know about me?")
    assert shown.say.splitlines()[1:] == ["1. I live in Porto."]


@pytest.mark.parametrize(
    "order",
    [
        *("forget Callum", "Forget Callum.", "please forget Callum", "forget about Callum"),
        *("forget callum", "delete Callum", "remove Callum please"),
    ],
)
async def test_who_is_stored_can_be_forgotten_by_name(ana: ScopedClient, order: str) -> None:
    await ana.remember([{"content": text} for text in ("Callum plays squash.", TEA)])
    asked = await say(ana, order)
    assert (asked.intent, len(asked.ids)) == ("forget_topic", 1)
    await say(ana, "y")
    assert await texts(ana) == {TEA}


async def test_what_is_known_about_somebody_is_shown_if_they_are_stored(ana: ScopedClient) -> None:
    await ana.remember([{"content": text} for text in ("Callum plays squash.", TEA)])
    shown = await say(ana, "what do you know about Callum?")
    assert shown.say.splitlines()[1:] == ["1. Callum plays squash."]
    for text in ("what do you know about Portugal?", "delete Chrome", "forget homework"):
        assert await ana.command(text) is None


@pytest.mark.parametrize("answer", ["never mind", "scratch that", "n", "no"])
async def test_a_question_can_be_dropped(ana: ScopedClient, answer: str) -> None:
    await ana.remember(TEA)
    await say(ana, "forget everything about green tea")
    assert (await say(ana, answer)).say == "Nothing was changed."
    assert await texts(ana) == {TEA}


async def test_an_undo_can_be_undone(ana: ScopedClient) -> None:
    assert (await say(ana, "undo the undo")).say == "There's nothing to undo."
    assert await ana.command("redo") is None
    await ana.remember(TEA)
    await say(ana, "forget that")
    for order, left in (
        ("undo", {TEA}),
        ("undo the undo", set()),
        ("undo", {TEA}),
        ("redo", set()),
    ):
        await say(ana, order)
        assert await texts(ana) == left, order


async def test_turn_it_back_on_means_the_memory_only_while_it_is_off(ana: ScopedClient) -> None:
    assert await ana.command("turn it back on") is None
    await say(ana, "turn memory off")
    assert (await say(ana, "turn it back on")).intent == "memory_on"
    await say(ana, "go incognito")
    assert (await say(ana, "turn it back on")).intent == "incognito_off"
    assert await ana.command("turn it back on") is None


async def test_a_turn_that_says_what_was_forgotten_is_offered_too(tmp_path: Path) -> None:
    turn = "My sister Mira lives in Ghent and we went sailing with her friends for a week in July."
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as engine:
        dana = engine.scope("dana", session="chat-1")
        await dana.remember([{"content": turn}])
        await engine.run_jobs(only=["extract"])
        await say(dana, "what do you know about me?")
        done = await say(dana, "forget the first one")
        assert done.say.splitlines()[1:] == [
            "You also said it here, among other things:",
            f"1. {turn}",
            'Reply "yes" to forget it, or "no" to keep it.',
        ]
        assert await texts(dana) == {turn}
        await say(dana, "yes")
        assert await texts(dana) == set()


async def test_a_list_that_was_only_shown_can_be_chosen_from(ana: ScopedClient) -> None:
    await ana.remember([{"content": text} for text in (TEA, CAT)])
    shown = await say(ana, "What do you know about me?")
    assert await ana.command("yes") is None, "nothing was asked"
    assert await ana.command("2") is None
    done = await say(ana, "delete number 2")
    assert done.ids == shown.ids[1:]
    assert len(await ana.list()) == 1


async def test_the_list_belongs_to_the_session_and_expires(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.remember(TEA)
    await say(ana, "forget everything about green tea")
    assert await engine.scope("ana", session="chat-2").command("yes") is None
    assert await engine.scope("bo", session="chat-1").command("yes") is None
    now = engine.ctx.clock()
    engine.ctx.clock = lambda: now + timedelta(minutes=31)
    assert await ana.command("yes") is None
    assert await texts(ana) == {TEA}


async def test_a_scope_without_a_session_keeps_a_list_too(engine: Client) -> None:
    ana = engine.scope("ana")
    await ana.remember([{"content": text} for text in (TEA, CAT)])
    await say(ana, "forget everything about green tea")
    assert await engine.scope("ana", session="chat-1").command("yes") is None
    assert await engine.scope("bo").command("yes") is None
    done = await say(ana, "yes")
    assert done.say == "Forgotten. It stays in the trash for a day."
    assert await texts(ana) == {CAT}


async def test_a_yes_after_something_else_answers_something_else(ana: ScopedClient) -> None:
    await ana.remember(TEA)
    await say(ana, "forget everything about green tea")
    assert await ana.command("What is the weather like?") is None
    assert await ana.command("yes") is None
    assert await texts(ana) == {TEA}


async def test_the_list_has_no_words_and_is_erased_with_the_memory(
    engine: Client, ana: ScopedClient
) -> None:
    async def rows() -> list[Any]:
        sql = "SELECT key, value FROM space_settings WHERE scope = ?"
        found = await engine.ctx.store.rows(ana.scope, sql)
        return [row for row in found if not row[0].startswith("chat:obeyed:")]

    (tea,) = (await ana.remember(TEA)).ids
    await say(ana, "forget everything about green tea")
    ((key, value),) = await rows()
    assert tea in value
    assert "tea" not in value.replace(tea, "")
    assert "chat-1" not in key + value
    await ana.forget(tea)
    assert await rows() == []


async def test_an_incognito_session_keeps_no_list(engine: Client, ana: ScopedClient) -> None:
    await engine.scope("ana").remember(TEA)
    await say(ana, "go incognito")
    await say(ana, "forget everything about green tea")
    assert await ana.command("yes") is None
    sql = "SELECT value FROM space_settings WHERE scope = ?"
    assert await engine.ctx.store.rows(ana.scope, sql) == []


async def test_everything_is_forgotten_only_after_a_question(ana: ScopedClient) -> None:
    await ana.remember([{"content": text} for text in (TEA, NIGHT, CAT)])
    await ana.consent.set("city", "Porto")
    asked = await say(ana, "Forget everything you know about me.")
    assert (asked.intent, asked.done) == ("forget_all", False)
    assert "3 memories, and" in asked.say
    await say(ana, "no")
    assert len(await ana.list()) == 3
    await say(ana, "wipe your memory")
    done = await say(ana, "yes, do it")
    assert (done.done, len(done.ids)) == (True, 3)
    assert await texts(ana) == set()
    assert await ana.consent.about() == {}
    assert len((await say(ana, "undo that")).ids) == 3
    assert await texts(ana) == {TEA, NIGHT, CAT}


async def test_undo_takes_back_what_commands_did_one_by_one(ana: ScopedClient) -> None:
    nothing = await say(ana, "undo that")
    assert (nothing.done, nothing.ids) == (False, ())
    (tea,) = (await ana.remember(TEA)).ids
    await say(ana, "pin this")
    await say(ana, "forget that")
    await ana.remember([{"content": "Done, I forgot it.", "role": "assistant"}])
    assert TEA not in await texts(ana)
    assert (await say(ana, "Oops, bring it back!")).done
    assert (await ana.get(tea)).pinned
    await say(ana, "undo")
    assert not (await ana.get(tea)).pinned


async def test_undo_does_not_touch_what_a_turn_replaced(ana: ScopedClient) -> None:
    facts = {"I live in Lisbon.", "I live in Porto now.", TEA}
    for text in ("I live in Lisbon.", "I live in Porto now.", TEA):
        await ana.remember([{"content": text}])
    ended = {each.text for each in await ana.list() if each.valid_to}
    assert ended == {"I live in Lisbon."}
    nothing = await say(ana, "undo")
    assert (nothing.done, nothing.say) == (False, "There's nothing to undo.")
    assert await texts(ana) == facts
    assert {each.text for each in await ana.list() if each.valid_to} == ended


async def test_undo_takes_back_what_was_saved_on_request(ana: ScopedClient) -> None:
    await say(ana, "remember that I'm allergic to penicillin")
    await say(ana, "pin that")
    await say(ana, "remember that I like tea")
    for expected in (
        "Undone. I no longer remember:\n1. I like tea",
        "Undone. No longer pinned:\n1. I'm allergic to penicillin",
        "Undone. I no longer remember:\n1. I'm allergic to penicillin",
        "There's nothing to undo.",
    ):
        assert (await say(ana, "undo")).say == expected
    assert await texts(ana) == set()


async def test_undo_takes_back_the_facts_of_what_was_saved(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as engine:
        dana = engine.scope("dana", session="chat-1")
        await say(dana, "remember that my sister Mira lives in Ghent and I'm allergic to nuts")
        await engine.run_jobs(only=["extract"])
        saved = await texts(dana)
        assert len(saved) > 1
        await say(dana, "undo")
        assert await texts(dana) == set()
        await say(dana, "redo")
        assert await texts(dana) == saved


@pytest.mark.parametrize(
    ("order", "new", "answers"),
    [
        ("that's wrong, my cat is called Rex", "my cat is called Rex", []),
        ("correct that: I have a cat called Rex", "I have a cat called Rex", ["yes"]),
    ],
)
async def test_undo_takes_back_all_of_a_correction(
    ana: ScopedClient, order: str, new: str, answers: list[str]
) -> None:
    await ana.remember([{"content": CAT}, {"content": TEA}])
    for text in (order, *answers):
        await say(ana, text)
    assert await texts(ana) == {new, TEA}
    undone = await say(ana, "undo")
    taken, back = f"I no longer remember:\n1. {new}", f"I remember again:\n1. {CAT}"
    assert undone.say == f"Undone. {taken}\n{back}"
    assert await texts(ana) == {CAT, TEA}
    assert "Redone. I remember again:" in (await say(ana, "redo")).say
    assert await texts(ana) == {new, TEA}


async def test_undo_opens_a_decided_conflict_again(ana: ScopedClient) -> None:
    await ana.remember("I live in Lisbon.")
    await ana.remember("I live in Porto.")
    await say(ana, "no, keep the old one")
    assert await ana.conflicts() == []
    await say(ana, "undo")
    assert len(await ana.conflicts()) == 1


async def test_a_forget_says_how_much_is_gone(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as engine:
        dana = engine.scope("dana", session="chat-1")
        for text in ("My brother Marcus plays squash.", "My brother Marcus lives in Ghent."):
            await dana.remember([{"content": text}])
        await engine.run_jobs(only=["extract"])
        before = await texts(dana)
        assert len(before) == 4
        asked = await say(dana, "forget everything about Marcus")
        done = await say(dana, "all")
        others = 4 - len(asked.ids)
        assert others > 0
        said = f"Forgotten: {len(asked.ids)} memories, and {others} more based on the same words."
        assert done.say.startswith(said)
        assert len((await say(dana, "undo")).ids) == 4
        assert await texts(dana) == before


async def test_undo_may_be_meant_for_something_else(ana: ScopedClient) -> None:
    await ana.remember([{"content": TEA}, {"content": CAT}])
    await ana.remember([{"content": "I renamed the function.", "role": "assistant"}])
    other = await say(ana, "undo that")
    assert (other.done, other.ids) == (False, ()), "nothing was changed in the memory"
    assert await texts(ana) == {TEA, CAT, "I renamed the function."}
    assert (await say(ana, "undo the last memory change")).done
    assert TEA not in await texts(ana)


async def test_talk_is_no_error_while_the_database_is_down(
    ana: ScopedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr("memorist.storage.person.load_shown", fail)
    assert await ana.command("What is the weather like?") is None
    with pytest.raises(StoreUnavailable):
        await ana.command("forget that")


@pytest.mark.spec("THE-38")
async def test_what_is_saved_on_request_is_more_important(
    engine: Client, ana: ScopedClient
) -> None:
    reply = await say(ana, "Remember this: the gardener is called Udo.")
    assert (reply.intent, reply.done) == ("save", True)
    saved = await ana.get(reply.ids[0])
    assert saved.text == "the gardener is called Udo."
    assert saved.manually_saved
    (plain,) = (await engine.scope("bo", session="chat-1").remember(saved.text)).ids
    other = await engine.scope("bo").get(plain)
    more = saved.importance_parts["heuristics"] - other.importance_parts["heuristics"]
    assert more == pytest.approx(0.5)


def with_policy(scope: ScopedClient, policy: str) -> ScopedClient:
    settings = scope.ctx.settings.model_copy(update={"policy": policy})
    return ScopedClient(replace(scope.ctx, settings=settings), scope.scope, scope.labels)


@pytest.mark.spec("THE-38")
@pytest.mark.parametrize("policy", ["default", "theoria"])
@pytest.mark.parametrize(
    "text", ["my bike is green.", "I like tea.", "the gardener is called Udo.", "ok then."]
)
async def test_what_a_person_saves_is_stored_with_a_higher_importance(
    engine: Client, ana: ScopedClient, policy: str, text: str
) -> None:
    chat = with_policy(ana, policy)
    saved = await chat.get((await say(chat, f"Remember this: {text}")).ids[0])
    other = with_policy(engine.scope("bo", session="chat-1"), policy)
    plain = await other.get((await other.remember(text)).ids[0])
    assert saved.importance == pytest.approx(min(1.0, plain.importance + 0.5))


@pytest.mark.spec("THE-33", "THE-34", "THE-38")
@pytest.mark.parametrize("policy", ["default", "theoria"])
async def test_what_is_saved_when_it_is_known_gets_more_important_once(
    ana: ScopedClient, policy: str
) -> None:
    chat = with_policy(ana, policy)
    (told,) = (await chat.remember("The gardener is called Udo.")).ids
    plain = await chat.get(told)
    for repeats, boost in ((1, 0.1), (2, 0.158496250072)):
        await say(chat, "Remember this: the gardener is called Udo.")
        known = await chat.get(told)
        assert (known.manually_saved, known.repeat_count) == (True, repeats)
        assert known.importance == pytest.approx(min(1.0, plain.importance + 0.5 + boost))
    for _ in range(2):
        await say(chat, "undo that")
    assert (await chat.get(told)).importance == plain.importance


async def test_what_is_saved_is_in_the_order_of_the_persons_words(ana: ScopedClient) -> None:
    text = "Merk dir bitte, dass ich am 3. Mai Geburtstag habe"
    assert (await say(ana, text)).say == f"Saved: {text}"
    assert await texts(ana) == {text}


@pytest.mark.spec("THE-38")
async def test_save_that_marks_what_was_said_last(ana: ScopedClient) -> None:
    (tea,) = (await ana.remember([{"content": TEA}])).ids
    await ana.remember([{"content": "A good habit.", "role": "assistant"}])
    before = await ana.get(tea)
    for _ in range(2):
        assert (await say(ana, "save that please")).ids == (tea,)
    after = await ana.get(tea)
    assert after.manually_saved
    assert after.importance == min(1.0, before.importance + 0.5)


async def test_memory_that_is_off_still_saves_on_request(ana: ScopedClient) -> None:
    await say(ana, "turn memory off")
    assert (await say(ana, "remember this: I like figs")).done
    await say(ana, "go incognito")
    refused = await say(ana, "remember this: I like plums")
    assert not refused.done
    assert "incognito" in refused.say


async def test_dont_save_this_changes_nothing_that_was_said_before(ana: ScopedClient) -> None:
    await ana.remember(TEA)
    reply = await say(ana, "don't save this")
    assert reply.say == "I won't store this message."
    assert await texts(ana) == {TEA}


@pytest.mark.parametrize(
    "text",
    [
        "please don't store that I'm pregnant",
        "don't remember that I smoke",
        "don't keep this but I got fired",
        "Do not remember my salary, it's 52k",
        "I got fired today. Don't save that.",
        "I have HIV but don't record that",
        "Don't save this. My boss told me that he would fire me. What should I do?",
        "Don't store this. " + "It was a long day and nobody spoke. " * 20,
        "It was a long day and nobody spoke. " * 20 + "Please don't store this.",
    ],
    ids=lambda text: text[:40],
)
async def test_a_message_that_asks_not_to_be_stored_is_not_stored(
    ana: ScopedClient, text: str
) -> None:
    await ana.remember(CAT)
    reply = await say(ana, text)
    assert (reply.intent, reply.done) == ("dont_save", True)
    assert reply.say == "I won't store this message."
    assert (await ana.remember([{"content": text}])).count("skipped") == 1
    assert await texts(ana) == {CAT}


async def test_what_must_not_be_stored_and_is_already_may_be_forgotten(ana: ScopedClient) -> None:
    await ana.remember([{"content": CAT}, {"content": "I smoke."}])
    asked = await say(ana, "don't remember that I smoke")
    assert asked.say.startswith("I won't store this message. This is already stored:\n1. I smoke.")
    await say(ana, "yes")
    assert await texts(ana) == {CAT}


async def test_memory_that_is_off_for_a_while_says_how_to_turn_it_on(ana: ScopedClient) -> None:
    off = await say(ana, "stop remembering things for a while")
    assert '"turn memory on"' in off.say
    assert (await ana.remember([{"content": TEA}])).count("refused") == 1
    await say(ana, "turn memory on")
    assert (await ana.remember([{"content": TEA}])).count("created") == 1


async def test_no_need_to_remember_that_asks_about_what_was_said_before(ana: ScopedClient) -> None:
    await ana.remember([{"content": CAT}, {"content": TEA}])
    asked = await say(ana, "no need to remember that")
    assert (asked.intent, asked.done, len(asked.ids)) == ("dont_save", False, 1)
    await say(ana, "yes")
    assert await texts(ana) == {CAT}


async def test_the_next_thing_is_not_stored(ana: ScopedClient) -> None:
    reply = await say(ana, "Please don't remember what I'm about to tell you")
    assert reply.done
    assert (await ana.remember([{"content": TEA}])).count("refused") == 1
    await say(ana, "stop incognito")
    assert (await ana.remember([{"content": TEA}])).count("created") == 1


@pytest.mark.spec("THE-90")
async def test_unpin_finds_what_is_pinned(ana: ScopedClient) -> None:
    (tea, cat) = (await ana.remember([{"content": TEA}, {"content": CAT}])).ids
    assert (await say(ana, "pin this")).ids == (cat,)
    assert (await say(ana, "unpin that")).ids == (cat,)
    for id in (tea, cat):
        await ana.pin(id)
    asked = await say(ana, "unpin that")
    assert (asked.done, len(asked.ids)) == (False, 2)
    await say(ana, "the first one")
    assert sum(memory.pinned for memory in await ana.list()) == 1


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("That's wrong, my cat is called Rex, not Bo.", "my cat is called Rex"),
        ("no, my cat's name is spelled Beau, not Bo", "My cat is called Beau."),
        ("you're wrong about my cat, it's called Rex, not Bo", "My cat is called Rex"),
        ("fix your memory: my cat is called Rex", "my cat is called Rex"),
    ],
)
async def test_a_correction_replaces_the_one_memory_that_is_meant(
    ana: ScopedClient, text: str, now: str
) -> None:
    (cat,) = (await ana.remember(CAT)).ids
    await ana.remember(TEA)
    reply = await say(ana, text)
    assert (reply.intent, reply.done) == ("correct", True)
    assert await texts(ana) == {TEA, now}
    old = await ana.get(cat)
    assert (old.state, old.text) == ("superseded", CAT)


@pytest.mark.parametrize(
    "text",
    [
        "no, my name is spelled Müller",
        "it's Müller with an umlaut, not Muller",
        "No, it's Müller, not Muller.",
    ],
)
async def test_a_spelling_is_corrected_and_the_rest_kept(ana: ScopedClient, text: str) -> None:
    await ana.remember([{"content": "My name is Anna Muller."}, {"content": TEA}])
    reply = await say(ana, text)
    assert reply.say == "Corrected. Saved: My name is Anna Müller."
    assert await texts(ana) == {"My name is Anna Müller.", TEA}


async def test_a_spelling_of_something_else_replaces_nothing(ana: ScopedClient) -> None:
    facts = {"My name is Anna Muller.", "My class is on Monday."}
    await ana.remember([{"content": text} for text in facts])
    for text in ("it's Tuesday, not Monday", "it's Smith, not Smyth"):
        assert await ana.command(text) is None
    asked = await say(ana, "no, my name is spelled Zoltan")
    assert not asked.done
    assert await texts(ana) == facts | {"my name is spelled Zoltan"}


async def test_a_correction_in_other_words_asks_what_it_replaces(
    tmp_path: Path,
) -> None:
    async with aio.open(tmp_path / "memory.db", extract="off", state_dir=tmp_path) as engine:
        ana = engine.scope("ana", session="chat-1")
        for old, text, new in (
            ("I'm vegetarian.", "Correction: I'm pescatarian now", "I'm pescatarian now"),
            (
                "My flat is on Albert Road.",
                "update my address to 8 Slade Lane",
                "My address is 8 Slade Lane",
            ),
        ):
            await ana.remember([{"content": old}])
            asked = await say(ana, text)
            assert asked.say.splitlines()[1:3] == ["Does it replace this?", f"1. {old}"]
            await say(ana, "yes")
            assert old not in await texts(ana)
            assert new in await texts(ana)


async def test_a_correction_asks_which_memory_is_meant(ana: ScopedClient) -> None:
    for text in ("I go to the gym with Ines.", "Ines is in the choir."):
        await ana.remember(text)
    asked = await say(ana, "correct that: I go swimming with Ines")
    assert not asked.done
    assert len(await ana.list()) == 3, "nothing is replaced by a guess"
    gym = [id for id in asked.ids if "gym" in (await ana.get(id)).text]
    done = await say(ana, str(1 + asked.ids.index(gym[0])))
    assert done.done
    assert await texts(ana) == {"I go swimming with Ines", "Ines is in the choir."}


async def test_a_correction_of_what_was_just_shown(ana: ScopedClient) -> None:
    await ana.remember([{"content": "My car is a VW Golf."}, {"content": TEA}])
    shown = await say(ana, "what do you know about my car?")
    assert shown.say.splitlines()[0] == "This is what I remember about your car:"
    done = await say(ana, "no, that's wrong, it's a Skoda")
    assert done.say == "Corrected. Saved: My car is a Skoda"
    assert await texts(ana) == {"My car is a Skoda", TEA}


@pytest.mark.parametrize("first", [[], ["1"]])
async def test_a_correction_of_several_that_were_shown_asks_for_the_sentence(
    ana: ScopedClient, first: list[str]
) -> None:
    facts = {"My car is a VW Golf.", "My car has a flat tire."}
    await ana.remember([{"content": text} for text in facts])
    await say(ana, "what do you know about my car?")
    asked = await say(ana, "no, that's wrong, it's a Skoda")
    assert (asked.intent, asked.done, len(asked.ids)) == ("correct", False, 2)
    for answer in first:
        assert not (await say(ana, answer)).done, "a number does not say what is right"
    assert await texts(ana) == facts
    await say(ana, "my car is a Skoda")
    assert await texts(ana) == {"my car is a Skoda", "My car has a flat tire."}


@pytest.mark.parametrize("answer", ["no", "I have to go now", "What is a Skoda?"])
async def test_what_is_no_answer_to_a_correction_changes_nothing(
    ana: ScopedClient, answer: str
) -> None:
    facts = {"My car is a VW Golf.", "My car has a flat tire."}
    await ana.remember([{"content": text} for text in facts])
    await say(ana, "what do you know about my car?")
    await say(ana, "no, that's wrong, it's a Skoda")
    await ana.command(answer)
    assert await texts(ana) == facts
    assert await ana.command("my car is a Skoda") is None, "nothing is asked any more"


async def test_a_correction_that_is_a_sentence_is_saved_as_it_was_said(ana: ScopedClient) -> None:
    await ana.remember([{"content": "I work at Lumen Health."}])
    await say(ana, "you're wrong about my job, I work at Tidewater now")
    assert await texts(ana) == {"I work at Tidewater now"}


async def test_a_changed_address_is_offered_what_it_replaces(tmp_path: Path) -> None:
    home, phone = "I live at 12 Elm Street in Leeds.", "My phone number is 07700 900111."
    async with aio.open(tmp_path / "memory.db", extract="off", state_dir=tmp_path) as engine:
        ana = engine.scope("ana", session="chat-1")
        await ana.remember([{"content": home}, {"content": phone}])
        asked = await say(ana, "update my address to 9 Lake View in Bath")
        assert asked.say.splitlines()[1:3] == ["Does it replace this?", f"1. {home}"]
        await say(ana, "yes")
        assert (await say(ana, "update my rent to £1,350")).done
        new = {"My address is 9 Lake View in Bath", "My rent is £1,350"}
        assert await texts(ana) == {phone, *new}


async def test_the_old_address_is_offered_in_other_words(tmp_path: Path) -> None:
    old, new = "I live at 12 Elm Street in Leeds.", "I moved to 5 Hill Road in Bristol."
    async with aio.open(tmp_path / "memory.db", extract="off", state_dir=tmp_path) as engine:
        ana = engine.scope("ana", session="chat-1")
        for text in (old, new, TEA):
            await ana.remember([{"content": text}])
        asked = await say(ana, "forget my old address")
        assert asked.say.splitlines()[1] == f"1. {old} (outdated)"
        await say(ana, "yes")
        assert await texts(ana) == {new, TEA}


async def test_a_statement_can_be_pinned(ana: ScopedClient) -> None:
    await ana.remember([{"content": "My aunt is allergic to nuts."}])
    pinned = await say(ana, "pin that my aunt is allergic to nuts")
    assert pinned.say == "Pinned:\n1. My aunt is allergic to nuts. (pinned)"
    saved = await say(ana, "pin that I'm allergic to penicillin")
    assert saved.say == "Saved and pinned:\n1. I'm allergic to penicillin (pinned)"
    assert all(each.pinned for each in await ana.list())
    await say(ana, "undo")
    assert await texts(ana) == {"My aunt is allergic to nuts."}
    assert await ana.command("pin that dependency to version 3") is None


async def test_half_a_correction_asks_for_the_whole_sentence(ana: ScopedClient) -> None:
    await ana.remember("I have three kids.")
    asked = await say(ana, "Nope, two kids. Change it.")
    assert not asked.done
    assert asked.say == "What should it say? For example: my car is a Skoda."
    assert await texts(ana) == {"I have three kids."}


@pytest.mark.parametrize(
    ("answer", "active"),
    [
        ("yes, the new one", {"I live in Porto."}),
        ("no, keep the old one", {"I live in Lisbon."}),
        ("both are true", {"I live in Porto.", "I live in Lisbon."}),
        ("ja, das neue stimmt", {"I live in Porto."}),
    ],
)
async def test_a_conflict_is_decided_in_the_chat(
    ana: ScopedClient, answer: str, active: set[str]
) -> None:
    await ana.remember("I live in Lisbon.")
    await ana.remember("I live in Porto.")
    assert len(await ana.conflicts()) == 1
    reply = await say(ana, answer)
    assert reply.done
    assert await texts(ana) == active
    assert await ana.conflicts() == []
    again = await say(ana, answer)
    assert (again.done, again.ids) == (False, ())


async def test_of_several_conflicts_one_is_shown_at_a_time(ana: ScopedClient) -> None:
    for text in ("I live in Lisbon.", "I live in Porto.", "I work at Acme.", "I work at Globex."):
        await ana.remember(text)
    assert len(await ana.conflicts()) == 2
    asked = await say(ana, "yes, the new one")
    assert (asked.done, len(await ana.conflicts())) == (False, 2)
    assert "Globex" in asked.say
    await say(ana, "the old one")
    assert "I work at Acme." in await texts(ana)
    await say(ana, "keep both")
    assert {"I live in Lisbon.", "I live in Porto."} <= await texts(ana)


@pytest.mark.parametrize(
    ("answer", "work", "conflicts"),
    [
        ("never mind", "I work at Globex.", 2),
        ("no", "I work at Globex.", 2),
        ("3", "I work at Globex.", 2),
        ("1", "I work at Globex.", 1),
        ("the second one", "I work at Acme.", 1),
    ],
)
async def test_only_an_answer_to_the_question_decides_a_conflict(
    ana: ScopedClient, answer: str, work: str, conflicts: int
) -> None:
    for text in ("I live in Lisbon.", "I live in Porto.", "I work at Acme.", "I work at Globex."):
        await ana.remember(text)
    await say(ana, "yes, the new one")
    reply = await say(ana, answer)
    assert (reply.say == "Nothing was changed.") is (conflicts == 2)
    assert await texts(ana) == {"I live in Porto.", work}
    assert len(await ana.conflicts()) == conflicts


async def test_an_answer_decides_no_other_conflict_than_the_one_shown(ana: ScopedClient) -> None:
    for text in ("I live in Lisbon.", "I live in Porto.", "I work at Acme.", "I work at Globex."):
        await ana.remember(text)
    asked = await say(ana, "yes, the new one")
    assert "Globex" in asked.say
    await ana.confirm(asked.ids[0])  # in another window
    again = await say(ana, "the old one")
    assert not again.done
    assert "New: I live in Porto.\nOld: I live in Lisbon." in again.say
    assert len(await ana.conflicts()) == 1
    await say(ana, "the old one")
    assert await texts(ana) == {"I work at Globex.", "I live in Lisbon."}


@pytest.mark.parametrize(
    "order", ["forget my cat permanently", "forget everything you know about me for good"]
)
async def test_what_is_asked_before_it_is_erased_for_good_is_erased(
    ana: ScopedClient, order: str
) -> None:
    await ana.remember([{"content": CAT}])
    assert not (await say(ana, order)).done
    assert (await say(ana, "yes")).say == "Forgotten."
    assert (await ana.list(Filter(states=("active", "soft_deleted")), limit=9)).memories == ()
    await ana.remember([{"content": TEA}])
    await say(ana, "forget about my green tea")
    assert (await say(ana, "yes")).say == 'Forgotten. Say "undo" within a day to bring it back.'


async def test_a_command_is_never_stored_as_a_memory(ana: ScopedClient) -> None:
    orders = [line for line in LINES if line["intent"] not in ("none", "save", "correct")]
    receipt = await ana.remember([{"content": line["text"]} for line in orders])
    assert {outcome.status for outcome in receipt.outcomes} == {"skipped"}
    assert "command" in receipt.outcomes[0].reason
    assert await texts(ana) == set()
    assert (await ana.remember("Forget that I hate cilantro.")).count("skipped") == 1


async def test_what_a_command_tells_is_not_lost(ana: ScopedClient) -> None:
    for text in ("Remember that I am left-handed.", "No, my name is spelled Ana with one n."):
        assert (await ana.remember([{"content": text}])).count("created") == 1


async def test_only_the_persons_own_commands_are_left_out(ana: ScopedClient) -> None:
    order = {"content": "Forget that I hate cilantro."}
    for other in ({"role": "assistant"}, {"role": "tool"}, {"role": "user", "name": "Bo"}):
        assert (await ana.remember([order | other])).count("created") == 1, other
    saved = await ana.remember("Forget everything about my ex.", manually_saved=True)
    assert saved.count("created") == 1


async def test_no_sentence_erases_what_a_search_found_without_asking(ana: ScopedClient) -> None:
    facts = ["I hate cilantro.", "My ex lives in Rome.", "My salary is 3000.", TEA, CAT]
    await ana.remember([{"content": text} for text in facts])
    for line in LINES:
        if line["intent"] in ("forget_last", "forget_listed", "save", "correct", "undo"):
            continue
        reply = await ana.command(line["text"])
        assert (reply is None) == (line["intent"] == "none"), line["text"]
        assert await texts(ana) == set(facts), line["text"]
        await say(ana, "stop incognito")
        await say(ana, "turn memory on")


def test_the_command_line_keeps_the_list_between_two_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DB": tmp_path / "m.db",
        "EMBEDDER": "hashing",
        "USER": "ana",
        "SESSION": "chat-1",
        "STATE_DIR": tmp_path,
    }.items():
        monkeypatch.setenv(f"MEMORIST_{name}", str(value))

    def run(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--session", "chat-1"]).stdout

    run("remember", TEA)
    assert TEA in run("agent", "say", "forget everything about green tea")
    assert "Forgotten." in run("agent", "say", "yes")
    assert "I remember again" in run("agent", "say", "undo that")
    assert "Saved: I like figs" in run("agent", "say", "remember this: I like figs")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Forget my old address. I live at 5 Rue Cler now.", "created"),
        ("I live at 5 Rue Cler now. Forget my old address.", "created"),
        ("Forget my old address.", "skipped"),
        ("Forget my old address. Thanks a lot!", "skipped"),
        ("Don't save this. I think I will quit my job in May.", "skipped"),
        ("don't remember this: I think I will quit my job in May", "skipped"),
    ],
)
async def test_what_is_stated_beside_a_command_is_stored(
    ana: ScopedClient, text: str, status: str
) -> None:
    receipt = await ana.remember([{"content": text}])
    assert [each.status for each in receipt.outcomes] == [status]
