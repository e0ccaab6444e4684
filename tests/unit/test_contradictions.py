"""What counts as said again, as another value of the same thing, or as something else."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from memorist.text import contradictions
from memorist.text.compare import Verdict, verdict
from memorist.text.statements import parse

DATA = Path(__file__).parents[1] / "data"
LONG = (
    "Our deployment pipeline runs the unit tests first, then builds the container image, and only after a manual "
    "approval does it go to production"
)


def compare(new: str, old: str) -> Verdict:
    return verdict(parse(new), parse(old))


def contradicts(new: str, old: str) -> bool:
    return contradictions.contradicts(parse(new), parse(old))


def pairs(name: str) -> list[tuple[str, str]]:
    lines = (DATA / f"pairs_{name}.jsonl").read_text("utf-8").splitlines()
    return [(pair["new"], pair["old"]) for pair in map(json.loads, lines)]


def test_no_changed_value_counts_as_said_again() -> None:
    changed = pairs("changed")
    assert len(changed) == 200
    assert [
        pair for pair in changed if compare(*pair) != "other" or compare(*reversed(pair)) != "other"
    ] == []


def test_nearly_all_repetitions_count_as_said_again() -> None:
    verdicts = Counter(compare(*pair) for pair in pairs("repeat"))
    assert verdicts["same"] >= 190, verdicts


def test_no_repetition_counts_as_a_contradiction() -> None:
    assert [pair for pair in pairs("repeat") if contradicts(*pair)] == []


@pytest.mark.parametrize(
    ("new", "old", "verdict"),
    [
        (LONG.replace("the container", "and signs the container"), LONG, "more"),
        (LONG, LONG.replace("the container", "and signs the container"), "less"),
        (LONG.replace("first", "last"), LONG, "other"),
        (LONG.replace("container image", "disk image"), LONG, "other"),
        ("I am allergic to nuts and eggs", "I am allergic to nuts", "other"),
        ("Is the lift working?", "The lift is working.", "other"),
        ("We are there", "We are here", "other"),
        ("We are here!", "we are here", "same"),
        ("👍", "👎", "other"),
    ],
)
def test_more_and_less_are_told_apart_only_where_little_differs(
    new: str, old: str, verdict: str
) -> None:
    assert compare(new, old) == verdict


CONTRADICTIONS = [
    (
        "My dentist appointment is on Tuesday at ten",
        "The dentist appointment was moved to Friday at four",
    ),
    ("Our team meeting is on Monday", "Our team meeting has been rescheduled to Thursday"),
    ("The standup starts at 9:00", "The standup starts at 9:30"),
    ("The project deadline is May 12", "The project deadline is May 20"),
    ("Anna's birthday is on 3 May", "Anna's birthday is on 4 May"),
    ("The launch is on May 28", "The launch is now on June 3"),
    ("The flight to Oslo leaves at 6 pm", "The flight to Oslo leaves at 7 pm"),
    ("I live in Berlin", "I moved to Porto"),
    ("I live in Berlin", "I live in Porto now"),
    ("Tom lives in Bergen", "Tom has moved to Oslo"),
    ("I work for Siemens", "I work at Bosch now"),
    ("I work at Siemens", "I just joined Bosch"),
    ("My boss is Peter", "My boss is Karen"),
    ("My phone number is 555-0123", "My phone number is 555-0199"),
    ("The rent is 900 euros", "The rent is 950 euros"),
    ("I have two kids", "I have three kids"),
    ("My sister is 30 years old", "My sister is 31 years old"),
    ("The wifi password is bluebird", "The wifi password is hunter3"),
    ("My favourite colour is green", "My favorite colour is blue"),
    ("My favourite restaurant is Osteria Nove", "My favourite restaurant is Roma"),
    ("I prefer window seats", "I prefer aisle seats"),
    ("I like coffee", "I don't like coffee anymore"),
    ("I love coffee", "I hate coffee"),
    ("I eat meat", "I no longer eat meat"),
]
NO_CONTRADICTIONS = [
    ("I like tea", "I like coffee"),
    ("I like coffee", "I don't like tea"),
    ("I prefer window seats", "I prefer tea"),
    ("I speak French", "I speak Spanish"),
    ("I have a cat", "I have a dog"),
    ("Anna lives in Rome", "Tom lives in Porto"),
    ("My father lives in Paris", "My mother lives in Rome"),
    ("Anna works on Fridays", "Anna works at Siemens"),
    ("My sister is tall", "My sister is a doctor"),
    ("My brother is Max", "My brother is Tom"),
    ("My brother's birthday is on May 4", "My sister's birthday is on May 3"),
    ("I visited Paris", "I visited Rome"),
    ("I ate pizza on Tuesday", "I ate pizza on Monday"),
    ("I ran 10 km", "I ran 5 km"),
    ("I water the roses on Tuesday", "I water the roses on Friday"),
    ("The shop opens on Tuesday", "The shop opens on Friday"),
    ("My shirts are 5 in the wash", "My shirts are 7 in the wash"),
    ("The meeting with Anna is on Friday at 4", "The meeting with Tom is on Friday at 3"),
    ("The meeting is at ten", "The meeting is on Tuesday"),
    ("Yoga class is every Thursday at 6", "Yoga class is every Monday at 6"),
    ("Flight LH456 leaves at 11", "Flight LH123 leaves at 10"),
    ("Room 14 has code 9921", "Room 12 has code 4411"),
    ("I have 3 meetings on Tuesday", "I have 2 meetings on Monday"),
    ("My favourite Italian food is pizza", "My favourite Japanese food is sushi"),
    ("I live in Berlin", "I might move to Porto"),
    ("I live in Berlin", "I would like to live in Porto"),
    ("I live in Berlin", "I lived in Porto"),
    ("I live in Berlin", "I study in Porto"),
    ("I live in Berlin", "I work in Porto"),
    ("I live in Berlin", "Do you live in Porto?"),
]


@pytest.mark.parametrize(("old", "new"), CONTRADICTIONS)
def test_another_value_of_the_same_attribute_contradicts(old: str, new: str) -> None:
    assert contradicts(new, old)
    assert compare(new, old) == "other"


@pytest.mark.parametrize(("old", "new"), NO_CONTRADICTIONS)
def test_facts_that_can_both_be_true_do_not_contradict(old: str, new: str) -> None:
    assert not contradicts(new, old)
    assert not contradicts(old, new)
    assert compare(new, old) == "other"


def test_unrelated_facts_never_contradict_each_other() -> None:
    """Each statement of a life, against each other one, both ways round."""
    facts = list(
        dict.fromkeys([*(old for old, _ in CONTRADICTIONS), *(old for old, _ in NO_CONTRADICTIONS)])
    )
    assert len(facts) > 40
    assert [pair for pair in permutations(facts, 2) if contradicts(*pair)] == []
