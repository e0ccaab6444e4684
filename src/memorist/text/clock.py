"""UTC timestamps that sort as text, ids that sort by time, and the dates that a text mentions.

Dates are read from a text only where no guess is needed: English names of months and days, ISO
dates and common relative expressions. "May", "march" and the like count as dates only where the
words around them say so. The patterns run in time linear in the text.
"""

import os
import re
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import NamedTuple

NO_TIME = -(2**63)  # stands for "unknown" where times are numbers
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HALF_YEAR = timedelta(days=183)
_MICROSECOND = timedelta(microseconds=1)
_numbers = count()  # of ids
utcnow = partial(datetime.now, UTC)
MONTHS = tuple(
    "january february march april may june july august september october november december".split()
)
WEEKDAYS = tuple("monday tuesday wednesday thursday friday saturday sunday".split())
# Stands for every year in a yearly interval; not a leap year, so that it fits them all.
ANY_YEAR = 2001


def number_groups(groups: str, first: int = 0) -> dict[str, int]:
    """Number the slash-separated groups of words; the words of a group are synonyms.

    >>> number_groups("zero null/one once")
    {'zero': 0, 'null': 0, 'one': 1, 'once': 1}
    """
    numbered: dict[str, int] = {}
    for number, group in enumerate(groups.split("/"), start=first):
        numbered |= dict.fromkeys(group.split(), number)
    return numbered


# Months and the seasons that begin in them; a season lasts three months.
MONTH_NUMBERS = number_groups(
    "jan/feb/mar spr/apr/may/jun sum/jul/aug/sep aut fal/oct/nov/dec win", first=1
)
_DAYS = {
    "day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    "today": 0,
    "tonight": 0,
    "tomorrow": 1,
}
_DAYS_IN = {  # at most
    "day": 1,
    "week": 7,
    "month": 31,
    "year": 366,
}
_MONTHS_IN = {"month": 1, "year": 12}
_NUMBER_OF = number_groups(
    "zero/one a an/two couple/three few/four several/five/six/seven/eight/nine/ten"
)
_BACK = ("last", "past", "this past", "previous")
_AHEAD = ("next", "coming", "upcoming")

_MONTH = "|".join(MONTHS)
_WEEKDAY = "|".join(WEEKDAYS)
# "sat" and "sun" are words, too.
_DAY_NAME = rf"(?:{_WEEKDAY}|(?:mon|tues?|wed|thu(?:rs?)?|fri)\b\.?)"
_COUNT = (
    r"\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|(?:a )?(?:couple of|few)|several"
)
_M = rf"(?P<month>{_MONTH}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
_CLEAR_M = rf"(?P<month>{'|'.join(month for month in MONTHS if month not in ('may', 'march'))})\b"
_D = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_Y = r"(?P<year>(?:19|20)\d\d)\b"
_S = r"(?P<season>spring|summer|autumn|fall|winter)\b"
_WHICH = rf"(?P<which>{'|'.join((*_BACK, *_AHEAD, 'this'))})"
_IN = r"(?:in|during|since|throughout|around|from|early|mid|late|month of)(?: the)?"
_UNIT = r"(?P<unit>day|week|month|year)s?\b"
_COUNTED = "|".join(
    """
    dollars euros pounds people steps calories words miles km meters metres points copies followers
    hours times
    """.split()
)
# The most precise first; those from "which" and "word" on are relative to a day.
_DATES = rf"""
    (?P<year>(?:19|20)\d\d)[-/](?P<month>[01]\d)[-/](?P<day>[0-3]\d)(?!\d)
    {_D}(?: of)? {_M},? ?{_Y}
    {_M} {_D},? {_Y}
    {_D}(?: of)? {_M}
    {_M} {_D}\b(?!:)
    {_M},?(?: of)? {_Y}
    {_WHICH} {_M}
    {_IN} {_M}
    {_CLEAR_M}
    {_S},?(?: of)? {_Y}
    {_WHICH} {_S}
    (?:in|during|over|for) (?:the )?{_S}
    (?<![$€£#.,\d]){_Y}(?![.,]\d|%| (?:{_COUNTED})\b)
    (?P<word>{"|".join(_DAYS)})\b
    (?:{_WHICH}|on) (?P<weekday>{_DAY_NAME})(?!\w)
    (?P<number>{_COUNT}) {_UNIT} (?P<ago>ago)\b
    (?:last|past) (?P<number>{_COUNT}) {_UNIT}
    {_WHICH} (?P<unit>weekend|week|month|year)\b
    """
