"""Open an instance's database: migrated, with its identity, ready for operations."""

from contextlib import closing
from pathlib import Path

import apsw

from pikobot.clock import Clock
from pikobot.store import schema
from pikobot.store.connection import BUSY_TIMEOUT_MS, Connection, Database, connect, translated_errors
from pikobot.store.erasing import erasures
from pikobot.store.fact_index import rebuild_fact_index
from pikobot.store.settings import IDENTITY_KEY, INSTANCE_ID, SEGMENTER, read_setting, write_setting
from pikobot.store.text.index import is_index_current, rebuild_text_index
from pikobot.store.text.segmentation import SEGMENTER_ID


def open_database(path: Path, clock: Clock) -> Database:
    """The database at that path, made when it is missing. Caller holds the instance's lock.

    Raises what `schema.migrate` raises; the database is closed again in that case.
    """
    db = Database(path, clock)
    try:
        schema.migrate(db)
        db.perform(_complete)
    except BaseException:
        db.close()
        raise
    return db


def is_prepared(path: Path) -> bool:
    """Whether `open_database` would leave the database as it is, so that it may run beside other readers.

    Raises what `schema.check_applied` raises.
    """
    if not path.is_file():
        return False
    known = schema.known_migrations()
    with translated_errors("open the database"), closing(connect(path)) as conn:
        is_migrated = schema.check_applied(conn, known) == len(known)
        return is_migrated and read_setting(conn, INSTANCE_ID) is not None and is_index_current(conn)


def instance_in(path: Path) -> str | None:
    """The id of the instance whose database the file is; None for one that has none. Changes nothing in it."""
    with translated_errors("open the database"):
        conn = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    with closing(conn), translated_errors("read the database"):
        conn.set_busy_timeout(BUSY_TIMEOUT_MS)
        if not conn.execute("SELECT 1 FROM sqlite_schema WHERE name = 'settings'").fetchone():
            return None
        try:
            return read_setting(conn, INSTANCE_ID)
        except apsw.SQLError:  # somebody else's table
            return None


def identity_key(conn: Connection) -> bytes:
    """The key of `sources.record_identity` for this database."""
    key = read_setting(conn, IDENTITY_KEY)
    if key is None:
        raise LookupError("the database was not prepared")
    return key.encode()


def _complete(db: Database) -> None:
    """Give a new database its identity, and index its texts again when the segmentation has changed."""
    with db.read() as conn:
        is_new = read_setting(conn, INSTANCE_ID) is None
        if not is_new and is_index_current(conn):
            return
    with db.write("prepare the database") as tx:
        if is_new:
            write_setting(tx, INSTANCE_ID, db.clock.token("ins"))
            write_setting(tx, IDENTITY_KEY, db.clock.token("key"))
            write_setting(tx, SEGMENTER, SEGMENTER_ID)
        else:
            rebuild_text_index(tx)
            rebuild_fact_index(tx)
            if erasures.read_tip(tx).position:
                erasures.mark_unfinished(tx)  # what the old indexes held of it can stand outside of rows
