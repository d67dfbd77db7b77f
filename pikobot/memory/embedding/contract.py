"""What embeds: an engine for each profile, and how it fails.

The adapters know providers and no store; here their embedders get the profile that keeps vectors apart, and the
price that budgets are held against.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from pikobot.adapters.embedding.vocabulary import Embedded, Embedder, EmbeddingFailed
from pikobot.store.vectors.profiles import Profile

if TYPE_CHECKING:  # numpy is loaded by what computes, not by what passes vectors on
    import numpy.typing as npt

__all__ = ["Embedded", "Embedder", "EmbeddingFailed", "EmbeddingLimits", "Engine", "QueryVector"]

TEXT_OVERHEAD_BYTES = 16


@dataclass(frozen=True, eq=False)
class QueryVector:
    """A question as a vector, comparable with vectors of its profile only."""

    profile: Profile
    values: "npt.ArrayLike"


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
