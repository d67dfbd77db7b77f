import asyncio
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pikobot.errors import DamagedData, InstanceBusy, PikobotError
from pikobot.store import connection
from pikobot.store.connection import Connection, Database, MisuseError, connect
from tests.clock import FakeClock

ROOT = Path(__file__).parents[2]
NOTES = "CREATE TABLE notes (text TEXT NOT NULL) STRICT"


@pytest.fixture
def db(path: Path, clock: FakeClock) -> Iterator[Database]:
    database = Database(path, clock)
    database.perform(note, NOTES)
    yield database
    database.close()


def note(db: Database, *statements: str) -> None:
    with db.write("note") as tx:
        for statement in statements:
            tx.execute(statement)


def add(db: Database, text: str) -> str:
    with db.write("add a note") as tx:
        tx.execute("INSERT INTO notes VALUES (?)", (text,))
    return text


def notes(conn: Connection) -> list[str]:
    return [row[0] for row in conn.execute("SELECT text FROM notes ORDER BY rowid")]


def stored(db: Database) -> list[str]:
    with db.read() as conn:
        return notes(conn)


# Transactions


def test_a_write_off_the_writer_thread_is_refused_and_named(db: Database) -> None:
    with (
        pytest.raises(MisuseError, match="'sneak in' writes outside the writer thread"),
        db.write("sneak in"),
    ):
        pass


