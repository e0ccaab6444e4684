"""No context is ever larger than any cap it was given."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorist.retrieve import render
from memorist.retrieve.render import Caps
from memorist.text.tokens import count_tokens
from memorist.types import Memory, Scope

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def memories(*texts: str) -> list[Memory]:
    return [
        Memory(
            id=f"m{i}",
            scope=Scope(user="ana"),
            text=text,
            kind="semantic",
            created_at=NOW,
            updated_at=NOW,
        )
        for i, text in enumerate(texts)
    ]


def words(text: str) -> int:
    return len(text.split())


def content(texts: list[str], *, limit: int = 9, tokens: int | None = None) -> render.Fitted:
    return render.fit(
        memories(*texts),
        Caps(limit=limit, tokens=tokens),
        render.plain_block,
        words,
        cost=lambda memory: max(1, words(memory.text)),
    )


@pytest.mark.spec("MLS-51")
def test_a_chunk_that_fills_the_budget_exactly_is_taken() -> None:
    assert content(["a b c", "d e"], tokens=5).taken == [0, 1]
    assert content(["a b c", "d e"], tokens=4).taken == [0]


@pytest.mark.spec("MLS-52")
def test_a_chunk_that_does_not_fit_is_skipped_and_a_smaller_one_still_taken() -> None:
    found = content(["a b", "c d e f", "g"], tokens=3)
    assert (found.taken, found.tokens) == ([0, 2], 3)
    assert found.cut == {1: "its 4 tokens do not fit: 1 of 3 are left"}


@pytest.mark.spec("MLS-53")
def test_taking_stops_at_the_limit() -> None:
    found = content(["a", "b", "c"], limit=2, tokens=99)
    assert (found.taken, found.cut) == ([0, 1], {2: "beyond the limit of 2"})


@pytest.mark.spec("MLS-55")
def test_the_tokens_are_those_of_the_chunks() -> None:
    assert content(["a b", "c"], tokens=10).tokens == 3


def test_nothing_fits_into_a_budget_that_is_too_small() -> None:
    found = content(["a b", "c d"], tokens=1)
    assert (found.taken, found.text, found.tokens) == ([], "", 0)


def test_the_rendered_text_is_what_counts_where_it_is_injected() -> None:
    found = render.fit(memories("a b", "c"), Caps(limit=9, tokens=5), render.plain_block, words)
    assert found.text == "<memory>\n[SEMANTIC] a b\n</memory>"
    assert found.tokens == 5
    assert found.cut == {1: "it does not fit into the budget of 5 tokens"}


def test_whole_lines_are_taken_while_the_characters_last() -> None:
    found = render.fit(
        memories("tea", "coffee and cake", "milk"), Caps(limit=9, chars=12), render.lines, words
    )
    assert found.text == "- tea\n- milk"


RENDERERS = st.sampled_from(sorted(render.RENDERERS))
TEXTS = st.lists(st.text(min_size=1, max_size=60), max_size=12)
LIMITS = st.integers(1, 15)
OPTIONAL = st.none() | st.integers(1, 300)


@given(TEXTS, RENDERERS, LIMITS, OPTIONAL, OPTIONAL)
def test_no_context_exceeds_any_cap(
    texts: list[str], name: str, limit: int, tokens: int | None, chars: int | None
) -> None:
    fitted = render.fit(
        memories(*texts),
        Caps(limit=limit, tokens=tokens, chars=chars),
        render.RENDERERS[name],
        count_tokens,
    )
    assert len(fitted.taken) <= limit
    assert tokens is None or count_tokens(fitted.text) <= tokens
    assert chars is None or len(fitted.text) <= chars
    assert sorted([*fitted.taken, *fitted.cut]) == list(range(len(texts)))


@given(TEXTS, LIMITS, OPTIONAL, OPTIONAL)
def test_counted_by_content_no_cap_is_exceeded_either(
    texts: list[str], limit: int, tokens: int | None, chars: int | None
) -> None:
    caps = Caps(limit=limit, tokens=tokens, chars=chars)
    fitted = render.fit(
        memories(*texts),
        caps,
        render.plain_block,
        count_tokens,
        cost=lambda memory: max(1, count_tokens(memory.text)),
    )
    assert len(fitted.taken) <= limit
    assert (
        tokens is None
        or sum(count_tokens(texts[i]) for i in fitted.taken) <= fitted.tokens <= tokens
    )
    assert chars is None or len(fitted.text) <= chars
    assert sorted([*fitted.taken, *fitted.cut]) == list(range(len(texts)))


@given(TEXTS)
def test_without_caps_everything_is_taken(texts: list[str]) -> None:
    assert render.fit(memories(*texts), Caps(limit=99), render.lines, count_tokens).taken == list(
        range(len(texts))
    )


def test_without_skipping_the_first_that_does_not_fit_ends_the_list() -> None:
    found = render.fit(["tea", "coffee", "milk"], Caps(chars=8), "\n".join, skip=False)
    assert (found.taken, found.text) == ([0], "tea")


def test_the_room_beside_a_text_is_what_its_size_and_a_line_break_leave() -> None:
    caps = Caps(limit=3, tokens=10, chars=8)
    assert caps.beside("a b c", words) == Caps(limit=3, tokens=6, chars=2)
    assert caps.beside("a b c d e", words).chars == 0
    assert Caps().beside("tea", words) == Caps()


def test_a_share_of_caps_is_rounded_up_and_leaves_open_what_is_open() -> None:
    assert Caps(limit=1, tokens=200, chars=99).share(0.3) == Caps(limit=1, tokens=60, chars=30)
    assert Caps(tokens=1000).share(0.5) == Caps(tokens=500)


def test_caps_that_satisfy_two_are_the_smaller_ones() -> None:
    both = Caps(limit=3, tokens=200).at_most(Caps(tokens=60, chars=10))
    assert both == Caps(limit=3, tokens=60, chars=10)
    assert Caps().at_most(Caps()) == Caps()
