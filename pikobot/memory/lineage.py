"""Reading one fact in full: who said it when, what it needs, what it has replaced, what contradicts it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pikobot.clock import iso_time
from pikobot.errors import NotFound
from pikobot.memory.basics import is_valid
from pikobot.memory.params import Name, Params
from pikobot.memory.records import Evidence, Json, evidence_quote, fact_time, quoting
from pikobot.store.connection import Connection
from pikobot.store.entities import fold_name
from pikobot.store.facts import (
    Fact,
    FactId,
    facts_of_attribute,
    find_fact,
    load_facts,
    predecessors_of,
    same_statement,
)
from pikobot.store.scopes import ScopeId, load_scope
from pikobot.store.text.literal import excerpt

MAX_EVIDENCE = 50
MAX_CONTEXT_CHARS = 1_000
MAX_LINEAGE = 50
# What happens can happen more than once, so two of these don't contradict each other.
REPEATABLE_KINDS = frozenset({"event", "plan"})


class FactParams(Params):
    """Parameters of ``memory.read``."""

    id: Name


@dataclass(frozen=True, kw_only=True)
class FactText:
    """A fact with everything about it. ``others`` say the same; the evidence is that of all of them.

    ``replaced`` are newest first, those that a replaced one had replaced included; ``conflicts`` are standing facts
    of another value about the same, explicit ones first.
    """

    fact: Fact
    others: tuple[Fact, ...]
    scope: str
    evidence: tuple[Evidence, ...]
    context: tuple[Evidence, ...]
    replaced: tuple[Fact, ...]
    replaced_by: Fact | None
    conflicts: tuple[Fact, ...]

    @property
    def source_ids(self) -> tuple[str, ...]:
        """Public ids of all sources that something of this rests on."""
        every = [self.fact, *self.others, *self.replaced, *self.conflicts]
        every += [] if self.replaced_by is None else [self.replaced_by]
        return tuple(dict.fromkeys(source.public_id for fact in every for source in fact.sources))

    def as_json(self) -> Json:
        fact, every = self.fact, (self.fact, *self.others)
        return {
            "id": fact.public_id,
            "type": "fact",
            "text": fact.text,
            "subject": fact.subject,
            "attribute": fact.attribute,
            "value": fact.value,
            "basis": fact.basis,
            "status": fact.status,
            "kind": fact.kind,
            "tags": sorted({tag for each in every for tag in each.tags}),
            "entities": list(dict.fromkeys(name for each in every for name in each.entities)),
            "scope": self.scope,
            "time": fact_time(fact),
            "eventTime": fact.event_time,
            "validUntil": fact.valid_until,
            "storedAt": iso_time(fact.created_at_ms),
            "evidence": [evidence.as_json() for evidence in self.evidence],
            "context": [evidence.as_json() for evidence in self.context],
            "replaced": [_glance(each) for each in self.replaced],
            "replacedBy": None if self.replaced_by is None else _glance(self.replaced_by),
            "conflictsWith": [each.public_id for each in self.conflicts],
        }


def read_fact(
    conn: Connection, params: FactParams, *, allowed_scopes: Sequence[ScopeId] | None, now_ms: int
) -> FactText:
    """One fact in full; allowed scopes None means all. Raises `NotFound` when there is none that may be read."""
    fact = find_fact(conn, params.id, now_ms=now_ms)
    if fact is None or (allowed_scopes is not None and fact.scope_id not in allowed_scopes):
        raise NotFound(
            f"there is no fact {params.id:.80}: it was never there or is forgotten; look with memory.search, "
            "and read sources with source.read"
        )
    others = _others(conn, fact, now_ms)
    every = [each for said in (fact, *others) for each in said.evidence]
    distinct = {(each.source.id, each.first_byte, each.after_byte): each for each in every}
    context = {source.id: source for said in (fact, *others) for source in said.context}
    return FactText(
        fact=fact,
        others=tuple(others),
        scope=str(load_scope(conn, fact.scope_id)),
        evidence=tuple(evidence_quote(each) for each in list(distinct.values())[:MAX_EVIDENCE]),
        context=tuple(
            quoting(source, excerpt(source.text, (0, 0), MAX_CONTEXT_CHARS)) for source in context.values()
        ),
        replaced=tuple(_replaced(conn, [fact, *others], now_ms)),
        replaced_by=_successor(conn, fact, now_ms),
        conflicts=tuple(conflicts_of(conn, fact, now_ms=now_ms)),
    )


def conflicts_of(conn: Connection, fact: Fact, *, now_ms: int) -> list[Fact]:
    """Standing facts that state another value for the same attribute, explicit ones first, each statement once.

    What is history, happens at a time or is no longer valid contradicts nothing.
    """
    if fact.attribute is None or fact.value is None or not _can_contradict(fact, now_ms):
        return []
    known = facts_of_attribute(conn, fact.scope_id, fact.subject, fact.attribute, now_ms=now_ms)
    value = fold_name(fact.value)
    other = {
        each.identity: each
        for each in sorted(known, key=lambda each: (each.basis == "explicit", -each.id))
        if each.value is not None and fold_name(each.value) != value and _can_contradict(each, now_ms)
    }
    return sorted(other.values(), key=lambda each: (each.basis != "explicit", each.id))


def _can_contradict(fact: Fact, now_ms: int) -> bool:
    return fact.superseded_by_id is None and fact.kind not in REPEATABLE_KINDS and is_valid(fact, now_ms)


def _others(conn: Connection, fact: Fact, now_ms: int) -> list[Fact]:
    ids = [fact_id for fact_id in same_statement(conn, fact) if fact_id != fact.id]
    return list(load_facts(conn, ids[:MAX_EVIDENCE], now_ms=now_ms).values())


def _replaced(conn: Connection, facts: Sequence[Fact], now_ms: int) -> list[Fact]:
    """Everything that was replaced on the way to these facts, each statement once, newest first."""
    found: dict[FactId, Fact] = {}
    pending = [fact.id for fact in facts]
    while pending and len(found) < MAX_LINEAGE:
        before = predecessors_of(conn, pending.pop())
        loaded = load_facts(conn, [fact_id for fact_id in before if fact_id not in found], now_ms=now_ms)
        found |= loaded
        pending += loaded
    distinct: dict[bytes, Fact] = {}
    for fact in sorted(found.values(), key=lambda each: (each.said_at_ms, each.id), reverse=True):
        distinct.setdefault(fact.identity, fact)
    return list(distinct.values())


def _successor(conn: Connection, fact: Fact, now_ms: int) -> Fact | None:
    if fact.superseded_by_id is None:
        return None
    return load_facts(conn, [fact.superseded_by_id], now_ms=now_ms).get(fact.superseded_by_id)


def _glance(fact: Fact) -> dict[str, Any]:
    """As much of a fact as its lineage needs: what was said, when, and in which words."""
    return {
        "id": fact.public_id,
        "text": fact.text,
        "value": fact.value,
        "basis": fact.basis,
        "time": fact_time(fact),
        "source": evidence_quote(fact.evidence[0]).as_json(),
    }
