"""When a text speaks about: the days, months and years it names, as intervals of time.

Only what can be read without guessing: English names of months and days, ISO dates and common
relative expressions. "May", "march" and the like count as dates only where the words around them
say so. The patterns run in time linear in the text.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from . import clock

MONTHS = tuple(
    "january february march april may june july august september october november december".split()
)
WEEKDAYS = tuple("monday tuesday wednesday thursday friday saturday sunday".split())
ANY_YEAR = (
    2001  # stands for every year in a yearly interval; not a leap year, so that it fits them all
)


@dataclass(frozen=True, slots=True)
class Interval:
    """From start up to, not including, end, in UTC. A yearly one means the same days of every
    year.
    """

    start: datetime
    end: datetime
    yearly: bool = False  # "in June": start lies in ANY_YEAR

    def within(self, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
        """Return the intervals that are meant, as far as they touch first … last.

        >>> june, july = (datetime(ANY_YEAR, month, 1, tzinfo=UTC) for month in (6, 7))
        >>> first, last = datetime(2022, 8, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
        >>> found = Interval(june, july, yearly=True).within(first, last)
        >>> [start.year for start, _ in found]
        [2023]
        """
        years = (
            range(max(first.year - 1, 1), min(last.year, 9998) + 1)
            if self.yearly
            else [self.start.year]
        )
        longer = self.end.year - self.start.year  # a winter ends in the year after
        moved = [(_in_year(self.start, year), _in_year(self.end, year + longer)) for year in years]
        return [(start, end) for start, end in moved if end > first and start <= last]


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
    found: list[Interval] = []
    today = _midnight(now) if now else None
    for rule in _RULES:
        if today or not rule.is_relative:
            text = rule.pattern.sub(lambda match, rule=rule: _take(rule, match, today, found), text)  # type: ignore[misc]
    return sorted(found, key=lambda interval: (interval.start, interval.end))


def has_time(text: str) -> bool:
    """Return whether a text says when something happens.

    >>> has_time("We met last Friday"), has_time("I may march on")
    (True, False)
    """
    return _TIME.search(text) is not None


def asks_when(text: str) -> bool:
    """Return whether a question asks for a time.

    >>> asks_when("When did she leave?"), asks_when("What did she say when she left?")
    (True, False)
    """
    return _WHEN.search(text) is not None


Fields = dict[str, str]  # the named groups of a match, in lower case
Reader = Callable[[Fields, datetime], Interval | None]


class DateRule(NamedTuple):
    """How one kind of expression looks and what it means."""

    pattern: re.Pattern[str]
    read: Reader
    is_relative: bool


def _take(
    rule: DateRule, match: re.Match[str], today: datetime | None, found: list[Interval]
) -> str:
    """Read one expression; what has been read is hidden from the rules that follow."""
    fields = {name: value.lower() for name, value in match.groupdict().items() if value}
    try:
        interval = rule.read(fields, today or datetime(ANY_YEAR, 1, 1, tzinfo=UTC))
    except (ValueError, OverflowError):  # 31 June, or beyond the calendar
        return match[0]
    found.extend([interval] if interval else [])
    return ";" if interval else match[0]


def _calendar(fields: Fields, today: datetime) -> Interval:
    """Read a full or partial date: missing parts widen it."""
    month, day = fields.get("month"), fields.get("day")
    start = datetime(
        int(fields.get("year", ANY_YEAR)), _month(month) if month else 1, int(day or 1), tzinfo=UTC
    )
    end = start + timedelta(days=1) if day else _months_on(start, 1 if month else 12)
    return Interval(start, end, yearly="year" not in fields)


def _season(fields: Fields, today: datetime) -> Interval:
    start = datetime(int(fields.get("year", ANY_YEAR)), _SEASONS[fields["season"]], 1, tzinfo=UTC)
    return Interval(start, _months_on(start, 3), yearly="year" not in fields)


def _which_season(fields: Fields, today: datetime) -> Interval:
    return _nearest(
        datetime(today.year, _SEASONS[fields["season"]], 1, tzinfo=UTC), 3, fields["which"], today
    )


def _which_month(fields: Fields, today: datetime) -> Interval | None:
    if fields["which"] == "this" and fields["month"] in ("may", "march", "mar"):
        return None  # "this may be"
    return _nearest(
        datetime(today.year, _month(fields["month"]), 1, tzinfo=UTC), 1, fields["which"], today
    )


def _nearest(start: datetime, months: int, which: str, today: datetime) -> Interval:
    """Return this year's month or season, moved to the year that "last" or "next" means."""
    year = start.year
    if which in _BACK:
        year -= _months_on(start, months) > today
    elif which in _AHEAD:
        year += start <= today
    return Interval(_in_year(start, year), _months_on(_in_year(start, year), months))


def _weekday(fields: Fields, today: datetime) -> Interval:
    behind = (today.weekday() - WEEKDAYS.index(fields["weekday"])) % 7 or 7
    ahead = fields.get("which") in (*_AHEAD, "this")
    return _days(today, 7 - behind or 7, 1) if ahead else _days(today, -behind, 1)


def _day(fields: Fields, today: datetime) -> Interval:
    return _days(today, _DAYS[fields["word"]], 1)


def _ago(fields: Fields, today: datetime) -> Interval:
    """Read "so long ago"; the interval is as wide as the unit."""
    count, unit = _number(fields["number"]), fields["unit"]
    if unit in _MONTHS_IN:
        start = _months_on(_first_day(today, unit), -count * _MONTHS_IN[unit])
        return _utc(start, _months_on(start, _MONTHS_IN[unit]))
    return _days(today, -count, 1) if unit == "day" else _days(today, -7 * count - 3, 7)


def _past(fields: Fields, today: datetime) -> Interval:
    """Read "the last so many days, weeks, months or years", up to and including today."""
    days = (
        _number(fields["number"]) * {"day": 1, "week": 7, "month": 31, "year": 366}[fields["unit"]]
    )
    return _days(today, -days, days + 1)


def _period(fields: Fields, today: datetime) -> Interval:
    """Read "last week", "this month", "next year" by the calendar; weeks start on Monday."""
    step, unit = (
        -1 if fields["which"] in _BACK else 1 if fields["which"] in _AHEAD else 0,
        fields["unit"],
    )
    if unit not in _MONTHS_IN:
        monday = 7 * step - today.weekday()
        return _days(today, monday + 5, 2) if unit == "weekend" else _days(today, monday, 7)
    start = _first_day(today, unit)
    return _utc(
        _months_on(start, step * _MONTHS_IN[unit]), _months_on(start, (step + 1) * _MONTHS_IN[unit])
    )


def _days(today: datetime, offset: int, length: int) -> Interval:
    start = today + timedelta(days=offset)
    return _utc(start, start + timedelta(days=length))


def _utc(start: datetime, end: datetime) -> Interval:
    return Interval(start.astimezone(UTC), end.astimezone(UTC))


def _midnight(now: datetime) -> datetime:
    """Return the beginning of the day where the asker is."""
    aware = now if now.tzinfo else clock.utc(now)
    return aware.replace(hour=0, minute=0, second=0, microsecond=0)


def _first_day(today: datetime, unit: str) -> datetime:
    return today.replace(day=1) if unit == "month" else today.replace(day=1, month=1)


def _months_on(start: datetime, months: int) -> datetime:
    years, month = divmod(start.month - 1 + months, 12)
    return start.replace(year=start.year + years, month=month + 1)


def _in_year(moment: datetime, year: int) -> datetime:
    return moment if moment.year == year else moment.replace(year=year)


def _month(name: str) -> int:
    return int(name) if name.isdigit() else 1 + [month[:3] for month in MONTHS].index(name[:3])


def _number(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word.removeprefix("a ")]


_SEASONS = {
    "spring": 3,
    "summer": 6,
    "autumn": 9,
    "fall": 9,
    "winter": 12,
}  # first month; each lasts three
_DAYS = {
    "day before yesterday": -2,
    "yesterday": -1,
    "last night": -1,
    "today": 0,
    "tonight": 0,
    "tomorrow": 1,
}
_MONTHS_IN = {"month": 1, "year": 12}
_NUMBERS = {
    word: number
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())
}
_NUMBERS |= {"a": 1, "an": 1, "couple of": 2, "few": 3, "several": 4}
_BACK = ("last", "past", "this past", "previous")
_AHEAD = ("next", "coming", "upcoming")

