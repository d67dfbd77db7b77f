"""An embedder whose vectors are about what texts mean: a few subjects, in English and Chinese, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pikobot.agent.indexer import Indexer
from pikobot.memory.embedding.contract import Embedded, EmbeddingFailed, EmbeddingLimits, Engine
from pikobot.memory.embedding.query_vectors import QueryEmbedder, search_memory
from pikobot.memory.records import Page
from pikobot.memory.search import SearchParams
from pikobot.store.connection import Database
from pikobot.store.vectors.profiles import Profile
from tests.servers.openai_embeddings import SUBJECTS

LIMITS = EmbeddingLimits(day_microusd=1_000_000, workspace_month_microusd=1_000_000)


@dataclass
class Meaning:
    """Fails with ``failure`` while that is set, and always on texts with ``poison``; keeps what it was sent."""

    failure: EmbeddingFailed | None = None
    poison: str | None = None
    sent: list[list[str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def embed_passages(self, texts: Sequence[str]) -> Embedded:
        self.sent.append(list(texts))
        if self.failure is not None:
            raise self.failure
        if self.poison is not None and any(self.poison in text for text in texts):
            raise EmbeddingFailed("a text can't be embedded", code="refused_request", is_about_text=True)
        return Embedded([vector(text) for text in texts], sum(len(text) for text in texts))

    async def embed_queries(self, texts: Sequence[str]) -> Embedded:
        self.asked += texts
        if self.failure is not None:
            raise self.failure
        return Embedded([vector(text) for text in texts], sum(len(text) for text in texts))


def vector(text: str) -> list[float]:
    """One number a subject, and a little that every text has and differs by its length."""
    lowered = text.lower()
    return [float(any(word in lowered for word in words)) for words in SUBJECTS] + [
        0.2,
        0.01 * (len(text) % 7),
    ]


def profile(model: str = "meaning-1") -> Profile:
    return Profile(provider="test", model=model, dimension=len(SUBJECTS) + 2, prefix_rule="none")


def engine(
    embedder: Meaning, model: str = "meaning-1", *, price: str | None = None, batch: int = 64
) -> Engine:
    """Local and free, or remote at that price."""
    return Engine(
        profile=profile(model),
        embedder=embedder,
        is_local=price is None,
        price=Decimal(price or 0),
        batch=batch,
    )


async def embed_all(db: Database, made: Engine, limits: EmbeddingLimits = LIMITS) -> Indexer:
    indexer = Indexer(db, made, limits)
    await indexer.serve(until_idle=True)
    return indexer


def questions(db: Database, *engines: Engine) -> QueryEmbedder:
    known = {each.profile: each for each in engines}
    return QueryEmbedder(db, lambda profile: known.get(profile, "it is not set up"), LIMITS)


async def found(db: Database, queries: QueryEmbedder | None, query: str, **params: object) -> Page:
    wanted = SearchParams.model_validate({"query": query, **params})
    return await search_memory(db, queries, wanted, allowed_scopes=None)


def texts_of(page: Page) -> list[str]:
    return [record.text for record in page.records]
