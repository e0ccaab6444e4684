"""What a person relies on, from the outside: receipts that are true, evidence that is real, forgetting that holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import memorist
from memorist.aio import open_client
from memorist.client import Client
from memorist.dialects import POLICIES
from memorist.embedders import Hashing
from memorist.errors import EmbedderUnavailable, InvalidInput, MemoristError, Misconfigured
from memorist.sync import Blocking, BlockingScope
from memorist.types import Filter

PIN = "My PIN is 4711."


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Blocking]:
    with memorist.open(tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path) as memory:
        yield memory


@pytest.fixture
def ana(memory: Blocking) -> BlockingScope:
    return memory.scope("ana")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Client]:
    async with await open_client(
        tmp_path / "memory.db", embedder="hashing", state_dir=tmp_path
    ) as engine:
        yield engine


def said(id: str, content: str, session: str = "s", **given: Any) -> dict[str, Any]:
    return {"id": id, "content": content, "session": session, "name": "Eva", **given}


# Conversations


def test_a_short_answer_is_kept_each_time_it_is_given(ana: BlockingScope) -> None:
    first = ana.remember([said("1", "Do you like jazz?", "x"), said("2", "Yes.", "x")])
    second = ana.remember(
        [
            said("3", "Are you allergic to nuts?", "y"),
            said("4", "Yes.", "y"),
            said("5", "Yes.", "y"),
        ]
    )
    assert {outcome.status for outcome in (*first.outcomes, *second.outcomes)} == {"created"}


def test_the_same_words_in_another_session_are_another_memory(ana: BlockingScope) -> None:
    ana.remember([said("1", "I moved to Berlin this spring.", "2024", at="2024-03-01")])
    ana.remember([said("2", "I moved to Berlin this spring.", "2026", at="2026-03-01")])
    years = {each.occurred_at.year for each in ana.list() if each.occurred_at}
    assert years == {2024, 2026}


def test_a_text_said_again_outside_a_conversation_is_one_memory(ana: BlockingScope) -> None:
    statuses = [ana.remember("I'm allergic to walnuts.").outcomes[0].status for _ in range(2)]
    assert statuses == ["created", "merged"]
    assert ana.list().memories[0].repeat_count == 1


# Receipts


def test_a_retry_after_forgetting_does_not_claim_what_is_gone(ana: BlockingScope) -> None:
    (id,) = ana.remember([said("m1", PIN)]).ids
    ana.forget(id)
    (outcome,) = ana.remember([said("m1", PIN)]).outcomes
    assert (outcome.status, outcome.ids, len(ana.list())) == ("refused", (), 0)


def test_a_forgotten_message_can_be_saved_on_purpose(ana: BlockingScope) -> None:
    (id,) = ana.remember([said("m1", PIN)]).ids
    ana.forget(id)
    assert ana.remember([said("m1", PIN)], manually_saved=True).count("created") == 1
    assert [each.text for each in ana.list()] == [PIN]
    assert ana.remember(PIN).count("refused") == 0


def test_a_full_scope_says_that_it_gave_a_memory_up_at_once(ana: BlockingScope) -> None:
    for i in range(80):
        ana.remember(f"Fact number {i}", policy="clanker", importance=0.9)
    (outcome,) = ana.remember("A slight thing", policy="clanker", importance=0.0).outcomes
    assert outcome.status == "skipped"
    assert ana.get(outcome.ids[0]).state == "soft_deleted"


# Forgetting


@pytest.mark.parametrize("policy", POLICIES)
def test_every_write_policy_respects_what_was_forgotten(ana: BlockingScope, policy: str) -> None:
    (id,) = ana.remember(PIN).ids
    ana.forget(id)
    assert ana.remember("my pin is 4711", policy=policy).count("refused") == 1


def test_forgetting_takes_all_versions_along(ana: BlockingScope, tmp_path: Path) -> None:
    (id,) = ana.remember(PIN).ids
    ana.edit(id, "My PIN is 9999.")
    ana.forget(id)
    assert len(ana.list(Filter(states=()))) == 0
    assert all(b"4711" not in file.read_bytes() for file in tmp_path.glob("memory.db*"))


def test_a_softly_forgotten_memory_hides_its_versions_until_it_is_restored(
    ana: BlockingScope,
) -> None:
    (id,) = ana.remember("I dated Carla in Rome.").ids
    then = datetime.now(UTC)
    ana.edit(id, "I dated Carla in Milan.")
    ana.forget(id, keep_days=30)
    assert len(ana.recall("Carla", as_of=then)) == 0
    ana.restore(id)
    assert [hit.memory.text for hit in ana.recall("Carla", as_of=then)] == [
        "I dated Carla in Rome."
    ]


def test_a_version_that_is_not_current_cannot_be_edited(ana: BlockingScope) -> None:
    (id,) = ana.remember("I live in Lisbon.").ids
    ana.edit(id, "I live in Porto.")
    (old,) = ana.list(Filter(states=("superseded",))).memories
    with pytest.raises(InvalidInput, match="current version"):
        ana.edit(old.id, "I live in Braga.")


# Evidence and edits


def test_why_shows_what_was_said_and_not_what_it_was_edited_to(ana: BlockingScope) -> None:
    (id,) = ana.remember([said("m1", "I live in Lisbon.")]).ids
    ana.edit(id, "I live in Porto.")
    assert [each.content for each in ana.why(id).messages] == ["I live in Lisbon."]


def test_why_does_not_pass_a_piece_off_as_the_message(ana: BlockingScope) -> None:
    long = "\n\n".join(
        f"{word} is what paragraph speaks of. " * 30 for word in ("Tea", "Rain", "Chess")
    )
    ids = ana.remember([said("m1", long)]).ids
    assert len(ids) > 1
    ana.forget(ids[0])
    assert ana.why(ids[1]).missing == ("m1",)


def test_an_edited_preference_survives_being_said_again(ana: BlockingScope) -> None:
    (id,) = ana.remember("I prefer dark roast coffee in the morning.", policy="vault").ids
    ana.edit(id, "I prefer light roast coffee in the morning.", tags=["mine"])
    ana.pin(id)
    ana.remember("I prefer dark roast coffee in the morning.", policy="vault")
    kept = ana.get(id)
    assert (kept.text, kept.pinned, kept.tags) == (
        "I prefer light roast coffee in the morning.",
        True,
        ("mine",),
    )


def test_what_a_person_set_is_not_lowered_by_repetition(ana: BlockingScope) -> None:
    (id,) = ana.remember("The server is called Hydra.").ids
    ana.edit(id, importance=1.0)
    ana.remember("The server is called Hydra.")
    assert ana.get(id).importance == 1.0


def test_a_moved_memory_tells_the_same_message_apart_as_before(
    ana: BlockingScope, tmp_path: Path
) -> None:
    (id,) = ana.remember([said("m1", "I live in Lisbon.")]).ids
    ana.edit(id, "I live in Porto.")
    with memorist.open(tmp_path / "other.db", embedder="hashing", state_dir=tmp_path) as other:
        eva = other.scope("ana")
        eva.import_(ana.export())
        assert eva.remember([said("m1", "I live in Lisbon.")]).outcomes[0].ids == (id,)
        assert eva.remember([said("m1", "Something else.")]).count("conflict") == 1
        assert {(m.text, m.state) for m in eva.list(Filter(states=()))} == {
            (m.text, m.state) for m in ana.list(Filter(states=()))
        }


def test_a_bad_record_ends_an_import_after_what_stood_before_it(ana: BlockingScope) -> None:
    with pytest.raises(InvalidInput, match="Record 3"):
        ana.import_([{"content": "one fish"}, {"content": "two fish"}, {"content": 3}])
    assert {each.text for each in ana.list()} == {"one fish", "two fish"}


# Recalling


def test_a_blank_question_has_no_answer(ana: BlockingScope) -> None:
    ana.remember("I live in Lisbon.")
    assert len(ana.recall("  ")) == 0


def test_the_block_tells_the_day_and_the_speaker(ana: BlockingScope) -> None:
    ana.remember([said("m1", "I live in Graz.", at="2024-01-01")])
    ana.remember("The lease ends in June.", at="2024-02-02")
    block = ana.recall("Where does Eva live, and when does the lease end?").prompt()
    assert "2024-01-01 Eva: I live in Graz." in block
    assert "2024-02-02: The lease ends in June." in block


def test_equal_memories_come_in_the_same_order_in_every_process(tmp_path: Path) -> None:
    def asked(ana: BlockingScope) -> list[str]:
        return [hit.memory.text for hit in ana.recall("note", limit=3)]

    with memorist.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as warm:
        ana = warm.scope("ana")
        ids = [
            id
            for word in "ash elm fir oak yew gum".split()
            for id in ana.remember(f"note {word}").ids
        ]
        asked(ana)
        for id in ids[:4]:
            ana.pin(id)
        with memorist.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as fresh:
            assert asked(ana) == asked(fresh.scope("ana"))


class Broken(Hashing):
    """An embedder that gives something else than vectors."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self._made = made

    async def encode_batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return (
            np.full((len(texts), 384), np.nan, np.float32)
            if self._made == "nan"
            else np.ones((1, 3), np.float32)
        )


