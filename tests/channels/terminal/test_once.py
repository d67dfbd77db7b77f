import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from pikobot.agent.events import Notice, Retrying, RunEnded, TextDelta, ToolFinished, ToolStarted
from pikobot.channels.terminal.once import MAX_STDIN_BYTES, answer_once, read_request
from pikobot.channels.terminal.services import ChatOptions
from pikobot.channels.terminal.wording import EN, ZH, Wording
from pikobot.errors import BudgetExceeded, NotFound, PikobotError, ProviderError, UsageError
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.store.leases import State

from .fakes import PORTO, SOURCE_ID, THREAD_ID, FakeInstance, Hang, Script, answer, scripted


def run(
    instance: FakeInstance,
    text: str,
    *,
    thread: str | None = None,
    is_ephemeral: bool = False,
    environ: Mapping[str, str] = MappingProxyType({"LANG": "C"}),
) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    options = ChatOptions(thread, is_ephemeral, environ=environ)
    code = asyncio.run(answer_once(instance.services, text, options, stdout, stderr))
    return code, stdout.getvalue(), stderr.getvalue()


def test_stdout_holds_the_answer_and_one_newline() -> None:
    for pieces in [("In **Porto**", ".\n", "\n\n"), ("In **Porto**.",), ("In **Porto**.\n",)]:
        assert run(scripted(answer(*pieces)), "Where?") == (0, "In **Porto**.\n", "")


def test_newlines_inside_the_answer_stay() -> None:
    assert run(scripted(answer("\n一\n", "\n", "二\n")), "?")[1] == "\n一\n\n二\n"


def test_an_answer_that_was_not_streamed_is_printed_from_the_outcome() -> None:
    script: Script = [TextDelta("In Po"), RunEnded(State.SUCCEEDED, "In Porto.")]
    assert run(scripted(script), "Where?") == (0, "In Porto.\n", "")
    assert run(scripted([RunEnded(State.SUCCEEDED, "In Porto.")]), "?") == (0, "In Porto.\n", "")


def test_control_sequences_do_not_reach_a_pipe() -> None:
    assert run(scripted(answer("a\x1b", "[31mb\x1b]0;t\x07c\r\n")), "?")[1] == "abc\n"


def test_progress_and_notices_go_to_stderr() -> None:
    script: Script = [
        ToolStarted("memory_search"),
        ToolFinished("memory_search", False),
        Retrying("the provider is busy", 2.0),
        Notice("context was cut"),
        *answer("Porto"),
    ]
    assert run(scripted(script), "Where?") == (
        0,
        "Porto\n",
        "searching memory…\nthe provider is busy; trying again in 2 s\ncontext was cut\n",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProviderError("the provider failed"), 5),
        (BudgetExceeded("no budget"), 5),
        (PikobotError("no"), 1),
        (None, 1),
    ],
)
def test_a_failed_run_gives_its_errors_exit_code(error: PikobotError | None, code: int) -> None:
    exit_code, stdout, stderr = run(scripted([RunEnded(State.FAILED, "", error=error)]), "Where?")
    assert (exit_code, stdout) == (code, "")
    assert f"error: {error or EN.failed_without_reason}" in stderr


def test_a_partial_answer_is_printed_and_flagged() -> None:
    script: Script = [
        TextDelta("In Po"),
        RunEnded(State.FAILED, "In Po", True, ProviderError("the stream broke")),
    ]
    code, stdout, stderr = run(scripted(script), "Where?")
    assert (code, stdout) == (5, "In Po\n")
    assert stderr.endswith("The answer above is incomplete.\nerror: the stream broke\n")


def test_without_a_thread_the_request_stands_alone_and_with_one_it_joins_it() -> None:
    instance = scripted(answer("1"), answer("2"), answer("3"))
    run(instance, "one")
    run(instance, "//two", thread="porto")
    assert run(instance, "three", is_ephemeral=True)[2].startswith(EN.ephemeral_notice)
    assert instance.runner.asked == [
        ("one", {"is_standalone": True}),
        ("/two", {"thread_key": "porto"}),
        ("three", {"is_ephemeral": True}),
    ]


@pytest.mark.parametrize(("text", "words"), [("Where did I move?", EN), ("我搬到哪里了？", ZH)])
def test_recall_mode_is_explained_once_in_the_language_of_the_message(text: str, words: Wording) -> None:
    instance = scripted(*[answer("a")] * 5)
    instance.runner.mode = "recall"
    assert run(instance, text)[2] == words.recall_notice + "\n"
    assert run(instance, text)[2] == ""
    assert run(instance, text, is_ephemeral=True)[2] == words.ephemeral_notice + "\n"
    instance.runner.mode = "model"
    assert run(instance, text)[2] == ""
    instance.runner.mode = "recall"
    assert run(instance, text)[2] == words.recall_notice + "\n"


