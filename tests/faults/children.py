"""What the tests run in processes of their own, through the public API. Each acknowledgement is one line on a pipe.

children.py mixed PATH SEED EMBEDDER     writes of all kinds until it is killed
children.py merge PATH NAME TIMES        the same text again and again, with pins and edits of its own between
children.py forget PATH WORD             forgets what holds a word, and dies before the log is cleaned
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

import recollect

WORDS = "tea milk water blue green ship train lisbon porto october kettle garden violin letter".split()


def tell(*what: Any) -> None:
    """Write one line at once: what was told before a kill stays told."""
    os.write(1, json.dumps(what).encode() + b"\n")


def mixed(path: str, seed: str, embedder: str) -> None:
    chance = random.Random(seed)
    with recollect.open(path, embedder=embedder) as memory:
        ana = memory.scope("ana", session="s")
        known = [each.id for each in ana.list(limit=1000)]
        tell("open")
        for number in range(10**6):
            step(memory, ana, known, chance, f"{seed}-{number}")


def step(memory: Any, ana: Any, known: list[str], chance: random.Random, name: str) -> None:
    """One write. What may be half done when the process dies is told before it begins."""
    kind = chance.choice("remember remember remember message edit edit pin forget index recall".split())
    text = f"{' '.join(chance.choices(WORDS, k=chance.randint(3, 60)))} {chance.getrandbits(40)}"
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
    told: dict[str, int] = {"merged": 0, "created": 0, "pins": 0, "edits": 0, "errors": 0, "unread": 0}
    with recollect.open(path, embedder="hashing") as memory:
        ana = memory.scope("ana", thread="t")
        own = ana.remember(f"{name} has a list of its own", tags=[name]).ids[0]
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
            except recollect.RecollectError as error:
                told["errors"] += 1
                print(repr(error), file=sys.stderr)
        mine = ana.get(own)
    tell({**told, "own": [mine.revision, mine.pinned]})


def forget(path: str, word: str) -> None:
    memory = recollect.open(path, embedder="hashing")
    ana = memory.scope("ana")

    async def not_now() -> None:
        os.kill(os.getpid(), 9)

    memory._inner.store._clean = not_now
    for each in ana.list(limit=1000):
        if word in each.text:
            ana.forget(each.id)


if __name__ == "__main__":
    {"mixed": mixed, "merge": merge, "forget": forget}[sys.argv[1]](*sys.argv[2:])
