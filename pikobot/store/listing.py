"""Reads for browsing and for the import: sources by time, runs with their cost, records by identity.

Everything here is read-only. Listings are keyset-paged: the caller hands back the position of the last row,
so that rows which come or go meanwhile neither repeat nor hide others.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from pikobot.store.connection import Connection
from pikobot.store.leases import State
from pikobot.store.runs import RunId
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, load_sources
from pikobot.store.text.index import IS_DATED
from pikobot.store.text.segmentation import match_expression
from pikobot.store.threads import ThreadId


@dataclass(frozen=True)
class SourcePosition:
    """Where a page of sources ended: pages go on with what was said before it."""

    said_at_ms: int
    source_id: int


@dataclass(frozen=True)
class RunSummary:
    id: RunId
    public_id: str
    thread_public_id: str
    thread_key: str | None
    state: State
    model: str | None
    error_code: str | None
    claims: int
    created_at_ms: int
    finished_at_ms: int | None
    attempts: int
    cost_microusd: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class StoredRecord:
    """What an import compares a record with that is already here."""

    content_hash: bytes
    role: str
    speaker: str


@dataclass(frozen=True)
class WorkspaceSpending:
    """Micro-dollars of a workspace: known costs, and what calls of unknown or open outcome keep reserved."""

    workspace: str
    spent_microusd: int
    reserved_microusd: int


def list_sources(
    conn: Connection,
    *,
    scope_ids: Collection[ScopeId] | None,
    from_ms: int | None,
    to_ms: int | None,
    before: SourcePosition | None,
    now_ms: int,
    limit: int,
) -> list[Source]:
    """Unexpired sources of the scopes (None: all) said in [from_ms, to_ms), newest first.

    Answers of recall mode are left out: they only quote what is listed itself. With a range so is what has no date.
    """
    found: list[tuple[int, int]] = []
    for scope_id in _all_scopes(conn) if scope_ids is None else scope_ids:
        # One scope at a time: each is a range of the index, and their heads are merged.
        rows = conn.execute(
            f"""
            SELECT said_at_ms, id FROM sources AS s
            WHERE scope_id = :scope
              AND said_at_ms >= coalesce(:from_ms, -9223372036854775808)
              AND said_at_ms < coalesce(:to_ms, 9223372036854775807)
              AND (said_at_ms, id) < (:before_ms, :before_id)
              AND (expires_at_ms IS NULL OR expires_at_ms > :now)
              AND origin <> 'recall'
              AND ((:from_ms IS NULL AND :to_ms IS NULL) OR {IS_DATED})
            ORDER BY said_at_ms DESC, id DESC LIMIT :limit
            """,
            {
                "scope": scope_id,
                "from_ms": from_ms,
                "to_ms": to_ms,
                "before_ms": before.said_at_ms if before else 2**63 - 1,
                "before_id": before.source_id if before else 2**63 - 1,
                "now": now_ms,
                "limit": limit,
            },
        )
        found += [(row[0], row[1]) for row in rows]
    ids = [SourceId(source_id) for _, source_id in sorted(found, reverse=True)[:limit]]
    return list(load_sources(conn, ids, now_ms=now_ms).values())


def list_said_by(
    conn: Connection,
    name: str,
    *,
    scope_id: ScopeId,
    from_ms: int | None,
    to_ms: int | None,
    now_ms: int,
    limit: int,
) -> list[Source]:
    """Unexpired messages of a scope said in [from_ms, to_ms) by whoever has the words of a name, newest first.

    What pikobot has answered is left out; with a range so is what has no date. It costs 2 µs a message of the speaker.
    """
    words = match_expression(name)
    if words is None:
        return []
    rows = conn.execute(
        f"""
        SELECT s.id FROM sources_text JOIN sources AS s ON s.id = sources_text.rowid
        WHERE sources_text MATCH :words
          AND s.scope_id = :scope AND s.role <> 'assistant'
          AND (:from_ms IS NULL OR s.said_at_ms >= :from_ms)
          AND (:to_ms IS NULL OR s.said_at_ms < :to_ms)
          AND ((:from_ms IS NULL AND :to_ms IS NULL) OR {IS_DATED})
          AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now)
        ORDER BY s.said_at_ms DESC, s.id DESC LIMIT :limit
        """,
        {
            "words": f"speaker : ({words})",
            "scope": scope_id,
            "from_ms": from_ms,
            "to_ms": to_ms,
            "now": now_ms,
            "limit": limit,
        },
    )
    return list(load_sources(conn, [SourceId(int(row[0])) for row in rows], now_ms=now_ms).values())


def count_owners_messages(conn: Connection, scope_id: ScopeId, *, now_ms: int) -> tuple[int, SourceId | None]:
    """How many unexpired messages of the owner a scope has, and the first one that has a date."""
    bindings = {"scope": scope_id, "now": now_ms}
    chosen = "scope_id = :scope AND role = 'user' AND (expires_at_ms IS NULL OR expires_at_ms > :now)"
    count = conn.execute(f"SELECT count(*) FROM sources WHERE {chosen}", bindings).fetchone()
    first = conn.execute(
        f"SELECT id FROM sources AS s WHERE {chosen} AND {IS_DATED} ORDER BY said_at_ms, id LIMIT 1", bindings
    ).fetchone()
    return int(count[0]) if count else 0, None if first is None else SourceId(int(first[0]))


def requests_among(conn: Connection, ids: Collection[SourceId], *, max_bytes: int) -> dict[SourceId, str]:
    """The texts of those of the sources that somebody has put to pikobot itself, the long ones left out."""
    rows = conn.execute(
        """
        SELECT s.id, s.text FROM json_each(:ids) AS j CROSS JOIN sources AS s ON s.id = j.value
        WHERE s.run_id IS NOT NULL AND s.role = 'user' AND octet_length(s.text) <= :max_bytes
        """,
        {"ids": json.dumps(list(ids)), "max_bytes": max_bytes},
    )
    return {SourceId(source_id): text for source_id, text in rows}


def find_by_external_id(
    conn: Connection, external_id: str, *, thread: str, scope_id: ScopeId | None
) -> list[str]:
    """Public ids, at most two, of the sources with that outside id in a thread given by key or public id."""
    rows = conn.execute(
        """
        SELECT s.public_id FROM sources AS s JOIN threads AS t ON t.id = s.thread_id
        WHERE s.external_id = :external AND (t.key = :thread OR t.public_id = :thread)
          AND (:scope IS NULL OR s.scope_id = :scope)
        ORDER BY s.id LIMIT 2
        """,
        {"external": external_id, "thread": thread, "scope": scope_id},
    )
    return [row[0] for row in rows]


def find_record(conn: Connection, identity: bytes) -> StoredRecord | None:
    """The source stored for an imported record."""
    row = conn.execute(
        "SELECT content_hash, role, speaker FROM sources WHERE identity = ?", (identity,)
    ).fetchone()
    return None if row is None else StoredRecord(bytes(row[0]), row[1], row[2])


def list_runs(
    conn: Connection,
    *,
    scope_id: ScopeId | None,
    thread_id: ThreadId | None,
    state: State | None,
    before_id: RunId | None,
    limit: int,
) -> list[RunSummary]:
    """Newest runs first, each with its provider calls added up; page with the last id of the page before."""
    rows = conn.execute(
        """
        SELECT r.id, r.public_id, r.thread, r.key, r.state, r.model, r.error_code, r.claims,
            r.created_at_ms, r.finished_at_ms, count(a.id), coalesce(sum(a.cost_microusd), 0),
            coalesce(sum(a.input_tokens), 0), coalesce(sum(a.cached_input_tokens), 0),
            coalesce(sum(a.output_tokens), 0)
        FROM (
            SELECT runs.*, t.public_id AS thread, t.key FROM runs JOIN threads AS t ON t.id = runs.thread_id
            WHERE (:scope IS NULL OR t.scope_id = :scope) AND (:thread IS NULL OR t.id = :thread)
              AND (:state IS NULL OR runs.state = :state) AND (:before IS NULL OR runs.id < :before)
            ORDER BY runs.id DESC LIMIT :limit
        ) AS r
        LEFT JOIN attempts AS a ON a.run_id = r.id
        GROUP BY r.id
        ORDER BY r.id DESC
        """,
        {"scope": scope_id, "thread": thread_id, "state": state, "before": before_id, "limit": limit},
    )
    return [
        RunSummary(
            id=RunId(row[0]),
            public_id=row[1],
            thread_public_id=row[2],
            thread_key=row[3],
            state=State(row[4]),
            model=row[5],
            error_code=row[6],
            claims=row[7],
            created_at_ms=row[8],
            finished_at_ms=row[9],
            attempts=row[10],
            cost_microusd=row[11],
            input_tokens=row[12],
            cached_input_tokens=row[13],
            output_tokens=row[14],
        )
        for row in rows
    ]


def spending_by_workspace(conn: Connection, *, since_ms: int) -> list[WorkspaceSpending]:
    """What each workspace's provider calls since a moment have cost and keep reserved."""
    rows = conn.execute(
        """
        SELECT workspace,
            coalesce(sum(CASE state WHEN 'succeeded' THEN cost_microusd END), 0),
            coalesce(sum(CASE WHEN state IN ('started', 'unknown') THEN reserved_microusd END), 0)
        FROM attempts WHERE started_at_ms >= ? GROUP BY workspace ORDER BY workspace
        """,
        (since_ms,),
    )
    return [WorkspaceSpending(row[0], row[1], row[2]) for row in rows]


def count_threads(conn: Connection) -> int:
    row = conn.execute("SELECT count(*) FROM threads").fetchone()
    return int(row[0]) if row else 0


def count_unknown_outcomes(conn: Connection) -> int:
    """Provider calls that may have charged without anyone having seen the answer."""
    row = conn.execute("SELECT count(*) FROM attempts WHERE state = 'unknown'").fetchone()
    return int(row[0]) if row else 0


def _all_scopes(conn: Connection) -> list[ScopeId]:
    return [ScopeId(row[0]) for row in conn.execute("SELECT id FROM scopes ORDER BY id")]
