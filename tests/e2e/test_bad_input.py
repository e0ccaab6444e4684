"""Whatever is handed in: a typed error that names the way out, or a sensible result; nothing lost or half written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from math import nan
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist.client import Client
from memorist.errors import (
    InvalidInput,
    MemoristError,
    Misconfigured,
    NotFound,
    StoreDamaged,
    StoreUnavailable,
)
from memorist.sync import Blocking, BlockingScope


@pytest.fixture
def memory() -> Iterator[Blocking]:
    with memorist.open(":memory:", embedder="hashing") as opened:
        yield opened
        assert opened.check() == []


@pytest.fixture
def ana(memory: Blocking) -> BlockingScope:
    return memory.scope("ana")


def texts(scope: Any) -> list[str]:
    return [each.text for each in scope.list(limit=1000)]


# Texts


@pytest.mark.parametrize("text", ["", " ", "\n\t\r ", "\u3000\u00a0", "\x00", "\x00 \x00"])
def test_a_blank_text_is_refused(ana: BlockingScope, text: str) -> None:
    with pytest.raises(InvalidInput, match="blank"):
        ana.remember(text)
    assert texts(ana) == []


def test_a_blank_message_is_skipped_and_the_others_are_kept(ana: BlockingScope) -> None:
    receipt = ana.remember([{"content": " "}, {"content": "I live in Lisbon."}])
    assert [outcome.status for outcome in receipt.outcomes] == ["skipped", "created"]
    assert "blank" in receipt.outcomes[0].reason


def test_ten_megabytes_of_text_are_refused_with_the_way_out(ana: BlockingScope) -> None:
    for what in (
        "tea " * 2_500_000,
        [{"content": "I live in Lisbon."}, {"content": "x" * 10_000_000}],
    ):
        with pytest.raises(InvalidInput, match="max_text_chars"):
            ana.remember(what)
    assert texts(ana) == []


def test_a_long_text_that_is_allowed_is_kept_whole(ana: BlockingScope) -> None:
    text = " ".join(f"Fact {number} says {number * 7919}." for number in range(4000))
    receipt = ana.remember(text)
    assert receipt.count("created") == 1
    assert "Fact 3999 says 31668081." in ana.get(receipt.ids[-1]).text


@pytest.mark.parametrize(
    "text", ["\u0301" * 100_000, "e" + "\u0301" * 100_000, "\u0315\u0300" * 50_000, "\u200d" * 9]
)
def test_a_text_of_nothing_but_marks_takes_no_time(ana: BlockingScope, text: str) -> None:
    start = time.monotonic()
    ana.remember(text)
    ana.recall(text)
    assert time.monotonic() - start < 5


def test_nul_bytes_are_left_out(ana: BlockingScope) -> None:
    (id,) = ana.remember("I like\x00 green tea\x00").ids
    assert ana.get(id).text == "I like green tea"


def test_half_a_surrogate_pair_becomes_a_replacement_character(ana: BlockingScope) -> None:
    (id,) = ana.remember("I like \ud83d green tea").ids
    assert ana.get(id).text == "I like \ufffd green tea"
    assert [hit.memory.id for hit in ana.recall("\udc00 green tea").hits] == [id]


SCRIPTS = {
    "Latin": ("Der Zug nach Köln fährt morgens.", "Köln"),
    "Greek": ("Το τρένο για την Αθήνα φεύγει νωρίς.", "Αθήνα"),
    "Cyrillic": ("Поезд в Самарканд уходит утром.", "Самарканд"),
    "Armenian": ("Գնացքը մեկնում է Երևան առավոտյան։", "Երևան"),
    "Hebrew": ("הרכבת לחיפה יוצאת בבוקר.", "בבוקר"),
    "Arabic": ("القطار يغادر إلى القاهرة صباحا", "القاهرة"),
    "Devanagari": ("दिल्ली की रेल सुबह जाती है", "दिल्ली"),
    "Bengali": ("ঢাকার ট্রেন সকালে ছাড়ে", "সকালে"),
    "Tamil": ("சென்னை ரயில் காலையில் புறப்படும்", "காலையில்"),
    "Telugu": ("హైదరాబాద్ రైలు ఉదయం బయలుదేరుతుంది", "ఉదయం"),
    "Kannada": ("ಬೆಂಗಳೂರು ರೈಲು ಬೆಳಿಗ್ಗೆ ಹೊರಡುತ್ತದೆ", "ಬೆಳಿಗ್ಗೆ"),
    "Malayalam": ("കൊച്ചി ട്രെയിൻ രാവിലെ പുറപ്പെടും", "രാവിലെ"),
    "Gujarati": ("અમદાવાદની ટ્રેન સવારે ઉપડે છે", "સવારે"),
    "Gurmukhi": ("ਰੇਲਗੱਡੀ ਸਵੇਰੇ ਅੰਮ੍ਰਿਤਸਰ ਜਾਂਦੀ ਹੈ", "ਅੰਮ੍ਰਿਤਸਰ"),
    "Sinhala": ("කොළඹ දුම්රිය උදේ පිටත් වේ", "දුම්රිය"),
    "Thai": ("รถไฟไปเชียงใหม่ออกตอนเช้า", "เชียงใหม่"),
    "Georgian": ("მატარებელი თბილისში დილით გადის", "თბილისში"),
    "Amharic": ("ባቡሩ ወደ አዲስ አበባ ጠዋት ይሄዳል", "ጠዋት"),
    "Chinese": ("去成都的火车早上出发。", "成都"),
    "Japanese": ("京都行きの電車は朝に出ます。", "京都"),
    "Korean": ("부산행 기차는 아침에 떠난다", "기차는"),
    "Khmer": ("រថភ្លើង ចេញដំណើរ នៅពេលព្រឹក", "រថភ្លើង"),
}


@pytest.fixture(scope="module")
def polyglot() -> Iterator[BlockingScope]:
    with memorist.open(":memory:", embedder="none") as opened:
        scope = opened.scope("ana")
        for text, _ in SCRIPTS.values():
            scope.remember(text)
        yield scope


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_is_found_again_by_one_of_its_words(
    polyglot: BlockingScope, script: str
) -> None:
    text, word = SCRIPTS[script]
    assert [hit.memory.text for hit in polyglot.recall(word).hits][:1] == [text]


# Questions


def test_a_question_of_100000_characters_is_answered(ana: BlockingScope) -> None:
    (id,) = ana.remember("Ana drinks green tea in Lisbon.").ids
    start = time.monotonic()
    answer = ana.recall("green tea " + "and more words of it " * 5000)
    assert [hit.memory.id for hit in answer.hits] == [id]
    assert time.monotonic() - start < 5


SYNTAX = [*"*\"():^-+{}\\%';", "AND", "OR", "NOT", "NEAR", "--", "text:tea", "NEAR(green tea, 2)", "green AND tea",
          "tea*", '"green tea', "^green", "-tea", "a" * 5000, "tea OR " * 500]  # fmt: skip


@pytest.mark.parametrize("query", SYNTAX, ids=lambda query: query[:20])
def test_no_question_is_read_as_syntax(ana: BlockingScope, query: str) -> None:
    (id,) = ana.remember("Ana drinks green tea in Lisbon.").ids
    ana.recall(query)
    assert [hit.memory.id for hit in ana.recall(f"{query} Lisbon {query}").hits] == [id]


@pytest.mark.parametrize("query", ["", " ", "\x00", "\n"])
def test_a_blank_question_is_answered_with_a_recall(ana: BlockingScope, query: str) -> None:
    ana.remember("Ana drinks green tea in Lisbon.")
    assert ana.recall(query).query.text.strip() == ""


@pytest.mark.parametrize("query", [None, 5, b"tea", ["tea"], {"text": "tea"}])
def test_a_question_is_text(ana: BlockingScope, query: Any) -> None:
    with pytest.raises(InvalidInput, match="question is text"):
        ana.recall(query)


@pytest.mark.parametrize("limit", [-1, 0, 2.5, "3", True, [1]])
def test_a_limit_is_a_whole_number_of_at_least_one(ana: BlockingScope, limit: Any) -> None:
    for ask in (lambda: ana.recall("tea", limit=limit), lambda: ana.list(limit=limit), lambda: ana.history(limit=limit),
                lambda: ana.recall("tea", budget=limit), lambda: ana.recall("tea", max_chars=limit)):  # fmt: skip
        with pytest.raises(InvalidInput, match="at least 1"):
            ask()


def test_a_budget_smaller_than_any_memory_gives_nothing_and_says_why(ana: BlockingScope) -> None:
    (id,) = ana.remember("Ana drinks green tea in Lisbon.").ids
    answer = ana.recall("green tea", budget=1)
    assert (answer.hits, answer.text, answer.tokens) == ((), "", 0)
    assert [cut.id for cut in answer.cut] == [id]


def test_unknown_names_are_answered_with_the_known_ones(ana: BlockingScope) -> None:
    with pytest.raises(InvalidInput, match="default"):
        ana.recall("tea", profile="nope")
    with pytest.raises(InvalidInput, match="default"):
        ana.remember("tea", policy="nope")


# Times


def test_a_time_without_a_zone_is_taken_as_utc(ana: BlockingScope) -> None:
    (id,) = ana.remember("The dentist called.", at=datetime(2026, 1, 1, 12)).ids
    assert ana.get(id).occurred_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    ana.recall("dentist", as_of=datetime(2026, 1, 1))


@pytest.mark.parametrize(
    "at", [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1), datetime(1969, 12, 31)]
)
@pytest.mark.parametrize("hours", [-12, 0, 14])
def test_the_ends_of_the_calendar_are_times_like_any_other(
    ana: BlockingScope, at: datetime, hours: int
) -> None:
    (id,) = ana.remember(
        "The comet returns.", at=at.replace(tzinfo=timezone(timedelta(hours=hours)))
    ).ids
    for profile in ("default", "milton.deterministic", "theoria.triscore", "clanker.hybrid"):
        assert [hit.memory.id for hit in ana.recall("comet returns", profile=profile).hits] == [id]
    assert [each.id for each in ana.list()] == [id]


@pytest.mark.parametrize("at", ["yesterday", "2026-13-01", 5, b"2026-01-01", ["2026"]])
def test_what_is_no_time_is_refused_with_an_example(ana: BlockingScope, at: Any) -> None:
    for call in (lambda: ana.remember("tea", at=at), lambda: ana.recall("tea", as_of=at)):
        with pytest.raises(InvalidInput, match="2026-05-31T14:00:00Z"):
            call()
    assert texts(ana) == []


# Scopes


@pytest.mark.parametrize("user", [None, "", "  ", 5, b"ana", "x" * 201, "a\x00b", "\ud800"])
def test_a_scope_needs_a_user(memory: Blocking, user: Any) -> None:
    with pytest.raises(InvalidInput, match="user"):
        memory.scope(user)


def test_a_scope_takes_only_the_labels_there_are(memory: Blocking) -> None:
    with pytest.raises(InvalidInput, match="session"):
        memory.scope("ana", colour="blue")


@pytest.mark.parametrize("label", [5, b"s", "half \ud800"])
def test_a_label_is_text(memory: Blocking, label: Any) -> None:
    with pytest.raises(InvalidInput):
        memory.scope("ana", session=label).remember("I live in Lisbon.")
    assert texts(memory.scope("ana")) == []


@pytest.mark.spec("THE-109")
def test_the_id_of_another_user_is_not_found_and_nothing_changes(
    memory: Blocking, ana: BlockingScope
) -> None:
    bob = memory.scope("bob")
    (id,) = bob.remember([{"id": "m1", "content": "Bob keeps bees in the garden."}]).ids
    before = bob.get(id), bob.history(), list(bob.export())
    for call in (ana.get, ana.pin, ana.unpin, ana.forget, ana.why, ana.restore, lambda id: ana.edit(id, "stolen"),
                 lambda id: ana.edit(id, tags=["x"]), lambda id: ana.forget(id, keep_days=3),
                 lambda id: ana.why_not("bees", id)):  # fmt: skip
        with pytest.raises(NotFound, match=id):
            call(id)
    assert ana.history(id) == []
    assert ana.recall("bees in the garden").hits == ()
    assert (bob.get(id), bob.history(), list(bob.export())) == before


@pytest.mark.parametrize("id", [None, 5, b"m", "", "m1", "x" * 10_000, "' OR 1=1 --"])
def test_an_id_that_is_nowhere_is_not_found(ana: BlockingScope, id: Any) -> None:
    ana.remember("I live in Lisbon.")
    for call in (ana.get, ana.pin, ana.forget, ana.why, lambda id: ana.edit(id, "x")):
        with pytest.raises(NotFound):
            call(id)


# Wrong types


@pytest.mark.parametrize(
    "what", [None, 5, 1.5, b"tea", object(), [1, 2], [None], ["tea"], {"tea"}, iter("a")]
)
def test_remember_takes_a_text_or_messages(ana: BlockingScope, what: Any) -> None:
    with pytest.raises(InvalidInput, match="message"):
        ana.remember(what)
    assert texts(ana) == []


@pytest.mark.parametrize(
    "message",
    [{}, {"role": "user"}, {"content": None}, {"content": 5}, {"content": "hi", "sesion": "s1"},
     {"content": "hi", "id": 5}, {"content": "hi", "role": None}, {"content": "hi", "at": "soon"}],
)  # fmt: skip
def test_a_message_that_cannot_be_read_stops_the_call_before_anything_is_kept(
    ana: BlockingScope, message: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        ana.remember([{"id": "m0", "content": "I live in Lisbon."}, message])
    assert texts(ana) == []
    assert ana.remember([{"id": "m0", "content": "I live in Lisbon."}]).count("created") == 1


WRONG = [{"kind": "poem"}, {"kind": 5}, {"importance": 1.01}, {"importance": -1}, {"importance": "high"},
         {"importance": True}, {"importance": float("nan")}, {"confidence": None}, {"confidence": 2}, {"tags": "tea"},
         {"tags": [1]}, {"tags": None}, {"tags": 5}, {"source_ids": [None]}, {"evidence": b"x"}, {"category": 5},
         {"item_type": ["a"]}, {"pinned": "yes"}, {"manually_saved": 1}]  # fmt: skip


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_a_field_of_a_wrong_kind_is_named(ana: BlockingScope, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(given))):
        ana.remember("I live in Lisbon.", **given)
    assert texts(ana) == []


@pytest.mark.parametrize(
    "given", [{"importance": 5}, {"importance": "high"}, {"category": 5}, {"summary": "x" * 281}]
)
def test_an_edit_of_a_wrong_kind_changes_nothing(ana: BlockingScope, given: dict[str, Any]) -> None:
    (id,) = ana.remember("I live in Lisbon.").ids
    before = ana.get(id)
    with pytest.raises(InvalidInput):
        ana.edit(id, **given)
    assert (ana.get(id), len(ana.history(id))) == (before, 1)


CALLS: dict[str, Any] = {
    "label": lambda ana, id: Client(ana._inner.ctx).scope("ana", session=["s"]),
    "tags": lambda ana, id: ana.edit(id, tags=[1]),
    "tags as text": lambda ana, id: ana.edit(id, tags="tea"),
    "summary": lambda ana, id: ana.edit(id, summary=5),
    "text": lambda ana, id: ana.edit(id, 5),
    "where": lambda ana, id: ana.list(["semantic"]),
    "a field of where": lambda ana, id: ana.list({"kind": ["semantic"]}),
    "a confidence above 1": lambda ana, id: ana.recall("tea", min_confidence=1.5),
    "a confidence below 0": lambda ana, id: ana.recall("tea", min_confidence=-0.1),
    "a confidence that is text": lambda ana, id: ana.recall("tea", min_confidence="x"),
    "a confidence that is a claim": lambda ana, id: ana.recall("tea", min_confidence=True),
    "a confidence that is no number": lambda ana, id: ana.why_not("tea", id, min_confidence=nan),
    "a confidence of what is shared": lambda ana, id: ana.recall_shared("tea", min_confidence=2),
    "negative days": lambda ana, id: ana.forget(id, keep_days=-1),
    "many days": lambda ana, id: ana.forget(id, keep_days=10**9),
    "no number of days": lambda ana, id: ana.forget(id, keep_days="3"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_of_a_wrong_kind_is_told(ana: BlockingScope, call: str) -> None:
    (id,) = ana.remember("I live in Lisbon.").ids
    with pytest.raises(InvalidInput):
        CALLS[call](ana, id)


@pytest.mark.parametrize("whole", [{"importance": 1}, {"confidence": 1}, {"importance": 0}])
def test_a_whole_number_between_0_and_1_is_a_number(
    ana: BlockingScope, whole: dict[str, Any]
) -> None:
    (id,) = ana.remember("I live in Lisbon.", **whole).ids
    assert ana.get(id).text == "I live in Lisbon."


@pytest.mark.parametrize(
    "records",
    [5, [5], "abc", [{}], [{"record_type": "memory", "data": 5}], [{"record_type": "memory", "data": {}}],
     [{"record_type": "poem", "data": {}}], [{"record_type": "memorist", "data": {"format": 99}}],
     [{"record_type": "message", "data": {}}], [{"record_type": "user_profile", "data": {"id": 5}}]],
)  # fmt: skip
def test_records_that_cannot_be_read_are_refused(
    memory: Blocking, ana: BlockingScope, records: Any
) -> None:
    for door in (memory, ana):
        with pytest.raises(InvalidInput):
            door.import_(records)
    assert texts(ana) == []


# Messages told twice


def test_a_message_given_twice_in_one_call_is_kept_once(ana: BlockingScope) -> None:
    receipt = ana.remember(
        [{"id": "m1", "content": "Apples are red."}, {"id": "m1", "content": "Apples are red."}]
    )
    assert len(receipt.ids) == 1
    assert [outcome.ids for outcome in receipt.outcomes] == [receipt.ids] * 2
    assert ana.get(receipt.ids[0]).repeat_count == 0


def test_the_same_message_again_changes_nothing_and_gives_the_same_outcome(
    ana: BlockingScope,
) -> None:
    said = [{"id": "m1", "content": "Apples are red.", "role": "user"}]
    first = ana.remember(said)
    before = list(ana.export())
    assert ana.remember(said) == first
    assert list(ana.export()) == before


def test_the_same_id_with_another_text_is_a_conflict(ana: BlockingScope) -> None:
    first = ana.remember([{"id": "m1", "content": "Apples are red."}])
    (outcome,) = ana.remember([{"id": "m1", "content": "Apples are yellow."}]).outcomes
    assert (outcome.status, outcome.ids) == ("conflict", first.ids)
    assert "edit" in outcome.reason
    assert texts(ana) == ["Apples are red."]


def test_one_id_with_two_texts_in_one_call_is_a_conflict(ana: BlockingScope) -> None:
    receipt = ana.remember(
        [{"id": "m1", "content": "Pears are green."}, {"id": "m1", "content": "Plums are blue."}]
    )
    assert [outcome.status for outcome in receipt.outcomes] == ["created", "conflict"]


# Files


def test_a_truncated_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with memorist.open(path, embedder="hashing") as memory:
        memory.scope("ana").remember("I live in Lisbon.")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreDamaged, match="backup"):
        memorist.open(path, embedder="hashing").scope("ana").recall("Lisbon")


def test_a_foreign_file_is_told_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ana,\n" * 50)
    with pytest.raises(StoreDamaged, match="choose another file"):
        memorist.open(path, embedder="hashing")
    assert path.read_text() == "Dear Ana,\n" * 50


def test_a_place_that_cannot_be_written_is_told() -> None:
    with pytest.raises(StoreUnavailable, match="another"):
        memorist.open("/proc/memorist/memory.db", embedder="hashing")


@pytest.mark.parametrize("db", ["a\x00b", "mysql://host/db"])
def test_a_name_that_is_no_file_is_told(db: str) -> None:
    with pytest.raises((StoreUnavailable, Misconfigured), match=r"choose|name a file"):
        memorist.open(db, embedder="hashing")


@pytest.mark.parametrize(
    "setting", [{"embedder": "nope"}, {"colour": "blue"}, {"cache_mb": -1}, {"index_cache_mb": "x"}]
)
def test_a_wrong_setting_is_named(setting: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match=next(iter(setting))):
        memorist.open(":memory:", **setting)


def test_only_postgresql_can_be_its_own_vector_index() -> None:
    with pytest.raises(
        Misconfigured, match="'vector_index': only PostgreSQL searches vectors itself"
    ):
        memorist.open(":memory:", embedder="hashing", vector_index="store")


def test_a_closed_memory_says_so() -> None:
    memory = memorist.open(":memory:", embedder="hashing")
    ana = memory.scope("ana")
    memory.close()
    memory.close()
    with pytest.raises(MemoristError, match="open it again"):
        ana.recall("tea")


@pytest.mark.parametrize("verb", ["recall", "why_not", "forget", "forget_where"])
def test_a_misspelled_option_is_named_together_with_the_verb(memory: Blocking, verb: str) -> None:
    ana = memory.scope("ana")
    (id,) = ana.remember("I live in Lisbon.").ids
    words = {"recall": ["where?"], "why_not": ["where?", id], "forget": [id], "forget_where": ["x"]}
    with pytest.raises(TypeError, match=rf"^{verb}\(\) got an unexpected keyword .* 'lmit'$"):
        getattr(ana, verb)(*words[verb], lmit=3)
    assert ana.get(id).text == "I live in Lisbon."


@pytest.mark.parametrize("wrong", [5, b"memory.db", ["memory.db"], True])
def test_a_database_that_is_no_path_is_refused(
    wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(memorist.MemoristError, match="is not a path"):
        memorist.open(wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_time_may_be_seconds_since_1970() -> None:
    said = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    with memorist.open(":memory:", embedder="hashing") as memory:
        ana = memory.scope("ana")
        message = {"role": "user", "content": "I row.", "at": 1_700_000_000}
        for receipt in (ana.remember([message]), ana.remember("I swim.", at=1_700_000_000)):
            assert ana.get(receipt.ids[0]).occurred_at == said
        with pytest.raises(InvalidInput, match="is not a time"):
            ana.remember([{**message, "at": -5}])
