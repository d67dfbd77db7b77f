import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import pages
from pikobot.store.erasing.outside import Remains, find_remains
from pikobot.store.erasing.pages import (
    look,
    look_behind_values,
    open_raw,
    outside_of_rows,
    overwrite,
    pages_in_wal,
    read_pages,
)
from pikobot.store.erasing.remnants import rewrite
from tests.memory.conversing import attach, exchange, read, write
from tests.memory.remembering import opened, say
from tests.store.churning import churn, raw_bytes


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def outside(db: Database) -> bytes:
    """What stands outside of rows, after the WAL was emptied."""
    assert db.perform(Database.truncate_wal)
    return b"\0".join(find_remains(db).left.values())


def every_row(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    tables = read(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return {name: read(db, f'SELECT * FROM "{name}"') for (name,) in tables}


@pytest.mark.parametrize("remedy", ["overwrite", "rewrite"])
def test_what_is_left_of_deleted_rows_stands_outside_of_rows_and_can_be_removed(
    db: Database, remedy: str
) -> None:
    gone = churn(db)
    left = outside(db)
    found = [mark for mark in gone if mark in raw_bytes(db.path)]
    assert found
    assert [mark for mark in gone if mark in left] == found
    rows = every_row(db)

    if remedy == "overwrite":
        looked = find_remains(db).left
        assert db.perform(overwrite, looked) >= looked.keys()
    else:
        db.perform(rewrite)

    assert outside(db) == b"" or remedy == "rewrite"
    assert [mark for mark in gone if mark in raw_bytes(db.path)] == []
    assert every_row(db) == rows
    assert read(db, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize(("data", "is_kept"), [(b"abc", False), (b"abcd", True), (b"a\0\0d", True)])
def test_up_to_three_bytes_among_zeros_are_passed_over(db: Database, data: bytes, is_kept: bool) -> None:
    db.perform(Database.truncate_wal)
    gap = raw_bytes(db.path).index(bytes(200)) + 100
    file = apsw.VFSFile("unix", str(db.path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    file.xWrite(data, gap)
    file.xClose()
    assert (data in find_remains(db).left.values()) == is_kept


def test_what_was_overwritten_does_not_come_back_with_later_changes_of_the_same_pages(db: Database) -> None:
    gone = churn(db)
    read(db, "SELECT sum(length(text)) FROM sources")
    assert outside(db)
    db.perform(overwrite, find_remains(db).left)
    write(db, lambda tx: tx.execute("UPDATE sources SET is_partial = 1 - is_partial, speaker = 'somebody'"))
    write(db, lambda tx: tx.execute("DELETE FROM sources WHERE id % 3 = 0"))
    outside(db)
    assert [mark for mark in gone if mark in raw_bytes(db.path)] == []
    assert read(db, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("page_size", [512, 4096, 16_384, 65_536])
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_outside_of_rows_belongs_to_a_row_and_nothing_of_deleted_rows_is_inside(
    tmp_path: Path, page_size: int, seed: int
) -> None:
    path, copy = tmp_path / "made", tmp_path / "copy"
    conn, gone = _without_secure_delete(path, page_size, random.Random(seed))
    try:
        content = [conn.execute(f"SELECT * FROM {table}").fetchall() for table in ("a", "b")]
        with open_raw(path) as raw:
            divided = read_pages(raw)
            assert divided is not None
            looked = look(raw, divided)
            look_behind_values(conn, raw, divided, looked)
            ends = dict(conn.execute("SELECT pageno, unused FROM dbstat WHERE pagetype = 'overflow'"))
            data = bytearray(raw(0, raw.size))
        left = b"\0".join(looked.left.values())
        assert any(mark in left for mark in gone)
        for number in range(1, divided.count + 1):
            begin = (number - 1) * page_size
            page = bytes(data[begin : begin + page_size])
            for first, last in outside_of_rows(page, number, divided) or [
                (page_size - ends[number], page_size)
            ]:
                data[begin + first : begin + last] = bytes(last - first)
        copy.write_bytes(data)
    finally:
        conn.close()
    assert [mark for mark in gone if mark in data] == []
    overwritten = apsw.Connection(str(copy))
    assert [overwritten.execute(f"SELECT * FROM {table}").fetchall() for table in ("a", "b")] == content
    assert overwritten.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    overwritten.close()


def _without_secure_delete(
    path: Path, page_size: int, chance: random.Random
) -> tuple[Connection, list[bytes]]:
    conn = apsw.Connection(str(path))
    conn.execute(f"PRAGMA page_size = {page_size}").fetchall()
    conn.execute("PRAGMA secure_delete = OFF").fetchall()
    conn.execute("CREATE TABLE a (id INTEGER PRIMARY KEY, text TEXT); CREATE INDEX a_text ON a (text)")
    conn.execute("CREATE TABLE b (text TEXT PRIMARY KEY, more BLOB) WITHOUT ROWID")
    gone = []
    for at in range(200):
        mark = f"mark{chance.randrange(10**9):09}x"
        text = mark + "." * chance.choice([1, 10, 100, 1000, 10_000, page_size, page_size * 3])
        conn.execute("INSERT INTO a VALUES (?, ?)", (at, text))
        conn.execute("INSERT INTO b VALUES (?, ?)", (text, chance.randbytes(chance.choice([1, 3000]))))
        if chance.random() < 0.7:
            gone.append(mark)
    conn.execute("CREATE TEMP TABLE gone (mark TEXT)")
    conn.executemany("INSERT INTO gone VALUES (?)", [(mark,) for mark in gone])
    for table in ("a", "b"):
        conn.execute(f"DELETE FROM {table} WHERE substr(text, 1, 14) IN (SELECT mark FROM gone)")
    return conn, [mark.encode() for mark in gone]


def test_values_of_living_rows_are_not_looked_at_however_long_they_are(db: Database) -> None:
    one = exchange(db, "a livingword " + "longword " * 10_000)
    attach(db, one.request, b"spilledword " * 5000, "name")
    left = outside(db)
    assert [word for word in (b"livingword", b"longword", b"spilledword") if word in left] == []


def test_what_stands_behind_the_end_of_a_long_value_is_found_and_overwritten(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        one = exchange(db, "look")
        attach(db, one.request, b"spilledword " * 5512, "name")
        db.perform(Database.truncate_wal)
        [(number, unused)] = read(
            db, "SELECT pageno, unused FROM dbstat WHERE pagetype = 'overflow' AND unused > 0"
        )
    with (tmp_path / "pikobot.sqlite3").open("r+b") as file:
        file.seek(number * 16_384 - unused)
        file.write(b"leftover")
    with opened(tmp_path) as db:
        left = find_remains(db).left
        assert left[number] == b"leftover"
        db.perform(overwrite, left)
        assert find_remains(db).left == {}
        assert read(db, "SELECT length(data) FROM media") == [(66_144,)]


def test_pages_of_the_freelist_are_looked_at_whole_and_overwritten(db: Database) -> None:
    say(db, *["freedword filler " * 300 for _ in range(100)])
    db.perform(Database.truncate_wal)

    def drop(db: Database) -> None:
        conn = db.maintenance_connection()
        conn.execute("PRAGMA secure_delete = OFF").fetchall()
        conn.execute("DELETE FROM sources")
        assert int(str(conn.execute("PRAGMA freelist_count").fetchall()[0][0])) > 10
        db.truncate_wal()

    db.perform(drop)
    left = find_remains(db).left
    assert b"".join(left.values()).count(b"freedword") > 20_000
    db.perform(overwrite, left)
    assert find_remains(db).left == {}
    assert read(db, "PRAGMA integrity_check") == [("ok",)]


def test_pages_behind_the_end_of_the_database_are_looked_at_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "hello")
    path = tmp_path / "pikobot.sqlite3"
    with path.open("ab") as file:
        file.write(b"\x0d" + b"behind" * 100 + bytes(16_384 - 601))
    with opened(tmp_path) as db:
        left = find_remains(db).left
        assert [page for page, data in left.items() if b"behind" in data] == [max(left)]


def test_of_too_much_outside_of_rows_the_pages_are_kept_and_overwritten(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    churn(db)
    db.perform(Database.truncate_wal)
    whole = find_remains(db)
    monkeypatch.setattr(pages, "MAX_KEPT_BYTES", 2000)
    cut = find_remains(db)
    assert (whole.is_complete, cut.is_complete) == (True, False)
    assert cut.left.keys() == whole.left.keys()
    assert 2000 <= sum(map(len, cut.left.values())) < 20_000
    db.perform(overwrite, cut.left)
    assert find_remains(db) == Remains({}, is_complete=True, is_settled=False)


@pytest.mark.parametrize("content", [b"", b"short", b"\x0d" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_not_divided_into_pages(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd").write_bytes(content)
    with open_raw(tmp_path / "odd") as raw:
        assert read_pages(raw) is None


def test_damaged_pages_are_kept_whole_and_never_overwritten(db: Database) -> None:
    churn(db)
    db.perform(Database.truncate_wal)
    chance = random.Random(3)
    with open_raw(db.path) as raw:
        divided = read_pages(raw)
        assert divided is not None
        sound = raw(16_384 * 5, 16_384)
    assert outside_of_rows(sound, 6, divided)
    for _ in range(2000):
        page = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            page[chance.randrange(8)] = chance.randrange(256)
        for begin, end in outside_of_rows(bytes(page), 6, divided) or []:
            assert 8 <= begin <= end <= 16_384


def test_a_page_whose_cells_are_not_where_they_should_be_is_not_overwritten(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, *["hello" * 100 for _ in range(100)])
        db.perform(Database.truncate_wal)
        [(number,)] = read(
            db,
            "SELECT pageno FROM dbstat WHERE name = 'sources' AND pagetype = 'leaf' ORDER BY pageno LIMIT 1",
        )
    with (tmp_path / "pikobot.sqlite3").open("r+b") as file:
        file.seek((number - 1) * 16_384 + 5)
        file.write((16_000).to_bytes(2, "big"))  # the content begins earlier
    with opened(tmp_path) as db:
        before = raw_bytes(db.path)
        assert number in find_remains(db).left
        db.perform(overwrite, [number])
        assert raw_bytes(db.path) == before


def test_a_reader_that_keeps_the_wal_keeps_everything_as_it_is(db: Database) -> None:
    churn(db)
    assert outside(db)
    left = find_remains(db).left
    db.perform(lambda db: db.maintenance_connection().set_busy_timeout(50))
    with db.read() as reader:
        reader.execute("SELECT count(*) FROM sources").fetchall()
        say(db, "more")
        before = raw_bytes(db.path)
        assert db.perform(overwrite, left) == frozenset()
        assert raw_bytes(db.path) == before
    assert db.perform(overwrite, left) > left.keys()


def test_the_pages_in_the_wal_are_known(db: Database, tmp_path: Path) -> None:
    assert pages_in_wal(tmp_path / "none") == frozenset()
    db.perform(Database.truncate_wal)
    assert pages_in_wal(db.path) == frozenset()
    before = raw_bytes(db.path)
    say(db, "hello")
    written = pages_in_wal(db.path)
    assert written
    db.perform(Database.truncate_wal)
    after = raw_bytes(db.path)
    changed = {
        at // 16_384 + 1
        for at in range(0, len(after), 16_384)
        if before[at : at + 16_384] != after[at : at + 16_384]
    }
    assert changed <= written


def test_overwriting_cut_off_anywhere_leaves_a_sound_database(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        churn(db)
        assert outside(db)
        rows = every_row(db)
        left = find_remains(db).left
        before = raw_bytes(db.path)
        db.perform(overwrite, left)
        after = raw_bytes(db.path)
    changed = [at for at in range(len(before)) if before[at] != after[at]] if before != after else []
    assert changed
    for cut in (changed[0], changed[len(changed) // 2], changed[-1]):
        directory = tmp_path / f"cut-{cut}"
        directory.mkdir()
        (directory / "pikobot.sqlite3").write_bytes(after[:cut] + before[cut:])
        with opened(directory) as db:
            assert read(db, "PRAGMA integrity_check") == [("ok",)]
            assert every_row(db) == rows
        shutil.rmtree(directory)
