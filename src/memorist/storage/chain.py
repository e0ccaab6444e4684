"""The history as a chain: each entry is sealed with the one before, so that none is altered, lost or moved unnoticed.

The payload of an entry has a seal of its own, and the chain holds the seal. Forgetting can therefore empty the payload
and leave the chain whole: what stays shows that something happened, when and by whom, and not what it said.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

EMPTY = "{}"
COLUMNS = (
    "id, memory_id, event, old_ref, new_ref, actor, ts"  # of an entry, as the chain covers them
)


def sealed(secret: bytes, meta: str) -> str:
    """The seal of a payload; it does not depend on how an engine lays out its JSON."""
    plain = json.dumps(json.loads(meta, parse_int=float), sort_keys=True)
    return _digest(secret, plain)


def linked(secret: bytes, before: str | None, entry: Sequence[Any], seal: str) -> str:
    """The digest of an entry (the values of `COLUMNS`) with the digest of the one before."""
    return _digest(secret, repr((before, *entry, seal)))


def broken(
    secret: bytes, rows: Iterable[Sequence[Any]], before: str | None, erased: Mapping[str, int]
) -> list[str]:
    """What is wrong with entries that follow each other, given the digest before the first.

    A row is its number, its digest, its seal, its payload, whether the memories it names are all there, and the values
    of `COLUMNS`. `erased` says in which row a memory was last erased: until then its payloads may be empty.
    """
    found = []
    for number, digest, seal, meta, is_kept, *entry in rows:
        if digest is None and before is None:  # from before there was a chain
            continue
        name = f"Entry {entry[0]} of the history"
        if digest != linked(secret, before, entry, seal):
            found.append(
                f"{name} was altered, or one before it is missing or was moved: restore a backup"
            )
        elif not _holds(secret, meta, seal) and not (
            meta == EMPTY
            and (
                not is_kept
                or any(erased.get(id or "", -1) >= number for id in (entry[1], entry[3]))
            )
        ):
            found.append(f"{name} says something else than it did: restore a backup")
        before = digest
    return found


def _holds(secret: bytes, meta: str, seal: str) -> bool:
    try:
        return sealed(secret, meta) == seal
    except (ValueError, TypeError):  # it is not even JSON any more
        return False


def _digest(secret: bytes, text: str) -> str:
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), key=secret[:64], digest_size=16
    ).hexdigest()