@pytest.mark.parametrize("made", ["nan", "short"])
async def test_a_vector_that_is_none_is_never_kept(engine: Client, made: str) -> None:
    good, engine.ctx.embedder = engine.ctx.embedder, Broken(made)
    ana = engine.scope("ana")
    receipt = await ana.remember("My kettle is blue.")
    assert "not embedded yet" in receipt.outcomes[0].reason
    assert (await ana.recall("kettle")).degraded
    engine.ctx.embedder = good
    assert (await engine.index()).embedded == 1
    assert len(await ana.recall("kettle")) == 1


async def test_memories_without_vectors_are_found_and_the_answer_says_so(tmp_path: Path) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="none") as plain:
        await plain.scope("ana").remember("Kettles are blue.")
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as engine:
        found = await engine.scope("ana").recall("kettles")
    assert len(found) == 1
    assert "memorist index" in found.legs["dense"]


@pytest.mark.parametrize(
    ("as_of", "tags", "reason"),
    [
        ("2020-01-01T00:00:00Z", (), "it was not valid at 2020-01-01T00:00:00+00:00"),
        ("2100-01-01T00:00:00Z", ("work",), "it does not pass the filter"),
        (None, ("work",), "it does not pass the filter"),
    ],
)
def test_why_not_tells_a_wrong_time_from_a_filter(
    memory: Blocking, as_of: str | None, tags: tuple[str, ...], reason: str
) -> None:
    ana = memory.scope("ana")
    (id,) = ana.remember("I drink green tea.").ids
    told = ana.why_not("green tea", id, as_of=as_of, where=Filter(tags=tags))
    assert (told.returned, told.reason) == (False, reason)


