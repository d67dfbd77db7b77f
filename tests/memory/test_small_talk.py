from pathlib import Path

import pytest

from pikobot.memory.small_talk import small_talk_of
from tests.memory.learning import learn
from tests.memory.remembering import DAY_MS, NOW_MS, opened, say
from tests.memory.test_recall import ask


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Hi", "greeting"),
        ("Hello there!", "greeting"),
        ("你好！", "greeting"),
        ("What can you do?", "abilities"),
        ("what can you do for me", "abilities"),
        ("你能做什么？", "abilities"),
        ("你可以帮我做什么", "abilities"),
        ("你是谁？", "abilities"),
        ("What do you know about me?", "owner"),
        ("What's known about me?", "owner"),
        ("Tell me what you know about me", "owner"),
        ("你知道我什么？", "owner"),
        ("你都记得我哪些事情？", "owner"),
        ("关于我你知道什么", "owner"),
        ("Hi, I moved to Porto", None),
        ("What can you do about the boiler?", None),
        ("What do you know about Ana?", None),
        ("你好，我搬到波尔图了", None),
        ("你知道我妹妹什么？", None),
        ("", None),
    ],
)
def test_small_talk_is_what_is_nothing_else(text: str, kind: str | None) -> None:
    assert small_talk_of(text) == kind


@pytest.mark.parametrize("text", ["Hi", "What can you do?", "你好", "你能做什么？"])
def test_a_greeting_and_a_question_about_pikobot_are_answered_without_quoting_anybody(
    tmp_path: Path, text: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "Hi Ana, you can do it 你好", "What can you do")
        answer = ask(db, text)
        assert answer.source_ids == ()
        assert "/help" in answer.text


@pytest.mark.parametrize(
    ("question", "before", "after"),
    [
        (
            "What do you know about me?",
            "You have told me nothing yet.",
            "I have 4 messages from you, the first of 1 February 2024. What you told about yourself or last:\n"
            "- 1 February 2024, you: “I live in Porto”\n- 1 March 2024, you: “猫叫米粒”\n"
            "- 1 March 2024, you: “I like tea”",
        ),
        (
            "你知道我什么？",
            "你还没有告诉过我什么。",
            "我存有你的4条消息，最早的是2024年2月1日。你说过的关于自己的话，或最近的话：\n"
            "- 2024年2月1日，你：“I live in Porto”\n- 2024年3月1日，你：“猫叫米粒”\n"
            "- 2024年3月1日，你：“I like tea”",
        ),
    ],
)
def test_what_is_known_of_the_owner_is_quoted_beginning_with_the_basics(
    tmp_path: Path, question: str, before: str, after: str
) -> None:
    with opened(tmp_path) as db:
        assert ask(db, question).text == before
        [home] = say(db, "I live in Porto", at_ms=NOW_MS - 29 * DAY_MS)
        learn(db, "The owner lives in Porto", home, attribute="home_city", value="Porto")
        say(db, "The boiler leaks", role="participant", speaker="Ana")
        say(db, "I like tea", "猫叫米粒", "Hello!")
        assert ask(db, question).text == after
