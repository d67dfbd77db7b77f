import base64
import json
import struct
from typing import Any

import numpy as np
import pytest

from pikobot.adapters.embedding.answer import Wanted, parse_answer
from pikobot.adapters.embedding.vocabulary import Embedded, EmbeddingFailed

WANTED = Wanted("host:1", 2, 2)
RIGHT, UP = [3.0, 0.0], [0.0, 0.5]


def item(index: Any, embedding: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": embedding}


def coded(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def parsed(*items: dict[str, Any], **more: Any) -> Embedded:
    return parse_answer(json.dumps({"data": items, **more}).encode(), WANTED)


@pytest.mark.parametrize(
    "items",
    [
        (item(0, RIGHT), item(1, UP)),
        (item(1, UP), item(0, RIGHT)),
        (item(0, coded(*RIGHT)), item(1, coded(*UP))),
        (item(1, coded(*UP)), item(0, [3, 0])),
    ],
)
def test_vectors_come_in_the_order_of_the_texts_whatever_their_form(
    items: tuple[dict[str, Any], ...],
) -> None:
    assert np.array_equal(np.array(parsed(*items).vectors), [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "total_tokens": 8}, 7),
        ({"total_tokens": 8}, 8),
        ({}, None),
        (None, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": 10**15}, None),
    ],
)
def test_tokens_are_what_the_provider_counted(usage: object, tokens: int | None) -> None:
    assert parsed(item(0, RIGHT), item(1, UP), usage=usage).input_tokens == tokens


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ((), "malformed"),
        ((item(0, RIGHT),), "malformed"),
        ((item(0, RIGHT), item(0, UP)), "malformed"),
        ((item(0, RIGHT), item(2, UP)), "malformed"),
        ((item(1, RIGHT), item(2, UP)), "malformed"),
        ((item(0, RIGHT), item(1, UP), item(1, UP)), "malformed"),
        ((item(0, RIGHT), item(None, UP)), "malformed"),
        ((item(0, RIGHT), item(1, "not base64!")), "malformed"),
        ((item(0, RIGHT), item(1, base64.b64encode(b"12345").decode())), "malformed"),
        ((item(0, RIGHT), item(1, ["one", "two"])), "malformed"),
        ((item(0, RIGHT), item(1, None)), "malformed"),
        ((item(0, RIGHT), item(1, [1.0])), "wrong_dimension"),
        ((item(0, RIGHT), item(1, coded(1, 2, 3))), "wrong_dimension"),
        ((item(0, RIGHT), item(1, [0, 0])), "unusable_vector"),
        ((item(0, RIGHT), item(1, [1e300, 0])), "unusable_vector"),
        ((item(0, RIGHT), item(1, coded(float("nan"), 0))), "unusable_vector"),
    ],
)
def test_an_answer_without_exactly_one_good_vector_a_text_fails(
    items: tuple[dict[str, Any], ...], code: str
) -> None:
    with pytest.raises(EmbeddingFailed) as failed:
        parsed(*items)
    assert failed.value.code == code


@pytest.mark.parametrize("body", [b"", b"my diary", b"[]", b'{"data": "my diary"}', b'{"error": "my diary"}'])
def test_what_is_no_answer_fails_without_being_quoted(body: bytes) -> None:
    with pytest.raises(EmbeddingFailed, match=r"embedding\.base_url") as failed:
        parse_answer(body, WANTED)
    assert "diary" not in str(failed.value)
