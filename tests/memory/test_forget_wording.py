"""What counts as a yes to a preview, and how a preview and a receipt are worded."""

import pytest

from pikobot.memory.forgetting.preview import MAX_BEGINNING_CHARS, PreviewItem
from pikobot.memory.forgetting.wording import item_text, says_no, says_yes


@pytest.mark.parametrize(
    "text",
    [
        *(
            "ok",
            "OK!",
            "okay",
            "sure",
            "Sure, go ahead.",
            "go ahead",
            "delete it",
            "yes, delete it",
            "yep",
            "yes, please",
        ),
        *(
            "ok sure go ahead",
            "please do",
            "yes. do it. thanks",
            "嗯",
            "嗯嗯",
            "行",
            "行，删吧",
            "是的，删吧",
            "好的。删掉吧。",
        ),
        *("可以", "没问题", "确认删除", "都删了吧", "对，都删了", "好，谢谢", "ＯＫ", "沒問題"),
    ],
)
def test_a_plain_consent_counts(text: str) -> None:
    assert says_yes(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "ok but keep the first",
            "sure?",
            "yes, except the second",
            "go ahead tomorrow",
            "if you must",
            "maybe",
        ),
        *(
            "ok, who are you",
            "yes yes yes yes",
            "thanks",
            "please",
            "delete it later",
            "delete everything",
            "okra",
            "yes " * 300_000,
        ),
        *(
            "嗯，不过等等",
            "行吗",
            "行吗？",
            "好像是",
            "是的，但是留下第一条",
            "可以吗",
            "删第一条",
            "明天删吧",
            "谢谢",
            "不行",
            "不可以",
        ),
        *("除了第一条都删了", "如果可以就删吧", "先别删"),
    ],
)
def test_a_condition_a_question_or_anything_else_does_not(text: str) -> None:
    assert not says_yes(text)


def test_a_statement_is_shown_as_answers_quote_it() -> None:
    said = PreviewItem("src_1", "user", "owner", "2026-11-30T10:32:12.806Z", "I like\n tea")
    assert item_text(said, "en") == "30 November 2026, you: “I like tea”"
    assert item_text(said, "zh") == "2026年11月30日，你：“I like tea”"
    answer = said._replace(
        role="assistant", speaker="pikobot", said=None, beginning="x" * MAX_BEGINNING_CHARS
    )
    assert item_text(answer, "zh") == f"日期不明，助手：“{'x' * MAX_BEGINNING_CHARS}…”"
    assert (
        item_text(said._replace(role="participant", speaker="小美"), "en")
        == "30 November 2026, 小美: “I like tea”"
    )


@pytest.mark.parametrize(
    "text", ["yes", "Yes.", " Y ", "yes please!", "do it", "是", "是的。", "好的", "“是”", "确认"]
)
def test_a_bare_yes_is_one(text: str) -> None:
    assert says_yes(text)
    assert not says_no(text)


@pytest.mark.parametrize("text", ["no", "No, thanks", "n", "cancel", "不", "不要！", "取消"])
def test_a_bare_no_is_one(text: str) -> None:
    assert says_no(text)
    assert not says_yes(text)


@pytest.mark.parametrize(
    "text",
    [
        "yes but not the second one",
        "yesterday",
        "是不是",
        "是的，但是留下第二条",
        "please",
        "",
        "?",
        "nobody",
    ],
)
def test_what_says_more_is_neither(text: str) -> None:
    assert not says_yes(text)
    assert not says_no(text)
