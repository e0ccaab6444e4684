"""Many processes on one PostgreSQL, and one of them killed every second: nothing lost, nothing done twice or left."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import memorist
from faults.server import asked
from faults.witness import CHILDREN, Told, everything, half_written, lost, whole_lines

LEASE = 2  # seconds
# Counts every time that a vector is written, whoever does it.
COUNTED = """
CREATE TABLE public.embedded (memory bigint);
CREATE FUNCTION public.count_it() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
'BEGIN INSERT INTO public.embedded VALUES (NEW.memory); RETURN NEW; END';
CREATE TRIGGER count_it AFTER INSERT OR UPDATE ON memorist.vectors FOR EACH ROW EXECUTE FUNCTION public.count_it();
"""


class Crowd:
    """Processes that are killed and started again; each start tells a file of its own."""

    def __init__(self, url: str, folder: Path, *, writers: int, backfillers: int) -> None:
        self._url, self._folder, self._starts = url, folder, 0
        self._running = [self._started(number < writers) for number in range(writers + backfillers)]
        while not all(file.stat().st_size for file in folder.glob("told*")):
            time.sleep(0.05)

    def kill_one(self, chance: random.Random) -> None:
        at = chance.randrange(len(self._running))
        writes, process = self._running[at]
        assert process.poll() is None, "it ended by itself"
        process.kill()
        process.wait()
        self._running[at] = self._started(writes)

    def end(self) -> Told:
        for _, process in self._running:
            process.kill()
            process.wait()
        told = Told()
        for file in self._folder.glob("told*"):
            for line in whole_lines(file.read_text("utf-8")):
                told.hear(*line)
        return told

    def _started(self, writes: bool) -> tuple[bool, subprocess.Popen[bytes]]:
        self._starts += 1
        what = (
            ["load", self._url, f"start{self._starts}", "none"]
            if writes
            else ["embed", self._url, str(LEASE)]
        )
        with (self._folder / f"told{self._starts}").open("wb") as told:
            return writes, subprocess.Popen([sys.executable, str(CHILDREN), *what], stdout=told)


def crowded(
    url: str, folder: Path, *, writers: int, backfillers: int, seconds: int
) -> dict[str, int]:
    memorist.open(url, embedder="none", spool=False).close()
    asked(url, COUNTED)
    crowd, chance = (
        Crowd(url, folder, writers=writers, backfillers=backfillers),
        random.Random(seconds),
    )
    for _ in range(seconds):
        time.sleep(1)
        crowd.kill_one(chance)
    told = crowd.end()
    time.sleep(LEASE + 0.5)  # what the killed had claimed is free again
    embedded = len(asked(url, "SELECT DISTINCT memory FROM public.embedded"))
    with memorist.open(url, embedder="hashing", spool=False) as memory:
        ana = memory.scope("ana")
        left = memory.index(batch_size=64).embedded
        texts = Counter(each.text for each in everything(ana))
        return {
            "kills": seconds,
            "acknowledged": told.acks,
            "lost": len(lost(told, ana)),
            "kept twice": sum(times - 1 for times in texts.values()),
            "half written": len(half_written(memory, ana)),
            "embedded by the crowd": embedded,
            "embedded at the end": left,
            "embedded twice": len(
                asked(url, "SELECT memory FROM public.embedded GROUP BY 1 HAVING count(*) > 1")
            ),
            "stuck": memory.stats()["without_embeddings"] + memory.stats()["waiting"],
        }


WRONG = ("lost", "kept twice", "half written", "embedded twice", "stuck")


@pytest.mark.spec("THE-115")
def test_a_crowd_of_which_one_is_killed_every_second_loses_nothing(
    own_database: str, tmp_path: Path
) -> None:
    seen = crowded(own_database, tmp_path, writers=2, backfillers=2, seconds=7)
    assert {name: seen[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert seen["acknowledged"] > 20
    assert seen["embedded by the crowd"] > 10


@pytest.mark.slow
@pytest.mark.spec("THE-115")
def test_a_crowd_of_six_loses_nothing_in_a_minute(
    own_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = crowded(own_database, tmp_path, writers=4, backfillers=2, seconds=60)
    with capsys.disabled():
        print(f"\n4 writing, 2 embedding, one killed every second: {seen}")
    assert {name: seen[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
