"""The transactions of embedding: claim a batch, account for its call, store its vectors, change the set.

    rows without vector ──claim──▶ texts ─▶ network ─▶ vectors stored, call accounted, batch gone: one commit

A vector is stored only if its text still says what was sent. A new profile fills a set beside the one that serves;
when nothing is left to do the sets change places, and the old one is dropped with its bytes overwritten.
What may have been charged without an answer is not sent again by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pikobot.errors import InvalidParams
from pikobot.memory.embedding import problems
from pikobot.memory.embedding.contract import Embedded, EmbeddingLimits, Engine
from pikobot.memory.embedding.problems import Failing
from pikobot.memory.spending import check_budget, day_start_ms, month_start_ms
from pikobot.store import embedding_jobs, leases
from pikobot.store.attempts import (
    AttemptId,
    AttemptOutcome,
    AttemptState,
    NewAttempt,
    finish_attempt,
    insert_attempt,
    purpose_spending,
    workspace_spending,
)
from pikobot.store.connection import Connection, Database
from pikobot.store.embedding_jobs import BatchCounts, EmbeddingJobId, EmbeddingText
from pikobot.store.leases import Lease, State
from pikobot.store.vectors.owners import Owner
from pikobot.store.vectors.profiles import (
    Profile,
    SetId,
    SetState,
    VectorSet,
    active_set,
    building_set,
    count_vectors,
    create_set,
    drop_set,
    has_stale_block,
    list_sets,
    retire_set,
    retired_sets,
    serve_set,
)
from pikobot.text import Count

if TYPE_CHECKING:  # loaded with the first vector that is stored
    from pikobot.store.vectors.records import NewVector

PURPOSE = "embed"
QUERY_PURPOSE = "embed-query"
NOT_EMBEDDED = "nothing is embedded yet: text search only"
MAX_CLAIMS = 3
FIRST_RETRY_MS = 60_000
RETRY_FACTOR = 10
# A set answers when so few texts wait that what they hide is little: these, and one in twenty of what it holds, but
# never more than what it holds.
TOLERATED = 100
TOLERATED_SHARE = 20
# What can't be embedded must not keep a new set from its place for ever; the old one has more than this to offer.
MISSING_AT_CHANGE = 5


@dataclass(frozen=True)
class ClaimedBatch:
    """A batch that this process owns now, with what to send."""

    lease: Lease
    vector_set: VectorSet
    workspace: str
    texts: tuple[EmbeddingText, ...]


class Idle(StrEnum):
    """Why no batch was claimed."""

    NOTHING_DUE = "nothing due"


@dataclass(frozen=True)
class Progress:
    """How far the set of a profile is. ``waiting`` is counted up to a limit."""

    state: SetState
    vectors: int
    waiting: int
    batches: BatchCounts

    @property
    def is_usable(self) -> bool:
        """Whether what has no vector is little enough not to spoil a ranking."""
        return self.waiting + self.batches.total <= tolerated(self.vectors)

    @property
    def may_take_over(self) -> bool:
        """Whether a new set is as good as whole, so that it can take the place of the one that serves."""
        missing = self.waiting + self.batches.total
        return missing <= min(MISSING_AT_CHANGE + self.vectors // TOLERATED_SHARE, self.vectors)


def tolerated(vectors: int) -> int:
    return min(TOLERATED + vectors // TOLERATED_SHARE, vectors)


def claim_batch(db: Database, profile: Profile, *, limit: int, lease_ms: int) -> ClaimedBatch | Idle:
    """Take what is to be embedded next for a profile, made its set if need be.

    When nothing is left and the set is a new one, it serves from then on.
    """
    now_ms = db.clock.now_ms()
    with db.write("claim texts to embed") as tx:
        vector_set = _wanted_set(tx, profile, now_ms)
        while (job_id := _next_batch(tx, vector_set, limit, db)) is not None:
            token = db.clock.token("lease")
            lease = leases.claim(
                tx, embedding_jobs.TABLE, job_id, token=token, now_ms=now_ms, lease_ms=lease_ms
            )
            if lease is None:
                break
            claimed = _load(tx, job_id, lease, vector_set, now_ms)
            if claimed is not None:
                return claimed
        if vector_set.state is SetState.BUILDING and not embedding_jobs.is_unfinished(tx, vector_set.id):
            _serve_if_whole(tx, vector_set, now_ms)
        return Idle.NOTHING_DUE


def begin_call(
    db: Database, lease: Lease | None, new: NewAttempt, limits: EmbeddingLimits
) -> AttemptId | None:
    """Reserve a call's highest cost before it is made; None when the batch is lost. Raises `BudgetExceeded`.

    Without a lease it is the call for a question, which the budget of the month alone is held against.
    """
    now_ms = db.clock.now_ms()
    with db.write("reserve a call that embeds") as tx:
        if lease is not None:
            if not leases.holds(tx, lease):
                return None
            of_day = purpose_spending(tx, PURPOSE, since_ms=day_start_ms(now_ms))
            check_budget("budget.background_usd_per_day", of_day, new.reserved_microusd, limits.day_microusd)
        of_month = workspace_spending(tx, new.workspace, since_ms=month_start_ms(now_ms)).counted_microusd
        check_budget(
            "budget.workspace_usd_per_month", of_month, new.reserved_microusd, limits.workspace_month_microusd
        )
        attempt = insert_attempt(tx, new, now_ms=now_ms)
        if lease is not None:
            embedding_jobs.note_attempt(tx, lease, attempt)
        return attempt


def end_call(db: Database, attempt_id: AttemptId, outcome: AttemptOutcome) -> None:
    """Account for a call that brought no vectors to store."""
    with db.write("account for a call that embeds") as tx:
        finish_attempt(tx, attempt_id, outcome, now_ms=db.clock.now_ms())


def succeeded(engine: Engine, embedded: Embedded) -> AttemptOutcome:
    """The account of a call that was answered."""
    tokens = embedded.input_tokens
    return AttemptOutcome(
        state=AttemptState.SUCCEEDED,
        cost_microusd=None if tokens is None else engine.cost_microusd(tokens),
        input_tokens=tokens,
        output_tokens=0,
    )


def commit_batch(
    db: Database,
    claimed: ClaimedBatch,
    embedded: Embedded,
    attempt: tuple[AttemptId, AttemptOutcome] | None,
) -> int | None:
    """Store the vectors of what still says the same; returns how many, None when the batch is lost.

    What has changed meanwhile is embedded again. Accounts for the call in any case. A vector that can't be stored
    ends the batch as failed.
    """
    try:
        return _commit_batch(db, claimed, embedded, attempt)
    except InvalidParams:
        if attempt is not None:
            end_call(db, *attempt)
        put_off(db, claimed.lease, "unusable_vector")
        return 0


def put_off(db: Database, lease: Lease, error_code: str) -> None:
    """After a failure for the sake of the texts: again later, each by itself; three claims at the most."""
    now_ms = db.clock.now_ms()
    with db.write("put a batch of texts off") as tx:
        if not leases.holds(tx, lease):
            return
        if lease.claims >= MAX_CLAIMS:
            leases.finish(tx, lease, State.FAILED, now_ms=now_ms, error_code=error_code)
            return
        later_ms = now_ms + FIRST_RETRY_MS * RETRY_FACTOR ** (lease.claims - 1)
        embedding_jobs.split_batch(tx, lease, not_before_ms=later_ms, error_code=error_code, clock=db.clock)


def give_back(db: Database, lease: Lease) -> None:
    """Return a batch that got no answer for no fault of its texts, as if it had not been claimed.

    When its call may have been charged, it ends as unknown instead.
    """
    with db.write("give a batch of texts back") as tx:
        if leases.holds(tx, lease):
            _end_cut_off(tx, lease, db.clock.now_ms())


def note_failure(db: Database, what: Failing, engine: Engine, code: str) -> None:
    """Keep for other processes that embedding fails now, and why."""
    with db.write("note that embedding fails") as tx:
        problems.note(tx, what, provider=engine.profile.provider, code=code, now_ms=db.clock.now_ms())


def clear_failure(db: Database, what: Failing) -> None:
    with db.write("note that embedding works") as tx:
        problems.clear(tx, what)


def recover_batches(db: Database) -> int:
    """After a crash: batches with a call under way that can charge become unknown, the others are due again.

    Returns how many became unknown. Caller holds the instance's serving lock.
    """
    now_ms = db.clock.now_ms()
    unknown = 0
    with db.write("recover batches of texts") as tx:
        for job_id in embedding_jobs.leased_batches(tx):
            lease = leases.current(tx, embedding_jobs.TABLE, job_id)
            if lease is not None:
                unknown += _end_cut_off(tx, lease, now_ms) is State.UNKNOWN
    return unknown


def drop_retired(db: Database) -> bool:
    """Delete a part of a set that no longer serves, its bytes overwritten; False when there is none."""
    with db.read() as conn:
        old = retired_sets(conn)
    if not old:
        return False
    with db.write("drop old vectors") as tx:
        drop_set(tx, old[0].id)
        return True


def refresh_one(db: Database, profile: Profile) -> bool:
    """Bring one block of the profile's set up to the newest mean; False when all are. Writes only if there is one."""
    with db.read() as conn:
        found = [
            each for each in list_sets(conn) if each.profile == profile and has_stale_block(conn, each.id)
        ]
    if not found:
        return False
    from pikobot.store.vectors.rebuild import refresh_block  # loads numpy

    with db.write("quantise a block of vectors again") as tx:
        return refresh_block(tx, found[0].id)


