import random
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.memory.forgetting.multi_search import FEW, MultiSearch


def strings_in(data: bytes, strings: set[bytes], *, few: int = FEW) -> set[bytes]:
    return MultiSearch(strings).found_in(data, few=few)


@given(
    st.lists(st.sampled_from([b"a", b"ab", b"b", b"\0", b"\xff", "紫".encode(), b"xyz"]), max_size=60),
    st.lists(st.integers(0, 200), min_size=2, max_size=20),
    st.lists(st.binary(min_size=1, max_size=8), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_one_pass_finds_what_searching_one_by_one_finds(
    pieces: list[bytes], cuts: list[int], others: list[bytes]
) -> None:
    data = b"".join(pieces)
    wanted = {data[first:last] for first, last in pairwise(cuts)} | set(others)
    expected = {string for string in wanted if string and string in data}
    assert strings_in(data, wanted) == expected
    assert strings_in(data, wanted, few=-1) == expected


@pytest.mark.parametrize("position", [0, 1, 2, 3, 999_983, 999_984])
def test_a_string_is_found_at_every_alignment_and_at_both_ends(position: int) -> None:
    data = bytearray(random.Random(1).randbytes(1_000_000))
    string = "埋在树下的紫水晶".encode()[:16]
    data[position : position + 16] = string
    others = {random.Random(seed).randbytes(12) for seed in range(10, 510)}
    assert strings_in(bytes(data), {string, *others}) == {string}


@pytest.mark.parametrize("few", [FEW, -1])
def test_text_in_ascii_has_no_string_with_other_bytes(few: int) -> None:
    search = MultiSearch({b"old oak", b"o\0l\0d\0", "老橡树".encode(), "中".encode("utf-16-le")})
    assert search.found_in(b"-N the old oak " * 9, few=few) == {b"old oak", "中".encode("utf-16-le")}
    assert search.found_in(b"the old oak o\0l\0d\0 " * 9, few=few) == {b"old oak", b"o\0l\0d\0"}


def test_common_strings_in_much_text_are_found_as_well() -> None:
    text = b"the old oak tree stands under the old moon and the " * 40_000
    strings = {b"the old", b"oak tree", b"moon and", b"old sun", *(b"number %d" % n for n in range(300))}
    assert strings_in(text, strings) == {b"the old", b"oak tree", b"moon and"}


def test_strings_shorter_than_a_window_are_found_and_the_empty_one_is_not() -> None:
    data = b"." * 3_000_000 + b"xyz"
    assert strings_in(data, {b"", b"x", b"yz", b"q", b"xyz", b"xyza"}) == {b"x", b"yz", b"xyz"}
    assert strings_in(b"", {b"", b"x"}) == set()
    assert (MultiSearch({b"", b"xyz", b"yz"}).shortest, MultiSearch({b""}).shortest) == (2, sys.maxsize)


def test_the_same_strings_are_found_in_one_piece_of_data_after_another() -> None:
    search = MultiSearch({b"the oak", b"the ash", b"ash"})
    pieces = [b"near the oak tree ", b"under the ash ", b"\0\1\2 nothing ", b"the oak and the ash"]
    found = [search.found_in(piece * 1000, few=0) for piece in pieces]
    assert found == [{b"the oak"}, {b"the ash", b"ash"}, set(), {b"the oak", b"the ash", b"ash"}]
