from pathlib import Path

import pytest

from pikobot.adapters.chat import CallFailure, Message, StopReason
from pikobot.agent import runs
from pikobot.agent.runs import MAX_CLAIMS, Claimed, Request, Result, Unanswerable
from pikobot.errors import NotFound
from pikobot.store.attempts import AttemptId, AttemptOutcome, AttemptState, NewAttempt
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.store.runs import RunId
from pikobot.store.scopes import Scope
from tests.agent.running import LEASE_MS, LIMITS, ROOM, accept, answers, attempts, claim, rows, states
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, opened

ANSWER = Result("the answer", "model", is_partial=False)


def begin(db: Database, claimed: Claimed) -> AttemptId:
    new = NewAttempt(
        run_id=claimed.run.id, workspace="main", purpose="chat", model="m", reserved_microusd=100
    )
    attempt = db.perform(runs.begin_attempt, claimed.lease, new, LIMITS)
    assert attempt is not None
    return attempt


def fail(db: Database, claimed: Claimed, attempt: AttemptId, code: CallFailure) -> None:
    state = AttemptState.UNKNOWN if code.may_have_charged else AttemptState.FAILED
    db.perform(runs.end_attempt, claimed.lease, attempt, AttemptOutcome(state=state, error_code=code))


def succeed(db: Database, claimed: Claimed, attempt: AttemptId, reply: Message) -> None:
    outcome = AttemptOutcome(state=AttemptState.SUCCEEDED, cost_microusd=1)
    db.perform(runs.end_attempt, claimed.lease, attempt, outcome, reply)


def next_one(db: Database) -> Claimed | Unanswerable | None:
    return db.perform(runs.claim_next, thread_id=None, model="m", room=ROOM, lease_ms=LEASE_MS)


