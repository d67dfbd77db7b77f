"""A word that is no command: what was probably meant is named, and can be called."""

import re

import pytest
from typer.testing import CliRunner

from pikobot.channels.operator.methods import METHODS
from pikobot.channels.terminal.slash import NAMES
from pikobot.cli.app import app
from pikobot.errors import ExitCode


def refusal(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert (done.exit_code, done.stdout) == (ExitCode.USAGE, "")
    return done.stderr


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("status", "`pikobot rpc status` or `pikobot run -m /status`?"),
        ("memory.search", "`pikobot rpc memory.search`?"),
        ("/why", "`pikobot run -m /why`?"),
        ("忘记", "`pikobot run -m /忘记`?"),
        ("help", "`pikobot --help`?"),
        ("quit", "`pikobot run`?"),
        ("verfy", "'verify'?"),
    ],
)
def test_what_was_meant_is_named(word: str, meant: str) -> None:
    assert f"Did you mean {meant}" in refusal(word, "--instance", "/nowhere")


def test_every_method_and_every_command_of_the_chat_is_found() -> None:
    for word in (*METHODS, *NAMES):
        assert re.search(r"Did you mean `pikobot ", refusal(word)), word


def test_a_word_that_is_like_nothing_is_only_refused() -> None:
    assert "No such command 'xyzzy'.\n" in refusal("xyzzy")
