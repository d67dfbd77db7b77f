import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pikobot.errors import DamagedData, PikobotError, SchemaMismatch, SchemaTooNew
from pikobot.store.connection import PAGE_SIZE, Database
from pikobot.store.schema import Migration, applied_version, known_migrations, migrate
from tests.clock import FakeClock
from tests.store.rows import rows

ROOT = Path(__file__).parents[2]
FIRST = Migration(1, "first", "CREATE TABLE notes (text TEXT NOT NULL CHECK (text != 'bad')) STRICT;")
SECOND = Migration(
    2, "second", "ALTER TABLE notes ADD COLUMN tag TEXT; CREATE INDEX notes_by_tag ON notes (tag);"
)
THIRD = Migration(3, "third", "CREATE TABLE tags (tag TEXT PRIMARY KEY) STRICT;")
BROKEN = Migration(2, "broken", "CREATE TABLE half (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1);")


@pytest.fixture
def db(path: Path, clock: FakeClock) -> Iterator[Database]:
    database = Database(path, clock)
    yield database
    database.close()


def tables(db: Database) -> list[str]:
    with db.read() as conn:
        return [
            row[0]
            for row in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        ]


def version(db: Database) -> int:
    with db.read() as conn:
        return applied_version(conn)


def execute(db: Database, sql: str) -> None:
    with db.write("a test's change") as tx:
        tx.execute(sql)


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if not file.name.endswith(("-wal", "-shm")))


def damage(db: Database, table: str) -> None:
    """Close the database and overwrite the first page of a table."""
    page = rows(db, "SELECT rootpage FROM sqlite_schema WHERE name = ?", table)[0][0]
    db.close()
    with db.path.open("r+b") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(b"\xff" * 100)


# Fresh and again


def test_a_fresh_database_gets_every_migration_and_its_record(
    db: Database, clock: FakeClock, path: Path
) -> None:
    assert version(db) == 0
    assert migrate(db, (FIRST, SECOND)) == 2
    assert tables(db) == ["migrations", "notes"]
    with db.read() as conn:
        records = conn.execute("SELECT * FROM migrations ORDER BY version").fetchall()
    assert records == [
        (1, "first", FIRST.checksum, clock.now),
        (2, "second", SECOND.checksum, clock.now),
    ]
    assert names(path) == [path.name]


def test_the_second_open_changes_nothing(db: Database) -> None:
    migrate(db, (FIRST,))
    assert migrate(db, (FIRST,)) == 0
    assert version(db) == 1


def test_a_later_migration_keeps_the_rows_and_removes_its_copy(db: Database, path: Path) -> None:
    migrate(db, (FIRST,))
    db.perform(execute, "INSERT INTO notes VALUES ('写下来')")
    assert migrate(db, (FIRST, SECOND, THIRD)) == 2
    with db.read() as conn:
        assert conn.execute("SELECT * FROM notes").fetchall() == [("写下来", None)]
    assert names(path) == [path.name]


# Refused


@pytest.mark.parametrize(
    "edited",
    [Migration(1, "first", FIRST.sql + "\n"), Migration(1, "renamed", FIRST.sql)],
    ids=["other statements", "other name"],
)
def test_an_edited_migration_is_refused(db: Database, edited: Migration) -> None:
    migrate(db, (FIRST,))
    with pytest.raises(SchemaMismatch, match="migration 1 'first' is not the one"):
        migrate(db, (edited, SECOND))
    assert tables(db) == ["migrations", "notes"]


def test_a_gap_in_the_database_is_refused(db: Database) -> None:
    migrate(db, (FIRST, SECOND, THIRD))
    db.perform(execute, "DELETE FROM migrations WHERE version = 2")
    with pytest.raises(SchemaMismatch, match="migration 2 is missing from the database before 3"):
        migrate(db, (FIRST, SECOND, THIRD))


def test_a_missing_beginning_is_refused(db: Database) -> None:
    migrate(db, (FIRST, SECOND))
    db.perform(execute, "DELETE FROM migrations WHERE version = 1")
    with pytest.raises(SchemaMismatch, match="migration 1 is missing from the database before 2"):
        migrate(db, (FIRST, SECOND))


def test_a_newer_schema_is_refused_and_stays_as_it_is(db: Database) -> None:
    migrate(db, (FIRST, SECOND, THIRD))
    with pytest.raises(SchemaTooNew, match="has schema 3, this pikobot knows 2: use a newer pikobot"):
        migrate(db, (FIRST, SECOND))
    assert version(db) == 3


