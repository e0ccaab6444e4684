"""After a forget, every byte of every file is searched for what was forgotten."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

import memorist
from memorist.text import tokens
from memorist.text.tokens import pack
from memorist.types import Draft

CHILD = Path(__file__).with_name("children.py")
SECRET = "Zsuzsannaquux lives at Kirschblütenallee 77 and takes Ramiprilxyz."
EARLIER = "Zsuzsannaquux lived at Mandelblütenweg 3 and took Bisoprololxyz."
NEEDLES = ("Zsuzsanna", "zsuzsanna", "Kirschbl", "Ramipril", "ramipril", "Mandelbl", "Bisoprolol")


def found(folder: Path, *more: bytes) -> dict[str, list[bytes]]:
    """Which of the words stand in which file."""
    needles = [*(needle.encode() for needle in NEEDLES), *more]
    held = {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return {
        name: there for name, data in held.items() if (there := [n for n in needles if n in data])
    }


def others(ana: Any, first: int) -> None:
    for number in range(first, first + 60):
        ana.remember(f"Garden {number} has {number * 7919} trains in it.")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database in which a secret was said, edited, said again in a message, recalled, and buried under others."""
    folder = tmp_path / "data"
    folder.mkdir()
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        ana = memory.scope("ana", session="s", thread="t")
        others(ana, 0)
        (id,) = ana.remember(
            [{"id": "m1", "content": EARLIER, "name": "Zsuzsannaquux"}], tags=["ramiprilxyz"]
        ).ids
        ana.edit(
            id,
            SECRET,
            summary="Zsuzsannaquux, Kirschblütenallee",
            category="Ramiprilxyz",
            actor="ana",
        )
        ana.remember([{"id": "m2", "content": f"  {SECRET}\n\n"}])
        ana.pin(id)
        ana.recall("Where does Zsuzsannaquux live?")
        others(ana, 100)
    assert found(folder) != {}
    return folder


def secrets(ana: Any) -> list[str]:
    return [each.id for each in ana.list(limit=1000) if "Zsuzsanna" in each.text]


def forget_secrets(ana: Any) -> None:
    """Forget one after the other; what rests on one goes with it."""
    while ids := secrets(ana):
        ana.forget(ids[0])


def test_a_forgotten_text_is_nowhere_on_disk(folder: Path) -> None:
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        vector = [np.asarray(v).astype("<f4").tobytes()[:64] for v in _vectors(memory)]
        forget_secrets(ana)
        assert found(folder, *vector) == {}, "while the file is open"
    assert found(folder, *vector) == {}, "after it was closed"


def _vectors(memory: Any) -> Any:
    from memorist.sync import Loop

    loop = Loop()
    try:
        return loop.run(memory._inner.ctx.embedder.encode_batch([SECRET, EARLIER]))
    finally:
        loop.close()


def test_nothing_is_left_if_the_process_dies_before_the_log_is_clean(folder: Path) -> None:
    command = [sys.executable, str(CHILD), "forget", str(folder / "memory.db"), "Zsuzsanna"]
    assert subprocess.run(command, check=False).returncode == -9
    assert found(folder) != {}, "the fault was not caused"
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        forget_secrets(memory.scope("ana"))
        assert found(folder) == {}


def test_a_log_that_others_hold_is_cleaned_by_the_next_write(folder: Path) -> None:
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        reader = apsw.Connection(str(folder / "memory.db"))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchall()
        forget_secrets(ana)
        assert found(folder) != {}, "the fault was not caused"
        reader.execute("COMMIT")
        reader.close()
        ana.remember("The weather is fine in Porto.")
        assert found(folder) == {}


def test_a_forget_waits_for_somebody_who_reads_the_log_for_a_moment(folder: Path) -> None:
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        ana.remember("The weather is fine in Porto.")
        reader = apsw.Connection(str(folder / "memory.db"))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchall()
        stop = threading.Timer(0.5, reader.execute, ["COMMIT"])
        stop.start()
        forget_secrets(ana)
        assert found(folder) == {}
        stop.join()
        reader.close()


def test_a_vacuum_leaves_nothing_either(folder: Path) -> None:
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        forget_secrets(ana)
        memory.vacuum()
        assert found(folder) == {}
        assert memory.check() == []


@pytest.mark.spec("THE-84")
def test_a_forgotten_text_does_not_come_back_by_itself_in_any_form(folder: Path) -> None:
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        exported = list(memory.export())
        forget_secrets(ana)
        for text in (SECRET, EARLIER):
            assert ana.remember(text).count("refused") == 1
        memory.import_([each for each in exported if each["record_type"] == "memory"])
        assert found(folder) == {}


