"""Copies of a database: made while it is in use, and read without changing a byte beside them.

A snapshot is what VACUUM INTO writes: one transaction's view, packed, without free pages, so that nothing that was
erased can ride along in unused bytes. `open_unchanging` reads a database that nobody else uses, a snapshot or one
that is damaged, as it lies there.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import apsw

from pikobot.store import schema
from pikobot.store.connection import Connection, Database, create_private_file, translated_errors
from pikobot.store.erasing import erasures
from pikobot.store.erasing.erasures import Erasure, Tip
from pikobot.store.settings import INSTANCE_ID, read_setting

STEPS_BETWEEN_PROGRESS = 50_000
WAL_SUFFIX = "-wal"
SHM_SUFFIX = "-shm"


@dataclass(frozen=True)
class Description:
    """What a database is: whose, of which schema, and where its erasure ledger ends."""

    instance: str
    schema_version: int
    tip: Tip


def write_snapshot(db: Database, target: Path, proceed: Callable[[int], bool]) -> None:
    """Copy the database as it is now into a new file, mode 0600; others may write meanwhile.

    An operation for the writer thread. ``proceed`` is told from time to time how many bytes the copy has and ends
    the copy by returning False. On any failure no file is left.
    """
    conn = db.maintenance_connection()
    create_private_file(target)
    conn.set_progress_handler(lambda: not proceed(target.stat().st_size), STEPS_BETWEEN_PROGRESS)
    try:
        with translated_errors("copy the database"):
            conn.execute("VACUUM INTO ?", (str(target),))
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    finally:
        conn.set_progress_handler(None)


def expected_size(conn: Connection) -> int:
    """About how many bytes a snapshot takes: the pages in use."""
    row = conn.execute(
        """
        SELECT (pages.page_count - free.freelist_count) * size.page_size
        FROM pragma_page_count AS pages, pragma_freelist_count AS free, pragma_page_size AS size
        """
    ).fetchone()
    return int(row[0]) if row else 0


@contextmanager
def open_unchanging(path: Path) -> Iterator[Connection]:
    """A read-only connection that leaves no trace. Caller makes sure that no process writes.

    A write-ahead log that a crash has left is read and stays as it is.
    """
    log = path.with_name(path.name + WAL_SUFFIX)
    is_logged = log.exists() and log.stat().st_size > 0
    index = path.with_name(path.name + SHM_SUFFIX)
    had_index = index.exists()
    options = "mode=ro" if is_logged else "mode=ro&immutable=1"
    with translated_errors("open the database"):
        conn = apsw.Connection(
            f"file:{quote(str(path))}?{options}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
    try:
        with translated_errors("read the database"):
            conn.execute("PRAGMA query_only = ON").fetchall()
            conn.execute("PRAGMA trusted_schema = OFF").fetchall()
            yield conn
    finally:
        conn.close(True)
        if (
            is_logged and not had_index and index.exists()
        ):  # of a read-only file system even this can't be tried
            os.unlink(index)


def describe(conn: Connection) -> Description | None:
    """What the database is; None when it was never prepared as one of pikobot's."""
    version = schema.applied_version(conn)
    if version == 0 or (instance := read_setting(conn, INSTANCE_ID)) is None:
        return None
    return Description(instance, version, erasures.read_tip(conn))


def chain_of(conn: Connection) -> list[Erasure]:
    """The whole ledger of a database, checked. Raises `DamagedData`."""
    erasures.verify_chain(conn)
    return list(erasures.read_after(conn, 0))
