"""How texts that others wrote stand on the page: as text, whatever they say, with nothing in them unseen."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta

from markupsafe import Markup, escape

_JOINERS = "\u200c\u200d"  # parts of emoji and of Indic scripts
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
MOST_WORDS = 600  # of two versions that are compared word by word: more takes long
_WORDS = re.compile(r"\s+|\S+")
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


def said(text: object) -> Markup:
    """A text as it is, apart from the rest of the line; what is not seen, or turns the order of letters, is named.

    >>> said("<b>tea\\u202e</b>")
    Markup('<bdi>&lt;b&gt;tea<span class="unseen">U+202E</span>&lt;/b&gt;</bdi>')
    """
    return Markup("<bdi>{}</bdi>").format(Markup("").join(_pieces(str(text))))


def _pieces(text: str) -> Iterator[Markup]:
    begun, run = 0, ""
    for place, c in enumerate([*text, ""]):
        if c and _is_unseen(c):
            if not run:
                yield escape(text[begun:place])
            run += c
        elif run:
            yield Markup('<span class="unseen">{}</span>').format(_named(run))
            begun, run = place, ""
    if not run:
        yield escape(text[begun:])


def _is_unseen(c: str) -> bool:
    return c not in "\n\t" + _JOINERS and unicodedata.category(c) in _UNSEEN


def _named(run: str) -> str:
    return f"U+{ord(run):04X}" if len(run) == 1 else f"{len(run)} unseen characters"


def brief(text: str, width: int = 90) -> Markup:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * width].split())
    return said(line if len(line) <= width else line[: width - 1] + "…")


def changed(old: str, new: str) -> Markup:
    """Two versions of a text as one, with what went and what came.

    >>> changed("I drink tea", "I drink coffee")
    Markup('<bdi>I drink </bdi><del><bdi>tea</bdi></del><ins><bdi>coffee</bdi></ins>')
    """
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(before), len(after)) > MOST_WORDS:
        return _marked("del", old) + _marked("ins", new)
    made = Markup("")
    for op, a, b, c, d in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if op == "equal":
            made += said("".join(before[a:b]))
        else:
            made += _marked("del", "".join(before[a:b])) + _marked("ins", "".join(after[c:d]))
    return made


def _marked(tag: str, text: str) -> Markup:
    return Markup("<{0}>{1}</{0}>").format(tag, said(text)) if text else Markup("")


def moment(at: datetime | None) -> Markup:
    """A time, for people and for programs."""
    if at is None:
        return Markup("–")
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), f"{at:%Y-%m-%d %H:%M}")


def span(length: timedelta) -> str:
    """How long something takes, to the nearest whole unit.

    >>> span(timedelta(days=2, hours=23)), span(timedelta(seconds=86_399)), span(timedelta(hours=25))
    ('3 days', '1 day', '1 day')
    >>> span(timedelta(seconds=4)), span(timedelta(hours=-1))
    ('less than a minute', 'no time')
    """
    seconds = length.total_seconds()
    if seconds <= 0:
        return "no time"
    for name, size in _UNITS:
        if seconds + 30 >= size:
            number = max(1, round(seconds / size))
            return f"{number} {name}{'s' if number > 1 else ''}"
    return "less than a minute"
