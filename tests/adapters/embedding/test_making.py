from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters.embedding.hosted import HostedEmbedder
from pikobot.adapters.embedding.making import make_embedder
from pikobot.adapters.embedding.vocabulary import EmbeddingProfile
from pikobot.clock import SystemClock
from pikobot.config import EmbeddingConfig
from tests.adapters.embedding.calling import embedded
from tests.servers.openai_server import ScriptedOpenAI

LOCAL = "http://127.0.0.1:1/v1"


def made(key: str | None = None, **settings: Any) -> Any:
    return make_embedder(EmbeddingConfig(**settings), key, SystemClock())


def test_the_default_is_the_small_model_of_openai_with_all_its_numbers() -> None:
    embedder = made("sk-x")
    assert isinstance(embedder, HostedEmbedder)
    assert embedder.profile == EmbeddingProfile(
        provider="openai",
        model="text-embedding-3-small",
        dimension=1536,
        prefix_rule="none; first 8000 bytes",
    )


def test_a_missing_key_is_a_reason_and_never_another_provider() -> None:
    assert made() == "no key for text-embedding-3-small; set PIKOBOT_EMBEDDING_API_KEY"
    assert made(base_url="https://example.com/v1", model="m") == "no key for m; set PIKOBOT_EMBEDDING_API_KEY"


def test_turned_off_is_a_reason_too() -> None:
    assert made("sk-x", provider="disabled") == "embeddings are turned off (embedding.provider)"


def test_a_missing_directory_is_a_reason(tmp_path: Path) -> None:
    assert isinstance(made(provider="sentence-transformers", path=str(tmp_path / "no")), str)


def test_a_server_on_this_machine_needs_no_key(openai_server: ScriptedOpenAI) -> None:
    embedder = made(base_url=openai_server.base_url, model="nomic-embed-text", dimension=1536)
    assert len(embedded(embedder, ["text"]).vectors) == 1
    assert openai_server.requests()[0].body["model"] == "nomic-embed-text"


@pytest.mark.parametrize(
    ("settings", "price"),
    [
        ({}, 0.02),
        ({"model": "text-embedding-3-large"}, 0.13),
        ({"model": "other"}, None),
        ({"base_url": "https://example.com/v1"}, None),
        ({"base_url": "https://example.com/v1", "price_input": 0}, 0),
        ({"base_url": LOCAL}, 0),
        ({"base_url": LOCAL, "price_input": 0.5}, 0.5),
        ({"provider": "e5"}, 0),
    ],
)
def test_the_price_is_listed_set_or_nothing_on_this_machine(
    settings: dict[str, Any], price: float | None
) -> None:
    assert EmbeddingConfig(**settings).price() == price
    assert "embedding.price_input" in EmbeddingConfig(**settings).price_remedy()
