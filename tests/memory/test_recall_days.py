"""Recall mode asked about days: what is about a day is found whatever the question calls it, and what replaced it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pikobot.memory.recall.answers import MemoryAnswer
from pikobot.store.connection import Database
from tests.memory.remembering import opened, say
from tests.memory.test_recall import ask


def at(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, 9, tzinfo=UTC).timestamp() * 1000)


TODAY = at(2026, 11, 30)


def asked(db: Database, question: str) -> MemoryAnswer:
    return ask(db, question, now_ms=TODAY)


def quotes(db: Database, question: str) -> list[str]:
    """The texts that are quoted, in order."""
    return [
        line.partition("“")[2].rstrip("”")
        for line in asked(db, question).text.splitlines()
        if line.startswith("- ")
    ]


@pytest.mark.parametrize(
    ("question", "heading"),
    [
        ("What happens on 3 February?", "From 3 February of any year, or about it:"),
        ("Any plans for 3 February?", "From 3 February of any year, or about it:"),
        ("What is special about 3 February?", "From 3 February of any year, or about it:"),
        ("2月3日是什么日子？", "历年2月3日说的，或关于那段时间的原话："),
        ("2月3日有什么安排？", "历年2月3日说的，或关于那段时间的原话："),
        ("2月3日我要干什么？", "历年2月3日说的，或关于那段时间的原话："),
        ("二月有什么计划？", "历年2月说的，或关于那段时间的原话："),
        (
            "Which ceremony is on 3 February?",
            "No statement is about that. From 3 February of any year, or about it:",
        ),
        ("2月3日的典礼在哪里？", "没有相关的原话。历年2月3日说的，或关于那段时间的原话："),
    ],
)
def test_what_is_about_a_day_is_quoted_whatever_the_question_calls_it(
    tmp_path: Path, question: str, heading: str
) -> None:
    told = (
        "妈妈的生日是2月3日"
        if any("一" <= char <= "鿿" for char in question)
        else "Mother's birthday is 3 February"
    )
    with opened(tmp_path) as db:
        say(db, told, "The boiler leaks 锅炉漏水", at_ms=at(2026, 9, 15))
        answer = asked(db, question).text.splitlines()
        assert (answer[0], len(answer), told in answer[1]) == (heading, 2, True)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Where is the passport on 3 February?", "The passport is in the drawer"),
        ("2月3日护照在哪里？", "护照放抽屉里"),
    ],
)
def test_what_is_of_another_time_is_quoted_before_what_else_is_about_the_day(
    tmp_path: Path, question: str, told: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told, "Mother's birthday is 3 February 2月3日", at_ms=at(2026, 9, 15))
        assert quotes(db, question) == [told, "Mother's birthday is 3 February 2月3日"]


@pytest.mark.parametrize(
    ("question", "said", "changed"),
    [
        (
            "Is the dentist on 12 December?",
            "The dentist is on 12 December at 10",
            "The dentist moved me to 15 December",
        ),
        (
            "What's on 12 December?",
            "The dentist is on 12 December at 10",
            "The dentist had to be postponed",
        ),
        ("12月12日去看牙医吗？", "牙医约在12月12日上午十点", "牙医改到12月15日了"),
        ("12月12日有什么事？", "牙医约在12月12日上午十点", "牙医那边取消了"),
    ],
)
def test_what_was_said_later_of_the_same_comes_before_what_it_may_have_changed(
    tmp_path: Path, question: str, said: str, changed: str
) -> None:
    with opened(tmp_path) as db:
        say(db, said, at_ms=at(2026, 11, 10))
        say(db, "The rehearsal moved to the school", "排练改到学校了", at_ms=at(2026, 11, 15))
        say(db, changed, at_ms=at(2026, 11, 20))
        assert quotes(db, question) == [changed, said]


@pytest.mark.parametrize(
    ("question", "said"),
    [("Did Ana call last week?", "Ana called"), ("上周安娜打电话了吗？", "安娜打电话了")],
)
def test_what_was_said_in_a_time_is_not_changed_by_what_was_said_later(
    tmp_path: Path, question: str, said: str
) -> None:
    with opened(tmp_path) as db:
        say(db, said, at_ms=at(2026, 11, 25))
        say(db, "Ana moved 安娜打电话改时间了", at_ms=TODAY)
        assert quotes(db, question) == [said]


@pytest.mark.parametrize(
    ("question", "heading"),
    [
        ("What's on 15 December?", "From 15 December of any year, or about it:"),
        ("What's on 15 December 2026?", "From 15 December 2026, or about it:"),
        ("12月15日有什么事？", "历年12月15日说的，或关于那段时间的原话："),
        ("2026年12月15日有什么事？", "2026年12月15日说的，或关于那段时间的原话："),
    ],
)
def test_a_plan_without_a_year_may_be_of_the_next_one_and_is_not_said_to_be_of_the_last(
    tmp_path: Path, question: str, heading: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "Dentist on 15 December 12月15日看牙", at_ms=at(2026, 11, 20))
        assert asked(db, question).text.splitlines()[0] == heading
        assert asked(db, question).text.count("“") == 1


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What happened between 3 and 6 November?", ["Bought a helmet 买了头盔", "Saw a play 看了话剧"]),
        ("What happened 3-6 November?", ["Bought a helmet 买了头盔", "Saw a play 看了话剧"]),
        ("What happened at the beginning of November?", ["Bought a helmet 买了头盔", "Saw a play 看了话剧"]),
        ("What did I do in mid November?", ["Repaired the door 修了门"]),
        ("What did I do in late November?", ["Packed 收拾了行李"]),
        ("11月3到6日我做了什么？", ["Bought a helmet 买了头盔", "Saw a play 看了话剧"]),
        ("11月初发生了什么？", ["Bought a helmet 买了头盔", "Saw a play 看了话剧"]),
        ("11月中旬我做了什么？", ["Repaired the door 修了门"]),
        ("11月底我做了什么？", ["Packed 收拾了行李"]),
    ],
)
def test_a_part_of_a_month_is_understood(tmp_path: Path, question: str, told: list[str]) -> None:
    with opened(tmp_path) as db:
        for day, text in (
            (3, "Bought a helmet 买了头盔"),
            (5, "Saw a play 看了话剧"),
            (18, "Repaired the door 修了门"),
            (28, "Packed 收拾了行李"),
        ):
            say(db, text, at_ms=at(2026, 11, day))
        assert quotes(db, question) == told


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What do I usually do on Wednesday?", "On Wednesdays I play badminton"),
        ("我周三晚上一般做什么运动？", "我周三晚上打羽毛球"),
    ],
)
def test_a_habit_is_not_of_last_week(tmp_path: Path, question: str, told: str) -> None:
    with opened(tmp_path) as db:
        say(db, told, at_ms=at(2026, 9, 15))
        assert asked(db, question).text.splitlines()[0] in ("This is what was said:", "找到这些原话：")
        assert quotes(db, question) == [told]


@pytest.mark.parametrize("question", ["What did I do in February 2023?", "2023年2月我做了什么？"])
def test_who_asks_what_they_did_is_answered_with_their_own_words(tmp_path: Path, question: str) -> None:
    with opened(tmp_path) as db:
        say(db, "I lost my job 我失业了", role="participant", speaker="Gina", at_ms=at(2023, 2, 10))
        assert quotes(db, question) == ["I lost my job 我失业了"]  # nothing is denied that is held
        say(db, "Thanks, Gina!", "谢谢小美！", "I painted my room 我刷了房间", at_ms=at(2023, 2, 11))
        assert quotes(db, question) == ["I painted my room 我刷了房间"]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What did I do in 2025?", "Last year I went to Japan 去年我去了日本"),
        ("Where did I go in 2025?", "Last year I went to Japan 去年我去了日本"),
        ("2025年我做了什么？", "Last year I went to Japan 去年我去了日本"),
        ("2025年我去了哪里？", "Last year I went to Japan 去年我去了日本"),
        ("What did I do in October 2026?", "Last month I moved 上个月我搬家了"),
        ("2026年10月我做了什么？", "Last month I moved 上个月我搬家了"),
        ("What did I do in October?", "Last month I moved 上个月我搬家了"),
        ("10月我做了什么？", "Last month I moved 上个月我搬家了"),
        ("What happened on 19 November 2026?", "Ana called yesterday 昨天安娜打电话了"),
        ("2026年11月19日发生了什么？", "Ana called yesterday 昨天安娜打电话了"),
    ],
)
def test_a_time_is_found_by_the_words_that_name_it_from_a_later_one(
    tmp_path: Path, question: str, told: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "Last year I went to Japan 去年我去了日本", at_ms=at(2026, 5, 2))
        say(db, "Last month I moved 上个月我搬家了", at_ms=at(2026, 11, 5))
        say(db, "Ana called yesterday 昨天安娜打电话了", at_ms=at(2026, 11, 20))
        assert quotes(db, question) == [told]


@pytest.mark.parametrize(
    ("question", "lines"),
    [
        (
            "What did I do in May 2026?",
            [
                "From May 2026, or about it:",
                "I painted",
                "From May 2026, but it names an earlier time:",
                "Last year",
            ],
        ),
        (
            "2026年5月我做了什么？",
            [
                "2026年5月说的，或关于那段时间的原话：",
                "painted",
                "2026年5月说的，但提到的是更早的时间：",
                "Last year",
            ],
        ),
        ("What did I say in May 2026?", ["From May 2026, or about it:", "Last year", "painted"]),
        ("2026年5月我说了什么？", ["2026年5月说的，或关于那段时间的原话：", "Last year", "painted"]),
    ],
)
def test_what_names_an_earlier_time_is_of_the_time_it_was_said_only_where_sayings_are_asked_for(
    tmp_path: Path, question: str, lines: list[str]
) -> None:
    with opened(tmp_path) as db:
        say(db, "Last year I went to Japan 去年我去了日本", "I painted 我刷了门", at_ms=at(2026, 5, 2))
        answer = asked(db, question).text.splitlines()
        assert len(answer) == len(lines)
        assert [part in line for part, line in zip(lines, answer, strict=True)] == [True] * len(lines)


@pytest.mark.parametrize(
    ("question", "heading", "told"),
    [
        ("What did Gina say about June 2026?", "About June 2026, this is what Gina said:", "The concert"),
        ("What did Gina say in June 2026?", "About June 2026, this is what Gina said:", "The concert"),
        ("小美2026年6月说了什么？", "关于2026年6月，小美说过：", "演唱会"),
        ("小美说2026年6月有什么事？", "关于2026年6月，小美说过：", "演唱会"),
    ],
)
def test_what_somebody_said_about_a_time_is_found_though_it_was_not_said_in_it(
    tmp_path: Path, question: str, heading: str, told: str
) -> None:
    with opened(tmp_path) as db:
        concert = "The concert is on 12 June 2026"
        say(db, concert, "Dance is my life", role="participant", speaker="Gina", at_ms=at(2026, 5, 2))
        say(db, "演唱会在2026年6月12日", "我爱跳舞", role="participant", speaker="小美", at_ms=at(2026, 5, 2))
        answer = asked(db, question).text.splitlines()
        assert (answer[0], len(answer), told in answer[1]) == (heading, 2, True)


@pytest.mark.parametrize(
    ("question", "headings"),
    [
        (
            "What did Gina say in June 2026?",
            ["From June 2026, this is what Gina said:", "About June 2026, this is what Gina said:"],
        ),
        ("Gina2026年6月说了什么？", ["2026年6月，Gina说过：", "关于2026年6月，Gina说过："]),
    ],
)
def test_what_somebody_said_in_a_time_comes_before_what_they_said_about_it(
    tmp_path: Path, question: str, headings: list[str]
) -> None:
    with opened(tmp_path) as db:
        concert = "The concert is on 12 June 2026, 演唱会在2026年6月12日"
        say(db, concert, role="participant", speaker="Gina", at_ms=at(2026, 5, 2))
        say(db, "Dance is my life 跳舞", role="participant", speaker="Gina", at_ms=at(2026, 6, 2))
        assert quotes(db, question) == ["Dance is my life 跳舞", concert]
        assert [line for line in asked(db, question).text.splitlines() if line[0] != "-"] == headings


@pytest.mark.parametrize("question", ["What did I say in March?", "三月我说了什么？"])
def test_a_month_without_a_year_asks_for_what_was_said_in_it_and_what_names_it(
    tmp_path: Path, question: str
) -> None:
    told = ["I bought a bike 我买了自行车", "I sold a boat 我卖了船", "In March I go to Oslo 三月我去奥斯陆"]
    with opened(tmp_path) as db:
        for text, at_ms in zip(told, (at(2024, 3, 5), at(2026, 3, 9), at(2026, 8, 9)), strict=True):
            say(db, text, at_ms=at_ms)
        assert quotes(db, question) == told


@pytest.mark.parametrize(
    ("question", "said", "changed"),
    [
        (
            "What happens in January 2027?",
            "The fair is on 12 January 2027",
            "The fair moved to 20 January 2027",
        ),
        ("2027年1月有什么安排？", "年会定在2027年1月12日", "年会改到2027年1月20日了"),
    ],
)
def test_of_two_dates_in_one_month_the_one_that_it_was_moved_to_comes_first(
    tmp_path: Path, question: str, said: str, changed: str
) -> None:
    with opened(tmp_path) as db:
        say(db, said, at_ms=at(2026, 10, 1))
        say(db, changed, at_ms=at(2026, 10, 9))
        assert quotes(db, question) == [changed, said]


@pytest.mark.parametrize(
    ("question", "said", "correction", "other"),
    [
        (
            "When is my appointment with Dr. Patel?",
            "My appointment with Dr. Patel is on Thursday at 3pm",
            "Actually the appointment is on Friday at 4pm",
            "Actually, tea is fine",
        ),
        ("How much do I owe Wang?", "I owe Wang 300", "Correction: 350", "The boiler leaks"),
        ("聚会几点开始？", "聚会八点开始", "不对，九点", "锅炉漏水"),
        ("我借了王强多少钱？", "我借了王强三百块钱", "更正：我借了王强三百五十", "锅炉漏水"),
    ],
)
def test_what_takes_a_statement_back_is_quoted_with_it_and_first(
    tmp_path: Path, question: str, said: str, correction: str, other: str
) -> None:
    with opened(tmp_path) as db:
        say(db, said, correction, other, at_ms=at(2026, 11, 20))
        assert quotes(db, question) == [correction, said]


@pytest.mark.parametrize(
    ("question", "said", "between", "correction"),
    [
        ("When is the dinner?", "The dinner is at 7", "The boiler leaks", "Actually tea is fine"),
        ("晚饭几点？", "晚饭七点", "锅炉漏水", "其实茶也可以"),
    ],
)
def test_what_takes_something_else_back_is_no_correction(
    tmp_path: Path, question: str, said: str, between: str, correction: str
) -> None:
    with opened(tmp_path) as db:
        say(db, said, between, correction, at_ms=at(2026, 11, 20))
        assert quotes(db, question) == [said]
