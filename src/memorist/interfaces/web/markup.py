"""Filters for templates, which make stored text safe to show.

Text is escaped and isolated, and its invisible characters are shown.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from datetime import datetime, timedelta
from itertools import groupby

from markupsafe import Markup, escape

_VISIBLE = "\n\t\u200c\u200d"  # the last two join emoji and letters of Indic scripts
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # Unicode categories
MAX_WORDS = 600  # longer texts are not compared word by word
_WORDS = re.compile(r"\s+|\S+")
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


def as_text(text: object) -> Markup:
    """Escape a text, isolate its direction, and replace invisible characters by their names.

    >>> as_text("<b>tea\\u202e</b>")
    Markup('<bdi>&lt;b&gt;tea<span class="invisible">U+202E</span>&lt;/b&gt;</bdi>')
    """
    html: list[Markup] = []
    for is_invisible, group in groupby(str(text), _is_invisible):
        run = "".join(group)
        if not is_invisible:
            html.append(escape(run))
            continue
        name = f"{len(run)} invisible characters"
        if len(run) == 1:
            name = f"U+{ord(run):04X}"
        span = Markup('<span class="invisible">{}</span>')
        html.append(span.format(name))
    return Markup("<bdi>{}</bdi>").format(Markup("").join(html))


def _is_invisible(char: str) -> bool:
    return char not in _VISIBLE and unicodedata.category(char) in _INVISIBLE


def shorten(text: str, width: int = 90) -> Markup:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * width].split())
    if len(line) > width:
        line = line[: width - 1] + "…"
    return as_text(line)


def render_diff(old: str, new: str) -> Markup:
    """Render the change between two versions, word by word.

    >>> render_diff("I drink tea", "I drink coffee")
    Markup('<bdi>I drink </bdi><del><bdi>tea</bdi></del><ins><bdi>coffee</bdi></ins>')
    """
    before = _WORDS.findall(old)
    after = _WORDS.findall(new)
    if max(len(before), len(after)) > MAX_WORDS:
        return _tag("del", old) + _tag("ins", new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    html = Markup("")
    for op, a, b, c, d in matcher.get_opcodes():
        removed = "".join(before[a:b])
        added = "".join(after[c:d])
        if op == "equal":
            html += as_text(removed)
        else:
            html += _tag("del", removed) + _tag("ins", added)
    return html


def _tag(name: str, text: str) -> Markup:
    if not text:
        return Markup("")
    return Markup("<{0}>{1}</{0}>").format(name, as_text(text))


def format_time(at: datetime | None) -> Markup:
    """Format a time as a `time` element."""
    if at is None:
        return Markup("–")
    shown = f"{at:%Y-%m-%d %H:%M}"
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), shown)


def format_duration(duration: timedelta) -> str:
    """Round a duration to the nearest whole unit.

    >>> format_duration(timedelta(days=2, hours=23)), format_duration(timedelta(hours=25))
    ('3 days', '1 day')
    >>> format_duration(timedelta(seconds=4)), format_duration(timedelta(hours=-1))
    ('less than a minute', 'less than a minute')
    """
    seconds = duration.total_seconds()
    for name, size in _UNITS:
        if seconds + 30 >= size:
            number = max(1, round(seconds / size))
            plural = "s" if number > 1 else ""
            return f"{number} {name}{plural}"
    return "less than a minute"
