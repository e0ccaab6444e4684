"""How much a text is worth remembering."""

import numpy as np
import pytest

import memorist
from memorist.dialects import POLICIES
from memorist.ingest import analyze
from memorist.ingest.policies import WHOLE, Policy
from memorist.ingest.transitions import repeated_importance
from memorist.text.entities import TECHNICAL_WORDS, entities, is_technical
from memorist.types import Draft

EAST, NORTH = np.array([1.0, 0.0], dtype=np.float32), np.array([0.0, 1.0], dtype=np.float32)


def salience(text: str) -> float:
    (chunk,) = analyze.analyze(Draft(text=text), Policy(name="whole", chunk=WHOLE))
    return chunk.salience


@pytest.mark.spec("MLS-20", "MLS-21")
def test_importance_is_six_parts_novelty_and_four_parts_salience() -> None:
    assert analyze.novelty_importance(0.5, 0.9) == 0.66
    assert (analyze.novelty_importance(0.0, 0.0), analyze.novelty_importance(1.0, 1.0)) == (
        0.0,
        1.0,
    )


@pytest.mark.spec("MLS-22")
def test_novelty_is_the_cosine_distance_to_what_is_known() -> None:
    assert analyze.novelty(EAST, EAST * 7) == 0.0
    assert analyze.novelty(EAST, NORTH) == 1.0
    assert analyze.novelty(EAST, EAST + NORTH) == pytest.approx(1 - 2**-0.5)


@pytest.mark.spec("MLS-23")
def test_everything_is_new_to_someone_without_memories() -> None:
    assert analyze.novelty(EAST, None) == 1.0
    assert analyze.novelty(EAST, EAST * 0) == 1.0


@pytest.mark.spec("MLS-24")
def test_novelty_is_at_most_one() -> None:
    assert analyze.novelty(EAST, -EAST) == 1.0


@pytest.mark.spec("MLS-24")
def test_novelty_is_at_least_zero_where_rounding_makes_the_cosine_more_than_one() -> None:
    vector = np.array([0.3, 0.3, 0.1], dtype=np.float32)
    assert float(np.dot(vector, vector)) > float(np.linalg.norm(vector)) ** 2
    assert analyze.novelty(vector, vector * 2) == 0.0


@pytest.mark.spec("MLS-25", "MLS-26", "MLS-27", "MLS-28")
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("we talked to Boris", {"entity": 0.3}),
        ("we need 3 of them", {"number": 0.2}),
        ("see you on Monday", {"number": 0.2}),
        ("it was in May", {"number": 0.2}),
        ("see you on Saturday", {"number": 0.2}),
        ("we moved there in December", {"number": 0.2}),
        ("it may rain", {}),
        ("I prefer tea", {"preference": 0.4}),
        ("I always walk", {"preference": 0.4}),
        ("I hate rain", {"preference": 0.4}),
        ("my favorite food", {"preference": 0.4}),
        ("the proxy drops the websocket", {"technical": 0.1}),
        ("hello again", {}),
    ],
)
def test_each_signal_adds_its_part(text: str, parts: dict[str, float]) -> None:
    assert analyze.find_signals(text, entities(text), is_technical=is_technical(text)) == parts


@pytest.mark.spec("MLS-29")
def test_all_signals_together_are_at_most_one() -> None:
    assert salience("I prefer PostgreSQL 16 with Anna on async pipelines") == 1.0


TECHNICAL = [
    "The gRPC gateway retries idempotent PUTs with exponential backoff",
    "fix the NullPointerException in UserService.java",
    "useEffect runs twice in React strict mode",
    "the nginx proxy terminates TLS",
    "Set max_connections to 200",
    "The postgres replica lags behind the primary because of a long-running vacuum",
]
PLAIN = [
    "My daughter started kindergarten and loves painting",
    "The neighbour's dog barked all night, I'm exhausted",
    "The museum exhibition about Egyptian mummies was fascinating",
    "Mum baked a delicious rhubarb crumble",
    "Let's go hiking on Saturday, the forecast looks great",
    "Ich habe gestern mit meiner Schwester telefoniert",
    "Я люблю чай",
    "我喜欢喝茶",
]