def test_why_not_says_that_nothing_counted_as_evidence(memory: Blocking) -> None:
    ana = memory.scope("ana")
    ana.remember(
        [
            said(str(i), f"Turn {i} speaks of gardens and rivers.", at="2024-01-01")
            for i in range(120)
        ]
    )
    last = ana.list().memories[0]
    reason = ana.why_not("zzz qqq xxx", last.id)
    assert (reason.returned, "evidence" in reason.reason or "no word" in reason.reason) == (
        False,
        True,
    )


# Opening


@pytest.mark.parametrize(
    "wrong", [{"language": "klingon"}, {"policy": "nope"}, {"profile": "nope"}]
)
def test_a_setting_that_nothing_goes_by_is_told_when_opening(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    with pytest.raises(Misconfigured, match=next(iter(wrong.values()))):
        memorist.open(tmp_path / "m.db", embedder="hashing", **wrong)
    assert not (tmp_path / "m.db").exists()


def test_an_empty_tenant_is_nobody_elses(memory: Blocking) -> None:
    with pytest.raises(InvalidInput, match="tenant"):
        memory.scope("ana", tenant="")


def test_tokens_can_be_counted_by_the_caller(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", embedder="hashing", count_tokens=len) as memory:
        ana = memory.scope("ana")
        ana.remember("I live in Lisbon.")
        assert ana.recall("Lisbon").tokens == len(ana.recall("Lisbon").prompt())
        assert len(ana.recall("Lisbon", budget=20)) == 0


def test_versions_are_told_apart(ana: BlockingScope) -> None:
    (id,) = ana.remember("I live in Lisbon.").ids
    ana.edit(id, category="home")
    (old,) = ana.list(Filter(versions_of=id, states=("superseded",))).memories
    assert replace(old, id=id).text == "I live in Lisbon."


async def test_a_part_that_cannot_be_closed_keeps_no_other_open(tmp_path: Path) -> None:
    class Stuck(Hashing):
        async def close(self) -> None:
            raise EmbedderUnavailable("it hangs")

    engine = await open_client(tmp_path / "m.db", embedder="hashing")
    engine.ctx.embedder = Stuck()
    with pytest.raises(EmbedderUnavailable, match="hangs"):
        await engine.close()
    with pytest.raises(MemoristError, match="closed"):
        await engine.stats()
