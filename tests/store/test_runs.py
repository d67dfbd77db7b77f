import apsw
import pytest

from pikobot.store import leases, runs
from pikobot.store.connection import Database
from pikobot.store.leases import Lease, State
from pikobot.store.runs import Run, RunId
from pikobot.store.sources import SourceId, delete_source
from pikobot.store.threads import ThreadId
from tests.clock import NOW_MS, FakeClock
from tests.store import rows

LEASE_MS = 1000


def due(db: Database, *, now_ms: int = NOW_MS, thread_id: ThreadId | None = None) -> RunId | None:
    return rows.read(db, runs.next_claimable, now_ms=now_ms, thread_id=thread_id)


def claimed(db: Database, run: Run, *, now_ms: int = NOW_MS) -> Lease:
    lease = rows.write(
        db, leases.claim, "runs", run.id, token=db.clock.token("lease"), now_ms=now_ms, lease_ms=LEASE_MS
    )
    assert lease is not None
    return lease


def ended(db: Database, run: Run, state: State = State.SUCCEEDED) -> None:
    assert rows.write(db, leases.finish, claimed(db, run), state, now_ms=NOW_MS)


# Rows


def test_a_new_run_waits_at_the_end_of_its_thread(db: Database, clock: FakeClock) -> None:
    thread = rows.thread(db)
    run = rows.write(db, runs.insert_run, thread.id, is_standalone=True, clock=clock)
    assert run == Run(
        id=RunId(1),
        public_id="run_0004",
        thread_id=thread.id,
        is_standalone=True,
        model=None,
        created_at_ms=NOW_MS,
        state=State.QUEUED,
        claims=0,
        error_code=None,
        finished_at_ms=None,
    )
    assert rows.read(db, runs.load_run, run.id) == run
    assert rows.read(db, runs.last_run, thread.id) == run


def test_what_does_not_exist_is_not_found(db: Database) -> None:
    assert rows.read(db, runs.find_run, RunId(9)) is None
    assert rows.read(db, runs.last_run, ThreadId(9)) is None
    assert rows.read(db, runs.request_source_id, RunId(9)) is None
    assert rows.read(db, runs.answer_of, RunId(9)) is None
    assert due(db) is None
    with pytest.raises(LookupError, match="run 9"):
        rows.read(db, runs.load_run, RunId(9))


def test_a_run_remembers_its_model(db: Database) -> None:
    run = rows.run(db, rows.thread(db).id)
    rows.write(db, runs.set_model, run.id, "deepseek-v4-flash")
    assert rows.read(db, runs.load_run, run.id).model == "deepseek-v4-flash"
    rows.write(db, runs.set_model, run.id, None)
    assert rows.read(db, runs.load_run, run.id) == run


# Order


def test_runs_of_a_thread_go_in_insertion_order_also_at_one_moment(db: Database) -> None:
    thread = rows.thread(db)
    made = [rows.run(db, thread.id) for _ in range(4)]
    assert {run.created_at_ms for run in made} == {NOW_MS}
    order = []
    for _ in made:
        run_id = due(db)
        assert run_id is not None
        order.append(run_id)
        ended(db, rows.read(db, runs.load_run, run_id))
    assert order == [run.id for run in made]
    assert due(db) is None


def test_a_running_run_holds_its_thread_and_no_other(db: Database) -> None:
    busy, free = rows.thread(db, "busy"), rows.thread(db, "free")
    first, second, other = rows.run(db, busy.id), rows.run(db, busy.id), rows.run(db, free.id)
    claimed(db, first)
    assert due(db) == other.id
    assert due(db, thread_id=busy.id) is None
    claimed(db, other)
    assert due(db) is None
    assert rows.read(db, runs.load_run, second.id) == second


