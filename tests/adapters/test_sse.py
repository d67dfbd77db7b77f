from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.adapters.chat import CallFailure, ChatCallFailed
from pikobot.adapters.sse import MAX_EVENT_BYTES, EventDecoder


def _decode(*chunks: bytes) -> list[bytes]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_fields_other_than_data_and_comments_are_dropped() -> None:
    assert _decode(
        b": hi\nevent: x\nid: 1\nretry: 5\ndata: one\n\n: hi\n\ndata:two\ndata:\ndata: 3\n\ndata: cut"
    ) == [
        b"one",
        b"two\n\n3",
    ]


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(["data: 波", "data:", ": keep", "event: e", "", "", "data: {}"]), max_size=12
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_events_do_not_depend_on_line_ends_or_on_how_the_bytes_arrive(
    lines: list[str], end: str, cuts: list[int]
) -> None:
    whole = "".join(line + end for line in lines).encode()
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    parts = [whole[start:end] for start, end in pairwise(places)]
    expected: list[bytes] = []
    pending: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            pending.append(line[5:].strip())
        elif not line and pending:
            expected.append("\n".join(pending).encode())
            pending = []
    assert _decode(*parts) == expected


@pytest.mark.parametrize("chunk", [b"data: " + b"x" * 100_000, b"data: " + b"x" * 99_999 + b"\n"])
def test_an_endless_event_is_given_up(chunk: bytes) -> None:
    decoder = EventDecoder()
    for _ in range(MAX_EVENT_BYTES // len(chunk) - 1):
        decoder.feed(chunk)
    with pytest.raises(ChatCallFailed) as failed:
        decoder.feed(3 * chunk)
    assert failed.value.code is CallFailure.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "is_foreign"),
    [
        (b"<html>", True),
        (b'{"choices": []}', True),
        (b"data: x\n\n", False),
        (b": hi\n", False),
        (b"", False),
    ],
)
def test_a_body_that_is_no_event_stream_is_noticed(body: bytes, is_foreign: bool) -> None:
    decoder = EventDecoder()
    decoder.feed(body)
    assert decoder.has_foreign_line == is_foreign
