"""A database whose files are deleted or replaced while it is open."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pikobot.errors import DamagedData
from pikobot.store.connection import Database
from tests.clock import FakeClock
from tests.store.notes import add, note, opened, stored


@pytest.fixture
def db(path: Path, clock: FakeClock) -> Iterator[Database]:
    with opened(path, clock) as database:
        database.perform(add, "before")
        yield database


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


CHANGES = [(deleted, "deleted or moved"), (moved, "deleted or moved"), (replaced, "replaced by another file")]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize(("change", "became"), CHANGES)
def test_nothing_is_committed_to_a_file_that_is_gone(
    db: Database, path: Path, suffix: str, change: Callable[[Path], None], became: str
) -> None:
    change(path.with_name(path.name + suffix))
    with pytest.raises(DamagedData, match=f"{path.name}{suffix} was {became} while it was in use"):
        db.perform(add, "said to nobody")
    with pytest.raises(DamagedData, match=became):
        db.files.check()
    assert [text for text in stored_again(db) if text != "before"] == []


def stored_again(db: Database) -> list[str]:
    """What the write connection, which still has the old files, can see."""
    return db.perform(
        lambda db: [row[0] for row in db.maintenance_connection().execute("SELECT text FROM notes")]
    )


def test_no_reader_makes_an_empty_file_in_its_place(db: Database, path: Path) -> None:
    path.unlink()
    with pytest.raises(DamagedData, match="deleted"):
        stored(db)
    assert not path.exists()


def test_a_file_that_is_put_back_has_all_and_is_written_again(db: Database, path: Path) -> None:
    moved(path)
    with pytest.raises(DamagedData, match="put the file back"):
        db.perform(add, "said to nobody")
    path.with_name("elsewhere").rename(path)
    db.perform(add, "after")
    assert stored(db) == ["before", "after"]


def test_a_file_that_is_put_back_after_its_database_was_closed_has_all(path: Path, clock: FakeClock) -> None:
    with opened(path, clock) as db:
        db.perform(add, "before")
        moved(path)
    path.with_name("elsewhere").rename(path)
    again = Database(path, clock)
    assert stored(again) == ["before"]
    again.close()


@pytest.mark.parametrize("suffixes", [("", "-wal", "-shm"), ("-wal", "-shm")])
def test_closing_removes_nothing_of_a_database_that_another_process_has_made_there(
    path: Path, clock: FakeClock, suffixes: tuple[str, ...]
) -> None:
    Database(path, clock).close()
    with opened(path, clock) as db:
        db.perform(Database.truncate_wal)
        for suffix in suffixes:
            path.with_name(path.name + suffix).unlink()
        other = Database(path, clock)
        other.perform(note, "CREATE TABLE others (text TEXT NOT NULL) STRICT")
        db.close()
        other.files.check()
        with other.read() as conn:
            assert conn.execute("SELECT count(*) FROM others").fetchall() == [(0,)]
        other.close()


def test_a_new_database_knows_its_companions_from_its_first_transaction(path: Path, clock: FakeClock) -> None:
    db = Database(path, clock)
    db.files.check()
    with opened(path, clock) as other:
        other.perform(add, "first")
        path.with_name(f"{path.name}-wal").unlink()
        with pytest.raises(DamagedData):
            other.perform(add, "second")
    db.close()
