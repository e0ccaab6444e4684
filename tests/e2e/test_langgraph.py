"""LangGraph's graphs on our checkpointer and store, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import operator
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import UUID

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt

import memorist
from memorist.embedders import Hashing
from memorist.errors import InvalidInput, MemoristError
from memorist.integrations.langgraph import MemoristSaver, MemoristStore, migrate


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new memory of each engine."""
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path / "state"))
    if request.param == "sqlite":
        return str(tmp_path / "memory.db")
    address: str = request.getfixturevalue("ready_database")
    return address


@pytest.fixture
def saver(url: str) -> Iterator[MemoristSaver]:
    with MemoristSaver.from_url(url) as opened:
        yield opened


def thread(name: str, **more: str) -> Any:
    return {"configurable": {"thread_id": name, **more}}


# Graphs without a language model.


class Talk(TypedDict):
    said: Annotated[list[str], operator.add]


def ask(state: Talk) -> Any:
    answer = interrupt({"question": "and then?", "after": state["said"][-1]})
    return {"said": [f"asked, told {answer}"]}


def talk(checkpointer: BaseCheckpointSaver[Any], store: BaseStore | None = None) -> Any:
    """greet → a subgraph that stops and asks → part"""
    inner = StateGraph(Talk).add_node("ask", ask).add_edge(START, "ask").compile()
    graph = StateGraph(Talk)
    graph.add_node("greet", lambda state: {"said": ["hello"]})
    graph.add_node("inner", inner)
    graph.add_node("part", lambda state: {"said": [f"bye after {len(state['said'])}"]})
    graph.add_edge(START, "greet").add_edge("greet", "inner").add_edge("inner", "part").add_edge(
        "part", END
    )
    return graph.compile(checkpointer=checkpointer, store=store)


class Tally(TypedDict):
    total: Annotated[int, operator.add]
    ids: Annotated[list[int], operator.add]


def tally(checkpointer: BaseCheckpointSaver[Any]) -> Any:
    """One task for each number, at once, then their sum."""
    graph = StateGraph(Tally)
    graph.add_node("one", lambda state: {"total": state["n"], "ids": [state["n"]]})
    graph.add_conditional_edges(START, lambda state: [Send("one", {"n": n}) for n in range(5)])
    return graph.compile(checkpointer=checkpointer)


@pytest.mark.spec("IMP-120")
async def test_the_checkpointer_has_all_eight_capabilities(url: str) -> None:
    @checkpointer_test(name="memorist")
    async def made() -> Any:
        async with memorist.aio.open(url, embedder="none") as memory:
            yield MemoristSaver(memory.scope("ana"))

    report = await validate(made)
    assert {
        name: result.failures for name, result in report.results.items() if result.failures
    } == {}
    assert (
        sum(result.passed is True for result in report.results.values()) == len(report.results) == 8
    )


def test_a_graph_stops_asks_and_goes_on(saver: MemoristSaver) -> None:
    graph = talk(saver)
    stopped = graph.invoke({"said": ["start"]}, thread("t"))
    assert stopped["__interrupt__"][0].value == {"question": "and then?", "after": "hello"}
    done = graph.invoke(Command(resume="tea"), thread("t"))
    assert done["said"][-2:] == ["asked, told tea", f"bye after {len(done['said']) - 1}"]
    assert graph.get_state(thread("t")).next == ()


async def test_the_same_from_an_event_loop_of_its_own(saver: MemoristSaver) -> None:
    graph = talk(saver)
    assert "__interrupt__" in await graph.ainvoke({"said": ["start"]}, thread("t"))
    done = await graph.ainvoke(Command(resume="tea"), thread("t"))
    assert "asked, told tea" in done["said"]
    assert [s.config async for s in graph.aget_state_history(thread("t"))] == [
        s.config
        for s in await asyncio.to_thread(lambda: list(graph.get_state_history(thread("t"))))
    ]


async def test_a_saver_of_an_async_memory_works_there_and_from_other_threads(url: str) -> None:
    async with memorist.aio.open(url, embedder="none") as memory:
        graph = talk(MemoristSaver(memory.scope("ana")))
        await graph.ainvoke({"said": ["start"]}, thread("t"))
        done = await asyncio.to_thread(graph.invoke, Command(resume="tea"), thread("t"))
        assert "asked, told tea" in done["said"]
        with pytest.raises(MemoristError, match="await the async method"):
            graph.get_state(thread("t"))


