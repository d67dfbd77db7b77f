import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikobot.errors import InvalidParams
from pikobot.memory import cursors

IDS = st.sets(st.integers(min_value=1, max_value=2**63 - 1), max_size=60)


@given(IDS)
def test_packed_ids_come_back(ids: set[int]) -> None:
    assert cursors.unpack_ids(cursors.pack_ids(ids)) == sorted(ids)


@given(st.binary(max_size=40))
def test_what_unpacks_is_what_would_have_been_packed(packed: bytes) -> None:
    try:
        ids = cursors.unpack_ids(packed)
    except ValueError:
        return
    assert cursors.pack_ids(ids) == packed


def test_a_thousand_neighbouring_ids_take_a_cursor_of_two_kilobytes() -> None:
    assert len(cursors.seen_cursor("0" * 24, range(10_000, 11_000))) < 2_100


def test_a_cursor_opens_only_for_what_it_was_made_for() -> None:
    cursor = cursors.position_cursor("aa", [5, 7])
    assert cursors.read_position(cursor, "aa", 2) == [5, 7]
    with pytest.raises(InvalidParams, match="search again"):
        cursors.read_position(cursor, "bb", 2)
    with pytest.raises(InvalidParams, match="search again"):
        cursors.read_position(cursor, "aa", 1)


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "x",
        "é",
        "====",
        "bnVsbA",
        base64.urlsafe_b64encode(b'{"f":"aa","s":"!"}').decode(),
        base64.urlsafe_b64encode(b'{"f":"aa","s":"gA=="}').decode(),
        base64.urlsafe_b64encode(b'{"f":"aa","z":1}').decode(),
    ],
)
def test_garbage_is_refused_with_the_remedy(garbage: str) -> None:
    with pytest.raises(InvalidParams, match=r"^cursor: .*search again without it"):
        cursors.read_seen(garbage, "aa")


def test_a_position_beyond_the_database_is_refused() -> None:
    with pytest.raises(InvalidParams):
        cursors.read_position(cursors.position_cursor("aa", [2**70]), "aa", 1)
