"""Extraction jobs: batches of sources to learn from, leased like runs (`store.leases`).

A job holds no text: its sources, what became of it, and why candidates were not stored. A source that is
erased leaves its jobs by itself; `closure` fences the jobs that were at work on it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NewType

from pikobot.clock import Clock
from pikobot.store import leases
from pikobot.store.connection import Connection
from pikobot.store.leases import Lease, State
from pikobot.store.runs import RunId
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import SourceId
from pikobot.store.threads import ThreadId

JobId = NewType("JobId", int)
Outcome = Literal["stored", "nothing", "unparsable", "truncated", "refused"]

TABLE = "extraction_jobs"


@dataclass(frozen=True)
class ExtractionJob:
    id: JobId
    public_id: str
    scope_id: ScopeId
    thread_id: ThreadId
    run_id: RunId | None
    state: State
    claims: int
    outcome: Outcome | None
    stored_facts: int
    error_code: str | None


@dataclass(frozen=True)
class JobCounts:
    """``queued`` are those that are waiting or being worked on."""

    queued: int
    failed: int
    unknown: int


def insert_job(
    conn: Connection,
    *,
    scope_id: ScopeId,
    thread_id: ThreadId,
    run_id: RunId | None,
    source_ids: Iterable[SourceId],
    clock: Clock,
) -> JobId:
    """Queue a job over sources of one thread. Caller holds write."""
    conn.execute(
        """
        INSERT INTO extraction_jobs (public_id, scope_id, thread_id, run_id, created_at_ms, state)
        VALUES (?, ?, ?, ?, ?, 'queued')
        """,
        (clock.token("job"), scope_id, thread_id, run_id, clock.now_ms()),
    )
    job_id = JobId(conn.last_insert_rowid())
    conn.executemany(
        "INSERT INTO extraction_job_sources (job_id, source_id) VALUES (?, ?)",
        [(job_id, source_id) for source_id in sorted(set(source_ids))],
    )
    return job_id


def next_due(conn: Connection, *, now_ms: int) -> JobId | None:
    """The oldest job that can be claimed: due, or left by a worker whose lease has expired."""
    row = conn.execute(
        """
        SELECT id FROM extraction_jobs INDEXED BY extraction_jobs_unfinished
        WHERE state IN ('queued', 'leased')
          AND ((state = 'queued' AND not_before_ms <= :now) OR (state = 'leased' AND lease_expires_at_ms <= :now))
        ORDER BY id LIMIT 1
        """,
        {"now": now_ms},
    ).fetchone()
    return None if row is None else JobId(row[0])


def leased_jobs(conn: Connection) -> list[JobId]:
    return [
        JobId(row[0])
        for row in conn.execute("SELECT id FROM extraction_jobs WHERE state = 'leased' ORDER BY id")
    ]


def next_due_ms(conn: Connection) -> int | None:
    """When the next unfinished job can be claimed; None when there is none."""
    row = conn.execute(
        """
        SELECT min(CASE state WHEN 'queued' THEN not_before_ms ELSE lease_expires_at_ms END)
        FROM extraction_jobs WHERE state IN ('queued', 'leased')
        """
    ).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def find_job(conn: Connection, public_id: str) -> ExtractionJob | None:
    return _one(conn, "WHERE public_id = ?", public_id)


def load_job(conn: Connection, job_id: JobId) -> ExtractionJob:
    found = _one(conn, "WHERE id = ?", job_id)
    if found is None:
        raise LookupError(f"extraction job {job_id}")
    return found


def job_sources(conn: Connection, job_id: JobId) -> list[SourceId]:
    """What the job is to learn from, in the order in which it was said; what was erased is not among them."""
    rows = conn.execute(
        """
        SELECT s.id FROM extraction_job_sources AS j JOIN sources AS s ON s.id = j.source_id
        WHERE j.job_id = ? ORDER BY s.said_at_ms, s.id
        """,
        (job_id,),
    )
    return [SourceId(row[0]) for row in rows]


def calls_since_claim(conn: Connection, job_id: JobId, *, lease_ms: int) -> set[str]:
    """States of the calls that the claim which holds the job has made; ``lease_ms`` is how long a claim lasts."""
    rows = conn.execute(
        """
        SELECT DISTINCT a.state FROM attempts AS a JOIN extraction_jobs AS j ON j.id = a.job_id
        WHERE a.job_id = ? AND a.started_at_ms >= j.lease_expires_at_ms - ?
        """,
        (job_id, lease_ms),
    )
    return {row[0] for row in rows}


def finish_job(
    conn: Connection,
    lease: Lease,
    *,
    outcome: Outcome,
    stored_facts: int,
    rejections: Mapping[str, int],
    now_ms: int,
) -> bool:
    """End a job whose call was answered; False, and nothing changed, when the lease is lost.

    An answer that could not be used is a failure: it shows, and is asked for again only by the owner.
    """
    is_usable = outcome in ("stored", "nothing")
    state, error_code = (State.SUCCEEDED, None) if is_usable else (State.FAILED, outcome)
    if not leases.finish(conn, lease, state, now_ms=now_ms, error_code=error_code):
        return False
    conn.execute(
        "UPDATE extraction_jobs SET outcome = ?, stored_facts = ? WHERE id = ?",
        (outcome, stored_facts, lease.row_id),
    )
    conn.execute("DELETE FROM extraction_rejections WHERE job_id = ?", (lease.row_id,))
    conn.executemany(
        "INSERT INTO extraction_rejections (job_id, reason, count) VALUES (?, ?, ?)",
        [(lease.row_id, reason, count) for reason, count in sorted(rejections.items()) if count > 0],
    )
    return True


def rejections_of(conn: Connection, job_id: JobId) -> dict[str, int]:
    rows = conn.execute(
        "SELECT reason, count FROM extraction_rejections WHERE job_id = ? ORDER BY reason", (job_id,)
    )
    return {row[0]: row[1] for row in rows}


def requeue(conn: Connection, job_id: JobId | None) -> int:
    """Queue a failed or unknown job again, or all of them; returns how many. Caller holds write.

    The next call of each can charge once more. Jobs whose sources are all gone stay as they are.
    """
    conn.execute(
        """
        UPDATE extraction_jobs
        SET state = 'queued', not_before_ms = 0, claims = 0, error_code = NULL, finished_at_ms = NULL, outcome = NULL
        WHERE state IN ('failed', 'unknown') AND (:job IS NULL OR id = :job)
          AND EXISTS (SELECT 1 FROM extraction_job_sources AS j WHERE j.job_id = extraction_jobs.id)
        """,
        {"job": job_id},
    )
    return conn.changes()


def fence_jobs(conn: Connection, source_ids: str) -> int:
    """Take the leases of jobs over sources (a JSON list of ids) that change; returns how many. Caller holds write."""
    conn.execute(
        """
        UPDATE extraction_jobs SET state = 'queued', not_before_ms = 0, error_code = NULL,
            claims = max(claims - 1, 0), lease_token = NULL, lease_expires_at_ms = NULL
        WHERE state = 'leased' AND id IN (
            SELECT job_id FROM extraction_job_sources WHERE source_id IN (SELECT value FROM json_each(?))
        )
        """,
        (source_ids,),
    )
    return conn.changes()


def cancel_emptied_jobs(conn: Connection, source_ids: str, *, now_ms: int) -> None:
    """Cancel unfinished and failed jobs that have no sources but these, which go. Caller holds write."""
    conn.execute(
        """
        UPDATE extraction_jobs SET state = 'cancelled', error_code = 'forgotten', finished_at_ms = :now
        WHERE state IN ('queued', 'failed', 'unknown')
          AND id IN (SELECT job_id FROM extraction_job_sources WHERE source_id IN (SELECT value FROM json_each(:ids)))
          AND NOT EXISTS (
              SELECT 1 FROM extraction_job_sources AS j
              WHERE j.job_id = extraction_jobs.id AND j.source_id NOT IN (SELECT value FROM json_each(:ids))
          )
        """,
        {"ids": source_ids, "now": now_ms},
    )


def waits_for_extraction(conn: Connection, source_id: SourceId) -> bool:
    """Whether a job over the source waits or is worked on."""
    row = conn.execute(
        """
        SELECT 1 FROM extraction_job_sources AS s JOIN extraction_jobs AS j ON j.id = s.job_id
        WHERE s.source_id = ? AND j.state IN ('queued', 'leased') LIMIT 1
        """,
        (source_id,),
    ).fetchone()
    return row is not None


def count_jobs(conn: Connection) -> JobCounts:
    rows = conn.execute("SELECT state, count(*) FROM extraction_jobs GROUP BY state")
    by_state: dict[str, int] = {row[0]: row[1] for row in rows}
    return JobCounts(
        queued=by_state.get("queued", 0) + by_state.get("leased", 0),
        failed=by_state.get("failed", 0),
        unknown=by_state.get("unknown", 0),
    )


def _one(conn: Connection, where: str, value: int | str) -> ExtractionJob | None:
    row = conn.execute(
        f"""
        SELECT id, public_id, scope_id, thread_id, run_id, state, claims, outcome, stored_facts, error_code
        FROM extraction_jobs {where}
        """,
        (value,),
    ).fetchone()
    if row is None:
        return None
    return ExtractionJob(
        id=JobId(row[0]),
        public_id=row[1],
        scope_id=ScopeId(row[2]),
        thread_id=ThreadId(row[3]),
        run_id=None if row[4] is None else RunId(row[4]),
        state=State(row[5]),
        claims=row[6],
        outcome=row[7],
        stored_facts=row[8],
        error_code=row[9],
    )
