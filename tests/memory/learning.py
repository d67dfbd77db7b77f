"""Candidates as extraction would propose them, and facts stored from them."""

from collections.abc import Sequence
from typing import Any

from pikobot.memory.facts import (
    CommitOutcome,
    FactCandidate,
    Quoted,
    SourceSnapshot,
    commit_candidates,
    snapshots,
)
from pikobot.memory.lineage import FactParams, FactText, read_fact
from pikobot.store.connection import Connection, Database
from pikobot.store.facts import FactId
from pikobot.store.sources import Source, find_source
from tests.memory.remembering import NOW_MS


def source(db: Database, public_id: str, *, now_ms: int = NOW_MS) -> Source:
    with db.read() as conn:
        found = find_source(conn, public_id, now_ms=now_ms)
    assert found is not None
    return found


def quoting(db: Database, public_id: str, quote: str | None = None) -> Quoted:
    """A quote of the source, else all of it."""
    text = source(db, public_id).text
    wanted = text if quote is None else quote
    first = text.encode().index(wanted.encode())
    return Quoted(public_id, first, first + len(wanted.encode()))


def candidate(db: Database, text: str, /, *public_ids: str, **changes: Any) -> FactCandidate:
    fields: dict[str, Any] = {
        "text": text,
        "subject": "owner",
        "kind": "fact",
        "evidence": tuple(quoting(db, public_id) for public_id in public_ids),
    }
    return FactCandidate(**(fields | changes))


def batch(db: Database, *public_ids: str) -> list[SourceSnapshot]:
    return snapshots([source(db, public_id) for public_id in public_ids])


def commit(
    db: Database, candidates: Sequence[FactCandidate], of: Sequence[SourceSnapshot], **options: Any
) -> CommitOutcome:
    lease = options.pop("lease", None)
    return db.perform(commit_candidates, lease, of, candidates, **options)


def learn(db: Database, text: str, *public_ids: str, **changes: Any) -> str:
    """Store one inferred fact that quotes the sources whole; returns its public id."""
    needed = changes.get("depends_on", ())
    outcome = commit(db, [candidate(db, text, *public_ids, **changes)], batch(db, *public_ids, *needed))
    assert outcome.rejections == {}
    [fact_id] = (*outcome.stored, *outcome.repeated)
    return public_id_of(db, fact_id)


def public_id_of(db: Database, fact_id: FactId) -> str:
    with db.read() as conn:
        return str(conn.execute("SELECT public_id FROM facts WHERE id = ?", (fact_id,)).fetchall()[0][0])


def fact(db: Database, public_id: str, *, now_ms: int = NOW_MS) -> FactText:
    def read(conn: Connection) -> FactText:
        return read_fact(conn, FactParams(id=public_id), allowed_scopes=None, now_ms=now_ms)

    with db.read() as conn:
        return read(conn)
