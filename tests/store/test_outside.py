import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pikobot.errors import PikobotError
from pikobot.store import connection
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import outside
from pikobot.store.erasing.outside import Remains, find_remains, overwrite_remains, settle_and_find_remains
from pikobot.store.erasing.pages import Looked, look, look_behind_values, overwrite, pages_in_wal
from pikobot.store.erasing.remnants import rewrite
from pikobot.store.sources import SourceId, delete_source
from tests.memory.conversing import read, write
from tests.memory.remembering import opened, say
from tests.store.churning import churn, raw_bytes


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pages of every look, in order."""
    looks: list[Any] = []

    def looking(*args: Any, **named: Any) -> Looked:
        looks.append(args[2] if len(args) > 2 else "all")
        return look(*args, **named)

    monkeypatch.setattr(outside, "look", looking)
    return looks


def plant(db: Database, data: bytes, *, page: int = 3) -> None:
    """Write into the gap of a page as nobody should."""
    begin = (page - 1) * 16_384
    at = begin + raw_bytes(db.path)[begin : begin + 16_384].index(bytes(100)) + 50
    file = apsw.VFSFile("unix", str(db.path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    file.xWrite(data, at)
    file.xClose()


@pytest.mark.parametrize("seed", range(2))
def test_looking_while_the_wal_is_emptied_sees_what_looking_afterwards_sees(db: Database, seed: int) -> None:
    churn(db, seed=seed)
    db.perform(Database.truncate_wal)
    churn(db, seed=seed + 10)
    seen = settle_and_find_remains(db)
    assert seen == Remains(find_remains(db).left, is_complete=True, is_settled=True)
    assert seen.left


def test_nothing_reaches_the_file_while_it_is_looked_through_but_others_write(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(db, "first")
    during: list[bytes] = []

    def meanwhile(*args: Any) -> None:
        before = raw_bytes(db.path)
        say(db, "said while the file is looked through")
        db.perform(lambda db: db.maintenance_connection().set_busy_timeout(20))
        assert not db.perform(Database.truncate_wal)
        assert raw_bytes(db.path) == before
        during.append(before)
        look_behind_values(*args)

    monkeypatch.setattr(outside, "look_behind_values", meanwhile)
    assert settle_and_find_remains(db).is_settled
    assert len(during) == 1
    assert read(db, "SELECT count(*) FROM sources") == [(2,)]


def test_a_commit_of_another_process_meanwhile_makes_everything_be_looked_at_again(
    db: Database, numbers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    say(db, "first")

    def interfere(path: Path) -> frozenset[int]:
        other = apsw.Connection(str(db.path))
        other.execute("INSERT INTO settings VALUES ('interfered', '1')")
        other.close()
        return pages_in_wal(path)

    monkeypatch.setattr(outside, "pages_in_wal", interfere)
    assert settle_and_find_remains(db).is_settled
    assert numbers == ["all", "all"]


def test_the_second_time_only_pages_are_looked_at_that_were_written(db: Database, numbers: list[Any]) -> None:
    churn(db)
    first = settle_and_find_remains(db)
    assert numbers.pop(0) == "all"
    numbers.clear()
    assert settle_and_find_remains(db) == first
    assert numbers == [[]]
    say(db, "hello")
    written = pages_in_wal(db.path)
    assert settle_and_find_remains(db) == Remains(find_remains(db).left, is_complete=True, is_settled=True)
    assert set(numbers[1]) >= {page for page in written if page <= numbers[1][-1]}
    assert len(numbers[1]) < 40


@pytest.mark.parametrize("who", ["another process", "nobody knows who"])
def test_a_file_that_somebody_else_has_written_to_is_looked_at_whole(
    db: Database, numbers: list[Any], who: str
) -> None:
    say(db, "hello")
    assert b"planted" not in b"".join(settle_and_find_remains(db).left.values())
    numbers.clear()
    if who == "another process":
        other = apsw.Connection(str(db.path))
        other.execute("INSERT INTO settings VALUES ('interfered', '1')")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        other.close()
    else:
        plant(db, b"planted")
    say(db, "more")
    db.perform(Database.truncate_wal)
    remains = settle_and_find_remains(db)
    assert numbers[0] == "all"
    assert (b"planted" in b"".join(remains.left.values())) == (who == "nobody knows who")


@pytest.mark.parametrize("pages", [1, 1000])
def test_what_this_process_copies_from_the_wal_is_looked_at_again_and_no_more(
    db: Database, numbers: list[Any], pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", pages)
    churn(db)
    settle_and_find_remains(db)
    numbers.clear()
    for text in ("one", "two", "three"):
        say(db, text)
        db.perform(Database.truncate_wal)
    assert settle_and_find_remains(db) == Remains(find_remains(db).left, is_complete=True, is_settled=True)
    assert [len(looked) < 40 for looked in numbers[:-1]] == [True]


def test_what_was_left_before_is_told_again_until_it_is_overwritten(db: Database) -> None:
    say(db, "hello")
    db.perform(Database.truncate_wal)
    plant(db, b"planted")
    for _ in range(3):
        assert b"planted" in settle_and_find_remains(db).left[3]
    db.perform(overwrite_remains, [3])
    for _ in range(2):
        assert 3 not in settle_and_find_remains(db).left


def test_where_no_time_of_change_can_be_put_on_the_file_all_is_looked_at_every_time(
    db: Database, numbers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "not the owner")

    monkeypatch.setattr(os, "utime", refuse)
    say(db, "hello")
    for _ in range(2):
        assert settle_and_find_remains(db).is_settled
        say(db, "more")
        db.perform(Database.truncate_wal)
    assert [looked for looked in numbers if looked == "all"] == ["all", "all"]


def test_after_overwriting_only_what_was_overwritten_is_looked_at_again(
    db: Database, numbers: list[Any]
) -> None:
    churn(db)
    left = settle_and_find_remains(db).left
    numbers.clear()
    db.perform(overwrite_remains, left)
    assert settle_and_find_remains(db) == Remains({}, is_complete=True, is_settled=True)
    assert numbers == [sorted(left)]


def test_what_is_to_be_done_meanwhile_is_done_while_the_wal_is_emptied_and_failures_come_out(
    db: Database,
) -> None:
    done: list[str] = []
    settle_and_find_remains(
        db, before=lambda db: done.append("before"), meanwhile=lambda: done.append("meanwhile")
    )
    assert done == ["before", "meanwhile"]

    def fail(*_: object) -> None:
        raise PikobotError("no")

    with pytest.raises(PikobotError, match="no"):
        settle_and_find_remains(db, before=fail)
    with pytest.raises(PikobotError, match="no"):
        settle_and_find_remains(db, meanwhile=fail)
    assert settle_and_find_remains(db).is_settled


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 23])
def test_whatever_happens_between_two_looks_the_second_sees_what_there_is(
    db: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    other = apsw.Connection(str(db.path))

    def delete_some(tx: Connection) -> None:
        ids = [row[0] for row in tx.execute("SELECT id FROM sources").fetchall()]
        for source_id in chance.sample(ids, min(len(ids), chance.randrange(1, 30))):
            delete_source(tx, SourceId(int(str(source_id))))

    def careless(db: Database) -> None:
        on = chance.choice(["ON", "OFF"])
        db.maintenance_connection().execute(f"PRAGMA secure_delete = {on}").fetchall()

    events = (
        lambda: say(db, *[f"{chance.random()} " * chance.choice([1, 30, 900]) for _ in range(20)]),
        lambda: write(db, delete_some),
        lambda: write(db, delete_some),
        lambda: monkeypatch.setattr(connection, "CHECKPOINT_PAGES", chance.choice([1, 10, 1000])),
        lambda: db.perform(careless),
        lambda: db.perform(Database.truncate_wal),
        lambda: db.perform(overwrite, find_remains(db).left),
        lambda: db.perform(overwrite_remains, find_remains(db).left),
        lambda: db.perform(rewrite) if chance.random() < 0.3 else None,
        lambda: other.execute("INSERT INTO settings VALUES (?, 'x')", (str(chance.random()),)).fetchall(),
        lambda: other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall(),
    )
    for _ in range(12):
        for event in chance.choices(events, k=chance.randrange(6)):
            event()
        assert settle_and_find_remains(db) == Remains(
            find_remains(db).left, is_complete=True, is_settled=True
        )
    other.close()
