"""Recall mode asked about people: who said something, who somebody is, and what the owner told about themself."""

from pathlib import Path

import pytest

from pikobot.memory.recall.asking import read_saying
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope
from tests.memory.remembering import DAY_MS, NOW_MS, opened, say
from tests.memory.test_recall import ask

YEAR_MS = 366 * DAY_MS


def quotes(db: Database, question: str) -> list[str]:
    """The texts that are quoted, in order."""
    return [
        line.partition("“")[2].rstrip("”")
        for line in ask(db, question).text.splitlines()
        if line.startswith("- ")
    ]


@pytest.mark.parametrize(
    ("question", "who", "about"),
    [
        ("what did gina say?", "gina", "?"),
        ("what has my sister told me about the boat?", "my sister", " about the boat?"),
        ("did ana lee ever mention porto", "ana lee", " porto"),
        ("what did i say to gina", "i", " to gina"),
        ("tell me everything ana said about porto", "ana", " about porto"),
        ("gina说过什么", "gina", "什么"),
        ("小美都跟我说了些什么", "小美", "些什么"),
        ("我跟小美说过什么", "我", "什么"),
        ("小美提到过波尔图吗", "小美", "波尔图吗"),
        ("我想知道小美说了什么", "小美", "什么"),
        ("小美什么时候说她搬家了", "小美", "她搬家了"),
    ],
)
def test_whose_sayings_a_question_asks_for_is_read(question: str, who: str, about: str) -> None:
    saying = read_saying(question)
    assert saying is not None
    assert (saying.who, saying.about) == (who, about)


@pytest.mark.parametrize(
    "question", ["where did gina move?", "is gina a dancer?", "小美是谁", "我搬到哪里了"]
)
def test_a_question_that_asks_for_nobodys_sayings_names_no_speaker(question: str) -> None:
    assert read_saying(question) is None


@pytest.mark.parametrize(
    ("speaker", "question", "heading", "told"),
    [
        (
            "Gina",
            "What did Gina say?",
            "This is what Gina said:",
            ["Dance is my life 跳舞", "A studio 舞蹈室"],
        ),
        ("Gina", "Gina说过什么？", "Gina说过：", ["Dance is my life 跳舞", "A studio 舞蹈室"]),
        ("小美", "小美说了什么？", "小美说过：", ["Dance is my life 跳舞", "A studio 舞蹈室"]),
        (
            "Gina",
            "What did Gina say last year?",
            "From 2023, this is what Gina said:",
            ["Dance is my life 跳舞"],
        ),
        ("小美", "小美去年说了什么？", "2023年，小美说过：", ["Dance is my life 跳舞"]),
        ("Gina", "What did Gina say about the studio?", "This is what Gina said:", ["A studio 舞蹈室"]),
        ("小美", "小美提到过舞蹈室吗？", "小美说过：", ["A studio 舞蹈室"]),
        (
            "Gina Torres",
            "What did Gina say about the studio?",
            "This is what Gina said:",
            ["A studio 舞蹈室"],
        ),
    ],
)
def test_what_somebody_said_is_answered_with_what_they_said(
    tmp_path: Path, speaker: str, question: str, heading: str, told: list[str]
) -> None:
    with opened(tmp_path) as db:
        say(db, "Dance is my life 跳舞", role="participant", speaker=speaker, at_ms=NOW_MS - YEAR_MS)
        say(db, "Bye Gina, thanks", "再见小美", "Gina's studio 小美的舞蹈室很大", at_ms=NOW_MS - YEAR_MS)
        say(db, "A studio 舞蹈室", role="participant", speaker=speaker)
        say(db, "I rented a studio 舞蹈室", role="participant", speaker="Rob")
        assert ask(db, question).text.splitlines()[0] == heading
        assert quotes(db, question) == told


