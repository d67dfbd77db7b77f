"""The transactions of learning: queue what was said, claim a batch of it, account for calls, end the job.

    run finished, record imported ──queue──▶ job ──claim──▶ batch ─▶ network ─▶ `facts.commit_candidates`

A batch is what the job's sources say, with the turns before them and the nearest known facts as context. Answers
quoted from memory are never part of it: what was recalled may not be learned again as if it had been said.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pikobot.clock import Clock
from pikobot.memory.facts import SourceSnapshot, snapshots
from pikobot.memory.spending import check_budget, day_start_ms, month_start_ms
from pikobot.store import extraction_jobs, leases
from pikobot.store.attempts import (
    AttemptId,
    AttemptOutcome,
    AttemptState,
    NewAttempt,
    count_attempts,
    finish_attempt,
    insert_attempt,
    mark_started_unknown,
    purpose_spending,
    workspace_spending,
)
from pikobot.store.connection import Connection, Database
from pikobot.store.extraction_jobs import ExtractionJob, JobId, Outcome
from pikobot.store.fact_index import FactFilters, search_facts
from pikobot.store.facts import Fact, FactId, load_facts
from pikobot.store.history import messages_before
from pikobot.store.leases import Lease, State
from pikobot.store.runs import RunId
from pikobot.store.scopes import load_scope
from pikobot.store.sources import Source, load_sources

PURPOSE = "extract"
LEASE_MS = 15 * 60_000
MAX_CLAIMS = 3
MAX_JOB_SOURCES = 20
MAX_JOB_BYTES = 24_000
MAX_EARLIER = 10
MAX_KNOWN = 10
MAX_QUERY_CHARS = 2_000
HOUR_MS = 3_600_000
FIRST_RETRY_MS = 60_000
RETRY_FACTOR = 10


@dataclass(frozen=True)
class LearningLimits:
    """Ceilings of background learning, in micro-dollars and calls."""

    day_microusd: int
    workspace_month_microusd: int
    calls_per_hour: int


@dataclass(frozen=True)
class ClaimedJob:
    """A job that this process owns now, with everything that its facts are made from."""

    job: ExtractionJob
    lease: Lease
    workspace: str
    snapshots: tuple[SourceSnapshot, ...]
    turns: tuple[Source, ...]
    earlier: tuple[Source, ...]
    known: tuple[Fact, ...]


class Idle(StrEnum):
    """Why no job was claimed."""

    NOTHING_DUE = "nothing due"
    HOURLY_LIMIT = "extraction.max_jobs_per_hour is reached"


def queue_sources(conn: Connection, sources: Iterable[Source], *, run_id: RunId | None, clock: Clock) -> int:
    """Queue jobs over sources of one thread in bounded batches; returns how many jobs. Caller holds write."""
    jobs = 0
    for batch in _batches([source for source in sources if source.origin != "recall"]):
        extraction_jobs.insert_job(
            conn,
            scope_id=batch[0].scope_id,
            thread_id=batch[0].thread_id,
            run_id=run_id,
            source_ids=[source.id for source in batch],
            clock=clock,
        )
        jobs += 1
    return jobs


def claim_job(db: Database, limits: LearningLimits, *, lease_ms: int = LEASE_MS) -> ClaimedJob | Idle:
    """Take the next job that is due and load its batch. Jobs that can't be worked on end here."""
    now_ms = db.clock.now_ms()
    with db.write("claim an extraction job") as tx:
        if count_attempts(tx, PURPOSE, since_ms=now_ms - HOUR_MS) >= limits.calls_per_hour:
            return Idle.HOURLY_LIMIT
        while (job_id := extraction_jobs.next_due(tx, now_ms=now_ms)) is not None:
            token = db.clock.token("lease")
            lease = leases.claim(
                tx, extraction_jobs.TABLE, job_id, token=token, now_ms=now_ms, lease_ms=lease_ms
            )
            if lease is None:
                break
            claimed = _load(tx, job_id, lease, now_ms)
            if claimed is not None:
                return claimed
        return Idle.NOTHING_DUE


def begin_call(db: Database, lease: Lease, new: NewAttempt, limits: LearningLimits) -> AttemptId | None:
    """Reserve a call's highest cost before it is made; None when the job is lost. Raises `BudgetExceeded`."""
    now_ms = db.clock.now_ms()
    with db.write("reserve a call that learns") as tx:
        if not leases.holds(tx, lease):
            return None
        of_day = purpose_spending(tx, PURPOSE, since_ms=day_start_ms(now_ms))
        check_budget("budget.background_usd_per_day", of_day, new.reserved_microusd, limits.day_microusd)
        of_month = workspace_spending(tx, new.workspace, since_ms=month_start_ms(now_ms)).counted_microusd
        check_budget(
            "budget.workspace_usd_per_month",
            of_month,
            new.reserved_microusd,
            limits.workspace_month_microusd,
        )
        return insert_attempt(tx, new, now_ms=now_ms)


def end_call(db: Database, attempt_id: AttemptId, outcome: AttemptOutcome) -> None:
    with db.write("account for a call that learns") as tx:
        finish_attempt(tx, attempt_id, outcome, now_ms=db.clock.now_ms())


def end_without_facts(db: Database, lease: Lease, outcome: Outcome, rejections: dict[str, int]) -> bool:
    """End a job whose answer held nothing, or nothing usable; False when the job is lost."""
    with db.write("end an extraction job") as tx:
        return extraction_jobs.finish_job(
            tx, lease, outcome=outcome, stored_facts=0, rejections=rejections, now_ms=db.clock.now_ms()
        )


