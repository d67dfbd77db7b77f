"""From the settings to what embeds: the engine of the configured profile, and engines of former profiles.

After a change of the settings the old vectors answer until the new ones are made, and questions for them are embedded
as they were: by the same model, and a hosted one only at the host that made them, as far as the settings still name
it. Questions never go to a provider or an account that the settings don't hold.

Nothing is contacted and nothing heavy is loaded here.
"""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from urllib.parse import urlsplit

from pydantic import ValidationError

from pikobot.adapters.embedding.making import make_embedder
from pikobot.clock import Clock
from pikobot.config import OPENAI_URL, Config, EmbeddingConfig
from pikobot.credentials import Credentials
from pikobot.memory.embedding.contract import EmbeddingLimits, Engine
from pikobot.memory.embedding.query_vectors import QueryEmbedder
from pikobot.memory.spending import MICROUSD
from pikobot.store.connection import Database
from pikobot.store.vectors.profiles import Profile

TURNED_OFF = "embeddings are turned off (embedding.provider)"
SENTENCE_TRANSFORMERS = "sentence-transformers"


@dataclass(frozen=True, eq=False)
class Embedding:
    """What embeds in an instance. ``reason``: why there is no engine, None also when none is wanted."""

    engine: Engine | None
    reason: str | None
    engines: "Engines | None"
    limits: EmbeddingLimits

    def queries(self, db: Database, catch_up: Callable[[], Awaitable[None]] | None = None) -> QueryEmbedder:
        """What embeds the questions of an open instance."""
        of = self.engines.of if self.engines is not None else lambda profile: TURNED_OFF
        return QueryEmbedder(
            db, of, self.limits, is_wanted=self.is_wanted, unavailable=self.reason, catch_up=catch_up
        )

    @property
    def is_wanted(self) -> bool:
        return self.engine is not None or self.reason is not None

    async def aclose(self) -> None:
        if self.engines is not None:
            await self.engines.aclose()


class Engines:
    """The engine of any profile that vectors are of; a former one is made when it is first asked for."""

    def __init__(self, config: Config, credentials: Credentials, clock: Clock, current: Engine) -> None:
        self._config = config
        self._credentials = credentials
        self._clock = clock
        self._made: dict[Profile, Engine | str] = {current.profile: current}
        self._lock = threading.Lock()

    def of(self, profile: Profile) -> Engine | str:
        """The engine, or the reason why there is none. From any thread."""
        with self._lock:
            if profile not in self._made:
                self._made[profile] = self._former(profile)
            return self._made[profile]

    async def aclose(self) -> None:
        for engine in self._made.values():
            if isinstance(engine, Engine):
                await engine.close()

    def _former(self, profile: Profile) -> Engine | str:
        settings = former_settings(self._config.embedding, profile)
        if settings is None:
            return _other_engine(profile)
        config = self._config.model_copy(update={"embedding": settings})
        made = make_engine(config, self._credentials, self._clock)
        return made if isinstance(made, str) or made.profile == profile else _other_engine(profile)


def embedding_of(config: Config, credentials: Credentials, clock: Clock) -> Embedding:
    """What the settings ask for, as far as it can be had."""
    limits = EmbeddingLimits(
        day_microusd=int(config.budget.background_usd_per_day * MICROUSD),
        workspace_month_microusd=int(config.budget.workspace_usd_per_month * MICROUSD),
    )
    if config.embedding.provider == "disabled":
        return Embedding(None, None, None, limits)
    made = make_engine(config, credentials, clock)
    if isinstance(made, str):
        other = (
            ", or embedding.provider=e5 for a local model" if config.embedding.provider == "openai" else ""
        )
        return Embedding(None, f"text search only: {made}{other}", None, limits)
    return Embedding(made, None, Engines(config, credentials, clock, made), limits)


def make_engine(config: Config, credentials: Credentials, clock: Clock) -> Engine | str:
    """The engine of the settings, or the reason why there is none."""
    settings, key = config.embedding, credentials.embedding_api_key
    made = make_embedder(settings, None if key is None else key.reveal(), clock)
    if isinstance(made, str):
        return made
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


def former_settings(settings: EmbeddingConfig, profile: Profile) -> EmbeddingConfig | None:
    """The settings that a profile was made with, where today's still say the same; None when they can't have."""
    kind = profile.provider.partition("@")[0]
    found: dict[str, object] = {
        "provider": kind,
        "base_url": settings.base_url,
        "model": profile.model,
        "path": settings.path,
    }
    # A directory says itself how many numbers its model makes; where it doesn't, today's settings must.
    if kind != SENTENCE_TRANSFORMERS or settings.dimension == profile.dimension:
        found["dimension"] = profile.dimension
    # The price that is set is that of the hosted model that is set.
    if settings.provider != "openai" or settings.model == profile.model:
        found["price_input"] = settings.price_input
    try:
        return EmbeddingConfig.model_validate(found)
    except ValidationError:
        return None


def _other_engine(profile: Profile) -> str:
    """Why what the settings make is not what made a profile."""
    kind, _, host = profile.provider.partition("@")
    if kind == "openai":
        return f"embedding.base_url is no longer at {host or urlsplit(OPENAI_URL).hostname}, where they were made"
    if kind == SENTENCE_TRANSFORMERS:
        return "embedding.path no longer holds the model that made them"
    return "this version of pikobot embeds otherwise than they were embedded"