def progress(conn: Connection, vector_set: VectorSet, *, now_ms: int) -> Progress:
    """How far a set is; cheap however much waits."""
    vectors = count_vectors(conn, vector_set.id)
    return Progress(
        state=vector_set.state,
        vectors=vectors,
        waiting=embedding_jobs.count_above_mark(
            conn, vector_set.id, now_ms=now_ms, at_most=tolerated(vectors) + 1
        ),
        batches=embedding_jobs.count_batches(conn, vector_set.id),
    )


def count_waiting(conn: Connection, profile: Profile, *, now_ms: int, at_most: int) -> int:
    """How many texts wait for the set that serves, or for the first one; 0 when that of another profile serves."""
    serving = active_set(conn)
    if serving is not None and serving.profile != profile:
        return 0
    set_id = SetId(0) if serving is None else serving.id
    above_mark = embedding_jobs.count_above_mark(conn, set_id, now_ms=now_ms, at_most=at_most)
    return above_mark + embedding_jobs.count_batches(conn, set_id).queued


def usable_set(conn: Connection, profile: Profile, *, now_ms: int) -> tuple[VectorSet | None, str | None]:
    """The set that answers questions of a profile, else None and why vectors are of no use now."""
    serving = active_set(conn)
    if serving is None:
        return None, NOT_EMBEDDED
    if serving.profile != profile:
        return (
            None,
            f"the vectors are of {serving.profile.model} until the new ones are made: text search only",
        )
    state = progress(conn, serving, now_ms=now_ms)
    if not state.is_usable and not state.vectors:
        return None, NOT_EMBEDDED
    if not state.is_usable:
        return None, f"{Count(state.vectors):text is|texts are} embedded and more wait: text search only"
    return serving, None


