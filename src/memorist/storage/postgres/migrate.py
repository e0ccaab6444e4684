"""Migrate the schema on PostgreSQL: tables, partitions, row-level security and privileges.

Everything is in the schema `memorist`, so a database can be shared with other programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any

from psycopg import errors, sql

from ...errors import InvalidInput, Misconfigured
from ..database import Migration, missing_migrations, plan, shipped_migrations
from . import pipeline
from .connection import hide_password, limit_wait, open_connection
from .pipeline import Connection

SCHEMA = "memorist"
_OLD_SCHEMA = "recollect"  # of version 0.1; step 10 renames it
# May read and write rows and, unlike superusers, does not bypass row-level security.
ROLE = "memorist_app"
PARTITIONED = "/* by scope */"
_LOCK = 0x5EC0_11EC  # held while migrating
_OLDEST = 150000
HNSW_FROM = 50_000  # vectors; for fewer, an exact scan of the scope is as fast and more accurate
_LARGEST = 4000  # dimensions that an index over halfvec supports
_MODELS = """SELECT model, dims FROM vectors WHERE dims <= ? GROUP BY model, dims
HAVING count(*) >= ? ORDER BY model, dims"""
_LEAVES = """SELECT c.relname FROM pg_class c WHERE c.relkind = 'r'
AND (c.oid = 'vectors'::regclass OR EXISTS (SELECT 1 FROM pg_inherits i
WHERE i.inhrelid = c.oid AND i.inhparent = 'vectors'::regclass)) ORDER BY 1"""
_IS_OLD = """SELECT count(*) FILTER (WHERE nspname = $1) = 0
AND count(*) FILTER (WHERE nspname = $2) = 3
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (nspname = $1 AND relname = 'migrations')
OR (nspname = $2 AND relname IN ('migrations', 'memories', 'meta'))"""
_INDEX = """CREATE INDEX CONCURRENTLY {} ON {}
USING hnsw ((embedding::halfvec({})) halfvec_cosine_ops) WHERE model = {} AND dims = {}"""


migrations = partial(shipped_migrations, __package__)


async def migrate(
    url: str, steps: Sequence[Migration] = (), *, partitions: int | None = None
) -> list[int]:
    """Migrate the database to the newest schema, in one transaction; return the steps that were
    applied.

    Any number of servers may call it at once; only one migrates. Raises MigrationNeeded for a
    database of a newer version, StoreDamaged for an altered one, InvalidInput for another number of
    partitions than an existing database has.
    """
    place = hide_password(url)
    steps = steps or migrations()
    async with open_connection(url, autocommit=False) as connection:
        async with limit_wait(place):
            if partitions is None and await is_done(connection, steps, place):
                return []
        await connection.execute("SET LOCAL statement_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        made = await make_steps(connection, steps, place, partitions)
        await connection.commit()
        return made


async def is_done(connection: Connection, steps: Sequence[Migration], place: str) -> bool:
    """Return whether there is nothing to migrate. Raises Misconfigured if the server is
    unsuitable."""
    if connection.info.server_version < _OLDEST:
        raise Misconfigured(f"{place} is older than PostgreSQL 15: upgrade the server")
    if await _value(connection, "SHOW server_encoding") != "UTF8":
        raise Misconfigured(
            f"{place} cannot store every text: create a database with ENCODING 'UTF8'"
        )
    if await _find_schema(connection) != SCHEMA:
        return False  # without reading it: another process may be renaming it
    if missing_migrations(await _done(connection, SCHEMA), steps, place):
        return False
    if not await is_above(connection):
        return True
    may = f"""SELECT coalesce(has_table_privilege(oid, '{SCHEMA}.memories', 'SELECT'), false)
    FROM pg_roles WHERE rolname = ?"""
    return bool(await _value(connection, may, ROLE))


async def make_steps(
    connection: Connection, steps: Sequence[Migration], place: str, partitions: int | None
) -> list[int]:
    schema = await _find_schema(connection)
    done = await _done(connection, schema)
    count = partitions or 0
    if done:
        sql = f"SELECT value FROM {schema}.meta WHERE key = 'partitions'"
        count = int(await _value(connection, sql))
    if partitions is not None and partitions != count:
        raise InvalidInput(
            f"The partitions of {place} cannot be changed: migrate a new database with "
            "--partitions, and `memorist db copy` into it"
        )
    missing = missing_migrations(done, steps, place)
    if missing:
        await install_extension(connection, schema, place)
    for statement, values in plan(missing, partitions=str(count)):
        if count and PARTITIONED in statement:
            await create_partitioned(connection, statement, count)
        else:
            await pipeline.rows(connection, statement, *values)
    guard = resources.files(__package__).joinpath("guard.sql").read_bytes()
    await connection.execute(guard)
    return [step.number for step in missing]


async def _find_schema(connection: Connection) -> str:
    """Return the schema that has our tables: that of version 0.1 until step 10 has renamed it.

    A schema with the old name that lacks one of the tables belongs to another program.
    """
    is_old = await _value(connection, _IS_OLD, SCHEMA, _OLD_SCHEMA)
    return _OLD_SCHEMA if is_old else SCHEMA


async def install_extension(connection: Connection, schema: str, place: str) -> None:
    unavailable = (
        errors.InsufficientPrivilege,
        errors.UndefinedFile,
        errors.FeatureNotSupported,
    )
    try:
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except unavailable as error:
        raise Misconfigured(
            f"{place} has no pgvector: install it on the server, and run CREATE EXTENSION vector "
            "as an administrator"
        ) from error
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    path = await search_path(connection, schema)
    await connection.execute("SELECT set_config('search_path', %s, true)", (path,))


async def search_path(connection: Connection, schema: str = SCHEMA) -> str:
    """Return a search path of our schema and the one of pgvector."""
    sql = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'"
    return f"{schema}, {await _value(connection, sql) or 'public'}"


async def _done(connection: Connection, schema: str) -> dict[int, str]:
    exists = f"SELECT to_regclass('{schema}.migrations') IS NOT NULL"
    if not await _value(connection, exists):
        return {}
    done = f"SELECT number, checksum FROM {schema}.migrations ORDER BY number"
    return dict(await pipeline.rows(connection, done))


async def _value(connection: Connection, sql: str, *values: object) -> Any:
    """Return the first value of a statement's result, or None."""
    found = await pipeline.rows(connection, sql, *values)
    return found[0][0] if found else None


