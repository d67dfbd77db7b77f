"""Facts for the store's tests, each stored in a transaction of its own with a quote of the whole source."""

from typing import Any

from pikobot.store.connection import Connection, Database
from pikobot.store.fact_index import FactFilters, search_facts
from pikobot.store.facts import Fact, FactId, NewFact, Quote, Stored, load_facts, store_fact
from pikobot.store.sources import SourceId
from tests.clock import NOW_MS
from tests.store import rows

# What is stored only together with a fact, and empty when the last fact has gone.
TABLES = (
    "facts",
    "fact_evidence",
    "fact_context",
    "fact_tags",
    "fact_entities",
    "entities",
    "entity_aliases",
    "run_facts",
    "facts_text_docsize",
)


def whole(db: Database, source_id: SourceId) -> Quote:
    text = rows.rows(db, "SELECT text FROM sources WHERE id = ?", source_id)[0][0]
    return Quote(source_id, 0, len(text.encode()))


def new_fact(db: Database, text: str, *source_ids: SourceId, **changes: Any) -> NewFact:
    """An inferred fact about the owner that quotes the sources whole, unless changed."""
    scope_id = rows.rows(db, "SELECT scope_id FROM sources WHERE id = ?", source_ids[0])[0][0]
    fields: dict[str, Any] = {
        "scope_id": scope_id,
        "text": text,
        "evidence": tuple(whole(db, source_id) for source_id in source_ids),
        "kind": "fact",
        "basis": "inferred",
    }
    return NewFact(**(fields | changes))


def state(db: Database, text: str, *source_ids: SourceId, **changes: Any) -> Stored:
    return rows.write(db, store_fact, new_fact(db, text, *source_ids, **changes), db.clock)


def fact(db: Database, fact_id: FactId, *, now_ms: int = NOW_MS) -> Fact | None:
    return rows.read(db, load_facts, [fact_id], now_ms=now_ms).get(fact_id)


def found(db: Database, query: str, **filters: Any) -> list[int]:
    def search(conn: Connection) -> list[int]:
        made = FactFilters(**({"scope_ids": None, "now_ms": NOW_MS} | filters))
        return [hit.fact_id for hit in search_facts(conn, query=query, filters=made, limit=50)]

    return rows.read(db, search)


def counts(db: Database) -> dict[str, int]:
    return {table: rows.rows(db, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}
