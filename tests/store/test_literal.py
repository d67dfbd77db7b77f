import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.store.text.literal import (
    contains_folded,
    contains_word_folded,
    excerpt,
    find_folded,
    folded,
    words_around,
)
from pikobot.store.text.segmentation import fold

LETTERS = "aAsSßẞİiıσςΣe\u0301\u0307éﬁfI端服，１1ﾃﾊﾞテパ\u309a각\u1100\u1161\u11a8 "


def clusters(text: str) -> list[str]:
    """What can be folded apart from each other."""
    parts: list[str] = []
    for char in text:
        first = unicodedata.normalize("NFKD", char)[0]
        if parts and (unicodedata.combining(first) or "\u1160" <= first <= "\u11ff"):
            parts[-1] += char
        else:
            parts.append(char)
    return parts


def naive_span(text: str, needle: str, start: int) -> tuple[int, int] | None:
    """The first folded position that matches, as the original characters that it covers."""
    compared: list[tuple[str, int, int]] = []
    at = start
    for part in clusters(text[start:]):
        compared += [(char, at, at + len(part)) for char in folded(part)]
        at += len(part)
    wanted = folded(needle)
    for first in range(len(compared) - len(wanted) + 1):
        part_of = compared[first : first + len(wanted)]
        if wanted and "".join(char for char, _, _ in part_of) == wanted:
            return part_of[0][1], part_of[-1][2]
    return None


@given(st.text(LETTERS, max_size=20), st.text(LETTERS, max_size=3), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_matches_are_those_of_a_naive_scan(text: str, needle: str, start: int) -> None:
    assert find_folded(text, needle, start) == naive_span(text, needle, start)


@given(st.text(max_size=30), st.text(min_size=1, max_size=2))
@settings(max_examples=100, deadline=None)
def test_containing_and_finding_agree(text: str, needle: str) -> None:
    assert contains_folded(text, folded(needle)) == (find_folded(text, needle) is not None)


@pytest.mark.parametrize(
    ("text", "needle", "found"),
    [
        ("Die Straße hier", "STRASSE", "Straße"),
        ("Das MASS", "maß", "MASS"),
        ("ΟΔΟΣ οδος", "οδός", None),
        ("Ο ΟΔΟΣ", "οδος", "ΟΔΟΣ"),
        ("in İstanbul", "i\u0307stanbul", "İstanbul"),
        ("请修改youer服务端吧", "改YOUER服", "改youer服"),
        ("请修改youer服务端吧", "端", "端"),
        ("ß", "s", "ß"),
        ("anything", "", None),
        ("my Cafe\u0301 here", "café", "Cafe\u0301"),
        ("my Café here", "cafe\u0301", "Café"),
        ("a Cafe\u0301", "cafe", None),
        ("call １３８０１３８００００ now", "13801380000", "１３８０１３８００００"),
        ("call 13801380000", "１３８", "138"),
        ("明日のﾃｽﾄです", "テスト", "ﾃｽﾄ"),
        ("テスト", "ﾃｽﾄ", "テスト"),
        ("ﾊﾞｽ", "バ", "ﾊﾞ"),
        ("İstanbul", "istanbul", "İstanbul"),
        ("in ISTANBUL", "İstanbul", "ISTANBUL"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국", "\u1112\u1161\u11ab\u1100\u116e\u11a8"),
        ("⽤户", "用户", "⽤户"),
        ("好，ＯＫ！", "好,ok", "好，ＯＫ"),
    ],
)
def test_case_is_folded_and_the_original_is_quoted(text: str, needle: str, found: str | None) -> None:
    span = find_folded(text, needle)
    assert (None if span is None else text[slice(*span)]) == found


def test_the_search_goes_on_after_a_match() -> None:
    assert [find_folded("aXßAx", "ax", start) for start in range(4)] == [(0, 2), (3, 5), (3, 5), (3, 5)]


def test_a_short_text_is_its_own_excerpt() -> None:
    assert excerpt("端到端", (1, 2)) == "端到端"


def test_an_excerpt_shares_its_room_between_both_sides_and_uses_what_one_leaves() -> None:
    text = "".join(chr(0x4E00 + i) for i in range(100))
    assert [excerpt(text, span, 10) for span in ((50, 52), (1, 2), (98, 99))] == [
        text[46:56],
        text[:10],
        text[90:],
    ]


def test_a_match_longer_than_the_excerpt_is_shown_from_its_beginning() -> None:
    assert excerpt("0123456789", (2, 9), 4) == "2345"


@pytest.mark.parametrize("cluster", ["👩‍👩‍👧", "👍🏽", "e\u0301", "🇵🇹", "\r\n", "❤️"])
def test_the_edges_of_an_excerpt_cut_no_cluster(cluster: str) -> None:
    text = cluster * 20 + "x" + cluster * 20
    at = text.index("x")
    for limit in range(1, 30):
        shown = excerpt(text, (at, at + 1), limit)
        assert len(shown) <= limit
        assert set(shown.split("x")) <= {cluster * n for n in range(20)}


@given(st.text(max_size=60), st.data(), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_an_excerpt_is_part_of_the_text_holds_the_match_and_keeps_the_limit(
    text: str, data: st.DataObject, limit: int
) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    shown = excerpt(text, (begin, end), limit)
    assert shown in text
    assert len(shown) <= limit
    if end - begin <= limit:
        assert text[begin:end] in shown


def test_a_mark_that_belongs_to_the_match_stays_with_it() -> None:
    assert unicodedata.normalize("NFC", excerpt("xe\u0301x", (1, 3), 2)) == "é"


@pytest.mark.parametrize(
    ("text", "needle", "inside"),
    [
        ("I like tea.", "tea", []),
        ("TEA!", "tea", []),
        ("Ana's tea_pot", "ana", []),
        ("Who teaches? A steak, steak", "tea", ["teaches", "steak"]),
        ("PIN4711", "4711", ["PIN4711"]),
        ("tea and steak", "tea", []),
        ("在Porto住", "porto", []),
        ("我喜欢喝茶", "喝茶", []),
        ("née Müller", "e", ["née", "Müller"]),
        ("nothing", "tea", None),
    ],
)
def test_a_word_is_found_where_no_word_goes_on_around_it(
    text: str, needle: str, inside: list[str] | None
) -> None:
    assert contains_word_folded(text, needle) == (inside == [])
    if inside:
        assert words_around(text, needle) == inside


def test_what_folds_into_han_is_known() -> None:
    for number in (*range(0xD800), *range(0xE000, 0x30000)):
        text = f"{chr(number)}\u00e9"
        compared = folded(text)[0]
        is_han = "\u4e00" <= compared <= "\u9fff"
        assert not is_han or contains_folded(text, compared), hex(number)


@given(st.text(LETTERS.translate(dict.fromkeys(map(ord, "İ\u0307"))), max_size=40))
@settings(max_examples=200, deadline=None)
def test_texts_are_compared_as_they_are_indexed(text: str) -> None:
    assert folded(text) == fold(text)


def test_a_text_of_marks_takes_no_longer_than_others() -> None:
    text = "e" + "\u0323\u0301" * 200_000 + " end"
    assert find_folded(text, "END") == (400_002, 400_005)
