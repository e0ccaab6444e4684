"""A real Chroma server in a process of its own, for the length of a `with` block."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(folder: Path, *, port: int | None = None, seconds: float = 60) -> Iterator[str]:
    """Gives the server's address once it answers."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        str(Path(sys.executable).with_name("chroma")),
        "run",
        "--path",
        str(folder),
        "--port",
        str(port),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"{url}/api/v2/heartbeat", process, until=time.monotonic() + seconds)
            yield url
        finally:
            process.kill()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], *, until: float) -> None:
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the Chroma server did not start")
