"""Who comes in at the page, what a form must carry, and what is said when it does not."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from time import process_time
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

import httpx
import pytest
import pytest_asyncio

import memorist
from e2e.imports import formats
from e2e.rest.conftest import ANA
from e2e.web.hostile import few
from memorist.client import Client
from memorist.errors import KeyRefused
from memorist.interfaces.rest.app import create_app
from memorist.interfaces.web import SESSION_SECONDS, Sessions, routes
from memorist.interfaces.web.markup import format_duration
from memorist.storage import Save
from memorist.text.clock import new_id
from memorist.types import Memory

EVERYTHING = ("read", "write", "admin")
APPS: WeakKeyDictionary[Client, Any] = WeakKeyDictionary()


@pytest_asyncio.fixture
async def engine(here: str) -> AsyncIterator[Client]:
    async with memorist.aio.open(here, embedder="hashing") as memory:
        yield memory


def browser(engine: Client, *, local: Any = None, host: str = "localhost") -> httpx.AsyncClient:
    """Somebody who keeps cookies and says where they come from, as browsers do; all at one server."""
    app = APPS.setdefault(engine, create_app(engine, local=local))
    transport = httpx.ASGITransport(app)
    headers = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers)


async def proof(client: httpx.AsyncClient, at: str = "/login") -> str:
    found = re.search(r'name="csrf_token" value="([0-9a-f]{64})"', (await client.get(at)).text)
    assert found
    return found[1]


@asynccontextmanager
async def signed_in(engine: Client, **key: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that came in with a new key."""
    _, token = await engine.create_key("laptop", **{"user": "ana", "rights": EVERYTHING, **key})
    async with browser(engine) as client:
        answer = await client.post(
            "/login", data={"csrf_token": await proof(client), "key": token, "to": "/trash"}
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/trash")
        yield client


async def test_without_a_key_every_view_leads_to_the_login_and_every_form_is_refused(
    engine: Client,
) -> None:
    for path, method, _ in routes:
        if path.startswith(("/static", "/login", "/docs")):
            continue
        async with browser(engine) as client:
            answer = await client.request(
                method, path.replace("{id}", "x"), data={} if method == "POST" else None
            )
        if method == "GET":
            assert (answer.status_code, answer.headers["location"][:11]) == (303, "/login?to=%")
        else:
            assert answer.status_code in (401, 403), path
            assert "text/html" in answer.headers["content-type"]


async def test_the_page_of_the_api_lists_every_route_and_loads_nothing_from_elsewhere(
    engine: Client,
) -> None:
    async with browser(engine) as client:
        page = await client.get("/docs")
        described = (await client.get("/openapi.json")).json()
    assert page.status_code == 200
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<strong>{method.upper()}</strong> <code>{path}</code>" in page.text
    loaded = re.findall(r'(?:src|href|action)="([^"]*)"', page.text)
    assert all(each.startswith(("/", "#")) and not each.startswith("//") for each in loaded)
    assert "connect-src 'none'" in page.headers["content-security-policy"]


async def test_a_key_opens_the_page_and_no_script_can_read_it(engine: Client) -> None:
    async with signed_in(engine) as client:
        cookies = [each for each in client.cookies.jar if each.name == "memorist_session"]
        assert len(cookies) == 1
        assert not str(cookies[0].value).startswith("rk_")
        assert cookies[0].has_nonstandard_attr("HttpOnly")
        assert cookies[0].get_nonstandard_attr("SameSite") == "strict"
        assert (await client.get("/")).status_code == 200


async def test_a_wrong_key_is_told_so_and_gets_no_session(engine: Client) -> None:
    async with browser(engine) as client:
        answer = await client.post(
            "/login", data={"csrf_token": await proof(client), "key": "rk_0_no", "to": "/"}
        )
        assert answer.status_code == 401
        assert 'role="alert"' in answer.text
        assert not client.cookies


@pytest.mark.parametrize(
    "to", ["//evil.test", "https://evil.test", "/\\evil.test", "/x\r\nSet-Cookie: a=b", "x"]
)
async def test_the_login_leads_nowhere_else(engine: Client, to: str) -> None:
    _, token = await engine.create_key("laptop", user="ana")
    async with browser(engine) as client:
        answer = await client.post(
            "/login", data={"csrf_token": await proof(client), "key": token, "to": to}
        )
    assert answer.headers["location"] == "/"


async def test_a_session_that_somebody_else_has_named_is_not_taken_over_by_a_login(
    engine: Client,
) -> None:
    _, token = await engine.create_key("laptop", user="ana")
    async with browser(engine) as client:
        client.cookies.set("memorist_session", "chosen-by-an-attacker", domain="localhost.local")
        assert (await client.get("/")).status_code == 303
        answer = await client.post(
            "/login", data={"csrf_token": await proof(client), "key": token, "to": "/"}
        )
        assert "memorist_session=" in answer.headers["set-cookie"]
        assert "chosen-by-an-attacker" not in answer.headers["set-cookie"]
    async with browser(engine) as attacker:
        attacker.cookies.set("memorist_session", "chosen-by-an-attacker", domain="localhost.local")
        assert (await attacker.get("/")).status_code == 303


MARKUP = """<img src=x onerror=alert(1)>"'><script>alert(2)</script>{{7*7}}"""


async def test_markup_in_any_field_of_a_memory_is_shown_as_text_by_every_view(
    engine: Client,
) -> None:
    mine = engine.scope("ana", session=MARKUP, thread=MARKUP)
    (one,) = (
        await mine.remember(f"tea {MARKUP}", tags=[MARKUP], category=MARKUP, manually_saved=True)
    ).ids
    said = {"content": f"boats {MARKUP}", "name": MARKUP, "id": MARKUP}
    (two,) = (await mine.remember([said], manually_saved=True)).ids
    async with browser(engine, local=ANA) as client:
        gets = [
            path.replace("{id}", id)
            for path, method, _ in routes
            if method == "GET"
            for id in (one, two)
        ]
        for path in [*gets, "/?q=tea", f"/?q={quote(MARKUP)}", f"/threads?thread={quote(MARKUP)}"]:
            shown = (await client.get(path)).text
            assert "<img src=x" not in shown, path
            assert "<script>alert" not in shown, path
        assert (
            "&lt;script&gt;alert(2)&lt;/script&gt;{{7*7}}" in (await client.get(f"/m/{one}")).text
        )


async def test_a_revoked_key_ends_its_session_at_once(engine: Client) -> None:
    async with signed_in(engine) as client:
        await engine.revoke_key((await engine.keys())[0].id)
        assert (await client.get("/")).headers["location"].startswith("/login")


async def test_signing_out_ends_the_session_on_the_server(engine: Client) -> None:
    async with signed_in(engine) as client:
        kept = dict(client.cookies)
        await client.post("/logout", data={"csrf_token": await proof(client, "/")})
        for name, value in kept.items():
            client.cookies.set(name, value)
        assert (await client.get("/")).status_code == 303


def test_a_session_is_over_when_nobody_came_for_long() -> None:
    now = 0.0
    sessions = Sessions(lambda: now)
    name = sessions.start("rk_1_secret")
    now += SESSION_SECONDS - 1
    assert sessions.get_key(name) == "rk_1_secret"
    now += SESSION_SECONDS + 1
    assert sessions.get_key(name) is None
    assert sessions.get_key("") is sessions.get_key("nobody") is None


@pytest.mark.parametrize(
    "wrong",
    [
        "no proof",
        "a proof of somebody else",
        "another site",
        "a sibling site",
        "another origin",
        "no origin that is named",
    ],
)
async def test_a_form_that_is_not_ours_changes_nothing(engine: Client, wrong: str) -> None:
    id = (await engine.scope("ana").remember("I drink tea.")).ids[0]
    async with signed_in(engine) as client, signed_in(engine, user="eve") as stranger:
        data = {"csrf_token": await proof(client, "/")}
        if wrong == "no proof":
            data = {}
        elif wrong == "a proof of somebody else":
            data = {"csrf_token": await proof(stranger, "/")}
        given = {
            "another site": {"Sec-Fetch-Site": "cross-site"}, "a sibling site": {"Sec-Fetch-Site": "same-site"},
            "another origin": {"Origin": "http://evil.test"}, "no origin that is named": {"Origin": "null"},
        }  # fmt: skip
        answer = await client.post(f"/m/{id}/pin", data=data, headers=given.get(wrong, {}))
    assert answer.status_code == 403
    assert not (await engine.scope("ana").get(id)).pinned


async def test_a_page_is_sent_with_everything_that_keeps_it_to_itself(engine: Client) -> None:
    async with browser(engine, local=ANA) as client:
        sent = (await client.get("/")).headers
    policy = sent["content-security-policy"]
    for each in (
        "default-src 'none'",
        "script-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ):
        assert each in policy
    assert "unsafe" not in policy
    assert sent["x-content-type-options"] == "nosniff"
    assert sent["referrer-policy"] == "same-origin"
    assert sent["cache-control"] == "no-store"


async def test_on_this_machine_alone_nobody_signs_in_and_no_other_name_is_answered(
    engine: Client,
) -> None:
    async with browser(engine, local=ANA) as client:
        assert (await client.get("/")).status_code == 200
    async with browser(engine, local=ANA, host="evil.test") as client:
        assert (await client.get("/")).status_code == 421


async def test_figures_show_the_mean_of_the_calls_and_a_bound_that_nearly_all_kept(
    engine: Client,
) -> None:
    async with signed_in(engine) as client:
        await engine.scope("ana").remember("I drink green tea.")
        shown = (await client.get("/figures")).text
    metrics = APPS[engine].state.metrics
    scraped = (await metrics.text()).decode()
    row = r">remember</th><td[^>]*>1</td><td[^>]*>([\d.]+) ms</td><td[^>]*>([\d.]+) ms<"
    mean, bound = map(float, re.findall(row, shown)[0])
    assert mean <= bound  # of one call
    (total,) = re.findall(r'seconds_sum\{.*operation="remember"\} ([\d.e-]+)', scraped)
    assert metrics.latencies()["remember"].mean_ms == pytest.approx(1000 * float(total))
    assert bound in (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)


async def test_a_key_that_may_only_read_sees_no_buttons_and_changes_nothing(engine: Client) -> None:
    id = (await engine.scope("ana").remember("I drink tea.")).ids[0]
    async with signed_in(engine, rights=("read",)) as client:
        assert "/pin" not in (await client.get(f"/m/{id}")).text
        answer = await client.post(f"/m/{id}/pin", data={"csrf_token": await proof(client, "/")})
        assert answer.status_code == 403
        assert "needs the right" in answer.text
        assert (await client.get("/keys")).status_code == 403
        assert (await client.get(f"/m/{id}/forget")).status_code == 403


async def test_nobody_sees_or_changes_what_belongs_to_others(engine: Client) -> None:
    id = (await engine.scope("ana").remember("I drink tea.")).ids[0]
    await engine.scope("ana", "diary").remember("The heating hums.")
    async with signed_in(engine, user="eve") as eve, signed_in(engine, space="work") as bound:
        for client in (eve, bound):
            assert (await client.get(f"/m/{id}")).status_code == 404
            assert "diary" not in (await client.get("/settings")).text
            assert "tea" not in (await client.get("/")).text
        token = await proof(bound, "/")
        answer = await bound.post("/where", data={"csrf_token": token, "space": "default"})
        assert answer.status_code == 403
        assert (
            await bound.post(f"/m/{id}/pin", data={"csrf_token": token, "space": "default"})
        ).status_code == 403
        theirs, _ = await engine.create_key("other", user="ana")
        assert theirs.id not in (await eve.get("/keys")).text
        assert (
            await eve.post(f"/keys/{theirs.id}/revoke", data={"csrf_token": await proof(eve, "/")})
        ).status_code == 404


async def test_a_key_for_one_space_works_after_another_was_looked_at(engine: Client) -> None:
    _, token = await engine.create_key("home", user="ana", rights=EVERYTHING, space="home")
    async with signed_in(engine) as client:
        await client.post(
            "/where",
            data={"csrf_token": await proof(client, "/"), "space": "work", "session": "chat"},
        )
        assert "work" in client.cookies["memorist_in_space"]
        await client.post(
            "/login", data={"csrf_token": await proof(client, "/"), "key": token, "to": "/"}
        )
        assert not [name for name in client.cookies if name.startswith("memorist_in_")]
        client.cookies.set("memorist_in_space", "work")  # as another tab may have left it
        kept = await client.post(
            "/remember", data={"csrf_token": await proof(client, "/"), "text": "I drink tea."}
        )
        assert kept.status_code == 303
    assert [each.text for each in await engine.scope("ana", "home").list()] == ["I drink tea."]


async def test_what_is_not_kept_is_said_as_a_warning_and_stays_in_the_field(engine: Client) -> None:
    async with browser(engine, local=ANA) as client:
        form = {
            "csrf_token": await proof(client, "/"),
            "text": "</textarea>I drink tea.",
            "tags": "work",
            "session": "chat",
        }
        await engine.scope("ana", session="chat").privacy.start_incognito()
        shown = (
            await client.post(
                "/remember", data=form, headers={"Referer": "http://localhost/?kind=semantic"}
            )
        ).text
        again = (await client.get("/")).text
    assert re.search(r'<p class="warn" role="alert"><bdi>[A-Z][^<]+\.</bdi>', shown)
    assert "&lt;/textarea&gt;I drink tea.</textarea>" in shown
    assert 'value="work"' in shown
    assert 'href="/?kind=semantic">Back' in shown
    assert 'class="note"' not in shown + again


@pytest.mark.parametrize(
    ("referer", "to"),
    [
        ("http://localhost/m/x?a=1", "/m/x?a=1"), ("http://evil.test/m", "/"), ("http://localhost//evil.test", "/"),
        ("http://localhost.evil.test/m", "/"), ("http://[", "/"), ("http://localhost/javascript:x", "/javascript:x"),
    ],
)  # fmt: skip
async def test_an_error_leads_back_and_keeps_the_views_in_reach(
    engine: Client, referer: str, to: str
) -> None:
    id = (await engine.scope("ana").remember("I drink tea.")).ids[0]
    async with browser(engine, local=ANA) as client:
        form = {"csrf_token": await proof(client, "/"), "revision": "1", "text": "  ", "tags": ""}
        shown = await client.post(f"/m/{id}/edit", data=form, headers={"Referer": referer})
    assert shown.status_code == 422
    assert 'href="/threads"' in shown.text
    assert f'<p><a href="{to}">' in shown.text
    assert "/login" not in shown.text


async def test_whoever_is_not_known_is_led_to_the_login_by_an_error(engine: Client) -> None:
    async with browser(engine) as client:
        shown = (await client.post("/settings", data={})).text
    assert 'href="/login"' in shown
    assert 'href="/threads"' not in shown


async def test_a_key_is_shown_once_and_gives_no_more_than_whoever_made_it_has(
    engine: Client,
) -> None:
    async with signed_in(engine, rights=("read", "admin")) as client:
        form = {
            "csrf_token": await proof(client, "/"),
            "name": "<b>phone",
            "right": "read",
            "days": "3",
        }
        shown = await client.post("/keys", data=form)
        token = re.search(r"rk_[0-9a-f]+_[\w-]+", shown.text)
        assert token
        assert (await engine.authenticate(token[0])).rights == ("read",)
        listed = (await client.get("/keys")).text
        assert token[0] not in listed
        assert "&lt;b&gt;phone" in listed
        assert (await client.post("/keys", data={**form, "right": "write"})).status_code == 403
        made = (await engine.authenticate(token[0])).id
        await client.post(f"/keys/{made}/revoke", data={"csrf_token": form["csrf_token"]})
    with pytest.raises(KeyRefused):
        await engine.authenticate(token[0])


async def test_an_edit_of_what_was_changed_meanwhile_is_refused(engine: Client) -> None:
    mine = engine.scope("ana")
    id = (await mine.remember("I drink tea.")).ids[0]
    async with browser(engine, local=ANA) as client:
        form = {
            "csrf_token": await proof(client, "/"),
            "revision": "1",
            "text": "I drink coffee.",
            "tags": "",
        }
        await mine.edit(id, "I drink milk.")
        answer = await client.post(f"/m/{id}/edit", data=form)
    assert answer.status_code == 409
    assert (await mine.get(id)).text == "I drink milk."


async def test_a_revision_that_no_memory_can_have_is_invalid_input(engine: Client) -> None:
    id = (await engine.scope("ana").remember("I drink tea.")).ids[0]
    async with browser(engine, local=ANA) as client:
        form = {
            "csrf_token": await proof(client, "/"),
            "revision": "2147483649",
            "text": "I drink coffee.",
            "tags": "",
        }
        answer = await client.post(f"/m/{id}/edit", data=form)
    assert answer.status_code == 422
    assert "up to 2,147,483,648" in answer.text


async def test_the_figures_show_the_mean_duration_of_each_verb(engine: Client) -> None:
    async with browser(engine, local=ANA) as client:
        for _ in range(3):
            await engine.scope("ana").recall("tea")
        shown = (await client.get("/figures")).text
        metrics = (await client.get("/metrics")).text
    seconds = re.search(
        r'^memorist_operation_duration_seconds_sum{job_name="",operation="recall"} (\S+)$',
        metrics,
        re.MULTILINE,
    )
    row = re.search(r">recall</th><td[^>]*>(\d+)</td><td[^>]*>([\d.]+) ms<", shown)
    assert seconds
    assert row
    assert row[1] == "3"
    assert float(row[2]) == pytest.approx(float(seconds[1]) / 3 * 1000, abs=0.051)


async def test_what_goes_with_a_memory_is_shown_before_it_is_forgotten(engine: Client) -> None:
    mine = engine.scope("ana")
    id = (await mine.remember("I drink tea.")).ids[0]
    await mine.edit(id, "I drink green tea.")
    async with browser(engine, local=ANA) as client:
        shown = (await client.get(f"/m/{id}/forget")).text
    assert "Also deleted" in shown
    assert "I drink tea." in shown
    assert (await mine.get(id)).is_active


async def test_turned_letters_and_unseen_characters_are_named(engine: Client) -> None:
    id = (await engine.scope("ana").remember("pay \u202e001\u202c euros\U000e0041\U000e0042")).ids[
        0
    ]
    async with browser(engine, local=ANA) as client:
        shown = (await client.get(f"/m/{id}")).text
    told = shown[shown.index("<article") : shown.index("</article")].partition("<textarea")[0]
    assert "\u202e" not in told
    assert 'pay <span class="invisible">U+202E</span>001' in told
    assert '<span class="invisible">2 invisible characters</span>' in told


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (86_370, "1 day"),
        (86_369, "24 hours"),
        (3570, "1 hour"),
        (3569, "59 minutes"),
        (30, "1 minute"),
        (29, "less than a minute"),
        (0, "less than a minute"),
    ],
)
def test_a_duration_is_shown_to_the_nearest_unit(seconds: int, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == words


async def test_the_views_work_on_every_store(place: str) -> None:
    async with memorist.aio.open(place, embedder="hashing") as memory:
        mine = memory.scope("ana", session="chat")
        id = (await mine.remember("I drink tea every morning.")).ids[0]
        async with browser(memory, local=ANA) as client:
            gets = [path for path, method, _ in routes if method == "GET"]
            for path in [*gets, "/?q=tea", "/threads?thread=chat", f"/relations?id={id}"]:
                answer = await client.get(path.replace("{id}", id))
                assert answer.status_code == 200, path
            token = await proof(client, "/")
            await client.post(f"/m/{id}/forget", data={"csrf_token": token, "how": "trash"})
            assert "Deleted permanently in 30 days" in (await client.get("/trash")).text
            await client.post(f"/m/{id}/restore", data={"csrf_token": token})
            assert "I drink tea" in (await client.get("/?tag=")).text


async def test_pages_of_many_memories_follow_each_other(engine: Client) -> None:
    await engine.scope("ana").remember(
        [{"content": f"Number {n} is on the list of {n * 7}."} for n in range(60)]
    )
    found: list[str] = []
    async with browser(engine, local=ANA) as client:
        address: str | None = "/"
        while address:
            shown = (await client.get(address)).text
            found += re.findall(r'href="/m/([^"]+)"', shown)
            more = re.search(r'href="([^"]+)" rel="next"', shown)
            address = more[1].replace("&amp;", "&") if more else None
    assert (
        len(found)
        == len(set(found))
        == len((await engine.scope("ana").list(limit=100)).memories)
        > 25
    )


@pytest.mark.parametrize(
    "given",
    [
        *few(12),
        "²",
        "9" * 30,
        "-1",
        "\ud800".encode("utf-8", "replace").decode(),
        " ",
        "r1",
        "null",
    ],
)
async def test_whatever_an_address_says_no_view_fails(engine: Client, given: str) -> None:
    await engine.scope("ana", session="chat").remember("I drink tea.")
    async with browser(engine, local=ANA) as client:
        for path, method, _ in routes:
            if method == "GET":
                for name in (
                    "q",
                    "budget",
                    "min_confidence",
                    "profile",
                    "after",
                    "state",
                    "tag",
                    "thread",
                    "since",
                    "id",
                    "to",
                ):
                    answer = await client.get(
                        path.replace("{id}", "x"), params={name: given, "thread": given}
                    )
                    assert answer.status_code < 500, (path, name)
                    assert "<script>" not in answer.text


async def test_both_statements_of_a_conflict_may_be_true(engine: Client) -> None:
    mine = engine.scope("ana")
    await mine.remember("I live in Berlin")
    await mine.remember("I moved to Porto")
    (conflict,) = await mine.conflicts()
    async with signed_in(engine) as client:
        assert "Both are true" in (await client.get("/decide")).text
        form = {"csrf_token": await proof(client, "/decide"), "decision": "both"}
        await client.post(f"/conflicts/{conflict.id}", data=form)
        assert "Resolved. Both were kept." in (await client.get("/decide")).text
    assert len(await mine.list()) == 2


async def test_threads_have_the_titles_of_imported_conversations(
    engine: Client, tmp_path: Path
) -> None:
    chat = formats.chatgpt_chat("c1", formats.chatgpt_message("m1", "user", "I own a boat."))
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{**chat, "title": "Boats & <b>harbors</b>"}]), "utf-8")
    await engine.scope("ana").import_files(path)
    async with signed_in(engine) as client:
        for address in ("/threads", "/threads?thread=chatgpt:c1"):
            shown = (await client.get(address)).text
            assert "Boats &amp; &lt;b&gt;harbors&lt;/b&gt;" in shown
            assert "chatgpt:c1" in shown


