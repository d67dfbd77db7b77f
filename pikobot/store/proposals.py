"""What runs have proposed to forget, waiting for the owner's word: ids alone, gone with what they name.

A proposal belongs to the run that it was made in. Only one that was shown has a token; `find_waiting` gives the
one that the next message in a place may confirm.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pikobot.store.connection import Connection
from pikobot.store.facts import FactId
from pikobot.store.runs import RunId
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import SourceId
from pikobot.store.threads import ThreadId

_IN_PLACE = """
    (SELECT scope_id FROM threads AS t WHERE t.id = r.thread_id) = :scope
    AND CASE WHEN :thread IS NULL THEN r.is_standalone ELSE r.thread_id = :thread AND NOT r.is_standalone END
"""


@dataclass(frozen=True)
class Place:
    """Where a message is the next one: in a thread, or without one among the requests that stand alone."""

    scope_id: ScopeId
    thread_id: ThreadId | None


@dataclass(frozen=True)
class Proposal:
    """Public ids of what is to go, and the request that asks for it; the token is of what was shown."""

    run_id: RunId
    scope_id: ScopeId
    token: str | None
    request_id: str
    request_text: str
    source_ids: tuple[str, ...]
    fact_ids: tuple[str, ...]


def save_proposal(
    conn: Connection,
    run_id: RunId,
    *,
    source_ids: Iterable[SourceId],
    fact_ids: Iterable[FactId],
    now_ms: int,
) -> None:
    """Make the proposal of a run, in place of an earlier one. Caller holds write."""
    drop_proposal(conn, run_id)
    conn.execute("INSERT INTO forget_proposals (run_id, created_at_ms) VALUES (?, ?)", (run_id, now_ms))
    proposal_id = conn.last_insert_rowid()
    for table, column, ids in (
        ("forget_proposal_sources", "source_id", list(source_ids)),
        ("forget_proposal_facts", "fact_id", list(fact_ids)),
    ):
        conn.execute(
            f"INSERT INTO {table} (proposal_id, {column}) SELECT DISTINCT ?, value FROM json_each(?)",
            (proposal_id, json.dumps(ids)),
        )


def proposal_of(conn: Connection, run_id: RunId) -> Proposal | None:
    """What a run has proposed; None also when its request is gone."""
    row = conn.execute(
        """
        SELECT p.id, p.token, s.public_id, s.scope_id, s.text FROM forget_proposals AS p
        JOIN sources AS s ON s.run_id = p.run_id AND s.role = 'user' AND s.kind = 'message'
        WHERE p.run_id = ?
        """,
        (run_id,),
    ).fetchone()
    if row is None:
        return None
    sources = conn.execute(
        """
        SELECT s.public_id FROM forget_proposal_sources AS p CROSS JOIN sources AS s ON s.id = p.source_id
        WHERE p.proposal_id = ? ORDER BY s.id
        """,
        (row[0],),
    )
    facts = conn.execute(
        """
        SELECT f.public_id FROM forget_proposal_facts AS p CROSS JOIN facts AS f ON f.id = p.fact_id
        WHERE p.proposal_id = ? ORDER BY f.id
        """,
        (row[0],),
    )
    return Proposal(
        run_id=run_id,
        scope_id=ScopeId(row[3]),
        token=row[1],
        request_id=row[2],
        request_text=row[4],
        source_ids=tuple(str(each[0]) for each in sources),
        fact_ids=tuple(str(each[0]) for each in facts),
    )


def has_proposal(conn: Connection, run_id: RunId) -> bool:
    return conn.execute("SELECT 1 FROM forget_proposals WHERE run_id = ?", (run_id,)).fetchone() is not None


def set_token(conn: Connection, run_id: RunId, token: str, *, now_ms: int) -> None:
    """Note what the owner is shown now. Caller holds write."""
    conn.execute(
        "UPDATE forget_proposals SET token = ?, created_at_ms = ? WHERE run_id = ?", (token, now_ms, run_id)
    )


def find_waiting(conn: Connection, place: Place, *, since_ms: int) -> Proposal | None:
    """The newest proposal of an answered request that was shown there, at that time or later."""
    row = conn.execute(
        f"""
        SELECT p.run_id FROM forget_proposals AS p JOIN runs AS r ON r.id = p.run_id
        WHERE {_IN_PLACE} AND p.token IS NOT NULL AND p.created_at_ms >= :since AND r.state = 'succeeded'
        ORDER BY p.id DESC LIMIT 1
        """,
        {"scope": place.scope_id, "thread": place.thread_id, "since": since_ms},
    ).fetchone()
    return None if row is None else proposal_of(conn, RunId(row[0]))


def last_request(conn: Connection, place: Place, *, now_ms: int) -> str | None:
    """The text of the last message in a place, as long as it is kept."""
    row = conn.execute(
        f"""
        SELECT s.text FROM runs AS r JOIN sources AS s ON s.run_id = r.id AND s.role = 'user' AND s.kind = 'message'
        WHERE {_IN_PLACE} AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now)
        ORDER BY r.id DESC LIMIT 1
        """,
        {"scope": place.scope_id, "thread": place.thread_id, "now": now_ms},
    ).fetchone()
    return None if row is None else str(row[0])


def drop_waiting(conn: Connection, place: Place) -> None:
    """Drop what was shown in a place: another message came next. Caller holds write."""
    conn.execute(
        f"""
        DELETE FROM forget_proposals WHERE token IS NOT NULL AND run_id IN (
            SELECT r.id FROM forget_proposals AS p JOIN runs AS r ON r.id = p.run_id WHERE {_IN_PLACE}
        )
        """,
        {"scope": place.scope_id, "thread": place.thread_id},
    )


def drop_proposal(conn: Connection, run_id: RunId) -> None:
    """Caller holds write."""
    conn.execute("DELETE FROM forget_proposals WHERE run_id = ?", (run_id,))
