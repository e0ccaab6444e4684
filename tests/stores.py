"""Opening stores for tests without the rest of a client, and writing all sorts of things to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from memorist.storage import SeenMessage, person, tasks
from memorist.storage.person import Summary
from memorist.storage.sqlite import SqliteDatabase
from memorist.storage.store import MemoryAccess, Store, record_access
from memorist.storage.tasks import Embedding, NewTask, Task
from memorist.storage.transaction import Transaction
from memorist.types import Scope

Call = Callable[[Transaction], Awaitable[None]]


async def open_sqlite(path: str | Path, *, language: str = "english") -> Store:
    return await Store.open(await SqliteDatabase.open(path), language=language)


async def open_postgres(url: str, *, language: str = "english") -> Store:
    from memorist.storage.postgres import PostgresDatabase

    return await Store.open(await PostgresDatabase.open(url), language=language)


async def write(store: Store, scope: Scope, *values: Any) -> None:
    """Write changes, and other values by the call that stores them, in one transaction."""
    async with store.transaction(scope) as tx:
        await write_in(tx, *values)


async def write_in(tx: Transaction, *values: Any) -> None:
    """Do the same in a transaction that is open."""
    calls: dict[type, Callable[[Any], Awaitable[None]]] = {
        SeenMessage: lambda each: tx.save_messages([each]),
        Embedding: lambda each: tasks.save_embeddings(tx, [each]),
        MemoryAccess: lambda each: record_access(tx, [each]),
        NewTask: partial(tasks.add, tx),
        Summary: partial(person.save_summary, tx),
    }
    others = [each for each in values if type(each) in calls or callable(each)]
    await tx.apply([each for each in values if each not in others])
    for each in others:
        await (each(tx) if callable(each) else calls[type(each)](each))


def done(task: Task, **given: Any) -> Call:
    return lambda tx: tasks.finish(tx, task, **given)


def tombstones(*texts: str, until: Any) -> Call:
    return lambda tx: tx.add_tombstones(texts, until)


def setting(name: str, value: bool, **given: Any) -> Call:
    return lambda tx: person.save_setting(tx, name, value, **given)


def incognito(session: str, is_on: bool, **given: Any) -> Call:
    return lambda tx: person.set_incognito(tx, session, is_on, **given)


def decided(proposal: Any, decision: str, **given: Any) -> Call:
    return lambda tx: person.decide_proposal(tx, proposal, decision, **given)
