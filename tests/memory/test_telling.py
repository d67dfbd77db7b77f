import pytest

from pikobot.memory.recall.telling import changes, held, kind_told, says_more, speaks_of_another, tells


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("I moved to Porto", ["move", "porto"], {"move", "porto"}),
        ("We lost the keys", ["lose"], {"lose"}),
        ("Education matters", ["cat"], set()),
        ("Two cats", ["cat"], {"cat"}),
        ("我搬到了波尔图", ["搬到波尔图"], {"搬到", "波尔", "尔图"}),
        ("锅炉漏水", ["猫"], set()),
    ],
)
def test_which_words_a_text_holds_in_any_form(text: str, words: list[str], found: set[str]) -> None:
    assert held(text, words) == found


@pytest.mark.parametrize(
    ("text", "words", "is_telling"),
    [
        ("Thanks, Gina!", ["gina"], False),
        ("Gina, see you tomorrow. Bye!", ["gina"], False),
        ("Thanks, Gina lent me her car", ["gina"], True),
        ("I paint", ["paints"], True),
        ("my cat", ["cat"], False),
        ("谢谢小美！", ["小美"], False),
        ("再见，小美", ["小美"], False),
        ("谢谢小美借我车", ["小美"], True),
        ("水管工的电话", ["水管工", "电话"], False),
        ("安娜打电话了", ["安娜打电话"], True),
    ],
)
def test_what_is_only_courteous_or_only_names_a_thing_tells_nothing(
    text: str, words: list[str], is_telling: bool
) -> None:
    assert tells(text, words) == is_telling


@pytest.mark.parametrize("text", ["Thanks!", "Bye Gina", "ok, see you later", "谢谢你", "好的，再见", "!"])
def test_courtesies_alone_say_nothing(text: str) -> None:
    assert not says_more(text)


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("Mother's birthday is 3 February", True),
        ("My sister got married", True),
        ("I went to my sister's wedding", False),
        ("Mother has my passport", False),
        ("妈妈的生日是2月3日", True),
        ("我妹妹结婚了", True),
        ("我去了妹妹的婚礼", False),
        ("The boiler leaks", False),
    ],
)
def test_who_is_spoken_of_is_told_from_who_speaks(text: str, is_so: bool) -> None:
    assert speaks_of_another(text) == is_so


def test_a_name_is_more_telling_than_a_home_and_a_home_than_a_liking() -> None:
    for telling in (
        ("My name is Ann", "I live in Porto", "I work as a nurse", "I like tea", "I cried", "It rains"),
        ("我叫林小雨", "我住在杭州", "我在阿里做产品经理", "我喜欢龙井", "我哭了", "下雨了"),
    ):
        kinds = [kind_told(text) for text in telling]
        assert kinds == sorted(set(kinds))


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("The dentist moved me to Friday", True),
        ("The trip is cancelled", True),
        ("牙医改到周五了", True),
        ("聚会取消了", True),
        ("The dentist is nice", False),
        ("牙医人很好", False),
    ],
)
def test_a_change_is_recognised(text: str, is_so: bool) -> None:
    assert changes(text) == is_so
