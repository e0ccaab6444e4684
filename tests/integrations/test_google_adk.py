"""The memory service of Google ADK, with its own sessions and runner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import memorist
from memorist.errors import InvalidInput, NotFound
from memorist.sync import Blocking
from model_server import Model

adapter = pytest.importorskip("memorist.integrations.google_adk", exc_type=ImportError)
Content, Part, Event = adapter.Content, adapter.Part, adapter.Event
ANA = {"app_name": "helper", "user_id": "ana"}


@pytest.fixture
def memory(place: str) -> Iterator[Blocking]:
    with memorist.open(place) as opened:
        yield opened


@pytest.fixture
def service(memory: Blocking) -> Any:
    return adapter.MemoristMemoryService(memory)


def event(id: str, author: str, *parts: Any, **fields: Any) -> Any:
    said = [Part(text=part) if isinstance(part, str) else part for part in parts]
    content = Content(role="user" if author == "user" else "model", parts=said)
    return Event(id=id, author=author, content=content, timestamp=1_800_000_000.0, **fields)


def session(id: str, *events: Any, **scope: str) -> Any:
    return adapter.Session(id=id, events=list(events), **{**ANA, **scope})


async def texts(service: Any, query: str, **scope: str) -> list[str]:
    found = await service.search_memory(query=query, **{**ANA, **scope})
    return [each.content.parts[0].text for each in found.memories]


async def test_what_was_said_in_a_session_is_found_later(service: Any) -> None:
    said = event("1", "user", "My sister Mira lives in Ghent.")
    await service.add_session_to_memory(session("s1", said, event("2", "helper", "Good to know.")))
    found = (await service.search_memory(query="Where does Mira live?", **ANA)).memories
    assert found[0].content == Content(
        role="user", parts=[Part(text="My sister Mira lives in Ghent.")]
    )
    assert found[0].author == "user"
    assert found[0].timestamp.startswith("2027-01-15T08:00:00")
    assert await texts(service, "  ") == []


async def test_a_search_is_limited_in_number_and_by_confidence(
    service: Any, memory: Blocking
) -> None:
    said = [event(str(number), "user", f"Flight {number} goes to Ghent.") for number in range(3)]
    await service.add_session_to_memory(session("s1", *said))
    few = adapter.MemoristMemoryService(memory, limit=2)
    assert len(await texts(few, "Which flights go to Ghent?")) == 2
    sure = adapter.MemoristMemoryService(memory, min_confidence=1.0)
    assert await texts(sure, "What about quantum chromodynamics?") == []


async def test_a_session_can_be_added_again(service: Any, memory: Blocking) -> None:
    first = event("1", "user", "My sister Mira lives in Ghent.")
    await service.add_session_to_memory(session("s1", first))
    await service.add_session_to_memory(session("s1", first))
    listed = memory.scope(user="ana", space="helper").list().memories
    assert [(each.text, each.repeat_count) for each in listed] == [(first.content.parts[0].text, 0)]
    await service.add_session_to_memory(
        session("s1", first, event("2", "user", "I play the cello."))
    )
    await service.add_session_to_memory(session("s2", event("1", "user", "My cat is called Tom.")))
    assert len(memory.scope(user="ana", space="helper").list().memories) == 3


async def test_users_and_applications_are_apart(service: Any) -> None:
    await service.add_session_to_memory(session("s1", event("1", "user", "I play the cello.")))
    question = "Which instrument do I play?"
    assert await texts(service, question) == ["I play the cello."]
    assert await texts(service, question, user_id="bo") == []
    assert await texts(service, question, app_name="other") == []


async def test_calls_thoughts_and_drafts_are_not_remembered(service: Any, memory: Blocking) -> None:
    call = Part.from_function_call(name="search", args={"query": "cello"})
    answer = Part.from_function_response(name="search", response={"result": "a cello"})
    await service.add_events_to_memory(
        events=[
            event("1", "helper", call),
            event("2", "helper", answer),
            event("3", "helper", Part(text="They want a cello.", thought=True)),
            event("4", "helper", "You should", partial=True),
            Event(id="5", author="helper"),
            event("7", "user", "x" * 1_000_001),
            event("6", "helper", "You should rent one.", "It is cheaper.", call),
        ],
        session_id="s1",
        custom_metadata={"shop": 7},
        **ANA,
    )
    (only,) = memory.scope(user="ana", space="helper").list().memories
    assert only.text == "You should rent one.\nIt is cheaper."
    assert (only.labels.role, only.labels.session) == ("assistant", "s1")
    assert only.metadata == {"shop": 7}


async def test_memories_are_added_and_deleted_one_by_one(service: Any) -> None:
    entry = adapter.MemoryEntry(
        content=Content(parts=[Part(text="Ana is allergic to peanuts.")]),
        custom_metadata={"source": "form"},
        timestamp="2026-05-01T10:00:00+00:00",
    )
    await service.add_memory(memories=[entry], **ANA)
    (found,) = (await service.search_memory(query="What is Ana allergic to?", **ANA)).memories
    assert found.custom_metadata == {"source": "form"}
    assert found.timestamp.startswith("2026-05-01T10:00:00")
    await service.delete_memory(memory_id=found.id, **ANA)
    assert await texts(service, "What is Ana allergic to?") == []
    with pytest.raises(NotFound):
        await service.delete_memory(memory_id=found.id, **ANA)
    with pytest.raises(InvalidInput, match="needs its id"):
        await service.delete_memory(**ANA)
    with pytest.raises(InvalidInput, match="must have text"):
        await service.add_memory(memories=[adapter.MemoryEntry(content=Content())], **ANA)


async def test_a_deleted_memory_does_not_come_back_with_its_session(service: Any) -> None:
    whole = session("s1", event("1", "user", "I play the cello."))
    await service.add_session_to_memory(whole)
    (found,) = (await service.search_memory(query="Which instrument?", **ANA)).memories
    await service.delete_memory(memory_id=found.id, **ANA)
    await service.add_session_to_memory(whole)
    assert await texts(service, "Which instrument do I play?") == []


def test_loops_of_their_own_share_a_service(service: Any) -> None:
    asyncio.run(service.add_session_to_memory(session("s1", event("1", "user", "I have a cat."))))
    assert asyncio.run(texts(service, "Which pet do I have?")) == ["I have a cat."]


def test_the_example_remembers_an_earlier_session(
    run_example: Callable[[str], str], model: Model
) -> None:
    def reply(said: str) -> str:
        return "In Ghent." if "PAST_CONVERSATIONS" in said and "lives in Ghent" in said else "Hm."

    model.reply = reply
    assert run_example("google_adk_example").split("\n")[:2] == ["Hm.", "In Ghent."]
