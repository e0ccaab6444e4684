"""Cancellation, threads, processes and locks: no call is half done, and no call makes the others wait."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import memorist
from e2e.rest.conftest import asking
from memorist.errors import Busy, NotFound
from memorist.scoped import ScopedClient
from memorist.types import Filter

PATIENCE = 4  # seconds after which a call that should take milliseconds counts as stuck

# What is canceled: a call on a memory of its own. `n` makes each text different from all others.
VERBS: dict[str, Callable[[ScopedClient, str, int], Awaitable[Any]]] = {
    "remember": lambda ana, id, n: ana.remember(
        [{"id": f"new {n}", "content": f"The pier has {n * 104729} boats."}]
    ),
    "recall": lambda ana, id, n: ana.recall(f"whales {n}", profile="theoria.triscore"),
    "edit": lambda ana, id, n: ana.edit(id, f"Edited, with {n * 32452843} cats."),
    "forget": lambda ana, id, n: ana.forget(id),
    "hide": lambda ana, id, n: ana.forget(id, keep_days=2),
    "undo": lambda ana, id, n: _undo_last(ana, id),
    "pin": lambda ana, id, n: ana.pin(id),
    "delta": lambda ana, id, n: ana.delta(thread="t"),
}


async def _undo_last(ana: ScopedClient, id: str) -> None:
    await ana.undo((await ana.history(id))[0].meta["operation"])


async def cancel_after(turns: int, work: Awaitable[Any]) -> bool:
    """Cancel a call after so many turns of the event loop. Return whether it had ended before."""
    task = asyncio.ensure_future(work)
    for turn in range(turns):
        if task.done():
            break
        await asyncio.sleep(
            0.0007 if turn % 3 == 2 else 0
        )  # now and then long enough for a thread to answer
    had_ended = task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()
    return had_ended


async def is_whole(ana: ScopedClient, id: str) -> bool:
    """Whether a memory has one history entry for each revision and one old version for each edit, or is gone."""
    try:
        memory = await ana.get(id)
    except NotFound:
        return id not in {each.id for each in await ana.list(limit=1000)}
    versions = await ana.list(Filter(versions_of=id, states=("superseded",)))
    was_edited = memory.text.startswith("Edited")
    return len(await ana.history(id)) == memory.revision and len(versions) == was_edited


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_canceled_at_any_moment_is_done_or_not_done(place: str, verb: str) -> None:
    async with memorist.aio.open(place, embedder="hashing") as memory:
        ana = memory.scope("ana", session="s")
        for n in range(1, 90, 4 if "://" in place else 1):  # PostgreSQL connects again after each
            (id,) = (
                await ana.remember(
                    [{"id": f"m{n}", "content": f"Target {n} with {n * 7919} whales."}]
                )
            ).ids
            had_ended = await cancel_after(n, VERBS[verb](ana, id, n))
            assert await is_whole(ana, id)
            if had_ended:
                break
        assert n > 1
        async with asyncio.timeout(20):  # no lock and no connection stays behind
            assert (await ana.remember("The ferry leaves at noon.")).count("created") == 1
        assert await memory.check() == []


async def test_a_message_whose_first_delivery_was_canceled_is_stored_once(place: str) -> None:
    async with memorist.aio.open(place, embedder="hashing") as memory:
        ana = memory.scope("ana", session="s")
        for n in range(1, 30, 3):
            await cancel_after(n, VERBS["remember"](ana, "", n))
            assert (await VERBS["remember"](ana, "", n)).count("created") == 1
        texts = [each.text for each in await ana.list(limit=1000)]
        assert sorted(texts) == sorted(f"The pier has {n * 104729} boats." for n in range(1, 30, 3))


def test_threads_share_one_blocking_memory(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            scope = memory.scope(f"user{number % 3}")
            for n in range(5):
                scope.remember(f"Thread {number} counts {number * 1000 + n} whales.")
                assert scope.recall("whales").hits
        except BaseException as error:
            errors.append(error)

    with memorist.open(tmp_path / "m.db", embedder="hashing") as memory:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert memory.stats()["memories"] == 8 * 5


async def test_a_blocking_memory_answers_inside_a_running_event_loop(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", embedder="hashing") as memory:
        memory.scope("ana").remember("My kettle is blue.")
        assert "kettle" in memory.scope("ana").recall("kettle").text


def run_script(code: str, *arguments: str) -> list[str]:
    """Run a script that opens the memory given as its first argument; return the lines it prints."""
    opening = "import os, signal, sys, threading, memorist; memory = memorist.open(sys.argv[1], embedder='hashing')\n"
    hears = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    ran = subprocess.run(
        [sys.executable, "-c", opening + "ana = memory.scope('ana')\n" + code, *arguments],
        capture_output=True, text=True, timeout=120, preexec_fn=hears,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


FORKING = """
ana.remember("My kettle is blue.")
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        ana.remember("My kettle is red.")
    except memorist.MemoristError as error:
        print(error, flush=True)
    memory.close()
    os._exit(0)
