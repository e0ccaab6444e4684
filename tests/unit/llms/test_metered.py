"""What a language model may cost, on both engines, with a real client and a server that counts for itself."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llm_server import Server
from memorist import aio, llms
from memorist.client import Client
from memorist.errors import MemoristError, Misconfigured, OverBudget
from memorist.settings import load
from memorist.text.prompts import Prompt
from memorist.types import Scope

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
ASK = Prompt(
    task="extract", system="Count.", user="One, two, three: " * 20, schema=SCHEMA, max_tokens=50
)
ANA, BEN, EVA = (
    Scope(tenant="t", user=user, space=space)
    for user, space in [("ana", "s"), ("ana", "other"), ("eva", "s")]
)
MOST = llms.TRIES * sum(llms.max_cost(ASK))


@asynccontextmanager
async def opened(place: str | Path, server: Server, **settings: Any) -> AsyncIterator[Client]:
    server.answer = lambda request: {"n": 3}
    told = {
        "embedder": "none",
        "spool": False,
        "llm": "openai:m",
        "llm_url": f"{server.url}/v1",
        **settings,
    }
    async with aio.open(place, **told) as engine:
        yield engine


async def ask(engine: Client, scope: Scope = ANA, question: Prompt = ASK) -> str:
    """What became of a question."""
    assert engine.ctx.llm is not None
    try:
        assert await engine.ctx.llm.answer(scope, question) == {"n": 3}
    except MemoristError as error:
        return type(error).__name__
    return "answered"


async def spent(engine: Client, *users: str) -> int:
    found = await engine.llm_usage()
    return sum(
        each.tokens_in + each.tokens_out + each.reserved
        for each in found
        if each.scope.user in users
    )


async def test_what_an_answer_cost_is_in_the_ledger_of_whoever_it_was_for(
    place: str, llm_server: Server
) -> None:
    llm_server.usage = (100, 7)
    async with opened(place, llm_server) as engine:
        assert [await ask(engine), await ask(engine), await ask(engine, EVA)] == ["answered"] * 3
        (row,) = await engine.scope("ana", "s", "t").llm_usage()
        assert (row.task, row.model, row.calls, row.tokens_in, row.tokens_out) == (
            "extract",
            "openai:m",
            2,
            200,
            14,
        )
        assert (row.scope, row.reserved) == (ANA, 0)
        assert await spent(engine, "ana", "eva") == 321


@pytest.mark.parametrize("who", ["user", "tenant"])
async def test_no_token_is_spent_beyond_a_cap_by_eight_callers_through_two_engines(
    place: str, llm_server: Server, who: str
) -> None:
    cap = 8 * MOST
    treated = ("right", "right", "wrong shape", "fenced", "thinking", "right", "cut")
    llm_server.behaviour = lambda request: treated[len(llm_server.requests) % len(treated)]
    llm_server.then("right", "closing", "right", "500")
    caps = {
        "llm_daily_tokens_per_user": cap if who == "user" else 0,
        "llm_daily_tokens_per_tenant": cap if who == "tenant" else 0,
    }

    async def keep_asking(engine: Client, scope: Scope) -> Counter[str]:
        return Counter([await ask(engine, scope) for _ in range(20)])

    async with opened(place, llm_server, **caps) as one, opened(place, llm_server, **caps) as other:
        scopes = [ANA, BEN] if who == "user" else [ANA, EVA]
        callers = [
            keep_asking(engine, scope)
            for engine in (one, other)
            for scope in scopes
            for _ in range(2)
        ]
        outcomes = sum(await asyncio.gather(*callers), Counter[str]())
        assert llm_server.tokens_in + llm_server.tokens_out <= await spent(one, "ana", "eva") <= cap
        assert not any(each.reserved for each in await one.llm_usage())
        assert outcomes["answered"] > 8  # what a call did not need was given back
        assert outcomes["OverBudget"] > 0
        assert outcomes.total() == 160


async def test_a_cap_of_one_user_does_not_touch_another(place: str, llm_server: Server) -> None:
    async with opened(place, llm_server, llm_daily_tokens_per_user=MOST + 100) as engine:
        assert [await ask(engine) for _ in range(3)] == ["answered", "OverBudget", "OverBudget"]
        assert await ask(engine, EVA) == "answered"


async def test_over_budget_nothing_is_sent_and_the_way_out_is_named(
    tmp_path: Path, llm_server: Server
) -> None:
    async with opened(
        tmp_path / "m.db", llm_server, llm_daily_tokens_per_tenant=MOST - 1
    ) as engine:
        assert engine.ctx.llm is not None
        with pytest.raises(OverBudget, match="llm_daily_tokens_per_tenant"):
            await engine.ctx.llm.answer(ANA, ASK)
        assert not llm_server.requests
        assert await engine.llm_usage() == []


async def test_a_server_that_says_less_than_can_be_is_not_believed(
    tmp_path: Path, llm_server: Server
) -> None:
    llm_server.usage = (1, 0)
    async with opened(tmp_path / "m.db", llm_server) as engine:
        await ask(engine)
        (row,) = await engine.llm_usage()
        assert row.tokens_in >= len(ASK.user) / 4
        assert row.tokens_out >= 2


async def test_a_server_that_says_more_than_can_be_does_not_use_up_the_day(
    tmp_path: Path, llm_server: Server
) -> None:
    llm_server.usage = (10**12, 10**12)
    async with opened(tmp_path / "m.db", llm_server) as engine:
        await ask(engine)
        assert await spent(engine, "ana") <= MOST


@pytest.mark.parametrize(
    ("how", "outcome"), [("500", "ModelUnavailable"), ("wrong shape", "BadModelAnswer")]
)
async def test_what_failed_is_counted_too(
    tmp_path: Path, llm_server: Server, how: str, outcome: str
) -> None:
    llm_server.behaviour = how
    async with opened(tmp_path / "m.db", llm_server) as engine:
        assert await ask(engine) == outcome
        assert llm_server.tokens_in + llm_server.tokens_out <= await spent(engine, "ana") <= MOST
        assert await spent(engine, "ana") > 100


async def test_a_server_that_is_not_there_costs_nothing(tmp_path: Path, llm_server: Server) -> None:
    async with opened(tmp_path / "m.db", llm_server, llm_url="http://127.0.0.1:9/v1") as engine:
        assert await ask(engine) == "ModelUnavailable"
        assert await spent(engine, "ana") == 0


async def test_a_call_that_is_cancelled_is_counted_in_full(
    tmp_path: Path, llm_server: Server
) -> None:
    llm_server.behaviour = "silent"
    async with opened(tmp_path / "m.db", llm_server) as engine:
        call = asyncio.create_task(ask(engine))
        while not llm_server.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await spent(engine, "ana") == MOST
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        (row,) = await engine.llm_usage()
        assert (row.reserved, row.tokens_in + row.tokens_out) == (0, MOST)


async def test_a_hanging_model_is_left_alone_and_then_costs_neither_time_nor_writes(
    tmp_path: Path, llm_server: Server
) -> None:
    llm_server.behaviour = "silent"
    async with opened(tmp_path / "m.db", llm_server, llm_timeout=0.3) as engine:
        assert [await ask(engine) for _ in range(3)] == ["ModelUnavailable"] * 3
        before = await spent(engine, "ana")
        begun = time.monotonic()
        assert {await ask(engine) for _ in range(1000)} == {"ModelUnavailable"}
        assert time.monotonic() - begun < 5
        assert (len(llm_server.requests), await spent(engine, "ana")) == (3, before)


def test_the_ledger_holds_no_words(tmp_path: Path, llm_server: Server) -> None:
    secret = Prompt(
        task="extract", system="hush-system", user="hush-user", schema=SCHEMA, max_tokens=50
    )

    async def three() -> list[str]:
        async with opened(tmp_path / "m.db", llm_server) as engine:
            llm_server.then("500", "wrong shape", "wrong shape", "right")
            return [await ask(engine, ANA, secret) for _ in range(3)]

    assert asyncio.run(three()) == ["ModelUnavailable", "BadModelAnswer", "answered"]
    assert b"hush" not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )


def test_a_key_is_not_shown_and_not_sent_to_a_server_of_somebody_else(
    tmp_path: Path, llm_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai-only")

    async def headers(**settings: Any) -> str:
        async with opened(tmp_path / "m.db", llm_server, **settings) as engine:
            await ask(engine)
        return str(llm_server.requests[-1].headers)

    assert "sk-for-openai-only" not in asyncio.run(headers())
    assert "sk-mine" in asyncio.run(headers(llm_key="sk-mine"))
    assert "sk-mine" not in repr(load(llm_key="sk-mine"))


@pytest.mark.parametrize("llm", ["openai:gpt", "anthropic:claude"])
def test_without_a_key_the_way_out_is_named(llm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(Misconfigured, match=r"llm_key.*_API_KEY"):
        asyncio.run(aio.open(":memory:", embedder="none", llm=llm).__aenter__())