def test_a_run_that_waits_for_its_time_keeps_its_place_and_spends_no_claim(db: Database) -> None:
    thread, elsewhere = rows.thread(db, "waits"), rows.thread(db, "goes on")
    first, second = rows.run(db, thread.id), rows.run(db, thread.id)
    other = rows.run(db, elsewhere.id)
    rows.write(db, leases.retry, claimed(db, first), not_before_ms=NOW_MS + 100, error_code="rate_limited")
    assert due(db, thread_id=thread.id) is None
    assert due(db) == other.id
    assert rows.read(db, runs.load_run, first.id).claims == 1
    assert rows.read(db, runs.load_run, second.id).claims == 0
    assert due(db, now_ms=NOW_MS + 99, thread_id=thread.id) is None
    assert due(db, now_ms=NOW_MS + 100, thread_id=thread.id) == first.id


def test_a_run_whose_lease_ran_out_is_due_again_before_those_behind_it(db: Database) -> None:
    thread = rows.thread(db)
    first = rows.run(db, thread.id)
    rows.run(db, thread.id)
    claimed(db, first)
    assert due(db, now_ms=NOW_MS + LEASE_MS - 1) is None
    assert due(db, now_ms=NOW_MS + LEASE_MS) == first.id


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED, State.UNKNOWN])
def test_a_run_that_ended_in_any_way_releases_the_next(db: Database, state: State) -> None:
    thread = rows.thread(db)
    first, second = rows.run(db, thread.id), rows.run(db, thread.id)
    ended(db, first, state)
    assert due(db) == second.id


def test_of_several_threads_the_run_that_waits_longest_goes_first(db: Database) -> None:
    made = [rows.run(db, rows.thread(db, key).id) for key in ("c", "a", "b")]
    assert due(db) == made[0].id
    ended(db, made[0])
    assert due(db) == made[1].id
    assert due(db, thread_id=made[2].thread_id) == made[2].id


# Cancelling and counting


def test_only_waiting_runs_are_cancelled_and_the_next_one_is_released(db: Database) -> None:
    thread = rows.thread(db)
    running, waiting, last = (rows.run(db, thread.id) for _ in range(3))
    claimed(db, running)
    assert rows.read(db, runs.unfinished_runs, thread.id) == [running.id, waiting.id, last.id]
    wanted = [running.id, waiting.id, waiting.id, RunId(99)]
    assert rows.write(db, runs.cancel_queued, wanted, now_ms=NOW_MS + 1) == 1
    cancelled = rows.read(db, runs.load_run, waiting.id)
    assert (cancelled.state, cancelled.error_code, cancelled.finished_at_ms, cancelled.claims) == (
        State.CANCELLED,
        "cancelled",
        NOW_MS + 1,
        0,
    )
    assert rows.read(db, runs.leased_runs) == [running.id]
    assert rows.read(db, runs.unfinished_runs, thread.id) == [running.id, last.id]
    assert rows.read(db, runs.count_by_state) == {"cancelled": 1, "leased": 1, "queued": 1}


# Request and answer


def test_a_run_has_one_request_and_one_answer(db: Database) -> None:
    thread = rows.thread(db)
    run = rows.run(db, thread.id)
    assert rows.read(db, runs.answer_of, run.id) is None
    request = rows.message(db, thread, run.id, "我搬到哪里了？")
    rows.message(db, thread, run.id, "波尔图", role="assistant")
    assert rows.read(db, runs.request_source_id, run.id) == request
    assert rows.read(db, runs.answer_of, run.id) == ("波尔图", False)
    for role in ("user", "assistant"):
        with pytest.raises(apsw.ConstraintError):
            rows.message(db, thread, run.id, "once more", role=role)
    assert rows.rows(db, "SELECT count(*) FROM sources") == [(2,)]


def test_a_partial_answer_says_so_and_a_forgotten_request_is_none(db: Database) -> None:
    thread = rows.thread(db)
    run = rows.run(db, thread.id)
    request = rows.message(db, thread, run.id, "tell me")
    rows.source(db, thread, "half of", role="assistant", run_id=run.id, origin="model", is_partial=True)
    assert rows.read(db, runs.answer_of, run.id) == ("half of", True)
    rows.write(db, delete_source, request)
    assert rows.read(db, runs.request_source_id, run.id) is None


