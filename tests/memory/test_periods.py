from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikobot.memory.language.periods import (
    EveryYear,
    Period,
    find_period,
    last_years,
    periods_in,
    without_periods,
)
from pikobot.memory.language.questions import subject_words
from pikobot.memory.recall.wording import spoken_period

FRIDAY = date(2024, 3, 15)


def days(text: str) -> str | None:
    """The days of the period that a text names, as one line."""
    understood = find_period(text, FRIDAY)
    if understood is None:
        return None
    first, last = understood.period.first, understood.period.last
    return f"{first or ''}/{last}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("What did I do today?", "2024-03-15/2024-03-15"),
        ("What happened yesterday", "2024-03-14/2024-03-14"),
        ("the day before yesterday", "2024-03-13/2024-03-13"),
        ("What did I eat last night?", "2024-03-14/2024-03-14"),
        ("What did I do this week?", "2024-03-11/2024-03-17"),
        ("What did I say LAST WEEK", "2024-03-04/2024-03-10"),
        ("the week before last", "2024-02-26/2024-03-03"),
        ("last weekend", "2024-03-09/2024-03-10"),
        ("last month", "2024-02-01/2024-02-29"),
        ("last year", "2023-01-01/2023-12-31"),
        ("in the past two weeks", "2024-03-02/2024-03-15"),
        ("the last three days", "2024-03-13/2024-03-15"),
        ("three days ago", "2024-03-12/2024-03-12"),
        ("a couple of weeks ago", "2024-02-26/2024-03-03"),
        ("a year ago", "2023-01-01/2023-12-31"),
        ("on Monday", "2024-03-11/2024-03-11"),
        ("last Friday", "2024-03-08/2024-03-08"),
        ("this Friday", "2024-03-15/2024-03-15"),
        ("What did I do in March 2024?", "2024-03-01/2024-03-31"),
        ("in March", "2024-03-01/2024-03-31"),
        ("in May", "2023-05-01/2023-05-31"),
        ("last March", "2023-03-01/2023-03-31"),
        ("at the beginning of Sept. 2023", "2023-09-01/2023-09-10"),
        ("in early September", "2023-09-01/2023-09-10"),
        ("mid-September", "2023-09-11/2023-09-20"),
        ("since the middle of last month", "2024-02-11/2024-03-15"),
        ("late February 2024", "2024-02-21/2024-02-29"),
        ("at the end of 2023", "2023-01-01/2023-12-31"),
        ("on 2 March", "2024-03-02/2024-03-02"),
        ("on the 2nd of March 2022", "2022-03-02/2022-03-02"),
        ("on December 24th", "2023-12-24/2023-12-24"),
        ("March 2, 2022", "2022-03-02/2022-03-02"),
        ("on 2024-03-02", "2024-03-02/2024-03-02"),
        ("in 2023-04", "2023-04-01/2023-04-30"),
        ("in 2023", "2023-01-01/2023-12-31"),
        ("since May", "2023-05-01/2024-03-15"),
        ("before May 2023", "/2023-04-30"),
        ("after yesterday", "2024-03-15/2024-03-15"),
        ("until 2 March", "/2024-03-02"),
        ("from March 2023 to May 2023", "2023-03-01/2023-05-31"),
        ("from March to May", "2023-03-01/2023-05-31"),
        ("between 1 March and 5 March", "2024-03-01/2024-03-05"),
        ("between 3 and 6 March", "2024-03-03/2024-03-06"),
        ("3-6 March", "2024-03-03/2024-03-06"),
        ("from the 3rd to the 6th of March 2022", "2022-03-03/2022-03-06"),
        ("from November 3 to 6 December", "2023-11-03/2023-12-06"),
        ("room 3, on 6 March", "2024-03-06/2024-03-06"),
        ("flats 3 and 6 March", "2024-03-06/2024-03-06"),
    ],
)
def test_english_words_for_a_time_are_days(text: str, named: str) -> None:
    assert days(text) == named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("今天我说了什么", "2024-03-15/2024-03-15"),
        ("昨天下午", "2024-03-14/2024-03-14"),
        ("昨晚我吃了什么", "2024-03-14/2024-03-14"),
        ("前天", "2024-03-13/2024-03-13"),
        ("大前天", "2024-03-12/2024-03-12"),
        ("上周我说了什么", "2024-03-04/2024-03-10"),
        ("上个星期", "2024-03-04/2024-03-10"),
        ("上上周", "2024-02-26/2024-03-03"),
        ("本周", "2024-03-11/2024-03-17"),
        ("上周三", "2024-03-06/2024-03-06"),
        ("這個禮拜一", "2024-03-11/2024-03-11"),
        ("周三我做了什么", "2024-03-13/2024-03-13"),
        ("上周末", "2024-03-09/2024-03-10"),
        ("上个月5号", "2024-02-05/2024-02-05"),
        ("本月", "2024-03-01/2024-03-31"),
        ("去年", "2023-01-01/2023-12-31"),
        ("去年三月", "2023-03-01/2023-03-31"),
        ("2024年3月我做了什么", "2024-03-01/2024-03-31"),
        ("２０２４年３月２日", "2024-03-02/2024-03-02"),
        ("2022年的十二月31號", "2022-12-31/2022-12-31"),
        ("三月份", "2024-03-01/2024-03-31"),
        ("五月到二月", "2023-05-01/2024-02-29"),
        ("去年三月中旬", "2023-03-11/2023-03-20"),
        ("2024年2月下旬", "2024-02-21/2024-02-29"),
        ("五月底", "2023-05-21/2023-05-31"),
        ("二月初", "2024-02-01/2024-02-10"),
        ("5月", "2023-05-01/2023-05-31"),
        ("3月5号", "2024-03-05/2024-03-05"),
        ("三天前", "2024-03-12/2024-03-12"),
        ("两个月前", "2024-01-01/2024-01-31"),
        ("二十一天之前", "2024-02-23/2024-02-23"),
        ("最近三天", "2024-03-13/2024-03-15"),
        ("过去两周", "2024-03-02/2024-03-15"),
        ("上个月初", "2024-02-01/2024-02-10"),
        ("3月3-6日", "2024-03-03/2024-03-06"),
        ("3月3到6号", "2024-03-03/2024-03-06"),
        ("今年以来", "2024-01-01/2024-12-31"),
        ("2023年5月之前", "/2023-04-30"),
        ("3月5日以后", "2024-03-06/2024-03-15"),
        ("2023年3月到2023年5月", "2023-03-01/2023-05-31"),
    ],
)
def test_chinese_words_for_a_time_are_days(text: str, named: str) -> None:
    assert days(text) == named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("2023年3月到5月", "2023-03-01/2023-05-31"),
        ("去年三月到五月我说了什么？", "2023-03-01/2023-05-31"),
        ("前年十月至二月", "2022-10-01/2023-02-28"),
        ("上个月1号到5号", "2024-02-01/2024-02-05"),
        ("2023年3月1日到5日", "2023-03-01/2023-03-05"),
        ("2023年3月和5月之间", "2023-03-01/2023-05-31"),
        ("March 3 to 9, 2022", "2022-03-03/2022-03-09"),
        ("from March to May 2022", "2022-03-01/2022-05-31"),
        ("between March and May 2022", "2022-03-01/2022-05-31"),
        ("from December to February 2022", "2021-12-01/2022-02-28"),
        ("from 3 May to 9 June 2022", "2022-05-03/2022-06-09"),
        ("from March to May last year", "2023-03-01/2023-05-31"),
        ("between March and May of last year", "2023-03-01/2023-05-31"),
        ("last year from March to May", "2023-03-01/2023-05-31"),
        ("from December to February last year", "2022-12-01/2023-02-28"),
        ("in March last year", "2023-03-01/2023-03-31"),
        ("last year in March", "2023-03-01/2023-03-31"),
        ("on 3 May last year", "2023-05-03/2023-05-03"),
        ("since May last year", "2023-05-01/2024-03-15"),
        ("before March last year", "/2023-02-28"),
        ("in February last year", "2023-02-01/2023-02-28"),
        ("去年，三月到五月", "2023-03-01/2023-05-31"),
        ("去年的三月到五月", "2023-03-01/2023-05-31"),
        ("去年3月5日到8日", "2023-03-05/2023-03-08"),
    ],
)
def test_both_ends_are_of_the_year_that_one_of_them_names(text: str, named: str) -> None:
    assert days(text) == named


