"""Reading times in questions and turns."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from memorist.retrieve.question import kinds_asked
from memorist.text import clock
from memorist.text.cues import HAS_TIME

NOW = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)  # a Monday


def read(text: str, now: datetime | None = NOW) -> list[str]:
    return [
        f"{i.start:%Y-%m-%d}/{i.end:%Y-%m-%d}{'*' * i.yearly}" for i in clock.intervals(text, now)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in May 2023", "2023-05-01/2023-06-01"),
        ("on 7 July, 2023", "2023-07-07/2023-07-08"),
        ("on the 5th of May 2022", "2022-05-05/2022-05-06"),
        ("May 5, 2022", "2022-05-05/2022-05-06"),
        ("2022-11-03", "2022-11-03/2022-11-04"),
        ("in 2022", "2022-01-01/2023-01-01"),
        ("summer of 2022", "2022-06-01/2022-09-01"),
        ("winter 2021", "2021-12-01/2022-03-01"),
        ("yesterday", "2023-05-07/2023-05-08"),
        ("last week", "2023-05-01/2023-05-08"),
        ("last month", "2023-04-01/2023-05-01"),
        ("next year", "2024-01-01/2025-01-01"),
        ("last Friday", "2023-05-05/2023-05-06"),
        ("on Monday", "2023-05-01/2023-05-02"),
        ("next Friday", "2023-05-12/2023-05-13"),
        ("last Tues.", "2023-05-02/2023-05-03"),
        ("on Fri at noon", "2023-05-05/2023-05-06"),
        ("next thurs", "2023-05-11/2023-05-12"),
        ("last weekend", "2023-05-06/2023-05-08"),
        ("last summer", "2022-06-01/2022-09-01"),
        ("last June", "2022-06-01/2022-07-01"),
        ("two days ago", "2023-05-06/2023-05-07"),
        ("three months ago", "2023-02-01/2023-03-01"),
        ("a year ago", "2022-01-01/2023-01-01"),
        ("in the past two weeks", "2023-04-24/2023-05-09"),
    ],
)
def test_a_time_is_read_as_an_interval(text: str, expected: str) -> None:
    assert read(text) == [expected]


@pytest.mark.parametrize("text", ["in June", "on 5 June", "June 5th", "in the summer"])
def test_a_month_without_a_year_means_every_year(text: str) -> None:
    assert [interval.yearly for interval in clock.intervals(text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "We may march on",
        "this may be it",
        "the sun sat on us",
        "2000 steps",
        "$2020",
        "31 flavours",
        "a fall",
        "May I?",
    ],
)
def test_ordinary_words_and_numbers_are_no_dates(text: str) -> None:
    assert read(text) == []


def test_relative_times_need_to_know_the_present() -> None:
    assert read("yesterday and last week", now=None) == []


def test_the_day_is_that_of_the_asker() -> None:
    tokyo = datetime(2023, 5, 8, 1, tzinfo=timezone(timedelta(hours=9)))
    assert clock.intervals("today", tokyo)[0].start == datetime(2023, 5, 7, 15, tzinfo=UTC)


def test_several_times_come_in_order() -> None:
    assert read("in June 2022 or in May 2021") == ["2021-05-01/2021-06-01", "2022-06-01/2022-07-01"]


def test_a_yearly_winter_reaches_into_the_next_year() -> None:
    (winter,) = clock.intervals("in winter")
    january = datetime(2023, 1, 15, tzinfo=UTC)
    assert [(start.year, end.year) for start, end in winter.within(january, january)] == [
        (2022, 2023)
    ]


def test_impossible_times_are_left_out() -> None:
    assert read("2023-02-31") == ["2023-01-01/2024-01-01"]
    assert read("tomorrow", datetime(9999, 12, 31, tzinfo=UTC)) == []


@pytest.mark.parametrize(
    "text",
    ["I went yesterday", "in 2019 we met", "on Friday", "next month", "for ten years", "May 5"],
)
def test_a_turn_may_speak_of_a_time(text: str) -> None:
    assert clock.has_time(text)


@pytest.mark.parametrize("text", ["I like tea", "you may go", "we march", "it cost 2019 dollars"])
def test_a_turn_may_speak_of_no_time(text: str) -> None:
    assert not clock.has_time(text)


@pytest.mark.parametrize(
    "text", ["When did he go?", "What year was it?", "How long ago was that?", "Do you know when?"]
)
def test_a_question_may_ask_for_a_time(text: str) -> None:
    assert kinds_asked(text) & HAS_TIME


@pytest.mark.parametrize(
    "text", ["When I was sad, what helped?", "Where did he go?", "What did he do when it rained?"]
)
def test_a_question_may_ask_for_something_else(text: str) -> None:
    assert not kinds_asked(text) & HAS_TIME


def test_a_time_without_a_zone_is_utc_wherever_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert clock.utc(datetime(2026, 5, 8, 13)) == datetime(2026, 5, 8, 13, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()