def test_a_message_and_its_run_are_kept_together(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accepted = accept(db, "你好", message_days=2)
        expires = NOW_MS + 2 * DAY_MS
        sql = "SELECT text, role, speaker, origin, run_id, said_at_ms, expires_at_ms FROM sources"
        assert rows(db, sql) == [("你好", "user", "owner", "said", accepted.run.id, NOW_MS, expires)]
        assert states(db) == [("queued", None)]


def test_a_thread_goes_on_by_its_key_and_by_its_id_but_not_in_another_scope(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        first = accept(db, "one", "旅行")
        assert accept(db, "two", "旅行").thread == first.thread
        assert accept(db, "three", None, thread_id=first.thread.public_id).thread == first.thread
        assert accept(db, "four", None).thread != first.thread
        other = Scope("private", "main", "bot", "chat", "ana")
        with pytest.raises(NotFound):
            db.perform(runs.accept, Request(text="x", scope=other, thread_id=first.thread.public_id))
        assert rows(db, "SELECT count(*) FROM runs") == [(4,)]


def test_a_thread_that_is_gone_is_begun_again(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        first = accept(db, "one", "旅行")
        assert accept(db, "two", "旅行", thread_id="thr_gone").thread == first.thread
        again = accept(db, "three", "花园", thread_id="thr_gone").thread
        assert (again.key, again.public_id) == ("花园", accept(db, "four", "花园").thread.public_id)
        assert accept(db, "five", None, thread_id="thr_gone").thread.key is None


def test_runs_of_one_thread_are_claimed_in_the_order_of_their_arrival_under_equal_times(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as db:
        for text, thread in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            accept(db, text, thread)
        first, other = claim(db), claim(db)
        assert (first.request.text, other.request.text) == ("a1", "b1")
        assert next_one(db) is None
        db.perform(runs.finish, first, State.FAILED, None)
        assert claim(db).request.text == "a2"
        assert rows(db, "SELECT claims FROM runs ORDER BY id") == [(1,), (1,), (1,)]


def test_finishing_keeps_the_answer_and_drops_what_only_the_execution_needed(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "hello")
        claimed = claim(db)
        succeed(db, claimed, begin(db, claimed), Message("assistant", "the answer"))
        assert db.perform(runs.finish, claimed, State.SUCCEEDED, ANSWER) is State.SUCCEEDED
        assert answers(db) == [("the answer", False)]
        for table in ("run_transcript", "run_sources"):
            assert rows(db, f"SELECT count(*) FROM {table}") == [(0,)]
        assert db.perform(runs.finish, claimed, State.SUCCEEDED, ANSWER) is None
        assert db.perform(runs.interrupt, claimed) is None
        assert answers(db) == [("the answer", False)]


def test_an_answer_expires_with_the_first_of_its_sources(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "hello", message_days=3)
        db.perform(runs.finish, claim(db), State.SUCCEEDED, ANSWER)
        sql = "SELECT expires_at_ms FROM sources WHERE role = 'assistant'"
        assert rows(db, sql) == [(NOW_MS + 3 * DAY_MS,)]


@pytest.mark.parametrize("code", [CallFailure.SERVER_ERROR, CallFailure.TRUNCATED])
def test_a_run_that_failed_after_a_possible_charge_ends_unknown_and_is_never_repeated(
    tmp_path: Path, code: CallFailure
) -> None:
    with opened(tmp_path) as db:
        accept(db, "hello")
        claimed = claim(db)
        fail(db, claimed, begin(db, claimed), code)
        assert db.perform(runs.finish, claimed, State.FAILED, None, error_code=code) is State.UNKNOWN
        assert states(db) == [("unknown", code)]
        db.perform(runs.recover)
        assert next_one(db) is None
        with db.read() as conn:
            assert runs.is_cut_off(conn, claimed.thread.public_id)
            assert not runs.is_cut_off(conn, "thr_none")


@pytest.mark.parametrize("is_call_open", [True, False])
@pytest.mark.parametrize("way", ["recover", "interrupt", "lease expires"])
def test_a_run_cut_off_in_or_right_after_a_call_that_may_have_charged_is_not_repeated(
    tmp_path: Path, way: str, is_call_open: bool
) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        accept(db, "hello")
        claimed = claim(db)
        attempt = begin(db, claimed)
        if not is_call_open:
            fail(db, claimed, attempt, CallFailure.SERVER_ERROR)
        if way == "recover":
            assert db.perform(runs.recover) == [claimed.run.id]
        elif way == "interrupt":
            assert db.perform(runs.interrupt, claimed) is State.UNKNOWN
        else:
            clock.now += LEASE_MS
            found = next_one(db)
            assert isinstance(found, Unanswerable)
            assert "not repeated" in str(found.error)
        assert next_one(db) is None
        assert states(db) == [("unknown", "interrupted")]
        assert attempts(db) == [("unknown", None, "interrupted" if is_call_open else "server_error")]
        assert db.perform(runs.finish, claimed, State.SUCCEEDED, ANSWER) is None
        assert answers(db) == []


@pytest.mark.parametrize("way", ["recover", "interrupt"])
def test_a_run_cut_off_between_calls_goes_on_from_its_transcript(tmp_path: Path, way: str) -> None:
    reply = Message("assistant", "Looking.", cut_off=StopReason.LENGTH)
    result = Message("tool", "{}", tool_call_id="c")
    with opened(tmp_path) as db:
        accept(db, "hello")
        claimed = claim(db)
        succeed(db, claimed, begin(db, claimed), reply)
        assert db.perform(runs.keep_results, claimed.lease, [result])
        if way == "recover":
            assert db.perform(runs.recover) == []
        else:
            assert db.perform(runs.interrupt, claimed) is State.QUEUED
        again = claim(db)
        assert again.transcript == (reply, result)
        assert again.lease.claims == (2 if way == "recover" else 1)
        assert not db.perform(runs.keep_results, claimed.lease, [result])
        assert db.perform(runs.finish, again, State.SUCCEEDED, ANSWER) is State.SUCCEEDED
        assert len(answers(db)) == 1


def test_a_run_that_crashes_again_and_again_fails(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "hello")
        for _ in range(MAX_CLAIMS):
            claim(db)
            db.perform(runs.recover)
        found = next_one(db)
        assert isinstance(found, Unanswerable)
        assert f"begun {MAX_CLAIMS} times" in str(found.error)
        assert states(db) == [("failed", "crashed")]
        assert next_one(db) is None


def test_a_run_whose_request_was_forgotten_is_cancelled(tmp_path: Path) -> None:
    def forget(db: Database) -> None:
        with db.write("forget") as tx:
            tx.execute("UPDATE sources SET expires_at_ms = 0")

    with opened(tmp_path) as db:
        accept(db, "hello")
        db.perform(forget)
        found = next_one(db)
        assert isinstance(found, Unanswerable)
        assert states(db) == [("cancelled", "forgotten")]


def test_only_what_waits_can_be_cancelled_as_queued(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        ids = [accept(db, text).run.id for text in ("one", "two")]
        claim(db)
        assert db.perform(runs.cancel_queued, [*ids, RunId(99)]) == 1
        assert states(db) == [("leased", None), ("cancelled", "cancelled")]


def test_recovery_of_an_instance_that_ended_in_order_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "hello")
        assert db.perform(runs.recover) == []
        assert states(db) == [("queued", None)]
        assert claim(db).lease.claims == 1
