import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pikobot.store import leases
from pikobot.store.connection import Database
from pikobot.store.leases import FINAL_STATES, Lease, State
from pikobot.store.prepare import open_database
from pikobot.store.runs import Run, RunId, load_run
from tests.clock import NOW_MS, FakeClock
from tests.store import rows

LEASE_MS = 1000


@pytest.fixture
def run(db: Database) -> Run:
    return rows.run(db, rows.thread(db).id)


def claim(db: Database, run_id: RunId, token: str = "mine", *, now_ms: int = NOW_MS) -> Lease | None:
    return rows.write(db, leases.claim, "runs", run_id, token=token, now_ms=now_ms, lease_ms=LEASE_MS)


def owned(db: Database, run_id: RunId, token: str = "mine", *, now_ms: int = NOW_MS) -> Lease:
    lease = claim(db, run_id, token, now_ms=now_ms)
    assert lease is not None
    return lease


def lease_columns(db: Database, run_id: RunId) -> tuple[object, ...]:
    """state, not_before_ms, lease_token, lease_expires_at_ms, claims, error_code, finished_at_ms"""
    return rows.rows(
        db,
        """
        SELECT state, not_before_ms, lease_token, lease_expires_at_ms, claims, error_code, finished_at_ms
        FROM runs WHERE id = ?
        """,
        run_id,
    )[0]


def test_a_claim_takes_a_queued_row_for_a_while(db: Database, run: Run) -> None:
    assert claim(db, run.id) == Lease("runs", run.id, "mine", 1)
    assert lease_columns(db, run.id) == ("leased", 0, "mine", NOW_MS + LEASE_MS, 1, None, None)


def test_a_row_that_someone_holds_cannot_be_claimed_until_the_moment_its_lease_ends(
    db: Database, run: Run
) -> None:
    owned(db, run.id)
    assert claim(db, run.id, "theirs") is None
    assert claim(db, run.id, "theirs", now_ms=NOW_MS + LEASE_MS - 1) is None
    taken = claim(db, run.id, "theirs", now_ms=NOW_MS + LEASE_MS)
    assert taken == Lease("runs", run.id, "theirs", 2)


def test_a_row_that_does_not_exist_cannot_be_claimed(db: Database) -> None:
    assert claim(db, RunId(99)) is None


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_an_ended_row_keeps_its_end_and_is_never_claimed_again(db: Database, run: Run, state: State) -> None:
    lease = owned(db, run.id)
    assert rows.write(db, leases.finish, lease, state, now_ms=NOW_MS + 5, error_code="why")
    assert lease_columns(db, run.id) == (state, 0, None, None, 1, "why", NOW_MS + 5)
    assert claim(db, run.id, now_ms=NOW_MS * 2) is None
    assert not rows.write(db, leases.finish, lease, State.FAILED, now_ms=NOW_MS + 6)
    assert rows.read(db, load_run, run.id).state is state


@pytest.mark.parametrize("state", [State.QUEUED, State.LEASED])
def test_a_row_cannot_finish_in_a_state_that_goes_on(db: Database, run: Run, state: State) -> None:
    with pytest.raises(ValueError, match="not a final state"):
        rows.write(db, leases.finish, owned(db, run.id), state, now_ms=NOW_MS)


def test_a_retry_waits_for_its_time_and_counts_the_claim(db: Database, run: Run) -> None:
    lease = owned(db, run.id)
    assert rows.write(db, leases.retry, lease, not_before_ms=NOW_MS + 50, error_code="rate_limited")
    assert lease_columns(db, run.id) == ("queued", NOW_MS + 50, None, None, 1, "rate_limited", None)
    assert claim(db, run.id, now_ms=NOW_MS + 49) is None
    assert owned(db, run.id, now_ms=NOW_MS + 50).claims == 2


def test_a_release_leaves_the_row_as_if_it_had_not_been_claimed(db: Database, run: Run) -> None:
    before = lease_columns(db, run.id)
    assert rows.write(db, leases.release, owned(db, run.id))
    assert lease_columns(db, run.id) == before
    assert owned(db, run.id).claims == 1


COMPLETIONS: dict[str, Callable[[Database, Lease], bool]] = {
    "finish": lambda db, lease: rows.write(db, leases.finish, lease, State.SUCCEEDED, now_ms=NOW_MS),
    "retry": lambda db, lease: rows.write(db, leases.retry, lease, not_before_ms=0, error_code="x"),
    "release": lambda db, lease: rows.write(db, leases.release, lease),
}


@pytest.mark.parametrize("completion", COMPLETIONS.values(), ids=COMPLETIONS)
def test_a_late_worker_changes_nothing(
    db: Database, run: Run, completion: Callable[[Database, Lease], bool]
) -> None:
    late = owned(db, run.id, "late")
    taken = owned(db, run.id, "taken", now_ms=NOW_MS + LEASE_MS)
    before = lease_columns(db, run.id)
    assert not completion(db, late)
    assert lease_columns(db, run.id) == before
    assert not rows.read(db, leases.holds, late)
    assert rows.read(db, leases.holds, taken)
    assert completion(db, taken)
    assert not rows.read(db, leases.holds, taken)
    assert not completion(db, taken)


def test_a_lease_that_ran_out_is_still_held_while_nobody_else_took_the_row(db: Database, run: Run) -> None:
    lease = owned(db, run.id)
    assert rows.read(db, leases.holds, lease)
    assert rows.write(db, leases.finish, lease, State.SUCCEEDED, now_ms=NOW_MS + 2 * LEASE_MS)


