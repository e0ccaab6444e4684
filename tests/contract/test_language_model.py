"""What `ports.LanguageModel` promises, over every provider: the official clients, a server that behaves as told."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from llm_server import BEHAVIOURS, Server
from memorist import llms
from memorist.errors import BadModelAnswer, ModelUnavailable
from memorist.llms.servers import AnthropicModel, OpenAIModel
from memorist.ports import LanguageModel
from memorist.text.prompts import Prompt

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {
                    "fact": {"type": "string", "maxLength": 40},
                    "kind": {"type": "string", "enum": ["preference", "profile"]},
                    "confidence": {"type": "number"},
                },
                "required": ["fact", "kind", "confidence"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["facts"],
    "additionalProperties": False,
}
GOOD = {"facts": [{"fact": "Ana drinks green tea", "kind": "preference", "confidence": 0.9}]}
WORDS = "I drink green tea, whispered Ana."
ASK = Prompt(task="extract", system="Find facts.", user=WORDS, schema=SCHEMA, max_tokens=200)
TIMEOUT = 1.0
LATE = ("silent", "hanging", "dribbling", "slow")
AWAY = (
    "closing",
    "giant",
    "streaming",
    "429",
    "500",
    "401",
    "404",
    "elsewhere",
    "bomb",
    "not json",
)
UNUSABLE = ("wrong shape", "empty", "truncated", "cut", "deep", "garbage", "injected")


@pytest.fixture(params=["openai", "anthropic"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def model(kind: str, llm_server: Server) -> AsyncIterator[LanguageModel]:
    llm_server.answer = lambda asked: GOOD
    async with opened(kind, llm_server, TIMEOUT) as made:
        yield made


@asynccontextmanager
async def opened(kind: str, server: Server, timeout: float) -> AsyncIterator[LanguageModel]:
    url = f"{server.url}/v1" if kind == "openai" else server.url
    made = (OpenAIModel if kind == "openai" else AnthropicModel)(
        "test-model", url=url, key="k-secret", timeout=timeout
    )
    yield made
    await made.close()


async def test_an_answer_fits_the_schema_and_says_what_it_cost(
    model: LanguageModel, llm_server: Server
) -> None:
    llm_server.usage = (321, 45)
    answer = await model.answer(ASK)
    assert answer.value == GOOD
    assert (answer.model, answer.tokens_in, answer.tokens_out) == (model.name, 321, 45)


async def test_a_question_is_sent_as_it_is_with_its_limits(
    model: LanguageModel, llm_server: Server
) -> None:
    await model.answer(ASK)
    (request,) = llm_server.requests
    assert request.user == WORDS
    assert request.system.startswith("Find facts.")
    assert (request.most, request.body["temperature"], request.way) == (200, 0.0, "json_schema")
    if shape := request.body.get("response_format"):  # OpenAI keeps to a schema only if told
        assert shape["json_schema"]["strict"] is True


@pytest.mark.parametrize("how", ["fenced", "thinking"])
async def test_json_is_found_among_other_words(
    model: LanguageModel, llm_server: Server, how: str
) -> None:
    llm_server.behaviour = how
    assert (await model.answer(ASK)).value == GOOD
    assert len(llm_server.requests) == 1


@pytest.mark.parametrize("how", LATE)
async def test_a_server_that_takes_its_time_gets_no_more_than_the_timeout(
    model: LanguageModel, llm_server: Server, how: str
) -> None:
    await model.answer(ASK)
    llm_server.behaviour = how
    begun = time.monotonic()
    with pytest.raises(ModelUnavailable, match="within 1 seconds") as caught:
        await model.answer(ASK)
    assert time.monotonic() - begun < TIMEOUT + 1
    assert caught.value.cost == llms.max_cost(ASK)


async def test_a_server_that_fails_is_unavailable_and_nothing_it_says_is_repeated(
    model: LanguageModel, llm_server: Server
) -> None:
    for number, how in enumerate(AWAY, start=1):
        llm_server.behaviour = how
        with pytest.raises(ModelUnavailable) as caught:
            await model.answer(ASK)
        said = "".join(traceback.format_exception(caught.value))
        assert WORDS not in said
        assert "k-secret" not in said
        assert len(llm_server.requests) == number, f"{how} was asked again"
        assert "/stolen" not in llm_server.requests[-1].path


async def test_a_server_that_is_not_running_is_unavailable_and_costs_nothing() -> None:
    away = OpenAIModel("test-model", url="http://127.0.0.1:9/v1", timeout=20)
    with pytest.raises(ModelUnavailable) as caught:
        await away.answer(ASK)
    assert caught.value.cost == (0, 0)
    await away.close()


@pytest.mark.parametrize(
    ("url", "key"), [("http://[", "k"), ("http://127.0.0.1:99999/v1", "k"), ("", "k\nö")]
)
async def test_an_address_or_a_key_that_cannot_be_is_a_model_that_is_away(
    llm_server: Server, url: str, key: str
) -> None:
    away = OpenAIModel("test-model", url=url or f"{llm_server.url}/v1", key=key)
    with pytest.raises(ModelUnavailable):
        await away.answer(ASK)
    await away.close()


async def test_an_answer_that_does_not_fit_is_asked_for_once_more_and_then_given_up(
    model: LanguageModel, llm_server: Server
) -> None:
    for how in UNUSABLE:
        llm_server.behaviour = how
        llm_server.requests.clear()
        with pytest.raises(BadModelAnswer) as caught:
            await model.answer(ASK)
        assert ["cannot be used" in request.system for request in llm_server.requests] == [
            False,
            True,
        ]
        assert "hunter2" not in str(caught.value)
        assert caught.value.cost is not None
        assert caught.value.cost[0] >= 2 * 10


async def test_a_second_answer_that_fits_is_taken(model: LanguageModel, llm_server: Server) -> None:
    for how in UNUSABLE:
        llm_server.then(how, "right")
        assert (await model.answer(ASK)).value == GOOD


async def test_both_tries_are_counted(model: LanguageModel, llm_server: Server) -> None:
    llm_server.usage = (100, 50)
    llm_server.then("wrong shape", "right")
    answer = await model.answer(ASK)
    assert (answer.tokens_in, answer.tokens_out) == (200, 100)


async def test_a_way_the_server_does_not_know_is_tried_once_in_its_life(
    model: LanguageModel, llm_server: Server
) -> None:
    ways = [model.modes[at:] for at in range(len(model.modes))]  # type: ignore[attr-defined]
    for number, (best, *others) in enumerate(ways, start=1):
        llm_server.requests.clear()
        assert (await model.answer(ASK)).value == GOOD
        assert (await model.answer(ASK)).value == GOOD
        assert [request.way for request in llm_server.requests][-2:] == [best, best]
        assert len(llm_server.requests) == (2 if number == 1 else 3)
        if others:
            llm_server.refused.add(best)


async def test_a_parameter_the_server_does_not_take_is_left_out_from_then_on(
    model: LanguageModel, llm_server: Server
) -> None:
    llm_server.refused.add("temperature")
    assert (await model.answer(ASK)).value == GOOD
    assert (await model.answer(ASK)).value == GOOD
    assert ["temperature" in request.body for request in llm_server.requests] == [
        True,
        False,
        False,
    ]
    assert {request.way for request in llm_server.requests} == {"json_schema"}


async def test_the_limit_goes_by_its_newer_name_where_the_server_asks_for_it(
    llm_server: Server,
) -> None:
    llm_server.answer, llm_server.refused = lambda asked: GOOD, {"max_tokens"}
    model = OpenAIModel("test-model", url=f"{llm_server.url}/v1")
    assert (await model.answer(ASK)).value == GOOD
    assert llm_server.requests[-1].body["max_completion_tokens"] == 200
    await model.close()


async def test_the_shape_of_the_answer_is_not_repeated_in_words_where_a_tool_tells_it(
    llm_server: Server,
) -> None:
    llm_server.answer, llm_server.refused = lambda asked: GOOD, {"json_schema", "json_object"}
    async with opened("openai", llm_server, TIMEOUT) as model:
        assert (await model.answer(ASK)).value == GOOD
    schema, json_object, tool = llm_server.requests
    assert "JSON schema" in schema.system
    assert "JSON schema" in json_object.system
    assert (tool.way, tool.system) == ("tool", "Find facts.")


async def test_a_server_that_understands_nothing_is_asked_in_every_way_and_nothing_is_learnt(
    model: LanguageModel, llm_server: Server
) -> None:
    llm_server.refused = {"model"}
    with pytest.raises(ModelUnavailable) as caught:
        await model.answer(ASK)
    assert caught.value.cost == (0, 0)
    assert WORDS not in str(caught.value)
    llm_server.refused = set()
    llm_server.requests.clear()
    await model.answer(ASK)
    assert llm_server.requests[0].way == "json_schema"


async def test_figures_that_cannot_be_are_not_believed(
    model: LanguageModel, llm_server: Server
) -> None:
    for usage in [(0, 0), (-5, -5), (10**15, 10**15), ("7", None), (True, False), [], "much"]:
        llm_server.usage = usage
        answer = await model.answer(ASK)
        assert 8 <= answer.tokens_in <= llms.max_cost(ASK)[0]
        assert 8 <= answer.tokens_out <= ASK.max_tokens


async def test_half_a_character_in_a_text_does_no_harm(
    model: LanguageModel, llm_server: Server
) -> None:
    broken = Prompt(
        task="extract", system="Find \ud800.", user="tea \udcff\x00", schema=SCHEMA, max_tokens=200
    )
    assert (await model.answer(broken)).value == GOOD
    assert llm_server.requests[-1].user == "tea ?\x00"


async def test_many_questions_at_a_time_get_their_own_answers(
    kind: str, llm_server: Server
) -> None:
    llm_server.answer = lambda request: {
        "facts": [{"fact": request.user, "kind": "profile", "confidence": 1}]
    }
    asks = [
        Prompt(task="t", system="s", user=f"number {n}", schema=SCHEMA, max_tokens=99)
        for n in range(20)
    ]
    async with opened(kind, llm_server, 20) as model:
        answers = await asyncio.gather(*map(model.answer, asks))
    assert [answer.value["facts"][0]["fact"] for answer in answers] == [ask.user for ask in asks]


def test_every_behaviour_of_the_server_is_tried() -> None:
    assert set(BEHAVIOURS) == {
        *AWAY,
        *LATE,
        *UNUSABLE,
        "right",
        "fenced",
        "thinking",
        "wrong protocol",
    }


async def test_what_does_not_speak_the_protocol_is_no_model(
    model: LanguageModel, llm_server: Server
) -> None:
    llm_server.behaviour = "wrong protocol"
    with pytest.raises(ModelUnavailable, match="protocol"):
        await model.answer(ASK)
