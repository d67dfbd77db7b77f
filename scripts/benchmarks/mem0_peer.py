"""Mem0's own search over the same messages with the same vectors: every message stored as it is, nothing inferred.

Its default store, Qdrant, runs in memory; telemetry is off and no language model is called.
"""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scripts.benchmarks.local_e5 import DIMENSION, LocalE5
from scripts.benchmarks.shared_data import Conversation

USER = "owner"


class _Embedder:
    def __init__(self, e5: LocalE5) -> None:
        self._e5 = e5
        self.config = SimpleNamespace(embedding_dims=DIMENSION)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        vector = self._e5.vectors([text], is_query=memory_action == "search")[0]
        return [float(number) for number in vector]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [self.embed(text, memory_action) for text in texts]


class Mem0Peer:
    """One conversation in a memory of its own."""

    def __init__(self, conversation: Conversation, e5: LocalE5) -> None:
        self._memory = _memory(_Embedder(e5))
        for record in conversation.records:
            self._memory.add(
                [{"role": "user", "content": f"{record['speaker']}: {record['text']}"}],
                user_id=USER,
                infer=False,
                metadata={"external_id": record["id"]},
            )

    def ask(self, question: str, limit: int) -> list[str]:
        found = self._memory.search(question, filters={"user_id": USER}, top_k=limit)
        return [result["metadata"]["external_id"] for result in found["results"]]


def is_installed() -> bool:
    try:
        import qdrant_client  # noqa: F401
    except ImportError:
        return False
    return True


def _memory(embedder: _Embedder) -> Any:
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ.setdefault("MEM0_DIR", str(Path(tempfile.gettempdir()) / "pikobot-benchmark-mem0"))
    from mem0.configs.base import MemoryConfig
    from mem0.memory.main import Memory
    from mem0.memory.storage import SQLiteManager
    from mem0.vector_stores.qdrant import Qdrant
    from qdrant_client import QdrantClient

    memory = Memory.__new__(Memory)
    memory.config = MemoryConfig()
    memory.embedding_model = embedder
    memory.vector_store = Qdrant(
        collection_name="memories", embedding_model_dims=DIMENSION, client=QdrantClient(":memory:")
    )
    memory.llm = memory.reranker = memory.custom_instructions = memory._entity_store = None
    memory.db = SQLiteManager(":memory:")
    memory.collection_name = "memories"
    memory.api_version = "v1.1"
    return memory
