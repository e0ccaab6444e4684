"""Replace relative times in a statement by dates."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..text import clock
from ..text.statements import parse
from ..text.tokens import load_patterns

TIME = re.compile(load_patterns(__file__)["patterns"]["time"])  # a relative time
_PERIODS = {  # formats of a period, by its largest number of days
    1: "%Y-%m-%d",
    2: "the weekend of %Y-%m-%d",
    27: "the week of %Y-%m-%d",
    31: "%B %Y",
    360: "{season} %Y",
}


def date(text: str, at: datetime) -> str:
    """Replace relative times such as "yesterday" by dates.

    >>> date("Ana flies on Monday", datetime(2026, 5, 8))
    'Ana flies on 2026-05-11'
    >>> date("Ana left last year", datetime(2026, 5, 8))
    'Ana left in 2025'
    """
    if TIME.search(text) is None:
        return text
    is_past = "past" in parse(text).marks

    def write(match: re.Match[str]) -> str:
        """Return the date, week, month or year of words such as "last week"."""
        words = match["time"].lower()
        which = "last " if is_past else "next "
        asked = re.sub(r"^(?:on|this|this coming|this past) (?=\w+day\b)", which, words)
        found = clock.intervals(asked, at)
        is_ahead = len(found) == 1 and found[0].start > clock.utc(at)
        if is_past and is_ahead and words.startswith("this "):
            found = clock.intervals(f"last {words.removeprefix('this ')}", at)
        if len(found) != 1:
            return match[0]
        start = found[0].start
        days = (found[0].end - start) // timedelta(days=1)
        form = next((form for most, form in _PERIODS.items() if days <= most), "%Y")
        *_, season = words.split()
        name = start.strftime(form).format(season=season)
        usual = "on " if days <= 2 else "in "
        return (match["before"] or usual) + name

    return TIME.sub(write, text)
