"""Which kind and type a text becomes."""

import pytest

from memorist.errors import InvalidInput
from memorist.ingest import analyze
from memorist.types import ITEM_TYPES, KINDS


@pytest.mark.spec("MLS-31")
def test_a_hint_wins_over_every_rule() -> None:
    assert analyze.choose_kind("I prefer tea", hint="episodic") == "episodic"
    with pytest.raises(InvalidInput, match="choose one of"):
        analyze.choose_kind("I prefer tea", hint="rumour")


@pytest.mark.spec("MLS-27", "MLS-32")
@pytest.mark.parametrize(
    "text",
    ["I prefer tea", "so i  ALWAYS walk", "I hate rain", "My favorite is blue", "my favourite"],
)
def test_a_preference_is_procedural(text: str) -> None:
    assert analyze.choose_kind(text) == "procedural"


@pytest.mark.parametrize(
    "text", ["I preferred tea", "Mia hates rain", "my favorites", "What do I preferably do"]
)
def test_a_phrase_inside_other_words_is_no_signal(text: str) -> None:
    assert analyze.choose_kind(text) != "procedural"


def test_a_phrase_that_is_not_listed_is_no_preference() -> None:
    assert analyze.choose_kind("Call me Bo") == "episodic"


@pytest.mark.spec("MLS-33")
@pytest.mark.parametrize(
    "text",
    [
        "We are at the station now",
        "Right now it rains",
        "currently busy",
        "in this session",
        "Today",
        "I'm currently debugging the parser",
        "Today we look at the parser",
        "Now let's write the tests",
        "The build is green. Now we need a tag",
    ],
)
def test_what_is_about_the_session_is_working_memory(text: str) -> None:
    assert analyze.choose_kind(text) == "working"


@pytest.mark.spec("MLS-33")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("My sister is now in Oslo", "semantic"),
        ("I am currently working at ACME", "semantic"),
        ("I currently live in Porto", "semantic"),
        ("Anna uses the new bike today", "semantic"),
        ("We sold the car today", "episodic"),
        ("Today was fun", "episodic"),
    ],
)
def test_a_word_for_now_makes_nothing_else_working_memory(text: str, kind: str) -> None:
    assert analyze.choose_kind(text) == kind


@pytest.mark.spec("MLS-34")
@pytest.mark.parametrize(
    "text",
    ["User is a backend engineer", "I am allergic to nuts", "Anna works at ACME", "My sister lives in Oslo",
     "I'm a vegetarian", "The deploy server uses Debian", "Zoë has two cats", "Élodie speaks French"],
)  # fmt: skip
def test_a_subject_a_predicate_and_an_object_are_semantic(text: str) -> None:
    assert analyze.choose_kind(text) == "semantic"


@pytest.mark.spec("MLS-35")
@pytest.mark.parametrize(
    "text",
    [
        "We went home",
        "It is raining",
        "Is Anna a doctor?",
        "Anna is a doctor?",
        "ok",
        "",
        "Discussed the migration",
    ],
)
def test_everything_else_is_episodic(text: str) -> None:
    assert analyze.choose_kind(text) == "episodic"


@pytest.mark.spec("MLS-36")
def test_the_first_rule_that_matches_decides() -> None:
    assert analyze.choose_kind("I prefer tea now, Anna is a doctor") == "procedural"
    assert analyze.choose_kind("Anna is a doctor right now") == "working"


@pytest.mark.spec("MIL-1", "MIL-7", "MIL-8")
def test_the_caller_may_name_one_of_seven_types() -> None:
    types = ["fact", "preference", "project", "decision", "crumb", "request", "result"]
    assert [analyze.choose_item_type("anything", given=each) for each in types] == types
    with pytest.raises(InvalidInput):
        analyze.choose_item_type("anything", given="rumour")


@pytest.mark.spec("MIL-2", "MIL-3", "MIL-4", "MIL-5", "MIL-6")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anna is a doctor", "fact"),
        ("The server uses Debian", "fact"),
        ("I love rye bread", "preference"),
        ("I don't like meetings before ten", "preference"),
        ("Please always answer in French", "preference"),
        ("The goal of the project is a release in June", "project"),
        ("We are blocked by the vendor", "project"),
        ("I'm building a SaaS product", "project"),
        ("We decided to use Go", "decision"),
        ("Let's go with the blue one", "decision"),
        ("We went home and slept", "crumb"),
        ("I am on a train right now", "crumb"),
        ("Do you like tea?", "crumb"),
        ("haha ok", "crumb"),
    ],
)
def test_the_type_is_guessed_from_the_text(text: str, expected: str) -> None:
    assert analyze.choose_item_type(text) == expected


def test_each_type_has_its_usual_kind() -> None:
    kinds = {
        each: analyze.usual_kind(each) for each in (*ITEM_TYPES, "profile", "relationship", "lore")
    }
    assert [each for each in kinds if kinds[each] == "semantic"] == [
        "fact",
        "project",
        "profile",
        "relationship",
        "lore",
    ]
    assert [each for each in kinds if kinds[each] == "procedural"] == ["preference"]
    assert [each for each in kinds if kinds[each] == "episodic"] == [
        "decision",
        "crumb",
        "request",
        "result",
    ]


def test_the_category_is_the_type_or_follows_the_kind() -> None:
    assert [analyze.choose_category(each) for each in KINDS] == [
        "event",
        "fact",
        "preference",
        "activity",
        "profile",
    ]
    assert analyze.choose_category("semantic", "project") == "project"


@pytest.mark.parametrize(
    "text", ["hi", "Thanks so much!", "👍👍", "good morning", "lol ok", "谢谢！", "brb one sec", ""]
)
def test_chit_chat_is_recognised(text: str) -> None:
    assert analyze.is_chit_chat(text)


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, my flight is at 9",
        "ok the door code is 1234",
        "hi " * 300 + "secret",
        "Yes, Berlin",
    ],
)
def test_what_carries_something_is_no_chit_chat(text: str) -> None:
    assert not analyze.is_chit_chat(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'll call Anna",
        "I promised to help",
        "my goal: run 10 km",
        "remind me on Friday",
        "I plan to move",
    ],
)
def test_commitments_and_goals_are_recognised(text: str) -> None:
    assert analyze.is_commitment_or_goal(text)


@pytest.mark.parametrize("text", ["I'll see", "It rained", "She will be late", "the plan was bad"])
def test_not_every_future_is_a_commitment(text: str) -> None:
    assert not analyze.is_commitment_or_goal(text)
