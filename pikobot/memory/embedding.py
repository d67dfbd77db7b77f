"""What embeds: an engine for each profile, and how it fails.

The adapters know providers and no store; here their embedders get the profile that keeps vectors apart, and the
price that budgets are held against.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Protocol

from pikobot.errors import ProviderError
from pikobot.store.vectors.profiles import Profile

if TYPE_CHECKING:  # numpy is loaded by what computes, not by what passes vectors on
    import numpy.typing as npt

TEXT_OVERHEAD_BYTES = 16


@dataclass(frozen=True, eq=False)
class Embedded:
    """One vector a text, in order; ``input_tokens`` when the provider has counted them."""

    vectors: "Sequence[npt.ArrayLike]"
    input_tokens: int | None = None


@dataclass(frozen=True, eq=False)
class QueryVector:
    """A question as a vector, comparable with vectors of its profile only."""

    profile: Profile
    values: "npt.ArrayLike"


class EmbeddingFailed(ProviderError):
    """No vectors came. ``may_have_charged``: the outcome is unknown. ``is_about_text``: another text may do."""

    def __init__(
        self, message: str, *, code: str, may_have_charged: bool = False, is_about_text: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.may_have_charged = may_have_charged
        self.is_about_text = is_about_text


class Embedder(Protocol):
    """Turns texts into vectors of one profile. Both raise `EmbeddingFailed`."""

    async def embed_passages(self, texts: Sequence[str]) -> Embedded: ...

    async def embed_queries(self, texts: Sequence[str]) -> Embedded: ...


async def _nothing_to_close() -> None:
    return


@dataclass(frozen=True, eq=False)
class Engine:
    """An embedder with its profile and its price: dollars per million tokens, None when it is not known.

    A local one has the price 0, and its calls are not accounted for.
    """

    profile: Profile
    embedder: Embedder
    is_local: bool
    price: Decimal | None
    price_remedy: str = ""
    batch: int = 64
    close: Callable[[], Awaitable[None]] = _nothing_to_close

    def reserve_microusd(self, texts: Sequence[str]) -> int:
        """What a call may cost at most: no tokenizer makes more than one token of a byte."""
        tokens = sum(len(text.encode(errors="replace")) + TEXT_OVERHEAD_BYTES for text in texts)
        return self.cost_microusd(tokens)

    def cost_microusd(self, tokens: int) -> int:
        return int((Decimal(tokens) * (self.price or Decimal(0))).to_integral_value(rounding=ROUND_CEILING))


@dataclass(frozen=True)
class EmbeddingLimits:
    """Ceilings of embedding, in micro-dollars: of the background in a day, of each workspace in a month."""

    day_microusd: int
    workspace_month_microusd: int
