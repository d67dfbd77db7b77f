from collections.abc import Sequence

import pytest

from pikobot.store import retention
from pikobot.store.connection import Connection, Database
from pikobot.store.retention import SweepRecord
from pikobot.store.scopes import owner_scope
from pikobot.store.sources import SourceId, link_dependencies
from pikobot.store.threads import Thread
from tests.clock import DAY_MS, NOW_MS, FakeClock
from tests.store import rows
from tests.store.stating import state


def adopt(db: Database, days: int) -> None:
    rows.write(db, retention.adopt_message_days, days)


def days_left(db: Database) -> list[float | None]:
    """Of every source, from the clock's first moment on."""
    found = rows.rows(db, "SELECT expires_at_ms FROM sources ORDER BY id")
    return [None if at is None else (at - NOW_MS) / DAY_MS for (at,) in found]


def answer(db: Database, thread: Thread, run_id: int, *made_from: SourceId, **changes: object) -> SourceId:
    """An answer without an expiry of its own."""
    made = rows.source(
        db, thread, "好的", **{"role": "assistant", "origin": "model", "run_id": run_id, **changes}
    )
    rows.write(db, link_dependencies, made, made_from)
    return made


def test_every_message_obeys_a_change_of_the_setting(db: Database) -> None:
    thread = rows.thread(db)
    run = rows.run(db, thread.id)
    rows.message(db, thread, run.id, "我搬到了波尔图")
    rows.source(db, thread, "an old note", origin="imported", said_at_ms=NOW_MS - 5 * DAY_MS)
    adopt(db, 3)
    assert days_left(db) == [3, -2]
    adopt(db, 30)
    assert days_left(db) == [30, 25]
    adopt(db, 0)
    assert days_left(db) == [None, None]
    assert rows.read(db, retention.adopted_message_days) == 0


def test_documents_statements_and_times_of_their_own_stay(db: Database) -> None:
    thread = rows.thread(db)
    rows.source(db, thread, "a manual", kind="document", origin="imported")
    rows.source(db, thread, "remember that I like tea")  # said to nobody: it was asked to be kept
    rows.source(db, thread, "for today", origin="imported", expires_at_ms=NOW_MS + DAY_MS)
    adopt(db, 7)
    assert days_left(db) == [None, None, 1]


def test_an_answer_expires_with_the_first_of_what_it_was_made_from(db: Database) -> None:
    thread = rows.thread(db)
    runs = [rows.run(db, thread.id) for _ in range(2)]
    old = rows.source(db, thread, "旧的", origin="imported", said_at_ms=NOW_MS - 4 * DAY_MS)
    request = rows.message(db, thread, runs[0].id, "what did I say?")
    first = answer(db, thread, runs[0].id, request, old)
    later = rows.message(db, thread, runs[1].id, "and again?")
    answer(db, thread, runs[1].id, later, first)
    adopt(db, 10)
    assert days_left(db) == [6, 10, 6, 10, 6]
    adopt(db, 0)
    assert days_left(db) == [None] * 5


def test_expired_sources_come_by_the_time_of_their_expiry(db: Database) -> None:
    thread = rows.thread(db)
    later, first, _ = [
        rows.source(db, thread, text, expires_at_ms=NOW_MS + shift)
        for text, shift in (("b", 0), ("a", -DAY_MS), ("c", 1))
    ]
    rows.source(db, thread, "kept")
    assert rows.read(db, retention.expired_sources, now_ms=NOW_MS, limit=9) == [first, later]
    assert rows.read(db, retention.expired_sources, now_ms=NOW_MS, limit=1) == [first]
    assert rows.read(db, retention.count_expired, now_ms=NOW_MS) == (2, NOW_MS - DAY_MS)
    assert rows.read(db, retention.count_expired, now_ms=0) == (0, None)


def test_messages_of_each_workspace_are_counted_by_themselves(db: Database) -> None:
    main, other = rows.thread(db), rows.thread(db, of=owner_scope("other"))
    for thread in (main, main, main, other):
        rows.source(db, thread, "说过的话")
    rows.source(db, main, "a manual", kind="document")
    assert rows.read(db, retention.messages_beyond, 1) == {"main": 2}
    assert rows.read(db, retention.messages_beyond, 3) == {}
    assert rows.read(db, retention.messages_beyond, 0) == {}


def dispensable(db: Database, *, spares_facts: bool) -> Sequence[SourceId]:
    def find(conn: Connection) -> list[SourceId]:
        return retention.dispensable_sources(conn, "main", spares_facts=spares_facts, limit=9)

    return rows.read(db, find)


def test_the_oldest_message_goes_first_and_what_facts_rest_on_last(db: Database) -> None:
    thread = rows.thread(db)
    newer, older, inferred, explained, explicit = [
        rows.source(db, thread, text, said_at_ms=NOW_MS + shift)
        for text, shift in (("b", 5), ("a", 4), ("住在波尔图", 1), ("since when?", 2), ("I like tea", 3))
    ]
    state(db, "lives in Porto", inferred, context=(explained,))
    state(db, "likes tea", explicit, basis="explicit", kind="preference")
    assert dispensable(db, spares_facts=True) == [older, newer]
    assert dispensable(db, spares_facts=False) == [inferred, explained, older, newer]
    assert rows.read(db, retention.hold_explicit_facts, [older, explicit])
    assert not rows.read(db, retention.hold_explicit_facts, [older, inferred])


@pytest.mark.parametrize("state_name", ["queued", "leased"])
def test_what_a_run_is_at_work_on_stays(db: Database, state_name: str) -> None:
    thread = rows.thread(db)
    run = rows.run(db, thread.id)
    request = rows.message(db, thread, run.id, "我的狗叫什么？")
    read = rows.source(db, thread, "my dog is called Rex")
    rows.execute(db, "INSERT INTO run_sources (run_id, source_id) VALUES (?, ?)", run.id, read)
    if state_name == "leased":
        rows.execute(db, "UPDATE runs SET state = 'leased', lease_token = 't', lease_expires_at_ms = 1")
    assert dispensable(db, spares_facts=False) == []
    rows.execute(db, "UPDATE runs SET state = 'failed', lease_token = NULL, lease_expires_at_ms = NULL")
    rows.execute(db, "DELETE FROM run_sources")
    assert dispensable(db, spares_facts=False) == [request, read]


def test_the_parts_of_a_sweep_add_up_and_the_next_one_begins_anew(db: Database) -> None:
    assert rows.read(db, retention.read_sweep) is None
    rows.write(db, retention.record_sweep, SweepRecord(1, expired=2, facts=1))
    rows.write(db, retention.record_sweep, SweepRecord(1, over_capacity=3, is_clean=True))
    assert rows.read(db, retention.read_sweep) == SweepRecord(1, 2, 3, 1, True)
    rows.write(db, retention.record_sweep, SweepRecord(2, expired=1))
    assert rows.read(db, retention.read_sweep) == SweepRecord(2, 1, 0, 0, None)


def test_what_expires_is_found_through_an_index(db: Database, clock: FakeClock) -> None:
    steps = rows.plan(db, retention.expired_sources, now_ms=clock.now, limit=9)
    assert steps == ["SEARCH sources USING COVERING INDEX sources_by_expiry (expires_at_ms<?)"]