print("child ended with", os.waitpid(child, 0)[1], flush=True)
print(ana.remember("The ferry leaves at noon.").outcomes[0].status, memory.check())
memory.close()
"""


def test_a_forked_child_is_told_to_open_its_own_memory_and_the_parent_goes_on(
    tmp_path: Path,
) -> None:
    said, ended, parent = run_script(FORKING, str(tmp_path / "m.db"))
    assert said == "This memory is closed: open it again"
    assert (ended, parent) == ("child ended with 0", "created []")


@pytest.mark.parametrize("ending", ["", "os._exit(0)"], ids=["at the end of the script", "at once"])
def test_a_process_that_ends_without_closing_has_stored_what_it_acknowledged(
    tmp_path: Path, ending: str
) -> None:
    code = f"print(ana.remember('My kettle is blue.').outcomes[0].status, flush=True)\n{ending}"
    assert run_script(code, str(tmp_path / "m.db")) == ["created"]
    with memorist.open(tmp_path / "m.db", embedder="hashing") as memory:
        assert [each.text for each in memory.scope("ana").list()] == ["My kettle is blue."]
        assert memory.check() == []


INTERRUPTED = """
def interrupt():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)
started = threading.Event()
threading.Thread(target=interrupt).start()
n = 0
try:
    while True:
        ana.remember(f"Number {n} is {n * 7919}.")
        n += 1
        if n == 3:
            started.set()
except KeyboardInterrupt:
    print(n >= 3)
print(ana.remember("The ferry leaves at noon.").outcomes[0].status, memory.check())
print(len(ana.list(limit=1000)) >= n + 1)
memory.close()
"""


def test_an_interrupt_in_the_middle_of_a_call_leaves_a_memory_that_works(tmp_path: Path) -> None:
    assert run_script(INTERRUPTED, str(tmp_path / "m.db")) == ["True", "created []", "True"]


async def wait_for_all(calls: list[Awaitable[Any]]) -> int:
    """Run calls at the same time. Return how many were stuck."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    _, stuck = await asyncio.wait(tasks, timeout=PATIENCE)
    for task in stuck:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(stuck)


async def test_twenty_undos_at_once_all_end(ready_database: str) -> None:
    async with memorist.aio.open(ready_database, embedder="hashing") as memory:
        users = [memory.scope(f"user{n}") for n in range(20)]
        operations = []
        for user in users:
            await user.remember("I like tea.")
            operations.append((await user.history())[0].meta["operation"])
        undos = [user.undo(operation) for user, operation in zip(users, operations, strict=True)]
        assert await wait_for_all(undos) == 0


async def test_forty_forgets_at_once_all_end(tmp_path: Path) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        for n in range(60):
            await ana.remember(f"Locker {n} stands in hall {n * 7919}.")
        assert await wait_for_all([ana.forget(each.id) for each in await ana.list(limit=40)]) == 0
        assert len(await ana.list(limit=100)) == 20
        for path in sorted(tmp_path.glob("m.db*")):  # noqa: ASYNC240
            content = path.read_bytes()
            for n in range(20, 60):
                assert b"in hall %d." % (n * 7919) not in content