def test_tables_of_something_else_are_refused_and_left_alone(db: Database) -> None:
    db.perform(execute, "CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
    with pytest.raises(SchemaMismatch, match="tables that pikobot did not make"):
        migrate(db, (FIRST,))
    assert tables(db) == ["invoices"]


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE migrations (id INTEGER PRIMARY KEY, filename TEXT)",
        "CREATE TABLE migrations AS SELECT '001' AS version, 'a' AS name, 'b' AS checksum",
    ],
)
def test_a_migrations_table_of_something_else_is_refused(db: Database, foreign: str) -> None:
    db.perform(execute, foreign)
    with pytest.raises(SchemaMismatch, match="'migrations' that pikobot did not make"):
        migrate(db, (FIRST,))
    assert tables(db) == ["migrations"]


# Failures and crashes


def test_a_failing_first_migration_leaves_an_empty_database(db: Database, path: Path) -> None:
    broken = Migration(1, "broken", BROKEN.sql)
    with pytest.raises(PikobotError, match="migration 1 'broken' failed: no such table: nowhere"):
        migrate(db, (broken,))
    assert tables(db) == []
    assert names(path) == [path.name]
    assert migrate(db, (FIRST,)) == 1


def test_a_failing_migration_leaves_the_schema_before_it_and_a_copy(db: Database, path: Path) -> None:
    migrate(db, (FIRST,))
    db.perform(execute, "INSERT INTO notes VALUES ('kept')")
    with pytest.raises(PikobotError, match="migration 2 'broken' failed"):
        migrate(db, (FIRST, BROKEN, THIRD))
    assert (version(db), tables(db)) == (1, ["migrations", "notes"])
    copy = path.with_name(f"{path.name}.before-0002")
    assert names(path) == [path.name, copy.name]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    kept = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
    assert kept.execute("SELECT text FROM notes").fetchall() == [("kept",)]
    kept.close()


def test_a_migration_after_a_good_one_fails_alone(db: Database) -> None:
    migrate(db, (FIRST,))
    with pytest.raises(PikobotError, match="migration 3 'broken' failed"):
        migrate(db, (FIRST, SECOND, Migration(3, "broken", BROKEN.sql)))
    assert version(db) == 2


def test_a_migration_that_existing_rows_contradict_fails(db: Database) -> None:
    migrate(db, (FIRST,))
    against = Migration(2, "against", "INSERT INTO notes VALUES ('bad');")
    with pytest.raises(PikobotError, match="migration 2 'against' failed: CHECK"):
        migrate(db, (FIRST, against))
    assert version(db) == 1


def test_a_migration_that_breaks_references_fails(db: Database) -> None:
    def without_checks(db: Database) -> None:
        db.maintenance_connection().execute("PRAGMA foreign_keys = OFF")

    db.perform(without_checks)
    dangling = Migration(
        2,
        "dangling",
        "CREATE TABLE a (id INTEGER PRIMARY KEY) STRICT;"
        "CREATE TABLE b (a_id INTEGER REFERENCES a (id)) STRICT;"
        "INSERT INTO b VALUES (7);",
    )
    with pytest.raises(DamagedData, match="migration 2 leaves rows whose references are missing"):
        migrate(db, (FIRST, dangling))
    assert version(db) == 1


@pytest.mark.parametrize(
    "wanted", [(FIRST,), (FIRST, SECOND)], ids=["nothing to migrate", "a migration that works"]
)
def test_a_leftover_copy_goes_at_the_next_open(
    db: Database, path: Path, wanted: tuple[Migration, ...]
) -> None:
    migrate(db, (FIRST,))
    for name in ("before-0002", "before-0002-journal", "before-0001"):
        path.with_name(f"{path.name}.{name}").write_text("what was forgotten since")
    other = path.with_name("other.sqlite3.before-0002")
    other.write_text("not ours")
    migrate(db, wanted)
    assert names(path) == [other.name, path.name]


def test_a_copy_that_cannot_be_made_stops_the_migration(db: Database, path: Path, clock: FakeClock) -> None:
    migrate(db, (FIRST,))
    db.perform(execute, f"INSERT INTO notes VALUES ('{'x' * 3 * PAGE_SIZE}')")
    damage(db, "notes")
    again = Database(path, clock)
    with pytest.raises(DamagedData, match="copy the database before migrating it"):
        migrate(again, (FIRST, SECOND))
    assert (version(again), names(path)) == (1, [path.name])
    again.close()