def test_a_whole_february_ends_with_its_own_last_day() -> None:
    understood = find_period("in February last year", date(2025, 5, 1))
    assert understood is not None
    assert understood.period == Period(date(2024, 2, 1), date(2024, 2, 29))
    years = last_years(EveryYear(date(2025, 2, 1), date(2025, 2, 28)), 2)
    assert [period.last for period in years] == [date(2025, 2, 28), date(2024, 2, 29)]


@pytest.mark.parametrize(
    "text",
    ["in May 2022 and in March", "2022年3月和5月", "this year and in March", "between last year and March"],
)
def test_two_periods_that_are_not_joined_are_none(text: str) -> None:
    assert days(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "May I go?",
        "which of the 3 may I eat",
        "march on",
        "Where is my 2024 tax report?",
        "on February 30",
        "What do I do tomorrow or next week?",
        "every Monday",
        "in March or in May",
        "三个月",
        "一周三次",
        "每周三",
        "What do I usually do on Wednesday?",
        "我周三晚上一般做什么运动？",
        "我平时周三去游泳",
        "in the end may I go",
        "下周三我做什么",
        "下个星期三",
        "明年3月",
        "明天",
        "目前天气怎么样",
        "以前天天跑步",
        "三天前往日本",
        "几月",
        "",
    ],
)
def test_what_is_no_time_or_lies_ahead_or_is_more_than_one_is_no_period(text: str) -> None:
    assert days(text) is None


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("What did I do in March 2024?", []),
        ("What did Ana say about the boat last week?", ["ana", "boat"]),
        ("上周我说了什么？", []),
        ("昨天后来发生了什么事情", ["后来发生"]),
        ("2024年3月我在波尔图做了什么", ["在波尔图做"]),
    ],
)
def test_what_is_left_of_a_question_is_its_subject(text: str, rest: list[str]) -> None:
    understood = find_period(text, FRIDAY)
    assert understood is not None
    assert subject_words(understood.rest) == rest


