import pytest

from pikobot.memory.language.questions import is_only_question, is_question, keywords, language_of

QUESTIONS = [
    "Where did I move?",
    "where did i move",
    "What's my sister called",
    "How long did the flight take",
    "Who is Anna",
    "Did I pay the rent",
    "Is my passport in the drawer",
    "Have you seen my keys",
    "Tell me about Porto",
    "List my allergies",
    "我搬到哪里了？",
    "我搬到哪里了",
    "我的生日是什么时候",
    "谁借了我的相机",
    "你记得我妹妹的名字吗",
    "会议是几点",
    "房租多少钱",
    "我是不是去过青岛",
    "我的钥匙呢",
    "请告诉我护照号码",
    "帮我查一下护照号码",
    "我的護照在哪裡",
    "“我搬到哪里了？”",
]
STATEMENTS = [
    "I moved to Porto in March 2024",
    "When I moved to Porto I sold the car",
    "What a day",
    "Had the flu last week",
    "Did my taxes on Sunday",
    "Was the best man at Tom's wedding",
    "Had it repaired on Monday",
    "Find a plumber by Friday",
    "List of allergies: peanuts, shellfish",
    "我搬到波尔图了",
    "我和几个朋友去了青岛",
    "前几天我去了医院",
    "今天这么热",
    "我没什么胃口",
    "谁都知道我怕狗",
    "他告诉我他要结婚了",
    "提醒我明天交房租",
    "还没吃饭呢",
    "我十几岁的时候住在北京",
    "没多久就下雨了",
    "不管多少钱我都要买",
    "买了牛奶、面包什么的",
    "",
    "！",
]


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_is_recognised_with_and_without_its_mark(text: str) -> None:
    assert (is_question(text), is_only_question(text)) == (True, True)


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_is_not_taken_for_a_question(text: str) -> None:
    assert (is_question(text), is_only_question(text)) == (False, False)


@pytest.mark.parametrize(
    ("text", "states_nothing"),
    [
        ("I moved to Porto. Where is my passport?", False),
        ("Where do I live? And where did I live before?", True),
        ("我上周搬到波尔图了，护照在哪里？", False),
        ("我想问一下，护照在哪里？", True),
        ("我搬家了。护照在哪里？", False),
        ("My flat:\nwhere is it?", False),
    ],
)
def test_a_text_that_also_states_something_stays_evidence(text: str, states_nothing: bool) -> None:
    assert (is_question(text), is_only_question(text)) == (True, states_nothing)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Where did I move?", ["move"]),
        ("What is the name of my sister Will Smith's dog?", ["name", "sister", "smith", "dog"]),
        ("我搬到哪里了？", ["搬到"]),
        ("修改youer服务端是什么时候？", ["修改", "youer", "服务端"]),
        ("我的護照在哪裡嗎", ["護照在"]),
        ("是吗？", []),
        ("Who am I?", []),
        ("move Move MOVE", ["move"]),
        ("What kind of art does Ana make?", ["art", "ana", "make"]),
        ("How many kinds of tea do I have?", ["kinds", "tea"]),
        ("Was Ana kind?", ["ana", "kind"]),
    ],
)
def test_the_words_worth_searching_for_are_kept_in_order(text: str, words: list[str]) -> None:
    assert keywords(text) == words


def test_the_language_is_chinese_as_soon_as_a_character_is() -> None:
    assert [language_of(text) for text in ("Porto", "波尔图 in March", "", "café 2024")] == [
        "en",
        "zh",
        "en",
        "en",
    ]
