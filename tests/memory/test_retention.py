import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pikobot.memory.assertions import Assertion, Statement, remember
from pikobot.memory.forgetting import retention as keeping
from pikobot.memory.forgetting.forget import finish_interrupted
from pikobot.memory.forgetting.ledger import check
from pikobot.memory.forgetting.retention import Swept, obey_message_days, retention_state, sweep
from pikobot.memory.imports import import_jsonl
from pikobot.store import leases
from pikobot.store.connection import Database
from pikobot.store.erasing import erasures
from pikobot.store.inspection import inspect
from pikobot.store.leases import State
from pikobot.store.retention import adopted_message_days
from pikobot.store.scopes import owner_scope
from tests.memory.conversing import attach, exchange, public, read, write
from tests.memory.learning import learn
from tests.memory.planting import copied_at_every_statement
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, opened, say

SECRET = "the code is zanzibarite-7731 紫水晶藏宝图"
MARKS = (b"zanzibarite", "紫水晶藏宝图".encode(), "紫水晶藏宝图".encode("utf-16-le"))
TEXTS = "SELECT text FROM sources ORDER BY said_at_ms, id"


def swept(db: Database, path: Path, max_sources: int = 0) -> list[Swept]:
    """Every round of a sweep."""
    rounds = []
    while (done := sweep(db, path, max_sources=max_sources, started_ms=db.clock.now_ms())) is not None:
        rounds.append(done)
    return rounds