async def create_partitioned(connection: Connection, statement: str, partitions: int) -> None:
    """Create a table that is partitioned by scope."""
    await connection.execute(statement.replace(PARTITIONED, "PARTITION BY HASH (scope)").encode())
    table = statement.split("CREATE TABLE", 1)[1].split()[0]
    for number in range(partitions):
        part = f"CREATE TABLE {table}_{number} PARTITION OF {table}"
        rest = f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
        await connection.execute(f"{part} {rest}".encode())


async def is_above(connection: Connection) -> bool:
    """Return whether the role that is logged in bypasses row-level security."""
    above = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user"
    return bool(await _value(connection, above))


async def build_indexes(url: str, *, least: int = HNSW_FROM) -> list[str]:
    """Index every model with at least `least` vectors, without blocking writes; return the names
    of the new indexes.

    They are for very large scopes: HNSW over half-precision numbers, one for each model.
    """
    made = []
    async with open_connection(url) as connection:
        path = await search_path(connection)
        await connection.execute("SELECT set_config('search_path', %s, false)", (path,))
        await connection.execute("SELECT set_config('memorist.every_scope', 'on', false)")
        await connection.execute("SET statement_timeout = 0")
        leaves = await pipeline.rows(connection, _LEAVES)
        for model, dims in await pipeline.rows(connection, _MODELS, _LARGEST, least):
            tail = hashlib.sha256(f"{model}:{dims}".encode()).hexdigest()[:16]
            for (table,) in leaves:
                name = f"{table}_hnsw_{tail}"
                valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(?)"
                if await _value(connection, valid, f"{SCHEMA}.{name}"):
                    continue
                # An interrupted build leaves an invalid index behind.
                index = sql.Identifier(name)
                drop = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}")
                await connection.execute(drop.format(index))
                of = (sql.Literal(dims), sql.Literal(model), sql.Literal(dims))
                create = sql.SQL(_INDEX).format(index, sql.Identifier(table), *of)
                await connection.execute(create)
                made.append(name)
    return made
