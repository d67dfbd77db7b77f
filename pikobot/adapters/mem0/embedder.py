"""The embedding model as Mem0 sees it: one vector for every candidate, or visibly none for any.

Mem0 also wants to embed the transcript, to search with it; the caller has chosen the known facts already, so
that call is not made and not paid. A failing embedder loses no facts: they were paid for, and come out without
vectors and with the reason.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from pikobot.adapters.mem0.seams import carrying
from pikobot.errors import ProviderError
from pikobot.text import Count

_NO_VECTOR: tuple[float, ...] = ()


class Embedder(Protocol):
    """Embeds texts that will be searched for, in the caller's thread."""

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector a text, in order. Raises ProviderError."""
        ...


class EmbeddingMismatch(ProviderError):
    """The embedding provider answered with another number, length or kind of vectors than was asked for."""


class ExtractionEmbedder:
    """For one batch; ``error`` is set when there are no vectors although there is an embedder."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self.error: ProviderError | None = None

    def embed(self, text: str, memory_action: str) -> Sequence[float]:
        """Mem0's question for the transcript."""
        return _NO_VECTOR

    def embed_batch(self, texts: Sequence[str], memory_action: str) -> Sequence[Sequence[float]]:
        """Vectors of the dimension, or empty ones. Raises Carried with anything but a ProviderError."""
        if self._embedder is not None:
            with carrying():
                try:
                    return _checked(self._embedder.embed(texts), len(texts), self._embedder.dimension)
                except ProviderError as error:
                    self.error = error
        return [_NO_VECTOR] * len(texts)


def _checked(vectors: Sequence[Sequence[float]], count: int, dimension: int) -> Sequence[Sequence[float]]:
    if len(vectors) != count:
        raise EmbeddingMismatch(
            f"the embedding provider gave {Count(len(vectors)):vector} for {Count(count):text}"
        )
    for vector in vectors:
        if len(vector) != dimension:
            found = f"the embedding provider gave a vector of {len(vector)} numbers"
            raise EmbeddingMismatch(
                f"{found}, not {dimension}; check embedding.model and embedding.dimension"
            )
        if not all(math.isfinite(number) for number in vector):
            raise EmbeddingMismatch("the embedding provider gave a vector with a number that is not finite")
    return vectors
