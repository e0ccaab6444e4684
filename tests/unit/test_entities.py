"""Names and topics found by how words are written."""

import pytest

from memorist.ingest.analyze import analyze
from memorist.ingest.policies import DEFAULT
from memorist.text.entities import Entity, about, entities, keyphrases, tags
from memorist.types import Draft


def test_months_chat_words_and_plain_verbs_are_no_topics() -> None:
    text = "btw we kept the parrot till feb, incl. its cage, and it tried to avoid mentioning fries, arent they"
    assert [phrase.text for phrase in keyphrases(text)] == ["parrot", "cage", "fries"]


@pytest.mark.spec("MLS-25", "THE-74")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Alice moved to Berlin", ["Alice", "Berlin"]),
        ("I love Porto. Porto is small.", ["Porto"]),
        ("Porto is small. I love Braga and Porto.", ["Porto", "Braga"]),
        (
            "We visited the University of Oxford and Bank of America",
            ["University of Oxford", "Bank of America"],
        ),
        ("It runs on PostgreSQL and an iPhone", ["PostgreSQL", "iPhone"]),
        ("ping @bob_k, not me@mail.example", ["@bob_k"]),
        ("NATO and the UN", ["NATO", "UN"]),
        ("I met Dr. Müller and Vincent van Gogh", ["Dr Müller", "Vincent van Gogh"]),
        ("Does Siobhan O'Neill like New York City?", ["Siobhan O'Neill", "New York City"]),
        ("- Call Sarah\n- Buy GPT-4", ["Sarah", "GPT-4"]),
        ("Anna's dog Rex", ["Anna", "Rex"]),
    ],
)
def test_names_are_found(text: str, names: list[str]) -> None:
    assert [entity.text for entity in entities(text)] == names


@pytest.mark.parametrize(
    "text",
    ["I like tea", "The weather is nice. Really nice.", "Porridge is fine", "I HATE THIS SO MUCH", "On Tuesday in May",
     "OK, I'm fine. Thanks", "\"Great\" she said", "", "我喜欢北京"],
)  # fmt: skip
def test_a_capital_alone_makes_no_name(text: str) -> None:
    assert entities(text) == []


@pytest.mark.parametrize(
    ("text", "phrase", "confidence"),
    [
        ("The kettle is here.", "kettle", 0.4),
        ("The copper kettle is here.", "copper kettle", 0.55),
        ("The kettle is here, but the kettle is mine.", "kettle", 0.6),
        ("The copper kettle is here, but the copper kettle is mine.", "copper kettle", 0.75),
    ],
)
def test_a_keyphrase_is_surer_if_it_is_longer_or_said_twice(
    text: str, phrase: str, confidence: float
) -> None:
    assert [(one.text, round(one.confidence, 6)) for one in keyphrases(text)] == [
        (phrase, confidence)
    ]


def test_keyphrases_put_what_is_repeated_or_longer_first() -> None:
    found = keyphrases(
        "The solar panels are old. New solar panels cost money, says the electrician."
    )
    assert found[0] == Entity(text="solar panels", confidence=0.75)


@pytest.mark.spec("THE-77")
def test_metadata_confidence_is_the_mean_of_the_detectors_from_0_to_1() -> None:
    found = [Entity(text="a", confidence=0.5), Entity(text="b", confidence=0.8)]
    assert tags(found)[1] == 0.65
    assert tags([Entity(text="a", confidence=3.0)])[1] == 1.0
    assert tags([Entity(text="a", confidence=-1.0)])[1] == 0.0
    assert tags(about("hello", entities("hello"))) == ((), 0.0)


def test_another_detector_can_be_plugged_in() -> None:
    assert tags(about("tea", [Entity(text="Camellia", confidence=0.4)])) == (
        ("camellia",),
        0.4,
    )


def test_there_are_at_most_eight_names_and_twelve_topics() -> None:
    names = " and ".join(f"Xyz{letter}ab" for letter in "abcdefghijkl")
    text = names + ". " + ". ".join(f"qwer{letter}ty" for letter in "abcdefghijklmnop")
    found, _ = tags(about(text, entities(text)))
    assert sum(tag.startswith("xyz") for tag in found[:8]) == 8
    assert len(found) <= 20


def test_a_link_names_nobody() -> None:
    (chunk,) = analyze(Draft(text="https://Anna.example/Berlin is down"), DEFAULT)
    assert not {"anna", "berlin"}.intersection(chunk.tags)
    assert chunk.salience == 0.0
