"""How texts and relations are shown on the page."""

from __future__ import annotations

import re
from pathlib import Path

from memorist.interfaces import web
from memorist.interfaces.web import markup
from memorist.retrieve.profiles import DEFAULT


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


def test_each_part_of_a_score_has_a_color_of_its_own() -> None:
    folder = Path(web.__file__).parent
    charts = (folder / "templates" / "charts.html").read_text("utf-8")
    page = (folder / "static" / "page.css").read_text("utf-8")
    (count,) = re.findall(r"set COLORS = (\d+)", charts)
    colors = re.findall(r"--c\d+: (light-dark\(.+\));", page)
    classes = re.findall(r"\.c(\d+) \{ --own: var\(--c\1\); \}", page)
    assert len(set(colors)) == len(set(classes)) == int(count)
    assert int(count) > len({*DEFAULT.weights, "current"})
