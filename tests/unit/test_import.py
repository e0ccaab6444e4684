"""`import memorist` is quick: what is heavy is loaded when it is first needed."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import sys, time
start = time.process_time()
import memorist
spent = time.process_time() - start
heavy = "onnxruntime apsw numpy pydantic pydantic_settings snowballstemmer typer asyncio".split()
print(spent, *(name for name in heavy if name in sys.modules))
"""


def test_importing_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    spent, *loaded = done.stdout.split()
    assert loaded == []
    assert float(spent) < 2, "0.05 s here; the bound is wide because the machine may be busy"


def test_a_memory_without_a_model_needs_no_runtime_for_models() -> None:
    code = (
        "import sys, memorist\n"
        "with memorist.open(':memory:', embedder='hashing') as memory:\n"
        "    memory.scope('ana').remember('I live in Lisbon.')\n"
        "    memory.scope('ana').recall('where?')\n"
        "print(*(name for name in ('onnxruntime', 'typer') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
