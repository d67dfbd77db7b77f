from typing import Any

from pikobot.store import extraction_jobs, leases
from pikobot.store.connection import Connection, Database
from pikobot.store.extraction_jobs import (
    ExtractionJob,
    JobCounts,
    JobId,
    cancel_emptied_jobs,
    count_jobs,
    fence_jobs,
    find_job,
    finish_job,
    insert_job,
    job_sources,
    load_job,
    next_due,
    next_due_ms,
    rejections_of,
    requeue,
)
from pikobot.store.leases import Lease, State
from pikobot.store.sources import SourceId
from tests.clock import NOW_MS
from tests.store import rows


def queued(db: Database, *texts: str) -> tuple[JobId, list[SourceId]]:
    thread = rows.thread(db)
    sources = [rows.source(db, thread, text) for text in texts]
    job = rows.write(
        db,
        insert_job,
        scope_id=thread.scope_id,
        thread_id=thread.id,
        run_id=None,
        source_ids=sources,
        clock=db.clock,
    )
    return job, sources


def claimed(db: Database, job_id: JobId, *, now_ms: int = NOW_MS) -> Lease:
    lease = rows.write(
        db, leases.claim, extraction_jobs.TABLE, job_id, token=f"t{now_ms}", now_ms=now_ms, lease_ms=100
    )
    assert lease is not None
    return lease


def job(db: Database, job_id: JobId) -> ExtractionJob:
    return rows.read(db, load_job, job_id)


def test_a_job_knows_its_sources_in_the_order_in_which_they_were_said(db: Database) -> None:
    thread = rows.thread(db)
    late = rows.source(db, thread, "三", said_at_ms=NOW_MS + 9)
    early = rows.source(db, thread, "one", said_at_ms=NOW_MS - 9)
    run = rows.run(db, thread.id)
    made = rows.write(
        db,
        insert_job,
        scope_id=thread.scope_id,
        thread_id=thread.id,
        run_id=run.id,
        source_ids=[late, early, late],
        clock=db.clock,
    )
    assert rows.read(db, job_sources, made) == [early, late]
    kept = job(db, made)
    assert kept == ExtractionJob(
        made, kept.public_id, thread.scope_id, thread.id, run.id, State.QUEUED, 0, None, 0, None
    )
    assert rows.read(db, find_job, kept.public_id) == kept
    assert rows.read(db, find_job, "job_unknown") is None


def test_the_oldest_due_job_is_claimed_first(db: Database) -> None:
    first, second, third = (queued(db, f"text {n}")[0] for n in range(3))
    lease = claimed(db, first)
    rows.write(db, leases.retry, lease, not_before_ms=NOW_MS + 50, error_code="timeout")
    assert rows.read(db, next_due, now_ms=NOW_MS) == second
    claimed(db, second)
    assert rows.read(db, next_due, now_ms=NOW_MS) == third
    assert rows.read(db, next_due, now_ms=NOW_MS + 50) == first
    finished = claimed(db, third)
    rows.write(db, leases.finish, finished, State.FAILED, now_ms=NOW_MS, error_code="refused")
    assert rows.read(db, next_due_ms) == NOW_MS + 50
    assert rows.read(db, next_due, now_ms=NOW_MS) is None
    rows.write(db, leases.finish, claimed(db, first, now_ms=NOW_MS + 50), State.SUCCEEDED, now_ms=NOW_MS)
    assert rows.read(db, next_due, now_ms=NOW_MS + 99) is None
    assert rows.read(db, next_due, now_ms=NOW_MS + 100) == second


def test_a_job_ends_with_its_outcome_and_reasons_only_under_its_lease(db: Database) -> None:
    made, _ = queued(db, "text")
    lease = claimed(db, made)
    ending: dict[str, Any] = {
        "outcome": "stored",
        "stored_facts": 2,
        "rejections": {"bad_date": 2, "quote_not_found": 1, "none": 0},
        "now_ms": NOW_MS,
    }
    stale = Lease(lease.table, lease.row_id, "other", 1)
    assert rows.write(db, finish_job, stale, **ending) is False
    assert job(db, made).state == State.LEASED
    assert rows.write(db, finish_job, lease, **ending) is True
    kept = job(db, made)
    assert (kept.state, kept.outcome, kept.stored_facts) == (State.SUCCEEDED, "stored", 2)
    assert rows.read(db, rejections_of, made) == {"bad_date": 2, "quote_not_found": 1}


def test_only_failed_and_unknown_jobs_with_sources_are_queued_again(db: Database) -> None:
    by_state = {}
    for state in (State.FAILED, State.UNKNOWN, State.SUCCEEDED, State.CANCELLED):
        made, _ = queued(db, f"text {state}")
        rows.write(db, leases.finish, claimed(db, made), state, now_ms=NOW_MS, error_code="x")
        by_state[state] = made
    empty, _ = queued(db)
    rows.write(db, leases.finish, claimed(db, empty), State.FAILED, now_ms=NOW_MS)
    waiting, _ = queued(db, "waiting")
    claimed(db, waiting)
    assert rows.read(db, count_jobs) == JobCounts(queued=1, failed=2, unknown=1)
    assert rows.write(db, requeue, by_state[State.SUCCEEDED]) == 0
    assert rows.write(db, requeue, None) == 2
    assert rows.write(db, requeue, None) == 0
    assert rows.read(db, count_jobs) == JobCounts(queued=3, failed=1, unknown=0)
    again = job(db, by_state[State.UNKNOWN])
    assert (again.state, again.claims, again.error_code) == (State.QUEUED, 0, None)


def test_jobs_lose_their_lease_with_a_source_and_end_without_any(db: Database) -> None:
    partly, (gone, _) = queued(db, "gone", "stays")
    wholly, (last,) = queued(db, "last")
    other, _ = queued(db, "other")
    held = [claimed(db, each) for each in (partly, wholly, other)]

    def fence(tx: Connection) -> int:
        fenced = fence_jobs(tx, f"[{gone}, {last}]")
        cancel_emptied_jobs(tx, f"[{gone}, {last}]", now_ms=NOW_MS)
        return fenced

    assert rows.write(db, fence) == 2
    assert [job(db, each).state for each in (partly, wholly, other)] == [
        State.QUEUED,
        State.CANCELLED,
        State.LEASED,
    ]
    assert (job(db, partly).claims, job(db, wholly).error_code) == (0, "forgotten")
    assert [rows.read(db, leases.holds, lease) for lease in held] == [False, False, True]
    assert rows.write(db, fence) == 0


def test_the_next_job_is_found_in_the_order_of_an_index(db: Database) -> None:
    traced: list[str] = []

    def note(cursor: object, sql: str, bindings: object) -> bool:
        traced.append(sql)
        return True

    def look(tx: Connection) -> None:
        tx.exec_trace = note
        next_due(tx, now_ms=NOW_MS)
        tx.exec_trace = None
        [statement] = traced
        plan = tx.execute(f"EXPLAIN QUERY PLAN {statement}", {"now": NOW_MS}).fetchall()
        assert "SCAN extraction_jobs USING INDEX extraction_jobs_unfinished" in str(plan)
        assert "TEMP B-TREE" not in str(plan)

    rows.write(db, look)
