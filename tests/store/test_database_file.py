import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pikobot.errors import DamagedData, PikobotError
from pikobot.store import connection
from pikobot.store.connection import Connection, Database, MisuseError, connect
from tests.clock import FakeClock
from tests.store.notes import add, note, notes, opened, patience, stored

ROOT = Path(__file__).parents[2]


@pytest.fixture
def db(path: Path, clock: FakeClock) -> Iterator[Database]:
    with opened(path, clock) as database:
        yield database


# Settings of every connection


PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "secure_delete": 1,
    "temp_store": 2,
    "trusted_schema": 0,
    "page_size": connection.PAGE_SIZE,
    "busy_timeout": connection.BUSY_TIMEOUT_MS,
}


def pragmas(conn: Connection) -> dict[str, object]:
    return {name: conn.execute(f"PRAGMA {name}").fetchall()[0][0] for name in PRAGMAS}


def test_every_connection_keeps_the_promises(db: Database, path: Path) -> None:
    def of_writer(db: Database) -> tuple[dict[str, object], int]:
        conn = db.maintenance_connection()
        return pragmas(conn), conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)

    assert db.perform(of_writer) == (PRAGMAS, 1)
    with db.read() as first, db.read() as second:
        assert [pragmas(first), pragmas(second)] == [PRAGMAS, PRAGMAS]
        query_only = [conn.execute("PRAGMA query_only").fetchall() for conn in (first, second)]
        assert query_only == [[(1,)], [(1,)]]
    other = connect(path)
    assert pragmas(other) == PRAGMAS
    other.close()


def test_a_reopened_database_has_the_same_settings(path: Path, clock: FakeClock) -> None:
    Database(path, clock).close()
    db = Database(path, clock)
    with db.read() as conn:
        assert pragmas(conn) == PRAGMAS
    db.close()


def test_the_database_and_its_companions_are_the_owners_alone(db: Database, path: Path) -> None:
    db.perform(add, "private")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}


def test_the_literal_matcher_is_there_on_both_sides(db: Database) -> None:
    def of_writer(db: Database) -> list[tuple[object, ...]]:
        return db.maintenance_connection().execute("SELECT contains_folded('STRAßE', 'strasse')").fetchall()

    with db.read() as conn:
        assert conn.execute("SELECT contains_folded('修改youer服务端', '服务')").fetchall() == [(1,)]
    assert db.perform(of_writer) == [(1,)]


# What is wrong with a file


def test_a_file_that_is_no_database_is_damaged_data(path: Path, clock: FakeClock) -> None:
    path.write_bytes(b"not a database, just text. " * 1000)
    with pytest.raises(DamagedData, match=r"RECOVERY\.md"):
        Database(path, clock)
    assert path.read_bytes() == b"not a database, just text. " * 1000


def test_a_damaged_page_is_damaged_data(db: Database, path: Path, clock: FakeClock) -> None:
    db.perform(add, "x" * 3 * connection.PAGE_SIZE)
    db.close()
    with path.open("r+b") as file:
        file.seek(connection.PAGE_SIZE)
        file.write(b"\xff" * connection.PAGE_SIZE)
    again = Database(path, clock)
    with pytest.raises(DamagedData, match="read"):
        stored(again)
    with pytest.raises(DamagedData, match="add a note"):
        again.perform(add, "more")
    again.close()


def test_a_truncated_database_is_damaged_data(db: Database, path: Path, clock: FakeClock) -> None:
    db.perform(add, "x" * 3 * connection.PAGE_SIZE)
    db.close()
    path.write_bytes(path.read_bytes()[: 2 * connection.PAGE_SIZE - 100])
    with pytest.raises(DamagedData, match="open the database"):
        Database(path, clock)


def test_a_directory_in_its_place_is_named(path: Path, clock: FakeClock) -> None:
    path.mkdir()
    with pytest.raises(PikobotError, match=r"cannot open the database .*\.sqlite3: it is a directory"):
        Database(path, clock)


def test_a_missing_directory_is_named(path: Path, clock: FakeClock) -> None:
    with pytest.raises(PikobotError, match="cannot open the database"):
        Database(path / "nowhere", clock)


def test_a_database_without_a_write_ahead_log_is_refused() -> None:
    with pytest.raises(PikobotError, match="local disk"):
        connect(Path(":memory:"))


# A full disk


def test_a_full_database_keeps_nothing_of_the_transaction(db: Database) -> None:
    def limit(db: Database, pages: int) -> None:
        db.maintenance_connection().execute(f"PRAGMA max_page_count = {pages}")

    def fill(db: Database) -> None:
        with db.write("fill the disk") as tx:
            for _ in range(50):
                tx.execute("INSERT INTO notes VALUES (?)", ("x" * connection.PAGE_SIZE,))

    db.perform(add, "before")
    db.perform(limit, 10)
    with pytest.raises(PikobotError, match="disk is full"):
        db.perform(fill)
    assert stored(db) == ["before"]
    db.perform(limit, 1000)
    db.perform(add, "after")
    assert stored(db) == ["before", "after"]


WRITE_UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from pikobot.clock import SystemClock
from pikobot.errors import PikobotError
from pikobot.store.connection import Database

def fill(db):
    with db.write("fill the disk") as tx:
        for _ in range(200):
            tx.execute("INSERT INTO notes VALUES (?)", ("y" * 16000,))

db = Database(Path(sys.argv[1]), SystemClock())
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
try:
    db.perform(fill)
except PikobotError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with db.read() as conn:
    print(conn.execute("SELECT count(*) FROM notes").fetchall())
db.close()
"""


def test_a_file_that_cannot_grow_keeps_nothing_of_the_transaction(db: Database, path: Path) -> None:
    db.perform(add, "before")
    done = subprocess.run(
        [sys.executable, "-c", WRITE_UNDER_A_LIMIT, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    sentence, count = done.stdout.splitlines()
    assert "fill the disk" in sentence
    assert count == "[(1,)]"
    assert stored(db) == ["before"]


# The write-ahead log


def test_truncating_the_log_leaves_no_copy_of_what_was_deleted(db: Database, path: Path) -> None:
    db.perform(add, "SECRET 秘密")
    db.perform(note, "DELETE FROM notes")
    assert db.perform(Database.truncate_wal)
    assert {file.name: b"SECRET" in file.read_bytes() for file in path.parent.iterdir()} == {
        path.name: False,
        f"{path.name}-wal": False,
        f"{path.name}-shm": False,
    }
    assert path.with_name(f"{path.name}-wal").stat().st_size == 0


def test_truncating_the_log_says_when_a_reader_still_keeps_it(db: Database) -> None:
    db.perform(add, "one")
    db.perform(patience, 10)
    with db.read() as conn:
        notes(conn)
        db.perform(add, "two")
        assert not db.perform(Database.truncate_wal)
    assert db.perform(Database.truncate_wal)


def test_truncating_the_log_belongs_on_the_writer_thread(db: Database) -> None:
    with pytest.raises(MisuseError):
        db.truncate_wal()
