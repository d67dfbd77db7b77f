import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pikobot.errors import InvalidParams, NotFound, PikobotError
from pikobot.memory.forgetting import forget as forgetting
from pikobot.memory.forgetting import ledger, proof
from pikobot.memory.forgetting.forget import Finished, finish_interrupted, forget
from pikobot.memory.forgetting.ledger import Reconciled, check
from pikobot.memory.forgetting.preview import PreviewItem, preview
from pikobot.memory.forgetting.receipts import AlreadyErased, Changed, Receipt
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.store import leases
from pikobot.store.connection import Database
from pikobot.store.erasing import erasures
from pikobot.store.leases import State
from pikobot.store.scopes import Scope, ensure_scope
from pikobot.store.text.index import check_text_index
from tests.memory.conversing import exchange, public, read, write
from tests.memory.planting import (
    ENGLISH,
    MARKS,
    copied_at_every_statement,
    everything,
    marks_in,
    on_disk,
    plant,
    receipt_of,
)
from tests.memory.remembering import NOW_MS, StillClock, opened, say


def test_nothing_is_left_of_marks_among_two_thousand_other_rows(db: Database, path: Path) -> None:
    say(db, *[f"message {n} about the weather in town {n % 7} 今天天气不错" for n in range(1000)])
    secret = plant(db)
    say(db, *[f"another {n} about dinner 晚饭吃什么好呢" for n in range(1000)])
    finish_interrupted(db, path)
    assert marks_in(on_disk(db)) == list(MARKS)

    receipt = receipt_of(forget(db, path, public(db, secret.request)))

    assert marks_in(on_disk(db)) == []
    assert {table: count for table, count in receipt.removed.rows.items() if count} == {
        "run_transcript": 2,
        "run_sources": 3,
        "source_dependencies": 4,
        "media": 1,
        "sources": 3,
        "runs": 1,
        "threads": 1,
    }
    assert (receipt.removed.runs_cancelled, receipt.removed.runs_requeued) == (0, 1)
    assert (receipt.is_clean, receipt.is_wal_truncated, receipt.erased_ids, receipt.ledger_position) == (
        True,
        True,
        3,
        3,
    )
    assert (receipt.scan.finds, receipt.scan.files) == ((), 3)
    assert receipt.scan.fragments > 5
    assert read(db, "SELECT count(*) FROM sources") == [(2002,)]
    assert write(db, check_text_index) == []
    with db.read() as conn:
        assert check(conn, path) == 3
    assert not write(db, erasures.is_unfinished)


def test_a_preview_shows_what_was_asked_for_first_and_then_what_follows(db: Database) -> None:
    first = exchange(db, "x" * 200, "an answer")
    say(db, "里斯本的天气", at_ms=NOW_MS, utc_offset_min=540, speaker="小红", role="participant")
    chinese = read(db, "SELECT public_id FROM sources ORDER BY id DESC LIMIT 1")[0][0]
    ids = public(db, first.request, first.answer)
    shown = preview(db, ForgetTarget(sources=(ids[0], chinese)))
    assert (shown.direct, shown.derived, shown.total, shown.already_erased) == (2, 1, 3, 0)
    assert shown.items == (
        PreviewItem(ids[0], "user", "owner", "2024-03-01T13:33:20Z", "x" * 80),
        PreviewItem(chinese, "participant", "小红", "2024-03-01T22:33:20+09:00", "里斯本的天气"),
        PreviewItem(ids[1], "assistant", "pikobot", "2024-03-01T13:33:20Z", "an answer"),
    )
    assert read(db, "SELECT count(*) FROM sources") == [(3,)]


def test_a_preview_lists_twenty_and_counts_all(db: Database) -> None:
    say(db, *[f"note {n}" for n in range(30)])
    shown = preview(db, ForgetTarget(words=("NOTE",)))
    assert (len(shown.items), shown.total) == (20, 30)


