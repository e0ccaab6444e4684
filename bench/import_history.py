"""How fast a ChatGPT export is imported, and in how much memory.

    python -m bench.import_history [--mb 20] [--file EXPORT] [--vectors]

Without a file, one is generated: conversations of two to forty turns, whose sentences are put
together from those of `bench/own`, with short questions, long answers with lists and code, tool
calls, and the metadata that exports have. The import runs in a process of its own: its peak memory,
time and CPU time are measured, those of the second process that it starts, and whether the last
conversation is found by its words. With `--vectors` the vectors that follow are measured too.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memorist
from bench import report

OWN = Path(__file__).parent / "own"
CODE = "```python\nfor {a} in range({n}):\n    print({a} * {n})\n```"
START = 1_700_000_000.0  # seconds
NEEDLE = "zanzibarquartz"


def read_sentences() -> tuple[list[str], list[str]]:
    """Return sentences of people, and of assistants."""
    said: dict[str, list[str]] = {"user": [], "assistant": []}
    for name in ("weeks", "projects", "preferences", "profiles"):
        for line in (OWN / f"{name}.jsonl").read_text("utf-8").splitlines():
            for message in json.loads(line).get("messages", ()):
                said.get(message["speaker"], said["user"]).append(message["text"])
    return said["user"], said["assistant"]


class Writer:
    """Writes an export of a given size, the same one each time."""

    def __init__(self) -> None:
        self.rng = random.Random(7)
        self.people, self.assistants = read_sentences()
        words = {word for text in self.people + self.assistants for word in text.split()}
        self.words = sorted(words)
        self.time = START

    def sentence(self, texts: list[str]) -> str:
        """Return a sentence with some words of others in it, so that few are the same."""
        words = self.rng.choice(texts).split()
        for _ in range(1 + len(words) // 4):
            words[self.rng.randrange(len(words))] = self.rng.choice(self.words)
        return " ".join(words)

    def answer(self) -> str:
        """Return a long answer."""
        parts = [self.sentence(self.assistants) for _ in range(self.rng.randint(3, 12))]
        if self.rng.random() < 0.4:
            parts += [f"- {self.sentence(self.assistants)}" for _ in range(5)]
        if self.rng.random() < 0.2:
            parts.append(CODE.format(a=self.rng.choice("abcxyz"), n=self.rng.randint(2, 999)))
        return "\n\n".join(parts)

    def chat(self, ending: str = "") -> dict[str, Any]:
        """Return a conversation."""
        id = self.new_id()
        nodes: list[dict[str, Any]] = [self.node(None, None)]
        self.add(nodes, "system", "")
        for _ in range(self.rng.randint(1, 20)):
            text = " ".join(self.sentence(self.people) for _ in range(self.rng.randint(1, 3)))
            self.add(nodes, "user", text)
            if self.rng.random() < 0.1:
                self.add(nodes, "assistant", "search('it')", recipient="browser")
                self.add(nodes, "tool", self.answer())
            self.add(nodes, "assistant", self.answer())
        if ending:
            self.add(nodes, "user", ending)
        mapping = {node["id"]: node for node in nodes}
        return {
            "title": self.sentence(self.people)[:40],
            "create_time": self.time,
            "update_time": self.time + 60,
            "mapping": mapping,
            "moderation_results": [],
            "plugin_ids": None,
            "gizmo_id": None,
            "is_archived": False,
            "default_model_slug": "gpt-4o",
            "current_node": nodes[-1]["id"],
            "conversation_id": id,
            "id": id,
        }

    def add(self, nodes: list[dict[str, Any]], role: str, text: str, **more: Any) -> None:
        """Add a message below the last node."""
        self.time += self.rng.randint(5, 4000)
        message = {
            "id": self.new_id(),
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": self.time,
            "update_time": None,
            "content": {"content_type": "text", "parts": [text]},
            "status": "finished_successfully",
            "end_turn": role == "assistant",
            "weight": 1.0,
            "metadata": {
                "citations": [],
                "content_references": [],
                "serialization_metadata": {"custom_symbol_offsets": []},
                "finish_details": {"type": "stop", "stop_tokens": [200002]},
                "is_complete": True,
                "gizmo_id": None,
                "message_type": None,
                "model_slug": "gpt-4o",
                "default_model_slug": "gpt-4o",
                "parent_id": nodes[-1]["id"],
                "request_id": self.new_id(),
                "timestamp_": "absolute",
            },
            "recipient": "all",
            "channel": None,
            **more,
        }
        node = self.node(nodes[-1]["id"], message)
        nodes[-1]["children"].append(node["id"])
        nodes.append(node)

    def node(self, parent: str | None, message: dict[str, Any] | None) -> dict[str, Any]:
        id = message["id"] if message else self.new_id()
        return {"id": id, "message": message, "parent": parent, "children": []}

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def chats(self, size: int) -> Iterator[str]:
        """Yield conversations as JSON, of about a size together."""
        written = 0
        while written < size:
            text = json.dumps(self.chat(), ensure_ascii=False)
            written += len(text.encode())
            yield text
        ending = f"The wifi of the lighthouse is called {NEEDLE}."
        yield json.dumps(self.chat(ending), ensure_ascii=False)


def write_export(path: Path, mb: float) -> None:
    """Write an export of a number of megabytes."""
    with path.open("w", encoding="utf-8") as file:
        for number, chat in enumerate(Writer().chats(int(mb * 1e6))):
            file.write(",\n" if number else "[")
            file.write(chat)
        file.write("]")


def run_import(path: Path, folder: Path, *, vectors: bool) -> dict[str, Any]:
    """Import a file, and measure this process."""
    megabytes = path.stat().st_size / 1e6
    with memorist.open(folder / "memory.db", run_jobs=False) as memory:
        mine = memory.scope("ana")
        start, cpu = time.perf_counter(), time.process_time()
        done = mine.import_files(path)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        second = resource.getrusage(resource.RUSAGE_CHILDREN)
        others = second.ru_utime + second.ru_stime
        found = mine.recall(NEEDLE, min_confidence=0).memories
        result = {
            "MB": megabytes,
            "memories": done.new_memories,
            "seconds": seconds,
            "CPU seconds": cpu,
            "CPU seconds of the second process": others,
            "MB/s": megabytes / seconds,
            "MB per CPU second": megabytes / (cpu + others),
            "peak MB": peak / 1000,
            "peak MB of the second process": second.ru_maxrss / 1000,
            "found by keyword": any(NEEDLE in each.text for each in found),
            "peak MB with recall": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        }
        if vectors:
            start = time.perf_counter()
            memory.index()
            result["seconds for vectors"] = time.perf_counter() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            result["peak MB with vectors"] = peak / 1000
    return result


def main() -> None:
    """Write an export, import it in a process of its own, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.here:
            print(json.dumps(run_import(options.file, folder, vectors=options.vectors)))
            return
        file = options.file or folder / "conversations.json"
        if options.file is None:
            write_export(file, options.mb)
        command = [sys.executable, "-m", "bench.import_history", "--here", "--file", str(file)]
        command += ["--vectors"] if options.vectors else []
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    report.table("Import of a ChatGPT export", [found])
    report.save("import_history", found)


if __name__ == "__main__":
    main()