_MONTH = "|".join(MONTHS)
_WEEKDAY = "|".join(WEEKDAYS)
_COUNT = (
    r"\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|(?:a )?(?:couple of|few)|several"
)
_M = rf"(?P<month>{_MONTH}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
_CLEAR_M = rf"(?P<month>{'|'.join(month for month in MONTHS if month not in ('may', 'march'))})\b"
_D = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_Y = r"(?P<year>(?:19|20)\d\d)\b"
_S = r"(?P<season>spring|summer|autumn|fall|winter)\b"
_W = rf"(?P<weekday>{_WEEKDAY})\b"
_WHICH = rf"(?P<which>{'|'.join((*_BACK, *_AHEAD, 'this'))})"
_IN = r"(?:in|during|since|throughout|around|from|early|mid|late|month of)(?: the)?"
_UNIT = r"(?P<unit>day|week|month|year)s?\b"
_COUNTED = (
    "dollars|euros|pounds|people|steps|calories|words|miles|km|meters|metres|points|copies|followers"
    "|hours|times"
)


def _rule(pattern: str, read: Reader, *, is_relative: bool = False) -> DateRule:
    return DateRule(re.compile(rf"\b{pattern}", re.IGNORECASE), read, is_relative)


_RULES = (  # the most precise first
    _rule(r"(?P<year>(?:19|20)\d\d)[-/](?P<month>[01]\d)[-/](?P<day>[0-3]\d)(?!\d)", _calendar),
    _rule(rf"{_D}(?: of)? {_M},? ?{_Y}", _calendar),
    _rule(rf"{_M} {_D},? {_Y}", _calendar),
    _rule(rf"{_D}(?: of)? {_M}", _calendar),
    _rule(rf"{_M} {_D}\b(?!:)", _calendar),
    _rule(rf"{_M},?(?: of)? {_Y}", _calendar),
    _rule(rf"{_WHICH} {_M}", _which_month, is_relative=True),
    _rule(rf"{_IN} {_M}", _calendar),
    _rule(_CLEAR_M, _calendar),
    _rule(rf"{_S},?(?: of)? {_Y}", _season),
    _rule(rf"{_WHICH} {_S}", _which_season, is_relative=True),
    _rule(rf"(?:in|during|over|for) (?:the )?{_S}", _season),
    _rule(rf"(?<![$€£#.,\d]){_Y}(?![.,]\d|%| (?:{_COUNTED})\b)", _calendar),
    _rule(rf"(?P<word>{'|'.join(_DAYS)})\b", _day, is_relative=True),
    _rule(rf"(?:{_WHICH}|on) {_W}", _weekday, is_relative=True),
    _rule(rf"(?P<number>{_COUNT}) {_UNIT} ago\b", _ago, is_relative=True),
    _rule(rf"(?:last|past) (?P<number>{_COUNT}) {_UNIT}", _past, is_relative=True),
    _rule(rf"{_WHICH} (?P<unit>weekend|week|month|year)\b", _period, is_relative=True),
)
_TIME_EXPRESSIONS = (
    r"day before yesterday|yesterday|today|tonight|tomorrow|last night|recently|lately"
    r"|the other day|just now",
    r"(?:last|past|this|next|previous|coming|upcoming|every) (?:few )?(?:day|night|morning"
    r"|evening|week|weekend|month|"
    rf"year|spring|summer|autumn|fall|winter|{_WEEKDAY}|(?!may\b|march\b)(?:{_MONTH}))s?\b",
    rf"(?:{_COUNT}) (?:second|minute|hour|day|week|weekend|month|year|decade)s? (?:ago|later"
    rf"|earlier|before)\b",
    rf"(?:for|over|since|in) (?:the (?:last|past) )?(?:{_COUNT}) (?:day|week|month|year)s?\b",
    rf"(?:on|since|until|by) (?:{_WEEKDAY})s?\b|in the (?:spring|summer|autumn|fall|winter)\b",
    rf"(?:in|since|until|during|by|around|early|mid|late|last|next) (?:{_MONTH}|(?:19|20)\d\d)\b",
    rf"(?:{_MONTH}) \d{{1,2}}(?:st|nd|rd|th)?\b|[0-3]?\d(?:st|nd|rd|th)?(?: of)? (?:{_MONTH})\b",
    r"(?:since|when) (?:i|we|he|she|they) (?:was|were)\b",
)
_TIME = re.compile(rf"\b(?:{'|'.join(_TIME_EXPRESSIONS)})", re.IGNORECASE)
_WHEN = re.compile(
    r"(?:^|[,;.!?] |\band )when (?:did|do|does|is|are|was|were|will|has|have|had|can|could|should"
    r"|would|exactly)\b|"
    r"\b(?:what|which) (?:date|day|month|year|time|week|season)\b|\bhow long\b|\bsince when\b|"
    r"\bwhen\W*$|\b(?:know|remember|tell me) when\b",
    re.IGNORECASE,
)