BESIDE_AN_INDEX = """
import asyncio, sys, memorist
async def main(place, folder):
    async with memorist.aio.open(place, embedder="hashing", vector_index=f"chroma:{folder}") as memory:
        users = [memory.scope(f"user{n}") for n in range(60)]
        print("opened", flush=True)
        await asyncio.gather(*(user.remember(f"Train {n} leaves at {n * 7919}.") for n, user in enumerate(users)))
        print("remembered", flush=True)
        await asyncio.gather(*(user.list() for user in users))
        print("listed", flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


async def test_sixty_users_beside_a_vector_index_all_get_answers(
    ready_database: str, tmp_path: Path
) -> None:
    pytest.importorskip("chromadb")
    command = [sys.executable, "-c", BESIDE_AN_INDEX, ready_database, str(tmp_path / "chroma")]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE
    )  # one that can be killed
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"opened\n"
        assert await asyncio.wait_for(process.stdout.readline(), 3 * PATIENCE) == b"remembered\n"
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"listed\n"
    finally:
        process.kill()
        await process.communicate()


async def test_a_timeout_is_honored_while_another_process_holds_the_write_lock(
    tmp_path: Path,
) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        await ana.remember("I like tea.")
        holder = apsw.Connection(str(tmp_path / "m.db"))
        holder.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(
            asyncio.wait_for(ana.remember("The boat leaves at nine."), 0.2)
        )
        ended, _ = await asyncio.wait({waiting}, timeout=2)
        holder.execute("ROLLBACK")
        holder.close()
        await asyncio.gather(waiting, return_exceptions=True)
        assert ended


async def test_a_scope_that_is_locked_for_long_does_not_stop_the_others(
    ready_database: str,
) -> None:
    impatient = f"{ready_database}&options=-c%20lock_timeout%3D300ms"
    async with (
        memorist.aio.open(ready_database, embedder="hashing") as other,
        memorist.aio.open(impatient, embedder="hashing") as memory,
    ):
        ana, bob = memory.scope("ana"), memory.scope("bob")
        await ana.remember("I like tea.")
        (milk,) = (await bob.remember("I like milk.")).ids
        async with other.ctx.store.transaction(other.scope("ana").scope):
            with pytest.raises(Busy):
                await ana.remember("The train leaves at ten.")
            assert (await bob.remember("The bus leaves at noon.")).count("created") == 1
            assert (await bob.edit(milk, "I like oat milk.")).text == "I like oat milk."


async def test_what_was_spooled_is_replayed_without_waiting_for_a_scope_that_is_locked(
    ready_database: str,
) -> None:
    impatient = f"{ready_database}&options=-c%20lock_timeout%3D300ms"
    async with (
        memorist.aio.open(ready_database, embedder="hashing") as other,
        memorist.aio.open(impatient, embedder="hashing") as memory,
    ):
        ana, bob = memory.scope("ana"), memory.scope("bob")
        assert memory.offline is not None
        memory.offline.down["writing"] = "as if it were down"
        for n in (1, 2):
            for each in (ana, bob):
                receipt = await each.remember(f"Train {n} leaves at {n * 7919}.")
                assert receipt.count("pending") == 1
        async with other.ctx.store.transaction(other.scope("ana").scope):
            done = await memory.replay()
            assert done is not None
            assert (done.taken_in, done.waiting) == (2, 2)
            assert len(await bob.list()) == 2
            late = await ana.remember("Train 3 leaves at noon.")  # what is spooled comes first
            assert late.count("pending") == 1
        async with asyncio.timeout(20):
            while len(await ana.list()) < 3:  # the replay in the background may be first
                await memory.replay()
                await asyncio.sleep(0.1)
        texts = [each.text for each in await ana.list()]
        assert texts == [
            "Train 3 leaves at noon.",
            "Train 2 leaves at 15838.",
            "Train 1 leaves at 7919.",
        ]


async def test_a_server_whose_file_is_gone_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    async with (
        memorist.aio.open(tmp_path / "data/m.db", embedder="hashing") as memory,
        asking(memory) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        (tmp_path / "data").rename(tmp_path / "gone")
        try:
            assert (await client.get("/readyz")).status_code == 503
        finally:
            (tmp_path / "gone").rename(tmp_path / "data")


async def test_a_server_whose_database_refuses_connections_is_not_ready(
    postgres: str, database: str
) -> None:
    name = database.partition("?")[0].rpartition("/")[2]
    async with memorist.aio.open(database, embedder="hashing") as memory, asking(memory) as client:
        assert (await client.get("/readyz")).status_code == 200
        with psycopg.connect(postgres, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false".encode())
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
        assert (await client.get("/readyz")).status_code == 503
