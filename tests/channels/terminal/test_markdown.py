import io

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pikobot.channels.terminal.live_view import open_console
from pikobot.channels.terminal.markdown import Trimmed, render

from .terminal import cells


def shown(text: str, width: int = 60) -> str:
    sink = io.StringIO()
    console = open_console(sink, {"COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"})
    console.print(Trimmed(render(text, width)))
    return sink.getvalue()


def test_links_and_images_show_their_address() -> None:
    assert shown("[here](https://a.b/c?d=1) <https://x.y> ![a cat](http://i/c.png)") == (
        "here (https://a.b/c?d=1) https://x.y a cat (http://i/c.png)\n"
    )


def test_html_definitions_and_markup_are_text() -> None:
    for text in [
        "List<String> and <div>",
        "[red]not markup[/red] :smile:",
        "[1]: http://example.org",
        "<b>bold</b>",
        "&#27;]0;t",
    ]:
        assert "\x1b" not in shown(text)
        assert shown(text.replace("&#27;", "")) == text.replace("&#27;", "") + "\n"


def test_line_breaks_stay() -> None:
    assert shown("第一行\nsecond") == "第一行\nsecond\n"


def test_code_keeps_its_indentation_and_has_no_padding() -> None:
    assert shown("```python\ndef f():\n    return 1\n```") == "def f():\n    return 1\n"


def test_a_table_too_wide_for_the_screen_is_shown_as_its_source() -> None:
    table = "| a | b | c |\n|---|---|---|\n| 1 | 2 | 中 |\n"
    assert shown(table, width=20) == table
    assert "|" not in shown(table, width=60)


documents = st.lists(
    st.sampled_from(
        [
            "# h",
            "> q",
            "> > q",
            "- a",
            "  - b",
            "1. x",
            "| a | b |",
            "|---|---|",
            "```",
            "```nosuch",
            "![",
            "](u)",
            "<b>",
            "**x",
            "~~y~~",
            "`z`",
            "[t](http://u)",
            "---",
            "    i",
            "",
            "中文标题",
            "[![i](u)](v)",
            "\\",
        ]
    ),
    max_size=14,
).map("\n".join)


@settings(max_examples=100, deadline=None)
@given(documents | st.text(max_size=60), st.sampled_from([1, 20, 80]))
def test_any_text_renders_at_any_width_without_control_characters(text: str, width: int) -> None:
    sink = io.StringIO()
    console = Console(file=sink, width=width, markup=False, emoji=False, highlight=False, no_color=True)
    console.print(Trimmed(render(text.replace("\x1b", ""), width)))
    assert "\x1b" not in sink.getvalue()
    if width == 80:
        assert all(cells(line) <= width for line in sink.getvalue().split("\n"))
