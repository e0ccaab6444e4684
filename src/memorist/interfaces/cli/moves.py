"""The commands that move a memory: into another store, or under another model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ...errors import InvalidInput
from .app import Call, command

MOVES = "Moving"


@command(MOVES, example="memorist copy memory.db postgresql://db.example/memories")
def copy(
    call: Call,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A file, postgresql://… or an archive.jsonl.", show_default=False
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="A new file, database or archive.jsonl.", show_default=False
        ),
    ],
) -> None:
    """Copy a whole memory into a new store of any kind, with its history, and compare both when it is done.

    What was interrupted goes on where it stopped: run the same command again. A name that ends in .jsonl is a text
    file that holds everything, for keeping or for another machine; it also holds the key of the digests.
    """
    import asyncio

    from ... import bootstrap
    from . import output

    with output.progress("Copying", None, hidden=call.json) as advance:
        done = asyncio.run(bootstrap.copied(source, target, progress=advance))
    if call.json:
        output.as_json(asdict(done))
    else:
        memories = done.tables.get("memories", 0)
        output.line(
            f"{done.rows} rows copied; {memories} memories and all that belongs to them are equal on both sides"
        )


@command(MOVES, example="memorist reembed --model minilm")
def reembed(
    call: Call,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="minilm or hashing.", show_default=False)
    ],
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, help="Embedded together.")
    ] = 32,
    drop: Annotated[
        bool,
        typer.Option(
            "--drop-others", help="Then delete the vectors of other models, once nobody uses them."
        ),
    ] = False,
) -> None:
    """Give every memory a vector of another model, while others go on with the old one.

    Recall uses it once the setting `embedder` names it. What was interrupted goes on where it stopped.
    """
    import memorist

    from . import output

    if model not in ("minilm", "hashing") and not model.startswith("openai"):
        raise InvalidInput(
            f"{model!r} is no embedding model of Memorist: choose minilm, hashing or openai:MODEL"
        )
    with call.memory():  # says so where there is none
        pass
    with memorist.open(call.db, embedder=model) as memory:
        with output.progress(
            "Embedding", memory.stats()["without_embeddings"], hidden=call.json
        ) as advance:
            done = memory.index(batch_size=batch_size, progress=advance)
        dropped = memory.drop_vectors() if drop else 0
        counts = memory.stats()
    if call.json:
        output.as_json(
            {**asdict(done), "dropped": dropped, "without_embeddings": counts["without_embeddings"]}
        )
        return
    output.line(
        f"{done.embedded} embedded by {counts['model']}, {counts['without_embeddings']} left, {dropped} dropped"
    )
    output.note(f"To recall with it, set MEMORIST_EMBEDDER={model}.")