_RULES = [re.compile(rf"(?i)\b{rule.strip()}") for rule in _DATES.strip().splitlines()]
_RELATIVE = {"which", "word", "weekday", "number"}
# Without one of these no rule finds anything.
_HINT = re.compile(
    r"(?i)(?:19|20)\d\d|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|spring|summer|autumn|fall"
    r"|winter|tonight|last night|tomorrow|day|week|month|year|\b(?:mon|tue|wed|thu|fri)"
)
_SEASONS = "spring|summer|autumn|fall|winter"
_CLEAR = rf"(?!may\b|march\b)(?:{_MONTH})"
_EACH = "last|past|this|next|previous|coming|upcoming|every"
_SPANS = "day|week|weekend|month|year"
_TIME_EXPRESSIONS = rf"""
    day before yesterday|yesterday|today|tonight|tomorrow|last night|recently|lately
    the other day|just now
    (?:{_EACH}) (?:few )?(?:{_SPANS}|night|morning|evening|{_SEASONS}|{_WEEKDAY}|{_CLEAR})s?\b
    (?:{_COUNT}) (?:second|minute|hour|{_SPANS}|decade)s? (?:ago|later|earlier|before)\b
    (?:for|over|since|in) (?:the (?:last|past) )?(?:{_COUNT}) (?:day|week|month|year)s?\b
    (?:on|since|until|by) (?:{_WEEKDAY})s?\b|in the (?:{_SEASONS})\b
    (?:in|since|until|during|by|around|early|mid|late|last|next) (?:{_MONTH}|(?:19|20)\d\d)\b
    (?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?\b|[0-3]?\d(?:st|nd|rd|th)?(?: of)? (?:{_MONTH})\b
    (?:since|when) (?:i|we|he|she|they) (?:was|were)\b
    """
_TIMES = re.sub(r"\s*\n\s*", "|", _TIME_EXPRESSIONS.strip())
# The lookahead only saves time: elsewhere none of the expressions can begin.
_TIME = re.compile(rf"(?i)\b(?=[\da-fijl-pr-uwy])(?:{_TIMES})")


def utc(at: datetime) -> datetime:
    """Return the same moment in UTC; a time without a zone is taken as UTC.

    >>> utc(datetime(2023, 5, 8, 13, 56)).isoformat()
    '2023-05-08T13:56:00+00:00'
    """
    if at.tzinfo is UTC:
        return at
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    try:
        return at.astimezone(UTC)
    except OverflowError:  # the first and last day of the calendar in a far zone
        return at.replace(tzinfo=UTC)


