"""The commands for a memory that many processes share: its schema and its workers."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import InvalidInput
from .cli_app import Call, command

CLUSTER = "Cluster"


@command(CLUSTER, example="recollect migrate --db postgresql://db.example/memories --partitions 16", writes=True)
def migrate(
    call: Call,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", min=1, max=1024, help="Cut a new PostgreSQL database into N parts."),
    ] = None,
    hnsw: Annotated[
        bool, typer.Option("--hnsw", help="Build the index for scopes with very many vectors, while others go on.")
    ] = False,
) -> None:
    """Bring the database to the schema of this version, as opening it does, and shape it for its size."""
    import asyncio

    from ..settings import load
    from . import show

    place = load(db=call.db).db
    if place.startswith(("postgresql://", "postgres://")):
        made = asyncio.run(_postgres(place, partitions, hnsw))
    elif partitions is not None or hnsw:
        raise InvalidInput("Partitions and HNSW are of PostgreSQL: name a database with --db postgresql://…")
    else:
        with call.memory():
            made = {"steps": [], "indexes": []}
    if call.json:
        show.as_json(made)
    else:
        steps, indexes = (", ".join(map(str, made[name])) or "none" for name in ("steps", "indexes"))
        show.line(f"schema steps made: {steps}; indexes made: {indexes}")


async def _postgres(place: str, partitions: int | None, hnsw: bool) -> dict[str, list[object]]:
    from ..compose import needs_postgres

    with needs_postgres():
        from ..storage.postgres import hnsw as indexes
        from ..storage.postgres.migrate import migrate
    steps = await migrate(place, partitions=partitions)
    return {"steps": [*steps], "indexes": [*await indexes.build(place)] if hnsw else []}


@command(CLUSTER, example="recollect worker --once", writes=True)
def worker(
    call: Call,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is left to do.")] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, max=1024, help="Memories embedded together.")
    ] = 32,
) -> None:
    """Embed what comes without a vector and `purge` once an hour, until told to stop; any number share the work."""
    import asyncio

    from . import show

    done = asyncio.run(_work(call.db, once=once, batch_size=batch_size))
    show.as_json({"embedded": done}) if call.json else show.line(f"{done} embedded")


async def _work(db: str | None, *, once: bool, batch_size: int) -> int:
    import asyncio

    import recollect

    from ..lifecycle.worker import work

    stop = asyncio.Event()
    _on_signals(stop.set)
    async with recollect.aio.open(db) as memory:
        if memory.embedder is None:
            raise InvalidInput("There is no embedding model to work with: set `embedder` to minilm")
        return await work(memory.store, memory.embedder, stop=stop, once=once, batch_size=batch_size, tend=memory.purge)


def _on_signals(stop: object) -> None:
    """Finish what is under way at SIGTERM and Ctrl-C, instead of dropping it."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)  # type: ignore[arg-type]
        except NotImplementedError:  # on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))  # type: ignore[arg-type]
