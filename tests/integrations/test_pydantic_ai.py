"""The capability and the message history for Pydantic AI, in real runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import memorist
from memorist.errors import Refused
from memorist.sync import Blocking
from model_server import Model

adapter = pytest.importorskip("memorist.integrations.pydantic_ai", exc_type=ImportError)
pydantic_ai = pytest.importorskip("pydantic_ai")
function = pytest.importorskip("pydantic_ai.models.function")
messages = pytest.importorskip("pydantic_ai.messages")


@pytest.fixture
def memory(place: str) -> Iterator[Blocking]:
    with memorist.open(place) as opened:
        yield opened


class Script:
    """A model that answers from a list, and keeps what it was told."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.told: list[Any] = []
        self.tools: list[str] = []

    def __call__(self, history: list[Any], info: Any) -> Any:
        self.told.append(info.instructions or "")
        self.tools = [tool.name for tool in info.function_tools]
        answer = self.answers.pop(0)
        part = messages.TextPart(answer) if isinstance(answer, str) else answer
        return messages.ModelResponse(parts=[part])


def agent(script: Script, *capabilities: Any) -> Any:
    model = function.FunctionModel(script)
    return pydantic_ai.Agent(
        model, instructions="Be brief.", deps_type=str, capabilities=capabilities
    )


async def test_a_run_knows_what_was_said_in_another_conversation(memory: Blocking) -> None:
    script = Script("Good to know.", "In Ghent.")
    helper = agent(script, adapter.MemoristCapability(memory.scope(user="ana")))
    await helper.run("My sister Mira lives in Ghent.")
    await helper.run("Where does Mira live?")
    assert script.told[0].startswith("Be brief.")
    assert "Ghent" not in script.told[0]
    assert "My sister Mira lives in Ghent." in script.told[1]
    turns = [each for each in memory.scope(user="ana").list() if each.speaker]
    assert sorted((turn.labels.role, turn.text) for turn in turns) == [
        ("assistant", "Good to know."),
        ("assistant", "In Ghent."),
        ("user", "My sister Mira lives in Ghent."),
        ("user", "Where does Mira live?"),
    ]
    sessions = {turn.labels.session for turn in turns}
    assert len(sessions) == 2
    assert None not in sessions


async def test_one_agent_keeps_its_users_apart(memory: Blocking) -> None:
    script = Script(*["Good."] * 3)
    helper = agent(script, adapter.MemoristCapability(lambda run: memory.scope(user=run.deps)))
    await helper.run("My sister Mira lives in Ghent.", deps="ana")
    await helper.run("Where does Mira live?", deps="bo")
    await helper.run("Where does Mira live?", deps="ana")
    assert ["Mira lives in Ghent" in told for told in script.told] == [False, False, True]


async def test_the_agent_searches_and_saves_with_tools(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    ana.remember("My sister Mira lives in Ghent.")
    script = Script(
        messages.ToolCallPart("recall", {"query": "Where does Mira live?"}),
        messages.ToolCallPart("save", {"text": "Ana prefers answers in French."}),
        messages.ToolCallPart("recall", {"query": "quantum chromodynamics"}),
        "Done.",
    )
    result = await agent(script, adapter.MemoristCapability(ana)).run("Help me.")
    returned = [
        part.content
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, messages.ToolReturnPart)
    ]
    assert script.tools == ["recall", "save"]
    assert "Mira lives in Ghent" in returned[0]
    assert returned[1:] == ["created", "Nothing that is remembered answers this."]
    assert "French" in ana.recall("Which language does Ana prefer?").text


async def test_tools_and_remembering_can_be_turned_off(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    script = Script("Good.")
    silent = adapter.MemoristCapability(ana, tools=False, remember=False)
    await agent(script, silent).run("I play the cello.")
    assert script.tools == []
    assert ana.list().memories == ()


async def test_a_prompt_that_is_too_long_is_not_remembered_and_does_no_harm() -> None:
    async with memorist.aio.open(":memory:", max_text_chars=100) as memory:
        ana = memory.scope(user="ana")
        script = Script("That is a lot of text.")
        silent = adapter.MemoristCapability(ana, tools=False)
        await agent(script, silent).run(["I play the cello.", "x" * 100])
        (only,) = (await ana.list()).memories
        assert only.text == "That is a lot of text."


async def test_a_history_returns_messages_as_they_were(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    history = adapter.MemoristHistory("monday", ana)
    helper = agent(Script("Hello.", "Four."))
    assert await history.load() == []
    first = await helper.run("Hi")
    await history.add(first.new_messages())
    second = await helper.run("Two and two?", message_history=await history.load())
    await history.add(second.new_messages())
    assert await history.load() == second.all_messages()
    assert await history.load(1) == second.all_messages()[-1:]
    assert await adapter.MemoristHistory("monday", memory.scope(user="bo")).load() == []
    assert ana.list().memories == ()
    await history.clear()
    assert await history.load() == []


async def test_an_incognito_history_stores_nothing(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    ana.privacy.start_incognito("monday")
    with pytest.raises(Refused, match="incognito"):
        await adapter.MemoristHistory("monday", ana).add([])


def test_runs_of_several_event_loops_share_a_memory(memory: Blocking) -> None:
    script = Script("Good.", "In Ghent.")
    helper = agent(script, adapter.MemoristCapability(memory.scope(user="ana")))
    asyncio.run(helper.run("My sister Mira lives in Ghent."))
    asyncio.run(helper.run("Where does Mira live?"))
    assert "Mira lives in Ghent" in script.told[1]


async def test_an_async_memory_works_in_its_own_loop() -> None:
    async with memorist.aio.open(":memory:") as memory:
        script = Script("Good.", "In Ghent.")
        helper = agent(script, adapter.MemoristCapability(memory.scope(user="ana")))
        await helper.run("My sister Mira lives in Ghent.")
        await helper.run("Where does Mira live?")
    assert "Mira lives in Ghent" in script.told[1]


def test_the_example_remembers_each_user(run_example: Callable[[str], str], model: Model) -> None:
    ana, bo = run_example("pydantic_ai_example").strip().split("\n")
    assert "Mira lives in Ghent" in ana
    assert "Ghent" not in bo
