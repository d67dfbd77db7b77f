"""The chat with typed keys and a scripted runner; the line editor draws on nothing."""

import asyncio
import io
import re
from collections.abc import Sequence

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from pikobot.agent.events import RunEnded, TextDelta
from pikobot.channels.terminal.chat import Streams, chat
from pikobot.channels.terminal.services import ChatOptions
from pikobot.channels.terminal.wording import EN, ZH, Wording
from pikobot.channels.terminal.wrapping import cells, wrapped
from pikobot.errors import ProviderError, UsageError
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.store.leases import State

from .fakes import PORTO, THREAD_ID, FakeInstance, Script, answer, scripted

ENTER, CTRL_C, CTRL_D, CTRL_J, ALT_ENTER = "\r", "\x03", "\x04", "\n", "\x1b\r"
PAUSE_S = 0.02


def talk(
    instance: FakeInstance, keys: Sequence[str], options: ChatOptions | None = None
) -> tuple[int, str, str]:
    """Type the keys, a moment between them; the chat has to end by itself."""

    async def typing(keyboard: PipeInput) -> int:
        streams = Streams(io.StringIO(), stdout, stderr, keyboard, DummyOutput())
        chatting = asyncio.create_task(
            chat(instance.services, options or ChatOptions(environ={"LANG": "C"}), streams)
        )
        for key in keys:
            await asyncio.sleep(PAUSE_S)
            keyboard.send_text(key)
        return await asyncio.wait_for(chatting, 10)

    stdout, stderr = io.StringIO(), io.StringIO()
    with create_pipe_input() as keyboard:
        code = asyncio.run(typing(keyboard))
    return code, stdout.getvalue(), stderr.getvalue()


def test_a_conversation_stays_in_the_thread_that_its_first_message_started() -> None:
    instance = scripted(answer("Noted."), answer("In ", "Porto."))
    code, stdout, stderr = talk(instance, ["I moved to Porto", ENTER, "Where did I move?", ENTER, CTRL_D])
    assert (code, stdout) == (0, "Noted.\nIn Porto.\n")
    assert stderr == EN.greeting_model.format(model="scripted-1") + "\n"
    assert instance.runner.asked == [
        ("I moved to Porto", {}),
        ("Where did I move?", {"thread_id": THREAD_ID}),
    ]


def test_alt_enter_ctrl_j_and_a_paste_make_lines_and_enter_sends() -> None:
    instance = scripted(answer("ok"))
    talk(instance, ["a", ALT_ENTER, "b", CTRL_J, "\x1b[200~粘贴\r\n两行\n\x1b[201~", ENTER, "/quit", ENTER])
    assert instance.runner.asked == [("a\nb\n粘贴\n两行\n", {})]


def test_ctrl_c_clears_the_line_and_twice_on_an_empty_one_leaves() -> None:
    instance = scripted()
    code, _, stderr = talk(instance, ["half a thought", CTRL_C, CTRL_C, CTRL_C])
    assert code == 0
    assert stderr.count(EN.leave_hint) == 1
    assert instance.runner.asked == []


def test_a_message_between_two_ctrl_c_starts_the_count_anew() -> None:
    instance = scripted(answer("ok"))
    _, _, stderr = talk(instance, [CTRL_C, "hi", ENTER, CTRL_C, CTRL_D])
    assert stderr.count(EN.leave_hint) == 2


def test_failures_are_shown_and_the_chat_goes_on() -> None:
    failed: Script = [
        TextDelta("In Po"),
        RunEnded(State.FAILED, "In Po", True, ProviderError("the stream broke")),
    ]
    instance = scripted(failed, answer("Porto."))
    code, stdout, stderr = talk(
        instance, ["Where?", ENTER, "/nope", ENTER, "/threads 7", ENTER, "again", ENTER, CTRL_D]
    )
    assert code == 0
    assert stdout.endswith("In Po\nPorto.\n")
    for line in [
        EN.incomplete,
        "error: the stream broke",
        "no command /nope",
        "error: /threads takes a number",
    ]:
        assert line in stderr


