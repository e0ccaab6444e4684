"""Frozen structure of every page, without its texts, and what every form answers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from golden.files import Golden
from golden.markup import structure
from golden.normalize import Normalizer
from golden.server import app_of, serving
from golden.stage import Stage
from memorist.client import Client
from memorist.interfaces.web import templates

TEMPLATES = Path(templates.loader.searchpath[0])  # type: ignore[union-attr]
_PROOF = re.compile(r'name="csrf_token" value="(\w+)"')
# What is looked at, by route; {name} is an id of the history. The name is that of the golden file.
VIEWS: dict[str, dict[str, str]] = {
    "GET /": {
        "latest": "/", "latest-incognito": "/", "latest-filtered": "/?kind=semantic&state=active&tag=drinks",
        "search": "/?q=What+does+my+sister+do%3F&budget=300", "search-nothing": "/?q=zzz&profile=mls.recall",
    },
    "GET /m/{id}": {"memory": "/m/{tea}", "memory-fact": "/m/{honey}", "error": "/m/nothing"},
    "GET /m/{id}/forget": {"forget": "/m/{tea}/forget"},
    "GET /threads": {"threads": "/threads", "thread": "/threads?thread=chat-1"},
    "GET /relations": {"relations": "/relations", "relations-around": "/relations?id={honey}"},
    "GET /decide": {"decide": "/decide"},
    "GET /trash": {"trash": "/trash"},
    "GET /figures": {"figures": "/figures"},
    "GET /settings": {"settings": "/settings"},
    "GET /import": {"import": "/import"},
    "GET /keys": {"keys": "/keys"},
    "GET /login": {"login": "/login?to=/trash"},
}  # fmt: skip
COOKIES = {"latest-incognito": {"memorist_in_session": "hidden"}}
# What forms send, by route: the address and the fields. The answer is a redirection or a page.
ACTS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "POST /remember": [
        ("/remember", {"text": "I collect stamps.", "tags": "hobby, paper"}),
        ("/remember", {"text": "I collect coins.", "session": "hidden"}),
        ("/remember", {"text": " "}),
    ],
    "POST /m/{id}/pin": [("/m/{bees}/pin", {}), ("/m/{peanuts}/pin", {"off": "1"})],
    "POST /m/{id}/edit": [
        (
            "/m/{cello}/edit",
            {"text": "On Mondays I play the cello.", "tags": "music", "revision": "1"},
        ),
        ("/m/{cello}/edit", {"text": "On Mondays I play the cello.", "revision": "7"}),
    ],
    "POST /m/{id}/forget": [
        ("/m/{cello}/forget", {"how": "now"}),
        ("/m/{cello}/forget", {"how": "trash"}),
    ],
    "POST /m/{id}/restore": [("/m/{locker}/restore", {})],
    "POST /conflicts/{id}": [
        ("/conflicts/{blue}", {"decision": "reject"}),
        ("/conflicts/{blue}", {"decision": "both"}),
        ("/conflicts/{blue}", {}),
    ],
    "POST /consent/{id}": [
        ("/consent/{proposal}", {"decision": "approve", "shown": "Porto"}),
        ("/consent/{proposal}", {"decision": "deny"}),
    ],
    "POST /settings": [("/settings", {"memory_enabled": "1"})],
    "POST /import": [("/import", {})],
    "POST /where": [("/where", {"space": "work", "session": "chat-1"})],
    "POST /incognito": [
        ("/incognito", {"session": "chat-1"}),
        ("/incognito", {"session": "chat-1", "off": "1"}),
    ],
    "POST /keys": [("/keys", {"name": "phone", "right": "read", "days": "30"})],
    "POST /keys/{id}/revoke": [("/keys/{key}/revoke", {}), ("/keys/nothing/revoke", {})],
    "POST /login": [("/login", {"key": "rk_0_0", "to": "/trash"})],
    "POST /logout": [("/logout", {})],
    "POST /theme": [("/theme", {"theme": "dark", "to": "/trash"})],
}
STATIC = "GET /static/"
rendered: set[str] = set()  # templates that a view or an act has used


@contextmanager
def noting_templates() -> Iterator[None]:
    """Note which templates run: their code carries the path of the template."""
    folder = f"{TEMPLATES}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(folder):
            rendered.add(file.removeprefix(folder))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def shown(answer: httpx.Response, normal: Normalizer) -> str:
    """The status, the headers that count, and the structure of a page."""
    cookies = [
        re.sub(r"(?<=expires=)[^;]+", "<time>", each)
        for each in answer.headers.get_list("set-cookie")
    ]
    location = answer.headers.get("location")
    lines = [f"{answer.status_code}", *([f"location: {location}"] if location else ())]
    lines += [f"set-cookie: {cookie}" for cookie in sorted(cookies)]
    if answer.headers.get("content-type", "").startswith("text/html"):
        lines += [
            f"content-security-policy: {answer.headers['content-security-policy']}",
            "",
            structure(answer.text),
        ]
    return normal.text("\n".join(lines))


@pytest.mark.parametrize(
    ("name", "address"), [pair for views in VIEWS.values() for pair in views.items()]
)
async def test_the_structure_of_a_page_is_frozen(
    golden: Golden, normal: Normalizer, stage: Stage, place: Path, name: str, address: str
) -> None:
    async with serving(place) as (_, client):
        client.cookies.update(COOKIES.get(name, {}))
        with noting_templates():
            answer = await client.get(address.format(**stage.ids))
    golden.check(f"pages/{name}.html", shown(answer, normal))


@pytest.mark.parametrize("route", ACTS)
async def test_what_a_form_answers_is_frozen(
    golden: Golden, normal: Normalizer, stage: Stage, place: Path, route: str
) -> None:
    texts = []
    for address, fields in ACTS[route]:
        stage.copy(place.parent)
        async with serving(place) as (_, client):
            proof = _PROOF.search((await client.get("/login")).text)
            assert proof
            with noting_templates():
                answer = await client.post(
                    address.format(**stage.ids), data={**fields, "csrf_token": proof[1]}
                )
        texts.append(f"POST {address} {fields}\n{shown(answer, normal)}\n")
    name = "-".join(re.findall(r"\w+", route.removeprefix("POST ")))
    golden.check(f"pages/form-{name}.html", "\n".join(texts))


async def test_what_an_import_answers_is_frozen(
    golden: Golden, normal: Normalizer, place: Path
) -> None:
    said = b'[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "I row."}]'
    async with serving(place) as (_, client):
        proof = _PROOF.search((await client.get("/login")).text)
        assert proof
        with noting_templates():
            answer = await client.post(
                "/import", data={"csrf_token": proof[1]}, files={"file": ("chat.json", said)}
            )
    golden.check("pages/imported.html", shown(answer, normal))


async def test_a_page_without_a_key_leads_to_the_login(
    golden: Golden, normal: Normalizer, place: Path
) -> None:
    async with serving(place, local=None) as (_, client):
        answers = [await client.get("/trash"), await client.post("/theme", data={"theme": "dark"})]
    golden.check(
        "pages/without-a-key.html", "\n\n".join(shown(answer, normal) for answer in answers)
    )


async def test_signing_in_and_out_is_frozen(
    golden: Golden, normal: Normalizer, place: Path
) -> None:
    async with serving(place, local=None) as (engine, client):
        _, token = await engine.create_key("phone", user="ana", rights=["read"])
        answers = []
        for address, fields in (("/login", {"key": token, "to": "/settings"}), ("/logout", {})):
            proof = _PROOF.search((await client.get("/settings", follow_redirects=True)).text)
            assert proof
            answers.append(await client.post(address, data={**fields, "csrf_token": proof[1]}))
            answers.append(await client.get("/settings"))
    text = "\n\n".join(shown(answer, normal) for answer in answers)
    golden.check(
        "pages/signed-in.html", re.sub(r"(?<=memorist_session=)[\w-]{20,}", "<session>", text)
    )


def routes_of(engine: Client) -> set[str]:
    """The routes of the app that are not of an API."""
    routes = [route for route in app_of(engine).routes if getattr(route, "path", None)]
    return {f"{method} {route.path}" for route in routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]


async def test_headers_of_static_files_are_frozen(golden: Golden, place: Path) -> None:
    lines = []
    async with serving(place) as (engine, client):
        for route in sorted(route for route in routes_of(engine) if route.startswith(STATIC)):
            answer = await client.get(route.removeprefix("GET "))
            kept = [answer.headers[name] for name in ("content-type", "cache-control")]
            lines.append(f"{route}: {answer.status_code}, {', '.join(kept)}")
    golden.check("pages/static.txt", "\n".join(lines))


async def test_every_route_of_the_pages_is_recorded(place: Path) -> None:
    async with serving(place) as (engine, _):
        known = {route for route in routes_of(engine) if not route.startswith(STATIC)}
    # the page of the API says what `docs/openapi.json` does, which is frozen
    assert known == {*VIEWS, *ACTS, "GET /openapi.json", "GET /docs"}


def test_every_template_is_in_a_recorded_page(request: pytest.FixtureRequest) -> None:
    tests = [
        item
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    if len(tests) < sum(map(len, VIEWS.values())) + len(ACTS):
        pytest.skip("only some pages were recorded")
    assert rendered == {path.name for path in TEMPLATES.glob("*.html")} - {"docs.html"}