def test_a_message_that_is_refused_leaves_no_words(folder: Path) -> None:
    with memorist.open(folder / "memory.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        forget_secrets(ana)
        assert ana.remember([{"id": "m9", "content": SECRET}]).count("refused") == 1
        assert found(folder) == {}


SYLLABLES = ("qua", "zor", "vex", "jum", "phi", "kro", "wyb", "dle", "xan", "gru")


def word(number: int) -> str:
    """A word that stands nowhere else."""
    return "".join(SYLLABLES[int(digit)] for digit in f"{number * 7919:06}") + "q"


def test_nothing_is_left_of_a_hundred_memories_in_store_cache_journal_and_files(
    tmp_path: Path,
) -> None:
    places = {
        "journal_dir": tmp_path / "journal",
        "state_dir": tmp_path / "state",
        "spool_dir": tmp_path / "kept",
    }
    texts = [
        f"{word(n).title()} keeps the {word(n + 100)} under the {word(n + 200)}."
        for n in range(100)
    ]
    (tmp_path / "data").mkdir()
    with memorist.open(tmp_path / "data" / "memory.db", embedder="minilm", **places) as memory:
        ana = memory.scope("ana", session="s", thread="t")
        others(ana, 0)
        for number, text in enumerate(texts):
            _lived(ana, text, number)
        memory.snapshot()
        needles = [needle for text in texts for needle in _needles(memory, text)]
        assert len(_left(tmp_path, needles)) > 450, (
            "words, tokens and vectors are there to be forgotten"
        )
        done = ana.forget_where(where=memorist.Filter(tags=("secret",)), dry_run=False)
        assert len(done.ids) >= 100
        assert _left(tmp_path, needles) == [], "while the file is open"
    assert _left(tmp_path, needles) == [], "after it was closed"


def _lived(ana: Any, text: str, number: int) -> None:
    """A memory to which much happened: it was said in a message, edited, undone, merged, hidden, brought back."""
    (id,) = ana.remember([{"id": f"m{number}", "content": f"{text}\n\n\n\n"}], tags=["secret"]).ids
    if number % 4 == 0:
        ana.edit(id, text.replace("keeps", "hides"), summary=text, actor="ana")
        ana.undo(ana.history(id, limit=1)[0].meta["operation"])
    if number % 5 == 0:
        ana.forget(id, keep_days=3, reason="for a while")
        ana.restore(id)
    if number % 10 == 0:
        ana.recall(text)
        ana.remember_drafts([Draft(text=f"As was said: {text}", evidence_ids=(id,))])


def _needles(memory: Any, text: str) -> list[bytes]:
    """The words of a text, its packed terms and its vector."""
    words = [each.strip(".").lower() for each in text.split() if len(each) > 6]
    terms = [tokens.term_id(term) for term in tokens.analyze(text, "english")]
    vector = memory._loop.run(memory._inner.ctx.embedder.encode_batch([text]))[0]
    return [
        *(each.encode() for each in words),
        pack(terms)[:8],
        np.asarray(vector, "<f4").tobytes()[:32],
    ]


def _left(folder: Path, needles: list[bytes]) -> list[bytes]:
    held = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    low = held.lower()
    return [needle for needle in needles if needle in (low if needle.isalpha() else held)]


def test_nothing_is_left_in_summaries_that_held_the_words_or_their_earlier_versions(
    tmp_path: Path,
) -> None:
    places = {
        "state_dir": tmp_path / "state",
        "spool_dir": tmp_path / "kept",
        "embedder": "minilm",
    }
    (tmp_path / "data").mkdir()
    with memorist.open(tmp_path / "data" / "memory.db", **places) as memory:
        chats = {
            "one": ("The old train leaves Porto at 9.", SECRET),
            "two": ("Kim sold 3 boats in Faro.", "Leo paints the doors of the school."),
            "three": ("The bakery bakes rye bread.", "Rain fell on the roof of the barn."),
        }
        for session, said in chats.items():
            turns = [
                {"id": f"{session}{n}", "role": "user", "content": text}
                for n, text in enumerate(said)
            ]
            memory.scope("ana", session=session).remember(turns)
        ana = memory.scope("ana")
        first, second = (
            id for _ in range(2) for id in ana.compress(threshold=1, sessions=1).summaries
        )
        assert "Zsuzsanna" in ana.get(first).text
        ana.edit(first, f"It is said that {SECRET}", summary=SECRET)
        rolled = ana.remember_drafts([Draft(text=f"Also: {SECRET}", evidence_ids=(first, second), kind="semantic",
                                            compression_source=True)])  # fmt: skip
        ana.recall("Where does Zsuzsannaquux live?", include_compressed=True)
        (id,) = [
            each.id
            for each in ana.list(memorist.Filter(states=("compressed",)))
            if each.text == SECRET
        ]
        old = [_of(memory, ana.get(id).text) for id in (*rolled.ids, first)]
        done = ana.forget(id)
        assert done.flagged == (first, *rolled.ids)
        assert ana.get(first).text == "The old train leaves Porto at 9."
        assert found(tmp_path, *old) == {}, "while the file is open"
    assert found(tmp_path, *old) == {}, "after it was closed"


def _of(memory: Any, text: str) -> bytes:
    """A part of the vector of a text, as files hold it."""
    return bytes(
        np.asarray(
            memory._loop.run(memory._inner.ctx.embedder.encode_batch([text]))[0], "<f4"
        ).tobytes()[:32]
    )
