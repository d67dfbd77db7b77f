"""What `pikobot run` says around a chat is in its language: that of the message, or else of the locale."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pikobot.cli import making
from pikobot.cli.app import app
from pikobot.errors import ExitCode
from pikobot.serving import acquire_serving_lock
from tests.backup.instances import make_instance

KEYS = ("PIKOBOT_EMBEDDING_API_KEY", "OPENAI_API_KEY")
ENGLISH, CHINESE = {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "zh_CN.UTF-8"}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(making, "_has_local_model", lambda: False)


def run(root: Path, *arguments: str, environ: dict[str, str], stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(app, ["run", "--instance", str(root), *arguments], input=stdin, env=environ)


@pytest.mark.parametrize(
    ("text", "environ", "begins"),
    [
        ("I moved to Porto", CHINESE, "made a new instance at {}; "),
        ("我搬到了波尔图", ENGLISH, "已建立新实例 {}；"),
        ("Porto", ENGLISH, "made a new instance at {}; "),
        ("Porto", CHINESE, "已建立新实例 {}；"),
    ],
)
def test_a_new_instance_is_announced_in_the_language_of_the_chat(
    tmp_path: Path, text: str, environ: dict[str, str], begins: str
) -> None:
    said = run(tmp_path / "new", "-m", text, environ=environ).stderr.splitlines()
    assert said[0].startswith(begins.format(tmp_path / "new"))
    assert f"`pikobot init --instance {tmp_path / 'new'}`" in said[0]
    assert not any("embedding.provider=e5" in line for line in said)


@pytest.mark.parametrize("environ", [ENGLISH, CHINESE])
def test_a_new_instance_is_told_once_how_the_installed_model_is_turned_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    monkeypatch.setattr(making, "_has_local_model", lambda: True)
    command = f"`pikobot init --set embedding.provider=e5 --instance {tmp_path / 'new'}`"
    assert command in run(tmp_path / "new", "-m", "Porto", environ=environ).stderr
    assert command not in run(tmp_path / "new", "-m", "Porto", environ=environ).stderr
    with_key = environ | {KEYS[0]: "sk-test"}
    assert command not in run(tmp_path / "other", "-m", "/help", environ=with_key).stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "english", "chinese"),
    [
        (("-m", ""), "", "the message is empty", "消息为空"),
        (("-m", "-"), b"\xff", "stdin is not UTF-8", "不是 UTF-8 文本"),
        (("--ephemeral", "--thread", "a"), "", "leave one of them out", "不能与 --thread 同用"),
    ],
)
def test_wrong_usage_is_explained_in_the_language_of_the_locale(
    tmp_path: Path, arguments: tuple[str, ...], stdin: str | bytes, english: str, chinese: str
) -> None:
    for environ, words in ((ENGLISH, english), (CHINESE, chinese)):
        done = run(tmp_path / "i", *arguments, environ=environ, stdin=stdin)
        assert (done.exit_code, words in done.stderr) == (ExitCode.USAGE, True), done.stderr


def test_an_instance_that_is_busy_is_so_in_the_language_of_the_message(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    with acquire_serving_lock(instance):
        english = run(instance.root, "-m", "I moved to Porto", environ=CHINESE)
        chinese = run(instance.root, "-m", "我搬到了波尔图", environ=ENGLISH)
    assert (english.exit_code, chinese.exit_code) == (ExitCode.BUSY, ExitCode.BUSY)
    assert "is served by process" in english.stderr
    assert "正由进程" in chinese.stderr
    assert re.findall("`[^`]*`", english.stderr) == re.findall("`[^`]*`", chinese.stderr)
