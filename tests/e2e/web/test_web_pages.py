"""Every view in a real browser, in light and in the dark, at a desk and on a phone, with script and without."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import memorist
from e2e.imports.formats import chatgpt_chat, chatgpt_message
from e2e.rest.conftest import ANA, serving
from e2e.web.conftest import Stage, told
from memorist.interfaces import transfer
from memorist.interfaces.web import markup, templates

LOOKS = {"light": (1100, "light"), "dark on a phone": (390, "dark")}


@pytest.fixture(params=LOOKS)
def looking(request: pytest.FixtureRequest, chromium: Any) -> Iterator[Any]:
    width, scheme = LOOKS[request.param]
    context = chromium.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
        locale="en-US",
        bypass_csp=True,
    )
    yield context.new_page()
    context.close()


def test_no_view_has_a_barrier_a_fault_or_a_sideways_scroll(looking: Any, stage: Stage) -> None:
    faults: list[str] = []
    looking.on("pageerror", lambda error: faults.append(str(error)))
    looking.on(
        "request", lambda asked: asked.url.startswith(stage.server.url) or faults.append(asked.url)
    )
    for name, address in stage.views.items():
        answer = looking.goto(stage.server.url + address)
        assert answer.status == (404 if name == "error" else 200), name
        faults += [f"{name}: {each}" for each in barriers(looking)]
    assert not faults


def barriers(page: Any) -> list[str]:
    """What is in somebody's way, with everything unfolded."""
    axe = (
        files(pytest.importorskip("axe_playwright_python"))
        .joinpath("axe.min.js")
        .read_text("utf-8")
    )
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate(axe)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return [f"{each['id']} {each['nodes'][0]['html'][:200]}" for each in found] + (
        ["too wide"] if wide > 0 else []
    )


def test_a_person_signs_in_with_a_key_and_out_again(looking: Any, here: str) -> None:
    with serving(here, keys={"laptop": {"rights": ("read", "write", "admin")}}) as server:
        looking.goto(f"{server.url}/settings")
        assert looking.url.endswith("/login?to=%2Fsettings")
        looking.fill("#key", "rk_wrong")
        looking.click("button:text-is('Sign in')")
        assert looking.get_by_role("alert").count() == 1
        assert barriers(looking) == []
        looking.fill("#key", server.tokens["laptop"])
        looking.click("button:text-is('Sign in')")
        looking.wait_for_url(f"{server.url}/settings")
        assert looking.evaluate("document.cookie") == ""
        looking.uncheck("#on")
        looking.locator("form[action='/settings'] button").click()
        looking.wait_for_load_state()
        assert barriers(looking) == []  # with a note and a banner
        looking.goto(f"{server.url}/keys")
        looking.fill("#name", "phone")
        looking.click("button:text-is('Create key')")
        looking.wait_for_load_state()
        assert looking.locator("#token").inner_text().startswith("rk_")
        assert barriers(looking) == []
        looking.click("button:text-is('Sign out')")
        looking.goto(f"{server.url}/settings")
        assert "/login" in looking.url


def test_nothing_is_said_against_the_policy_of_the_page(chromium: Any, stage: Stage) -> None:
    page = chromium.new_page()
    said: list[str] = []
    page.on("console", lambda line: said.append(line.text))
    for name, address in stage.views.items():
        if name != "error":
            page.goto(stage.server.url + address)
    page.close()
    assert said == []


def test_the_parts_of_a_score_add_up_to_it_on_the_page(chromium: Any, stage: Stage) -> None:
    page = chromium.new_page()
    page.goto(stage.server.url + stage.views["search"])
    tables = page.locator("table.parts").all()
    assert len(tables) >= 2
    for table in tables:
        parts = [float(each) for each in texts(table, "tbody td")]
        assert len(parts) >= 2
        assert sum(parts) == pytest.approx(
            float(texts(table, "tfoot td")[0]), abs=0.0001 * len(parts)
        )
    assert page.locator("svg.bar").count() == len(tables) + 1
    assert re.search(r"\d+ of 300 tokens", page.inner_text("main"))
    assert page.locator("#injected").inner_text().startswith("<memory>")
    page.close()


def texts(table: Any, what: str) -> list[str]:
    """What stands in cells that may be folded away."""
    return [each.strip() for each in table.locator(what).all_text_contents()]


