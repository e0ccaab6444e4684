"""How long a second caller waits while the server answers one expensive request.

    python -m bench.stall [--only TEXT …] [--most 250]

`memorist serve` runs in its own process. While one request is answered, `/healthz` is asked every
20 ms, and the 99th percentile of its answers is reported. Exits with 1 if one is above `--most` ms.
The embedder is `hashing` unless MEMORIST_EMBEDDER names another one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from bench import report
from bench.rest import serve

PAUSE = 0.02  # seconds between two answers of /healthz
RNG = random.Random(1)
WORDS = [
    "".join(RNG.choices("abcdefghijklmnopqrstuvwxyz", k=RNG.randint(2, 9))) for _ in range(5000)
]
Case = tuple[str, str, bytes | None]  # method, path, body


def prose(characters: int) -> str:
    """Return random words, some of which end a sentence."""
    words = (word + "." * (RNG.random() < 0.08) for word in RNG.choices(WORDS, k=characters // 5))
    return " ".join(words)[:characters]


def post(verb: str, **body: Any) -> Case:
    return "POST", f"/v1/memory/{verb}", json.dumps(body, ensure_ascii=False).encode()


def record(id: str, text: str) -> dict[str, Any]:
    """Return a memory as an export has it."""
    at = "2026-01-01T00:00:00Z"
    scope = {"tenant": "default", "user": "ana", "space": "default"}
    data = {"id": id, "scope": scope, "text": text, "kind": "semantic"}
    return {"record_type": "memory", "data": {**data, "created_at": at, "updated_at": at}}


def list_cases() -> dict[str, Case]:
    """Return the requests in the order in which they are made, by name."""
    many = [record(f"i{n}", prose(300)) for n in range(10_000)]
    long = [{"id": f"l{n}", "content": prose(5000)} for n in range(200)]
    short = [
        {"id": f"t{n}", "role": "user", "content": f"Number {n} is a nice {n * 7919} number."}
        for n in range(1000)
    ]
    digits = b'{"graph_state": {"x": 1e+30, "n": [' + b",".join([b"7" * 4299] * 900) + b"]}}"
    nested = json.dumps({"graph_state": {str(n): {"a": [n] * 5} for n in range(50_000)}}).encode()
    everything = {"limit": 1000, "budget": 1_000_000, "min_confidence": 0}
    edited = json.dumps({"text": prose(1_000_000)}).encode()
    until = {"created_before": "2999-01-01T00:00:00Z"}
    return {
        "remember 1 MB of prose": post("entries", text=prose(1_000_000)),
        "remember 1 MB without blanks": post("entries", text="x" * 1_000_000),
        "remember 1 MB of Chinese": post("entries", text="猫" * 1_000_000),
        "remember 1 MB of short lines": post("entries", text="a\n" * 500_000),
        "remember 200 messages of 5 kB": post("messages", messages=long),
        "remember 1,000 short messages": post("messages", session="s", messages=short),
        "import 10,000 memories": post("import", records=many),
        "import 7 MB in one memory": post("import", records=[record("big", prose(7_000_000))]),
        "save a checkpoint of digits": ("PUT", "/v1/memory/checkpoints/t", digits),
        "save a nested checkpoint": ("PUT", "/v1/memory/checkpoints/u", nested),
        "load a checkpoint": ("GET", "/v1/memory/checkpoints/u", None),
        "recall 1,000": post("recall", query=prose(10_000), **everything),
        "recall within a budget": post(
            "recall", query=prose(999), **{**everything, "budget": 60_000}
        ),
        "recall by words": post("recall", query="a", profile="milton.deterministic", **everything),
        "recall diverse ones": post(
            "recall", query=prose(99), profile="theoria.triscore", **everything
        ),
        "recall and rerank": post("recall", query=prose(99), rerank=True, **everything),
        "context": post("context", message=prose(10_000), budget=1_000_000, session="s"),
        "list 1,000": ("GET", "/v1/memory/entries?limit=1000", None),
        "export": ("GET", "/v1/memory/export", None),
        "edit to 1 MB": ("PATCH", "/v1/memory/entries/i5", edited),
        "plan to forget all": post("forget", where=until, dry_run=True),
        "forget all": post("forget", where=until, dry_run=False),
    }


def measure(url: str, name: str, case: Case) -> dict[str, Any]:
    """Make a request, and ask for the health of the server until it is answered."""
    method, path, body = case
    statuses: list[int] = []

    def request() -> None:
        headers = {"Content-Type": "application/json"} if body else {}
        answer = httpx.request(method, url + path, content=body, headers=headers, timeout=600)
        statuses.append(answer.status_code)

    thread = threading.Thread(target=request)
    waits: list[float] = []
    started = time.perf_counter()
    thread.start()
    with httpx.Client(base_url=url, timeout=600) as other:
        while thread.is_alive() or not waits:
            asked = time.perf_counter()
            other.get("/healthz")
            waits.append(1000 * (time.perf_counter() - asked))
            time.sleep(PAUSE)
    seconds = time.perf_counter() - started
    waits.sort()
    return {
        "request": name,
        "status": statuses[0] if statuses else None,
        "seconds": seconds,
        "p50 ms": statistics.median(waits),
        "p99 ms": waits[int(0.99 * len(waits))],
        "max ms": waits[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names of requests")
    parser.add_argument("--most", type=float, default=250, help="milliseconds")
    options = parser.parse_args()
    os.environ.setdefault("MEMORIST_EMBEDDER", "hashing")
    measured = []
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "m.db") as url:
        httpx.get(f"{url}/v1/memory/entries")
        for name, case in list_cases().items():
            if any(part in name for part in options.only):
                measured.append(measure(url, name, case))
                print(measured[-1], flush=True)
    report.table("Waiting for /healthz during one request", measured)
    print(report.save("stall", {"requests": measured}))
    sys.exit(any(each["p99 ms"] > options.most for each in measured))


if __name__ == "__main__":
    main()
