"""Migrations: numbered SQL files, forward only, each applied together with its record in one transaction.

A file that was applied may never change (its SHA-256 is recorded), none may be skipped, and a database that
a newer pikobot has migrated is refused. Before an existing database is migrated a copy of it is written beside
it. The copy stays when a migration fails or the process dies, and goes as soon as the database was opened with
nothing left to migrate: a copy that stayed would keep what is forgotten later.
"""

import glob
import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import apsw

from pikobot.errors import DamagedData, PikobotError, SchemaMismatch, SchemaTooNew
from pikobot.files import os_failure
from pikobot.store.connection import Connection, Database, create_private_file, translated_errors

RECORDS_TABLE = """
    CREATE TABLE IF NOT EXISTS migrations (
        version       INTEGER PRIMARY KEY,
        name          TEXT    NOT NULL,
        checksum      TEXT    NOT NULL,
        applied_at_ms INTEGER NOT NULL
    ) STRICT
"""


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations() -> tuple[Migration, ...]:
    """The migrations that this program carries, in order."""
    found = []
    for entry in resources.files("pikobot.store.migrations").iterdir():
        if entry.name.endswith(".sql"):
            number, name = entry.name.removesuffix(".sql").split("_", 1)
            found.append(Migration(int(number), name, entry.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.version))


def migrate(db: Database, migrations: tuple[Migration, ...] | None = None) -> int:
    """Bring the database to the newest schema; returns how many migrations ran.

    Raises `SchemaTooNew`, `SchemaMismatch` (edited, gapped or foreign schema), `PikobotError` when a migration
    fails: nothing of it is kept then, but those before it stay.
    """
    wanted = known_migrations() if migrations is None else migrations
    return db.perform(_migrate, wanted)


def applied_version(conn: Connection) -> int:
    """The newest migration applied, 0 for an empty database."""
    applied = _applied(conn)
    return applied[-1][0] if applied else 0


def check_applied(conn: Connection, migrations: tuple[Migration, ...]) -> int:
    """Hold what was applied against what this program carries; returns how many were applied."""
    applied = _applied(conn)
    newest, newest_known = applied[-1][0] if applied else 0, migrations[-1].version
    if newest > newest_known:
        raise SchemaTooNew(
            f"the database has schema {newest}, this pikobot knows {newest_known}: use a newer pikobot"
        )
    for position, (version, name, checksum) in enumerate(applied):
        known = migrations[position]
        if version != known.version:
            raise SchemaMismatch(f"migration {known.version} is missing from the database before {version}")
        if (name, checksum) != (known.name, known.checksum):
            raise SchemaMismatch(f"migration {version} '{name}' is not the one that this pikobot carries")
    return len(applied)


def _applied(conn: Connection) -> list[tuple[int, str, str]]:
    if not _has_records(conn):
        return []
    foreign = "the database holds a table 'migrations' that pikobot did not make: move the file away"
    try:
        rows = conn.execute("SELECT version, name, checksum FROM migrations ORDER BY version").fetchall()
    except apsw.SQLError as error:
        raise SchemaMismatch(foreign) from error
    applied = [
        (version, name, checksum)
        for version, name, checksum in rows
        if isinstance(version, int) and isinstance(name, str) and isinstance(checksum, str)
    ]
    if len(applied) < len(rows):
        raise SchemaMismatch(foreign)
    return applied


def _has_records(conn: Connection) -> bool:
    return bool(
        conn.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'").fetchone()
    )


def _migrate(db: Database, migrations: tuple[Migration, ...]) -> int:
    conn = db.maintenance_connection()
    with translated_errors("check the schema"):
        pending = migrations[check_applied(conn, migrations) :]
        is_new = not _has_records(conn)
        is_foreign = is_new and conn.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None
    if is_foreign:
        raise SchemaMismatch(f"{db.path} holds tables that pikobot did not make: move the file away")
    if pending and not is_new:
        _copy_before(db.path, conn, pending[0].version)
    for migration in pending:
        _apply(db, migration)
    _remove_copies(db.path)
    return len(pending)


def _apply(db: Database, migration: Migration) -> None:
    with db.write(f"migrate to schema {migration.version}") as conn:
        conn.execute(RECORDS_TABLE)
        try:
            conn.execute(migration.sql)
        except (apsw.SQLError, apsw.ConstraintError) as error:
            raise PikobotError(f"migration {migration.version} '{migration.name}' failed: {error}") from error
        if conn.execute("PRAGMA foreign_key_check").fetchone():
            raise DamagedData(f"migration {migration.version} leaves rows whose references are missing")
        conn.execute(
            "INSERT INTO migrations (version, name, checksum, applied_at_ms) VALUES (?, ?, ?, ?)",
            (migration.version, migration.name, migration.checksum, db.clock.now_ms()),
        )


def _copy_before(path: Path, conn: Connection, version: int) -> None:
    copy = path.with_name(f"{path.name}.before-{version:04}")
    copy.unlink(missing_ok=True)
    create_private_file(copy)
    try:
        with translated_errors("copy the database before migrating it"):
            conn.execute("VACUUM INTO ?", (str(copy),))
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def _remove_copies(path: Path) -> None:
    for copy in path.parent.glob(f"{glob.escape(path.name)}.before-*"):
        try:
            copy.unlink(missing_ok=True)
        except OSError as error:
            raise os_failure("remove the copy", copy, error) from error