def test_a_damaged_record_of_migrations_is_damaged_data(db: Database, path: Path, clock: FakeClock) -> None:
    migrate(db, (FIRST,))
    damage(db, "migrations")
    again = Database(path, clock)
    with pytest.raises(DamagedData, match="check the schema"):
        migrate(again, (FIRST,))
    again.close()


DIE_IN_A_MIGRATION = """
import os, sys
from pathlib import Path
from pikobot.clock import SystemClock
from pikobot.store.connection import PAGE_SIZE, Database
from pikobot.store.schema import migrate
from tests.store.test_schema import FIRST, SECOND

def die(db):
    db.maintenance_connection().set_update_hook(lambda *args: os._exit(9))

db = Database(Path(sys.argv[1]), SystemClock())
db.perform(die)
migrate(db, (FIRST, SECOND))
"""


def test_a_process_killed_in_a_migration_leaves_the_schema_before_it(
    db: Database, path: Path, clock: FakeClock
) -> None:
    migrate(db, (FIRST,))
    db.perform(execute, "INSERT INTO notes VALUES ('kept')")
    db.close()
    killed = subprocess.run([sys.executable, "-c", DIE_IN_A_MIGRATION, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == 9
    assert names(path) == [path.name, f"{path.name}.before-0002"]
    again = Database(path, clock)
    assert version(again) == 1
    assert migrate(again, (FIRST, SECOND)) == 1
    with again.read() as conn:
        assert conn.execute("SELECT * FROM notes").fetchall() == [("kept", None)]
    again.close()
    assert names(path) == [path.name]


def test_the_copy_is_a_whole_database(db: Database, path: Path, clock: FakeClock, tmp_path: Path) -> None:
    migrate(db, (FIRST,))
    db.perform(execute, "INSERT INTO notes VALUES ('在')")
    with pytest.raises(PikobotError):
        migrate(db, (FIRST, BROKEN))
    db.close()
    restored = tmp_path / "restored.sqlite3"
    shutil.move(path.with_name(f"{path.name}.before-0002"), restored)
    again = Database(restored, clock)
    assert migrate(again, (FIRST, SECOND)) == 1
    with again.read() as conn:
        assert conn.execute("SELECT * FROM notes").fetchall() == [("在", None)]
    again.close()


# What this program carries


def test_migrations_are_numbered_without_gaps_and_leave_transactions_to_the_program() -> None:
    migrations = known_migrations()
    assert [migration.version for migration in migrations] == list(range(1, len(migrations) + 1))
    for migration in migrations:
        words = set(migration.sql.upper().replace(";", " ").split())
        assert not words & {"COMMIT", "ROLLBACK", "BEGIN", "SAVEPOINT"}, migration.name


def test_a_checksum_is_that_of_the_file() -> None:
    folder = ROOT / "pikobot" / "store" / "migrations"
    of_files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.sql")}
    assert of_files == {f"{m.version:04}_{m.name}.sql": m.checksum for m in known_migrations()}


def test_every_table_is_strict_and_every_reference_to_what_may_go_is_indexed(db: Database) -> None:
    migrate(db)
    with db.read() as conn:
        listed = conn.execute(
            "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        )
        loose = [name for name, strict in listed.fetchall() if not strict]
        assert set(loose) == {"sqlite_schema", "sqlite_sequence"}  # SQLite's own
        references = conn.execute(
            """
            SELECT t.name, f."from" FROM pragma_table_list AS t, pragma_foreign_key_list(t.name) AS f
            WHERE t.schema = 'main' AND f."table" != 'scopes'  -- scopes stay for ever
            ORDER BY 1, 2
            """
        ).fetchall()
        scans = [
            (table, column)
            for table, column in references
            if "SCAN"
            in str(conn.execute(f"EXPLAIN QUERY PLAN SELECT 1 FROM {table} WHERE {column} = 7").fetchall())
        ]
    assert references
    assert scans == []


def test_the_text_index_deletes_securely(db: Database) -> None:
    migrate(db)
    with db.read() as conn:
        assert conn.execute("SELECT v FROM sources_text_config WHERE k = 'secure-delete'").fetchall() == [
            (1,)
        ]


def test_the_umask_makes_no_file_wider(path: Path, clock: FakeClock) -> None:
    before = os.umask(0)
    try:
        db = Database(path, clock)
        migrate(db, (FIRST,))
        with pytest.raises(PikobotError):
            migrate(db, (FIRST, BROKEN))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        db.close()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert f"{path.name}.before-0002" in modes
