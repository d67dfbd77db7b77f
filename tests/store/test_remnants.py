import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.remnants import held_by_rows, index_holds, open_raw, read_unallocated, rewrite
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.sources import NewSource, SourceId, delete_source, insert_source
from pikobot.store.threads import ensure_thread
from tests.memory.conversing import attach, exchange, write
from tests.memory.remembering import opened, say


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def unallocated(path: Path) -> tuple[bytes, int]:
    with open_raw(path) as read:
        pieces = list(read_unallocated(read))
    return b"\0".join(piece for piece, _ in pieces), sum(count for _, count in pieces)


def churn(db: Database) -> list[bytes]:
    """Insert and delete so much that SQLite moves rows between pages; returns the marks of what was deleted."""
    chance = random.Random(1)

    def fill(tx: Connection) -> dict[SourceId, str]:
        scope = ensure_scope(tx, owner_scope())
        thread = ensure_thread(tx, scope, "churn", db.clock).id
        marks = {}
        for at in range(1500):
            mark = f"mark{chance.randrange(10**9):09}x"
            text = f"{mark} " + "filler " * chance.choice([1, 5, 20, 100, 400])
            new = NewSource(
                role="user",
                speaker="o",
                scope_id=scope,
                thread_id=thread,
                text=text,
                origin="said",
                said_at_ms=at,
            )
            marks[insert_source(tx, new, db.clock)] = mark
        return marks

    def delete(tx: Connection, ids: list[SourceId]) -> None:
        for source_id in ids:
            delete_source(tx, source_id)

    marks = write(db, fill)
    order = list(marks)
    chance.shuffle(order)
    gone = order[:1200]
    for start in range(0, len(gone), 10):
        write(db, delete, gone[start : start + 10])
    assert db.perform(Database.truncate_wal)
    return [marks[source_id].encode() for source_id in gone]


def test_everything_that_is_left_of_deleted_rows_stands_outside_of_rows_and_a_rewrite_removes_it(
    db: Database,
) -> None:
    gone = churn(db)
    outside, size = unallocated(db.path)
    with open_raw(db.path) as read:
        raw = read(0, db.path.stat().st_size)
    left = [mark for mark in gone if mark in raw]
    if not left:
        pytest.skip("this version of SQLite has left nothing")
    assert [mark for mark in gone if mark in outside] == left
    assert size == len(raw) == db.path.stat().st_size

    db.perform(rewrite)
    assert db.perform(Database.truncate_wal)
    with open_raw(db.path) as read:
        raw = read(0, db.path.stat().st_size)
    assert [mark for mark in gone if mark in raw] == []


def test_the_values_of_living_rows_are_not_read_but_long_ones_are(db: Database) -> None:
    one = exchange(db, "a livingword")
    attach(db, one.request, b"spilledword " * 5000, "name")
    db.perform(Database.truncate_wal)
    outside, _ = unallocated(db.path)
    assert (b"livingword" in outside, b"spilledword" in outside) == (False, True)


def test_pages_of_the_freelist_are_read_whole(db: Database) -> None:
    say(db, *["freedword filler " * 300 for _ in range(100)])
    db.perform(Database.truncate_wal)

    def drop(db: Database) -> None:
        conn = db.maintenance_connection()
        conn.execute("PRAGMA secure_delete = OFF").fetchall()
        conn.execute("DELETE FROM sources")
        assert int(str(conn.execute("PRAGMA freelist_count").fetchall()[0][0])) > 10
        db.truncate_wal()

    db.perform(drop)
    outside, size = unallocated(db.path)
    assert outside.count(b"freedword") > 20_000
    assert size == db.path.stat().st_size


@pytest.mark.parametrize("content", [b"", b"short", b"\x0d" * 5000])
def test_a_file_that_is_no_database_is_read_without_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd").write_bytes(content)
    with open_raw(tmp_path / "odd") as read:
        assert sum(len(piece) for piece, _ in read_unallocated(read)) <= len(content)


def test_the_index_knows_what_survives_in_english_and_chinese(db: Database) -> None:
    say(db, "The Old Oak fell; 老橡树倒了 on celebrations")
    with db.read() as conn:
        known = ["old oak", "OAK fell", "老橡树", "橡树倒", "celebration", "fell; 老橡", "树"]
        unknown = ["oak old", "oak celebrations", "橡老树", "elephant", '"', "", "OR", "*"]
        assert [index_holds(conn, words) for words in known] == [True] * len(known)
        assert [index_holds(conn, words) for words in unknown] == [False] * len(unknown)


def test_rows_and_the_schema_are_asked_for_the_rest(db: Database) -> None:
    one = exchange(db, "look", transcript=["transcribed"], is_leased=True)
    attach(db, one.request, b"\0\1attached\2", "named.txt")
    wanted = frozenset({b"transcribed", b"attached", b"named", b"AUTOINCREMENT", b"nowhere"})
    with db.read() as conn:
        held = held_by_rows(conn, wanted, lambda value, parts: frozenset(p for p in parts if p in value))
    assert held == wanted - {b"nowhere"}
