from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.store import attempts
from pikobot.store.attempts import AttemptId, AttemptOutcome, AttemptState, NewAttempt, Spending
from pikobot.store.connection import Connection, Database
from tests.clock import NOW_MS
from tests.store import rows

TOKENS = {"input_tokens": 900, "cached_input_tokens": 300, "output_tokens": 40}


def begun(db: Database, *, now_ms: int = NOW_MS, **changes: Any) -> AttemptId:
    fields: dict[str, Any] = {
        "run_id": None,
        "workspace": "main",
        "purpose": "answer",
        "model": "deepseek-v4-flash",
        "reserved_microusd": 100,
    }
    return rows.write(db, attempts.insert_attempt, NewAttempt(**(fields | changes)), now_ms=now_ms)


def ended(db: Database, attempt: AttemptId, state: AttemptState, **fields: Any) -> bool:
    outcome = AttemptOutcome(state=state, **fields)
    return rows.write(db, attempts.finish_attempt, attempt, outcome, now_ms=NOW_MS + 7)


def spent(db: Database, workspace: str = "main", *, since_ms: int = 0) -> Spending:
    return rows.read(db, attempts.workspace_spending, workspace, since_ms=since_ms)


def row(db: Database, attempt: AttemptId) -> tuple[object, ...]:
    return rows.rows(
        db,
        """
        SELECT state, reserved_microusd, cost_microusd, input_tokens, cached_input_tokens, output_tokens,
               error_code, started_at_ms, finished_at_ms
        FROM attempts WHERE id = ?
        """,
        attempt,
    )[0]


def test_a_call_is_recorded_before_it_is_made_and_counts_its_reservation(db: Database) -> None:
    attempt = begun(db)
    assert row(db, attempt) == ("started", 100, None, None, None, None, None, NOW_MS, None)
    assert spent(db) == Spending(100, 0)


def test_a_call_that_succeeded_counts_its_cost(db: Database) -> None:
    attempt = begun(db)
    assert ended(db, attempt, AttemptState.SUCCEEDED, cost_microusd=12, **TOKENS)
    assert row(db, attempt) == ("succeeded", 100, 12, 900, 300, 40, None, NOW_MS, NOW_MS + 7)
    assert spent(db) == Spending(12, 0)


def test_a_success_of_unknown_cost_counts_all_that_was_reserved(db: Database) -> None:
    ended(db, begun(db), AttemptState.SUCCEEDED)
    assert spent(db) == Spending(100, 0)


def test_a_call_that_failed_counts_nothing(db: Database) -> None:
    attempt = begun(db)
    assert ended(db, attempt, AttemptState.FAILED, error_code="rate_limited", cost_microusd=9)
    assert row(db, attempt) == ("failed", 100, None, None, None, None, "rate_limited", NOW_MS, NOW_MS + 7)
    assert spent(db) == Spending(0, 0)


def test_a_call_of_unknown_outcome_keeps_its_reservation(db: Database) -> None:
    attempt = begun(db)
    assert ended(db, attempt, AttemptState.UNKNOWN, error_code="timeout")
    assert row(db, attempt) == ("unknown", 100, None, None, None, None, "timeout", NOW_MS, NOW_MS + 7)
    assert spent(db) == Spending(100, 1)


def test_a_call_ends_once(db: Database) -> None:
    attempt = begun(db)
    assert ended(db, attempt, AttemptState.SUCCEEDED, cost_microusd=5)
    for state in (AttemptState.FAILED, AttemptState.UNKNOWN, AttemptState.SUCCEEDED):
        assert not ended(db, attempt, state, cost_microusd=50)
    assert spent(db) == Spending(5, 0)
    assert not ended(db, AttemptId(99), AttemptState.FAILED)


@pytest.mark.parametrize("changes", [{"reserved_microusd": -1}, {"run_id": 99}])
def test_a_call_that_cannot_be_is_refused_by_the_database(db: Database, changes: dict[str, int]) -> None:
    with pytest.raises(apsw.ConstraintError):
        begun(db, **changes)


def test_a_negative_cost_and_an_end_without_an_end_are_refused(db: Database) -> None:
    attempt = begun(db)
    with pytest.raises(apsw.ConstraintError):
        ended(db, attempt, AttemptState.SUCCEEDED, cost_microusd=-1)
    with pytest.raises(apsw.ConstraintError):
        ended(db, attempt, AttemptState.STARTED)
    assert spent(db) == Spending(100, 0)


def test_a_month_begins_with_its_first_millisecond_and_belongs_to_one_workspace(db: Database) -> None:
    for now_ms, reserved in ((NOW_MS - 1, 1), (NOW_MS, 10), (NOW_MS + 1, 100)):
        begun(db, now_ms=now_ms, reserved_microusd=reserved)
    begun(db, workspace="工作", reserved_microusd=1000)
    ended(db, begun(db, now_ms=NOW_MS - 5), AttemptState.UNKNOWN)
    assert spent(db, since_ms=NOW_MS) == Spending(110, 0)
    assert spent(db, since_ms=NOW_MS - 5) == Spending(211, 1)
    assert spent(db, "工作") == Spending(1000, 0)
    assert spent(db, "nobody") == Spending(0, 0)


