"""Recall mode where no statement answers as it is asked: what it guesses, and that it says so."""

from pathlib import Path

import pytest

from pikobot.memory.recall.answers import answer_from_memory
from pikobot.memory.recall.everyday_words import other_words
from pikobot.store.sources import find_source
from tests.memory.remembering import DAY_MS, MINUTE_MS, NOW_MS, opened, say
from tests.memory.test_recall import NOTHING, NOTHING_ZH, ask
from tests.memory.test_recall_people import quotes

PERHAPS = "No statement answers that in these words. Perhaps this does:"
PERHAPS_ZH = "没有原话用这些词回答。也许是这些："


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Do I have a pet?", "My cat is called Miso"),
        ("Do I have children?", "Our two kids love the beach"),
        ("How heavy am I?", "68 kilos this morning"),
        ("Where do I work?", "I'm an accountant at Santos"),
        ("How old am I?", "I was born in 1990"),
        ("我有宠物吗？", "我的猫叫米粒"),
        ("我有几个孩子？", "我们家两个小孩都喜欢海边"),
        ("我多重？", "今天早上62公斤"),
        ("我在哪里上班？", "我的公司是阿里"),
        ("我多大了？", "我是1990年出生的"),
        ("我有宠物吗？", "My cat is called Miso"),
    ],
)
def test_other_everyday_words_for_the_same_thing_are_a_guess(
    tmp_path: Path, question: str, told: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "The boiler leaks", "锅炉漏水", told)
        assert ask(db, question).text.splitlines()[0] in (PERHAPS, PERHAPS_ZH)
        assert quotes(db, question) == [told]


def test_what_has_the_words_themselves_is_no_guess(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "My cat is called Miso", "No pets in the new flat", "我的猫叫米粒", "新家不能养宠物")
        assert quotes(db, "Do I have a pet?") == ["No pets in the new flat"]
        assert quotes(db, "我有宠物吗？") == ["新家不能养宠物"]


@pytest.mark.parametrize(
    "question",
    [
        "Which insurance covers the operation of my pet?",
        "Where is the passport?",
        "我的宠物保险号码写在哪份合同里？",
        "护照在哪里？",
    ],
)
def test_a_question_about_something_more_particular_has_no_other_words(question: str) -> None:
    assert other_words(question) == []


@pytest.mark.parametrize(
    ("question", "told", "heading"),
    [
        (
            "When did I move to Berlin?",
            "The dentist moved the appointment",
            "No statement speaks of Berlin. The nearest:",
        ),
        ("我什么时候搬到柏林的？", "我搬到波尔图了", "没有原话提到柏林。最接近的是："),
        (
            "What is my brother's name?",
            "My name is Ann",
            "No statement speaks of your brother. The nearest:",
        ),
        ("我哥哥叫什么名字？", "我的名字是林小雨", "没有原话提到哥哥。最接近的是："),
        (
            "Am I married?",
            "My sister got married in June",
            "No statement answers that as it is asked. The nearest:",
        ),
        ("我结婚了吗？", "妹妹六月结婚", "没有原话直接回答这个问题。最接近的是："),
        (
            "When is my birthday?",
            "Mother's birthday is 3 February",
            "No statement answers that as it is asked. The nearest:",
        ),
        ("我的生日是哪天？", "妈妈的生日是2月3日", "没有原话直接回答这个问题。最接近的是："),
    ],
)
def test_what_speaks_of_somebody_or_something_else_is_only_the_nearest(
    tmp_path: Path, question: str, told: str, heading: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told)
        assert ask(db, question).text.splitlines()[0] == heading
        assert quotes(db, question) == [told]


@pytest.mark.parametrize(
    ("question", "told", "other"),
    [
        ("Who is my supervisor?", "My boss is called Carla", "Who is at the pool wears red"),
        ("我的领导是谁？", "我上司叫王芳", "妹妹的同事姓赵"),
        ("When did I move to Porto?", "Porto became my home in March", "The dentist moved the appointment"),
        ("What is my brother's name?", "My brother Tom lives in Oslo", "My name is Ann"),
        ("When is my birthday?", "My birthday is 14 May", "Mother's birthday is 3 February"),
        ("我的生日是哪天？", "我生日是5月14日", "妈妈的生日是2月3日"),
        ("我哥哥叫什么名字？", "我哥哥叫小刚", "我的名字是林小雨"),
    ],
)
def test_what_speaks_of_what_is_asked_is_the_answer(
    tmp_path: Path, question: str, told: str, other: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told, other)
        assert ask(db, question).text.splitlines()[0] in ("This is what was said:", "找到这些原话：")
        assert quotes(db, question) == [told]


@pytest.mark.parametrize(
    ("question", "told", "other"),
    [
        ("What is my job?", "I work as a nurse", "I lost my job"),
        ("我的工作是什么？", "我在医院上班", "我丢了工作"),
    ],
)
def test_what_somebody_else_says_of_themself_is_not_about_the_owner(
    tmp_path: Path, question: str, told: str, other: str
) -> None:
    with opened(tmp_path) as db:
        say(db, other, role="participant", speaker="Gina")
        say(db, told)
        assert ask(db, question).text.splitlines()[0] in (PERHAPS, PERHAPS_ZH)
        assert quotes(db, question) == [told, other]


