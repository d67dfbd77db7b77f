"""The scripted provider's POST /v1/embeddings.

Only steps with ``"to": "embeddings"`` are played there (the builders below make them), and no other request gets
those. A step is one of

    vectors     one list of numbers a text, or null: vectors made from the texts; as base64 if that was asked for,
                unless ``as_floats``. ``usage`` (null: none) and ``indexes`` replace what would be true
    document    the whole answer, as it is: an object or text
    cut         half of an answer, then the connection is closed
    status, hang ("accept" or "headers"), malformed ("html"): as for chat

and waits for ``delay_ms`` first. Without a step the vectors are made from the texts: of 1,536 numbers, or as many as
were asked for, near each other for texts that share words or pairs of characters, and nearer for a subject.
"""

import base64
import hashlib
import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from tests.servers.openai_steps import Step

DIMENSION = 1_536
# What texts can be about, in English and Chinese: texts about the same are near each other.
SUBJECTS = (
    ("dog", "puppy", "hound", "狗", "小犬"),
    ("car", "automobile", "vehicle", "汽车", "轿车"),
    ("doctor", "physician", "clinic", "医生", "大夫"),
    ("holiday", "vacation", "trip", "假期", "旅行"),
)
SUBJECT_WEIGHT = 4.0
TARGET = "embeddings"


def vectors(*rows: Sequence[float], **options: Any) -> Step:
    """An answer with these vectors; without any, with those that are made from the texts."""
    return {"to": TARGET, "vectors": [list(row) for row in rows] or None, **options}


def embeddings(step: Step) -> Step:
    """The step, for an embeddings request."""
    return {"to": TARGET, **step}


def is_embeddings(path: str) -> bool:
    return path.endswith("/embeddings")


def answer(step: Step, request: dict[str, Any]) -> bytes:
    """The body of an answer with status 200."""
    if "document" in step:
        document = step["document"]
        return document.encode() if isinstance(document, str) else json.dumps(document).encode()
    texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
    rows = step.get("vectors") or [
        made_vector(text, request.get("dimensions") or DIMENSION) for text in texts
    ]
    indexes = step.get("indexes") or range(len(rows))
    is_base64 = request.get("encoding_format") == "base64" and not step.get("as_floats")
    items = [
        {"object": "embedding", "index": index, "embedding": _base64(row) if is_base64 else row}
        for index, row in zip(indexes, rows, strict=True)
    ]
    tokens = sum(len(text) for text in texts)
    usage = step.get("usage", {"prompt_tokens": tokens, "total_tokens": tokens})
    return json.dumps({"object": "list", "model": request["model"], "data": items, "usage": usage}).encode()


def made_vector(text: str, dimension: int) -> list[float]:
    """A unit vector in which each word, pair of Chinese characters and subject has a place of its own."""
    row = [0.0] * dimension
    for feature, weight in _features(text.lower()):
        place = int.from_bytes(hashlib.sha256(feature.encode(errors="replace")).digest()[:4], "big")
        row[place % dimension] += weight
    length = math.sqrt(sum(number * number for number in row))
    return [number / length for number in row]


def _features(text: str) -> Iterator[tuple[str, float]]:
    yield "", 1.0
    yield from ((word, 1.0) for word in text.split())
    if not text.isascii():
        yield from ((text[at : at + 2], 1.0) for at in range(len(text) - 1))
    yield from ((words[0], SUBJECT_WEIGHT) for words in SUBJECTS if any(word in text for word in words))


def _base64(row: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