async def test_a_search_says_until_when_something_was_true(engine: Client) -> None:
    mine = engine.scope("ana")
    (id,) = (await mine.remember("I live in Porto.")).ids
    await mine.edit(id, valid_to="2099-05-30")
    async with signed_in(engine) as client:
        for address in ("/?q=Porto&min_confidence=0", "/"):
            assert "until 2099-05-30</li>" in (await client.get(address)).text


async def test_a_search_shows_its_confidence_and_is_empty_below_the_one_asked_for(
    engine: Client,
) -> None:
    await engine.scope("ana").remember("I drink green tea.")
    async with browser(engine, local=ANA) as client:
        found = (await client.get("/", params={"q": "green tea"})).text
        assert "1 memory found, confidence " in found
        asked = {"q": "green tea", "min_confidence": "1"}
        assert "No stored memory answers this question." in (
            (await client.get("/", params=asked)).text
        )
        for wrong in ("1.5", "x", "true", "-1", "٠"):
            answer = await client.get("/", params={**asked, "min_confidence": wrong})
            assert answer.status_code == 422
            assert "min_confidence must be a number from 0 to 1" in answer.text


@pytest.mark.slow
async def test_the_first_view_of_a_hundred_thousand_memories_is_there_at_once(
    engine: Client,
) -> None:
    mine, now = engine.scope("ana"), engine.ctx.clock()
    for start in range(0, 100_000, 1000):
        made = [
            Memory(
                id=new_id(),
                scope=mine.scope,
                text=f"House {n}.",
                kind="semantic",
                created_at=now,
                updated_at=now,
            )
            for n in range(start, start + 1000)
        ]
        async with engine.ctx.store.transaction(mine.scope) as tx:
            await tx.apply([Save(memory=each, event=None) for each in made])
    async with browser(engine, local=ANA) as client:
        begun = process_time()
        shown = await client.get("/")
        took = process_time() - begun
    assert "House 99999." in shown.text
    assert took <= 0.2
