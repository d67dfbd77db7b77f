"""The databases of released schemas, opened by this program with every row intact."""

import gzip
from contextlib import closing
from pathlib import Path

import pytest

from pikobot.store.connection import Database, connect
from pikobot.store.prepare import is_prepared, open_database
from pikobot.store.schema import applied_version, known_migrations
from pikobot.store.sources import SourceId, delete_source, insert_source
from pikobot.store.text.index import search_text
from pikobot.store.threads import create_thread
from tests.clock import NOW_MS, FakeClock
from tests.fixtures.make_schema_fixture import ROWS, fixture_path
from tests.store import rows

RELEASED = {
    1: "828822bd4f11b4f668f5128ac23a5ef2f321572c513f25fee32700c588762bf1",
}
"""The checksum of every released migration: what users have applied may never change."""


def test_no_released_migration_has_been_edited() -> None:
    checksums = {migration.version: migration.checksum for migration in known_migrations()}
    assert {version: checksums.get(version) for version in RELEASED} == RELEASED


def test_every_released_migration_has_a_fixture() -> None:
    assert sorted(ROWS) == sorted(RELEASED)
    assert all(fixture_path(version).is_file() for version in ROWS)


@pytest.fixture(params=sorted(ROWS))
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def path(version: int, tmp_path: Path) -> Path:
    """The unpacked fixture, where `db` opens it."""
    unpacked = tmp_path / "pikobot.sqlite3"
    unpacked.write_bytes(gzip.decompress(fixture_path(version).read_bytes()))
    return unpacked


def test_a_database_of_a_released_schema_opens_with_its_rows_intact(db: Database, version: int) -> None:
    assert rows.read(db, applied_version) == known_migrations()[-1].version
    for table, (columns, expected) in ROWS[version].items():
        stored = rows.rows(db, f"SELECT {columns} FROM {table} ORDER BY 1, 2")
        # An erasure is finished after the open: what indexes of that schema have left of it.
        assert stored == [*expected, *([("unfinished_erasure", "1")] if table == "settings" else ())], table


def test_it_holds_rows_in_every_table_of_its_schema(path: Path, version: int) -> None:
    with closing(connect(path)) as conn:
        listed = conn.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
        tables = {str(name) for (name,) in listed.fetchall()}
        assert applied_version(conn) == version
    assert tables - set(ROWS[version]) == {"migrations", "sqlite_schema", "sqlite_sequence"}


def test_its_texts_are_found_and_its_file_is_whole(db: Database) -> None:
    for query, expected in (("moving to Porto", {2, 3}), ("服务", {1}), ("波尔图", {1, 3}), ("youer", {1})):
        hits = rows.read(db, search_text, query=query, scope_ids=None, now_ms=NOW_MS, limit=9)
        assert {hit.source_id for hit in hits} == expected, query
    assert rows.rows(db, "PRAGMA integrity_check") == [("ok",)]
    assert rows.rows(db, "PRAGMA foreign_key_check") == []


def test_it_goes_on_where_it_was(db: Database, path: Path, clock: FakeClock) -> None:
    thread = rows.write(db, create_thread, rows.scope(db), "next", clock)
    new = rows.write(db, insert_source, rows.new_source(thread, "再来"), clock)
    assert new == SourceId(9)
    rows.write(db, delete_source, SourceId(3))
    db.close()
    assert is_prepared(path)
    again = open_database(path, clock)
    assert rows.rows(again, "SELECT id FROM sources ORDER BY id") == [(1,), (2,), (7,), (8,), (9,)]
    rows.execute(again, "INSERT INTO sources_text (sources_text, rank) VALUES ('integrity-check', 0)")
    again.close()