@pytest.mark.parametrize("text", ["里斯", "lisbon", "LISBON", "sbo"])
def test_a_text_is_found_as_a_literal_in_any_case(db: Database, path: Path, text: str) -> None:
    say(db, "I moved to Lisbon 我搬到里斯本了", "something else")
    receipt_of(forget(db, path, preview(db, ForgetTarget(words=(text,)))))
    assert read(db, "SELECT text FROM sources") == [("something else",)]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("at the Cafe\u0301 Nero", "Café Nero"),
        ("at the Café Nero", "Cafe\u0301 nero"),
        ("call １３８０１３８００００", "13801380000"),
        ("call 13801380000", "１３８０１３８００００"),
        ("明日のﾃｽﾄです", "テスト"),
        ("off to İstanbul", "istanbul"),
    ],
)
def test_a_text_is_forgotten_in_whatever_form_it_was_said(
    db: Database, path: Path, said: str, asked: str
) -> None:
    say(db, said, "kept 保留")
    receipt = receipt_of(forget(db, path, ForgetTarget(words=(asked,))))
    assert (receipt.removed.rows["sources"], receipt.is_clean) == (1, True)
    assert said.split()[-1].encode() not in on_disk(db)


def test_an_imported_thread_goes_with_its_name_and_stays_out(db: Database, path: Path) -> None:
    say(db, "one", "two", thread=f"import {ENGLISH}")
    write(db, lambda tx: tx.execute("UPDATE sources SET identity = randomblob(32)"))
    identities = [row[0] for row in read(db, "SELECT identity FROM sources")]
    thread = read(db, "SELECT public_id FROM threads")[0][0]
    receipt_of(forget(db, path, preview(db, ForgetTarget(thread=thread))))
    assert marks_in(on_disk(db)) == []
    assert read(db, "SELECT * FROM threads") == read(db, "SELECT * FROM sources") == []
    assert all(write(db, erasures.identity_is_erased, identity) for identity in identities)
    say(db, "three", thread=f"import {ENGLISH}")
    assert read(db, "SELECT public_id = ? FROM threads", thread) == [(0,)]


def test_the_last_exchange_is_the_last_request_and_its_answer(db: Database, path: Path) -> None:
    exchange(db, "first", "one")
    exchange(db, "second", "two")
    exchange(db, "elsewhere", "three", thread="other")
    thread = read(db, "SELECT public_id FROM threads WHERE key = 'chat'")[0][0]
    receipt_of(forget(db, path, preview(db, ForgetTarget(last_exchange=thread))))
    assert read(db, "SELECT text FROM sources ORDER BY id") == [
        ("first",),
        ("one",),
        ("elsewhere",),
        ("three",),
    ]


def test_what_was_previewed_goes_as_it_was_shown_or_not_at_all(db: Database, path: Path) -> None:
    one = exchange(db, "my code is 4711", "noted")
    shown = preview(db, ForgetTarget(words=("4711",)))
    exchange(db, "my code?", "you said it", reads=[one.request], thread="b")
    assert forget(db, path, shown) == Changed()
    shown = preview(db, ForgetTarget(words=("4711",)))
    exchange(db, "4711 is not a code any more", thread="c")
    assert forget(db, path, shown) == Changed()
    shown = preview(db, ForgetTarget(words=("4711",)))
    write(
        db,
        lambda tx: tx.execute("UPDATE sources SET content_hash = randomblob(32) WHERE id = ?", (one.answer,)),
    )
    assert forget(db, path, shown) == Changed()
    assert (path.exists(), read(db, "SELECT count(*) FROM erasures")) == (False, [(0,)])
    shown = preview(db, ForgetTarget(words=("4711",)))
    assert receipt_of(forget(db, path, shown)).removed.rows["sources"] == shown.total == 4
    assert read(db, "SELECT text FROM sources ORDER BY id") == [("my code?",)]


def test_a_thread_that_is_named_goes_with_what_was_said_by_then(db: Database, path: Path) -> None:
    exchange(db, "one", "two")
    thread = read(db, "SELECT public_id FROM threads")[0][0]
    shown = preview(db, ForgetTarget(thread=thread))
    exchange(db, "three", "four")
    assert forget(db, path, shown) == Changed()
    assert receipt_of(forget(db, path, ForgetTarget(thread="chat"))).erased_ids == 5


