import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.errors import DamagedData, SchemaMismatch
from pikobot.store.connection import Database
from pikobot.store.prepare import identity_key, is_prepared, open_database
from pikobot.store.schema import migrate
from pikobot.store.settings import INSTANCE_ID, SEGMENTER, read_setting, write_setting
from pikobot.store.text.index import search_text
from pikobot.store.text.segmentation import SEGMENTER_ID
from tests.clock import FakeClock
from tests.store import rows


@pytest.fixture
def reopened(path: Path, clock: FakeClock) -> Iterator[list[Database]]:
    opened: list[Database] = []
    yield opened
    for db in opened:
        db.close()


def settings(db: Database) -> list[tuple[str, str]]:
    return [(key, value) for key, value in rows.rows(db, "SELECT key, value FROM settings ORDER BY key")]


def test_a_new_database_gets_an_identity_that_the_second_open_keeps(
    db: Database, path: Path, clock: FakeClock
) -> None:
    first = settings(db)
    assert first == [("identity_key", "key_0002"), ("instance_id", "ins_0001"), ("segmenter", SEGMENTER_ID)]
    assert rows.read(db, identity_key) == b"key_0002"
    db.close()
    again = open_database(path, clock)
    assert settings(again) == first
    again.close()


def test_a_database_that_was_not_prepared_has_no_key(path: Path, clock: FakeClock) -> None:
    db = Database(path, clock)
    migrate(db)
    with pytest.raises(LookupError, match="not prepared"):
        rows.read(db, identity_key)
    db.close()


def test_texts_are_indexed_again_when_the_segmentation_has_changed(
    db: Database, path: Path, clock: FakeClock, reopened: list[Database]
) -> None:
    kept = rows.source(db, rows.thread(db), "我住在波尔图 and swim")

    rows.execute(db, "INSERT INTO sources_text (sources_text) VALUES ('delete-all')")
    rows.write(db, write_setting, SEGMENTER, "0/older")
    db.close()
    assert not is_prepared(path)
    again = open_database(path, clock)
    reopened.append(again)
    for query in ("波尔图", "swimming"):
        hits = rows.read(again, search_text, query=query, scope_ids=None, now_ms=clock.now, limit=5)
        assert [hit.source_id for hit in hits] == [kept]
    assert rows.read(again, read_setting, SEGMENTER) == SEGMENTER_ID


def test_preparedness_is_what_another_open_would_leave_alone(path: Path, clock: FakeClock) -> None:
    assert not is_prepared(path)
    assert not path.exists()
    Database(path, clock).close()
    assert not is_prepared(path)
    open_database(path, clock).close()
    assert is_prepared(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_preparedness_without_an_identity_is_not_complete(db: Database, path: Path) -> None:
    rows.execute(db, "DELETE FROM settings WHERE key = ?", INSTANCE_ID)
    assert not is_prepared(path)


def test_a_file_that_is_no_database_is_reported_by_both(path: Path, clock: FakeClock) -> None:
    path.write_text("nothing like a database " * 100)
    with pytest.raises(DamagedData):
        is_prepared(path)
    with pytest.raises(DamagedData):
        open_database(path, clock)


def test_a_refused_database_is_closed_again(path: Path, clock: FakeClock) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE invoices (id INTEGER)")
    foreign.close()
    with pytest.raises(SchemaMismatch):
        open_database(path, clock)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
