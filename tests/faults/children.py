"""What the tests run in processes of their own, through the public API. Each acknowledgement is one line on a pipe.

children.py mixed PATH SEED EMBEDDER [STEPS]    writes of all kinds, until it is killed or so many
children.py merge PATH NAME TIMES               the same text again and again, with pins and edits of its own between,
                                                and edits, undos and hiding of one memory that all processes change
children.py forget PATH WORD                    forgets what holds a word, and dies before the log is cleaned
children.py failing FOLDER ERROR ON FIRST STEP  a few writes each, of which the FIRST, FIRST + STEP, … request to the
                                                disk fails, and with ON all after it until the fault is mended
children.py load PATH NAME EMBEDDER             messages one after the other, each until it is acknowledged
children.py embed PATH LEASE                    embeds what comes without a vector, under leases of so many seconds
children.py fill PATH                           asks once, and stops in the second batch of the vectors that are missing
children.py tend PATH DUTY LEASE SETTINGS       does what is due of one duty, under leases of so many seconds
children.py clocks PATH DAYS…                   writes and questions while the clock jumps so many days
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import memorist
from memorist.embedders import Hashing
from memorist.errors import InvalidInput, MemoristError, RevisionConflict
from memorist.jobs.worker import Worker
from memorist.ports import Vectors

WORDS = (
    "tea milk water blue green ship train lisbon porto october kettle garden violin letter".split()
)


def opened(path: str, embedder: str) -> Any:
    """A memory that says so when its store is away, and does not keep what it is told elsewhere."""
    return memorist.open(path, embedder=embedder, spool=False)


def tell(*what: Any) -> None:
    """Write one line at once: what was told before a kill stays told."""
    os.write(1, json.dumps(what).encode() + b"\n")


def mixed(path: str, seed: str, embedder: str, steps: str = "1000000") -> None:
    chance = random.Random(seed)
    with opened(path, embedder) as memory:
        ana = memory.scope("ana", session="s")
        # A fact that is forgotten would take its turn with it.
        known = [each.id for each in ana.list(limit=1000) if not each.evidence_ids]
        tell("open")
        for number in range(int(steps)):
            step(memory, ana, known, chance, f"{seed}-{number}")


def step(memory: Any, ana: Any, known: list[str], chance: random.Random, name: str) -> None:
    """One write. What may be half done when the process dies is told before it begins."""
    kind = chance.choice(
        "remember remember remember message edit edit pin forget index recall".split()
    )
    text = f"{' '.join(chance.choices(WORDS, k=chance.randint(3, 60)))} {chance.getrandbits(30)}"
    id = chance.choice(known) if known else None
    if kind == "remember" or id is None:
        known += (made := ana.remember(text)).ids
        tell("kept", made.ids[0], text)
    elif kind == "message":
        known += (made := ana.remember([{"id": name, "content": text}])).ids
        tell("said", made.ids[0], text, name)
    elif kind == "edit":
        tell("begin", id)
        tell("kept", id, ana.edit(id, text).text)
    elif kind == "pin":
        tell("begin", id)
        tell("kept", id, (ana.unpin(id) if ana.get(id).pinned else ana.pin(id)).text)
    elif kind == "forget":
        tell("begin", id)
        ana.forget(known.pop(known.index(id)))
        tell("gone", id)
    elif kind == "index" and memory.settings.embedder != "none":
        memory.index(batch_size=3)
    else:
        ana.recall(text, limit=3)


def merge(path: str, name: str, times: str) -> None:
    told: dict[str, int] = {
        "merged": 0,
        "created": 0,
        "pins": 0,
        "edits": 0,
        "errors": 0,
        "unread": 0,
        "shared": 0,
    }
    news: list[tuple[int, int]] = []
    with opened(path, "hashing") as memory:
        ana = memory.scope("ana", thread="t")
        own = ana.remember(f"{name} has a list of its own", tags=[name]).ids[0]
        shared = ana.remember([{"id": "shared", "content": "The lighthouse of Foz is white."}]).ids[
            0
        ]
        for number in range(int(times)):
            try:
                told[ana.remember("The kettle in the kitchen is blue.").outcomes[0].status] += 1
                if number % 5 == 0:
                    ana.pin(own)
                    told["pins"] += 1
                if number % 7 == 0:
                    ana.edit(own, f"{name} has a list of {number} things")
                    told["edits"] += 1
                if number % 3 == 0:
                    told["unread"] += not ana.recall("what colour is the kettle?").hits
                    news.append(after(ana.delta()))
                if number % 4 == 0:
                    told["shared"] += contend(
                        ana, shared, f"{name} counted {number} lighthouses", number // 4
                    )
            except memorist.MemoristError as error:
                told["errors"] += 1
                print(repr(error), file=sys.stderr)
        mine = ana.get(own)
    tell({**told, "own": [mine.revision, mine.pinned], "news": news})


def contend(ana: Any, id: str, text: str, turn: int) -> int:
    """Change the memory that all processes change; return how many edits were acknowledged."""
    edits = 0
    with suppress(RevisionConflict, InvalidInput):  # another process was faster
        if turn % 2:
            ana.edit(id, text, revision=ana.get(id).revision)
        else:
            ana.edit(id, text)
        edits = 1
        if turn % 3 == 0:
            ana.undo(ana.history(id, limit=1)[0].meta["operation"])
        elif turn % 3 == 1:
            ana.forget(id, keep_days=1)
            ana.restore(id)
    return edits


def after(news: Any) -> tuple[int, int]:
    """The revisions of the thread that were told of: those after the first, up to the second."""
    return news.since, news.revision


def forget(path: str, word: str) -> None:
    memory = opened(path, "hashing")
    ana = memory.scope("ana")

    async def not_now(erasures: int) -> None:
        os.kill(os.getpid(), 9)

    database = memory._inner.ctx.store.database
    getattr(database, "inner", database)._clean = not_now
    for each in ana.list(limit=1000):
        if word in each.text:
            ana.forget(each.id)


def failing(folder: str, error: str, on: str, first: str, step: str) -> None:
    disk = ctypes.CDLL(None)
    for nth in itertools.count(int(first), int(step)):
        tell("run", f"{folder}/{nth}.db")
        disk.disk_fail(nth, int(error), int(on))
        few(f"{folder}/{nth}.db", nth, mend=lambda: disk.disk_fail(0, 0, 0))
        if disk.disk_requests() < nth:
            return


def few(path: str, seed: int, mend: Callable[[], None]) -> None:
    """A few writes through a fault; whatever happens that is no error of ours ends the process."""
    with suppress(MemoristError), opened(path, "hashing") as memory:
        ana, known, chance = memory.scope("ana", session="s"), [], random.Random(seed)
        for number in range(8):
            try:
                step(memory, ana, known, chance, f"{number}")
            except MemoristError as error:
                tell("failed", type(error).__name__)
        if seed % 2:  # otherwise the memory is closed while the fault lasts
            mend()
            step(memory, ana, [], chance, "after")
            tell("mended")


def load(path: str, name: str, embedder: str) -> None:
    chance = random.Random(name)
    with opened(path, embedder) as memory:
        ana = memory.scope("ana", session=name)
        tell("open")
        for number in itertools.count():
            text = f"{' '.join(chance.choices(WORDS, k=12))} {chance.getrandbits(30)} and {chance.getrandbits(30)}"
            made = insisted(ana.remember, [{"id": f"{name}-{number}", "content": text}])
            tell("said", made.ids[0], text, f"{name}-{number}")
            if number % 4 == 0:
                insisted(ana.recall, text)


def insisted(verb: Callable[[Any], Any], what: Any) -> Any:
    while True:
        try:
            return verb(what)
        except MemoristError as error:
            tell("failed", type(error).__name__)
            time.sleep(0.05)


def embed(path: str, lease: str) -> None:
    async def run() -> None:
        async with memorist.aio.open(path, embedder="none", spool=False) as memory:
            memory.ctx.embedder = Slow()
            tell("open")
            await Worker(memory.ctx, only=["embed"], batch_size=4, lease_seconds=float(lease)).run()

    asyncio.run(run())


def fill(path: str) -> None:
    async def run() -> None:
        async with memorist.aio.open(path, spool=False) as memory:
            memory.ctx.multilingual = Stuck(memory.ctx.multilingual)
            await memory.scope("ana").recall("clouds")
            await asyncio.Event().wait()

    asyncio.run(run())


class Stuck:
    """A model that never returns the second batch."""

    def __init__(self, inner: Any) -> None:
        self.model, self.dimensions = inner.model, inner.dimensions
        self._inner, self._batches = inner, 0

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        self._batches += len(texts) > 1
        if self._batches > 1:
            tell("stuck")
            await asyncio.Event().wait()
        return await self._inner.encode_batch(texts)


def tend(path: str, duty: str, lease: str, settings: str) -> None:
    async def run() -> None:
        async with memorist.aio.open(path, **json.loads(settings)) as memory:
            memory.ctx.embedder = Slow()
            tell("open")
            await Worker(
                memory.ctx, only=[duty], batch_size=4, lease_seconds=float(lease)
            ).run_once()
            tell("done")

    asyncio.run(run())


class Slow(Hashing):
    """A model that takes its time, so that a kill finds it at work."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        await asyncio.sleep(0.02)
        return await super().encode_batch(texts)