def test_a_message_that_is_refused_is_explained() -> None:
    instance = scripted()
    instance.runner.error = UsageError("text has a NUL character at position 0; remove it")
    _, _, stderr = talk(instance, ["hi", ENTER, CTRL_D])
    assert "error: text has a NUL character" in stderr


def test_recall_and_ephemeral_are_said_at_the_start() -> None:
    instance = scripted()
    instance.runner.mode = "recall"
    options = ChatOptions(is_ephemeral=True, environ={"LANG": "zh_CN.UTF-8"})
    assert talk(instance, [CTRL_D], options) == (
        0,
        "",
        "\n".join([ZH.greeting_recall, ZH.recall_notice, ZH.ephemeral_notice, ""]),
    )


def test_an_ephemeral_chat_asks_without_a_thread() -> None:
    instance = scripted(answer("a"), answer("b"))
    talk(instance, ["one", ENTER, "two", ENTER, CTRL_D], ChatOptions(is_ephemeral=True, environ={}))
    assert instance.runner.asked == [("one", {"is_ephemeral": True}), ("two", {"is_ephemeral": True})]


def test_a_named_thread_is_resumed_with_its_date_and_what_was_cut_off() -> None:
    instance = scripted(answer("ok"))
    instance.threads, instance.is_cut_off = [PORTO], True
    _, stdout, stderr = talk(instance, ["hi", ENTER, CTRL_D], ChatOptions("porto", environ={}))
    assert "Resuming porto “I moved to Porto in March”; last message 2024-03-0" in stdout
    assert EN.cut_off in stderr
    assert instance.runner.asked == [("hi", {"thread_id": THREAD_ID})]


def test_new_and_threads_move_between_conversations() -> None:
    instance = scripted(answer("1"), answer("2"), answer("3"), answer("4"))
    instance.threads = [PORTO]
    keys = ["/new 旅行", "a", "/threads", "/threads 1", "b", "/new", "c", "/new porto", "d", "/quit"]
    _, stdout, _ = talk(instance, [part for key in keys for part in (key, ENTER)])
    assert instance.runner.asked == [
        ("a", {"thread_key": "旅行"}),
        ("b", {"thread_id": THREAD_ID}),
        ("c", {}),
        ("d", {"thread_id": THREAD_ID}),
    ]
    assert "*  1  2024-03-0" in stdout
    assert "  4 messages  porto “I moved to Porto in March”\n" in stdout


def test_threads_are_listed_with_date_size_and_how_they_begin() -> None:
    instance = scripted(answer("ok"))
    unnamed: dict[str, object] = {
        "id": "thr_b",
        "key": None,
        "lastSaidAt": None,
        "messages": 1,
        "beginning": "很长的话" * 30,
    }
    long: dict[str, object] = {
        "id": "thr_d",
        "key": None,
        "messages": 2,
        "beginning": "I moved to Porto and lost my keys near the " + "r" * 37,
    }
    instance.threads = [PORTO, unnamed, {"id": "thr_c", "key": None, "messages": 12}, long]
    keys = ["hi there", "/threads", "/话题", "/quit"]
    _, stdout, _ = talk(instance, [part for key in keys for part in (key, ENTER)])
    lines = [re.sub(r"2024-03-0\d \d\d:\d\d", "DAY", line) for line in stdout.splitlines()[1:]]
    assert lines == [
        "*  1  DAY   4 messages  porto “I moved to Porto in March”",
        f"   2  never    1 message  “{'很长的话' * 15}…”",
        "   3  never  12 messages  unnamed",
        "   4  never   2 messages  “I moved to Porto and lost my keys near the…”",
        EN.threads_hint,
        "*  1  DAY   4 条消息  porto “I moved to Porto in March”",
        f"   2  无   1 条消息  “{'很长的话' * 15}…”",
        "   3  无  12 条消息  未命名",
        "   4  无   2 条消息  “I moved to Porto and lost my keys near the…”",
        ZH.threads_hint,
    ]