@pytest.mark.parametrize(
    ("question", "first"),
    [
        (
            "What did Gina say about the boiler?",
            "I found no such statement by Gina. Said by others, or at other times:",
        ),
        ("小美说过锅炉的事吗？", "没有找到小美说的相关原话。别人说的，或其他时间说的："),
    ],
)
def test_what_somebody_did_not_say_is_said_to_be_said_by_others(
    tmp_path: Path, question: str, first: str
) -> None:
    with opened(tmp_path) as db:
        for speaker in ("Gina", "小美"):
            say(db, "Dance is my life 跳舞", role="participant", speaker=speaker)
        say(db, "The boiler of Gina leaks, 小美的锅炉漏水")
        assert ask(db, question).text.splitlines()[0] == first
        assert quotes(db, question) == ["The boiler of Gina leaks, 小美的锅炉漏水"]


@pytest.mark.parametrize("question", ["What did Gina say?", "Gina说过什么？"])
def test_what_somebody_said_elsewhere_or_has_expired_is_not_quoted(tmp_path: Path, question: str) -> None:
    group = Scope("shared", "main", "bot", "-100", "7")
    with opened(tmp_path) as db:
        say(db, "Dance is my life", role="participant", speaker="Gina", scope=group)
        say(db, "I dance", role="participant", speaker="Gina", expires_at_ms=NOW_MS)
        say(db, "Gina is a dancer, Gina跳舞")
        assert quotes(db, question) == ["Gina is a dancer, Gina跳舞"]
        say(db, "I teach", role="participant", speaker="Gina", expires_at_ms=NOW_MS + DAY_MS)
        assert quotes(db, question) == ["I teach"]


@pytest.mark.parametrize("question", ["What did Ana say?", "安娜说了什么？"])
def test_of_whom_nothing_is_stored_what_others_report_is_quoted(tmp_path: Path, question: str) -> None:
    with opened(tmp_path) as db:
        say(db, "Ana will come on Friday, 安娜周五来")
        assert quotes(db, question) == ["Ana will come on Friday, 安娜周五来"]


@pytest.mark.parametrize(
    ("question", "told", "other"),
    [
        ("Who is Gina?", "Gina is my teacher", "Saw Gina at the market"),
        ("Who is Tom?", "My brother Tom lives in Oslo", "Saw Tom at the market"),
        ("小美是谁？", "小美是我的大学同学", "在市场碰到小美了"),
    ],
)
def test_who_somebody_is_comes_before_what_they_do_and_thanks_tell_nothing(
    tmp_path: Path, question: str, told: str, other: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told, at_ms=NOW_MS - DAY_MS)
        say(db, "Thanks, Gina!", "Bye Tom", "Congrats Gina!", "谢谢小美！", "再见，小美", other)
        assert quotes(db, question) == [told, other]


@pytest.mark.parametrize("question", ["我叫什么名字？", "我的名字是什么？", "我叫什么？"])
def test_the_owners_name_in_chinese_is_not_that_of_a_cat(tmp_path: Path, question: str) -> None:
    with opened(tmp_path) as db:
        say(db, "我叫林小雨，住在杭州")
        say(db, "我老板叫王芳", "我的猫叫米粒", at_ms=NOW_MS + DAY_MS)
        assert quotes(db, question)[0] == "我叫林小雨，住在杭州"


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (
            "What do you know about me?",
            ["My name is Ann", "I live in Porto", "I work as a nurse", "I'm allergic to nuts", "I like tea"],
        ),
        ("你知道我什么？", ["我叫林小雨", "我住在杭州", "我在阿里做产品经理", "我对花生过敏", "我喜欢龙井"]),
    ],
)
def test_what_tells_about_the_owner_comes_before_questions_thanks_and_requests(
    tmp_path: Path, question: str, told: list[str]
) -> None:
    with opened(tmp_path) as db:
        say(db, *reversed(told), at_ms=NOW_MS - 9 * DAY_MS)
        noise = ("Thanks!", "plumber phone", "Remind me to water", "Where do I live?", "The door creaks")
        say(db, *noise, "谢谢", "水管工的电话", "提醒我浇花", "我住哪里？", "门坏了")
        assert quotes(db, question) == told


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("When is the dentist?", "The dentist is on Monday at 9", "The dentist moved me to Friday"),
        ("How much do I weigh?", "I weigh 70 kilos", "At the doctor's today: I weigh 68 kilos now"),
        ("牙医是什么时候？", "牙医约在周一上午九点", "牙医改到周五下午了，记得带卡"),
    ],
)
def test_of_two_versions_the_newest_is_quoted_first(
    tmp_path: Path, question: str, old: str, new: str
) -> None:
    with opened(tmp_path) as db:
        say(db, old, at_ms=NOW_MS - 9 * DAY_MS)
        say(db, new)
        assert quotes(db, question) == [new, old]