def test_the_picture_of_relations_is_as_large_as_what_is_in_it_and_fits_a_phone(
    looking: Any, stage: Stage
) -> None:
    edges = [("a", "b", 0.5)]
    memories = {id: {"text": id} for id in "ab"}
    points = markup.compute_layout(list(memories), [("a", "b")])
    charts: Any = templates.get_template("charts.html").module
    two = charts.graph(memories, edges, points, "")
    wide, high = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', two)[0])
    assert max(wide, high) < 250
    for view in ("relations", "around"):
        looking.goto(stage.server.url + stage.views[view])
        box, room = (
            looking.locator("svg.graph").bounding_box(),
            looking.locator("main").bounding_box(),
        )
        assert 250 < box["width"] <= room["width"]


def test_a_keyboard_reaches_the_search_and_jumps_over_the_menu(chromium: Any, stage: Stage) -> None:
    page = chromium.new_page()
    page.goto(stage.server.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("tea")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=tea")
    assert page.locator("nav a[aria-current=page]").inner_text() == "Search"
    page.close()


@pytest.fixture
def acting(
    request: pytest.FixtureRequest, chromium: Any, here: str
) -> Iterator[tuple[Any, dict[str, str]]]:
    """A browser at a memory of its own, without script unless a test asks for it."""
    ids = told(here, embedder="hashing")
    with serving(here, local=ANA, rate_limit=0) as server:
        context = chromium.new_context(
            java_script_enabled=getattr(request, "param", False),
            base_url=server.url,
            locale="en-US",
        )
        page = context.new_page()
        page.on("dialog", lambda dialog: dialog.accept())
        yield page, ids
        context.close()


def note(page: Any) -> str:
    return str(page.locator("p.note").inner_text())


@pytest.mark.parametrize(
    "acting", [True, False], ids=["with script", "without script"], indirect=True
)
@pytest.mark.spec("THE-93", "THE-114")
def test_a_person_pins_corrects_forgets_and_restores(
    acting: tuple[Any, dict[str, str]], here: str
) -> None:
    page, ids = acting
    page.goto(f"/m/{ids['tea']}")
    page.click("button:text-is('Pin')")
    assert note(page) == "Pinned."
    page.locator("summary", has_text="Edit").click()
    page.fill("#text", "I drink tea.\nNever coffee.")
    page.click("button:text-is('Save')")
    assert note(page).startswith("Saved as revision")
    assert "green" in "".join(page.locator("ol del").all_text_contents())
    assert "Never" in "".join(page.locator("ol ins").all_text_contents())
    page.click("a:text-is('Forget…')")
    page.click("button:text-is('Forget')")
    assert "moved to the trash for 30 days" in note(page)
    assert page.locator("main li", has_text="Deleted permanently in").count() == 2
    page.locator("main li", has_text="I drink tea.").locator("button").click()
    assert note(page) == "Restored."
    page.goto(f"/m/{ids['porto']}/forget")
    page.check("#now")
    page.click("button:text-is('Forget')")
    assert "deleted permanently" in note(page)
    assert page.goto(f"/m/{ids['porto']}").status == 404
    with memorist.open(here, embedder="hashing") as memory:
        mine = memory.scope("ana")
        assert mine.get(ids["tea"]).text == "I drink tea.\nNever coffee."
        done = [(entry.event, entry.actor) for entry in mine.history(ids["tea"])]
        assert done[0] == ("RESTORE", "ana")
        assert done.count(("UPDATE", "ana")) == 2
        assert ("DELETE", "ana") in [
            (entry.event, entry.actor) for entry in mine.history(ids["porto"])
        ]


def test_a_person_decides_between_statements_and_about_themselves(
    acting: tuple[Any, dict[str, str]],
) -> None:
    page, _ = acting
    page.goto("/decide")
    page.click("button:has-text('Approve')")
    assert note(page) == "City: approved."
    page.click("button:has-text('Keep the older')")
    assert note(page).startswith("Resolved")
    assert "No conflicts." in page.inner_text("main")
    assert "Porto" in page.locator("#about + dl").inner_text()


@pytest.mark.spec("THE-93", "THE-114")
def test_a_person_turns_memory_off_and_goes_incognito(acting: tuple[Any, dict[str, str]]) -> None:
    page, _ = acting
    page.goto("/settings")
    page.uncheck("#on")
    page.locator("form[action='/settings'] button").click()
    assert page.locator(".banner").inner_text().startswith("Memory is off.")
    page.check("#on")
    page.locator("form[action='/settings'] button").click()
    assert page.locator(".banner").count() == 0
    page.fill("#incognito-session", "chat-9")
    page.click("button:text-is('Start incognito')")
    page.goto("/?q=tea")
    assert page.locator(".banner").inner_text().startswith("Incognito.")
    assert "No matching memories." in page.inner_text("main")
    page.locator(".banner button").click()
    assert note(page) == "Incognito mode ended."
    page.goto("/figures")
    assert "memory on, off, incognito: 3" in page.inner_text("main")


@pytest.mark.parametrize(
    "acting", [True, False], ids=["with script", "without script"], indirect=True
)
def test_a_person_imports_a_file_and_sees_progress_and_a_receipt(
    acting: tuple[Any, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PROGRESS_SECONDS", 0.001)
    said = [chatgpt_message(f"m{each}", "user", f"My locker {each} is red.") for each in range(200)]
    chat = chatgpt_chat("c1", chatgpt_message("m", "system", "You are ChatGPT."), *said)
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([chat]), "utf-8")
    page, _ = acting
    for expected in ("New memories: 200.", "New memories: 0."):
        page.goto("/settings")
        page.click("a[href='/import']")
        page.set_input_files("#file", str(file))
        page.click("button:text-is('Import')")
        page.wait_for_selector("#receipt")
        shown = page.inner_text("main")
        assert "Read chatgpt: 200." in shown
        assert expected in shown
        assert "1 system prompt" in shown
        assert page.locator("progress").count() >= 1
        assert page.locator(".live > *").last.is_visible()
        page.locator("progress").last.wait_for(state="hidden")  # once the page is complete
    page.goto("/import")
    page.click("button:text-is('Import')")
    assert page.url.endswith("/import")
    file.write_bytes(b"\x00\x01")
    page.set_input_files("#file", str(file))
    page.click("button:text-is('Import')")
    assert "Cannot tell the format of" in page.inner_text("main")


@pytest.mark.spec("THE-93")
def test_the_page_writes_down_what_it_is_told_and_changes_its_colours(
    acting: tuple[Any, dict[str, str]],
) -> None:
    page, _ = acting
    page.goto("/")
    page.locator("summary", has_text="Add a memory").click()
    page.fill("#new-text", "My bicycle is blue.")
    page.fill("#new-tags", "bicycle, things")
    page.click("button:text-is('Save')")
    assert note(page) == "Saved."
    assert "#bicycle" in page.inner_text("main")
    page.click("button:text-is('Pin')")
    page.click("button:text-is('Unpin')")
    assert note(page) == "Unpinned."
    page.click("button:text-is('Dark')")
    assert page.get_attribute("html", "data-theme") == "dark"


def test_a_person_can_have_it_dark_whatever_the_device_says(chromium: Any, stage: Stage) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    context = chromium.new_context(color_scheme="light")
    page = context.new_page()
    page.goto(stage.server.url + "/trash")
    light = page.evaluate(ground)
    page.click("button:text-is('Dark')")
    page.wait_for_load_state()
    assert page.url.endswith("/trash")
    assert page.evaluate(ground) == "rgb(20, 23, 26)" != light
    context.close()


@pytest.mark.spec("THE-116")
def test_the_figures_cover_backlog_trims_hits_and_what_people_did(chromium: Any, here: str) -> None:
    told(here, embedder="hashing")
    with memorist.open(here, embedder="hashing") as memory:
        mine = memory.scope("ana")
        answer = mine.recall("what do I drink?")
        mine.feedback(answer, used=[])
        for _ in range(2):
            mine.feedback(answer, used=[answer.hits[0].memory.id])
        mine.remember("Something for later.", policy="theoria")
    with serving(here, local=ANA) as server:
        page = chromium.new_page(viewport={"width": 390, "height": 800})
        page.goto(f"{server.url}/?q=tea")
        page.goto(f"{server.url}/figures")
        shown = page.inner_text("main")
        duty = page.locator(".wide tbody th", has_text="embed").bounding_box()
        page.close()
    assert re.search(r"embed\s+1\s", shown)
    assert re.search(r"recall\s+1\s+\d+\.\d ms\s+\d", shown)
    for line in ("removed: 1", "not used: 1", "\nused: 2", "pinned or unpinned: 1", "searches: "):
        assert line in shown
    assert duty["height"] < 45  # one line: the table scrolls in its box and breaks no word
