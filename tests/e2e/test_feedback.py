"""Whether recall helped: turns are counted, with what went into the reply, and without a word of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import memorist
from memorist.errors import InvalidInput
from memorist.interfaces.auth import Caller
from memorist.interfaces.cli import app
from memorist.interfaces.rest.app import create_app
from memorist.manage.feedback import CONVERSATIONS, await_reply
from memorist.sync import Blocking, BlockingScope
from memorist.types import Query, Recall, Scope

QUERY = Query(text="tea?", scope=Scope(user="ana"), limit=1)


@pytest.fixture
def memory(place: str, tmp_path: Path) -> Iterator[Blocking]:
    with memorist.open(place, embedder="hashing", state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(memory: Blocking) -> BlockingScope:
    return memory.scope("ana", session="chat")


def turns(memory: Blocking, scope: BlockingScope) -> dict[str, int]:
    """How many turns used what was recalled, and how many did not."""
    memory._loop.run(memory._inner.ctx.access_log.flush())
    return {tally.status: tally.count for tally in scope.event_counts() if tally.op == "use"}


@pytest.mark.spec("THE-98")
def test_the_share_of_turns_that_used_a_memory_can_be_told(
    memory: Blocking, ana: BlockingScope
) -> None:
    (kettle, bees) = ana.remember(
        [{"content": "My kettle is green."}, {"content": "Bees sleep in winter."}]
    ).ids
    answer = ana.recall("Which colour has my kettle?")
    assert ana.feedback(answer, reply="It is green.") == {kettle: "echoed"}
    assert ana.feedback(answer, reply="I do not know which colour your kettle has.") == {}
    assert ana.feedback([kettle, bees], reply=f"See {bees}.") == {bees: "cited"}
    assert ana.feedback([kettle, bees], used=[bees, "somebody else's"]) == {bees: "told"}
    assert ana.feedback(answer, used=[]) == {}
    assert ana.feedback([], reply="Hello!") == {}
    assert turns(memory, ana) == {"ok": 3, "skipped": 3}
    assert turns(memory, memory.scope("bo")) == {}


def test_feedback_keeps_no_word_and_says_what_it_needs(
    memory: Blocking, ana: BlockingScope, tmp_path: Path
) -> None:
    (kettle,) = ana.remember("My kettle is green.").ids
    ana.feedback([kettle], reply="A zanzibar kettle, green as ever.")
    turns(memory, ana)
    assert b"zanzibar" not in b"".join(
        file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()
    )
    for wrong in (
        {},
        {"used": [kettle], "reply": "green"},
        {"used": kettle},
        {"reply": 7},
        {"reply": "x" * 1_000_001},
    ):
        with pytest.raises(InvalidInput):
            ana.feedback([kettle], **wrong)
    with pytest.raises(InvalidInput, match="recalled"):
        ana.feedback(kettle, reply="green")


def test_another_persons_memory_cannot_be_used(memory: Blocking, ana: BlockingScope) -> None:
    (kettle,) = ana.remember("My kettle is green.").ids
    assert memory.scope("bo").feedback([kettle], reply="Green.") == {}
    assert memory.scope("bo").feedback([kettle], used=[kettle]) == {}


@pytest.mark.spec("THE-107")
def test_an_incognito_session_leaves_no_trace_of_it(memory: Blocking, ana: BlockingScope) -> None:
    (kettle,) = ana.remember("My kettle is green.").ids
    ana.privacy.start_incognito()
    assert ana.feedback([kettle], used=[kettle]) == {kettle: "told"}
    assert turns(memory, ana) == {}


async def test_a_server_takes_feedback(place: str) -> None:
    async with memorist.aio.open(place, embedder="hashing") as memory:
        (kettle,) = (await memory.scope("ana").remember("My kettle is green.")).ids
        transport = httpx.ASGITransport(
            create_app(memory, local=Caller(name="local", user="ana", tenant="default"))
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            bodies = ({"reply": "The green one."}, {"used": [kettle]}, {"reply": "No idea."})
            sent = [
                await client.post(
                    "/v1/memory/feedback", json={"recalled": [kettle], **body, "session": "chat"}
                )
                for body in bodies
            ]
    assert [answer.json() for answer in sent] == [{kettle: "echoed"}, {kettle: "told"}, {}]


def test_the_command_line_takes_feedback(tmp_path: Path) -> None:
    place = str(tmp_path / "m.db")
    with memorist.open(place, embedder="hashing", state_dir=tmp_path) as memory:
        (kettle,) = memory.scope("ana").remember("My kettle is green.").ids
    run = [kettle, "--db", place, "--user", "ana", "--json"]
    replied = CliRunner().invoke(app, ["agent", "feedback", *run, "--reply", "The green one."])
    named = CliRunner().invoke(app, ["agent", "feedback", *run, "--used", kettle])
    neither = CliRunner().invoke(app, ["agent", "feedback", *run])
    assert [json.loads(each.stdout) for each in (replied, named, neither)] == [
        {kettle: "echoed"}, {kettle: "told"}, {},
    ]  # fmt: skip


# A reply that is stored after a context is compared by itself.


@pytest.mark.spec("THE-98")
def test_a_stored_reply_is_compared_with_what_was_recalled_for_its_message(
    memory: Blocking, ana: BlockingScope
) -> None:
    ana.remember("My kettle is green.")
    asked = "Which colour has my kettle?"
    ana.context(asked)
    ana.remember([{"content": asked}, {"content": "It is green.", "role": "assistant"}])
    assert turns(memory, ana) == {"ok": 1}
    ana.remember({"content": "Green is a nice colour.", "role": "assistant"})
    assert turns(memory, ana) == {"ok": 1}, "each context counts once"
    ana.context(asked)
    ana.remember({"content": "I do not know which colour your kettle has.", "role": "assistant"})
    assert turns(memory, ana) == {"ok": 1, "skipped": 1}


def test_only_a_reply_in_the_same_conversation_counts(memory: Blocking, ana: BlockingScope) -> None:
    ana.remember("My kettle is green.")
    ana.context("Which colour has my kettle?")
    said = {"content": "It is green.", "role": "assistant"}
    for other in (
        memory.scope("ana", session="other"),
        memory.scope("bo", session="chat"),
        memory.scope("ana", "work", session="chat"),
    ):
        other.remember(said)
    ana.remember({"content": "It is green, I think."})
    ana.recall("Which colour has my kettle?")
    assert turns(memory, ana) == {}
    memory.scope("ana").remember({**said, "session": "chat"})
    assert turns(memory, ana) == {"ok": 1}


@pytest.mark.spec("THE-107")
def test_nothing_is_counted_of_a_reply_that_is_not_stored(
    memory: Blocking, ana: BlockingScope
) -> None:
    ana.remember("My kettle is green.")
    ana.context("Which colour has my kettle?")
    ana.privacy.start_incognito()
    ana.remember({"content": "It is green.", "role": "assistant"})
    ana.context("Which colour has my kettle?")
    ana.remember({"content": "Green it is.", "role": "assistant"})
    assert turns(memory, ana) == {}


def test_no_word_of_a_compared_reply_is_kept_for_the_count(
    memory: Blocking, ana: BlockingScope
) -> None:
    ana.remember("My kettle is green.")
    ana.context("Which colour has my kettle?")
    ana.remember({"content": "It is green.", "role": "assistant"})
    turns(memory, ana)
    (event,) = ana.events(op="use")
    assert (event.status, event.thread, event.memory_id, event.category) == (
        "ok",
        "chat",
        None,
        None,
    )


def test_the_number_of_conversations_that_are_waited_for_is_limited(memory: Blocking) -> None:
    memory.scope("ana").remember("My kettle is green.")
    for number in range(CONVERSATIONS + 2):
        found = memory.scope("ana", session=f"s{number}")._inner
        await_reply(found, Recall(query=QUERY, profile="", hits=(), text="", tokens=0))
    waiting = memory._inner.ctx.awaiting_reply
    assert len(waiting) == CONVERSATIONS
    assert next(session for _, session in waiting) == "s2"


def test_the_words_of_the_question_are_no_echo(memory: Blocking, ana: BlockingScope) -> None:
    (kettle,) = ana.remember("My kettle is green.").ids
    reply = "You ask whether your kettle is green."
    assert ana.feedback([kettle], reply=reply) == {kettle: "echoed"}
    assert ana.feedback([kettle], reply=reply, question="Is my kettle green?") == {}


async def test_a_server_compares_replies_by_itself(place: str) -> None:
    async with memorist.aio.open(place, embedder="hashing") as memory:
        transport = httpx.ASGITransport(
            create_app(memory, local=Caller(name="local", user="ana", tenant="default"))
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.post("/v1/memory/entries", json={"text": "My kettle is green."})
            asked = {"message": "Which colour has my kettle?", "session": "chat"}
            found = (await client.post("/v1/memory/context", json=asked)).json()
            reply = {"content": "It is green.", "role": "assistant"}
            body = {"messages": [reply], "session": "chat"}
            await client.post("/v1/memory/messages", json=body)
        await memory.ctx.access_log.flush()
        (event,) = await memory.scope("ana").events(op="use")
    assert found["lines"][-1]["text"].endswith("My kettle is green.")
    assert (event.status, event.thread) == ("ok", "chat")


@pytest.mark.spec("THE-98")
def test_a_turn_that_was_reported_is_not_counted_again_by_itself(
    memory: Blocking, ana: BlockingScope
) -> None:
    (kettle,) = ana.remember("My kettle is green.", pinned=True).ids
    found = ana.context("Which colour has my kettle?")
    assert found.ids == (kettle,), "pinned, and an answer to the message"
    assert ana.feedback(found, reply="It is green.") == {kettle: "echoed"}
    ana.remember({"content": "It is green.", "role": "assistant"})
    assert turns(memory, ana) == {"ok": 1}
