"""Models that the caller brings to `memorist.open`: objects, functions, and plug-ins by name."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import memorist
from memorist import aio, conformance, embedders, providers
from memorist.embedders import Hashing
from memorist.embedders.local import MiniLM
from memorist.errors import Misconfigured
from memorist.ports import Vectors
from memorist.rerankers import MaxSim
from memorist.settings import custom
from memorist.text.entities import Entity
from memorist.text.prompts import ModelAnswer, Prompt

TEA, SHIP = "I drink green tea every morning.", "The ship to Porto leaves at noon."
WORDS = ["tea", "green", "ship", "porto", "noon", "morning", "drink", "market"]


def count_words(texts: Sequence[str]) -> list[list[float]]:
    """An embedder as a plain function: one number for each word it knows, not of length 1."""
    rows = []
    for text in texts:
        known = [float(text.lower().count(word)) for word in WORDS]
        rows.append([*known, 0.5, 0.1 * len(text) % 1])
    return rows


async def count_words_async(texts: Sequence[str]) -> Any:
    await asyncio.sleep(0)
    return np.array(count_words(texts))


class Port:
    """An embedder with the methods of the port."""

    model = "word-counts"
    dimensions = 10

    def __init__(self) -> None:
        self.closed = False
        self.forgotten: list[str] = []

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        return np.array(count_words(texts), np.float32)

    async def forget(self, texts: Sequence[str]) -> None:
        self.forgotten += texts

    async def close(self) -> None:
        self.closed = True


class Blocking:
    """An object whose method blocks."""

    model = "word-counts"
    dimensions = 10

    def encode_batch(self, texts: Sequence[str]) -> list[list[float]]:
        return count_words(texts)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register functions of this module as entry points, as an installed package would."""
    known: list[EntryPoint] = []

    def add(group: str, name: str, value: str) -> None:
        known.append(EntryPoint(name, f"{__name__}:{value}", group))

    def find(*, group: str) -> list[EntryPoint]:
        return [each for each in known if each.group == group]

    monkeypatch.setattr(providers, "entry_points", find)
    module = ModuleType(__name__)
    module.__dict__.update(globals())
    monkeypatch.setitem(sys.modules, __name__, module)
    return add


def build_counts(size: str = "large") -> Any:
    return {"large": Port(), "small": count_words}[size]


def build_nothing() -> Any:
    raise OSError("no such file")


# -- embedders


@pytest.mark.parametrize("embedder", [count_words, count_words_async, Port(), Blocking()])
def test_an_embedder_of_any_form_is_used(embedder: Any) -> None:
    with memorist.open(":memory:", embedder=embedder) as memory:
        ana = memory.scope("ana")
        ana.remember(TEA)
        ana.remember(SHIP)
        found = ana.recall("green tea", limit=1)
        assert found.hits[0].memory.text == TEA
        assert found.hits[0].parts["semantic"] > 0
        assert memory.stats()["without_embeddings"] == 0


def test_a_lambda_is_an_embedder() -> None:
    with memorist.open(":memory:", embedder=lambda texts: np.array(count_words(texts))) as memory:
        memory.scope("ana").remember(TEA)
        assert "<lambda>-10-" in memory.stats()["model"]