def test_an_attachment_of_a_run_is_neither_its_request_nor_its_answer(db: Database) -> None:
    thread = rows.thread(db)
    run = rows.run(db, thread.id)
    for role in ("user", "assistant"):
        rows.source(db, thread, "photo", kind="attachment", role=role, run_id=run.id)
    assert rows.read(db, runs.request_source_id, run.id) is None
    assert rows.read(db, runs.answer_of, run.id) is None
    request = rows.message(db, thread, run.id, "what is in it?")
    assert rows.read(db, runs.request_source_id, run.id) == request


# What a run keeps while it runs


def test_a_transcript_grows_at_its_end_and_goes_with_the_run(db: Database) -> None:
    thread = rows.thread(db)
    run, other = rows.run(db, thread.id), rows.run(db, thread.id)
    rows.write(db, runs.append_transcript, run.id, ['{"a":1}', '{"b":"你"}'])
    rows.write(db, runs.append_transcript, other.id, ["other"])
    rows.write(db, runs.append_transcript, run.id, [])
    rows.write(db, runs.append_transcript, run.id, ["third"])
    assert rows.read(db, runs.load_transcript, run.id) == ['{"a":1}', '{"b":"你"}', "third"]
    rows.write(db, runs.clear_execution, run.id)
    assert rows.read(db, runs.load_transcript, run.id) == []
    assert rows.read(db, runs.load_transcript, other.id) == ["other"]


def test_a_citation_set_holds_each_source_once_and_loses_those_that_go(db: Database) -> None:
    thread = rows.thread(db)
    run = rows.run(db, thread.id)
    first, second = rows.source(db, thread, "one"), rows.source(db, thread, "two")
    rows.write(db, runs.cite_sources, run.id, [second, first, second])
    rows.write(db, runs.cite_sources, run.id, [first])
    assert rows.read(db, runs.cited_sources, run.id) == [first, second]
    rows.write(db, delete_source, first)
    assert rows.read(db, runs.cited_sources, run.id) == [second]
    rows.write(db, runs.clear_execution, run.id)
    assert rows.read(db, runs.cited_sources, run.id) == []


def test_a_source_that_does_not_exist_cannot_be_cited(db: Database) -> None:
    run = rows.run(db, rows.thread(db).id)
    with pytest.raises(apsw.ConstraintError):
        rows.write(db, runs.cite_sources, run.id, [SourceId(99)])


# Plans


def test_looking_for_work_never_scans_the_runs_that_ended(db: Database) -> None:
    thread_id = rows.thread(db).id
    for steps in (
        rows.plan(db, runs.next_claimable, now_ms=NOW_MS, thread_id=None),
        rows.plan(db, runs.next_claimable, now_ms=NOW_MS, thread_id=thread_id),
    ):
        assert steps[0] in (
            "SCAN r USING INDEX runs_unfinished",
            "SCAN r USING COVERING INDEX runs_unfinished",
        )
        assert "SEARCH earlier USING INDEX runs_unfinished (thread_id=? AND id<?)" in steps
    unfinished = rows.plan(db, runs.unfinished_runs, thread_id)
    assert unfinished == ["SEARCH runs USING INDEX runs_unfinished (thread_id=?)"]
    assert rows.plan(db, runs.leased_runs) == ["SEARCH runs USING COVERING INDEX runs_by_state (state=?)"]
    assert rows.plan(db, runs.count_by_state) == ["SCAN runs USING COVERING INDEX runs_by_state"]
    assert rows.plan(db, runs.last_run, thread_id) == ["SEARCH runs USING INDEX runs_by_thread (thread_id=?)"]


def test_request_and_answer_are_found_by_the_run(db: Database) -> None:
    for query in (runs.request_source_id, runs.answer_of):
        steps = rows.plan(db, query, RunId(1))
        assert len(steps) == 1
        assert "INDEX sources_by_run (run_id=? AND role=?)" in steps[0]
