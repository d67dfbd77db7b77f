import apsw
import pytest

from pikobot.store.connection import Database
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import delete_source
from pikobot.store.threads import (
    Thread,
    ThreadId,
    ThreadSummary,
    create_thread,
    ensure_thread,
    find_thread_by_key,
    find_thread_by_public_id,
    list_threads,
    load_thread,
)
from tests.clock import NOW_MS, FakeClock
from tests.store import rows
from tests.store.rows import GROUP


def listed(
    db: Database, *, scope_id: ScopeId | None = None, before_id: ThreadId | None = None, limit: int = 10
) -> list[tuple[ThreadId, ThreadSummary]]:
    return rows.read(db, list_threads, scope_id=scope_id, before_id=before_id, now_ms=NOW_MS, limit=limit)


def test_a_thread_is_found_by_its_key_in_its_scope_and_by_its_id_anywhere(db: Database) -> None:
    thread = rows.thread(db, "修改")
    assert rows.write(db, ensure_thread, thread.scope_id, "修改", db.clock) == thread
    assert rows.read(db, find_thread_by_key, thread.scope_id, "修改") == thread
    assert rows.read(db, find_thread_by_key, rows.scope(db, GROUP), "修改") is None
    assert rows.read(db, find_thread_by_public_id, thread.public_id) == thread
    assert rows.read(db, load_thread, thread.id) == thread


def test_the_same_key_in_another_scope_is_another_thread(db: Database) -> None:
    assert rows.thread(db, "t1").id != rows.thread(db, "t1", GROUP).id


def test_a_key_names_one_thread_of_its_scope_and_threads_without_a_key_are_many(db: Database) -> None:
    thread = rows.thread(db, "t1")
    with pytest.raises(apsw.ConstraintError):
        rows.write(db, create_thread, thread.scope_id, "t1", db.clock)
    unnamed = [rows.write(db, create_thread, thread.scope_id, None, db.clock) for _ in range(2)]
    assert [one.key for one in unnamed] == [None, None]
    assert unnamed[0].public_id != unnamed[1].public_id


def test_what_does_not_exist_is_not_found(db: Database) -> None:
    assert rows.read(db, find_thread_by_key, ScopeId(1), "t1") is None
    assert rows.read(db, find_thread_by_public_id, "thr_none") is None
    with pytest.raises(LookupError, match="thread 99"):
        rows.read(db, load_thread, ThreadId(99))


def test_threads_are_listed_newest_first_with_what_was_said_in_them(db: Database, clock: FakeClock) -> None:
    busy, empty = rows.thread(db, "busy"), rows.thread(db, "empty")
    rows.source(db, busy, "first", said_at_ms=NOW_MS - 5)
    rows.source(db, busy, "second", said_at_ms=NOW_MS - 3)
    rows.source(db, busy, "expired just now", said_at_ms=NOW_MS, expires_at_ms=NOW_MS)
    assert listed(db) == [
        (empty.id, ThreadSummary(empty.public_id, "empty", empty.scope_id, clock.now, None, 0, None)),
        (busy.id, ThreadSummary(busy.public_id, "busy", busy.scope_id, clock.now, NOW_MS - 3, 2, "first")),
    ]


def test_a_thread_is_known_by_the_beginning_of_its_first_message_that_is_retained(db: Database) -> None:
    thread = rows.thread(db)
    rows.source(db, thread, "later", said_at_ms=NOW_MS)
    rows.source(db, thread, "开始" + "很长" * 60, said_at_ms=NOW_MS - 1)
    rows.source(db, thread, "expired", said_at_ms=NOW_MS - 2, expires_at_ms=NOW_MS)
    [(_, summary)] = listed(db)
    assert summary.beginning == "开始" + "很长" * 39


def test_threads_of_one_name_are_found_among_any_number(db: Database) -> None:
    wanted = rows.thread(db, "旅行")
    for number in range(30):
        rows.thread(db, f"t{number}")
    found = rows.read(db, list_threads, scope_id=None, before_id=None, now_ms=NOW_MS, limit=5, key="旅行")
    assert [thread_id for thread_id, _ in found] == [wanted.id]


def test_pages_follow_each_other_without_loss_while_threads_come_and_go(db: Database) -> None:
    made = [rows.thread(db, f"t{number}") for number in range(7)]
    first = listed(db, limit=3)
    rows.thread(db, "newer")
    rows.execute(db, "DELETE FROM threads WHERE id = ?", made[3].id)
    second = listed(db, before_id=first[-1][0], limit=3)
    third = listed(db, before_id=second[-1][0], limit=3)
    found = [thread_id for thread_id, _ in first + second + third]
    assert found == [made[number].id for number in (6, 5, 4, 2, 1, 0)]


def test_a_list_of_one_scope_holds_nothing_of_another(db: Database) -> None:
    mine, theirs = rows.thread(db, "t1"), rows.thread(db, "t1", GROUP)
    rows.source(db, mine, "a")
    rows.source(db, theirs, "b")
    assert [thread_id for thread_id, _ in listed(db, scope_id=mine.scope_id)] == [mine.id]
    assert [thread_id for thread_id, _ in listed(db, scope_id=theirs.scope_id)] == [theirs.id]
    assert [thread_id for thread_id, _ in listed(db)] == [theirs.id, mine.id]


def test_a_thread_outlives_its_messages_and_its_id_is_not_given_again(db: Database) -> None:
    thread = rows.thread(db)
    only = rows.source(db, thread, "gone")
    rows.write(db, delete_source, only)
    assert listed(db)[0][1].messages == 0
    rows.execute(db, "DELETE FROM threads")
    again = rows.thread(db)
    assert isinstance(again, Thread)
    assert again.id > thread.id