def test_a_run_counts_its_own_calls_of_all_times(db: Database) -> None:
    thread = rows.thread(db)
    run, other = rows.run(db, thread.id), rows.run(db, thread.id)
    ended(db, begun(db, run_id=run.id, now_ms=0), AttemptState.SUCCEEDED, cost_microusd=3)
    ended(db, begun(db, run_id=run.id), AttemptState.FAILED)
    begun(db, run_id=run.id, reserved_microusd=40)
    begun(db, run_id=other.id)
    assert rows.read(db, attempts.run_spending, run.id) == 43
    assert rows.read(db, attempts.run_spending, 99) == 0


def test_what_a_crash_cut_off_becomes_unknown_for_its_run_alone(db: Database) -> None:
    thread = rows.thread(db)
    run, other = rows.run(db, thread.id), rows.run(db, thread.id)
    cut_off, background = begun(db, run_id=run.id), begun(db)
    finished = begun(db, run_id=run.id)
    ended(db, finished, AttemptState.SUCCEEDED, cost_microusd=1)
    untouched = begun(db, run_id=other.id)
    assert rows.write(db, attempts.mark_started_unknown, run_id=run.id, now_ms=NOW_MS + 9) == 1
    assert rows.write(db, attempts.mark_started_unknown, run_id=run.id, now_ms=NOW_MS + 10) == 0
    assert row(db, cut_off) == ("unknown", 100, None, None, None, None, "interrupted", NOW_MS, NOW_MS + 9)
    assert [row(db, one)[0] for one in (finished, untouched, background)] == [
        "succeeded",
        "started",
        "started",
    ]
    assert rows.read(db, attempts.has_unknown_attempt, run.id)
    assert not rows.read(db, attempts.has_unknown_attempt, other.id)
    assert rows.write(db, attempts.mark_started_unknown, run_id=None, now_ms=NOW_MS + 9) == 1
    assert row(db, background)[0] == "unknown"


def test_what_was_spent_outlives_the_run(db: Database) -> None:
    run = rows.run(db, rows.thread(db).id)
    ended(db, begun(db, run_id=run.id), AttemptState.SUCCEEDED, cost_microusd=8)
    rows.execute(db, "DELETE FROM runs WHERE id = ?", run.id)
    assert spent(db) == Spending(8, 0)


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["main", "other"]),
        st.integers(0, 10),
        st.integers(0, 1000),
        st.sampled_from(AttemptState),
        st.none() | st.integers(0, 1000),
    ),
    max_size=12,
)


@given(calls=CALLS, since=st.integers(0, 11))
@settings(max_examples=60, deadline=None)
def test_spending_is_the_sum_that_the_states_say(
    shared_db: Database, calls: list[tuple[str, int, int, AttemptState, int | None]], since: int
) -> None:
    def everything(tx: Connection) -> Spending:
        tx.execute("DELETE FROM attempts")
        for workspace, at_ms, reserved, state, cost in calls:
            new = NewAttempt(
                run_id=None, workspace=workspace, purpose="answer", model="m", reserved_microusd=reserved
            )
            attempt = attempts.insert_attempt(tx, new, now_ms=at_ms)
            if state is not AttemptState.STARTED:
                outcome = AttemptOutcome(state=state, cost_microusd=cost)
                attempts.finish_attempt(tx, attempt, outcome, now_ms=at_ms)
        return attempts.workspace_spending(tx, "main", since_ms=since)

    counted = unknown = 0
    for workspace, at_ms, reserved, state, cost in calls:
        if workspace == "main" and at_ms >= since and state is not AttemptState.FAILED:
            is_known = state is AttemptState.SUCCEEDED and cost is not None
            counted += cost if is_known and cost is not None else reserved
            unknown += state is AttemptState.UNKNOWN
    assert rows.write(shared_db, everything) == Spending(counted, unknown)


def test_no_budget_check_scans_all_calls(db: Database) -> None:
    assert rows.plan(db, attempts.workspace_spending, "main", since_ms=0) == [
        "SEARCH attempts USING COVERING INDEX attempts_by_workspace_time (workspace=? AND started_at_ms>?)"
    ]
    assert rows.plan(db, attempts.run_spending, 1) == [
        "SEARCH attempts USING INDEX attempts_by_run (run_id=?)"
    ]
    assert rows.plan(db, attempts.has_unknown_attempt, 1) == [
        "SEARCH attempts USING INDEX attempts_by_run (run_id=?)"
    ]


@pytest.mark.parametrize("run_id", [None, 1])
def test_marking_what_was_cut_off_looks_at_started_calls_alone(db: Database, run_id: int | None) -> None:
    steps = rows.plan(db, attempts.mark_started_unknown, run_id=run_id, now_ms=NOW_MS)
    assert steps == ["SEARCH attempts USING INDEX attempts_started (run_id=?)"]
