"""A table of notes in a database without a schema, for tests of the connection and the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pikobot.clock import Clock
from pikobot.store.connection import Connection, Database


@contextmanager
def opened(path: Path, clock: Clock) -> Iterator[Database]:
    database = Database(path, clock)
    database.perform(note, "CREATE TABLE notes (text TEXT NOT NULL) STRICT")
    yield database
    database.close()


def note(db: Database, *statements: str) -> None:
    with db.write("note") as tx:
        for statement in statements:
            tx.execute(statement)


def add(db: Database, text: str) -> str:
    with db.write("add a note") as tx:
        tx.execute("INSERT INTO notes VALUES (?)", (text,))
    return text


def notes(conn: Connection) -> list[str]:
    return [row[0] for row in conn.execute("SELECT text FROM notes ORDER BY rowid")]


def stored(db: Database) -> list[str]:
    with db.read() as conn:
        return notes(conn)


def patience(db: Database, ms: int) -> None:
    """How long the writer waits for other processes and for readers."""
    db.maintenance_connection().set_busy_timeout(ms)
