"""Attempts: every provider call, recorded with its reservation before it is made.

    started ──▶ succeeded   cost known
            ──▶ failed      certainly not charged: costs nothing
            ──▶ unknown     may have charged: keeps its reservation until the owner looks

What counts against a budget is the cost of what succeeded and the reservation of what started or is unknown.
Amounts are micro-dollars (millionths of a dollar), rounded up.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from pikobot.store.connection import Connection

AttemptId = NewType("AttemptId", int)

_COUNTED = (
    "sum(CASE state WHEN 'succeeded' THEN cost_microusd WHEN 'failed' THEN 0 ELSE reserved_microusd END)"
)


class AttemptState(StrEnum):
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class NewAttempt:
    run_id: int | None
    workspace: str
    purpose: str
    model: str
    reserved_microusd: int
    job_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptOutcome:
    state: AttemptState
    cost_microusd: int | None = None
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    error_code: str | None = None


@dataclass(frozen=True)
class Spending:
    """What a workspace's calls since some moment count for, and how many may have charged unseen."""

    counted_microusd: int
    unknown_attempts: int


def insert_attempt(conn: Connection, new: NewAttempt, *, now_ms: int) -> AttemptId:
    """Record a call that is about to be made. Caller holds write and has checked the budgets in it."""
    conn.execute(
        """
        INSERT INTO attempts (run_id, job_id, workspace, purpose, model, state, reserved_microusd, started_at_ms)
        VALUES (?, ?, ?, ?, ?, 'started', ?, ?)
        """,
        (new.run_id, new.job_id, new.workspace, new.purpose, new.model, new.reserved_microusd, now_ms),
    )
    return AttemptId(conn.last_insert_rowid())


def finish_attempt(conn: Connection, attempt_id: AttemptId, outcome: AttemptOutcome, *, now_ms: int) -> bool:
    """Record how a call ended; False when it had ended already. Caller holds write.

    A call that succeeded without a known cost counts for all that was reserved.
    """
    conn.execute(
        """
        UPDATE attempts
        SET state = :state, input_tokens = :input, cached_input_tokens = :cached,
            cost_microusd = iif(:state = 'succeeded', coalesce(:cost, reserved_microusd), NULL),
            output_tokens = :output, error_code = :error, finished_at_ms = :now
        WHERE id = :id AND state = 'started'
        """,
        {
            "id": attempt_id,
            "state": outcome.state,
            "cost": outcome.cost_microusd,
            "input": outcome.input_tokens,
            "cached": outcome.cached_input_tokens,
            "output": outcome.output_tokens,
            "error": outcome.error_code,
            "now": now_ms,
        },
    )
    return conn.changes() == 1


def mark_started_unknown(
    conn: Connection,
    *,
    run_id: int | None = None,
    job_id: int | None = None,
    purpose: str | None = None,
    now_ms: int,
) -> int:
    """Calls that a crash or a cancellation cut off: their outcome can't be known. Caller holds write.

    Those of a run, of a job, or, with neither, all others of one purpose, or of any.
    """
    conn.execute(
        """
        UPDATE attempts SET state = 'unknown', error_code = 'interrupted', finished_at_ms = :now
        WHERE state = 'started' AND run_id IS :run AND job_id IS :job AND (:purpose IS NULL OR purpose = :purpose)
        """,
        {"run": run_id, "job": job_id, "purpose": purpose, "now": now_ms},
    )
    return conn.changes()


def has_unknown_attempt(conn: Connection, run_id: int) -> bool:
    """Whether one of the run's calls may have charged without its answer having been seen."""
    return bool(
        conn.execute("SELECT 1 FROM attempts WHERE run_id = ? AND state = 'unknown'", (run_id,)).fetchone()
    )


def run_spending(conn: Connection, run_id: int) -> int:
    """Micro-dollars that count against a run's budget."""
    row = conn.execute(f"SELECT coalesce({_COUNTED}, 0) FROM attempts WHERE run_id = ?", (run_id,)).fetchone()
    return int(row[0]) if row else 0


def workspace_spending(conn: Connection, workspace: str, *, since_ms: int) -> Spending:
    """Micro-dollars that count against a workspace's budget since a moment."""
    row = conn.execute(
        f"""
        SELECT coalesce({_COUNTED}, 0), count(*) FILTER (WHERE state = 'unknown')
        FROM attempts WHERE workspace = ? AND started_at_ms >= ?
        """,
        (workspace, since_ms),
    ).fetchone()
    return Spending(int(row[0]), int(row[1])) if row else Spending(0, 0)


def purpose_spending(conn: Connection, purpose: str, *, since_ms: int) -> int:
    """Micro-dollars that count against a budget for one purpose since a moment."""
    row = conn.execute(
        f"SELECT coalesce({_COUNTED}, 0) FROM attempts WHERE purpose = ? AND started_at_ms >= ?",
        (purpose, since_ms),
    ).fetchone()
    return int(row[0]) if row else 0


def count_attempts(conn: Connection, purpose: str, *, since_ms: int) -> int:
    """How many calls were begun for one purpose since a moment."""
    row = conn.execute(
        "SELECT count(*) FROM attempts WHERE purpose = ? AND started_at_ms >= ?", (purpose, since_ms)
    ).fetchone()
    return int(row[0]) if row else 0