def test_a_function_keeps_its_name_and_another_function_gets_another(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with memorist.open(path, embedder=count_words) as memory:
        memory.scope("ana").remember(TEA)
        first = memory.stats()["model"]
    with memorist.open(path, embedder=count_words) as memory:
        assert memory.stats()["model"] == first
        assert memory.stats()["without_embeddings"] == 0

    def count_words_(texts: Sequence[str]) -> Any:
        return np.roll(count_words(texts), 3, axis=1)

    count_words_.__qualname__ = count_words.__qualname__
    with memorist.open(path, embedder=count_words_) as memory:
        assert memory.stats()["model"] != first, "the vectors of two functions are not compared"
        assert memory.stats()["without_embeddings"] == 1
        memory.index()
        assert memory.stats()["without_embeddings"] == 0


def test_an_object_of_the_caller_stays_open_and_forgets() -> None:
    mine = Port()
    with memorist.open(":memory:", embedder=mine) as memory:
        assert memory.stats()["model"] == "word-counts"
        done = memory.scope("ana").remember(TEA)
        memory.scope("ana").forget(done.ids[0])
    assert TEA in mine.forgotten
    assert not mine.closed


async def test_a_blocking_function_does_not_block_the_event_loop() -> None:
    threads = set()

    def slow(texts: Sequence[str]) -> Any:
        threads.add(threading.current_thread())
        time.sleep(0.3)
        return count_words(texts)

    async with aio.open(":memory:", embedder=slow) as memory:
        ticks = 0
        writing = asyncio.create_task(memory.scope("ana").remember(TEA))
        while not writing.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 10
    assert threading.current_thread() not in threads


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda texts: [[1.0, 2.0]] * 7, r"returned an array of shape \(7, 2\) for one text"),
        (lambda texts: 3, r"shape \(\)"),
        (lambda texts: (text for text in texts), "one row of numbers for each text: "),
        (Port, "not the class Port"),
        (3.5, "an object with the method 'encode_batch', not <class 'float'>"),
        ("minlm", "there is no 'minlm'; choose one of minilm, hashing, none, openai, openai:MODEL"),
        ("openai:", "there is no 'openai:'"),
    ],
)
def test_a_wrong_embedder_is_refused_with_the_way_out(wrong: Any, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        memorist.open(":memory:", embedder=wrong)


@pytest.mark.parametrize("setting", ["llm", "reranker", "entities"])
def test_a_wrong_model_names_the_setting_and_the_method(setting: str) -> None:
    method = {"llm": "answer", "reranker": "score", "entities": "detect"}[setting]
    options: dict[str, Any] = {setting: 7}
    with pytest.raises(Misconfigured, match=f"'{setting}'.*'{method}'"):
        memorist.open(":memory:", embedder="none", **options)
    options[setting] = "nonsense"
    with pytest.raises(Misconfigured, match=f"'{setting}': there is no 'nonsense'; choose one of"):
        memorist.open(":memory:", embedder="none", **options)


def test_a_function_that_fails_later_is_reported_and_words_still_find() -> None:
    calls = 0

    def failing(texts: Sequence[str]) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ConnectionError(f"cannot send {texts}")
        return count_words(texts)

    with memorist.open(":memory:", embedder=failing) as memory:
        ana = memory.scope("ana")
        outcome = ana.remember(TEA).outcomes[0]
        assert outcome.status == "created"
        assert "raised ConnectionError" in outcome.reason
        assert "green tea" not in outcome.reason
        assert ana.recall("green tea").hits[0].memory.text == TEA


def test_a_function_that_hangs_neither_loses_the_write_nor_keeps_the_memory_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedders, "PATIENCE", 0.1)
    monkeypatch.setattr(custom, "CLOSE_SECONDS", 0.1)
    release = threading.Event()

    def hang(texts: Sequence[str]) -> Any:
        if TEA in texts:
            release.wait(30)
        return count_words(texts)

    start = time.monotonic()
    try:
        with memorist.open(":memory:", embedder=hang) as memory:
            outcome = memory.scope("ana").remember(TEA).outcomes[0]
            assert outcome.status == "created"
            assert "did not answer within" in outcome.reason
        assert time.monotonic() - start < 10
    finally:
        release.set()


