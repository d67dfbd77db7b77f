"""The stores as Mem0 sees them: known facts to read, earlier turns to read, and one buffer to write.

Nothing lasts. Mem0 adds and never changes, so a call that would update, delete or count on anything else is an
error and ends the batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pikobot.adapters.mem0.candidates import Candidate, ExtractionBatch, KnownFact, SourceTurn
from pikobot.adapters.mem0.extraction_contract import earlier_line, mem0_role, mem0_subject
from pikobot.adapters.mem0.seams import Carried
from pikobot.errors import PikobotError


class UnexpectedCall(PikobotError):
    """Mem0 did something that additive extraction does not do; nothing of the batch is stored."""


@dataclass(frozen=True)
class StagedRow:
    """What Mem0 wants to store of one element; ``position`` is that of its candidate."""

    mem0_id: str
    position: int
    linked_fact_ids: tuple[str, ...]
    vector: Sequence[float] | None


@dataclass(frozen=True)
class Hit:
    """A known fact as a result of Mem0's search; the caller's order is the score."""

    id: str
    payload: Mapping[str, str]
    score: float = 1.0


def mem0_hash(statement: KnownFact | Candidate, hash_extraction: Any) -> str:
    """Mem0's own hash; two statements with the same one are the same fact to it."""
    role = statement.attributed_to
    fact_hash: str = hash_extraction(statement.text, mem0_role(role), mem0_subject(role, statement.subject))
    return fact_hash


class StagingStore:
    """Mem0's vector store: serves the batch's known facts, buffers the one insert."""

    def __init__(self, batch: ExtractionBatch, hash_extraction: Any) -> None:
        self._hits = [_hit(fact, hash_extraction) for fact in batch.known_facts]
        self.rows: list[StagedRow] = []

    def search(
        self, query: str, vectors: Sequence[float], top_k: int, filters: Mapping[str, str]
    ) -> list[Hit]:
        return self._hits[:top_k]

    def insert(
        self, vectors: Sequence[Sequence[float]], ids: Sequence[str], payloads: Sequence[Mapping[str, Any]]
    ) -> None:
        if self.rows or not len(vectors) == len(ids) == len(payloads):
            _refuse("stored twice, or unequal lists")
        for vector, mem0_id, payload in zip(vectors, ids, payloads, strict=True):
            position = int(payload["extraction_id"])
            links = tuple(payload["linked_memory_ids"])
            self.rows.append(StagedRow(mem0_id, position, links, vector if len(vector) else None))

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(f"asked its vector store for {name}")


class EarlierTurns:
    """Mem0's message store: serves the batch's earlier turns, saves nothing."""

    def __init__(self, earlier: Sequence[SourceTurn]) -> None:
        self._earlier = earlier

    def get_last_messages(self, session_scope: str, limit: int) -> list[dict[str, str]]:
        newest = self._earlier[-limit:]
        return [{"role": mem0_role(turn.role), "content": earlier_line(turn)} for turn in newest]

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(f"asked its message store for {name}")


def _hit(fact: KnownFact, hash_extraction: Any) -> Hit:
    return Hit(fact.fact_id, {"data": fact.text, "hash": mem0_hash(fact, hash_extraction)})


def _refuse(what: str) -> NoReturn:
    raise Carried(UnexpectedCall(f"Mem0 {what}; the batch is not stored. Reinstall mem0ai as pinned"))
