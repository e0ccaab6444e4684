"""Vector indexes outside the process, and what the adapters to them share.

An index holds vectors and marks, never words. Collections of different databases or models do not mix: both are in the
collection's name. The scope is one mark of its own, a digest, so that no product's reading of names matters: Weaviate
compares texts without their outer blanks, and Chroma answers twice as fast with one condition as with three.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from os import environ
from typing import TypeVar
from urllib.parse import urlsplit

from ..errors import IndexUnavailable, Misconfigured
from ..ports import IndexEntry, VectorIndex
from ..types import Scope

WAIT = 5.0  # seconds that one request may take
BATCH = 256  # entries in one request
LARGEST_ROW = 2**63 - 1

Item = TypeVar("Item")


def opened(spec: str, *, model: str, dimensions: int, store: str) -> VectorIndex:
    """The index that a setting names, such as `chroma:FOLDER` or `weaviate:http://HOST:8080`; it connects when used.

    Raises Misconfigured for anything else, and where the library is missing.
    """
    product, _, place = spec.partition(":")
    if product == "chroma" and place:
        _need("chromadb", extra="chroma")
        from .chroma import Chroma

        return Chroma(place, model=model, dimensions=dimensions, store=store)
    if product == "weaviate" and place.startswith(("http://", "https://")):
        _need("weaviate", extra="weaviate")
        from .weaviate import Weaviate

        key = environ.get("WEAVIATE_API_KEY")
        return Weaviate(place, model=model, dimensions=dimensions, store=store, api_key=key)
    raise Misconfigured(
        f"{spec!r} names no vector index: chroma:FOLDER, chroma:http://HOST:8000 or weaviate:http://HOST:8080"
    )


def _need(module: str, *, extra: str) -> None:
    if find_spec(module) is None:
        raise Misconfigured(f'The vector index needs a library: pip install "memorist[{extra}]"')


async def loaded(module: str) -> None:
    """Import a large library without holding up the event loop."""
    if module not in sys.modules:
        await asyncio.to_thread(import_module, module)


@asynccontextmanager
async def answered(name: str, seconds: float) -> AsyncIterator[None]:
    """Whatever goes wrong inside, or takes too long, becomes IndexUnavailable."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise IndexUnavailable(f"{name} did not answer within {seconds:g} seconds") from error
    except Exception as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise IndexUnavailable(
            f"{name} failed: {said}. If this lasts, run `memorist index rebuild`"
        ) from error


def collection_name(store: str, model: str, dimensions: int) -> str:
    """A name that both products accept, another one for each database and model.

    >>> collection_name("notes", "minilm", 384)
    'Memorist_notes_9c9f5b7db79f6a04'
    """
    readable = re.sub(r"[^0-9A-Za-z]+", "", store)[:20] or "db"
    return f"Memorist_{readable}_{_digest(store, model, str(dimensions))}"


def old_name(collection: str) -> str:
    """Return what version 0.1 called a collection.

    >>> old_name("Memorist_notes_9c9f5b7db79f6a04")
    'Recollect_notes_9c9f5b7db79f6a04'
    """
    return collection.replace("Memorist", "Recollect", 1)


def marks(scope: Scope, entry: IndexEntry) -> dict[str, str | float | bool]:
    """What an index keeps beside a vector."""
    wall = {
        "tenant": scope.tenant,
        "user_id": scope.user,
        "space": scope.space,
        "scope": scope_mark(scope),
    }
    return {**entry.about, **wall}


def scope_mark(scope: Scope) -> str:
    """What every question is filtered by."""
    return _digest(scope.tenant, scope.user, scope.space)


def batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items in portions that one request can carry."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def without_secrets(place: str) -> str:
    """A place as it may be shown and remembered.

    >>> without_secrets("http://ana:secret@host:8000?grpc=50051")
    'http://host:8000'
    """
    at = urlsplit(place)
    return f"{at.scheme}://{at.netloc.rpartition('@')[2]}" if at.netloc else place


def _digest(*parts: str) -> str:
    return blake2b(
        "".join(f"{len(part)}:{part}" for part in parts).encode(), digest_size=8
    ).hexdigest()
