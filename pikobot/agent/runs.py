"""The transactions of a run's life: accept, claim, account for provider calls, finish.

Each function is one operation on the writer thread. Between claim and finish the network is used without a
transaction; every return from it is guarded by the lease's token, so that a run which was stopped, forgotten or
taken over commits nothing. A value says so; nothing raises for it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pikobot.adapters.chat import Message
from pikobot.agent.context import Context, Room, build_context
from pikobot.clock import local_utc_offset_min
from pikobot.errors import NotFound, PikobotError, ProviderError
from pikobot.memory.extract import queue_sources
from pikobot.memory.spending import check_budget, month_start_ms
from pikobot.store import leases, runs
from pikobot.store.attempts import (
    AttemptId,
    AttemptOutcome,
    NewAttempt,
    finish_attempt,
    has_unknown_attempt,
    insert_attempt,
    mark_started_unknown,
    run_spending,
    workspace_spending,
)
from pikobot.store.connection import Connection, Database
from pikobot.store.facts import cite_facts
from pikobot.store.leases import Lease, State
from pikobot.store.proposals import Place, drop_proposal, drop_waiting, has_proposal
from pikobot.store.runs import Run, RunId
from pikobot.store.scopes import Scope, ensure_scope, load_scope
from pikobot.store.sources import (
    NewSource,
    Origin,
    Source,
    SourceId,
    earliest_expiry,
    insert_source,
    link_dependencies,
    load_sources,
)
from pikobot.store.threads import (
    Thread,
    ThreadId,
    create_thread,
    ensure_thread,
    find_thread_by_public_id,
    load_thread,
)
from pikobot.text import shown_name

MAX_CLAIMS = 3
OWNER = "owner"
ASSISTANT = "pikobot"
DAY_MS = 86_400_000
CUT_OFF = (
    "the request was cut off while the model answered; the call may have been charged, so it is not repeated "
    "by itself: ask again if you still need the answer"
)
CRASHED = f"the answer was begun {MAX_CLAIMS} times and pikobot stopped before its end each time: ask again"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What somebody asks: the text, and the thread that it belongs to (by key, by id, or a new one)."""

    text: str
    scope: Scope
    thread_key: str | None = None
    thread_id: str | None = None
    is_standalone: bool = False
    message_days: int = 0  # retention; 0 keeps for ever


@dataclass(frozen=True)
class Accepted:
    run: Run
    thread: Thread


@dataclass(frozen=True)
class Claimed:
    """A run that this process owns now, with everything that its answer is made from."""

    run: Run
    lease: Lease
    thread: Thread
    scope: Scope
    request: Source
    context: Context
    transcript: tuple[Message, ...]


@dataclass(frozen=True)
class Unanswerable:
    """A run that could be claimed but not executed, and was ended at once."""

    run: Run
    error: PikobotError | None


@dataclass(frozen=True)
class Limits:
    """Ceilings in micro-dollars."""

    run_microusd: int
    workspace_month_microusd: int


@dataclass(frozen=True)
class Result:
    """An answer to be retained."""

    text: str
    origin: Origin
    is_partial: bool


def accept(db: Database, request: Request) -> Accepted:
    """Retain a message and queue its run, both or neither. Raises `NotFound` for a thread of another scope.

    What was waiting for the owner's word in its place is dropped, for this is the next message.
    """
    now_ms = db.clock.now_ms()
    with db.write("accept a message") as tx:
        thread = _thread_of(tx, request, db)
        drop_waiting(tx, Place(thread.scope_id, None if request.is_standalone else thread.id))
        run = runs.insert_run(tx, thread.id, is_standalone=request.is_standalone, clock=db.clock)
        insert_source(
            tx,
            NewSource(
                role="user",
                speaker=OWNER,
                scope_id=thread.scope_id,
                thread_id=thread.id,
                run_id=run.id,
                text=request.text,
                origin="said",
                said_at_ms=now_ms,
                utc_offset_min=local_utc_offset_min(now_ms),
                expires_at_ms=now_ms + request.message_days * DAY_MS if request.message_days else None,
            ),
            db.clock,
        )
    return Accepted(run, thread)


