from pikobot.store.connection import Database
from pikobot.store.settings import read_setting, write_setting
from tests.store import rows


def test_a_setting_is_read_as_it_was_written_last(db: Database) -> None:
    assert rows.read(db, read_setting, "greeting") is None
    rows.write(db, write_setting, "greeting", "hello")
    rows.write(db, write_setting, "greeting", "你好")
    assert rows.read(db, read_setting, "greeting") == "你好"
    assert rows.read(db, read_setting, "Greeting") is None