@pytest.mark.parametrize(
    ("question", "heading", "told"),
    [
        (
            "What did Ben say?",
            "Ben has said nothing here. Of Ben this was said:",
            ["Ben said he will bring the tent", "Ben isn't coming"],
        ),
        (
            "What did my sister say?",
            "Your sister has said nothing here. Of your sister this was said:",
            ["My sister told me a joke", "My sister is a nurse"],
        ),
        (
            "林悦跟我说了什么？",
            "这里没有林悦自己说的话。关于林悦说过：",
            ["林悦说她周六有空", "林悦搬到南京了"],
        ),
        ("林悦说了什么？", "这里没有林悦自己说的话。关于林悦说过：", ["林悦说她周六有空", "林悦搬到南京了"]),
    ],
)
def test_of_who_has_said_nothing_here_reports_of_sayings_come_first(
    tmp_path: Path, question: str, heading: str, told: list[str]
) -> None:
    with opened(tmp_path) as db:
        say(db, *told, "小王说他要来", "Gina said hello", at_ms=NOW_MS - DAY_MS)
        assert ask(db, question).text.splitlines()[0] == heading
        assert quotes(db, question)[:2] == told


@pytest.mark.parametrize("question", ["What has been said about Porto?", "有人说过波尔图吗？"])
def test_nobody_in_particular_is_not_said_to_have_said_nothing(tmp_path: Path, question: str) -> None:
    with opened(tmp_path) as db:
        say(db, "Porto is sunny 波尔图阳光很好")
        assert ask(db, question).text.splitlines()[0] in ("This is what was said:", "找到这些原话：")


@pytest.mark.parametrize(
    ("question", "none"),
    [
        ("What did you say?", "I found no such statement by pikobot."),
        ("你说了什么？", "没有找到pikobot说的相关原话。"),
    ],
)
def test_what_pikobot_said_is_not_what_others_said(tmp_path: Path, question: str, none: str) -> None:
    with opened(tmp_path) as db:
        say(db, "Ben said he will come 小王说他要来")
        assert ask(db, question).text == none
        say(db, "Porto is in Portugal 波尔图在葡萄牙", role="assistant", speaker="pikobot", origin="model")
        assert quotes(db, question) == ["Porto is in Portugal 波尔图在葡萄牙"]


@pytest.mark.parametrize(
    "question", ["上个月我跟你说了什么？", "上个月我告诉你什么了？", "上个月我对你说过什么？"]
)
def test_to_whom_of_the_two_it_was_said_is_no_subject(tmp_path: Path, question: str) -> None:
    with opened(tmp_path) as db:
        say(db, "猫叫米粒", at_ms=NOW_MS - 10 * DAY_MS)
        say(db, "小王跟我说他要来", at_ms=NOW_MS - 90 * DAY_MS)
        assert quotes(db, question) == ["猫叫米粒"]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("我姐住哪儿？", ["我姐姐陈丽住在南京"]),
        ("我姐姐住哪儿？", ["我姐姐陈丽住在南京"]),
        ("我弟弟在哪里上学？", ["我弟在墨西哥上学"]),
        ("我的猫叫什么名字？", ["我有两只猫，叫豆豆和花花"]),
        ("我家猫叫什么？", ["我有两只猫，叫豆豆和花花"]),
        ("What are my cats called?", ["I have two cats, called Bean and Flora"]),
    ],
)
def test_a_relative_has_short_names_and_a_cat_is_not_named_like_its_owner(
    tmp_path: Path, question: str, told: list[str]
) -> None:
    with opened(tmp_path) as db:
        say(db, "我叫林晓，住在杭州", "我姐姐陈丽住在南京", "我有两只猫，叫豆豆和花花", "我弟在墨西哥上学")
        say(db, "My name is Lin", "I have two cats, called Bean and Flora")
        assert quotes(db, question) == told
