"""The labelled histories in `bench/own/changes` are well-formed."""

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "bench" / "own" / "changes" / "histories.jsonl"
HISTORIES = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
KEYS = "id kind lang messages question current stale decoy note".split()
MESSAGE_KEYS = "id session at role name text".split()
SHORT = 12  # characters: a reply up to this length may occur in several histories


def test_there_are_as_many_of_each_kind_as_planned():
    assert Counter(history["kind"] for history in HISTORIES) == {
        "update": 90,
        "negation": 15,
        "both_true": 30,
        "refinement": 20,
        "past": 20,
        "hypothetical": 20,
        "other_person": 20,
        "repeat": 35,
    }


def test_about_seven_of_ten_are_english():
    english = sum(history["lang"] == "en" for history in HISTORIES)
    assert 0.65 <= english / len(HISTORIES) <= 0.75


def test_ids_are_unique_and_begin_with_the_kind():
    ids = [history["id"] for history in HISTORIES]
    assert len(set(ids)) == len(ids)
    assert all(history["id"].startswith(history["kind"]) for history in HISTORIES)


def test_no_text_is_in_two_histories():
    seen: dict[str, str] = {}
    for history in HISTORIES:
        for message in history["messages"]:
            text = message["text"].casefold()
            if len(text) > SHORT:
                assert seen.setdefault(text, history["id"]) == history["id"], text


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history["id"])
class TestHistory:
    def test_it_has_these_keys_alone(self, history):
        assert list(history) == KEYS
        assert all(list(message) == MESSAGE_KEYS for message in history["messages"])
        assert {message["role"] for message in history["messages"]} <= {"user", "assistant"}
        assert history["question"]
        assert history["note"]

    def test_it_is_short_and_its_messages_are_numbered(self, history):
        ids = [message["id"] for message in history["messages"]]
        assert 4 <= len(ids) <= 12
        assert ids == [f"m{number}" for number in range(1, len(ids) + 1)]

    def test_its_times_ascend_and_its_sessions_follow_each_other(self, history):
        times = [datetime.fromisoformat(message["at"]) for message in history["messages"]]
        assert times == sorted(set(times))
        sessions = [message["session"] for message in history["messages"]]
        in_order = [f"s{number}" for number in range(1, len(set(sessions)) + 1)]
        assert list(dict.fromkeys(sessions)) == in_order
        assert sessions == sorted(sessions)
        assert len(in_order) <= 4

    def test_its_labels_name_messages_and_fit_its_kind(self, history):
        labels = [*history["current"], *history["stale"], *history["decoy"]]
        assert len(set(labels)) == len(labels)
        assert set(labels) <= {message["id"] for message in history["messages"]}
        assert history["current"]
        assert bool(history["stale"]) == (history["kind"] in ("update", "negation"))
        if history["kind"] in ("both_true", "refinement", "repeat"):
            assert len(history["current"]) >= 2
        if history["kind"] in ("past", "hypothetical", "other_person"):
            assert history["decoy"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("repeats.jsonl", {"repeat": 40, "both_true": 64}),
        ("repeats-check.jsonl", {"repeat": 20, "both_true": 20}),
    ],
)
def test_the_histories_of_repetitions_are_well_formed(name, counts):
    lines = FILE.with_name(name).read_text("utf-8").splitlines()
    histories = [json.loads(line) for line in lines]
    assert Counter(history["kind"] for history in histories) == counts
    for history in histories:
        assert list(history) == KEYS
        messages = {message["id"]: message for message in history["messages"]}
        assert all(list(message) == MESSAGE_KEYS for message in messages.values())
        sessions = [messages[id]["session"] for id in history["current"]]
        assert len(set(sessions)) >= 2
        assert all(message["text"].strip() for message in messages.values())
