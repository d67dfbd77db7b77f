import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from pikobot.errors import InstanceBusy, PikobotError
from pikobot.store import connection
from pikobot.store.connection import Database, MisuseError
from tests.clock import FakeClock
from tests.store.notes import add, note, notes, opened, patience, stored


@pytest.fixture
def db(path: Path, clock: FakeClock) -> Iterator[Database]:
    with opened(path, clock) as database:
        yield database


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


def test_a_commit_that_is_not_durable_does_not_wait_for_the_disk_and_the_next_one_does(db: Database) -> None:
    def levels(db: Database) -> list[object]:
        seen: list[object] = []
        for is_durable in (True, False, True):
            with db.write("look", is_durable=is_durable) as tx:
                seen += tx.execute("PRAGMA synchronous").fetchall()
        return seen

    assert db.perform(levels) == [(2,), (1,), (2,)]


def test_an_operation_that_was_started_is_done_while_the_caller_goes_on(db: Database) -> None:
    go_on = threading.Event()

    def slow(db: Database) -> str:
        assert go_on.wait(10)
        return "done"

    started = db.start(slow)
    assert not started.done()
    go_on.set()
    assert started.result(10) == "done"


def test_a_long_wal_is_copied_into_the_database_by_the_commit_that_makes_it_long(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints: list[int] = []

    @contextmanager
    def counted(database: Database) -> Iterator[None]:
        yield
        checkpoints.append(1)

    db.around_checkpoint = counted
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 3)
    assert db.perform(Database.truncate_wal)
    checkpoints.clear()
    db.perform(add, "a text that is copied")
    before = path.read_bytes()
    assert checkpoints == []
    for _ in range(2):
        db.perform(add, "another")
    assert checkpoints
    assert (b"that is copied" in before, b"that is copied" in path.read_bytes()) == (False, True)


@pytest.mark.parametrize("error", [apsw.FullError("no room"), PikobotError("no"), FileNotFoundError("gone")])
def test_a_commit_stands_even_if_the_wal_can_not_be_copied(
    db: Database, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def failing(database: Database) -> Iterator[None]:
        raise error
        yield

    db.around_checkpoint = failing
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 1)
    db.perform(add, "kept")
    assert stored(db) == ["kept"]


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
    go_on = threading.Event()

    def first(db: Database) -> None:
        assert go_on.wait(10)

    def reading(db: Database) -> None:
        add(db, f"after {len(stored(db))}")

    async def scenario() -> None:
        tasks = [asyncio.create_task(db.perform_async(work)) for work in (first, reading)]
        await asyncio.sleep(0)  # both are queued
        closing = asyncio.create_task(asyncio.to_thread(db.close))
        asyncio.get_running_loop().call_later(0.02, go_on.set)
        async with asyncio.timeout(10):
            await asyncio.gather(*tasks, closing)

    asyncio.run(scenario())
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
