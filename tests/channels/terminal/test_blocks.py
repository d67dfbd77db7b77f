import itertools

from hypothesis import given
from hypothesis import strategies as st

from pikobot.channels.terminal.blocks import MAX_TAIL_CHARS, Block, BlockSplitter

lines = st.sampled_from(
    [
        "",
        "text",
        "# 标题",
        "- item",
        "  - nested",
        "    indented",
        "1. one",
        "```python",
        "```",
        "~~~~",
        "| a | b |",
        "|---|---|",
        "> quote",
        "x" * 1500,
        "长" * 9000,
        "a `code` span",
        "***",
        "-",
        "12",
    ]
)
documents = st.lists(lines, max_size=40).map("\n".join)


def split(text: str, cuts: list[int]) -> list[Block]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    splitter = BlockSplitter()
    blocks: list[Block] = []
    for start, end in itertools.pairwise(places):
        blocks += splitter.feed(text[start:end])
        assert len(splitter.tail.text) <= MAX_TAIL_CHARS
    return blocks + splitter.finish()


@given(documents, st.lists(st.integers(0, 400), max_size=10))
def test_blocks_put_together_are_the_text_whatever_the_pieces(text: str, cuts: list[int]) -> None:
    assert "".join(block.text for block in split(text, cuts)) == text


@given(documents.filter(lambda text: len(text) < MAX_TAIL_CHARS), st.lists(st.integers(0, 400), max_size=10))
def test_the_borders_do_not_depend_on_the_pieces(text: str, cuts: list[int]) -> None:
    assert split(text, cuts) == split(text, [])


def texts(document: str) -> list[str]:
    return [block.text for block in split(document, list(range(len(document))))]


def test_a_blank_line_ends_a_paragraph() -> None:
    assert texts("one\ntwo\n\n第三\n") == ["one\ntwo\n\n", "第三\n"]


def test_code_stays_whole_and_ends_with_its_fence() -> None:
    assert texts("Look:\n```sh\na\n\nb\n```\nafter") == ["Look:\n```sh\na\n\nb\n```\n", "after"]


def test_a_fence_is_closed_by_its_own_kind_and_length_only() -> None:
    document = "````md\n```\ninner\n\n```\n````\n"
    assert texts(document) == [document]


def test_a_list_with_blank_lines_is_one_block() -> None:
    assert texts("- a\n\n  more\n\n- b\n\n10. c\n\nend\n") == ["- a\n\n  more\n\n- b\n\n10. c\n\n", "end\n"]


def test_a_finished_paragraph_is_given_out_when_the_next_one_begins() -> None:
    splitter = BlockSplitter()
    assert splitter.feed("first\n\n") == []
    assert splitter.feed("s") == [Block("first\n\n")]
    assert splitter.tail == Block("s")


def test_code_cut_at_the_limit_goes_on_as_code() -> None:
    code = "".join(f"line {number}\n" for number in range(600))
    blocks = split(f"```python\n{code}```\n", [])
    assert len(blocks) == 2
    assert blocks[0].text.startswith("```python\nline 0\n")
    assert blocks[1].markdown.startswith("```python\nline ")
    assert blocks[1].is_continued


def test_a_table_cut_at_the_limit_repeats_its_header() -> None:
    head = "| 城市 | year |\n|---|---|\n"
    blocks = split(head + "| 波尔图 | 2024 |\n" * 400, [])
    assert len(blocks) > 1
    assert all(block.markdown.startswith(head) for block in blocks)


def test_a_list_cut_at_the_limit_is_cut_between_items() -> None:
    blocks = split("".join(f"- item {number}\n  its text\n" for number in range(400)), [])
    assert len(blocks) > 1
    assert all(block.text.startswith("- item") for block in blocks)


def test_a_long_line_is_cut_behind_a_sentence_where_there_is_one() -> None:
    blocks = split("我搬到了波尔图。" * 1000, [])
    assert [block.text[-1] for block in blocks] == ["。"] * len(blocks)