def test_a_nested_write_is_refused_with_both_names_and_the_outer_one_is_rolled_back(db: Database) -> None:
    def outer(db: Database) -> None:
        with db.write("outer work") as tx:
            tx.execute("INSERT INTO notes VALUES ('lost')")
            with db.write("inner work"):
                pass

    with pytest.raises(MisuseError, match="'inner work' begins inside 'outer work'"):
        db.perform(outer)
    db.perform(add, "kept")
    assert stored(db) == ["kept"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_transaction_that_raises_leaves_nothing_and_the_next_one_works(
    db: Database, error: BaseException
) -> None:
    def failing(db: Database) -> None:
        with db.write("fail") as tx:
            tx.execute("INSERT INTO notes VALUES ('lost')")
            raise error

    with pytest.raises(type(error)) as caught:
        db.perform(failing)
    assert caught.value is error
    db.perform(add, "kept")
    assert stored(db) == ["kept"]


def test_an_operation_that_submits_another_is_refused(db: Database) -> None:
    def submitting(db: Database) -> None:
        db.perform(add, "never")

    with pytest.raises(MisuseError, match="submits another"):
        db.perform(submitting)
    assert stored(db) == []


def test_maintenance_is_for_the_writer_thread_outside_transactions(db: Database) -> None:
    def inside(db: Database) -> None:
        with db.write("long work"):
            db.maintenance_connection()

    with pytest.raises(MisuseError, match="outside the writer thread"):
        db.maintenance_connection()
    with pytest.raises(MisuseError, match="inside 'long work'"):
        db.perform(inside)


def test_operations_of_many_threads_run_one_after_another(db: Database) -> None:
    threads = [threading.Thread(target=db.perform, args=(add, str(number))) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stored(db), key=int) == [str(number) for number in range(20)]


# Coroutines


def test_a_coroutine_gets_the_operations_result_or_its_error(db: Database) -> None:
    async def scenario() -> tuple[str, list[str]]:
        with pytest.raises(apsw.SQLError):
            await db.perform_async(note, "INSERT INTO nowhere VALUES (1)")
        return await db.perform_async(add, "你好"), await db.read_async(notes)

    assert asyncio.run(scenario()) == ("你好", ["你好"])


@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_is_delivered_after_the_outcome_of_the_commit(db: Database, fails: bool) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(db: Database) -> None:
        started.set()
        assert go_on.wait(10)
        add(db, "committed")
        if fails:
            raise ValueError("after the commit")

    async def scenario() -> list[bool]:
        task = asyncio.create_task(db.perform_async(slow))
        await asyncio.to_thread(started.wait)
        was_done = []
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
            was_done.append(task.done())
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stored(db) == ["committed"]
        return was_done

    assert asyncio.run(scenario()) == [False, False]


def test_a_timeout_around_an_operation_ends_it_after_its_commit(db: Database) -> None:
    go_on = threading.Event()

    def slow(db: Database) -> None:
        assert go_on.wait(10)
        add(db, "committed")

    async def scenario() -> None:
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await db.perform_async(slow)

    asyncio.run(scenario())
    assert stored(db) == ["committed"]


# Reading


def test_a_snapshot_does_not_see_later_commits(db: Database) -> None:
    db.perform(add, "first")
    with db.read() as conn:
        assert notes(conn) == ["first"]
        db.perform(add, "second")
        assert notes(conn) == ["first"]
    assert stored(db) == ["first", "second"]


def test_a_snapshot_does_not_see_what_is_not_committed(db: Database) -> None:
    def looking(db: Database) -> list[str]:
        with db.write("look meanwhile") as tx:
            tx.execute("INSERT INTO notes VALUES ('open')")
            return stored(db)

    assert db.perform(looking) == []
    assert stored(db) == ["open"]


def test_read_connections_cannot_write(db: Database) -> None:
    with pytest.raises(PikobotError, match="readonly"), db.read() as conn:
        conn.execute("INSERT INTO notes VALUES ('no')")
    assert stored(db) == []


def test_an_error_while_reading_gives_the_connection_back(db: Database) -> None:
    def fail() -> None:
        with db.read() as conn:
            conn.execute("SELECT 1")
            raise ValueError

    for _ in range(connection.READ_CONNECTIONS + 1):
        with pytest.raises(ValueError):
            fail()
    assert stored(db) == []


def test_a_cursor_that_outlives_its_snapshot_shows_nobody_old_data(db: Database) -> None:
    db.perform(note, "INSERT INTO notes VALUES ('old')", "INSERT INTO notes VALUES ('older')")
    with db.read() as conn:
        cursor = conn.execute("SELECT text FROM notes")
        assert cursor.fetchone() == ("old",)
    db.perform(note, "DELETE FROM notes", "INSERT INTO notes VALUES ('new')")
    assert [stored(db) for _ in range(connection.READ_CONNECTIONS)] == [["new"]] * connection.READ_CONNECTIONS
    assert db.perform(Database.truncate_wal)


def test_more_readers_than_connections_wait_for_each_other(db: Database) -> None:
    db.perform(add, "one")

    async def scenario() -> list[list[str]]:
        return await asyncio.gather(*(db.read_async(notes) for _ in range(connection.READ_CONNECTIONS * 3)))

    assert asyncio.run(scenario()) == [["one"]] * (connection.READ_CONNECTIONS * 3)


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


# Two processes

HOLD = """
import apsw, sys
conn = apsw.Connection(sys.argv[1])
conn.execute("BEGIN IMMEDIATE")
print("holding", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(db: Database, path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process in the middle of a write transaction, until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process


def patience(db: Database, ms: int) -> None:
    db.maintenance_connection().set_busy_timeout(ms)


def test_a_process_that_writes_too_long_makes_the_other_give_up(
    db: Database, holder: "subprocess.Popen[str]"
) -> None:
    db.perform(patience, 20)
    with pytest.raises(InstanceBusy, match="another process is writing") as caught:
        db.perform(add, "refused")
    assert "add a note" in str(caught.value)
    assert holder.stdin is not None
    holder.stdin.close()
    holder.wait()
    db.perform(add, "later")
    assert stored(db) == ["later"]


def test_a_process_that_ends_in_time_is_waited_for(db: Database, holder: "subprocess.Popen[str]") -> None:
    assert holder.stdin is not None
    threading.Timer(0.05, holder.stdin.close).start()
    db.perform(add, "patient")
    assert stored(db) == ["patient"]


# Closing


def test_closing_twice_is_harmless_and_leaves_one_file(db: Database, path: Path) -> None:
    db.perform(add, "kept")
    stored(db)
    db.close()
    db.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_closing_finishes_queued_work_also_when_it_reads(db: Database, clock: FakeClock, path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()

    def first(db: Database) -> None:
        started.set()
        assert go_on.wait(10)

    def reading(db: Database) -> None:
        add(db, f"after {len(stored(db))}")

    waiting = [threading.Thread(target=db.perform, args=(work,)) for work in (first, reading)]
    waiting[0].start()
    assert started.wait(10)
    waiting[1].start()
    while db._jobs.qsize() < 1:
        pass
    closing = threading.Thread(target=db.close)
    closing.start()
    go_on.set()
    for thread in (*waiting, closing):
        thread.join(10)
        assert not thread.is_alive()
    again = Database(path, clock)
    assert stored(again) == ["after 0"]
    again.close()


def test_a_closed_database_refuses_work_instead_of_hanging(db: Database) -> None:
    db.close()
    with pytest.raises(MisuseError, match="closed"):
        db.perform(add, "no")
    with pytest.raises(MisuseError, match="closed"):
        asyncio.run(db.perform_async(add, "no"))
    with pytest.raises(MisuseError, match="closed"):
        asyncio.run(db.read_async(notes))
    with pytest.raises(MisuseError, match="closed"), db.read():
        pass


def test_a_reader_that_outlives_the_database_closes_its_own_connection(db: Database, path: Path) -> None:
    db.perform(add, "kept")
    with db.read() as conn:
        assert notes(conn) == ["kept"]
        db.close()
        assert notes(conn) == ["kept"]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_operation_cannot_close_its_database(db: Database) -> None:
    with pytest.raises(MisuseError, match="closes its database"):
        db.perform(Database.close)
    db.perform(add, "still open")
    assert stored(db) == ["still open"]


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
    with pytest.raises(PikobotError, match=r"cannot open the database .*\.sqlite3: Is a directory"):
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
