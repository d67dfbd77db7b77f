from pathlib import Path

import pytest

from pikobot.memory.recall.answers import MemoryAnswer
from pikobot.memory.recall.small_talk import small_talk_of, wants
from tests.memory.learning import learn
from tests.memory.remembering import DAY_MS, NOW_MS, opened, say
from tests.memory.test_recall import ask


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Hi", "greeting"),
        ("Hello there!", "greeting"),
        ("你好！", "greeting"),
        ("在吗", "greeting"),
        ("在吗？", "greeting"),
        ("你好吗？", "greeting"),
        ("How are you?", "greeting"),
        ("What's up", "greeting"),
        ("How is Ana doing?", None),
        ("安娜在吗？", None),
        ("What day is today?", "today"),
        ("What's the date?", "today"),
        ("what day is it", "today"),
        ("今天几号？", "today"),
        ("今天星期几", "today"),
        ("今天是几月几号？", "today"),
        ("What day is the party?", None),
        ("聚会几号？", None),
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
        ("How can I see what you stored?", "owner"),
        ("Show me everything you know", "owner"),
        ("怎么看你记了什么？", "owner"),
        ("Thanks!", "thanks"),
        ("thank you so much", "thanks"),
        ("谢谢你", "thanks"),
        ("多谢！", "thanks"),
        ("help", "help"),
        ("帮助", "help"),
        ("exit", "leave"),
        ("Bye!", "leave"),
        ("退出", "leave"),
        ("再见", "leave"),
        ("undo", "undo"),
        ("Undo the last one", "undo"),
        ("Restore what I deleted", "undo"),
        ("撤销", "undo"),
        ("恢复刚才删掉的", "undo"),
        ("How do I delete something?", "erase"),
        ("How can I make you forget something", "erase"),
        ("怎么删除？", "erase"),
        ("怎么才能让你忘掉我说过的话？", "erase"),
        ("Thanks to Ana we found the keys", None),
        ("I need help with the boiler", None),
        ("He recovered well", None),
        ("恢复得不错", None),
        ("How do I delete photos on my phone?", None),
        ("怎么删除手机里的照片？", None),
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
        assert ("/帮助" if text[0] in "你在" else "/help") in answer.text


@pytest.mark.parametrize(
    ("question", "before", "after"),
    [
        (
            "What do you know about me?",
            "You have told me nothing yet.",
            "I have 8 messages from you, questions included, the first of 1 February 2024. "
            "What you told about yourself or last:\n"
            "- 1 February 2024, you: “I live in Porto”\n- 1 March 2024, you: “I'm allergic to nuts”\n"
            "- 1 March 2024, you: “我喜欢龙井”\n- 1 March 2024, you: “猫叫米粒”",
        ),
        (
            "你知道我什么？",
            "你还没有告诉过我什么。",
            "我存有你的8条消息（包括提问），最早的是2024年2月1日。你说过的关于自己的话，或最近的话：\n"
            "- 2024年2月1日，你：“I live in Porto”\n- 2024年3月1日，你：“I'm allergic to nuts”\n"
            "- 2024年3月1日，你：“我喜欢龙井”\n- 2024年3月1日，你：“猫叫米粒”",
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
        say(db, "I'm allergic to nuts", "我喜欢龙井", "猫叫米粒", "Hello!")
        say(db, "Thanks!", "Remind me to call Ana", "提醒我浇花", at_ms=NOW_MS + DAY_MS)
        assert ask(db, question).text == after


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("Remind me to call Rui tomorrow at 9", "reminder"),
        ("Can you set a timer", "reminder"),
        ("提醒我明天交房租", "reminder"),
        ("Summarize my week", "work"),
        ("总结一下我这周", "work"),
        ("能提醒我看牙医吗？", "reminder"),
        ("总结会在周五", None),
        ("That reminds me of Porto", None),
        ("妈妈提醒我带伞", None),
    ],
)
def test_what_takes_a_clock_or_a_model_is_known(text: str, wish: str | None) -> None:
    assert wants(text) == wish


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Remind me to call Rui", "Understood, and not kept. I can't remind you"),
        ("Summarize my week", "Understood, and not kept. Without a model I can only quote"),
        ("提醒我给老赵打电话", "知道了，没有保存。我不能提醒你"),
        ("翻译这句话", "知道了，没有保存。没有模型时，我只能引用原话"),
        ("undo", "I can't undo anything"),
        ("撤销", "我不能撤销"),
        ("How do I delete something?", "Say what to erase: “forget that"),
        ("怎么删除？", "直接说要删除什么：“忘掉"),
        ("exit", "Goodbye. In a chat /quit leaves."),
        ("退出", "再见。聊天时输入 /退出 离开。"),
    ],
)
def test_what_recall_mode_cannot_do_is_said_and_quotes_nothing(
    tmp_path: Path, text: str, answer: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "I call Rui every week, 给老赵打电话 undo exit 翻译 删除")
        given = ask(db, text)
        assert given.text.startswith(answer)
        assert given.source_ids == ()


@pytest.mark.parametrize(
    ("text", "first"),
    [("Can you remind me about the dentist?", "I can't remind you"), ("能提醒我看牙医吗？", "我不能提醒你")],
)
def test_who_asks_to_be_reminded_is_told_that_it_cannot_be_and_what_is_known(
    tmp_path: Path, text: str, first: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "The dentist is on Friday 周五看牙医")
        answer = ask(db, text)
        assert answer.text.startswith(first)
        assert len(answer.source_ids) == 1


def test_thanks_and_commands_are_never_quoted(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "Thanks!", "谢谢你", "exit", "help", "退出", "I painted the door 我刷了门")
        for question in ("What did I say today?", "今天我说了什么？", "What did I say?", "我说过什么？"):
            assert ask(db, question).text.count("“") == 1


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What day is today?", "Today is Friday, 1 March 2024."),
        ("今天几号？", "今天是2024年3月1日，星期五。"),
    ],
)
def test_the_day_is_told_and_nothing_quoted(tmp_path: Path, question: str, answer: str) -> None:
    with opened(tmp_path) as db:
        say(db, "I cleaned the oven today 今天我清洗了烤箱")
        assert ask(db, question) == MemoryAnswer(answer, ())
