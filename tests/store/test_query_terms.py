import pytest

from pikobot.store.text.query_terms import NamedSpeakers, question_terms, widened


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("Where did I move in March 2024?", ["move", "march", "2024"]),
        ("我什么时候搬到了波尔图？", ["时候", "候搬", "搬到", "波尔", "尔图"]),
        ("服务端 deploy 服务端", ["服务", "务端", "deploy"]),
        ("的确 yes", ["的确", "yes"]),
        ("to be or not to be", ["to", "be", "or", "not"]),
        ("什么", ["什么"]),
        ("端", ["端"]),
        ("端 server", ["端", "server"]),
        ("tea 茶", ["tea", "茶"]),
        ("我 like 茶 吗", ["like", "茶"]),
        ("在 Porto 的", ["porto"]),
        ("3月 invoice", ["3", "invoice"]),
        ("🎉 ?", []),
    ],
)
def test_a_question_is_ranked_by_its_telling_words_or_by_all_when_it_has_none(
    question: str, terms: list[str]
) -> None:
    assert question_terms(question) == terms


@pytest.mark.parametrize(
    ("terms", "wide"),
    [
        (["lose", "key"], ["lose", "key", "lost"]),
        (["lost"], ["lost", "lose"]),
        (["written", "wrote"], ["written", "wrote", "write"]),
        (["woman", "children"], ["woman", "children", "women", "child"]),
        (["move", "茶", "go"], ["move", "茶", "go"]),
    ],
)
def test_irregular_words_are_joined_by_their_other_forms(terms: list[str], wide: list[str]) -> None:
    assert widened(terms) == wide


@pytest.mark.parametrize(
    ("question", "speaker", "is_named"),
    [
        ("What did Maria say?", "Maria", True),
        ("What did MARIA's dog do?", "maria silva", True),
        ("What did Mariana say?", "Maria", False),
        ("Who told me?", "me", False),
        ("王海最近在忙什么？", "王海", True),
        ("海风", "海", False),
        ("anything", "🎉", False),
    ],
)
def test_a_speaker_is_named_by_a_whole_word_or_a_chinese_name_in_the_text(
    question: str, speaker: str, is_named: bool
) -> None:
    assert NamedSpeakers(question).include(speaker) is is_named
