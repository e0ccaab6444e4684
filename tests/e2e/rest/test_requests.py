"""What holds for every request: done once, not too large, not too often, from here, in JSON, and told when not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import memorist
from memorist.client import Client
from memorist.interfaces import rest as request
from memorist.interfaces.auth import RateLimiter

from .conftest import ANA, asking, serving

ENTRY = {"text": "I moved to Lisbon in May.", "space": "home"}
ENTRIES = "/v1/memory/entries"


async def test_a_request_that_is_made_eight_times_at_once_is_done_once(place: str) -> None:
    async with (
        memorist.aio.open(place, embedder="hashing") as memory,
        asking(memory, local=ANA) as client,
    ):
        head = {"Idempotency-Key": "once"}
        asked = await asyncio.gather(
            *(client.post(ENTRIES, json=ENTRY, headers=head) for _ in range(8))
        )
        assert {answer.status_code for answer in asked} <= {201, 409}
        assert all("retry-after" in answer.headers for answer in asked if answer.status_code == 409)
        again = await client.post(ENTRIES, json=ENTRY, headers=head)
        assert again.headers["idempotency-replayed"] == "true"
        done = [answer.json() for answer in (*asked, again) if answer.status_code == 201]
        assert all(each == done[0] for each in done)
        assert len((await memory.scope("ana", "home").list()).memories) == 1


async def test_another_request_under_the_same_key_is_refused(ana: httpx.AsyncClient) -> None:
    head = {"Idempotency-Key": "once"}
    assert (await ana.post(ENTRIES, json=ENTRY, headers=head)).status_code == 201
    other = await ana.post(ENTRIES, json={**ENTRY, "text": "I moved to Porto."}, headers=head)
    assert other.status_code == 422


async def test_a_request_that_failed_may_be_made_again(ana: httpx.AsyncClient) -> None:
    head = {"Idempotency-Key": "once"}
    assert (await ana.post(f"{ENTRIES}/m1/pin", headers=head)).status_code == 404
    assert (await ana.post(f"{ENTRIES}/m1/pin", headers=head)).status_code == 404


async def test_a_request_without_an_answer_is_also_done_once(ana: httpx.AsyncClient) -> None:
    await ana.put("/v1/memory/checkpoints/t1", json={})
    gone = [
        await ana.delete("/v1/memory/checkpoints/t1", headers={"Idempotency-Key": "once"})
        for _ in range(2)
    ]
    assert [(answer.status_code, answer.content) for answer in gone] == [(204, b""), (204, b"")]
    assert (await ana.delete("/v1/memory/checkpoints/t1")).status_code == 404


async def test_the_kept_answer_holds_no_words(
    engine: Client, ana: httpx.AsyncClient, tmp_path: Path
) -> None:
    id = (await ana.post(ENTRIES, json=ENTRY)).json()["outcomes"][0]["ids"][0]
    head, where = {"Idempotency-Key": "edit"}, {"space": "home"}
    first = await ana.patch(
        f"{ENTRIES}/{id}", json={"text": "I live in Xanadu."}, params=where, headers=head
    )
    again = await ana.patch(
        f"{ENTRIES}/{id}", json={"text": "I live in Xanadu."}, params=where, headers=head
    )
    assert (first.json(), first.headers["etag"]) == (again.json(), again.headers["etag"])
    for url in ("recall", "say"):
        said = (
            {"query": "Xanadu"}
            if url == "recall"
            else {"text": "What do you remember about Xanadu?"}
        )
        asked = await ana.post(
            f"/v1/memory/{url}", json={**said, **where}, headers={"Idempotency-Key": url}
        )
        assert "Xanadu" in asked.text
    assert (await ana.delete(f"{ENTRIES}/{id}", params=where)).status_code == 200
    await engine.vacuum()
    assert not await asyncio.to_thread(_files_with, tmp_path, b"Xanadu")
    gone = await ana.patch(
        f"{ENTRIES}/{id}", json={"text": "I live in Xanadu."}, params=where, headers=head
    )
    assert gone.status_code == 404


def _files_with(folder: Path, words: bytes) -> list[Path]:
    return [path for path in folder.rglob("m.db*") if words in path.read_bytes()]


async def test_an_edit_is_refused_if_somebody_else_was_faster(ana: httpx.AsyncClient) -> None:
    id = (await ana.post(ENTRIES, json=ENTRY)).json()["outcomes"][0]["ids"][0]
    where = {"space": "home"}
    seen = (await ana.get(f"{ENTRIES}/{id}", params=where)).headers["etag"]
    first = await ana.patch(
        f"{ENTRIES}/{id}", json={"text": "A."}, params=where, headers={"If-Match": seen}
    )
    late = await ana.patch(
        f"{ENTRIES}/{id}", json={"text": "B."}, params=where, headers={"If-Match": seen}
    )
    assert (first.status_code, late.status_code) == (200, 412)
    assert (await ana.get(f"{ENTRIES}/{id}", params=where)).json()["text"] == "A."


async def test_a_request_about_another_revision_is_another_request(ana: httpx.AsyncClient) -> None:
    id = (await ana.post(ENTRIES, json={"text": "A."})).json()["outcomes"][0]["ids"][0]
    asked = [
        await ana.patch(
            f"{ENTRIES}/{id}",
            json={"text": "B."},
            headers={"Idempotency-Key": "k", "If-Match": seen},
        )
        for seen in ('"1"', '"1"', '"7"')
    ]
    assert [answer.status_code for answer in asked] == [200, 200, 422]


@pytest.mark.parametrize("nothing", [{}, {"text": None, "tags": None}])
async def test_an_edit_that_says_nothing_makes_no_revision(
    ana: httpx.AsyncClient, nothing: dict[str, Any]
) -> None:
    id = (await ana.post(ENTRIES, json=ENTRY)).json()["outcomes"][0]["ids"][0]
    assert (
        await ana.patch(f"{ENTRIES}/{id}", json=nothing, params={"space": "home"})
    ).status_code == 422
    assert (await ana.get(f"{ENTRIES}/{id}", params={"space": "home"})).json()["revision"] == 1


async def test_what_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    read = 0

    async def endless() -> Any:
        nonlocal read
        for _ in range(64):
            read += 1 << 20
            yield b" " * (1 << 20)

    async with (
        memorist.aio.open(tmp_path / "m.db", embedder="hashing", max_body_mb=2) as memory,
        asking(memory, local=ANA) as client,
    ):
        said = await client.post(
            ENTRIES, content=b" " * (3 << 20), headers={"Content-Type": "application/json"}
        )
        assert said.status_code == 413
        streamed = await client.post(
            ENTRIES, content=endless(), headers={"Content-Type": "application/json"}
        )
        assert streamed.status_code == 413
        assert streamed.headers["content-type"] == "application/problem+json"
        assert read < 4 << 20


async def test_a_body_of_exactly_the_largest_size_is_read(tmp_path: Path) -> None:
    largest = b'{"text": "I drink green tea."}'.ljust(1 << 20)

    async def streamed(body: bytes) -> Any:
        yield body

    async with (
        memorist.aio.open(tmp_path / "m.db", embedder="hashing", max_body_mb=1) as memory,
        asking(memory, local=ANA) as client,
    ):
        told = [
            await client.post(ENTRIES, content=body, headers={"Content-Type": "application/json"})
            for body in (largest, streamed(largest), largest + b" ", streamed(largest + b" "))
        ]
    assert [answer.status_code for answer in told] == [201, 200, 413, 413]


async def test_while_the_store_is_away_a_caller_is_told_when_to_ask_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    async with (
        memorist.aio.open(disk / "m.db", embedder="hashing", spool=False) as memory,
        asking(memory, local=ANA) as client,
    ):
        assert (await client.post(ENTRIES, json=ENTRY)).status_code == 201
        disk.rename(tmp_path / "away")
        away = await client.post(ENTRIES, json={"text": "I drink green tea."})
        assert (away.status_code, away.headers["retry-after"]) == (503, "1")
        (tmp_path / "away").rename(disk)
        assert (await client.post(ENTRIES, json={"text": "I drink tea."})).status_code == 201


async def test_who_asks_too_often_is_told_when_to_ask_again(tmp_path: Path) -> None:
    async with (
        memorist.aio.open(tmp_path / "m.db", embedder="hashing", rate_limit=3) as memory,
        asking(memory, local=ANA) as client,
    ):
        answers = [await client.get("/v1/memory/stats") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[0].headers["ratelimit"].startswith('"default";r=2;')
        assert 1 <= int(answers[3].headers["retry-after"]) <= 20
        _, token = await memory.create_key("another", user="ana")
        other = await client.get("/v1/memory/stats", headers={"Authorization": f"Bearer {token}"})
        assert other.status_code == 200


def test_a_bucket_fills_again_by_itself() -> None:
    now = 0.0
    limits = RateLimiter(60, clock=lambda: now)
    for left in range(59, -1, -1):
        assert limits.take("k")["RateLimit"].startswith(f'"default";r={left};')
    now = 2.0
    assert limits.take("k")["RateLimit"].startswith('"default";r=1;')


@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"text": "a"', "application/json", 400),
        (b'{"text": "tea", "importance": NaN}', "application/json", 400),
        (b"[" * 200_000, "application/json", 400),
        (b'{"text": "tea", "importance": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b'{"text": "\xff"}', "application/json", 400),
        (b'{"text": "\\ud800"}', "application/json", 422),
        (b'{"text": "tea", "colour": "red"}', "application/json", 422),
        (b'{"text": "tea", "importance": "0.5"}', "application/json", 422),
        (b'{"text": "tea", "importance": 1e400}', "application/json", 422),
        (b'{"text": "\\u0000"}', "application/json", 422),
        (b'{"text": "tea", "space": "a\\u0000b"}', "application/json", 422),
        (b'{"text": ["tea"]}', "application/json", 422),
        (b"null", "application/json", 422),
        (b'{"text": "tea"}', "text/plain", 415),
        (b"text=tea", "application/x-www-form-urlencoded", 415),
        (b'{"text": "tea"}', "", 415),
        (b"", "text/plain", 415),
        (b'{"text": "tea"}', "application/json; charset=utf-8", 201),
        (b'{"text": "tea\\u0000 time"}', "application/json", 201),
    ],
)
async def test_only_json_that_fits_is_read(
    ana: httpx.AsyncClient, content: bytes, media: str, status: int
) -> None:
    answer = await ana.post(ENTRIES, content=content, headers={"Content-Type": media})
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert set(answer.json()) >= {"type", "title", "status", "detail", "request_id"}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"text": "  \n"}, "body.text: Must contain a visible character"),
        (
            {"text": "tea", "space": "\u200b"},
            "body.space: Must contain a visible character and no U+0000",
        ),
        ({"text": "tea", "category": "a\0b"}, "body.category: Must not contain U+0000"),
    ],
)
async def test_what_has_the_wrong_shape_is_refused_in_a_sentence(
    ana: httpx.AsyncClient, body: dict[str, str], why: str
) -> None:
    assert (await ana.post(ENTRIES, json=body)).json()["detail"] == why


async def test_a_nul_in_an_address_is_no_failure_of_the_store(place: str) -> None:
    async with (
        memorist.aio.open(place, embedder="hashing") as memory,
        asking(memory, local=ANA) as client,
    ):
        for url in (
            f"{ENTRIES}/%00",
            f"{ENTRIES}?category=a%00b",
            f"{ENTRIES}?space=%00",
            "/v1/memory/delta?thread=%00",
        ):
            assert (await client.get(url)).status_code == 422, url
        question = {"query": "a\0b", "where": {"tags": ["x"], "speaker": "y"}}
        assert (await client.post("/v1/memory/recall", json=question)).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "127.1",
        "0.0.0.0", "127.0.0.1:1@evil.example",
    ],
)  # fmt: skip
async def test_another_name_for_this_machine_is_refused(ana: httpx.AsyncClient, host: str) -> None:
    assert (await ana.get("/v1/memory/stats", headers={"Host": host})).status_code == 421


async def test_a_name_that_is_none_is_refused_by_every_server(engine: Client) -> None:
    async with asking(engine) as client:
        assert (await client.get("/healthz", headers={"Host": "["})).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:80", "[::1]:8765"])
async def test_the_names_of_this_machine_are_good(ana: httpx.AsyncClient, host: str) -> None:
    assert (await ana.get("/v1/memory/stats", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:9999"},
        {"Origin": "http://["}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    ],
)  # fmt: skip
async def test_another_site_changes_nothing(
    ana: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    assert (await ana.post(ENTRIES, json=ENTRY, headers=headers)).status_code == 403
    assert (await ana.get(ENTRIES, params={"space": "home"})).json()["entries"] == []
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert (await ana.post(ENTRIES, json=ENTRY, headers=own)).status_code == 201


async def test_another_site_cannot_read_an_answer(ana: httpx.AsyncClient) -> None:
    for origin in ("https://evil.example", "null", "http://localhost:9999"):
        answer = await ana.get(ENTRIES, headers={"Origin": origin})
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_method_that_is_not_known_names_those_that_are(ana: httpx.AsyncClient) -> None:
    answer = await ana.put(ENTRIES, json=ENTRY)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert (await ana.get("/v1/nothing")).headers["content-type"] == "application/problem+json"


async def test_a_request_keeps_its_name_if_that_is_sane(ana: httpx.AsyncClient) -> None:
    given = await ana.get("/v1/memory/entries/m1", headers={"X-Request-Id": "trace-7"})
    assert (given.headers["x-request-id"], given.json()["request_id"]) == ("trace-7", "trace-7")
    made = await ana.get("/healthz", headers={"X-Request-Id": "a b\x7f" * 50})
    assert len(made.headers["x-request-id"]) == 36


async def test_the_log_tells_the_route_and_never_a_word(
    ana: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger="memorist.rest"):
        await ana.post(ENTRIES, json={"text": "My sister is called Zuleika."})
        await ana.get("/v1/memory/entries/zuleika", params={"space": "zuleika"})
        await ana.post("/v1/memory/recall", json={"query": "Zuleika"})
    assert "POST /v1/memory/entries 201" in caplog.text
    assert "zuleika" not in caplog.text.lower()


async def test_a_bug_is_told_without_our_insides(
    engine: Client,
    ana: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ana.post(ENTRIES, json=ENTRY)
    monkeypatch.setattr(engine.ctx, "store", None)
    answer = await ana.get(ENTRIES, params={"space": "home"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] in caplog.text
    assert "NoneType" not in answer.text
    assert "Traceback" not in answer.text


async def test_pages_follow_each_other_and_belong_to_their_list(ana: httpx.AsyncClient) -> None:
    for number in range(5):
        await ana.post(
            ENTRIES,
            json={"text": f"Fact {number} is about {'tea cats rain jazz snow'.split()[number]}."},
        )
    seen, cursor = [], None
    while True:
        page = (
            await ana.get(ENTRIES, params={"limit": 2, **({"cursor": cursor} if cursor else {})})
        ).json()
        seen += [entry["text"] for entry in page["entries"]]
        cursor = page["cursor"]
        if cursor is None:
            break
        other = await ana.get(ENTRIES, params={"limit": 2, "pinned": True, "cursor": cursor})
        assert other.status_code == 404
    assert [text[5] for text in seen] == ["4", "3", "2", "1", "0"]
    assert (await ana.get(ENTRIES, params={"cursor": "r1"})).status_code == 404


def test_a_server_with_many_clients_loses_nothing(tmp_path: Path) -> None:
    with serving(str(tmp_path / "m.db"), keys={"k": {}}) as server:

        async def writing() -> list[int]:
            head = {"Authorization": f"Bearer {server.tokens['k']}"}
            async with httpx.AsyncClient(base_url=server.url, headers=head, timeout=60) as client:
                texts = [f"Room {number} has {number * 7} chairs." for number in range(24)]
                made = await asyncio.gather(
                    *(client.post(ENTRIES, json={"text": text}) for text in texts)
                )
                return [answer.status_code for answer in made]

        assert set(asyncio.run(writing())) == {201}
        with server.client("k") as client:
            kept = client.get(ENTRIES, params={"limit": 100}).json()["entries"]
    assert len(kept) == 24
    assert len({json.dumps(entry["text"]) for entry in kept}) == 24


async def test_a_body_that_does_not_arrive_is_not_waited_for(
    ana: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "BODY_SECONDS", 0.2)

    async def send_slowly() -> AsyncIterator[bytes]:
        yield b'{"text": '
        await asyncio.sleep(60)

    async with asyncio.timeout(10):
        answer = await ana.post(
            "/v1/memory/entries",
            content=send_slowly(),
            headers={"Content-Type": "application/json", "Content-Length": "99"},
        )
    assert answer.status_code == 408
    assert answer.headers["connection"] == "close"


async def test_a_server_with_too_many_requests_says_so_at_once(
    ana: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "MOST_REQUESTS", 0)
    answer = await ana.get("/v1/memory/entries")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"] == "urn:memorist:busy"
    assert (await ana.get("/healthz")).status_code == 200
    monkeypatch.setattr(request, "MOST_REQUESTS", 1)
    assert (await ana.get("/v1/memory/entries")).status_code == 200


async def test_an_unknown_address_is_a_page_for_a_browser_and_json_for_a_program(
    ana: httpx.AsyncClient,
) -> None:
    page = await ana.get("/nowhere", headers={"Accept": "text/html,*/*"})
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert '<a href="/">' in page.text
    answer = await ana.get("/nowhere", headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["status"]) == (404, 404)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"query": "tea", "limit": "many"}, "body.limit: Must be a whole number"),
        ({"query": "tea", "limit": 0}, "body.limit: Must be at least 1"),
        ({"query": "tea", "colour": 1}, "body.colour: Is not known here: check the name"),
        ({"limit": 3}, "body.query: Is required"),
        ({"query": ["tea"]}, "body.query: Must be text"),
    ],
)
async def test_a_wrong_value_is_explained_in_plain_words(
    ana: httpx.AsyncClient, body: dict[str, Any], why: str
) -> None:
    answer = await ana.post("/v1/memory/recall", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (422, why)
    assert "Input" not in answer.text