def claim_next(
    db: Database,
    *,
    thread_id: ThreadId | None,
    model: str | None,
    room: Room | None,
    lease_ms: int,
    with_basics: bool = True,
) -> Claimed | Unanswerable | None:
    """Take the next run that is due and load what its answer is made from; None when nothing is due.

    What the context shows is recorded as read by the run: forgetting any of it takes the lease away.
    A run whose earlier execution may have charged unseen is ended, whatever became of that execution.
    ``room`` None: nothing but the request is needed; ``with_basics``: the owner's basics are shown with it.
    """
    now_ms = db.clock.now_ms()
    with db.write("claim a run") as tx:
        run_id = runs.next_claimable(tx, now_ms=now_ms, thread_id=thread_id)
        if run_id is None:
            return None
        lease = leases.claim(
            tx, "runs", run_id, token=db.clock.token("lease"), now_ms=now_ms, lease_ms=lease_ms
        )
        if lease is None:
            return None
        runs.set_model(tx, run_id, model)
        run = runs.load_run(tx, run_id)
        request = _request_of(tx, run_id, now_ms)
        if request is None:
            _end(tx, lease, State.CANCELLED, "forgotten", now_ms)
            return Unanswerable(runs.load_run(tx, run_id), None)
        if _may_have_charged(tx, run_id, now_ms):
            _end(tx, lease, State.UNKNOWN, "interrupted", now_ms)
            return Unanswerable(runs.load_run(tx, run_id), ProviderError(CUT_OFF))
        if lease.claims > MAX_CLAIMS:
            _end(tx, lease, State.FAILED, "crashed", now_ms)
            return Unanswerable(runs.load_run(tx, run_id), PikobotError(CRASHED))
        thread = load_thread(tx, run.thread_id)
        try:
            context = build_context(tx, run, request, room, now_ms=now_ms, with_basics=with_basics)
        except ProviderError as error:
            _end(tx, lease, State.FAILED, "context_exceeded", now_ms)
            return Unanswerable(runs.load_run(tx, run_id), error)
        runs.cite_sources(tx, run_id, context.shown)
        cite_facts(tx, run_id, context.fact_ids, is_given=True)
        transcript = tuple(
            Message.from_json(json.loads(message)) for message in runs.load_transcript(tx, run_id)
        )
        scope = load_scope(tx, thread.scope_id)
        return Claimed(run, lease, thread, scope, request, context, transcript)


def begin_attempt(
    db: Database, lease: Lease | None, new: NewAttempt, limits: Limits, spent_microusd: int = 0
) -> AttemptId | None:
    """Reserve a provider call's highest cost before it is made; None when the run is lost.

    Fails closed: raises `BudgetExceeded` when the reservation doesn't fit the run's or the workspace's budget.
    ``spent_microusd`` counts for a request without a run.
    """
    now_ms = db.clock.now_ms()
    with db.write("reserve a provider call") as tx:
        if lease is not None and not leases.holds(tx, lease):
            return None
        of_run = spent_microusd if new.run_id is None else run_spending(tx, new.run_id)
        check_budget("budget.run_usd", of_run, new.reserved_microusd, limits.run_microusd)
        of_month = workspace_spending(tx, new.workspace, since_ms=month_start_ms(now_ms)).counted_microusd
        check_budget(
            "budget.workspace_usd_per_month", of_month, new.reserved_microusd, limits.workspace_month_microusd
        )
        return insert_attempt(tx, new, now_ms=now_ms)


def end_attempt(
    db: Database,
    lease: Lease | None,
    attempt_id: AttemptId,
    outcome: AttemptOutcome,
    reply: Message | None = None,
) -> bool:
    """Record how a call ended, and the model's message in the run's transcript; False when the run is lost.

    The account is kept either way: money was spent, whatever became of the run.
    """
    with db.write("account for a provider call") as tx:
        finish_attempt(tx, attempt_id, outcome, now_ms=db.clock.now_ms())
        if lease is None:
            return True
        if not leases.holds(tx, lease):
            return False
        if reply is not None:
            runs.append_transcript(
                tx, RunId(lease.row_id), [json.dumps(reply.to_stored(), ensure_ascii=False)]
            )
        return True


def keep_results(db: Database, lease: Lease, results: Sequence[Message]) -> bool:
    """Add tool results to the run's transcript; False when the run is lost."""
    with db.write("keep tool results") as tx:
        if not leases.holds(tx, lease):
            return False
        runs.append_transcript(
            tx, RunId(lease.row_id), [json.dumps(result.to_json(), ensure_ascii=False) for result in results]
        )
        return True


def finish(
    db: Database,
    claimed: Claimed,
    state: State,
    result: Result | None,
    *,
    error_code: str | None = None,
    learns: bool = False,
) -> State | None:
    """Commit the answer and end the run, in one transaction; None, and nothing kept, when the run is lost.

    Returns the state it ended in: a failed run with a call that may have charged ends as 'unknown'. ``learns``
    queues what was said for extraction when the run succeeded, unless it is about what is to be forgotten.
    """
    now_ms = db.clock.now_ms()
    with db.write("finish a run") as tx:
        if not leases.holds(tx, claimed.lease):
            return None
        said = [claimed.request.id]
        if result is not None:
            said.append(_insert_answer(tx, db, claimed, result, now_ms))
        if learns and state is State.SUCCEEDED and not has_proposal(tx, claimed.run.id):
            sources = load_sources(tx, said, now_ms=now_ms).values()
            queue_sources(tx, sources, run_id=claimed.run.id, clock=db.clock)
        return _end(tx, claimed.lease, state, error_code, now_ms)