def test_the_current_lease_is_that_of_whoever_holds_the_row(db: Database, run: Run) -> None:
    assert rows.read(db, leases.current, "runs", run.id) is None
    lease = owned(db, run.id)
    assert rows.read(db, leases.current, "runs", run.id) == lease
    rows.write(db, leases.release, lease)
    assert rows.read(db, leases.current, "runs", run.id) is None


def test_the_leases_of_a_process_that_is_gone_end_at_once(db: Database, run: Run) -> None:
    other, waiting = rows.run(db, run.thread_id), rows.run(db, run.thread_id)
    late = owned(db, run.id)
    rows.write(db, leases.finish, owned(db, other.id), State.SUCCEEDED, now_ms=NOW_MS)
    assert rows.write(db, leases.expire_all, "runs") == 1
    assert rows.read(db, load_run, waiting.id).state is State.QUEUED
    assert rows.read(db, load_run, other.id).state is State.SUCCEEDED
    assert owned(db, run.id, "next").claims == 2
    assert not rows.read(db, leases.holds, late)


def test_only_leased_tables_are_taken(db: Database) -> None:
    for call in (
        lambda: claim_from(db, "sources"),
        lambda: rows.write(db, leases.expire_all, "runs; DROP TABLE runs"),
        lambda: rows.read(db, leases.current, "threads", 1),
    ):
        with pytest.raises(ValueError, match="is not a leased table"):
            call()


def claim_from(db: Database, table: str) -> Lease | None:
    return rows.write(db, leases.claim, table, 1, token="t", now_ms=NOW_MS, lease_ms=1)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
@settings(max_examples=15, deadline=None)
def test_of_two_processes_that_claim_at_once_one_gets_each_row(pauses: list[int]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "pikobot.sqlite3"
        clock = FakeClock()
        first, second = open_database(path, clock), open_database(path, clock)
        thread = rows.thread(first)
        made = [rows.run(first, thread.id) for _ in pauses]
        won: dict[str, list[int]] = {"first": [], "second": []}
        barrier = threading.Barrier(2)

        def worker(db: Database, name: str, order: list[Run]) -> None:
            barrier.wait()
            for run in order:
                if claim(db, run.id, name) is not None:
                    won[name].append(run.id)

        threads = [
            threading.Thread(target=worker, args=(first, "first", made)),
            threading.Thread(target=worker, args=(second, "second", made[pauses[0] :] + made[: pauses[0]])),
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        holders = rows.rows(first, "SELECT id, lease_token, claims FROM runs ORDER BY id")
        first.close()
        second.close()
    assert sorted(won["first"] + won["second"]) == [run.id for run in made]
    assert holders == [(run.id, "first" if run.id in won["first"] else "second", 1) for run in made]


class OneLeasedRow(RuleBasedStateMachine):
    """One row, several workers, some of them late; held against the diagram in the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.clock = FakeClock(now=NOW_MS)
        self.db = open_database(Path(self.directory.name) / "pikobot.sqlite3", self.clock)
        self.run = rows.run(self.db, rows.thread(self.db).id)
        self.state = State.QUEUED
        self.not_before = 0
        self.expires = 0
        self.claims = 0
        self.holder: Lease | None = None
        self.given: list[Lease] = []

    def teardown(self) -> None:
        self.db.close()
        self.directory.cleanup()

    @rule(ms=st.integers(1, 2 * LEASE_MS))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def somebody_claims(self) -> None:
        now = self.clock.now
        is_due = (self.state is State.QUEUED and self.not_before <= now) or (
            self.state is State.LEASED and self.expires <= now
        )
        lease = claim(self.db, self.run.id, self.clock.token("lease"), now_ms=now)
        assert (lease is not None) == is_due
        if lease is not None:
            self.claims += 1
            self.state, self.holder, self.expires = State.LEASED, lease, now + LEASE_MS
            self.given.append(lease)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), end=st.sampled_from(sorted(FINAL_STATES)))
    def somebody_finishes(self, data: st.DataObject, end: State) -> None:
        lease = data.draw(st.sampled_from(self.given))
        done = rows.write(self.db, leases.finish, lease, end, now_ms=self.clock.now)
        assert done == (lease == self.holder)
        if done:
            self.state, self.holder = end, None

    @precondition(lambda self: self.given)
    @rule(data=st.data(), wait=st.integers(0, LEASE_MS))
    def somebody_retries(self, data: st.DataObject, wait: int) -> None:
        lease, due = data.draw(st.sampled_from(self.given)), self.clock.now + wait
        done = rows.write(self.db, leases.retry, lease, not_before_ms=due, error_code="again")
        assert done == (lease == self.holder)
        if done:
            self.state, self.holder, self.not_before = State.QUEUED, None, due

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def somebody_releases(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.given))
        done = rows.write(self.db, leases.release, lease)
        assert done == (lease == self.holder)
        if done:
            self.state, self.holder, self.not_before = State.QUEUED, None, 0
            self.claims -= 1

    @rule()
    def the_process_restarts(self) -> None:
        expired = rows.write(self.db, leases.expire_all, "runs")
        assert expired == (self.state is State.LEASED)
        self.expires = 0

    @invariant()
    def the_row_is_as_the_diagram_says(self) -> None:
        run = rows.read(self.db, load_run, self.run.id)
        assert (run.state, run.claims) == (self.state, self.claims)
        assert rows.read(self.db, leases.current, "runs", self.run.id) == self.holder
        held = [lease for lease in self.given if rows.read(self.db, leases.holds, lease)]
        assert held == ([] if self.holder is None else [self.holder])


TestOneLeasedRow = OneLeasedRow.TestCase
TestOneLeasedRow.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
