import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from pikobot.errors import DamagedData, PikobotError
from pikobot.memory.forgetting import ledger
from pikobot.memory.forgetting.ledger import Reconciled, check, reconcile
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import closure, erasures
from pikobot.store.erasing.erasures import Tombstone
from tests.memory.conversing import exchange, public, read, write
from tests.memory.remembering import NOW_MS, StillClock, opened


def erase(db: Database, *source_ids: int | None) -> None:
    """What forgetting commits, without what follows it."""

    def run(tx: Connection) -> None:
        closed = closure.closure_of(tx, [i for i in source_ids if i is not None])  # type: ignore[misc]  # ids
        erasures.append(tx, closure.remove(tx, closed, now_ms=NOW_MS).tombstones, at_ms=NOW_MS)

    write(db, run)


def bury(db: Database, *names: str) -> None:
    write(db, erasures.append, [Tombstone("source", name) for name in names], at_ms=NOW_MS)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def verified(db: Database, path: Path) -> int:
    with db.read() as conn:
        return check(conn, path)


def test_the_file_is_made_private_with_a_header_and_grows_by_a_line_for_each_erasure(
    db: Database, path: Path
) -> None:
    assert reconcile(db, path) == Reconciled()
    one = exchange(db, "hello", "hi")
    ids = public(db, one.request, one.answer)
    thread = read(db, "SELECT public_id FROM threads")[0][0]
    erase(db, one.request)
    write(db, erasures.append, [Tombstone("thread", thread)], at_ms=NOW_MS)
    assert reconcile(db, path) == Reconciled(appended=3)
    assert reconcile(db, path) == Reconciled()
    instance = read(db, "SELECT value FROM settings WHERE key = 'instance_id'")[0][0]
    hashes = [row[0].hex() for row in read(db, "SELECT hash FROM erasures ORDER BY position")]
    common = {"identity": None, "at": NOW_MS}
    assert lines(path) == [
        {"instance": instance, "version": 1},
        {"position": 1, "entity": "source", "id": ids[0], **common, "hash": hashes[0]},
        {"position": 2, "entity": "source", "id": ids[1], **common, "hash": hashes[1]},
        {"position": 3, "entity": "thread", "id": thread, **common, "hash": hashes[2]},
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert verified(db, path) == 3


def test_appended_lines_are_fsynced(db: Database, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reconcile(db, path)
    synced: list[int] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    bury(db, "src_a")
    monkeypatch.setattr(os, "fsync", watched)
    reconcile(db, path)
    assert synced == [path.stat().st_size]


def test_lines_that_were_appended_without_waiting_are_waited_for_by_sync(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile(db, path)
    synced: list[int] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    bury(db, "src_a")
    monkeypatch.setattr(os, "fsync", watched)
    assert db.perform(ledger.append_missing, path, is_synced=False) == 1
    assert synced == []
    ledger.sync(path)
    assert synced == [path.stat().st_size]
    assert verified(db, path) == 1
    with pytest.raises(PikobotError, match="cannot write"):
        ledger.sync(path.with_name("missing"))


def test_appending_reads_the_last_line_alone(db: Database, path: Path) -> None:
    bury(db, "src_a", "src_b")
    reconcile(db, path)
    content = path.read_bytes()
    bury(db, "src_c")
    path.write_bytes(content.replace(b"src_a", b"src_x"))
    assert db.perform(ledger.append_missing, path) == 1
    with pytest.raises(DamagedData, match="breaks the chain"):
        reconcile(db, path)


def test_a_missing_file_is_written_again(db: Database, path: Path) -> None:
    bury(db, "src_a", "src_b")
    reconcile(db, path)
    content = path.read_bytes()
    path.unlink()
    assert reconcile(db, path) == Reconciled(appended=2)
    assert path.read_bytes() == content


@pytest.mark.parametrize("cut", [1, 2, 40, 150])
def test_a_cut_last_line_is_removed_and_comes_back_from_the_database(
    db: Database, path: Path, cut: int
) -> None:
    bury(db, "src_a", "src_b")
    reconcile(db, path)
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    with pytest.raises(DamagedData, match=r"erasures.jsonl (ends in a cut line|has 1 erasures)"):
        verified(db, path)
    appended = 0 if cut == 1 else 1
    assert reconcile(db, path) == Reconciled(appended=appended, is_repaired=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize("left", [b"", b"{", b"\0" * 30])
def test_a_file_cut_in_its_header_is_written_again(db: Database, path: Path, left: bytes) -> None:
    bury(db, "src_a")
    reconcile(db, path)
    content = path.read_bytes()
    path.write_bytes(left)
    assert reconcile(db, path).appended == 1
    assert path.read_bytes() == content


def test_zeros_that_a_power_cut_left_behind_the_last_line_are_removed(db: Database, path: Path) -> None:
    bury(db, "src_a")
    reconcile(db, path)
    content = path.read_bytes()
    path.write_bytes(content + b"\0" * 500)
    assert reconcile(db, path) == Reconciled(is_repaired=True)
    assert path.read_bytes() == content


def test_an_old_database_that_was_copied_back_erases_again(tmp_path: Path, path: Path) -> None:
    with opened(tmp_path) as db:
        old = exchange(db, "my door code is 4711", "noted", identity=b"i" * 32)
        kept = exchange(db, "good morning", "hello", thread="other")
    shutil.copy(tmp_path / "pikobot.sqlite3", tmp_path / "copy")
    with opened(tmp_path, StillClock(NOW_MS + 1)) as db:
        erase(db, old.request)
        reconcile(db, path)
        content = path.read_bytes()
        rows = read(db, "SELECT * FROM erasures ORDER BY position")
    (tmp_path / "copy").replace(tmp_path / "pikobot.sqlite3")
    with opened(tmp_path, StillClock(NOW_MS + 2)) as db:
        assert reconcile(db, path) == Reconciled(replayed=2)
        assert read(db, "SELECT id FROM sources ORDER BY id") == [(kept.request,), (kept.answer,)]
        assert read(db, "SELECT key FROM threads") == [("other",)]
        assert read(db, "SELECT * FROM erasures ORDER BY position") == rows
        assert write(db, erasures.identity_is_erased, b"i" * 32)
        assert write(db, erasures.is_unfinished)
        assert reconcile(db, path) == Reconciled()
    assert path.read_bytes() == content


def test_what_an_old_database_made_of_erased_sources_gets_tombstones_of_its_own(
    tmp_path: Path, path: Path
) -> None:
    with opened(tmp_path) as db:
        old = exchange(db, "my door code is 4711")
        name = public(db, old.request)[0]
        bury(db, name)
        reconcile(db, path)
        write(db, lambda tx: tx.execute("DELETE FROM erasures"))
        later = exchange(db, "what was it?", "4711", thread="b", reads=[old.request])
        answer = public(db, later.answer)[0]
        assert reconcile(db, path) == Reconciled(replayed=1, appended=1)
        assert [row[0] for row in read(db, "SELECT public_id FROM erasures ORDER BY position")] == [
            name,
            answer,
        ]
        assert verified(db, path) == 2


def test_a_record_with_an_erased_identity_goes_under_whatever_id_it_came_back(
    db: Database, path: Path
) -> None:
    write(db, erasures.append, [Tombstone("source", "src_first", b"i" * 32)], at_ms=NOW_MS)
    reconcile(db, path)
    write(db, lambda tx: tx.execute("DELETE FROM erasures"))
    exchange(db, "again", identity=b"i" * 32)
    assert reconcile(db, path).replayed == 1
    assert read(db, "SELECT * FROM sources") == []


def fork(db: Database, path: Path) -> None:
    bury(db, "src_a", "src_b")
    reconcile(db, path)
    write(db, lambda tx: tx.execute("DELETE FROM erasures WHERE position = 2"))
    bury(db, "src_c")


def change_line(db: Database, path: Path) -> None:
    bury(db, "src_a", "src_b", "src_c")
    reconcile(db, path)
    path.write_text(path.read_text().replace("src_b", "src_x"))


def drop_line(db: Database, path: Path) -> None:
    bury(db, "src_a", "src_b", "src_c")
    reconcile(db, path)
    kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept[:2] + kept[3:]))


def garble_line(db: Database, path: Path) -> None:
    bury(db, "src_a", "src_b")
    reconcile(db, path)
    kept = path.read_text().splitlines(keepends=True)
    path.write_text(kept[0] + "garbage\n" + kept[2])


def change_beyond_the_database(db: Database, path: Path) -> None:
    change_line(db, path)
    write(db, lambda tx: tx.execute("DELETE FROM erasures"))


def other_instance(db: Database, path: Path) -> None:
    bury(db, "src_a")
    reconcile(db, path)
    write(db, lambda tx: tx.execute("UPDATE settings SET value = 'ins_other' WHERE key = 'instance_id'"))


def no_header(db: Database, path: Path) -> None:
    path.write_text('{"hello": 1}\n')


def newer_version(db: Database, path: Path) -> None:
    reconcile(db, path)
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (fork, "line 3 differs from the database: the two have gone different ways: copy the instance"),
        (change_line, "line 3 breaks the chain"),
        (drop_line, "line 3 breaks the chain"),
        (garble_line, "line 2 is not a row of the ledger"),
        (change_beyond_the_database, "line 3 breaks the chain"),
        (other_instance, r"belongs to another instance \(ins_.*, the database is ins_other\): put back"),
        (no_header, "line 1 is not the header"),
        (newer_version, "has version 2, this pikobot knows 1: use a newer"),
    ],
)
@pytest.mark.parametrize("way", ["open", "check"])
def test_a_ledger_with_another_history_is_refused_and_nothing_changes(
    db: Database,
    path: Path,
    damage: object,
    message: str,
    way: str,
) -> None:
    damage(db, path)  # type: ignore[operator]  # one of the functions above
    before = path.read_bytes(), read(db, "SELECT * FROM erasures")
    with pytest.raises(DamagedData, match=r"erasures.jsonl |erasure ledger in the database") as caught:
        reconcile(db, path) if way == "open" else verified(db, path)
    if way == "open":
        assert caught.match(message)
    assert (path.read_bytes(), read(db, "SELECT * FROM erasures")) == before


