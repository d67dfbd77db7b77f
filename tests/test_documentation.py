"""README, SECURITY and RECOVERY say what is so: sessions are run, names and defaults are compared with the code."""

import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pikobot.channels.operator.methods import METHODS
from pikobot.channels.terminal.slash import CommandName
from pikobot.cli.app import app
from pikobot.config import Config, config_keys
from pikobot.errors import ExitCode

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "SECURITY.md", "RECOVERY.md")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS = README.partition("\n## Settings\n")[2].partition("\n## ")[0]


def test_the_session_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    [session] = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for block in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = block.partition("\n")
        command = command.replace("~/piko", str(tmp_path / "piko"))
        command = re.sub(r"^pikobot", f"{sys.executable} -m pikobot", command)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=True)
        assert re.fullmatch(_pattern(expected), done.stdout), (command, done.stdout)


def _pattern(expected: str) -> str:
    """What was printed on another day: … stands for anything, a date for today's."""
    today = datetime.now().astimezone()
    pattern = re.escape(expected).replace("…", '[^"]*')
    pattern = pattern.replace(re.escape("30 November 2026"), f"{today.day} {today:%B} {today.year}")
    pattern = pattern.replace(re.escape("2026年11月30日"), f"{today.year}年{today.month}月{today.day}日")
    return pattern.replace(re.escape("2026-11-30"), f"{today:%Y-%m-%d}")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_line_in_the_documents_has_a_known_command_and_options(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\$ )?(pikobot [a-z].*)$|`(pikobot [a-z][^`]*)`", text, re.MULTILINE)
    assert lines or document == "SECURITY.md"
    for line in (first or second for first, second in lines):
        name = line.split()[1]
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == ExitCode.DONE, line
        for option in re.findall(r"(?<![\w-])--[a-z-]+", line):
            assert option in shown.output, (line, option)


def test_every_command_is_in_the_readme() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    commands = re.findall(r"^  ([a-z]+) ", shown.partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE)
    assert commands
    for command in commands:
        assert f"pikobot {command} " in README, command


def test_every_method_of_the_operator_is_in_the_readme_and_no_other() -> None:
    table = README.partition("### RPC")[2].partition("###")[0]
    rows = re.findall(r"^\| (`.*?`) \| ", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(.*?)`", row)} == set(METHODS)


def test_every_chat_command_is_in_the_readme() -> None:
    for command in CommandName:
        assert f"`/{command.value}`" in README, command


def test_the_settings_that_the_readme_names_exist_with_those_defaults() -> None:
    defaults = Config().model_dump()
    rows = re.findall(
        r"^\| (`[a-z]+\.[a-z_]+`(?:, `[a-z]+\.[a-z_]+`)*) \| ([^|]*) \|", SETTINGS, re.MULTILINE
    )
    assert rows
    for names, written in rows:
        keys = re.findall(r"`([a-z]+\.[a-z_]+)`", names)
        assert all(key in config_keys() for key in keys), names
        values = [defaults[key.partition(".")[0]][key.partition(".")[2]] for key in keys]
        if re.match(r"[\d`]", written):
            assert written.strip().strip("`").split(", ") == [
                f"{value:g}" if isinstance(value, float | int) else value for value in values
            ]


def test_the_readme_lists_the_exit_codes() -> None:
    listed = re.findall(r"(\d+) [a-z]", README.partition("Exit codes:")[2].partition("\n\n")[0])
    assert {int(code) for code in listed} == {code.value for code in ExitCode} | {130, 143}