STEP = """
import sys, test_langgraph
from memorist.integrations.langgraph import MemoristSaver
from langgraph.types import Command

with MemoristSaver.from_url(sys.argv[1]) as saver:
    graph = test_langgraph.talk(saver)
    given = Command(resume=sys.argv[2]) if len(sys.argv) > 2 else {"said": ["start"]}
    print(graph.invoke(given, test_langgraph.thread("t"))["said"][-1])
"""


def in_a_process(code: str, *given: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]\n{code}",
    ]
    return subprocess.Popen([*command, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.spec("IMP-120")
def test_a_graph_goes_on_in_another_process(url: str) -> None:
    for given, expected in ((), b"hello"), (("tea",), b"bye after 5"):
        out, errors = in_a_process(STEP, url, *given).communicate()
        assert expected in out, errors.decode()


LOOP = """
import os, sys, operator, itertools
from typing import Annotated, TypedDict
from memorist.integrations.langgraph import MemoristSaver
from langgraph.graph import START, StateGraph

class State(TypedDict):
    log: Annotated[list[str], operator.add]

with MemoristSaver.from_url(sys.argv[1]) as saver:
    graph = StateGraph(State).add_node("n", lambda state: {"log": [f"{len(state['log'])} " + "x" * 20_000]})
    graph = graph.add_edge(START, "n").compile(checkpointer=saver)
    for number in itertools.count():
        done = graph.invoke({"log": ["in"]}, {"configurable": {"thread_id": "t"}}, durability="sync")
        os.write(1, f"{len(done['log'])}\\n".encode())
"""


def test_a_process_that_is_killed_while_it_saves_leaves_every_checkpoint_whole(url: str) -> None:
    chance = random.Random(7)
    told = 0
    for _ in range(3):
        child = in_a_process(LOOP, url)
        assert child.stdout is not None
        for _ in range(chance.randint(3, 8)):
            told = max(told, int(child.stdout.readline()))
        time.sleep(chance.random() / 50)
        child.kill()
        rest, _ = child.communicate()
        told = max([told, *map(int, rest.split())])
        with MemoristSaver.from_url(url) as saver:
            history = list(saver.list(thread("t")))
            newest = history[0].checkpoint["channel_values"]["log"]
            assert told <= len(newest) <= told + 2
            assert all(each.checkpoint["channel_values"] for each in history)


def test_several_processes_and_threads_may_use_one_memory(url: str) -> None:
    code = (
        "import sys, test_langgraph\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from memorist.integrations.langgraph import MemoristSaver\n"
        "with MemoristSaver.from_url(sys.argv[1]) as saver, ThreadPoolExecutor(4) as threads:\n"
        "    graph = test_langgraph.tally(saver)\n"
        "    run = lambda n: graph.invoke({'total': 0, 'ids': []}, test_langgraph.thread(f'{sys.argv[2]}-{n}'))\n"
        "    assert all(done['total'] == 10 for done in threads.map(run, range(6)))\n"
    )
    running = [in_a_process(code, url, str(number)) for number in range(3)]
    assert [process.communicate()[1].decode() for process in running] == [""] * 3
    with MemoristSaver.from_url(url) as saver:
        graph = tally(saver)
        states = [
            graph.get_state(thread(f"{process}-{n}")).values
            for process in range(3)
            for n in range(6)
        ]
        assert states == [{"total": 10, "ids": [0, 1, 2, 3, 4]}] * 18


def told(saver: BaseCheckpointSaver[Any], **asked: Any) -> list[Any]:
    """Everything a saver tells, without the order of namespaces, which is nobody's promise."""
    found = [
        each._replace(config=each.config["configurable"]) for each in saver.list(None, **asked)
    ]
    return sorted(
        found,
        key=lambda each: (
            each.config["thread_id"],
            each.config["checkpoint_ns"],
            each.checkpoint["id"],
        ),
    )


@pytest.mark.spec("IMP-121")
def test_moving_from_the_checkpointer_in_memory_loses_nothing(saver: MemoristSaver) -> None:
    source = InMemorySaver()
    talk(source).invoke({"said": ["start"]}, thread("stopped", user_name="Ana"))
    talk(source).invoke({"said": ["start"]}, thread("done"))
    talk(source).invoke(Command(resume="tea"), thread("done"))
    tally(source).invoke({"total": 0, "ids": []}, thread("parallel"))
    before = told(source)
    assert migrate(source, saver) == len(before) > 10
    assert told(saver) == before
    assert migrate(source, saver) == len(before)
    assert told(saver) == before


@pytest.mark.spec("IMP-121")
def test_a_thread_that_began_in_memory_goes_on_and_back_in_time(saver: MemoristSaver) -> None:
    source = InMemorySaver()
    talk(source).invoke({"said": ["start"]}, thread("t"))
    migrate(source, saver)
    graph = talk(saver)
    assert graph.get_state(thread("t")).interrupts[0].value["question"] == "and then?"
    done = graph.invoke(Command(resume="tea"), thread("t"))
    assert "asked, told tea" in done["said"]
    earlier = next(
        s for s in graph.get_state_history(thread("t")) if s.values.get("said") == ["start"]
    )
    fork = graph.update_state(earlier.config, {"said": ["otherwise"]}, as_node="greet")
    assert "__interrupt__" in graph.invoke(None, fork)
    other = graph.invoke(Command(resume="milk"), thread("t"))
    assert other["said"][:2] == ["start", "otherwise"]
    assert "asked, told milk" in other["said"]
    assert "asked, told tea" not in other["said"]


def test_moving_between_memories_keeps_everything(url: str, tmp_path: Path) -> None:
    with (
        MemoristSaver.from_url(tmp_path / "old.db") as source,
        MemoristSaver.from_url(url) as target,
    ):
        talk(source).invoke({"said": ["start"]}, thread("t"))
        migrate(source, target)
        assert told(target) == told(source)
        assert "asked, told tea" in talk(target).invoke(Command(resume="tea"), thread("t"))["said"]


def test_what_is_listed_is_what_the_checkpointer_in_memory_lists(saver: MemoristSaver) -> None:
    reference = InMemorySaver()
    talk(reference).invoke({"said": ["start"]}, thread("t", user_name="Ana"))
    migrate(reference, saver)
    ids = [each.checkpoint["id"] for each in reference.list(thread("t", checkpoint_ns=""))]
    for asked in (
        {"filter": {"source": "loop"}},
        {"filter": {"source": "loop", "step": 1}},
        {"filter": {"step": 1.0}},
        {"filter": {"user_name": "Ana"}},
        {"filter": {"user_name": None}},
        {"filter": {"parents": {}}},
        {"filter": {"nothing": "here"}},
        {"filter": {"$x": 1, 'a"b': 2}},
        {"before": thread("t", checkpoint_id=ids[1])},
        {"limit": 0},
    ):
        assert told(saver, **asked) == told(reference, **asked), asked
    assert [
        each.checkpoint["id"] for each in saver.list(thread("t", checkpoint_ns=""), limit=2)
    ] == ids[:2]
    assert [each.checkpoint["id"] for each in saver.list(thread("t", checkpoint_id=ids[2]))] == [
        ids[2]
    ]
    assert list(saver.list(thread("other"))) == []


def append(state: list[Any], writes: Any) -> list[Any]:
    return state + [item for write in writes for item in write]


class Journal(TypedDict):
    lines: Annotated[list[str], DeltaChannel(append, snapshot_frequency=4)]


def journal(checkpointer: BaseCheckpointSaver[Any]) -> Any:
    graph = StateGraph(Journal).add_node(
        "n", lambda state: {"lines": [f"line {len(state['lines'])}"]}
    )
    return graph.add_edge(START, "n").compile(checkpointer=checkpointer)


@pytest.mark.parametrize("turns", [1, 3, 7])
def test_a_delta_channel_is_the_same_after_pruning_and_in_a_copy(
    saver: MemoristSaver, turns: int
) -> None:
    reference = journal(InMemorySaver())
    graph = journal(saver)
    for turn in range(turns):
        for each in (reference, graph):
            each.invoke({"lines": [f"turn {turn}"]}, thread("t"))
    expected = reference.get_state(thread("t")).values
    assert graph.get_state(thread("t")).values == expected
    assert len(expected["lines"]) == 2 * turns
    saver.prune(["t"])
    assert graph.get_state(thread("t")).values == expected
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    assert graph.get_state(thread("copy")).values == expected
    assert graph.invoke({"lines": ["more"]}, thread("copy"))["lines"][-2:] == [
        "more",
        f"line {2 * turns + 1}",
    ]


def built_from(checkpointer: BaseCheckpointSaver[Any], graph: Any) -> list[Any]:
    """What the values of a delta channel are built from: a first value, and the writes since."""
    told = []
    for state in graph.get_state_history(thread("t")):
        found = checkpointer.get_delta_channel_history(
            config=state.config, channels=["lines", "no such channel"]
        )
        told.append(
            [
                (history.get("seed"), [value for _, _, value in history["writes"]])
                for history in found.values()
            ]
        )
    return told


@pytest.mark.parametrize("steps", [3, 6])
def test_the_history_of_a_delta_channel_is_that_of_the_checkpointer_in_memory(
    saver: MemoristSaver, steps: int
) -> None:
    told = []
    for checkpointer in (InMemorySaver(), saver):
        graph = journal(checkpointer)
        for step in range(steps):
            graph.invoke({"lines": [str(step)]}, thread("t"))
        fork = list(graph.get_state_history(thread("t")))[2]
        graph.update_state(fork.config, {"lines": ["a fork"]})
        told.append(built_from(checkpointer, graph))
    assert told[0] == told[1]


@pytest.mark.parametrize("steps", [3, 6])
def test_the_history_of_a_delta_channel_is_what_the_tuples_tell(
    saver: MemoristSaver, steps: int
) -> None:
    graph = journal(saver)
    for step in range(steps):
        graph.invoke({"lines": [str(step)]}, thread("t"))
    for state in graph.get_state_history(thread("t")):
        asked = {"config": state.config, "channels": ["lines", "no such channel"]}
        assert saver.get_delta_channel_history(
            **asked
        ) == BaseCheckpointSaver.get_delta_channel_history(saver, **asked)


# Threads of a supervisor without LangGraph.


@pytest.mark.spec("IMP-120")
def test_a_checkpoint_that_was_saved_is_there_after_a_kill(url: str) -> None:
    code = (
        "import os, sys, time, memorist\n"
        "memory = memorist.open(sys.argv[1], embedder='none')\n"
        "for step in (1, 2, 3):\n"
        "    memory.scope('ana').checkpoints.save('t', {'graph_state': {'step': step}})\n"
        "os.write(1, b'saved\\n')\n"
        "time.sleep(60)\n"
    )
    child = in_a_process(code, url)
    assert child.stdout is not None
    assert child.stdout.readline() == b"saved\n"
    child.kill()
    child.communicate()
    with memorist.open(url, embedder="none") as memory:
        assert memory.scope("ana").checkpoints.load("t")["graph_state"] == {"step": 3}
        assert [saved.thread for saved in memory.scope("ana").checkpoints.list()] == ["t"]


# What cannot be kept, and whose it is.


class Anything(TypedDict):
    value: Any


def keeper(checkpointer: BaseCheckpointSaver[Any]) -> Any:
    graph = StateGraph(Anything).add_node("n", lambda state: {"value": state["value"]})
    return graph.add_edge(START, "n").compile(checkpointer=checkpointer)


@pytest.mark.parametrize("value", [lambda: 1, "x" * 100_000_000], ids=["a function", "100 MB"])
def test_a_value_that_cannot_be_kept_is_refused_and_the_thread_stays(
    saver: MemoristSaver, value: Any
) -> None:
    graph = keeper(saver)
    graph.invoke({"value": "fine"}, thread("t"))
    before = told(saver)
    with pytest.raises(InvalidInput, match=r"serialized|max_checkpoint_mb"):
        graph.invoke({"value": value}, thread("t"), durability="sync")
    assert graph.get_state(thread("t")).values == {"value": "fine"}
    assert told(saver)[: len(before)] == before


def test_values_that_json_does_not_know_come_back(saver: MemoristSaver) -> None:
    value = {
        "nul": "a\0b",
        "bytes": b"\x00\xff",
        "set": {1, 2},
        "big": 2**60,
        "day": date(2026, 5, 1),
        "id": UUID(int=7),
    }
    keeper(saver).invoke({"value": value}, thread("t"))
    assert keeper(saver).get_state(thread("t")).values == {"value": value}


def test_an_unknown_thread_is_empty_and_no_thread_is_refused(saver: MemoristSaver) -> None:
    assert saver.get_tuple(thread("nobody")) is None
    assert saver.get_tuple(thread("nobody", checkpoint_id="x")) is None
    saver.delete_thread("nobody")
    for bad in ({"configurable": {}}, thread("\0"), thread("x" * 501), thread("")):
        with pytest.raises(InvalidInput, match="thread"):
            saver.get_tuple(bad)
    with pytest.raises(InvalidInput, match="keep_latest or delete"):
        saver.prune(["t"], strategy="everything")


def test_the_thread_of_another_user_is_not_found(url: str) -> None:
    with memorist.open(url, embedder="none") as memory:
        ana, bob = (MemoristSaver(memory.scope(user)) for user in ("ana", "bob"))
        keeper(ana).invoke({"value": 1}, thread("t"))
        assert bob.get_tuple(thread("t")) is None
        assert list(bob.list(None)) == []
        bob.delete_thread("t")
        bob.prune(["t"], strategy="delete")
        assert keeper(ana).get_state(thread("t")).values == {"value": 1}
    with pytest.raises(MemoristError, match="closed"):
        ana.get_tuple(thread("t"))


def test_what_was_deleted_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    def remains() -> bool:
        return any(b"xyzzy" in path.read_bytes() for path in tmp_path.glob("memory.db*"))

    with memorist.open(
        tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path / "state"
    ) as memory:
        ana = memory.scope("ana")
        saver, store = MemoristSaver(ana), MemoristStore(ana)
        for keep, remove in (
            (
                lambda: keeper(saver).invoke({"value": "xyzzy"}, thread("t")),
                lambda: saver.delete_thread("t"),
            ),
            (
                lambda: keeper(saver).invoke({"value": "xyzzy"}, thread("u")),
                lambda: saver.prune(["u"], strategy="delete"),
            ),
            (lambda: store.put(("n",), "k", {"text": "xyzzy"}), lambda: store.delete(("n",), "k")),
            (
                lambda: ana.checkpoints.save("t", {"a": "xyzzy"}),
                lambda: ana.checkpoints.delete("t"),
            ),
        ):
            keep()
            assert remains()
            remove()
            assert not remains()


# The store.


@pytest.fixture
def store(url: str) -> Iterator[MemoristStore]:
    with MemoristStore.from_url(url, embedder="hashing") as opened:
        yield opened


def reference() -> InMemoryStore:
    async def embed(texts: Any) -> Any:
        return (await Hashing().encode_batch(list(texts))).tolist()

    return InMemoryStore(index={"dims": Hashing().dimensions, "embed": embed})


def plain(found: Any) -> Any:
    """An answer without its times."""
    if isinstance(found, list):
        return [plain(each) for each in found]
    if found is None or isinstance(found, tuple):
        return found
    score = getattr(found, "score", None)
    return found.namespace, found.key, found.value, None if score is None else round(score, 5)


WORDS = (
    "tea milk water blue green ship train lisbon porto october kettle garden violin letter".split()
)
FILTERS: list[dict[str, Any] | None] = [
    None,
    {"kind": "note"},
    {"kind": {"$eq": "note"}, "size": {"$gte": 5}},
    {"size": {"$gt": 2, "$lte": 7}},
    {"size": {"$ne": 3, "$lt": 100}},
    {"more": {"deep": [1, 2]}},
    {"more": {"deep": {"$ne": [1, 2]}}},
    {"missing": None},
    {"kind": ["note"]},
]


async def test_the_store_answers_as_the_one_in_memory_does(store: MemoristStore) -> None:
    chance, other = random.Random(3), reference()
    for _ in range(250):
        namespace = tuple(chance.choices("abc", k=chance.randint(1, 3)))
        key, wanted = chance.choice("klmnop"), chance.choice(FILTERS)
        if chance.random() < 0.5:
            words = " ".join(chance.sample(WORDS, 4))
            value = {
                "text": words,
                "kind": chance.choice(["note", "plan"]),
                "size": chance.randint(0, 9),
            }
            value["more"] = {"deep": [1, chance.randint(1, 2)]}
            answers = [await each.aput(namespace, key, value) for each in (store, other)]
        elif chance.random() < 0.2:
            answers = [await each.adelete(namespace, key) for each in (store, other)]
        elif chance.random() < 0.3:
            answers = [plain(await each.aget(namespace, key)) for each in (store, other)]
        elif chance.random() < 0.5:
            asked = {
                "query": " ".join(chance.sample(WORDS, 2)),
                "filter": wanted,
                "limit": 500,
            }
            found = [plain(await each.asearch(namespace, **asked)) for each in (store, other)]
            ours, theirs = [{p[:2]: p[3] for p in each} for each in found]
            assert all(theirs[key] <= score <= 1 for key, score in ours.items()), "words add to it"
            answers = [sorted(each) for each in (ours, theirs)]
            assert list(ours.values()) == sorted(ours.values(), reverse=True)
        else:
            found = [
                plain(await each.asearch(namespace[:1], filter=wanted, limit=500))
                for each in (store, other)
            ]
            answers = [sorted(each, key=str) for each in found]
        assert answers[0] == answers[1]


def test_namespaces_are_listed_as_the_one_in_memory_lists_them(store: MemoristStore) -> None:
    other = InMemoryStore()
    paths = [
        "a.b.c",
        "a.b.d.e",
        "a.b.d.i",
        "a.b.f",
        "a.c.f",
        "b",
        "b.x",
        "users.ana.notes",
        "users.bob.notes",
    ]
    for path in paths:
        for each in (store, other):
            each.put(tuple(path.split(".")), "k", {})
    for asked in (
        {},
        {"prefix": ("a", "b"), "max_depth": 3},
        {"prefix": ("a",), "suffix": ("f",)},
        {"suffix": ("notes",)},
        {"prefix": ("users", "*", "notes")},
        {"suffix": ("*", "notes"), "max_depth": 1},
        {"max_depth": 2, "limit": 3, "offset": 2},
        {"prefix": ("nobody",)},
        {"prefix": ("a", "b", "c", "d", "e", "f")},
    ):
        assert store.list_namespaces(**asked) == other.list_namespaces(**asked), asked


def test_what_is_put_can_be_found_by_meaning_and_only_in_what_was_indexed(url: str) -> None:
    with MemoristStore.from_url(url) as store:
        store.put(
            ("docs",),
            "tea",
            {"text": "She drinks green tea every morning.", "code": "zebra"},
            index=["text"],
        )
        store.put(
            ("docs",),
            "car",
            {"text": "The engine of the car broke down.", "code": "beverage in the morning"},
            index=["text"],
        )
        store.put(("docs",), "off", {"text": "She drinks green tea every morning."}, index=False)
        store.put(
            ("docs",),
            "parts",
            {"parts": [{"t": "A violin."}, {"t": "A hot drink at breakfast."}]},
            index=["parts[*].t"],
        )
        found = store.search(("docs",), query="what beverage does she have at breakfast?")
        assert [item.key for item in found] == ["parts", "tea", "car", "off"]
        assert found[0].score > found[1].score > found[2].score
        assert found[3].score is None
        assert [
            item.key for item in store.search(("docs",), query="a drink", limit=1, offset=1)
        ] == ["tea"]


def test_search_finds_words_that_the_model_does_not_know(url: str) -> None:
    with MemoristStore.from_url(url) as store:
        for number in range(20):
            store.put(("orders",), f"o{number}", {"text": f"Order QX{7000 + 13 * number} is paid."})
        found = store.search(("orders",), query="what about QX7130?", limit=3)
        assert found[0].key == "o10"
        assert found[0].score > found[1].score + 0.1


def test_words_are_found_without_a_model(url: str) -> None:
    with MemoristStore.from_url(url, embedder="none") as store:
        store.put(("n",), "tea", {"text": "tea in the kettle", "user": {"access-level": 3}})
        store.put(("n",), "car", {"text": "the car is blue"})
        found = store.search(("n",), query="Where is the kettle?")
        assert [(item.key, item.score is None) for item in found] == [("tea", False), ("car", True)]
        for level, count in ((3, 1), (4, 0), ({"$gt": 2}, 1)):
            wanted = {"user.access-level": level}
            assert len(store.search(("n",), filter=wanted)) == count


async def test_the_names_of_a_sweeper_work_on_both_sides(url: str) -> None:
    async with memorist.aio.open(url, embedder="none") as memory:
        store = MemoristStore(memory.scope("ana"))
        await store.aput(("n",), "k", {"x": 1}, ttl=0)
        assert await store.start_ttl_sweeper() == 1
        assert (await store.sweep_ttl(), await store.stop_ttl_sweeper()) == (0, 0)
    with MemoristStore.from_url(url, embedder="none") as blocking:
        assert (blocking.start_ttl_sweeper(), blocking.stop_ttl_sweeper(timeout=1)) == (0, 0)


def test_the_index_of_other_stores_is_taken(tmp_path: Path) -> None:
    def embed(texts: Any) -> Any:
        return [[float("tea" in text), float("car" in text)] for text in texts]

    index: Any = {"dims": 2, "embed": embed, "fields": ["about"]}
    with MemoristStore.from_url(tmp_path / "m.db", index=index) as store:
        assert store.index_config == index
        store.put(("n",), "a", {"about": "tea", "text": "car"})
        store.put(("n",), "b", {"about": "car", "text": "tea"})
        assert [item.key for item in store.search(("n",), query="car")] == ["b", "a"]


def test_without_a_model_a_question_is_no_filter(url: str) -> None:
    with MemoristStore.from_url(url, embedder="none") as store:
        store.put(("n",), "a", {"x": 1})
        store.put(("n",), "b", {"x": 2})
        found = store.search(("n",), query="anything")
        assert [(item.key, item.score) for item in found] == [("a", None), ("b", None)]


def test_an_item_keeps_its_first_date_and_its_exact_value(store: MemoristStore) -> None:
    value = {"b": 1.0, "a": [1, None, True, {"z": "東京 \0 \ud83d"}], "": 1e300}
    store.put(("n",), "k", {"old": 1})
    first = store.get(("n",), "k")
    store.put(("n",), "k", value)
    second = store.get(("n",), "k")
    assert first is not None
    assert second is not None
    assert second.value == value
    assert list(second.value) == list(value)
    assert first.created_at == second.created_at <= first.updated_at < second.updated_at


def test_items_and_their_vectors_are_there_after_a_restart(url: str) -> None:
    with MemoristStore.from_url(url, embedder="hashing") as store:
        store.put(("n",), "k", {"text": "tea in the kettle"})
    with MemoristStore.from_url(url, embedder="hashing") as store:
        (found,) = store.search(("n",), query="kettle")
        assert (found.key, found.value) == ("k", {"text": "tea in the kettle"})
        assert found.score is not None


def test_a_batch_answers_from_before_its_changes_and_the_last_put_stands(
    store: MemoristStore,
) -> None:
    ops = [PutOp(("n",), "k", {"x": 1}), GetOp(("n",), "k"), PutOp(("n",), "k", {"x": 2})]
    assert store.batch(ops) == [None, None, None]
    assert plain(store.get(("n",), "k"))[2] == {"x": 2}
    with pytest.raises(InvalidInput):
        store.batch([PutOp(("n",), "other", {"x": 1}), PutOp(("n",), "bad", {"x": object()})])
    assert store.get(("n",), "other") is None


async def test_an_item_expires_unless_it_is_read(url: str) -> None:
    async with memorist.aio.open(url, embedder="hashing") as memory:
        start = memory.ctx.clock()

        def after(minutes: float) -> None:
            memory.ctx.clock = lambda: start + timedelta(minutes=minutes)

        store = MemoristStore(memory.scope("ana"), ttl={"default_ttl": 10})
        for key, more in ("read", {}), ("unread", {}), ("seen", {}), ("forever", {"ttl": None}):
            await store.aput(("n",), key, {"text": key}, **more)
        for minutes in (6, 12, 18):
            after(minutes)
            assert await store.aget(("n",), "read") is not None
            assert (await store.aget(("n",), "seen", refresh_ttl=False) is None) is (minutes > 10)
        assert await store.aget(("n",), "unread") is None
        assert {item.key for item in await store.asearch(("n",), refresh_ttl=False)} == {
            "read",
            "forever",
        }
        assert {item.key for item in await store.asearch(("n",), query="unread")} == {
            "read",
            "forever",
        }
        after(40)
        assert await store.asweep_ttl() == 3
        assert [item.key for item in await store.asearch(("n",))] == ["forever"]


@pytest.mark.parametrize(
    ("key", "value", "more"),
    [
        ("k", {"x": object()}, {}),
        ("k", {"x": "y" * 100_000_000}, {}),
        ("k\0", {}, {}),
        ("k" * 1001, {}, {}),
        ("k", {}, {"ttl": float("inf")}),
        ("k", {}, {"ttl": -1}),
    ],
    ids=["an object", "100 MB", "NUL", "a long key", "no end", "before now"],
)
def test_what_cannot_be_put_is_refused(
    store: MemoristStore, key: str, value: Any, more: Any
) -> None:
    with pytest.raises(InvalidInput):
        store.put(("n",), key, value, index=False, **more)
    assert store.search(("n",)) == []


def test_an_operator_that_nobody_knows_is_refused(store: MemoristStore) -> None:
    store.put(("n",), "k", {"x": 1})
    with pytest.raises(InvalidInput, match=r"\$near"):
        store.search(("n",), filter={"x": {"$near": 1}})


def test_items_of_another_user_are_not_found(url: str) -> None:
    with memorist.open(url, embedder="hashing") as memory:
        ana, bob = (MemoristStore(memory.scope(user)) for user in ("ana", "bob"))
        ana.put(("n",), "k", {"text": "secret tea"})
        assert bob.get(("n",), "k") is None
        assert bob.search((), query="secret tea") == []
        assert bob.list_namespaces() == []
        bob.delete(("n",), "k")
        assert ana.get(("n",), "k") is not None


def test_a_namespace_cannot_be_reached_by_a_label_with_a_dot(store: MemoristStore) -> None:
    store.put(("users", "alice", "private"), "k", {"secret": "tea"})
    for joined in (("users.alice", "private"), ("users.alice.private",)):
        for operation in (
            GetOp(joined, "k"),
            SearchOp(joined),
            PutOp(joined, "k", {"secret": "milk"}),
        ):
            with pytest.raises(InvalidNamespaceError, match="period"):
                store.batch([operation])
    assert store.list_namespaces() == [("users", "alice", "private")]


def test_a_search_sees_whole_labels_and_takes_a_filter_for_no_more_than_a_filter(
    store: MemoristStore,
) -> None:
    store.put(("users", "alice", "private"), "k", {"secret": "tea"})
    for prefix in (("users", "al"), ("users", "bob"), ("user",), ("%",)):
        assert store.search(prefix) == []
    for field in ("secret') OR 1=1 --", "secret' OR '1'='1"):
        assert store.search(("users",), filter={field: "x"}) == []
    assert len(store.search(("users",), filter={"secret": {"$gt": ""}})) == 1


def test_a_node_finds_in_a_later_thread_what_another_put(url: str) -> None:
    def note(state: Talk, *, store: BaseStore) -> Any:
        known = [
            item.value["text"]
            for item in store.search(("notes",), query=state["said"][-1], limit=1)
        ]
        store.put(("notes",), f"n{len(store.search(('notes',)))}", {"text": state["said"][-1]})
        return {"said": known}

    with memorist.open(url, embedder="hashing") as memory:
        ana = memory.scope("ana")
        graph = StateGraph(Talk).add_node("note", note).add_edge(START, "note")
        run = graph.compile(checkpointer=MemoristSaver(ana), store=MemoristStore(ana))
        assert run.invoke({"said": ["tea is in the kettle"]}, thread("1"))["said"] == [
            "tea is in the kettle"
        ]
        assert (
            run.invoke({"said": ["where is the tea"]}, thread("2"))["said"][-1]
            == "tea is in the kettle"
        )
        with ThreadPoolExecutor(4) as threads:
            list(
                threads.map(
                    lambda n: run.invoke({"said": [f"note {n}"]}, thread(f"x{n}")), range(8)
                )
            )


def test_importing_memorist_does_not_import_langgraph() -> None:
    code = "import sys, memorist, memorist.aio, memorist.sync\nprint('langgraph' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip()
        == b"False"
    )


def test_without_langgraph_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['langgraph'] = None\nimport memorist.integrations.langgraph"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b'pip install "memorist[langgraph]"' in done.stderr.splitlines()[-1]


def test_another_missing_module_is_not_taken_for_langgraph() -> None:
    code = "import sys; sys.modules['langgraph.store.base'] = None\nimport memorist.integrations.langgraph"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"ModuleNotFoundError" in done.stderr.splitlines()[-1]
    assert b"LangGraph is not installed" not in done.stderr
