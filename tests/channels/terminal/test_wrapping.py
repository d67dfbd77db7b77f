import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikobot.channels.terminal.wording import EN, ZH, Wording
from pikobot.channels.terminal.wrapping import cells, columns_of, wrapped


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", [""]),
        ("short", ["short"]),
        ("one two three four", ["one two three", "four"]),
        ("    indented words go on below", ["    indented", "    words go", "    on below"]),
        ("/stop  cancels all of it", ["/stop  cancels", "       all of", "       it"]),
        ("- a list of words", ["- a list of", "  words"]),
        ("我搬到了波尔图，在三月。", ["我搬到了波尔", "图，在三月。"]),
        ("他说：“我不去了。”", ["他说：“我不去", "了。”"]),
        ("到了（波尔图）旁边的街", ["到了（波尔图）", "旁边的街"]),
        ("修改youer服务端 deploy", ["修改youer服务", "端 deploy"]),
        ("a" * 20, ["a" * 14, "a" * 6]),
        ("two\nlines that are long", ["two", "lines that are", "long"]),
        ("é\u0301" * 14, ["é\u0301" * 14]),
    ],
)
def test_lines_break_between_words_and_chinese_between_characters(text: str, rows: list[str]) -> None:
    assert wrapped(text, 14).split("\n") == rows


@pytest.mark.parametrize("words", [EN, ZH], ids=["en", "zh"])
@pytest.mark.parametrize("columns", [20, 40, 60])
def test_what_the_terminal_says_fits_a_narrow_screen_without_broken_words(
    words: Wording, columns: int
) -> None:
    for text in (words.help, words.recall_notice, words.scrollback):
        shown = wrapped(text, columns)
        assert max(map(cells, shown.split("\n"))) <= columns
        whole = {word for word in text.split() if word.isascii() and len(word) <= columns // 2}
        assert whole <= set(shown.split())


@given(st.text("ab  ，。“”（）我你 (é\u0301🎉\n", max_size=80), st.integers(10, 40))
def test_nothing_is_lost_and_nothing_is_wider_than_the_screen(text: str, columns: int) -> None:
    shown = wrapped(text, columns)
    assert "".join(shown.split()) == "".join(text.split())
    assert all(cells(line) <= columns for line in shown.split("\n"))


def test_only_a_terminal_has_a_width() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert columns_of(io.StringIO(), {"COLUMNS": "40"}) is None
    assert columns_of(Terminal(), {"COLUMNS": "40"}) == 40
    assert columns_of(Terminal(), {}) is None
    assert wrapped("a " * 40, None) == "a " * 40
    assert wrapped("a " * 40, 5) == "a " * 40
