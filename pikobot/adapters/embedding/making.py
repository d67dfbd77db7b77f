"""From the settings to an embedder, or to the reason why there is none.

Never another provider than the one that is set: what is missing is said, and search goes on by words.
"""

from pikobot.adapters.embedding.e5 import make_e5
from pikobot.adapters.embedding.hosted import HostedEmbedder
from pikobot.adapters.embedding.local import LocalEmbedder
from pikobot.adapters.embedding.sentence_transformers import make_sentence_transformers
from pikobot.adapters.openai_chat import ChatEndpoint
from pikobot.clock import Clock
from pikobot.config import EmbeddingConfig


def make_embedder(
    config: EmbeddingConfig, api_key: str | None, clock: Clock
) -> HostedEmbedder | LocalEmbedder | str:
    """Nothing is contacted, loaded or started before the first text."""
    if config.provider == "disabled":
        return "embeddings are turned off (embedding.provider)"
    if config.provider == "e5":
        return make_e5(clock)
    if config.provider == "sentence-transformers":
        return make_sentence_transformers(config, clock)
    if api_key is None and not config.is_local:
        return f"no key for {config.model}; set PIKOBOT_EMBEDDING_API_KEY"
    endpoint = ChatEndpoint(
        base_url=config.base_url,
        model=config.model,
        api_key=api_key,
        key_variable="PIKOBOT_EMBEDDING_API_KEY",
        section="embedding",
        can_charge=config.price() != 0,
    )
    return HostedEmbedder(endpoint, dimension=config.dimension, clock=clock)
