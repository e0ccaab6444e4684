"""The forms a text takes."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorist.text.normalize import clean, compact, for_hash, one_line, storable
from memorist.text.values import find_links


def test_nul_and_broken_surrogates_cannot_stay() -> None:
    assert storable("a\x00b") == "ab"
    assert storable("\ud83d!") == "\ufffd!"
    assert storable("\ud83d\ude00") == "\U0001f600"


@given(st.text(st.characters(codec=None)))
def test_whatever_is_storable_can_be_encoded_and_stays_so(text: str) -> None:
    kept = storable(text)
    kept.encode("utf-8")
    assert "\x00" not in kept
    assert storable(kept) == kept


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_what_any_database_can_keep_is_left_untouched(text: str) -> None:
    assert storable(text) == text


@pytest.mark.spec("MLS-5")
def test_whitespace_around_a_text_is_stripped() -> None:
    assert clean(" \t\n tea \n") == "tea"


@pytest.mark.spec("MLS-6")
def test_a_decomposed_letter_is_composed() -> None:
    assert clean("cafe\u0301") == "caf\u00e9"
    assert clean("\ufb01ve m\u00b2") == "\ufb01ve m\u00b2", "letters that only look alike stay"


@pytest.mark.spec("MLS-7")
def test_many_newlines_become_two() -> None:
    assert clean("a\n\n\nb\n\n\n\n\n\nc\n\nd\ne") == "a\n\nb\n\nc\n\nd\ne"
    assert clean("a\r\n\r\n\r\nb\rc") == "a\n\nb\nc"


@pytest.mark.spec("MLS-8")
def test_formatting_and_code_are_preserved() -> None:
    text = "# Plan\n\n* **bold** _it_\n\n```python\ndef f():\n    return  1\n```"
    assert clean(text) == text


@given(st.text(st.sampled_from("a \n\r\t`\u0301\u0344\u0323é")))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@pytest.mark.spec("THE-25", "THE-26", "THE-28")
def test_the_form_for_hashing_is_lower_case_without_links_on_one_line() -> None:
    assert for_hash("See  HTTPS://A.example/x?y#z\n\tfor WWW.b.example Tea") == "see for tea"
    assert for_hash("请看https://a.example/x。我喜欢茶") == "请看 。我喜欢茶"


@pytest.mark.spec("THE-27")
@pytest.mark.parametrize(
    "citation",
    ["[12]", "[1,2]", "[1, 2; 4]", "[3–5]", "[^3]", "[^note-1]", "(Smith, 2020)", "(Smith & Jones, 2019; Doe, 2020a)",
     "(Smith et al., 2017, p. 12)", "[Smith, 2020]", "【12†source】", "[@smith2020]",
     "\\citep{smith2020}", ":contentReference[oaicite:0]{index=0}"],
)  # fmt: skip
def test_citations_are_no_part_of_the_form_for_hashing(citation: str) -> None:
    assert for_hash(f"Tea is healthy {citation} indeed") == "tea is healthy indeed"


@pytest.mark.parametrize(
    "text", ["It (May, 2020)", "x[1] = 2", "[todo]", "(about 2020)", "[0]", "(in 12 days)"]
)
def test_what_only_looks_like_a_citation_stays(text: str) -> None:
    assert for_hash(text) == text.lower()


def test_links_are_compared_without_scheme_and_query() -> None:
    assert find_links("a https://www.X.example/a/?q=1, http://x.example/a") == [
        "x.example/a",
        "x.example/a",
    ]


def test_the_compact_form_keeps_letters_and_digits_of_every_script() -> None:
    assert compact("<:hug:1> Zoë's 2nd_тест, हिन्दी: 北京!") == "zoë s 2nd тест हिन्दी 北京"


def test_one_line_folds_every_break() -> None:
    assert one_line(" a\u2028b\x85c\td ") == "a b c d"


@pytest.mark.parametrize("form", [storable, clean, for_hash, compact])
@pytest.mark.parametrize(
    "part",
    [
        "\u0301\u0323",
        " ",
        "\n",
        "[1,",
        "(Smith ",
        "[@a;",
        "http://",
        "\\cite{",
        "<:a",
        "(A B C ",
        "【",
        "我。",
    ],
)
def test_twice_the_text_takes_about_twice_the_time(form: Callable[[str], str], part: str) -> None:
    once, twice = (part * (size // len(part)) for size in (250_000, 500_000))
    assert _seconds(form, twice) < 4 * _seconds(form, once) + 0.5


def _seconds(form: Callable[[str], str], text: str) -> float:
    start = time.thread_time()
    form(text)
    return time.thread_time() - start
