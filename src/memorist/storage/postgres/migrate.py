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
_OLD_SCHEMA = "recollect"  # of version 0.1; step 10 renames it
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
_IS_OLD = (
    "SELECT count(*) FILTER (WHERE nspname = $1) = 0 AND count(*) FILTER (WHERE nspname = $2) = 3 "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
    "(nspname = $1 AND relname = 'migrations') "
    "OR (nspname = $2 AND relname IN ('migrations', 'memories', 'meta'))"
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
    if await _find_schema(connection) != SCHEMA:
        return False  # and not read: another process may be renaming it
    if migrations.missing(await _done(connection, SCHEMA), steps, place):
        return False
    return not await is_above(connection) or await _may_work(connection)


async def _migrated(
    connection: Connection, steps: Sequence[Migration], place: str, partitions: int | None
) -> list[int]:
    schema = await _find_schema(connection)
    done = await _done(connection, schema)
    count = await _partitions(connection, schema) if done else partitions or 0
    if partitions is not None and partitions != count:
        raise InvalidInput(
            f"{place} is in use, and its partitions stay as they are: migrate a new database with --partitions, "
            "and `memorist db copy` into it"
        )
    missing = migrations.missing(done, steps, place)
    if missing:
        await _install(connection, schema, place)
    for step in missing:
        await _run(connection, step, count)
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


async def _find_schema(connection: Connection) -> str:
    """Return the schema that holds our tables: that of version 0.1 until step 10 has renamed it.

    A schema of the old name that lacks one of the tables belongs to another program.
    """
    is_old = (await pipeline.rows(connection, _IS_OLD, SCHEMA, _OLD_SCHEMA))[0][0]
    return _OLD_SCHEMA if is_old else SCHEMA


async def _install(connection: Connection, schema: str, place: str) -> None:
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
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    path = await search_path(connection, schema)
    await connection.execute("SELECT set_config('search_path', %s, true)", (path,))


async def search_path(connection: Connection, schema: str = SCHEMA) -> str:
    """Our tables first, then wherever somebody put pgvector."""
    found = await pipeline.rows(
        connection,
        "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'",
    )
    return f"{schema}, {found[0][0] if found else 'public'}"


async def _done(connection: Connection, schema: str) -> dict[int, str]:
    exists = f"SELECT to_regclass('{schema}.migrations') IS NOT NULL"
    if not (await pipeline.rows(connection, exists))[0][0]:
        return {}
    done = f"SELECT number, checksum FROM {schema}.migrations ORDER BY number"
    return dict(await pipeline.rows(connection, done))


async def _run(connection: Connection, step: Migration, partitions: int) -> None:
    if step.number == 1:
        await connection.execute(
            "CREATE TABLE migrations (number integer PRIMARY KEY, name text, checksum text NOT NULL)"
        )
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


async def _partitions(connection: Connection, schema: str) -> int:
    count = f"SELECT value FROM {schema}.meta WHERE key = 'partitions'"
    return int((await pipeline.rows(connection, count))[0][0])


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