def end_unknown(db: Database, lease: Lease, error_code: str) -> bool:
    """End a job whose call may have been charged without an answer; False when the job is lost."""
    with db.write("end an extraction job of unknown outcome") as tx:
        return leases.finish(tx, lease, State.UNKNOWN, now_ms=db.clock.now_ms(), error_code=error_code)


def put_off(db: Database, lease: Lease, error_code: str, *, answer_is_stale: bool = False) -> State | None:
    """After a failure that was not charged: again later, three claims at the most; None when the job is lost.

    A call whose end was not recorded makes the job unknown instead. What was answered in this claim is asked again
    only because its sources have changed (``answer_is_stale``); else the job fails.
    """
    now_ms = db.clock.now_ms()
    with db.write("put an extraction job off") as tx:
        if not leases.holds(tx, lease):
            return None
        if mark_started_unknown(tx, job_id=lease.row_id, now_ms=now_ms):
            leases.finish(tx, lease, State.UNKNOWN, now_ms=now_ms, error_code=error_code)
            return State.UNKNOWN
        is_spent = not answer_is_stale and AttemptState.SUCCEEDED in _calls(tx, lease)
        if is_spent or lease.claims >= MAX_CLAIMS:
            leases.finish(tx, lease, State.FAILED, now_ms=now_ms, error_code=error_code)
            return State.FAILED
        wait_ms = FIRST_RETRY_MS * RETRY_FACTOR ** (lease.claims - 1)
        leases.retry(tx, lease, not_before_ms=now_ms + wait_ms, error_code=error_code)
        return State.QUEUED


def give_back(db: Database, lease: Lease, *, not_before_ms: int = 0) -> State | None:
    """Return a job that was cut off: queued and not counted, unless a call was made.

    Unknown when it is under way, failed when its answer is lost: neither is asked again by itself.
    """
    now_ms = db.clock.now_ms()
    with db.write("give an extraction job back") as tx:
        if not leases.holds(tx, lease):
            return None
        return _end_cut_off(tx, lease, now_ms, not_before_ms)


def recover_jobs(db: Database) -> int:
    """After a crash: jobs with a call under way become unknown, those that were not called are due again.

    A job whose answer came and was lost fails. Returns how many became unknown.

    Caller holds the instance's serving lock.
    """
    now_ms = db.clock.now_ms()
    unknown = 0
    with db.write("recover extraction jobs") as tx:
        for job_id in extraction_jobs.leased_jobs(tx):
            lease = leases.current(tx, extraction_jobs.TABLE, job_id)
            if lease is not None and _end_cut_off(tx, lease, now_ms, 0) is State.UNKNOWN:
                unknown += 1
    return unknown


def _end_cut_off(tx: Connection, lease: Lease, now_ms: int, not_before_ms: int) -> State:
    mark_started_unknown(tx, job_id=lease.row_id, now_ms=now_ms)
    calls = _calls(tx, lease)
    if AttemptState.UNKNOWN in calls:
        leases.finish(tx, lease, State.UNKNOWN, now_ms=now_ms, error_code="interrupted")
        return State.UNKNOWN
    if AttemptState.SUCCEEDED in calls:
        leases.finish(tx, lease, State.FAILED, now_ms=now_ms, error_code="interrupted")
        return State.FAILED
    leases.release(tx, lease, not_before_ms=not_before_ms)
    return State.QUEUED


def _calls(tx: Connection, lease: Lease) -> set[str]:
    return extraction_jobs.calls_since_claim(tx, JobId(lease.row_id), lease_ms=LEASE_MS)


def _load(tx: Connection, job_id: JobId, lease: Lease, now_ms: int) -> ClaimedJob | None:
    """The batch of a claimed job; None when it was ended because there is nothing left, or it keeps crashing."""
    job = extraction_jobs.load_job(tx, job_id)
    turns = tuple(load_sources(tx, extraction_jobs.job_sources(tx, job_id), now_ms=now_ms).values())
    if mark_started_unknown(tx, job_id=job_id, now_ms=now_ms):
        leases.finish(tx, lease, State.UNKNOWN, now_ms=now_ms, error_code="interrupted")
        return None
    if not turns or lease.claims > MAX_CLAIMS:
        state, code = (State.FAILED, "crashed") if turns else (State.CANCELLED, "forgotten")
        leases.finish(tx, lease, state, now_ms=now_ms, error_code=code)
        return None
    earlier_ids = messages_before(tx, turns[0], now_ms=now_ms, limit=MAX_EARLIER)
    earlier = tuple(
        source
        for source in load_sources(tx, earlier_ids, now_ms=now_ms).values()
        if source.origin != "recall"
    )
    return ClaimedJob(
        job=job,
        lease=lease,
        workspace=load_scope(tx, job.scope_id).workspace,
        snapshots=tuple(snapshots((*turns, *earlier))),
        turns=turns,
        earlier=earlier,
        known=_known_facts(tx, job, turns, now_ms),
    )


def _known_facts(
    tx: Connection, job: ExtractionJob, turns: Sequence[Source], now_ms: int
) -> tuple[Fact, ...]:
    said = " ".join(turn.text for turn in turns if turn.role != "assistant")[:MAX_QUERY_CHARS]
    filters = FactFilters(scope_ids=[job.scope_id], now_ms=now_ms)
    hits = search_facts(tx, query=said, filters=filters, limit=MAX_KNOWN)
    return tuple(load_facts(tx, [FactId(hit.fact_id) for hit in hits], now_ms=now_ms).values())


def _batches(sources: Sequence[Source]) -> Iterable[list[Source]]:
    """Runs of sources that fit one model call; a long one stands alone."""
    batch: list[Source] = []
    size = 0
    for source in sources:
        length = len(source.text.encode())
        if batch and (len(batch) == MAX_JOB_SOURCES or size + length > MAX_JOB_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += length
    if batch:
        yield batch
