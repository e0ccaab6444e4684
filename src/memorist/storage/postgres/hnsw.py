"""The approximate index for very large scopes: HNSW over half-precision numbers, one for each
model.

Below `HNSW_FROM` vectors an exact scan within the scope is as fast and misses nothing.
"""

from __future__ import annotations

import hashlib

from psycopg import sql

from .connection import complete_url, connect, hide_password, translated
from .migrate import SCHEMA, search_path
from .pipeline import Connection

HNSW_FROM = 50_000
_LARGEST = 4000  # dimensions that an index over halfvec takes
_MODELS = (
    "SELECT model, dims FROM vectors WHERE dims <= %s GROUP BY model, dims "
    "HAVING count(*) >= %s ORDER BY model, dims"
)
_LEAVES = (
    "SELECT c.relname FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = 'vectors'::regclass OR "
    "EXISTS "
    "(SELECT 1 FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = "
    "'vectors'::regclass)) ORDER BY 1"
)


EXACT = (
    "SELECT v.memory, 1 - (v.embedding <=> ?) FROM vectors v WHERE v.scope = ? AND v.model = ? "
    "AND v.dims = ? "
    "ORDER BY 2 DESC, 1 LIMIT ?"
)
# The index is only found with its condition in so many words; what it gives is scored anew with
# whole numbers.
NEAR = (
    "WITH near AS MATERIALIZED (SELECT memory, embedding FROM vectors WHERE scope = ? AND model = "
    "{model} "
    "AND dims = {dims} ORDER BY (embedding::halfvec({dims})) <=> (?::vector::halfvec({dims})) "
    "LIMIT ?) "
    "SELECT memory, 1 - (embedding <=> ?) FROM near ORDER BY 2 DESC, 1 LIMIT ?"
)
SEARCH_SETTINGS = (
    "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    "set_config('hnsw.ef_search', ?, true)"
)
WIDER = 4  # as many candidates as are wanted, to be scored anew


def tail(model: str, dims: int) -> str:
    """What the index of a model is called, after its table."""
    return f"hnsw_{hashlib.sha256(f'{model}:{dims}'.encode()).hexdigest()[:16]}"


async def build(url: str, *, least: int = HNSW_FROM) -> list[str]:
    """Index every model with so many vectors, while others go on writing; gives the indexes that
    were made."""
    place = hide_password(url)
    connection = await connect(complete_url(url), place, autocommit=True)
    try:
        with translated(place):
            return await _built(connection, least)
    finally:
        await connection.close()


async def _built(connection: Connection, least: int) -> list[str]:
    await connection.execute(
        "SELECT set_config('search_path', %s, false)", (await search_path(connection),)
    )
    await connection.execute("SELECT set_config('memorist.every_scope', 'on', false)")
    await connection.execute("SET statement_timeout = 0")
    made = []
    for model, dims in await (await connection.execute(_MODELS, (_LARGEST, least))).fetchall():
        for (table,) in await (await connection.execute(_LEAVES)).fetchall():
            name = f"{table}_{tail(model, dims)}"
            if await _is_whole(connection, name):
                continue
            await connection.execute(
                sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name))
            )
            await connection.execute(_index(name, table, model, dims))
            made.append(name)
    return made


async def _is_whole(connection: Connection, name: str) -> bool:
    """An index whose building was interrupted stands there, and is of no use."""
    valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
    found = await (await connection.execute(valid, (f"{SCHEMA}.{name}",))).fetchall()
    return bool(found) and bool(found[0][0])


def _index(name: str, table: str, model: str, dims: int) -> sql.Composed:
    words = (
        sql.Identifier(name),
        sql.Identifier(table),
        sql.Literal(dims),
        sql.Literal(model),
        sql.Literal(dims),
    )
    return sql.SQL(
        "CREATE INDEX CONCURRENTLY {} ON {} USING hnsw ((embedding::halfvec({})) "
        "halfvec_cosine_ops) "
        "WHERE model = {} AND dims = {}"
    ).format(*words)
