"""Files that version 0.1 wrote, when it was called Recollect, and what is in them."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

from memorist.dialects.milton import Milton

DATA = Path(__file__).parent / "data" / "v0.1"
ALIVE = {
    "I moved from Braga to Porto in May.",
    "How do you like Porto so far?",
    "I love it, my flat is near the river.",
    "My bike is red.",
    "I prefer green tea.",
    "The dentist is on Tuesday.",
}


def unpack(name: str, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return target


def lay_spool(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("short_term", "long_term"):
        shutil.copy(DATA / f"{name}.jsonl", folder)


async def assert_replayed(memory: Any) -> None:
    ana = memory.scope("ana")
    assert "My sister lives in Faro." in {each.text for each in (await ana.list()).memories}
    assert (await memory.stats())["pending"] == 0
    assert (await Milton(ana).project_memory("Boat")).goals == ("sail to Faro",)