def test_forgetting_again_says_so_and_changes_nothing(db: Database, path: Path) -> None:
    one = exchange(db, "hello", "hi")
    ids = public(db, one.request, one.answer)
    exchange(db, "再见", "bye", thread="whole")
    thread = read(db, "SELECT public_id FROM threads WHERE key = 'whole'")[0][0]
    shown = preview(db, ForgetTarget(sources=tuple(ids)))
    forget(db, path, ids[:1])
    forget(db, path, ForgetTarget(thread=thread))
    content = path.read_bytes()
    assert forget(db, path, ids) == AlreadyErased(2)
    assert forget(db, path, shown) == AlreadyErased(2)
    assert forget(db, path, preview(db, ForgetTarget(thread=thread))) == AlreadyErased(1)
    assert path.read_bytes() == content
    assert AlreadyErased(1).as_json() == {"status": "alreadyErased", "ids": 1}
    assert AlreadyErased(1).render_lines() + AlreadyErased(1).render_lines("zh") == [
        "Already forgotten.",
        "已经忘记过了。",
    ]


def test_what_never_was_or_is_out_of_the_scopes_is_not_found(db: Database, path: Path) -> None:
    other = Scope("private", "main", "bot", "chat", "somebody")
    [theirs] = say(db, "theirs", scope=other)
    [ours] = say(db, "ours")
    scopes = [write(db, ensure_scope, Scope("private", "main", "local", "terminal", "owner"))]
    thread = read(
        db, "SELECT t.public_id FROM threads AS t JOIN sources AS s ON s.thread_id = t.id ORDER BY t.id"
    )[0][0]
    for target in (
        ForgetTarget(sources=(theirs,)),
        ForgetTarget(thread=thread),
        ForgetTarget(sources=("src_x",)),
    ):
        with pytest.raises(NotFound, match="does not exist; `pikobot rpc"):
            preview(db, target, scopes)
    with pytest.raises(NotFound, match="source 'src_x' does not exist"):
        forget(db, path, [ours, "src_x"])
    assert preview(db, ForgetTarget(words=("theirs",)), scopes).total == 0
    with pytest.raises(NotFound, match="nothing that is retained matches"):
        forget(db, path, preview(db, ForgetTarget(words=("theirs",)), scopes))
    assert read(db, "SELECT count(*) FROM sources") == [(2,)]
    assert not path.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"sources": ("a",), "thread": "b"},
        {"facts": ("a",), "from_": "2024-03-01"},
        {"words": (" \n",)},
        {"words": ("a",), "last_exchange": "b"},
        {"thread": "a", "workspace": "b"},
        {"from_": "2024-03-02", "to": "2024-03-01"},
    ],
)
def test_a_target_is_exactly_one_thing(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        ForgetTarget(**wrong)


def test_a_run_under_way_can_commit_nothing_after_what_it_has_read_is_forgotten(
    db: Database, path: Path
) -> None:
    secret = exchange(db, "my code is 4711", "noted")
    running = exchange(db, "code?", reads=[secret.request], is_leased=True, thread="b")
    receipt = receipt_of(forget(db, path, public(db, secret.request)))
    assert running.lease is not None
    assert not write(db, leases.finish, running.lease, State.SUCCEEDED, now_ms=NOW_MS)
    assert receipt.as_json()["runs"] == {"cancelled": 0, "requeued": 1}


def test_a_reader_that_keeps_the_wal_is_reported_and_the_next_open_finishes(
    tmp_path: Path, path: Path
) -> None:
    with opened(tmp_path) as db:
        secret = plant(db)
        db.perform(lambda db: db.maintenance_connection().set_busy_timeout(50))
        with db.read() as reader:
            reader.execute("SELECT count(*) FROM sources").fetchall()
            receipt = receipt_of(forget(db, path, public(db, secret.request)))
        assert (receipt.is_wal_truncated, receipt.is_clean) == (False, False)
        assert [find.file for find in receipt.scan.finds] == ["pikobot.sqlite3-wal"]
        assert (
            "A reader keeps the database's log: it is emptied at the next start of pikobot"
            in receipt.render_lines()
        )
        killed = tmp_path / "killed"
        killed.mkdir()
        for file in tmp_path.glob("*.*"):
            shutil.copy(file, killed)
    assert marks_in(everything(killed)) == list(MARKS)
    with opened(killed) as db:
        assert finish_interrupted(db, killed / "erasures.jsonl") == Finished(Reconciled(), True)
        assert finish_interrupted(db, killed / "erasures.jsonl") == Finished(Reconciled())
    assert marks_in(everything(killed)) == []


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    ("module", "step"),
    [
        (proof, "settle_and_find_remains"),
        (ledger, "append_missing"),
        (proof, "overwrite_remains"),
        (proof, "scan"),
        (forgetting, "prove"),
    ],
)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_is_finished_at_the_next_open(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, step: str, is_done: bool
) -> None:
    killed = tmp_path / "killed"
    real = getattr(module, step)
    monkeypatch.setattr(proof, "MAX_COMPARED", 0)

    def dying(*args: Any, **kwargs: Any) -> None:
        if is_done:
            real(*args, **kwargs)
        raise Killed

    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        secret = plant(db)
        ids = public(db, secret.request)
        with monkeypatch.context() as patch:
            patch.setattr(module, step, dying)
            with pytest.raises(Killed):
                forget(db, path, ids)
        killed.mkdir()
        for file in tmp_path.glob("*.*"):
            shutil.copy(file, killed)
    with opened(killed, StillClock(NOW_MS + 5)) as db:
        finished = finish_interrupted(db, killed / "erasures.jsonl")
        assert (finished.was_interrupted, finished.problem) == (True, None)
        assert forget(db, killed / "erasures.jsonl", ids) == AlreadyErased(1)
        with db.read() as conn:
            assert check(conn, killed / "erasures.jsonl") == 3
    assert marks_in(everything(killed)) == []


