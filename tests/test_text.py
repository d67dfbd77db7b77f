import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.errors import InvalidParams, MalformedRequest
from pikobot.text import MAX_JSON_DEPTH, Count, clean_text, parse_json


@pytest.mark.parametrize("text", ["", "I moved to Porto", "修改youer服务端 👩‍👩‍👧", "line\nline\ttab"])
def test_storable_text_comes_back_unchanged(text: str) -> None:
    assert clean_text("text", text, max_chars=40) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "query must be text, not a number"),
        (None, "query must be text, not null"),
        (["a"], "query must be text, not a list"),
        (b"a", "query must be text, not bytes"),
        ("好" * 41, "query has 41 characters; at most 40 are accepted"),
        ("ab\0c", "query has a NUL character at position 2; remove it"),
        ("你\ud83d", "query has half a surrogate pair at position 1; it is not valid text"),
    ],
)
def test_other_text_is_refused_with_field_and_position(value: object, message: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        clean_text("query", value, max_chars=40)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ('{"a": [1, 2.5, null, true, "好"]}', {"a": [1, 2.5, None, True, "好"]}),
        (b"\xef\xbb\xbf{}", {}),
        ("\ufeff[]", []),
        ('"\\ud83d\\ude00"', "😀"),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH, None),
    ],
)
def test_strict_json_is_parsed(document: str | bytes, value: object) -> None:
    parsed = parse_json(document, "the request")
    assert parsed == value or value is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "the request is not valid JSON at column 1: Expecting value"),
        ("{} {}", "the request is not valid JSON at column 4: Extra data"),
        ('{"a": 1,\n "b"}', "the request is not valid JSON at line 2, column 5: Expecting ':' delimiter"),
        ('{"a": {"b": 1, "b": 2}}', "the request has the key b twice at $.a"),
        ('{"a": 1, "a": 1}', "the request has the key a twice at $"),
        ('{"a": [0, NaN]}', "the request has NaN, which is not JSON, at $.a[1]"),
        ("[-Infinity]", "the request has -Infinity, which is not JSON, at $[0]"),
        ("[1e999]", "the request has a number too large for a float at $[0]"),
        ('{"a b": ["\\ud800"]}', 'the request has half a surrogate pair in a string at $."a b"[0]'),
        ('["\ud800"]', "the request has half a surrogate pair in a string at $[0]"),
        ('{"x": {"\\udfff": 1}}', "the request has half a surrogate pair in a key at $.x"),
        (b'{"a": "\xff"}', "the request is not UTF-8 text: invalid byte at position 7"),
        ("[" * 100_000, f"the request is nested deeper than {MAX_JSON_DEPTH} levels"),
        ("9" * 5_000, "the request has a number with too many digits"),
    ],
)
def test_anything_else_is_refused_with_its_place(document: str | bytes, message: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        parse_json(document, "the request")
    assert str(caught.value) == message
    assert str(caught.value).isprintable()


def test_nesting_is_limited_below_what_the_interpreter_bears() -> None:
    document = '{"a":' * (MAX_JSON_DEPTH + 1) + "1" + "}" * (MAX_JSON_DEPTH + 1)
    with pytest.raises(MalformedRequest, match=r"nested deeper than 100 levels at \$\.a\.a"):
        parse_json(document, "the request")


def test_the_refused_text_is_not_repeated() -> None:
    with pytest.raises(MalformedRequest) as caught:
        parse_json('{"text": "my secret wish \\ud800"}', "line 3")
    assert "wish" not in str(caught.value)


VALID: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(VALID)
def test_every_json_value_survives_the_round_trip(value: Any) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(), "it") == value
    assert parse_json(json.dumps(value), "it") == value


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 facts, 0 rows have, 0"), (1, "1 fact, 1 row has, 1"), (2, "2 facts, 2 rows have, 2")],
)
def test_a_number_and_its_noun_agree(number: int, expected: str) -> None:
    count = Count(number)
    assert f"{count:fact}, {count:row has|rows have}, {count}" == expected
    assert f"{count:>3}" == f"{number:>3}"