def interrupt(db: Database, claimed: Claimed) -> State | None:
    """End a run whose execution was cut off: unknown when a call was under way, else queued again.

    None when the run is lost.
    """
    now_ms = db.clock.now_ms()
    with db.write("interrupt a run") as tx:
        if not leases.holds(tx, claimed.lease):
            return None
        return _end_cut_off(tx, claimed.lease, now_ms)


def recover(db: Database) -> list[RunId]:
    """After a crash: end the leases of the process that is gone. Caller holds the instance's serving lock.

    Runs with a provider call under way become 'unknown', and are not repeated; the others are due again.
    Returns the runs that became unknown.
    """
    now_ms = db.clock.now_ms()
    lost: list[RunId] = []
    with db.write("recover after a crash") as tx:
        mark_started_unknown(tx, run_id=None, now_ms=now_ms)
        leases.expire_all(tx, "runs")
        for run_id in runs.leased_runs(tx):
            if _may_have_charged(tx, run_id, now_ms):
                lease = leases.current(tx, "runs", run_id)
                if lease is not None:
                    _end(tx, lease, State.UNKNOWN, "interrupted", now_ms)
                    lost.append(run_id)
    return lost


def cancel_queued(db: Database, run_ids: Sequence[RunId]) -> int:
    """Cancel runs that still wait; returns how many. Running ones are the runner's to stop."""
    with db.write("cancel queued runs") as tx:
        return runs.cancel_queued(tx, run_ids, now_ms=db.clock.now_ms())


def is_cut_off(conn: Connection, thread_public_id: str) -> bool:
    """Whether the last run of a thread has an unknown outcome: it may have been charged and is not repeated."""
    thread = find_thread_by_public_id(conn, thread_public_id)
    last = None if thread is None else runs.last_run(conn, thread.id)
    return last is not None and last.state is State.UNKNOWN


def _thread_of(tx: Connection, request: Request, db: Database) -> Thread:
    """One that is gone, forgotten or expired, is begun again."""
    scope_id = ensure_scope(tx, request.scope)
    thread = None if request.thread_id is None else find_thread_by_public_id(tx, request.thread_id)
    if thread is not None and thread.scope_id != scope_id:
        raise NotFound(f"there is no conversation {shown_name(thread.public_id)}")
    if thread is not None:
        return thread
    if request.thread_key is not None:
        return ensure_thread(tx, scope_id, request.thread_key, db.clock)
    return create_thread(tx, scope_id, None, db.clock)


def _request_of(tx: Connection, run_id: RunId, now_ms: int) -> Source | None:
    source_id = runs.request_source_id(tx, run_id)
    return None if source_id is None else load_sources(tx, [source_id], now_ms=now_ms).get(source_id)


def _insert_answer(tx: Connection, db: Database, claimed: Claimed, result: Result, now_ms: int) -> SourceId:
    read_by_tools = set(runs.cited_sources(tx, claimed.run.id)) - set(claimed.context.shown)
    depends_on = {*claimed.context.depends_on, *read_by_tools}
    answer = insert_source(
        tx,
        NewSource(
            role="assistant",
            speaker=ASSISTANT,
            scope_id=claimed.thread.scope_id,
            thread_id=claimed.thread.id,
            run_id=claimed.run.id,
            text=result.text,
            origin=result.origin,
            is_partial=result.is_partial,
            said_at_ms=now_ms,
            utc_offset_min=local_utc_offset_min(now_ms),
            expires_at_ms=earliest_expiry(tx, depends_on),
        ),
        db.clock,
    )
    link_dependencies(tx, answer, depends_on)
    return answer


def _end(tx: Connection, lease: Lease, state: State, error_code: str | None, now_ms: int) -> State:
    """End a leased run; what it kept only while it ran goes."""
    mark_started_unknown(tx, run_id=lease.row_id, now_ms=now_ms)
    if state is State.FAILED and has_unknown_attempt(tx, lease.row_id):
        state = State.UNKNOWN
    runs.clear_execution(tx, RunId(lease.row_id))
    if state is not State.SUCCEEDED:
        drop_proposal(tx, RunId(lease.row_id))
    leases.finish(tx, lease, state, now_ms=now_ms, error_code=error_code)
    return state


def _end_cut_off(tx: Connection, lease: Lease, now_ms: int) -> State:
    if _may_have_charged(tx, RunId(lease.row_id), now_ms):
        _end(tx, lease, State.UNKNOWN, "interrupted", now_ms)
        return State.UNKNOWN
    leases.release(tx, lease)
    return State.QUEUED


def _may_have_charged(tx: Connection, run_id: RunId, now_ms: int) -> bool:
    """Whether a call of the run is under way, or ended unknown before the run could be ended with it."""
    return mark_started_unknown(tx, run_id=run_id, now_ms=now_ms) > 0 or has_unknown_attempt(tx, run_id)