def test_the_language_is_that_of_the_conversation_unless_a_command_has_its_own() -> None:
    instance = scripted(*map(answer, ("好", "ok", "yes")))
    keys = [
        "/stop",
        "你好",
        "/stop",
        "ok",
        "/stop",
        "/stop all of it",
        "/stop",
        "go on",
        "/stop",
        "/停止",
        "/stop",
    ]
    keys += ["/quit"]
    _, stdout, _ = talk(instance, [part for key in keys for part in (key, ENTER)])
    stopped, stopped_zh = EN.stopped_runs.format(count=2), ZH.stopped_runs.format(count=2)
    assert stdout.splitlines() == [
        EN.nothing_to_stop,
        *("好", stopped_zh, "ok", stopped_zh, stopped, stopped_zh),
        *("yes", stopped, stopped_zh, stopped),
    ]


@pytest.mark.parametrize(("said", "words"), [("我搬到波尔图了", ZH), ("I moved to Porto", EN)])
def test_a_chat_begins_in_the_language_of_the_last_message_and_in_recall_mode_is_explained_once(
    said: str, words: Wording
) -> None:
    instance = scripted()
    instance.runner.mode, instance.said = "recall", [said]
    greeting = [words.greeting_recall, words.recall_notice, ""]
    assert talk(instance, [CTRL_D])[2] == "\n".join(greeting)
    assert talk(instance, [CTRL_D])[2] == words.greeting_recall + "\n"


def test_a_new_conversation_has_nothing_to_forget_and_says_what_to_do() -> None:
    instance = scripted(answer("ok"))
    keys = ["hi there", "/new", "/forget", "/forget thread", "/忘记", "/quit"]
    _, _, stderr = talk(instance, [part for key in keys for part in (key, ENTER)])
    refused = [line for line in stderr.splitlines() if line.startswith(("error", "错误"))]
    assert refused == [
        EN.error.format(reason=EN.nothing_said_here),
        EN.error.format(reason=EN.nothing_said_here),
        ZH.error.format(reason=ZH.nothing_said_here),
    ]
    assert "--thread" not in stderr


def test_on_a_narrow_terminal_lines_break_between_words() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    async def leave(keyboard: PipeInput) -> int:
        options = ChatOptions(environ={"LANG": "C", "TERM": "dumb", "COLUMNS": "40"})
        streams = Streams(io.StringIO(), stdout, stderr, keyboard, DummyOutput())
        keyboard.send_text("/help\n/quit\n")
        return await asyncio.wait_for(chat(instance.services, options, streams), 10)

    instance, stdout, stderr = scripted(), Terminal(), Terminal()
    instance.runner.mode = "recall"
    with create_pipe_input() as keyboard:
        asyncio.run(leave(keyboard))
    assert stdout.getvalue() == wrapped(EN.help, 40) + "\n"
    assert wrapped(EN.recall_notice, 40) in stderr.getvalue()
    assert max(map(cells, (stdout.getvalue() + stderr.getvalue()).split("\n"))) <= 40


def test_forgetting_shows_asks_and_does_nothing_without_a_yes() -> None:
    instance = scripted(answer("ok"))
    keys = ["hi", "/forget", "", "/forget Porto --yes", "no", "/忘记 波尔图", "好", "/quit"]
    _, stdout, _ = talk(instance, [part for key in keys for part in (key, ENTER)])
    assert instance.forget.previewed == [
        ForgetTarget(last_exchange=THREAD_ID),
        ForgetTarget(words=("Porto",), whole_words=True),
        ForgetTarget(words=("波尔图",), whole_words=True),
    ]
    assert instance.forget.erased == [2]
    assert stdout.count(EN.kept) == 2
    assert f"erased 2 sources\n{ZH.scrollback}\n" in stdout


def test_after_its_thread_was_forgotten_the_next_message_starts_another() -> None:
    instance = scripted(answer("1"), answer("2"))
    keys = ["a", "/forget thread", "yes", "b", "/quit"]
    talk(instance, [part for key in keys for part in (key, ENTER)])
    assert instance.runner.asked == [("a", {}), ("b", {})]


def test_the_history_of_the_line_editor_goes_with_what_was_forgotten() -> None:
    up = "\x1b[A"
    instance = scripted(answer("1"), answer("2"), answer("3"))
    keys = ["secret", ENTER, up, ENTER, "/forget secret", ENTER, "y", ENTER, up, "new", ENTER, CTRL_D]
    talk(instance, keys)
    assert [text for text, _ in instance.runner.asked] == ["secret", "secret", "new"]
