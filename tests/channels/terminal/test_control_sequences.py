import itertools
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.channels.terminal.control_sequences import (
    MAX_PAYLOAD_CHARS,
    ControlStripper,
    strip_control_sequences,
)

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
hostile = st.text(
    st.sampled_from("\x1b\x1b[]P^_X\\0123;?hlmAH \n\t\r\x07\x9b\x9c\x9d\x90\x7fab中"), max_size=60
)


def test_sequences_go_and_their_text_stays() -> None:
    for written, shown in [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Htop", "top"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x9ccopied", "copied"),
        ("\x9b31mC1\x9d0;t\x9c.", "C1."),
        ("\x1bPdevice\x1b\\control", "control"),
        ("\x1bcreset", "reset"),
        ("\x1b(Bcharset", "charset"),
        ("bell\x07 back\x08 nul\x00 del\x7f", "bell back nul del"),
        ("line\r\nline\ttab", "line\nline\ttab"),
        ("波尔图\x1b[1m，葡萄牙", "波尔图，葡萄牙"),
    ]:
        assert strip_control_sequences(written) == shown


def test_an_unended_title_swallows_no_more_than_its_line_or_the_limit() -> None:
    assert strip_control_sequences("\x1b]0;never ended\nnext line") == "\nnext line"
    assert strip_control_sequences("\x1b]" + "x" * (MAX_PAYLOAD_CHARS + 5)) == "xxxxx"


@given(hostile)
def test_no_control_character_survives(text: str) -> None:
    assert CONTROL.search(strip_control_sequences(text)) is None


@settings(max_examples=100)
@given(hostile, st.lists(st.integers(0, 60), max_size=8))
def test_pieces_are_stripped_like_the_whole(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(text)]
    stripper = ControlStripper()
    pieces = [stripper.feed(text[start:end]) for start, end in itertools.pairwise(places)]
    assert "".join(pieces) + stripper.finish() == strip_control_sequences(text)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert strip_control_sequences(text) == text
