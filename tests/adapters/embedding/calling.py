"""Calls of embedders from tests that are not asynchronous."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pikobot.adapters.embedding.hosted import HostedEmbedder
from pikobot.adapters.embedding.local import LocalEmbedder
from pikobot.adapters.embedding.vectors import Float32s
from pikobot.adapters.embedding.vocabulary import Embedded, EmbeddingFailed
from pikobot.adapters.openai_chat import ChatEndpoint
from tests.adapters.calls import API_KEY, StoppedClock

AnyEmbedder = HostedEmbedder | LocalEmbedder


def hosted_at(base_url: str, *, dimension: int = 3, timeouts: Any = None, **endpoint: Any) -> HostedEmbedder:
    settings = {
        "base_url": base_url,
        "model": "scripted",
        "api_key": API_KEY,
        "key_variable": "PIKOBOT_EMBEDDING_API_KEY",
        "section": "embedding",
        **endpoint,
    }
    return HostedEmbedder(
        ChatEndpoint(**settings), dimension=dimension, clock=StoppedClock(), timeouts=timeouts
    )


def embedded(embedder: AnyEmbedder, texts: Sequence[str], *, is_query: bool = False) -> Embedded:
    """One call; the embedder is closed."""
    return asyncio.run(_embedded(embedder, texts, is_query))


async def _embedded(embedder: AnyEmbedder, texts: Sequence[str], is_query: bool) -> Embedded:
    try:
        return await (embedder.embed_queries if is_query else embedder.embed_passages)(texts)
    finally:
        await embedder.aclose()


def rows(found: Embedded) -> Float32s:
    """The vectors as one array, which are all of length one."""
    array = np.array(found.vectors, np.float32)
    np.testing.assert_allclose(np.linalg.norm(array, axis=1), 1, atol=1e-6)
    return array


def failure(embedder: AnyEmbedder, texts: Sequence[str] = ("my diary",), **how: Any) -> EmbeddingFailed:
    """The failure that one call must end with; it never quotes a text."""
    with pytest.raises(EmbeddingFailed) as failed:
        embedded(embedder, texts, **how)
    assert not any(hidden in str(failed.value) for hidden in ("diary", API_KEY))
    return failed.value
