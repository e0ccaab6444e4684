"""Fingerprints of texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorist.storage.rows import to_signed, to_unsigned
from memorist.text.normalize import find_near, simhash64

WORDS = [f"word{n}" for n in range(70)]


@pytest.mark.spec("THE-29")
def test_a_fingerprint_is_the_same_on_every_machine() -> None:
    assert simhash64("The quick brown fox jumps over the lazy dog") == 0x1AF2CB60D07ABA96
    assert 0 <= simhash64("tea") < 2**64


@pytest.mark.spec("THE-29")
@pytest.mark.parametrize(
    "other",
    ["I LIKE green tea!!", "I like green\n\ntea", "I like green tea [12] https://a.example"],
)
def test_case_punctuation_links_and_citations_do_not_count(other: str) -> None:
    assert simhash64(other) == simhash64("I like green tea")


def test_a_changed_word_in_a_long_text_moves_few_bits_and_another_order_moves_many() -> None:
    changed = simhash64(" ".join([*WORDS[:30], "other", *WORDS[31:]]))
    assert (simhash64(" ".join(WORDS)) ^ changed).bit_count() < 10
    assert (simhash64("anna pays boris") ^ simhash64("boris pays anna")).bit_count() > 3


@pytest.mark.parametrize(
    ("a", "b"), [("👍", "👎"), ("https://a.example", "https://b.example"), ("tea", "")]
)
def test_texts_without_words_still_differ(a: str, b: str) -> None:
    assert (simhash64(a) ^ simhash64(b)).bit_count() > 3


@pytest.mark.spec("THE-30")
def test_three_bits_are_near_and_four_are_not() -> None:
    hashes = np.array([0b0111, 0b1111, 2**64 - 1, 0], dtype=np.uint64)
    assert find_near(hashes, [0]).tolist() == [0, 3]
    assert find_near(hashes, [2**64 - 1]).tolist() == [2]
    assert find_near(np.array([], dtype=np.uint64), [5]).tolist() == []


@pytest.mark.spec("THE-13")
@given(st.integers(0, 2**64 - 1))
def test_large_fingerprints_survive_a_signed_column(value: int) -> None:
    assert -(2**63) <= to_signed(value) < 2**63
    assert to_unsigned(to_signed(value)) == value


@given(st.text(), st.text())
def test_distance_is_symmetric_and_zero_to_itself(a: str, b: str) -> None:
    assert (
        (simhash64(a) ^ simhash64(b)).bit_count() == (simhash64(b) ^ simhash64(a)).bit_count() <= 64
    )
    assert (simhash64(a) ^ simhash64(a)).bit_count() == 0


def test_unrelated_short_texts_are_far_apart() -> None:
    hashes = np.array(
        [simhash64(f"{WORDS[i % 70]} {WORDS[i * 7 % 69]} note {i}") for i in range(500)],
        dtype=np.uint64,
    )
    assert all(len(find_near(hashes, [int(value)])) == 1 for value in hashes)


def test_a_text_larger_than_one_batch_has_a_fingerprint() -> None:
    assert simhash64(" ".join(f"w{n}" for n in range(70_000))) > 0


def test_near_fingerprints_of_many_are_those_of_each() -> None:
    rng = np.random.default_rng(7)
    hashes = rng.integers(0, 2**64, 5000, dtype=np.uint64)
    asked = [int(value) ^ flips for value in hashes[:50] for flips in (0b1011, 0b1111, 1 << 63)]
    near = {position for value in asked for position in find_near(hashes, [value]).tolist()}
    assert find_near(hashes, asked).tolist() == sorted(near) == list(range(50))
    assert find_near(hashes, []).tolist() == []
