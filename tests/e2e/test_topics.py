"""Which memories a topic of a chat command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from memorist import aio
from memorist.scoped import ScopedClient

OTHERS = (
    "My brother has two sons and works at Globex in Rome.",
    "I went to see a film with my boss yesterday.",
    "I hate rain.",
)


async def ask(scope: ScopedClient, text: str) -> list[str]:
    """Return what a reply lists."""
    reply = await scope.command(text)
    assert reply is not None, text
    return [line[3:] for line in reply.say.splitlines() if line[:1].isdigit()]


@pytest.mark.parametrize(
    ("told", "topic"),
    [
        ("I work at Acme as a tester.", "my job"),
        ("I'm a nurse in Lisbon.", "my job"),
        ("I started as a teacher at Oak School.", "my profession"),
        ("I live in Lisbon, near the river.", "my address"),
        ("We moved to Porto in May.", "my home town"),
        ("I'm vegan.", "my diet"),
        ("I don't eat pork.", "my diet"),
        ("I'm 34 and I love to ski.", "my age"),
        ("I turned 41 last week.", "my age"),
        ("I have two daughters.", "my kids"),
        ("My son Tim plays chess.", "my children"),
        ("I'm married to Ana.", "my wife"),
        ("My dog is called Bo.", "my pet"),
        ("I make 3000 euros a month.", "my salary"),
    ],
)
async def test_what_is_told_by_a_verb_is_found_by_its_noun(
    tmp_path: Path, told: str, topic: str
) -> None:
    async with aio.open(tmp_path / "memory.db", extract="off", state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="chat-1")
        for text in (*OTHERS, told):
            await chat.remember([{"content": text}])
        assert await ask(chat, f"What do you know about {topic}?") == [told]
        assert await ask(chat, f"Forget {topic}") == [told]


@pytest.mark.parametrize("topic", ["my kids", "my address", "my age", "my brother's job"])
async def test_what_others_do_does_not_tell_it(tmp_path: Path, topic: str) -> None:
    async with aio.open(
        tmp_path / "memory.db", embedder="hashing", extract="off", state_dir=tmp_path
    ) as memory:
        chat = memory.scope("ana", session="chat-1")
        told = ("Ole has two girls.", "Ole lives in Kiel.", "Ole is 34.", "I work with my mum.")
        await chat.remember([{"content": text} for text in told])
        assert await ask(chat, f"What do you know about {topic}?") == []


@pytest.mark.parametrize(
    ("told", "topic"),
    [
        ("I live in Lisbon, near the river.", "my email address"),
        ("My dog is called Bo.", "my pet peeve"),
        ("I'm 34 and I love to ski.", "my age group"),
        ("I'm seeing a doctor on Monday.", "my job"),
        ("I'm not a doctor.", "my job"),
        ("We moved the sofa into the hall.", "my address"),
        ("I had 2 years of French.", "my age"),
        ("I turned the offer down.", "my birthday"),
        ("I make 12 jars of plum jam a year.", "my salary"),
    ],
)
async def test_what_is_about_something_else_is_not_offered(
    tmp_path: Path, told: str, topic: str
) -> None:
    async with aio.open(tmp_path / "memory.db", extract="off", state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="chat-1")
        await chat.remember([{"content": told}])
        assert await ask(chat, f"Forget {topic}") == []


async def test_what_is_so_now_is_told_by_a_verb(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "memory.db", extract="off", state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="chat-1")
        for text in (*OTHERS, "I work at Acme as a tester."):
            await chat.remember([{"content": text}])
        assert await ask(chat, "Forget my current job") == ["I work at Acme as a tester."]


async def test_of_a_turn_that_says_more_only_the_fact_is_forgotten(tmp_path: Path) -> None:
    said = "I'm 34 and I'm allergic to nuts."
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="chat-1")
        await chat.remember([{"content": said}])
        await memory.run_jobs(only=["extract"])
        assert await ask(chat, "Forget my age") == ["The user is 34."]
        done = await chat.command("yes")
        assert done is not None
        assert f"You also said it here, among other things:\n1. {said}" in done.say
        await chat.command("no")
        assert {each.text for each in await chat.list()} == {said, "The user is allergic to nuts."}


async def test_an_undo_does_not_repeat_what_stays_forgotten(tmp_path: Path) -> None:
    said = "I'm 34 and I'm allergic to nuts."
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="chat-1")
        await chat.remember([{"content": said}])
        await memory.run_jobs(only=["extract"])
        for text in ("Forget my age", "yes", "yes"):
            await chat.command(text)
        undone = await chat.command("undo")
        assert undone is not None
        assert undone.say == (
            f"Undone. I remember again:\n1. {said}\n2. The user is allergic to nuts."
        )


async def test_a_turn_with_one_fact_is_forgotten_as_a_whole(tmp_path: Path) -> None:
    said = "My sister Mira lives in Ghent."
    async with aio.open(tmp_path / "memory.db", state_dir=tmp_path) as memory:
        chat = memory.scope("ana", session="chat-1")
        await chat.remember([{"content": said}])
        await memory.run_jobs(only=["extract"])
        assert await ask(chat, "Forget everything about my sister") == [said]
        await chat.command("yes")
        assert list(await chat.list()) == []
