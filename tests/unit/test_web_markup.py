"""How texts and relations are shown on the page."""

from __future__ import annotations

from memorist.interfaces.web import markup


def test_a_version_of_more_than_600_words_and_spaces_is_shown_as_a_whole() -> None:
    longest = "tea" + " and" * 299 + " "  # 300 words and 300 spaces
    assert str(markup.render_diff("tea", longest)).startswith("<bdi>tea</bdi><ins>")
    for old, new in (("tea", longest + "milk"), (longest + "milk", "tea")):
        assert (
            str(markup.render_diff(old, new))
            == f"<del><bdi>{old}</bdi></del><ins><bdi>{new}</bdi></ins>"
        )


def test_related_memories_are_drawn_nearer_to_each_other_than_others_at_their_side() -> None:
    points = markup.compute_layout("abcdef", [("a", "d"), ("b", "e")])
    at = {id: complex(x, y) for id, (x, y) in points.items()}
    assert abs(at["a"] - at["d"]) < abs(at["a"] - at["c"])
    assert abs(at["b"] - at["e"]) < abs(at["b"] - at["f"])
