"""Migrations: numbered SQL files, forward only, each applied together with its record in one transaction.

A file that was applied may never change (its SHA-256 is recorded), none may be skipped, and a database that
a newer pikobot has migrated is refused. Before an existing database is migrated a copy of it is written beside
it, and removed when the migration has succeeded: a copy that stayed would keep what is forgotten later.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import apsw

from pikobot.errors import DamagedData, PikobotError, SchemaMismatch, SchemaTooNew
from pikobot.store.connection import Connection, Database, create_private_file

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
    fails: the database is then as it was.
    """
    wanted = known_migrations() if migrations is None else migrations
    return db.perform(_migrate, wanted)


def applied_version(conn: Connection) -> int:
    """The newest migration applied, 0 for an empty database."""
    if not _has_records(conn):
        return 0
    row = conn.execute("SELECT max(version) FROM migrations").fetchone()
    return int(row[0] or 0) if row else 0


def check_applied(conn: Connection, migrations: tuple[Migration, ...]) -> int:
    """Hold what was applied against what this program carries; returns how many were applied."""
    applied = (
        conn.execute("SELECT version, name, checksum FROM migrations ORDER BY version").fetchall()
        if _has_records(conn)
        else []
    )
    newest, newest_known = applied_version(conn), migrations[-1].version
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


def _has_records(conn: Connection) -> bool:
    return bool(
        conn.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'").fetchone()
    )


def _migrate(db: Database, migrations: tuple[Migration, ...]) -> int:
    conn = db.maintenance_connection()
    pending = migrations[check_applied(conn, migrations) :]
    if not pending:
        return 0
    is_new = not _has_records(conn)
    if is_new and conn.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
        raise SchemaMismatch(f"{db.path} holds tables that pikobot did not make")
    copy = None if is_new else _copy_before(db.path, conn, pending[0].version)
    for migration in pending:
        _apply(db, migration)
    if copy is not None:
        copy.unlink()
    return len(pending)


def _apply(db: Database, migration: Migration) -> None:
    with db.write(f"migrate to schema {migration.version}") as conn:
        conn.execute(RECORDS_TABLE)
        try:
            conn.execute(migration.sql)
        except apsw.SQLError as error:
            raise PikobotError(f"migration {migration.version} '{migration.name}' failed: {error}") from error
        if conn.execute("PRAGMA foreign_key_check").fetchone():
            raise DamagedData(f"migration {migration.version} leaves rows whose references are missing")
        conn.execute(
            "INSERT INTO migrations (version, name, checksum, applied_at_ms) VALUES (?, ?, ?, ?)",
            (migration.version, migration.name, migration.checksum, db.clock.now_ms()),
        )


def _copy_before(path: Path, conn: Connection, version: int) -> Path:
    copy = path.with_name(f"{path.name}.before-{version:04}")
    copy.unlink(missing_ok=True)
    create_private_file(copy)
    conn.execute("VACUUM INTO ?", (str(copy),))
    return copy
