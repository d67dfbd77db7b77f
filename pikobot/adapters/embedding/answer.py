"""The JSON of an embeddings answer, checked: every text has exactly one vector, or the call has failed.

Vectors come as lists of numbers or, four times smaller, as base64 of little-endian float32 (OpenAI API reference,
"Create embeddings", 2026). What was asked for is base64; servers that answer with lists are understood.
"""

import base64
import binascii
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ValidationError

from pikobot.adapters.chat import CallFailure
from pikobot.adapters.embedding.vectors import Float32s, unit_rows
from pikobot.adapters.embedding.vocabulary import Embedded, EmbeddingFailed
from pikobot.text import Count

MAX_COUNTED_TOKENS = 10**12


class _Item(BaseModel):
    index: int
    embedding: list[float] | str


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(BaseModel):
    data: list[_Item]
    usage: _Usage | None = None


@dataclass(frozen=True)
class Wanted:
    """What the answer is held against; ``host`` is for messages."""

    host: str
    count: int
    dimension: int


def parse_answer(body: bytes, wanted: Wanted) -> Embedded:
    """Unit vectors in the order of the texts. Raises EmbeddingFailed, without a word of the answer in it."""
    try:
        answer = _Answer.model_validate_json(body)
    except ValidationError as error:
        place = ".".join(str(step) for step in error.errors(include_input=False)[0]["loc"][:4])
        raise _malformed(
            wanted, f"something that is no list of embeddings (at {place or 'its top'})"
        ) from None
    by_index = {item.index: item for item in answer.data}
    if len(answer.data) != wanted.count or set(by_index) != set(range(wanted.count)):
        raise _malformed(
            wanted, f"{Count(len(answer.data)):vector} for {Count(wanted.count):text}, or not each once"
        )
    rows = [_numbers(by_index[index].embedding, wanted) for index in range(wanted.count)]
    return Embedded(list(unit_rows(rows, wanted.dimension)), _input_tokens(answer.usage))


def _numbers(embedding: list[float] | str, wanted: Wanted) -> Float32s:
    if not isinstance(embedding, str):
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is refused as that
            return np.array(embedding, dtype=np.float64).astype(np.float32)
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").astype(np.float32)
    except (binascii.Error, ValueError):
        raise _malformed(wanted, "a vector that is no base64 of float32 numbers") from None


def _input_tokens(usage: _Usage | None) -> int | None:
    if usage is None:
        return None
    tokens = usage.total_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    return tokens if tokens is not None and 0 <= tokens <= MAX_COUNTED_TOKENS else None


def _malformed(wanted: Wanted, what: str) -> EmbeddingFailed:
    return EmbeddingFailed(
        f"{wanted.host} answered with {what}; check that embedding.base_url is the address of an "
        "OpenAI-compatible endpoint for embeddings",
        code=CallFailure.MALFORMED,
    )
