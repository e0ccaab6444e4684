"""A real Chromium at a server on this machine, with a memory that has something to show in every view."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import memorist
from e2e.rest.conftest import ANA, Server, serving
from memorist.types import Filter

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SAID = (
    "I live in Porto and work as a nurse at the children's hospital.", "My sister Marta keeps bees in Braga.",
    "I drink green tea every morning, never coffee.", "I am allergic to peanuts.",
    "The bees my sister Marta keeps in Braga made honey.", "On Tuesdays I play the cello in an orchestra.",
    "On Tuesdays I play my cello in the orchestra of the hospital.",
    "Our standup moved to half past nine.", "My train to Braga leaves at 8:12 from Campanhã.",
)  # fmt: skip

FACTS = (
    "Marta, the sister of Ana, keeps bees in Braga.", "Ana's sister Marta keeps twelve hives of bees.",
    "The bees that Marta keeps in Braga gave forty jars of honey.", "Ana plays the cello in an orchestra on Tuesdays.",
    "The orchestra in which Ana plays the cello practises on Tuesdays.", "Marta sells honey from her bees in Braga.",
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """A server, and some of what it remembers."""

    server: Server
    ids: dict[str, str]

    @property
    def views(self) -> dict[str, str]:
        """The address of every view."""
        tea = self.ids["tea"]
        return {
            "latest": "/", "search": "/?q=what+do+I+drink%3F&budget=300", "nothing": "/?q=zzz", "memory": f"/m/{tea}",
            "forget": f"/m/{tea}/forget", "threads": "/threads", "thread": "/threads?thread=chat-1",
            "relations": "/relations", "around": f"/relations?id={self.ids['honey']}", "decide": "/decide",
            "trash": "/trash", "figures": "/figures", "settings": "/settings",
            "import": "/import", "keys": "/keys", "login": "/login",
            "error": "/m/nothing", "docs": "/docs",
        }  # fmt: skip


def told(place: str, **settings: Any) -> dict[str, str]:
    """A life in a few memories: told, told again, corrected, contradicted, forgotten, asked about."""
    now, ids = datetime.now(UTC), dict[str, str]()
    with memorist.open(place, extract="off", **settings) as memory:
        mine = memory.scope("ana", session="chat-1")
        for number, text in enumerate(SAID):
            at = (now - timedelta(days=3, minutes=-number)).isoformat()
            made = mine.remember([{"content": text, "name": "Ana", "at": at, "id": f"m{number}"}])
            ids[("porto", "bees", "tea", "peanuts")[number] if number < 4 else str(number)] = (
                made.ids[0]
            )
        mine.remember(SAID[2], tags=["drinks", "morning"])
        mine.edit(
            ids["tea"],
            "I drink green tea every morning, and since March coffee on Sundays.",
            tags=["drinks"],
        )
        mine.pin(ids["peanuts"], actor="ana")
        ids["gone"] = memory.scope("ana").remember("My locker has number 77.").ids[0]
        memory.scope("ana").forget(ids["gone"], keep_days=30, actor="ana")
        for text in FACTS:
            ids["honey"] = memory.scope("ana").remember(text, kind="semantic").ids[0]
        mine.remember("My favourite colour is green.", manually_saved=True)
        mine.remember("My favourite colour is blue.", manually_saved=True)
        mine.consent.propose("city", "Porto", evidence=[ids["porto"]])
        mine.consent.set("tone", "short and friendly")
        mine.recall("where do I live?")
        assert mine.list(Filter(states=("soft_deleted",))).memories
    return ids


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One server for the tests that only look."""
    place = str(tmp_path_factory.mktemp("page") / "m.db")
    ids = told(place, embedder="minilm")
    with serving(place, local=ANA, embedder="minilm", rate_limit=0) as server:
        yield Stage(server, ids)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser. It brings an event loop of its own, beside which no other can run: so it ends with the module."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright for Python is not installed"
    )
    if CHROMIUM is None:
        pytest.skip("There is no Chromium on this machine")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def here(tmp_path: Path) -> str:
    return str(tmp_path / "m.db")
