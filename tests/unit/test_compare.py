"""Which texts may be the same fact, and what may be said in the place of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memorist.jobs.consolidate import batches
from memorist.text import compare
from memorist.text.statements import parse

DATA = Path(__file__).parents[1] / "data"


def written(name: str) -> list[tuple[str, str]]:
    lines = (DATA / f"pairs_{name}.jsonl").read_text("utf-8").splitlines()
    return [(pair["new"], pair["old"]) for pair in map(json.loads, lines)]


def test_no_rule_takes_a_changed_value_for_other_words_of_the_same() -> None:
    assert [pair for pair in written("changed") if compare.is_reworded(*map(parse, pair))] == []


def test_hardly_a_changed_value_is_left_to_the_judgement_of_a_model() -> None:
    left = [
        pair
        for pair in written("changed")
        if compare.may_be_same(*map(parse, pair)) and not compare.is_contrast(*map(parse, pair))
    ]
    assert len(left) <= 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Emre took up curling in 2009", "Since 2009, curling is what Emre does for exercise"),
        ("The beagle named Biscuit is my dog", "My dog Biscuit is a beagle"),
        ("Ravi pays 35 euros a month for the gym", "The gym costs Ravi 35 euros monthly"),
        ("Nora supports a family in Porto", "Relatives in Porto get a share of Nora's income"),
    ],
)
def test_a_paraphrase_may_be_the_same(a: str, b: str) -> None:
    assert compare.may_be_same(parse(a), parse(b))
    assert not compare.is_contrast(parse(a), parse(b))


@pytest.mark.parametrize("near", [False, True])
def test_one_other_word_tells_long_texts_apart_that_repeat_their_words(near: bool) -> None:
    walk = "Ana walks to the shop and buys bread and goes home and eats it with Bo and the cat. "
    text, other = walk * 12, walk.replace("shop", "market") + walk * 11
    assert len(text.split()) > 200
    assert compare.is_contrast(parse(text), parse(other), near=near)


def test_only_texts_of_up_to_twelve_words_that_carry_meaning_are_reworded() -> None:
    animals = "dogs cats horses cows goats sheep pigs ducks geese".split()
    for count, is_reworded in ((8, True), (9, False)):
        patients = " and ".join(animals[:count])
        a = parse(f"Ana works as a vet for {patients} at Lumen")
        b = parse(f"Ana is a vet for {patients} who works for Lumen")
        assert max(len(a.words), len(b.words)) == count + 4
        assert compare.is_reworded(a, b) is is_reworded


@pytest.mark.parametrize(("near", "contrasted"), [(False, True), (True, False)])
def test_a_rare_word_on_each_side_tells_texts_apart_unless_they_are_very_near(
    near: bool, contrasted: bool
) -> None:
    cello, oboe = "Emre plays the cello in an orchestra", "An orchestra has Emre as its oboist"
    assert compare.is_contrast(parse(cello), parse(oboe), near=near) == contrasted


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Nora lives in Porto", "Tomas lives in Porto"),
        ("I run on Monday and Friday", "I run on Monday"),
        ("I will call tomorrow", "I will call today"),
        ("We never lock the gate", "We lock the gate"),
        ("Ana left Lumen", "Ana works at Lumen"),
        ("The flat costs 900 euros", "The flat costs 900 dollars"),
    ],
)
def test_other_values_are_never_the_same(a: str, b: str) -> None:
    assert not compare.may_be_same(parse(a), parse(b))
    assert not compare.may_be_same(parse(b), parse(a))


@pytest.mark.spec("IMP-38")
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("I have a bike", "My bicycle is red", True),
        ("Lesson 4 was fun", "Reached 5 of these", True),
        ("Done with 4", "Reached 8", False),
        ("I have the time", "You are in this", False),
    ],
)
def test_a_pair_shares_a_word_or_a_step_of_one(a: str, b: str, expected: bool) -> None:
    assert compare.overlaps(parse(a), parse(b)) is expected


def test_what_is_said_in_the_place_of_both_fits_and_loses_nothing() -> None:
    long, longer = "I keep bees " * 12, "My hives are old " * 12
    assert (
        compare.join(parse("Ana has a bike."), parse("Ana has a red bike")) == "Ana has a red bike"
    )
    assert (
        compare.join(parse("I keep bees."), parse("My hives are old."))
        == "I keep bees. My hives are old."
    )
    assert compare.join(parse(long), parse(longer)) == longer


@pytest.mark.parametrize(
    "made", ["", " ", "Ana has a bike.\nAna has a red bike.", "Ana has a red bike. " * 15]
)
def test_a_text_that_is_empty_too_long_or_has_two_lines_does_not_stand_for_both(made: str) -> None:
    assert not compare.is_grounded(made, parse("Ana has a bike."), parse("Ana has a red bike."))
    assert compare.is_grounded(
        "Ana has a red bike.", parse("Ana has a bike."), parse("Ana has a red bike.")
    )


@pytest.mark.spec("IMP-39")
@pytest.mark.parametrize("count", range(1, 60))
def test_five_to_ten_pairs_go_into_one_question(count: int) -> None:
    groups = batches(list(range(count)))
    assert [n for group in groups for n in group] == list(range(count))
    assert all(5 <= len(group) <= 10 for group in groups) or count < 5
