"""Open an instance's database: migrated, with its identity, ready for operations."""

from pathlib import Path

from pikobot.clock import Clock
from pikobot.store import schema
from pikobot.store.connection import Connection, Database
from pikobot.store.segmentation import SEGMENTER_VERSION
from pikobot.store.settings import IDENTITY_KEY, INSTANCE_ID, SEGMENTER, read_setting, write_setting
from pikobot.store.text_index import rebuild_text_index


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


def _complete(db: Database) -> None:
    """Give a new database its identity, and index its texts again when the segmentation has changed."""
    with db.read() as conn:
        if read_setting(conn, INSTANCE_ID) and read_setting(conn, SEGMENTER) == str(SEGMENTER_VERSION):
            return
    with db.write("prepare the database") as tx:
        if read_setting(tx, INSTANCE_ID) is None:
            write_setting(tx, INSTANCE_ID, db.clock.token("ins"))
            write_setting(tx, IDENTITY_KEY, db.clock.token("key"))
        if read_setting(tx, SEGMENTER) not in (None, str(SEGMENTER_VERSION)):
            rebuild_text_index(tx)
        write_setting(tx, SEGMENTER, str(SEGMENTER_VERSION))


def identity_key(conn: Connection) -> bytes:
    """The key of `sources.record_identity` for this database."""
    key = read_setting(conn, IDENTITY_KEY)
    if key is None:
        raise LookupError("the database was not prepared")
    return key.encode()