@pytest.mark.spec("MLS-28")
def test_rare_words_make_a_text_technical_and_plain_talk_is_not() -> None:
    assert all(is_technical(text) for text in TECHNICAL)
    assert not any(is_technical(text) for text in PLAIN)
    assert all(is_technical(f"the {word}") for word in TECHNICAL_WORDS)


@pytest.mark.spec("MLS-30")
def test_a_chunk_below_the_gate_is_dropped_unless_a_person_saved_it() -> None:
    gate = POLICIES["vault"].gate
    assert gate == 0.3
    assert analyze.is_kept(0.3, gate, on_purpose=False)
    assert not analyze.is_kept(0.299, gate, on_purpose=False)
    assert analyze.is_kept(0.0, gate, on_purpose=True)


@pytest.mark.spec("THE-38")
def test_an_explicit_save_adds_a_half() -> None:
    assert analyze.heuristic_importance("The sky was red", manually_saved=True) == 0.5


@pytest.mark.spec("THE-39")
@pytest.mark.parametrize(
    "text",
    ["I prefer tea", "I will send it on Friday", "My goal is a marathon", "We can't stand noise"],
)
def test_preferences_commitments_and_goals_add_0_3(text: str) -> None:
    assert analyze.heuristic_importance(text) == 0.3


@pytest.mark.spec("THE-40")
def test_confident_tags_add_0_2() -> None:
    assert analyze.heuristic_importance("It was red", metadata_confidence=0.6, has_tags=True) == 0.2
    assert (
        analyze.heuristic_importance("It was red", metadata_confidence=0.59, has_tags=True) == 0.0
    )
    assert (
        analyze.heuristic_importance("It was red", metadata_confidence=0.9, has_tags=False) == 0.0
    )


@pytest.mark.spec("THE-41")
def test_chit_chat_costs_0_1_and_never_goes_below_zero() -> None:
    assert analyze.heuristic_importance("ok thanks", manually_saved=True) == 0.4
    assert analyze.heuristic_importance("ok thanks") == 0.0


@pytest.mark.spec("THE-33")
def test_repeats_raise_the_first_importance_ever_more_slowly() -> None:
    assert [round(repeated_importance(0.0, n), 3) for n in (0, 1, 2, 3, 4, 7, 50)] == [
        0,
        0.1,
        0.158,
        0.2,
        0.232,
        0.3,
        0.3,
    ]
    assert repeated_importance(0.3, 4) == pytest.approx(0.532, abs=0.001)
    assert repeated_importance(0.9, 7) == 1.0


def test_the_unified_score_is_the_highest_measure() -> None:
    assert analyze.unified(0.16, 0.3) == 0.3
    assert analyze.unified(0.66, 0.3) == 0.66
    assert analyze.unified(0.1, 0.1, 1.0) == 1.0


def test_a_restated_preference_is_not_dropped() -> None:
    text = "I prefer tea"
    restated = analyze.novelty_importance(0.0, salience(text))
    assert not analyze.is_kept(restated, 0.3, on_purpose=False)
    measured = analyze.unified(restated, analyze.heuristic_importance(text))
    assert analyze.is_kept(measured, 0.3, on_purpose=False)


def test_a_word_of_a_million_letters_is_scored() -> None:
    assert salience("a" * 1_000_000) == 0.0


def test_what_tells_nothing_new_and_nothing_lasting_has_no_importance() -> None:
    said = [
        {"role": "user", "content": "Yes, of course.", "session": session}
        for session in ("s1", "s2")
    ]
    with memorist.open(":memory:", embedder="hashing") as memory:
        ana = memory.scope("ana")
        first, again = (ana.get(ana.remember([each]).ids[0]) for each in said)
    assert (first.importance, again.importance) == (0.6, 0.0)
