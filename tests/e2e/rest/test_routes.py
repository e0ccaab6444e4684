"""Each route does what its name says, through HTTP, on both engines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

import memorist
from memorist.client import Client
from memorist.dialects.supervisor import Supervisor
from rest_server import route_table

from .conftest import ANA, asking

V1 = "/v1/memory"
HOME = {"space": "home"}


@pytest_asyncio.fixture
async def memory(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    async with memorist.aio.open(
        place, embedder="hashing", journal_dir=tmp_path / "journal"
    ) as opened:
        yield opened


@pytest_asyncio.fixture
async def ana(memory: Client) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(memory, local=ANA) as client:
        yield client


async def told(
    client: httpx.AsyncClient, text: str = "I moved to Lisbon in May.", **more: Any
) -> str:
    answer = await client.post(f"{V1}/entries", json={"text": text, **HOME, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["outcomes"][0]["ids"][0])


@pytest.mark.spec("THE-78")
async def test_a_space_is_summed_up_for_people(ana: httpx.AsyncClient) -> None:
    await told(ana)
    await told(ana, "The cat is called Miso.", pinned=True)
    found = (await ana.get(f"{V1}/summary", params=HOME)).json()
    assert found["space"] == "home"
    assert "Lisbon" in found["summary"]
    assert "Miso" in found["summary"]
    assert "2 active" in found["summary"]
    assert "Lisbon" not in (await ana.get(f"{V1}/summary", params={"space": "work"})).text


@pytest.mark.spec("THE-78")
async def test_a_summary_begins_with_what_is_pinned_and_names_it_once(
    ana: httpx.AsyncClient,
) -> None:
    await told(ana, "The cat is called Miso.", pinned=True)
    await told(ana)
    summary = (await ana.get(f"{V1}/summary", params=HOME)).json()["summary"]
    assert summary.index("called Miso") < summary.index("moved to Lisbon")
    assert summary.count("called Miso") == 1


@pytest.mark.spec("THE-79", "THE-80")
async def test_entries_are_made_and_listed_by_what_was_decided_about_them(
    ana: httpx.AsyncClient,
) -> None:
    plain = await told(ana)
    saved = await told(ana, "Remember the blue door.", tags=["Door"], manually_saved=True)
    pinned = await told(ana, "The cat is called Miso.")
    await ana.post(f"{V1}/entries/{pinned}/pin", params=HOME)

    async def listed(**which: Any) -> set[str]:
        page = (await ana.get(f"{V1}/entries", params={**HOME, **which})).json()
        return {entry["id"] for entry in page["entries"]}

    assert await listed() == {plain, saved, pinned}
    assert await listed(pinned=True) == {pinned}
    assert await listed(manually_saved=True) == {saved, pinned}, "a pin is an explicit wish"
    assert await listed(pinned=False, manually_saved=False) == {plain}
    assert await listed(tag="door") == {saved}


@pytest.mark.spec("THE-79")
async def test_a_list_has_what_is_active_unless_another_state_is_asked_for(
    ana: httpx.AsyncClient,
) -> None:
    there, hidden = await told(ana), await told(ana, "The cat is called Miso.")
    await ana.delete(f"{V1}/entries/{hidden}", params={"keep_days": 1, **HOME})
    for state, expected in (({}, [there]), ({"state": "soft_deleted"}, [hidden])):
        page = (await ana.get(f"{V1}/entries", params={**HOME, **state})).json()
        assert [entry["id"] for entry in page["entries"]] == expected


@pytest.mark.spec("THE-80")
async def test_an_entry_told_twice_is_one_and_says_so(ana: httpx.AsyncClient) -> None:
    id = await told(ana, "The cat is called Miso.")
    again = await ana.post(f"{V1}/entries", json={"text": "the cat is called  Miso", **HOME})
    assert (again.status_code, again.json()["outcomes"][0]["status"]) == (200, "merged")
    assert again.json()["outcomes"][0]["ids"] == [id]


@pytest.mark.spec("THE-81", "THE-82")
async def test_a_pin_stays_and_the_history_names_who_put_it_there(ana: httpx.AsyncClient) -> None:
    address = f"{V1}/entries/{await told(ana)}"
    for change, pinned in ((ana.post, True), (ana.delete, False)):
        await change(f"{address}/pin", params=HOME)
        assert (await ana.get(address, params=HOME)).json()["pinned"] is pinned
        newest = (await ana.get(f"{address}/history", params=HOME)).json()[0]
        assert (newest["event"], newest["actor"], newest["meta"]["pinned"]) == (
            "UPDATE",
            "ana",
            pinned,
        )


@pytest.mark.spec("THE-81", "THE-82", "THE-83")
@pytest.mark.parametrize(("method", "part"), [("POST", "/pin"), ("DELETE", "/pin"), ("DELETE", "")])
async def test_an_entry_is_found_by_its_id_alone(
    ana: httpx.AsyncClient, method: str, part: str
) -> None:
    answer = await ana.request(method, f"{V1}/entries/{await told(ana)}{part}")
    assert answer.status_code == 200


@pytest.mark.spec("THE-81", "THE-82")
async def test_an_entry_is_pinned_and_unpinned(ana: httpx.AsyncClient) -> None:
    id = await told(ana)
    assert (await ana.post(f"{V1}/entries/{id}/pin", params=HOME)).json()["pinned"] is True
    assert (await ana.delete(f"{V1}/entries/{id}/pin", params=HOME)).json()["pinned"] is False


@pytest.mark.spec("THE-83", "THE-84")
async def test_a_forgotten_entry_is_gone_and_does_not_come_back_by_itself(
    ana: httpx.AsyncClient,
) -> None:
    id = await told(ana)
    assert (await ana.delete(f"{V1}/entries/{id}", params=HOME)).json()["ids"] == [id]
    assert (await ana.get(f"{V1}/entries/{id}", params=HOME)).status_code == 404
    again = await ana.post(f"{V1}/entries", json={"text": "I moved to Lisbon in May.", **HOME})
    assert (again.status_code, again.json()["outcomes"][0]["ids"]) == (200, [])
    on_purpose = {"text": "I moved to Lisbon in May.", "manually_saved": True, **HOME}
    assert (await ana.post(f"{V1}/entries", json=on_purpose)).status_code == 201


@pytest.mark.spec("THE-85")
async def test_memory_is_turned_off_for_a_space_and_no_other(ana: httpx.AsyncClient) -> None:
    off = await ana.post(
        f"{V1}/settings", json={"memory_enabled": False, "incognito_default": True, **HOME}
    )
    assert (off.json()["memory_enabled"], off.json()["incognito_default"]) == (False, True)
    refused = (await ana.post(f"{V1}/entries", json={"text": "I like jazz.", **HOME})).json()[
        "outcomes"
    ][0]
    assert refused["status"] == "refused"
    assert (await ana.get(f"{V1}/settings", params={"space": "work"})).json()["on"] is True


@pytest.mark.spec("THE-86", "THE-87")
async def test_an_incognito_session_leaves_nothing_until_it_ends(ana: httpx.AsyncClient) -> None:
    await told(ana)
    session = {"session": "s1", **HOME}
    assert (await ana.post(f"{V1}/incognito/start", json=session)).json()["on"] is False
    said = await ana.post(f"{V1}/entries", json={"text": "I like jazz.", **session})
    assert said.json()["outcomes"][0]["status"] == "refused"
    question = {"query": "Lisbon", **session}
    assert (await ana.post(f"{V1}/recall", json=question)).json()["hits"] == []
    assert (await ana.post(f"{V1}/incognito/end", json=session)).json()["on"] is True
    assert len((await ana.post(f"{V1}/recall", json=question)).json()["hits"]) == 1


@pytest.mark.spec("THE-88", "THE-89", "THE-90", "THE-91", "THE-92")
async def test_a_person_says_it_in_a_chat(ana: httpx.AsyncClient) -> None:
    id = await told(ana, "My cat Miso loves tuna.")

    async def say(text: str, about: list[str] | None = None) -> dict[str, Any]:
        told = {"text": text, "about": about or [], "session": "s1", **HOME}
        answer: dict[str, Any] = (await ana.post(f"{V1}/say", json=told)).json()
        return answer

    shown = await say("What do you remember about Miso?")
    assert shown["ids"] == [id]
    assert "tuna" in shown["say"]
    assert (await say("pin this", [id]))["done"]
    assert (await ana.get(f"{V1}/entries/{id}", params=HOME)).json()["pinned"] is True
    assert (await say("forget that", [id]))["done"]
    hidden = (await ana.get(f"{V1}/entries/{id}", params=HOME)).json()
    assert hidden["state"] == "soft_deleted"
    asked = await say("Forget that for good.", [id])
    assert (asked["done"], asked["intent"]) == (False, "forget_last"), "it is forgotten already"
    assert (await say("start incognito for this chat"))["done"]
    assert (await ana.get(f"{V1}/settings", params={"session": "s1", **HOME})).json()["on"] is False
    assert (await say("turn memory off"))["done"]
    assert (await ana.get(f"{V1}/settings", params=HOME)).json()["memory_enabled"] is False
    assert (await say("I had soup."))["command"] == ""


async def test_what_a_person_told_the_memory_to_do_is_no_entry(ana: httpx.AsyncClient) -> None:
    session = {"session": "s1", **HOME}
    for text in ("Remember that my locker code is 4455.", "undo that"):
        assert (await ana.post(f"{V1}/say", json={"text": text, **session})).json()["done"]
        stored = await ana.post(f"{V1}/entries", json={"text": text, **session})
        assert stored.json()["outcomes"][0]["status"] == "skipped"
    found = await ana.post(f"{V1}/recall", json={"query": "What is my locker code?", **HOME})
    assert found.json()["hits"] == []


@pytest.mark.spec(
    "IMP-57", "IMP-58", "IMP-59", "IMP-60", "IMP-61", "IMP-62", "IMP-63", "IMP-64", "IMP-65"
)
async def test_an_agent_asks_and_sees_what_its_allowlist_names(
    memory: Client, ana: httpx.AsyncClient
) -> None:
    await told(ana, "I drink green tea every morning.", category="preferences", importance=0.6)
    await told(ana, "Tea with Ben at the bank about the tea budget.", category="finance")
    question = {
        "agent": "supervisor", "query": "green tea", "categories": ["preferences"], "top_k": 3, "return": "bullets",
        "budget_tokens": 512, **HOME,
        "filters": {
            "user_id": "ana", "importance_min": 1, "importance_max": 5, "updated_after": "2025-07-01",
            "updated_before": None,
        },
    }  # fmt: skip
    (bullet,) = (await ana.post(f"{V1}/query", json=question)).json()
    assert set(bullet) == {"id", "category", "text"}
    assert bullet["text"] == "[preferences] I drink green tea every morning."
    (full,) = (await ana.post(f"{V1}/query", json={**question, "return": "full"})).json()
    assert full["importance"] == 3
    assert (await ana.post(f"{V1}/query", json={**question, "budget_tokens": 5})).json() == []
    assert (
        await ana.post(f"{V1}/query", json={**question, "threshold": 1.0, "query": "rain"})
    ).json() == []
    assert (
        await ana.post(f"{V1}/query", json={**question, "filters": {"user_id": "bob"}})
    ).status_code == 403
    narrow = next(
        agent
        for agent, names in memory.ctx.allowlists.allowlists.items()
        if "preferences" not in names
    )
    assert (await ana.post(f"{V1}/query", json={**question, "agent": narrow})).status_code == 403


@pytest.mark.spec("IMP-78", "IMP-79")
async def test_each_change_of_a_memory_is_in_its_history(ana: httpx.AsyncClient) -> None:
    id = await told(ana)
    await ana.patch(f"{V1}/entries/{id}", params=HOME, json={"text": "I moved to Porto in May."})
    await ana.delete(f"{V1}/entries/{id}", params=HOME)
    for url in (f"/memory/{id}/history", f"{V1}/entries/{id}/history"):
        events = [entry["event"] for entry in (await ana.get(url, params=HOME)).json()]
        assert events == ["DELETE", "UPDATE", "ADD"]
    assert "Lisbon" not in (await ana.get(f"/memory/{id}/history", params=HOME)).text
    assert len((await ana.get(f"{V1}/history", params=HOME)).json()) == 3


@pytest.mark.spec("IMP-78")
async def test_the_history_of_a_memory_is_its_own_and_as_long_as_asked_for(
    ana: httpx.AsyncClient,
) -> None:
    id = await told(ana)
    await told(ana, "The cat is called Miso.")
    await ana.patch(f"{V1}/entries/{id}", params=HOME, json={"text": "I moved to Porto in May."})
    for limit, events in ((100, ["UPDATE", "ADD"]), (1, ["UPDATE"])):
        found = (await ana.get(f"/memory/{id}/history", params={**HOME, "limit": limit})).json()
        assert [(entry["memory_id"], entry["event"]) for entry in found] == [
            (id, event) for event in events
        ]


@pytest.mark.spec("IMP-78")
async def test_the_history_of_a_memory_is_found_in_any_space_of_its_owner(
    ana: httpx.AsyncClient,
) -> None:
    found = await ana.get(f"/memory/{await told(ana)}/history")
    assert [entry["event"] for entry in found.json()] == ["ADD"]
    assert (
        await ana.get("/memory/0190b3c4-0000-7000-8000-000000000000/history")
    ).status_code == 404


@pytest.mark.spec("IMP-96")
async def test_a_how_to_is_read_by_the_agents_that_carry_things_out(
    memory: Client, ana: httpx.AsyncClient
) -> None:
    scope = memory.scope(user="ana", space="home")
    await Supervisor(scope).save_workflow(
        "Deploy the service", ["Build the image", "Push the image"]
    )
    asked = {"query": "deploy the service", "categories": ["procedural"], **HOME}
    (found,) = (await ana.post(f"{V1}/query", json={**asked, "agent": "executor"})).json()
    assert found["text"] == "[procedural] Deploy the service: 1. Build the image 2. Push the image"
    assert (await ana.post(f"{V1}/query", json={**asked, "agent": "supervisor"})).status_code == 403


@pytest.mark.spec("IMP-93", "IMP-96")
async def test_a_how_to_is_saved_with_its_steps(ana: httpx.AsyncClient) -> None:
    made = {
        "text": "Deploy the service",
        "kind": "procedural",
        "steps": ["Build the image", "Push the image"],
        **HOME,
    }
    assert (await ana.post(f"{V1}/entries", json=made)).status_code == 201
    asked = {
        "agent": "executor",
        "query": "deploy the service",
        "categories": ["procedural"],
        **HOME,
    }
    (found,) = (await ana.post(f"{V1}/query", json=asked)).json()
    assert "1. Build the image" in found["text"]
    wrong = await ana.post(f"{V1}/entries", json={**made, "steps": ["Build it", "It is done"]})
    assert (wrong.status_code, wrong.json()["detail"]) == (
        422,
        "Step 2 is not an instruction. Begin with a verb, as in 'Build the image'",
    )


@pytest.mark.spec("IMP-80")
async def test_everything_goes_out_and_comes_in_again(ana: httpx.AsyncClient) -> None:
    id = await told(ana)
    out = await ana.get(f"{V1}/export", params=HOME)
    records = [json.loads(line) for line in out.text.splitlines()]
    assert out.headers["content-type"] == "application/x-ndjson"
    assert {"memorist", "history", "memory"} <= {record["record_type"] for record in records}
    await ana.delete(f"{V1}/entries/{id}", params={**HOME, "keep_days": 0})
    taken = await ana.post(f"{V1}/import", json={"records": records, "space": "copy"})
    assert taken.status_code == 201, taken.text
    assert len((await ana.get(f"{V1}/entries", params={"space": "copy"})).json()["entries"]) == 1


@pytest.mark.spec("CLK-81", "CLK-82", "CLK-83")
async def test_the_snapshot_and_the_facts_of_a_guild(
    memory: Client, ana: httpx.AsyncClient
) -> None:
    from memorist.dialects.clanker import Clanker

    await Clanker(memory).add_memory_fact("g1", "u1", "Ana plays the cello in an orchestra.")
    first = (await ana.get("/api/memory")).json()
    assert "cello" in first["markdown"]
    await Clanker(memory).add_memory_fact("g1", "u1", "Ana has a dog called Rex.")
    assert (await ana.get("/api/memory")).json() == first
    made = (await ana.post("/api/memory/refresh")).json()
    assert made["ok"] is True
    assert "Rex" in made["markdown"]
    asked = {"q": "who plays the cello?", "guildId": "g1", "channelId": "c1", "limit": 5}
    found = (await ana.get("/api/memory/search", params=asked)).json()
    assert "cello" in found["results"][0]["text"]
    rest = {name: found[name] for name in ("queryText", "guildId", "channelId", "limit")}
    assert rest == {
        "queryText": "who plays the cello?",
        "guildId": "g1",
        "channelId": "c1",
        "limit": 5,
    }
    assert (await ana.get("/api/memory/search", params={**asked, "guildId": "g2"})).json()[
        "results"
    ] == []
    nothing = (await ana.get("/api/memory/search", params={"q": "cello"})).json()
    assert (nothing["results"], nothing["limit"]) == ([], 0)


@pytest.mark.spec("CLK-62", "CLK-83")
async def test_a_search_in_a_guild_keeps_its_limit_and_prefers_its_channel(
    memory: Client, ana: httpx.AsyncClient
) -> None:
    from memorist.dialects.clanker import Clanker

    for n in range(12):
        await Clanker(memory).add_memory_fact(
            "g1", f"u{n}", f"u{n} plays the cello", channel_id=f"c{n}"
        )
    asked = {"q": "who plays the cello?", "guildId": "g1"}
    for more, returned, limit in (
        ({}, 10, 10),
        ({"limit": 2}, 2, 2),
        ({"limit": 24}, 12, 24),
        ({"q": " "}, 0, 0),
    ):
        found = (await ana.get("/api/memory/search", params={**asked, **more})).json()
        assert (len(found["results"]), found["limit"]) == (returned, limit)
    here = await ana.get("/api/memory/search", params={**asked, "limit": 1, "channelId": "c3"})
    assert [each["labels"]["subject"] for each in here.json()["results"]] == ["u3"]


@pytest.mark.spec("CLK-61", "CLK-83")
@pytest.mark.parametrize(("limit", "clamped"), [(0, 1), (99, 24)])
async def test_a_search_in_a_guild_clamps_its_limit(
    ana: httpx.AsyncClient, limit: int, clamped: int
) -> None:
    asked = {"q": "who plays the cello?", "guildId": "g1", "limit": limit}
    answer = await ana.get("/api/memory/search", params=asked)
    assert (answer.status_code, answer.json().get("limit")) == (200, clamped)


@pytest.mark.spec("CLK-83")
async def test_a_search_in_a_guild_answers_with_fact_subject_and_score(
    memory: Client, ana: httpx.AsyncClient
) -> None:
    from memorist.dialects.clanker import Clanker

    await Clanker(memory).add_memory_fact("g1", "u1", "Ana plays the cello")
    asked = {"q": "who plays the cello?", "guildId": "g1"}
    (found,) = (await ana.get("/api/memory/search", params=asked)).json()["results"]
    assert (found.get("fact"), found.get("subject")) == ("Ana plays the cello.", "u1")
    assert 0 < found["score"] <= 1


@pytest.mark.spec("CLK-81", "CLK-82")
async def test_the_snapshot_is_there_on_a_server_without_settings(tmp_path: Path) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="none", state_dir=tmp_path) as plain:
        await plain.scope("ana").remember("Ana plays the cello in an orchestra.")
        async with asking(plain, local=ANA) as client:
            answers = [await client.get("/api/memory"), await client.post("/api/memory/refresh")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert all("cello" in answer.json()["markdown"] for answer in answers)


async def test_only_an_operator_of_the_whole_server_reads_of_everybody(memory: Client) -> None:
    given: tuple[tuple[dict[str, str], int], ...] = (
        ({}, 200),
        ({"space": "home"}, 403),
        ({"tenant": "acme"}, 403),
    )
    for bound, status in given:
        _, token = await memory.create_key("k", user="eve", rights=("admin",), **bound)
        async with asking(memory, token) as client:
            assert (await client.get("/api/memory")).status_code == status
            assert (await client.post("/api/memory/refresh")).status_code == status


async def test_a_conversation_is_remembered_once(ana: httpx.AsyncClient) -> None:
    said = [
        {
            "id": "1",
            "role": "user",
            "name": "Ana",
            "content": "I adopted a cat.",
            "at": "2026-05-31T14:00:00Z",
        },
        {"id": "2", "role": "assistant", "content": "Lovely! What is it called?"},
    ]
    first = await ana.post(f"{V1}/messages", json={"messages": said, "session": "s1", **HOME})
    again = await ana.post(f"{V1}/messages", json={"messages": said, "session": "s1", **HOME})
    assert first.status_code == 201
    assert first.json() == again.json()
    entry = (
        await ana.get(f"{V1}/entries/{first.json()['outcomes'][0]['ids'][0]}", params=HOME)
    ).json()
    assert (entry["speaker"], entry["labels"]["session"]) == ("Ana", "s1")
    evidence = (await ana.get(f"{V1}/entries/{entry['id']}/why", params=HOME)).json()
    assert evidence["memory"]["id"] == entry["id"]


async def test_a_question_is_answered_with_reasons(ana: httpx.AsyncClient) -> None:
    id = await told(ana)
    other = await told(ana, "The kettle is broken.")
    answer = (await ana.post(f"{V1}/recall", json={"query": "Lisbon", "limit": 1, **HOME})).json()
    (hit,) = answer["hits"]
    assert hit["memory"]["id"] == id
    assert sum(hit["parts"].values()) == pytest.approx(hit["score"])
    assert "Lisbon" in answer["text"]
    why = (
        await ana.get(f"{V1}/entries/{other}/why_not", params={"query": "Lisbon", **HOME})
    ).json()
    assert why["returned"] is False
    filtered = {"query": "Lisbon", "where": {"ids": [other]}, **HOME}
    assert [
        each["memory"]["id"]
        for each in (await ana.post(f"{V1}/recall", json=filtered)).json()["hits"]
    ] != [id]
    assert (await ana.get(f"{V1}/entries/{id}/related", params=HOME)).status_code == 200


async def test_what_was_done_is_undone_and_what_was_hidden_restored(ana: httpx.AsyncClient) -> None:
    id = await told(ana)
    await ana.patch(f"{V1}/entries/{id}", params=HOME, json={"text": "I moved to Porto in May."})
    operation = (await ana.get(f"{V1}/history", params=HOME)).json()[0]["meta"]["operation"]
    done = await ana.post(f"{V1}/undo", json={"operation": operation, **HOME})
    assert done.json() == {"operations": [operation], "ids": [id], "dry_run": False}
    assert "Lisbon" in (await ana.get(f"{V1}/entries/{id}", params=HOME)).json()["text"]
    await ana.delete(f"{V1}/entries/{id}", params={**HOME, "keep_days": 7})
    assert (await ana.get(f"{V1}/entries/{id}", params=HOME)).json()["state"] == "soft_deleted"
    assert (await ana.post(f"{V1}/entries/{id}/restore", params=HOME)).json()["state"] == "active"


async def test_forgetting_by_a_question_tells_first(ana: httpx.AsyncClient) -> None:
    id = await told(ana)
    asked = {"query": "Lisbon", **HOME}
    assert (await ana.post(f"{V1}/forget", json=asked)).json()["dry_run"] is True
    assert (await ana.get(f"{V1}/entries/{id}", params=HOME)).status_code == 200
    gone = (
        await ana.post(f"{V1}/forget", json={"where": {"ids": [id]}, "dry_run": False, **HOME})
    ).json()
    assert gone["ids"] == [id]
    assert (await ana.get(f"{V1}/entries/{id}", params=HOME)).status_code == 404
    assert (await ana.post(f"{V1}/forget", json={"dry_run": False, **HOME})).status_code == 422


async def test_a_question_that_may_mean_several_memories_forgets_none(
    ana: httpx.AsyncClient,
) -> None:
    address = await told(ana, "My old address was 12 Quillback Lane.")
    book = await told(ana, "The old address book is in the hall.")
    refused = await ana.post(
        f"{V1}/forget", json={"query": "old address", "dry_run": False, **HOME}
    )
    assert refused.status_code == 422
    assert "may mean 2 memories" in refused.text
    forgotten = await ana.post(
        f"{V1}/forget", json={"query": "my old address", "dry_run": False, **HOME}
    )
    assert forgotten.json()["ids"] == [address]
    assert (await ana.get(f"{V1}/entries/{book}", params=HOME)).status_code == 200


async def test_a_conflict_waits_for_a_decision(ana: httpx.AsyncClient) -> None:
    old = await told(ana, "My favourite tea is oolong.")
    await ana.post(f"{V1}/entries", json={"text": "My favourite tea is sencha.", **HOME})
    (waiting,) = (await ana.get(f"{V1}/conflicts", params=HOME)).json()
    assert waiting["old"]["id"] == old
    back = await ana.post(f"{V1}/conflicts/{waiting['new']['id']}/reject", params=HOME)
    assert back.json()["id"] == old
    assert (await ana.get(f"{V1}/conflicts", params=HOME)).json() == []


async def test_nothing_is_known_of_a_person_without_their_word(
    memory: Client, ana: httpx.AsyncClient
) -> None:
    id = await told(ana, "I live in Lisbon.")
    scope = memory.scope("ana", "home")
    first = await scope.consent.propose("city", "Lisbon", evidence=[id])
    second = await scope.consent.propose("preferred_name", "Annie", evidence=[id])
    assert [each["id"] for each in (await ana.get(f"{V1}/consent", params=HOME)).json()] == [
        first.id,
        second.id,
    ]
    approved = await ana.post(f"{V1}/consent/{first.id}/approve", params=HOME)
    assert approved.json() == {"id": first.id, "field": "city", "decided": "approved"}
    assert (await ana.post(f"{V1}/consent/{second.id}/deny", params=HOME)).json()[
        "decided"
    ] == "denied"
    assert (
        await ana.put(f"{V1}/about/tone", params=HOME, json={"value": "brief"})
    ).status_code == 200
    assert (await ana.get(f"{V1}/about", params=HOME)).json() == {"city": "Lisbon", "tone": "brief"}
    assert (await ana.delete(f"{V1}/about/tone", params=HOME)).json() == {
        "field": "tone",
        "values": 1,
    }


async def test_a_thread_tells_what_changed_and_where_it_stood(ana: httpx.AsyncClient) -> None:
    await told(ana, thread="t1", session="s1")
    news = (await ana.get(f"{V1}/delta", params={"thread": "t1", **HOME})).json()
    assert "created" in news["text"]
    since = {"thread": "t1", "since": news["revision"], **HOME}
    assert (await ana.get(f"{V1}/delta", params=since)).json()["text"] == ""
    saved = await ana.put(
        f"{V1}/checkpoints/t1", params=HOME, json={"graph_state": {"step": 3}, "more": [1, None]}
    )
    assert saved.json()["thread"] == "t1"
    stood = (await ana.get(f"{V1}/checkpoints/t1", params=HOME)).json()
    assert (stood["graph_state"], stood["more"], stood["agent_states"]) == (
        {"step": 3},
        [1, None],
        {},
    )
    assert [
        each["thread"] for each in (await ana.get(f"{V1}/checkpoints", params=HOME)).json()
    ] == ["t1"]
    assert (await ana.delete(f"{V1}/checkpoints/t1", params=HOME)).status_code == 204
    assert (await ana.get(f"{V1}/checkpoints/t1", params=HOME)).status_code == 404


async def test_a_space_is_tended_when_asked(ana: httpx.AsyncClient) -> None:
    for session in range(12):
        said = [
            {
                "content": f"In week {session} we planted {session + 3} trees by the river.",
                "name": "Ana",
            }
        ]
        await ana.post(f"{V1}/messages", json={"messages": said, "session": f"s{session}", **HOME})
    would = (
        await ana.post(f"{V1}/compress", json={"threshold": 5, "dry_run": True, **HOME})
    ).json()
    assert would["dry_run"]
    assert would["groups"] > 0
    done = (await ana.post(f"{V1}/compress", json={"threshold": 5, **HOME})).json()
    assert (done["groups"], len(done["summaries"])) == (would["groups"], would["groups"])
    assert (await ana.post(f"{V1}/purge", json={"dry_run": True, **HOME})).json() == {
        "expired": [],
        "purged": [],
    }
    assert (await ana.post(f"{V1}/roll_up", json={"dry_run": True, **HOME})).json()["groups"] == 0
    turn = (await ana.get(f"{V1}/entries", params=HOME)).json()["entries"][0]["id"]
    assert (await ana.post(f"{V1}/entries/{turn}/extract", params=HOME)).json()["by"] in (
        "rules",
        "none",
    )
    assert {each["op"] for each in (await ana.get(f"{V1}/event_counts", params=HOME)).json()} >= {
        "create"
    }
    happened = (await ana.get(f"{V1}/events", params={"node": "hotpath", **HOME})).json()
    assert {each["node"] for each in happened} == {"hotpath"}


async def test_a_space_gives_another_what_the_person_shares(ana: httpx.AsyncClient) -> None:
    await told(ana, "The garden gate sticks in winter.", tags=["share:work"])
    asked = {"query": "garden gate", "space": "work"}
    assert (await ana.post(f"{V1}/shared", json=asked)).json() == []
    await ana.post(f"{V1}/settings", json={"sharing": True, **HOME})
    (answer,) = (await ana.post(f"{V1}/shared", json=asked)).json()
    assert answer["hits"][0]["memory"]["scope"]["space"] == "home"


async def test_counts_costs_and_work_that_waits(ana: httpx.AsyncClient) -> None:
    await told(ana)
    assert (await ana.get(f"{V1}/stats", params=HOME)).json()["memories"] == 1
    assert (await ana.get(f"{V1}/costs", params=HOME)).json() == []
    assert isinstance((await ana.get(f"{V1}/backlog")).json(), list)
    assert (await ana.get("/healthz")).json() == {"status": "ok"}
    assert (await ana.get("/readyz")).json() == {"status": "ready"}


@pytest.mark.spec("THE-78", "CLK-81", "IMP-78")
def test_the_seeds_find_their_endpoints_under_the_addresses_they_wrote() -> None:
    routes = {(method.upper(), path) for path, method, _ in route_table()}
    assert routes >= {
        ("GET", "/v1/memory/summary"), ("GET", "/v1/memory/entries"), ("POST", "/v1/memory/entries"),
        ("POST", "/v1/memory/entries/{id}/pin"), ("DELETE", "/v1/memory/entries/{id}/pin"),
        ("DELETE", "/v1/memory/entries/{id}"), ("POST", "/v1/memory/settings"),
        ("POST", "/v1/memory/incognito/start"), ("POST", "/v1/memory/incognito/end"), ("GET", "/api/memory"),
        ("POST", "/api/memory/refresh"), ("GET", "/api/memory/search"), ("GET", "/memory/{id}/history"),
    }  # fmt: skip


async def test_an_answer_has_its_confidence_and_is_empty_below_the_one_asked_for(
    ana: httpx.AsyncClient,
) -> None:
    id = await told(ana)
    question = {"query": "Lisbon", **HOME}
    found = (await ana.post(f"{V1}/recall", json=question)).json()
    assert 0 < found["confidence"] < 1
    assert 0 < found["hits"][0]["confidence"] < 1
    none = (await ana.post(f"{V1}/recall", json={**question, "min_confidence": 1})).json()
    assert (none["hits"], none["text"], none["confidence"]) == ([], "", found["confidence"])
    everything = await ana.post(f"{V1}/recall", json={**question, "min_confidence": 0})
    assert len(everything.json()["hits"]) == 1
    asked = {**question, "min_confidence": 1}
    why = (await ana.get(f"{V1}/entries/{id}/why_not", params=asked)).json()
    assert "below the required 1.00" in why["reason"]


@pytest.mark.parametrize("value", [1.5, -0.1, "x", "0.5", True, [1]])
@pytest.mark.parametrize("path", ["recall", "shared"])
async def test_a_confidence_that_is_no_share_is_refused(
    ana: httpx.AsyncClient, path: str, value: object
) -> None:
    body = {"query": "Lisbon", "min_confidence": value}
    answer = await ana.post(f"{V1}/{path}", json=body)
    assert answer.status_code == 422
    assert "min_confidence" in answer.text


@pytest.mark.parametrize("value", ["1.5", "x", "true", "nan"])
async def test_a_confidence_in_an_address_that_is_no_share_is_refused(
    ana: httpx.AsyncClient, value: str
) -> None:
    id = await told(ana)
    asked = {"query": "Lisbon", "min_confidence": value, **HOME}
    assert (await ana.get(f"{V1}/entries/{id}/why_not", params=asked)).status_code == 422


@pytest.mark.spec("IMP-3", "IMP-13", "IMP-54")
async def test_a_context_is_one_request_and_an_agent_reads_its_own_part(engine: Client) -> None:
    async with asking(engine, local=ANA) as ana:
        mine = {"session": "chat"}
        told = {"text": "Ship the shop by May.", "category": "goals", "importance": 0.8}
        await ana.post(f"{V1}/entries", json={**told, **mine})
        secret = {"text": "She argued with Bo about the shop.", "category": "relationships"}
        await ana.post(f"{V1}/entries", json={**secret, **mine, "pinned": True})
        await ana.put(f"{V1}/about/tone", json={"value": "brief"})
        asked = {"message": "What about the shop?", **mine, "since": 0, "budget": 300}
        whole = (await ana.post(f"{V1}/context", json=asked)).json()
        planner = (await ana.post(f"{V1}/context", json={**asked, "agent": "planner"})).json()
        later = (await ana.post(f"{V1}/context", json={**asked, "since": 2})).json()
    assert [line["source"] for line in whole["lines"]] == ["change", "change", "profile"]
    sources = [line["source"] for line in later["lines"]]
    assert sources == ["profile", "pinned", "recalled"]
    assert whole["text"].startswith(
        "Memory updates since rev 0:\n- +created: [Goals] Ship the shop"
    )
    assert (whole["revision"], later["revision"]) == (2, 2)
    assert later["text"].startswith("<memory>\n[PROFILE] tone: brief\n")
    goal = "[Goals] Ship the shop by May. (imp=4)"
    assert planner["text"] == f"Memory updates since rev 0:\n- +created: {goal}"
    _, token = await engine.create_key("helper", user="ana", agent="planner")
    async with asking(engine, token) as helper:
        bound = (await helper.post(f"{V1}/context", json=asked)).json()
        other = await helper.post(f"{V1}/context", json={**asked, "agent": "supervisor"})
    assert bound["text"] == planner["text"]
    assert (other.status_code, other.json()["detail"]) == (
        403,
        "This key is only for the agent 'planner'",
    )


@pytest.mark.spec("IMP-3", "IMP-13")
async def test_an_answer_to_a_revision_begins_with_what_changed(engine: Client) -> None:
    async with asking(engine, local=ANA) as ana:
        told = {"text": "Ship the shop by May.", "category": "goals", "importance": 0.8}
        await ana.post(f"{V1}/entries", json={**told, "session": "chat"})
        asked = {"query": "When does the shop ship?", "session": "chat", "since": 0}
        found = (await ana.post(f"{V1}/recall", json=asked)).json()
        later = (await ana.post(f"{V1}/recall", json={**asked, "since": 1})).json()
        items = (await ana.post(f"{V1}/query", json={**asked, "agent": "planner"})).json()
        nowhere = await ana.post(f"{V1}/recall", json={"query": "shop", "since": 0})
    line = "+created: [Goals] Ship the shop by May. (imp=4)"
    assert found["text"].startswith(f"Memory updates since rev 0:\n- {line}\n<memory>\n")
    assert (found["revision"], later["revision"]) == (1, 1)
    assert later["text"].startswith("<memory>\n")
    assert [item["text"] for item in items] == [line, "[goals] Ship the shop by May."]
    assert (nowhere.status_code, "Name the thread" in nowhere.json()["detail"]) == (422, True)
