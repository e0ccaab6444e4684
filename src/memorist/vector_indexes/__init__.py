"""Vector indexes outside the process, and what their adapters share.

An index holds vectors and metadata, never words. Collections of different databases or models do
not mix: both are in the collection's name. The scope is stored as a digest, so that it does not
matter how a product compares names: Weaviate ignores leading and trailing blanks, and Chroma
answers twice as fast with one condition as with three.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
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
_LARGEST_ROW = 2**63 - 1

Item = TypeVar("Item")


def open_index(
    spec: str,
    *,
    model: str,
    dimensions: int,
    store: str,
) -> VectorIndex:
    """Return the index that a setting names, such as `chroma:FOLDER` or
    `weaviate:http://HOST:8080`. It connects on first use.

    Raises Misconfigured for anything else, and if the library is missing.
    """
    product, _, place = spec.partition(":")
    if not re.match("chroma:.|weaviate:https?://", spec, re.DOTALL):
        known = "chroma:FOLDER, chroma:http://HOST:8000 or weaviate:http://HOST:8080"
        raise Misconfigured(f"{spec!r} is not a vector index. Use {known}")
    if find_spec("chromadb" if product == "chroma" else product) is None:
        raise Misconfigured(f'The vector index needs a library: pip install "memorist[{product}]"')
    name = collection_name(store, model, dimensions)
    if product == "chroma":
        from .chroma import Chroma

        return Chroma(place, name)
    from .weaviate import Weaviate

    return Weaviate(place, name, api_key=environ.get("WEAVIATE_API_KEY"))


@asynccontextmanager
async def request(library: str, name: str, seconds: float) -> AsyncIterator[None]:
    """Raise IndexUnavailable if anything fails in the body, or takes too long.

    The library is large: it is imported first, without blocking the event loop.
    """
    if library not in sys.modules:
        await asyncio.to_thread(import_module, library)
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
    """Return a name that both products accept, unique for each database and model.

    >>> collection_name("notes", "minilm", 384)
    'Memorist_notes_9c9f5b7db79f6a04'
    """
    readable = re.sub(r"[^0-9A-Za-z]+", "", store)[:20] or "db"
    return f"Memorist_{readable}_{_digest(store, model, str(dimensions))}"


def old_name(collection: str) -> str:
    """Return the name that version 0.1 gave a collection.

    >>> old_name("Memorist_notes_9c9f5b7db79f6a04")
    'Recollect_notes_9c9f5b7db79f6a04'
    """
    return collection.replace("Memorist", "Recollect", 1)


def marks(scope: Scope, entry: IndexEntry) -> dict[str, str | float | bool]:
    """Return the metadata that an index stores with a vector."""
    return {
        **entry.about,
        "tenant": scope.tenant,
        "user_id": scope.user,
        "space": scope.space,
        "scope": scope_mark(scope),
    }


def scope_mark(scope: Scope) -> str:
    """Return the digest of a scope, by which every query is filtered."""
    return _digest(scope.tenant, scope.user, scope.space)


def batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items in batches, one for each request."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def own_rows(numbers: Iterable[int]) -> list[int]:
    """Return the numbers that can be rows; other entries of an index are not ours."""
    return [number for number in numbers if 0 < number <= _LARGEST_ROW]


def without_secrets(place: str) -> str:
    """Return an address without credentials and query, to show and to store.

    >>> without_secrets("http://ana:secret@host:8000?grpc=50051")
    'http://host:8000'
    """
    at = urlsplit(place)
    return f"{at.scheme}://{at.netloc.rpartition('@')[2]}" if at.netloc else place


def _digest(*parts: str) -> str:
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(whole.encode(), digest_size=8).hexdigest()