def micros(at: datetime | None) -> int:
    """Return the exact microseconds since 1970; `NO_TIME` for None.

    >>> micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    if at is None:
        return NO_TIME
    return (utc(at) - _EPOCH) // _MICROSECOND


def iso(at: datetime) -> str:
    """Return a fixed-width text that sorts by time.

    >>> iso(datetime(2023, 5, 8, 13, 56, tzinfo=UTC))
    '2023-05-08T13:56:00.000000Z'
    """
    plain = utc(at).replace(tzinfo=None)
    return f"{plain.isoformat(timespec='microseconds')}Z"


def parse(text: str) -> datetime:
    """Read a time that `iso` wrote, or any other ISO 8601 text. Raises ValueError."""
    return utc(datetime.fromisoformat(text))


def new_id() -> str:
    """Return a new UUIDv7: 48 bits of milliseconds, 12 bits that count, and 62 random bits.

    The ids that a process makes in one millisecond are in order, unless the count starts again.
    """
    millis = time.time_ns() // 1_000_000
    number = next(_numbers) & 0xFFF
    random = int.from_bytes(os.urandom(8), "big") >> 2
    value = (millis << 80) | (7 << 76) | (number << 64) | (0b10 << 62) | random
    return str(uuid.UUID(int=value))


class Interval(NamedTuple):
    """From start up to, not including, end, in UTC. A yearly one repeats in every year."""

    start: datetime
    end: datetime
    yearly: bool = False  # "in June": start lies in ANY_YEAR

    def within(
        self,
        first: datetime,
        last: datetime,
    ) -> list[tuple[datetime, datetime]]:
        """Return its occurrences that overlap first … last.

        >>> june, july = (datetime(ANY_YEAR, month, 1, tzinfo=UTC) for month in (6, 7))
        >>> first, last = datetime(2022, 8, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
        >>> found = Interval(june, july, yearly=True).within(first, last)
        >>> [start.year for start, _ in found]
        [2023]
        """
        years = range(self.start.year, self.start.year + 1)
        if self.yearly:
            earliest = max(first.year - 1, 1)
            latest = min(last.year, 9998)
            years = range(earliest, latest + 1)
        length = self.end.year - self.start.year  # a winter ends in the next year
        found = []
        for year in years:
            start = _in_year(self.start, year)
            end = _in_year(self.end, year + length)
            if end > first and start <= last:
                found.append((start, end))
        return found


def intervals(text: str, now: datetime | None = None) -> list[Interval]:
    """Return the intervals a text names, earliest first; relative ones ("last week") only with
    `now`.

    >>> [f"{each.start:%Y-%m-%d}" for each in intervals("in May 2023 or on 7 July, 2022")]
    ['2022-07-07', '2023-05-01']
    >>> [f"{each.end:%Y-%m-%d}" for each in intervals("in May 2023 or on 7 July, 2022")]
    ['2022-07-08', '2023-06-01']
    >>> intervals("we may march on")
    []
    >>> [f"{i.start:%Y-%m-%d}" for i in intervals("yesterday", datetime(2023, 5, 8, 9, tzinfo=UTC))]
    ['2023-05-07']
    """
    return read_intervals(text, now)[0]


def read_intervals(text: str, now: datetime | None = None) -> tuple[list[Interval], str]:
    """Return the intervals a text names, earliest first, and the text without them.

    >>> read_intervals("Where was I in May 2023?")[1]
    'Where was I in ;?'
    """
    if not _HINT.search(text):
        return [], text
    found: list[Interval] = []
    today = datetime(ANY_YEAR, 1, 1, tzinfo=UTC)
    if now is not None:  # the beginning of the day where the asker is
        aware = now if now.tzinfo else utc(now)
        today = aware.replace(
            hour=0,
            minute=0,
            second=0,
            microsecond=0,
        )

    def take(match: re.Match[str]) -> str:
        """Read one expression; what has been read is hidden from the rules that follow."""
        groups = match.groupdict()
        fields = {name: value.lower() for name, value in groups.items() if value}
        with suppress(ValueError, OverflowError):  # 31 June, or beyond the calendar
            if interval := _read(fields, today):
                found.append(interval)
                return ";"
        return match[0]

    for rule in _RULES:
        if now is not None or _RELATIVE.isdisjoint(rule.groupindex):
            text = rule.sub(take, text)
    return sorted(found, key=lambda interval: interval[:2]), text


def find_weekday(name: str) -> int:
    """Return the number of a day of the week, given its name or an abbreviation.

    >>> find_weekday("Monday"), find_weekday("tues."), find_weekday("thu")
    (0, 1, 3)
    """
    return [day[:3] for day in WEEKDAYS].index(name[:3].lower())


def find_year(weekday: int, day: int, month: int, at: datetime) -> int | None:
    """Return the year in which a date, at most half a year away, is that weekday (0: Monday).

    >>> find_year(3, 8, 5, datetime(2025, 4, 28)), find_year(4, 8, 5, datetime(2025, 4, 28))
    (2025, None)
    """
    for year in (at.year, at.year + 1, at.year - 1):
        with suppress(ValueError):  # 29 February, or beyond the calendar
            date = datetime(year, month, day, tzinfo=UTC)
            if abs(date - utc(at)) < _HALF_YEAR and date.weekday() == weekday:
                return year
    return None


def has_time(text: str) -> bool:
    """Return whether a text says when something happens.

    >>> has_time("We met last Friday"), has_time("I may march on")
    (True, False)
    """
    return _TIME.search(text) is not None


def _read(fields: dict[str, str], today: datetime) -> Interval | None:
    """Return the interval of an expression, given the named groups of its match in lower case."""
    which = fields.get("which")
    unit = fields.get("unit", "")
    step = (which in _AHEAD) - (which in _BACK)
    if "word" in fields:
        offset = _DAYS[fields["word"]]
        return _days(today, offset, 1)
    if "weekday" in fields:
        weekday = find_weekday(fields["weekday"])
        offset = (weekday - today.weekday()) % 7  # the next one; today's name means another day
        if step > 0 or which == "this":
            return _days(today, offset or 7, 1)
        return _days(today, offset - 7, 1)
    if not unit:
        return _read_date(fields, step, today)
    months = _MONTHS_IN.get(unit, 0)
    if "number" in fields:
        count = fields["number"].removeprefix("a ").removesuffix(" of")
        number = int(count) if count.isdigit() else _NUMBER_OF[count]
        if "ago" not in fields:  # that many units, up to and including today
            days = number * _DAYS_IN[unit]
            return _days(today, -days, days + 1)
        # The interval is as long as the unit.
        if unit == "day":
            return _days(today, -number, 1)
        if unit == "week":
            return _days(today, -7 * number - 3, 7)
        step = -number
    if not months:  # by the calendar; weeks start on Monday
        monday = 7 * step - today.weekday()
        if unit == "weekend":
            return _days(today, monday + 5, 2)
        return _days(today, monday, 7)
    start = today.replace(day=1)
    if unit == "year":
        start = start.replace(month=1)
    start = _add_months(start, step * months)
    return _utc(start, _add_months(start, months))


def _read_date(
    fields: dict[str, str],
    step: int,
    today: datetime,
) -> Interval | None:
    """Read a full or partial date: missing parts widen it."""
    name = fields.get("season") or fields.get("month")
    month = 1
    length = 12
    if name:
        month = int(name) if name.isdigit() else MONTH_NUMBERS[name[:3]]
        length = 3 if "season" in fields else 1
    if "which" not in fields:
        year = int(fields.get("year", ANY_YEAR))
        day = int(fields.get("day", 1))
        start = datetime(year, month, day, tzinfo=UTC)
        end = _add_months(start, length) if "day" not in fields else start + timedelta(days=1)
        return Interval(start, end, yearly="year" not in fields)
    if fields["which"] == "this" and name in ("may", "march", "mar"):
        return None  # "this may be"
    start = datetime(today.year, month, 1, tzinfo=UTC)
    if step < 0:
        step = -int(_add_months(start, length) > today)
    elif step > 0:
        step = int(start <= today)
    start = _in_year(start, start.year + step)
    return Interval(start, _add_months(start, length))


def _days(
    today: datetime,
    offset: int,
    length: int,
) -> Interval:
    start = today + timedelta(days=offset)
    end = start + timedelta(days=length)
    return _utc(start, end)


def _utc(start: datetime, end: datetime) -> Interval:
    return Interval(start.astimezone(UTC), end.astimezone(UTC))


def _add_months(start: datetime, months: int) -> datetime:
    years, month = divmod(start.month - 1 + months, 12)
    return start.replace(year=start.year + years, month=month + 1)


def _in_year(moment: datetime, year: int) -> datetime:
    return moment if moment.year == year else moment.replace(year=year)