@pytest.mark.parametrize(
    ("said", "command", "words"),
    [
        ([], "/stop", EN),
        (["我搬到波尔图了"], "/stop", ZH),
        (["ok", "42", "我搬到波尔图了", "Hello there"], "/stop", ZH),
        (["Where did I move?", "我搬到波尔图了"], "/stop", EN),
        (["Where did I move?"], "/停止", ZH),
        (["Where did I move?"], "/stop 这个", ZH),
        (["我搬到波尔图了"], "/stop what you do", EN),
        (["我搬到波尔图了"], "/stop Porto", EN),
        (["我搬到波尔图了"], "/stop src_aaaaaaaaaaaaaaaaaaaa", ZH),
        (["Where did I move?"], "/stop 2024-03-01", EN),
    ],
)
def test_a_command_is_answered_in_its_own_language_else_in_that_of_the_conversation(
    said: list[str], command: str, words: Wording
) -> None:
    instance = scripted()
    instance.said = said
    assert run(instance, command, thread="porto") == (0, words.nothing_to_stop + "\n", "")


@pytest.mark.parametrize(
    ("environ", "command", "words"),
    [
        ({}, "/stop", EN),
        ({"LANG": "en_GB.UTF-8"}, "/stop", EN),
        ({"LANG": "zh_CN.UTF-8"}, "/stop", ZH),
        ({"LANG": "zh_CN.UTF-8"}, "/stop garage", EN),
        ({}, "/停止", ZH),
    ],
)
def test_a_command_that_stands_alone_takes_no_language_from_another_conversation(
    environ: dict[str, str], command: str, words: Wording
) -> None:
    for said in (["我搬到波尔图了"], ["Where did I move?"]):
        instance = scripted()
        instance.said = said
        assert run(instance, command, environ=environ) == (0, words.nothing_to_stop + "\n", "")


def test_empty_and_unknown_input_is_wrong_usage_and_asks_nothing() -> None:
    instance = scripted()
    for text, named in [
        ("", "empty"),
        (" \n", "empty"),
        ("/statsu", "/status"),
        ("/忘了", "/忘"),
        ("/xyzzy", "There is no command /xyzzy. /help lists the commands.$"),
        ("/命令", "没有命令 /命令。/帮助 列出命令。$"),
        ("/threads 2", "^/threads N belongs to the chat"),
        ("/新话题 旅行", "^/新话题 只在对话中使用"),
    ]:
        with pytest.raises(UsageError, match=named):
            run(instance, text)
    assert instance.runner.asked == []


def test_what_fails_before_there_is_a_run_is_raised() -> None:
    instance = scripted()
    instance.runner.error = NotFound("no such thread")
    with pytest.raises(NotFound):
        run(instance, "hello")


def test_commands_are_carried_out_and_ask_nothing() -> None:
    instance = scripted()
    instance.threads = [PORTO]
    assert run(instance, "/help") == (0, EN.help + "\n", "")
    assert run(instance, "/帮助") == (0, ZH.help + "\n", "")
    assert "scripted-1" in run(instance, "/status")[1]
    assert run(instance, "/threads")[1].endswith("  4 messages  porto “I moved to Porto in March”\n")
    assert run(instance, "/quit") == (0, "", "")
    assert run(instance, "/stop", thread="porto") == (0, "Stopped: 2.\n", "")
    assert run(instance, "/stop") == (0, EN.nothing_to_stop + "\n", "")
    for text in ["/new", "/threads 1", "/forget", "/forget thread"]:
        with pytest.raises(UsageError):
            run(instance, text)
    assert instance.runner.asked == []
    assert instance.runner.stopped_threads == [THREAD_ID]


def test_forgetting_without_a_chat_needs_the_flag() -> None:
    instance = scripted()
    shown = (
        "This would be erased for good, with everything made from it (2 messages):\n"
        "  2 March 2024, you: “I moved to Porto in March”\n"
        "  2 March 2024, you: “我搬到了波尔图”\n"
    )
    assert run(instance, "/forget Porto") == (1, shown, EN.forget_confirm_flag + "\n")
    assert instance.forget.erased == []
    assert run(instance, "/forget Porto --yes") == (0, shown + "erased 2 sources\n", "")
    assert instance.forget.erased == [2]