def test_a_statement_means_the_days_around_its_own() -> None:
    assert periods_in("昨天去医院，上周三开会", FRIDAY) == [
        Period(date(2024, 3, 14), date(2024, 3, 14)),
        Period(date(2024, 3, 6), date(2024, 3, 6)),
    ]


@pytest.mark.parametrize("text", ["The dentist is on 15 December", "牙医约在12月15日"])
def test_a_statement_without_a_year_may_mean_the_next_one(text: str) -> None:
    last, following = date(2023, 12, 15), date(2024, 12, 15)
    assert periods_in(text, FRIDAY) == [Period(last, last), Period(following, following)]
    assert periods_in(text, FRIDAY, is_sure=True) == []
    assert periods_in(text, last, is_sure=True) == [Period(last, last)]  # said on that day, it means it


def test_a_statement_is_read_without_its_times() -> None:
    assert without_periods("Dentist on 15 December at 10", FRIDAY) == "dentist   at 10"
    assert without_periods("牙医约在12月15日上午", FRIDAY) == "牙医约在 上午"


@pytest.mark.parametrize(
    ("period", "english", "chinese"),
    [
        (Period(date(2024, 3, 2), date(2024, 3, 2)), "2 March 2024", "2024年3月2日"),
        (Period(date(2024, 2, 1), date(2024, 2, 29)), "February 2024", "2024年2月"),
        (Period(date(2023, 1, 1), date(2023, 12, 31)), "2023", "2023年"),
        (
            Period(date(2024, 3, 4), date(2024, 3, 10)),
            "4 March 2024 to 10 March 2024",
            "2024年3月4日至2024年3月10日",
        ),
        (EveryYear(date(2023, 5, 1), date(2023, 5, 31)), "May of any year", "历年5月"),
        (EveryYear(date(2023, 5, 2), date(2023, 5, 2)), "2 May of any year", "历年5月2日"),
        (EveryYear(date(2023, 11, 1), date(2024, 1, 31)), "November to January of any year", "历年11月至1月"),
        (
            EveryYear(date(2023, 5, 2), date(2023, 6, 30)),
            "2 May to 30 June of any year",
            "历年5月2日至6月30日",
        ),
        (Period(None, date(2023, 4, 30)), "the time until 30 April 2023", "2023年4月30日及以前"),
    ],
)
def test_a_period_is_spoken_in_few_words(period: Period, english: str, chinese: str) -> None:
    assert (spoken_period(period, "en"), spoken_period(period, "zh")) == (english, chinese)


@pytest.mark.parametrize(
    ("text", "is_yearly"),
    [
        ("in March", True),
        ("on 2 March", True),
        ("from March to May", True),
        ("3月5日", True),
        ("三月份", True),
        ("in March 2024", False),
        ("last March", False),
        ("this March", False),
        ("since March", False),
        ("last month", False),
        ("去年3月", False),
        ("本月5号", False),
        ("3月以来", False),
    ],
)
def test_a_month_or_day_without_a_year_is_there_every_year(text: str, is_yearly: bool) -> None:
    understood = find_period(text, FRIDAY)
    assert understood is not None
    assert understood.is_yearly == is_yearly


def test_the_days_of_every_year_are_those_of_any_year_and_nothing_else() -> None:
    winter = EveryYear(date(2023, 12, 30), date(2024, 2, 29))
    for inside in (date(1999, 12, 31), date(2031, 1, 1), date(2022, 2, 28), date(2020, 2, 29)):
        assert winter.includes(inside)
    for outside in (date(1999, 12, 29), date(2030, 3, 1), date.min.replace(month=7), date(9999, 11, 1)):
        assert not winter.includes(outside)
    assert winter.holds(Period(date(2019, 12, 31), date(2020, 1, 5)))
    assert not winter.holds(Period(date(2018, 12, 31), date(2020, 1, 5)))
    assert not winter.holds(Period(None, date(2020, 1, 5)))
    assert winter != Period(winter.first, winter.last)


_WORDS = """in since before last 31 2024 2 february may monday ago days week 上 周 三 月 年 999 日 前 以来 至 - . / x
""".split()


@given(st.lists(st.sampled_from(_WORDS), max_size=12).map(" ".join) | st.text(), st.dates(date(1970, 1, 1)))
def test_no_text_on_no_day_breaks_it(text: str, today: date) -> None:
    understood = find_period(text, today)
    assert understood is None or (understood.period.first or date.min) <= understood.period.last
