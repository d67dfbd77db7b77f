"""The installed command as a process of its own: exit codes, signals, pipes, two processes on one instance."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.instances import (
    COMMAND_TIMEOUT_S,
    Outcome,
    answers,
    attempt_states,
    finish,
    make_instance,
    run,
    run_states,
    start,
)
from tests.servers.openai_server import ScriptedOpenAI, status, text, tool_calls


def test_the_way_from_init_to_an_answer_with_a_tool(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    root = str(tmp_path / "我的 助手")
    settings = ["chat.provider=custom", f"chat.base_url={openai_server.base_url}", "chat.model=scripted"]
    made = run("init", "--instance", root, *(part for setting in settings for part in ("--set", setting)))
    assert (made.code, made.err) == (0, "")
    openai_server.push(
        text("好的。"), tool_calls(("memory_search", '{"query":"波尔图"}')), text("2024年3月。")
    )
    assert run("run", "--instance", root, "-m", "2024年3月我搬到了波尔图") == Outcome(0, "好的。\n", "")
    asked = run("--instance", root, "run", "-m", "-", stdin="我什么时候搬到波尔图的？\n")
    assert (asked.code, asked.out) == (0, "2024年3月。\n")
    assert "2024年3月我搬到了波尔图" in openai_server.requests()[2].body["messages"][-1]["content"]


def test_a_new_instance_answers_from_memory_in_the_language_of_the_question(tmp_path: Path) -> None:
    root = str(tmp_path / "i")
    assert run("run", "--instance", root, "-m", "I moved to Porto in March 2024").out == "Noted.\n"
    assert run("run", "--instance", root, stdin="2024年3月我搬到了波尔图").out == "已记下。\n"
    english = run("run", "--instance", root, "-m", "Where did I move?")
    chinese = run("run", "--instance", root, stdin="我搬到哪里了？")
    assert (english.code, chinese.code) == (0, 0)
    assert english.out.endswith(", you: “I moved to Porto in March 2024”\n")
    assert chinese.out.endswith("，你：“2024年3月我搬到了波尔图”\n")


def test_a_failure_of_the_provider_has_its_exit_code_and_is_asked_once(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(status(500, {}))
    outcome = run("run", "--instance", str(instance.root), "-m", "hello")
    assert (outcome.code, outcome.out) == (5, "")
    assert run("work", "--drain", "--instance", str(instance.root)).code == 0
    assert (len(openai_server.requests()), run_states(instance)) == (1, [("unknown", "server_error")])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-m", ""], "the message is empty"),
        (["-m", "caf\udce9"], "half a surrogate pair at position 3"),
        (["--headless", "-m", "x"], "--headless has no chat"),
        (["--ephemeral", "--thread", "t", "-m", "x"], "--ephemeral keeps nothing"),
    ],
)
def test_wrong_usage_is_one_sentence(tmp_path: Path, arguments: list[str], reason: str) -> None:
    instance = make_instance(tmp_path / "i")
    outcome = run("run", "--instance", str(instance.root), *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert reason in outcome.err
    assert len(outcome.err.splitlines()) <= 3


@pytest.mark.parametrize(
    ("number", "code", "state"),
    [(signal.SIGINT, 130, ("cancelled", "stopped")), (signal.SIGTERM, 143, ("unknown", "interrupted"))],
)
def test_a_signal_in_the_middle_of_an_answer_ends_it_in_order(
    tmp_path: Path, openai_server: ScriptedOpenAI, number: signal.Signals, code: int, state: tuple[str, str]
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push({"hang": "half", "text": "half an answer"})
    with start("run", "--instance", str(instance.root), "-m", "hello") as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == "half"
        process.send_signal(number)
        outcome = finish(process)
    assert outcome.code == code
    assert "Traceback" not in outcome.err
    assert (run_states(instance), attempt_states(instance), answers(instance)) == ([state], ["unknown"], [])
    assert instance.lock_path.read_text() == ""
    openai_server.wait_for_requests(1, outcome="client_left")


def test_one_process_serves_and_the_second_says_so(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push({"hang": "accept"})
    root = str(instance.root)
    with start("run", "--instance", root, "-m", "hello") as first:
        openai_server.wait_for_requests(1)
        second = run("run", "--instance", root, "-m", "hello")
        assert (second.code, second.out) == (4, "")
        assert f"is served by process {first.pid} since 2" in second.err
        first.send_signal(signal.SIGINT)
        finish(first)
    assert len(run_states(instance)) == 1


def test_without_a_channel_the_operator_is_served_and_what_waits_is_answered(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    root = str(instance.root)
    openai_server.push({"hang": "accept"}, text("later"))
    with start("run", "--instance", root, "-m", "killed", "--thread", "t") as process:
        openai_server.wait_for_requests(1)
        process.kill()
        finish(process)
    with start("run", "--instance", root, "--headless") as server:
        assert server.stderr is not None
        assert server.stderr.readline() == f"serving {root}; Ctrl-C stops\n"
        called = run("rpc", "memory.search", json.dumps({"query": "killed"}), "--instance", root)
        assert [result["text"] for result in json.loads(called.out)["results"]] == ["killed"]
        listed = json.loads(run("rpc", "runs.list", "--instance", root).out)
        assert [one["state"] for one in listed["runs"]] == ["unknown"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(COMMAND_TIMEOUT_S) == 0
    assert run("rpc", "status", "--instance", root).code == 0
    assert len(openai_server.requests()) == 1


def test_a_reader_that_leaves_stops_the_answer(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(text("word " * 200, chunks=200, delay_ms=10))
    with start("run", "--instance", str(instance.root), "-m", "hello", stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == "word"
        process.stdout.close()
        assert process.wait(COMMAND_TIMEOUT_S) == 0
    assert run_states(instance) == [("cancelled", "stopped")]


def test_a_server_at_a_long_path_leaves_nothing_elsewhere_when_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = make_instance(tmp_path / ("长" * 60), chat_provider="none")
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    root = str(instance.root)
    for _ in range(2):  # the second time the socket of the first is still there
        with start("run", "--instance", root, "--headless") as server:
            assert server.stderr is not None
            server.stderr.readline()
            assert json.loads(run("rpc", "status", "--instance", root).out)["served"] is True
            server.kill()
            server.wait(COMMAND_TIMEOUT_S)
        assert json.loads(run("rpc", "status", "--instance", root).out)["served"] is False
        assert list(elsewhere.iterdir()) == []
