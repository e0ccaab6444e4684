"""Keeping a vector index in step with the store, without either of them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memorist.errors import IndexUnavailable, StoreUnavailable
from memorist.jobs.vectors import IndexSync
from memorist.types import Scope

ANA = Scope(user="ana")


class Index:
    """An index that only counts."""

    name = "counting"

    def __init__(self) -> None:
        self.searched = self.closed = 0

    async def nearest(self, scope: Scope, vector: Any, *, limit: int) -> list[int]:
        self.searched += 1
        raise IndexUnavailable("it is down")

    async def close(self) -> None:
        self.closed += 1


class Unavailable:
    """A store that cannot be reached."""

    @property
    def database(self) -> Unavailable:
        return self

    @asynccontextmanager
    async def try_lock(self, name: str) -> Any:
        raise StoreUnavailable
        yield


def sync_of(index: Index) -> IndexSync:
    made: Any = IndexSync
    return made(Unavailable(), index, model="m", dimensions=2)


async def test_a_copy_that_failed_in_the_background_does_not_keep_the_index_open() -> None:
    index = Index()
    sync = sync_of(index)
    sync.notify(ANA)
    await asyncio.sleep(0)
    await sync.close()
    assert index.closed == 1


async def test_an_index_that_failed_is_not_asked_again_at_once() -> None:
    index = Index()
    sync = sync_of(index)
    for _ in range(3):
        with pytest.raises(IndexUnavailable, match="it is down"):
            await sync.nearest(ANA, [], limit=1, revision=-1)
    assert index.searched == 1
