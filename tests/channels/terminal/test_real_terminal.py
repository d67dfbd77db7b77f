"""The chat as a process of its own at a pseudo-terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DEADLINE_S = 20.0
PASTING_ON = "\x1b[?2004h"


class Terminal:
    """Both ends of a pseudo-terminal and the chat that runs at it."""

    def __init__(self, argument: str, term: str) -> None:
        self.controller, self._device = pty.openpty()
        fcntl.ioctl(self._device, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(self._device)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.channels.terminal.scripted_chat", argument],
            cwd=ROOT,
            stdin=self._device,
            stdout=self._device,
            stderr=self._device,
            start_new_session=True,
            env=os.environ | {"TERM": term, "LC_ALL": "C.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1"},
        )
        self.term = term
        self.seen = ""

    def type(self, keys: str) -> None:
        os.write(self.controller, keys.encode())

    def wait_for(self, text: str) -> None:
        """Until the text has been written after what was waited for before."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            if time.monotonic() > deadline or not select.select([self.controller], [], [], DEADLINE_S)[0]:
                raise AssertionError(f"{text!r} did not appear in {self.seen!r}")
            self.seen += os.read(self.controller, 65536).decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def wait_for_prompt(self) -> None:
        """Until the line editor reads keys."""
        self.wait_for("> " if "dumb" in self.term else PASTING_ON)
        deadline = time.monotonic() + DEADLINE_S
        while termios.tcgetattr(self._device)[3] & termios.ICANON and time.monotonic() < deadline:
            time.sleep(0.01)

    def are_modes_restored(self) -> bool:
        return termios.tcgetattr(self._device) == self.modes

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.controller)
        os.close(self._device)


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(*getattr(request, "param", ("", "xterm-256color")))
    yield opened
    opened.close()


def test_a_conversation_with_an_answer_a_stop_a_paste_and_a_departure(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    terminal.type("\x1b[200~第一行\rline two\x1b[201~\r")
    terminal.wait_for("波尔图")
    terminal.wait_for("there in ")
    terminal.wait_for_prompt()
    terminal.type("more\r")
    terminal.wait_for("An answer without")
    terminal.type("\x03")
    terminal.wait_for("已停止。")
    terminal.wait_for_prompt()
    terminal.type("\x03")
    terminal.wait_for("再按一次 Ctrl-C")
    terminal.type("\x03")
    terminal.wait_for("['第一行\\nline two', 'more']")
    assert terminal.process.wait(DEADLINE_S) == 0
    assert terminal.are_modes_restored()


def test_what_is_typed_while_an_answer_is_shown_is_the_next_message(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    terminal.type("a\r")
    terminal.wait_for("there in ")
    terminal.type("b\r")
    terminal.wait_for("An answer without")
    terminal.type("\x03")
    terminal.wait_for_prompt()
    terminal.type("\x04")
    terminal.wait_for("['a', 'b']")
    assert terminal.process.wait(DEADLINE_S) == 0
    assert terminal.are_modes_restored()


@pytest.mark.parametrize("terminal", [("deaf", "xterm-256color")], indirect=True)
def test_a_second_ctrl_c_leaves_while_a_stop_hangs(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    terminal.type("a\r")
    terminal.wait_for("there in ")
    terminal.wait_for_prompt()
    terminal.type("b\r")
    terminal.wait_for("An answer without")
    terminal.type("\x03")
    terminal.wait_for("stopping")
    terminal.type("\x03")
    terminal.wait_for("['a', 'b']")
    assert terminal.process.wait(DEADLINE_S) == 0
    assert terminal.are_modes_restored()


@pytest.mark.parametrize("terminal", [("", "dumb")], indirect=True)
def test_a_dumb_terminal_gets_plain_text(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    terminal.type("你好\r")
    terminal.wait_for("# 波尔图")
    terminal.wait_for("in **March**.")
    assert "\x1b" not in terminal.seen
    terminal.wait_for_prompt()
    terminal.type("\x04")
    terminal.wait_for("['你好']")
    assert terminal.process.wait(DEADLINE_S) == 0
    assert terminal.are_modes_restored()