# -- the others


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_is_a_language_model(is_async: bool) -> None:
    prompts = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        fact = {"fact": "The user keeps bees in Porto.", "kind": "profile", "confidence": 0.9}
        return f"Sure!\n```json\n{json.dumps({'facts': [fact]})}\n```"

    async def answer_async(prompt: str) -> str:
        return answer(prompt)

    llm: Any = answer_async if is_async else answer
    with memorist.open(":memory:", embedder="hashing", llm=llm, extract="model") as memory:
        ana = memory.scope("ana", session="s1")
        ana.remember(
            [{"role": "user", "content": "So I keep bees in Porto, as you may have heard"}]
        )
        memory.run_jobs()
        assert prompts, "the model was asked"
        assert "JSON schema" in prompts[0]
        assert "bees in Porto" in prompts[0]
        (usage,) = [each for each in memory.llm_usage() if each.calls]
        assert usage.model.endswith(llm.__qualname__)
        assert usage.tokens_in > 0


def test_a_reranker_orders_the_hits() -> None:
    def shorter(question: str, texts: Sequence[str]) -> list[float]:
        return [1 / (1 + len(text)) for text in texts]

    notes = [
        "Green tea is stored in the cellar, on the second shelf from the left, behind the rice.",
        "Green tea is in the kitchen.",
    ]
    with memorist.open(":memory:", embedder="hashing", reranker=shorter) as memory:
        ana = memory.scope("ana")
        for note in notes:
            ana.remember(note)
        found = ana.recall("where is the green tea?", rerank=True)
        assert [hit.memory.text for hit in found.hits] == notes[::-1]
        assert found.hits[0].parts["rerank"] == pytest.approx(1 / 29)


def test_scores_out_of_range_leave_the_order_and_say_so() -> None:
    with memorist.open(
        ":memory:", embedder="hashing", reranker=lambda q, t: [7.0] * len(t)
    ) as memory:
        ana = memory.scope("ana")
        ana.remember(TEA)
        found = ana.recall("green tea", rerank=True)
        assert found.hits[0].memory.text == TEA
        assert "from 0 to 1" in found.legs["rerank"]


@pytest.mark.parametrize("form", ["names", "pairs", "object"])
def test_names_found_by_the_caller_become_tags(form: str) -> None:
    class Detector:
        name = "mine"

        async def detect(self, texts: Sequence[str]) -> list[list[Entity]]:
            return [[Entity("Garden of Ana", 0.8)] for _ in texts]

    given: Any = {
        "names": lambda text: ["Garden of Ana"],
        "pairs": lambda text: [("Garden of Ana", 0.8)],
        "object": Detector(),
    }[form]
    with memorist.open(":memory:", embedder="hashing", entities=given) as memory:
        ana = memory.scope("ana")
        ana.remember("the zinnia by the fence wants more water than the rest")
        assert "garden of ana" in next(iter(ana.list())).tags


def test_a_detector_that_fails_is_replaced_by_rules() -> None:
    def failing(text: str) -> list[str]:
        raise KeyError(text)

    with memorist.open(":memory:", embedder="hashing", entities=failing) as memory:
        ana = memory.scope("ana")
        outcome = ana.remember("Anna Weber moved to Lisbon.").outcomes[0]
        assert "names were found by rules" in outcome.reason
        assert "lisbon" in next(iter(ana.list())).tags


# -- plug-ins