@pytest.mark.parametrize(("module", "step"), [(forgetting, "prove"), (ledger, "sync"), (proof, "scan")])
def test_what_fails_after_the_commit_stands_in_the_receipt_and_the_next_open_finishes(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, step: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise PikobotError("the disk is full (truncate the write-ahead log); free some space")

    with opened(tmp_path) as db:
        [name] = say(db, ENGLISH)
        with monkeypatch.context() as patch:
            patch.setattr(module, step, full)
            receipt = receipt_of(forget(db, path, [name]))
        assert (receipt.is_clean, receipt.erased_ids, receipt.removed.rows["sources"]) == (False, 1, 1)
        assert receipt.as_json()["problem"] == receipt.problem
        assert receipt.render_lines()[-1] == (
            "Traces are still in the files: the disk is full (truncate the write-ahead log); free some space. "
            "The next start of pikobot removes them"
        )
        assert read(db, "SELECT text FROM sources") == []
    with opened(tmp_path) as db:
        with monkeypatch.context() as patch:
            patch.setattr(proof, "settle_and_find_remains", full)
            assert finish_interrupted(db, path).problem == receipt.problem
        assert finish_interrupted(db, path).problem is None
        assert not write(db, erasures.is_unfinished)


def test_a_ledger_that_takes_no_rows_keeps_nobody_from_reading(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        os.pwrite(descriptor, data[:9], os.fstat(descriptor).st_size)
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        [name, _] = say(db, ENGLISH, "kept")
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr("pikobot.memory.forgetting.ledger.os.write", full)
            receipt = receipt_of(forget(db, path, [name]))
            finished = finish_interrupted(db, path)
        problem = f"cannot write {path}: the disk is full: free some space and try again"
        assert (receipt.problem, finished.problem, path.read_bytes()) == (problem, problem, before)
        assert read(db, "SELECT text FROM sources") == [("kept",)]
        assert finish_interrupted(db, path) == Finished(Reconciled(appended=1), was_interrupted=True)
        with db.read() as conn:
            assert check(conn, path) == 1


@pytest.mark.parametrize("is_noted", [False, True])
def test_what_was_proved_is_cleaned_once_more_unless_the_end_was_noted(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    def full(db: Database) -> None:
        raise PikobotError("the disk is full")

    with opened(tmp_path) as db:
        [name] = say(db, ENGLISH)
        with monkeypatch.context() as patch:
            if not is_noted:
                patch.setattr(forgetting, "_finish", full)
            assert receipt_of(forget(db, path, [name])).is_clean
        assert write(db, erasures.is_unfinished) == (not is_noted)
    with opened(tmp_path) as db:
        assert finish_interrupted(db, path) == Finished(Reconciled(), was_interrupted=not is_noted)


@pytest.mark.crash
def test_killed_at_any_statement_it_is_before_or_after_never_between(tmp_path: Path, path: Path) -> None:
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        secret = plant(db)
        ids = public(db, secret.request)
        with copied_at_every_statement(db, tmp_path) as snapshots:
            receipt_of(forget(db, path, ids))
    outcomes = []
    for snapshot in snapshots:
        with opened(snapshot) as db:
            finish_interrupted(db, snapshot / "erasures.jsonl")
            found = [mark for mark in MARKS if read(db, "SELECT 1 FROM sources WHERE instr(text, ?)", mark)]
            buried = read(db, "SELECT count(*) FROM erasures")[0][0]
            assert read(db, "PRAGMA integrity_check") == [("ok",)]
            assert write(db, check_text_index) == []
        outcomes.append((marks_in(everything(snapshot)), found, buried))
    nothing: list[str] = []
    before, after = (list(MARKS), list(MARKS), 0), (nothing, nothing, 3)
    commit = outcomes.index(after)
    assert outcomes == [before] * commit + [after] * (len(outcomes) - commit)
    assert commit > 20


def test_an_old_database_that_was_copied_back_holds_nothing_after_the_open(
    tmp_path: Path, path: Path
) -> None:
    with opened(tmp_path) as db:
        secret = plant(db)
        ids = public(db, secret.request)
    shutil.copy(tmp_path / "pikobot.sqlite3", tmp_path / "copy")
    with opened(tmp_path) as db:
        forget(db, path, ids)
    (tmp_path / "copy").replace(tmp_path / "pikobot.sqlite3")
    assert marks_in(everything(tmp_path)) == list(MARKS)
    with opened(tmp_path, StillClock(NOW_MS + 9)) as db:
        assert finish_interrupted(db, path) == Finished(Reconciled(replayed=3), True)
        assert forget(db, path, ids) == AlreadyErased(1)
    assert marks_in(everything(tmp_path)) == []


def test_many_sources_are_forgotten_at_once_without_a_trace(db: Database, path: Path) -> None:
    names = say(db, *[f"note {n} unusual{n:05}word 记录{n:05}号" for n in range(300)])
    say(db, *[f"kept {n}" for n in range(50)])
    receipt = receipt_of(forget(db, path, names))
    assert (receipt.removed.rows["sources"], receipt.is_clean) == (300, True)
    data = on_disk(db)
    assert [n for n in range(300) if b"unusual%05dword" % n in data] == []
    assert write(db, check_text_index) == []
    config = dict(read(db, "SELECT k, v FROM sources_text_config"))
    assert config["secure-delete"] == 1


def test_two_threads_forgetting_at_once_leave_one_chain(db: Database, path: Path) -> None:
    names = say(db, *[f"secret number {n}" for n in range(6)])
    outcomes: list[Receipt | AlreadyErased | Changed] = []
    workers = [
        threading.Thread(target=lambda n=name: outcomes.append(forget(db, path, [n]))) for name in names * 2
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len([1 for outcome in outcomes if isinstance(outcome, Receipt)]) == 6
    with db.read() as conn:
        assert check(conn, path) == 6


def test_a_token_stands_for_what_was_shown_and_for_nothing_else(db: Database, path: Path) -> None:
    say(db, "4711", "47 more")
    token = preview(db, ForgetTarget(words=("4711",))).token
    assert forget(db, path, ForgetTarget(words=("47",)), token=token) == Changed()
    assert isinstance(forget(db, path, ForgetTarget(words=("471",)), token=token), Receipt)
