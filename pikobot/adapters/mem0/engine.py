"""One batch of sources through Mem0's own ``Memory.add``, and what may be stored of it.

Synchronous: the caller runs it in a worker thread, between the transaction that loads the batch and the one that
stores the outcome. Cancellation is an exception of the caller's model or embedder; derived from
``Exception`` or ``BaseException``, it comes out of ``extract`` as it went in, and nothing has happened.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pikobot.adapters.mem0.candidates import Candidate, Extracted, ExtractionBatch, ExtractionOutcome
from pikobot.adapters.mem0.embedder import Embedder, ExtractionEmbedder
from pikobot.adapters.mem0.extraction_contract import (
    INSTRUCTIONS,
    mem0_role,
    message_line,
    observation_date,
)
from pikobot.adapters.mem0.llm import ExtractionLlm, ModelCall
from pikobot.adapters.mem0.loader import load_memory_class, load_module
from pikobot.adapters.mem0.seams import Carried, Ended
from pikobot.adapters.mem0.staging import EarlierTurns, StagedRow, StagingStore, UnexpectedCall, mem0_hash
from pikobot.adapters.mem0.validation import Validated

_SCOPE = "pikobot"  # Mem0 wants one; ours are checked where the facts are stored


class MemoryExtractor:
    """Learns candidate facts from batches of messages; keeps nothing between them.

    Making one loads and verifies Mem0 (0.3 s once a process) and raises Mem0Unavailable or PatchFailed.
    """

    def __init__(self) -> None:
        self._memory_class = _adapted(load_memory_class())
        self._hash = load_module("mem0.memory.utils").hash_extraction

    def extract(
        self, batch: ExtractionBatch, model: ModelCall, embedder: Embedder | None = None
    ) -> ExtractionOutcome:
        """At most two model calls and one embedding call; raises what they raise, except that a ProviderError of
        the embedder becomes ``embedding_error``.
        """
        llm = ExtractionLlm(model, batch)
        embeddings = ExtractionEmbedder(embedder)
        staging = StagingStore(batch, self._hash)
        memory = self._memory_class(llm, embeddings, staging, EarlierTurns(batch.earlier))
        try:
            result = memory.add(_messages(batch), **_options(batch))
        except Ended as ended:
            return ended.outcome
        except Carried as carried:
            raise carried.error from carried.error.__cause__
        if llm.validated is None or [row.mem0_id for row in staging.rows] != [
            item["id"] for item in result["results"]
        ]:
            raise UnexpectedCall("Mem0 reports other facts than it stored; reinstall mem0ai as pinned")
        return Extracted(
            candidates=tuple(self._completed(llm.validated, staging.rows, batch)),
            rejections=llm.validated.rejections,
            dropped=llm.validated.dropped,
            calls=llm.calls,
            embedding_error=embeddings.error,
        )

    def _completed(
        self, validated: Validated, rows: list[StagedRow], batch: ExtractionBatch
    ) -> list[Candidate]:
        """Each candidate with Mem0's part of it; what Mem0 left out says the same as a known fact."""
        staged = {row.position: row for row in rows}
        known = {mem0_hash(fact, self._hash): fact.fact_id for fact in reversed(batch.known_facts)}
        completed: list[Candidate] = []
        for position, candidate in enumerate(validated.candidates):
            row = staged.get(position)
            same_as = None if row else known.get(mem0_hash(candidate, self._hash))
            if row is not None:
                links, vector = row.linked_fact_ids, row.vector
                completed.append(replace(candidate, linked_fact_ids=links, vector=vector))
            elif same_as is not None:
                completed.append(replace(candidate, same_as=same_as))
            else:
                raise UnexpectedCall("Mem0 left out a fact that is new; reinstall mem0ai as pinned")
        return completed


def _adapted(memory_class: type[Any]) -> type[Any]:
    """Mem0's ``Memory`` without its constructor, which would make stores of its own."""

    def set_parts(self: Any, llm: Any, embedding_model: Any, vector_store: Any, db: Any) -> None:
        self.llm = llm
        self.embedding_model = embedding_model
        self.vector_store = vector_store
        self.db = db
        self.config = SimpleNamespace(llm=SimpleNamespace(config={}))
        self.custom_instructions = INSTRUCTIONS
        self.collection_name = _SCOPE
        self.api_version = "v1.1"
        self.reranker = None
        self._entity_store = None

    return type("AdaptedMemory", (memory_class,), {"__init__": set_parts})


def _messages(batch: ExtractionBatch) -> list[dict[str, str]]:
    return [{"role": mem0_role(turn.role), "content": message_line(turn)} for turn in batch.turns]


def _options(batch: ExtractionBatch) -> dict[str, Any]:
    day = observation_date(batch)
    return {"user_id": _SCOPE, "timestamp": day, "metadata": {"created_at": day}}
