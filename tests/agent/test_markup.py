"""What of an answer is tool markup, in whatever pieces it comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikobot.agent.markup import MarkupFilter

CALL = '<tool_call>\n{"name": "memory_search", "arguments": {"query": "<b>"}}\n</tool_call>'
RESPONSE = "<tool_response>\n我搬到了波尔图\n\n</tool_response>"


def shown(*pieces: str) -> str:
    markup = MarkupFilter()
    return "".join(map(markup.feed, pieces)) + markup.finish()


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        (CALL, ""),
        (f"{CALL}\n{CALL}", ""),
        (f"{CALL}{RESPONSE}", ""),
        (f"Let me look.\n{CALL}\n波尔图。", "Let me look.\n波尔图。"),
        (f"  {RESPONSE} Porto.", " Porto."),
        (f"Porto.\n{CALL[:-5]}", "Porto.\n"),
        ("Porto.\n<tool_call>", "Porto.\n"),
        (f"{RESPONSE}\n\n- Porto\n", "\n- Porto\n"),
    ],
)
def test_blocks_are_left_out_in_whatever_pieces_they_come(text: str, visible: str) -> None:
    assert shown(text) == visible
    assert shown(*text) == visible


@pytest.mark.parametrize(
    "text",
    [
        "Qwen writes <tool_call> before a call.",
        f"```\n{CALL}\n```",
        "<tool_calling>\n<tool",
        "</tool_call>",
        "<b>\n<tool_cal",
        "  \n`` ",
        "",
    ],
)
def test_what_is_no_such_block_stays_byte_for_byte(text: str) -> None:
    assert shown(text) == text
    assert shown(*text) == text


@given(st.lists(st.text(alphabet="<>/tol_cars \n`é")))
def test_without_a_whole_tag_everything_is_passed_on(pieces: list[str]) -> None:
    text = "".join(pieces)
    if "<tool_call>" not in text:
        assert shown(*pieces) == text


def test_text_is_held_back_only_while_it_may_begin_a_block() -> None:
    markup = MarkupFilter()
    assert [markup.feed(piece) for piece in ("Porto", ".", "\n", "<tool", "s>", " ")] == [
        "Porto", ".", "\n", "", "<tools>", " "
    ]  # fmt: skip