def test_what_forget_names_is_understood() -> None:
    instance = scripted()
    instance.threads = [PORTO]
    for argument in [
        f" {SOURCE_ID}",
        " thr_cccccccccccccccccccc",
        ' "thread"',
        " “话题”",
        " thread",
        " 话题",
        "",
        " src_x",
    ]:
        run(instance, f"/forget{argument} --yes", thread="porto")
    assert instance.forget.previewed == [
        ForgetTarget(sources=(SOURCE_ID,)),
        ForgetTarget(thread="thr_cccccccccccccccccccc"),
        ForgetTarget(words=("thread",)),
        ForgetTarget(words=("话题",)),
        ForgetTarget(thread=THREAD_ID),
        ForgetTarget(thread=THREAD_ID),
        ForgetTarget(last_exchange=THREAD_ID),
        ForgetTarget(words=("src_x",), whole_words=True),
    ]


def test_a_terminal_that_cannot_erase_says_so() -> None:
    services = replace(scripted().services, forget=None)
    with pytest.raises(PikobotError, match="cannot erase"):
        asyncio.run(answer_once(services, "/forget x --yes", ChatOptions(), io.StringIO(), io.StringIO()))


def test_forgetting_what_is_not_there_finds_nothing() -> None:
    instance = scripted()
    instance.forget.statements = ()
    assert run(instance, "/忘记 里斯本 --yes") == (3, ZH.nothing_to_forget + "\n", "")


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said() -> None:
    async def interrupted() -> int:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        options = ChatOptions(environ={})
        return await answer_once(instance.services, "Where?", options, stdout, stderr)

    instance, stdout, stderr = scripted([TextDelta("In Po"), Hang()]), io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGINT)
    assert asyncio.run(interrupted()) == 130
    assert stdout.getvalue() == "In Po\n"
    assert stderr.getvalue().endswith("Stopped.\n")
    assert instance.runner.answerings[0].stops == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_leaves_a_run_that_does_not_stop() -> None:
    async def interrupted() -> int:
        loop = asyncio.get_running_loop()
        for delay in (0.05, 0.1):
            loop.call_later(delay, os.kill, os.getpid(), signal.SIGINT)
        return await answer_once(
            instance.services, "?", ChatOptions(environ={}), io.StringIO(), io.StringIO()
        )

    instance = scripted([Hang()])
    instance.runner.ignores_stop = True
    assert asyncio.run(interrupted()) == 130


def test_a_reader_that_goes_away_stops_the_run_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    instance, stderr = scripted([TextDelta("In Porto"), Hang()]), io.StringIO()
    with open(writing, "w") as stdout:
        code = asyncio.run(answer_once(instance.services, "?", ChatOptions(environ={}), stdout, stderr))
    assert (code, stderr.getvalue()) == (0, "")
    assert instance.runner.answerings[0].stops == 1


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("ascii", "波尔图 ok\n"), ("latin-1", "\\u6ce2\\u5c14\\u56fe ok\n"), ("gbk", "波尔图 ok\n")],
)
def test_no_character_is_lost_in_an_encoding_that_lacks_it(encoding: str, expected: str) -> None:
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding=encoding)
    asyncio.run(
        answer_once(
            scripted(answer("波尔图 ok")).services, "?", ChatOptions(environ={}), stdout, io.StringIO()
        )
    )
    stdout.flush()
    assert raw.getvalue().decode(stdout.encoding) == expected


def test_stdin_is_read_as_utf8_within_a_limit() -> None:
    assert read_request(io.BytesIO("\ufeff波尔图\n".encode())) == "波尔图\n"
    with pytest.raises(UsageError, match="position 2"):
        read_request(io.BytesIO(b"ab\xff"))
    with pytest.raises(UsageError, match="bytes"):
        read_request(io.BytesIO(b"x" * (MAX_STDIN_BYTES + 1)))


def test_a_pipe_loads_neither_the_line_editor_nor_rich() -> None:
    program = (
        "import asyncio, sys; from tests.channels.terminal.fakes import answer, scripted;"
        "from pikobot.channels.terminal.once import answer_once;"
        "from pikobot.channels.terminal.services import ChatOptions;"
        "services = scripted(answer('Porto')).services;"
        "asyncio.run(answer_once(services, '?', ChatOptions(), sys.stdout, sys.stderr));"
        "print(sorted({'rich', 'prompt_toolkit'} & sys.modules.keys()))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Porto\n[]\n"
