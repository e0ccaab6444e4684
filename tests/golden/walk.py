"""Trace the main verbs in a process of its own, where no other test has filled a cache: `python -m golden.walk FOLDER`.

Prints JSON: for each verb the modules and functions of the package that it passes through, and its SQL statements.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import apsw

import memorist
from golden.stage import QUESTION, build, fixed
from memorist import context
from memorist.storage import sqlite

ROOT = str(Path(memorist.__file__).parent) + "/"
# A second reader may open its connection during any verb: that depends on the timing of threads.
OPENING = {
    *(
        ("storage/sqlite/connection.py", name)
        for name in ("use_wal", "connect", "translate_errors", "wait")
    ),
}
RESUMES = 0x2A0  # flags of code that can go on after a pause: a coroutine or generator


class Trace:
    """Notes calls of functions of the package, in all threads, and SQL statements, while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[tuple[str, str, str]] = []  # pool of threads, module, function
        self.statements: list[str] = []
        self._paused = set[FrameType]()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not self.is_on or event != "call" or not code.co_filename.startswith(ROOT):
            return
        if code.co_flags & RESUMES:
            if frame in self._paused:
                return
            self._paused.add(frame)
        name = getattr(code, "co_qualname", code.co_name)
        if name.endswith("_File.close"):  # run when garbage is collected, at any time
            return
        module = code.co_filename.removeprefix(ROOT)
        is_named = "<lambda>" not in name and not code.co_name.startswith("<")
        if is_named and (module, name) not in OPENING:
            pool = threading.current_thread().name.partition("_")[0]
            self.calls.append((pool, module, name))

    def connected(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, self.stated)

    def stated(self, event: dict[str, Any]) -> None:
        if self.is_on and not event.get("trigger"):
            self.statements.append(" ".join(str(event["sql"]).split()))

    def measured(self, call: Callable[[], object]) -> dict[str, Any]:
        """Run a verb, and return what it passed through."""
        self.calls.clear(), self.statements.clear(), self._paused.clear()
        self.is_on = True
        call()
        time.sleep(0.2)  # new vectors are written to the cache after the answer
        self.is_on = False
        modules = [module for _, module, _ in self.calls]
        functions = sorted({f"{module} {name}" for _, module, name in self.calls})
        # In each pool of threads, since how threads take turns depends on the machine.
        pools: dict[str, list[str]] = {}
        for pool, module, _ in self.calls:
            pools.setdefault(pool, []).append(module)
        jumps = sum(one != other for way in pools.values() for one, other in pairwise(way))
        return {"modules": list(dict.fromkeys(modules)), "functions": functions, "jumps": jumps,
                "sql": list(self.statements)}  # fmt: skip


def main(folder: Path) -> None:
    trace = Trace()
    apsw.connection_hooks.append(trace.connected)
    context.FLUSH_SECONDS = (
        3600.0  # uses are written when the memory is closed, and not while another verb is traced
    )
    sqlite.READERS = 1  # a second one would open its connection at any time
    threading.setprofile(trace)
    sys.setprofile(trace)
    with fixed(folder) as source:
        stage = build(folder, source)
        with memorist.open(stage.copy(folder)) as memory:
            mine = memory.scope("ana", session="chat-1")
            mine.remember("I own a red bicycle."), mine.recall(QUESTION), mine.list()
            (
                mine.edit(stage.ids["train"], "My train to Braga leaves at nine."),
                mine.forget(stage.ids["train"]),
            )
            verbs: dict[str, Callable[[], object]] = {
                "remember": lambda: mine.remember("I moved to Lisbon in May."),
                "recall": lambda: mine.recall("Where does my sister Marta live?"),
                "edit": lambda: mine.edit(stage.ids["cello"], "On Mondays I play the cello."),
                "list": lambda: mine.list(limit=5),
                "forget": lambda: mine.forget(stage.ids["cello"]),
            }
            gc.collect()  # otherwise a closed connection may end its threads during any verb
            found = {verb: trace.measured(call) for verb, call in verbs.items()}
    sys.setprofile(None)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
