"""What may be kept no longer: messages past their time, and those beyond what a workspace may hold.

`retention.message_days` stands in the rows: every message expires so many days after it was said, and an answer with
the first of what it was made from. A change of the setting is adopted by all rows at once, before anything is read; a
longer time saves what was not removed yet. Documents have no expiry, nor has a statement that was asked to be kept.
Beyond the capacity the oldest goes first: what no fact rests on, then what only inferred facts rest on. What an
explicit fact rests on, or a run is at work on, stays.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from pikobot.store.connection import Connection
from pikobot.store.settings import read_setting, write_setting
from pikobot.store.sources import SourceId, dependencies_of, earliest_expiry

MESSAGE_DAYS = "message_days"  # the setting that the rows obey
LAST_SWEEP = "last_sweep"
DAY_MS = 86_400_000

# What the setting before gave is replaced; a time that somebody else has set stays.
_ADOPT = """
    UPDATE sources SET expires_at_ms = iif(:days = 0, NULL, said_at_ms + :days * :day_ms)
    WHERE kind <> 'document' AND origin IN ('said', 'imported') AND (origin = 'imported' OR run_id IS NOT NULL)
      AND expires_at_ms IS iif(:before = 0, NULL, said_at_ms + :before * :day_ms)
"""
_DISPENSABLE = """
    SELECT s.id FROM sources AS s JOIN scopes AS c ON c.id = s.scope_id
    WHERE c.workspace = :workspace AND s.kind = 'message'
      AND NOT EXISTS (
          SELECT 1 FROM fact_evidence AS e JOIN facts AS f ON f.id = e.fact_id
          WHERE e.source_id = s.id AND (:spares_facts OR f.basis = 'explicit')
      )
      AND NOT EXISTS (
          SELECT 1 FROM fact_context AS e JOIN facts AS f ON f.id = e.fact_id
          WHERE e.source_id = s.id AND (:spares_facts OR f.basis = 'explicit')
      )
      AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.id = s.run_id AND r.state IN ('queued', 'leased'))
      AND NOT EXISTS (SELECT 1 FROM run_sources AS r WHERE r.source_id = s.id)
    ORDER BY s.said_at_ms, s.id LIMIT :limit
"""


@dataclass(frozen=True)
class SweepRecord:
    """What one sweep has removed, by its reason; ``is_clean``: no byte of it was found afterwards, None: not looked."""

    started_at_ms: int
    expired: int = 0
    over_capacity: int = 0
    facts: int = 0
    is_clean: bool | None = None


def adopted_message_days(conn: Connection) -> int:
    """The `retention.message_days` that the rows obey; 0 in a new database."""
    return int(read_setting(conn, MESSAGE_DAYS) or 0)


def adopt_message_days(conn: Connection, days: int) -> None:
    """Let every row obey another `retention.message_days`. Caller holds write. Takes the time of writing all rows."""
    conn.execute(_ADOPT, {"days": days, "before": adopted_message_days(conn), "day_ms": DAY_MS})
    rows = conn.execute("SELECT id FROM sources WHERE origin IN ('model', 'recall') ORDER BY id")
    for source_id in [
        SourceId(row[0]) for row in rows
    ]:  # what an answer was made from is older, and obeys already
        expiry = earliest_expiry(conn, dependencies_of(conn, source_id))
        conn.execute("UPDATE sources SET expires_at_ms = ? WHERE id = ?", (expiry, source_id))
    write_setting(conn, MESSAGE_DAYS, str(days))


def expired_sources(conn: Connection, *, now_ms: int, limit: int) -> list[SourceId]:
    """Those that have expired and are still there, the first to expire first."""
    rows = conn.execute(
        "SELECT id FROM sources WHERE expires_at_ms <= ? ORDER BY expires_at_ms, id LIMIT ?", (now_ms, limit)
    )
    return [SourceId(row[0]) for row in rows]


def count_expired(conn: Connection, *, now_ms: int) -> tuple[int, int | None]:
    """How many expired sources are still there, and when the first of them expired."""
    row = conn.execute(
        "SELECT count(*), min(expires_at_ms) FROM sources WHERE expires_at_ms <= ?", (now_ms,)
    ).fetchone()
    return (0, None) if row is None else (row[0], row[1])


def messages_beyond(conn: Connection, max_sources: int) -> dict[str, int]:
    """By workspace, how many messages it holds beyond the capacity; only those that do. 0: no capacity is set."""
    if not max_sources:
        return {}
    rows = conn.execute(
        """
        SELECT c.workspace, count(*) - :most FROM sources AS s JOIN scopes AS c ON c.id = s.scope_id
        WHERE s.kind = 'message' GROUP BY c.workspace HAVING count(*) > :most ORDER BY c.workspace
        """,
        {"most": max_sources},
    )
    return {str(workspace): int(excess) for workspace, excess in rows}


def dispensable_sources(
    conn: Connection, workspace: str, *, spares_facts: bool, limit: int
) -> list[SourceId]:
    """The oldest messages that may go, with ``spares_facts`` only those that no fact rests on."""
    rows = conn.execute(
        _DISPENSABLE, {"workspace": workspace, "spares_facts": int(spares_facts), "limit": limit}
    )
    return [SourceId(row[0]) for row in rows]


def hold_explicit_facts(conn: Connection, source_ids: Iterable[SourceId]) -> bool:
    """Whether an explicit fact rests on one of the sources."""
    row = conn.execute(
        """
        SELECT 1 FROM facts AS f WHERE f.basis = 'explicit' AND f.id IN (
            SELECT fact_id FROM fact_evidence WHERE source_id IN (SELECT value FROM json_each(:ids))
            UNION SELECT fact_id FROM fact_context WHERE source_id IN (SELECT value FROM json_each(:ids))
        ) LIMIT 1
        """,
        {"ids": json.dumps(list(source_ids))},
    ).fetchone()
    return row is not None


def read_sweep(conn: Connection) -> SweepRecord | None:
    """The last sweep that has removed something."""
    found = read_setting(conn, LAST_SWEEP)
    return None if found is None else SweepRecord(**json.loads(found))


def record_sweep(conn: Connection, part: SweepRecord) -> None:
    """Add to what the same sweep has recorded, or begin a new record. Caller holds write."""
    before = read_sweep(conn)
    if before is not None and before.started_at_ms == part.started_at_ms:
        part = replace(
            part,
            expired=before.expired + part.expired,
            over_capacity=before.over_capacity + part.over_capacity,
            facts=before.facts + part.facts,
        )
    write_setting(conn, LAST_SWEEP, json.dumps(asdict(part)))
