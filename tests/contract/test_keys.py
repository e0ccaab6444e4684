"""What every store promises about who may come in, and about requests that are made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from memorist.storage.accounts import Key
from memorist.storage.store import Store

Tamper = Callable[..., Awaitable[list[Any]]]
NOW = datetime(2026, 5, 31, 14, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
KEY = Key(
    id="k1",
    name="laptop",
    user="ana",
    space="work",
    agent="coder",
    rights=("read",),
    created_at=NOW,
)


async def test_a_key_is_found_by_its_secret_alone(store: Store) -> None:
    await store.keys.add(KEY, "s3cret")
    assert await store.keys.get("k1", "s3cret") == KEY
    assert await store.keys.get("k1", "other") is None
    assert await store.keys.get("k2", "s3cret") is None
    assert await store.keys.list() == [KEY]


async def test_a_revoked_key_is_no_good_and_stays_listed(store: Store) -> None:
    await store.keys.add(KEY, "s3cret")
    assert await store.keys.revoke("k1", NOW)
    assert not await store.keys.revoke("k1", NOW)
    assert not await store.keys.revoke("k2", NOW)
    (kept,) = await store.keys.list()
    assert not kept.is_good(NOW)
    assert KEY.is_good(NOW)


async def test_keys_are_revoked_with_the_key_that_made_them(store: Store) -> None:
    made = replace(KEY, id="k2", made_by="k1")
    of_that = replace(KEY, id="k3", made_by="k2")
    other = replace(KEY, id="k4", made_by="local")
    for key in (KEY, made, of_that, other):
        await store.keys.add(key, f"secret of {key.id}")
    assert await store.keys.list() == [KEY, made, of_that, other]
    assert await store.keys.revoke("k1", NOW)
    assert [key.id for key in await store.keys.list() if key.is_good(NOW)] == ["k4"]


async def begin(store: Store, request: str = "r1", caller: str = "k1") -> str | None:
    return await store.requests.begin(caller, "once", request, at=NOW, since=LONG_AGO)


async def test_a_request_is_answered_once(store: Store) -> None:
    assert await begin(store) is None
    assert await begin(store) == "pending"
    await store.requests.end("k1", "once", '{"ids": ["m1"]}', begun=NOW)
    assert await begin(store) == '{"ids": ["m1"]}'
    assert await begin(store, "another") == ""
    assert await begin(store, caller="k2") is None


async def test_a_request_that_failed_can_be_made_again(store: Store) -> None:
    assert await begin(store) is None
    await store.requests.end("k1", "once", None, begun=NOW)
    assert await begin(store) is None


async def test_an_old_request_is_let_go_of(store: Store) -> None:
    await begin(store)
    assert (
        await store.requests.begin("k1", "once", "r1", at=NOW, since=NOW + timedelta(seconds=1))
        is None
    )


async def test_of_many_at_once_one_is_first(store: Store) -> None:
    asked = await asyncio.gather(*(begin(store) for _ in range(12)))
    assert sorted(map(str, asked)) == ["None"] + ["pending"] * 11


async def test_a_request_whose_server_died_can_be_made_again_after_a_while(store: Store) -> None:
    assert await begin(store) is None
    later = NOW + timedelta(minutes=6)
    assert await store.requests.begin("k1", "once", "r1", at=later, since=LONG_AGO) is None
    assert await store.requests.begin("k1", "once", "r1", at=later, since=LONG_AGO) == "pending"


async def test_who_was_taken_for_gone_ends_nothing_that_another_began(store: Store) -> None:
    later = NOW + timedelta(minutes=6)
    assert await begin(store) is None
    assert await store.requests.begin("k1", "once", "r1", at=later, since=LONG_AGO) is None
    for late in (None, '{"ids": ["m1"]}'):
        await store.requests.end("k1", "once", late, begun=NOW)
        assert await store.requests.begin("k1", "once", "r1", at=later, since=LONG_AGO) == "pending"
    await store.requests.end("k1", "once", '{"ids": ["m2"]}', begun=later)
    assert (
        await store.requests.begin("k1", "once", "r1", at=later, since=LONG_AGO)
        == '{"ids": ["m2"]}'
    )


async def test_of_a_request_nothing_is_kept_that_a_guess_could_be_tested_against(
    store: Store, tamper: Tamper
) -> None:
    await begin(store, "my password is swordfish")
    ((kept,),) = await tamper("SELECT request FROM answered")
    assert kept not in ("my password is swordfish", sha256(b"my password is swordfish").hexdigest())
