"""Frozen answers of the Python interface: blocks of every profile, receipts, history, export, why and why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import memorist
from golden.files import Golden
from golden.normalize import Normalizer
from golden.stage import FACTS, QUESTION, Stage
from memorist import storage
from memorist.dialects import PROFILES
from memorist.types import Filter, Status

WEAK = "Submarine propeller?"  # nothing in the history answers it
NOTE = (
    "Ben owns the runbook for the deploy of the shop and keeps it in the shared wiki, where everybody on call reads it "
    "before the weekly release and adds open questions, new steps and plans for the next change"
)


@pytest.fixture
def memory(place: Path) -> Iterator[Any]:
    """The fixed history, open."""
    with memorist.open(place) as opened:
        yield opened


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_what_a_profile_recalls_is_frozen(
    golden: Golden, normal: Normalizer, memory: Any, profile: str
) -> None:
    found, weak = (
        memory.scope("ana").recall(question, profile=profile) for question in (QUESTION, WEAK)
    )
    parts = [
        {"id": hit.memory.id, "score": hit.score, "parts": hit.parts, "relevance": hit.relevance}
        for hit in found
    ]
    answer = {
        "hits": parts,
        "tokens": found.tokens,
        "legs": found.legs,
        "related": [one.id for one in found.related],
    }
    sections = {"block": found.prompt(), "explain": found.explain(), "answer": normal.json(answer)}
    sections[f"block for {WEAK!r}"] = weak.prompt()
    text = "".join(f"## {title}\n{normal.text(content)}\n\n" for title, content in sections.items())
    golden.check(f"profiles/{profile}.txt", text)


def remember(*texts: str, **more: Any) -> Callable[[Any, Path], Any]:
    """Remember texts one by one, and return the last receipt."""
    return lambda mine, _: [mine.remember(text, **more) for text in texts][-1]


def remember_messages(*messages: dict[str, str]) -> Callable[[Any, Path], Any]:
    """Remember messages one by one, and return the last receipt."""
    return lambda mine, _: [mine.remember([message]) for message in messages][-1]


def remember_without_store(mine: Any, place: Path) -> Any:
    """Remember something while the file is away."""
    away = place.with_name("away.db")
    place.rename(away)
    try:
        return mine.remember("I moved to Coimbra.")
    finally:
        away.rename(place)


RECEIPTS: dict[str, Callable[[Any, Path], Any]] = {
    "created": remember("I collect stamps from Peru."),
    "merged": remember(FACTS["honey"]),
    "updated": remember(NOTE, NOTE.replace("the shared wiki", "the shared green wiki")),
    "superseded": remember("I live in Faro.", "I live in Lisbon."),
    "conflict": remember_messages(
        {"id": "x1", "content": "Apples are red."}, {"id": "x1", "content": "Apples are yellow."}
    ),
    "pending": remember_without_store,
    "skipped": remember_messages({"content": " "}),
    "refused": remember("My password is hunter2-Xy77!"),
}


def test_every_outcome_has_a_receipt() -> None:
    assert set(RECEIPTS) == {*get_args(Status), "superseded"}


@pytest.mark.parametrize("status", sorted(RECEIPTS))
def test_a_receipt_is_frozen(
    golden: Golden, normal: Normalizer, memory: Any, place: Path, status: str
) -> None:
    receipt = RECEIPTS[status](memory.scope("ana"), place)
    outcome = receipt.outcomes[-1]
    assert outcome.status == ("created" if status == "superseded" else status)
    assert (outcome.supersedes is not None) == (status == "superseded")
    golden.check(f"api/receipt-{status}.json", normal.json(storage.dump(receipt)))


def test_history_is_frozen(golden: Golden, normal: Normalizer, memory: Any) -> None:
    entries = [storage.dump(entry) for entry in memory.scope("ana").history()]
    golden.check("api/history.json", normal.json(entries))


def test_exported_records_are_frozen(golden: Golden, normal: Normalizer, memory: Any) -> None:
    golden.check("api/export.json", "\n".join(map(normal.json, memory.export())))


@pytest.mark.parametrize("name", ["tea", "honey", "blue", "locker"])
def test_why_a_memory_is_known_is_frozen(
    golden: Golden, normal: Normalizer, memory: Any, stage: Stage, name: str
) -> None:
    golden.check(
        f"api/why-{name}.json", normal.json(storage.dump(memory.scope("ana").why(stage.ids[name])))
    )


def test_why_a_memory_is_not_returned_is_frozen(
    golden: Golden, normal: Normalizer, memory: Any, stage: Stage
) -> None:
    mine = memory.scope("ana")
    names = ("bees", "cello", "train", "tea", "locker", "green")
    reasons = {
        name: storage.dump(mine.why_not(QUESTION, stage.ids[name], limit=3)) for name in names
    }
    golden.check("api/why-not.json", normal.json(reasons))


def test_listed_memories_are_frozen(golden: Golden, normal: Normalizer, memory: Any) -> None:
    for state in ("active", "superseded", "soft_deleted"):
        page = memory.scope("ana").list(Filter(states=(state,)))
        golden.check(f"api/list-{state}.json", normal.json([storage.dump(each) for each in page]))
