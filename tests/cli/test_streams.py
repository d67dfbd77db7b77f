"""The standard streams of the real command: closed, full, without a reader, in a locale without UTF-8."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pikobot.config_file import default_config_text, set_values
from pikobot.errors import ExitCode
from pikobot.instance import Instance, create_instance
from tests.end_to_end.instances import COMMAND_TIMEOUT_S, Outcome, rows
from tests.servers.openai_server import REPOSITORY

SAID = "我的牙医是陈医生 é"
WRITING = (
    ["run", "-m", SAID],
    ["run", "-m", "/status"],
    ["rpc", "status"],
    ["rpc", "--batch", "-"],
    ["import", "jsonl", "-"],
    ["verify"],
    ["doctor"],
    ["reindex"],
    ["backup", "--force", "DEST"],
    ["restore", "DEST"],
    ["init", "--set", "chat.provider=none"],
)
READING = (
    ["run"],
    ["run", "-m", "-"],
    ["rpc", "--batch", "-"],
    ["rpc", "status", "-"],
    ["import", "jsonl", "-"],
)
LOCALES = (
    {"LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
)


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    changes = [("chat.provider", "none"), ("embedding.provider", "disabled")]
    return create_instance(tmp_path / "我的 助手", set_values(default_config_text(), changes))


def sh(instance: Instance, arguments: list[str], redirection: str = "", **environ: str) -> Outcome:
    """The command in a shell, with something for those that read stdin; stderr of the command is what is returned."""
    destination = str(instance.root.parent / "b")
    words = [destination if word == "DEST" else word for word in arguments]
    command = shlex.join([sys.executable, "-m", "pikobot", *words, "--instance", str(instance.root)])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} {redirection}"],
        input=b'{"method":"status"}\n',
        capture_output=True,
        cwd=REPOSITORY,
        env=os.environ | environ,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def stored(instance: Instance) -> list[str]:
    return [text for (text,) in rows(instance, "SELECT text FROM sources WHERE role = 'user' ORDER BY id")]


@pytest.mark.parametrize(
    ("redirection", "reason"), [(">&-", "it is closed"), (">/dev/full", "the disk is full")]
)
def test_output_that_cannot_be_written_is_one_sentence_and_1(
    instance: Instance, redirection: str, reason: str
) -> None:
    for arguments in WRITING:
        done = sh(instance, arguments, redirection)
        assert done.code == ExitCode.FAILED, (arguments, done)
        last = done.err.splitlines()[-1]
        sentence = f"stdout can't be written: {reason}; what was done is kept"
        if arguments[0] == "rpc":
            assert json.loads(last) == {"error": {"code": -32000, "message": sentence}}
        else:
            assert last == f"pikobot: {sentence}"
    for arguments in (["--help"], ["--version"], ["verify", "--help"]):
        done = sh(instance, arguments, redirection)
        assert (done.code, done.err.count("\n")) == (ExitCode.FAILED, 1)
    assert stored(instance) == [SAID]
    assert (instance.root.parent / "b").stat().st_size


def test_a_reader_that_has_gone_changes_no_outcome(instance: Instance) -> None:
    for arguments in WRITING:
        done = sh(instance, arguments, "| true")
        expected = ExitCode.FAILED if arguments[0] == "import" else ExitCode.DONE
        assert (done.code, "pikobot:" in done.err) == (expected, False), (arguments, done)
    instance.root.chmod(0o755)
    assert sh(instance, ["verify"], "| true").code == sh(instance, ["verify"], ">/dev/full").code == 2
    instance.root.chmod(0o700)
    instance.database_path.unlink()
    for redirection in ("| true", ">/dev/full", ">&-"):
        assert sh(instance, ["verify"], redirection).code == ExitCode.DAMAGED


def test_stdin_that_is_closed_is_wrong_usage_only_where_it_is_read(instance: Instance) -> None:
    for arguments in READING:
        done = sh(instance, arguments, "<&-")
        assert (done.code, "stdin can't be read: it is closed" in done.err) == (ExitCode.USAGE, True), (
            arguments
        )
    assert sh(instance, ["run", "-m", SAID], "<&-").out == "已记下。\n"
    assert sh(instance, ["verify"], "<&-").code == ExitCode.DONE
    assert sh(instance, ["init", "--telegram"], "<&-").code == ExitCode.USAGE
    assert stored(instance) == [SAID]


def test_what_cannot_be_said_on_stderr_changes_nothing(instance: Instance) -> None:
    for redirection in ("2>&-", "2>/dev/full"):
        assert sh(instance, ["run", "-m", SAID], redirection) == Outcome(0, "已记下。\n", "")
        assert sh(instance, ["rpc", "nothing"], redirection).code == ExitCode.USAGE
    assert sh(instance, ["run", "-m", SAID], "<&- >&- 2>&-").code == ExitCode.FAILED
    assert stored(instance) == [SAID] * 3
    assert sh(instance, ["verify"]).code == ExitCode.DONE  # nothing was written into a file instead


@pytest.mark.parametrize("environ", LOCALES, ids=lambda environ: " ".join(environ.values()))
def test_text_is_utf8_where_the_locale_knows_ascii_only(instance: Instance, environ: dict[str, str]) -> None:
    assert sh(instance, ["run", "--thread", "话题", "-m", SAID], **environ).out == "已记下。\n"
    assert SAID in sh(instance, ["run", "-m", "我的牙医是谁？"], **environ).out
    found = sh(instance, ["rpc", "memory.search", '{"query":"牙医","limit":1}'], **environ)
    assert json.loads(found.out)["results"][0]["text"] == SAID
    assert "我的 助手" in sh(instance, ["doctor"], **environ).out
    assert "没有文件.jsonl" in sh(instance, ["import", "jsonl", "没有文件.jsonl"], **environ).err
    assert "话题" in sh(instance, ["run", "-m", "/threads"], **environ).out
    assert stored(instance) == [SAID, "我的牙医是谁？"]


def test_bytes_that_are_no_utf8_are_refused_and_not_altered(instance: Instance) -> None:
    done = sh(instance, ["run", "-m", "caf\udce9"], LC_ALL="C", PYTHONUTF8="0")
    assert (done.code, "half a surrogate pair at position 3" in done.err) == (ExitCode.USAGE, True)
    assert stored(instance) == []


def test_a_crash_says_where() -> None:
    crash = "from pikobot.cli import app; import os; app.app = lambda: os.kill(os.getpid(), 11); app.main()"
    done = subprocess.run([sys.executable, "-c", crash], capture_output=True, text=True, check=False)
    assert done.returncode == -11
    assert done.stderr.startswith("Fatal Python error: Segmentation fault")
    assert "in main" in done.stderr