def test_a_large_ledger_is_compared_by_its_end(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(db, *[f"src_{n}" for n in range(50)])
    reconcile(db, path)
    monkeypatch.setattr(ledger, "FULL_CHECK_MAX_BYTES", 1000)
    bury(db, "src_new")
    assert reconcile(db, path) == Reconciled(appended=1)
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    assert reconcile(db, path) == Reconciled(appended=1, is_repaired=True)
    write(db, lambda tx: tx.execute("DELETE FROM erasures WHERE position > 40"))
    assert reconcile(db, path) == Reconciled(replayed=11)
    assert path.read_bytes() == content
    assert verified(db, path) == 51
    path.write_text(path.read_text().replace("src_7", "src_x"))
    assert reconcile(db, path) == Reconciled()
    with pytest.raises(DamagedData, match="line 9 breaks the chain"):
        verified(db, path)


def test_check_names_what_is_missing_and_changes_nothing(db: Database, path: Path) -> None:
    with pytest.raises(DamagedData, match="is missing; the next start"):
        verified(db, path)
    reconcile(db, path)
    bury(db, "src_a")
    with pytest.raises(DamagedData, match="has 0 erasures and the database 1"):
        verified(db, path)
    assert len(lines(path)) == 1
    path.write_bytes(b"")
    with pytest.raises(DamagedData, match="is empty"):
        verified(db, path)


def test_many_threads_append_each_erasure_once(db: Database, path: Path) -> None:
    reconcile(db, path)

    def work(name: str) -> None:
        for number in range(5):
            bury(db, f"src_{name}{number}")
            db.perform(ledger.append_missing, path)

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert verified(db, path) == 20
