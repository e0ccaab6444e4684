"""Chunks are cut where the meaning is cut."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorist.ingest.chunk import by_meaning
from memorist.text.tokens import count_tokens

SENTENCE = "The quick brown fox jumps over the lazy dog again. "  # ten words


def words(text: str) -> int:
    return len(text.split())


def quarters(text: str) -> int:
    """A counter whose whole is more than the sum of its parts."""
    return len(text) // 4


def solid(text: str) -> str:
    return "".join(text.split())


@pytest.mark.spec("MLS-10")
def test_paragraphs_that_are_long_enough_stay_apart() -> None:
    a, b = SENTENCE.strip() + " One.", SENTENCE.strip() + " Two."
    assert by_meaning(f"{a}\n\n{b}", words, minimum=5, maximum=300) == [a, b]


@pytest.mark.spec("MLS-9", "MLS-11")
@pytest.mark.parametrize("mark", [".", "!", "?"])
def test_a_large_paragraph_is_cut_at_sentence_ends(mark: str) -> None:
    text = f"one two three{mark} Four five{mark} six seven{mark} Élan eight{mark}"
    assert by_meaning(text, words, minimum=1, maximum=4) == [
        f"one two three{mark}",
        f"Four five{mark} six seven{mark}",
        f"Élan eight{mark}",
    ]


@pytest.mark.spec("MLS-11")
def test_a_full_stop_before_a_small_letter_ends_no_sentence() -> None:
    text = "One two. Three. four five six."
    assert by_meaning(text, words, minimum=1, maximum=4) == ["One two.", "Three. four five six."]


def test_chinese_and_japanese_sentences_end_without_a_blank() -> None:
    assert by_meaning("我喜欢茶。你呢？我也是！", len, minimum=1, maximum=5) == [
        "我喜欢茶。",
        "你呢？",
        "我也是！",
    ]


@pytest.mark.spec("MLS-12", "MLS-14")
def test_chunks_have_50_to_300_tokens_unless_told_otherwise() -> None:
    defaults = inspect.signature(by_meaning).parameters
    assert (defaults["minimum"].default, defaults["maximum"].default) == (50, 300)


@pytest.mark.spec("MLS-13")
def test_a_short_paragraph_joins_the_one_before_else_the_one_after() -> None:
    assert by_meaning("a b c\n\nd", words, minimum=2, maximum=4) == ["a b c\n\nd"]
    assert by_meaning("a b c d\n\ne\n\nf g h", words, minimum=2, maximum=4) == [
        "a b c d",
        "e\n\nf g h",
    ]


def test_a_lone_short_text_stays_and_an_empty_one_gives_nothing() -> None:
    assert by_meaning(" Tea. ", words) == ["Tea."]
    assert by_meaning(" \n\n ", words) == []


@pytest.mark.spec("MLS-15")
@pytest.mark.parametrize("count", [words, quarters, count_tokens])
def test_every_chunk_of_a_long_text_is_within_the_bounds(count) -> None:  # type: ignore[no-untyped-def]
    paragraphs = ["Title\n\n" + SENTENCE * n for n in (1, 3, 29, 30, 31, 60, 2, 29, 200)]
    chunks = by_meaning("\n\n".join(paragraphs), count)
    assert len(chunks) > 10
    assert all(50 <= count(chunk) <= 300 for chunk in chunks)


def test_a_short_piece_between_full_ones_takes_sentences_from_them() -> None:
    text = f"{SENTENCE * 29}\n\nShort one.\n\n{SENTENCE * 30}"
    assert min(words(chunk) for chunk in by_meaning(text, words, maximum=291)) >= 50


def test_a_short_piece_takes_no_sentence_that_would_leave_another_piece_too_short() -> None:
    ten = "One two three. Four five six seven eight nine ten."
    eleven = "One two three. Four five six seven eight nine ten eleven."
    assert by_meaning(f"{ten}\n\nOne two.\n\n{eleven}", words, minimum=5, maximum=11) == [
        ten,
        "One two.\n\nOne two three.",
        "Four five six seven eight nine ten eleven.",
    ]


def test_sentences_that_add_up_to_the_maximum_are_cut_near_the_middle_if_the_whole_is_more() -> (
    None
):
    text = "Red likes. The likes. Red the."
    assert sum(quarters(part) for part in ("Red likes. ", "The likes. ", "Red the. ")) == 6
    assert quarters(text) == 7
    assert by_meaning(text, quarters, minimum=2, maximum=6) == ["Red likes.", "The likes. Red the."]


def test_an_overlong_sentence_is_cut_at_blanks_and_an_overlong_word_anywhere() -> None:
    chunks = by_meaning("word " * 1000, words)
    assert len(chunks) == 4
    assert all(words(chunk) <= 300 and solid(chunk).replace("word", "") == "" for chunk in chunks)
    assert all(words(chunk) >= 270 for chunk in chunks[:-1]), "each but the last is nearly full"
    assert all(len(chunk) <= 300 for chunk in by_meaning("x" * 10_000, len))


def test_a_character_of_more_tokens_than_fit_is_a_chunk_of_its_own() -> None:
    def emoji_are_three(text: str) -> int:
        return sum(3 if character == "🫖" else 1 for character in text)

    assert by_meaning("It 🫖 is.", emoji_are_three, minimum=1, maximum=2) == ["It", "🫖", "is", "."]


def test_a_fence_of_code_stays_whole_while_it_fits() -> None:
    code = "```python\nprint('A. B')\n\nprint('C. D')\n```"
    chunks = by_meaning(f"{SENTENCE * 2}\n\n{code}\n\n{SENTENCE * 2}", words, minimum=1, maximum=12)
    assert code in chunks


def test_a_fence_larger_than_the_maximum_is_cut_at_lines() -> None:
    code = "```\n" + "value = call(1)\n" * 50 + "```"
    chunks = by_meaning(code, words, minimum=1, maximum=30)
    assert len(chunks) > 4
    assert all(
        line in ("```", "value = call(1)") for chunk in chunks for line in chunk.splitlines()
    )


pieces = st.sampled_from(
    [
        "Ab cd. ",
        "e",
        " ",
        "\n",
        "\n\n",
        "```\n",
        "~~~",
        "。",
        "我",
        "x" * 30,
        "! Y",
        "\u0301",
        "\r\n",
        "\x1c",
    ]
)


@given(
    st.lists(pieces).map("".join),
    st.integers(1, 6),
    st.integers(0, 20),
    st.sampled_from([words, quarters, len]),
)
def test_nothing_is_lost_and_nothing_is_too_large(
    text: str, minimum: int, more: int, count
) -> None:  # type: ignore[no-untyped-def]
    chunks = by_meaning(text, count, minimum, minimum + more)
    assert solid("".join(chunks)) == solid(text)
    assert all(chunk.strip() for chunk in chunks)
    assert all(count(chunk) <= minimum + more for chunk in chunks)


@pytest.mark.parametrize(
    "part",
    [
        SENTENCE,
        "A. ",
        "a\n",
        "a\n\n",
        "x",
        "word ",
        "我喜欢茶。",
        "```\n",
        '."',
        "a. B\n\n```\nc\n```\n",
    ],
)
def test_the_counting_grows_with_the_text_and_no_faster(part: str) -> None:
    counted = {size: _characters_counted(part * (size // len(part))) for size in (100_000, 200_000)}
    assert counted[200_000] < 2.5 * counted[100_000] + 20_000
    assert counted[200_000] < 30 * 200_000


@pytest.mark.parametrize("part", ["x", "word "])
def test_a_text_without_sentences_is_counted_less_than_ten_times(part: str) -> None:
    assert _characters_counted(part * (100_000 // len(part))) < 10 * 100_000


def _characters_counted(text: str) -> int:
    seen: list[int] = []

    def count(part: str) -> int:
        seen.append(len(part))
        return max(1, len(part) // 4)

    by_meaning(text, count)
    return sum(seen)
