"""From the settings to what embeds: the engine of the configured profile, and engines of older profiles.

Nothing is contacted and nothing heavy is loaded here.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal

from pikobot.adapters.embedding.making import make_embedder
from pikobot.clock import Clock
from pikobot.config import Config
from pikobot.credentials import Credentials
from pikobot.memory.embedding import EmbeddingLimits, Engine
from pikobot.memory.query_vectors import QueryEmbedder
from pikobot.memory.spending import MICROUSD
from pikobot.store.connection import Database
from pikobot.store.vectors.profiles import Profile


@dataclass(frozen=True, eq=False)
class Embedding:
    """What embeds in an instance. ``reason``: why there is no engine, None also when none is wanted."""

    engine: Engine | None
    reason: str | None
    engines: Callable[[Profile], Engine | None]
    limits: EmbeddingLimits

    def queries(self, db: Database) -> QueryEmbedder:
        """What embeds the questions of an open instance."""
        return QueryEmbedder(db, self.engines, self.limits, is_wanted=self.is_wanted, unavailable=self.reason)

    @property
    def is_wanted(self) -> bool:
        return self.engine is not None or self.reason is not None

    async def aclose(self) -> None:
        if self.engine is not None:
            await self.engine.close()


def embedding_of(config: Config, credentials: Credentials, clock: Clock) -> Embedding:
    """What the settings ask for, as far as it can be had."""
    limits = EmbeddingLimits(
        day_microusd=int(config.budget.background_usd_per_day * MICROUSD),
        workspace_month_microusd=int(config.budget.workspace_usd_per_month * MICROUSD),
    )
    if config.embedding.provider == "disabled":
        return Embedding(None, None, lambda profile: None, limits)
    made = make_engine(config, credentials, clock)
    if isinstance(made, str):
        return Embedding(None, made, lambda profile: None, limits)

    def engine_of(profile: Profile) -> Engine | None:
        return made if made.profile == profile else None

    return Embedding(made, None, engine_of, limits)


def make_engine(config: Config, credentials: Credentials, clock: Clock) -> Engine | str:
    """The engine of the settings, or the reason why there is none."""
    settings, key = config.embedding, credentials.embedding_api_key
    made = make_embedder(settings, None if key is None else key.reveal(), clock)
    if isinstance(made, str):
        return f"text search only: {made}"
    price = settings.price()
    return Engine(
        profile=Profile(**asdict(made.profile)),
        embedder=made,
        is_local=settings.provider != "openai",
        price=None if price is None else Decimal(str(price)),
        price_remedy=settings.price_remedy(),
        batch=made.batch,
        close=made.aclose,
    )