def clocks(path: str, *jumps: str) -> None:
    clock = ctypes.CDLL(None)
    with opened(path, "hashing") as memory:
        ana = memory.scope("ana", thread="t")
        (first,) = ana.remember("My kettle is blue.", pinned=True).ids
        (secret,) = ana.remember("My password is violin.").ids
        ana.forget(secret)
        for number, days in enumerate(jumps):
            clock.clock_jump(int(days) * 86_400)
            (id,) = ana.remember(f"Shelf {number} in the garden holds {WORDS[number]} letters.").ids
            tell("kept", id, ana.get(id).text)
            tell("refused", days, ana.remember("My password is violin.").count("refused"))
            for profile in (
                "default",
                "milton.deterministic",
                "theoria.triscore",
                "imp.bullets",
                "clanker.hybrid",
            ):
                asked = {
                    first: "what colour is my kettle?",
                    id: f"what does shelf {number} in the garden hold?",
                }
                hits = [
                    hit
                    for question in asked.values()
                    for hit in ana.recall(question, profile=profile)
                ]
                tell(
                    "found",
                    days,
                    profile,
                    sorted({first, id} & {hit.memory.id for hit in hits}) == sorted(asked),
                )
                tell(
                    "parts",
                    days,
                    profile,
                    [hit.score for hit in hits],
                    [hit.parts.get("recency", 0) for hit in hits],
                )
            tell("edited", ana.edit(id, f"Shelf {number} holds nothing.").id)


if __name__ == "__main__":
    doings = {"mixed": mixed, "merge": merge, "forget": forget, "failing": failing, "load": load}
    doings |= {"embed": embed, "fill": fill, "tend": tend, "clocks": clocks}
    doings[sys.argv[1]](*sys.argv[2:])
