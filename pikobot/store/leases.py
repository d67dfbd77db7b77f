"""The one way to own a row for a while: claim, then finish, fail or release with the claim's token.

Every leased table (runs, and whatever is worked off in the background) has the same columns: state,
not_before_ms, lease_token, lease_expires_at_ms, claims, error_code, finished_at_ms.

    queued ──claim──▶ leased ──finish──▶ succeeded | failed | cancelled | unknown
       ▲                 │
       └──retry, release─┘

Each completion filters on the token, so that a late worker changes no row and gets False. 'unknown' means that
an outside effect (a charge, a send) may have happened: such a row is shown, and never repeated by itself.
"""

from dataclasses import dataclass
from enum import StrEnum

from pikobot.store.connection import Connection

LEASED_TABLES = frozenset({"runs", "extraction_jobs", "embedding_jobs"})


class State(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


FINAL_STATES = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.UNKNOWN})


@dataclass(frozen=True)
class Lease:
    table: str
    row_id: int
    token: str
    claims: int  # how often the row has been claimed, this time included


def claim(
    conn: Connection, table: str, row_id: int, *, token: str, now_ms: int, lease_ms: int
) -> Lease | None:
    """Take a queued row that is due, or a leased one whose lease has expired; None when someone else has it."""
    row = conn.execute(
        f"""
        UPDATE {_checked(table)}
        SET state = 'leased', lease_token = :token, lease_expires_at_ms = :now + :lease, claims = claims + 1
        WHERE id = :id
          AND ((state = 'queued' AND not_before_ms <= :now) OR (state = 'leased' AND lease_expires_at_ms <= :now))
        RETURNING claims
        """,
        {"id": row_id, "token": token, "now": now_ms, "lease": lease_ms},
    ).fetchone()
    return None if row is None else Lease(table, row_id, token, int(row[0]))


def current(conn: Connection, table: str, row_id: int) -> Lease | None:
    """The lease on a row, whoever holds it: for ending what a crashed process has left."""
    row = conn.execute(
        f"SELECT lease_token, claims FROM {_checked(table)} WHERE id = ? AND state = 'leased'", (row_id,)
    ).fetchone()
    return None if row is None else Lease(table, row_id, row[0], row[1])


def holds(conn: Connection, lease: Lease) -> bool:
    """Whether the lease still owns its row; checked inside the transaction that acts on it."""
    return bool(
        conn.execute(
            f"SELECT 1 FROM {_checked(lease.table)} WHERE id = ? AND state = 'leased' AND lease_token = ?",
            (lease.row_id, lease.token),
        ).fetchone()
    )


def finish(
    conn: Connection, lease: Lease, state: State, *, now_ms: int, error_code: str | None = None
) -> bool:
    """End the row in a final state; False when the lease is lost."""
    if state not in FINAL_STATES:
        raise ValueError(f"{state} is not a final state")
    conn.execute(
        f"""
        UPDATE {_checked(lease.table)}
        SET state = :state, error_code = :error, finished_at_ms = :now, lease_token = NULL, lease_expires_at_ms = NULL
        WHERE id = :id AND state = 'leased' AND lease_token = :token
        """,
        {"id": lease.row_id, "token": lease.token, "state": state, "error": error_code, "now": now_ms},
    )
    return conn.changes() == 1


def retry(conn: Connection, lease: Lease, *, not_before_ms: int, error_code: str) -> bool:
    """Queue the row again for later, the claim counted; False when the lease is lost."""
    return _requeue(conn, lease, not_before_ms=not_before_ms, error_code=error_code, claims=lease.claims)


def release(conn: Connection, lease: Lease, *, not_before_ms: int = 0) -> bool:
    """Give the row back as if it had not been claimed; False when the lease is lost."""
    return _requeue(conn, lease, not_before_ms=not_before_ms, error_code=None, claims=lease.claims - 1)


def _requeue(
    conn: Connection, lease: Lease, *, not_before_ms: int, error_code: str | None, claims: int
) -> bool:
    conn.execute(
        f"""
        UPDATE {_checked(lease.table)}
        SET state = 'queued', not_before_ms = :not_before, error_code = :error, claims = :claims,
            lease_token = NULL, lease_expires_at_ms = NULL
        WHERE id = :id AND state = 'leased' AND lease_token = :token
        """,
        {
            "id": lease.row_id,
            "token": lease.token,
            "not_before": not_before_ms,
            "error": error_code,
            "claims": claims,
        },
    )
    return conn.changes() == 1


def expire_all(conn: Connection, table: str) -> int:
    """End every lease of a process that is known to be gone (the caller holds the instance's lock)."""
    conn.execute(f"UPDATE {_checked(table)} SET lease_expires_at_ms = 0 WHERE state = 'leased'")
    return conn.changes()


def _checked(table: str) -> str:
    if table not in LEASED_TABLES:
        raise ValueError(f"{table} is not a leased table")
    return table
