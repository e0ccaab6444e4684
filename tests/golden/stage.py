"""A fixed history: the same memories, ids and times in a SQLite file that is copied for each use."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import memorist
from clocks import Clock
from memorist.context import Context
from memorist.ports import LlmUsage
from memorist.text import clock
from memorist.types import GUILD

BEGIN = datetime(2024, 3, 1, 9, tzinfo=UTC)
NOW = datetime(2024, 3, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
QUESTION = "What does my sister Marta do in Braga?"
SAID = {
    "porto": "I live in Porto and work as a nurse at the children's hospital.",
    "bees": "My sister Marta keeps bees in Braga.",
    "tea": "I drink green tea every morning, never coffee.",
    "peanuts": "I am allergic to peanuts.",
    "cello": "On Tuesdays I play the cello in an orchestra.",
    "train": "My train to Braga leaves at 8:12 from Campanhã.",
}
FACTS = {
    "honey": "Marta, the sister of Ana, keeps bees in Braga and sells their honey.",
    "hives": "Ana's sister Marta keeps twelve hives of bees in Braga.",
    "jars": "The bees that Marta keeps in Braga gave forty jars of honey.",
}


@dataclass
class Source:
    """Where ids and times come from: a counter and a clock that is set by hand."""

    clock: Clock = field(default_factory=lambda: Clock(BEGIN))
    count: int = 0

    def time_ns(self) -> int:
        self.count += 1
        return int(BEGIN.timestamp() * 1e9) + self.count * 1_000_000

    def urandom(self, size: int) -> bytes:
        """Bytes that look random and differ for each id, because its end has to be its own."""
        return hashlib.sha256(str(self.count).encode()).digest()[:size]

    def later(self, by: timedelta = timedelta(minutes=1)) -> None:
        self.clock.now += by

    def reset(self) -> None:
        """Begin as after the history: the same moment, and ids that are not in it."""
        self.clock.now, self.count = NOW, 1_000_000


@contextmanager
def fixed(tmp: Path) -> Iterator[Source]:
    """Take ids and times from a fixed source and settings from nowhere, for the length of a block."""
    source = Source()
    with pytest.MonkeyPatch.context() as patch:
        for name in [
            name
            for name in os.environ
            if name.startswith(("MEMORIST_", "MILTON_", "CLAUDE_", "CODEX_"))
        ]:
            patch.delenv(name)
        home = tmp / "home"
        home.mkdir(exist_ok=True)
        for name in (
            "HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
        ):
            patch.setenv(name, str(home))
        patch.setenv("MEMORIST_EMBEDDER", "hashing")
        patch.setenv("MEMORIST_EXTRACT", "off")  # how much is extracted depends on the time left
        patch.setenv("MEMORIST_SPOOL_DIR", str(tmp / "failsafe"))
        patch.setenv("MEMORIST_STATE_DIR", str(tmp / "state"))
        patch.setenv("MEMORIST_USER", "ana")
        patch.setitem(Context.__init__.__kwdefaults__, "clock", source.clock)
        patch.setattr(clock, "time", SimpleNamespace(time_ns=source.time_ns))
        patch.setattr(clock, "os", SimpleNamespace(urandom=source.urandom))
        patch.setattr(clock, "_numbers", repeat(0))
        yield source


@dataclass(frozen=True)
class Stage:
    """The history in a file, and the ids in it by name."""

    file: Path
    source: Source
    ids: dict[str, str]

    @property
    def names(self) -> dict[str, str]:
        """The names of the ids."""
        return {id: name for name, id in self.ids.items()}

    def copy(self, folder: Path) -> Path:
        """Copy the history into a folder, and set the clock to where it ends."""
        self.source.reset()
        return Path(shutil.copy(self.file, folder / "memory.db"))


def build(folder: Path, source: Source) -> Stage:
    """Make the history: remembered, repeated, corrected, contradicted, hidden, recalled, proposed, shared."""
    file, known = folder / "history.db", dict[str, str]()
    with memorist.open(file) as memory:
        _remember(memory, source, known)
        _change(memory, source, known)
        _surround(memory, source, known)
    with ThreadPoolExecutor(1) as thread:  # in this one a loop may be running
        thread.submit(asyncio.run, _spend(file)).result()
    source.reset()
    return Stage(file, source, known)


async def _spend(file: Path) -> None:
    """Note what a language model cost."""
    async with memorist.aio.open(file) as memory:
        usage = LlmUsage(
            scope=memory.scope("ana").scope,
            day=f"{NOW:%Y-%m-%d}",
            task="extract",
            model="openai:tiny",
            calls=1,
            tokens_in=700,
            tokens_out=150,
            reserved=900,
        )
        await memory.ctx.store.llm_usage.reserve(usage, user_cap=0, tenant_cap=0)
        await memory.ctx.store.llm_usage.settle(usage)


def _remember(memory: Any, source: Source, known: dict[str, str]) -> None:
    for number, (name, text) in enumerate(SAID.items()):
        session = "chat-1" if number < 4 else "chat-2"
        source.later(DAY)
        message = {
            "id": f"m{number}",
            "content": text,
            "name": "Ana",
            "at": source.clock.now.isoformat(),
        }
        made = memory.scope("ana", session=session).remember([message])
        known[name] = made.ids[0]
    for name, text in FACTS.items():
        source.later()
        known[name] = memory.scope("ana").remember(text, kind="semantic", category="facts").ids[0]


def _change(memory: Any, source: Source, known: dict[str, str]) -> None:
    mine = memory.scope("ana", session="chat-1")
    source.later(DAY)
    known["tea-again"] = mine.remember(SAID["tea"], tags=["drinks", "morning"]).ids[0]
    source.later()
    memory.scope("ana").remember(FACTS["jars"])
    source.later()
    mine.edit(
        known["tea"],
        "I drink green tea every morning, and coffee on Sundays.",
        tags=["drinks"],
        actor="ana",
    )
    source.later()
    mine.pin(known["peanuts"], actor="ana")
    source.later()
    known["locker"] = memory.scope("ana").remember("My locker has number 77.").ids[0]
    source.later()
    memory.scope("ana").forget(known["locker"], keep_days=30, actor="ana")
    source.later()
    known["green"] = mine.remember("My favourite colour is green.", manually_saved=True).ids[0]
    source.later()
    known["blue"] = mine.remember("My favourite colour is blue.", manually_saved=True).ids[0]
    source.later()
    known["gone"] = memory.scope("ana").remember("The code of the gate is 4711.").ids[0]
    source.later()
    memory.scope("ana").forget(known["gone"], reason="asked", actor="ana")


def _surround(memory: Any, source: Source, known: dict[str, str]) -> None:
    mine = memory.scope("ana", session="chat-1")
    source.clock.now = NOW - DAY
    known["proposal"] = mine.consent.propose("city", "Porto", evidence=[known["porto"]]).id
    mine.consent.set("tone", "short and friendly", actor="ana")
    memory.scope("ana", session="hidden").privacy.start_incognito()
    source.later()
    mine.checkpoints.save(
        "chat-1", {"graph_state": {"step": 2}, "conversation_history": ["Hello."]}
    )
    source.later()
    work = memory.scope("ana", "work")
    work.privacy.set(sharing=True, actor="ana")
    known["standup"] = work.remember(
        "Our standup moved to half past nine.", tags=["share:default"]
    ).ids[0]
    source.later()
    known["bob"] = memory.scope("bob").remember("My sister lives in Faro.").ids[0]
    source.later()
    guild = memory.scope(GUILD, "guild-1", subject="Ben")
    known["ben"] = guild.remember(
        "Ben collects old maps.", policy="clanker.guild", kind="semantic"
    ).ids[0]
    source.later()
    known["key"] = memory.create_key("laptop", user="ana", rights=("read", "write"))[0].id
    source.later()
    mine.recall("Where do I live?")
