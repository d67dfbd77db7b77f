"""What the program and an embedding model say to each other: profile, vectors, failures.

A failure's code says what happened; what follows is said by three attributes. ``may_have_charged``: the outcome is
unknown, so the request is not repeated by itself. ``is_about_text``: one of the texts is to blame, the embedder works.
``retry_after_s``: when the provider wants to be asked again. Codes of a hosted embedder are those of ``CallFailure``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from pikobot.errors import ProviderError

if TYPE_CHECKING:  # numpy is loaded by what computes, not by what passes vectors on
    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class EmbeddingProfile:
    """What makes vectors comparable. Vectors of profiles that differ in anything are never compared.

    ``prefix_rule`` names all that is done to a text and to its vector, with the versions that decide it: prefixes,
    cutting, centring. A change of the rule is a change of its name.
    """

    provider: str
    model: str
    dimension: int
    prefix_rule: str


@dataclass(frozen=True, eq=False)
class Embedded:
    """One vector a text, in order; ``input_tokens`` when the provider has counted them."""

    vectors: "Sequence[npt.ArrayLike]"
    input_tokens: int | None = None


class Embedder(Protocol):
    """Turns texts into vectors of one profile: float32, L2-normalised. Both raise `EmbeddingFailed`."""

    async def embed_passages(self, texts: Sequence[str]) -> Embedded:
        """Vectors of what may be found: all of them or none."""
        ...

    async def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """Vectors of questions, which some models embed differently."""
        ...


def how_to_install(extra: str) -> str:
    """The command. No registry has pikobot: whoever put something of that name there could be installed instead."""
    return f"run `scripts/install {extra}` in the checkout of pikobot"


class EmbeddingFailure(StrEnum):
    """Codes beside those of ``CallFailure``."""

    WRONG_DIMENSION = "wrong_dimension"
    UNUSABLE_VECTOR = "unusable_vector"  # not finite, or without direction
    NOT_STARTED = "not_started"  # a local model could not be loaded
    CRASHED = "crashed"  # the process of a local model ended, or didn't answer


class EmbeddingFailed(ProviderError):
    """No vectors came; the message never holds a text."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        may_have_charged: bool = False,
        is_about_text: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.may_have_charged = may_have_charged
        self.is_about_text = is_about_text
        self.retry_after_s = retry_after_s
