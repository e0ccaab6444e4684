"""Batches of a local model: a few at a time, in order, and never all of them in the queue."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist.errors import EmbedderUnavailable
from memorist.providers.onnx import LocalModel

THREADS = 4


class Recorder:
    """A model that writes down what runs. A batch waits until it is released."""

    def __init__(self) -> None:
        self.loads = 0
        self.started: list[int] = []
        self.ended: list[int] = []
        self.gates = [threading.Event() for _ in range(20)]

    def load(self, folder: Path) -> str:
        self.loads += 1
        time.sleep(0.02)  # long enough for other threads to arrive
        return f"model of {folder}"

    def run(self, loaded: str, batch: int) -> int:
        self.started.append(batch)
        assert self.gates[batch].wait(10)
        self.ended.append(batch)
        return batch * batch

    def release(self, *batches: int) -> None:
        for batch in batches:
            self.gates[batch].set()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def model(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalModel[str]]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    model = LocalModel("toy", Path("here"), recorder.load)
    yield model
    recorder.release(*range(20))
    await model.close()


async def collect(
    model: LocalModel[str], recorder: Recorder, *batches: int
) -> list[tuple[int, int]]:
    return [each async for each in model.infer(lambda _: [*batches], recorder.run)]


async def until(batches: list[int], count: int) -> None:
    def wait() -> None:
        deadline = time.monotonic() + 10
        while len(batches) < count:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    await asyncio.to_thread(wait)


async def test_no_batches_give_nothing(model: LocalModel[str], recorder: Recorder) -> None:
    assert await collect(model, recorder) == []


async def test_results_are_in_order_though_later_batches_end_first(
    model: LocalModel[str], recorder: Recorder
) -> None:
    task = asyncio.create_task(collect(model, recorder, 0, 1, 2, 3, 4, 5))
    await until(recorder.started, THREADS)
    recorder.release(3, 2, 1)
    await until(recorder.ended, 3)
    recorder.release(0, 4, 5)
    assert await task == [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16), (5, 25)]
    assert recorder.ended[3] == 0


async def test_a_question_waits_for_one_batch_only(
    model: LocalModel[str], recorder: Recorder
) -> None:
    large = asyncio.create_task(collect(model, recorder, *range(10)))
    await until(recorder.started, THREADS)
    question = asyncio.create_task(collect(model, recorder, 19))
    recorder.release(19)
    await asyncio.sleep(0.02)
    recorder.release(0)
    assert await question == [(19, 361)]
    assert set(recorder.ended) == {0, 19}
    recorder.release(*range(10))
    assert len(await large) == 10


async def test_a_cancelled_call_starts_no_more_batches(
    model: LocalModel[str], recorder: Recorder
) -> None:
    large = asyncio.create_task(collect(model, recorder, *range(10)))
    await until(recorder.started, THREADS)
    large.cancel()
    with pytest.raises(asyncio.CancelledError):
        await large
    recorder.release(*range(10), 19)
    assert await collect(model, recorder, 19) == [(19, 361)]
    assert sorted(recorder.started) == [0, 1, 2, 3, 19]


async def test_an_error_in_one_batch_ends_the_call(model: LocalModel[str]) -> None:
    def run(loaded: str, batch: int) -> int:
        return 1 // batch

    with pytest.raises(EmbedderUnavailable, match=r"toy did not run: .*division"):
        async for _ in model.infer(lambda _: [1, 1, 0, 1, 1, 1, 1], run):
            pass


def test_concurrent_calls_of_several_event_loops_load_it_once(recorder: Recorder) -> None:
    model = LocalModel("toy", Path("here"), recorder.load)
    recorder.release(*range(20))
    calls = []
    for batch in range(6):
        step = collect(model, recorder, batch)
        calls.append(threading.Thread(target=asyncio.run, args=[step]))
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    asyncio.run(model.close())
    assert (recorder.loads, sorted(recorder.ended)) == (1, [0, 1, 2, 3, 4, 5])


async def test_a_model_that_did_not_load_is_tried_again(tmp_path: Path) -> None:
    model = LocalModel("toy", tmp_path / "file", lambda path: path.read_text("utf-8"))
    with pytest.raises(EmbedderUnavailable, match=r"toy did not load from .*file"):
        [each async for each in model.infer(lambda loaded: [loaded], lambda *_: 1)]
    (tmp_path / "file").write_text("here", "utf-8")
    assert [each async for each in model.infer(lambda loaded: [loaded], lambda *_: 1)] == [
        ("here", 1)
    ]
    await model.close()


async def test_closing_waits_for_running_batches(
    model: LocalModel[str], recorder: Recorder
) -> None:
    call = asyncio.create_task(collect(model, recorder, 0, 1))
    await until(recorder.started, 2)
    closing = asyncio.create_task(model.close())
    await asyncio.sleep(0.02)
    assert not closing.done()
    recorder.release(0, 1)
    await closing
    assert await call == [(0, 0), (1, 1)]
    with pytest.raises(EmbedderUnavailable, match="toy is closed"):
        await collect(model, recorder, 2)