def _wanted_set(tx: Connection, profile: Profile, now_ms: int) -> VectorSet:
    wanted = create_set(tx, profile, now_ms=now_ms)
    building = building_set(tx)
    if building is not None and building.id != wanted.id:
        retire_set(tx, building.id)  # the profile was set back to the one that serves
    return wanted


def _next_batch(tx: Connection, vector_set: VectorSet, limit: int, db: Database) -> EmbeddingJobId | None:
    due = embedding_jobs.next_due(tx, vector_set.id, now_ms=db.clock.now_ms())
    return due or embedding_jobs.take_batch(tx, vector_set.id, limit=limit, clock=db.clock)


def _load(
    tx: Connection, job_id: EmbeddingJobId, lease: Lease, vector_set: VectorSet, now_ms: int
) -> ClaimedBatch | None:
    """A claimed batch; None when it was ended: nothing is left of it, or it keeps crashing."""
    if embedding_jobs.may_have_charged(tx, lease):
        _end_cut_off(tx, lease, now_ms)
        return None
    texts = embedding_jobs.load_texts(tx, job_id, now_ms=now_ms)
    if not texts:
        embedding_jobs.delete_batch(tx, lease)
        return None
    if lease.claims > MAX_CLAIMS:
        leases.finish(tx, lease, State.FAILED, now_ms=now_ms, error_code="crashed")
        return None
    return ClaimedBatch(lease, vector_set, embedding_jobs.workspace_of(tx, lease), tuple(texts))


def _serve_if_whole(tx: Connection, vector_set: VectorSet, now_ms: int) -> None:
    if progress(tx, vector_set, now_ms=now_ms).may_take_over:
        serve_set(tx, vector_set.id)


def _commit_batch(
    db: Database,
    claimed: ClaimedBatch,
    embedded: Embedded,
    attempt: tuple[AttemptId, AttemptOutcome] | None,
) -> int | None:
    from pikobot.store.vectors.placing import put_vectors  # loads numpy

    now_ms = db.clock.now_ms()
    with db.write("store vectors") as tx:
        if attempt is not None:
            finish_attempt(tx, attempt[0], attempt[1], now_ms=now_ms)
        if not leases.holds(tx, claimed.lease):
            return None
        job_id = EmbeddingJobId(claimed.lease.row_id)
        now_there = {text.owner: text for text in embedding_jobs.load_texts(tx, job_id, now_ms=now_ms)}
        new = _unchanged(claimed.texts, embedded, now_there)
        problems.clear(tx, Failing.TEXTS)
        put_vectors(tx, claimed.vector_set.id, new)
        stored = {vector.owner for vector in new}
        changed = [owner for owner in now_there if owner not in stored]
        embedding_jobs.delete_batch(tx, claimed.lease)
        if changed:
            embedding_jobs.insert_batch(
                tx, claimed.vector_set.id, changed, workspace=claimed.workspace, clock=db.clock
            )
        return len(new)


def _unchanged(
    sent: Sequence[EmbeddingText], embedded: Embedded, now_there: dict[Owner, EmbeddingText]
) -> "list[NewVector]":
    from pikobot.store.vectors.records import NewVector

    return [
        NewVector(text.owner, text.scope_id, text.at_ms, values)
        for text, values in zip(sent, embedded.vectors, strict=True)
        if text.owner in now_there and now_there[text.owner].hash == text.hash
    ]


def _end_cut_off(tx: Connection, lease: Lease, now_ms: int) -> State:
    if embedding_jobs.may_have_charged(tx, lease):
        embedding_jobs.end_attempt_unknown(tx, lease, now_ms=now_ms)
        leases.finish(tx, lease, State.UNKNOWN, now_ms=now_ms, error_code="interrupted")
        return State.UNKNOWN
    leases.release(tx, lease)
    return State.QUEUED