def marks_below(directory: Path) -> list[str]:
    """Files that hold a mark. Only after the database was closed."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    return [file.name for file in files if any(mark in file.read_bytes() for mark in MARKS)]


def last_sweep(db: Database) -> object:
    with db.read() as conn:
        return retention_state(conn, message_days=0, max_sources=0, now_ms=db.clock.now_ms())["lastSweep"]


def texts(db: Database) -> list[str]:
    return [row[0] for row in read(db, TEXTS)]


def test_what_has_expired_goes_with_all_that_was_made_of_it(tmp_path: Path, path: Path) -> None:
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        secret = exchange(db, SECRET, f"noted: {SECRET}", thread=SECRET)
        attach(db, secret.request, SECRET.encode() * 500, f"{SECRET}.txt")
        learn(db, f"The owner said: {SECRET}", *public(db, secret.request), tags=("codes",))
        assert secret.answer is not None
        exchange(db, "what was it?", f"it was {SECRET}", reads=[secret.answer], thread="b")
        write(db, lambda tx: tx.execute("UPDATE sources SET expires_at_ms = ? WHERE id = 1", (NOW_MS,)))
        kept = say(db, "我住在波尔图", expires_at_ms=NOW_MS + 1)
        [done] = swept(db, path)
        assert {table: count for table, count in done.removed.rows.items() if count} == {
            "run_sources": 1,
            "source_dependencies": 3,
            "media": 1,
            "sources": 3,
            "facts": 1,
            "fact_evidence": 1,
            "fact_tags": 1,
            "runs": 1,
            "threads": 1,
        }
        assert done.is_clean
        assert texts(db) == ["what was it?", "我住在波尔图"]
        assert read(db, "SELECT public_id FROM sources WHERE text = '我住在波尔图'") == [(kept[0],)]
        with db.read() as conn:
            assert check(conn, path) == 3
            assert inspect(conn) == []
        assert not write(db, erasures.is_unfinished)
        assert last_sweep(db) == {
            "at": "2024-03-01T13:33:20Z",
            "expired": 3,
            "overCapacity": 0,
            "facts": 1,
            "clean": True,
        }
    assert marks_below(tmp_path) == []


def test_a_sweep_with_nothing_to_do_changes_nothing(db: Database, path: Path) -> None:
    say(db, "我住在波尔图", expires_at_ms=NOW_MS + 1)
    before = read(db, "SELECT total_changes()")
    assert swept(db, path, max_sources=1) == []
    assert read(db, "SELECT total_changes()") == before
    assert last_sweep(db) is None


def test_many_expired_sources_go_in_batches_and_rounds(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BATCH_SOURCES", 10)
    monkeypatch.setattr(keeping, "BATCHES_A_ROUND", 3)
    say(db, *[f"message {n} 第{n}条" for n in range(70)], expires_at_ms=NOW_MS)
    say(db, "stays")
    assert [done.removed.rows["sources"] for done in swept(db, path)] == [30, 30, 10]
    assert texts(db) == ["stays"]
    found = last_sweep(db)
    assert isinstance(found, dict)
    assert found["expired"] == 70


def test_a_sweep_that_is_to_stop_ends_after_its_batch_and_is_proved(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BATCH_SOURCES", 10)
    say(db, *[f"message {n}" for n in range(30)], expires_at_ms=NOW_MS)
    done = sweep(db, path, max_sources=0, started_ms=NOW_MS, should_stop=lambda: True)
    assert done is not None
    assert (done.removed.rows["sources"], done.is_clean) == (10, True)
    assert len(texts(db)) == 20


def test_what_is_at_work_on_expired_sources_can_commit_nothing(db: Database, path: Path) -> None:
    old = exchange(db, SECRET, "noted")
    reader = exchange(db, "what was it?", reads=[old.request], is_leased=True, thread="b")
    write(db, lambda tx: tx.execute("UPDATE sources SET expires_at_ms = 0 WHERE id = ?", (old.request,)))
    [done] = swept(db, path)
    assert (done.removed.runs_cancelled, done.removed.runs_requeued) == (0, 1)
    assert reader.lease is not None
    assert not write(db, leases.finish, reader.lease, State.SUCCEEDED, now_ms=NOW_MS)


def keep(db: Database, text: str) -> None:
    assert db.perform(remember, Assertion(text=text), Statement(owner_scope())) is not None


def lines(*texts: str, thread: str = "t1") -> bytes:
    records = [
        {"thread": thread, "role": "user", "text": text, "id": text, "time": "2024-02-01T00:00:00Z"}
        for text in texts
    ]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_a_second_import_brings_nothing_expired_back(db: Database, path: Path) -> None:
    import_jsonl(db, io.BytesIO(lines(SECRET, "短的")), message_days=0)
    obey_message_days(db, 7)
    assert len(swept(db, path)) == 1
    for days in (7, 0):
        obey_message_days(db, days)
        report = import_jsonl(db, io.BytesIO(lines(SECRET, "短的")), message_days=days)
        assert (report.added, report.erased) == (0, 2)
    assert texts(db) == []


def test_a_shorter_time_hides_at_once_and_a_longer_one_saves_what_was_not_swept(
    db: Database, path: Path
) -> None:
    import_jsonl(db, io.BytesIO(lines(SECRET)), message_days=0)
    for days, waiting in ((7, 1), (60, 0), (7, 1), (0, 0)):
        obey_message_days(db, days)
        with db.read() as conn:
            state = retention_state(conn, message_days=days, max_sources=0, now_ms=NOW_MS)
        assert (state["messageDays"], state["expiredWaiting"]) == (days, waiting)
    assert swept(db, path) == []
    assert texts(db) == [SECRET]


def test_an_old_database_that_is_copied_back_brings_nothing_expired_back(tmp_path: Path, path: Path) -> None:
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        say(db, SECRET, expires_at_ms=NOW_MS + DAY_MS)
    shutil.copy(tmp_path / "pikobot.sqlite3", tmp_path / "old")
    with opened(tmp_path, StillClock(NOW_MS + DAY_MS)) as db:
        assert len(swept(db, path)) == 1
    (tmp_path / "old").replace(tmp_path / "pikobot.sqlite3")
    with opened(tmp_path, StillClock(NOW_MS)) as db:  # the clock was set back, too
        assert finish_interrupted(db, path).reconciled.replayed == 1
        assert texts(db) == []
    assert marks_below(tmp_path) == []


@pytest.mark.crash
def test_killed_at_any_statement_a_sweep_is_finished_by_the_next(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BATCH_SOURCES", 1)
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        say(db, SECRET, f"{SECRET} again", expires_at_ms=NOW_MS)
        say(db, "我住在波尔图", thread="b")
        with copied_at_every_statement(db, tmp_path) as snapshots:
            assert len(swept(db, path)) == 1
    assert len(snapshots) > 40
    for snapshot in snapshots:
        with opened(snapshot) as db:
            finish_interrupted(db, snapshot / "erasures.jsonl")
            swept(db, snapshot / "erasures.jsonl")
            assert texts(db) == ["我住在波尔图"]
            with db.read() as conn:
                assert inspect(conn) == []
                assert check(conn, snapshot / "erasures.jsonl") == 2
        assert marks_below(snapshot) == []


def test_beyond_the_capacity_the_oldest_messages_of_a_workspace_go(db: Database, path: Path) -> None:
    say(db, *[f"第{n}条" for n in range(6)])
    say(db, "another workspace", scope=owner_scope("other"))
    [done] = swept(db, path, max_sources=4)
    assert done.removed.rows["sources"] == 2
    assert sorted(texts(db)) == sorted([*(f"第{n}条" for n in range(2, 6)), "another workspace"])
    found = last_sweep(db)
    assert isinstance(found, dict)
    assert (found["expired"], found["overCapacity"]) == (0, 2)
    assert swept(db, path, max_sources=4) == []


def test_what_facts_rest_on_goes_last_and_what_was_asked_to_be_kept_never(db: Database, path: Path) -> None:
    keep(db, "记住我喜欢茶")
    inferred, _ = say(db, "I live in Porto", "bla", at_ms=NOW_MS + 1)
    learn(db, "lives in Porto", inferred)
    say(db, "the newest", at_ms=NOW_MS + DAY_MS)
    assert len(swept(db, path, max_sources=2)) == 1
    assert texts(db) == ["记住我喜欢茶", "I live in Porto"]
    assert len(swept(db, path, max_sources=1)) == 1
    assert texts(db) == ["记住我喜欢茶"]
    keep(db, "and that I hate coffee")
    assert swept(db, path, max_sources=1) == []
    with db.read() as conn:
        assert retention_state(conn, message_days=0, max_sources=1, now_ms=NOW_MS)["beyondCapacity"] == 1


def test_beyond_the_capacity_no_more_goes_than_has_to(db: Database, path: Path) -> None:
    first = exchange(db, "一", "the first answer")
    assert first.answer is not None
    exchange(db, "二", "made from the first", reads=[first.answer])
    say(db, "a", "b", "c", at_ms=NOW_MS + 1)
    assert len(swept(db, path, max_sources=6)) == 1  # the oldest request takes two answers along
    assert texts(db) == ["二", "a", "b", "c"]


def test_what_is_not_clean_is_recorded_so(db: Database, path: Path) -> None:
    say(db, SECRET, expires_at_ms=NOW_MS)
    (path.parent / "notes.txt").write_text(SECRET)
    [done] = swept(db, path)
    assert not done.is_clean
    found = last_sweep(db)
    assert isinstance(found, dict)
    assert found["clean"] is False


@pytest.mark.parametrize("days", [0, 30])
def test_obeying_the_same_setting_again_writes_nothing(
    db: Database, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    obey_message_days(db, days)

    def never(*unused: object) -> Callable[..., object]:
        raise AssertionError("it writes")

    monkeypatch.setattr(db, "perform", never)
    obey_message_days(db, days)
    with db.read() as conn:
        assert adopted_message_days(conn) == days
