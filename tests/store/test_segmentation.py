import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.store.text.segmentation import fold, match_expression, pairs, pieces, quoted, segment

TOKENIZER = "porter unicode61 remove_diacritics 2"
MIXED = "修改youer服务端"


def index(*texts: str) -> apsw.Connection:
    conn = apsw.Connection(":memory:")
    conn.execute(f"CREATE VIRTUAL TABLE texts USING fts5 (text, content = '', tokenize = '{TOKENIZER}')")
    for rowid, text in enumerate(texts, 1):
        conn.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (rowid, segment(text)))
    return conn


def matching(conn: apsw.Connection, query: str) -> list[int]:
    expression = match_expression(query)
    if expression is None:
        return []
    found = conn.execute("SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid", (expression,))
    return [row[0] for row in found]


def test_a_mixed_run_is_cut_at_the_borders_of_its_scripts() -> None:
    assert segment(MIXED).split() == ["修改", "改", "youer", "服务", "务端", "端"]


@pytest.mark.parametrize(
    "query", ["youer", "服务", "端", "改", "务", "服务端", "修改", MIXED, "改youer服", "YOUER"]
)
def test_every_part_of_a_mixed_run_finds_it(query: str) -> None:
    assert matching(index("无关 nothing", MIXED, f"请{MIXED}吧"), query) == [2, 3]


@pytest.mark.parametrize("query", ["务服", "端服务", "you", "改服务", "修改 server"])
def test_what_a_mixed_run_does_not_hold_does_not_find_it(query: str) -> None:
    assert matching(index(MIXED), query) == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ｃａｆé", "the CAFE on the corner"),
        ("running", "she runs every day"),
        ("STRASSE", "die Straße 5"),
        ("ﾃﾚﾋﾞ", "テレビを見る"),
        ("서울", "나는 서울에서 산다"),
        ("佐々木", "佐々木さん"),
        ("𠀀𠀁", "字𠀀𠀁字"),
        ("ΣΊΣΥΦΟΣ", "ο σίσυφος"),
        ("İstanbul", "istanbul"),
        ("ﷺ", "صلى الله عليه وسلم"),
    ],
)
def test_forms_of_the_same_word_are_equal(query: str, text: str) -> None:
    assert matching(index(text, "别的 other"), query) == [1]


@pytest.mark.parametrize(
    "query", ["", " \n", "🎉", "* ^ : - + ( ) { }", '"', "\0", "\ud800", "、。！", "\u0301"]
)
def test_a_query_without_words_is_no_expression(query: str) -> None:
    assert match_expression(query) is None


@pytest.mark.parametrize(
    "query",
    [
        "cat AND",
        "NOT cat",
        "cat OR dog",
        "NEAR(cat dog)",
        "text:cat",
        "cat*",
        "^cat",
        '"cat',
        "cat -dog",
        "{cat}",
        "cat\0dog",
    ],
)
def test_operators_are_words_like_any_other(query: str) -> None:
    words = list(pieces(query))
    assert matching(index(" ".join(words), " ".join(words[:1]) if len(words) > 1 else "dog"), query) == [1]


def test_parts_apart_must_all_occur_and_parts_together_in_order() -> None:
    conn = index("red apple", "apple, red", "red")
    assert (matching(conn, "apple red"), matching(conn, "apple-red")) == ([1, 2], [2])


def test_combining_marks_without_end_are_segmented_in_linear_time() -> None:
    assert len(segment("a" + "\u0301\u0316" * 200_000)) < 1_000_000


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_text_is_segmented_alike_once_and_twice_and_never_breaks_a_query(text: str) -> None:
    conn = index(text)
    assert fold(fold(text)) == fold(text)
    matching(conn, text)
    for piece in pieces(text):
        conn.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (quoted(piece),)).fetchall()
    conn.execute("INSERT INTO texts (texts, rowid, text) VALUES ('delete', 1, ?)", (segment(text),))
    conn.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")


@given(st.text("天地玄黄宇宙", max_size=12), st.text("天地玄黄宇宙", min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_a_chinese_run_finds_exactly_the_texts_that_contain_it(text: str, query: str) -> None:
    assert matching(index(text), query) == ([1] if query in text else [])


def test_pairs_overlap_and_a_lone_character_stays() -> None:
    assert (pairs("服务端"), pairs("端")) == (["服务", "务端"], ["端"])