@pytest.mark.parametrize(
    ("looked_up", "question", "told"),
    [
        ("plumber phone", "What's the plumber's name?", "The plumber is Rui"),
        ("水管工的电话", "水管工叫什么？", "水管工姓赵"),
    ],
)
def test_what_was_looked_up_does_not_come_before_what_tells(
    tmp_path: Path, looked_up: str, question: str, told: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "My name is Ann", told, looked_up)
        assert quotes(db, question)[0] == told


@pytest.mark.parametrize(
    ("looked_up", "question"), [("allergies", "What are my allergies?"), ("过敏", "过敏的是什么？")]
)
def test_a_word_that_was_looked_up_is_no_answer(tmp_path: Path, looked_up: str, question: str) -> None:
    with opened(tmp_path) as db:
        say(db, looked_up)
        assert quotes(db, question) == []


@pytest.mark.parametrize(
    ("before", "question", "told"),
    [
        ("Who is my dentist?", "And the phone?", "My dentist is Dr Chen, the phone is on the fridge"),
        ("Who is my dentist?", "What about the phone?", "My dentist is Dr Chen, the phone is on the fridge"),
        ("我的牙医是谁？", "那电话呢？", "我的牙医是陈医生，电话在冰箱上"),
    ],
)
def test_a_question_that_follows_is_about_what_was_asked_before(
    tmp_path: Path, before: str, question: str, told: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told, "The plumber is Rui, phone 912", "修水管的师傅姓赵，电话138", at_ms=NOW_MS - DAY_MS)
        say(db, "Who is my plumber?", "水管工是谁？", thread="another")
        [_, request] = say(db, before, question, at_ms=NOW_MS - MINUTE_MS)
        with db.read() as conn:
            source = find_source(conn, request, now_ms=NOW_MS)
            assert source is not None
            answer = answer_from_memory(
                conn, question, scope_id=source.scope_id, request_id=source.id, now_ms=NOW_MS
            )
        assert [line.partition("“")[2] for line in answer.text.splitlines()[1:]] == [f"{told}”"]


def test_what_is_to_be_found_is_looked_for(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "The plumber is called Rui", "Remind me what the plumber is called")
        for text in ("Remind me what the plumber is called", "Help me find my plumber"):
            assert quotes(db, text) == ["The plumber is called Rui"]


def test_before_the_nearest_comes_what_says_it_in_other_words(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "Mother's birthday is 3 February", "I was born on 14 May")
        assert quotes(db, "When is my birthday?") == [
            "I was born on 14 May",
            "Mother's birthday is 3 February",
        ]


@pytest.mark.parametrize(
    ("said", "question", "told"),
    [
        ("plumber: Rui, phone 912", "the plumber's phone", "plumber: Rui, phone 912"),
        ("修水管的师傅姓赵，电话138", "水管工的电话", "修水管的师傅姓赵，电话138"),
        ("护照号码是X123", "我的护照号码", "护照号码是X123"),
    ],
)
def test_a_thing_that_is_named_is_looked_up(tmp_path: Path, said: str, question: str, told: str) -> None:
    with opened(tmp_path) as db:
        say(db, said, question)
        assert quotes(db, question) == [told]


@pytest.mark.parametrize(
    ("question", "told", "noise", "nothing"),
    [
        ("我的生日是哪天？", "我生日是5月14日", "昨天去吃了火锅", NOTHING_ZH),
        ("我吃什么药？", "我吃的药是阿司匹林", "昨天去吃了火锅", NOTHING_ZH),
    ],
)
def test_a_verb_that_goes_with_anything_makes_no_answer(
    tmp_path: Path, question: str, told: str, noise: str, nothing: str
) -> None:
    with opened(tmp_path) as db:
        say(db, noise)
        assert ask(db, question).text.splitlines()[0] in ("没有原话直接回答这个问题。最接近的是：", nothing)
        say(db, told)
        assert quotes(db, question) == [told]


@pytest.mark.parametrize(
    ("question", "nothing"), [("Where is my passport?", NOTHING), ("我的护照呢？", NOTHING_ZH)]
)
def test_where_nothing_is_near_nothing_is_quoted(tmp_path: Path, question: str, nothing: str) -> None:
    with opened(tmp_path) as db:
        say(db, "My cat is called Miso", "我的猫叫米粒")
        assert ask(db, question).text == nothing


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("我从哪儿搬来的？", "我三年前从成都搬到杭州"),
        ("我不能吃什么？", "我对花生过敏"),
        ("What can't I eat?", "I'm allergic to nuts"),
    ],
)
def test_what_moved_or_is_not_eaten_is_guessed_from_other_words(
    tmp_path: Path, question: str, told: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told, "The boiler leaks 锅炉漏水")
        answer = ask(db, question).text
        assert answer.count("“") == 1
        assert f"“{told}”" in answer
