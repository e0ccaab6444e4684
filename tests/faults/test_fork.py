"""An application that forks, for instance to start a program, while memories are compared."""

from __future__ import annotations

import subprocess
import sys

FORKING = """
import os, threading, warnings
import numpy as np
from memorist.index.arrays import products

warnings.simplefilter("ignore")  # of forking a process with threads
rows = np.ones((2001, 384), np.float32)
asked = np.ones((384, 33), np.float32)
ended = threading.Event()
counted = 0

def compare():
    global counted
    while not ended.is_set():
        products(rows, asked)
        counted += 1

thread = threading.Thread(target=compare, daemon=True)
thread.start()
for _ in range(200):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
ended.set()
thread.join(20)
print("hangs" if thread.is_alive() else "ends", counted > 0, flush=True)
os._exit(0)
"""


def test_a_fork_while_vectors_are_multiplied_does_not_make_the_product_hang() -> None:
    seen = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True
    )
    assert seen.stdout == "ends True\n"
