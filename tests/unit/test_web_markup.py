"""How texts are shown on the page."""

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
