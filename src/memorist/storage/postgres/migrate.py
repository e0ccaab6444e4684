"""The schema on PostgreSQL, brought to its newest state: tables, partitions, row-level security, rights.

Everything stands in the schema `memorist`, so a database can be shared with other programs.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from psycopg import errors, sql

from ...errors import InvalidInput, Misconfigured
from .. import migrations
from ..migrations import Migration
from . import pipeline
from .connection import answered, completed, connect, shown, translated
from .pipeline import Connection

SCHEMA = "memorist"
ROLE = (
    "memorist_app"  # may read and write rows, and is not above row-level security as superusers are
)
PARTITIONED = "/* by scope */"
_LOCK = 0x5EC0_11EC  # whoever holds it migrates
_OLDEST = 150000
_TABLES = (
    "SELECT c.relname, c.relispartition, c.relrowsecurity AND c.relforcerowsecurity, EXISTS "
    "(SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'scope' AND NOT a.attisdropped) "
    f"FROM pg_class c WHERE c.relnamespace = '{SCHEMA}'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1"
)
_POLICIES = {
    "one_scope": "scope = (SELECT nullif(current_setting('memorist.scope', true), '')::bigint)",
    "every_scope": "(SELECT current_setting('memorist.every_scope', true)) = 'on'",
}


def shipped() -> list[Migration]:
    """The migrations in the package, in order."""
    return migrations.shipped("memorist.storage.postgres")


async def migrate(
    url: str, steps: Sequence[Migration] | None = None, *, partitions: int | None = None
) -> list[int]:
    """Bring the database to the newest schema, in one transaction, and give the steps that were made.

    Any number of servers may call it at once: one migrates, the others find it done. Raises MigrationNeeded for a
    database from a newer version, StoreDamaged for an altered one, InvalidInput for partitions of one that is in use.
    """
    place = shown(url)
    steps = shipped() if steps is None else steps
    connection = await connect(completed(url), place)
    try:
        async with answered(place):
            if partitions is None and await _is_done(connection, steps, place):
                return []
        with translated(place):
            await connection.execute("SET LOCAL statement_timeout = 0")
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            made = await _migrated(connection, steps, place, partitions)
            await connection.commit()
            return made
    finally:
        await connection.close()


async def _is_done(connection: Connection, steps: Sequence[Migration], place: str) -> bool:
    await _fit(connection, place)
    if migrations.missing(await _done(connection), steps, place):
        return False
    return not await is_above(connection) or await _may_work(connection)


async def _migrated(
    connection: Connection, steps: Sequence[Migration], place: str, partitions: int | None
) -> list[int]:
    done = await _done(connection)
    if done and partitions is not None and partitions != await _partitions(connection):
        raise InvalidInput(
            f"{place} is in use, and its partitions stay as they are: migrate a new database with --partitions, "
            "and `memorist db copy` into it"
        )
    missing = migrations.missing(done, steps, place)
    if missing:
        await _install(connection, place)
    for step in missing:
        await _run(connection, step, partitions or 0)
    await _guard(connection)
    return [step.number for step in missing]


async def _fit(connection: Connection, place: str) -> None:
    """Raises Misconfigured if the server cannot hold a memory."""
    if connection.info.server_version < _OLDEST:
        raise Misconfigured(f"{place} is older than PostgreSQL 15: upgrade the server")
    if (await pipeline.rows(connection, "SHOW server_encoding"))[0][0] != "UTF8":
        raise Misconfigured(
            f"{place} cannot keep every text: create a database with ENCODING 'UTF8'"
        )


async def _install(connection: Connection, place: str) -> None:
    try:
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except (
        errors.InsufficientPrivilege,
        errors.UndefinedFile,
        errors.FeatureNotSupported,
    ) as error:
        raise Misconfigured(
            f"{place} has no pgvector: install it on the server, and run CREATE EXTENSION vector as an administrator"
        ) from error
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    await connection.execute(
        "SELECT set_config('search_path', %s, true)", (await search_path(connection),)
    )


async def search_path(connection: Connection) -> str:
    """Our tables first, then wherever somebody put pgvector."""
    found = await pipeline.rows(
        connection,
        "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'",
    )
    return f"{SCHEMA}, {found[0][0] if found else 'public'}"


async def _done(connection: Connection) -> dict[int, str]:
    if not (
        await pipeline.rows(connection, f"SELECT to_regclass('{SCHEMA}.migrations') IS NOT NULL")
    )[0][0]:
        return {}
    return dict(
        await pipeline.rows(
            connection, f"SELECT number, checksum FROM {SCHEMA}.migrations ORDER BY number"
        )
    )


async def _run(connection: Connection, step: Migration, partitions: int) -> None:
    if step.number == 1:
        await connection.execute(
            "CREATE TABLE migrations (number integer PRIMARY KEY, name text, checksum text NOT NULL)"
        )
    else:
        partitions = await _partitions(connection)
    for statement in step.statements:
        await _made(connection, statement, partitions)
    await connection.execute(
        "INSERT INTO migrations VALUES (%s, %s, %s)", (step.number, step.name, step.checksum)
    )
    if step.number == 1:
        await _remembered(connection, "secret", secrets.token_hex(32))
        await _remembered(connection, "partitions", str(partitions))


async def _made(connection: Connection, statement: str, partitions: int) -> None:
    """Run a statement; a table that is marked so is cut into partitions by its scope."""
    if not partitions or PARTITIONED not in statement:
        await connection.execute(statement.encode())
        return
    await connection.execute(statement.replace(PARTITIONED, "PARTITION BY HASH (scope)").encode())
    table = statement.split("CREATE TABLE", 1)[1].split()[0]
    for number in range(partitions):
        rest = f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
        await connection.execute(
            f"CREATE TABLE {table}_{number} PARTITION OF {table} {rest}".encode()
        )


async def _remembered(connection: Connection, key: str, value: str) -> None:
    await connection.execute("INSERT INTO meta VALUES (%s, %s)", (key, value))


async def _partitions(connection: Connection) -> int:
    return int(
        (
            await pipeline.rows(
                connection, f"SELECT value FROM {SCHEMA}.meta WHERE key = 'partitions'"
            )
        )[0][0]
    )


async def _guard(connection: Connection) -> None:
    """Put the wall around every table with a scope, and let the role without privileges work inside it."""
    tables = await pipeline.rows(connection, _TABLES)
    for name, _, is_guarded, has_scope in tables:
        if has_scope and not is_guarded:
            await _wall(connection, sql.Identifier(SCHEMA, name))
    if await is_above(connection):
        await _let_work(
            connection, [name for name, is_partition, _, _ in tables if not is_partition]
        )


async def _wall(connection: Connection, table: sql.Identifier) -> None:
    for change in ("ENABLE", "FORCE"):  # the owner too
        await connection.execute(
            sql.SQL("ALTER TABLE {} {} ROW LEVEL SECURITY").format(table, sql.SQL(change))
        )
    for name, condition in _POLICIES.items():
        words = (sql.Identifier(name), table, sql.SQL(condition))
        await connection.execute(sql.SQL("CREATE POLICY {} ON {} USING ({})").format(*words))


async def _let_work(connection: Connection, tables: Sequence[str]) -> None:
    exists = "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL"
    await connection.execute(f"DO $$ BEGIN CREATE ROLE {ROLE} NOLOGIN; {exists}; END $$".encode())
    await connection.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}")
    await connection.execute(f"GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA {SCHEMA} TO {ROLE}")
    names = sql.SQL(", ").join(sql.Identifier(SCHEMA, name) for name in tables)
    await connection.execute(
        sql.SQL(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {{}} TO {ROLE}").format(names)
    )


async def is_above(connection: Connection) -> bool:
    """Whether whoever is logged in is not held back by row-level security."""
    sql = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user"
    return bool((await pipeline.rows(connection, sql))[0][0])


async def _may_work(connection: Connection) -> bool:
    found = await pipeline.rows(connection, "SELECT 1 FROM pg_roles WHERE rolname = $1", ROLE)
    may = f"SELECT has_table_privilege('{ROLE}', '{SCHEMA}.memories', 'SELECT')"
    return bool(found) and bool((await pipeline.rows(connection, may))[0][0])
