import io

from pikobot.channels.terminal.blocks import MAX_TAIL_CHARS
from pikobot.channels.terminal.live_view import LiveView, open_console
from pikobot.channels.terminal.views import Notices

from .terminal import screen


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_view(terminal: FakeTerminal, width: int = 40, height: int = 12) -> LiveView:
    environ = {"TERM": "xterm", "COLUMNS": str(width), "LINES": str(height), "NO_COLOR": "1"}
    ticks = iter(range(1_000_000))
    return LiveView(open_console(terminal, environ), Notices(terminal, environ), lambda: next(ticks) * 0.01)


def test_blocks_stand_once_on_the_screen_with_a_line_between_them() -> None:
    terminal = FakeTerminal()
    view = open_view(terminal)
    for char in "# Porto\n\n你三月**搬到**了波尔图。\n\n- one\n- two\n\n```\ncode\n```\nend":
        view.text(char)
    view.close()
    assert screen(terminal.getvalue()) == [
        "Porto", "", "你三月搬到了波尔图。", "", " • one", " • two", "", "code", "", "end", "",
    ]  # fmt: skip


def test_the_unfinished_rest_is_visible_before_its_block_ends() -> None:
    terminal = FakeTerminal()
    view = open_view(terminal)
    view.text("half a sen")
    assert screen(terminal.getvalue()) == ["half a sen"]
    view.close()


def test_an_activity_is_shown_and_leaves_no_trace() -> None:
    terminal = FakeTerminal()
    view = open_view(terminal)
    view.activity("searching memory…")
    assert screen(terminal.getvalue()) == ["searching memory…"]
    view.activity(None)
    view.text("Porto")
    view.close()
    assert screen(terminal.getvalue()) == ["Porto", ""]


def test_a_notice_stands_above_the_unfinished_rest() -> None:
    terminal = FakeTerminal()
    view = open_view(terminal)
    view.text("Por")
    view.notice("no embeddings\x1b[2J")
    view.text("to")
    view.close()
    assert screen(terminal.getvalue()) == ["no embeddings", "Porto", ""]


def test_the_region_never_exceeds_the_screen() -> None:
    terminal = FakeTerminal()
    view = open_view(terminal, width=20, height=8)
    for number in range(60):
        view.text(f"- item {number}\n")
    drawn = terminal.getvalue()
    assert max(part.count("\n") for part in drawn.split("\x1b[?25l")[-1].split("\r")) < 8
    view.close()
    assert screen(terminal.getvalue()) == [*(f" • item {number}" for number in range(60)), ""]


def test_control_sequences_of_the_answer_reach_no_terminal() -> None:
    terminal = FakeTerminal()
    view = open_view(terminal)
    for piece in ["safe \x1b", "]0;title", "\x07\x9b2Jtext\x1b[", "5mx &#27;[31m"]:
        view.text(piece)
    view.close()
    assert "title" not in terminal.getvalue()
    assert "\x1b[5m" not in terminal.getvalue()
    assert "2J" not in terminal.getvalue()
    assert "\x1b[31m" not in terminal.getvalue()


def test_the_work_for_a_long_answer_is_in_proportion_to_its_length() -> None:
    def written(chars: int) -> int:
        terminal = FakeTerminal()
        view = open_view(terminal, width=80, height=24)
        for start in range(0, chars, 200):
            view.text("word " * 40 + "\n\n" if start % 2000 == 0 else "word " * 40)
        view.close()
        return len(terminal.getvalue())

    assert written(4 * 10 * MAX_TAIL_CHARS) < 4.5 * written(10 * MAX_TAIL_CHARS)