def test_a_plug_in_is_found_by_its_name(plug_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in("memorist.embedders", "acme", "build_counts")
    with memorist.open(":memory:", embedder="acme") as memory:
        assert memory.stats()["model"] == "word-counts"
    with memorist.open(":memory:", embedder="acme:small") as memory:
        assert memory.stats()["model"].startswith("count_words-10-")
    monkeypatch.setenv("MEMORIST_EMBEDDER", "acme")
    with memorist.open(":memory:") as memory:
        assert memory.stats()["model"] == "word-counts"
    with pytest.raises(Misconfigured, match="openai:MODEL, acme, or install a plug-in"):
        memorist.open(":memory:", embedder="acne")
    with pytest.raises(Misconfigured, match="'llm': there is no 'acme'"):
        memorist.open(":memory:", llm="acme")


def test_a_plug_in_that_cannot_be_loaded_says_why(plug_in: Any) -> None:
    plug_in("memorist.llms", "broken", "build_nothing")
    with pytest.raises(Misconfigured, match="'broken' cannot be loaded: OSError: no such file"):
        memorist.open(":memory:", llm="broken")


def test_what_a_plug_in_opened_is_closed(plug_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Port()
    monkeypatch.setitem(build_counts.__globals__, "Port", lambda: mine)
    plug_in("memorist.embedders", "acme", "build_counts")
    memorist.open(":memory:", embedder="acme").close()
    assert mine.closed


# -- conformance


def answer_city(prompt: str) -> str:
    return '{"city": "Porto"}'


@pytest.mark.slow
async def test_the_packaged_models_conform() -> None:
    model = MiniLM()
    try:
        await conformance.acheck("embedder", model)
        await conformance.acheck("reranker", MaxSim(model))
    finally:
        await model.close()


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("embedder", count_words_async),
        ("embedder", Blocking()),
        ("embedder", Hashing()),
        ("llm", answer_city),
        ("reranker", lambda question, texts: [float("tea" in text) for text in texts]),
        ("entities", lambda text: [name for name in ("Anna Weber", "Lisbon") if name in text]),
    ],
)
def test_what_works_conforms(setting: str, given: Any) -> None:
    conformance.check(setting, given)


class Drifting(Hashing):
    """An embedder whose vectors depend on the batch."""

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        return np.roll(await super().encode_batch(texts), len(texts), axis=1)


class WrongAnswer:
    name = "wrong"

    async def answer(self, ask: Prompt) -> ModelAnswer:
        return ModelAnswer(value={"town": 3}, model="wrong", tokens_in=1, tokens_out=1)


def refuse_long(texts: Sequence[str]) -> Any:
    if any(len(text) > 10_000 for text in texts):
        raise ValueError("too long")
    return count_words(texts)


@pytest.mark.parametrize(
    ("setting", "given", "why"),
    [
        ("embedder", Drifting(), "depends on the other texts of the call"),
        ("embedder", lambda texts: [[1.0, 0.0] for _ in texts], "is not nearer to"),
        ("embedder", lambda texts: [[0.0, 0.0] for _ in texts], "all zeros"),
        ("embedder", refuse_long, r"raised ValueError \(too long\)"),
        ("embedder", 3, "pass a name, a function or an object"),
        ("reranker", lambda question, texts: [0.5] * len(texts), "has to get a higher score"),
        ("reranker", lambda question, texts: [0.5], "returned an array of shape"),
        ("llm", WrongAnswer(), "does not fit the schema: the answer lacks city"),
        ("llm", lambda prompt: "I would rather not say", "no complete JSON object"),
        ("entities", lambda text: [], "'Lisbon' was not found"),
        ("entities", lambda text: ["LISBON", "Lisbon"], "not written like that"),
        ("entities", lambda text: 5, "has to return names"),
        ("embeder", count_words, "choose one of embedder, reranker, llm, entities"),
    ],
)
def test_what_is_wrong_is_named(setting: str, given: Any, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        conformance.check(setting, given)


def test_a_model_that_blocks_the_event_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def block(texts: Sequence[str]) -> Any:
        time.sleep(0.05)  # noqa: ASYNC251
        return count_words(texts)

    monkeypatch.setattr(conformance, "LONGEST_STALL", 0.2)
    with pytest.raises(AssertionError, match=r"block blocked the event loop for 0\.\d s: use a"):
        conformance.check("embedder", block)


def test_the_command_line_checks_what_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    conformance.main(["embedder", "memorist.embedders:Hashing"])
    assert "can be used for 'embedder'" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"cannot be used for 'llm'.*no_such_module"):
        conformance.main(["llm", "no_such_module:answer"])
    with pytest.raises(SystemExit, match="usage:"):
        conformance.main([])
