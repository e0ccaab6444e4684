"""Whatever a memory says, on the page it is text: nothing of it runs, loads, links or draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import memorist
from e2e.rest.conftest import ANA, serving
from e2e.web.hostile import few, wide

ODD = """() => {
  const odd = [];
  if (window.hit) odd.push("it ran");
  if (!document.title.endsWith("· Memorist")) odd.push("title " + document.title);
  if (!document.querySelector("body > footer") || document.querySelectorAll("main").length !== 1) odd.push("it broke");
  const foreign = "script, img, iframe, object, embed, link, style, meta, base, video, audio, math, marquee, portal, " +
    "template, noscript, x, foreignObject, svg script, svg image, svg use";
  for (const each of document.querySelectorAll("main :is(" + foreign + ")")) odd.push(each.outerHTML.slice(0, 80));
  for (const each of document.querySelectorAll("*")) for (const { name, value } of each.attributes) {
    if (name.startsWith("on") || name === "style" || name === "srcdoc" || name === "autofocus") odd.push(name);
    if (["href", "src", "action", "formaction", "data", "xlink:href"].includes(name) && !/^[/#](?![/\\\\])/.test(value))
      odd.push(name + " " + value.slice(0, 80));
  }
  return odd;
}"""


@pytest.fixture
def watched(chromium: Any) -> Iterator[tuple[Any, list[str]]]:
    """A browser, and what it should not have done. Nothing is left to the policy: it would hide what escaped."""
    odd: list[str] = []
    context = chromium.new_context(bypass_csp=True)
    page = context.new_page()
    page.on("dialog", lambda dialog: (odd.append("a dialog"), dialog.dismiss()))
    page.on("popup", lambda _: odd.append("a window"))
    page.on("download", lambda _: odd.append("a download"))
    page.on(
        "request",
        lambda asked: asked.url.startswith("http://127.0.0.1:9/") and odd.append(asked.url),
    )
    yield page, odd
    context.close()


def kept(place: str, strings: Sequence[str]) -> list[str]:
    """Strings as texts, names, tags, sessions, evidence, spaces of the same person; the ids of what they became."""
    ids: list[str] = []
    with memorist.open(place, embedder="hashing", policy="milton") as memory:
        for each in strings:
            mine = memory.scope(
                "ana", session=_short(each), channel=_short(each), agent=_short(each)
            )
            said = {"content": each, "name": _short(each), "session": _short(each)}
            made = mine.remember(
                [said],
                tags=[_short(each)],
                category=_short(each),
                evidence=[each],
                source_ids=[each],
            )
            ids += made.ids
        mine = memory.scope("ana")
        for each in strings[:3]:
            memory.scope("ana", _short(each)).remember("something")
            mine.edit(ids[0], each, summary=each[:200], actor=_short(each))
            mine.forget(ids.pop(), keep_days=30, reason=_short(each))
            for field in ("city", "goals_add"):
                mine.consent.propose(
                    field, _seen(each), evidence=[mine.remember(f"I said {each}").ids[0]]
                )
    return ids


def _short(text: str) -> str:
    """As much of a text as a name may have, with something to see in it."""
    return text.replace("\x00", "")[:150].strip() or "x"


def _seen(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:180]


def visited(page: Any, url: str, addresses: Sequence[str], odd: list[str]) -> None:
    for address in addresses:
        answer = page.goto(url + address, wait_until="load")
        odd += [f"{address}: {each}" for each in [*page.evaluate(ODD), *_refused(answer)]]


def _refused(answer: Any) -> list[str]:
    return [] if answer.status == 200 else [f"status {answer.status}"]


def views(page: Any, url: str, pages: int) -> list[str]:
    """The views that show many, and the threads that they name."""
    found = [
        "/decide",
        "/trash",
        "/relations",
        "/figures",
        "/settings",
        "/keys",
        "/threads",
        "/?q=script+alert+svg",
    ]
    address: str | None = "/"
    for _ in range(pages):
        if address is None:
            break
        found.append(address)
        page.goto(url + address)
        more = page.locator("a[rel=next]")
        address = more.get_attribute("href") if more.count() else None
    page.goto(f"{url}/threads")
    return found + [each.get_attribute("href") for each in page.locator("main .list a").all()[:20]]


def test_hostile_texts_are_texts(watched: tuple[Any, list[str]], here: str) -> None:
    page, odd = watched
    strings = few(200)
    ids = kept(here, strings)
    assert len(ids) >= 190
    with serving(here, local=ANA, rate_limit=0) as server:
        visited(page, server.url, views(page, server.url, 9), odd)
        visited(page, server.url, [f"/m/{id}" for id in ids[::12]], odd)
        visited(page, server.url, [f"/m/{id}/forget" for id in ids[::40]], odd)
        page.goto(f"{server.url}/m/{ids[50]}")
        with memorist.open(here, embedder="hashing") as memory:
            text = memory.scope("ana").get(ids[50]).text
        assert text in page.locator("article .full-text").inner_text()
        for each in strings[::20]:
            page.goto(f"{server.url}/")
            page.fill("#q", each.replace("\x00", "").replace("\n", " "))
            page.press("#q", "Enter")
            page.wait_for_load_state()
            odd += page.evaluate(ODD)
    assert odd == []


@pytest.mark.slow
def test_seven_thousand_hostile_texts_are_texts(watched: tuple[Any, list[str]], here: str) -> None:
    page, odd = watched
    ids = kept(here, wide(7_100))
    assert len(ids) >= 7_000
    with serving(here, local=ANA, rate_limit=0) as server:
        visited(page, server.url, views(page, server.url, 1_000), odd)
        visited(page, server.url, [f"/m/{id}" for id in ids], odd)
    assert odd == []


def test_a_form_filled_with_hostile_text_comes_back_as_text(
    watched: tuple[Any, list[str]], here: str
) -> None:
    page, odd = watched
    with serving(here, local=ANA, rate_limit=0) as server:
        for each in few(6):
            page.goto(server.url)
            page.locator("summary", has_text="Add a memory").click()
            page.fill("#new-text", each.replace("\x00", ""))
            page.fill("#new-tags", each.replace("\x00", "").replace("\n", " ")[:100])
            page.click("button:text-is('Save')")
            page.wait_for_load_state()
            odd += page.evaluate(ODD)
            page.goto(f"{server.url}/settings")
            page.fill("#where-space", _short(each).replace("\n", " "))
            page.locator("form[action='/where'] button").click()
            page.wait_for_load_state()
            odd += page.evaluate(ODD)
    assert odd == []


def test_there_are_as_many_hostile_texts_as_are_asked_for() -> None:
    assert len(set(wide(7_100))) == 7_100
