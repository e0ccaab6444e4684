"""What a chat command carried out is not stored again when the host stores the same message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from memorist import aio
from memorist.client import Client
from memorist.scoped import ScopedClient

TEA = "I drink green tea in the morning."
NIGHT = "Green tea keeps me awake at night."
CODE = "Remember that my locker code is 4455."


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    if request.param == "sqlite":
        return tmp_path / "memory.db"
    database: str = request.getfixturevalue("ready_database")
    return database


@pytest.fixture
async def engine(where: str | Path, tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(where, embedder="hashing", extract="off", state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana", session="chat-1")


async def tell(scope: ScopedClient, text: str) -> str:
    """Say something to an agent, which stores every message. Return why it was not stored."""
    await scope.command(text)
    (outcome,) = (await scope.remember([{"role": "user", "content": text}])).outcomes
    return outcome.reason if outcome.status == "skipped" else ""


async def texts(scope: ScopedClient) -> set[str]:
    found = [memory.text for memory in await scope.list()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (["forget my tea", "2"], {TEA}),
        (["forget everything about green tea", "all of them"], set()),
        (["forget everything about green tea", "the second one"], {TEA}),
        (["forget everything about green tea", "no, keep them"], {TEA, NIGHT}),
        (["forget everything about green tea", "yes", "the second one"], {TEA}),
        (["what do you know about me?", "forget the first one"], {TEA}),
        (["forget everything you know about me", "yes"], set()),
        ([CODE], {TEA, NIGHT, "my locker code is 4455."}),
        (["Pin that my sister is called Mira"], {TEA, NIGHT, "my sister is called Mira"}),
        (
            ["no, my name is spelled Ana with one n"],
            {TEA, NIGHT, "my name is spelled Ana with one n"},
        ),
        (["Merk dir: mein Rad ist blau"], {TEA, NIGHT, "mein Rad ist blau"}),
        (["My shoe size is 39, please remember that."], {TEA, NIGHT, "My shoe size is 39"}),
    ],
)
async def test_only_what_a_command_did_is_left(
    ana: ScopedClient, said: list[str], left: set[str]
) -> None:
    await ana.remember([{"content": TEA}])
    await ana.remember([{"content": NIGHT}])
    for text in said:
        assert "command" in await tell(ana, text), text
    assert await texts(ana) == left


async def test_a_decision_of_a_conflict_is_not_stored(engine: Client, ana: ScopedClient) -> None:
    told = ["I live in Lisbon.", "I live in Porto.", "I work at Acme.", "I work at Globex."]
    for text in told:
        await engine.scope("ana").remember(text)
    for answer in ("yes, the new one", "both", "no, keep the old one"):
        assert await tell(ana, answer), answer
    assert await ana.conflicts() == []
    assert await texts(ana) < set(told)


async def test_what_was_saved_and_undone_is_not_recalled(ana: ScopedClient) -> None:
    await tell(ana, CODE)
    await tell(ana, "undo that")
    assert "4455" not in (await ana.recall("What is my locker code?")).text
    assert await texts(ana) == set()


async def test_what_is_saved_again_after_an_undo_is_saved(ana: ScopedClient) -> None:
    for text in (CODE, "undo that", CODE):
        await tell(ana, text)
    assert await texts(ana) == {"my locker code is 4455."}


async def test_what_answered_a_question_is_stored_if_it_is_said_later(ana: ScopedClient) -> None:
    await ana.remember([{"content": "My car is a Fiat."}])
    for text in ("what do you remember about my car?", "Nope, a Skoda. Change it."):
        await ana.command(text)
    assert "command" in await tell(ana, "My car is a Skoda.")
    await ana.command("undo")
    assert await texts(ana) == {"My car is a Fiat."}
    assert await tell(ana, "My car is a Skoda.") == ""
    assert "My car is a Skoda." in await texts(ana)


async def test_what_is_told_beside_a_command_is_stored_without_it(ana: ScopedClient) -> None:
    await ana.remember([{"content": TEA}])
    await tell(ana, "Forget my old tea. I moved to Rue Cler in May.")
    assert "I moved to Rue Cler in May." in await texts(ana)
    await tell(ana, "Forget my old tea. My boss is called Bo.")
    assert "My boss is called Bo." in await texts(ana)
    await tell(ana, "I have a cat now. Remember this: my vet is called Sol")
    assert await texts(ana) >= {"I have a cat now.", "my vet is called Sol"}
    assert not [text for text in await texts(ana) if "Forget" in text or "Remember" in text]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Yes please. I work at Globex now.", {NIGHT, "I work at Globex now."}),
        ("No, keep it. I work at Globex now.", {TEA, NIGHT, "I work at Globex now."}),
        ("Yes. Remember that I work at Globex.", {NIGHT, "I work at Globex."}),
        ("Yes. And what is the weather like?", {NIGHT}),
        (
            "Yes. My dog's vet is Dr. Sol. I like figs.",
            {NIGHT, "My dog's vet is Dr. Sol. I like figs."},
        ),
        ("No. I like figs.", {TEA, NIGHT, "I like figs."}),
        ("Yes. Thanks a lot!", {NIGHT}),
    ],
)
async def test_what_is_told_beside_an_answer_is_stored_without_it(
    ana: ScopedClient, said: str, left: set[str]
) -> None:
    await ana.remember([{"content": TEA}])
    await ana.remember([{"content": NIGHT}])
    await tell(ana, "forget that I drink green tea in the morning")
    await tell(ana, said)
    assert await texts(ana) == left


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Forget that I drink green tea, I like coffee now", "I like coffee now"),
        ("Forget my green tea and remember that I like coffee", "I like coffee"),
        ("Forget my green tea. Remember that I like coffee.", "I like coffee."),
        (
            "Vergiss meinen green tea und merk dir, dass ich Kaffee mag",
            "merk dir, dass ich Kaffee mag",
        ),
    ],
)
async def test_what_one_sentence_tells_after_a_command_is_stored(
    ana: ScopedClient, said: str, told: str
) -> None:
    await ana.remember([{"content": TEA}])
    await tell(ana, said)
    assert await texts(ana) == {TEA, told}
    await tell(ana, "yes")
    assert await texts(ana) == {told}


async def test_what_is_saved_beside_a_command_is_saved_on_purpose(ana: ScopedClient) -> None:
    await ana.remember([{"content": TEA}])
    reply = await ana.command("Forget my green tea and remember that I like coffee")
    assert reply is not None
    assert reply.say.startswith("Saved: I like coffee\nDo you mean this?")
    assert [each.text for each in await ana.list() if each.manually_saved] == ["I like coffee"]


async def test_what_is_saved_beside_a_command_without_effect_is_saved(ana: ScopedClient) -> None:
    await tell(ana, "Forget my boat. I moved to Rue Cler. Remember that I like coffee.")
    assert await texts(ana) == {"I moved to Rue Cler.", "I like coffee."}


async def test_a_reason_to_forget_is_not_stored(ana: ScopedClient) -> None:
    await ana.remember([{"content": TEA}])
    for text in (
        "forget my green tea, I don't need it now",
        "forget my green tea, please do it right now",
    ):
        await tell(ana, text)
    assert await texts(ana) == {TEA}


async def test_a_command_that_was_not_carried_out_loses_nothing(ana: ScopedClient) -> None:
    (outcome,) = (await ana.remember([{"content": CODE}])).outcomes
    assert outcome.status == "created"
    (other,) = (await ana.remember([{"role": "assistant", "content": "Undo that."}])).outcomes
    assert other.status == "created"


async def test_an_answer_counts_only_in_its_session_and_for_a_day(
    engine: Client, ana: ScopedClient
) -> None:
    await ana.remember([{"content": TEA}])
    await ana.command("forget everything about green tea")
    await ana.command("the first one")
    later = engine.ctx.clock() + timedelta(days=1, minutes=1)
    for ctx, session, status in (
        (engine.ctx, "chat-2", "created"),
        (engine.ctx, "chat-1", "skipped"),
        (engine.ctx.at(later), "chat-1", "created"),
    ):
        chat = ScopedClient(ctx, ana.scope, ana.labels)
        message = [{"content": "the first one", "session": session}]
        assert (await chat.remember(message)).count(status) == 1, (session, status)


async def test_another_process_knows_what_was_carried_out(
    engine: Client, ana: ScopedClient, where: str | Path, tmp_path: Path
) -> None:
    await ana.command(CODE)
    async with aio.open(where, embedder="hashing", extract="off", state_dir=tmp_path) as second:
        again = second.scope("ana", session="chat-1")
        assert (await again.remember([{"content": CODE}])).count("skipped") == 1
