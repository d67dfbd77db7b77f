import apsw

from pikobot.store.connection import Database, connect
from pikobot.store.inspection import inspect, inspect_structure
from pikobot.store.sources import delete_source
from tests.store import rows

VERSION = "SELECT v FROM sources_text_config WHERE k = 'version'"


def test_the_first_deletion_from_an_index_is_no_damage_to_who_has_looked_before(db: Database) -> None:
    first, *_ = [rows.source(db, rows.thread(db), text) for text in ("long ago 很久以前", "hello 你好")]
    reader = connect(db.path)
    try:
        assert (rows.rows(db, VERSION), inspect_structure(reader)) == ([(4,)], [])
        rows.write(db, delete_source, first)
        assert (rows.rows(db, VERSION), inspect(reader)) == ([(5,)], [])
    finally:
        reader.close()


def test_an_index_that_is_damaged_is_found(db: Database) -> None:
    def spoil(db: Database) -> None:
        conn = db.maintenance_connection()
        conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        conn.execute("UPDATE sources_text_data SET block = x'00000000ffff' WHERE id > 10")

    rows.source(db, rows.thread(db), "long ago 很久以前")
    db.perform(spoil)
    with db.read() as conn:
        assert inspect(conn) == ["a text index is damaged: run `pikobot reindex`"]
