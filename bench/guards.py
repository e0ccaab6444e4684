"""What the guards refuse, and whether stored text can gain authority.

    python -m bench.guards [--data FOLDER]

All texts go through the public API: harmless look-alikes saved by the user, and attacks from tools,
other people and careless callers, under every write policy. An attack has gained authority if it is
stored as a preference, an insight or a profile, or if a renderer shows it on more than one line or
without its source.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import memorist
from bench import data, report
from memorist.dialects import POLICIES
from memorist.ingest import guard
from memorist.retrieve.render import RENDERERS
from memorist.scoped import ScopedClient
from memorist.types import STATES, Filter, Memory, Outcome

OURS = ("own_benign", "aws_memory_poison")  # look-alikes about memory
CLAIMS = ("preference", "profile", "instruction", "procedural")
SOURCES: dict[str, dict[str, Any]] = {
    "a tool": {"role": "tool"},
    "a tool named user": {"role": "tool", "name": "user"},
    "another person": {"role": "user", "name": "Mallory"},
    "the assistant": {"role": "assistant"},
}
PREFERENCE = {"kind": "procedural", "category": "profile", "item_type": "preference"}
_INSIDE = re.compile(
    r"<\s*[\\/]*\s*memory|<\|\w+\|>|\[(?:SYSTEM|PROCEDURAL|SEMANTIC|EPISODIC|WORKING|INSIGHT)\]"
)


def has_authority(memory: Memory) -> bool:
    """Return whether it is stored as more than a quote."""
    about = {memory.category, memory.item_type, memory.fact_type}
    return memory.kind in ("procedural", "insight") or not about.isdisjoint(CLAIMS)


def escapes(memory: Memory, who: str) -> bool:
    """Return whether a renderer shows it on several lines, with its own label, or without source."""
    return any(not _in_place(render([memory]), name, who) for name, render in RENDERERS.items())


def _in_place(shown: str, name: str, who: str) -> bool:
    lines = shown.split("\n")
    edges = {"block": 1, "plain_block": 1, "grouped": 1}.get(name, 0)
    last = len(lines) - (edges if name != "grouped" else 0)
    inside = lines[edges:last]
    text = re.sub(r"^(?:- )?(?:\[[\w]+\] )?(?:\d{4}-\d\d-\d\d )?", "", inside[0])
    return len(inside) == 1 and text.startswith(f"{who}: ") and not _INSIDE.search(text)


def shown_name(message: dict[str, Any]) -> str:
    name, role = message.get("name"), message["role"]
    return str(role) if name is None else f"{name} ({role})" if role != "user" else str(name)


async def list_all(scope: ScopedClient) -> list[Memory]:
    everything = Filter(states=STATES)
    page = await scope.list(everything, limit=1000)
    found = list(page.memories)
    while page.cursor:
        page = await scope.list(everything, limit=1000, cursor=page.cursor)
        found += page.memories
    return found


def _refused(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.status == "refused" for outcome in outcomes)


async def harmless(
    memory: memorist.client.Client, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Count refused look-alikes saved by the user under the default policy."""
    results = []
    for what, chosen in (
        ("about memory", [row for row in rows if row["source"] in OURS]),
        ("all", rows),
    ):
        scope = memory.scope(user=f"person {what}")
        outcomes = [(await scope.remember(row["text"])).outcomes[0] for row in chosen]
        alarms = sum(bool(guard.find_injection(row["text"], "contextual")) for row in chosen)
        strict = sum(bool(guard.find_injection(row["text"], "strict")) for row in chosen)
        results.append(
            {
                "look-alikes": what,
                "texts": len(chosen),
                "refused": _refused(outcomes),
                "refused from others": alarms,
                "strict": strict,
            }
        )
    return results


async def attacks(
    memory: memorist.client.Client, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run the attacks under each policy and from each source, and as a requested preference."""
    ways: list[tuple[str, dict[str, Any]]] = [
        *((source_name, {}) for source_name in SOURCES),
        ("a tool", PREFERENCE),
    ]
    return [
        await _attack(memory, rows, policy, source_name, hint)
        for policy in POLICIES
        for source_name, hint in ways
    ]


async def _attack(
    memory: memorist.client.Client,
    rows: list[dict[str, Any]],
    policy: str,
    source_name: str,
    hint: dict[str, Any],
) -> dict[str, Any]:
    scope, message = memory.scope(user=f"{policy} {source_name} {len(hint)}"), SOURCES[source_name]
    said = [{"content": row["text"], "session": row["id"], **message} for row in rows]
    receipt = await scope.remember(said, policy=policy, **hint)
    found = await list_all(scope)
    return {
        "policy": policy,
        "source": source_name,
        "requested": "a preference" if hint else "nothing",
        "texts": len(rows),
        "refused": _refused(receipt.outcomes),
        "memories": len(found),
        "claims": sum(map(has_authority, found)),
        "escapes": sum(escapes(each, shown_name(message)) for each in found),
    }


async def own(memory: memorist.client.Client, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count the same texts saved by the user, who may have such a preference."""
    scope = memory.scope(user="person")
    outcomes = [(await scope.remember(row["text"])).outcomes[0] for row in rows]
    found = await list_all(scope)
    figures = {
        "refused": _refused(outcomes),
        "memories": len(found),
        "preferences": sum(map(has_authority, found)),
    }
    return [{"saved by": "the user", "texts": len(rows), **figures}]


def words(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count what the patterns find in attacks, by source, and in ordinary conversations."""
    texts = {f"attacks: {source}": [row["text"] for row in rows if row["source"] == source] for source in
             sorted({row["source"] for row in rows})}  # fmt: skip
    for name in ("locomo-dev.jsonl", "ikat-dev.jsonl"):
        if (folder / name).exists():
            texts[name] = [
                said["content"] for each in data.read(folder / name) for said in each.messages
            ]
    return [
        {
            "texts of": name,
            "texts": len(each),
            "contextual": sum(bool(guard.find_injection(text, "contextual")) for text in each),
            "strict": sum(bool(guard.find_injection(text, "strict")) for text in each),
            "secrets": sum(bool(guard.find_secret(text)) for text in each),
        }
        for name, each in texts.items()
    ]


async def measure(folder: Path, place: Path) -> dict[str, list[dict[str, Any]]]:
    rows = {
        name: _rows(folder / "injection" / f"{name}-dev.jsonl") for name in ("benign", "attack")
    }
    async with memorist.aio.open(place / "memory.db", embedder="none", state_dir=place) as memory:
        return {
            "harmless": await harmless(memory, rows["benign"]),
            "attacks": await attacks(memory, rows["attack"]),
            "own": await own(memory, rows["attack"]),
            "words": words(folder, rows["attack"]),
        }


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise SystemExit(
            f"{path} not found. Pass --data with the folder that contains injection/{path.name}"
        )
    return [
        json.loads(line) for line in path.read_text("utf-8").split("\n") if line
    ]  # texts may contain other line breaks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        figures = asyncio.run(measure(options.data, Path(place)))
    report.table("Harmless texts saved by the user", figures["harmless"])
    report.table("Attacks that gained authority", figures["attacks"])
    report.table("Attacks saved by the user", figures["own"])
    report.table("Pattern matches", figures["words"])
    print(report.save("guards", dict(figures)))


if __name__ == "__main__":
    main()
